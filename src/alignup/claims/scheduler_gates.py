"""Which feature gates a scheduler of some release has on, and which of its allocators they choose.

Sources: `pkg/features/kube_features.go` and `structured/allocator.go` of Kubernetes 1.34 to
1.38.0-beta.0.
The allocator of 1.34 and 1.35 tries pools in no order: where two of them match, nobody can say
which device its clusters will give.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from alignup.errors import InputError
from alignup.kubernetes import versions
from alignup.kubernetes.versions import KubeletVersion, is_on_for_good, release_of
from alignup.records import Record

# Claims of resource.k8s.io/v1, which 1.34 brought.
_OLDEST: Final = KubeletVersion(34)
RELEASES: Final = tuple(str(version) for version in versions.KNOWN_VERSIONS if version >= _OLDEST)
NEWEST: Final = str(versions.NEWEST)
NODE_RESOURCES: Final = "DRANodeAllocatableResources"
_UNSUPPORTED: Final = (
    "DRAOptionalNodeOperations",
    "DRADerivedAttributes",
    "DRADeviceCompatibilityGroups",
)


class Gates(Record):
    """What a scheduler knows of devices.

    Attributes:
        list_attributes: constraints compare lists as sets.
        list_selectors: selectors may be asked about devices that have lists.
        allocator: `stable`, `incubating` or `experimental`.
        is_simple: the allocator knows no capacities, no distinctAttribute and no order of pools, as
            the stable one up to 1.37.
        node_resources: devices may count as CPU, memory or hugepages of the node (KEP-5517).
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


def gates_of(release: str = NEWEST, features: Mapping[str, bool] | None = None) -> Gates:
    """Return the gates of a release.

    Args:
        release: such as `1.37`.
        features: gates that are set otherwise than by default, by name.

    Raises:
        InputError: the release is not known, or a gate is on whose rules are not modelled.
    """
    if release not in RELEASES:
        raise InputError.at("release", f"one of {', '.join(RELEASES)}", release)

    version = KubeletVersion(int(release[2:]))
    stages = release_of(version).gates
    is_set = {name: stage.is_on for name, stage in stages.items() if name.startswith("DRA")}
    is_set.update(features or {})

    def is_on(name: str) -> bool:
        return is_set[name] if name in is_set else is_on_for_good(name, version)

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
    if list_attributes:
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
    )
