"""Plans the CEL expression of a selector, and evaluates it on a device.

The cost is counted as cel-go's runtime counts it. What is constant is folded and what is wrong in
it refused before anything runs, errors are values that operators may absorb, and each step pays as
in cel-go, so that an expression ends where the scheduler would end it.
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
        newest_function: as of `Checked`.
    """

    run: _Run
    variables: int
    is_of_driver: bool
    newest_function: str = ""

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

    return Program(plan.run, planner.slots, checked.is_of_driver, checked.newest_function)


def versions_of(value: AttributeValue) -> list[cel.Semver | None]:
    """Return the versions of an attribute; None for a text that is none."""
    versions: list[cel.Semver | None] = []
    for text in value.values:
        try:
            versions.append(libraries.to_semver(text))
        except EvaluationError:
            versions.append(None)

    return versions


def is_readable(value: AttributeValue) -> bool:
    """Return whether a scheduler from 1.38 on knows what an attribute says."""
    if not value.kind or not value.values:
        return False
    return value.kind != "version" or None not in versions_of(value)


def variables_of(driver: str, device: Device, *, is_lazy: bool = False) -> Mapping[str, Any]:
    """Return a device as expressions see it.

    Args:
        driver: its driver.
        device: the device.
        is_lazy: an attribute that cannot be read is an error only to an expression that looks at
            it, as from 1.38 on.

    Raises:
        EvaluationError: an attribute has no value, or is no version.
    """
    attributes = cel.Domains()
    capacity = cel.Domains()
    values: list[tuple[cel.Domains, str, Any]] = []
    for name, value in device.attributes.items():
        if is_lazy and not is_readable(value):
            values.append((attributes, name, cel.UNREADABLE))
        else:
            values.append((attributes, name, _attribute(name, value)))

    values += [
        (capacity, name, libraries.to_quantity(amount.value.text))
        for name, amount in device.capacity.items()
    ]
    if is_lazy:
        # of two names for one thing, the one with the driver's domain counts
        values.sort(key=lambda item: "/" in item[1])

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
        """Return what there is by the key, or an error.

        Of an optional value it is `ABSENT` if there is nothing.
        """
        key = self.key if self.find is None else self.find(state)
        element = key if isinstance(key, EvaluationError) else _outcome(cel.element, value, key)
        is_error = isinstance(element, EvaluationError)
        is_absent = element is cel.ABSENT
        if not is_optional or not (is_absent or is_error):
            state.pay(1)

        if is_optional or is_error:
            return element
        if self.is_test:
            return not is_absent
        if not is_absent:
            return element
        if isinstance(value, list):
            return EvaluationError(f"index out of bounds: {key}")

        return EvaluationError(f"no such key: {key}")


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
        if is_optional and not isinstance(value, EvaluationError):
            return Optional(has_value=True, value=value)

        return value


class _Choice(Record):
    """One of two attributes by a condition; a step into the one chosen."""

    condition: _Run
    if_true: _Attribute | _Choice
    if_false: _Attribute | _Choice

    def add(self, qualifier: _Qualifier) -> None:
        self.if_true.add(qualifier)
        self.if_false.add(qualifier)

    def resolve(self, state: _State) -> Any:
        value = self.condition(state)
        if value is True:
            return self.if_true.resolve(state)
        if value is False:
            return self.if_false.resolve(state)

        return value if isinstance(value, EvaluationError) else no_overload()


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
        plan: _Plan = getattr(self, f"_{node.kind}")(node)
        return plan

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
        def make(elements: list[Any]) -> Any:
            return [element for element in elements if element is not _UNSET]

        return _folded(*self._made(node.parts, node.value, _LIST_COST, make))

    def _map(self, node: Node) -> _Plan:
        def make(parts: list[Any]) -> Any:
            if not all(isinstance(key, str | int | float) for key in parts[::2]):
                raise EvaluationError("unsupported key type")

            return _entries(parts[::2], parts[1::2])

        return _folded(*self._made(node.parts, node.value, _MAP_COST, make))

    def _message(self, node: Node) -> _Plan:
        name, optional = node.value
        fields = [field.value for field in node.parts[::2]]

        def make(values: list[Any]) -> Any:
            return libraries.message_of(name, _entries(fields, values))

        optional_values = frozenset(place // 2 for place in optional)
        run, _ = self._made(node.parts[1::2], optional_values, _MESSAGE_COST, make)
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
            values = _values(plans, optional, state)
            state.pay(cost)
            if isinstance(values, EvaluationError):
                return values

            return _outcome(make, values)

        return run, plans

    def _call(self, node: Node) -> _Plan:
        call = self._checked.calls[id(node)]
        plans = [self.plan(argument) for argument in call.arguments]
        name = call.overloads[0].implementation
        if name[0] != "@":
            return _called(call, plans)

        plan: _Plan = globals()[name.replace("@", "_")](call, plans)
        return plan

    _method = _call

    def _fold(self, node: Node) -> _Plan:
        walked_plan, start = map(self.plan, node.parts[:2])
        *variables, accumulator = node.value
        first = self.slots + 1
        last = self.slots + len(node.value)
        self.slots = last

        before = self._scope
        self._scope = {**before, accumulator: (last, start)}
        end = self.plan(node.parts[4])
        for slot, name in enumerate(variables, first):
            self._scope[name] = (slot, None)

        condition, step = map(self.plan, node.parts[2:4])
        self._scope = before
        is_pair = len(variables) > 1

        def run(state: _State) -> Any:
            values = walked_plan.run(state)
            if isinstance(values, EvaluationError):
                return values
            if not isinstance(values, list | dict):
                return EvaluationError(f"got {cel.kind_of(values)}, expected iterable type")

            slots = state.slots
            slots[last] = _UNSET
            for binding in _bindings(values, is_pair=is_pair):
                slots[first:last] = binding
                if condition.run(state) is False:
                    break

                slots[last] = step.run(state)

            return _grown(end.run(state))

        return _Plan(run)


def _bindings(values: list[Any] | dict[Any, Any], *, is_pair: bool) -> list[tuple[Any, ...]]:
    """Return what the variables of a macro are bound to in turn.

    It is each element of a list, or key of a map; in a pair an element comes behind its place, and
    a value behind its key.
    """
    if not is_pair:
        return [(value,) for value in values]
    if isinstance(values, dict):
        faults = {
            key: cel.unreadable(key) for key, value in values.items() if value is cel.UNREADABLE
        }
        return list({**values, **faults}.items())

    return list(enumerate(values))


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
    if value or type(value) not in _GROWING:
        return value

    return _GROWING[type(value)]()


def _grown(value: Any) -> Any:
    """Return an accumulator as a value that grows no more."""
    if type(value) is cel.Growing:
        return list(value)
    if type(value) is cel.GrowingMap:
        return dict(value)

    return value


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
    """Return values side by side, or the first error; an optional one without a value is unset."""
    values = []
    for place, plan in enumerate(plans):
        value = plan.run(state)
        if isinstance(value, EvaluationError):
            return value
        if place in optional:
            if not isinstance(value, Optional):
                return EvaluationError("cannot initialize optional entry from non-optional value")

            value = value.value if value.has_value else _UNSET

        values.append(value)

    return values


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
    condition, *branches = plans
    if_true, if_false = (branch.attribute or _Attribute(branch.run, []) for branch in branches)
    return _of_attribute(_Choice(condition.run, if_true, if_false), 0)


def _decision(call: Call, plans: Sequence[_Plan]) -> _Plan:
    """Plan `&&` or `||`: the first decisive term; an error counts only where none is."""
    decisive = call.function.name == "_||_"

    def run(state: _State) -> Any:
        error: EvaluationError | None = None
        for plan in plans:
            value = plan.run(state)
            if value is decisive:
                return decisive
            if error is None and not isinstance(value, bool):
                error = value if isinstance(value, EvaluationError) else no_overload()

        return not decisive if error is None else error

    return _Plan(run)


def _otherwise(call: Call, plans: Sequence[_Plan]) -> _Plan:
    """Plan `or` and `orValue`, whose argument is evaluated where it is needed only."""
    target, alternative = plans
    is_value = call.function.name == "orValue"

    def run(state: _State) -> Any:
        optional = target.run(state)
        if isinstance(optional, EvaluationError):
            return optional
        if not isinstance(optional, Optional):
            return no_overload()
        if not optional.has_value:
            return alternative.run(state)

        return optional.value if is_value else optional

    return _Plan(run)


def _not_strictly_false(_: Call, plans: Sequence[_Plan]) -> _Plan:
    def run(state: _State) -> bool:
        value = plans[0].run(state)
        state.pay(1)
        return value is not False

    return _Plan(run)


def _called(call: Call, plans: Sequence[_Plan]) -> _Plan:
    """Plan the call of a function that takes values."""
    name = call.function.name
    is_single = len(call.overloads) == 1
    if name in _PATTERNS:
        _check_patterns(call, plans)
    if name == "@in" and is_single and call.overloads[0].cost:
        lookup = _lookup(plans)
        if lookup is not None:
            return lookup

    invoke = _invocation(call)
    rule = _COSTS[(is_single and call.overloads[0].cost) or call.function.cost]
    is_variadic = _is_variadic(call, plans)

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

    if name in _CONVERSIONS and plans[0].constant.has_value:
        return _folded(run, plans)

    return _Plan(run)


def _is_variadic(call: Call, plans: Sequence[_Plan]) -> bool:
    """Return whether a function takes any number of arguments for cel-go.

    Then it looks for errors after each argument, else after all.
    """
    if len(plans) > 2 or call.function.name == "format":  # noqa: PLR2004  # more than a pair
        return True
    if call.function.is_guarded and len(call.overloads) > 1:
        return True

    return call.function.name in _PATTERNS and isinstance(plans[1].constant.value, str)


def _invocation(call: Call) -> Callable[..., Any]:
    """Return what calls the implementation that fits the values."""
    if call.function.name in cel.environment()["untyped"]:
        return _implementation(call.overloads[0])

    overloads = call.function.overloads
    if call.function.is_guarded and len(call.overloads) == 1:
        overloads = call.overloads

    implementations = [
        (overload.parameters, _implementation(overload))
        for overload in overloads
        if len(overload.parameters) == len(call.arguments)
    ]

    def invoke(*values: Any) -> Any:
        for parameters, implementation in implementations:
            if all(map(cel.fits, parameters, values)):
                return implementation(*values)

        raise no_overload()

    return invoke


def _implementation(overload: Overload) -> Callable[..., Any]:
    """Return the function that an overload names, with the arguments that it names too."""
    name, *arguments = overload.implementation.split()
    owners = (functions, libraries, cel, operator, str, builtins)
    owner = next(owner for owner in owners if hasattr(owner, name))
    function: Callable[..., Any] = getattr(owner, name)
    return partial(function, *arguments) if arguments else function


def _check_patterns(call: Call, plans: Sequence[_Plan]) -> None:
    """Make sure that constant regular expressions are some.

    Of the function `matches`, cel-go compiles the text too.

    Raises:
        CompileError: one is none.
    """
    patterns = plans[1:2] if call.overloads[0].is_method else plans
    for plan in patterns:
        if isinstance(plan.constant.value, str):
            try:
                libraries.pattern_of(plan.constant.value)
            except ValueError as error:
                raise CompileError(
                    f"program instantiation failed: error parsing regexp: {error}"
                ) from error


def _lookup(plans: Sequence[_Plan]) -> _Plan | None:
    """Plan the look for a value in a constant list.

    cel-go makes a set of it, which costs nothing.

    Returns:
        None: the list is not constant, or has elements of which it makes no set.
    """
    value_plan, list_plan = plans
    elements = list_plan.constant.value
    if not list_plan.constant.has_value:
        return None
    if not all(isinstance(element, str | int | float) for element in elements):
        return None
    if not elements:
        return _constant(value=False)

    def run(state: _State) -> Any:
        value = value_plan.run(state)
        if isinstance(value, EvaluationError):
            return value

        return any(_is_in_set(value, element) for element in elements)

    return _Plan(run)


def _is_in_set(value: Any, element: Any) -> bool:
    """Return whether an element of cel-go's set is a value.

    The set has each whole double as an integer too, which one that is only near to it is not.
    """
    if isinstance(element, float) and isinstance(value, int) and not isinstance(value, bool):
        return element == value

    return cel.are_equal(value, element)


# What calls cost, of their arguments and the result: cel-go's `interpreter/runtimecost.go` and
# `ext`, and `k8s.io/apiserver/pkg/cel/library/cost.go`.


def _pattern_cost(values: Sequence[Any], pattern_size: int) -> int:
    return walked(1 + size_of(values[-1])) * math.ceil(pattern_size * 0.25)


def _traversal(value: Any) -> int:
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return int(len(value) * 0.1)
    if isinstance(value, dict):
        return sum(_traversal(key) + _traversal(value[key]) for key in value)
    if isinstance(value, list):
        return sum(map(_traversal, value))

    return 1


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

    factor = 1.0 if depth < 0 else float(depth)
    return int(size_of(values[0]) * factor) + 1 + _LIST_COST


def _containment(network: object) -> int:
    return walked(size_of(network) * 2) + walked(size_of(network)) + 1


def _equality(values: Sequence[Any], _: object) -> int:
    if isinstance(values[0], cel.ADDRESSES + cel.NETWORKS):
        return 1

    return _shorter(values)


def _shorter(values: Sequence[Any], _: object = None) -> int:
    return walked(min(map(_size, values)))


def _size(value: Any) -> int:
    while isinstance(value, Optional) and value.has_value:
        value = value.value

    return size_of(value)


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
