"""Chooses devices of two resources together, so that pairs of them are near in the PCIe tree.

As many pairs as can be are on one switch, of the others as many as can be behind several bridges of
one root, then on one root, one NUMA node, anywhere: an assignment of the least cost, found exactly.
The kubelet has nothing like it, and hints are not changed by it: it decides among the devices that
the affinity leaves open. Koordinator's joint allocation with the scope SamePCIe means what is
`required` here: one root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from alignup.errors import AllocationError, InputError
from alignup.machine.bits import bit_numbers, union
from alignup.machine.pci_devices import PHB, SYS, PciTree
from alignup.text.counting import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from alignup.machine.device_inventory import Device
    from alignup.machine.machine import Machine
    from alignup.providers.devices.inventory import DevicePool


class Pair(NamedTuple):
    """Two resources whose devices belong together.

    Attributes:
        required: refuse pairs that are not on one PCIe root.
    """

    first: str
    second: str
    required: bool = False


class Choice(NamedTuple):
    """The devices of one resource to choose from.

    Attributes:
        forced: they are chosen in any case.
        others: they are chosen where more are needed.
        size: the number to choose, the forced ones included.
    """

    forced: Sequence[Device]
    others: Sequence[Device]
    size: int


def read_pairs(pairs: Iterable[str | Sequence[str]], where: str = "pair") -> tuple[Pair, ...]:
    """Return the pairs that are written as texts, or as the parts of such texts.

    A text is, for instance, `nvidia.com/gpu,example.com/nic:required`.

    Raises:
        InputError: one of them is not of this form.
    """
    resource_pairs = []
    for pair in pairs:
        text = pair
        if not isinstance(text, str):
            text = ",".join(text[:2]) + "".join(f":{word}" for word in text[2:])

        names, _, word = text.partition(":")
        resources = names.split(",")
        if (
            len({*filter(None, resources)}) != len(resources)
            or len(resources) != 2  # noqa: PLR2004
            or word not in {"", "required"}
        ):
            raise InputError.at(where, "RESOURCE,RESOURCE or RESOURCE,RESOURCE:required", text)

        resource_pairs.append(Pair(resources[0], resources[1], required=bool(word)))

    return tuple(resource_pairs)


class Pairing:
    """Chooses the devices of resources that belong together.

    Args:
        machine: the machine, for its PCIe tree.
        pairs: the resources. One may be in several pairs: what an earlier one has chosen stays.
    """

    def __init__(self, machine: Machine, pairs: tuple[Pair, ...]) -> None:
        self._distance = PciTree(machine).between
        self.pairs = pairs

    def choose(
        self,
        pools: Mapping[str, DevicePool],
        chosen: dict[str, int],
        reusable: Mapping[str, int],
        mask: int | None,
    ) -> None:
        """Replace devices that were chosen separately with devices that are near each other.

        Args:
            pools: the devices of each resource.
            chosen: by resource, what the device manager would give, as bits.
            reusable: by resource, devices that earlier containers of the pod leave.
            mask: the affinity; None: anywhere.

        Raises:
            AllocationError: they have to be on one PCIe root, and are not.
        """
        settled: set[str] = set()
        for pair in self.pairs:
            names = (pair.first, pair.second)
            if not chosen.keys() >= set(names):
                continue

            first, second = (
                choice_of(
                    pools[name],
                    chosen[name],
                    reusable.get(name, 0),
                    mask,
                    is_settled=name in settled,
                )
                for name in names
            )
            joined, *alone = self.joined(pair, first, second)

            for side, name in enumerate(names):
                devices = [devices_of_pair[side] for devices_of_pair in joined] + alone[side]
                chosen[name] = pools[name].bits(device.id for device in devices)

            settled.update(names)

    def joined(
        self, pair: Pair, first: Choice, second: Choice
    ) -> tuple[list[tuple[Device, Device]], list[Device], list[Device]]:
        """Return what `choose_together` does.

        Raises:
            AllocationError: the pairs have to be on one PCIe root, and cannot be.
        """
        chosen = choose_together(first, second, self._distance, required=pair.required)
        joined = chosen[0]
        near = sum(self._distance(*devices) <= PHB for devices in joined)
        if pair.required and near < len(joined):
            pairs = counted(len(joined), "pair")
            verb = "has" if len(joined) == 1 else "have each"
            raise AllocationError(
                f"{pairs} of {pair.first} and {pair.second} {verb} to be on one PCIe root, {near} "
                "can be",
                resources=(pair.first, pair.second),
            )

        return chosen


def choice_of(
    pool: DevicePool, chosen: int, reusable: int, mask: int | None, *, is_settled: bool
) -> Choice:
    """Return the devices that a choice must have, and those that could replace its others.

    Devices come in classes (left by init containers, near the affinity, near any node, near none),
    of which a later one is used once all of the earlier ones are taken.

    Args:
        pool: the devices of a resource.
        chosen: what the device manager would give.
        reusable: devices that earlier containers of the pod leave.
        mask: the affinity; None: anywhere.
        is_settled: nothing may be changed.
    """
    if is_settled:
        forced, others = chosen, 0
    else:
        forced, others = _forced_and_others(pool, chosen, reusable, mask)

    return Choice(
        [pool.devices[bit] for bit in bit_numbers(forced)],
        [pool.devices[bit] for bit in bit_numbers(others)],
        chosen.bit_count(),
    )


def _forced_and_others(
    pool: DevicePool, chosen: int, reusable: int, mask: int | None
) -> tuple[int, int]:
    """Return the bits of the devices that are chosen in any case, and of those that may be."""
    near = 0
    placed = -1
    if mask is not None:
        near = union(members for place, members in pool.places if place & mask)
        placed = union(members for _, members in pool.places)

    forced = 0
    candidates = pool.ledger.free | reusable
    for members in (reusable, near, placed, -1):
        same_class = candidates & members
        if same_class & ~chosen:
            return forced, same_class

        forced |= same_class
        candidates &= ~members

    return forced, 0


def choose_together(
    first: Choice,
    second: Choice,
    distance: Callable[[Device, Device], int],
    *,
    required: bool = False,
) -> tuple[list[tuple[Device, Device]], list[Device], list[Device]]:
    """Return the pairs, and the devices of either resource that are chosen beyond them.

    There are devices beyond the pairs where more are to be chosen of one resource. Of equally near
    devices those that come first are chosen.

    Args:
        first: the devices of one resource.
        second: those of the other.
        distance: of two devices, as an index of `DISTANCES`.
        required: first of all as many pairs as can be on one root.
    """
    rows = [*first.forced, *first.others]
    columns = [*second.forced, *second.others]
    pairs = min(first.size, second.size)
    positions = len(rows) + len(columns)
    unit = positions * positions  # positions only decide between equal distances
    near: list[int] = [(pairs + 1) ** step for step in range(SYS + 3)]
    never = unit * near[SYS + 2] * (positions + 1)

    def cost(row: int, column: int) -> int:
        if row < len(rows) and column < len(columns):
            steps = distance(rows[row], columns[column])
            far = near[SYS + 1] if required and steps > PHB else 0
            return (near[SYS] - near[SYS - steps] + far) * unit + row + column

        if row >= len(rows) and column >= len(columns):
            return never

        if row < len(rows):
            choice, place, spare = first, row, column - len(columns)
        else:
            choice, place, spare = second, column, row - len(rows)

        if spare < choice.size - pairs:  # chosen without a partner
            return place

        return never if place < len(choice.forced) else 0

    indices = range(positions - pairs)
    column_of = assignment([[cost(row, column) for column in indices] for row in indices])
    joined = [
        (rows[row], columns[column])
        for row, column in enumerate(column_of[: len(rows)])
        if column < len(columns)
    ]

    beyond = range(len(columns), len(columns) + first.size - pairs)
    first_alone = [
        rows[row] for row, column in enumerate(column_of[: len(rows)]) if column in beyond
    ]
    spare_rows = column_of[len(rows) : len(rows) + second.size - pairs]
    second_alone = [columns[column] for column in spare_rows]
    return joined, first_alone, second_alone


def assignment(costs: Sequence[Sequence[int]]) -> list[int]:
    """Return the column assigned to each row so that the total cost is least.

    This is the Hungarian algorithm. Rows are added one by one. The shortest augmenting path under
    the reduced costs, which are never negative, assigns columns anew; then the potentials of rows
    and columns are updated.
    """
    count = len(costs)
    row_potential = [0] * count
    column_potential = [0] * count
    row_of = [-1] * count
    infinite = 4 * count * (1 + max(map(max, costs), default=0))
    for start in range(count):
        length = [infinite] * count
        previous = [-1] * count
        open_columns = set(range(count))
        row, end, distance = start, -1, 0
        while True:
            for column in open_columns:
                reduced_cost = costs[row][column] - row_potential[row] - column_potential[column]
                reached = distance + reduced_cost
                if reached < length[column]:
                    length[column] = reached
                    previous[column] = end

            end = min(sorted(open_columns), key=length.__getitem__)
            distance = length[end]
            open_columns.discard(end)
            if row_of[end] < 0:
                break

            row = row_of[end]

        row_potential[start] += distance
        for column in set(range(count)) - open_columns - {end}:
            row_potential[row_of[column]] += distance - length[column]
            column_potential[column] -= distance - length[column]

        while end >= 0:
            row_of[end] = start if previous[end] < 0 else row_of[previous[end]]
            end = previous[end]

    column_of = [0] * count
    for column, row in enumerate(row_of):
        column_of[row] = column

    return column_of
