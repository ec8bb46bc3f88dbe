"""Cuts a machine into equal, disjoint, aligned parts: CPUs, NUMA nodes, memory and devices for N ranks.

The rule, in this order:

1. Equal. Every part has as many cores as every other (or just the CPUs that were asked for), and as
   many devices of each resource. Cores that are left over when they do not divide evenly are in no
   part. Where the cores of a node are of several sizes, its parts get as many of each size as can
   be.
2. Whole cores. No core is in two parts, unless there are more parts than cores, or whole cores have
   too few CPUs.
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

from itertools import islice

from alignup.errors import AllocationError, InputError
from alignup.host.parts.part import Part
from alignup.host.parts.usable import MemoryRule, distance, memory_shares
from alignup.machine.bits import bit_numbers, bit_set, ids_of, overlapping, union
from alignup.machine.cpuset import CPUSet
from alignup.records import Record, field
from alignup.text.counting import counted

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Final

    from alignup.machine.device_inventory import Device
    from alignup.machine.machine import Machine
    from alignup.providers.devices.pairs import Choice, Pairing

LAYOUTS: Final = ("numa", "socket", "l3", "core")
_SAME_NODE: Final = 10
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
    wanted = {resource: count for resource, count in sorted((devices or {}).items()) if count}
    there = {resource: (inventory or {}).get(resource, ()) for resource in wanted}
    remaining = _Remaining(machine, wanted, there, preferred_sets or {}, same_l3=same_l3)
    share = remaining.share(parts, cpus_per_part)
    _check_devices(parts, wanted, there)
    drafts = (
        remaining.laid_out(layout, parts, share) if layout else _drafts(remaining, parts, share)
    )
    cut = [draft.cpus for draft in drafts]
    if full_cores:
        cores = (core.bits for node in machine.numa_nodes for core in node.cores)
        torn = CPUSet.from_int(
            union(core for core in cores if any(core & cpus not in {0, core} for cpus in cut))
        )
        if torn:
            size = f" of {cpus_per_part} CPUs" if cpus_per_part else ""
            raise InputError(
                f"{parts} parts{size} are not whole cores: those of CPUs {torn} would be split"
            )

    remaining.give_devices(drafts, pair)
    if not layout:
        drafts.sort(
            key=lambda draft: (remaining.inventory_order(draft.devices), draft.cpus & -draft.cpus)
        )

    return parts_with(machine, [(draft.cpus, draft.devices) for draft in drafts], memory)


def shared_cores(machine: Machine, parts: Iterable[int]) -> CPUSet:
    """Return the CPUs of the cores that are in several of some parts, each the bit set of its CPUs."""
    given = list(parts)
    cores = (core.bits for node in machine.numa_nodes for core in node.cores)
    return CPUSet.from_int(
        union(core for core in cores if sum(bool(core & cpus) for cpus in given) > 1)
    )


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
    parts: int, wanted: Mapping[str, int], inventory: Mapping[str, Sequence[Device]]
) -> None:
    """Refuse more devices than there are.

    Raises:
        InputError: there are too few healthy ones.
    """
    for resource, count in wanted.items():
        if count < 0:
            raise InputError.at(
                "the split", f"a number of devices of {resource} for each part", count
            )

        there = sum(device.healthy for device in inventory[resource])
        if count * parts > there:
            raise InputError(
                f"{parts} parts of {count} {resource} are too many for the {there} of the machine"
            )


def _dealt(cores: Sequence[int], count: int) -> set[int]:
    """Return some of the cores: of each size in proportion, from the front; the larger ones where it is not even."""
    by_size: dict[int, list[int]] = {}
    for core in cores:
        by_size.setdefault(core.bit_count(), []).append(core)
    sizes = sorted(by_size, reverse=True)
    even = {size: len(by_size[size]) * count // len(cores) for size in sizes}
    left = count - sum(even.values())
    for size in sorted(sizes, key=lambda size: -(len(by_size[size]) * count % len(cores)))[:left]:
        even[size] += 1
    return {core for size in sizes for core in by_size[size][: even[size]]}


def _lowest(cpus: int, count: int) -> int:
    """Return the lowest of some CPUs: first threads where these are numbered first; all for a count of 0."""
    return bit_set(islice(bit_numbers(cpus), count or None))


class _Remaining:
    """The cores, by position of the NUMA node, and the devices that no part has yet."""

    def __init__(
        self,
        machine: Machine,
        wanted: Mapping[str, int],
        inventory: Mapping[str, Sequence[Device]],
        preferred_sets: Mapping[str, Sequence[Sequence[str]]],
        *,
        same_l3: bool,
    ) -> None:
        self.machine = machine
        self.wanted = wanted
        self.cores = [[core.bits for core in node.cores] for node in machine.numa_nodes]
        # The L3 cache of each CPU; None: caches do not matter.
        self.l3_of: dict[int, int | None] | None = None
        if same_l3:
            self.l3_of = {
                cpu: core.l3
                for node in machine.numa_nodes
                for core in node.cores
                for cpu in core.cpus
            }

        self._preferred_sets = preferred_sets
        self._places: dict[str, dict[str, int]] = {
            resource: {
                device.id: bit_set(map(machine.position, device.numa_nodes or ()))
                for device in inventory[resource]
                if device.healthy
            }
            for resource in wanted
        }
        self._devices = {
            resource: {device.id: device for device in inventory[resource]} for resource in wanted
        }
        self._order = {
            resource: {identity: i for i, identity in enumerate(places)}
            for resource, places in self._places.items()
        }

    def local_parts(self) -> list[float]:
        """Return for how many parts the devices near to each node suffice."""
        rooms = [float("inf")] * len(self.cores)
        for resource, count in self.wanted.items():
            places = self._places[resource].values()
            anywhere = sum(not mask for mask in places)
            for i in range(len(rooms)):
                rooms[i] = min(
                    rooms[i], (sum(mask >> i & 1 for mask in places) + anywhere) // count
                )
        return rooms

    def share(self, parts: int, cpus_per_part: int) -> _Share:
        """Return how much each part gets; cores that are too small for that, or not to be kept whole, are dealt with.

        Raises:
            InputError: the machine has less.
        """
        sizes = sorted((core.bit_count() for cores in self.cores for core in cores), reverse=True)
        total = sum(sizes)
        if parts * max(1, cpus_per_part) > total:
            wish = (
                f"{parts} parts of {max(1, cpus_per_part)} CPUs"
                if cpus_per_part
                else f"{parts} parts"
            )
            raise InputError(f"{wish} are too many for the {total} CPUs of the machine")

        if not cpus_per_part and parts <= len(sizes):
            cores = len(sizes) // parts
            groups = [len(group) for own in self.cores for group in self.groups(own)]
            if self.l3_of is not None and parts >= len(groups):
                while sum(group // cores for group in groups) < parts:
                    cores -= 1

            return _Share(cores, 0)

        for size in sorted(set(sizes), reverse=True) if cpus_per_part else ():
            cores = -(-cpus_per_part // size)
            if cores * parts <= sum(one >= size for one in sizes):
                self.cores = [
                    [core for core in own if core.bit_count() >= size] for own in self.cores
                ]
                return _Share(cores, cpus_per_part)

        cpus = cpus_per_part or total // parts
        # one CPU each is of a core of its own for as long as there are any; several are neighbours
        joined = (lambda own: [union(own)]) if cpus == 1 else list
        self.cores = [
            [1 << cpu for bits in joined(own) for cpu in bit_numbers(bits)] for own in self.cores
        ]
        return _Share(cpus, cpus_per_part)

    def groups(self, cores: Sequence[int]) -> list[list[int]]:
        """Return cores of a node by their L3 cache, in order; as one group where caches do not matter."""
        groups: dict[int | None, list[int]] = {}
        for core in cores:
            cache = None if self.l3_of is None else self.l3_of[(core & -core).bit_length() - 1]
            groups.setdefault(cache, []).append(core)
        return list(groups.values())

    def take(self, mask: int, share: _Share) -> _Draft:
        """Take the cores of a part from its nodes, from as few L3 caches as can be where these matter."""
        cpus = 0
        needed = share.cores
        for i in bit_numbers(mask):
            while needed and self.cores[i]:
                # the smallest that has enough, or the largest
                groups = self.groups(self.cores[i])
                # now
                group = min(groups, key=lambda one: (len(one) < needed, abs(len(one) - needed)))
                taken = _dealt(group, min(needed, len(group)))
                self.cores[i] = [core for core in self.cores[i] if core not in taken]
                needed -= len(taken)
                cpus |= union(taken)

        return _Draft(mask, _lowest(cpus, share.cpus))

    def laid_out(self, layout: str, parts: int, share: _Share) -> list[_Draft]:
        """Take the cores of all parts, each from the next place of a layout that has enough left.

        Raises:
            InputError: there is no such layout, or the places are too small.
        """
        if layout not in LAYOUTS:
            raise InputError.at("--layout", f"one of {', '.join(LAYOUTS)}", layout)

        place_of = {
            1 << cpu: {
                "numa": node,
                "socket": core.socket,
                # the cache itself, which may be none of the uncore caches of a kubelet
                "l3": core.socket if core.l3 is None else core.l3,
                "core": 0,
            }[layout]
            for node, own in enumerate(self.machine.numa_nodes)
            for core in own.cores
            for cpu in core.cpus
        }
        rooms: dict[int, list[int]] = {}
        for bits in (bits for cores in self.cores for bits in cores):
            rooms.setdefault(place_of[bits & -bits], []).append(bits)

        needed = share.cores
        while (
            needed > 1
            and not share.cpus
            and sum(len(room) // needed for room in rooms.values()) < parts
        ):
            needed -= 1

        drafts = []
        queue = list(rooms.values())
        for _ in range(parts):
            room = next((room for room in queue if len(room) >= needed), None)
            if room is None:
                raise InputError(
                    f"the layout {layout} has no places for {counted(parts, 'part')} of {needed} "
                    "cores each"
                )

            cpus, room[:needed] = union(room[:needed]), []
            # the places after it, then it and those before it
            at = next(i for i, one in enumerate(queue) if one is room) + 1
            queue = queue[at:] + queue[:at]
            mask = overlapping(self.machine.node_cpus, cpus)
            drafts.append(_Draft(mask, _lowest(cpus, share.cpus)))

        return drafts

    def give_devices(self, drafts: Sequence[_Draft], pair: Iterable[str | Sequence[str]]) -> None:
        """Give all parts their devices; pairs of parts on the same nodes are chosen at once, nearest in sum.

        Raises:
            InputError: pairs have to be on one PCIe root, and cannot be.
        """
        if pair:
            from alignup.providers.devices.pairs import Pairing, read_pairs  # noqa: PLC0415  # startup counts

            pairing = Pairing(self.machine, read_pairs(pair, "--pair"))
            for mask in dict.fromkeys(draft.mask for draft in drafts):
                self._give_pairs(mask, [draft for draft in drafts if draft.mask == mask], pairing)

        for draft in drafts:
            given = draft.devices
            draft.devices = {
                name: given[name] if name in given else self._take_devices(draft.mask, name)
                for name in self.wanted
            }

    def _give_pairs(self, mask: int, group: Sequence[_Draft], pairing: Pairing) -> None:
        """Give some parts on the same nodes their devices of resources that belong together."""
        owner: dict[str, dict[str, int]] = {}
        for pair in pairing.pairs:
            names = (pair.first, pair.second)
            if not self.wanted.keys() >= set(names):
                continue
            first, second = (
                self._choice(name, mask, len(group), owner.get(name)) for name in names
            )
            try:
                joined, *alone = pairing.joined(pair, first, second)
            except AllocationError as error:
                raise InputError(str(error)) from None

            each = min(self.wanted[name] for name in names)
            one, other = (owner.setdefault(name, {}) for name in names)
            for number, (here, there) in enumerate(joined):
                part = one.get(here.id, other.get(there.id, number // each))
                one[here.id] = other[there.id] = part

            for name, left in zip(names, alone, strict=True):
                for number, device in enumerate(left):
                    owner[name].setdefault(device.id, number // (self.wanted[name] - each))

        for name, owners in owner.items():
            for rank, draft in enumerate(group):
                draft.devices[name] = tuple(
                    one for one in self._order[name] if owners.get(one) == rank
                )

            for identity in owners:
                del self._places[name][identity]

    def _choice(
        self, resource: str, mask: int, parts: int, owned: Mapping[str, int] | None
    ) -> Choice:
        """Return the devices for some parts on nodes: those that must be taken, and those that may complete them."""
        from alignup.providers.devices.pairs import Choice  # noqa: PLC0415  # startup counts

        known, wanted = self._devices[resource], self.wanted[resource] * parts
        if owned:
            return Choice([known[identity] for identity in owned], (), wanted)

        forced: list[Device] = []
        for near in self._ranked(resource, mask):
            devices = [known[identity] for identity in near]
            if len(forced) + len(near) > wanted:
                return Choice(forced, devices, wanted)
            forced += devices

        return Choice(forced, (), wanted)

    def _take_devices(self, mask: int, resource: str) -> tuple[str, ...]:
        """Take a part's devices of a resource: the closest first, and of these, sets that belong together."""
        chosen: list[str] = []
        for near in self._ranked(resource, mask):
            chosen = self._add(resource, chosen, near, self.wanted[resource])
        for identity in chosen:
            del self._places[resource][identity]
        return tuple(sorted(chosen, key=self._order[resource].__getitem__))

    def _add(self, resource: str, chosen: list[str], near: list[str], count: int) -> list[str]:
        """Return `chosen` and as many of `near` as fit."""
        if len(chosen) + len(near) <= count:
            return chosen + near
        from alignup.providers.devices.inventory import PreferredSets  # noqa: PLC0415  # startup counts

        sets = PreferredSets(self._preferred_sets.get(resource, ()))
        together = set(sets.preferred_allocation(near, [], count - len(chosen)))
        joined = [ids for ids in sets.sets if ids <= together]
        # PreferredSets fills up in alphabetical order; here the other devices follow the order of
        # the inventory
        first = [identity for identity in near if any(identity in ids for ids in joined)]
        return (chosen + first + [identity for identity in near if identity not in first])[:count]

    def _ranked(self, resource: str, mask: int) -> list[list[str]]:
        """Return the ids of a resource's devices that no part has, those as far from some nodes together."""
        ranked: dict[int, list[str]] = {}
        for identity, place in self._places[resource].items():
            ranked.setdefault(self._distance(mask, place), []).append(identity)
        return [near for _, near in sorted(ranked.items())]

    def _distance(self, mask: int, place: int) -> int:
        """Return how far a device is from the nodes of a part; one without a place comes after those on them."""
        if not place:
            return _SAME_NODE + 1
        return min(
            distance(self.machine, i, j) for i in bit_numbers(mask) for j in bit_numbers(place)
        )

    def inventory_order(self, devices: Mapping[str, tuple[str, ...]]) -> tuple[int, ...]:
        """Return the positions of a part's devices, by resource."""
        return tuple(
            self._order[resource][identity] for resource, ids in devices.items() for identity in ids
        )


def _drafts(remaining: _Remaining, parts: int, share: _Share) -> list[_Draft]:
    """Take all parts: first those that fit into one node with devices, then without, then the others."""
    whole = list(map(len, remaining.cores))
    drafts: list[_Draft] = []
    for rooms in (remaining.local_parts(), [float("inf")] * len(whole)):
        left = [
            limit - sum(draft.mask == 1 << i for draft in drafts) for i, limit in enumerate(rooms)
        ]
        for within_one in (True, False) if remaining.l3_of else (False,):
            while len(drafts) < parts:
                fits = [
                    i
                    for i, cores in enumerate(remaining.cores)
                    if left[i] >= 1
                    and max(map(len, remaining.groups(cores) if within_one else [cores]), default=0)
                    >= share.cores
                ]
                if not fits:
                    break
                # the node of which the largest share is left
                best = max(fits, key=lambda i: (len(remaining.cores[i]) / whole[i], -i))
                left[best] -= 1
                drafts.append(remaining.take(1 << best, share))

    while len(drafts) < parts:
        room = list(map(len, remaining.cores))
        drafts.append(remaining.take(_closest(remaining.machine, room, share.cores), share))

    return drafts


def _closest(machine: Machine, room: Sequence[int], needed: int) -> int:
    """Return the fewest nodes that have as many cores left; of these, those closest to one of them."""
    everywhere = range(len(room))
    size = next(
        size for size in range(1, len(room) + 1) if _largest(room, everywhere, size) >= needed
    )
    best: tuple[int, int] | None = None
    for seed, cores in enumerate(room):
        mask, have, length = 1 << seed, cores, 0
        while cores and have < needed:
            open_nodes = size - mask.bit_count()
            others = [i for i in everywhere if room[i] and not mask >> i & 1]
            # a node is of use if, with it, the nodes that may still follow can hold the rest
            useful = [
                i
                for i in others
                if have + room[i] + _largest(room, [k for k in others if k != i], open_nodes - 1)
                >= needed
            ]
            if open_nodes < 1 or not useful:
                break
            chosen = min((distance(machine, seed, i), -room[i], i) for i in useful)
            mask |= 1 << chosen[2]
            have += room[chosen[2]]
            length += chosen[0]

        if have >= needed and (best is None or (length, mask) < best):
            best = (length, mask)

    return best[1] if best else 0


def _largest(room: Sequence[int], nodes: Iterable[int], count: int) -> int:
    """Return how many cores the `count` roomiest of some nodes have left."""
    return sum(sorted((room[i] for i in nodes), reverse=True)[:count])


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
    return tuple(
        Part(
            rank,
            CPUSet.from_int(cpus),
            ids_of(overlapping(machine.node_cpus, cpus), machine.numa_node_ids),
            share,
            devices,
            len(parts),
        )
        for rank, ((cpus, devices), share) in enumerate(zip(parts, shares, strict=True))
    )
