"""Chooses devices of two resources together, each one of the first near to one of the second in the PCIe tree.

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
        wanted: the number to choose, the forced ones included.
    """

    forced: Sequence[Device]
    others: Sequence[Device]
    wanted: int


def read_pairs(pairs: Iterable[str | Sequence[str]], where: str = "pair") -> tuple[Pair, ...]:
    """Return pairs of texts such as `nvidia.com/gpu,example.com/nic:required`, or of the same in parts.

    Raises:
        InputError: one of them is not of this form.
    """
    found = []
    for one in pairs:
        text = (
            one
            if isinstance(one, str)
            else ",".join(one[:2]) + "".join(f":{word}" for word in one[2:])
        )
        names, _, word = text.partition(":")
        resources = names.split(",")
        if (
            len({*filter(None, resources)}) != len(resources)
            or len(resources) != 2  # noqa: PLR2004
            or word not in {"", "required"}
        ):
            raise InputError.at(where, "RESOURCE,RESOURCE or RESOURCE,RESOURCE:required", text)

        found.append(Pair(resources[0], resources[1], required=bool(word)))

    return tuple(found)


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
        """Replace devices that were chosen separately for each resource with devices that are near each other.

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
                chosen[name] = pools[name].bits(
                    [*(two[side].id for two in joined), *(one.id for one in alone[side])]
                )

            settled.update(names)

    def joined(
        self, pair: Pair, first: Choice, second: Choice
    ) -> tuple[list[tuple[Device, Device]], list[Device], list[Device]]:
        """Return what `choose_together` does.

        Raises:
            AllocationError: the pairs have to be on one PCIe root, and cannot be.
        """
        found = choose_together(first, second, self._distance, required=pair.required)
        near = sum(self._distance(*two) <= PHB for two in found[0])
        if pair.required and near < len(found[0]):
            pairs = counted(len(found[0]), "pair")
            verb = "has" if len(found[0]) == 1 else "have each"
            raise AllocationError(
                f"{pairs} of {pair.first} and {pair.second} {verb} to be on one PCIe root, {near} "
                "can be",
                resources=(pair.first, pair.second),
            )

        return found


def choice_of(
    pool: DevicePool, chosen: int, reusable: int, mask: int | None, *, is_settled: bool
) -> Choice:
    """Return the devices of a pool that a choice must have, and those that could take the place of its others.

    Devices come in classes (left by init containers, near the affinity, near any node, near none),
    of which a later one is used once all of the earlier ones are taken.

    Args:
        pool: the devices of a resource.
        chosen: what the device manager would give.
        reusable: devices that earlier containers of the pod leave.
        mask: the affinity; None: anywhere.
        is_settled: nothing may be changed.
    """
    near = union(members for place, members in pool.places if mask is not None and place & mask)
    placed = -1 if mask is None else union(members for _, members in pool.places)
    forced, others, left = 0, 0, pool.ledger.free | reusable
    for members in (reusable, near, placed, -1):
        own, left = left & members, left & ~members
        if own & ~chosen:
            others = own
            break

        forced |= own

    if is_settled:
        forced, others = chosen, 0

    devices = [[pool.devices[bit] for bit in bit_numbers(bits)] for bits in (forced, others)]
    return Choice(devices[0], devices[1], chosen.bit_count())


def choose_together(
    first: Choice,
    second: Choice,
    distance: Callable[[Device, Device], int],
    *,
    required: bool = False,
) -> tuple[list[tuple[Device, Device]], list[Device], list[Device]]:
    """Return the pairs, and the devices of either resource that are chosen beyond them, since there are more of them.

    Of equally near devices those that come first are chosen.

    Args:
        first: the devices of one resource.
        second: those of the other.
        distance: of two devices, as an index of `DISTANCES`.
        required: first of all as many pairs as can be on one root.
    """
    rows, columns = [*first.forced, *first.others], [*second.forced, *second.others]
    pairs = min(first.wanted, second.wanted)
    size = len(rows) + len(columns)
    unit = size * size  # positions only decide between equal distances
    near: list[int] = [(pairs + 1) ** step for step in range(SYS + 3)]
    never = unit * near[SYS + 2] * (size + 1)

    def cost(row: int, column: int) -> int:
        if row < len(rows) and column < len(columns):
            steps = distance(rows[row], columns[column])
            far = near[SYS + 1] if required and steps > PHB else 0
            return (near[SYS] - near[SYS - steps] + far) * unit + row + column

        if row >= len(rows) and column >= len(columns):
            return never

        choice, place, other = (
            (first, row, column - len(columns))
            if row < len(rows)
            else (second, column, row - len(rows))
        )
        if other < choice.wanted - pairs:  # chosen without a partner
            return place

        return never if place < len(choice.forced) else 0

    size -= pairs
    found = assignment([[cost(row, column) for column in range(size)] for row in range(size)])
    joined = [
        (rows[row], columns[column])
        for row, column in enumerate(found[: len(rows)])
        if column < len(columns)
    ]
    beyond = range(len(columns), len(columns) + first.wanted - pairs)
    alone = [rows[row] for row, column in enumerate(found[: len(rows)]) if column in beyond]
    others = [columns[column] for column in found[len(rows) : len(rows) + second.wanted - pairs]]
    return joined, alone, others


def assignment(costs: Sequence[Sequence[int]]) -> list[int]:
    """Return the column assigned to each row so that the total cost is least (the Hungarian algorithm).

    Rows are added one by one. The shortest augmenting path under the reduced costs, which are never
    negative, assigns columns anew; then the potentials of rows and columns are updated.
    """
    count = len(costs)
    of_row, of_column, holder = [0] * count, [0] * count, [-1] * count
    infinite = 4 * count * (1 + max(map(max, costs), default=0))
    for start in range(count):
        length, before, open_columns = [infinite] * count, [-1] * count, set(range(count))
        row, here, done = start, -1, 0
        while True:
            for column in open_columns:
                reached = done + costs[row][column] - of_row[row] - of_column[column]
                if reached < length[column]:
                    length[column], before[column] = reached, here

            here = min(sorted(open_columns), key=length.__getitem__)
            done = length[here]
            open_columns.discard(here)
            if holder[here] < 0:
                break
            row = holder[here]

        of_row[start] += done
        for column in set(range(count)) - open_columns - {here}:
            of_row[holder[column]] += done - length[column]
            of_column[column] -= done - length[column]

        while here >= 0:
            holder[here] = start if before[here] < 0 else holder[before[here]]
            here = before[here]

    found = [0] * count
    for column, row in enumerate(holder):
        found[row] = column

    return found
