"""The tables that the search for devices walks, made of claims, pools and what is in use.

Everything that does not change during the search is decided here: which device matches which
request, what it would take of its capacities, which values it has for constraints, which devices
are interchangeable.
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from itertools import chain
from math import gcd
from operator import or_
from typing import TYPE_CHECKING, Final

from alignup.claims import objects
from alignup.claims.consumed_capacity import (
    CapacityError,
    consumed,
    full_name_of,
    names_of,
)
from alignup.claims.objects import attribute_of
from alignup.claims.pools import (
    MOST_CHOICES,
    Choice,
    choices_of,
    gather_pools,
    is_for,
    is_refused,
)
from alignup.claims.question import AllocationError
from alignup.claims.request_checks import (
    check_constraints,
    check_subrequest,
    class_of,
    subrequests_of,
)
from alignup.claims.selector_answers import Candidate, SelectorAnswers
from alignup.claims.selectors.evaluate import is_readable, versions_of
from alignup.core.claims.search import search
from alignup.errors import InputError
from alignup.machine.bits import bit_set
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from alignup.claims.pools import PoolOnNode
    from alignup.claims.question import Question

# `resourceapi.AllocationResultsMaxSize`: the most devices of a claim.
MOST_RESULTS: Final = 32
_MOST_CLAIMS: Final = 60
_MOST_AMOUNT: Final = 2**60
_EXACT: Final = "ExactCount"
_WATCHED_STEPS: Final = 100_000


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
    subrequest: objects.Subrequest
    device_class: objects.DeviceClass
    count: int = 0
    everything: list[int] | None = None

    @property
    def is_admin(self) -> bool:
        """Whether it looks at devices without holding them."""
        return bool(self.subrequest.admin_access)


class SearchTables:
    """The tables of a question, which the search walks.

    Devices, ways, requests, claims, constraints and counters are counted from 0.

    Raises:
        AllocationError: the scheduler would fail before it searches, for this node or for the pod.
        InputError: there are more claims than a pod may have, or amounts that cannot be compared.
    """

    def __init__(self, question: Question) -> None:
        self.claims = question.claims
        self.gates = question.gates
        if len(self.claims) > _MOST_CLAIMS:
            raise InputError(
                f"expected at most {_MOST_CLAIMS} claims of a pod, got {len(self.claims)}"
            )

        self.pools = gather_pools(question.slices, question.node, question.gates)
        # Those that may be allocated, in the order in which they are tried.
        self.devices = _candidates(self.pools)
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
        # By constraint and bit: the value.
        self.value_names: list[list[str]] = []
        # By constraint and device: a list where lists are off, which can only come first.
        self.is_alone: list[list[bool]] = []
        # By constraint and device: below 0 an error, the place in `errors` from -1 down, where the
        # constraint would look at the device.
        self.faults: list[list[int]] = []

        self.effort = question.effort
        self._node = question.node
        self._used = question.used
        self._excluded = question.excluded
        self._device_classes = {
            device_class.name: device_class for device_class in question.classes
        }
        self._selector_answers = SelectorAnswers(self.devices, self.gates, question.effort)
        # Pool, set and counter, by number.
        self._counter_names: list[tuple[int, str, str]] = []

        self._read_requests()
        self._read_devices()
        self._read_constraints()
        self._number_classes()
        if self.gates.is_before_37:
            self._share_counters()

    def choices(self) -> Iterator[SearchTables]:
        """Yield tables for each choice of groups for the devices of counter sets; mostly these.

        Raises:
            AllocationError: there are too many.
        """
        choices: list[Choice] = [{}]
        if self.gates.compatibility_groups:
            devices = [(candidate.pool, candidate.device) for candidate in self.devices]
            choices = list(choices_of(devices, self._used_devices()))
        if len(choices) > MOST_CHOICES:
            raise AllocationError(
                f"more than {MOST_CHOICES} choices of compatibility groups were not tried",
                "timeout",
            )

        for choice in choices:
            yield self._within(choice) if choice else self

    def _within(self, choice: Choice) -> SearchTables:
        """Return these tables without the devices that lack a chosen group."""
        is_refused_by_index = [
            not self.is_shared[index] and is_refused(candidate.pool, candidate.device, choice)
            for index, candidate in enumerate(self.devices)
        ]
        tables = copy(self)
        tables.blocked = [list(map(or_, row, is_refused_by_index)) for row in self.blocked]
        tables._number_classes()  # noqa: SLF001  # of the same class
        return tables

    def is_free(self, way: int, device: int) -> bool:
        """Return whether a way can have a device, counters apart."""
        return (
            self.matches[way][device] == 1
            and not self.taken[device]
            and not self.blocked[way][device]
        )

    def _read_requests(self) -> None:
        """Check the requests in the allocator's order, and list the ways to serve them."""
        for number, claim in enumerate(self.claims):
            self.first_request.append(len(self.has_alternatives))
            self._read_requests_of(number, claim)
            check_constraints(claim, self.gates)

        self.first_request.append(len(self.has_alternatives))
        self.first_way.append(len(self.ways))

    def _read_requests_of(self, number: int, claim: objects.Claim) -> None:
        limit = f"exceeds the claim limit of {MOST_RESULTS}"
        total = 0
        for request in claim.requests:
            self.first_way.append(len(self.ways))
            self.has_alternatives.append(bool(request.first_available))
            count = self._add_ways(number, claim, request)
            if not self.gates.is_before_37 and count > MOST_RESULTS - total:
                adding = f"adding {count} devices {limit}, with {total} already accounted for"
                raise AllocationError(f"claim {claim}, request {request.name}: {adding}")

            total += count

        if total > MOST_RESULTS:
            raise AllocationError(f"claim {claim}: number of requested devices {total} {limit}")

    def _add_ways(self, number: int, claim: objects.Claim, request: objects.Request) -> int:
        """Add the ways to serve a request, and return the smallest number of devices."""
        first = len(self.ways)
        for subrequest in subrequests_of(claim, request, self.gates):
            name = request.name
            where = f"claim {claim}, request {request.name}"
            if request.first_available:
                name = f"{request.name}/{subrequest.name}"
                where = f"claim {claim}, request {subrequest.name}"

            self.ways.append(self._way(number, subrequest, name, where))

        return min(way.count for way in self.ways[first:])

    def _way(self, number: int, subrequest: objects.Subrequest, name: str, where: str) -> Way:
        request = len(self.has_alternatives) - 1
        check_subrequest(subrequest, where, self.gates, is_alternative="/" in name)
        device_class = class_of(subrequest, where, self._device_classes)
        way = Way(number, request, name, where, subrequest, device_class)
        if subrequest.allocation_mode == _EXACT:
            way.count = subrequest.device_count
        elif subrequest.allocation_mode == objects.ALL:
            way.everything = self._everything(way)
            way.count = len(way.everything)
        else:
            raise AllocationError(f"{where}: unsupported count mode {subrequest.allocation_mode}")

        return way

    def _everything(self, way: Way) -> list[int]:
        """Return the devices of allocation mode All: whatever matches, free or not."""
        by_pool: dict[int, list[int]] = {}
        for index, candidate in enumerate(self.devices):
            by_pool.setdefault(candidate.pool, []).append(index)

        everything: list[int] = []
        for place, pool in enumerate(self.pools):
            if pool.is_incomplete or pool.invalid:
                state = "invalid" if pool.invalid else "being updated"
                problem = f"asks for all devices, but resource pool {pool} is currently {state}"
                kind = "fatal" if self.gates.is_before_38 else "node"
                raise AllocationError(f"{way.where}: {problem}", kind)

            everything += [index for index in by_pool.get(place, ()) if self._is_of_all(way, index)]

        return everything

    def _is_of_all(self, way: Way, index: int) -> bool:
        """Return whether a device counts as one of all that match."""
        if not self._matches(way, index):
            return False
        if not self.gates.consumable_capacity:
            return True

        amounts = self._amounts(way, index)
        if amounts is None:
            return False

        return not self.gates.is_before_37 or self._has_room(index, amounts)

    def _matches(self, way: Way, index: int) -> bool:
        """Return whether a device satisfies class and request, and is for this node.

        Raises:
            AllocationError: a selector cannot be asked.
        """
        candidate = self.devices[index]
        if candidate.device.binding_conditions and not self.gates.binding_conditions:
            return False

        answers = self._selector_answers
        class_ = f"class {way.device_class.name}"
        if not answers.all_match(way.device_class.selectors, class_, index):
            return False

        claim = f"claim {self.claims[way.claim]}"
        if not answers.all_match(way.subrequest.selectors, claim, index):
            return False

        return not candidate.slice.per_device_node_selection or is_for(candidate.device, self._node)

    def _amounts(self, way: Way, index: int) -> dict[str, int] | None:
        """Return what a request takes of a device's capacities; None: the device cannot serve it.

        Raises:
            AllocationError: an amount cannot be represented, or is negative.
        """
        candidate = self.devices[index]
        capacity = way.subrequest.capacity
        requests = capacity.requests if capacity is not None else {}
        try:
            return consumed(requests, candidate.device.capacity, self.gates, candidate.id.driver)
        except CapacityError as error:
            raise AllocationError(
                f"{way.where}: checking capacity for device {candidate.id}: {error}"
            ) from error

    def _has_room(self, index: int, amounts: Mapping[str, int]) -> bool:
        candidate = self.devices[index]
        capacity = candidate.device.capacity
        used = self._used_of(candidate)
        return all(
            used.get(name, 0) + amount <= capacity[name].value for name, amount in amounts.items()
        )

    def _used_of(self, candidate: Candidate) -> Mapping[str, int]:
        """Return what others take of a device's capacities, by the names that it has for them."""
        used = self._used.capacity.get(candidate.id, {})
        if self.gates.is_before_38 or not used:
            return used

        names = names_of(candidate.device.capacity, candidate.id.driver)
        amounts: Counter[str] = Counter()
        for name, amount in used.items():
            full_name = full_name_of(name, candidate.id.driver)
            amounts[names.get(full_name, name)] += amount

        return amounts

    def _read_devices(self) -> None:
        """Fill what is known of each device, and of each way and device."""
        gates = self.gates
        used = self._used
        taken_ids = used.devices | self._excluded
        # By device: in use by other claims.
        self.taken = [candidate.id in taken_ids for candidate in self.devices]
        self.is_shareable = [
            gates.consumable_capacity and candidate.device.allow_multiple_allocations
            for candidate in self.devices
        ]

        shared_ids: Iterable[objects.DeviceId] = used.capacity.keys()
        if not gates.is_before_37:
            shared_ids = used.capacity.keys() | used.shared

        # By device: other claims have shares of it, so that its counters are paid.
        self.is_shared = [
            is_shareable and candidate.id in shared_ids
            for is_shareable, candidate in zip(self.is_shareable, self.devices, strict=True)
        ]

        # The pools in which some counters are overdrawn.
        self._overdrawn = self._read_counters()
        for way in self.ways:
            self._read_way(way)

        self._block(
            {
                index
                for index, candidate in enumerate(self.devices)
                if candidate.pool in self._overdrawn
            }
        )
        self._scale_capacity()

    def _read_way(self, way: Way) -> None:
        """Fill the row of a way: whether each device matches, and what it would take."""
        matches: list[int] = []
        amounts: list[dict[str, int] | None] = []
        for index in range(len(self.devices)):
            try:
                match, device_amounts = self._match(way, index)
            except AllocationError as error:
                self.errors.append(error)
                match = -len(self.errors)
                device_amounts = {}

            matches.append(match)
            amounts.append(device_amounts)

        self.matches.append(matches)
        self.amounts.append(amounts)

    def _match(self, way: Way, index: int) -> tuple[int, dict[str, int] | None]:
        """Return whether a device matches, 1 or 0, and what a way takes of its capacities.

        Raises:
            AllocationError: the scheduler would fail.
        """
        takes_held_ones = way.is_admin or way.everything is not None
        if self.taken[index] and not takes_held_ones:
            return 0, {}
        if not self._matches(way, index):
            return 0, {}
        if not self.gates.consumable_capacity:
            return 1, {}

        amounts = self._amounts(way, index)
        if amounts is None or not self._has_room(index, amounts):
            # in allocation mode All such a device makes the request impossible
            return int(way.everything is not None), None

        return 1, amounts

    def _block(self, overdrawn: set[int]) -> None:
        """Fill which devices each way is refused.

        Args:
            overdrawn: devices in counters that are overdrawn.
        """
        gates = self.gates
        effects = ("NoSchedule", "NoExecute") if gates.device_taints else ()
        is_unpaid = []
        hard_taints = []
        for index, candidate in enumerate(self.devices):
            cannot_pay = index in overdrawn and not self.is_shared[index]
            is_unpaid.append(
                bool(candidate.device.consumes_counters)
                and (cannot_pay or not gates.partitionable_devices)
            )
            hard_taints.append(
                [taint for taint in candidate.device.taints if taint.effect in effects]
            )

        self.blocked = [
            [
                unpaid or not _are_tolerated(taints, way.subrequest.tolerations)
                for unpaid, taints in zip(is_unpaid, hard_taints, strict=True)
            ]
            for way in self.ways
        ]

    def _read_counters(self) -> set[int]:
        """Fill what is left of counters; return the pools in which some are overdrawn."""
        # By device: counters and amounts.
        self.uses: list[list[tuple[int, int]]] = [[] for _ in self.devices]
        if not self.gates.partitionable_devices:
            return set()

        self._counter_names = [
            (place, counter_set, name)
            for place, pool in enumerate(self.pools)
            for counter_set, name, _ in pool.counters
        ]
        numbers = {counter: number for number, counter in enumerate(self._counter_names)}
        remaining = [value for pool in self.pools for _, _, value in pool.counters]
        for place, device in self._used_devices():
            for number, amount in _counter_uses(device, place, numbers).items():
                remaining[number] -= amount

        uses = [
            _counter_uses(candidate.device, candidate.pool, numbers) for candidate in self.devices
        ]
        self.families = self._families()
        units = [0] * (max(self.families, default=-1) + 1)
        for number, amount in chain(enumerate(remaining), *(use.items() for use in uses)):
            family = self.families[number]
            units[family] = gcd(units[family], amount)

        self.counters = [
            _scaled(max(amount, 0), units[family])
            for amount, family in zip(remaining, self.families, strict=True)
        ]
        self.uses = [
            [
                (number, _scaled(amount, units[self.families[number]]))
                for number, amount in use.items()
            ]
            for use in uses
        ]
        return {
            place
            for (place, _, _), amount in zip(self._counter_names, remaining, strict=True)
            if amount < 0
        }

    def _used_devices(self) -> Iterator[tuple[int, objects.Device]]:
        """Yield the devices that claims hold or have shares of, on any node, each with its pool."""
        used = self._used
        for place, pool in enumerate(self.pools):
            for part in (*pool.slices, *pool.elsewhere):
                for device in part.devices:
                    id_ = objects.DeviceId(part.driver, part.pool.name, device.name)
                    if id_ in used.devices or id_ in used.shared or id_ in used.capacity:
                        yield place, device

    def _families(self) -> list[int]:
        """Return the family of each counter."""
        keys: list[Hashable] = []
        for place, _, name in self._counter_names:
            # in 1.36, pools of one name share counters
            pool = self.pools[place].name if self.gates.is_before_37 else place
            keys.append((pool, name))

        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        return [numbers[key] for key in keys]

    def _share_counters(self) -> None:
        """Let pools of one name have counters of one name in common, as 1.36 does by a fault.

        It looks at the counters of the pool that it comes to first, and adds up what devices of all
        of them take; if some of these counters are overdrawn, no device of all of them is to be
        had.
        """
        places: dict[str, set[int]] = {}
        for place, _, _ in self._counter_names:
            places.setdefault(self.pools[place].name, set()).add(place)

        waiting = {name for name, pools in places.items() if len(pools) > 1}
        # By pool: the one whose counters its devices take from.
        payers = {candidate.pool: candidate.pool for candidate in self.devices}
        while waiting:
            watch = [
                bool(uses) and candidate.id.pool in waiting
                for uses, candidate in zip(self.uses, self.devices, strict=True)
            ]
            outcome, pairs, _ = search(self, prune=False, most_steps=_WATCHED_STEPS, watch=watch)
            if outcome != "touched":
                return

            first = self.devices[pairs[0][1]]
            waiting.remove(first.id.pool)
            for index, candidate in enumerate(self.devices):
                if candidate.id.pool == first.id.pool:
                    self.uses[index] = self._uses_in(first.pool, self.uses[index])
                    payers[candidate.pool] = first.pool

            self._block(
                {
                    index
                    for index, candidate in enumerate(self.devices)
                    if payers[candidate.pool] in self._overdrawn
                }
            )
            self._number_classes()

    def _uses_in(self, pool: int, uses: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return what a device takes of counters, of those of the same names in another pool."""
        numbers = {
            (counter_set, name): number
            for number, (place, counter_set, name) in enumerate(self._counter_names)
            if place == pool
        }
        moved = []
        for number, amount in uses:
            _, counter_set, name = self._counter_names[number]
            if (counter_set, name) in numbers:
                moved.append((numbers[counter_set, name], amount))

        return moved

    def _scale_capacity(self) -> None:
        """Bring the capacities of shareable devices into units.

        In these they can be added without overflow.
        """
        # By way and device: what is taken of each capacity of `room`; empty: no amounts.
        self.needs: list[list[tuple[int, ...]]] = [[() for _ in self.devices] for _ in self.ways]
        for index, candidate in enumerate(self.devices):
            self.room.append([])
            if not self.is_shareable[index]:
                continue

            amounts_by_way: dict[int, dict[str, int]] = {}
            for way, row in enumerate(self.amounts):
                amounts = row[index]
                if self.matches[way][index] == 1 and amounts:
                    amounts_by_way[way] = amounts

            used = self._used_of(candidate)
            for name, capacity in self._capacities_of(candidate).items():
                remaining = capacity.value - used.get(name, 0)
                unit = gcd(remaining, *(amounts[name] for amounts in amounts_by_way.values()))
                room = _scaled(max(remaining, 0), unit)
                self.room[index].append(room)
                for way, amounts in amounts_by_way.items():
                    self.needs[way][index] += (_scaled(max(amounts[name], 0), unit, room),)

    def _capacities_of(self, candidate: Candidate) -> Mapping[str, objects.Capacity]:
        """Return the capacities of a device, each once."""
        capacities = candidate.device.capacity
        if self.gates.is_before_38:
            return capacities

        names = names_of(capacities, candidate.id.driver).values()
        return {name: capacities[name] for name in names}

    def _read_constraints(self) -> None:
        """Fill which ways each constraint covers, and each device's values."""
        for number, claim in enumerate(self.claims):
            for constraint in claim.constraints:
                self.constraints.append((number, constraint))
                self.covers.append(
                    [way.claim == number and _is_covered(way, constraint) for way in self.ways]
                )
                # where both are set, the allocator looks at the first
                name = constraint.match_attribute
                self.is_distinct.append(name is None)
                attribute = name or constraint.distinct_attribute or ""
                values, is_alone, value_names = self._values_of(attribute)
                self.values.append(values)
                self.value_names.append(value_names)
                self.is_alone.append(is_alone)
                self.faults.append(self._faults_of(attribute))

        # distinctAttribute remembers the last device of each request only, and none that was taken
        # back (1.36).
        self.forgets = self.gates.is_before_37 and any(
            is_distinct and is_covered and way.count > 1
            for is_distinct, row in zip(self.is_distinct, self.covers, strict=True)
            for is_covered, way in zip(row, self.ways, strict=True)
        )

    def _values_of(self, attribute: str) -> tuple[list[int], list[bool], list[str]]:
        """Return each device's values as bits, whether it is a list where lists are off, and names.

        The names are those of the values, by bit.
        """
        bits: dict[tuple[object, ...], int] = {}
        values = []
        alone = []
        for candidate in self.devices:
            value = attribute_of(candidate.device, candidate.id.driver, attribute)
            is_alone = value is not None and value.is_list and not self.gates.list_attributes
            keys: list[tuple[object, ...]] = []
            if value is not None and value.kind:
                keys = [(value.kind, part) for part in self._compared(value)]
                if is_alone:
                    keys = [("alone", f"the list of {candidate.id.device}")]

            values.append(bit_set([bits.setdefault(key, len(bits)) for key in keys]))
            alone.append(is_alone)

        return values, alone, [str(name) for _, name in bits]

    def _compared(self, value: objects.AttributeValue) -> Sequence[Hashable]:
        """Return what is compared of a value: from 1.38 on, versions without build metadata."""
        if self.gates.is_before_38 or value.kind != "version":
            return value.values

        return [version for version in versions_of(value) if version is not None]

    def _faults_of(self, attribute: str) -> list[int]:
        """Return by device whether the scheduler fails over its attribute, as from 1.38 on.

        Over a list where lists are off, a text that is no version, and a type that is not known.
        """
        faults = [0] * len(self.devices)
        if self.gates.is_before_38:
            return faults

        for index, candidate in enumerate(self.devices):
            value = attribute_of(candidate.device, candidate.id.driver, attribute)
            if value is None:
                continue
            if is_readable(value) and (self.gates.list_attributes or not value.is_list):
                continue

            problem = f"unsupported attribute value for {attribute}"
            self.errors.append(AllocationError(f"device {candidate.id}: {problem}"))
            faults[index] = -len(self.errors)

        return faults

    def _number_classes(self) -> None:
        """Number the classes of devices that nothing in the search tells apart."""
        indices = range(len(self.devices))
        fatal: set[int] = set()
        for number, way in enumerate(self.ways):
            if way.everything is not None and any(row[number] for row in self.covers):
                fatal.update(way.everything)

        columns: list[Sequence[object]] = [
            # their order decides between an error and a refusal
            [index if index in fatal else -1 for index in indices],
            self.taken,
            self.is_shareable,
            self.is_shared,
            [tuple(row) for row in self.room],
            [tuple(row) for row in self.uses],
            *self.matches,
            *self.blocked,
            *self.needs,
            *self.values,
            *self.is_alone,
            *self.faults,
        ]
        columns += [[amounts is None for amounts in row] for row in self.amounts]
        for way in self.ways:
            if way.everything is not None:
                everything = set(way.everything)
                columns.append([index in everything for index in indices])

        numbers: dict[Hashable, int] = {}
        # By device: interchangeable devices have one number.
        self.classes = [numbers.setdefault(key, len(numbers)) for key in zip(*columns, strict=True)]


def _candidates(pools: Sequence[PoolOnNode]) -> list[Candidate]:
    """Return the devices of the pools that are whole and valid, in order."""
    candidates = []
    for place, pool in enumerate(pools):
        if pool.is_incomplete or pool.invalid:
            continue

        for part in pool.slices:
            for device in part.devices:
                id_ = objects.DeviceId(part.driver, part.pool.name, device.name)
                candidates.append(Candidate(id_, device, part, place))

    return candidates


def _are_tolerated(
    taints: Sequence[objects.Taint], tolerations: Sequence[objects.Toleration]
) -> bool:
    return all(any(toleration.tolerates(taint) for toleration in tolerations) for taint in taints)


def _is_covered(way: Way, constraint: objects.Constraint) -> bool:
    """Return whether a constraint is for a request, or for all of the claim."""
    if not constraint.requests:
        return True

    return way.name in constraint.requests or way.name.partition("/")[0] in constraint.requests


def _counter_uses(
    device: objects.Device, pool: int, numbers: Mapping[tuple[int, str, str], int]
) -> dict[int, int]:
    """Return what a device takes of each counter.

    Raises:
        InputError: an amount is negative.
    """
    amounts: Counter[int] = Counter()
    for use in device.consumes_counters:
        for name, amount in use.counters.items():
            if amount.value < 0:
                raise InputError(f"expected counters of at least 0, got {amount.value} billionths")

            amounts[numbers[pool, use.counter_set, name]] += amount.value

    return amounts


def _scaled(amount: int, unit: int, limit: int = _MOST_AMOUNT) -> int:
    """Return an amount in a unit; an amount above a limit compares as `limit + 1` does."""
    scaled = min(amount // unit if unit else 0, limit + 1)
    if scaled > _MOST_AMOUNT:
        raise InputError(
            f"expected amounts that 64 bits can compare, got {amount} billionths in steps of {unit}"
        )

    return scaled
