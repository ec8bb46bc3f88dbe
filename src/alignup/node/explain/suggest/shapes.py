"""Finds other shapes of the same pod: a container split into several, whole cores, Guaranteed instead of Burstable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.kubernetes.pod_requests import is_pinned_memory
from alignup.kubernetes.qos import QOSClass
from alignup.node.explain.explanation import Suggestion
from alignup.node.explain.suggest.manifests import amount_of, changed, quantity, split_container

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alignup.kubernetes.pod import Container
    from alignup.node.explain.suggest.attempts import Attempts

__all__ = ["pinned_shape", "shapes"]

MOST_PARTS: Final = 8


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
                f"{quantity(name, amount * 1000 if name == 'cpu' else amount)} {name}"
                for name, amount in share.items()
            )
            yield Suggestion(
                "pod",
                f"split container {container.name!r} into {parts} containers of {each} each",
                {"pod": manifest},
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
            return  # nobody can say how much it needs
        amounts[one.name, "cpu"] = -(-cpu // 1000)
        amounts[one.name, "memory"] = memory
    fraction = any(one.requests.get("cpu", 0) % 1000 for one in pod.all_containers)
    if pod.qos is QOSClass.GUARANTEED and not fraction:
        return
    shape = changed(manifest, amounts)
    admission = attempts.with_pod(shape)
    if admission is None or any(one.cpus is None for one in admission.containers.values()):
        return
    what = "request as much CPU and memory as the limits say" if pod.qos is not QOSClass.GUARANTEED else ""
    whole = "ask for whole CPUs" if fraction else ""
    how = " and ".join(filter(None, (what, whole)))
    yield Suggestion("pod", f"{how}: then every container gets CPUs of its own", {"pod": shape})
