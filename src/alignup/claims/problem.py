"""Turns claims, pools and what is in use into the tables of the search; says what the allocator refuses at once.

Everything that does not change during the search is decided here: which device matches which
request, what it would take of its capacities, which values it has for constraints, which devices
are interchangeable. `allocate` then asks the search, and returns devices as the scheduler does.

Source of the rules about capacities: `consumable_capacity.go`, where amounts are in billionths of
their unit.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain, groupby
from math import gcd
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace as changed

from alignup.claims import objects
from alignup.claims.objects import Allocated, Amount, Claim, NodeSelector, Requirement, Term
from alignup.claims.pools import gather_pools, is_for
from alignup.claims.selectors.evaluate import Program, program_of, variables_of
from alignup.claims.selectors.syntax import NotUnderstood
from alignup.claims.selectors.values import EvaluationError, StoppedError
from alignup.core.claims.search import search
from alignup.errors import InputError
from alignup.machine.bits import bit_set
from alignup.records import Record, field

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from alignup.claims.objects import Capacity, Range
    from alignup.claims.read import Resources
    from alignup.claims.scheduler_gates import Gates
    from alignup.kubernetes.node_fit import NodeObject

# `resourceapi.AllocationResultsMaxSize`: the most devices of a claim.
MOST_RESULTS: Final = 32
_MOST_CLAIMS: Final = 60
_MOST_AMOUNT: Final = 2**60
_EXACT: Final = "ExactCount"
_WATCHED_STEPS: Final = 100_000

_ONE: Final = 10**9
_MILLI: Final = 10**6
_LARGEST: Final = 2**63 - 1

# The bound of one search, in steps: some seconds.
MOST_STEPS: Final = 20_000_000


class AllocationError(Exception):
    """The scheduler ends with an error: for this node, or for the pod altogether."""

    def __init__(self, text: str, kind: str = "fatal") -> None:
        super().__init__(text)
        # `fatal`, `node`, `timeout` (a bound was hit) or `notUnderstood`.
        self.kind = kind


class InUse(Record):
    """What allocated claims hold.

    Attributes:
        shared: devices that some have shares of.
        capacity: what these shares take.
    """

    devices: frozenset[objects.DeviceId] = frozenset()
    shared: frozenset[objects.DeviceId] = frozenset()
    capacity: Mapping[objects.DeviceId, Mapping[str, int]] = field(default_factory=dict)


def in_use(claims: Sequence[objects.Claim], gates: Gates) -> InUse:
    """Return what claims with an allocation hold; source: `dynamicresources/allocateddevices.go`."""
    devices, shared = set(), set()
    capacity: dict[objects.DeviceId, Counter[str]] = {}
    for claim in claims:
        for one in claim.allocated or ():
            if one.admin_access:
                continue
            if not gates.consumable_capacity or one.share_id is None:
                devices.add(one.id)
                continue

            shared.add(one.id)
            if one.consumed_capacity is not None:
                capacity.setdefault(one.id, Counter()).update(one.consumed_capacity)

    return InUse(frozenset(devices), frozenset(shared), capacity)


class Question(Record):
    """What is asked of the allocator: devices for the claims of a pod on a node.

    Attributes:
        slices: those of the cluster.
        claims: those of the pod without an allocation, in its order.
        gates: of the scheduler.
        excluded: devices that nobody uses and that shall not be given.
    """

    node: NodeObject
    slices: Sequence[objects.Slice]
    classes: Sequence[objects.DeviceClass]
    claims: tuple[objects.Claim, ...]
    used: InUse
    gates: Gates
    excluded: frozenset[objects.DeviceId] = frozenset()


def question_of(
    node: NodeObject, resources: Resources, claims: Sequence[objects.Claim], gates: Gates
) -> Question:
    """Return what is asked for the claims of a pod, where the resources' claims hold what they have."""
    waiting = tuple(claim for claim in claims if claim.allocated is None)
    return Question(
        node, resources.slices, resources.classes, waiting, in_use(resources.claims, gates), gates
    )


class Candidate(Record, eq=False):
    """A device of a pool that the node reaches.

    Attributes:
        pool: the place of its pool in the order of pools.
    """

    id: objects.DeviceId
    device: objects.Device
    slice: objects.Slice
    pool: int


class Way(Record, eq=False, frozen=False):
    """One way to serve a request: the request itself, or one of its alternatives.

    Attributes:
        request: counted over all claims.
        name: as results have it: `request` or `request/alternative`.
        where: as errors have it.
        everything: the devices of allocation mode All.
    """

    claim: int
    request: int
    name: str
    where: str
    wanted: objects.Subrequest
    device_class: objects.DeviceClass
    count: int = 0
    everything: list[int] | None = None

    @property
    def is_admin(self) -> bool:
        """Whether it looks at devices without holding them."""
        return bool(self.wanted.admin_access)


def attribute_of(device: objects.Device, driver: str, name: str) -> objects.AttributeValue | None:
    """Return the value of an attribute by its full name; one of the driver's domain may be without it."""
    value = device.attributes.get(name)
    domain, slash, identifier = name.partition("/")
    if value is None and slash and domain == driver:
        return device.attributes.get(identifier)
    return value


class Problem:
    """The tables of a question. Devices, ways, requests, claims, constraints and counters are counted from 0.

    Raises:
        AllocationError: the scheduler would fail before it searches, for this node or for the pod.
        InputError: there are more claims than a pod may have, or amounts that cannot be compared.
    """

    def __init__(self, question: Question) -> None:
        self.claims, self.gates = question.claims, question.gates
        if len(self.claims) > _MOST_CLAIMS:
            raise InputError(
                f"expected at most {_MOST_CLAIMS} claims of a pod, got {len(self.claims)}"
            )

        self.pools = gather_pools(question.slices, question.node, question.gates)
        # Those that may be allocated, in the order in which they are tried.
        self.devices = [
            Candidate(objects.DeviceId(one.driver, one.pool.name, device.name), device, one, place)
            for place, pool in enumerate(self.pools)
            if not pool.is_incomplete and not pool.invalid
            for one in pool.slices
            for device in one.devices
        ]
        self.ways: list[Way] = []
        # Of each request, its first way; and a last entry, the number of ways.
        self.first_way: list[int] = []
        # Of each claim, its first request; and a last entry, the number of requests.
        self.first_request: list[int] = []
        # Of each request.
        self.has_alternatives: list[bool] = []
        # By way and device: 0 no, 1 yes; below 0 an error, the place in `errors` from -1 down.
        self.matches: list[list[int]] = []
        # By way and device: a matching one that is refused: tainted, or in counters that are
        # overdrawn.
        self.blocked: list[list[bool]] = []
        self.errors: list[AllocationError] = []
        # By device: of a shareable one, what is left of each capacity.
        self.room: list[list[int]] = []
        # The same by name, in billionths; None: the device is refused.
        self.amounts: list[list[dict[str, int] | None]] = []
        # What is left of each counter.
        self.counters: list[int] = []
        # By counter: counters of one pool and name, in one unit, are a family.
        self.families: list[int] = []
        # The claim of each constraint.
        self.constraints: list[tuple[int, objects.Constraint]] = []
        self.is_distinct: list[bool] = []
        # By constraint and way.
        self.covers: list[list[bool]] = []
        # By constraint and device: a set of values as bits; 0: the attribute is missing.
        self.values: list[list[int]] = []
        # By constraint and device: a list where lists are off, which can only come first.
        self.is_alone: list[list[bool]] = []
        self._node, self._used, self._excluded = question.node, question.used, question.excluded
        self._device_classes = {one.name: one for one in question.classes}
        self._variables: dict[int, Mapping[str, Any]] = {}
        self._answers: dict[tuple[str, int | str], bool | Exception] = {}
        # Pool, set and counter, by number.
        self._counter_names: list[tuple[int, str, str]] = []
        self._read_requests()
        self._read_devices()
        self._read_constraints()
        self._number_classes()
        if self.gates.is_before_37:
            self._share_counters()

    def is_free(self, way: int, device: int) -> bool:
        """Return whether a way can have a device, counters apart."""
        return (
            self.matches[way][device] == 1
            and not self.taken[device]
            and not self.blocked[way][device]
        )

    def _read_requests(self) -> None:
        """Check the requests in the allocator's order, and list the devices of allocation mode All."""
        limit = f"exceeds the claim limit of {MOST_RESULTS}"
        for number, claim in enumerate(self.claims):
            self.first_request.append(len(self.has_alternatives))
            total = 0
            for request in claim.requests:
                self.first_way.append(len(self.ways))
                self.has_alternatives.append(bool(request.first_available))
                counts = self._ways(number, claim, request)
                if not self.gates.is_before_37 and counts > MOST_RESULTS - total:
                    adding = f"adding {counts} devices {limit}, with {total} already accounted for"
                    raise AllocationError(f"claim {claim}, request {request.name}: {adding}")

                total += counts

            if total > MOST_RESULTS:
                raise AllocationError(f"claim {claim}: number of requested devices {total} {limit}")
            for index, constraint in enumerate(claim.constraints):
                has_distinct = (
                    constraint.distinct_attribute is not None and self.gates.allocator != "stable"
                )
                if constraint.match_attribute is None and not has_distinct:
                    where = f"claim {claim}, constraint #{index}"
                    raise AllocationError(
                        f"{where}: empty constraint (unsupported constraint type?)"
                    )

        self.first_request.append(len(self.has_alternatives))
        self.first_way.append(len(self.ways))

    def _ways(self, number: int, claim: objects.Claim, request: objects.Request) -> int:
        """Add the ways to serve a request, and return the smallest number of devices."""
        gates, where = self.gates, f"claim {claim}, request {request.name}"
        choices = request.first_available
        if choices and not gates.prioritized_list:
            raise AllocationError(
                f"{where}: has subrequests, but the DRAPrioritizedList feature is disabled"
            )

        wanted = choices or ((request.exactly,) if request.exactly is not None else ())
        if not wanted:
            raise AllocationError(f"{where}: missing device class name (unsupported request type?)")

        for one in wanted:
            if (
                one.capacity is not None
                and not gates.consumable_capacity
                and gates.allocator != "stable"
            ):
                which = f"claim {claim}, subrequest {one.name}" if choices else where
                off = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
                raise AllocationError(f"{which}: {off}")

        first = len(self.ways)
        for one in wanted:
            full, short = (
                (f"{request.name}/{one.name}", one.name)
                if choices
                else (request.name, request.name)
            )
            self.ways.append(self._way(number, claim, one, full, short))

        return min(way.count for way in self.ways[first:])

    def _way(
        self, number: int, claim: objects.Claim, wanted: objects.Subrequest, full: str, short: str
    ) -> Way:
        where = f"claim {claim}, request {short}"
        if wanted.derived_attributes:
            raise AllocationError(
                f"{where}: cannot handle request with derived attributes, the feature is disabled"
            )

        for index, selector in enumerate(wanted.selectors):
            if selector.cel is None:
                raise AllocationError(
                    f"{where}, selector #{index}: CEL expression empty (unsupported selector type?)"
                )

        if wanted.admin_access is not None and "/" not in full and not self.gates.admin_access:
            raise AllocationError(
                f"{where}: admin access is requested, but the feature is disabled"
            )

        name = wanted.device_class_name
        if not name:
            raise AllocationError(f"{where}: missing device class name (unsupported request type?)")

        device_class = self._device_classes.get(name)
        if device_class is None:
            lost = f'device class {name}: deviceclass.resource.k8s.io "{name}" not found'
            raise AllocationError(f"{where}: could not retrieve {lost}")

        way = Way(number, len(self.has_alternatives) - 1, full, where, wanted, device_class)
        if wanted.allocation_mode == _EXACT:
            way.count = wanted.wanted
        elif wanted.allocation_mode == objects.ALL:
            way.everything = self._everything(way, where)
            way.count = len(way.everything)
        else:
            raise AllocationError(f"{where}: unsupported count mode {wanted.allocation_mode}")

        return way

    def _everything(self, way: Way, where: str) -> list[int]:
        """Return the devices of allocation mode All: whatever matches, free or not."""
        found = []
        by_pool = {
            place: list(some)
            for place, some in groupby(enumerate(self.devices), lambda one: one[1].pool)
        }
        for place, pool in enumerate(self.pools):
            if pool.is_incomplete or pool.invalid:
                state = "invalid" if pool.invalid else "being updated"
                raise AllocationError(
                    f"{where}: asks for all devices, but resource pool {pool} is currently {state}"
                )

            for index, _ in by_pool.get(place, ()):
                if not self._matches(way, index):
                    continue
                if self.gates.consumable_capacity:
                    amounts = self._amounts(way, index)
                    if amounts is None or (
                        self.gates.is_before_37 and not self._has_room(index, amounts)
                    ):
                        continue

                found.append(index)

        return found

    def _matches(self, way: Way, index: int) -> bool:
        """Return whether a device satisfies class and request, and is for this node.

        Raises:
            AllocationError: a selector cannot be asked.
        """
        candidate = self.devices[index]
        if candidate.device.binding_conditions and not self.gates.binding_conditions:
            return False

        for owner, selectors in (
            (f"class {way.device_class.name}", way.device_class.selectors),
            (f"claim {self.claims[way.claim]}", way.wanted.selectors),
        ):
            for number, selector in enumerate(selectors):
                answer = self._answer(
                    selector.cel.expression if selector.cel is not None else "", index
                )
                if isinstance(answer, Exception):
                    raise self._error(answer, f"{owner}: selector #{number}", candidate)
                if not answer:
                    return False

        return not candidate.slice.per_device_node_selection or is_for(candidate.device, self._node)

    def _error(self, error: Exception, where: str, candidate: Candidate) -> AllocationError:
        if isinstance(error, NotUnderstood):
            return AllocationError(f"{where}: not understood: {error}", "notUnderstood")
        if not isinstance(error, EvaluationError | StoppedError):
            return AllocationError(f"{where}: CEL compile error: {error}")
        on = "" if self.gates.is_before_37 else f" on device {candidate.id}"
        hint = ""
        if "no such key:" in str(error) and not self.gates.is_before_37:
            hint = (
                ". consider using CEL optional chaining (.? followed by orValue()) or guarding "
                "the check with has() "
                "for optional fields"
            )
        return AllocationError(f"{where}{on}: CEL runtime error: {error}{hint}")

    def _answer(self, expression: str, index: int) -> bool | Exception:
        """Return what a selector says of a device; each is asked once, of a driver where it reads nothing else."""
        program = program_of(expression)
        if not isinstance(program, Program):
            return program
        candidate = self.devices[index]
        is_of_driver = program.is_of_driver and _has_no_faults(candidate.device)
        key = expression, candidate.id.driver if is_of_driver else index
        if key not in self._answers:
            try:
                self._answers[key] = program.matches(self._seen(index))[0]
            except (EvaluationError, StoppedError, NotUnderstood) as error:
                self._answers[key] = error
        return self._answers[key]

    def _seen(self, index: int) -> Mapping[str, Any]:
        """Return a device as expressions see it.

        Raises:
            EvaluationError: they cannot read it.
        """
        candidate = self.devices[index]
        if not self.gates.list_selectors and any(
            value.is_list for value in candidate.device.attributes.values()
        ):
            raise EvaluationError("unsupported attribute value")
        if index not in self._variables:
            self._variables[index] = variables_of(candidate.id.driver, candidate.device)
        return self._variables[index]

    def _amounts(self, way: Way, index: int) -> dict[str, int] | None:
        """Return what a request takes of a device's capacities; None: the device cannot serve it.

        Raises:
            AllocationError: an amount cannot be represented, or is negative.
        """
        candidate = self.devices[index]
        requests = way.wanted.capacity.requests if way.wanted.capacity is not None else {}
        try:
            return consumed(requests, candidate.device.capacity, self.gates)
        except CapacityError as error:
            raise AllocationError(
                f"{way.where}: checking capacity for device {candidate.id}: {error}"
            ) from error

    def _has_room(self, index: int, amounts: Mapping[str, int]) -> bool:
        candidate = self.devices[index]
        held, there = self._used.capacity.get(candidate.id, {}), candidate.device.capacity
        return all(
            held.get(name, 0) + amount <= there[name].value for name, amount in amounts.items()
        )

    def _read_devices(self) -> None:
        """Fill what is known of each device, and of each way and device."""
        gates, used = self.gates, self._used
        held = used.capacity if gates.is_before_37 else used.capacity.keys() | used.shared
        # By device: in use by other claims.
        self.taken = [one.id in used.devices | self._excluded for one in self.devices]
        shares = gates.consumable_capacity
        self.is_shareable = [
            shares and one.device.allow_multiple_allocations for one in self.devices
        ]
        # By device: other claims have shares of it, so that its counters are paid.
        self.is_shared = [
            self.is_shareable[index] and one.id in held for index, one in enumerate(self.devices)
        ]
        # The pools in which some counters are overdrawn.
        self._overdrawn = self._counters()
        for way in self.ways:
            self._way_on_devices(way)

        self._block(
            {index for index, one in enumerate(self.devices) if one.pool in self._overdrawn}
        )
        self._scale_capacity()

    def _way_on_devices(self, way: Way) -> None:
        """Fill the row of a way: whether each device matches, and what it would take."""
        gates = self.gates
        self.matches.append([])
        self.amounts.append([])
        for index in range(len(self.devices)):
            answer = 0
            needed: dict[str, int] | None = {}
            try:
                if way.is_admin or not self.taken[index] or way.everything is not None:
                    answer = int(self._matches(way, index))
                if answer and gates.consumable_capacity:
                    needed = self._amounts(way, index)
                    if needed is None or not self._has_room(index, needed):
                        # in allocation mode All such a device makes the request impossible
                        needed, answer = None, int(way.everything is not None)
            except AllocationError as error:
                self.errors.append(error)
                answer = -len(self.errors)

            self.matches[-1].append(answer)
            self.amounts[-1].append(needed)

    def _block(self, overdrawn: set[int]) -> None:
        """Fill which devices each way is refused, where these are in counters that are overdrawn."""
        gates = self.gates
        unpaid = [
            bool(one.device.consumes_counters)
            and (
                not gates.partitionable_devices
                or (index in overdrawn and not self.is_shared[index])
            )
            for index, one in enumerate(self.devices)
        ]

        effects = ("NoSchedule", "NoExecute") if gates.device_taints else ()
        hard = [
            [taint for taint in one.device.taints if taint.effect in effects]
            for one in self.devices
        ]

        def is_refused(way: Way, taints: Sequence[objects.Taint]) -> bool:
            return any(
                not any(one.tolerates(taint) for one in way.wanted.tolerations) for taint in taints
            )

        self.blocked = [
            [unpaid[at] or is_refused(way, taints) for at, taints in enumerate(hard)]
            for way in self.ways
        ]

    def _counters(self) -> set[int]:
        """Fill what is left of counters; return the pools in which some are overdrawn."""
        used = self._used
        # By device: counters and amounts.
        self.uses: list[list[tuple[int, int]]] = [[] for _ in self.devices]
        if not self.gates.partitionable_devices:
            return set()

        rows = [(place, one) for place, pool in enumerate(self.pools) for one in pool.counters]
        numbers = {
            (place, shared, name): row for row, (place, (shared, name, _)) in enumerate(rows)
        }
        raw = [value for _, (_, _, value) in rows]
        for place, pool in enumerate(self.pools):
            for one in (*pool.slices, *pool.elsewhere):
                for device in one.devices:
                    name_of = objects.DeviceId(one.driver, one.pool.name, device.name)
                    if (
                        name_of in used.devices
                        or name_of in used.shared
                        or name_of in used.capacity
                    ):
                        for number, amount in _uses(device, place, numbers).items():
                            raw[number] -= amount

        uses = [_uses(candidate.device, candidate.pool, numbers) for candidate in self.devices]
        self._counter_names = list(numbers)
        # in 1.36, pools of one name share counters
        keys = [
            (self.pools[place].name if self.gates.is_before_37 else place, name)
            for place, _, name in numbers
        ]
        names = {key: family for family, key in enumerate(dict.fromkeys(keys))}
        self.families = [names[key] for key in keys]
        units = [0] * len(names)
        for number, amount in chain(enumerate(raw), *(use.items() for use in uses)):
            units[self.families[number]] = gcd(units[self.families[number]], amount)

        unit_of = [units[family] for family in self.families]
        self.counters = [
            _scaled(max(left, 0), unit) for left, unit in zip(raw, unit_of, strict=True)
        ]
        self.uses = [
            [(number, _scaled(amount, unit_of[number])) for number, amount in use.items()]
            for use in uses
        ]
        return {place for (place, _, _), number in numbers.items() if raw[number] < 0}

    def _share_counters(self) -> None:
        """Let pools of one name have counters of one name in common, as 1.36 does by a fault.

        It looks at the counters of the pool that it comes to first, and adds up what devices of all
        of them take; if some of these counters are overdrawn, no device of all of them is to be
        had.
        """
        names = self._counter_names
        places: dict[str, set[int]] = {}
        for place, _, _ in names:
            places.setdefault(self.pools[place].name, set()).add(place)

        waiting = {name for name, found in places.items() if len(found) > 1}
        decides = {one.pool: one.pool for one in self.devices}
        while waiting:
            watch = [
                bool(self.uses[index]) and one.id.pool in waiting
                for index, one in enumerate(self.devices)
            ]
            outcome, pairs, _ = search(self, prune=False, most_steps=_WATCHED_STEPS, watch=watch)
            if outcome != "touched":
                return
            first = self.devices[pairs[0][1]]
            waiting.remove(first.id.pool)
            numbers = {
                (shared, name): at
                for at, (place, shared, name) in enumerate(names)
                if place == first.pool
            }
            for index, candidate in enumerate(self.devices):
                if candidate.id.pool == first.id.pool:
                    used = ((names[number][1:], amount) for number, amount in self.uses[index])
                    self.uses[index] = [
                        (numbers[name], amount) for name, amount in used if name in numbers
                    ]
                    decides[candidate.pool] = first.pool

            self._block(
                {
                    index
                    for index, one in enumerate(self.devices)
                    if decides[one.pool] in self._overdrawn
                }
            )
            self._number_classes()

    def _scale_capacity(self) -> None:
        """Bring the capacities of shareable devices into units in which they can be added without overflow."""
        # By way and device: what is taken of each capacity of `room`; empty: no amounts.
        self.needs: list[list[tuple[int, ...]]] = [[() for _ in self.devices] for _ in self.ways]
        for index, candidate in enumerate(self.devices):
            self.room.append([])
            if not self.is_shareable[index]:
                continue
            held = self._used.capacity.get(candidate.id, {})
            rows = [
                (way, row[index])
                for way, row in enumerate(self.amounts)
                if self.matches[way][index] == 1
            ]
            amounts = {way: needed for way, needed in rows if needed}
            for name, capacity in candidate.device.capacity.items():
                left = capacity.value - held.get(name, 0)
                unit = gcd(left, *(needed[name] for needed in amounts.values()))
                room = _scaled(max(left, 0), unit)
                self.room[index].append(room)
                for way, needed in amounts.items():
                    self.needs[way][index] += (_scaled(max(needed[name], 0), unit, room),)

    def _read_constraints(self) -> None:
        """Fill which ways each constraint covers, and each device's values."""
        names = [{way.name, way.name.partition("/")[0]} for way in self.ways]
        for number, claim in enumerate(self.claims):
            for constraint in claim.constraints:
                # where both are set, the allocator looks at the first
                name = constraint.match_attribute
                covered = set(constraint.requests)
                self.constraints.append((number, constraint))
                self.is_distinct.append(name is None)
                is_covered = [not covered or not covered.isdisjoint(own) for own in names]
                self.covers.append(
                    [one.claim == number and is_covered[way] for way, one in enumerate(self.ways)]
                )
                values, alone = self._values(name or constraint.distinct_attribute or "")
                self.values.append(values)
                self.is_alone.append(alone)

        # distinctAttribute remembers the last device of each request only, and none that was taken
        # back (1.36).
        self.forgets = self.gates.is_before_37 and any(
            is_distinct and is_covered and way.count > 1
            for is_distinct, row in zip(self.is_distinct, self.covers, strict=True)
            for is_covered, way in zip(row, self.ways, strict=True)
        )

    def _values(self, name: str) -> tuple[list[int], list[bool]]:
        """Return each device's values as a set of bits, and whether it is a list where lists are off."""
        bits: dict[tuple[object, ...], int] = {}
        values, alone = [], []
        for candidate in self.devices:
            found = attribute_of(candidate.device, candidate.id.driver, name)
            is_alone = found is not None and found.is_list and not self.gates.list_attributes
            keys: set[tuple[object, ...]] = set()
            if found is not None and found.kind:
                keys = (
                    {("alone", candidate.id)}
                    if is_alone
                    else {(found.kind, value) for value in found.values}
                )

            values.append(bit_set([bits.setdefault(key, len(bits)) for key in keys]))
            alone.append(is_alone)

        return values, alone

    def _number_classes(self) -> None:
        """Number the classes of devices that nothing in the search tells apart."""
        fatal = {
            index
            for number, way in enumerate(self.ways)
            if way.everything is not None and any(row[number] for row in self.covers)
            for index in way.everything
        }
        everything = [way.everything for way in self.ways if way.everything is not None]
        keys = zip(
            # their order decides between an error and a refusal
            [index if index in fatal else -1 for index in range(len(self.devices))],
            self.taken,
            self.is_shareable,
            self.is_shared,
            *([tuple(row) for row in rows] for rows in (self.room, self.uses)),
            *(
                row
                for rows in (self.matches, self.blocked, self.needs, self.values)
                for row in rows
            ),
            *([one is None for one in row] for row in self.amounts),
            *([index in devices for index in range(len(self.devices))] for devices in everything),
            *self.is_alone,
            strict=True,
        )
        numbers: dict[Hashable, int] = {}
        # By device: interchangeable devices have one number.
        self.classes = [numbers.setdefault(key, len(numbers)) for key in keys]


def _has_no_faults(device: objects.Device) -> bool:
    """Return whether each attribute is such that every selector can read the device."""
    return all(
        value.kind not in ("", "version") and not value.is_list
        for value in device.attributes.values()
    )


def _uses(
    device: objects.Device, pool: int, numbers: Mapping[tuple[int, str, str], int]
) -> dict[int, int]:
    """Return what a device takes of each counter.

    Raises:
        InputError: an amount is negative.
    """
    total: Counter[int] = Counter()
    for use in device.consumes_counters:
        for name, amount in use.counters.items():
            if amount.value < 0:
                raise InputError(f"expected counters of at least 0, got {amount.value} billionths")
            total[numbers[pool, use.counter_set, name]] += amount.value

    return total


def _scaled(amount: int, unit: int, most: int = _MOST_AMOUNT) -> int:
    """Return an amount in a unit; an amount above `most` compares as `most + 1` does."""
    scaled = amount // unit if unit else 0
    if scaled > most:
        scaled = most + 1
    if scaled > _MOST_AMOUNT:
        raise InputError(
            f"expected amounts that 64 bits can compare, got {amount} billionths in steps of {unit}"
        )
    return scaled


class CapacityError(Exception):
    """A request that the scheduler gives up the pod for."""


def consumed(
    requests: Mapping[str, int], capacities: Mapping[str, Capacity], gates: Gates
) -> dict[str, int] | None:
    """Return what a request takes of each capacity; None: the device cannot serve it.

    Args:
        requests: amounts by name; a capacity that is not named is taken by its default, or whole.
        capacities: the device's.
        gates: of the scheduler; 1.36 has no errors, and is content with amounts that it cannot
            compute.

    Raises:
        CapacityError: an amount cannot be represented, or is negative.
    """
    if requests.keys() - capacities.keys():
        return None

    taken: dict[str, int] = {}
    for name, capacity in capacities.items():
        amount = _taken(requests.get(name), capacity, gates)
        if amount < 0 and not gates.is_before_37:
            raise CapacityError(f'capacity "{name}": capacity value is negative')
        taken[name] = amount

    refused = any(
        taken[name] > one.value or _violates(taken[name], one, gates)
        for name, one in capacities.items()
    )
    return None if refused else taken


def _taken(requested: int | None, capacity: Capacity, gates: Gates) -> int:
    policy = capacity.request_policy
    if requested is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return requested

    limits = policy.valid_range
    if limits is not None and limits.min is not None:
        if requested < limits.min or limits.step is None:
            return max(requested, limits.min)
        unit = _unit(limits, gates)
        start, step = _in(limits.min, unit), _in(limits.step, unit)
        rounded = (
            start + -(-(_in(requested, unit) - start) // step) * step if step > 0 else requested
        )
        if not gates.is_before_37 and (
            (unit == _MILLI and requested % _MILLI) or rounded > _LARGEST
        ):
            raise CapacityError(
                "capacity request cannot be represented in the device's range arithmetic"
            )

        return rounded * unit if step > 0 else requested

    if policy.valid_values is not None:
        return next((value for value in policy.valid_values if requested <= value), requested)

    return requested


def _violates(amount: int, capacity: Capacity, gates: Gates) -> bool:
    policy = capacity.request_policy
    if policy is None or (policy.default is not None and amount == policy.default):
        return False

    limits = policy.valid_range
    if limits is not None:
        if limits.max is not None and amount > limits.max:
            return True
        if limits.step is None or limits.min is None:
            return False
        unit = _unit(limits, gates)
        if unit == _MILLI and amount % _MILLI:
            return True
        step = _in(limits.step, unit)
        return step > 0 and (_in(amount, unit) - _in(limits.min, unit)) % step != 0

    return amount not in (policy.valid_values or (amount,))


def _unit(limits: Range, gates: Gates) -> int:
    """Return the unit of a range's arithmetic: thousandths where the gate is on and they are exact."""
    if not gates.fractional_ranges:
        return _ONE
    known = [value for value in (limits.min, limits.max, limits.step) if value is not None]
    if any(value % _MILLI or abs(value) > _LARGEST * _MILLI for value in known):
        return _ONE
    return _ONE if limits.step is not None and limits.step < _MILLI else _MILLI


def _in(amount: int, unit: int) -> int:
    """Return an amount in a unit, rounded up."""
    return -(-amount // unit)


def allocate(question: Question, most_steps: int = MOST_STEPS) -> tuple[Claim, ...] | None:
    """Return what the scheduler allocates to a pod's claims on a node; None: they cannot be allocated there.

    Args:
        question: with the claims.
        most_steps: the bound of the search.

    Raises:
        AllocationError: the scheduler would fail, for this node or for the pod; or the bound was
            hit; or a selector was not understood.
        InputError: there are more claims than a pod may have, or amounts that cannot be compared.
    """
    problem = Problem(question)
    return results_of(problem, question.node.name, solve(problem, most_steps))


def solve(
    problem: Problem, most_steps: int = MOST_STEPS, *, prune: bool = True
) -> list[tuple[int, int]] | None:
    """Return ways and devices in order; None: there is no solution.

    Raises:
        AllocationError: as in `allocate`.
    """
    outcome, pairs, _ = search(problem, prune=prune, most_steps=most_steps)
    if outcome == "found":
        return pairs
    if outcome == "error":
        raise problem.errors[pairs[0][0]]
    if outcome == "constraint":
        way, device = problem.ways[pairs[0][0]], problem.devices[pairs[0][1]]
        why = "because a claim constraint would not be satisfied"
        raise AllocationError(f"{way.where}: cannot add device {device.id} {why}")

    if outcome == "limit":
        raise AllocationError(f"the search was given up after {most_steps} steps", "timeout")
    if any(pool.invalid for pool in problem.pools):
        raise AllocationError("invalid resource pools were encountered", "node")

    return None


def results_of(
    problem: Problem, node: str, pairs: list[tuple[int, int]] | None
) -> tuple[Claim, ...] | None:
    """Return the claims with their devices in the scheduler's order, and the nodes that can use these."""
    if pairs is None:
        return None

    found: list[list[Allocated]] = [[] for _ in problem.claims]
    candidates: list[list[Candidate]] = [[] for _ in problem.claims]
    for number, index in pairs:
        way, candidate = problem.ways[number], problem.devices[index]
        is_shared = problem.is_shareable[index]
        amounts = (problem.amounts[number][index] or {}) if is_shared else {}
        candidates[way.claim].append(candidate)
        share = str(candidate.id) if is_shared else None
        taken = {name: Amount(amount) for name, amount in amounts.items()} or None
        conditions = (
            (candidate.device.binding_conditions or ()) if problem.gates.binding_conditions else ()
        )
        found[way.claim].append(
            Allocated(*candidate.id, way.name, way.is_admin, share, taken, conditions)
        )

    return tuple(
        changed(claim, allocated=tuple(devices), allocated_nodes=_nodes(chosen, node))
        for claim, devices, chosen in zip(problem.claims, found, candidates, strict=True)
    )


def _nodes(chosen: list[Candidate], node: str) -> NodeSelector | None:
    """Return which nodes can use the devices of a claim; None: all. Source: `createNodeSelector`."""
    expressions: dict[object, Requirement] = {}
    fields: dict[object, Requirement] = {}
    for candidate in chosen:
        owner = candidate.device if candidate.slice.per_device_node_selection else candidate.slice
        if owner.node_name or candidate.device.binds_to_node:
            return NodeSelector(
                (Term(match_fields=(Requirement("metadata.name", "In", (node,)),)),)
            )

        selector: NodeSelector | None = owner.node_selector
        for term in selector.node_selector_terms[:1] if selector is not None else ():
            for listed, known in (
                (term.match_fields, fields),
                (term.match_expressions, expressions),
            ):
                for one in listed:
                    known.setdefault((one.key, one.operator, frozenset(one.values)), one)

    if not expressions and not fields:
        return None

    return NodeSelector((Term(tuple(expressions.values()), tuple(fields.values())),))
