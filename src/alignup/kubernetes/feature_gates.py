"""Knows the feature gates of kubelets that concern the resource managers: in which release each is on, locked or gone.

Checks the `featureGates` of a configuration as a kubelet of that release would. Other gates are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from alignup.errors import ConfigError
from alignup.kubernetes.versions import NEWEST, OLDEST, KubeletVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FEATURE_GATES", "OPTION_GATES", "GateStage", "effective_gates", "gate_stage"]


@dataclass(frozen=True, slots=True)
class GateStage:
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
        (_FROM, "alpha", False, False), (33, "beta", True, False), (35, "GA", True, False)
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

_ALL_OF: Final = {"AllAlpha": "alpha", "AllBeta": "beta"}


def gate_stage(name: str, version: KubeletVersion = NEWEST) -> GateStage | None:
    """Return how a gate is in a release; None where the release does not know it."""
    found = None
    for stage in FEATURE_GATES.get(name, ()):
        if stage.first <= version:
            found = stage
    return None if found is None or found.maturity == "gone" else found


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
    for name, maturity in _ALL_OF.items():
        if name in given:
            on.update({gate: given[name] for gate, stage in stages.items() if stage.maturity == maturity})
    for name in sorted(FEATURE_GATES.keys() & given.keys()):
        stage = stages.get(name)
        if stage is None:
            raise ConfigError(f"unrecognized feature gate: {name} (featureGates of kubelet {version})")
        if stage.is_locked and given[name] != stage.is_on:
            wanted, fixed = str(given[name]).lower(), str(stage.is_on).lower()
            raise ConfigError(
                f"cannot set feature gate {name} to {wanted}, feature is locked to {fixed} "
                f"(featureGates of kubelet {version})"
            )
        on[name] = given[name]
    return on
