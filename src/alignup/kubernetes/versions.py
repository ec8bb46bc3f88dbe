"""Knows the releases of the kubelet, and what each decides otherwise.

Its feature gates, policy options and checkpoints are known, too.

Each minor release is a file of `releases`; what the names of rules there mean is in
`docs/versions.md`. Providers ask a `VersionProfile` for a rule by its name, and compare no
versions. `alignup.kubernetes.policy_options` decides what gates are on, and which options a kubelet
accepts.
"""

from __future__ import annotations

import os
import re
from collections.abc import KeysView, Mapping
from enum import Enum
from functools import cache
from typing import Any, Final, NamedTuple

from alignup.errors import InputError, warn
from alignup.records import Record

_VERSION: Final = (
    r"v?([0-9]{1,4})\.([0-9]{1,6})(?:\.[0-9]{1,9}(?:[-+.][0-9A-Za-z.+~_-]{0,200})?)?[+]?"
)


class KubeletVersion(NamedTuple):
    """A minor release of Kubernetes 1; patches of one release decide alike."""

    minor: int

    def __str__(self) -> str:
        return f"1.{self.minor}"

    @property
    def title(self) -> str:
        """The release as texts name it: `1.37`, or `1.38 (a preview: 1.38.0-beta.0)`."""
        preview = PREVIEWS.get(self)
        return f"{self} (a preview: {preview})" if preview else str(self)


_HERE: Final = os.path.dirname(__file__)  # noqa: PTH120  # pathlib is slow to import, as json is
KNOWN_VERSIONS: Final = tuple(
    sorted(
        KubeletVersion(int(name[2:-5]))
        for name in os.listdir(f"{_HERE}/releases")  # noqa: PTH208
        if name.endswith(".json")
    )
)
# Releases that are not out, each with the version that its rules were read from. They judge only
# who names one, or whose node reports one.
PREVIEWS: Final[Mapping[KubeletVersion, str]] = {KubeletVersion(38): "1.38.0-beta.0"}
RELEASED: Final = tuple(version for version in KNOWN_VERSIONS if version not in PREVIEWS)

OLDEST: Final = KNOWN_VERSIONS[0]
NEWEST: Final = RELEASED[-1]
NEWEST_KNOWN: Final = KNOWN_VERSIONS[-1]


class GateStage(Record):
    """The stage and default of a feature gate in a release.

    Attributes:
        maturity: `alpha`, `beta`, `GA` or `deprecated`.
        is_on: by default.
        is_locked: it cannot be set to anything but its default.
    """

    maturity: str
    is_on: bool
    is_locked: bool


class Release(Record):
    """What is known of a release.

    Attributes:
        rules: the names of the rules that hold, see `docs/versions.md`.
        faults: the names of known faults, see `docs/versions.md`: on these a kubelet hangs, panics
            or gives something twice.
        checkpoints: by file, the versions that the kubelet reads; it writes the last one.
        cpu_options: by name, the stage of the CPU manager's options
            (`cpumanager/policy_options.go`): `alpha`, `beta` or `GA`.
        topology_options: the same of `topologymanager/policy_options.go`.
        needs: by gate, the gates without which it must not be on.
        gates: all feature gates that the kubelet knows, by name; `docs/versions.md` says how they
            were listed.
    """

    rules: frozenset[str]
    faults: frozenset[str]
    checkpoints: Mapping[str, tuple[str, ...]]
    cpu_options: Mapping[str, str]
    topology_options: Mapping[str, str]
    needs: Mapping[str, tuple[str, ...]]
    gates: Mapping[str, GateStage]


@cache
def release_of(version: KubeletVersion) -> Release:
    """Return what is known of a release, one of `KNOWN_VERSIONS`."""
    data = read_table(f"releases/{version}")
    return Release(
        rules=frozenset(data["rules"]),
        faults=frozenset(data["faults"]),
        checkpoints={path: tuple(versions) for path, versions in data["checkpoints"].items()},
        cpu_options=data["cpuOptions"],
        topology_options=data["topologyOptions"],
        needs={gate: tuple(needs) for gate, needs in data["needs"].items()},
        gates={gate: GateStage(*stage) for gate, stage in data["gates"].items()},
    )


def is_on_for_good(gate: str, version: KubeletVersion) -> bool:
    """Return whether a release lacks a gate because what it opened is there for good.

    That is so where the last release before that has the gate has it as GA, and on. A kubelet does
    not start with such a gate in its configuration, and behaves as with the gate on.

    Args:
        gate: its name.
        version: one of `KNOWN_VERSIONS`; a gate that it has itself did not go.
    """
    if gate in release_of(version).gates:
        return False

    for earlier in reversed(KNOWN_VERSIONS):
        if earlier < version and gate in release_of(earlier).gates:
            stage = release_of(earlier).gates[gate]
            return stage.maturity == "GA" and stage.is_on

    return False


@cache
def known_names(kind: str) -> KeysView[str]:
    """Return names that Kubernetes knows, in an order that stays.

    Args:
        kind: of the fields of a `KubeletConfiguration` (v1beta1), a `Pod`, its `spec`, a
            `container` or `resources`; `managerGates`, the feature gates that concern the resource
            managers (others change no decision here); or `rejections`, the reasons of a kubelet
            that does not admit a pod, beside OutOf and a resource.
    """
    return dict.fromkeys(read_table("known_names")[kind]).keys()


def is_rejection(reason: str) -> bool:
    """Return whether kubelets give this reason to pods that they do not admit."""
    return reason in known_names("rejections") or reason.startswith("OutOf")


def later_fields(version: KubeletVersion) -> Mapping[str, KubeletVersion]:
    """Return the fields of a `KubeletConfiguration` that came after a release, and with which.

    Only those of releases after 1.37 are known.
    """
    new_fields = read_table("known_names")["newFields"]
    return {
        name: release
        for release in KNOWN_VERSIONS
        if release > version
        for name in new_fields.get(str(release), ())
    }


@cache
def read_table(name: str) -> Any:
    """Return a table of this package, by the name of its file without `.json`."""
    import msgspec  # noqa: PLC0415  # slow to import

    with open(f"{_HERE}/{name}.json", encoding="utf-8") as file:  # noqa: PTH123  # as above
        return msgspec.json.decode(file.read())


def parse_version(text: object, where: str = "kubeletVersion") -> KubeletVersion:
    """Return the release that a version names: `1.33`, `v1.33.13-eks-1` or `v1.33.4+k3s1`.

    Only the minor counts. A release newer than those known is judged as the newest known, with a
    warning. So is one that is known as a preview only, where the text says more than the minor, as
    nodes do: what is out by then may decide otherwise.

    Args:
        text: the version.
        where: the place that an error names.

    Raises:
        InputError: it is no version, or is older than those known.
    """
    if isinstance(text, KubeletVersion):
        return text

    numbers = _numbers(text)
    if numbers is None:
        raise InputError.at(
            where, 'the version of a kubelet such as "1.33" or "v1.33.13-eks-1"', text
        )

    if numbers < (1, OLDEST.minor):
        raise InputError.at(
            where, f"kubelet {OLDEST} or later; what older ones decide is not known", text
        )

    if newer := newer_release(text):
        unknown = "not known are its rules, feature gates, policy options and checkpoints"
        warn(
            f"kubelet {newer} is newer than those known, and is judged as {NEWEST_KNOWN.title}; "
            f"{unknown}"
        )
        return NEWEST_KNOWN

    version = KubeletVersion(numbers[1])
    preview = PREVIEWS.get(version)
    if preview and str(text).removeprefix("v") not in (str(version), preview):
        warn(f"kubelet {text} is judged by a preview of its release, {preview}")

    return version


def newer_release(text: object) -> str:
    """Return the release that a version names, such as `1.39`, if it is newer than those known.

    Otherwise an empty text.
    """
    numbers = _numbers(text)
    if numbers is None or numbers <= (1, NEWEST_KNOWN.minor):
        return ""
    return f"{numbers[0]}.{numbers[1]}"


def _numbers(text: object) -> tuple[int, int] | None:
    """Return the major and the minor release that a version names; None: it is no version."""
    if not isinstance(text, str):
        return None
    match = re.fullmatch(_VERSION, text)
    if match is None:
        return None
    return int(match[1]), int(match[2])


def parse_versions(text: str, where: str = "kubeletVersion") -> tuple[KubeletVersion, ...]:
    """Return the releases of a list such as `1.33,1.36`, each once.

    Raises:
        InputError: as `parse_version`.
    """
    return tuple(dict.fromkeys(parse_version(part.strip(), where) for part in text.split(",")))


class PodLevel(Enum):
    """The meaning of resources of a pod as a whole (`spec.resources`) to a kubelet.

    Attributes:
        SETS_QOS: they decide the QoS class; containers get what their own requests say.
        SHARES: they decide the QoS class, and the containers share CPUs and memory.
        MANAGED: they decide the QoS class, and the managers give them to the pod (gate
            PodLevelResourceManagers).
    """

    IGNORED = "ignored"
    SETS_QOS = "sets QoS"
    SHARES = "shares"
    MANAGED = "managed"

    @property
    def allows_bare_containers(self) -> bool:
        """Whether a container of a Guaranteed pod can request nothing, and have no share either."""
        return self is PodLevel.SETS_QOS or self is PodLevel.MANAGED


class StatusRequests(Enum):
    """Whose requests a kubelet takes from the status of the pod, where that has them."""

    NOBODY = "nobody"
    CONTAINERS = "containers"
    WITH_SIDECARS = "containers and sidecars"


class PodReading(Record):
    """The way a kubelet reads the requests of a pod.

    Attributes:
        claimed_devices_left_out: no device plugin gives a container the extended resources that the
            devices of a claim stand for.
        init_only_memory_counts: the pod as a whole requests the types of memory, too, for which
            only its init containers ask.
    """

    pod_level: PodLevel = PodLevel.SHARES
    from_status: StatusRequests = StatusRequests.NOBODY
    empty_pod_resources_ignored: bool = True
    pod_limits_defaulted_by_api_server: bool = True
    claims_count: bool = False
    claims_count_with_containers: bool = False
    init_only_memory_counts: bool = False
    zero_limits_are_none: bool = False
    claimed_devices_left_out: bool = True


class VersionProfile(Record):
    """The behaviour of a release, with its feature gates, where releases differ.

    Attributes:
        distribution_as_written: as KEP-2902 has it; no kubelet does so.
    """

    device_hints_over_all_nodes: bool = False
    distribution_as_written: bool = False
    memory_groups_checked: bool = True
    odd_l3_rest_rounds_down: bool = False
    pods: PodReading = PodReading()
    distribution_prefers_one_socket: bool = True
    distribution_remembers_choice: bool = False
    distribution_spans_affinity: bool = False
    groups_free_by_own_size: bool = False
    memory_only_where_requested: bool = True
    pod_resources_restored: bool = False
    restored_memory_hints_by_container: bool = False
    spread_in_turns_over_cores: bool = False
    state_before_smt_check: bool = True
    whole_l3_groups_first: bool = False
    hints_carry_scores: bool = False
    preferred_merges_searched_first: bool = False


_OWN_RULES: Final = tuple(name for name in VersionProfile.__record_fields__ if name != "pods")


def profile_of(version: KubeletVersion, gates: Mapping[str, bool]) -> VersionProfile:
    """Return the profile of a release.

    Args:
        version: the release.
        gates: which of its feature gates are on; those that it does not know are missing, and
            those of them that went after they were GA count as on.
    """
    rules = release_of(version).rules

    def is_on(gate: str) -> bool:
        if gate in gates:
            return gates[gate]
        return is_on_for_good(gate, version)

    def holds(rule: str, gate: str) -> bool:
        return rule in rules and is_on(gate)

    pod_level = PodLevel.IGNORED
    if holds("pod_level_resources_set_qos", "PodLevelResources"):
        if is_on("PodLevelResourceManagers"):
            pod_level = PodLevel.MANAGED
        elif "pod_level_resources_share" in rules:
            pod_level = PodLevel.SHARES
        else:
            pod_level = PodLevel.SETS_QOS

    from_status = StatusRequests.NOBODY
    if holds("requests_from_status", "InPlacePodVerticalScaling"):
        from_status = StatusRequests.CONTAINERS
        if "sidecar_requests_from_status" in rules:
            from_status = StatusRequests.WITH_SIDECARS

    reading = PodReading(
        pod_level,
        from_status,
        empty_pod_resources_ignored=holds(
            "empty_pod_resources_ignored", "PodLevelResourcesFixKubeletQOSClass"
        ),
        pod_limits_defaulted_by_api_server=holds(
            "pod_limits_defaulted_by_api_server", "PodLevelResourcesFixDefaulting"
        ),
        claims_count=holds("claims_count_as_node_resources", "DRANodeAllocatableResources"),
        claims_count_with_containers="claims_count_with_containers" in rules,
        init_only_memory_counts="init_only_memory_counts" in rules,
        zero_limits_are_none="zero_limits_are_none" in rules,
        claimed_devices_left_out=holds("claimed_devices_left_out", "DRAExtendedResource"),
    )
    return VersionProfile(pods=reading, **{name: name in rules for name in _OWN_RULES})
