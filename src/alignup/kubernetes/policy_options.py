"""Knows the options of the CPU manager's and the Topology Manager's policies: their stage in each release.

Refuses those that a kubelet of some release does not know or has not enabled, in its words. Values are read in
`alignup.kubernetes.option_values`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from alignup.errors import ConfigError, one_line
from alignup.kubernetes.versions import NEWEST, OLDEST, KubeletVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "CPU_FAMILY",
    "CPU_OPTIONS",
    "CPU_OPTION_STAGES",
    "TOPOLOGY_FAMILY",
    "TOPOLOGY_OPTIONS",
    "TOPOLOGY_OPTION_STAGES",
    "OptionFamily",
    "check_available",
    "option_stage",
]

_Stages = tuple[tuple[int, str], ...]
_FROM: Final = OLDEST.minor

CPU_OPTION_STAGES: Final[dict[str, _Stages]] = {
    "full-pcpus-only": ((_FROM, "beta"), (33, "GA")),
    "distribute-cpus-across-numa": ((_FROM, "alpha"), (33, "beta")),
    "align-by-socket": ((_FROM, "alpha"),),
    "distribute-cpus-across-cores": ((31, "alpha"),),
    "strict-cpu-reservation": ((32, "alpha"), (33, "beta"), (35, "GA")),
    "prefer-align-cpus-by-uncorecache": ((32, "alpha"), (34, "beta"), (36, "GA")),
}
"""By name, (first minor, stage) in ascending order; source: `cpumanager/policy_options.go` of each release."""

TOPOLOGY_OPTION_STAGES: Final[dict[str, _Stages]] = {
    "prefer-closest-numa-nodes": ((_FROM, "beta"), (32, "GA")),
    "max-allowable-numa-nodes": ((31, "beta"), (35, "GA")),
}
"""The same of `topologymanager/policy_options.go`."""

CPU_OPTIONS: Final = tuple(CPU_OPTION_STAGES)
TOPOLOGY_OPTIONS: Final = tuple(TOPOLOGY_OPTION_STAGES)


@dataclass(frozen=True, slots=True)
class OptionFamily:
    """The options of one manager."""

    stages: Mapping[str, _Stages]
    words: str
    """The manager's name in a kubelet's messages."""
    gate: str
    """The gate of all options; those of alpha and beta ones have Alpha and Beta before its last word."""
    requirement: str
    """The words of a kubelet before the options if the gate is off, and after them."""

    def gate_of(self, stage: str) -> str:
        """Return the gate of alpha or beta options."""
        return self.gate.replace("PolicyOptions", f"Policy{stage.title()}Options")


CPU_FAMILY: Final = OptionFamily(
    CPU_OPTION_STAGES,
    "CPU Manager",
    "CPUManagerPolicyOptions",
    'CPU Manager policy options {} require feature gates "CPUManager", "CPUManagerPolicyOptions" enabled',
)
TOPOLOGY_FAMILY: Final = OptionFamily(
    TOPOLOGY_OPTION_STAGES,
    "Topology Manager",
    "TopologyManagerPolicyOptions",
    'topology manager policy options {} require feature gates "TopologyManagerPolicyOptions" enabled',
)


def option_stage(stages: _Stages, version: KubeletVersion = NEWEST) -> str | None:
    """Return `alpha`, `beta` or `GA`; None where the release does not know the option."""
    found = None
    for first, stage in stages:
        if KubeletVersion(first) <= version:
            found = stage
    return found


def check_available(
    family: OptionFamily,
    options: Mapping[str, object],
    version: KubeletVersion,
    gates: Mapping[str, bool],
    where: str,
) -> None:
    """Refuse options that a kubelet does not start with; the first by name is reported.

    Args:
        family: the manager.
        options: names and values.
        version: the kubelet's release.
        gates: which gates are on, as `effective_gates` returns them.
        where: the place that an error names.

    Raises:
        ConfigError: an option is not known to this release, or its gate is off; the kubelet's words.
    """
    if options and not gates[family.gate]:
        given = " ".join(f"{name}:{options[name]}" for name in sorted(options, key=str))
        raise ConfigError(f"{family.requirement.format(f'map[{given}]')} ({where} of kubelet {version})")
    for name in sorted(options, key=str):
        _check_one(family, name, version, gates, where)


def _check_one(
    family: OptionFamily, name: str, version: KubeletVersion, gates: Mapping[str, bool], where: str
) -> None:
    if name not in family.stages:
        raise ConfigError(
            f'unknown {family.words} Policy option: "{one_line(str(name))}" '
            f"(expected options among {', '.join(_known(family, version))}, got {name!r} at {where})"
        )
    stage = option_stage(family.stages[name], version)
    if stage is None:
        since = KubeletVersion(family.stages[name][0][0])
        raise ConfigError(
            f'unknown {family.words} Policy option: "{name}" '
            f"({where}: kubelet {version} does not know it, {since} and later do)"
        )
    if stage != "GA" and not gates[family.gate_of(stage)]:
        raise ConfigError(
            f'{family.words} Policy {stage.title()}-level Options not enabled, but option "{name}" provided '
            f"({where}: the feature gate {family.gate_of(stage)} of kubelet {version} is off)"
        )


def _known(family: OptionFamily, version: KubeletVersion) -> Iterable[str]:
    """Return the options that a release knows."""
    return (name for name, stages in family.stages.items() if option_stage(stages, version))
