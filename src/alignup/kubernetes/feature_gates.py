"""Knows which feature gates of a kubelet are on, and refuses those that its release would.

A kubelet does not start with a gate that its release does not know, with another value for a locked one, or with a
gate on whose needs are off. What each release knows is in `alignup.kubernetes.versions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from alignup.errors import ConfigError
from alignup.kubernetes.versions import GateStage, KubeletVersion, release_of
from alignup.text.known_keys import unknown_keys

# The gates of policy options that are not yet stable.
OPTION_GATES: Final = (
    "CPUManagerPolicyAlphaOptions",
    "CPUManagerPolicyBetaOptions",
    "TopologyManagerPolicyAlphaOptions",
    "TopologyManagerPolicyBetaOptions",
)

# The gates that concern the resource managers or what a pod requests; others change no decision here.
MANAGER_GATES: Final = (
    "CPUManagerPolicyOptions",
    "TopologyManagerPolicyOptions",
    *OPTION_GATES,
    "MemoryManager",
    "SidecarContainers",
    "PodLevelResources",
    "PodLevelResourceManagers",
    "PodLevelResourcesFixKubeletQOSClass",
    "PodLevelResourcesFixDefaulting",
    "InPlacePodVerticalScaling",
    "InPlacePodVerticalScalingExclusiveCPUs",
    "InPlacePodVerticalScalingExclusiveMemory",
    "DRANodeAllocatableResources",
)

# The gates that set all gates of a stage, with that stage.
ALL_OF: Final = {"AllAlpha": "alpha", "AllBeta": "beta"}


def effective_gates(
    given: Mapping[str, bool] | None, version: KubeletVersion, *, option_gates_on: bool = False
) -> dict[str, bool]:
    """Return which of `MANAGER_GATES` are on; those that the release does not know are missing.

    Args:
        given: the gates that a configuration sets; None: none.
        version: the release.
        option_gates_on: where nothing is given, let `OPTION_GATES` be on.

    Raises:
        ConfigError: a gate is locked, or not known to this release; the kubelet's words.
    """
    on = _all_gates(given or {}, _manager_gates(version))
    if given is None:
        return on | dict.fromkeys(OPTION_GATES, True) if option_gates_on else on
    for complaint in _complaints({name: given[name] for name in MANAGER_GATES if name in given}, version):
        raise ConfigError(complaint)
    return on


def gate_is_on(name: str, given: Mapping[str, bool], version: KubeletVersion) -> bool:
    """Return whether any gate is on, of a configuration that sets these gates; off where the release lacks it."""
    return _all_gates(given, release_of(version).gates).get(name, False)


def gate_complaints(given: Mapping[str, bool], version: KubeletVersion) -> Iterator[str]:
    """Yield a sentence for each reason beside the managers' own gates for which a kubelet refuses some gates.

    Args:
        given: the gates that a configuration sets.
        version: the kubelet's release.
    """
    release = release_of(version)
    yield from _complaints({name: value for name, value in given.items() if name not in MANAGER_GATES}, version)
    on = _all_gates(given, release.gates)
    for name, needed in sorted(release.needs.items()):
        off = [one for one in needed if not on.get(one)]
        if on.get(name) and off:
            yield (
                f"{name} is enabled, but depends on features that are disabled: [{' '.join(off)}] "
                f"(featureGates of kubelet {version})"
            )


@cache
def _manager_gates(version: KubeletVersion) -> Mapping[str, GateStage]:
    """Return those of `MANAGER_GATES` that a release knows."""
    known = release_of(version).gates
    return {name: known[name] for name in MANAGER_GATES if name in known}


def _complaints(given: Mapping[str, bool], version: KubeletVersion) -> Iterator[str]:
    """Yield a sentence, in a kubelet's words, for each gate that its release does not know or has locked."""
    known = release_of(version).gates
    for name, close in unknown_keys(sorted(given), (*known, *ALL_OF)):
        hint = f"; {close} is one" if close and name not in MANAGER_GATES else ""
        yield f"unrecognized feature gate: {name} (featureGates of kubelet {version}){hint}"
    for name in sorted(given.keys() & known.keys()):
        stage = known[name]
        if stage.is_locked and given[name] != stage.is_on:
            yield (
                f"cannot set feature gate {name} to {str(given[name]).lower()}, feature is locked to "
                f"{str(stage.is_on).lower()} (featureGates of kubelet {version})"
            )


def _all_gates(given: Mapping[str, bool], known: Mapping[str, GateStage]) -> dict[str, bool]:
    """Return which gates are on, of all that the release knows."""
    on = {name: stage.is_on for name, stage in known.items()}
    for name, maturity in ALL_OF.items():
        if name in given:
            on.update({gate: given[name] for gate, stage in known.items() if stage.maturity == maturity})
    return on | {name: value for name, value in given.items() if name in known}
