"""Turns claims, pools and what is in use into the tables of the search; says what the allocator refuses at once.

Everything that does not change during the search is decided here: which device matches which request, what it would
take of its capacities, which values it has for constraints, which devices are interchangeable.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any, Final

from alignup.claims.capacities import CapacityError, consumed
from alignup.claims.cel_functions import CostExceededError, EvaluationError
from alignup.claims.cel_program import Program, program_of, variables_of
from alignup.claims.cel_syntax import NotUnderstood
from alignup.claims.objects import (
    ALL,
    AttributeValue,
    Claim,
    Constraint,
    Device,
    DeviceClass,
    Request,
    Slice,
    Subrequest,
)
from alignup.claims.pools import DeviceId, PoolOnNode, gather_pools, is_for
from alignup.core.claims.search import search
from alignup.errors import InputError
from alignup.records import Record, field

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from alignup.claims.gates import Gates
    from alignup.claims.read import Resources
    from alignup.kubernetes.node_object import NodeObject

MOST_RESULTS: Final = 32
"""`resourceapi.AllocationResultsMaxSize`: the most devices of a claim."""
_MOST_CLAIMS: Final = 60
_MOST_AMOUNT: Final = 2**60
_EXACT: Final = "ExactCount"
_WATCHED_STEPS: Final = 100_000


class AllocationError(Exception):
    """The scheduler ends with an error: for this node, or for the pod altogether."""

    def __init__(self, text: str, kind: str = "fatal") -> None:
        super().__init__(text)
        self.kind = kind
        """`fatal`, `node`, `timeout` (a bound was hit) or `notUnderstood`."""


class InUse(Record):
    """What allocated claims hold."""

    devices: frozenset[DeviceId]
    shared: frozenset[DeviceId]
    """Devices that some have shares of."""
    capacity: Mapping[DeviceId, Mapping[str, int]]
    """What these shares take."""


def in_use(claims: Sequence[Claim], gates: Gates) -> InUse:
    """Return what claims with an allocation hold; source: `dynamicresources/allocateddevices.go`."""
    devices, shared = set(), set()
    capacity: dict[DeviceId, dict[str, int]] = {}
    for claim in claims:
        for one in claim.allocated or ():
            device = DeviceId(one.driver, one.pool, one.device)
            if one.admin_access:
                continue
            if not gates.consumable_capacity or one.share_id is None:
                devices.add(device)
                continue
            shared.add(device)
            if one.consumed_capacity is not None:
                held = capacity.setdefault(device, {})
                for name, amount in one.consumed_capacity.items():
                    held[name] = held.get(name, 0) + amount
    return InUse(frozenset(devices), frozenset(shared), capacity)


class Question(Record):
    """What is asked of the allocator: devices for the claims of a pod on a node."""

    node: NodeObject
    slices: Sequence[Slice]
    """Those of the cluster."""
    classes: Sequence[DeviceClass]
    claims: tuple[Claim, ...]
    """Those of the pod without an allocation, in its order."""
    used: InUse
    gates: Gates
    """Of the scheduler."""
    excluded: frozenset[DeviceId] = frozenset()
    """Devices that nobody uses and that shall not be given."""


def question_of(node: NodeObject, resources: Resources, claims: Sequence[Claim], gates: Gates) -> Question:
    """Return what is asked for the claims of a pod, where the resources' claims hold what they have."""
    waiting = tuple(claim for claim in claims if claim.allocated is None)
    return Question(node, resources.slices, resources.classes, waiting, in_use(resources.claims, gates), gates)


class Candidate(Record, eq=False):
    """A device of a pool that the node reaches."""

    id: DeviceId
    device: Device
    slice: Slice
    pool: int
    """The place of its pool in the order of pools."""


class Way(Record, eq=False, frozen=False):
    """One way to serve a request: the request itself, or one of its alternatives."""

    claim: int
    request: int
    """Counted over all claims."""
    name: str
    """As results have it: `request` or `request/alternative`."""
    wanted: Subrequest
    device_class: DeviceClass
    count: int = 0
    everything: list[int] | None = None
    """The devices of allocation mode All."""

    @property
    def is_admin(self) -> bool:
        """Whether it looks at devices without holding them."""
        return bool(self.wanted.admin_access)


class Problem(Record, frozen=False):
    """The tables. Devices, ways, requests, claims, constraints and counters are counted from 0."""

    gates: Gates
    claims: Sequence[Claim]
    pools: list[PoolOnNode]
    devices: list[Candidate] = field(default_factory=list)
    """Those that may be allocated, in the order in which they are tried."""
    ways: list[Way] = field(default_factory=list)
    first_way: list[int] = field(default_factory=list)
    """Of each request, its first way; and a last entry, the number of ways."""
    first_request: list[int] = field(default_factory=list)
    """Of each claim, its first request; and a last entry, the number of requests."""
    has_alternatives: list[bool] = field(default_factory=list)
    """Of each request."""
    matches: list[list[int]] = field(default_factory=list)
    """By way and device: 0 no, 1 yes; below 0 an error, the place in `errors` from -1 down."""
    blocked: list[list[bool]] = field(default_factory=list)
    """By way and device: a matching device that is refused all the same: tainted, or in counters that are overdrawn."""
    errors: list[AllocationError] = field(default_factory=list)
    taken: list[bool] = field(default_factory=list)
    """By device: in use by other claims."""
    is_shareable: list[bool] = field(default_factory=list)
    is_shared: list[bool] = field(default_factory=list)
    """By device: other claims have shares of it, so that its counters are paid."""
    room: list[list[int]] = field(default_factory=list)
    """By device: of a shareable one, what is left of each capacity."""
    needs: list[list[tuple[int, ...]]] = field(default_factory=list)
    """By way and device: what is taken of each capacity of `room`; empty: no amounts."""
    amounts: list[list[dict[str, int] | None]] = field(default_factory=list)
    """The same by name, in billionths; None: the device is refused."""
    counters: list[int] = field(default_factory=list)
    """What is left of each counter."""
    families: list[int] = field(default_factory=list)
    """By counter: counters of one pool and name, in one unit, are a family."""
    uses: list[list[tuple[int, int]]] = field(default_factory=list)
    """By device: counters and amounts."""
    constraints: list[tuple[int, Constraint]] = field(default_factory=list)
    """The claim of each constraint."""
    is_distinct: list[bool] = field(default_factory=list)
    covers: list[list[bool]] = field(default_factory=list)
    """By constraint and way."""
    values: list[list[int]] = field(default_factory=list)
    """By constraint and device: a set of values as bits; 0: the attribute is missing."""
    is_alone: list[list[bool]] = field(default_factory=list)
    """By constraint and device: a list where lists are off, which can only come first."""
    forgets: bool = False
    """distinctAttribute remembers the last device of each request only, and none that was taken back (1.36)."""
    classes: list[int] = field(default_factory=list)
    """By device: interchangeable devices have one number."""

    def reason_of(self, way: Way, device: int) -> AllocationError:
        """Return the error of a device that must be allocated and breaks a constraint."""
        claim = self.claims[way.claim]
        return AllocationError(
            f"claim {claim}, request {way.wanted.name or way.name}: cannot add device {self.devices[device].id} "
            "because a claim constraint would not be satisfied"
        )


def make_problem(question: Question) -> Problem:
    """Return the tables of a question.

    Raises:
        AllocationError: the scheduler refuses the claims before it searches.
        InputError: there are more claims than a pod may have, or amounts that cannot be compared.
    """
    claims, gates = question.claims, question.gates
    if len(claims) > _MOST_CLAIMS:
        raise InputError(f"expected at most {_MOST_CLAIMS} claims of a pod, got {len(claims)}")
    problem = Problem(gates, claims, gather_pools(question.slices, question.node, gates))
    problem.devices = [
        Candidate(DeviceId(one.driver, one.pool.name, device.name), device, one, place)
        for place, pool in enumerate(problem.pools)
        if not pool.is_incomplete and not pool.invalid
        for one in pool.slices
        for device in one.devices
    ]
    maker = _Maker(problem, question)
    maker.requests()
    maker.devices()
    maker.constraints()
    maker.classes()
    if gates.is_before_37:
        maker.share_counters()
    return problem


def attribute_of(device: Device, driver: str, name: str) -> AttributeValue | None:
    """Return the value of an attribute by its full name; one of the driver's domain may be without it."""
    value = device.attributes.get(name)
    domain, slash, identifier = name.partition("/")
    if value is None and slash and domain == driver:
        return device.attributes.get(identifier)
    return value


class _Maker:
    """Fills the tables of a problem."""

    def __init__(self, problem: Problem, question: Question) -> None:
        self._problem = problem
        self._gates = problem.gates
        self._node = question.node
        self._classes = {one.name: one for one in question.classes}
        self._used = question.used
        self._excluded = question.excluded
        self._variables: dict[int, Mapping[str, Any]] = {}
        self._answers: dict[tuple[str, int | str], bool | Exception] = {}
        self._counter_names: list[tuple[int, str, str]] = []

    def requests(self) -> None:
        """Check the requests in the allocator's order, and list the devices of allocation mode All."""
        problem = self._problem
        for number, claim in enumerate(problem.claims):
            problem.first_request.append(len(problem.has_alternatives))
            total = 0
            for request in claim.requests:
                problem.first_way.append(len(problem.ways))
                problem.has_alternatives.append(bool(request.first_available))
                counts = self._ways(number, claim, request)
                if not self._gates.is_before_37 and counts > MOST_RESULTS - total:
                    raise AllocationError(
                        f"claim {claim}, request {request.name}: adding {counts} devices exceeds the claim limit of "
                        f"{MOST_RESULTS}, with {total} already accounted for"
                    )
                total += counts
            if total > MOST_RESULTS:
                raise AllocationError(
                    f"claim {claim}: number of requested devices {total} exceeds the claim limit of {MOST_RESULTS}"
                )
            self._check_constraints(claim)
        problem.first_request.append(len(problem.has_alternatives))
        problem.first_way.append(len(problem.ways))

    def _ways(self, number: int, claim: Claim, request: Request) -> int:
        """Add the ways to serve a request, and return the smallest number of devices."""
        gates, problem, where = self._gates, self._problem, f"claim {claim}, request {request.name}"
        choices = request.first_available
        if choices and not gates.prioritized_list:
            raise AllocationError(f"{where}: has subrequests, but the DRAPrioritizedList feature is disabled")
        wanted = choices or ((request.exactly,) if request.exactly is not None else ())
        if not wanted:
            raise AllocationError(f"{where}: missing device class name (unsupported request type?)")
        for one in wanted:
            if one.capacity is not None and not gates.consumable_capacity and gates.allocator != "stable":
                which = f"claim {claim}, subrequest {one.name}" if choices else where
                raise AllocationError(
                    f"{which}: has capacity requests, but the DRAConsumableCapacity feature is disabled"
                )
        first = len(problem.ways)
        for one in wanted:
            full, short = (f"{request.name}/{one.name}", one.name) if choices else (request.name, request.name)
            problem.ways.append(self._way(number, claim, one, full, short))
        return min(way.count for way in problem.ways[first:])

    def _way(self, number: int, claim: Claim, wanted: Subrequest, full: str, short: str) -> Way:
        where = f"claim {claim}, request {short}"
        if wanted.derived_attributes:
            raise AllocationError(f"{where}: cannot handle request with derived attributes, the feature is disabled")
        for index, selector in enumerate(wanted.selectors):
            if selector.cel is None:
                raise AllocationError(f"{where}, selector #{index}: CEL expression empty (unsupported selector type?)")
        if wanted.admin_access is not None and "/" not in full and not self._gates.admin_access:
            raise AllocationError(f"{where}: admin access is requested, but the feature is disabled")
        if not wanted.device_class_name:
            raise AllocationError(f"{where}: missing device class name (unsupported request type?)")
        device_class = self._classes.get(wanted.device_class_name)
        if device_class is None:
            name = wanted.device_class_name
            raise AllocationError(
                f'{where}: could not retrieve device class {name}: deviceclass.resource.k8s.io "{name}" not found'
            )
        way = Way(number, len(self._problem.has_alternatives) - 1, full, wanted, device_class)
        if wanted.allocation_mode == _EXACT:
            way.count = wanted.wanted
        elif wanted.allocation_mode == ALL:
            way.everything = self._everything(way, where)
            way.count = len(way.everything)
        else:
            raise AllocationError(f"{where}: unsupported count mode {wanted.allocation_mode}")
        return way

    def _everything(self, way: Way, where: str) -> list[int]:
        """Return the devices of allocation mode All: whatever matches, free or not."""
        problem, found = self._problem, []
        offsets: dict[int, list[int]] = {}
        for index, candidate in enumerate(problem.devices):
            offsets.setdefault(candidate.pool, []).append(index)
        for place, pool in enumerate(problem.pools):
            if pool.is_incomplete or pool.invalid:
                state = "invalid" if pool.invalid else "being updated"
                raise AllocationError(f"{where}: asks for all devices, but resource pool {pool} is currently {state}")
            for index in offsets.get(place, ()):
                matches = self._matches(way, index)
                if isinstance(matches, AllocationError):
                    raise matches
                if matches and self._gates.consumable_capacity:
                    amounts = self._amounts(way, index)
                    if isinstance(amounts, AllocationError):
                        raise amounts
                    if amounts is None or (self._gates.is_before_37 and not self._has_room(index, amounts)):
                        continue
                if matches:
                    found.append(index)
        return found

    def _check_constraints(self, claim: Claim) -> None:
        for index, constraint in enumerate(claim.constraints):
            has_distinct = constraint.distinct_attribute is not None and self._gates.allocator != "stable"
            if constraint.match_attribute is None and not has_distinct:
                raise AllocationError(
                    f"claim {claim}, constraint #{index}: empty constraint (unsupported constraint type?)"
                )

    def _matches(self, way: Way, index: int) -> bool | AllocationError:
        """Return whether a device satisfies class and request, and is for this node."""
        candidate = self._problem.devices[index]
        if candidate.device.binding_conditions and not self._gates.binding_conditions:
            return False
        claim = self._problem.claims[way.claim]
        for owner, selectors in (
            (f"class {way.device_class.name}", way.device_class.selectors),
            (f"claim {claim}", way.wanted.selectors),
        ):
            for number, selector in enumerate(selectors):
                expression = selector.cel.expression if selector.cel is not None else ""
                answer = self._answer(expression, index)
                if isinstance(answer, Exception):
                    return self._error(answer, f"{owner}: selector #{number}", candidate)
                if not answer:
                    return False
        return not candidate.slice.per_device_node_selection or is_for(candidate.device, self._node)

    def _error(self, error: Exception, where: str, candidate: Candidate) -> AllocationError:
        if isinstance(error, NotUnderstood):
            return AllocationError(f"{where}: not understood: {error}", "notUnderstood")
        if not isinstance(error, EvaluationError | CostExceededError):
            return AllocationError(f"{where}: CEL compile error: {error}")
        on = "" if self._gates.is_before_37 else f" on device {candidate.id}"
        hint = ""
        if "no such key:" in str(error) and not self._gates.is_before_37:
            hint = (
                ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() "
                "for optional fields"
            )
        return AllocationError(f"{where}{on}: CEL runtime error: {error}{hint}")

    def _answer(self, expression: str, index: int) -> bool | Exception:
        """Return what a selector says of a device; each is asked once, of a driver where it reads nothing else."""
        program = program_of(expression)
        if not isinstance(program, Program):
            return program
        candidate = self._problem.devices[index]
        is_of_driver = program.is_of_driver and _has_no_faults(candidate.device)
        key = expression, candidate.id.driver if is_of_driver else index
        if key not in self._answers:
            try:
                self._answers[key] = program.matches(self._seen(index))[0]
            except (EvaluationError, CostExceededError, NotUnderstood) as error:
                self._answers[key] = error
        return self._answers[key]

    def _seen(self, index: int) -> Mapping[str, Any]:
        """Return a device as expressions see it.

        Raises:
            EvaluationError: they cannot read it.
        """
        candidate = self._problem.devices[index]
        attributes = candidate.device.attributes.values()
        if not self._gates.list_selectors and any(value.is_list for value in attributes):
            raise EvaluationError("unsupported attribute value")
        if index not in self._variables:
            self._variables[index] = variables_of(candidate.id.driver, candidate.device)
        return self._variables[index]

    def _amounts(self, way: Way, index: int) -> dict[str, int] | AllocationError | None:
        """Return what a request takes of a device's capacities; None: the device cannot serve it."""
        candidate, gates = self._problem.devices[index], self._gates
        requests = way.wanted.capacity.requests if way.wanted.capacity is not None else {}
        try:
            return consumed(requests, candidate.device.capacity, gates)
        except CapacityError as error:
            claim = self._problem.claims[way.claim]
            short = way.wanted.name if "/" in way.name else way.name
            return AllocationError(
                f"claim {claim}, request {short}: checking capacity for device {candidate.id}: {error}"
            )

    def _has_room(self, index: int, amounts: Mapping[str, int]) -> bool:
        candidate = self._problem.devices[index]
        held = self._used.capacity.get(candidate.id, {})
        return all(
            held.get(name, 0) + amount <= candidate.device.capacity[name].value for name, amount in amounts.items()
        )

    def devices(self) -> None:
        """Fill what is known of each device, and of each way and device."""
        problem, gates, used = self._problem, self._gates, self._used
        held = used.capacity if gates.is_before_37 else used.capacity.keys() | used.shared
        problem.taken = [one.id in used.devices | self._excluded for one in problem.devices]
        problem.is_shareable = [
            gates.consumable_capacity and one.device.allow_multiple_allocations for one in problem.devices
        ]
        problem.is_shared = [
            shareable and one.id in held for one, shareable in zip(problem.devices, problem.is_shareable, strict=True)
        ]
        overdrawn = self._counters()
        for way in problem.ways:
            self._way_on_devices(way, overdrawn)
        self._scale_capacity()

    def _way_on_devices(self, way: Way, overdrawn: set[int]) -> None:
        """Fill the row of a way: whether each device matches, is blocked, and what it would take."""
        problem, gates = self._problem, self._gates
        matches: list[int] = []
        blocked: list[bool] = []
        amounts: list[dict[str, int] | None] = []
        for index, candidate in enumerate(problem.devices):
            answer: int | AllocationError = 0
            needed: dict[str, int] | None = {}
            is_free = way.is_admin or not problem.taken[index]
            if is_free or way.everything is not None:
                answer = self._matches(way, index)
            if answer is True and gates.consumable_capacity:
                found = self._amounts(way, index)
                if isinstance(found, AllocationError):
                    answer = found
                elif found is None or not self._has_room(index, found):
                    # in allocation mode All such a device makes the request impossible
                    needed = None
                    answer = way.everything is not None
                else:
                    needed = found
            if isinstance(answer, AllocationError):
                problem.errors.append(answer)
                answer = -len(problem.errors)
            is_tainted = gates.device_taints and any(
                taint.effect in ("NoSchedule", "NoExecute")
                and not any(one.tolerates(taint) for one in way.wanted.tolerations)
                for taint in candidate.device.taints
            )
            cannot_pay = not gates.partitionable_devices or (index in overdrawn and not problem.is_shared[index])
            matches.append(int(answer))
            blocked.append(is_tainted or (cannot_pay and bool(candidate.device.consumes_counters)))
            amounts.append(needed)
        problem.matches.append(matches)
        problem.blocked.append(blocked)
        problem.amounts.append(amounts)

    def _counters(self) -> set[int]:
        """Fill what is left of counters; return the devices of pools in which some are overdrawn."""
        problem, used = self._problem, self._used
        problem.uses = [[] for _ in problem.devices]
        if not self._gates.partitionable_devices:
            return set()
        rows = [(place, one) for place, pool in enumerate(problem.pools) for one in pool.counters]
        numbers = {(place, shared, name): row for row, (place, (shared, name, _)) in enumerate(rows)}
        raw = [value for _, (_, _, value) in rows]
        for place, pool in enumerate(problem.pools):
            for one in (*pool.slices, *pool.elsewhere):
                for device in one.devices:
                    name_of = DeviceId(one.driver, one.pool.name, device.name)
                    if name_of in used.devices or name_of in used.shared or name_of in used.capacity:
                        for number, amount in _uses(device, place, numbers).items():
                            raw[number] -= amount
        bad = {place for (place, _, _), number in numbers.items() if raw[number] < 0}
        uses = [_uses(candidate.device, candidate.pool, numbers) for candidate in problem.devices]
        self._counter_names = list(numbers)
        # in 1.36, pools of one name share counters
        old = self._gates.is_before_37
        keys = [(problem.pools[place].name if old else place, name) for place, _, name in numbers]
        names = {key: family for family, key in enumerate(dict.fromkeys(keys))}
        problem.families = [names[key] for key in keys]
        units = [0] * len(names)
        for number, left in enumerate(raw):
            units[problem.families[number]] = gcd(units[problem.families[number]], left)
        for use in uses:
            for number, amount in use.items():
                units[problem.families[number]] = gcd(units[problem.families[number]], amount)
        unit_of = [units[family] for family in problem.families]
        problem.counters = [_scaled(max(left, 0), unit) for left, unit in zip(raw, unit_of, strict=True)]
        problem.uses = [[(number, _scaled(amount, unit_of[number])) for number, amount in use.items()] for use in uses]
        return {index for index, candidate in enumerate(problem.devices) if candidate.pool in bad}

    def share_counters(self) -> None:
        """Let pools of one name have counters of one name in common, as 1.36 does by a fault.

        It looks at the counters of the pool that it comes to first, and adds up what devices of all of them take.
        """
        problem, names = self._problem, self._counter_names
        places: dict[str, set[int]] = {}
        for place, _, _ in names:
            places.setdefault(problem.pools[place].name, set()).add(place)
        waiting = {name for name, found in places.items() if len(found) > 1}
        while waiting:
            watch = [
                bool(uses) and candidate.id.pool in waiting
                for uses, candidate in zip(problem.uses, problem.devices, strict=True)
            ]
            outcome, pairs, _ = search(problem, prune=False, most_steps=_WATCHED_STEPS, watch=watch)
            if outcome != "touched":
                return
            first = problem.devices[pairs[0][1]]
            waiting.remove(first.id.pool)
            numbers = {(shared, name): at for at, (place, shared, name) in enumerate(names) if place == first.pool}
            for index, candidate in enumerate(problem.devices):
                if candidate.id.pool == first.id.pool:
                    problem.uses[index] = [
                        (numbers[names[number][1:]], amount)
                        for number, amount in problem.uses[index]
                        if names[number][1:] in numbers
                    ]
            self.classes()

    def _scale_capacity(self) -> None:
        """Bring the capacities of shareable devices into units in which they can be added without overflow."""
        problem = self._problem
        problem.needs = [[() for _ in problem.devices] for _ in problem.ways]
        for index, candidate in enumerate(problem.devices):
            problem.room.append([])
            if not problem.is_shareable[index]:
                continue
            held = self._used.capacity.get(candidate.id, {})
            amounts = {
                way: needed
                for way, row in enumerate(problem.amounts)
                if (needed := row[index]) and problem.matches[way][index] == 1
            }
            for name, capacity in candidate.device.capacity.items():
                left = capacity.value - held.get(name, 0)
                unit = gcd(left, *(needed[name] for needed in amounts.values()))
                room = _scaled(max(left, 0), unit)
                problem.room[index].append(room)
                for way, needed in amounts.items():
                    problem.needs[way][index] += (_scaled(max(needed[name], 0), unit, room),)

    def constraints(self) -> None:
        """Fill which ways each constraint covers, and each device's values."""
        problem = self._problem
        for number, claim in enumerate(problem.claims):
            for constraint in claim.constraints:
                # where both are set, the allocator looks at the first
                name = constraint.match_attribute
                covered = set(constraint.requests)
                problem.constraints.append((number, constraint))
                problem.is_distinct.append(name is None)
                problem.covers.append(
                    [
                        way.claim == number
                        and (not covered or {way.name, way.name.partition("/")[0]} & covered != set())
                        for way in problem.ways
                    ]
                )
                values, alone = self._values(name or constraint.distinct_attribute or "")
                problem.values.append(values)
                problem.is_alone.append(alone)

        problem.forgets = self._gates.is_before_37 and any(
            is_distinct and is_covered and way.count > 1
            for is_distinct, row in zip(problem.is_distinct, problem.covers, strict=True)
            for is_covered, way in zip(row, problem.ways, strict=True)
        )

    def _values(self, name: str) -> tuple[list[int], list[bool]]:
        """Return each device's values as a set of bits, and whether it is a list where lists are off."""
        bits: dict[tuple[object, ...], int] = {}
        values, alone = [], []
        for candidate in self._problem.devices:
            found = attribute_of(candidate.device, candidate.id.driver, name)
            is_alone = found is not None and found.is_list and not self._gates.list_attributes
            keys: set[tuple[object, ...]] = set()
            if found is not None and found.kind:
                keys = {("alone", candidate.id)} if is_alone else {(found.kind, value) for value in found.values}
            mask = 0
            for key in keys:
                mask |= 1 << bits.setdefault(key, len(bits))
            values.append(mask)
            alone.append(is_alone)
        return values, alone

    def classes(self) -> None:
        """Number the classes of devices that nothing in the search tells apart."""
        problem = self._problem
        fatal = {
            index
            for number, way in enumerate(problem.ways)
            if way.everything is not None and any(row[number] for row in problem.covers)
            for index in way.everything
        }
        everything = [way.everything for way in problem.ways if way.everything is not None]
        keys = zip(
            # their order decides between an error and a refusal
            [index if index in fatal else -1 for index in range(len(problem.devices))],
            problem.taken,
            problem.is_shareable,
            problem.is_shared,
            *([tuple(row) for row in rows] for rows in (problem.room, problem.uses)),
            *(row for rows in (problem.matches, problem.blocked, problem.needs, problem.values) for row in rows),
            *([one is None for one in row] for row in problem.amounts),
            *([index in devices for index in range(len(problem.devices))] for devices in everything),
            *problem.is_alone,
            strict=True,
        )
        numbers: dict[Hashable, int] = {}
        problem.classes = [numbers.setdefault(key, len(numbers)) for key in keys]


def _has_no_faults(device: Device) -> bool:
    """Return whether each attribute is such that every selector can read the device."""
    return all(value.kind not in ("", "version") and not value.is_list for value in device.attributes.values())


def _uses(device: Device, pool: int, numbers: Mapping[tuple[int, str, str], int]) -> dict[int, int]:
    """Return what a device takes of each counter.

    Raises:
        InputError: an amount is negative.
    """
    total: dict[int, int] = {}
    for use in device.consumes_counters:
        for name, amount in use.counters.items():
            if amount.value < 0:
                raise InputError(f"expected counters of at least 0, got {amount.value} billionths")
            number = numbers[pool, use.counter_set, name]
            total[number] = total.get(number, 0) + amount.value
    return total


def _scaled(amount: int, unit: int, most: int = _MOST_AMOUNT) -> int:
    """Return an amount in a unit; anything above what there is says the same as one more."""
    scaled = amount // unit if unit else 0
    if scaled > most:
        scaled = most + 1
    if scaled > _MOST_AMOUNT:
        raise InputError(f"expected amounts that 64 bits can compare, got {amount} billionths in steps of {unit}")
    return scaled
