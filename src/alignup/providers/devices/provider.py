"""The device manager as a hint provider: which devices of every plugin's resource a container gets.

It decides as the kubelet does. `alignup.providers.devices.inventory` keeps where a resource's
devices are and picks the next one; this module keeps which containers hold them.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from alignup.core.amounts.holders import DeviceHolders, PodDevices
from alignup.core.shared_dict import SharedDict
from alignup.errors import AllocationError
from alignup.kubernetes.versions import VersionProfile
from alignup.machine.bits import bit_numbers
from alignup.machine.device_inventory import Device, checked_devices, repeated
from alignup.providers.devices.inventory import DevicePlugin, DevicePool, Preference, preference_of
from alignup.topology_manager.hints import HintList, TopologyHint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from alignup.kubernetes.pod import Container, Pod
    from alignup.machine.machine import Machine
    from alignup.providers.devices.pairs import Pairing
    from alignup.topology_manager.provider import ResourceHints

__all__ = ["Device", "DevicePlugin", "DeviceProvider"]

_NOTHING: Final = PodDevices({}, {})


class DeviceProvider(DeviceHolders):
    """Gives containers the devices of extended resources, near to their affinity where it can.

    Args:
        machine: The machine the devices sit in.
        inventory: The devices of each resource. Other resources are left to others.
        plugins: By resource, who knows which devices go well together: an object with
            `preferred_allocation`, or a function with the same arguments.
        profile: what the kubelet's release does where releases differ.
        pairing: who chooses devices of several resources together, which no kubelet does.

    Raises:
        InputError: A device id comes twice in a resource, or a device is on a NUMA node that does
            not exist.
        TypeError: A plugin is neither.
    """

    name = "devices"
    pools: dict[str, DevicePool]
    # Whether the kubelet has restarted and admits the pods again that it finds in its state: no
    # plugin has registered yet, so that nothing is known of where devices are, and containers
    # that run keep theirs.
    readmits_pods = False
    # While pods are admitted again: their containers have not run on, as the machine was booted.
    containers_ended = False

    def __init__(
        self,
        machine: Machine,
        inventory: Mapping[str, Sequence[Device]],
        plugins: Mapping[str, DevicePlugin | Preference] | None = None,
        profile: VersionProfile | None = None,
        pairing: Pairing | None = None,
    ) -> None:
        profile = profile or VersionProfile()
        plugins = plugins or {}

        self._machine = machine
        self._pairing = pairing
        self._over_all_nodes = profile.device_hints_over_all_nodes
        self._preferences = {
            resource: preference_of(plugin) for resource, plugin in plugins.items()
        }
        # By pod uid, its init containers that name devices and have ended.
        self._ended: SharedDict[str, frozenset[str]] = SharedDict()
        for resource, devices in inventory.items():
            self.update(resource, devices)

    @property
    def has_pairs(self) -> bool:
        """Whether devices of several resources are chosen together."""
        return self._pairing is not None

    def copy(self) -> DeviceProvider:
        """Return an independent provider with the same inventories and holdings."""
        duplicate = DeviceProvider.__new__(DeviceProvider)
        duplicate._machine = self._machine
        duplicate._preferences = self._preferences
        duplicate._pairing = self._pairing
        duplicate._over_all_nodes = self._over_all_nodes
        duplicate._ended = self._ended.copy()
        duplicate.readmits_pods = self.readmits_pods
        duplicate.containers_ended = self.containers_ended
        duplicate.hold_as(self)
        return duplicate

    def update(
        self,
        resource: str,
        devices: Sequence[Device],
        plugin: DevicePlugin | Preference | None = None,
    ) -> None:
        """Replace the inventory of a resource by what its plugin reports now.

        Pods keep what they hold, even if it has turned unhealthy or is gone; on release such a
        device is not free until it is reported as healthy again. NUMA nodes that the machine lacks
        are ignored with an `AlignupWarning`.

        Args:
            resource: the resource, which may be a new one.
            devices: all that its plugin reports.
            plugin: the plugin to ask from now on which devices go well together; None: the earlier
                one.

        Raises:
            InputError: a device id comes twice; nothing changed.
            TypeError: the plugin is neither an object nor a function to ask.
        """
        devices = checked_devices(devices, self._machine, f"devices[{resource!r}]")
        if plugin is not None:
            # a copy of this provider has the same mapping
            self._preferences = {**self._preferences, resource: preference_of(plugin)}

        old_pool = self.pools.get(resource)
        if old_pool is None:
            self.pools = {**self.pools, resource: self._pool(resource, devices, [])}
            return

        reported_ids = {device.id for device in devices}
        given_devices = [old_pool.devices[bit] for bit in bit_numbers(old_pool.ledger.given)]
        unreported = [device for device in given_devices if device.id not in reported_ids]
        pool = self._pool(resource, devices, unreported)
        pool.ledger.give(pool.bits(old_pool.ids(old_pool.ledger.given)))

        def moved(bits_of: dict[str, int]) -> dict[str, int]:
            if resource not in bits_of:
                return bits_of
            return {**bits_of, resource: pool.bits(old_pool.ids(bits_of[resource]))}

        pods: SharedDict[str, PodDevices] = SharedDict()
        for uid, entry in self.pods.items():
            containers = {name: moved(bits_of) for name, bits_of in entry.containers.items()}
            pods[uid] = PodDevices(containers, moved(entry.reusable))

        pools = {**self.pools, resource: pool}
        # one line without a call: no exception comes between
        self.pools, self.pods = pools, pods

    @contextmanager
    def hiding(self, hidden: Mapping[str, tuple[AbstractSet[str], str]]) -> Iterator[None]:
        """Give none of some devices meanwhile; those that are held stay so.

        Args:
            hidden: by resource, their ids, and why, for messages.
        """
        pools = self.pools
        self.pools = {
            **pools,
            **{name: pools[name].hiding(ids, reason) for name, (ids, reason) in hidden.items()},
        }
        try:
            yield
        finally:
            meanwhile, self.pools = self.pools, pools
            for name in hidden:
                given_before = pools[name].ledger.given
                given_now = meanwhile[name].ledger.given
                pools[name].ledger.give(given_now & ~given_before)
                pools[name].ledger.take_back(given_before & ~given_now)

    def topology_hints(self, pod: Pod, container: Container) -> ResourceHints:
        """Return near which nodes enough devices are, for each resource that is asked for."""
        pools = self.pools
        hints: dict[str, HintList | None] = {}
        if self.readmits_pods:
            return self._no_preference(container.devices)

        entry = self.pods.get(pod.uid)
        if entry is None:  # the usual case: nothing is held, and nothing left by earlier containers
            for resource, request in container.devices:
                if resource in pools:
                    hints[resource] = pools[resource].ledger.hints(request)

            return hints

        held_devices = entry.containers.get(container.name, {})
        reusable = entry.reusable
        for resource, request in container.devices:
            if resource in pools:
                hints[resource] = _hints(
                    pools[resource],
                    held_devices.get(resource, 0),
                    reusable.get(resource, 0),
                    request,
                )

        return hints

    def pod_topology_hints(self, pod: Pod) -> ResourceHints:
        """Return the same for all containers of the pod together; nothing is reused here."""
        if self.readmits_pods:
            return self._no_preference(pod.devices)

        entry = self.pods.get(pod.uid, _NOTHING)
        return {
            resource: _hints(self.pools[resource], entry.held(resource), 0, request)
            for resource, request in pod.devices
            if resource in self.pools
        }

    def _no_preference(self, requests: Iterable[tuple[str, int]]) -> ResourceHints:
        """Return the hints of resources of which no device is known to be near a NUMA node."""
        return {resource: None for resource, _ in requests if resource in self.pools}

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Give the container its devices, near to `affinity` where there are enough.

        Raises:
            AllocationError: There are too few of some resource; nothing was given to this
                container. Or the kubelet has restarted, and this is a container with devices that
                does not run any more.
        """
        if self.readmits_pods:
            self._check_runs(pod, container)
            return

        entry = self.pods.get(pod.uid, _NOTHING)
        if self.last_pod != pod.uid:
            if entry.reusable:  # what init containers left is forgotten once another pod has come
                entry = self.pods[pod.uid] = PodDevices(entry.containers, {})
            self.last_pod = pod.uid

        if not container.devices:
            return
        if chosen := self._chosen(pod, container, affinity, entry):
            self._keep(
                pod.uid,
                container.name,
                chosen,
                is_reusable=container.is_init and not container.is_sidecar,
            )

    def _chosen(
        self, pod: Pod, container: Container, affinity: TopologyHint, entry: PodDevices
    ) -> dict[str, int]:
        """Return the devices of each resource that a container does not hold yet.

        None of a resource for which devices of a claim stand.

        Raises:
            AllocationError: there are too few of some resource.
        """
        held_devices = entry.containers.get(container.name, {})
        reusable = entry.reusable
        claimed = pod.constraints.claimed_devices
        mask = None if affinity.affinity is None else int(affinity.affinity)
        chosen: dict[str, int] = {}
        for resource, request in container.devices:
            pool = self.pools.get(resource)
            if pool is None or (claimed and (container.name, resource) in claimed):
                continue

            if resource in held_devices:
                _check_held(pool, held_devices[resource], request)
            elif bits := pool.choose(request, reusable.get(resource, 0), mask):
                chosen[resource] = bits

        if self._pairing is not None:
            self._pairing.choose(self.pools, chosen, reusable, mask)

        return chosen

    def _check_runs(self, pod: Pod, container: Container) -> None:
        """Refuse a container that does not run any more, for which a restarted kubelet has nothing.

        No device is healthy before its plugin has registered again (`devicesToAllocate` of
        `devicemanager/manager.go`).

        Raises:
            AllocationError: it is one that names devices, be it none of them.
        """
        if not self.containers_ended and container.name not in self._ended.get(pod.uid, ()):
            return

        claimed = pod.constraints.claimed_devices
        for resource, _ in container.devices:
            if resource in self.pools and (container.name, resource) not in claimed:
                raise AllocationError(
                    f"no healthy devices present; cannot allocate unhealthy devices {resource}",
                    resources=(resource,),
                )

    def started(self, pod: Pod, container_name: str) -> None:
        """Note that the init containers before this one have ended, but for sidecars."""
        names = [container.name for container in pod.all_containers]
        earlier_containers = pod.all_containers[: names.index(container_name)]
        ended_names = [
            container.name
            for container in earlier_containers
            if container.is_init and not container.is_sidecar and container.devices
        ]
        if ended_names:
            self._ended[pod.uid] = self._ended.get(pod.uid, frozenset()).union(ended_names)

    def allocate_pod(self, pod: Pod, affinity: TopologyHint) -> None:
        """Do nothing: a pod with resources of its own gets devices when its containers start.

        See `Node.started`.
        """

    def adopt(self, pod_uid: str, container_name: str, ids: Mapping[str, Iterable[str]]) -> None:
        """Note devices, by resource, that the container was given before this provider was made.

        Raises:
            AllocationError: A device is not in the inventory, is named twice, or somebody has it;
                nothing was noted.
        """
        chosen = {
            resource: self._known(resource, device_ids) for resource, device_ids in ids.items()
        }
        for resource, bits in chosen.items():
            pool = self.pools[resource]
            if held_ids := pool.ids(bits & pool.ledger.given):
                raise AllocationError(
                    f"devices of {resource} are held already: {', '.join(held_ids)}"
                )
            if repeated_ids := repeated(ids[resource]):
                raise AllocationError(
                    f"devices of {resource} are named twice: {', '.join(repeated_ids)}"
                )

        self._keep(pod_uid, container_name, chosen)

    def _known(self, resource: str, ids: Iterable[str]) -> int:
        """Return the set of these devices.

        Raises:
            AllocationError: one of them is not in the inventory.
        """
        pool = self.pools.get(resource)
        unknown = sorted(identity for identity in ids if pool is None or not pool.knows(identity))
        if pool is None or unknown:
            raise AllocationError(
                f"the inventory has no {', '.join(unknown) or 'devices'} of {resource}"
            )

        return pool.bits(ids)

    def restore(
        self,
        holdings: Mapping[str, Mapping[str, Mapping[str, Iterable[str]]]],
        unreported: Mapping[str, Sequence[Device]],
    ) -> None:
        """Take over what a kubelet's device manager has given, in place of what is held now.

        Args:
            holdings: by pod uid, container name and resource, the ids of the devices that the
                container holds; those of one pod may overlap, since init containers leave theirs to
                the containers after them.
            unreported: by resource, devices that are held and that no plugin reports.

        Raises:
            AllocationError: a device that is held is neither in the inventory nor among those that
                are gone.
        """
        self.pods = SharedDict()
        old_pools = self.pools
        pools = {}
        for resource in {**old_pools, **unreported}:
            reported = old_pools[resource].reported if resource in old_pools else ()
            pools[resource] = self._pool(resource, reported, unreported.get(resource, ()))

        self.pools = pools
        for uid, containers in holdings.items():
            for name, resources in containers.items():
                chosen = {
                    resource: self._known(resource, ids) for resource, ids in resources.items()
                }
                self._keep(uid, name, chosen)

    def inherit(self, predecessor: DeviceProvider) -> None:
        """Take over what the checkpoint of the kubelet before a restart says.

        Args:
            predecessor: the provider as it was then.
        """
        self.pools = {resource: pool.copy() for resource, pool in predecessor.pools.items()}
        self.pods = SharedDict(
            {uid: PodDevices(entry.containers, {}) for uid, entry in predecessor.pods.items()}
        )
        self._ended = predecessor._ended.copy()

    def _pool(
        self, resource: str, devices: Sequence[Device], unreported: Sequence[Device]
    ) -> DevicePool:
        """Return a pool in which nothing is given."""
        return DevicePool(
            resource,
            devices,
            self._machine.numa_node_ids,
            unreported,
            self._preferences.get(resource),
            over_all_nodes=self._over_all_nodes,
        )

    def _keep(
        self,
        pod_uid: str,
        container_name: str,
        chosen: dict[str, int],
        *,
        is_reusable: bool = False,
    ) -> None:
        """Mark devices as given to a container, and as reusable or not by the pod's later ones.

        Other containers of the pod may hold some of them too.
        """
        entry = self.pods.get(pod_uid, _NOTHING)
        reusable = entry.reusable
        if is_reusable or reusable:
            reusable = dict(reusable)
            for resource, bits in chosen.items():
                if is_reusable:
                    reusable[resource] = reusable.get(resource, 0) | bits
                elif resource in reusable:
                    reusable[resource] &= ~bits

        # whose they are comes first: what is cut short can be released
        self.pods[pod_uid] = entry.with_more(container_name, chosen, reusable)
        for resource, bits in chosen.items():
            self.pools[resource].ledger.give(bits)

    def release(self, pod_uid: str, container_name: str) -> None:
        """Take back what the container holds, except what another container of its pod holds too.

        It is the container's until the end, so that a call that was cut short can be repeated.
        """
        self._ended.pop(pod_uid, None)
        entry = self.pods.get(pod_uid)
        if entry is None or container_name not in entry.containers:
            return

        if len(entry.containers) == 1:
            for resource, bits in entry.containers[container_name].items():
                self.pools[resource].ledger.take_back(bits)

            del self.pods[pod_uid]
            return

        reusable = dict(entry.reusable)
        containers = {
            name: bits_of for name, bits_of in entry.containers.items() if name != container_name
        }
        remaining = PodDevices(containers, reusable)
        for resource, bits in entry.containers[container_name].items():
            freed = bits & ~remaining.held(resource)
            self.pools[resource].ledger.take_back(freed)
            if resource in reusable:
                reusable[resource] &= ~freed

        self.pods[pod_uid] = remaining

    def devices(self, pod_uid: str, container_name: str) -> Mapping[str, tuple[str, ...]]:
        """Return the ids that a container holds, by resource, sorted."""
        entry = self.pods.get(pod_uid)
        if entry is None:
            return {}

        bits_of = entry.containers.get(container_name, {})
        return {
            resource: self.pools[resource].sorted_ids(bits_of[resource])
            for resource in sorted(bits_of)
        }

    def numa_nodes(self, pod_uid: str, container_name: str) -> int:
        """Return the mask of the NUMA nodes that some device of a container is near to alone.

        Nodes are meant by position.
        """
        entry = self.pods.get(pod_uid)
        if entry is None:
            return 0

        mask = 0
        for resource, bits in entry.containers.get(container_name, {}).items():
            for place, members in self.pools[resource].places:
                if bits & members and place.bit_count() == 1:
                    mask |= place

        return mask

    def account(self, pod: Pod, container: Container | None) -> dict[str, Callable[[], str]]:
        """Return by resource the account of the devices asked for and free; see `HintProvider`."""
        requests = pod.devices if container is None else container.devices
        accounts: dict[str, Callable[[], str]] = {}
        for resource, count in requests:
            if resource in self.pools:
                pool = self.pools[resource]
                accounts[resource] = partial(pool.account, count, pool.ledger.free, aligned=True)

        return accounts

    @property
    def free(self) -> dict[str, tuple[str, ...]]:
        """The ids of devices that could be given now, by resource, in the inventory's order."""
        return {resource: pool.ids(pool.ledger.free) for resource, pool in self.pools.items()}

    @property
    def given(self) -> dict[str, tuple[str, ...]]:
        """The ids that containers hold, by resource.

        Devices that the plugin no longer reports are among them.
        """
        return {resource: pool.ids(pool.ledger.given) for resource, pool in self.pools.items()}


def _hints(pool: DevicePool, held_devices: int, reusable: int, request: int) -> HintList | None:
    """Return the hints of one resource: for the devices held already, or else for the free ones."""
    ledger = pool.ledger
    if not held_devices:
        return ledger.hints(request, reusable)
    if not ledger.inventory.is_aligned:
        return None
    if held_devices.bit_count() != request:
        return HintList.empty()
    return ledger.hints(request, 0, held_devices)


def _check_held(pool: DevicePool, held_devices: int, request: int) -> None:
    """Check that a container which comes again wants what it has, and that all of it is healthy.

    Raises:
        AllocationError: One of the two is not so.
    """
    if held_devices.bit_count() != request:
        raise AllocationError(
            f"the container holds {held_devices.bit_count()} of {pool.resource} and now requests "
            f"{request}: a running container's devices do not change"
        )

    unhealthy_ids = pool.ids(held_devices & ~pool.healthy)
    if unhealthy_ids:
        raise AllocationError(
            f"devices of {pool.resource} that the container holds are not healthy: "
            f"{', '.join(unhealthy_ids)}"
        )
