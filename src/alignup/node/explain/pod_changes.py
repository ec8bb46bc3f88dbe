"""Finds changes to a pod under which it would be admitted: smaller requests, or another shape.

The largest request that would do, resource by resource, and the smallest joint reduction are binary searches over
admissions; where more can fit although less does not (memory groups, whole cores), they may miss it. Other shapes are
a container split into several, whole cores, and Guaranteed instead of Burstable. Whatever is returned was admitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.kubernetes.pod_requests import is_device, is_pinned_memory
from alignup.kubernetes.qos import QOSClass
from alignup.kubernetes.quantity import parse_quantity
from alignup.node.explain.explanation import Suggestion
from alignup.node.explain.manifests import Manifest, amount_of, asked_by, changed, lowered, quantity, split_container

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from alignup.kubernetes.pod import Container, Pod
    from alignup.node.explain.attempts import Attempts


Reduction = tuple[float, Suggestion]
"""The share of the requests that is given up, from 0 to 1, and the suggestion."""

Key = tuple[str, str]
"""(container, resource)."""

MOST_CONTAINERS: Final = 4
SCALE: Final = 64
MEBI: Final = 1 << 20


def reductions(attempts: Attempts, resources: Sequence[str], container: str | None) -> Iterator[Reduction]:
    """Yield the largest request of each resource that would do, or if there is none the smallest joint reduction.

    Args:
        attempts: the node and the pod.
        resources: those to blame.
        container: the one that was refused; None: the pod as a whole.
    """
    if attempts.manifest is None:
        return
    containers = sorted(attempts.pod.all_containers, key=lambda one: one.name != container)
    found = False
    for resource in resources:
        best: Reduction | None = None
        asking = [one for one in containers if amount_of(one, resource)]
        for one in asking[:MOST_CONTAINERS]:
            reduction = _single(attempts, one, resource)
            if reduction is not None and (best is None or reduction[0] < best[0]):
                best = reduction
        if best is not None:
            found = True
            yield best
    if not found:
        joint = _joint(attempts, _requests(containers, resources)) or _joint(attempts, _requests(containers))
        if joint is not None:
            yield joint


def _requests(containers: Iterable[Container], resources: Collection[str] | None = None) -> dict[Key, int]:
    """Return what the containers ask for of some resources; None: of all."""
    return {
        (one.name, resource): amount
        for one in containers
        for resource, amount in asked_by(one).items()
        if resources is None or resource in resources
    }


def _single(attempts: Attempts, container: Container, resource: str) -> Reduction | None:
    """Return the largest amount of one resource in one container that would be admitted."""
    asked = amount_of(container, resource)
    key = (container.name, resource)
    amount = _largest(attempts, {}, key, asked)
    return None if amount is None else _reduction(attempts, {key: asked}, {key: amount})


def _largest(attempts: Attempts, fixed: Mapping[Key, int], key: Key, asked: int) -> int | None:
    """Return the largest amount below what is asked that would be admitted, with other amounts fixed; None for none."""
    step = _step(attempts, key[1])
    step = min(step, asked)
    lowest = 0 if is_device(key[1]) else 1

    def fits(count: int) -> bool:
        return _fits(attempts, {**fixed, key: count * step})

    count = _last(fits, lowest, -(-asked // step) - 1)
    return None if count is None else count * step


def _joint(attempts: Attempts, asked: Mapping[Key, int]) -> Reduction | None:
    """Return a reduction of several requests by one factor, each then raised again as far as it can be."""
    if len(asked) <= 1:
        return None

    def scaled(count: int) -> dict[Key, int]:
        amounts = {}
        for key, amount in asked.items():
            step = min(_step(attempts, key[1]), amount)
            lowest = 0 if is_device(key[1]) else step
            amounts[key] = max(lowest, amount * count // SCALE // step * step)
        return amounts

    count = _last(lambda one: _fits(attempts, scaled(one)), 0, SCALE - 1)
    if count is None:
        return None
    amounts = scaled(count)
    for key, amount in asked.items():
        others = {other: value for other, value in amounts.items() if other != key}
        if _fits(attempts, {**others, key: amount}):
            amounts[key] = amount
        else:
            raised = _largest(attempts, others, key, amount)
            amounts[key] = max(amounts[key], raised or 0)
    if not _fits(attempts, amounts):
        return None
    return _reduction(attempts, asked, {key: value for key, value in amounts.items() if value != asked[key]})


def _last(fits: Callable[[int], bool], lowest: int, highest: int) -> int | None:
    """Return the last number from `lowest` to `highest` that fits, by binary search; None if the first does not."""
    if lowest > highest or not fits(lowest):
        return None
    while lowest < highest:
        middle = (lowest + highest + 1) // 2
        if fits(middle):
            lowest = middle
        else:
            highest = middle - 1
    return lowest


def _fits(attempts: Attempts, amounts: Mapping[Key, int]) -> bool:
    assert attempts.manifest is not None  # noqa: S101  # checked before
    return attempts.with_pod(changed(attempts.manifest, amounts)) is not None


def _step(attempts: Attempts, resource: str) -> int:
    """Return the unit in which a request is lowered: whole cores, whole pages, MiB, or one."""
    if resource == "cpu":
        options = attempts.node.config.cpu_manager_policy_options
        cpu = attempts.node.cpu
        return cpu.ledger.capacity.topology.cpus_per_core if cpu is not None and options.full_pcpus_only else 1
    if resource == "memory":
        return MEBI
    if resource.startswith("hugepages-"):
        return parse_quantity(resource.partition("-")[2], resource) // 10**9
    return 1


def _reduction(attempts: Attempts, asked: Mapping[Key, int], amounts: Mapping[Key, int]) -> Reduction:
    """Return the suggestion of these amounts."""
    assert attempts.manifest is not None  # noqa: S101  # checked before
    lost = max(1 - amount / asked[key] for key, amount in amounts.items())
    text = f"ask for {_words(asked, amounts, named=len(attempts.pod.all_containers) > 1)}"
    return lost, Suggestion("request", text, {"pod": changed(attempts.manifest, amounts)})


def _words(asked: Mapping[Key, int], amounts: Mapping[Key, int], *, named: bool) -> str:
    """Return the changed requests in words, container by container."""
    by_container: dict[str, list[str]] = {}
    for key, amount in amounts.items():
        by_container.setdefault(key[0], []).append(_change(key[1], asked[key], amount))
    parts = [
        f"{' and '.join(words)}{f' in container {container!r}' if named else ''}"
        for container, words in by_container.items()
    ]
    return ", ".join(parts)


def _change(resource: str, asked: int, amount: int) -> str:
    """Return one changed request in words."""
    if not amount:
        return f"no {resource}"
    factor = 1000 if resource == "cpu" else 1
    return f"{quantity(resource, amount * factor)} {resource} instead of {quantity(resource, asked * factor)}"


MOST_PARTS: Final = 8


def node_reductions(attempts: Attempts, resources: Sequence[str]) -> Iterator[Reduction]:
    """Yield the largest request of one container that would do, where the node as a whole has too little left.

    Args:
        attempts: the node and the pod.
        resources: those of which too little is left.
    """
    manifest = attempts.manifest
    if manifest is None or len(resources) != 1 or resources == ("pods",):
        return
    [resource] = resources
    largest = max(attempts.pod.all_containers, key=lambda one: one.requests.get(resource, 0))
    asked = largest.requests.get(resource, 0)
    step = 1 if resource == "cpu" and asked % 1000 else 1000 if resource == "cpu" else _step(attempts, resource)
    if asked < 2 * step:
        return

    def shaped(count: int) -> Manifest:
        return lowered(manifest, largest.name, resource, count * step)

    count = _last(lambda one: attempts.with_pod(shaped(one)) is not None, 1, -(-asked // step) - 1)
    if count is None:
        return
    whom = f" in container {largest.name!r}" if len(attempts.pod.all_containers) > 1 else ""
    text = f"request {quantity(resource, count * step)} {resource} instead of {quantity(resource, asked)}{whom}"
    yield 1 - count * step / asked, Suggestion("request", text, {"pod": shaped(count)})


def shapes(attempts: Attempts, container: str | None) -> Iterator[Suggestion]:
    """Yield shapes that ask for no less and would be admitted.

    Args:
        attempts: the node and the pod.
        container: the one that was refused; None: the pod as a whole.
    """
    if attempts.manifest is None:
        return
    for one in attempts.pod.all_containers:
        if container in (None, one.name):
            yield from _whole_cores(attempts, one)
            if not one.is_init:
                yield from _split(attempts, one)


def _whole_cores(attempts: Attempts, container: Container) -> Iterator[Suggestion]:
    """Yield the request in whole cores where full-pcpus-only wants them."""
    cpu, request = attempts.node.cpu, container.exclusive_cpus
    if cpu is None or not attempts.node.config.cpu_manager_policy_options.full_pcpus_only or not request:
        return
    per_core = cpu.ledger.capacity.topology.cpus_per_core
    whole = -(-request // per_core) * per_core
    assert attempts.manifest is not None  # noqa: S101  # checked before
    manifest = changed(attempts.manifest, {(container.name, "cpu"): whole})
    if whole != request and attempts.with_pod(manifest):
        text = f"ask for whole cores: {whole} cpu instead of {request} in container {container.name!r}"
        yield Suggestion("pod", text, {"pod": manifest})


def _split(attempts: Attempts, container: Container) -> Iterator[Suggestion]:
    """Yield the smallest number of equal containers that would be admitted in place of one."""
    asked = {
        resource: amount
        for resource in ("cpu", *dict(container.memory), *dict(container.devices))
        if (amount := amount_of(container, resource))
    }
    names = {one.name for one in attempts.pod.all_containers}
    counts = {resource: amount for resource, amount in asked.items() if not is_pinned_memory(resource)}
    pages = {resource: amount for resource, amount in asked.items() if is_pinned_memory(resource)}
    if attempts.node.scope_name == "pod" or not counts:
        return
    for parts in range(2, min(MOST_PARTS, len(attempts.node.machine.numa_nodes)) + 1):
        if any(amount % parts for amount in counts.values()) or any(
            amount % (parts << 20) for amount in pages.values()
        ):
            continue
        if names & {f"{container.name}-{number}" for number in range(parts)}:
            return
        share = {resource: amount // parts for resource, amount in asked.items()}
        assert attempts.manifest is not None  # noqa: S101  # checked before
        manifest = split_container(attempts.manifest, container.name, parts, share)
        if attempts.with_pod(manifest):
            each = ", ".join(
                f"{quantity(name, amount * 1000 if name == 'cpu' else amount)} {name}" for name, amount in share.items()
            )
            yield Suggestion(
                "pod", f"split container {container.name!r} into {parts} containers of {each} each", {"pod": manifest}
            )
            return


def pinned_shape(attempts: Attempts) -> Iterator[Suggestion]:
    """Yield the pod as a Guaranteed one with whole CPUs, where QoS class or a fraction keep it in the shared pool."""
    pod, manifest = attempts.pod, attempts.manifest
    if manifest is None or attempts.node.cpu is None:
        return
    amounts: dict[tuple[str, str], int] = {}
    for one in pod.all_containers:
        cpu = max(one.requests.get("cpu", 0), one.limits.get("cpu", 0))
        memory = max(one.requests.get("memory", 0), one.limits.get("memory", 0))
        if not cpu or not memory:
            return  # how much it needs is unknown
        amounts[one.name, "cpu"] = -(-cpu // 1000)
        amounts[one.name, "memory"] = memory
    fraction = any(one.requests.get("cpu", 0) % 1000 for one in pod.all_containers)
    if pod.qos is QOSClass.GUARANTEED and not fraction:
        return
    shape = changed(manifest, amounts)
    admission = attempts.with_pod(shape)
    if admission is None or any(
        one.cpus is None or (one.affinity is not None and not one.affinity.preferred)
        for one in admission.containers.values()
    ):
        return
    how = " and ".join(filter(None, (_equal_amounts(pod), "request whole CPUs" if fraction else "")))
    yield Suggestion("pod", f"{how}: then every container gets CPUs of its own", {"pod": shape})


def _equal_amounts(pod: Pod) -> str:
    """Return in words how requests and limits of CPU and memory become equal; empty where they are."""
    if pod.qos is QOSClass.GUARANTEED:
        return ""
    limited = {name in one.limits for one in pod.all_containers for name in ("cpu", "memory")}
    if limited == {True}:
        return "request as much CPU and memory as the limits say"
    if limited == {False}:
        return "set the limits of CPU and memory to the requests"
    return "set equal requests and limits of CPU and memory"
