"""Selectors: a CEL expression checked against the types of a device, and evaluated on one.

The types are those of `k8s.io/dynamic-resource-allocation/cel`; costs are counted as cel-go's runtime counts them, so
that an expression ends where the scheduler would end it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from alignup.claims import cel_functions as cel
from alignup.claims.cel_functions import BOOL, DYN, INT, STRING, EvaluationError, Optional, Type
from alignup.claims.cel_syntax import CompileError, Node, NotUnderstood, Uint, parse
from alignup.records import Record

if TYPE_CHECKING:
    from alignup.claims.objects import AttributeValue, Device

# `resourceapi.CELSelectorExpressionMaxCost`.
MOST_COST: Final = 1_000_000

_DEVICE: Final = Type("kubernetes.DRADevice")
_FIELDS: Final = {
    "driver": STRING,
    "allowMultipleAllocations": BOOL,
    "attributes": Type("map", (STRING, Type("map", (STRING, DYN)))),
    "capacity": Type("map", (STRING, Type("map", (STRING, cel.QUANTITY)))),
}


class _State(Record, frozen=False):
    """What one evaluation has: the variables, and what it has cost so far."""

    slots: list[Any]
    limit: int
    cost: int = 0

    def pay(self, amount: int) -> None:
        self.cost += amount
        if self.cost > self.limit:
            raise cel.CostExceededError("operation cancelled: actual cost limit exceeded")


_Run: TypeAlias = Callable[[_State], Any]


class _Compiled(Record):
    """A node with its type, ready to run.

    Attributes:
        is_attribute: a variable, or what is selected from one: choosing it by a condition costs nothing.
    """

    type: Type
    run: _Run
    is_attribute: bool = False
    is_constant: bool = False


class Program(Record):
    """An expression that compiled.

    Attributes:
        variables: how many variables its macros bind.
        is_of_driver: it reads nothing of a device but its driver.
    """

    run: _Run
    variables: int
    is_of_driver: bool

    def matches(self, device: Mapping[str, Any], limit: int = MOST_COST) -> tuple[bool, int]:
        """Return whether a device matches, and the cost.

        Raises:
            EvaluationError: as for the scheduler, to which it is an error.
            CostExceededError: the cost is above `limit`.
            NotUnderstood: a value is beyond what is modelled.
        """
        state = _State([device, *[None] * self.variables], limit)
        value = self.run(state)
        if not isinstance(value, bool):
            raise EvaluationError(f"CEL result of type {cel.type_of(value)} could not be converted to bool")
        return value, state.cost


@lru_cache(maxsize=1000)
def program_of(expression: str) -> Program | CompileError | NotUnderstood:
    """Return the program of a selector, or why there is none."""
    try:
        compiler = _Compiler()
        compiled = compiler.compile(parse(expression))
        if compiled.type not in (BOOL, DYN):
            return CompileError(f"must evaluate to bool or the unknown type, not {compiled.type}")
    except (CompileError, NotUnderstood) as error:
        return error
    return Program(compiled.run, compiler.most_slots, compiler.is_of_driver)


def variables_of(driver: str, device: Device) -> Mapping[str, Any]:
    """Return a device as expressions see it.

    Raises:
        EvaluationError: an attribute has no value, or is no version.
    """
    attributes, capacity = cel.Domains(), cel.Domains()
    for name, value in device.attributes.items():
        domain, _, identifier = name.rpartition("/")
        attributes.setdefault(domain or driver, {})[identifier] = _attribute(name, value)
    for name, amount in device.capacity.items():
        domain, _, identifier = name.rpartition("/")
        capacity.setdefault(domain or driver, {})[identifier] = cel.Quantity(amount.value)
    return {
        "driver": driver,
        "allowMultipleAllocations": device.allow_multiple_allocations,
        "attributes": attributes,
        "capacity": capacity,
    }


def _attribute(name: str, value: AttributeValue) -> object:
    values: list[Any] = list(value.values)
    if value.kind == "version":
        try:
            values = [cel.Semver.parse(text) for text in values]
        except EvaluationError as error:
            raise EvaluationError(f"attribute {name}: parse semantic version: {error}") from error
    if value.is_list:
        return values
    if not values:
        raise EvaluationError(f"attribute {name}: unsupported attribute value")
    return values[0]


def _error(node: Node, text: str) -> CompileError:
    return CompileError(f"compilation failed: ERROR: <input>:1:{node.at + 1}: {text}")


def _no_overload(node: Node, name: str, *given: Type, is_method: bool = False) -> CompileError:
    shown = [str(one) for one in given]
    call = f"{shown[0]}.({', '.join(shown[1:])})" if is_method else f"({', '.join(shown)})"
    return _error(node, f"found no matching overload for '{name}' applied to '{call}'")


def _result(overload: cel.Overload, given: Sequence[Type]) -> Type | None:
    """Return the type of an overload's result; None: it does not take arguments of these types."""
    bound: dict[str, Type] = {}
    is_right = len(overload.parameters) == len(given) and all(
        cel.is_assignable(one, other, bound) for one, other in zip(overload.parameters, given, strict=True)
    )
    return _resolved(overload.result, bound) if is_right else None


def _resolved(kind: Type, bound: Mapping[str, Type]) -> Type:
    if len(kind.name) == 1:
        return bound.get(kind.name, DYN)
    return Type(kind.name, tuple(_resolved(one, bound) for one in kind.parameters))


def _joined(types: Iterable[Type], node: Node) -> Type:
    """Return the type of elements side by side, which must agree."""

    def join(one: Type, other: Type) -> Type:
        if not cel.is_assignable(one, other, {}):
            raise _error(node, f"expected type '{one}' but found '{other}'")
        return cel.more_general(one, other)

    found = list(types)
    return reduce(join, found) if found else DYN


def _optional_of(value: Type) -> Type:
    return Type("optional_type", (value,))


def _opened(value: object) -> Optional:
    if not isinstance(value, Optional):
        raise EvaluationError("no such overload")
    return value


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError("no such overload")
    return value


def _chosen(value: Any, key: Any, *, is_optional: bool) -> Any:
    """Return an element or a field; of an optional value, an optional one."""
    if isinstance(value, Optional):
        return _chosen(value.value, key, is_optional=True) if value.has_value else value
    if isinstance(value, dict) and isinstance(key, str | int | float) and not isinstance(key, bool):
        is_there, wrong = key in value, f"no such key: {key}"
        if not is_there and isinstance(value, cel.Domains):
            is_there, value = True, {key: {}}
    elif isinstance(value, list) and type(key) in (int, Uint, float) and key == int(key):
        key = int(key)
        is_there, wrong = 0 <= key < len(value), f"index out of bounds: {key}"
    else:
        raise EvaluationError("no such overload")
    if is_optional:
        return Optional(has_value=True, value=value[key]) if is_there else Optional()
    if not is_there:
        raise EvaluationError(wrong)
    return value[key]


class _Compiler:
    """Compiles the nodes of one expression from the root down."""

    def __init__(self) -> None:
        self._scope: dict[str, tuple[int, Type]] = {"device": (0, _DEVICE)}
        self._slots = 0
        self.most_slots = 0
        self.is_of_driver = True

    def compile(self, node: Node) -> _Compiled:
        """Compile a node with all that is below it.

        Raises:
            CompileError: the API server would refuse it.
            NotUnderstood: it uses what is not modelled.
        """
        compiled: _Compiled = getattr(self, f"_{node.kind}")(node)
        return compiled

    def _literal(self, node: Node) -> _Compiled:
        return _Compiled(cel.type_of(node.value), lambda _: node.value, is_constant=True)

    def _name(self, node: Node) -> _Compiled:
        known = self._scope.get(node.value)
        if known is None:
            kind = cel.TYPE_NAMES.get(node.value)
            if kind is None:
                raise _error(node, f"undeclared reference to '{node.value}' (in container '')")
            named = Type(kind.name)
            return _Compiled(Type("type", (kind,)), lambda _: named)
        slot, kind = known

        def run(state: _State) -> Any:
            state.pay(1)
            return state.slots[slot]

        return _Compiled(kind, run, is_attribute=True)

    def _select(self, node: Node) -> _Compiled:
        operand = self.compile(node.parts[0])
        kind = operand.type.parameters[0] if operand.type.name == "optional_type" else operand.type
        if kind == _DEVICE and node.value in _FIELDS:
            result = _FIELDS[node.value]
            self.is_of_driver &= node.value == "driver"
        elif kind == DYN or kind.name == "map":
            result = (*kind.parameters, DYN, DYN)[1]
        else:
            what = (
                f"undefined field '{node.value}'"
                if kind == _DEVICE
                else f"type '{kind}' does not support field selection"
            )
            raise _error(node, what)
        return _access(node, operand, lambda _: node.value, result)

    _has = _select

    def _index(self, node: Node) -> _Compiled:
        operand, index = map(self.compile, node.parts)
        kind = operand.type.parameters[0] if operand.type.name == "optional_type" else operand.type
        wanted = {"list": INT, "dyn": DYN, "map": (*kind.parameters, DYN)[0]}.get(kind.name)
        if wanted is None or not cel.is_assignable(wanted, index.type, {}):
            raise _no_overload(node, "_[_]", kind, index.type)
        return _access(node, operand, index.run, (DYN, *kind.parameters)[-1])

    def _condition(self, node: Node) -> _Compiled:
        test, then, other = map(self.compile, node.parts)
        if not cel.is_assignable(BOOL, test.type, {}):
            raise _no_overload(node, node.value, test.type, then.type, other.type)

        def run(state: _State) -> Any:
            branch = then if _truth(test.run(state)) else other
            if branch.is_attribute:
                state.cost -= 1
            return branch.run(state)

        return _Compiled(_joined((then.type, other.type), node), run)

    def _chain(self, node: Node) -> _Compiled:
        terms = [self.compile(term) for term in node.parts]
        if not all(cel.is_assignable(BOOL, term.type, {}) for term in terms):
            raise _no_overload(node, f"_{node.value}_", terms[0].type, terms[-1].type)
        runs = [term.run for term in terms]
        return _Compiled(BOOL, lambda state: _decision(runs, state, decisive=node.value == "||"))

    def _entries(self, node: Node) -> tuple[list[list[_Compiled]], list[Type], bool]:
        """Return the elements of a list or a map, their types, and whether all are constants."""
        entries = [[self.compile(part) for part in entry.parts] for entry in node.parts]
        types = []
        for entry, compiled in zip(node.parts, entries, strict=True):
            kind = compiled[-1].type
            if entry.is_optional and kind.name not in ("optional_type", "dyn"):
                raise _error(node, f"expected type 'optional_type(_)' but found '{kind}'")
            types.append((*kind.parameters, DYN)[0] if entry.is_optional else kind)
        is_constant = all(part.is_constant for parts in entries for part in parts)
        return entries, types, is_constant and not any(entry.is_optional for entry in node.parts)

    def _list(self, node: Node) -> _Compiled:
        entries, types, is_constant = self._entries(node)

        def run(state: _State) -> list[Any]:
            found = []
            for entry, (element,) in zip(node.parts, entries, strict=True):
                value = element.run(state)
                if not entry.is_optional:
                    found.append(value)
                elif _opened(value).has_value:
                    found.append(value.value)
            state.pay(0 if is_constant else 10)
            return found

        return _Compiled(Type("list", (_joined(types, node),)), run, is_constant=is_constant)

    def _map(self, node: Node) -> _Compiled:
        entries, types, is_constant = self._entries(node)
        key_type = _joined((key.type for key, _ in entries), node)
        if key_type == BOOL:
            raise NotUnderstood("a map whose keys are bool")

        def run(state: _State) -> dict[Any, Any]:
            found: dict[Any, Any] = {}
            for entry, (key, element) in zip(node.parts, entries, strict=True):
                name, value = key.run(state), element.run(state)
                if isinstance(name, bool) or not isinstance(name, str | int):
                    raise EvaluationError("unsupported key type")
                if not entry.is_optional:
                    found[name] = value
                elif _opened(value).has_value:
                    found[name] = value.value
            state.pay(0 if is_constant else 30)
            return found

        return _Compiled(Type("map", (key_type, _joined(types, node))), run, is_constant=is_constant)

    def _otherwise(self, node: Node) -> _Compiled:
        """Compile `orValue` and `or`, whose argument is evaluated where it is needed only."""
        optional, other = map(self.compile, node.parts)
        if optional.type.name not in ("optional_type", "dyn"):
            raise _no_overload(node, node.value, optional.type, other.type, is_method=True)
        is_value = node.value == "orValue"

        def run(state: _State) -> Any:
            value = _opened(optional.run(state))
            if not value.has_value:
                return other.run(state)
            return value.value if is_value else value

        kind = (*optional.type.parameters, DYN)[0] if is_value else optional.type
        return _Compiled(_joined((kind, other.type), node), run)

    def _call(self, node: Node) -> _Compiled:
        name, nodes = node.value, node.parts
        is_method = node.kind == "method"
        path = _path(nodes[0]) if is_method else ""
        if path and path.split(".")[0] not in self._scope:
            name, nodes, is_method = f"{path}.{name}", nodes[1:], False
        if name in cel.NOT_UNDERSTOOD or name.startswith("format."):
            raise NotUnderstood(f"the function {name}")
        declared = cel.FUNCTIONS.get(f".{name}" if is_method else name, ())
        if not declared and name not in cel.FUNCTIONS and f".{name}" not in cel.FUNCTIONS:
            raise _error(node, f"undeclared reference to '{name}' (in container '')")
        arguments = [self.compile(one) for one in nodes]
        given = [one.type for one in arguments]
        overloads = {one: result for one in declared if (result := _result(one, given)) is not None}
        if not overloads:
            raise _no_overload(node, name, *given, is_method=is_method)
        if name in ("matches", "find", "findAll") and isinstance(nodes[1].value, str) and nodes[1].kind == "literal":
            cel.check_pattern(nodes[1].value)
        # cel-go makes a set of a constant list
        is_lookup = name == "@in" and arguments[1].is_constant and arguments[0].type != cel.QUANTITY
        runs = [one.run for one in arguments]

        def run(state: _State) -> Any:
            values = [one(state) for one in runs]
            for overload in overloads:
                if cel.fits(overload.parameters, values):
                    state.pay(1)
                    value = overload.call(*values)
                    cost = int(isinstance(values[1], dict)) if is_lookup else overload.cost(*values, value)
                    state.pay(cost - 1)
                    return value
            raise EvaluationError("no such overload")

        results = set(overloads.values())
        return _Compiled(results.pop() if len(results) == 1 else DYN, run)

    _method = _call

    def _macro(self, node: Node) -> _Compiled:
        name, variables = node.value
        over = self.compile(node.parts[0])
        before = dict(self._scope), self._slots
        slots = range(self._slots + 1, self._slots + 1 + len(variables))
        self._scope.update(zip(variables, zip(slots, _bound_types(node, over.type), strict=True), strict=True))
        self._slots += len(variables)
        self.most_slots = max(self.most_slots, self._slots)
        bodies = [self.compile(body) for body in node.parts[1:]]
        self._scope, self._slots = before
        if name == "transformMapEntry":
            raise NotUnderstood("the macro transformMapEntry")
        if name in ("bind", "optMap", "optFlatMap"):
            return _binding(name, over, slots[0], bodies[0])
        if (name in _TESTS or len(bodies) > 1) and not cel.is_assignable(BOOL, bodies[0].type, {}):
            raise _error(node, f"found no matching overload for the predicate of {name} of type '{bodies[0].type}'")
        if name in ("all", "exists"):
            return _search(over, slots, bodies[0].run, decisive=name == "exists")
        return _collection(name, over, slots, bodies)


_TESTS: Final = ("all", "exists", "exists_one", "existsOne", "filter")


def _bound_types(node: Node, over: Type) -> tuple[Type, ...]:
    """Return the types of a macro's variables."""
    name, variables = node.value
    if name == "bind":
        return (over,)
    wanted = ("optional_type",) if name in ("optMap", "optFlatMap") else ("list", "map")
    if over.name not in (*wanted, "dyn"):
        raise _error(node, f"expression of type '{over}' cannot be the range of {name} (must be {' or '.join(wanted)})")
    inner = over.parameters or (DYN, DYN)
    return (INT, *inner) if len(inner) < len(variables) else inner[: len(variables)]


def _path(node: Node) -> str:
    """Return the dotted name that a chain of fields spells; empty: it is none."""
    if node.kind == "select" and not node.is_optional:
        before = _path(node.parts[0])
        return before and f"{before}.{node.value}"
    return node.value if node.kind == "name" else ""


def _access(node: Node, operand: _Compiled, key: _Run, result: Type) -> _Compiled:
    """Compile what takes an element or a field, or asks whether there is one."""
    is_test = node.kind == "has"
    is_optional = node.is_optional or is_test or operand.type.name == "optional_type"
    step = 1 if operand.is_attribute else 2

    def run(state: _State) -> Any:
        found = _chosen(operand.run(state), key(state), is_optional=is_optional)
        state.pay(step if not is_optional or (found.has_value and not is_test) else step - 1)
        return found.has_value if is_test else found

    if is_test:
        return _Compiled(BOOL, run)
    return _Compiled(_optional_of(result) if is_optional else result, run, is_attribute=True)


def _binding(name: str, over: _Compiled, slot: int, body: _Compiled) -> _Compiled:
    """Compile `cel.bind`, and the macros that open an optional value."""
    wraps = name == "optMap"

    def run(state: _State) -> Any:
        value = over.run(state)
        if name != "bind":
            if not _opened(value).has_value:
                return value
            state.pay(2)
            value = value.value
        state.slots[slot] = value
        found = body.run(state)
        return Optional(has_value=True, value=found) if wraps else found

    return _Compiled(_optional_of(body.type) if wraps else body.type, run)


def _elements(value: Any, state: _State, slots: range, cost: int = 0) -> Iterator[None]:
    """Set the variables of a macro to one element after the other; each costs something."""
    if not isinstance(value, list | dict):
        raise EvaluationError("no such overload")
    pairs: Any = enumerate(value) if isinstance(value, list) else value.items()
    for one in list(value if len(slots) == 1 else pairs):
        state.pay(cost)
        state.slots[slots[0] : slots[-1] + 1] = [one] if len(slots) == 1 else one
        yield


def _decision(terms: Iterable[_Run], state: _State, *, decisive: bool) -> bool:
    """Return what the first decisive term says; an error counts only where none is decisive."""
    error: EvaluationError | None = None
    for term in terms:
        try:
            if _truth(term(state)) is decisive:
                return decisive
        except EvaluationError as caught:
            error = error or caught
    if error is not None:
        raise error
    return not decisive


def _search(over: _Compiled, slots: range, predicate: _Run, *, decisive: bool) -> _Compiled:
    """Compile `exists`, which ends with the first true, or `all`, which ends with the first false."""

    def term(state: _State) -> Any:
        state.pay(1)
        return predicate(state)

    def run(state: _State) -> bool:
        # the first amount is paid for asking whether there is more to do
        elements = _elements(over.run(state), state, slots, 3 if decisive else 2)
        try:
            return _decision((term for _ in elements), state, decisive=decisive)
        finally:
            next(elements, None)
            state.pay(1)

    return _Compiled(BOOL, run)


_COSTS: Final = {"filter": 13, "map": 12, "transformList": 12}


def _collection(name: str, over: _Compiled, slots: range, bodies: list[_Compiled]) -> _Compiled:
    """Compile a macro that makes a list or a map, or counts; the sums of costs are those of cel-go's expansion."""
    predicate, transform = bodies[0].run, bodies[-1].run
    counts, is_map = name in ("exists_one", "existsOne"), name == "transformMap"
    has_test, keeps, cost = len(bodies) > 1 or name in _TESTS, name in _TESTS, _COSTS.get(name, 2)

    def run(state: _State) -> Any:
        found: list[Any] = []
        for _ in _elements(over.run(state), state, slots):
            if has_test and not _truth(predicate(state)):
                continue
            state.pay(cost)
            value = state.slots[slots[0]]
            if not keeps:
                value = (value, transform(state)) if is_map else transform(state)
            found.append(value)
        state.pay(2 if counts else 1)
        return len(found) == 1 if counts else dict(found) if is_map else found

    inner = (*over.type.parameters, DYN)[0]
    if is_map:
        return _Compiled(Type("map", (INT if over.type.name == "list" else inner, bodies[-1].type)), run)
    return _Compiled(BOOL if counts else Type("list", (inner if keeps else bodies[-1].type,)), run)
