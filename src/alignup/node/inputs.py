"""Checks the arguments of `alignup.node.Node` and the keys of its JSON form, and warns of those that are ignored.

Values are decoded by the modules of the machine and kubernetes rooms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from alignup.errors import InputError, warn
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES, KubeletConfig
from alignup.kubernetes.node_object import NodeObject, node_object
from alignup.kubernetes.versions import NEWEST, KubeletVersion, parse_version
from alignup.machine.device_inventory import Device, decode_inventory
from alignup.machine.loaded import EXTRA_KEYS
from alignup.machine.machine import Machine, machine_from_dict
from alignup.providers.devices.inventory import DevicePlugin, PreferredSets
from alignup.records import replace
from alignup.text.known_keys import misspelt_keys
from alignup.topology_manager.policy import Policy, make_policy

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Container, Pod
    from alignup.providers.devices.pairs import Pairing
    from alignup.topology_manager.provider import HintProvider

POLICIES: Final = "alignup.dev/policies"
"""The annotation by which containers name policies of their own; no kubelet reads it."""
KOORDINATOR: Final = "scheduling.koordinator.sh/"
"""The prefix of the annotations that carry a pod's own policy."""

KEYS: Final = (
    "machine",
    *EXTRA_KEYS,
    "labels",
    "singleNUMANodeExclusive",
    "keepRefusedBindings",
    "wholeVerdict",
    "kubeletVersion",
    "nodeObject",
    "resources",
    "draHints",
    "name",
    "steps",
    "pods",
)
"""The keys of a scenario and of a node line; `docs/scenarios.md` says what they mean."""


def check_keys(keys: Iterable[object], what: str) -> None:
    """Warn of keys that resemble one of `KEYS`; others are the writer's own notes."""
    for key, meant in misspelt_keys(keys, KEYS):
        warn(f"the key {key!r} of {what} is unknown and ignored; {meant!r} is meant")


def checked_machine(machine: object) -> Machine:
    """Return the machine, decoded if it is a mapping.

    Raises:
        InputError: the mapping describes no machine.
        TypeError: it is something else.
    """
    if isinstance(machine, Machine):
        return machine
    if isinstance(machine, Mapping):
        passed_over = [key for key in EXTRA_KEYS if machine.get(key)]
        if passed_over:
            warn(f"{', '.join(passed_over)} of the machine ignored: Node.from_dict takes what comes with a machine")
        return machine_from_dict(machine)
    hint = "; Machine.load takes names and files" if isinstance(machine, str) else ""
    raise TypeError(f"expected a Machine, or a mapping as Machine.to_dict returns it, got {machine!r:.80}{hint}")


def checked_config(config: object, version: KubeletVersion | str | None = None) -> KubeletConfig:
    """Return the configuration, decoded if it is a mapping; a kubelet's defaults for None.

    Args:
        config: a configuration, a mapping of its fields, or None.
        version: the kubelet's release, in place of that of a `KubeletConfig`; None: that, or the newest known.

    Raises:
        InputError: the mapping is no configuration.
        ConfigError: a kubelet would refuse to start with it.
        TypeError: it is something else.
    """
    if config is None:
        return KubeletConfig(version=parse_version(version or NEWEST))
    if isinstance(config, KubeletConfig):
        return config if version is None else replace(config, version=parse_version(version))
    if isinstance(config, Mapping):
        return KubeletConfig.from_dict(config, version=version or NEWEST)
    hint = "; load_config of alignup.kubernetes.kubelet_config reads text" if isinstance(config, str) else ""
    raise TypeError(f"expected a KubeletConfig, or a mapping of its fields, got {config!r:.80}{hint}")


def checked_inventory(
    devices: Mapping[str, Sequence[Device | Mapping[str, Any]]], machine: Machine
) -> Mapping[str, Sequence[Device]]:
    """Return the devices of each resource, decoded where they are mappings.

    Raises:
        InputError: a mapping describes no device.
    """
    if not any(isinstance(one, Mapping) for found in devices.values() for one in found):
        return cast("Mapping[str, Sequence[Device]]", devices)
    return decode_inventory(devices, machine)


def version_of(
    data: Mapping[str, object], given: KubeletVersion | str | None = None, node: NodeObject | None = None
) -> KubeletVersion:
    """Return the release of a node's kubelet.

    Args:
        data: has perhaps the key `kubeletVersion`.
        given: goes before it.
        node: the Node object of the API, which counts where neither is there; without any it is the newest known.

    Raises:
        InputError: it is no version of a kubelet, or too old.
    """
    named = data.get("kubeletVersion") if given is None else given
    if named is not None:
        return parse_version(named)
    told = None if node is None else node.kubelet_version
    return NEWEST if told is None else parse_version(told, "nodeObject.status.nodeInfo.kubeletVersion")


def node_object_of(data: Mapping[str, Any]) -> NodeObject | None:
    """Return the Node object of the API under the key `nodeObject`; None: there is none.

    Raises:
        InputError: it is something else.
    """
    found = data.get("nodeObject")
    return None if found is None else node_object(found)


def is_set(data: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """Return the value of a key that is true or false.

    Raises:
        InputError: it is neither.
    """
    value = data.get(key, default)
    if not isinstance(value, bool):
        raise InputError.at(key, "true or false", value)
    return value


def node_labels(labels: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the labels of a node if every value is a string.

    Raises:
        InputError: some value is not.
    """
    for name, value in labels.items():
        if not isinstance(value, str):
            raise InputError.at(f"labels[{name!r}]", "a string", value)
    return labels


def has_policy(pod: Pod) -> bool:
    """Return whether an annotation of the pod may name a policy of its own."""
    return bool(pod.annotations) and any(name.startswith(KOORDINATOR) for name in pod.annotations)


def own_policies(pod: Pod, config: KubeletConfig, machine: Machine) -> dict[str, Policy]:
    """Return the policies that a pod names for its containers, by name; none without the annotation.

    Raises:
        InputError: the annotation is not an object of containers of the pod and policies.
    """
    text = pod.annotations.get(POLICIES) if pod.annotations else None
    if text is None:
        return {}
    from alignup.text.json_text import decode_json  # noqa: PLC0415  # few pods need it

    named: object = decode_json(text, "an object of container names and policies", POLICIES)
    known = {container.name for container in pod.all_containers}
    if not isinstance(named, dict) or not named.keys() <= known:
        raise InputError.at(POLICIES, f"an object of policies by container ({', '.join(sorted(known))})", named)
    for policy in named.values():
        if policy not in TOPOLOGY_POLICIES:
            raise InputError.at(POLICIES, f"one of {', '.join(TOPOLOGY_POLICIES)}", policy)
    return {name: policy_of(replace(config, topology_manager_policy=policy), machine) for name, policy in named.items()}


def policy_of(config: KubeletConfig, machine: Machine) -> Policy:
    """Return the topology policy of a configuration, for a machine.

    Raises:
        ConfigError: the machine has more NUMA nodes than the policy's options allow.
    """
    policy, options = config.topology_manager_policy, config.topology_manager_policy_options
    return make_policy(policy, len(machine.numa_nodes), machine.distance_matrix, options)


def plugins_of(preferred_sets: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, DevicePlugin]:
    """Return device plugins that prefer these sets of devices, by resource."""
    return {resource: PreferredSets(sets) for resource, sets in preferred_sets.items()}


def labelled(config: KubeletConfig, labels: Mapping[str, str], exclusive: str) -> KubeletConfig:
    """Return the configuration under the labels of a node in a Koordinator cluster, which can name a topology policy.

    Raises:
        InputError: a label cannot be read, or `exclusive` is no exclusivity.
    """
    from alignup.koordinator.effective import check_default_exclusive, labelled_config  # noqa: PLC0415  # few nodes need it

    check_default_exclusive(exclusive, "singleNUMANodeExclusive")
    return labelled_config(config, labels)


def check_container(pod: Pod, name: str) -> Container:
    """Return the container of a pod that has this name.

    Raises:
        InputError: there is none.
    """
    found = next((one for one in pod.all_containers if one.name == name), None)
    if found is None:
        names = ", ".join(one.name for one in pod.all_containers)
        raise InputError.at("container", f"a container of the pod ({names})", name)
    return found


def copied_provider(provider: HintProvider) -> HintProvider:
    """Return the copy of a user's provider.

    Raises:
        TypeError: it has no method `copy()`.
    """
    copy = getattr(provider, "copy", None)
    if not callable(copy):
        raise TypeError(f"the node cannot be copied: the provider {provider!r} has no method copy()")
    copied: HintProvider = copy()
    return copied


def pairing_of(machine: Machine, pairs: Iterable[str | Sequence[str]]) -> Pairing | None:
    """Return who chooses devices of resources together; None: nobody is asked for.

    Raises:
        InputError: a pair is not of the form.
    """
    if not pairs:
        return None
    from alignup.providers.devices.pairs import Pairing, read_pairs  # noqa: PLC0415  # few nodes pair devices

    return Pairing(machine, read_pairs(pairs))
