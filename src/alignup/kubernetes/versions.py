"""Knows the releases of the kubelet: what each decides otherwise, its feature gates, policy options and checkpoints.

Each minor release is a file of `releases`; what the names of rules there mean is in `RULES`. Providers ask a
`VersionProfile` for a rule by its name, and compare no versions. `alignup.kubernetes.feature_gates` decides what gates
are on, `alignup.kubernetes.policy_options` which options a kubelet accepts.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError, warn
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERSION: Final = re.compile(
    r"v?([0-9]{1,4})\.([0-9]{1,6})(?:\.[0-9]{1,9}(?:[-+.][0-9A-Za-z.+~_-]{0,200})?)?[+]?", re.ASCII
)


class KubeletVersion(Record, order=True):
    """A minor release of Kubernetes 1; patches of one release decide alike."""

    minor: int

    def __str__(self) -> str:
        return f"1.{self.minor}"


_RELEASES: Final = f"{os.path.dirname(__file__)}/releases"  # noqa: PTH120  # pathlib is slow to import, as json is
KNOWN_VERSIONS: Final = tuple(
    sorted(KubeletVersion(int(name[2:-5])) for name in os.listdir(_RELEASES) if name.endswith(".json"))  # noqa: PTH208
)
OLDEST: Final = KNOWN_VERSIONS[0]
NEWEST: Final = KNOWN_VERSIONS[-1]


class GateStage(Record):
    """The stage and default of a feature gate in a release."""

    maturity: str
    """`alpha`, `beta`, `GA` or `deprecated`."""
    is_on: bool
    """By default."""
    is_locked: bool
    """It cannot be set to anything but its default."""


class Release(Record):
    """What is known of a release."""

    source: str
    """The patch that it was read from."""
    rules: frozenset[str]
    """The names in `RULES` that hold."""
    checkpoints: Mapping[str, tuple[str, ...]]
    """By file, the versions that the kubelet reads; it writes the last one."""
    cpu_options: Mapping[str, str]
    """By name, the stage of the CPU manager's options (`cpumanager/policy_options.go`): `alpha`, `beta` or `GA`."""
    topology_options: Mapping[str, str]
    """The same of `topologymanager/policy_options.go`."""
    needs: Mapping[str, tuple[str, ...]]
    """By gate, the gates without which it must not be on."""
    gates: Mapping[str, GateStage]
    """All feature gates that the kubelet knows, by name; `docs/versions.md` says how they were listed."""


@cache
def release_of(version: KubeletVersion) -> Release:
    """Return what is known of a release, one of `KNOWN_VERSIONS`."""
    import json  # noqa: PLC0415  # slow to import

    with open(f"{_RELEASES}/{version}.json", encoding="utf-8") as file:  # noqa: PTH123  # as above
        data = json.load(file)
    return Release(
        source=data["source"],
        rules=frozenset(data["rules"]),
        checkpoints={name: tuple(versions) for name, versions in data["checkpoints"].items()},
        cpu_options=data["cpuOptions"],
        topology_options=data["topologyOptions"],
        needs={name: tuple(needed) for name, needed in data["needs"].items()},
        gates={name: GateStage(*stage) for name, stage in data["gates"].items()},
    )


class Rule(Record):
    """A decision of the kubelet on which releases differ."""

    effect: str
    """A sentence for people."""
    source: str
    """Where it stands, under `pkg/kubelet/cm` of Kubernetes unless it says otherwise."""


RULES: Final[dict[str, Rule]] = {
    "any_guaranteed_resize_refused": Rule(
        "beside a static policy no Guaranteed pod is resized, whatever of it changes (gate "
        "InPlacePodVerticalScalingExclusiveCPUs off)",
        "pkg/kubelet/kubelet.go and allocation/allocation_manager.go, canResizePod",
    ),
    "device_hints_over_all_nodes": Rule(
        "the device manager offers masks of all NUMA nodes, not only of those that have a device of the resource",
        "devicemanager/topology_hints.go, generateDeviceTopologyHints",
    ),
    "distribution_prefers_one_socket": Rule(
        "distribute-cpus-across-numa with align-by-socket prefers NUMA nodes of one socket to any across sockets, and "
        "cuts an even share down to what the fullest of the nodes has free",
        "cpumanager/cpu_assignment.go, takeByTopologyNUMADistributed",
    ),
    "empty_pod_resources_ignored": Rule(
        "`spec.resources` without any entry does not decide the QoS class (gate PodLevelResourcesFixKubeletQOSClass)",
        "pkg/apis/core/v1/helper/qos/qos.go, ComputePodQOS",
    ),
    "kubelet_checks_capacity_of_resizes": Rule(
        "the kubelet itself refuses a resize to more than the node has; later the API server does",
        "pkg/kubelet/allocation/allocation_manager.go, canResizePod",
    ),
    "managers_skip_resizes": Rule(
        "at a resize in place the static CPU and memory policies offer no hints and allocate nothing",
        "cpumanager/policy_static.go and memorymanager/policy_static.go, lifecycle.Operation",
    ),
    "memory_groups_checked": Rule(
        "the memory manager refuses an allocation that would mix groups of NUMA nodes, instead of sharing nodes "
        "between groups",
        "memorymanager/policy_static.go, isAffinityViolatingNUMAAllocations",
    ),
    "memory_only_where_requested": Rule(
        "the memory manager leaves containers alone that request no memory, instead of looking for a place for nothing",
        "memorymanager/policy_static.go, Allocate",
    ),
    "odd_l3_rest_rounds_down": Rule(
        "with prefer-align-cpus-by-uncorecache, an odd number of CPUs that is left to take does not stay in one L3 "
        "group on cores of several CPUs",
        "cpumanager/cpu_assignment.go, takePartialUncore",
    ),
    "pod_level_resources_set_qos": Rule(
        "resources of a pod as a whole decide its QoS class (gate PodLevelResources, off by default before 1.34)",
        "k8s.io/component-helpers and pkg/apis/core/v1/helper/qos, ComputePodQOS",
    ),
    "pod_level_resources_share": Rule(
        "a pod with resources of its own gets neither exclusive CPUs nor pinned memory (gate PodLevelResources on, "
        "PodLevelResourceManagers off)",
        "cpumanager/policy_static.go and memorymanager/policy_static.go, IsPodLevelResourcesSet",
    ),
    "pod_limits_defaulted_by_api_server": Rule(
        "missing entries of `spec.resources`, limits too, are filled in when a pod is created through the API, and not "
        "for static pods (gate PodLevelResourcesFixDefaulting)",
        "pkg/api/pod/util.go, DefaultPodLevelResources",
    ),
    "requests_from_status": Rule(
        "the requests of a container that has a status are its allocatedResources there (gate "
        "InPlacePodVerticalScaling, off by default before 1.33)",
        "cpumanager/policy_static.go, guaranteedCPUs; memorymanager/policy_static.go, getRequestedResources",
    ),
    "sidecar_requests_from_status": Rule(
        "the same holds of restartable init containers",
        "cpumanager/policy_static.go, guaranteedCPUs; memorymanager/policy_static.go, getRequestedResources",
    ),
    "state_before_smt_check": Rule(
        "full-pcpus-only does not refuse a container that has its CPUs already, after a restart of the kubelet",
        "cpumanager/policy_static.go, Allocate",
    ),
}
"""By name. Those that a gate turns on or off hold only where it is on."""


def parse_version(text: object, where: str = "kubeletVersion", *, warns: bool = True) -> KubeletVersion:
    """Return the release that a version names: `1.33`, `v1.33.13-eks-1` or `v1.33.4+k3s1`.

    Only the minor counts. A release newer than those known is judged as the newest known, with a warning.

    Args:
        text: the version.
        where: the place that an error names.
        warns: say that a release is newer than those known.

    Raises:
        InputError: it is no version, or is older than those known.
    """
    if isinstance(text, KubeletVersion):
        return text
    match = _VERSION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InputError.at(where, 'the version of a kubelet such as "1.33" or "v1.33.13-eks-1"', text)
    major, minor = int(match[1]), int(match[2])
    if (major, minor) < (1, OLDEST.minor):
        raise InputError.at(where, f"kubelet {OLDEST} or later; what older ones decide is not known", text)
    if (major, minor) > (1, NEWEST.minor):
        if warns:
            warn(
                f"kubelet {major}.{minor} is newer than those known, and is judged as {NEWEST}; not known are its "
                f"rules, feature gates, policy options and checkpoints"
            )
        return NEWEST
    return KubeletVersion(minor)


def parse_versions(text: str, where: str = "kubeletVersion") -> tuple[KubeletVersion, ...]:
    """Return the releases of a list such as `1.33,1.36`, each once.

    Raises:
        InputError: as `parse_version`.
    """
    return tuple(dict.fromkeys(parse_version(one.strip(), where) for one in text.split(",")))


class PodLevel(Enum):
    """The meaning of resources of a pod as a whole (`spec.resources`) to a kubelet."""

    IGNORED = "ignored"
    SETS_QOS = "sets QoS"
    """They decide the QoS class; containers get what their own requests say."""
    SHARES = "shares"
    """They decide the QoS class, and the containers share CPUs and memory."""
    MANAGED = "managed"
    """They decide the QoS class, and the managers give them to the pod (gate PodLevelResourceManagers)."""


class StatusRequests(Enum):
    """Whose requests a kubelet takes from the status of the pod, where that has them."""

    NOBODY = "nobody"
    CONTAINERS = "containers"
    WITH_SIDECARS = "containers and sidecars"


class PodReading(Record):
    """The way a kubelet reads the requests of a pod."""

    pod_level: PodLevel = PodLevel.SHARES
    from_status: StatusRequests = StatusRequests.NOBODY
    empty_pod_resources_ignored: bool = True
    pod_limits_defaulted_by_api_server: bool = True


class VersionProfile(Record):
    """The behaviour of a release, with its feature gates, where releases differ; see `RULES`."""

    device_hints_over_all_nodes: bool = False
    memory_groups_checked: bool = True
    odd_l3_rest_rounds_down: bool = False
    pods: PodReading = PodReading()
    distribution_prefers_one_socket: bool = True
    memory_only_where_requested: bool = True
    state_before_smt_check: bool = True


_OWN_RULES: Final = tuple(name for name in VersionProfile.__record_fields__ if name != "pods")


def profile_of(version: KubeletVersion, gates: Mapping[str, bool]) -> VersionProfile:
    """Return the profile of a release.

    Args:
        version: the release.
        gates: which of its feature gates are on; those that it does not know are missing.
    """
    rules = release_of(version).rules
    pod_level, from_status = PodLevel.IGNORED, StatusRequests.NOBODY
    if gates.get("PodLevelResources") and "pod_level_resources_set_qos" in rules:
        pod_level = PodLevel.SHARES if "pod_level_resources_share" in rules else PodLevel.SETS_QOS
        if gates.get("PodLevelResourceManagers"):
            pod_level = PodLevel.MANAGED
    if gates.get("InPlacePodVerticalScaling") and "requests_from_status" in rules:
        sidecars = "sidecar_requests_from_status" in rules
        from_status = StatusRequests.WITH_SIDECARS if sidecars else StatusRequests.CONTAINERS
    return VersionProfile(
        pods=PodReading(
            pod_level,
            from_status,
            "empty_pod_resources_ignored" in rules and gates.get("PodLevelResourcesFixKubeletQOSClass", False),
            "pod_limits_defaulted_by_api_server" in rules and gates.get("PodLevelResourcesFixDefaulting", False),
        ),
        **{name: name in rules for name in _OWN_RULES},
    )
