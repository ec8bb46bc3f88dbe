"""Knows which feature gates of a kubelet are on, and which options of policies it takes.

A kubelet does not start with a gate that its release does not know, with another value for a locked
one, or with a gate on whose needs are off; nor with an option that it does not know or has not
enabled. What each release knows is in `alignup.kubernetes.versions`; refusals are in the kubelet's
words, and values are read as strings in Go are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from alignup.errors import ConfigError, InputError, one_line
from alignup.kubernetes.versions import (
    KNOWN_VERSIONS,
    NEWEST,
    GateStage,
    KubeletVersion,
    is_on_for_good,
    known_names,
    release_of,
)
from alignup.records import Record, Settings
from alignup.text.known_keys import unknown_keys

# NUMA nodes that a kubelet allows without max-allowable-numa-nodes, which must not be smaller.
DEFAULT_MAXIMUM: Final = 8

_EXCLUSIVE: Final = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)

# The words that Go's strconv.ParseBool takes.
GO_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}

# The gates that set all gates of a stage, with that stage.
ALL_OF: Final = {"AllAlpha": "alpha", "AllBeta": "beta"}


class OptionFamily(Record):
    """The options of one manager.

    Attributes:
        kind: `cpu` or `topology`.
        manager: its name in a kubelet's messages.
        gate: the gate of all options; those of alpha and beta ones have Alpha and Beta before its
            last word.
        requirement: the words of a kubelet before the options if the gate is off, and after them.
    """

    kind: str
    manager: str
    gate: str
    requirement: str

    def gate_of(self, stage: str) -> str:
        """Return the gate of alpha or beta options."""
        return self.gate.replace("PolicyOptions", f"Policy{stage.title()}Options")


CPU_FAMILY: Final = OptionFamily(
    "cpu",
    "CPU Manager",
    "CPUManagerPolicyOptions",
    'CPU Manager policy options {} require feature gates "CPUManager", "CPUManagerPolicyOptions" '
    "enabled",
)
TOPOLOGY_FAMILY: Final = OptionFamily(
    "topology",
    "Topology Manager",
    "TopologyManagerPolicyOptions",
    'topology manager policy options {} require feature gates "TopologyManagerPolicyOptions" '
    "enabled",
)


def option_stages(family: OptionFamily, version: KubeletVersion = NEWEST) -> Mapping[str, str]:
    """Return the options that a release knows, each with its stage: `alpha`, `beta` or `GA`."""
    release = release_of(version)
    if family.kind == "cpu":
        return release.cpu_options
    return release.topology_options


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
        ConfigError: an option is not known to this release, or its gate is off; the kubelet's
            words.
    """
    if options and not gates[family.gate]:
        printed = " ".join(f"{name}:{options[name]}" for name in sorted(options, key=str))
        requirement = family.requirement.format(f"map[{printed}]")
        raise ConfigError(f"{requirement} ({where} of kubelet {version.title})")

    stages = option_stages(family, version)
    for name in sorted(options, key=str):
        if name not in stages:
            unknown = f'unknown {family.manager} Policy option: "{one_line(str(name))}"'
            reason = f"expected options among {', '.join(stages)}, got {name!r} at {where}"
            for release in KNOWN_VERSIONS:
                if name in option_stages(family, release):
                    reason = (
                        f"{where}: kubelet {version.title} does not know it, {release.title} and "
                        "later do"
                    )
                    break
            raise ConfigError(f"{unknown} ({reason})")

        stage = stages[name]
        gate = family.gate_of(stage)
        if stage != "GA" and not gates[gate]:
            refusal = f"{family.manager} Policy {stage.title()}-level Options not enabled"
            off = f"the feature gate {gate} of kubelet {version.title} is off"
            raise ConfigError(f'{refusal}, but option "{name}" provided ({where}: {off})')


class TopologyOptions(Settings):
    """The options of the Topology Manager's policies."""

    prefer_closest_numa_nodes: bool = False
    max_allowable_numa_nodes: int = DEFAULT_MAXIMUM


class CpuOptions(Settings):
    """The options of the CPU manager's static policy."""

    full_pcpus_only: bool = False
    distribute_cpus_across_numa: bool = False
    align_by_socket: bool = False
    distribute_cpus_across_cores: bool = False
    strict_cpu_reservation: bool = False
    prefer_align_cpus_by_uncorecache: bool = False


CPU_OPTIONS: Final = tuple(name.replace("_", "-") for name in CpuOptions.__record_fields__)
TOPOLOGY_OPTIONS: Final = tuple(
    name.replace("_", "-") for name in TopologyOptions.__record_fields__
)


def parse_topology_options(options: Mapping[str, Any]) -> TopologyOptions:
    """Return the options of a Topology Manager policy.

    Args:
        options: names and values as in a KubeletConfiguration; values are strings.

    Raises:
        InputError: a value is not a string.
        ConfigError: an option is not known, or its value is not one that it takes.
    """
    where = "topologyManagerPolicyOptions"
    _check_options(options, TOPOLOGY_OPTIONS, where)
    maximum = options.get("max-allowable-numa-nodes", str(DEFAULT_MAXIMUM))
    if not re.fullmatch("[+-]?[0-9]{1,18}", maximum) or int(maximum) < DEFAULT_MAXIMUM:
        expected = f"a whole number of at least {DEFAULT_MAXIMUM}"
        raise ConfigError.at(f'{where}["max-allowable-numa-nodes"]', expected, maximum)

    return TopologyOptions(_flag(options, "prefer-closest-numa-nodes", where), int(maximum))


def parse_cpu_options(options: Mapping[str, Any]) -> CpuOptions:
    """Return the options of the CPU manager's static policy.

    Args:
        options: names and values as in a KubeletConfiguration; values are strings.

    Raises:
        InputError: a value is not a string.
        ConfigError: an option is not known, its value is not one that it takes, or two exclude each
            other.
    """
    where = "cpuManagerPolicyOptions"
    _check_options(options, CPU_OPTIONS, where)
    flags = {name: _flag(options, name, where) for name in CPU_OPTIONS}
    for first, second in _EXCLUSIVE:
        if flags[first] and flags[second]:
            raise ConfigError(f"{first} and {second} exclude each other at {where}")

    return CpuOptions(**{name.replace("-", "_"): value for name, value in flags.items()})


def _check_options(options: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    """Refuse options without these names, and values that are not strings.

    The first by name is reported.
    """
    for name in sorted(options, key=str):
        if name not in names:
            raise ConfigError.at(where, f"options among {', '.join(names)}", name)
        if not isinstance(options[name], str):
            raise InputError.at(f'{where}["{name}"]', 'a string such as "true"', options[name])


def _flag(options: Mapping[str, str], name: str, where: str) -> bool:
    """Return the value of an option that is on or off; off when it is not there."""
    value = options.get(name, "false")
    if value not in GO_BOOLEANS:
        raise ConfigError.at(f'{where}["{name}"]', '"true" or "false"', value)
    return GO_BOOLEANS[value]


def set_options(options: TopologyOptions | CpuOptions) -> dict[str, str]:
    """Return the options of a record that are not at their defaults.

    As a KubeletConfiguration has them.
    """
    default = type(options)()
    changed = [
        name for name in options.__match_args__ if getattr(options, name) != getattr(default, name)
    ]
    return {name.replace("_", "-"): str(getattr(options, name)).lower() for name in changed}


# The gates of policy options that are not yet stable.
OPTION_GATES: Final = tuple(
    family.gate_of(stage) for family in (CPU_FAMILY, TOPOLOGY_FAMILY) for stage in ("alpha", "beta")
)


def effective_gates(
    settings: Mapping[str, bool] | None, version: KubeletVersion, *, option_gates_on: bool = False
) -> dict[str, bool]:
    """Return which of the managers' gates are on; those that the release does not know are missing.

    Args:
        settings: the gates that a configuration sets; None: none.
        version: the release.
        option_gates_on: where there are no settings, let `OPTION_GATES` be on.

    Raises:
        ConfigError: a gate is locked, or not known to this release; the kubelet's words.
    """
    gates = _all_gates(settings or {}, _manager_gates(version))
    if settings is None:
        if option_gates_on:
            gates |= dict.fromkeys(OPTION_GATES, True)
        return gates

    of_managers = {name: settings[name] for name in known_names("managerGates") if name in settings}
    for complaint in _complaints(of_managers, version):
        raise ConfigError(complaint + also_unknown(complaint, settings, version))

    return gates


def gate_is_on(name: str, settings: Mapping[str, bool], version: KubeletVersion) -> bool:
    """Return whether any gate is on, of a configuration that sets these gates.

    A gate that the release lacks is off, unless it went after it was GA.
    """
    stage = release_of(version).gates.get(name)
    if stage is None:
        return is_on_for_good(name, version)
    return _is_on(name, stage, settings)


def also_unknown(complaint: str, settings: Mapping[str, bool], version: KubeletVersion) -> str:
    """Return the end of a refusal: which other gates of a configuration the release lacks.

    A kubelet names one of them, and once it is taken out the next.

    Args:
        complaint: the refusal so far.
        settings: all gates that the configuration sets.
        version: the kubelet's release.

    Returns:
        The end of the sentence; empty: there are no others.
    """
    known = (*release_of(version).gates, *ALL_OF)
    said = complaint.split()
    others = [one_line(name) for name in sorted(settings) if name not in known and name not in said]
    return f"; nor does it know {', '.join(others)}" if others else ""


def gate_complaints(settings: Mapping[str, bool], version: KubeletVersion) -> Iterator[str]:
    """Yield a sentence for each reason for which a kubelet refuses some gates.

    Those about the managers' own gates alone are left out.

    Args:
        settings: the gates that a configuration sets.
        version: the kubelet's release.
    """
    of_managers = known_names("managerGates")
    others = {name: value for name, value in settings.items() if name not in of_managers}
    yield from _complaints(others, version)
    yield from unmet_needs(settings, version, _place(version))


def unmet_needs(settings: Mapping[str, bool], version: KubeletVersion, place: str) -> Iterator[str]:
    """Yield a sentence for each gate that is on without one that it needs, in Kubernetes' words.

    Args:
        settings: the gates that are set.
        version: the release.
        place: what has them, as the sentence names it.
    """
    for name, needs in sorted(release_of(version).needs.items()):
        off = [need for need in needs if not gate_is_on(need, settings, version)]
        if off and gate_is_on(name, settings, version):
            why = f"depends on features that are disabled: [{' '.join(off)}]"
            yield f"{name} is enabled, but {why} ({place})"


def locked_gates(
    settings: Mapping[str, bool], version: KubeletVersion, place: str
) -> Iterator[str]:
    """Yield a sentence for each gate that is set against its lock; see `unmet_needs`."""
    stages = release_of(version).gates
    for name in sorted(settings.keys() & stages.keys()):
        stage = stages[name]
        if stage.is_locked and settings[name] != stage.is_on:
            locked = f"feature is locked to {str(stage.is_on).lower()} ({place})"
            yield f"cannot set feature gate {name} to {str(settings[name]).lower()}, {locked}"


def _place(version: KubeletVersion) -> str:
    """Return where a kubelet's gates are set, as its refusals are completed with."""
    return f"featureGates of kubelet {version.title}"


@cache
def _manager_gates(version: KubeletVersion) -> Mapping[str, GateStage]:
    """Return those of the managers' gates that a release knows."""
    stages = release_of(version).gates
    return {name: stages[name] for name in known_names("managerGates") if name in stages}


def _complaints(settings: Mapping[str, bool], version: KubeletVersion) -> Iterator[str]:
    """Yield a sentence for each gate that a release does not know or has locked.

    They are in a kubelet's words.
    """
    stages = release_of(version).gates
    for name, close in unknown_keys(sorted(settings), (*stages, *ALL_OF)):
        place = _place(version)
        hint = ""
        if is_on_for_good(name, version):
            place += ", where it is on for good"
        elif close and name not in known_names("managerGates"):
            hint = f"; {close} is one"

        yield f"unrecognized feature gate: {name} ({place}){hint}"

    yield from locked_gates(settings, version, _place(version))


def _all_gates(settings: Mapping[str, bool], stages: Mapping[str, GateStage]) -> dict[str, bool]:
    """Return which gates are on, of all that the release knows."""
    return {name: _is_on(name, stage, settings) for name, stage in stages.items()}


def _is_on(name: str, stage: GateStage, settings: Mapping[str, bool]) -> bool:
    """Return whether a gate that the release knows is on."""
    if name in settings:
        return settings[name]

    for gate_set, maturity in ALL_OF.items():
        if stage.maturity == maturity and gate_set in settings:
            return settings[gate_set]

    return stage.is_on
