"""Decodes the fields of a KubeletConfiguration that the resource managers read.

What a kubelet would refuse is refused. Checks that need the machine (whether the reserved CPUs and
NUMA nodes exist) are left to `alignup.node` and the providers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import ConfigError, InputError, errors_in, one_line, warn
from alignup.kubernetes import policy_options
from alignup.kubernetes.pod import is_pinned_memory
from alignup.kubernetes.policy_options import also_unknown, effective_gates, gate_complaints
from alignup.kubernetes.quantity import (
    in_units_of_each,
    parse_quantity,
    part_of_percentage,
    whole_units,
)
from alignup.kubernetes.versions import (
    NEWEST,
    KubeletVersion,
    VersionProfile,
    is_on_for_good,
    known_names,
    later_fields,
    parse_version,
    profile_of,
)
from alignup.machine.cpuset import CPUSet
from alignup.records import Record, Settings, field, replace
from alignup.text.known_keys import unknown_keys

if TYPE_CHECKING:
    from alignup.kubernetes.wire import ConfigurationWire, ReservedMemoryWire
    from alignup.machine.machine import Machine

TOPOLOGY_POLICIES: Final = ("none", "best-effort", "restricted", "single-numa-node")
TOPOLOGY_SCOPES: Final = ("container", "pod")

KUBELET: Final = "kubelet"
DOCUMENTS: Final = "documents"
READINGS: Final = (KUBELET, DOCUMENTS)

_CPU_POLICIES: Final = ("none", "static")
_MEMORY_POLICIES: Final = ("None", "Static")
_RESERVABLE: Final = ("cpu", "memory", "ephemeral-storage", "pid")
# The only version in which kubelets since 1.10 decode a KubeletConfiguration.
_API_VERSION: Final = "kubelet.config.k8s.io/v1beta1"
_SWAP_BEHAVIOURS: Final = ("NoSwap", "LimitedSwap")
# What `evictionHard` may name (`signalToResource` of pkg/kubelet/eviction).
_SIGNALS: Final = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "allocatableMemory.available",
    "pid.available",
)
_MERGES_EVICTION_DEFAULTS: Final = KubeletVersion(33)
_LARGEST_COUNT: Final = (1 << 31) - 1


class ReservedMemory(Record):
    """The memory that a NUMA node, given by its kernel id, reserves for the system.

    `limits` are (`memory` or `hugepages-<size>`, bytes), by name.
    """

    numa_node: int
    limits: tuple[tuple[str, int], ...]


class NodeReserve(Settings):
    """What a kubelet keeps from the pods of its node as a whole, whatever NUMA node it is on.

    Attributes:
        amounts: the sum of `kubeReserved` and `systemReserved`: CPU in thousandths, all else in
            units.
        eviction_memory: `memory.available` of `evictionHard`: a quantity or a percentage; empty:
            none.
        pods_per_core: 0: any number.
    """

    amounts: Mapping[str, int] = field(default_factory=dict, hash=False)
    eviction_memory: str = "100Mi"
    max_pods: int = 110
    pods_per_core: int = 0


class KubeletConfig(Settings):
    """The fields of a KubeletConfiguration that the resource managers read.

    They have the kubelet's defaults.

    Attributes:
        reserved_cpu_count: CPUs that `kubeReserved` and `systemReserved` reserve when
            `reservedSystemCPUs` names none.
        feature_gates: those that are given; with none, the gates of policy options are on.
        node_reserve: only `whole_verdict` of a node looks at it.
        version: the kubelet's release; a text such as `v1.33.4` is parsed.
        reading: `kubelet`, or `documents`: as the design documents are written where kubelets have
            gone on since.
        profile: the behaviour of this kubelet where releases differ.

    Examples:
        >>> policies = {"topologyManagerPolicy": "restricted", "cpuManagerPolicy": "static"}
        >>> config = KubeletConfig.from_dict(policies)
        >>> config.topology_manager_policy, config.topology_manager_scope
        ('restricted', 'container')
    """

    topology_manager_policy: str = "none"
    topology_manager_scope: str = "container"
    topology_manager_policy_options: policy_options.TopologyOptions = (
        policy_options.TopologyOptions()
    )
    cpu_manager_policy: str = "none"
    cpu_manager_policy_options: policy_options.CpuOptions = policy_options.CpuOptions()
    reserved_system_cpus: CPUSet = CPUSet()
    reserved_cpu_count: int = 0
    memory_manager_policy: str = "None"
    reserved_memory: tuple[ReservedMemory, ...] = ()
    feature_gates: Mapping[str, bool] = field(default_factory=dict, hash=False)
    node_reserve: NodeReserve = NodeReserve()  # immutable
    version: KubeletVersion = NEWEST
    reading: str = KUBELET
    profile: VersionProfile = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the fields, parse the version, and look up what kubelets of that release do.

        Raises:
            InputError: it is no version of a kubelet, or is too old.
            ConfigError: a kubelet of that release would refuse a policy, the scope, the gates, the
                options that are set, or fields next to each other.
        """
        for name, choices in (
            ("topology_manager_policy", TOPOLOGY_POLICIES),
            ("topology_manager_scope", TOPOLOGY_SCOPES),
            ("cpu_manager_policy", _CPU_POLICIES),
            ("memory_manager_policy", _MEMORY_POLICIES),
            ("reading", READINGS),
        ):
            value = getattr(self, name)
            if value not in choices:
                raise ConfigError.at(name, f"one of {', '.join(choices)}", value)

        if (
            self.cpu_manager_policy_options.align_by_socket
            and self.topology_manager_policy == "single-numa-node"
        ):
            expected = (
                "another topologyManagerPolicy next to the CPU manager's option align-by-socket"
            )
            raise ConfigError.at("topologyManagerPolicy", expected, self.topology_manager_policy)

        version = parse_version(self.version, "version")
        gates = effective_gates(self.feature_gates or None, version, option_gates_on=True)
        for family, options in (
            (policy_options.TOPOLOGY_FAMILY, self.topology_manager_policy_options),
            (policy_options.CPU_FAMILY, self.cpu_manager_policy_options),
        ):
            policy_options.check_available(
                family, policy_options.set_options(options), version, gates, family.gate
            )

        profile = profile_of(version, gates)
        if self.reading == DOCUMENTS:
            profile = replace(
                profile, device_hints_over_all_nodes=True, distribution_as_written=True
            )

        # frozen records are set this way while they are being made
        object.__setattr__(self, "version", version)
        object.__setattr__(self, "profile", profile)

    @classmethod
    def from_dict(
        cls,
        configuration: Mapping[str, Any],
        source: str = "",
        *,
        version: KubeletVersion | str = NEWEST,
        option_gates_on: bool = True,
        reading: str = KUBELET,
    ) -> KubeletConfig:
        """Return the configuration that plain objects describe.

        Fields that do not matter here are ignored; what is no field of a KubeletConfiguration is
        warned of.

        Args:
            configuration: fields by their names in a KubeletConfiguration.
            source: where it stands, for warnings.
            version: the kubelet's release.
            option_gates_on: where `featureGates` are missing, accept alpha and beta options as if
                their gates were on, and warn of gates of other parts of the kubelet that it
                refuses; else judge as a kubelet of that release does by default.
            reading: one of `READINGS`; the documents write the scope `Pod`, too.

        Raises:
            InputError: a field is of the wrong type, or named as the attributes of this class are.
            ConfigError: a kubelet would refuse to start with it.
        """
        if not isinstance(configuration, Mapping):
            raise InputError.at(source or "the configuration", "a mapping of fields", configuration)

        from alignup.kubernetes.wire import (  # noqa: PLC0415  # msgspec is slow to import
            CONFIGURATION_FIELDS,
            ConfigurationWire,
        )
        from alignup.text.typed import decode  # noqa: PLC0415  # as above

        release = parse_version(version)
        check_fields(configuration, CONFIGURATION_FIELDS, source, release)
        wire = decode(configuration, ConfigurationWire)

        gates = effective_gates(
            wire.feature_gates or None, release, option_gates_on=option_gates_on
        )
        _check_gates(wire.feature_gates or {}, gates, release, is_strict=not option_gates_on)
        _check_swap(configuration.get("memorySwap"), release)

        _check_kind(wire)

        policy = _choice(TOPOLOGY_POLICIES, wire.topology_manager_policy, "topologyManagerPolicy")
        memory_policy = _choice(_MEMORY_POLICIES, wire.memory_manager_policy, "memoryManagerPolicy")
        if not gates.get("MemoryManager", True):  # without the gate there is no such manager
            memory_policy = "None"

        # the kubelet looks at neither options nor scope under policy none, but its validation at
        # the scope
        topology_options: Mapping[str, Any] = {}
        if policy != "none":
            topology_options = wire.topology_manager_policy_options or {}
        cpu_options = wire.cpu_manager_policy_options or {}
        families = (
            (policy_options.TOPOLOGY_FAMILY, topology_options),
            (policy_options.CPU_FAMILY, cpu_options),
        )
        for family, options in families:
            policy_options.check_available(
                family, options, release, gates, f"{family.kind}ManagerPolicyOptions"
            )

        reserve = _node_reserve(wire, release)
        _check_reserved_cgroups(configuration, wire)
        reserved_cpu_count = 0
        if not wire.reserved_system_cpus:
            reserved_cpu_count = -(-reserve.amounts.get("cpu", 0) // 1000)  # rounded up

        scope = wire.topology_manager_scope
        if scope in {"Pod", "Container"} and reading == DOCUMENTS:
            scope = scope.lower()

        config = cls(
            topology_manager_policy=policy,
            topology_manager_scope=_choice(TOPOLOGY_SCOPES, scope, "topologyManagerScope"),
            topology_manager_policy_options=policy_options.parse_topology_options(topology_options),
            cpu_manager_policy=_choice(_CPU_POLICIES, wire.cpu_manager_policy, "cpuManagerPolicy"),
            cpu_manager_policy_options=policy_options.parse_cpu_options(cpu_options),
            reserved_system_cpus=_reserved_cpus(wire.reserved_system_cpus or ""),
            reserved_cpu_count=reserved_cpu_count,
            memory_manager_policy=memory_policy,
            reserved_memory=_reserved_memory(wire.reserved_memory or ()),
            feature_gates=wire.feature_gates or {},
            node_reserve=reserve,
            version=release,
            reading=reading,
        )

        if config.cpu_manager_policy == "none" and cpu_options:
            expected = "no options next to cpuManagerPolicy none"
            raise ConfigError.at(
                "cpuManagerPolicyOptions", expected, ", ".join(sorted(cpu_options))
            )

        reserved = {resource for entry in config.reserved_memory for resource, _ in entry.limits}
        if config.memory_manager_policy == "Static" and "memory" not in reserved:
            expected = "memory of at least one NUMA node next to memoryManagerPolicy Static"
            raise ConfigError.at("reservedMemory", expected, sorted(reserved))

        return config


def load_config(
    text: str | bytes,
    source: str,
    *,
    version: KubeletVersion | str = NEWEST,
    lenient: bool = False,
    reading: str = KUBELET,
    machine: Machine | None = None,
    reserved_cpus: str = "",
) -> KubeletConfig:
    """Return the configuration in a text.

    What a platform reserves itself is added to what it is given; see
    `alignup.kubernetes.platform_reservations`.

    Args:
        text: one KubeletConfiguration as YAML or JSON, or what holds one; see
            `alignup.kubernetes.config_documents`.
        source: what an error calls the text, such as a file's name.
        version: the kubelet's release; where `featureGates` are missing, its gates have their
            defaults.
        lenient: let options of policies pass whose gates are off by default, and warn of them.
        reading: one of `READINGS`.
        machine: the node's, by whose size some platforms reserve; None: not known.
        reserved_cpus: the CPUs to reserve in place of what the text says, as the kubelet's flag
            `--reserved-cpus`; empty: what it says.

    Raises:
        InputError: the text holds no configuration, or several, or has a field of the wrong type.
        ConfigError: a kubelet would refuse to start with it.
    """
    from alignup.kubernetes.config_documents import (  # noqa: PLC0415  # records need no texts
        read_configuration,
    )
    from alignup.kubernetes.platform_reservations import (  # noqa: PLC0415  # as above
        with_platform_reservation,
    )

    configuration = read_configuration(text, source)
    fields = configuration.fields
    if reserved_cpus:
        fields = {**fields, "reservedSystemCPUs": reserved_cpus}

    with errors_in(source):
        fields = with_platform_reservation(
            fields, configuration.platform, source, machine, lenient=lenient
        )
        return config_from_document(
            fields, source, version=version, lenient=lenient, reading=reading
        )


def config_from_document(
    configuration: Mapping[str, Any],
    source: str,
    *,
    version: KubeletVersion | str = NEWEST,
    lenient: bool = False,
    reading: str = KUBELET,
) -> KubeletConfig:
    """Return the configuration in a document; see `load_config`.

    It is judged with the default gates of its release.

    Raises:
        InputError: a field is of the wrong type.
        ConfigError: a kubelet would refuse to start with it.
    """
    try:
        return KubeletConfig.from_dict(
            configuration, source, version=version, option_gates_on=False, reading=reading
        )
    except ConfigError as error:
        if not lenient:
            raise

        config = KubeletConfig.from_dict(configuration, source, version=version, reading=reading)
        warn(f"accepted, although kubelet {config.version.title} rejects it by default: {error}")
        return config


def _check_kind(wire: ConfigurationWire) -> None:
    """Refuse another object than a KubeletConfiguration, and another version of it.

    Raises:
        InputError: it is another; what says neither is one.
    """
    if wire.kind not in {None, "KubeletConfiguration"}:
        raise InputError.at("kind", "KubeletConfiguration", wire.kind)
    if wire.api_version not in {None, _API_VERSION}:
        raise InputError.at("apiVersion", _API_VERSION, wire.api_version)


def _check_gates(
    settings: Mapping[str, bool],
    gates: Mapping[str, bool],
    version: KubeletVersion,
    *,
    is_strict: bool,
) -> None:
    """Refuse gates that the kubelet refuses, or warn of them.

    Those that are not followed here are warned of, too.

    Args:
        settings: the gates that the configuration sets.
        gates: which of the managers' gates are on.
        version: the kubelet's release.
        is_strict: refuse.

    Raises:
        ConfigError: the kubelet refuses a gate.
    """
    if not settings:
        return

    for complaint in gate_complaints(settings, version):
        if is_strict:
            raise ConfigError(complaint + also_unknown(complaint, settings, version))
        warn(f"accepted, although a kubelet rejects it: {complaint}")

    if gates.get("SidecarContainers") is False:
        warn(
            f"the feature gate SidecarContainers=false of kubelet {version.title} is not followed: "
            "pods with restartable init containers, which that kubelet refuses, are judged as with "
            "it on"
        )


def _check_swap(swap: object, version: KubeletVersion) -> None:
    """Refuse a behaviour with swap that a kubelet without the gate NodeSwap does not know.

    What kubelets that have the gate refuse is not checked.

    Args:
        swap: the field `memorySwap` of the configuration.
        version: the kubelet's release.

    Raises:
        ConfigError: the kubelet refuses it; its words.
    """
    behaviour = swap.get("swapBehavior") if isinstance(swap, Mapping) else None
    if behaviour and behaviour not in _SWAP_BEHAVIOURS and is_on_for_good("NodeSwap", version):
        choices = '"", "LimitedSwap" or "NoSwap"'
        raise ConfigError(
            f'memorySwap.swapBehavior "{one_line(str(behaviour))}" must be one of: {choices} '
            f"(kubelet {version.title})"
        )


def _choice(choices: Sequence[str], value: str | None, where: str) -> str:
    """Return the value, the first of the choices if there is none."""
    if value and value not in choices:
        raise ConfigError.at(where, f"one of {', '.join(choices)}", value)
    return value or choices[0]


def _reserved_cpus(text: str) -> CPUSet:
    """Return the CPUs that a kubelet's list names.

    Unlike the kernel's, it has no blanks and no strides.
    """
    where = "reservedSystemCPUs"
    if not set(text) <= set("0123456789,-"):
        raise ConfigError.at(where, 'a CPU list such as "0-3,8"', text)
    try:
        return CPUSet.parse(text, where)
    except InputError as error:
        raise ConfigError(str(error)) from None


def _check_reserved_cgroups(configuration: Mapping[str, Any], wire: ConfigurationWire) -> None:
    """Refuse a cgroup of what is reserved next to reserved CPUs, as the kubelet's validation does.

    Raises:
        ConfigError: there are both.
    """
    if not wire.reserved_system_cpus:
        return

    for name in ("systemReservedCgroup", "kubeReservedCgroup"):
        cgroup = configuration.get(name)
        if cgroup:
            raise ConfigError.at(name, "no such cgroup next to reservedSystemCPUs", cgroup)


def _node_reserve(wire: ConfigurationWire, version: KubeletVersion) -> NodeReserve:
    """Return what is reserved of the node as a whole.

    Follows `parseResourceList` (cmd/kubelet/app/server.go). With reservedSystemCPUs what the two
    maps say of CPUs is not read.
    """
    for where, count in (("maxPods", wire.max_pods), ("podsPerCore", wire.pods_per_core)):
        if count is not None and not 0 <= count <= _LARGEST_COUNT:
            raise ConfigError.at(where, f"a whole number from 0 to {_LARGEST_COUNT}", count)

    amounts: dict[str, int] = {}
    for where, reserved in (
        ("kubeReserved", wire.kube_reserved),
        ("systemReserved", wire.system_reserved),
    ):
        for resource, value in (reserved or {}).items():
            if resource not in _RESERVABLE:
                raise ConfigError.at(where, f"one of {', '.join(_RESERVABLE)}", resource)
            if resource == "cpu" and wire.reserved_system_cpus:
                continue

            amount = parse_quantity(value, where, resource)
            if amount < 0:
                place = f'{where}["{resource}"]'
                raise ConfigError.at(place, "a quantity that is not negative", value)

            amounts[resource] = amounts.get(resource, 0) + amount

    default = NodeReserve()
    return NodeReserve(
        amounts=in_units_of_each(amounts),
        eviction_memory=_eviction_memory(wire, version, default.eviction_memory),
        max_pods=default.max_pods if wire.max_pods is None else wire.max_pods,
        pods_per_core=wire.pods_per_core or default.pods_per_core,
    )


def _eviction_memory(wire: ConfigurationWire, version: KubeletVersion, default: str) -> str:
    """Return `memory.available` of `evictionHard`, after the kubelet's checks; empty: missing.

    Follows `loadConfigFile` (cmd/kubelet/app/server.go), which puts the defaults beside what is
    given, where that is asked for, and `parseThresholdStatement` (pkg/kubelet/eviction).
    """
    if wire.eviction_hard is None:
        return default

    texts = {signal: _threshold(signal, value) for signal, value in wire.eviction_hard.items()}
    merges = wire.merge_default_eviction_settings and version >= _MERGES_EVICTION_DEFAULTS
    return texts.get("memory.available", default if merges else "")


def _threshold(signal: str, value: object) -> str:
    """Return a threshold of `evictionHard`, after the kubelet's checks."""
    if signal not in _SIGNALS:
        raise ConfigError.at("evictionHard", f"one of {', '.join(_SIGNALS)}", signal)

    if value is None:
        return ""

    text = str(value)
    where = f'evictionHard["{signal}"]'
    if text.endswith("%"):
        part_of_percentage(text, where)
    elif parse_quantity(text, where) < 0:
        raise ConfigError.at(where, "a quantity that is not negative", text)

    return text


def _reserved_memory(entries: Sequence[ReservedMemoryWire]) -> tuple[ReservedMemory, ...]:
    """Return the entries of reservedMemory after the checks of the kubelet's validation."""
    reserved: set[tuple[int, str]] = set()
    records: list[ReservedMemory] = []
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
            if (node, resource) in reserved:
                raise ConfigError.at(where, f"NUMA node {node} to reserve {resource} once", value)

            reserved.add((node, resource))
            limits.append((resource, amount))

        records.append(ReservedMemory(node, tuple(limits)))

    return tuple(records)


def check_fields(
    names: Collection[object],
    fields: Iterable[str],
    source: str = "",
    version: KubeletVersion = NEWEST,
) -> None:
    """Warn of names that are no fields of a KubeletConfiguration.

    Args:
        names: those that a configuration has.
        fields: those that matter here.
        source: where it stands, such as a file's name.
        version: the kubelet's release.

    Raises:
        InputError: a field that matters is spelt as in Python.
    """
    fields_by_folded = {name.casefold(): name for name in fields}
    where = f" in {source}" if source else ""
    for name, nearest in unknown_keys(names, known_names("KubeletConfiguration")):
        folded = name.replace("_", "").casefold()
        if "_" in name and folded in fields_by_folded:
            expected = f"the field {fields_by_folded[folded]}, as in a KubeletConfiguration"
            raise InputError.at("the configuration", expected, name)

        hint = f"; {nearest} is" if nearest else ""
        warn(f"{name!r} is no field of a KubeletConfiguration and ignored{where}{hint}")

    for name, release in later_fields(version).items():
        if name in names:
            warn(
                f"{name!r} is no field of a KubeletConfiguration of kubelet {version.title} and "
                f"ignored{where}; kubelet {release.title} has it"
            )
