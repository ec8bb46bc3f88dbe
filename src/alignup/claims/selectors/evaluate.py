"""Selectors: a CEL expression planned and evaluated on a device, its cost counted as cel-go's runtime counts it.

What is constant is folded and what is wrong in it refused before anything runs, errors are values
that operators may absorb, and each step pays as in cel-go, so that an expression ends where the
scheduler would end it.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from alignup.claims.selectors import functions, libraries
from alignup.claims.selectors import values as cel
from alignup.claims.selectors.check import Call, Checked, Overload, check
from alignup.claims.selectors.syntax import CompileError, Node, NotUnderstood, parse
from alignup.claims.selectors.values import (
    NONE,
    EvaluationError,
    Optional,
    StoppedError,
    no_overload,
    size_of,
    walked,
)
from alignup.records import Record

if TYPE_CHECKING:
    from alignup.claims.objects import AttributeValue, Device

# `resourceapi.CELSelectorExpressionMaxCost`.
MOST_COST: Final = 1_000_000
_CONVERSIONS: Final = (
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "string",
    "timestamp",
    "type",
    "uint",
)
_PATTERNS: Final = ("matches", "find", "findAll")
_LIST_COST: Final = 10
_MAP_COST: Final = 30
_MESSAGE_COST: Final = 40
_GROWING: Final[Mapping[type, type]] = {list: cel.Growing, dict: cel.GrowingMap}


# What an accumulator is before it is asked for.
_UNSET: Final = object()


class _State(Record, frozen=False):
    """What one evaluation has: the variables, and what it has cost so far."""

    slots: list[Any]
    limit: int
    cost: int = 0

    def pay(self, amount: int) -> None:
        self.cost += amount
        if self.cost > self.limit:
            raise StoppedError("operation cancelled: actual cost limit exceeded")


_Run: TypeAlias = Callable[[_State], Any]


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
            EvaluationError: as for the scheduler, to which it is an error; its `cost` says what was
                paid until then.
            StoppedError: the cost is above `limit`, or cel-go panics; it has a `cost` too.
            NotUnderstood: a value is beyond the bounds of this evaluator.
        """
        state = _State([device, *[None] * self.variables], limit)
        try:
            value = self.run(state)
        except StoppedError as error:
            value = error

        if isinstance(value, bool):
            return value, state.cost
        if not isinstance(value, Exception):
            value = EvaluationError(
                f"CEL result of type {cel.kind_of(value)} could not be converted to bool"
            )

        value.cost = state.cost
        raise value


@lru_cache(maxsize=1000)
def program_of(expression: str) -> Program | CompileError | NotUnderstood:
    """Return the program of a selector, or why there is none."""
    try:
        root = parse(expression)
        checked = check(root)
        planner = _Planner(checked)
        plan = planner.plan(root)
    except (CompileError, NotUnderstood) as error:
        return error
    return Program(plan.run, planner.slots, checked.is_of_driver)


def variables_of(driver: str, device: Device) -> Mapping[str, Any]:
    """Return a device as expressions see it.

    Raises:
        EvaluationError: an attribute has no value, or is no version.
    """
    attributes, capacity = cel.Domains(), cel.Domains()
    values = [
        (attributes, name, _attribute(name, value)) for name, value in device.attributes.items()
    ]
    values += [
        (capacity, name, libraries.to_quantity(one.value.text))
        for name, one in device.capacity.items()
    ]
    for domains, name, value in values:
        domain, _, identifier = name.rpartition("/")
        domains.setdefault(domain or driver, {})[identifier] = value

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
            values = [libraries.to_semver(text) for text in values]
        except EvaluationError as error:
            raise EvaluationError(f"attribute {name}: parse semantic version: {error}") from error
    if value.is_list:
        return values
    if not values:
        raise EvaluationError(f"attribute {name}: unsupported attribute value")
    return values[0]


class _Qualifier(Record):
    """A step into a value: a field or an index.

    Attributes:
        key: a constant; else what finds the key, which may be an error.
        is_test: only whether there is one is asked.
    """

    key: Any
    find: _Run | None = None
    is_optional: bool = False
    is_test: bool = False

    def of(self, state: _State, value: Any, *, is_optional: bool) -> Any:
        """Return what there is by the key, or an error; of an optional value, `ABSENT` if there is nothing."""
        key = self.key if self.find is None else self.find(state)
        found = key if isinstance(key, EvaluationError) else _outcome(cel.element, value, key)
        is_there = found is not cel.ABSENT
        if not is_optional or (is_there and not isinstance(found, EvaluationError)):
            state.pay(1)

        if is_optional or isinstance(found, EvaluationError):
            return found
        if self.is_test:
            return is_there
        if not is_there:
            return EvaluationError(
                f"index out of bounds: {key}" if isinstance(value, list) else f"no such key: {key}"
            )

        return found


class _Attribute(Record):
    """A variable or another value, and the steps into it, which are paid one by one."""

    read: _Run
    qualifiers: list[_Qualifier]

    def add(self, qualifier: _Qualifier) -> None:
        self.qualifiers.append(qualifier)

    def resolve(self, state: _State) -> Any:
        value = self.read(state)
        is_optional = isinstance(value, Optional)
        if is_optional:
            value = value.value if value.has_value else cel.ABSENT
        for qualifier in self.qualifiers:
            if value is cel.ABSENT or isinstance(value, EvaluationError):
                break
            is_optional |= qualifier.is_optional
            value = qualifier.of(state, value, is_optional=is_optional)
        if value is cel.ABSENT:
            return NONE
        is_wrapped = is_optional and not isinstance(value, EvaluationError)
        return Optional(has_value=True, value=value) if is_wrapped else value


class _Choice(Record):
    """One of two attributes by a condition; a step into the one chosen."""

    test: _Run
    then: _Attribute | _Choice
    other: _Attribute | _Choice

    def add(self, qualifier: _Qualifier) -> None:
        self.then.add(qualifier)
        self.other.add(qualifier)

    def resolve(self, state: _State) -> Any:
        found = self.test(state)
        if isinstance(found, bool):
            return (self.then if found else self.other).resolve(state)
        return found if isinstance(found, EvaluationError) else no_overload()


class _Plan(Record):
    """A node ready to run.

    Attributes:
        constant: its value, if it is the same whatever the device.
        attribute: what it is a step into, or a choice; the next step goes there too.
    """

    run: _Run
    constant: Optional = NONE
    attribute: _Attribute | _Choice | None = None


class _Planner:
    """Plans the nodes of one expression from the root down.

    Attributes:
        slots: how many variables there are.
    """

    def __init__(self, checked: Checked) -> None:
        self._checked = checked
        self._scope: dict[str, tuple[int, _Plan | None]] = {"device": (0, None)}
        self.slots = 0

    def plan(self, node: Node) -> _Plan:
        """Return a node ready to run.

        Raises:
            CompileError: a constant in it is wrong.
        """
        if id(node) in self._checked.named:
            return _constant(self._checked.named[id(node)])
        found: _Plan = getattr(self, f"_{node.kind}")(node)
        return found

    def _literal(self, node: Node) -> _Plan:
        return _constant(node.value)

    def _name(self, node: Node) -> _Plan:
        slot, start = self._scope[node.value]

        def read(state: _State) -> Any:
            value = state.slots[slot]
            if value is _UNSET and start is not None:
                value = state.slots[slot] = _growing(start.run(state))
            return value

        return _of_attribute(_Attribute(read, []))

    def _select(self, node: Node, *, is_test: bool = False) -> _Plan:
        return _step(self.plan(node.parts[0]), _Qualifier(node.value, is_test=is_test))

    def _has(self, node: Node) -> _Plan:
        return self._select(node, is_test=True)

    def _list(self, node: Node) -> _Plan:
        return _folded(
            *self._made(
                node.parts,
                node.value,
                _LIST_COST,
                lambda found: [one for one in found if one is not _UNSET],
            )
        )

    def _map(self, node: Node) -> _Plan:
        def make(found: list[Any]) -> Any:
            if not all(isinstance(key, str | int | float) for key in found[::2]):
                raise EvaluationError("unsupported key type")
            return _entries(found[::2], found[1::2])

        return _folded(*self._made(node.parts, node.value, _MAP_COST, make))

    def _message(self, node: Node) -> _Plan:
        (name, optional), fields = node.value, [field.value for field in node.parts[::2]]
        places = frozenset(place // 2 for place in optional)
        run, _ = self._made(
            node.parts[1::2],
            places,
            _MESSAGE_COST,
            lambda found: libraries.message_of(name, _entries(fields, found)),
        )
        return _Plan(run)

    def _made(
        self,
        parts: Sequence[Node],
        optional: frozenset[int],
        cost: int,
        make: Callable[[list[Any]], Any],
    ) -> tuple[_Run, list[_Plan]]:
        """Return what makes a value of values side by side, and these."""
        plans = [self.plan(part) for part in parts]

        def run(state: _State) -> Any:
            found = _values(plans, optional, state)
            state.pay(cost)
            return found if isinstance(found, EvaluationError) else _outcome(make, found)

        return run, plans

    def _call(self, node: Node) -> _Plan:
        call = self._checked.calls[id(node)]
        plans = [self.plan(one) for one in call.arguments]
        name = call.overloads[0].implementation
        plan: _Plan = (
            globals()[name.replace("@", "_")](call, plans)
            if name[0] == "@"
            else _called(call, plans)
        )
        return plan

    _method = _call

    def _fold(self, node: Node) -> _Plan:
        over, start = map(self.plan, node.parts[:2])
        *variables, accumulator = node.value
        before = self._scope
        first = self.slots + 1
        last = self.slots = self.slots + len(node.value)
        self._scope = {**before, accumulator: (last, start)}
        end = self.plan(node.parts[4])
        self._scope = {
            **self._scope,
            **{name: (first + place, None) for place, name in enumerate(variables)},
        }
        condition, step = map(self.plan, node.parts[2:4])
        self._scope = before
        is_pair = len(variables) > 1

        def run(state: _State) -> Any:
            values = over.run(state)
            if isinstance(values, EvaluationError):
                return values
            if not isinstance(values, list | dict):
                return EvaluationError(f"got {cel.kind_of(values)}, expected iterable type")

            slots = state.slots
            slots[last] = _UNSET
            pairs: Any = enumerate(values) if isinstance(values, list) else values.items()
            for one in list(pairs if is_pair else values):
                slots[first:last] = one if is_pair else [one]
                if condition.run(state) is False:
                    break
                slots[last] = step.run(state)

            made = end.run(state)
            return (
                list(made)
                if type(made) is cel.Growing
                else dict(made)
                if type(made) is cel.GrowingMap
                else made
            )

        return _Plan(run)


def _outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a call returns, or the error that it ends with."""
    try:
        return call(*arguments)
    except EvaluationError as error:
        return error


def _entries(keys: Sequence[Any], values: Sequence[Any]) -> dict[Any, Any]:
    """Return a map of the values that are set."""
    return {key: value for key, value in zip(keys, values, strict=True) if value is not _UNSET}


def _growing(value: Any) -> Any:
    """Return an accumulator that begins empty as one that grows in place."""
    return value if value or type(value) not in _GROWING else _GROWING[type(value)]()


def _constant(value: object) -> _Plan:
    return _Plan(lambda _: value, Optional(has_value=True, value=value))


def _of_attribute(attribute: _Attribute | _Choice, cost: int = 1) -> _Plan:
    def run(state: _State) -> Any:
        value = attribute.resolve(state)
        state.pay(cost)
        return value

    return _Plan(run, attribute=attribute)


def _step(operand: _Plan, qualifier: _Qualifier) -> _Plan:
    attribute = operand.attribute or _Attribute(operand.run, [])
    attribute.add(qualifier)
    if not qualifier.is_test:
        return _of_attribute(attribute, 0 if isinstance(attribute, _Choice) else 1)

    def run(state: _State) -> Any:
        value = attribute.resolve(state)
        return value.has_value if isinstance(value, Optional) else value

    return _Plan(run, attribute=attribute)


def _values(plans: Sequence[_Plan], optional: frozenset[int], state: _State) -> Any:
    """Return values side by side, or the first error; an optional one without a value is not set."""
    found = []
    for place, plan in enumerate(plans):
        value = plan.run(state)
        if isinstance(value, EvaluationError):
            return value
        if place in optional:
            if not isinstance(value, Optional):
                return EvaluationError("cannot initialize optional entry from non-optional value")
            value = value.value if value.has_value else _UNSET
        found.append(value)
    return found


def _folded(run: _Run, plans: Sequence[_Plan]) -> _Plan:
    """Return a plan, as a constant if it is made of constants."""
    if not all(plan.constant.has_value for plan in plans):
        return _Plan(run)
    value = run(_State([], MOST_COST))
    if isinstance(value, EvaluationError):
        raise CompileError(f"program instantiation failed: {value}")
    return _constant(value)


def _index(call: Call, plans: Sequence[_Plan]) -> _Plan:
    operand, index = plans
    is_optional = call.function.name != "_[_]"
    if index.constant.has_value:
        if not isinstance(index.constant.value, str | int | float):
            raise CompileError("program instantiation failed: invalid qualifier type")
        return _step(operand, _Qualifier(index.constant.value, is_optional=is_optional))
    find = (index.attribute or _Attribute(index.run, [])).resolve
    return _step(operand, _Qualifier(None, find, is_optional))


def _condition(_: Call, plans: Sequence[_Plan]) -> _Plan:
    test, *branches = plans
    then, other = (branch.attribute or _Attribute(branch.run, []) for branch in branches)
    return _of_attribute(_Choice(test.run, then, other), 0)


def _decision(call: Call, plans: Sequence[_Plan]) -> _Plan:
    """Plan `&&` or `||`: the first decisive term; an error counts only where none is."""
    decisive = call.function.name == "_||_"

    def run(state: _State) -> Any:
        error: EvaluationError | None = None
        for plan in plans:
            value = plan.run(state)
            if value is decisive:
                return decisive
            if not isinstance(value, bool):
                error = error or (value if isinstance(value, EvaluationError) else no_overload())

        return not decisive if error is None else error

    return _Plan(run)


def _otherwise(call: Call, plans: Sequence[_Plan]) -> _Plan:
    """Plan `or` and `orValue`, whose argument is evaluated where it is needed only."""
    optional, other = plans
    is_value = call.function.name == "orValue"

    def run(state: _State) -> Any:
        found = optional.run(state)
        if not isinstance(found, Optional):
            return found if isinstance(found, EvaluationError) else no_overload()
        if not found.has_value:
            return other.run(state)
        return found.value if is_value else found

    return _Plan(run)


def _not_strictly_false(_: Call, plans: Sequence[_Plan]) -> _Plan:
    def run(state: _State) -> bool:
        value = plans[0].run(state)
        state.pay(1)
        return value if isinstance(value, bool) else True

    return _Plan(run)


def _called(call: Call, plans: Sequence[_Plan]) -> _Plan:
    """Plan the call of a function that takes values."""
    name, is_single = call.function.name, len(call.overloads) == 1
    if name in _PATTERNS:
        _check_patterns(call, plans)

    if (
        name == "@in"
        and is_single
        and call.overloads[0].cost
        and (lookup := _lookup(plans)) is not None
    ):
        return lookup

    invoke = _invocation(call)
    rule = _COSTS[(is_single and call.overloads[0].cost) or call.function.cost]
    # cel-go looks for errors after each argument where a function takes any number of them, else
    # after all
    is_dispatched = call.function.is_guarded and not is_single
    has_pattern = name in _PATTERNS and isinstance(plans[1].constant.value, str)
    is_variadic = len(plans) > 2 or name == "format" or is_dispatched or has_pattern  # noqa: PLR2004  # more than a pair

    def run(state: _State) -> Any:
        values: list[Any] = []
        error: EvaluationError | None = None
        for plan in plans:
            values.append(plan.run(state))
            if error is None and isinstance(values[-1], EvaluationError):
                error = values[-1]
                if is_variadic and len(values) < len(plans):
                    return error

        result = _outcome(invoke, *values) if error is None else error
        state.pay(rule(values, result))
        return result

    return (
        _folded(run, plans) if name in _CONVERSIONS and plans[0].constant.has_value else _Plan(run)
    )


def _invocation(call: Call) -> Callable[..., Any]:
    """Return what calls the implementation that fits the values."""
    if call.function.name in cel.environment()["untyped"]:
        return _implementation(call.overloads[0])

    overloads = (
        call.overloads
        if call.function.is_guarded and len(call.overloads) == 1
        else call.function.overloads
    )
    known = [
        (one.parameters, _implementation(one))
        for one in overloads
        if len(one.parameters) == len(call.arguments)
    ]

    def invoke(*values: Any) -> Any:
        for parameters, implementation in known:
            if all(map(cel.fits, parameters, values)):
                return implementation(*values)

        raise no_overload()

    return invoke


def _implementation(overload: Overload) -> Callable[..., Any]:
    """Return the function that an overload names, with the arguments that it names too."""
    name, *arguments = overload.implementation.split()
    places = (functions, libraries, cel, operator, str, builtins)
    found: Callable[..., Any] = next(getattr(one, name) for one in places if hasattr(one, name))
    return partial(found, *arguments) if arguments else found


def _check_patterns(call: Call, plans: Sequence[_Plan]) -> None:
    """Make sure that constant regular expressions are some; of the function `matches`, cel-go compiles the text too."""
    is_function = not call.overloads[0].is_method
    for plan in plans if is_function else plans[1:2]:
        if isinstance(plan.constant.value, str):
            try:
                libraries.pattern_of(plan.constant.value)
            except ValueError as error:
                raise CompileError(
                    f"program instantiation failed: error parsing regexp: {error}"
                ) from error


def _lookup(plans: Sequence[_Plan]) -> _Plan | None:
    """Plan the look for a value in a constant list, of which cel-go makes a set that costs nothing."""
    wanted, some = plans
    listed = some.constant.value
    if not some.constant.has_value or not all(isinstance(one, str | int | float) for one in listed):
        return None
    if not listed:
        return _constant(value=False)

    def run(state: _State) -> Any:
        value = wanted.run(state)
        # the set has each whole double as an integer too, which one that is only near to it is not
        is_exact = isinstance(value, int) and not isinstance(value, bool)
        same = (
            one == value if is_exact and isinstance(one, float) else cel.are_equal(value, one)
            for one in listed
        )
        return value if isinstance(value, EvaluationError) else any(same)

    return _Plan(run)


# What calls cost, of their arguments and the result: cel-go's `interpreter/runtimecost.go` and
# `ext`, and `k8s.io/apiserver/pkg/cel/library/cost.go`.


def _pattern_cost(values: Sequence[Any], pattern_size: int) -> int:
    return walked(1 + size_of(values[-1])) * math.ceil(pattern_size * 0.25)


def _traversal(value: Any) -> int:
    if isinstance(value, str | bytes):
        return int(len(value.encode() if isinstance(value, str) else value) * 0.1)
    if isinstance(value, dict):
        return sum(_traversal(key) + _traversal(one) for key, one in value.items())
    return sum(map(_traversal, value)) if isinstance(value, list) else 1


def _compared(value: Any) -> int:
    """Return what it costs to compare each element of a list with each other."""
    if not isinstance(value, list):
        raise StoppedError("internal error: interface conversion: ref.Val is not traits.Lister")
    factor = 2.1 if value and isinstance(value[0], str | bytes) else 2.0
    return int(len(value) ** 2 * factor) + 1 + _LIST_COST


def _flattened(values: Sequence[Any], _: object) -> int:
    depth = values[1] if len(values) > 1 else 1
    if not isinstance(depth, int):
        raise StoppedError("internal error: interface conversion: ref.Val is not types.Int")
    return int(size_of(values[0]) * (1.0 if depth < 0 else float(depth))) + 1 + _LIST_COST


def _containment(network: object) -> int:
    return walked(size_of(network) * 2) + walked(size_of(network)) + 1


def _equality(values: Sequence[Any], _: object) -> int:
    return 1 if isinstance(values[0], cel.ADDRESSES + cel.NETWORKS) else _shorter(values)


def _shorter(values: Sequence[Any], _: object = None) -> int:
    return walked(min(map(_size, values)))


def _size(value: Any) -> int:
    return _size(value.value) if isinstance(value, Optional) and value.has_value else size_of(value)


_COSTS: Final[Mapping[str, Callable[[Sequence[Any], Any], int]]] = {
    "one": lambda _values, _result: 1,
    "walk": lambda values, _: walked(size_of(values[0])),
    "walk_twice": lambda values, _: walked(size_of(values[0]) * 2),
    "walk_second": lambda values, _: walked(size_of(values[1])),
    "walk_result": lambda _, result: walked(size_of(result) * 2),
    "walk_both": lambda values, _: walked(_size(values[0]) + _size(values[1])),
    "walk_each": lambda values, _: walked(size_of(values[0])) * walked(size_of(values[1])),
    "shorter": _shorter,
    "equality": _equality,
    "pattern": lambda values, _: _pattern_cost(values[:1], size_of(values[1])),
    "format_pattern": lambda values, _: _pattern_cost(
        values, getattr(values[0], "pattern_size", 1)
    ),
    "size_of_second": lambda values, _: _size(values[1]),
    "traversal": lambda values, _: _traversal(values[0]),
    "made": lambda _, result: size_of(result) + 1 + _LIST_COST,
    "flattened": _flattened,
    "compared": lambda values, _: _compared(values[-1]),
    "pairs": lambda values, _: size_of(values[0]) * size_of(values[1]) + 1,
    "pairs_twice": lambda values, _: size_of(values[0]) * size_of(values[1]) * 2 + 1,
    "contains_ip_text": lambda values, _: (
        walked(size_of(values[0]) * 2) + walked(size_of(values[1]))
    ),
    "contains_cidr": lambda values, _: _containment(values[0]),
    "contains_cidr_text": lambda values, _: _containment(values[0]) + walked(size_of(values[1])),
}
