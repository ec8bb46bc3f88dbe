"""Cuts a machine into equal, disjoint, aligned parts for N ranks: CPUs, memory and devices.

The rule, in this order:

1. Equal. Every part has as many cores as every other (or just the CPUs that were asked for), and as
   many devices of each resource. Cores that are left over when they do not divide evenly are in no
   part. Where the cores of a node are of several sizes, its parts get as many of each size as can
   be.
2. Whole cores. No core is in two parts whenever that is possible: not where there are more parts
   than cores, or whole cores have too few CPUs. With cores of sizes that do not divide each other,
   the search may end before all is tried (`alignup.host.parts.whole_cores`); a warning says so.
3. Aligned. As many parts as possible lie on one NUMA node, devices included; they are spread so
   that the nodes' shares of work are as even as the nodes allow. A part that fits no node takes the
   fewest nodes that hold it, and of these the closest together. Where L3 caches are to be kept
   together, the same holds for these, within the node.
4. Near. A part has the devices closest to its nodes, sets that belong together first.
5. Numbered. Ranks follow the devices' order in the inventory, or else the lowest CPU; so on a
   machine whose GPUs are numbered along the nodes, rank i has GPU i.

A CPU that several nodes list counts as the first one's, as everywhere else work is placed. Nothing
here depends on what is in use: equal machines are cut equally, so each rank can compute its part by
itself.
"""

from __future__ import annotations

import itertools
import operator

from alignup.errors import AllocationError, InputError, warn
from alignup.host.parts.part import Part
from alignup.host.parts.usable import MemoryRule, distance, memory_shares
from alignup.host.parts.whole_cores import WholeCores, summed
from alignup.machine.bits import bit_numbers, bit_set, ids_of, overlapping, union
from alignup.machine.cpuset import CPUSet
from alignup.records import Record, field
from alignup.text.counting import counted

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Final

    from alignup.machine.device_inventory import Device
    from alignup.machine.machine import Machine
    from alignup.providers.devices.pairs import Choice, Pairing

LAYOUTS: Final = ("numa", "socket", "l3", "core")
_SAME_NODE: Final = 10
# Up to so many nodes, all sets of them are tried.
_FEW_NODES: Final = 8
_FEW_PARTS: Final = 12
_MOST_CHOICES: Final = 1000
_GAVE_UP: Final = (
    "cores are of so many sizes that the search for whole ones ended before all was tried"
)
_EVERYBODY: Final = MemoryRule()


def split_machine(
    machine: Machine,
    parts: int,
    *,
    cpus_per_part: int = 0,
    devices: Mapping[str, int] | None = None,
    inventory: Mapping[str, Sequence[Device]] | None = None,
    preferred_sets: Mapping[str, Sequence[Sequence[str]]] | None = None,
    pair: Iterable[str | Sequence[str]] = (),
    layout: str = "",
    same_l3: bool = False,
    full_cores: bool = False,
    memory: MemoryRule = _EVERYBODY,
) -> tuple[Part, ...]:
    """Return the parts of a machine, by rank; see the module for the rule.

    Args:
        machine: the machine, of which only the nodes with CPUs are cut.
        parts: how many.
        cpus_per_part: how many CPUs each; 0: as many whole cores as there are for everybody.
        devices: by resource, how many each.
        inventory: by resource, the devices of the machine.
        preferred_sets: by resource, ids that belong together.
        pair: resources whose devices are chosen together for all parts on the same nodes, nearest
            in the PCIe tree first; see `alignup.node.Node`.
        layout: one of `LAYOUTS`, in place of the third and fifth rule: rank by rank, parts go to
            the next of the machine's NUMA nodes, sockets or L3 caches, around and around, as
            mpirun's `--map-by` has it; `core`: to the next cores.
        same_l3: keep parts within one L3 cache where they fit, and make them fit where there are as
            many parts as caches.
        full_cores: refuse to split a core.
        memory: which nodes' memory is shared out.

    Raises:
        InputError: the machine has too few CPUs or devices, no such resource or layout, there are
            parts that need more than one of the places of the layout, or a core would be split that
            may not be.
    """
    if parts < 1:
        raise InputError.at("the split", "at least one part", parts)
    if cpus_per_part < 0:
        raise InputError.at("the split", "a number of whole CPUs for each part", cpus_per_part)

    machine = machine.disjoint()
    counts = {resource: count for resource, count in sorted((devices or {}).items()) if count}
    offered = {resource: (inventory or {}).get(resource, ()) for resource in counts}
    remaining = _Remaining(machine, counts, offered, preferred_sets or {}, same_l3=same_l3)
    mixed = None
    if cpus_per_part and remaining.has_mixed_cores():
        mixed = _MixedCores(remaining, parts, cpus_per_part, full_cores=full_cores)

    share = remaining.share(parts, cpus_per_part)
    _check_devices(parts, counts, offered)
    drafts = _cut(remaining, share, parts, layout, mixed)
    gave_up = mixed is not None and mixed.gave_up(drafts)
    if full_cores:
        split_cpus = split_cores(machine, [draft.cpus for draft in drafts])
        if split_cpus:
            each = f" of {cpus_per_part} CPUs" if cpus_per_part else ""
            raise InputError(
                f"{parts} parts{each} are not whole cores: those of CPUs {split_cpus} would be "
                f"split{f'; {_GAVE_UP}' if gave_up else ''}"
            )
    elif gave_up:
        warn(f"several parts have some cores in common: {_GAVE_UP}")

    remaining.give_devices(drafts, pair)
    if not layout:
        drafts.sort(
            key=lambda draft: (remaining.inventory_order(draft.devices), draft.cpus & -draft.cpus)
        )

    return parts_with(machine, [(draft.cpus, draft.devices) for draft in drafts], memory)


def shared_cores(machine: Machine, parts: Iterable[int]) -> CPUSet:
    """Return the CPUs of the cores that are in several of some parts.

    Each part is the bit set of its CPUs.
    """
    cpu_sets = list(parts)
    shared = 0
    for node in machine.numa_nodes:
        for core in node.cores:
            owners = sum(bool(core.bits & cpus) for cpus in cpu_sets)
            if owners > 1:
                shared |= core.bits

    return CPUSet.from_int(shared)


class _Share(Record):
    """The numbers of cores and CPUs that each part gets.

    Attributes:
        cores: cores; CPUs where cores are split, so that each CPU counts as a core of its own.
        cpus: CPUs to take of them; 0: all.
    """

    cores: int
    cpus: int


class _Draft(Record, frozen=False):
    """A part that is being made."""

    mask: int
    cpus: int
    devices: dict[str, tuple[str, ...]] = field(default_factory=dict)


def _check_devices(
    parts: int, counts: Mapping[str, int], inventory: Mapping[str, Sequence[Device]]
) -> None:
    """Refuse more devices than there are.

    Raises:
        InputError: there are too few healthy ones.
    """
    for resource, count in counts.items():
        if count < 0:
            raise InputError.at(
                "the split", f"a number of devices of {resource} for each part", count
            )

        healthy = sum(device.healthy for device in inventory[resource])
        if count * parts > healthy:
            raise InputError(
                f"{parts} parts of {count} {resource} are too many for the {healthy} of the machine"
            )


def split_cores(machine: Machine, parts: Sequence[int]) -> CPUSet:
    """Return the CPUs of the cores of which some part has a piece only.

    Each part is the bit set of its CPUs.
    """
    pieces = 0
    for node in machine.numa_nodes:
        for core in node.cores:
            if any(cpus & core.bits not in {0, core.bits} for cpus in parts):
                pieces |= core.bits

    return CPUSet.from_int(pieces)


def _dealt(cores: Sequence[int], count: int) -> set[int]:
    """Return some of the cores: of each size in proportion, from the front.

    Where that is not even, the sizes with the largest remainders have one more, larger cores first.
    """
    by_size: dict[int, list[int]] = {}
    for core in cores:
        by_size.setdefault(core.bit_count(), []).append(core)

    sizes = sorted(by_size, reverse=True)
    counts = {size: len(by_size[size]) * count // len(cores) for size in sizes}
    remainders = {size: len(by_size[size]) * count % len(cores) for size in sizes}
    missing = count - sum(counts.values())
    for size in sorted(sizes, key=lambda size: -remainders[size])[:missing]:
        counts[size] += 1

    return {core for size in sizes for core in by_size[size][: counts[size]]}


def _lowest(cpus: int, count: int) -> int:
    """Return the lowest of some CPUs: first threads where these are numbered first.

    Return all for a count of 0.
    """
    return bit_set(itertools.islice(bit_numbers(cpus), count or None))


class _Remaining:
    """The cores, by position of the NUMA node, and the devices that no part has yet."""

    def __init__(
        self,
        machine: Machine,
        counts: Mapping[str, int],
        inventory: Mapping[str, Sequence[Device]],
        preferred_sets: Mapping[str, Sequence[Sequence[str]]],
        *,
        same_l3: bool,
    ) -> None:
        self.machine = machine
        self.counts = counts
        self.cores = [[core.bits for core in node.cores] for node in machine.numa_nodes]
        # The L3 cache of each CPU; None: caches do not matter.
        self.l3_of: dict[int, int | None] | None = None
        if same_l3:
            self.l3_of = {}
            for node in machine.numa_nodes:
                for core in node.cores:
                    self.l3_of.update(dict.fromkeys(core.cpus, core.l3))

        self._preferred_sets = preferred_sets
        # By resource and id: the devices, the nodes of the free ones, and their order.
        self._devices: dict[str, dict[str, Device]] = {}
        self._places: dict[str, dict[str, int]] = {}
        self._order: dict[str, dict[str, int]] = {}
        for resource in counts:
            devices = {device.id: device for device in inventory[resource]}
            places = {
                device.id: bit_set(map(machine.position, device.numa_nodes or ()))
                for device in inventory[resource]
                if device.healthy
            }
            self._devices[resource] = devices
            self._places[resource] = places
            self._order[resource] = {device_id: i for i, device_id in enumerate(places)}

    def has_mixed_cores(self) -> bool:
        """Return whether cores have several sizes."""
        return len({core.bit_count() for cores in self.cores for core in cores}) > 1

    def local_parts(self) -> list[float]:
        """Return for how many parts the devices near to each node suffice."""
        limits = [float("inf")] * len(self.cores)
        for resource, count in self.counts.items():
            masks = self._places[resource].values()
            anywhere = sum(not mask for mask in masks)
            for position, limit in enumerate(limits):
                near = sum(mask >> position & 1 for mask in masks)
                limits[position] = min(limit, (near + anywhere) // count)

        return limits

    def share(self, parts: int, cpus_per_part: int) -> _Share:
        """Return how much each part gets.

        Cores that are too small for that, or not to be kept whole, are dealt with.

        Raises:
            InputError: the machine has less.
        """
        sizes = sorted((core.bit_count() for cores in self.cores for core in cores), reverse=True)
        total = sum(sizes)
        if parts * max(1, cpus_per_part) > total:
            each = f" of {cpus_per_part} CPUs" if cpus_per_part else ""
            raise InputError(
                f"{parts} parts{each} are too many for the {total} CPUs of the machine"
            )

        if not cpus_per_part and parts <= len(sizes):
            return _Share(self._cores_of_each(parts, len(sizes)), 0)

        if cpus_per_part:
            for size in sorted(set(sizes), reverse=True):
                core_count = -(-cpus_per_part // size)
                if core_count * parts <= sum(core_size >= size for core_size in sizes):
                    self.cores = [
                        [core for core in cores if core.bit_count() >= size] for cores in self.cores
                    ]
                    return _Share(core_count, cpus_per_part)

        cpu_count = cpus_per_part or total // parts
        # one CPU each is of a core of its own for as long as there are any; several are neighbours
        by_number = cpu_count == 1
        for position, cores in enumerate(self.cores):
            blocks = [union(cores)] if by_number else cores
            self.cores[position] = [1 << cpu for block in blocks for cpu in bit_numbers(block)]

        return _Share(cpu_count, cpus_per_part)

    def _cores_of_each(self, parts: int, total: int) -> int:
        """Return how many whole cores each part gets.

        There are fewer than could be where all parts shall fit into L3 caches.
        """
        count = total // parts
        if self.l3_of is None:
            return count

        group_sizes = [len(group) for cores in self.cores for group in self.groups(cores)]
        if parts >= len(group_sizes):
            while sum(size // count for size in group_sizes) < parts:
                count -= 1

        return count

    def groups(self, cores: Sequence[int]) -> list[list[int]]:
        """Return cores of a node by their L3 cache, in order.

        They are one group where caches do not matter.
        """
        groups: dict[int | None, list[int]] = {}
        for core in cores:
            cache = None if self.l3_of is None else self.l3_of[(core & -core).bit_length() - 1]
            groups.setdefault(cache, []).append(core)

        return list(groups.values())

    def room(self, position: int, *, in_one_cache: bool) -> int:
        """Return how many cores of a node one part could have, all or those of one L3 cache."""
        cores = self.cores[position]
        if not in_one_cache:
            return len(cores)
        return max(map(len, self.groups(cores)), default=0)

    def take(self, mask: int, share: _Share) -> _Draft:
        """Take the cores of a part from its nodes.

        They are from as few L3 caches as can be where these matter.
        """
        cpus = 0
        needed = share.cores
        for position in bit_numbers(mask):
            while needed and self.cores[position]:
                # the smallest that has enough now, or the largest
                groups = self.groups(self.cores[position])
                group = min(
                    groups, key=lambda cores: (len(cores) < needed, abs(len(cores) - needed))
                )
                part_cores = _dealt(group, min(needed, len(group)))
                self.cores[position] = [
                    core for core in self.cores[position] if core not in part_cores
                ]
                needed -= len(part_cores)
                cpus |= union(part_cores)

        return _Draft(mask, _lowest(cpus, share.cpus))

    def laid_out(self, layout: str, parts: int, share: _Share) -> list[_Draft]:
        """Take the cores of all parts, each from the next place of a layout that has enough left.

        Raises:
            InputError: there is no such layout, or the places are too small.
        """
        if layout not in LAYOUTS:
            raise InputError.at("--layout", f"one of {', '.join(LAYOUTS)}", layout)

        rooms = self.rooms(layout, self.cores)
        needed = share.cores
        if not share.cpus:
            while needed > 1 and sum(len(room) // needed for room in rooms.values()) < parts:
                needed -= 1

        drafts = []
        queue = list(rooms.values())
        for _ in range(parts):
            index = next((i for i, room in enumerate(queue) if len(room) >= needed), None)
            if index is None:
                raise InputError(
                    f"the layout {layout} has no places for {counted(parts, 'part')} of {needed} "
                    "cores each"
                )

            room = queue[index]
            cpus = union(room[:needed])
            del room[:needed]
            # the places after it, then those before it, and it
            queue = queue[index + 1 :] + queue[: index + 1]
            mask = overlapping(self.machine.node_cpus, cpus)
            drafts.append(_Draft(mask, _lowest(cpus, share.cpus)))

        return drafts

    def rooms(self, layout: str, node_cores: Iterable[Iterable[int]]) -> dict[int, list[int]]:
        """Return cores by the place of a layout that they are in."""
        place_of = self._places_of_cpus(layout)
        rooms: dict[int, list[int]] = {}
        for cores in node_cores:
            for core in cores:
                rooms.setdefault(place_of[core & -core], []).append(core)

        return rooms

    def _places_of_cpus(self, layout: str) -> dict[int, int]:
        """Return the place of a layout that each CPU is in, by the CPU's bit."""
        places: dict[int, int] = {}
        for position, node in enumerate(self.machine.numa_nodes):
            for core in node.cores:
                place = {
                    "numa": position,
                    "socket": core.socket,
                    # the cache itself, which may be none of the uncore caches of a kubelet
                    "l3": core.socket if core.l3 is None else core.l3,
                    "core": 0,
                }[layout]
                for cpu in core.cpus:
                    places[1 << cpu] = place

        return places

    def give_devices(self, drafts: Sequence[_Draft], pair: Iterable[str | Sequence[str]]) -> None:
        """Give all parts their devices.

        Pairs of parts on the same nodes are chosen at once, nearest in sum.

        Raises:
            InputError: pairs have to be on one PCIe root, and cannot be.
        """
        if pair:
            # startup counts
            from alignup.providers.devices.pairs import Pairing, read_pairs  # noqa: PLC0415

            pairing = Pairing(self.machine, read_pairs(pair, "--pair"))
            for mask in dict.fromkeys(draft.mask for draft in drafts):
                self._give_pairs(mask, [draft for draft in drafts if draft.mask == mask], pairing)

        for draft in drafts:
            paired = draft.devices
            draft.devices = {}
            for resource in self.counts:
                if resource in paired:
                    draft.devices[resource] = paired[resource]
                else:
                    draft.devices[resource] = self._take_devices(draft.mask, resource)

    def _give_pairs(self, mask: int, group: Sequence[_Draft], pairing: Pairing) -> None:
        """Give some parts on the same nodes their devices of resources that belong together."""
        # By resource and device id, the position of the part in the group.
        owners: dict[str, dict[str, int]] = {}
        for pair in pairing.pairs:
            names = (pair.first, pair.second)
            if not self.counts.keys() >= set(names):
                continue

            first, second = (
                self._choice(name, mask, len(group), owners.get(name)) for name in names
            )
            try:
                joined, *unpaired = pairing.joined(pair, first, second)
            except AllocationError as error:
                raise InputError(str(error)) from None

            each = min(self.counts[name] for name in names)
            first_owners = owners.setdefault(pair.first, {})
            second_owners = owners.setdefault(pair.second, {})
            for number, (first_device, second_device) in enumerate(joined):
                owner = second_owners.get(second_device.id, number // each)
                owner = first_owners.get(first_device.id, owner)
                first_owners[first_device.id] = owner
                second_owners[second_device.id] = owner

            for name, devices in zip(names, unpaired, strict=True):
                for number, device in enumerate(devices):
                    owner = number // (self.counts[name] - each)
                    owners[name].setdefault(device.id, owner)

        for name, owner_of in owners.items():
            for position, draft in enumerate(group):
                draft.devices[name] = tuple(
                    device_id
                    for device_id in self._order[name]
                    if owner_of.get(device_id) == position
                )

            for device_id in owner_of:
                del self._places[name][device_id]

    def _choice(
        self, resource: str, mask: int, parts: int, owned: Mapping[str, int] | None
    ) -> Choice:
        """Return the devices for some parts on nodes.

        They are those that must be taken, and those that may complete them.
        """
        from alignup.providers.devices.pairs import Choice  # noqa: PLC0415  # startup counts

        device_of = self._devices[resource]
        needed = self.counts[resource] * parts
        if owned:
            return Choice([device_of[device_id] for device_id in owned], (), needed)

        forced: list[Device] = []
        for near_ids in self._ranked(resource, mask):
            near_devices = [device_of[device_id] for device_id in near_ids]
            if len(forced) + len(near_devices) > needed:
                return Choice(forced, near_devices, needed)
            forced += near_devices

        return Choice(forced, (), needed)

    def _take_devices(self, mask: int, resource: str) -> tuple[str, ...]:
        """Take a part's devices of a resource.

        They are the closest first, and of these, sets that belong together.
        """
        chosen_ids: list[str] = []
        for near_ids in self._ranked(resource, mask):
            chosen_ids = self._add(resource, chosen_ids, near_ids, self.counts[resource])

        for device_id in chosen_ids:
            del self._places[resource][device_id]

        return tuple(sorted(chosen_ids, key=self._order[resource].__getitem__))

    def _add(self, resource: str, chosen: list[str], near: list[str], count: int) -> list[str]:
        """Return `chosen` and as many of `near` as fit."""
        if len(chosen) + len(near) <= count:
            return chosen + near

        # startup counts
        from alignup.providers.devices.inventory import PreferredSets  # noqa: PLC0415

        sets = PreferredSets(self._preferred_sets.get(resource, ()))
        together = set(sets.preferred_allocation(near, [], count - len(chosen)))
        whole_sets = [ids for ids in sets.sets if ids <= together]
        # PreferredSets fills up in alphabetical order; here the other devices follow the order of
        # the inventory
        first = [device_id for device_id in near if any(device_id in ids for ids in whole_sets)]
        others = [device_id for device_id in near if device_id not in first]
        return (chosen + first + others)[:count]

    def _ranked(self, resource: str, mask: int) -> list[list[str]]:
        """Return the ids of a resource's devices that no part has.

        Those as far from some nodes are together, the nearest first.
        """
        by_distance: dict[int, list[str]] = {}
        for device_id, place in self._places[resource].items():
            by_distance.setdefault(self._distance(mask, place), []).append(device_id)

        return [by_distance[length] for length in sorted(by_distance)]

    def _distance(self, mask: int, place: int) -> int:
        """Return how far a device is from the nodes of a part.

        A device without a place comes after those on the nodes.
        """
        if not place:
            return _SAME_NODE + 1

        return min(
            distance(self.machine, i, j) for i in bit_numbers(mask) for j in bit_numbers(place)
        )

    def inventory_order(self, devices: Mapping[str, tuple[str, ...]]) -> tuple[int, ...]:
        """Return the positions of a part's devices, by resource."""
        return tuple(
            self._order[resource][device_id]
            for resource, ids in devices.items()
            for device_id in ids
        )


def _cut(
    remaining: _Remaining, share: _Share, parts: int, layout: str, mixed: _MixedCores | None
) -> list[_Draft]:
    """Return all parts, without devices.

    Where cores are of several sizes, and an equal share of them does not give parts of whole cores
    and as many of these on one node as can be, the search for those does.

    Raises:
        InputError: there is no such layout, or its places are too small.
    """
    try:
        drafts = _drafts(remaining, parts, share, layout)
    except InputError:
        drafts = mixed.laid_out(layout) if mixed else []
        if drafts:
            return drafts
        raise

    if mixed is None:
        return drafts
    if not layout:
        return mixed.better_than(drafts) or drafts
    if mixed.has_whole(drafts):
        return drafts
    return mixed.laid_out(layout) or drafts


class _MixedCores:
    """The cores of a machine where they are of several sizes, and parts of them that are whole.

    Attributes:
        cores: those of each node, by position.
    """

    def __init__(
        self, remaining: _Remaining, parts: int, cpus_per_part: int, *, full_cores: bool
    ) -> None:
        self.cores = list(remaining.cores)
        self._remaining = remaining
        self._parts = parts
        self._cpus = cpus_per_part
        self._full_cores = full_cores
        sizes = (core.bit_count() for cores in self.cores for core in cores)
        self._whole = WholeCores(sizes, cpus_per_part, is_exact=full_cores)

    def has_whole(self, drafts: Sequence[_Draft]) -> bool:
        """Return whether no core is in two of some parts, or in part only where that counts."""
        machine = self._remaining.machine
        if self._full_cores:
            return not split_cores(machine, [draft.cpus for draft in drafts])
        return not shared_cores(machine, (draft.cpus for draft in drafts))

    def gave_up(self, drafts: Sequence[_Draft]) -> bool:
        """Return whether some parts are not whole, and whole ones may have been missed."""
        return self._whole.gave_up and not self.has_whole(drafts)

    def better_than(self, drafts: Sequence[_Draft]) -> list[_Draft]:
        """Return parts of whole cores, where some are not, or are on more nodes than need be.

        Empty: there are none that are better.
        """
        machine = self._remaining.machine

        def worth(parts: Sequence[_Draft]) -> tuple[bool, int, int]:
            nodes = [overlapping(machine.node_cpus, part.cpus).bit_count() for part in parts]
            return self.has_whole(parts), nodes.count(1), -sum(nodes)

        # nothing is better than whole parts on a node each
        worth_of_drafts = worth(drafts)
        if worth_of_drafts == (True, self._parts, -self._parts):
            return []

        pools = self._pools(self.cores, self._parts, self._remaining.local_parts())
        if pools is None:
            return []

        order, used, left = pools
        numbers = list(map(order.count, range(len(used))))
        parts = list(map(self._within_node, used, numbers))
        across = self._across(left, self._parts - len(order))
        if list(map(len, parts)) != numbers or len(order) + len(across) < self._parts:
            return []

        better = [self._draft(parts[position].pop(0)) for position in order] + across
        return better if worth(better) > worth_of_drafts else []

    def laid_out(self, layout: str) -> list[_Draft]:
        """Return whole parts, each of the next place of a layout that has enough left.

        Empty: the places are too small, or there is no such layout.
        """
        if layout not in LAYOUTS:
            return []

        rooms = list(self._remaining.rooms(layout, self.cores).values())
        open_parts = [self._whole.most(self._whole.counts(room), self._parts) for room in rooms]
        if sum(open_parts) < self._parts:
            return []

        queue = list(range(len(rooms)))
        order: list[int] = []
        while len(order) < self._parts:
            index = next(i for i, room in enumerate(queue) if open_parts[room])
            order.append(queue[index])
            open_parts[queue[index]] -= 1
            queue = queue[index + 1 :] + queue[: index + 1]

        parts = [self._whole.cut(room, order.count(place)) for place, room in enumerate(rooms)]
        return [self._draft(parts[place].pop(0)) for place in order]

    def _draft(self, cores: Sequence[int]) -> _Draft:
        cpus = _lowest(union(cores), self._cpus)
        return _Draft(overlapping(self._remaining.machine.node_cpus, cpus), cpus)

    def _pools(
        self, places: Sequence[Sequence[int]], parts: int, limits: Sequence[float]
    ) -> tuple[list[int], list[Sequence[int]], list[list[int]]] | None:
        """Return how as many parts as can be are within places.

        Args:
            places: the cores of each.
            parts: how many parts there are.
            limits: for how many parts each place is good, if others are left.

        Returns:
            The places of the parts that are within one, in turn; the cores that these are of, and
            those for the others, by place. None: there are too few cores for whole parts.
        """
        whole = self._whole
        counts = [whole.counts(cores) for cores in places]
        room = [whole.most(count, parts) for count in counts]
        if sum(room) >= parts:
            totals = list(map(whole.total, counts))
            order = _spread(room, totals, parts, self._cpus, limits)
            return order, list(places), [[] for _ in places]

        remainders = whole.aligned(counts, parts)
        if remainders is None:
            return None

        left = [list(cores) for cores in places]
        used: list[Sequence[int]] = []
        for cores, remainder in zip(left, remainders, strict=True):
            used.append([core for taken in remainder.parts for core in whole.take(cores, taken)])

        order = [place for place, remainder in enumerate(remainders) for _ in remainder.parts]
        return order, used, left

    def _within_node(self, cores: Sequence[int], parts: int) -> list[list[int]]:
        """Return the cores of parts within a node, in one L3 cache each as far as these matter."""
        caches = self._remaining.groups(cores)
        pools = None
        if len(caches) > 1:
            pools = self._pools(caches, parts, [float("inf")] * len(caches))
        if pools is None:
            return self._whole.cut(cores, parts)

        order, used, left = pools
        within = [
            part
            for place, cache in enumerate(used)
            for part in self._whole.cut(cache, order.count(place))
        ]
        return within + self._whole.cut(
            [core for cache in left for core in cache], parts - len(order)
        )

    def _across(self, left: Sequence[Sequence[int]], parts: int) -> list[_Draft]:
        """Take parts from what those within nodes leave, of few nodes each.

        Each part in turn is of the fewest nodes that do; where parts and nodes are few, other
        choices are tried, of fewer nodes in sum. There are fewer parts where a search was given up.
        """
        drafts: list[_Draft] = []
        node_counts = []
        rest = left
        for open_parts in range(parts, 0, -1):
            first = next(self._next_parts(rest, open_parts), None)
            if first is None:
                return drafts

            number, draft, rest = first
            drafts.append(draft)
            node_counts.append(number)

        if 1 < parts <= _FEW_PARTS and len(left) <= _FEW_NODES:
            choices = itertools.count()
            for most in range(parts * min(node_counts), sum(node_counts)):
                fewer = self._of_few_nodes(left, parts, most, choices)
                if fewer is not None:
                    return fewer

        return drafts

    def _of_few_nodes(
        self, left: Sequence[Sequence[int]], parts: int, most: int, choices: Iterator[int]
    ) -> list[_Draft] | None:
        """Return parts that are of so many nodes in sum at most; None: no choice of nodes does.

        Args:
            left: the cores that there are, by node.
            parts: how many parts.
            most: in sum, the most nodes of the parts.
            choices: counts the choices that were tried.
        """
        if not parts:
            return []

        for number, draft, rest in self._next_parts(left, parts):
            if number + parts - 1 > most or next(choices) > _MOST_CHOICES:
                return None

            others = self._of_few_nodes(rest, parts - 1, most - number, choices)
            if others is not None:
                return [draft, *others]

        return None

    def _next_parts(
        self, left: Sequence[Sequence[int]], parts: int
    ) -> Iterator[tuple[int, _Draft, list[list[int]]]]:
        """Yield what a part may be so that there are as many, those of the fewest nodes first.

        Args:
            left: the cores that there are, by node; they are enough.
            parts: how many parts these are to be, with this one.

        Yields:
            Of how many nodes the part is, the part, and the cores that are left then.
        """
        counts = [self._whole.counts(cores) for cores in left]
        for mask in _masks(self._remaining.machine, list(map(len, left))):
            near = summed(counts[position] for position in bit_numbers(mask))
            taken = self._whole.first_of(near, summed(counts), parts)
            if taken is not None:
                pool = [core for position in bit_numbers(mask) for core in left[position]]
                part = self._whole.take(pool, taken)
                rest = [[core for core in cores if core not in part] for cores in left]
                draft = self._draft(part)
                yield draft.mask.bit_count(), draft, rest


def _spread(
    room: Sequence[int], totals: Sequence[int], parts: int, cpus: int, limits: Sequence[float]
) -> list[int]:
    """Return the places of parts, so that the places' shares of work are even.

    Args:
        room: how many parts each place has room for; in sum there is enough.
        totals: how many CPUs each has.
        parts: how many parts.
        cpus: how many CPUs a part has.
        limits: how many parts of each come first.
    """
    order: list[int] = []
    numbers = [0] * len(room)
    for most in (list(map(min, room, limits)), room):
        while len(order) < parts:
            fits = [place for place, number in enumerate(numbers) if number + 1 <= most[place]]
            if not fits:
                break

            best = max(fits, key=lambda place: (1 - numbers[place] * cpus / totals[place], -place))
            numbers[best] += 1
            order.append(best)

    return order


def _masks(machine: Machine, room: Sequence[int]) -> list[int]:
    """Return sets of nodes that have cores left: the fewest nodes first, of these the closest.

    Where there are many nodes, these are pairs, and nodes with those that are closest to them.
    """
    positions = [position for position, cores in enumerate(room) if cores]
    masks: set[int] = set()
    most = len(positions) if len(positions) <= _FEW_NODES else min(2, len(positions))
    for size in range(1, most + 1):
        masks.update(map(bit_set, itertools.combinations(positions, size)))

    for seed in positions:
        nearest = sorted(
            positions,
            key=lambda position: (
                position != seed,
                distance(machine, seed, position),
                -room[position],
                position,
            ),
        )
        masks.update(itertools.accumulate((1 << position for position in nearest), operator.or_))

    return sorted(masks, key=lambda mask: (mask.bit_count(), _length(machine, mask), mask))


def _length(machine: Machine, mask: int) -> int:
    """Return how far the nodes of a set are from the one of them that is closest to all."""
    nodes = list(bit_numbers(mask))
    return min(sum(distance(machine, seed, node) for node in nodes) for seed in nodes)


def _drafts(remaining: _Remaining, parts: int, share: _Share, layout: str) -> list[_Draft]:
    """Take all parts.

    Without a layout, first those that fit into one node with devices, then those that do without,
    then the others.
    """
    if layout:
        return remaining.laid_out(layout, parts, share)

    core_counts = list(map(len, remaining.cores))

    def share_left(position: int) -> tuple[float, int]:
        return len(remaining.cores[position]) / core_counts[position], -position

    cache_rules = (True, False) if remaining.l3_of else (False,)
    drafts: list[_Draft] = []
    for limits in (remaining.local_parts(), [float("inf")] * len(core_counts)):
        open_parts = [
            limit - sum(draft.mask == 1 << position for draft in drafts)
            for position, limit in enumerate(limits)
        ]
        for in_one_cache in cache_rules:
            while len(drafts) < parts:
                fits = [
                    position
                    for position, limit in enumerate(open_parts)
                    if limit >= 1
                    and remaining.room(position, in_one_cache=in_one_cache) >= share.cores
                ]
                if not fits:
                    break

                best = max(fits, key=share_left)
                open_parts[best] -= 1
                drafts.append(remaining.take(1 << best, share))

    while len(drafts) < parts:
        room = list(map(len, remaining.cores))
        drafts.append(remaining.take(_closest(remaining.machine, room, share.cores), share))

    return drafts


def _closest(machine: Machine, room: Sequence[int], needed: int) -> int:
    """Return the fewest nodes that have as many cores left.

    Of several such sets, it is the one whose nodes are closest to one of them.
    """
    everywhere = range(len(room))
    size = next(
        size for size in range(1, len(room) + 1) if _largest(room, everywhere, size) >= needed
    )
    best: tuple[int, int] | None = None
    for seed, cores in enumerate(room):
        mask = 1 << seed
        core_count = cores
        length = 0
        while cores and core_count < needed:
            open_nodes = size - mask.bit_count()
            candidates = [
                position for position in everywhere if room[position] and not mask >> position & 1
            ]
            # a node is of use if, with it, the nodes that may still follow can hold the rest
            useful = []
            for position in candidates:
                followers = [candidate for candidate in candidates if candidate != position]
                most = core_count + room[position] + _largest(room, followers, open_nodes - 1)
                if most >= needed:
                    useful.append(position)

            if open_nodes < 1 or not useful:
                break

            step, _, nearest = min(
                (distance(machine, seed, position), -room[position], position)
                for position in useful
            )
            mask |= 1 << nearest
            core_count += room[nearest]
            length += step

        if core_count >= needed and (best is None or (length, mask) < best):
            best = (length, mask)

    return best[1] if best else 0


def _largest(room: Sequence[int], positions: Iterable[int], count: int) -> int:
    """Return how many cores the `count` roomiest of some nodes have left."""
    return sum(sorted((room[position] for position in positions), reverse=True)[:count])


def parts_with(
    machine: Machine, parts: Sequence[tuple[int, Mapping[str, tuple[str, ...]]]], memory: MemoryRule
) -> tuple[Part, ...]:
    """Return the records of parts, by rank, with their shares of the memory near them.

    Args:
        machine: the machine.
        parts: of each, the bit set of its CPUs, and its devices by resource.
        memory: which nodes' memory is shared out.
    """
    shares = memory_shares(machine, [cpus for cpus, _ in parts], memory)
    records = []
    for rank, (cpus, devices) in enumerate(parts):
        numa_nodes = ids_of(overlapping(machine.node_cpus, cpus), machine.numa_node_ids)
        cpu_set = CPUSet.from_int(cpus)
        records.append(Part(rank, cpu_set, numa_nodes, shares[rank], devices, len(parts)))

    return tuple(records)
