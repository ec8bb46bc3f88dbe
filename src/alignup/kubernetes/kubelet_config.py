"""KubeletConfiguration: decodes the fields that the resource managers read, and refuses what a kubelet would.

Checks that need the machine (whether the reserved CPUs and NUMA nodes exist) are left to `alignup.node` and the
providers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from alignup.errors import ConfigError, InputError
from alignup.kubernetes.kubelet_fields import check_fields
from alignup.kubernetes.pod_requests import is_pinned_memory
from alignup.kubernetes.quantity import parse_quantity, thousandths, whole_units
from alignup.machine.cpuset import CPUSet
from alignup.text.documents import read_documents
from alignup.text.typed import decode

__all__ = [
    "CPU_OPTIONS",
    "TOPOLOGY_OPTIONS",
    "TOPOLOGY_POLICIES",
    "TOPOLOGY_SCOPES",
    "CpuOptions",
    "KubeletConfig",
    "ReservedMemory",
    "TopologyOptions",
    "load_config",
    "parse_cpu_options",
    "parse_topology_options",
]

TOPOLOGY_POLICIES: Final = ("none", "best-effort", "restricted", "single-numa-node")
TOPOLOGY_SCOPES: Final = ("container", "pod")
TOPOLOGY_OPTIONS: Final = ("prefer-closest-numa-nodes", "max-allowable-numa-nodes")
CPU_OPTIONS: Final = (
    "full-pcpus-only",
    "distribute-cpus-across-numa",
    "align-by-socket",
    "distribute-cpus-across-cores",
    "strict-cpu-reservation",
    "prefer-align-cpus-by-uncorecache",
)

_CPU_POLICIES: Final = ("none", "static")
_MEMORY_POLICIES: Final = ("None", "Static")
_EXCLUSIVE: Final = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)
_SMALLEST_MAXIMUM: Final = 8
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
    max_allowable_numa_nodes: int = _SMALLEST_MAXIMUM


@dataclass(frozen=True, slots=True)
class CpuOptions:
    """The options of the CPU manager's static policy."""

    full_pcpus_only: bool = False
    distribute_cpus_across_numa: bool = False
    align_by_socket: bool = False
    distribute_cpus_across_cores: bool = False
    strict_cpu_reservation: bool = False
    prefer_align_cpus_by_uncorecache: bool = False


@dataclass(frozen=True, slots=True)
class ReservedMemory:
    """The memory that a NUMA node, given by its kernel id, reserves for the system.

    `limits` are (`memory` or `hugepages-<size>`, bytes), by name.
    """

    numa_node: int
    limits: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class KubeletConfig:
    """The fields of a KubeletConfiguration that the resource managers read, with the kubelet's defaults."""

    topology_manager_policy: str = "none"
    topology_manager_scope: str = "container"
    topology_manager_policy_options: TopologyOptions = TopologyOptions()
    cpu_manager_policy: str = "none"
    cpu_manager_policy_options: CpuOptions = CpuOptions()
    reserved_system_cpus: CPUSet = CPUSet()  # noqa: RUF009  # immutable
    reserved_cpu_count: int = 0
    """CPUs that `kubeReserved` and `systemReserved` reserve when `reservedSystemCPUs` names none."""
    memory_manager_policy: str = "None"
    reserved_memory: tuple[ReservedMemory, ...] = ()
    feature_gates: Mapping[str, bool] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, configuration: Mapping[str, Any], source: str = "") -> KubeletConfig:
        """Return the configuration that plain objects describe.

        Options of every maturity are accepted, as if the feature gates of the alpha and beta ones were on.
        Fields that do not matter here are ignored; what is no field of a KubeletConfiguration is warned of.

        Args:
            configuration: fields by their names in a KubeletConfiguration.
            source: where it stands, for warnings.

        Raises:
            InputError: a field is of the wrong type, or named as the attributes of this class are.
            ConfigError: a kubelet would refuse to start with it.
        """
        if not isinstance(configuration, Mapping):
            raise InputError.at(source or "the configuration", "a mapping of fields", configuration)
        check_fields(configuration, _FIELDS, source)
        wire = decode(configuration, _Configuration)
        if wire.kind is not None and wire.kind != "KubeletConfiguration":
            raise InputError.at("kind", "KubeletConfiguration", wire.kind)
        policy = _one_of(TOPOLOGY_POLICIES, wire.topology_manager_policy, "topologyManagerPolicy")
        # the kubelet looks at neither options nor scope under policy none, but its validation at the scope
        topology_options = (wire.topology_manager_policy_options or {}) if policy != "none" else {}
        made = cls(
            topology_manager_policy=policy,
            topology_manager_scope=_one_of(
                TOPOLOGY_SCOPES, wire.topology_manager_scope, "topologyManagerScope"
            ),
            topology_manager_policy_options=parse_topology_options(topology_options),
            cpu_manager_policy=_one_of(_CPU_POLICIES, wire.cpu_manager_policy, "cpuManagerPolicy"),
            cpu_manager_policy_options=parse_cpu_options(wire.cpu_manager_policy_options or {}),
            reserved_system_cpus=_reserved_cpus(wire.reserved_system_cpus or ""),
            reserved_cpu_count=_reserved_cpu_count(wire),
            memory_manager_policy=_one_of(
                _MEMORY_POLICIES, wire.memory_manager_policy, "memoryManagerPolicy"
            ),
            reserved_memory=_reserved_memory(wire.reserved_memory or ()),
            feature_gates=wire.feature_gates or {},
        )
        _check_together(made, wire.cpu_manager_policy_options or {})
        return made


class _ReservedMemory(msgspec.Struct, rename="camel"):
    """An entry of reservedMemory on the wire."""

    numa_node: int | None = None
    limits: dict[str, Any] | None = None


class _Configuration(msgspec.Struct, rename="camel"):
    """A KubeletConfiguration on the wire."""

    kind: str | None = None
    topology_manager_policy: str | None = None
    topology_manager_scope: str | None = None
    topology_manager_policy_options: dict[str, Any] | None = None
    cpu_manager_policy: str | None = None
    cpu_manager_policy_options: dict[str, Any] | None = None
    reserved_system_cpus: str | None = msgspec.field(name="reservedSystemCPUs", default=None)
    kube_reserved: dict[str, Any] | None = None
    system_reserved: dict[str, Any] | None = None
    memory_manager_policy: str | None = None
    reserved_memory: list[_ReservedMemory] | None = None
    feature_gates: dict[str, bool] | None = None


_FIELDS: Final = tuple(one.encode_name for one in msgspec.structs.fields(_Configuration))


def load_config(text: str | bytes, source: str) -> KubeletConfig:
    """Return the configuration in a text.

    Args:
        text: one KubeletConfiguration as YAML or JSON.
        source: what an error calls the text, such as a file's name.

    Raises:
        InputError: the text is no YAML or JSON, is not one document, or has a field of the wrong type.
        ConfigError: A kubelet would refuse to start with it.
    """
    documents = [document for document in read_documents(text, source) if document is not None]
    if len(documents) != 1 or not isinstance(documents[0], Mapping):
        what = f"{len(documents)} documents" if len(documents) != 1 else "something that is no mapping"
        raise InputError(f"expected one KubeletConfiguration, got {what} in {source}")
    try:
        return KubeletConfig.from_dict(documents[0], source)
    except InputError as error:
        raise type(error)(f"{error} in {source}") from None


def parse_topology_options(
    options: Mapping[str, Any], where: str = "topologyManagerPolicyOptions"
) -> TopologyOptions:
    """Return the options of a Topology Manager policy.

    Args:
        options: names and values as in a KubeletConfiguration; values are strings.
        where: the place that an error names.

    Raises:
        InputError: A value is not a string.
        ConfigError: an option is not known, or its value is not one that it takes.
    """
    _check_options(options, TOPOLOGY_OPTIONS, where)
    maximum = options.get("max-allowable-numa-nodes", str(_SMALLEST_MAXIMUM))
    if not _WHOLE_NUMBER.fullmatch(maximum) or int(maximum) < _SMALLEST_MAXIMUM:
        expected = f"a whole number of at least {_SMALLEST_MAXIMUM}"
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
        InputError: A value is not a string.
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


def _one_of(known: Sequence[str], value: str | None, where: str) -> str:
    """Return the value, the first of the known ones if there is none."""
    if value and value not in known:
        raise ConfigError.at(where, f"one of {', '.join(known)}", value)
    return value or known[0]


def _reserved_cpus(text: str) -> CPUSet:
    """Return the CPUs that a kubelet's list names; unlike the kernel's, it has no blanks and no strides."""
    where = "reservedSystemCPUs"
    if not set(text) <= set("0123456789,-"):
        raise ConfigError.at(where, 'a CPU list such as "0-3,8"', text)
    try:
        return CPUSet.parse(text, where)
    except InputError as error:
        raise ConfigError(str(error)) from None


def _reserved_cpu_count(wire: _Configuration) -> int:
    """Return how many CPUs are reserved by number only, fractions rounded up."""
    if wire.reserved_system_cpus:
        return 0
    kube = parse_quantity((wire.kube_reserved or {}).get("cpu", 0), "kubeReserved", "cpu")
    system = parse_quantity((wire.system_reserved or {}).get("cpu", 0), "systemReserved", "cpu")
    if kube < 0 or system < 0:
        raise ConfigError.at(
            "kubeReserved and systemReserved", "CPUs that are not negative", min(kube, system)
        )
    return whole_units(thousandths(kube + system) * 10**6)


def _reserved_memory(entries: Sequence[_ReservedMemory]) -> tuple[ReservedMemory, ...]:
    """Return the entries of reservedMemory after the checks of the kubelet's validation."""
    seen: set[tuple[int, str]] = set()
    made: list[ReservedMemory] = []
    for index, entry in enumerate(entries):
        place = f"reservedMemory[{index}]"
        node = entry.numa_node or 0
        if node < 0:
            raise ConfigError.at(f"{place}.numaNode", "the number of a NUMA node", node)
        limits: list[tuple[str, int]] = []
        for resource, value in sorted((entry.limits or {}).items()):
            where = f'{place}.limits["{resource}"]'
            if not is_pinned_memory(resource):
                raise ConfigError.at(f"{place}.limits", "memory or hugepages-<size>", resource)
            amount = whole_units(parse_quantity(value, where))
            if amount <= 0:
                raise ConfigError.at(where, "a quantity above zero", value)
            if (node, resource) in seen:
                raise ConfigError.at(where, f"NUMA node {node} to reserve {resource} once", value)
            seen.add((node, resource))
            limits.append((resource, amount))
        made.append(ReservedMemory(node, tuple(limits)))
    return tuple(made)


def _check_together(config: KubeletConfig, cpu_options: Mapping[str, Any]) -> None:
    """Refuse combinations of fields that are valid by themselves but not together."""
    if config.cpu_manager_policy == "none" and cpu_options:
        expected = "no options next to cpuManagerPolicy none"
        raise ConfigError.at("cpuManagerPolicyOptions", expected, ", ".join(sorted(cpu_options)))
    reserved = {resource for entry in config.reserved_memory for resource, _ in entry.limits}
    if config.memory_manager_policy == "Static" and "memory" not in reserved:
        expected = "memory of at least one NUMA node next to memoryManagerPolicy Static"
        raise ConfigError.at("reservedMemory", expected, sorted(reserved))
    if (
        config.cpu_manager_policy_options.align_by_socket
        and config.topology_manager_policy == "single-numa-node"
    ):
        expected = "another topologyManagerPolicy next to the CPU manager's option align-by-socket"
        raise ConfigError.at("topologyManagerPolicy", expected, config.topology_manager_policy)
