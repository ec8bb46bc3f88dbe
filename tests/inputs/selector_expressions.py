"""Makes random selectors from the table of functions.

Their values are at the edges of their types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

from alignup.claims.selectors.check import Function, Overload, functions
from alignup.claims.selectors.values import Type

# What a selector may begin with, by type.
VALUES = {
    "int": (
        "0 1 -1 2 3 7 10 64 -5 100 1000 9223372036854775807 -9223372036854775808 {A}.index "
        "{B}.x.size()"
    ),
    "uint": "0u 1u 3u 7u 18446744073709551615u uint({A}.index)",
    "double": "0.0 -0.0 1.0 1.5 -2.25 0.1 1e300 -1e-7 1e6 123456.789 double('inf') double('nan')",
    "string": """'' 'a' 'abc' 'ABC' 'a,b,c' ',' 'b' 'Éé' '😀x'
    '1' '-12' '1.5' 'true' '1.2.3' 'v1.2' '1.2.3-rc.1' '10.0.0.0/8' '10.1.2.3' 'fe80::1' '::/0'
    '1h30m' '-1.5s' '2020-02-29T01:02:03.5Z' '2020-01-01T00:00:00+05:30'
    '1Gi' '500m' '0.1' '1e3' '1Ki' '123456789012345678901'
    'https://u@a.b:80/c%20d?e=f&e=g#h' '/x/y' 'mailto:a@b'
    '%s' '%d-%s' 'x%%y' 'a-b.c' 'example.com/Name' 'YWJj' 'a+' '^[a-c]+$' '(' '\\d+'
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' 'UTC' '+02:30' '-01:00' 'uuid' 'date'
    {A}.model device.driver {B}.x""",
    "bytes": r"b'' b'a' b'abc' b'\xff\x00' bytes('é')",
    "bool": "true false {A}.ecc device.allowMultipleAllocations",
    "null_type": "null",
    "dyn": """dyn(1) dyn('a') dyn([1,2]) dyn({'a':1}) dyn(1.0) dyn(1u)
    {A}.index {A}.model {A}.absent {C}.numaNode {A}.driverVersion""",
    "google.protobuf.Timestamp": """timestamp(0) timestamp('2020-02-29T23:59:59.999999999Z')
    timestamp('2019-12-31T23:00:00-02:00')""",
    "google.protobuf.Duration": (
        "duration('0s') duration('1h1m1.001s') duration('-90m') duration('999ns')"
    ),
    "kubernetes.Quantity": """quantity('0') quantity('1') quantity('1000m')
    quantity('1.5Gi') quantity('-3k') quantity('1e3')
    device.capacity['gpu.example.com'].memory device.capacity['gpu.example.com'].half""",
    "kubernetes.Semver": "semver('1.2.3') semver('1.2.3-rc.1') semver('v2',true) {A}.driverVersion",
    "net.IP": "ip('10.1.2.3') ip('::1') ip('fe80::1') ip('224.0.0.1') ip('0.0.0.0')",
    "net.CIDR": "cidr('10.0.0.0/8') cidr('10.1.2.3/24') cidr('::/0') cidr('fd00::1/64')",
    "kubernetes.URL": "url('https://a.b:80/c?d=e') url('/x%20y') url('x:y') url('http://[::1]/')",
    "type": "int string list map type(1.0) type({A}.index)",
    "list": "[] {C}.numaNode",
    "map": "{} device.attributes {A}",
    "optional_type": "optional.none() {A}.?model {A}.?absent",
}
PLACES = {
    f"{{{letter}}}": f"device.attributes['{domain}']"
    for letter, domain in (
        ("A", "gpu.example.com"),
        ("B", "other.com"),
        ("C", "resource.kubernetes.io"),
    )
}
OPERATORS = {
    "_[_]": "{0}[{1}]",
    "_[?_]": "{0}[?{1}]",
    "_?._": "({0}).?{field}",
    "_?_:_": "({0} ? {1} : {2})",
    "!_": "!({0})",
    "-_": "-({0})",
    "@in": "({0} in {1})",
}
SIMPLE = ("int", "string", "double", "bool", "uint", "bytes", "dyn", "kubernetes.Quantity")


class Expressions:
    """Makes expressions of types, a function at a time."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._variables: list[tuple[str, Type]] = []
        self._made: dict[str, list[tuple[Function, Overload]]] = {}
        for function in functions().values():
            for overload in function.overloads:
                self._made.setdefault(overload.result.name, []).append((function, overload))

    def selectors(self) -> Iterator[str]:
        """Make truth values without end."""
        while True:
            yield self.of(Type("bool"), self._random.choice((2, 3, 3, 4)))

    def of(self, kind: Type, depth: int) -> str:
        """Make an expression of a type, or, seldom, of another."""
        random = self._random
        if random.random() < 0.02:
            kind = Type(random.choice(SIMPLE))

        fitting = [name for name, bound in self._variables if bound.name == kind.name]
        if fitting and random.random() < 0.4:
            return random.choice(fitting)
        if kind.is_variable:
            kind = Type(random.choice(SIMPLE))

        if depth <= 0 or random.random() < 0.1:
            return self._value(kind, depth)
        if random.random() < 0.25:
            return self._macro(kind, depth - 1)

        calls = list(self._made.get(kind.name, []))
        for letter in "ABV":
            calls += self._made.get(letter, [])

        choices = [
            (function, overload)
            for function, overload in calls
            if (function.name == "@in" or "@" not in function.name)
            and all(
                a == b or a.is_variable
                for a, b in zip(overload.result.parameters, kind.parameters, strict=False)
            )
        ]
        if not choices:
            return self._value(kind, depth)

        return self._call(*random.choice(choices), kind, depth - 1)

    def _value(self, kind: Type, depth: int) -> str:
        random = self._random
        inner = (*kind.parameters, Type(random.choice(SIMPLE)), Type("int"))
        if kind.name == "list" and random.random() < 0.9:
            return (
                f"[{', '.join(self.of(inner[0], depth - 1) for _ in range(random.randint(0, 3)))}]"
            )

        if kind.name == "map" and random.random() < 0.8:
            # cel-go panics where a constant map has a key of bytes
            key = inner[0] if inner[0].name in ("int", "uint", "bool") else Type("string")
            entries = (
                f"{self._value(key, 0)}: {self.of(inner[1], depth - 1)}"
                for _ in range(random.randint(0, 2))
            )
            return f"{{{', '.join(entries)}}}"

        if kind.name == "optional_type" and random.random() < 0.7:
            return f"optional.of({self.of(inner[0], depth - 1)})"

        value = random.choice(VALUES.get(kind.name, "1").split())
        return re.sub(r"\{[ABC]\}", lambda place: PLACES[place[0]], value)

    def _call(self, function: Function, overload: Overload, kind: Type, depth: int) -> str:
        """Make a call whose variables of types are those of the result, or some."""
        bound = dict(
            zip(
                [parameter.name for parameter in overload.result.parameters],
                kind.parameters,
                strict=False,
            )
        )
        simple = {name: Type(self._random.choice(SIMPLE)) for name in "ABV"} | {
            k: v for k, v in bound.items() if len(k) == 1
        }
        if len(overload.result.name) == 1:
            simple[overload.result.name] = kind

        def filled(parameter: Type) -> Type:
            return (
                simple[parameter.name]
                if parameter.is_variable
                else Type(parameter.name, tuple(map(filled, parameter.parameters)))
            )

        parts = [self.of(filled(parameter), depth) for parameter in overload.parameters]
        return self._written(function.name, parts, is_method=overload.is_method)

    def _written(self, name: str, parts: list[str], *, is_method: bool) -> str:
        """Write a call, operators as operators."""
        shape = OPERATORS.get(name) or (f"({{0}} {name[1:-1]} {{1}})" if name[0] == "_" else "")
        if shape:
            return shape.format(*parts, field=self._random.choice(("model", "absent", "x")))
        target = ""
        if is_method:
            target = f"({parts[0]})."

        return f"{target}{name}({', '.join(parts[is_method:])})"

    def _macro(self, kind: Type, depth: int) -> str:
        random = self._random
        inner, name = Type(random.choice(SIMPLE)), f"v{len(self._variables)}"
        over = self.of(Type("list", (inner,)), depth)
        before = self._variables
        self._variables = [*before, (name, inner)]
        test, body = (
            self.of(Type("bool"), depth),
            self.of(kind.parameters[0] if kind.parameters else kind, depth),
        )
        self._variables = before
        if kind.name == "bool":
            macro = random.choice(("all", "exists", "exists_one"))
            expression = (
                f"{over}.{macro}({name}, {test})"
                if random.random() < 0.6
                else f"{over}.{macro}(i, {name}, {test})"
            )
        elif kind.name == "list":
            expression = random.choice(
                (
                    f"{over}.map({name}, {body})",
                    f"{over}.map({name}, {test}, {body})",
                    f"{over}.filter({name}, {test})",
                    f"{over}.transformList(i, {name}, {body})",
                    f"{over}.sortBy({name}, {body})",
                )
            )
        elif kind.name == "map":
            expression = random.choice(
                (
                    f"{over}.transformMap(i, {name}, {body})",
                    f"{over}.transformMapEntry(i, {name}, {{i: {body}}})",
                )
            )
        elif kind.name == "optional_type":
            expression = f"optional.of({self.of(inner, depth)}).optMap({name}, {body})"
        else:
            expression = f"cel.bind({name}, {self.of(inner, depth)}, {body})"

        return expression
