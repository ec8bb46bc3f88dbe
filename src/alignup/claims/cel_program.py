"""Selectors: a CEL expression checked against the types of a device, and evaluated on one.

The types are those of `k8s.io/dynamic-resource-allocation/cel`; costs are counted as cel-go's runtime counts them, so
that an expression ends where the scheduler would end it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from alignup.claims.cel_functions import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    FUNCTIONS,
    INT,
    NOT_UNDERSTOOD,
    NULL,
    QUANTITY,
    STRING,
    UINT,
    CostExceededError,
    EvaluationError,
    Optional,
    Overload,
    Quantity,
    Semver,
    Type,
    check_pattern,
    has_type,
    list_of,
    map_of,
    optional_of,
)
from alignup.claims.cel_syntax import (
    Call,
    CompileError,
    Fold,
    Ident,
    ListOf,
    Literal,
    Logic,
    MapOf,
    Node,
    NotUnderstood,
    Select,
    Uint,
    parse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from alignup.claims.objects import AttributeValue, Device

MOST_COST: Final = 1_000_000
"""`resourceapi.CELSelectorExpressionMaxCost`."""

_DEVICE: Final = Type("kubernetes.DRADevice")
_FIELDS: Final = {
    "driver": STRING,
    "allowMultipleAllocations": BOOL,
    "attributes": map_of(STRING, map_of(STRING, DYN)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
}
_TYPE_NAMES: Final = {
    **{kind.name: kind for kind in (BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, DYN)},
    "list": Type("list", (DYN,)),
    "map": Type("map", (DYN, DYN)),
    "type": Type("type"),
}
_LITERALS: Final = {type(None): NULL, bool: BOOL, int: INT, Uint: UINT, float: DOUBLE, str: STRING, bytes: BYTES}
_NULLABLE: Final = frozenset({"kubernetes.Quantity", "kubernetes.Semver", "net.IP", "net.CIDR", "optional_type"})


class _Domains(dict[str, Any]):
    """Attributes or capacities by domain; a domain that is not there is an empty map."""


class _State:
    """What one evaluation has: the variables, and what it has cost so far."""

    __slots__ = ("cost", "limit", "slots")

    def __init__(self, slots: list[Any], limit: int) -> None:
        self.slots = slots
        self.cost = 0
        self.limit = limit

    def pay(self, amount: int) -> None:
        self.cost += amount
        if self.cost > self.limit:
            raise CostExceededError("operation cancelled: actual cost limit exceeded")


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A node with its type, ready to run."""

    type: Type
    run: Callable[[_State], Any]
    is_attribute: bool = False
    """A variable, or what is selected from one: choosing it by a condition costs nothing."""
    is_constant: bool = False


@dataclass(frozen=True, slots=True)
class Variables:
    """A device as expressions see it."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Program:
    """An expression that compiled."""

    expression: str
    run: Callable[[_State], Any]
    variables: int
    """How many variables its macros bind."""
    is_of_driver: bool
    """It reads nothing of a device but its driver."""

    def matches(self, device: Variables, limit: int = MOST_COST) -> tuple[bool, int]:
        """Return whether a device matches, and the cost.

        Raises:
            EvaluationError: as for the scheduler, to which it is an error.
            CostExceededError: the cost is above `limit`.
            NotUnderstood: a value is beyond what is modelled.
        """
        state = _State([device.values, *[None] * self.variables], limit)
        value = self.run(state)
        if value is True or value is False:
            return value, state.cost
        kind = next(
            (kind.name for base, kind in _LITERALS.items() if type(value) is base), type(value).__name__.lower()
        )
        raise EvaluationError(f"CEL result of type {kind} could not be converted to bool")


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
    return Program(expression, compiled.run, compiler.most_slots, compiler.is_of_driver)


def variables_of(driver: str, device: Device) -> Variables:
    """Return a device as expressions see it.

    Raises:
        EvaluationError: an attribute has no value, or is no version.
    """
    attributes, capacity = _Domains(), _Domains()
    for name, value in device.attributes.items():
        domain, _, identifier = name.rpartition("/")
        attributes.setdefault(domain or driver, {})[identifier] = _attribute(name, value)
    for name, amount in device.capacity.items():
        domain, _, identifier = name.rpartition("/")
        capacity.setdefault(domain or driver, {})[identifier] = Quantity(amount.value)
    return Variables(
        {
            "driver": driver,
            "allowMultipleAllocations": device.allow_multiple_allocations,
            "attributes": attributes,
            "capacity": capacity,
        }
    )


def _attribute(name: str, value: AttributeValue) -> object:
    values = value.values
    if value.kind == "version":
        try:
            versions = [Semver.parse(str(text)) for text in values]
        except EvaluationError as error:
            raise EvaluationError(f"attribute {name}: parse semantic version: {error}") from error
        return versions if value.is_list else versions[0]
    if value.is_list:
        return list(values)
    if not values:
        raise EvaluationError(f"attribute {name}: unsupported attribute value")
    return values[0]


def _error(node: Node, text: str) -> CompileError:
    return CompileError(f"compilation failed: ERROR: <input>:1:{node.at + 1}: {text}")


def _is_assignable(wanted: Type, given: Type, bound: dict[str, Type]) -> bool:
    """Return whether a value of a type may be where another is wanted; binds type parameters."""
    if len(wanted.name) == 1:
        known = bound.get(wanted.name)
        if known is None or _is_assignable(given, known, {}):
            if known is None or known != DYN:
                bound[wanted.name] = given if known is None or given != DYN else known
            return True
        return _is_assignable(known, given, {})
    if DYN in (wanted, given) or (given == NULL and wanted.name in _NULLABLE):
        return True
    return (
        wanted.name == given.name
        and (len(wanted.parameters) == len(given.parameters) or wanted.name == "type")
        and all(
            _is_assignable(one, other, bound) for one, other in zip(wanted.parameters, given.parameters, strict=False)
        )
    )


def _resolved(kind: Type, bound: Mapping[str, Type]) -> Type:
    if len(kind.name) == 1:
        return bound.get(kind.name, DYN)
    return Type(kind.name, tuple(_resolved(one, bound) for one in kind.parameters))


def _joined(types: Iterable[Type], node: Node) -> Type:
    """Return the type of elements side by side, which must agree."""
    found: Type | None = None
    for kind in types:
        if found is None or (found != kind and _is_assignable(kind, found, {})):
            found = kind
        elif not _is_assignable(found, kind, {}):
            raise _error(node, f"expected type '{found}' but found '{kind}'")
    return found or DYN


def _chosen(value: Any, key: Any, *, is_optional: bool) -> Any:
    """Return an element or a field; of an optional value, an optional one."""
    if isinstance(value, Optional):
        return _chosen(value.value, key, is_optional=True) if value.has_value else value
    if isinstance(value, dict):
        if isinstance(key, bool) or not isinstance(key, str | int | float):
            raise EvaluationError("no such overload")
        if key in value:
            found = value[key]
        elif isinstance(value, _Domains):
            found = {}
        elif is_optional:
            return Optional()
        else:
            raise EvaluationError(f"no such key: {key}")
    elif isinstance(value, list) and type(key) in (int, Uint, float) and key == int(key):
        if 0 <= key < len(value):
            found = value[int(key)]
        elif is_optional:
            return Optional()
        else:
            raise EvaluationError(f"index out of bounds: {int(key)}")
    else:
        raise EvaluationError("no such overload")
    return Optional(has_value=True, value=found) if is_optional else found


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
        if isinstance(node, Call):
            special = {"_?_:_": self._condition, "_[_]": self._index, "_[?_]": self._index}.get(node.name, self._call)
            if node.name in ("orValue", "or") and node.target is not None and len(node.arguments) == 1:
                special = self._otherwise
            return special(node)
        compilers: dict[type, Callable[[Any], _Compiled]] = {
            Literal: self._literal,
            Ident: self._ident,
            Select: self._select,
            Logic: self._logic,
            ListOf: self._list,
            MapOf: self._map,
            Fold: self._fold,
        }
        return compilers[type(node)](node)

    def _literal(self, node: Literal) -> _Compiled:
        value = node.value
        return _Compiled(_LITERALS[type(value)], lambda _: value, is_constant=True)

    def _ident(self, node: Ident) -> _Compiled:
        known = self._scope.get(node.name)
        if known is None:
            kind = _TYPE_NAMES.get(node.name)
            if kind is None:
                raise _error(node, f"undeclared reference to '{node.name}' (in container '')")
            named = Type(kind.name)
            return _Compiled(Type("type", (kind,)), lambda _: named)
        slot, kind = known

        def run(state: _State) -> Any:
            state.pay(1)
            return state.slots[slot]

        return _Compiled(kind, run, is_attribute=True)

    def _select(self, node: Select) -> _Compiled:
        operand = self.compile(node.operand)
        kind = operand.type
        through_optional = kind.name == "optional_type"
        if through_optional:
            kind = kind.parameters[0]
        if kind == _DEVICE:
            if node.field not in _FIELDS:
                raise _error(node, f"undefined field '{node.field}'")
            result = _FIELDS[node.field]
            self.is_of_driver &= node.field == "driver"
        elif kind.name == "map":
            result = kind.parameters[1]
        elif kind == DYN:
            result = DYN
        else:
            raise _error(node, f"type '{kind}' does not support field selection")
        inner, field = operand.run, node.field
        is_optional = node.is_optional or through_optional
        step = 1 if operand.is_attribute else 2
        if node.is_test:

            def test(state: _State) -> bool:
                value = inner(state)
                state.pay(step - 1)
                return bool(_chosen(value, field, is_optional=True).has_value)

            return _Compiled(BOOL, test)

        def run(state: _State) -> Any:
            value = inner(state)
            found = _chosen(value, field, is_optional=is_optional)
            state.pay(step if not is_optional or found.has_value else step - 1)
            return found

        return _Compiled(optional_of(result) if is_optional else result, run, is_attribute=True)

    def _index(self, node: Call) -> _Compiled:
        operand, index = (self.compile(one) for one in node.arguments)
        kind = operand.type
        is_optional = node.name == "_[?_]" or kind.name == "optional_type"
        if kind.name == "optional_type":
            kind = kind.parameters[0]
        if kind.name == "list" and index.type in (INT, DYN):
            result = kind.parameters[0]
        elif kind.name == "map" and _is_assignable(kind.parameters[0], index.type, {}):
            result = kind.parameters[1]
        elif kind == DYN:
            result = DYN
        else:
            raise _error(node, f"found no matching overload for '{node.name}' applied to '({kind}, {index.type})'")
        step = 1 if operand.is_attribute else 2

        def run(state: _State) -> Any:
            value = operand.run(state)
            found = _chosen(value, index.run(state), is_optional=is_optional)
            state.pay(step if not is_optional or found.has_value else step - 1)
            return found

        return _Compiled(optional_of(result) if is_optional else result, run, is_attribute=True)

    def _condition(self, node: Call) -> _Compiled:
        test, then, other = (self.compile(one) for one in node.arguments)
        if not _is_assignable(BOOL, test.type, {}):
            raise _error(
                node, f"found no matching overload for '_?_:_' applied to '({test.type}, {then.type}, {other.type})'"
            )
        kind = _joined((then.type, other.type), node)

        def run(state: _State) -> Any:
            value = test.run(state)
            if not isinstance(value, bool):
                raise EvaluationError("no such overload")
            branch = then if value else other
            if branch.is_attribute:
                state.cost -= 1
            return branch.run(state)

        return _Compiled(kind, run)

    def _logic(self, node: Logic) -> _Compiled:
        terms = [self.compile(term) for term in node.terms]
        for term in terms:
            if not _is_assignable(BOOL, term.type, {}):
                raise _error(
                    node,
                    f"found no matching overload for '_{node.name}_' applied to '({terms[0].type}, {terms[-1].type})'",
                )
        runs = [term.run for term in terms]
        decisive = node.name == "||"

        def run(state: _State) -> bool:
            error: EvaluationError | None = None
            for one in runs:
                try:
                    value = one(state)
                except EvaluationError as caught:
                    error = error or caught
                    continue
                if value is decisive:
                    return bool(value)
                if not isinstance(value, bool):
                    error = error or EvaluationError("no such overload")
            if error is not None:
                raise error
            return not decisive

        return _Compiled(BOOL, run)

    def _list(self, node: ListOf) -> _Compiled:
        items = [(self.compile(item), is_optional) for item, is_optional in node.items]
        element = _joined((_unwrapped(one, node) if is_optional else one.type for one, is_optional in items), node)
        if all(one.is_constant and not is_optional for one, is_optional in items):
            values = [one.run(_State([], 0)) for one, _ in items]
            return _Compiled(list_of(element), lambda _: values, is_constant=True)

        def run(state: _State) -> list[Any]:
            found = []
            for one, is_optional in items:
                value = one.run(state)
                if not is_optional:
                    found.append(value)
                elif not isinstance(value, Optional):
                    raise EvaluationError("no such overload")
                elif value.has_value:
                    found.append(value.value)
            state.pay(10)
            return found

        return _Compiled(list_of(element), run)

    def _map(self, node: MapOf) -> _Compiled:
        entries = [(self.compile(key), self.compile(value), is_optional) for key, value, is_optional in node.entries]
        key_type = _joined((key.type for key, _, _ in entries), node)
        value_type = _joined(
            (_unwrapped(value, node) if is_optional else value.type for _, value, is_optional in entries), node
        )
        if key_type == BOOL:
            raise NotUnderstood("a map whose keys are bool")
        is_constant = all(
            key.is_constant and value.is_constant and not is_optional for key, value, is_optional in entries
        )

        def run(state: _State) -> dict[Any, Any]:
            found: dict[Any, Any] = {}
            for key, value, is_optional in entries:
                name, one = key.run(state), value.run(state)
                if isinstance(name, bool) or not isinstance(name, str | int):
                    raise EvaluationError("unsupported key type")
                if not is_optional:
                    found[name] = one
                elif not isinstance(one, Optional):
                    raise EvaluationError("no such overload")
                elif one.has_value:
                    found[name] = one.value
            if not is_constant:
                state.pay(30)
            return found

        return _Compiled(map_of(key_type, value_type), run, is_constant=is_constant)

    def _otherwise(self, node: Call) -> _Compiled:
        """Compile `orValue` and `or`, whose argument is evaluated where it is needed only."""
        optional, other = (self.compile(one) for one in (node.target, *node.arguments) if one is not None)
        if optional.type.name not in ("optional_type", "dyn"):
            raise _error(
                node, f"found no matching overload for '{node.name}' applied to '{optional.type}.({other.type})'"
            )
        inner = optional.type.parameters[0] if optional.type.parameters else DYN
        is_value = node.name == "orValue"
        kind = _joined((inner if is_value else optional.type, other.type), node)

        def run(state: _State) -> Any:
            value = optional.run(state)
            if not isinstance(value, Optional):
                raise EvaluationError("no such overload")
            if not value.has_value:
                return other.run(state)
            return value.value if is_value else value

        return _Compiled(kind, run)

    def _call(self, node: Call) -> _Compiled:
        name, target = node.name, node.target
        if target is not None and (path := _path(target)) is not None and path.split(".")[0] not in self._scope:
            name, target = f"{path}.{name}", None
        if name in NOT_UNDERSTOOD or name.startswith("format."):
            raise NotUnderstood(f"the function {name}")
        if name not in FUNCTIONS:
            raise _error(node, f"undeclared reference to '{name}' (in container '')")
        nodes = node.arguments if target is None else (target, *node.arguments)
        arguments = [self.compile(one) for one in nodes]
        overloads, result = self._overloads(node, name, arguments, is_method=target is not None)
        if name in ("matches", "find", "findAll") and isinstance(nodes[1], Literal) and isinstance(nodes[1].value, str):
            check_pattern(nodes[1].value)
        is_lookup = name == "@in" and arguments[1].is_constant and arguments[0].type != QUANTITY
        return _Compiled(result, _calling(overloads, [one.run for one in arguments], is_lookup=is_lookup))

    def _overloads(
        self, node: Call, name: str, arguments: list[_Compiled], *, is_method: bool
    ) -> tuple[list[Overload], Type]:
        """Return the overloads that the arguments' types admit, and the type of the result."""
        found: list[Overload] = []
        results: list[Type] = []
        for overload in FUNCTIONS[name]:
            bound: dict[str, Type] = {}
            if (
                overload.is_method == is_method
                and len(overload.parameters) == len(arguments)
                and all(
                    _is_assignable(one, other.type, bound)
                    for one, other in zip(overload.parameters, arguments, strict=True)
                )
            ):
                found.append(overload)
                results.append(_resolved(overload.result, bound))
        if not found:
            shown = [str(argument.type) for argument in arguments]
            given = f"{shown[0]}.({', '.join(shown[1:])})" if is_method else f"({', '.join(shown)})"
            raise _error(node, f"found no matching overload for '{name}' applied to '{given}'")
        return found, results[0] if all(result == results[0] for result in results) else DYN

    def _fold(self, node: Fold) -> _Compiled:
        """Compile a macro that binds variables."""
        over = self.compile(node.range)
        before = dict(self._scope), self._slots
        slots = []
        for name, kind in zip(node.variables, self._bound_types(node, over.type), strict=True):
            self._slots += 1
            slots.append(self._slots)
            self._scope[name] = self._slots, kind
        self.most_slots = max(self.most_slots, self._slots)
        bodies = [self.compile(body) for body in node.bodies]
        self._scope, self._slots = before
        if node.macro == "transformMapEntry":
            raise NotUnderstood("the macro transformMapEntry")
        if node.macro in ("bind", "optMap", "optFlatMap"):
            return _binding(node, over, slots[0], bodies[0])
        is_filtering = node.macro in ("all", "exists", "exists_one", "existsOne", "filter") or len(bodies) > 1
        if is_filtering and not _is_assignable(BOOL, bodies[0].type, {}):
            raise _error(
                node, f"found no matching overload for the predicate of {node.macro} of type '{bodies[0].type}'"
            )
        return _comprehension(node, over, slots, bodies)

    def _bound_types(self, node: Fold, over: Type) -> list[Type]:
        if node.macro == "bind":
            return [over]
        if node.macro in ("optMap", "optFlatMap"):
            if over.name not in ("optional_type", "dyn"):
                raise _error(node, f"found no matching overload for '{node.macro}' applied to '{over}'")
            return [over.parameters[0] if over.parameters else DYN]
        if over.name not in ("list", "map", "dyn"):
            raise _error(
                node, f"expression of type '{over}' cannot be range of a comprehension (must be list, map, or dynamic)"
            )
        if over == DYN:
            return [DYN] * len(node.variables)
        if len(node.variables) == 1:
            return [over.parameters[0]]
        return [INT, over.parameters[0]] if over.name == "list" else list(over.parameters)


def _calling(
    overloads: list[Overload], arguments: list[Callable[[_State], Any]], *, is_lookup: bool
) -> Callable[[_State], Any]:
    """Return what calls the overload that fits the values.

    Args:
        overloads: those that fit the types.
        arguments: evaluate to the values.
        is_lookup: it asks whether something is in a constant list, which cel-go makes a set of.
    """

    def run(state: _State) -> Any:
        values = [one(state) for one in arguments]
        for overload in overloads:
            if all(map(has_type, values, overload.parameters)):
                if overload.cost is None:
                    state.pay(1)
                    return overload.call(*values)
                value = overload.call(*values)
                state.pay(int(isinstance(values[1], dict)) if is_lookup else overload.cost(*values, value))
                return value
        raise EvaluationError("no such overload")

    return run


def _unwrapped(one: _Compiled, node: Node) -> Type:
    """Return the type that an optional element adds to a list or map."""
    if one.type.name == "optional_type":
        return one.type.parameters[0]
    if one.type == DYN:
        return DYN
    raise _error(node, f"expected type 'optional_type(_)' but found '{one.type}'")


def _path(node: Node) -> str | None:
    """Return the dotted name that a chain of fields spells, if it is one."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.is_optional and not node.is_test:
        before = _path(node.operand)
        return None if before is None else f"{before}.{node.field}"
    return None


def _binding(node: Fold, over: _Compiled, slot: int, body: _Compiled) -> _Compiled:
    """Compile `cel.bind`, and the macros that open an optional value."""

    def bind(state: _State) -> Any:
        state.slots[slot] = over.run(state)
        return body.run(state)

    if node.macro == "bind":
        return _Compiled(body.type, bind)
    wraps = node.macro == "optMap"

    def run(state: _State) -> Any:
        value = over.run(state)
        if not isinstance(value, Optional):
            raise EvaluationError("no such overload")
        if not value.has_value:
            return value
        state.pay(2)
        state.slots[slot] = value.value
        found = body.run(state)
        return Optional(has_value=True, value=found) if wraps else found

    return _Compiled(optional_of(body.type) if wraps else body.type, run)


def _elements(value: Any, state: _State, slots: list[int]) -> Iterable[None]:
    """Set the variables of a macro to one element after the other."""
    if not isinstance(value, list | dict):
        raise EvaluationError("no such overload")
    if len(slots) == 1:
        for one in list(value):
            state.slots[slots[0]] = one
            yield
    else:
        for key, one in list(value.items() if isinstance(value, dict) else enumerate(value)):
            state.slots[slots[0]], state.slots[slots[1]] = key, one
            yield


def _comprehension(node: Fold, over: _Compiled, slots: list[int], bodies: list[_Compiled]) -> _Compiled:
    """Compile a macro over the elements of a list or map; the sums of costs are those of cel-go's expansion."""
    match node.macro:
        case "all" | "exists":
            return _decision(over, slots, bodies[0].run, decisive=node.macro == "exists")
        case "exists_one" | "existsOne":
            return _count(over, slots, bodies[0].run)
    element = over.type.parameters[0] if over.type.parameters else DYN
    if node.macro == "filter":
        kind = list_of(element)
    elif node.macro == "transformMap":
        kind = map_of(INT if over.type.name == "list" else element, bodies[-1].type)
    else:
        kind = list_of(bodies[-1].type)
    return _collection(node, over, slots, bodies, kind)


def _decision(over: _Compiled, slots: list[int], predicate: Callable[[_State], Any], *, decisive: bool) -> _Compiled:
    """Compile `exists`, which ends with the first true, or `all`, which ends with the first false."""

    def run(state: _State) -> bool:
        error: EvaluationError | None = None
        found = not decisive
        for _ in _elements(over.run(state), state, slots):
            state.pay(3 if decisive else 2)  # is there more to do
            if found is decisive:
                break
            state.pay(1)
            try:
                value = predicate(state)
            except EvaluationError as caught:
                error = caught
                continue
            if value is decisive:
                found, error = decisive, None
            elif not isinstance(value, bool):
                error = EvaluationError("no such overload")
        state.pay(1)
        if error is not None:
            raise error
        return found

    return _Compiled(BOOL, run)


def _count(over: _Compiled, slots: list[int], predicate: Callable[[_State], Any]) -> _Compiled:
    """Compile `exists_one`."""

    def run(state: _State) -> bool:
        found = 0
        for _ in _elements(over.run(state), state, slots):
            if _truth(predicate(state)):
                state.pay(2)
                found += 1
        state.pay(2)
        return found == 1

    return _Compiled(BOOL, run)


def _collection(node: Fold, over: _Compiled, slots: list[int], bodies: list[_Compiled], kind: Type) -> _Compiled:
    """Compile the macros that make a list or a map."""
    predicate, transform = bodies[0].run, bodies[-1].run
    keeps, is_map = node.macro == "filter", node.macro == "transformMap"
    has_test = keeps or len(bodies) > 1

    def run(state: _State) -> Any:
        found: list[Any] = []
        for _ in _elements(over.run(state), state, slots):
            if has_test and not _truth(predicate(state)):
                continue
            if keeps:
                state.pay(13)
                found.append(state.slots[slots[0]])
            elif is_map:
                state.pay(2)
                found.append((state.slots[slots[0]], transform(state)))
            else:
                state.pay(12)
                found.append(transform(state))
        state.pay(1)
        return dict(found) if is_map else found

    return _Compiled(kind, run)


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError("no such overload")
    return value
