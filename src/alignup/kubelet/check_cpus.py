"""Finds what is wrong with a CPU manager's state: against itself, the machine, the configuration.

Follows `validateState` of `pkg/kubelet/cm/cpumanager/policy_static.go`, and its messages letter for letter.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from alignup.kubelet.findings import finding
from alignup.machine.cpuset import CPUSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alignup.kubelet.cpu_state import CpuState
    from alignup.kubelet.findings import Finding
    from alignup.kubernetes.kubelet_config import KubeletConfig

__all__ = ["check_cpus"]


def check_cpus(
    state: CpuState, file: str, config: KubeletConfig, reserved: CPUSet, cpus: CPUSet | None
) -> Iterator[Finding]:
    """Yield what is wrong.

    Args:
        state: what is written.
        file: its name.
        config: the kubelet's configuration.
        reserved: the CPUs that it reserves.
        cpus: the CPUs of the machine that are online; None: not known.
    """
    if state.policy != config.cpu_manager_policy:
        wanted = config.cpu_manager_policy
        message = f'configured policy "{wanted}" differs from state checkpoint policy "{state.policy}"'
        yield finding("cpu-policy", file, f"written under the policy {state.policy or 'of no name'}", message)
        return
    if config.cpu_manager_policy != "static":
        return
    if not state.shared:
        if state.entries:
            yield finding("cpus-changed", file, "the shared pool is empty", "default cpuset cannot be empty")
        return
    strict = config.cpu_manager_policy_options.strict_cpu_reservation
    yield from _reserved(state, file, reserved, strict=strict)
    yield from _overlaps(state, file)
    if cpus is not None:
        yield from _changed(state, file, CPUSet(cpus - reserved) if strict else cpus)


def _reserved(state: CpuState, file: str, reserved: CPUSet, *, strict: bool) -> Iterator[Finding]:
    """Yield that reserved CPUs are not where they must be."""
    inside = CPUSet(reserved & state.shared)
    if strict and inside:
        yield finding(
            "reserved-cpus",
            file,
            f"CPUs {inside} are reserved and in the shared pool, which strict-cpu-reservation forbids",
            f'some of strictly reserved cpus: "{inside}" are present in defaultCpuSet: "{state.shared}"',
        )
    elif not strict and inside != reserved:
        yield finding(
            "reserved-cpus",
            file,
            f"CPUs {CPUSet(reserved - state.shared)} are reserved now, and were given to containers before",
            f'not all reserved cpus: "{reserved}" are present in defaultCpuSet: "{state.shared}"',
        )


def _overlaps(state: CpuState, file: str) -> Iterator[Finding]:
    """Yield CPUs that are in the shared pool and a container's, or two pods'."""
    for uid, containers in state.entries.items():
        for name, cpus in containers.items():
            both = CPUSet(cpus & state.shared)
            if both:
                yield finding(
                    "cpu-overlap",
                    file,
                    f"CPUs {both} of container {name} of pod {uid} are in the shared pool too",
                    f'pod: {uid}, container: {name} cpuset: "{cpus}" overlaps with default cpuset "{state.shared}"',
                )
    pods = [
        (uid, CPUSet(cpu for cpus in containers.values() for cpu in cpus))
        for uid, containers in state.entries.items()
    ]
    for (one, mine), (other, theirs) in combinations(pods, 2):
        if int(mine) & int(theirs):
            yield finding(
                "cpus-given-twice",
                file,
                f"CPUs {CPUSet(mine & theirs)} are both pod {one}'s and pod {other}'s",
            )


def _changed(state: CpuState, file: str, cpus: CPUSet) -> Iterator[Finding]:
    """Yield that the machine's CPUs are not those of the state."""
    known = int(state.shared)
    for containers in state.entries.values():
        for one in containers.values():
            known |= int(one)
    for one in state.pods.values():
        known |= int(one)
    written = CPUSet.from_int(known)
    if written == cpus:
        return
    gone, more = CPUSet(written - cpus), CPUSet(cpus - written)
    words = [
        f"{words} {some}"
        for some, words in ((gone, "the machine has no CPUs"), (more, "nobody holds or shares CPUs"))
        if some
    ]
    yield finding(
        "cpus-changed",
        file,
        " and ".join(words),
        f'current set of available CPUs "{cpus}" doesn\'t match with CPUs in state "{written}"',
    )
