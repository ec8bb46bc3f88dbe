"""Reads the keys of the JSON form of `alignup.node.Node`, and the annotations of pods.

By these pods name policies. Values are decoded by the modules of `alignup.machine` and
`alignup.kubernetes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError, warn
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES, KubeletConfig
from alignup.kubernetes.node_fit import NodeObject, node_object
from alignup.kubernetes.pod import POLICIES, Pod
from alignup.kubernetes.versions import NEWEST, KubeletVersion, parse_version
from alignup.machine.device_inventory import EXTRA_KEYS
from alignup.providers.devices.inventory import DevicePlugin, PreferredSets
from alignup.records import replace
from alignup.text.known_keys import misspelt_keys
from alignup.topology_manager.policy import Policy, make_policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from alignup.machine.machine import Machine

# The prefix of the annotations that carry a pod's own policy.
KOORDINATOR: Final = "scheduling.koordinator.sh/"

# The keys of a scenario and of a node line; `docs/scenarios.md` says what they mean.
KEYS: Final = (
    "machine",
    *EXTRA_KEYS,
    "reading",
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


def check_keys(keys: Iterable[object], document: str) -> None:
    """Warn of keys that resemble one of `KEYS`; others are the writer's own notes."""
    for key, meant in misspelt_keys(keys, KEYS):
        warn(f"the key {key!r} of {document} is unknown and ignored; did you mean {meant!r}?")


def version_of(
    data: Mapping[str, object],
    version: KubeletVersion | str | None = None,
    node: NodeObject | None = None,
) -> KubeletVersion:
    """Return the release of a node's kubelet.

    Args:
        data: has perhaps the key `kubeletVersion`.
        version: takes precedence over it.
        node: the Node object of the API, which counts where neither is there; without any it is the
            newest that is out.

    Raises:
        InputError: it is no version of a kubelet, or too old.
    """
    requested = data.get("kubeletVersion") if version is None else version
    if requested is not None:
        return parse_version(requested)
    if node is None or node.kubelet_version is None:
        return NEWEST

    return parse_version(node.kubelet_version, "nodeObject.status.nodeInfo.kubeletVersion")


def node_object_of(document: object) -> NodeObject | None:
    """Return a Node object of the API, decoded if it is a mapping; None: there is none.

    Raises:
        InputError: it is something else.
    """
    if document is None or isinstance(document, NodeObject):
        return document
    return node_object(document)


def is_set(data: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """Return the value of a key that is true or false.

    Raises:
        InputError: it is neither.
    """
    value = data.get(key, default)
    if not isinstance(value, bool):
        raise InputError.at(key, "true or false", value)

    return value


def has_policy(pod: Pod) -> bool:
    """Return whether an annotation of the pod may name a policy of its own."""
    return bool(pod.annotations) and any(name.startswith(KOORDINATOR) for name in pod.annotations)


def own_policies(pod: Pod, config: KubeletConfig, machine: Machine) -> dict[str, Policy]:
    """Return the policies that a pod, or its RuntimeClass, names for its containers.

    There are none without the annotation.

    Raises:
        InputError: the annotation is not an object of containers of the pod and policies.
    """
    text = pod.annotations.get(POLICIES) if pod.annotations else None
    if text is None:
        return {}

    from alignup.text.json_text import decode_json  # noqa: PLC0415  # few pods need it

    names = [container.name for container in pod.all_containers]
    policies: object = dict.fromkeys(names, text)
    if text not in TOPOLOGY_POLICIES:
        expected = "an object of container names and policies, or a policy"
        policies = decode_json(text, expected, POLICIES)

    if not isinstance(policies, dict) or not policies.keys() <= set(names):
        raise InputError.at(
            POLICIES, f"an object of policies by container ({', '.join(sorted(names))})", policies
        )

    for policy in policies.values():
        if policy not in TOPOLOGY_POLICIES:
            raise InputError.at(POLICIES, f"one of {', '.join(TOPOLOGY_POLICIES)}", policy)

    return {
        name: policy_of(replace(config, topology_manager_policy=policy), machine)
        for name, policy in policies.items()
    }


def policy_of(config: KubeletConfig, machine: Machine) -> Policy:
    """Return the topology policy of a configuration, for a machine.

    Raises:
        ConfigError: the machine has more NUMA nodes than the policy's options allow.
    """
    return make_policy(
        config.topology_manager_policy,
        len(machine.numa_nodes),
        machine.distance_matrix,
        config.topology_manager_policy_options,
        reading=config.reading,
    )


def plugins_of(preferred_sets: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, DevicePlugin]:
    """Return device plugins that prefer these sets of devices, by resource."""
    return {resource: PreferredSets(sets) for resource, sets in preferred_sets.items()}
