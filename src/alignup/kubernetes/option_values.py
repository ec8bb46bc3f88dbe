"""Reads the values of the options of the CPU manager's and the Topology Manager's policies, as strings in Go are read.

Which release knows which option is in `alignup.kubernetes.policy_options`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import ConfigError, InputError
from alignup.kubernetes.policy_options import CPU_OPTIONS, TOPOLOGY_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "DEFAULT_MAXIMUM",
    "CpuOptions",
    "TopologyOptions",
    "parse_cpu_options",
    "parse_topology_options",
    "set_options",
]

DEFAULT_MAXIMUM: Final = 8
"""NUMA nodes that a kubelet allows without max-allowable-numa-nodes, which must not be smaller."""
_EXCLUSIVE: Final = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
# the words of Go's strconv.ParseBool
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


@dataclass(frozen=True, slots=True)
class TopologyOptions:
    """The options of the Topology Manager's policies."""

    prefer_closest_numa_nodes: bool = False
    max_allowable_numa_nodes: int = DEFAULT_MAXIMUM


@dataclass(frozen=True, slots=True)
class CpuOptions:
    """The options of the CPU manager's static policy."""

    full_pcpus_only: bool = False
    distribute_cpus_across_numa: bool = False
    align_by_socket: bool = False
    distribute_cpus_across_cores: bool = False
    strict_cpu_reservation: bool = False
    prefer_align_cpus_by_uncorecache: bool = False


def parse_topology_options(
    options: Mapping[str, Any], where: str = "topologyManagerPolicyOptions"
) -> TopologyOptions:
    """Return the options of a Topology Manager policy.

    Args:
        options: names and values as in a KubeletConfiguration; values are strings.
        where: the place that an error names.

    Raises:
        InputError: a value is not a string.
        ConfigError: an option is not known, or its value is not one that it takes.
    """
    _check_options(options, TOPOLOGY_OPTIONS, where)
    maximum = options.get("max-allowable-numa-nodes", str(DEFAULT_MAXIMUM))
    if not _WHOLE_NUMBER.fullmatch(maximum) or int(maximum) < DEFAULT_MAXIMUM:
        expected = f"a whole number of at least {DEFAULT_MAXIMUM}"
        raise ConfigError.at(f'{where}["max-allowable-numa-nodes"]', expected, maximum)
    return TopologyOptions(
        prefer_closest_numa_nodes=_flag(options, "prefer-closest-numa-nodes", where),
        max_allowable_numa_nodes=int(maximum),
    )


def parse_cpu_options(options: Mapping[str, Any], where: str = "cpuManagerPolicyOptions") -> CpuOptions:
    """Return the options of the CPU manager's static policy.

    Args:
        options: names and values as in a KubeletConfiguration; values are strings.
        where: the place that an error names.

    Raises:
        InputError: a value is not a string.
        ConfigError: an option is not known, its value is not one that it takes, or two exclude each other.
    """
    _check_options(options, CPU_OPTIONS, where)
    flags = {name: _flag(options, name, where) for name in CPU_OPTIONS}
    for one, other in _EXCLUSIVE:
        if flags[one] and flags[other]:
            raise ConfigError(f"expected at most one of {one} and {other}, got both at {where}")
    return CpuOptions(**{name.replace("-", "_"): value for name, value in flags.items()})


def _check_options(options: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    """Refuse options that are not known, and values that are not strings; the first by name is reported."""
    for name in sorted(options, key=str):
        if name not in known:
            raise ConfigError.at(where, f"options among {', '.join(known)}", name)
        if not isinstance(options[name], str):
            raise InputError.at(f'{where}["{name}"]', 'a string such as "true"', options[name])


def _flag(options: Mapping[str, str], name: str, where: str) -> bool:
    """Return the value of an option that is on or off; off when it is not there."""
    value = options.get(name, "false")
    if value not in _BOOLEANS:
        raise ConfigError.at(f'{where}["{name}"]', '"true" or "false"', value)
    return _BOOLEANS[value]


def set_options(options: TopologyOptions | CpuOptions) -> dict[str, str]:
    """Return the options of a record that are not at their defaults, as a KubeletConfiguration has them."""
    default = type(options)()
    return {
        one.name.replace("_", "-"): str(value).lower()
        for one in fields(options)
        if (value := getattr(options, one.name)) != getattr(default, one.name)
    }
