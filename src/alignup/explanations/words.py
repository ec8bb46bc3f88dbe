"""Writes the tables of an explanation as rows of text, for a terminal and for a page alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.kubernetes.policy_options import CPU_FAMILY
from alignup.kubernetes.versions import KNOWN_VERSIONS, release_of
from alignup.machine.cpuset import CPUSet
from alignup.providers.cpu.provider import reserved_by
from alignup.records import replace
from alignup.text.counting import amount_in, named, shared_unit, short_bytes, some_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from alignup.explanations.explanation import (
        ContainerPart,
        Explanation,
        PlacePart,
        ResourcePart,
        Step,
    )
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.node.holdings import MemoryGroup
    from alignup.node.node import Node

RESOURCE_COLUMNS: Final = (
    "resource",
    "asked",
    "offered",
    "NUMA node",
    "there",
    "reserved",
    "free",
    "held by",
)
RESOURCE_NUMBERS: Final = ("asked", "there", "reserved", "free")
NEIGHBOUR_COLUMNS: Final = ("admitted already", "NUMA nodes", "CPUs", "memory", "devices")
# What tells of what is unknown.
SOURCE_OF_DEVICES: Final = "`--devices`"
SOURCE_OF_MEMORY: Final = "`numactl -H`"

MOST_HOLDERS: Final = 4
MOST_NEIGHBOURS: Final = 20
MOST_SETS: Final = 4
# Of the CPU manager: its state file leaves out the reserved CPUs then, and no kubelet starts on it
# once these change.
STRICT: Final = "strict-cpu-reservation"
# What a kubelet does once no CPU is in the shared pool.
EMPTY_POOL: Final = (
    "the shared pool is empty: containers without CPUs of their own run on all CPUs, those that "
    "others have for themselves included"
)
_STOPS: Final = 'the kubelet does not start again ("default cpuset cannot be empty")'
KEEP_POOL: Final = (
    f"to keep CPUs in it, reserve them without {STRICT}, which leaves reserved CPUs in the pool, "
    "or let the pods that share CPUs request them, so that the scheduler does not give all away"
)


def extent_in_words(node: Node, pod: Pod, unknown: Mapping[str, int]) -> str:
    """Return how far a verdict goes on a pod that requests what is not known; empty: all the way.

    Args:
        node: the node.
        pod: the pod.
        unknown: as `Node.unknown_requests` returns it.
    """
    if not unknown:
        return ""

    judged = ["CPUs"]
    if "memory" not in unknown:
        judged.append("memory")

    judged += [resource for resource, _ in pod.devices if resource in node.pools]
    requests = [
        f"{short_bytes(amount) if name == 'memory' else amount} {name}"
        for name, amount in unknown.items()
    ]
    return f"as far as {_listed(judged)} go; {_listed(requests)} unknown here"


def extent_with_help(extent: str, unknown: Mapping[str, int]) -> str:
    """Return how far a verdict goes, to follow it, and what tells of the rest; empty: all the way.

    Args:
        extent: in words.
        unknown: what is not known, by the name of the resource.
    """
    if not extent:
        return ""

    source = SOURCE_OF_MEMORY if unknown.keys() == {"memory"} else SOURCE_OF_DEVICES
    return f", {extent} ({source})"


def _listed(names: Sequence[str]) -> str:
    """Return names as a sentence lists them."""
    *first, last = names
    if not first:
        return last
    return f"{', '.join(first)} and {last}"


def resource_rows(
    resources: Iterable[ResourcePart],
    named_first: Container[str],
    unknown: Container[str] = (),
) -> Iterator[tuple[str, ...]]:
    """Yield what was asked for, which nodes were offered, what was there, and who held it.

    Args:
        resources: what was asked for.
        named_first: pods that are named before others.
        unknown: resources of which nothing is known here.
    """
    for part in resources:
        text_of = amounts_in_words(part)
        request = "" if part.asked is None else text_of(part.asked)
        offer = offered_in_words(part)
        if part.resource in unknown:
            offer = "not known here"

        cells = (part.resource, request, offer)
        for names, place in _equal_places(part.places):
            yield (
                *cells,
                names,
                text_of(place.capacity),
                text_of(place.reserved) if place.reserved else "-",
                text_of(place.free),
                _holders_in_words(place, text_of, named_first),
            )
            cells = ("", "", "")

        if not part.places:
            yield (*cells, "", "", "", "", "")


def _equal_places(places: Iterable[PlacePart]) -> list[tuple[str, PlacePart]]:
    """Return the places that have any of it, equal ones once, with their names.

    `0+1` is one place near two nodes.
    """
    names_of: dict[tuple[bool, PlacePart], list[str]] = {}
    for place in places:
        if place.capacity:
            key = bool(place.numa_nodes), replace(place, numa_nodes=())
            names_of.setdefault(key, []).append("+".join(map(str, place.numa_nodes)))

    named_places = []
    for (is_near, place), names in names_of.items():
        text = "none"
        if is_near:
            each = "each of " if len(names) > 1 else ""
            text = f"{each}{', '.join(names)}"
        named_places.append((text, place))

    return named_places


def amounts_in_words(resource: ResourcePart) -> Callable[[int], str]:
    """Return a function that writes amounts of a resource.

    Bytes are in one unit unless that is too large for them.
    """
    if resource.unit != "bytes":
        return str

    unit = shared_unit([(resource.asked or 0, [place.free for place in resource.places])])

    def text_of(amount: int) -> str:
        if amount * 100 < unit.size:
            return short_bytes(amount)
        return amount_in(unit, amount)

    return text_of


def _why_not_offered(resource: ResourcePart) -> str:
    """Return why no sets of NUMA nodes were offered of a resource; empty: its places tell it."""
    if resource.provider == "claims":
        return "devices of a claim"
    if resource.places:
        return ""
    if resource.unit == "devices" and not resource.provider:
        return "not on this machine: ignored"
    return "not pinned to NUMA nodes here"


def offered_in_words(resource: ResourcePart) -> str:
    """Return the sets of NUMA nodes that a resource was offered on."""
    view = resource.offered
    if view is None:
        return _why_not_offered(resource)
    if view.anywhere:
        return "any"
    if view.is_impossible:
        return "none"

    parts = []
    for sets, count, note in (
        (view.preferred, view.preferred_count, ""),
        (view.other, view.other_count, " (not preferred)"),
    ):
        if not sets:
            continue

        names = " or ".join("+".join(map(str, nodes)) for nodes in sets[:MOST_SETS])
        if count > MOST_SETS:
            names += f" or {count - MOST_SETS} more" if view.is_whole else " or others"
        parts.append(f"{names}{note}")

    return "; ".join(parts)


def _holders_in_words(
    place: PlacePart, text_of: Callable[[int], str], named_first: Container[str]
) -> str:
    """Return who holds some of a resource in one place.

    What a container took over is marked, so that sums add up.
    """
    holders = sorted(place.holders, key=lambda holder: holder.pod not in named_first)
    shown_count = max(MOST_HOLDERS, sum(holder.pod in named_first for holder in holders))
    texts = []
    for holder in holders[:shown_count]:
        reused = ""
        if holder.reused == holder.amount:
            reused = " (reused)"
        elif 0 < holder.reused < holder.amount:
            reused = f" ({text_of(holder.reused)} of them reused)"
        texts.append(f"{holder.pod}/{holder.container} {text_of(holder.amount)}{reused}")

    if len(holders) > shown_count:
        texts.append(f"{len(holders) - shown_count} more")
    return ", ".join(texts) or "-"


def nodes_in_short(nodes: Iterable[int] | None) -> str:
    """Return a set of NUMA nodes in few words; None: any."""
    if nodes is None:
        return "any NUMA node"
    return named("NUMA node", nodes)


def hint_in_words(nodes: Iterable[int] | None, *, preferred: bool, score: int | None = None) -> str:
    """Return a hint in few words, with its score if it has one."""
    notes = []
    if not preferred:
        notes.append("not preferred")
    if score:
        notes.append(f"score {score}")

    if not notes:
        return nodes_in_short(nodes)
    return f"{nodes_in_short(nodes)} ({', '.join(notes)})"


def in_common(step: Step) -> str:
    """Return the results that the merge could reach.

    Empty where nothing was merged, where there are too many, and where a resource was offered on no
    NUMA node: a merge takes such a resource for one of any node, and nobody else does.
    """
    if step.best is None or step.reachable is None:
        return ""
    if any(part.offered is not None and part.offered.is_impossible for part in step.resources):
        return ""

    texts = []
    for choice in step.reachable[:MOST_SETS]:
        nodes = "any"
        if choice.numa_nodes is not None:
            nodes = "+".join(map(str, choice.numa_nodes))
        texts.append(f"{nodes}{' (preferred)' if choice.preferred else ''}")

    more = (step.reachable_count or 0) - MOST_SETS
    if more > 0:
        texts.append(f"{more} more")
    return "; ".join(texts) or "nothing"


def group_in_words(group: MemoryGroup) -> str:
    """Return which NUMA nodes memory binds together, and whose memory it is."""
    pods = some_of(group.pods, MOST_HOLDERS)
    holders = f"the memory of {pods}" if pods else "a binding that a removed pod left behind"
    if len(group.numa_nodes) == 1:
        return (
            f"NUMA node {group.numa_nodes[0]} is not combined with others for memory, because "
            f"of {holders}"
        )

    names = "+".join(map(str, group.numa_nodes))
    if group.usable:
        return f"NUMA nodes {names} supply memory only together, because of {holders}"

    return (
        f"NUMA nodes {names} can no longer supply memory together, although they are still "
        f"tied by {holders}"
    )


def container_columns(explanation: Explanation) -> tuple[str, str, str, str]:
    """Return the headings of `container_rows`."""
    return (
        "container",
        "CPUs",
        "got" if explanation else "allocated, then taken back",
        "better placement missed",
    )


def container_rows(
    explanation: Explanation, containers: Sequence[ContainerPart]
) -> Iterator[tuple[str, ...]]:
    """Yield where the CPUs of some containers come from, and what each got or missed."""
    for container in containers:
        name = container.name
        if container.kind != "container":
            name += f" ({container.kind})"

        cpus = f"{container.exclusive_cpus} exclusive"
        if container.shared_because:
            cpus = f"shared pool: {container.shared_because}"

        yield name, cpus, _got_in_words(container, explanation), container.missed or "-"


def _got_in_words(container: ContainerPart, explanation: Explanation) -> str:
    """Return what a container was given, one thing a line."""
    got = container.got
    if got is None:
        return "-"

    ids = explanation.before.numa_node_ids
    lines = []
    if got.affinity is not None and got.affinity.affinity is not None:
        nodes = (ids[bit] for bit in got.affinity.affinity.bits())
        lines.append(hint_in_words(nodes, preferred=got.affinity.preferred))

    if got.cpus is not None:
        lines.append(f"CPUs {got.cpus}")

    for block in got.memory:
        if block.size:
            nodes_text = nodes_in_short(block.numa_nodes)
            lines.append(f"{block.type} {short_bytes(block.size)} on {nodes_text}")

    for resource, device_ids in sorted(got.devices.items()):
        if device_ids:
            lines.append(f"{resource} {','.join(device_ids)}")

    return "\n".join(lines) or "-"


def neighbour_rows(explanation: Explanation) -> Iterator[tuple[str, ...]]:
    """Yield what the containers of the first pods hold that are admitted already."""
    for holding in explanation.neighbours[:MOST_NEIGHBOURS]:
        cpus = int(holding.cpus or 0)
        nodes = {node for node, bits in explanation.before.node_cpus.items() if bits & cpus}
        nodes |= {node for _, node, _ in holding.blocks}
        yield holding.label, ",".join(map(str, sorted(nodes))) or "-", *holding.cells()


def shared_pool_notes(node: Node, shared_cpus: CPUSet | None, *, is_used: bool) -> tuple[str, ...]:
    """Return what matters of the shared pool of CPUs, in sentences.

    Args:
        node: the node.
        shared_cpus: the pool; None: the node has no static CPU policy.
        is_used: whether some container that is asked about runs there.
    """
    if shared_cpus is None:
        return ()
    if not shared_cpus:
        return f"{EMPTY_POOL}, and {_STOPS}", KEEP_POOL

    reserved = CPUSet.from_int(reserved_by(node.config, node.machine))
    if not is_used or not reserved:
        return ()

    pool = f"containers without CPUs of their own run on CPUs {shared_cpus}"
    if node.config.cpu_manager_policy_options.strict_cpu_reservation:
        return (f"{pool}, without the reserved {reserved} ({STRICT})",)

    inside = CPUSet(reserved & shared_cpus)
    if not inside:
        return ()

    return (f"{pool}, the reserved {inside} included; {_leaving_out(node.config.version)}",)


def _leaving_out(version: KubeletVersion) -> str:
    """Return which option leaves reserved CPUs out of the shared pool, for a release."""
    option = f"the option {STRICT} of the CPU manager"
    stage = release_of(version).cpu_options.get(STRICT)
    if stage is None:
        first = next(later for later in KNOWN_VERSIONS if STRICT in release_of(later).cpu_options)
        return f"{option} leaves them out, from {first} on"
    if stage == "GA":
        return f"{option} leaves them out"

    gate = CPU_FAMILY.gate_of(stage)
    return f"{option} leaves them out ({stage} in {version}, feature gate {gate})"
