"""Checks the calls and the type of an expression against the environment of the API server.

`environment.json` beside this file declares each function, as cel-go's libraries and those of
`k8s.io/apiserver/pkg/cel/library` do that 1.37 loads for expressions that are stored: overloads,
what implements them, and the rule of their cost. The rules of types are those of cel-go's checker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
# Functions that API servers before 1.38 do not declare.
_SINCE_38: Final = frozenset({"isMask"})
_WORD: Final = re.compile(r"\b[A-Za-z]\w*\b")
_SIGNATURE: Final = re.compile(r"(?:(.*)\.)?\((.*)\) -> (.*)")
# A type with its parameters, which nest three deep at most.
_TYPE: Final = re.compile(r"([\w.]+)(?:\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\))?")


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
    """A call of a function.

    Attributes:
        overloads: those that the types of the arguments allow.
        arguments: a method's target is the first.
    """

    function: Function
    overloads: tuple[Overload, ...]
    arguments: tuple[Node, ...]


@cache
def functions() -> Mapping[str, Function]:
    """Return the functions of the environment by name."""
    table = environment()
    overloads: dict[str, list[Overload]] = {}
    for name, signature, implementation, *cost in table["functions"]:
        for concrete_signature in _concrete_signatures(signature):
            overload = _overload(concrete_signature, implementation, "".join(cost))
            overloads.setdefault(name, []).append(overload)

    return {
        name: Function(
            name,
            tuple(overloads_of_name),
            table["costs"].get(name, "one"),
            name not in table["unguarded"],
        )
        for name, overloads_of_name in overloads.items()
    }


def _concrete_signatures(signature: str) -> Iterator[str]:
    """Yield a signature with each choice of types for its letters, short names written out."""
    table = environment()
    letters = sorted(table["letters"].keys() & set(re.findall(r"\b[A-Z]\b", signature)))
    for kinds in product(*(table["letters"][letter] for letter in letters)):
        types = {**table["types"], **dict(zip(letters, kinds, strict=True))}
        yield _WORD.sub(lambda word: types.get(word[0], word[0]), signature)  # noqa: B023


def _overload(signature: str, implementation: str, cost: str) -> Overload:
    match = _SIGNATURE.fullmatch(signature)
    target, arguments, result = match.groups()  # type: ignore[union-attr]  # of environment.json
    parameters = (*_types(target or ""), *_types(arguments))
    return Overload(target is not None, parameters, _types(result)[0], implementation, cost)


def _types(text: str) -> tuple[Type, ...]:
    return tuple(Type(name, _types(parameters)) for name, parameters in _TYPE.findall(text))


def check(root: Node) -> Checked:
    """Return what is known of an expression before it runs.

    Raises:
        CompileError: the API server would refuse it.
    """
    checked = Checked()
    kind = checked.resolved(checked.type_of(root))
    checked.finish()
    if kind not in (BOOL, DYN):
        raise CompileError(f"must evaluate to bool or the unknown type, not {kind}")

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

    def are_assignable(self, kinds: Iterable[Type], parameters: Iterable[Type]) -> bool:
        """Return whether values of types may be where parameters are.

        If so, what this says of variables is kept.
        """
        before = dict(self._known)
        pairs = zip(kinds, parameters, strict=True)
        if all(self._is_assignable(kind, parameter) for kind, parameter in pairs):
            return True

        self._known = before
        return False

    def _is_assignable(self, kind: Type, parameter: Type) -> bool:
        if parameter.is_variable:
            is_bound, was_known = self._bind(parameter, kind)
            if is_bound or was_known:
                return is_bound

        if kind.is_variable:
            return self._bind(kind, parameter)[0]
        if DYN in (kind, parameter):
            return True
        if "null_type" in (kind.name, parameter.name):
            return kind == parameter or _may_be_null(kind) or _may_be_null(parameter)
        if kind.name != parameter.name:
            return False

        is_whole = kind.name == "type" or len(kind.parameters) != len(parameter.parameters)
        return is_whole or all(map(self._is_assignable, kind.parameters, parameter.parameters))

    def _bind(self, variable: Type, kind: Type) -> tuple[bool, bool]:
        """Make a type that of a variable, if it may be.

        Returns:
            whether it may be, and whether the variable had a type before.
        """
        if variable == kind:
            return True, True

        known_kind = self._known.get(variable.name)
        if known_kind is None:
            if self._is_within(variable, kind):
                return False, False

            self._known[variable.name] = kind
            return True, False

        if known_kind != kind and not self._is_assignable(kind, known_kind):
            return False, True

        general_kind = more_general(kind, known_kind)
        if not self._is_within(variable, general_kind):
            self._known[variable.name] = general_kind

        return True, True

    def _is_within(self, variable: Type, kind: Type) -> bool:
        """Return whether a variable is a type, or in one, as far as variables are known."""
        if kind == variable:
            return True
        if kind.is_variable:
            return kind.name in self._known and self._is_within(variable, self._known[kind.name])

        return any(self._is_within(variable, parameter) for parameter in kind.parameters)

    def resolved(self, kind: Type, *, unknown: Type | None = DYN) -> Type:
        """Return a type without its variables.

        Args:
            kind: the type.
            unknown: what variables that nothing is known of become; None: they stay.
        """
        if not kind.is_variable:
            parameters = (self.resolved(part, unknown=unknown) for part in kind.parameters)
            return Type(kind.name, tuple(parameters))
        if kind.name in self._known:
            return self.resolved(self._known[kind.name], unknown=unknown)

        return kind if unknown is None else unknown


def _may_be_null(kind: Type) -> bool:
    """Return whether null is a value of a type: of messages, and of optional values."""
    return "." in kind.name or kind.name == _OPTIONAL


def more_general(first: Type, second: Type) -> Type:
    """Return the type that values of both types have."""
    return first if _is_less_specific(first, second) else second


def _is_less_specific(first: Type, second: Type) -> bool:
    if first == DYN or first.is_variable:
        return True
    if second == DYN or second.is_variable or first.name != second.name:
        return False
    if first.name == "type":
        return True

    return all(map(_is_less_specific, first.parameters, second.parameters))


class Checked(_Unifier):
    """Finds the types of one expression's nodes, from the leaves up.

    Attributes:
        calls: by identity of the node.
        named: what names that are types stand for, by identity of the node.
        is_of_driver: it reads nothing of a device but its driver.
        newest_function: the function that it calls and only schedulers from 1.38 on know; empty:
            none.
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
        self.newest_function = ""

    def type_of(self, node: Node) -> Type:
        """Return the type of a node, all below it checked."""
        kind: Type = getattr(self, f"_{node.kind}")(node)
        self._types[id(node)] = kind
        return kind

    def _literal(self, node: Node) -> Type:
        return Type(kind_of(node.value))

    def _name(self, node: Node) -> Type:
        if node.value in self._scope:
            return self._scope[node.value]

        return self._type_named(node, node.value)

    def _type_named(self, node: Node, name: str) -> Type:
        if name not in environment()["named"]:
            first_part = name.split(".", maxsplit=1)[0]
            raise _error(node, f"undeclared reference to '{first_part}' (in container '')")

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
            is_optional = True
            kind = kind.parameters[0]

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
        elif kind == _DEVICE:
            raise _error(node, f"undefined field '{name}'")
        else:
            raise _error(node, f"type '{kind}' does not support field selection")

        if is_optional:
            result = Type(_OPTIONAL, (result,))

        return self.resolved(result, unknown=None)

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
        if node.value != "format":
            return self._resolve(node, node.value, [target], arguments)

        self._formats += 1
        kind = self._resolve(node, node.value, [target], arguments)
        self._formats -= 1
        is_text = target.kind == "literal" and isinstance(target.value, str)
        if is_text and arguments[0].kind == "list":
            self._texts.append(node)

        return kind

    def _resolve(
        self, node: Node, name: str, target: list[Node], arguments: Sequence[Node]
    ) -> Type:
        """Return the type of a call, whose overloads are kept."""
        # as in cel-go, the arguments are checked before the target
        argument_kinds = [self.type_of(argument) for argument in arguments]
        kinds = [self.type_of(part) for part in target] + argument_kinds
        if name in _SINCE_38:
            self.newest_function = name

        function = functions().get(name)
        if function is None:
            raise _error(node, f"undeclared reference to '{name}' (in container '')")

        if name in ("_&&_", "_||_"):
            for argument, kind in zip(arguments, kinds, strict=True):
                self._expect(argument, BOOL, kind)

            self.calls[id(node)] = Call(function, function.overloads, tuple(arguments))
            return BOOL

        results: dict[Overload, Type] = {}
        for overload in function.overloads:
            if overload.is_method == bool(target):
                result = self._result(overload, kinds)
                if result is not None:
                    results[overload] = result

        if not results:
            raise self._no_overload(node, name, kinds, is_method=bool(target))

        self.calls[id(node)] = Call(function, tuple(results), (*target, *arguments))
        if len(set(results.values())) > 1:
            return DYN

        return next(iter(results.values()))

    def _result(self, overload: Overload, kinds: list[Type]) -> Type | None:
        """Return the type of the result of an overload; None: it does not take such arguments."""
        if len(overload.parameters) != len(kinds):
            return None

        variables: dict[str, Type] = {}
        parameters = [self._fresh(parameter, variables) for parameter in overload.parameters]
        if not self.are_assignable(kinds, parameters):
            return None

        return self.resolved(self._fresh(overload.result, variables), unknown=None)

    def _no_overload(
        self, node: Node, name: str, kinds: list[Type], *, is_method: bool
    ) -> CompileError:
        types = [str(self.resolved(kind)) for kind in kinds]
        call = f"({', '.join(types)})"
        if is_method:
            call = f"{types[0]}.({', '.join(types[1:])})"

        return _error(node, f"found no matching overload for '{name}' applied to '{call}'")

    def _fresh(self, kind: Type, variables: dict[str, Type]) -> Type:
        """Return a declared type with new variables, which are kept by the declared names."""
        if kind.is_variable:
            return variables.setdefault(kind.name, self.new())

        parameters = (self._fresh(parameter, variables) for parameter in kind.parameters)
        return Type(kind.name, tuple(parameters))

    def _list(self, node: Node) -> Type:
        return Type("list", (self._joined(node.parts, node.value),))

    def _map(self, node: Node) -> Type:
        if not node.parts:
            return Type("map", (self.new(), self.new()))

        keys = self._joined(node.parts[::2], frozenset())
        optional = frozenset(place // 2 for place in node.value)
        values = self._joined(node.parts[1::2], optional)
        return Type("map", (keys, values))

    def _message(self, node: Node) -> Type:
        name, optional = node.value
        declared = environment()["messages"].get(name)
        if declared is None:
            unknown = NotUnderstood if name in environment()["messages"] else CompileError
            raise unknown(f"undeclared reference to '{name}' (in container '')")

        fields = zip(node.parts[::2], node.parts[1::2], strict=True)
        for place, (field, value) in enumerate(fields):
            if field.value not in declared["fields"]:
                raise _error(field, f"undefined field '{field.value}'")

            (kind,) = _types(declared["fields"][field.value])
            if 2 * place + 1 in optional:
                kind = Type(_OPTIONAL, (kind,))

            self._expect(value, kind, self.type_of(value))

        return _types(declared["type"])[0]

    def _joined(self, nodes: Sequence[Node], optional: frozenset[int]) -> Type:
        """Return the type of values side by side, which `finish` compares."""
        joined: Type | None = None
        elements: list[tuple[Node, Type]] = []
        for place, node in enumerate(nodes):
            kind = self.type_of(node)
            if place in optional:
                if kind.name != _OPTIONAL and kind != DYN:
                    expected = Type(_OPTIONAL, (kind,))
                    raise _error(node, f"expected type '{expected}' but found '{kind}'")
                if kind.parameters:
                    kind = kind.parameters[0]

            if joined is None:
                joined = kind
            elif self.are_assignable([joined], [kind]):
                joined = more_general(joined, kind)
            else:
                joined = DYN

            elements.append((node, kind))

        if not self._formats:
            self._elements.append(elements)

        return joined or self.new()

    def _fold(self, node: Node) -> Type:
        walked, start, condition, step, end = node.parts
        *variables, accumulator = node.value
        kind = self.resolved(self.type_of(walked), unknown=None)
        start_type = self.type_of(start)
        if kind.name == "list":
            bound = (INT, *kind.parameters)[-len(variables) :]
        elif kind.name == "map":
            bound = kind.parameters[: len(variables)]
        elif kind == DYN or kind.is_variable:
            self.are_assignable([DYN], [kind])
            bound = (DYN, DYN)[: len(variables)]
        else:
            problem = "cannot be range of a comprehension (must be list, map, or dynamic)"
            raise _error(walked, f"expression of type '{kind}' {problem}")

        before = self._scope
        outer = {**before, accumulator: start_type}
        self._scope = {**outer, **dict(zip(variables, bound, strict=True))}
        self._expect(condition, BOOL, self.type_of(condition))
        self._expect(step, start_type, self.type_of(step))
        self._scope = outer
        result = self.resolved(self.type_of(end), unknown=None)
        self._scope = before
        return result

    def _expect(self, node: Node, expected: Type, kind: Type) -> None:
        if not self.are_assignable([expected], [kind]):
            expected = self.resolved(expected)
            raise _error(node, f"expected type '{expected}' but found '{self.resolved(kind)}'")

    def finish(self) -> None:
        """Make sure that values side by side are of one type, and that texts have what they format.

        Raises:
            CompileError: they are not, or have not.
        """
        for elements in self._elements:
            kinds: list[Any] = [self.resolved(kind) for _, kind in elements]
            for (node, _), kind in zip(elements, kinds, strict=True):
                if kind != kinds[0]:
                    raise _error(node, f"expected type '{kinds[0]}' but found '{kind}'")

        for node in self._texts:
            text = node.parts[0].value
            values = node.parts[1].parts
            try:
                clauses = format_clauses(text)
            except cel.EvaluationError as error:
                raise _error(node, str(error)) from error

            if len(clauses) != len(values) or not all(map(self._is_formatted, clauses, values)):
                raise _error(node, f"error during formatting: {text!r} does not fit what is given")

    def _is_formatted(self, clause: str, node: Node) -> bool:
        """Return whether a clause of a text takes a value, and what is within."""
        if not takes(clause, self.resolved(self._types[id(node)]).name):
            return False
        if clause != "s" or node.kind not in ("list", "map"):
            return True

        return all(self._is_formatted(clause, part) for part in node.parts)
