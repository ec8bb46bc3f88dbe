"""Knows what kubelets of different releases decide differently: one record of named behaviours for each release.

Reads versions as kubelets and Node objects write them. `alignup.kubernetes.feature_gates` knows gates, and
`alignup.kubernetes.policy_options` the options of the managers' policies; providers ask the profile for a behaviour by
its name, and compare no versions.
"""

from __future__ import annotations

import re
from enum import Enum
from itertools import product, starmap
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError, warn
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BEHAVIOURS",
    "KNOWN_VERSIONS",
    "NEWEST",
    "OLDEST",
    "POD_READINGS",
    "Behaviour",
    "KubeletVersion",
    "PodLevel",
    "PodReading",
    "StatusRequests",
    "VersionProfile",
    "parse_version",
    "parse_versions",
    "profile_of",
]

_VERSION: Final = re.compile(
    r"v?([0-9]{1,4})\.([0-9]{1,6})(?:\.[0-9]{1,9}(?:[-+.][0-9A-Za-z.+~_-]{0,200})?)?[+]?", re.ASCII
)


class KubeletVersion(Record, order=True):
    """A minor release of Kubernetes 1; patches of one release decide alike."""

    minor: int

    def __str__(self) -> str:
        return f"1.{self.minor}"


OLDEST: Final = KubeletVersion(29)
NEWEST: Final = KubeletVersion(36)
KNOWN_VERSIONS: Final = tuple(KubeletVersion(minor) for minor in range(OLDEST.minor, NEWEST.minor + 1))


class Behaviour(Record):
    """Something that the kubelets of some releases do."""

    effect: str
    """A sentence for people."""
    source: str
    """Where it stands, under `pkg/kubelet/cm` of Kubernetes."""
    first: KubeletVersion = OLDEST
    """The first release that does so, of those known."""
    last: KubeletVersion = NEWEST
    """The last one."""

    def holds_in(self, version: KubeletVersion) -> bool:
        """Return whether kubelets of this release do so."""
        return self.first <= version <= self.last


BEHAVIOURS: Final[dict[str, Behaviour]] = {
    "device_hints_over_all_nodes": Behaviour(
        "the device manager offers masks of all NUMA nodes, not only of those that have a device of the resource",
        "devicemanager/topology_hints.go, generateDeviceTopologyHints",
        last=KubeletVersion(35),
    ),
    "memory_groups_checked": Behaviour(
        "the memory manager refuses an allocation that would mix groups of NUMA nodes, instead of sharing nodes "
        "between groups",
        "memorymanager/policy_static.go, isAffinityViolatingNUMAAllocations",
        first=KubeletVersion(32),
    ),
    "odd_l3_rest_rounds_down": Behaviour(
        "with prefer-align-cpus-by-uncorecache, an odd number of CPUs that is left to take does not stay in one L3 "
        "group on cores of several CPUs",
        "cpumanager/cpu_assignment.go, takePartialUncore",
        last=KubeletVersion(33),
    ),
    "pod_level_resources_share": Behaviour(
        "a pod with resources of its own gets neither exclusive CPUs nor pinned memory (gate PodLevelResources)",
        "cpumanager/policy_static.go and memorymanager/policy_static.go, IsPodLevelResourcesSet",
        first=KubeletVersion(34),
    ),
    "pod_level_resources_set_qos": Behaviour(
        "resources of a pod as a whole decide its QoS class (gate PodLevelResources, off by default before 1.34)",
        "k8s.io/component-helpers and pkg/apis/core/v1/helper/qos, ComputePodQOS",
        first=KubeletVersion(32),
    ),
    "requests_from_status": Behaviour(
        "the requests of a container that has a status are its allocatedResources there (gate "
        "InPlacePodVerticalScaling, off by default before 1.33)",
        "cpumanager/policy_static.go, guaranteedCPUs; memorymanager/policy_static.go, getRequestedResources",
        last=KubeletVersion(34),
    ),
    "sidecar_requests_from_status": Behaviour(
        "the same holds of restartable init containers",
        "cpumanager/policy_static.go, guaranteedCPUs; memorymanager/policy_static.go, getRequestedResources",
        first=KubeletVersion(33),
        last=KubeletVersion(34),
    ),
}
"""By name. Those that only a gate turns on hold where the gate is on as well."""


def parse_version(text: object, where: str = "kubeletVersion") -> KubeletVersion:
    """Return the release that a version names: `1.33`, `v1.33.13-eks-1` or `v1.33.4+k3s1`.

    Only the minor counts. A release newer than those known is judged as the newest known, with a warning.

    Args:
        text: the version.
        where: the place that an error names.

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
        warn(f"kubelet {major}.{minor} is newer than those known, and is judged as {NEWEST}")
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


class StatusRequests(Enum):
    """Whose requests a kubelet takes from the status of the pod, where that has them."""

    NOBODY = "nobody"
    CONTAINERS = "containers"
    WITH_SIDECARS = "containers and sidecars"


class PodReading(Record):
    """The way a kubelet reads the requests of a pod."""

    pod_level: PodLevel = PodLevel.SHARES
    from_status: StatusRequests = StatusRequests.NOBODY


POD_READINGS: Final = tuple(starmap(PodReading, product(PodLevel, StatusRequests)))


class VersionProfile(Record):
    """The behaviour of a release, with its feature gates, where releases differ; see `BEHAVIOURS`."""

    device_hints_over_all_nodes: bool = False
    memory_groups_checked: bool = True
    odd_l3_rest_rounds_down: bool = False
    pods: PodReading = PodReading()


def profile_of(version: KubeletVersion, gates: Mapping[str, bool]) -> VersionProfile:
    """Return the profile of a release.

    Args:
        version: the release.
        gates: which of its feature gates are on; those that it does not know are missing.
    """
    holds = {name: behaviour.holds_in(version) for name, behaviour in BEHAVIOURS.items()}
    pod_level, from_status = PodLevel.IGNORED, StatusRequests.NOBODY
    if gates.get("PodLevelResources") and holds["pod_level_resources_set_qos"]:
        pod_level = PodLevel.SHARES if holds["pod_level_resources_share"] else PodLevel.SETS_QOS
    if gates.get("InPlacePodVerticalScaling") and holds["requests_from_status"]:
        sidecars = holds["sidecar_requests_from_status"]
        from_status = StatusRequests.WITH_SIDECARS if sidecars else StatusRequests.CONTAINERS
    return VersionProfile(
        device_hints_over_all_nodes=holds["device_hints_over_all_nodes"],
        memory_groups_checked=holds["memory_groups_checked"],
        odd_l3_rest_rounds_down=holds["odd_l3_rest_rounds_down"],
        pods=PodReading(pod_level, from_status),
    )
