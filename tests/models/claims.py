"""A plain allocator: the scheduler's walk with nothing left out.

The model of `alignup.core.claims.search`.

It reads the same `SearchTables`, tries every device at every step, and keeps lists where the search
keeps bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alignup.claims.search_tables import SearchTables

MOST_RESULTS = 32


class TooManyError(Exception):
    pass


class FatalError(Exception):
    pass


class TooLongError(Exception):
    """The case is no case for a walk without shortcuts."""


def plain_search(
    tables: SearchTables, most_steps: int = 200_000
) -> tuple[str, list[tuple[int, int]]]:
    """Return the outcome and pairs as `search` does."""
    model = _Model(tables, most_steps)
    try:
        is_allocated = model.claim(0)
    except FatalError as error:
        outcome, pairs = error.args
        return outcome, pairs
    if is_allocated:
        return ("found", model.results)
    return ("none", [])


class _Model:
    def __init__(self, tables: SearchTables, most_steps: int) -> None:
        self.tables = tables
        self.left = list(tables.counters)
        self.holders: list[set[int]] = [set() for _ in tables.devices]
        self.shares: list[list[tuple[int, ...]]] = [[] for _ in tables.devices]
        self.members: list[list[int]] = [[] for _ in tables.constraints]
        self.last: list[dict[int, int]] = [{} for _ in tables.constraints]
        self.results: list[tuple[int, int]] = []
        self.steps = most_steps

    def claim(self, claim: int) -> bool:
        if claim == len(self.tables.claims):
            return True
        try:
            return self.request(claim, self.tables.first_request[claim])
        except TooManyError:
            return False

    def request(self, claim: int, request: int) -> bool:
        tables = self.tables
        if request == tables.first_request[claim + 1]:
            return self.claim(claim + 1)

        ways = range(tables.first_way[request], tables.first_way[request + 1])
        if not tables.has_alternatives[request]:
            return self.way(claim, request, ways[0], 0, 0)

        too_many = 0
        for way in ways:
            try:
                if self.way(claim, request, way, 0, 0):
                    return True
            except TooManyError:
                too_many += 1

        if too_many == len(ways):
            raise TooManyError

        return False

    def way(self, claim: int, request: int, number: int, count: int, start: int) -> bool:
        self.steps -= 1
        if self.steps < 0:
            raise TooLongError

        way = self.tables.ways[number]
        if way.everything == []:
            return False
        if count >= way.count:
            return self.request(claim, request + 1)
        if (
            sum(self.tables.ways[way_number].claim == claim for way_number, _ in self.results)
            + way.count
            - count
            > MOST_RESULTS
        ):
            raise TooManyError

        if way.everything is not None:
            return self.next_of_all(claim, request, number, count, way.everything[count])

        for device in range(start, len(self.tables.devices)):
            match = self.tables.matches[number][device]
            if not self.is_open(claim, number, device) or match == 0:
                continue
            if match < 0:
                raise FatalError("error", [(-1 - match, 0)])
            if (
                self.has_room(number, device)
                and self.take(claim, number, device) == "taken"
                and self.go_on(claim, request, number, count, device + 1, device)
            ):
                return True

        return False

    def next_of_all(self, claim: int, request: int, number: int, count: int, device: int) -> bool:
        outcome = self.take(claim, number, device)
        if outcome == "broken":
            raise FatalError("constraint", [(number, device)])
        return outcome == "taken" and self.go_on(claim, request, number, count, 0, device)

    def go_on(
        self, claim: int, request: int, number: int, count: int, start: int, device: int
    ) -> bool:
        """Walk on with a device, and give it back if that led nowhere."""
        try:
            if self.way(claim, request, number, count + 1, start):
                return True
        except TooManyError:
            self.give_back(claim, number, device)
            raise
        self.give_back(claim, number, device)
        return False

    def is_open(self, claim: int, number: int, device: int) -> bool:
        if self.tables.ways[number].is_admin:
            return claim not in self.holders[device]
        return not self.tables.taken[device] and not self.holders[device]

    def has_room(self, number: int, device: int) -> bool:
        if not self.tables.is_shareable[device]:
            return True
        taken = [*self.shares[device], self.tables.needs[number][device]]
        return all(
            sum(amounts) <= room
            for amounts, room in zip(
                zip(*taken, strict=True), self.tables.room[device], strict=True
            )
        )

    def pays(self, device: int) -> bool:
        """Whether the first share of a device, or its only one, takes from counters."""
        return not self.tables.is_shareable[device] or not (
            self.tables.is_shared[device] or self.shares[device]
        )

    def take(self, claim: int, number: int, device: int) -> str:
        tables = self.tables
        if not self.is_open(claim, number, device) or tables.blocked[number][device]:
            return "refused"

        uses = []
        if self.pays(device):
            uses = tables.uses[device]

        if any(amount > self.left[counter] for counter, amount in uses):
            return "refused"

        covering = [
            place
            for place, (owner, _) in enumerate(tables.constraints)
            if owner == claim and tables.covers[place][number]
        ]
        request = tables.ways[number].request
        for at, place in enumerate(covering):
            if tables.faults[place][device]:
                raise FatalError("error", [(-1 - tables.faults[place][device], 0)])
            if not self.accepts(place, device):
                self.forget(covering[:at], request)
                return "broken"

            self.members[place].append(device)
            self.last[place][request] = device

        if tables.amounts[number][device] is None or not self.has_room(number, device):
            self.forget(covering, request)
            return "refused"

        for counter, amount in uses:
            self.left[counter] -= amount

        if tables.is_shareable[device]:
            self.shares[device].append(tables.needs[number][device])
        else:
            self.holders[device].add(claim)

        self.results.append((number, device))
        return "taken"

    def give_back(self, claim: int, number: int, device: int) -> None:
        tables = self.tables
        self.results.pop()
        if tables.is_shareable[device]:
            self.shares[device].pop()
        else:
            self.holders[device].discard(claim)

        if self.pays(device):
            for counter, amount in tables.uses[device]:
                self.left[counter] += amount

        covering = [
            place
            for place, (owner, _) in enumerate(tables.constraints)
            if owner == claim and tables.covers[place][number]
        ]
        self.forget(covering, tables.ways[number].request)

    def forget(self, covering: list[int], request: int) -> None:
        for place in covering:
            self.members[place].pop()
            self.last[place].pop(request, None)

    def accepts(self, place: int, device: int) -> bool:
        """Whether a constraint accepts one more device."""
        values = self.tables.values[place]
        if not values[device]:
            return False
        if self.tables.is_distinct[place] and self.tables.forgets:
            last_devices = []
            if self.members[place]:
                last_devices = list(self.last[place].values())

            if last_devices and self.tables.is_alone[place][device]:
                return False
            return all(not values[device] & values[member] for member in last_devices)

        if self.members[place] and self.tables.is_alone[place][device]:
            return False
        if self.tables.is_distinct[place]:
            return all(not values[device] & values[member] for member in self.members[place])

        common = values[device]
        for member in self.members[place]:
            common &= values[member]

        return common != 0
