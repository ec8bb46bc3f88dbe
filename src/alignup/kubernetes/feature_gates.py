"""Knows the feature gates of kubelets: in which release each is on, locked or gone, and which gates need others.

A kubelet does not start with a gate that its release does not know, with another value for a locked one, or with a
gate on whose needs are off. `FEATURE_GATES` are those of the resource managers; all others are in
`gate_data/other_gates.json`, as the kubelets themselves list them.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from alignup.errors import ConfigError
from alignup.kubernetes.versions import NEWEST, OLDEST, KubeletVersion
from alignup.records import Record
from alignup.text.known_keys import unknown_keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from alignup.kubernetes.wire import GatesWire

__all__ = [
    "ALL_OF",
    "FEATURE_GATES",
    "OPTION_GATES",
    "GateStage",
    "effective_gates",
    "gate_complaints",
    "gate_stage",
    "gates_of",
    "in_release",
    "not_followed",
    "refused_value",
    "unrecognized",
]


class GateStage(Record):
    """The stage and default of a gate from some release on."""

    first: KubeletVersion
    maturity: str
    """`alpha`, `beta`, `GA`, or `gone`."""
    is_on: bool = False
    """By default."""
    is_locked: bool = False
    """It cannot be set to anything but its default."""


def _stages(*stages: tuple[int, str, bool, bool]) -> tuple[GateStage, ...]:
    return tuple(
        GateStage(KubeletVersion(minor), maturity, is_on, is_locked)
        for minor, maturity, is_on, is_locked in stages
    )


_FROM: Final = OLDEST.minor
FEATURE_GATES: Final[dict[str, tuple[GateStage, ...]]] = {
    "CPUManagerPolicyOptions": _stages((_FROM, "beta", True, False), (33, "GA", True, True)),
    "CPUManagerPolicyAlphaOptions": _stages((_FROM, "alpha", False, False)),
    "CPUManagerPolicyBetaOptions": _stages((_FROM, "beta", True, False)),
    "TopologyManagerPolicyOptions": _stages(
        (_FROM, "beta", True, False), (32, "GA", True, False), (36, "GA", True, True)
    ),
    "TopologyManagerPolicyAlphaOptions": _stages((_FROM, "alpha", False, False)),
    "TopologyManagerPolicyBetaOptions": _stages((_FROM, "beta", True, False)),
    "MemoryManager": _stages(
        (_FROM, "beta", True, False), (32, "GA", True, True), (36, "gone", False, False)
    ),
    "SidecarContainers": _stages((_FROM, "beta", True, False), (33, "GA", True, True)),
    "PodLevelResources": _stages((32, "alpha", False, False), (34, "beta", True, False)),
    "PodLevelResourceManagers": _stages((36, "alpha", False, False)),
    "InPlacePodVerticalScaling": _stages(
        (_FROM, "alpha", False, False), (33, "beta", True, False), (35, "GA", True, True)
    ),
    "InPlacePodVerticalScalingExclusiveCPUs": _stages((32, "alpha", False, False)),
    "InPlacePodVerticalScalingExclusiveMemory": _stages((34, "alpha", False, False)),
}
"""By name, the stages in ascending order; source: `pkg/features/kube_features.go` of each release."""

OPTION_GATES: Final = (
    "CPUManagerPolicyAlphaOptions",
    "CPUManagerPolicyBetaOptions",
    "TopologyManagerPolicyAlphaOptions",
    "TopologyManagerPolicyBetaOptions",
)
"""The gates of policy options that are not yet stable."""

ALL_OF: Final = {"AllAlpha": "alpha", "AllBeta": "beta"}
"""The gates that set all gates of a stage, with that stage."""

_NOT_FOLLOWED: Final = {
    "SidecarContainers": (
        False,
        "pods with restartable init containers, which that kubelet refuses, are judged as with it on",
    ),
    "PodLevelResourceManagers": (
        True,
        "pods with resources of their own are judged as with it off: their containers share CPUs and memory",
    ),
}
"""Gates with the value under which kubelets decide something that is not modelled, and what is done instead."""


def gate_stage(name: str, version: KubeletVersion = NEWEST) -> GateStage | None:
    """Return how a gate of `FEATURE_GATES` is in a release; None where the release does not know it."""
    return in_release(FEATURE_GATES.get(name, ()), version)


def in_release(stages: Sequence[GateStage], version: KubeletVersion) -> GateStage | None:
    """Return the stage of a gate in a release, of its stages in ascending order; None: the release lacks it."""
    found = None
    for stage in stages:
        if stage.first <= version:
            found = stage
    return None if found is None or found.maturity == "gone" else found


def not_followed(gates: Mapping[str, bool], version: KubeletVersion) -> Iterator[str]:
    """Yield a sentence for each gate whose value makes that kubelet decide something that is not modelled here.

    Args:
        gates: which gates are on, as `effective_gates` returns them.
        version: the kubelet's release.
    """
    for name, (value, instead) in _NOT_FOLLOWED.items():
        if gates.get(name) is value:
            yield f"the feature gate {name}={str(value).lower()} of kubelet {version} is not followed: {instead}"


def unrecognized(name: str, version: KubeletVersion) -> str:
    """Return a kubelet's words for a gate that its release does not know."""
    return f"unrecognized feature gate: {name} (featureGates of kubelet {version})"


def refused_value(name: str, value: bool, stage: GateStage, version: KubeletVersion) -> str:
    """Return a kubelet's words for another value of a locked gate."""
    wanted, fixed = str(value).lower(), str(stage.is_on).lower()
    return (
        f"cannot set feature gate {name} to {wanted}, feature is locked to {fixed} "
        f"(featureGates of kubelet {version})"
    )


def effective_gates(
    given: Mapping[str, bool] | None, version: KubeletVersion, *, option_gates_on: bool = False
) -> dict[str, bool]:
    """Return which of the gates of a release are on.

    Args:
        given: the gates that a configuration sets; None: none.
        version: the release.
        option_gates_on: where nothing is given, let `OPTION_GATES` be on.

    Raises:
        ConfigError: a gate is locked, or not known to this release; the kubelet's words.
    """
    stages = {name: stage for name in FEATURE_GATES if (stage := gate_stage(name, version)) is not None}
    on = {name: stage.is_on for name, stage in stages.items()}
    if given is None:
        return on | dict.fromkeys(OPTION_GATES, True) if option_gates_on else on
    for name, maturity in ALL_OF.items():
        if name in given:
            on.update({gate: given[name] for gate, stage in stages.items() if stage.maturity == maturity})
    for name in sorted(FEATURE_GATES.keys() & given.keys()):
        stage = stages.get(name)
        if stage is None:
            raise ConfigError(unrecognized(name, version))
        if stage.is_locked and given[name] != stage.is_on:
            raise ConfigError(refused_value(name, given[name], stage, version))
        on[name] = given[name]
    return on


@lru_cache(maxsize=1)
def _data() -> GatesWire:
    """Return what is in the file of all other gates."""
    import msgspec  # noqa: PLC0415  # slow to import, as the others here; few configurations set gates

    from alignup.kubernetes.wire import GatesWire  # noqa: PLC0415

    with open(f"{__file__.rpartition('/')[0]}/gate_data/other_gates.json", "rb") as file:  # noqa: PTH123  # as pathlib
        return msgspec.json.decode(file.read(), type=GatesWire)


@cache
def gates_of(version: KubeletVersion) -> Mapping[str, GateStage]:
    """Return all feature gates that the kubelet of a release knows, by name."""
    known = {
        name: tuple(
            GateStage(KubeletVersion(minor), maturity, is_on, is_locked)
            for minor, maturity, is_on, is_locked in stages
        )
        for name, stages in _data().gates.items()
    }
    found = {name: in_release(stages, version) for name, stages in {**known, **FEATURE_GATES}.items()}
    return {name: stage for name, stage in sorted(found.items()) if stage is not None}


def gate_complaints(given: Mapping[str, bool], version: KubeletVersion) -> Iterator[str]:
    """Yield a sentence for each reason beside the managers' own gates for which a kubelet refuses some gates.

    Args:
        given: the gates that a configuration sets.
        version: the kubelet's release.
    """
    known = gates_of(version)
    for name, close in unknown_keys(sorted(given), (*known, *ALL_OF)):
        if name not in FEATURE_GATES:
            yield unrecognized(name, version) + (f"; {close} is one" if close else "")
    for name in sorted(given.keys() & known.keys() - FEATURE_GATES.keys()):
        if known[name].is_locked and given[name] != known[name].is_on:
            yield refused_value(name, given[name], known[name], version)
    on = _all_gates(given, known)
    for name, needed in sorted(_data().needs.get(version.minor, {}).items()):
        off = [one for one in needed if not on.get(one)]
        if on.get(name) and off:
            yield (
                f"{name} is enabled, but depends on features that are disabled: [{' '.join(off)}] "
                f"(featureGates of kubelet {version})"
            )


def _all_gates(given: Mapping[str, bool], known: Mapping[str, GateStage]) -> dict[str, bool]:
    """Return which gates are on, of all that the release knows."""
    on = {name: stage.is_on for name, stage in known.items()}
    for name, maturity in ALL_OF.items():
        if name in given:
            on.update({gate: given[name] for gate, stage in known.items() if stage.maturity == maturity})
    return on | {name: value for name, value in given.items() if name in known}
