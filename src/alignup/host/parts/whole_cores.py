"""Cuts cores of several sizes into parts of as many CPUs each, so that no core is in two parts.

Cores differ in size where siblings are offline or reserved, and on hybrid processors. A part may
leave CPUs of a core idle, but no other part has them. Whether there is such a cut depends on how
many cores of each size there are, and is found exactly:

- `packed` takes part after part, each with the largest core that is left: if there is a cut at all,
  there is one with that core, since a larger core does whatever a smaller one does. How much may be
  wasted has a bound, and what failed before is not tried again. Where sizes divide each other, as
  1, 2, 4 and 8 do, it is counted at each step whether the rest does, and the search never fails.
- `aligned` finds how many parts can be within a place each, and the others of what these leave. For
  each place and number of parts it keeps what may be left, without what is worse than something
  else.

For any other sizes no algorithm is known that is always quick: whether cores of many sizes make
equal parts is the problem 3-Partition. There both end early after many steps, and `gave_up` says
so: then a cut may be missed. That takes cores of 3, 5, 6 or 7 CPUs, which processors of four or
eight threads a core have where some siblings are offline or reserved. `aligned` keeps no more than
300 ways for a place to leave cores, so that fewer parts may be within places on machines with
hundreds of cores of mixed sizes a node.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

from alignup.records import Record

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Final

# How many cores of each size, the largest size first.
Counts = tuple[int, ...]

_MOST_STEPS: Final = 300_000
_WIDEST_FRONT: Final = 300


class Remainder(Record):
    """What some parts of a place leave of its cores.

    Attributes:
        counts: the cores that are left.
        parts: the cores of each part.
    """

    counts: Counts
    parts: tuple[Counts, ...] = ()


class _Step(Record):
    """A part that a search takes, and what it leaves.

    Attributes:
        taken: the cores of the part.
        counts: the cores that are left to other parts.
        spare: how many of their CPUs other parts need not have.
    """

    taken: Counts
    counts: Counts
    spare: int


class WholeCores:
    """Parts of as many CPUs each, of cores of some sizes.

    Args:
        sizes: those of all cores, in any order.
        cpus: how many CPUs a part has.
        is_exact: whether a part has all CPUs of its cores.
    """

    def __init__(self, sizes: Iterable[int], cpus: int, *, is_exact: bool = False) -> None:
        self.sizes = tuple(sorted(set(sizes), reverse=True))
        self.cpus = cpus
        self.is_exact = is_exact
        # Whether a search ended early.
        self.gave_up = False
        pairs = pairwise(self.sizes)
        self._divide_each_other = all(larger % smaller == 0 for larger, smaller in pairs)
        self._packings: dict[tuple[Counts, int], tuple[Counts, ...] | None] = {}

    def counts(self, cores: Iterable[int]) -> Counts:
        """Return how many of some cores have each size; a core is the bit set of its CPUs."""
        sizes = [core.bit_count() for core in cores]
        return tuple(map(sizes.count, self.sizes))

    def total(self, counts: Counts) -> int:
        """Return how many CPUs some cores have."""
        return sum(size * number for size, number in zip(self.sizes, counts, strict=True))

    def most(self, counts: Counts, limit: int) -> int:
        """Return for how many parts some cores are enough, at most the limit."""
        possible = 0
        impossible = min(limit, self.total(counts) // self.cpus) + 1
        parts = impossible - 1
        while possible < parts:
            if self.packed(counts, parts) is None:
                impossible = parts
            else:
                possible = parts
            parts = (possible + impossible) // 2

        return possible

    def packed(self, counts: Counts, parts: int) -> tuple[Counts, ...] | None:
        """Return the cores of each of some parts; None: there is no such cut."""
        key = (counts, parts)
        if key not in self._packings:
            self._packings[key] = self._pack(counts, parts)
        return self._packings[key]

    def _pack(self, counts: Counts, parts: int) -> tuple[Counts, ...] | None:
        """Search in depth for a cut."""
        spare = self.total(counts) - parts * self.cpus
        if not self._may_do(counts, parts, spare):
            return None

        path = [_Step((), counts, spare)]
        choices = [self._next_parts(counts, spare)]
        failed = set()
        for _ in range(_MOST_STEPS):
            if len(path) > parts:
                return tuple(step.taken for step in path[1:])

            step = next(choices[-1], None)
            if step is None:
                # how many parts are still to be taken follows from these two
                last = path.pop()
                failed.add((last.counts, last.spare))
                choices.pop()
                if not path:
                    return None
            elif (step.counts, step.spare) not in failed:
                if not self._may_do(step.counts, parts - len(path), step.spare):
                    failed.add((step.counts, step.spare))
                    continue

                path.append(step)
                choices.append(self._next_parts(step.counts, step.spare))

        self.gave_up = True
        return None

    def _may_do(self, counts: Counts, parts: int, spare: int) -> bool:
        """Return whether nothing simple speaks against a cut.

        Where sizes divide each other, there is one if nothing does.

        A part whose cores all have an even size has an even number of CPUs, and so for other
        divisors than 2: if it is to have an odd number, it wastes some, or it has cores whose
        sizes leave that much when divided.
        """
        if spare < 0 or (self.is_exact and not self._may_leave(counts, spare)):
            return False
        if self._divide_each_other:
            return self._is_enough(counts, parts)

        for divisor in self.sizes:
            rest = self.cpus % divisor
            if not rest:
                continue

            others = 0
            remainders = 0
            for size, number in zip(self.sizes, counts, strict=True):
                if size % divisor:
                    others += number
                    remainders += size % divisor * number

            affordable = 0 if self.is_exact else spare // (divisor - rest)
            if parts > min(others, remainders // rest) + affordable:
                return False

        return True

    def _is_enough(self, counts: Counts, parts: int) -> bool:
        """Return whether there is a cut, where sizes divide each other.

        From the largest size on, cores fill what the parts lack in whole sizes. Whose lack that is
        does not matter, since smaller cores fill it just as well. A core that is too many does for
        what is less than its size, one part each.
        """
        # of the size at hand, in all parts; and the parts that lack more, which is less than that
        lacking = 0
        open_parts = parts
        rest = self.cpus
        for place, (size, number) in enumerate(zip(self.sizes, counts, strict=True)):
            if place:
                lacking *= self.sizes[place - 1] // size
            lacking += open_parts * (rest // size)
            rest %= size
            if not rest:
                open_parts = 0

            filled = min(number, lacking)
            lacking -= filled
            if not self.is_exact:
                open_parts -= min(number - filled, open_parts)

        return not lacking and not open_parts

    def _may_leave(self, counts: Counts, cpus: int) -> bool:
        """Return whether some cores have just so many CPUs: what parts of all CPUs leave."""
        # bit i: i CPUs can be left
        sums = 1
        for size, number in zip(self.sizes, counts, strict=True):
            many = 1
            left = min(number, cpus // size)
            while left:
                times = min(many, left)
                sums |= sums << size * times
                left -= times
                many *= 2

        return bool(sums >> cpus & 1)

    def _next_parts(self, counts: Counts, spare: int) -> Iterator[_Step]:
        """Yield the parts that may have the largest core, the least wasteful first.

        Where parts have all CPUs of their cores, nobody may have that core: then those with the
        next.
        """
        left = list(counts)
        for place, size in enumerate(self.sizes):
            while left[place]:
                for taken in self._covers(tuple(left), spare, place):
                    waste = self.total(taken) - self.cpus
                    yield _Step(taken, _without(tuple(left), taken), spare - waste)

                if not self.is_exact or size > spare:
                    return
                left[place] -= 1
                spare -= size

    def _covers(self, counts: Counts, most_waste: int, first: int | None) -> Iterator[Counts]:
        """Yield the cores that a part may have, with none too many, the least wasteful first.

        Args:
            counts: those that there are.
            most_waste: how many of their CPUs may be idle.
            first: the place of the size of which it must have some; None: of any.
        """
        worst = 0 if self.is_exact else min(most_waste, self.sizes[0] - 1)
        for waste in range(worst + 1):
            for taken in self._sums(self.cpus + waste, counts, 0, first):
                smallest = min(
                    size for size, number in zip(self.sizes, taken, strict=True) if number
                )
                if waste < smallest:
                    yield taken

    def _sums(self, cpus: int, counts: Counts, place: int, first: int | None) -> Iterator[Counts]:
        """Yield the cores of the sizes from a place on that have so many CPUs, large ones first."""
        size = self.sizes[place]
        fewest = int(place == first)
        if place == len(counts) - 1:
            number, rest = divmod(cpus, size)
            if not rest and fewest <= number <= counts[place]:
                yield (number,)
            return

        for number in range(min(counts[place], cpus // size), fewest - 1, -1):
            for others in self._sums(cpus - number * size, counts, place + 1, first):
                yield (number, *others)

    def cut(self, cores: Sequence[int], parts: int) -> list[list[int]]:
        """Return the cores of each of some parts, for which these are enough."""
        left = list(cores)
        packed = self.packed(self.counts(cores), parts) or ()
        return [self.take(left, taken) for taken in packed]

    def take(self, cores: list[int], taken: Counts) -> list[int]:
        """Take as many cores of each size from a list, and return them."""
        part = []
        for size, number in zip(self.sizes, taken, strict=True):
            part += [core for core in cores if core.bit_count() == size][:number]

        cores[:] = [core for core in cores if core not in part]
        return part

    def first_of(self, pool: Counts, everything: Counts, parts: int) -> Counts | None:
        """Return the cores of one of some parts, for which all cores are enough with it.

        None: there is no such part.

        Args:
            pool: those of all cores that it may have.
            everything: all cores.
            parts: how many parts these are to be.
        """
        spare = self.total(everything) - parts * self.cpus
        if not self._may_do(pool, 1, self.total(pool) - self.cpus):
            return None

        for taken in self._covers(pool, spare, None):
            if self.packed(_without(everything, taken), parts - 1) is not None:
                return taken

        return None

    def aligned(self, places: Sequence[Counts], parts: int) -> list[Remainder] | None:
        """Return for each place the parts within it and what these leave.

        They are as many as can be, as long as what they leave is enough for the others. None: there
        is no cut.
        """
        everything = summed(places)
        if self.packed(everything, parts) is None:
            return None

        spare = self.total(everything) - parts * self.cpus
        fronts_of_counts = {counts: self._fronts(counts, spare) for counts in set(places)}
        fronts = [fronts_of_counts[counts] for counts in places]
        most = sum(len(front) - 1 for front in fronts)
        for missing in range(max(0, most - parts), most + 1):
            for choice in self._choices(fronts, missing):
                left = summed([chosen.counts for chosen in choice])
                if self.packed(left, parts - most + missing) is not None:
                    return list(choice)

        return None

    def _fronts(self, counts: Counts, spare: int) -> list[list[Remainder]]:
        """Return, by the number of parts within a place, what they may leave of its cores."""
        total = self.total(counts)
        fronts = [[Remainder(counts)]]
        while True:
            remainders: dict[Counts, Remainder] = {}
            for remainder in fronts[-1]:
                waste = total - self.total(remainder.counts) - len(remainder.parts) * self.cpus
                for taken in self._covers(remainder.counts, spare - waste, None):
                    left = _without(remainder.counts, taken)
                    remainders.setdefault(left, Remainder(left, (*remainder.parts, taken)))

            if not remainders:
                return fronts
            fronts.append([remainders[left] for left in self._best(remainders)])

    def _best(self, lefts: Iterable[Counts]) -> list[Counts]:
        """Return the cores that may be left, without those that others are no worse than.

        Others are no worse if they have as many cores of each size or a larger one; where parts
        have all CPUs of their cores, of the size.
        """
        best: list[Counts] = []
        worths: list[Counts] = []
        for left in sorted(lefts, key=lambda left: (-self.total(left), left)):
            worth = left if self.is_exact else tuple(accumulate(left))
            if not any(_has(other, worth) for other in worths):
                best.append(left)
                worths.append(worth)
                if len(best) == _WIDEST_FRONT:
                    self.gave_up = True
                    break

        return best

    def _choices(
        self, fronts: Sequence[list[list[Remainder]]], missing: int
    ) -> Iterable[tuple[Remainder, ...]]:
        """Return what all places may leave, with so many parts fewer than each has at most."""
        nothing = (0,) * len(self.sizes)
        # by how many parts fewer the places up to here have, and what they leave in sum
        chosen: dict[int, dict[Counts, tuple[Remainder, ...]]] = {0: {nothing: ()}}
        for front in fronts:
            longer: dict[int, dict[Counts, tuple[Remainder, ...]]] = {}
            for fewer, choices in chosen.items():
                for more_fewer, remainders in enumerate(front[::-1][: missing - fewer + 1]):
                    of_number = longer.setdefault(fewer + more_fewer, {})
                    for left, choice in choices.items():
                        for remainder in remainders:
                            both = summed([left, remainder.counts])
                            of_number.setdefault(both, (*choice, remainder))

            chosen = {
                fewer: {left: choices[left] for left in self._best(choices)}
                for fewer, choices in longer.items()
            }

        return chosen.get(missing, {}).values()


def summed(places: Iterable[Counts]) -> Counts:
    """Return how many cores of each size some places have together."""
    return tuple(map(sum, zip(*places, strict=True)))


def _without(counts: Counts, taken: Counts) -> Counts:
    return tuple(number - fewer for number, fewer in zip(counts, taken, strict=True))


def _has(counts: Counts, others: Counts) -> bool:
    """Return whether there are as many of each as others have."""
    return all(number >= other for number, other in zip(counts, others, strict=True))
