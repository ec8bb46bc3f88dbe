"""Shares the CPUs near devices out among all devices there, so that each rank sits by its own.

The rule: the CPUs of some NUMA nodes are cut into equal shares, one for each device near the same
nodes, whether this process sees it or not. A rank has the shares of its devices. So every process
of a machine computes the same shares, and jobs with other devices have other CPUs, though none
knows of the other. Whoever is alone shares the CPUs out among the devices that it sees.

A device near no node in particular counts as near every node. Where the nodes of devices overlap,
cores are dealt out to them in turn.
"""

from __future__ import annotations

from alignup.errors import InputError, warn
from alignup.host.parts.cut import parts_with, split_cores, split_machine
from alignup.host.parts.usable import MemoryRule, distance, within
from alignup.machine.bits import bit_numbers, bit_set, union
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import nearest_cpu_nodes
from alignup.records import Record, field, replace

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

    from alignup.host.parts.part import Part
    from alignup.host.parts.visible_devices import Sight
    from alignup.machine.device_inventory import Device
    from alignup.machine.machine import Machine

SHARES: Final = ("machine", "seen")


class ShareRules(Record):
    """How the CPUs near devices are shared out.

    Attributes:
        share: one of `SHARES`: among all devices of the machine, or among those that are seen.
        cpus: how many CPUs of its share each rank has; 0: all.
        full_cores: refuse to split a core.
        oversubscribe: let several ranks have one device.
        preferred_sets: by resource, ids that belong together.
        memory: which nodes' memory is shared out.
        names_arguments: errors name the arguments of `bind` that would help.
    """

    share: str = "machine"
    cpus: int = 0
    full_cores: bool = False
    oversubscribe: bool = False
    preferred_sets: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    memory: MemoryRule = field(default_factory=MemoryRule)
    names_arguments: bool = True


def check_share(share: str) -> None:
    """Refuse a word that is none of `SHARES`; an empty one is nobody's wish.

    Raises:
        InputError: it is none.
    """
    if share and share not in SHARES:
        raise InputError.at("share", f"one of {', '.join(SHARES)}", share)


def device_shares(machine: Machine, devices: Sequence[Device]) -> dict[str, int]:
    """Return the CPUs of each device's share as a bit set, by its id.

    Args:
        machine: as this process may use it.
        devices: all that share its CPUs.
    """
    masks = {device.id: near_nodes(machine, device) for device in devices}
    shares: dict[str, int] = {}
    for mask in dict.fromkeys(masks.values()):
        ids = [device_id for device_id, other_mask in masks.items() if other_mask == mask]
        if any(other_mask & mask for other_mask in masks.values() if other_mask != mask):
            continue  # dealt out below

        shares.update(zip(ids, _equal_shares(machine, mask, len(ids)), strict=True))

    overlapping_masks = {
        device_id: mask for device_id, mask in masks.items() if device_id not in shares
    }
    return shares | _dealt_shares(machine, overlapping_masks)


def near_nodes(machine: Machine, device: Device) -> int:
    """Return the positions of the nodes with CPUs that a device is near to, as a bit set.

    They are the closest where its own have none, and all where it is near none in particular.
    """
    cpu_nodes = bit_set(position for position, cpus in enumerate(machine.node_cpus) if cpus)
    if not device.numa_nodes:
        return cpu_nodes

    own_nodes = cpu_nodes & bit_set(map(machine.position, device.numa_nodes))
    if own_nodes:
        return own_nodes
    return bit_set(
        machine.position(near_id)
        for numa_id in device.numa_nodes
        for near_id in nearest_cpu_nodes(machine, numa_id)
    )


def _equal_shares(machine: Machine, mask: int, count: int) -> list[int]:
    """Return so many equal shares of the CPUs of some nodes.

    Where there are fewer CPUs, several have the same.
    """
    cpus = union(machine.node_cpus[position] for position in bit_numbers(mask))
    parts = split_machine(within(machine, cpus, -1), min(count, cpus.bit_count()))
    return [int(parts[number % len(parts)].cpus) for number in range(count)]


def _dealt_shares(machine: Machine, masks: Mapping[str, int]) -> dict[str, int]:
    """Return shares of CPUs near nodes that are not the same, and overlap.

    Each has as many cores as can be, and no core is in two. Where there are too few of them, single
    CPUs are dealt out, and where these are too few, several have the same.
    """
    if not masks:
        return {}

    units = [[core.bits for core in node.cores] for node in machine.numa_nodes]
    counts = _dealt_counts(units, masks)
    if not all(map(any, counts.values())):
        units = [[1 << cpu for core in cores for cpu in bit_numbers(core)] for cores in units]
        counts = _dealt_counts(units, masks)

    shares = dict.fromkeys(masks, 0)
    for position, free_units in enumerate(units):
        start = 0
        for device_id, device_counts in counts.items():
            end = start + device_counts[position]
            shares[device_id] |= union(free_units[start:end])
            start = end

    for number, (device_id, mask) in enumerate(masks.items()):
        if not shares[device_id]:
            cpus = union(machine.node_cpus[position] for position in bit_numbers(mask))
            near_cpus = list(bit_numbers(cpus))
            shares[device_id] = 1 << near_cpus[number % len(near_cpus)]

    return shares


def _dealt_counts(units: Sequence[Sequence[int]], masks: Mapping[str, int]) -> dict[str, list[int]]:
    """Return how many units of each node each device gets, dealt out in turn.

    Devices with fewer nodes to choose from come first. Each stays where it has some already, or
    begins where most are left.
    """
    left = list(map(len, units))
    counts = {device_id: [0] * len(units) for device_id in masks}
    order = sorted(masks, key=lambda device_id: masks[device_id].bit_count())
    while True:
        remaining = sum(left)
        for device_id in order:
            open_nodes = [position for position in bit_numbers(masks[device_id]) if left[position]]
            if not open_nodes:
                continue

            own = counts[device_id]
            position = max(open_nodes, key=lambda node: (own[node] > 0, left[node], -node))
            own[position] += 1
            left[position] -= 1

        if sum(left) == remaining:
            return counts


class DeviceParts:
    """The parts of ranks that have devices each, by the shares of their devices.

    Args:
        machine: as this process may use it.
        ranks: how many.
        counts: by resource, how many devices each.
        sights: by resource, the devices.
        rules: how CPUs are shared out.
        first: the resources of which CPUs follow the devices, the first that is asked for; the
            devices of others are those nearest to a rank's CPUs.

    Raises:
        InputError: there are too few devices.
    """

    def __init__(
        self,
        machine: Machine,
        ranks: int,
        counts: Mapping[str, int],
        sights: Mapping[str, Sight],
        rules: ShareRules,
        first: Sequence[str] = (),
    ) -> None:
        self._machine = machine
        self._ranks = ranks
        self._counts = counts
        self._sights = sights
        self._rules = rules
        self._anchor = next((resource for resource in first if resource in counts), min(counts))

        sight = sights[self._anchor]
        self._chosen = sight.is_one_rank_s(counts[self._anchor])
        shared_devices = sight.devices
        if rules.share == "seen":
            if self._chosen and ranks > 1:
                warn(
                    f"share='seen' needs to know the {self._anchor} of all ranks, and "
                    f"{sight.reason} leaves each its own: the CPUs are shared out among all devices"
                )
            else:
                shared_devices = sight.seen

        for resource in counts:
            self._check(resource)

        self._shares = device_shares(machine, shared_devices)
        self._owned = self._devices_of_ranks()

    def _check(self, resource: str) -> None:
        """Refuse more devices than are seen.

        Raises:
            InputError: there are too few.
        """
        count = self._counts[resource]
        if count < 0:
            raise InputError.at(
                "the split", f"a number of devices of {resource} for each part", count
            )

        sight = self._sights[resource]
        seen = len(sight.seen)
        needed = count if sight.is_one_rank_s(count) else count * self._ranks
        shares_devices = self._rules.oversubscribe and count == 1 and seen
        if needed <= seen or shares_devices:
            return

        if not seen and sight.devices:
            raise InputError(f"this process sees no {resource}: {sight.reason}")

        whole = f"{seen} that this process sees: {sight.reason}"
        if not sight.reason:
            whole = f"{seen} of the machine"
        trouble = f"{self._ranks} parts of {count} {resource} are too many for the {whole}"
        if seen and count == 1 and self._rules.names_arguments:
            trouble += "; with oversubscribe=True several ranks have the same"
        raise InputError(trouble)

    def _devices_of_ranks(self) -> list[tuple[Device, ...]]:
        """Return the devices of each rank whose shares it has.

        With one each, rank i has the i-th that is seen; with several each has those that go well
        together.
        """
        seen = self._sights[self._anchor].seen
        count = self._counts[self._anchor]
        if self._chosen:
            return [seen] * self._ranks
        if count == 1:
            return [(seen[rank % len(seen)],) for rank in range(self._ranks)]

        pool = seen[: count * self._ranks]
        slices = [pool[rank * count : (rank + 1) * count] for rank in range(self._ranks)]
        if self._ranks > self._machine.cpu_count:
            return slices

        groups = split_machine(
            self._machine,
            self._ranks,
            cpus_per_part=1,
            devices={self._anchor: count},
            inventory={self._anchor: pool},
            preferred_sets=self._rules.preferred_sets,
        )
        device_of = {device.id: device for device in pool}
        return [tuple(device_of[name] for name in part.devices[self._anchor]) for part in groups]

    def part(self, rank: int) -> Part:
        """Return the part of a rank.

        Raises:
            InputError: its share has too few CPUs, or would split a core that may not be.
        """
        devices = self._owned[rank]
        cpus = union(self._shares[device.id] for device in devices)
        owners = [other_rank for other_rank, owned in enumerate(self._owned) if owned == devices]
        if not self._chosen and len(owners) > 1:
            # several ranks a device
            machine = within(self._machine, cpus, -1)
            pieces = split_machine(machine, min(len(owners), cpus.bit_count()))
            cpus = int(pieces[owners.index(rank) % len(pieces)].cpus)

        cpus = self._cut(cpus, devices)
        given = {self._anchor: tuple(device.id for device in devices)}
        given |= self._others(rank)
        rest = union(self._shares.values()) & ~cpus
        part = parts_with(self._machine, [(cpus, given), (rest, {})], self._rules.memory)[0]
        return replace(part, rank=rank, parts=self._ranks)

    def _cut(self, cpus: int, devices: Sequence[Device]) -> int:
        """Return as many CPUs of a share as are asked for.

        Raises:
            InputError: it has fewer, or a core would be split that may not be.
        """
        ids = ", ".join(device.id for device in devices)
        count = self._rules.cpus
        if count > cpus.bit_count():
            trouble = (
                f"{count} CPUs are too many for the share of {self._anchor} {ids}: CPUs "
                f"{CPUSet.from_int(cpus)}"
            )
            if self._rules.names_arguments:
                trouble += "; with share='seen' the devices that are seen share all CPUs near them"
            raise InputError(trouble)

        if count:
            machine = within(self._machine, cpus, -1)
            cpus = int(split_machine(machine, 1, cpus_per_part=count)[0].cpus)

        pieces = split_cores(self._machine, [cpus])
        if self._rules.full_cores and pieces:
            raise InputError(
                f"the CPUs of {self._anchor} {ids} are not whole cores: those of CPUs {pieces} "
                "would be split"
            )

        return cpus

    def _others(self, rank: int) -> dict[str, tuple[str, ...]]:
        """Return the devices of other resources that a rank has: the nearest ones.

        Each rank of the job takes its own in turn. Where there are enough for all devices whose
        shares are given out, those of other jobs have theirs too.
        """
        return {
            resource: self._nearest(resource, rank)
            for resource in self._counts
            if resource != self._anchor
        }

    def _nearest(self, resource: str, rank: int) -> tuple[str, ...]:
        """Return the devices of a resource that are nearest to a rank's, and no other rank's."""
        sight = self._sights[resource]
        count = self._counts[resource]
        if sight.is_one_rank_s(count):
            return tuple(device.id for device in sight.seen)

        takers: Sequence[tuple[Device, ...]] = self._owned
        own = rank
        every_device: list[tuple[Device, ...]] = [
            (device,) for device in self._sights[self._anchor].devices
        ]
        if sight.is_whole and len(sight.seen) >= len(every_device) * count:
            takers = every_device
            own = takers.index(self._owned[rank][:1])

        free = list(sight.seen)
        taken: list[Device] = []
        for taker in takers[: own + 1]:
            mask = union(near_nodes(self._machine, device) for device in taker)
            lengths = {device.id: self._distance(mask, device) for device in free}
            nearest = sorted(free, key=lambda device: lengths[device.id])
            taken = nearest[:count]
            free = [device for device in free if device not in taken]

        return tuple(device.id for device in sight.seen if device in taken)

    def _distance(self, mask: int, device: Device) -> int:
        """Return how far a device is from some nodes; one without a node is far from none."""
        return min(
            distance(self._machine, home, position)
            for home in bit_numbers(mask)
            for position in bit_numbers(near_nodes(self._machine, device))
        )

    def notes(self, rank: int) -> list[str]:
        """Return what may surprise the owner of a part, in a sentence each."""
        notes = [note for sight in self._sights.values() for note in sight.notes]
        for device in self._owned[rank]:
            own_share = self._shares[device.id]
            sharers = [
                device_id
                for device_id, share in self._shares.items()
                if device_id != device.id and share & own_share
            ]
            if sharers:
                notes.append(
                    f"{self._anchor} {device.id} shares CPUs {CPUSet.from_int(own_share)} with "
                    f"{', '.join(sharers)}: this process may use fewer CPUs near them than there "
                    "are devices"
                )

            nodes = set(device.numa_nodes or ())
            positions = bit_set(map(self._machine.position, nodes))
            if nodes and not near_nodes(self._machine, device) & positions:
                notes.append(
                    f"{self._anchor} {device.id} is near NUMA nodes {CPUSet(nodes)}, of which this "
                    "process may use no CPU: its CPUs are those nearest to it"
                )

        return notes
