"""Turns the fields that platforms have into those of a KubeletConfiguration.

A platform's object is not decoded by a kubelet. So a key that is no field of a KubeletConfiguration
is not ignored as a kubelet would ignore it, if it may decide something: it is read, or refused.

Sources: `NodeKubeletConfig` of GKE's API, the settings of Bottlerocket,
`064_configure_kubelet.sh.tpl` of Deckhouse, `KubeletConfig` of Gardener, and the role
`kubernetes/node` of kubespray, all as of 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from alignup.errors import InputError
from alignup.kubernetes.versions import known_names
from alignup.text.digits import number_of
from alignup.text.known_keys import unknown_keys

_KIND: Final = "KubeletConfiguration"
_LARGEST_ID: Final = (1 << 31) - 1
# By the path in a platform's object the field that it is.
_NESTED: Final = {
    ("topologyManager", "policy"): "topologyManagerPolicy",
    ("topologyManager", "scope"): "topologyManagerScope",
    ("memoryManager", "policy"): "memoryManagerPolicy",
    ("cpuManager", "policy"): "cpuManagerPolicy",
}
# What a key has in its name that may decide.
_DECISIVE: Final = re.compile(
    "topolog|numa|manager|reserv|polic|featuregate|evictionhard|maxpods|podspercore|cpuset"
)
_SETTINGS: Final = {
    "memory-manager-reserved-memory": "reservedMemory",
    "reserved-cpus": "reservedSystemCPUs",
}
_SIGNAL: Final = re.compile("Available$|InodesFree$")
_WORD: Final = re.compile("(?<=[a-z])(?=[A-Z])")

_KUBESPRAY: Final = {
    "kubelet_cpu_manager_policy": "cpuManagerPolicy",
    "kubelet_cpu_manager_policy_options": "cpuManagerPolicyOptions",
    "kubelet_topology_manager_policy": "topologyManagerPolicy",
    "kubelet_topology_manager_policy_options": "topologyManagerPolicyOptions",
    "kubelet_topology_manager_scope": "topologyManagerScope",
    "kubelet_memory_manager_policy": "memoryManagerPolicy",
    "kubelet_reserved_memory": "reservedMemory",
    "kubelet_max_pods": "maxPods",
    "kubelet_reserved_system_cpus": "reservedSystemCPUs",
    "reserved_system_cpus": "reservedSystemCPUs",
    "eviction_hard": "evictionHard",
}
_KUBESPRAY_FIELDS: Final = ("kubelet_config_extra_args", "kubelet_node_config_extra_args")
# By the field, the prefix of its variables, and what is reserved where a variable is left out.
_KUBESPRAY_RESERVED: Final = {
    "kubeReserved": ("kube", {"cpu": "100m", "memory": "256Mi"}),
    "systemReserved": ("system", {"cpu": "500m", "memory": "512Mi"}),
}


def fields_of_platform(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the fields in a platform's object as a KubeletConfiguration has them.

    Names of the platform's own that decide nothing are left out.

    Args:
        fields: as the object has them.
        where: their place in errors.

    Raises:
        InputError: a key that may decide is no field, or its value is of another form.
    """
    read: dict[str, Any] = {}
    for name, value in _with_text_keys(fields):
        group = {path[1]: field for path, field in _NESTED.items() if path[0] == name}
        if not group:
            read[name] = value
            continue

        if not isinstance(value, Mapping):
            raise InputError.at(f"{name} of {where}", "a mapping", value)
        for inner, inner_value in value.items():
            if inner not in group:
                _refuse(f"{name}.{inner}", group, where)
            field = group[inner]
            if fields.get(field, inner_value) != inner_value:
                raise InputError.at(
                    f"{name}.{inner} of {where}",
                    f"{fields[field]!r}, as {field} is beside it",
                    inner_value,
                )
            read[field] = inner_value

    for name, nearest in list(unknown_keys(read, known_names(_KIND))):
        if _is_decisive(name):
            _refuse(name, [nearest] if nearest else (), where)
        del read[name]

    if "evictionHard" in read:
        read["evictionHard"] = _thresholds(read["evictionHard"])
    return read


def _with_text_keys(fields: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the items of a mapping whose keys are text.

    YAML has keys that are none, such as numbers, and no field is called so.
    """
    for name, value in fields.items():
        if isinstance(name, str):
            yield name, value


def _is_decisive(name: str) -> bool:
    return _DECISIVE.search(name.replace("_", "").replace("-", "").casefold()) is not None


def _refuse(name: str, nearest: Any, where: str) -> None:
    """Refuse a key that may decide something.

    Raises:
        InputError: always.
    """
    hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
    raise InputError(
        f"{name!r} of {where} may decide where pods go, and is no field that is read here{hint} "
        "(write it as the field of a KubeletConfiguration that the platform makes of it, or leave "
        "it out)"
    )


def _thresholds(value: Any) -> Any:
    """Return eviction thresholds by their signals, of kOps' text or of Gardener's names, too."""
    if isinstance(value, str):
        pairs = (part.partition("<") for part in value.split(",") if part.strip())
        return {signal.strip(): amount.strip() for signal, _, amount in pairs}

    if not isinstance(value, Mapping):
        return value
    return {_signal(str(name)): amount for name, amount in value.items()}


def _signal(name: str) -> str:
    """Return `memory.available` of `memoryAvailable`."""
    matched = _SIGNAL.search(name)
    if matched is None or "." in name:
        return name
    tail = matched[0][:1].lower() + matched[0][1:]
    return f"{name[: matched.start()].lower()}.{tail}"


def fields_of_settings(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return what the settings of Bottlerocket's kubelet say, with hyphens in their names.

    Raises:
        InputError: a setting that may decide is not known.
    """
    names = _fields_by_plain_name()
    fields: dict[str, Any] = {}
    for name, value in _with_text_keys(settings):
        field = _SETTINGS.get(name) or names.get(name.replace("-", "").casefold())
        if field is not None:
            fields[field] = _setting(field, value, f"{name} of {where}")
        elif _is_decisive(name):
            _refuse(name, (), where)

    return fields


def _setting(field: str, value: Any, where: str) -> Any:
    """Return the value of a setting as the field has it."""
    if field == "reservedMemory":
        return list(_memory_by_node(value, where))
    if not field.endswith("PolicyOptions"):
        return value

    if isinstance(value, list):
        return {str(option): "true" for option in value}
    if not isinstance(value, Mapping):
        raise InputError.at(where, "options", value)
    return {option: str(is_on).lower() for option, is_on in value.items()}


def _memory_by_node(value: Any, where: str) -> Iterator[dict[str, Any]]:
    """Yield the reservations of NUMA nodes that are enabled."""
    if not isinstance(value, Mapping):
        raise InputError.at(where, "a mapping of NUMA nodes", value)

    for node, limits in value.items():
        numa_node = number_of(str(node), _LARGEST_ID)
        if numa_node is None or not isinstance(limits, Mapping):
            raise InputError.at(where, "limits by the number of a NUMA node", {node: limits})
        if limits.get("enabled") is not False:
            amounts = {name: amount for name, amount in limits.items() if name != "enabled"}
            yield {"numaNode": numa_node, "limits": amounts}


@cache
def _fields_by_plain_name() -> Mapping[str, str]:
    return {name.casefold(): name for name in known_names(_KIND)}


def fields_of_deckhouse(kubelet: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return what `spec.kubelet` of a NodeGroup of Deckhouse says.

    The topology manager brings the static policies of the other two with it.

    Raises:
        InputError: a key that may decide is not known.
    """
    fields: dict[str, Any] = {}
    if "maxPods" in kubelet:
        fields["maxPods"] = kubelet["maxPods"]

    manager = _mapping(kubelet, "topologyManager", where, {"enabled", "policy", "scope"})
    is_enabled = manager.get("enabled", False)
    if not isinstance(is_enabled, bool):
        raise InputError.at(f"topologyManager.enabled of {where}", "true or false", is_enabled)
    if is_enabled:
        fields |= {"cpuManagerPolicy": "static", "memoryManagerPolicy": "Static"}
        fields["topologyManagerPolicy"] = _kebab(manager.get("policy", "None"))
        fields["topologyManagerScope"] = _kebab(manager.get("scope", "Container"))

    reservation = _mapping(kubelet, "resourceReservation", where, {"mode", "static"})
    if reservation.get("mode", "Auto") != "Auto":
        amounts = _mapping(reservation, "static", f"resourceReservation of {where}")
        fields["systemReserved"] = {name: amounts.get(name, 0) for name in ("cpu", "memory")}

    for name, _ in _with_text_keys(kubelet):
        if name not in {"topologyManager", "resourceReservation", "maxPods"} and _is_decisive(name):
            _refuse(name, (), where)

    return fields


def _mapping(
    fields: Mapping[str, Any], name: str, where: str, keys: set[str] | None = None
) -> Mapping[str, Any]:
    """Return a mapping of a mapping that has no other keys than these; None: it may have any."""
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError.at(f"{name} of {where}", "a mapping", value)

    for key in value:
        if keys is not None and key not in keys:
            _refuse(f"{name}.{key}", sorted(keys), where)
    return value


def _kebab(word: Any) -> Any:
    """Return `single-numa-node` of `SingleNumaNode`."""
    return _WORD.sub("-", word).lower() if isinstance(word, str) else word


def fields_of_kubespray(variables: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return what variables of kubespray say of the kubelet.

    Raises:
        InputError: a variable that may decide is not known.
    """
    fields: dict[str, Any] = {}
    for name, value in _with_text_keys(variables):
        if name in _KUBESPRAY:
            field = _KUBESPRAY[name]
            if fields.setdefault(field, value) != value:
                expected = f"{fields[field]!r}, as another variable sets {field}"
                raise InputError.at(f"{name} of {where}", expected, value)
        elif name == "kubelet_feature_gates" and isinstance(value, list):
            fields["featureGates"] = dict(_kubespray_gate(str(gate), where) for gate in value)
        elif name.startswith("kubelet_") and _is_decisive(name.removeprefix("kubelet_")):
            _refuse(name, (), where)

    for field, (prefix, defaults) in _KUBESPRAY_RESERVED.items():
        names = {part: f"{prefix}_{part}_reserved" for part in defaults}
        is_on = variables.get(f"{prefix}_reserved", False)
        if not isinstance(is_on, bool):
            raise InputError.at(f"{prefix}_reserved of {where}", "true or false", is_on)
        if is_on or variables.keys() & set(names.values()):
            fields[field] = {
                part: variables.get(name, defaults[part]) for part, name in names.items()
            }

    for name in _KUBESPRAY_FIELDS:
        fields |= _mapping(variables, name, where)

    return fields


def _kubespray_gate(text: str, where: str) -> tuple[str, bool]:
    """Return the gate of a text such as `MemoryQoS=true`, and whether it is on."""
    gate, _, value = text.partition("=")
    if value.lower() not in {"true", "false"}:
        raise InputError.at(f"kubelet_feature_gates of {where}", "GATE=true or GATE=false", text)
    return gate, value.lower() == "true"
