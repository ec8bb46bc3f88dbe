"""Checks an expression against the environment of the API server: the overloads of its calls, and its type.

`environment.json` beside this file declares each function, as cel-go's libraries and those of
`k8s.io/apiserver/pkg/cel/library` do that 1.37 loads for expressions that are stored: overloads,
what implements them, and the rule of their cost. The rules of types are those of cel-go's checker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any, Final

from alignup.claims.selectors import values as cel
from alignup.claims.selectors.libraries import format_clauses, takes
from alignup.claims.selectors.syntax import CompileError, Node, NotUnderstood, path_of
from alignup.claims.selectors.values import BOOL, DYN, INT, Type, environment, kind_of
from alignup.records import Record

_DEVICE: Final = Type("kubernetes.DRADevice")
_OPTIONAL: Final = "optional_type"


class Overload(Record):
    """One way to call a function.

    Attributes:
        parameters: a method's target is the first.
        implementation: the name of the Python function that is called; with an @, of what plans the
            call.
        cost: the name of the rule of what this overload costs; empty: that of the function.
    """

    is_method: bool
    parameters: tuple[Type, ...]
    result: Type
    implementation: str
    cost: str


class Function(Record):
    """A function or an operator.

    Attributes:
        cost: the name of the rule of what a call costs, whatever its types.
        is_guarded: cel-go compares the types of values with those declared, and not the
            implementation.
    """

    name: str
    overloads: tuple[Overload, ...]
    cost: str
    is_guarded: bool


class Call(Record):
    """What a call is: the function, the overloads that its types allow, and the arguments, a target first."""

    function: Function
    overloads: tuple[Overload, ...]
    arguments: tuple[Node, ...]


@cache
def functions() -> Mapping[str, Function]:
    """Return the functions of the environment by name."""
    table = environment()
    overloads: dict[str, list[Overload]] = {}
    for name, signature, implementation, *cost in table["functions"]:
        letters = sorted(table["letters"].keys() & set(re.findall(r"\b[A-Z]\b", signature)))
        for kinds in product(*(table["letters"][letter] for letter in letters)):
            concrete = {**table["types"], **dict(zip(letters, kinds, strict=True))}
            text = re.sub(
                r"\b[A-Za-z]\w*\b",
                lambda word: concrete.get(word[0], word[0]),  # noqa: B023
                signature,
            )
            target, arguments, result = re.fullmatch(r"(?:(.*)\.)?\((.*)\) -> (.*)", text).groups()  # type: ignore[union-attr]
            parameters = (*_types(target or ""), *_types(arguments))
            one = Overload(
                target is not None, parameters, _types(result)[0], implementation, "".join(cost)
            )
            overloads.setdefault(name, []).append(one)

    return {
        name: Function(
            name, tuple(some), table["costs"].get(name, "one"), name not in table["unguarded"]
        )
        for name, some in overloads.items()
    }


def _types(text: str) -> tuple[Type, ...]:
    return tuple(
        Type(name, _types(inner))
        for name, inner in re.findall(
            r"([\w.]+)(?:\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\))?", text
        )
    )


def check(root: Node) -> Checked:
    """Return what is known of an expression before it runs.

    Raises:
        CompileError: the API server would refuse it.
    """
    checked = Checked()
    found = checked.resolved(checked.type_of(root))
    checked.finish()
    if found not in (BOOL, DYN):
        raise CompileError(f"must evaluate to bool or the unknown type, not {found}")
    return checked


def _error(node: Node, text: str) -> CompileError:
    return CompileError(f"compilation failed: ERROR: <input>:1:{node.at + 1}: {text}")


class _Unifier:
    """Finds the types that variables stand for, as cel-go's `isAssignable` does."""

    def __init__(self) -> None:
        self._known: dict[str, Type] = {}
        self._count = 0

    def new(self) -> Type:
        """Return a type that is not known yet."""
        self._count += 1
        return Type(f"~{self._count}")

    def are_assignable(self, given: Iterable[Type], wanted: Iterable[Type]) -> bool:
        """Return whether types may be where others are wanted; what this says of variables is kept if so."""
        before = dict(self._known)
        if all(self._is_assignable(one, other) for one, other in zip(given, wanted, strict=True)):
            return True
        self._known = before
        return False

    def _is_assignable(self, one: Type, other: Type) -> bool:
        if other.is_variable:
            is_bound, was_known = self._bind(other, one)
            if is_bound or was_known:
                return is_bound

        if one.is_variable:
            return self._bind(one, other)[0]
        if DYN in (one, other):
            return True
        if "null_type" in (one.name, other.name):
            return one == other or any(
                "." in kind.name or kind.name == _OPTIONAL for kind in (one, other)
            )

        is_whole = one.name == "type" or len(one.parameters) != len(other.parameters)
        return one.name == other.name and (
            is_whole or all(map(self._is_assignable, one.parameters, other.parameters))
        )

    def _bind(self, variable: Type, kind: Type) -> tuple[bool, bool]:
        """Return whether a type may be that of a variable, whose type it becomes, and whether that had one."""
        if variable == kind:
            return True, True
        known = self._known.get(variable.name)
        if known is not None and known != kind and not self._is_assignable(kind, known):
            return False, True
        general = kind if known is None else more_general(kind, known)
        is_free = not self._is_within(variable, general)
        if is_free:
            self._known[variable.name] = general
        return is_free or known is not None, known is not None

    def _is_within(self, variable: Type, kind: Type) -> bool:
        if kind.is_variable:
            return kind == variable or (
                kind.name in self._known and self._is_within(variable, self._known[kind.name])
            )
        return any(self._is_within(variable, one) for one in kind.parameters)

    def resolved(self, kind: Type, *, unknown: Type | None = DYN) -> Type:
        """Return a type without its variables; those that nothing is known of become another type, or stay."""
        if kind.is_variable:
            if kind.name in self._known:
                return self.resolved(self._known[kind.name], unknown=unknown)
            return kind if unknown is None else unknown
        return Type(
            kind.name, tuple(self.resolved(one, unknown=unknown) for one in kind.parameters)
        )


def more_general(one: Type, other: Type) -> Type:
    """Return the type that values of both types have."""
    return one if _is_less_specific(one, other) else other


def _is_less_specific(one: Type, other: Type) -> bool:
    if one == DYN or one.is_variable:
        return True
    if other == DYN or other.is_variable or one.name != other.name:
        return False
    return one.name == "type" or all(map(_is_less_specific, one.parameters, other.parameters))


class Checked(_Unifier):
    """Finds the types of one expression's nodes, from the leaves up.

    Attributes:
        calls: by identity of the node.
        named: what names that are types stand for, by identity of the node.
        is_of_driver: it reads nothing of a device but its driver.
    """

    def __init__(self) -> None:
        super().__init__()
        self._scope: dict[str, Type] = {"device": _DEVICE}
        self._elements: list[list[tuple[Node, Type]]] = []
        self._types: dict[int, Type] = {}
        self._texts: list[Node] = []
        self._formats = 0
        self.calls: dict[int, Call] = {}
        self.named: dict[int, Type] = {}
        self.is_of_driver = True

    def type_of(self, node: Node) -> Type:
        """Return the type of a node, all below it checked."""
        found: Type = getattr(self, f"_{node.kind}")(node)
        self._types[id(node)] = found
        return found

    def _literal(self, node: Node) -> Type:
        return Type(kind_of(node.value))

    def _name(self, node: Node) -> Type:
        return (
            self._scope[node.value]
            if node.value in self._scope
            else self._type_named(node, node.value)
        )

    def _type_named(self, node: Node, name: str) -> Type:
        if name not in environment()["named"]:
            raise _error(
                node,
                f"undeclared reference to '{name.split('.', maxsplit=1)[0]}' (in container '')",
            )
        self.named[id(node)] = Type(name)
        return Type("type", (Type(name),))

    def _select(self, node: Node) -> Type:
        path = path_of(node)
        if path in environment()["named"] and path.split(".")[0] not in self._scope:
            return self._type_named(node, path)
        return self._field(node, node.parts[0], node.value)

    def _has(self, node: Node) -> Type:
        self._field(node, node.parts[0], node.value)
        return BOOL

    def _field(self, node: Node, operand: Node, name: str, *, is_optional: bool = False) -> Type:
        kind = self.resolved(self.type_of(operand), unknown=None)
        if kind.name == _OPTIONAL:
            is_optional, kind = True, kind.parameters[0]

        if kind.is_variable:
            self.are_assignable([DYN], [kind])
            result = DYN
        elif kind == DYN:
            result = DYN
        elif kind.name == "map":
            result = kind.parameters[1]
        elif kind == _DEVICE and name in environment()["device"]:
            (result,) = _types(environment()["device"][name])
            self.is_of_driver &= name == "driver"
        else:
            what = (
                f"undefined field '{name}'"
                if kind == _DEVICE
                else f"type '{kind}' does not support field selection"
            )
            raise _error(node, what)

        return self.resolved(Type(_OPTIONAL, (result,)) if is_optional else result, unknown=None)

    def _call(self, node: Node) -> Type:
        if node.value == "_?._":
            function = functions()[node.value]
            self.calls[id(node)] = Call(function, function.overloads, node.parts)
            return self._field(node, node.parts[0], node.parts[1].value, is_optional=True)
        return self._resolve(node, node.value, [], node.parts)

    def _method(self, node: Node) -> Type:
        target, *arguments = node.parts
        path = path_of(target)
        if path and f"{path}.{node.value}" in functions():
            return self._resolve(node, f"{path}.{node.value}", [], arguments)
        self._formats += node.value == "format"
        found = self._resolve(node, node.value, [target], arguments)
        self._formats -= node.value == "format"
        if node.value == "format" and isinstance(target.value, str) and target.kind == "literal":
            self._texts.extend(one for one in (node,) if arguments[0].kind == "list")
        return found

    def _resolve(
        self, node: Node, name: str, target: list[Node], arguments: Sequence[Node]
    ) -> Type:
        """Return the type of a call, whose overloads are kept."""
        given = [self.type_of(one) for one in arguments]
        given[:0] = [self.type_of(one) for one in target]
        function = functions().get(name)
        if function is None:
            raise _error(node, f"undeclared reference to '{name}' (in container '')")
        if name in ("_&&_", "_||_"):
            for one, kind in zip(arguments, given, strict=True):
                self._expect(one, BOOL, kind)
            self.calls[id(node)] = Call(function, function.overloads, tuple(arguments))
            return BOOL

        results: dict[Overload, Type] = {}
        for overload in function.overloads:
            if overload.is_method == bool(target) and len(overload.parameters) == len(given):
                fresh: dict[str, Type] = {}
                if self.are_assignable(
                    given, [self._fresh(one, fresh) for one in overload.parameters]
                ):
                    results[overload] = self.resolved(
                        self._fresh(overload.result, fresh), unknown=None
                    )

        if not results:
            shown = [str(self.resolved(one)) for one in given]
            call = f"{shown[0]}.({', '.join(shown[1:])})" if target else f"({', '.join(shown)})"
            raise _error(node, f"found no matching overload for '{name}' applied to '{call}'")

        self.calls[id(node)] = Call(function, tuple(results), (*target, *arguments))
        kinds = list(results.values())
        return kinds[0] if all(one == kinds[0] for one in kinds) else DYN

    def _fresh(self, kind: Type, fresh: dict[str, Type]) -> Type:
        """Return a declared type with variables of its own."""
        if kind.is_variable:
            return fresh.setdefault(kind.name, self.new())
        return Type(kind.name, tuple(self._fresh(one, fresh) for one in kind.parameters))

    def _list(self, node: Node) -> Type:
        return Type("list", (self._joined(node.parts, node.value),))

    def _map(self, node: Node) -> Type:
        if not node.parts:
            return Type("map", (self.new(), self.new()))
        optional = frozenset(place // 2 for place in node.value)
        return Type(
            "map",
            (self._joined(node.parts[::2], frozenset()), self._joined(node.parts[1::2], optional)),
        )

    def _message(self, node: Node) -> Type:
        name, optional = node.value
        declared = environment()["messages"].get(name)
        if declared is None:
            unknown = NotUnderstood if name in environment()["messages"] else CompileError
            raise unknown(f"undeclared reference to '{name}' (in container '')")
        for place, (field, value) in enumerate(zip(node.parts[::2], node.parts[1::2], strict=True)):
            if field.value not in declared["fields"]:
                raise _error(field, f"undefined field '{field.value}'")
            wanted = _types(declared["fields"][field.value])
            kind = Type(_OPTIONAL, wanted) if 2 * place + 1 in optional else wanted[0]
            self._expect(value, kind, self.type_of(value))
        return _types(declared["type"])[0]

    def _joined(self, nodes: Sequence[Node], optional: frozenset[int]) -> Type:
        """Return the type of values side by side, which `finish` compares."""
        joined: Type | None = None
        seen: list[tuple[Node, Type]] = []
        for place, node in enumerate(nodes):
            kind = self.type_of(node)
            if place in optional:
                if kind.name != _OPTIONAL and kind != DYN:
                    raise _error(
                        node, f"expected type '{Type(_OPTIONAL, (kind,))}' but found '{kind}'"
                    )

                kind = kind.parameters[0] if kind.parameters else kind

            if joined is None:
                joined = kind
            else:
                joined = (
                    more_general(joined, kind) if self.are_assignable([joined], [kind]) else DYN
                )

            seen.append((node, kind))

        if not self._formats:
            self._elements.append(seen)

        return joined or self.new()

    def _fold(self, node: Node) -> Type:
        over, start, condition, step, end = node.parts
        *variables, accumulator = node.value
        kind = self.resolved(self.type_of(over), unknown=None)
        start_type = self.type_of(start)
        if kind.name == "list":
            bound = (INT, *kind.parameters)[-len(variables) :]
        elif kind.name == "map":
            bound = kind.parameters[: len(variables)]
        elif kind == DYN or kind.is_variable:
            self.are_assignable([DYN], [kind])
            bound = (DYN, DYN)[: len(variables)]
        else:
            told = "cannot be range of a comprehension (must be list, map, or dynamic)"
            raise _error(over, f"expression of type '{kind}' {told}")

        before = self._scope
        outer = {**before, accumulator: start_type}
        self._scope = {**outer, **dict(zip(variables, bound, strict=True))}
        self._expect(condition, BOOL, self.type_of(condition))
        self._expect(step, start_type, self.type_of(step))
        self._scope = outer
        found = self.resolved(self.type_of(end), unknown=None)
        self._scope = before
        return found

    def _expect(self, node: Node, wanted: Type, kind: Type) -> None:
        if not self.are_assignable([wanted], [kind]):
            raise _error(
                node, f"expected type '{self.resolved(wanted)}' but found '{self.resolved(kind)}'"
            )

    def finish(self) -> None:
        """Make sure that values side by side are of one type, and that texts have what they format.

        Raises:
            CompileError: they are not, or have not.
        """
        for seen in self._elements:
            kinds: list[Any] = [self.resolved(kind) for _, kind in seen]
            for (node, _), kind in zip(seen, kinds, strict=True):
                if kind != kinds[0]:
                    raise _error(node, f"expected type '{kinds[0]}' but found '{kind}'")

        for node in self._texts:
            text, values = node.parts[0].value, node.parts[1].parts
            try:
                clauses = format_clauses(text)
            except cel.EvaluationError as error:
                raise _error(node, str(error)) from error

            if len(clauses) != len(values) or not all(map(self._is_formatted, clauses, values)):
                raise _error(node, f"error during formatting: {text!r} does not fit what is given")

    def _is_formatted(self, clause: str, node: Node) -> bool:
        """Return whether a clause of a text takes a value, and what is within."""
        inner = node.parts if clause == "s" and node.kind in ("list", "map") else ()
        is_taken = takes(clause, self.resolved(self._types[id(node)]).name)
        return is_taken and all(self._is_formatted(clause, one) for one in inner)
