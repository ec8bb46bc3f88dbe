"""Which feature gates a scheduler of some release has on, and which of its allocators they choose.

Sources: `pkg/features/kube_features.go` and `structured/allocator.go` of Kubernetes 1.34 to
1.38.0-beta.0.
The allocator of 1.34 and 1.35 tries pools in no order: where two of them match, nobody can say
which device its clusters will give.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from alignup.errors import InputError, one_line
from alignup.kubernetes import versions
from alignup.kubernetes.policy_options import ALL_OF, gate_is_on, locked_gates, unmet_needs
from alignup.kubernetes.versions import KubeletVersion, is_on_for_good, release_of
from alignup.records import Record, field
from alignup.text.known_keys import unknown_keys

# Claims of resource.k8s.io/v1, which 1.34 brought.
_OLDEST: Final = KubeletVersion(34)
RELEASES: Final = tuple(str(version) for version in versions.KNOWN_VERSIONS if version >= _OLDEST)
NEWEST: Final = str(versions.NEWEST)
EXTENDED_RESOURCES: Final = "DRAExtendedResource"
NODE_RESOURCES: Final = "DRANodeAllocatableResources"
_UNSUPPORTED: Final = (
    "DRAOptionalNodeOperations",
    "DRADerivedAttributes",
)
# The gates that open something to claims, each with those that must be on with it. (Releases tell
# of such needs themselves from 1.35 on.)
_OPENING: Final[Mapping[str, tuple[str, ...]]] = {
    "DRAAdminAccess": (),
    "DRAPrioritizedList": (),
    "DRAPartitionableDevices": (),
    "DRAConsumableCapacity": (),
    "DRAFractionalCapacityRange": ("DRAConsumableCapacity",),
    "DRADeviceBindingConditions": ("DRAResourceClaimDeviceStatus",),
    "DRADeviceCompatibilityGroups": (),
    "DRAListTypeAttributes": (),
}


class Gates(Record):
    """What a scheduler knows of devices.

    Attributes:
        list_attributes: constraints compare lists as sets.
        list_selectors: selectors may be asked about devices that have lists.
        allocator: `stable`, `incubating` or `experimental`.
        is_simple: the allocator knows no capacities, no distinctAttribute and no order of pools, as
            the stable one up to 1.37.
        compatibility_groups: devices of a counter set may have to go together.
        extended_resources: classes of devices may serve extended resources (KEP-5004).
        node_resources: devices may count as CPU, memory or hugepages of the node (KEP-5517).
        release: the scheduler's.
        settings: the gates that are set otherwise than by default, by name.
    """

    admin_access: bool
    prioritized_list: bool
    partitionable_devices: bool
    device_taints: bool
    binding_conditions: bool
    consumable_capacity: bool
    fractional_ranges: bool
    list_attributes: bool
    list_selectors: bool
    allocator: str
    is_simple: bool
    is_before_37: bool
    is_before_38: bool
    node_resources: bool = False
    extended_resources: bool = True
    compatibility_groups: bool = False
    is_before_35: bool = False
    release: str = NEWEST
    settings: Mapping[str, bool] = field(default_factory=dict)


def check_settings(release: str, settings: Mapping[str, bool]) -> None:
    """Refuse gates with which a scheduler does not start.

    Args:
        release: such as `1.37`.
        settings: gates that are set, by name.

    Raises:
        InputError: the release is not known, does not know a gate, has locked one to the other
            value, or has gates off that another one needs.
    """
    version = _version_of(release)
    for complaint in _complaints(version, settings):
        raise InputError(complaint)


def _version_of(release: str) -> KubeletVersion:
    if release not in RELEASES:
        raise InputError.at("release", f"one of {', '.join(RELEASES)}", release)
    return KubeletVersion(int(release[2:]))


def _complaints(version: KubeletVersion, settings: Mapping[str, bool]) -> Iterator[str]:
    """Yield a sentence for each gate with which a scheduler does not start."""
    place = f"kube-scheduler {version.title}"
    stages = release_of(version).gates
    for name, meant in unknown_keys(sorted(settings), (*stages, *ALL_OF)):
        hint = f"; did you mean {meant}?" if meant else ""
        first = next(_releases_with(name), None)
        if is_on_for_good(name, version):
            hint = "; there it is on for good"
        elif first is not None and first > version:
            hint = f"; {first.title} has it"

        yield f"unrecognized feature gate: {one_line(name)} ({place}){hint}"

    yield from locked_gates(settings, version, place)
    yield from unmet_needs(settings, version, place)


def _releases_with(name: str) -> Iterator[KubeletVersion]:
    """Yield the releases that know a gate, in their order."""
    return (version for version in versions.KNOWN_VERSIONS if name in release_of(version).gates)


def gates_to_turn_on(gates: Gates) -> Iterator[tuple[tuple[str, ...], Gates]]:
    """Yield the names of gates that a release has off and that open something to claims.

    Each comes with those that it needs, and with the gates of the scheduler once they are on.
    """
    version = _version_of(gates.release)
    for name, needs in _OPENING.items():
        names = (name, *needs)
        off = tuple(gate for gate in names if not gate_is_on(gate, gates.settings, version))
        if name not in off:
            continue

        settings = {**gates.settings, **dict.fromkeys(off, True)}
        if next(_complaints(version, settings), None) is None:
            yield off, gates_of(gates.release, settings)


def gates_of(release: str = NEWEST, features: Mapping[str, bool] | None = None) -> Gates:
    """Return the gates of a release.

    Args:
        release: such as `1.37`.
        features: gates that are set otherwise than by default, by name. One that the release does
            not know counts all the same, as recorded questions have it; `check_settings` refuses
            it.

    Raises:
        InputError: the release is not known, or a gate is on whose rules are not modelled.
    """
    version = _version_of(release)
    settings = dict(features or {})

    def is_on(name: str) -> bool:
        return settings[name] if name in settings else gate_is_on(name, settings, version)

    unsupported = list(_UNSUPPORTED)
    if version < KubeletVersion(37):
        # devices of 1.36 say otherwise how they count, in fields that 1.37 has given up
        unsupported.append(NODE_RESOURCES)

    for name in unsupported:
        if is_on(name):
            raise InputError(
                f"the rules of the feature gate {name} are not modelled: switch it off"
            )

    is_36 = release == "1.36"
    is_before_38 = version < KubeletVersion(38)
    binding = is_on("DRADeviceBindingConditions") and is_on("DRAResourceClaimDeviceStatus")
    consumable = is_on("DRAConsumableCapacity")
    fractional = is_on("DRAFractionalCapacityRange") and not is_36
    lists = is_on("DRAListTypeAttributes")
    # kube-scheduler 1.36 gives the gate to its selectors, and not to the allocator
    list_attributes = lists and not is_36
    groups = is_on("DRADeviceCompatibilityGroups")
    if list_attributes or groups:
        allocator = "experimental" if is_before_38 else "incubating"
    elif is_before_38 and (binding or consumable or fractional):
        allocator = "incubating"
    else:
        allocator = "stable"

    return Gates(
        admin_access=is_on("DRAAdminAccess"),
        prioritized_list=is_on("DRAPrioritizedList"),
        partitionable_devices=is_on("DRAPartitionableDevices"),
        device_taints=is_on("DRADeviceTaints"),
        binding_conditions=binding,
        consumable_capacity=consumable,
        fractional_ranges=fractional,
        list_attributes=list_attributes,
        list_selectors=lists or not is_36,
        allocator=allocator,
        is_simple=is_before_38 and allocator == "stable",
        is_before_37=is_36,
        is_before_38=is_before_38,
        node_resources=is_on(NODE_RESOURCES),
        compatibility_groups=groups,
        extended_resources=is_on(EXTENDED_RESOURCES),
        is_before_35=version < KubeletVersion(35),
        release=release,
        settings=settings,
    )
