"""A node: builds the providers and the Topology Manager of a machine and a kubelet's configuration.

The only module that knows machine, configuration and providers together. It decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from alignup.core.amounts.board import Distances
from alignup.core.amounts.placer import MOST_SUMMED, Placer, Share
from alignup.errors import InputError, warn
from alignup.kubernetes.kubelet_config import READINGS, TOPOLOGY_POLICIES, KubeletConfig
from alignup.kubernetes.manifest import read_pod
from alignup.kubernetes.node_fit import NodeObject, misfit_of, node_limits, requests_of
from alignup.kubernetes.pod import Pod, is_device
from alignup.kubernetes.versions import NEWEST, KubeletVersion, PodLevel
from alignup.machine.bits import ids_of, overlapping
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import EXTRA_KEYS, Device, decode_inventory, mapping_under
from alignup.machine.load import machine_with_devices_from_dict
from alignup.machine.machine import Machine, machine_from_dict
from alignup.node import inputs
from alignup.providers.cpu.provider import cpu_provider
from alignup.providers.devices.provider import DeviceProvider
from alignup.providers.memory.provider import MemoryProvider
from alignup.records import replace
from alignup.text.counting import counted
from alignup.topology_manager.admission import Admission, ContainerAllocation, MemoryBlock, Resize
from alignup.topology_manager.manager import Observer, TopologyManager
from alignup.topology_manager.scope import KUBELET, ContainerScope, Refusal

if TYPE_CHECKING:
    from alignup.claims.on_node import ClaimProvider
    from alignup.claims.read import Resources
    from alignup.core.amounts.memory_ledger import MemoryLedger
    from alignup.koordinator.effective import Occupancy
    from alignup.koordinator.node_policies import PodPolicies
    from alignup.providers.devices.inventory import DevicePlugin, DevicePool, Preference
    from alignup.topology_manager.provider import HintProvider

# The start of the warning that nothing is known of devices that a pod requests.
UNKNOWN_DEVICES: Final = "unknown here: "


class Node:
    """A machine that admits pods as a kubelet with this configuration would.

    Args:
        machine: the machine; a mapping is decoded as by `Machine.from_dict`.
        config: the kubelet's configuration, or a mapping of its fields; None: the kubelet's
            defaults.
        devices: by resource, the devices that its plugin has reported: records, or mappings of
            `id`, `numa`, `healthy`. None: there are none, or none are known
            (`Machine.knows_devices`): then pods that ask for some are admitted as far as all else
            goes, with an `AlignupWarning`; see `unknown_requests`.
        plugins: by resource, objects with `preferred_allocation(available, must_include, size)`, or
            such functions.
        providers: further hint providers, asked after the built-in ones.
        observer: told about every admission.
        wrap: called with each built-in provider; returns the provider to use in its place.
        labels: of the Node object; Koordinator's `node.koordinator.sh/numa-topology-policy`
            replaces the policy.
        single_numa_node_exclusive: Koordinator's default for pods that name a policy and no
            exclusivity: `Required` or `Preferred`.
        keep_refused_bindings: keep the memory binding that a refused pod can leave behind, as the
            kubelet does.
        reading: `kubelet`, or `documents`: decide as the design documents are written where
            kubelets have gone on since (`docs/documents.md`); None: that of the configuration.
        kubelet_version: the kubelet's release, such as `1.33`; None: that of the configuration, or
            the newest that is out.
        node_object: the Node object of the API, for `whole_verdict`: its name, labels, taints and
            allocatable amounts.
        whole_verdict: let the kubelet's own checks follow those of its managers, see
            `whole_verdict`.
        pair: two resources each, such as `["nvidia.com/gpu", "example.com/nic"]`, whose devices are
            chosen together, nearest in the PCIe tree first; with `"required"` as third word, or
            refused. No kubelet does this.
        resources: the objects of claims (DRA) as `kubectl get -o json` prints them; see
            `know_claims`.
        dra_hints: let claims' devices give hints as plugins' devices do.
        beyond_kubelet: judge containers by the policies that the annotation `alignup.dev/policies`
            of their pod names, as in `{"app": "restricted"}`. No kubelet does this either.

    Raises:
        ConfigError: a kubelet would refuse to start with this configuration on this machine.
        TypeError: the machine or the configuration is of another type.

    Examples:
        >>> config = {"topologyManagerPolicy": "restricted", "cpuManagerPolicy": "static"}
        >>> node = Node(read_machine("xeon-2s"), config)
        >>> container = {"name": "c", "resources": {"limits": {"cpu": "4", "memory": "1Gi"}}}
        >>> pod = {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
        >>> admission = node.admit(pod)
        >>> str(admission.containers["c"].cpus)
        '0-1,64-65'
    """

    __slots__ = (
        "_keeps_bindings",
        "_pod_policies",
        "beyond_kubelet",
        "claims",
        "config",
        "counts_use_as_reserved",
        "cpu",
        "devices",
        "knows_devices",
        "labels",
        "machine",
        "manager",
        "memory",
        "node_object",
        "single_numa_node_exclusive",
        "warned_of",
        "whole_verdict",
    )

    def __init__(
        self,
        machine: Machine | Mapping[str, Any],
        config: KubeletConfig | Mapping[str, Any] | None = None,
        devices: Mapping[str, Sequence[Device | Mapping[str, Any]]] | None = None,
        plugins: Mapping[str, DevicePlugin | Preference] | None = None,
        *,
        providers: Iterable[HintProvider] = (),
        observer: Observer | None = None,
        wrap: Callable[[HintProvider], HintProvider] | None = None,
        labels: Mapping[str, str] | None = None,
        single_numa_node_exclusive: str = "Required",
        keep_refused_bindings: bool = True,
        reading: str | None = None,
        kubelet_version: KubeletVersion | str | None = None,
        node_object: NodeObject | Mapping[str, Any] | None = None,
        whole_verdict: bool = False,
        pair: Iterable[str | Sequence[str]] = (),
        resources: Resources | Sequence[Mapping[str, Any]] | None = None,
        dra_hints: bool = False,
        beyond_kubelet: bool = False,
    ) -> None:
        # the kernel can list a CPU in several nodes; here it belongs to one
        self.machine = _checked_machine(machine).disjoint()
        # False: of devices that `pools` lacks, nothing is known; a kubelet would ignore them. Can
        # be changed at any time.
        self.knows_devices = devices is not None or self.machine.knows_devices
        # The unknown resources that were warned of, in this node or in a copy.
        self.warned_of: set[str] = set()
        self.config = _checked_config(config, kubelet_version, reading)
        self.labels = dict(labels or {})
        self.single_numa_node_exclusive = single_numa_node_exclusive
        if labels or single_numa_node_exclusive != "Required":
            from alignup.koordinator.effective import (  # noqa: PLC0415  # as below
                check_default_exclusive,
                labelled_config,
            )

            check_default_exclusive(single_numa_node_exclusive, "singleNUMANodeExclusive")
            self.config = labelled_config(self.config, self.labels)

        policy = inputs.policy_of(self.config, self.machine)
        profile = self.config.profile
        inventory = _checked_inventory(devices or {}, self.machine)
        pairing = None
        if pair:
            # few nodes need it
            from alignup.providers.devices.pairs import Pairing, read_pairs  # noqa: PLC0415

            pairing = Pairing(self.machine, read_pairs(pair))

        self.devices: DeviceProvider | None = None
        if inventory:
            self.devices = DeviceProvider(self.machine, inventory, plugins or {}, profile, pairing)
        self.cpu = cpu_provider(self.machine, self.config)
        self.memory = _memory_provider(self.machine, self.config)

        # in the order in which a kubelet asks them
        built_in: list[HintProvider] = [
            provider for provider in (self.devices, self.cpu, self.memory) if provider is not None
        ]
        if wrap:
            built_in = [wrap(provider) for provider in built_in]
        if not isinstance(providers, Iterable):
            raise TypeError(f"providers are several hint providers, not {providers!r}")

        further = tuple(providers)
        # which resources a provider of the user's serves is not known
        self.knows_devices = self.knows_devices or bool(further)
        self.manager = TopologyManager(
            policy,
            self.config.topology_manager_scope,
            (*built_in, *further),
            observer,
            # before groups were checked, bytes went back to the lowest NUMA nodes of a mask, so
            # that the order matters
            in_pod_order=not profile.memory_groups_checked,
            placer=None if wrap or further or pairing else self._placer(),
        )
        self._pod_policies: PodPolicies | None = None
        self._keeps_bindings = keep_refused_bindings
        self.node_object = inputs.node_object_of(node_object)
        self.beyond_kubelet = beyond_kubelet
        # What is in use counts as reserved where it is unknown who holds it.
        self.counts_use_as_reserved = False
        # Whether `admit`, `try_admit` and `explain` add the kubelet's own checks, which come after
        # its managers: the amounts of the node as a whole, its name, labels, taints and ports, and
        # the OS. Can be changed at any time.
        self.whole_verdict = whole_verdict
        # What is known of claims; None: those of pods are ignored.
        self.claims: ClaimProvider | None = None
        if resources is not None:
            self.know_claims(resources, dra_hints=dra_hints)

    @classmethod
    def from_dict(
        cls,
        data: Mapping[str, Any],
        *,
        plugins: Mapping[str, DevicePlugin] | None = None,
        providers: Iterable[HintProvider] = (),
        observer: Observer | None = None,
        wrap: Callable[[HintProvider], HintProvider] | None = None,
        kubelet_version: KubeletVersion | str | None = None,
    ) -> Node:
        """Return the node that the keys of a scenario or a node line describe.

        These are `machine`, `kubelet`, `devices`, `preferredSets` and `labels`.
        `singleNUMANodeExclusive` and `reading` are read too; `docs/scenarios.md` lists all keys of
        a scenario and of a node line. All but `machine` may be missing; devices, preferred sets and
        a kubelet's configuration that are missing are those of the machine, which may be the name
        of one of the catalog, or an object as `alignup machine --json` prints it. `plugins` are
        used for the resources that `preferredSets` does not name. Misspelt keys are warned of.
        `kubelet_version` takes precedence over the key `kubeletVersion`, and that key over
        `nodeObject`.

        Raises:
            InputError: a value is of the wrong type or unknown; the message names the place.
            ConfigError: a kubelet would refuse to start.
        """
        if not isinstance(data, Mapping) or "machine" not in data:
            raise InputError.at("the node", 'an object with "machine"', data)

        from alignup.text.typed import decode  # noqa: PLC0415  # msgspec is slow to import

        inputs.check_keys(data, "a node")
        loaded = machine_with_devices_from_dict(data)
        node_object = inputs.node_object_of(data.get("nodeObject"))
        reading = data.get("reading")
        config = KubeletConfig.from_dict(
            loaded.kubelet,
            version=inputs.version_of(data, kubelet_version, node_object),
            reading=READINGS[0] if reading is None else reading,
        )
        labels: Mapping[str, str] = decode(mapping_under(data, "labels"), dict[str, str], "labels")
        if not labels and node_object is not None:
            labels = node_object.labels

        return cls(
            loaded.machine,
            config,
            loaded.devices,
            {**(plugins or {}), **inputs.plugins_of(loaded.preferred_sets)},
            providers=providers,
            observer=observer,
            wrap=wrap,
            labels=labels,
            single_numa_node_exclusive=data.get("singleNUMANodeExclusive") or "Required",
            keep_refused_bindings=inputs.is_set(data, "keepRefusedBindings", default=True),
            node_object=node_object,
            whole_verdict=inputs.is_set(data, "wholeVerdict", default=False),
            resources=data.get("resources"),
            dra_hints=inputs.is_set(data, "draHints", default=False),
        )

    def know_claims(
        self,
        resources: Resources | Sequence[Mapping[str, Any]],
        *,
        name: str = "",
        release: str = "",
        dra_hints: bool = False,
    ) -> None:
        """Give pods devices for their claims from now on, as the scheduler does.

        Args:
            resources: ResourceSlices, DeviceClasses, ResourceClaims and ResourceClaimTemplates.
            name: of the node; empty: that of the Node object, or of the one node that the slices
                are of.
            release: of the scheduler; empty: the newest that is out, or the kubelet's where that is
                newer, since no kubelet is newer than its control plane.
            dra_hints: let the devices give hints as plugins' devices do, and be chosen near the
                affinity.

        Raises:
            InputError: an object is malformed, or the node's name is not known.
        """
        # few nodes have claims
        from alignup.claims.on_node import ClaimProvider  # noqa: PLC0415
        from alignup.claims.read import Resources, resources_of  # noqa: PLC0415
        from alignup.claims.scheduler_gates import NODE_RESOURCES, gates_of  # noqa: PLC0415

        if not isinstance(resources, Resources):
            resources = resources_of(resources, "resources")

        node_object = self.node_object
        if name and (node_object is None or node_object.name != name):
            node_object = NodeObject(name, {"kubernetes.io/hostname": name, **self.labels})
        if node_object is None or not node_object.name:
            node_object = resources.only_node

        features = {NODE_RESOURCES: True} if self.config.profile.pods.claims_count else None
        release = release or str(max(NEWEST, self.config.version))
        gates = gates_of(release, features)
        self.claims = ClaimProvider(
            self.machine, resources, node_object, gates, gives_hints=dra_hints
        )
        self.manager.add_provider(self.claims)

    def __repr__(self) -> str:
        numa_nodes = counted(len(self.machine.numa_nodes), "NUMA node")
        pods = counted(len(self.pods), "pod")
        return (
            f"<Node of {numa_nodes}, {self.machine.cpu_count} CPUs: policy "
            f"{self.manager.policy.name}, {pods}>"
        )

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The pods that are admitted now, in the order of their admission."""
        return self.manager.pods

    @property
    def pools(self) -> Mapping[str, DevicePool]:
        """By resource, the devices that its plugin has reported, and what is free of them."""
        return self.devices.pools if self.devices else {}

    @property
    def inventory(self) -> dict[str, tuple[Device, ...]]:
        """By resource, the devices that its plugin has reported."""
        return {resource: pool.devices for resource, pool in self.pools.items()}

    @property
    def scope_name(self) -> str:
        """`container`, `pod`, or `none` under policy none."""
        return self.manager.scope.name

    @property
    def shared_cpus(self) -> CPUSet | None:
        """The CPUs of the shared pool; None without a static CPU policy."""
        return None if self.cpu is None else self.cpu.shared_cpus

    @property
    def pod_policies(self) -> PodPolicies:
        """The hook for pods that bring a policy of their own.

        It is Koordinator's, made when the first such pod arrives.
        """
        if self._pod_policies is None:
            # few nodes ever see such a pod
            from alignup.koordinator import node_policies  # noqa: PLC0415

            options = self.config.topology_manager_policy_options
            self._pod_policies = node_policies.PodPolicies(
                self.manager,
                self.machine,
                options,
                self.numa_nodes,
                self.single_numa_node_exclusive,
            )

        return self._pod_policies

    def admit(self, pod: Pod | Mapping[str, Any]) -> Admission:
        """Admit a pod, or refuse it and take back all CPUs, memory and devices that it was given.

        As in the kubelet, a refusal can leave a memory binding behind: a NUMA node on which a
        refused container was alone stays out of its group until no container uses it, which later
        memory hints take into account. With `keep_refused_bindings=False` a refusal leaves the node
        exactly as it was.

        A pod whose annotation names a policy of its own is judged by it (see `alignup.koordinator`)
        where the node has none, and refused where the node has another one.

        Args:
            pod: a `Pod`, or a manifest.

        Raises:
            InputError: the manifest is not one of a pod.
            PodExistsError: a pod of this uid is admitted already.
        """
        return self.manager.lock.attempt(self._admit, self._undo, self.read(pod), [])

    def _admit(self, pod: Pod, saved_ledgers: list[MemoryLedger | None]) -> Admission:
        """Admit or refuse a pod, after the memory ledger is saved for `_undo`."""
        if not self.knows_devices:
            self._warn_of_unknown(pod)

        self.manager.check_new(pod)
        saved_ledgers.append(None if self.memory is None else self.memory.ledger.copy())
        refusal, preempted = self._decide(pod, observed=True)
        if refusal is not None and not self._keeps_bindings:
            self._undo(pod, saved_ledgers)

        admission = self.admission(pod, refusal, preempted)
        if preempted:
            self.manager.lock.settle(self._evict, preempted, saved_ledgers)

        return admission

    def _evict(self, pods: Iterable[Pod], saved_ledgers: list[MemoryLedger | None]) -> None:
        saved_ledgers.clear()  # from here on the admission is not undone
        for pod in pods:
            if self.manager.has_pod(pod.uid):
                self.remove(pod.uid)

    def _undo(self, pod: Pod, saved_ledgers: list[MemoryLedger | None]) -> None:
        """Remove a pod, if it is there, and take back the memory ledger.

        Where none was saved, do nothing.
        """
        if saved_ledgers and self.manager.has_pod(pod.uid):
            self.remove(pod.uid)
        if self.memory is not None and saved_ledgers and saved_ledgers[0] is not None:
            self.memory.ledger.assign(saved_ledgers[0])

    def try_admit(self, pod: Pod | Mapping[str, Any]) -> Admission:
        """Return the admission that `admit` would give, and leave the node exactly as it is.

        Nothing of it is kept, not even the memory binding of a refused container. Providers of
        users are asked to allocate, and to release what they gave; observers are not told.

        Args:
            pod: a `Pod`, or a manifest.

        Raises:
            InputError: the manifest is not one of a pod.
            PodExistsError: a pod of this uid is admitted already.
        """
        return self.manager.lock.attempt(self._try, self._undo, self.read(pod), [])

    def _try(self, pod: Pod, saved_ledgers: list[MemoryLedger | None]) -> Admission:
        """Decide on a pod as `_admit` does, and undo it."""
        if not self.knows_devices:
            self._warn_of_unknown(pod)

        is_plain = not (self.whole_verdict or self.beyond_kubelet or inputs.has_policy(pod))
        if is_plain and (shares := self.manager.preview(pod)) is not None:
            return _admitted_later(shares, self.pools, self.machine.numa_node_ids)

        self.manager.check_new(pod)
        saved_ledgers.append(None if self.memory is None else self.memory.ledger.copy())
        refusal, preempted = self._decide(pod, observed=False)
        admission = self.admission(pod, refusal, preempted)
        self._undo(pod, saved_ledgers)
        return admission

    def read(self, pod: Pod | Mapping[str, Any]) -> Pod:
        """Return a pod, or the one that a manifest describes, as this node's kubelet reads it.

        Raises:
            InputError: the manifest is not one of a pod.
        """
        if not isinstance(pod, Pod):
            pod = read_pod(pod)
        if pod.readings is not None:
            pod = pod.read_as(self.config.profile.pods)
        if self.claims is None:
            return pod
        return self.claims.read(pod, self.offered)

    def offered(self, resource: str) -> int | None:
        """Return how many devices of a resource the Node object or the plugins here offer.

        None: neither knows the resource.
        """
        if self.node_object is not None and resource in self.node_object.allocatable:
            return self.node_object.allocatable[resource]

        pool = self.pools.get(resource)
        return None if pool is None else pool.healthy.bit_count()

    def _warn_of_unknown(self, pod: Pod) -> None:
        """Warn of each resource of a pod of which nothing is known here, once."""
        claimed = {resource for _, resource in pod.constraints.claimed_devices}
        for resource, _ in pod.devices:
            if resource not in (self.pools.keys() | claimed | self.warned_of):
                self.warned_of.add(resource)
                warn(
                    f"{UNKNOWN_DEVICES}{resource}, which {pod.namespaced_name} requests: pods are "
                    "judged without it; the argument devices of Node tells of it"
                )

    def unknown_requests(self, pod: Pod | Mapping[str, Any]) -> dict[str, int]:
        """Return what a pod requests of which nothing is known here, by the name of the resource.

        That is devices that no inventory lists, where they may be there all the same
        (`knows_devices`), and the bytes of memory where the machine's source tells of none. An
        admission says nothing of them.

        Raises:
            InputError: the manifest is not one of a pod.

        Examples:
            >>> container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
            >>> pod = {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
            >>> Node(read_machine("xeon-2s")).unknown_requests(pod)
            {'nvidia.com/gpu': 8}
        """
        pod = self.read(pod)
        requests = requests_of(pod)
        totals = node_limits(self.machine, self.config, {}, self.node_object).allocatable
        unknown = {}
        if "memory" in requests and "memory" not in totals:
            unknown["memory"] = requests["memory"]

        if not self.knows_devices:
            served = {resource for _, resource in pod.constraints.claimed_devices}
            unlisted = {*filter(is_device, requests)} - self.pools.keys() - served
            unknown |= {name: requests[name] for name in sorted(unlisted)}

        return unknown

    def leaves_open(self, unknown: Mapping[str, int]) -> bool:
        """Return whether a manager could refuse a pod for what is unknown of its requests.

        Memory that the memory manager does not pin counts in the sum of the node only.

        Args:
            unknown: as `unknown_requests` returns it.
        """
        pins_memory = self.config.memory_manager_policy == "Static"
        return any(name != "memory" or pins_memory for name in unknown)

    def copy(self, *, wrap: Callable[[HintProvider], HintProvider] | None = None) -> Node:
        """Return an independent node with the same pods and holdings, for what-if questions.

        It has no observers. `wrap` is called with the copy of each provider, and returns the
        provider to use in its place.

        Raises:
            TypeError: a provider of a user takes part that has no method `copy()`.
        """
        with self.manager.lock.guard() as guard, guard.take():
            copies: dict[str, HintProvider] = {}
            copy_of: dict[int, HintProvider] = {}
            for name in ("devices", "cpu", "memory", "claims"):
                provider = getattr(self, name)
                if provider is not None:
                    copies[name] = copy_of[id(provider)] = provider.copy()

            providers = [
                copy_of.get(id(provider)) or _copied_provider(provider)
                for provider in self.manager.providers
            ]
            return self._with(providers, wrap, copies)

    @contextmanager
    def scratch(self, wrap: Callable[[HintProvider], HintProvider]) -> Iterator[Node]:
        """Yield a node with the same pods and wrapped providers, to try pods on.

        This node stays exactly as it is. Providers of users that cannot be copied are lent to it,
        so whatever it admits must be removed again.
        """
        try:
            node = self.copy(wrap=wrap)
        except TypeError:
            restore = self.bindings()
            try:
                yield self._with(self.manager.providers, wrap, {})
            finally:
                restore()
        else:
            yield node

    def _with(
        self,
        providers: Sequence[HintProvider],
        wrap: Callable[[HintProvider], HintProvider] | None,
        copies: Mapping[str, HintProvider],
    ) -> Node:
        """Return a node with these providers, wrapped, under a manager of its own.

        `copies` are those of them that are attributes of a node, by name.
        """
        node = Node.__new__(Node)
        for name in Node.__slots__:
            setattr(node, name, copies.get(name, getattr(self, name)))

        placer = None
        if wrap:
            providers = [wrap(provider) for provider in providers]
        elif self.manager.placer is not None:
            placer = self.manager.placer.copy(node.devices, node.cpu, node.memory)

        node.manager = self.manager.copy(tuple(providers), placer)
        if self._pod_policies is not None:
            node._pod_policies = self._pod_policies.copy(node.manager, node.numa_nodes)

        return node

    def emptied(
        self,
        config: KubeletConfig,
        *,
        wrap: Callable[[HintProvider], HintProvider] | None = None,
    ) -> Node:
        """Return a node of the same machine, devices and labels under another configuration.

        It has no pods, and nothing is known of claims. Providers of users are left out.

        Args:
            config: the configuration.
            wrap: called with each built-in provider; returns the provider to use in its place.

        Raises:
            ConfigError: a kubelet would refuse to start with it.
        """
        node = Node(
            self.machine,
            config,
            self.inventory,
            {resource: pool.preference for resource, pool in self.pools.items() if pool.preference},
            wrap=wrap,
            labels=self.labels,
            single_numa_node_exclusive=self.single_numa_node_exclusive,
            keep_refused_bindings=self._keeps_bindings,
            node_object=self.node_object,
            whole_verdict=self.whole_verdict,
            beyond_kubelet=self.beyond_kubelet,
        )
        node.knows_devices = self.knows_devices
        node.warned_of = self.warned_of
        return node

    __copy__ = copy  # two nodes that share their ledgers would spoil them

    def __deepcopy__(self, _memo: object) -> Node:
        return self.copy()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "nodes are not pickled: make one with Node.from_dict, and admit its pods again"
        )

    def _placer(self) -> Placer | None:
        """Return what places pods with the node's own managers.

        None where it does not know the rules of the merge.
        """
        config = self.config
        node_count = len(self.machine.numa_nodes)
        if config.reading != READINGS[0]:
            return None

        distances = None
        rows = self.machine.distance_matrix
        if config.topology_manager_policy_options.prefer_closest_numa_nodes and rows is not None:
            if node_count > MOST_SUMMED:
                return None
            distances = Distances(rows)

        return Placer(
            node_count,
            TOPOLOGY_POLICIES.index(config.topology_manager_policy),
            config.topology_manager_scope == "pod",
            distances,
            PodLevel.IGNORED,
            self.devices,
            self.cpu,
            self.memory,
        )

    def _decide(self, pod: Pod, *, observed: bool) -> tuple[Refusal | None, tuple[Pod, ...]]:
        """Return the refusal, None for an admission, and the pods that have to go for it."""
        manager = self.manager
        policies = None
        if self.beyond_kubelet:
            policies = inputs.own_policies(pod, self.config, self.machine)

        if policies:
            refusal = manager.decide(
                pod, manager.policy, ContainerScope(policies), observed=observed
            )
        elif pod.annotations and inputs.has_policy(pod):
            refusal = self.pod_policies.decide(pod, observed=observed)
        else:
            refusal = manager.decide(pod, manager.policy, manager.scope, observed=observed)

        if refusal is not None or not self.whole_verdict:
            return refusal, ()

        refusal, preempted = self.checked_as_whole(pod)
        if refusal is not None:
            self.remove(pod.uid)

        return refusal, preempted

    def checked_as_whole(self, pod: Pod) -> tuple[Refusal | None, tuple[Pod, ...]]:
        """Return why the kubelet's own checks refuse a pod that the managers have admitted.

        If they do not, return the pods that it preempts.
        """
        neighbours = [
            self.counted(neighbour) for neighbour in self.pods if neighbour.uid != pod.uid
        ]
        misfit = misfit_of(self.counted(pod), neighbours, self.limits(pod))
        if not misfit.reason:
            return None, misfit.preempted

        refusal = Refusal(
            misfit.reason, misfit.message, provider=KUBELET, resources=misfit.resources
        )
        return refusal, ()

    def counted(self, pod: Pod) -> Pod:
        """Return an admitted pod with what the devices of its claims count as here (KEP-5517)."""
        return pod if self.claims is None else self.claims.counted(pod)

    def limits(self, pod: Pod) -> NodeObject:
        """Return what the node as a whole offers to pods, once its managers have admitted this."""
        devices = {name: pool.healthy.bit_count() for name, pool in self.pools.items()}
        limits = node_limits(self.machine, self.config, devices, self.node_object)
        if not pod.devices:
            return limits

        # a kubelet counts devices that are held as allocatable, though they have become unhealthy
        held_ids: dict[str, set[str]] = {}
        for holder in self.pods:
            for container in holder.all_containers:
                for name, ids in self.allocation(holder.uid, container.name).devices.items():
                    held_ids.setdefault(name, set()).update(ids)

        allocatable = {**limits.allocatable}
        for name, ids_of_resource in held_ids.items():
            allocatable[name] = max(allocatable.get(name, 0), len(ids_of_resource))
        return replace(limits, allocatable=allocatable)

    def admission(
        self, pod: Pod, refusal: Refusal | None = None, preempted: Sequence[Pod] = ()
    ) -> Admission:
        """Return the record of a decision, with what each container has now.

        Without a refusal it is that of an admission.
        """
        if refusal is not None:
            return Admission(
                False, refusal.reason, refusal=refusal, numa_node_ids=self.machine.numa_node_ids
            )

        if not preempted and (shares := self.manager.shares(pod)) is not None:
            return _admitted_later(shares, self.pools, self.machine.numa_node_ids)

        allocations = {
            container.name: self.allocation(pod.uid, container.name)
            for container in pod.all_containers
        }
        admission = Admission(True, "", allocations, None, self.machine.numa_node_ids)
        if not (preempted or pod.has_shared_pool):
            return admission

        return replace(
            admission,
            preempted=tuple(victim.namespaced_name for victim in preempted),
            pod_cpus=None if self.cpu is None else self.cpu.pod_cpus(pod.uid),
            pod_memory=() if self.memory is None else self.memory.pod_blocks(pod.uid),
        )

    def bindings(self) -> Callable[[], None]:
        """Return a function that takes the memory ledger back to what it is now."""
        if self.memory is None:
            return lambda: None
        return partial(self.memory.ledger.assign, self.memory.ledger.copy())

    def allocation(self, pod_uid: str, container_name: str) -> ContainerAllocation:
        """Return the resources that a container holds now; empty for an unknown container."""
        return ContainerAllocation(
            self.manager.affinities(pod_uid).get(container_name),
            None if self.cpu is None else self.cpu.cpus(pod_uid, container_name),
            () if self.memory is None else self.memory.blocks(pod_uid, container_name),
            {} if self.devices is None else self.devices.devices(pod_uid, container_name),
        )

    def numa_nodes(self, pod_uid: str, container_name: str) -> int:
        """Return the mask of the NUMA nodes that a container's CPUs, memory and devices lie in.

        A device that is near to several NUMA nodes lies in none of them alone, and does not count.
        """
        machine = self.machine
        mask = 0
        if self.cpu is not None:
            cpus = int(self.cpu.cpus(pod_uid, container_name) or 0)
            mask |= overlapping(machine.node_cpus, cpus)

        if self.memory is not None:
            for block in self.memory.blocks(pod_uid, container_name):
                for numa_id in block.numa_nodes:
                    mask |= 1 << machine.position(numa_id)

        if self.devices is not None:
            mask |= self.devices.numa_nodes(pod_uid, container_name)

        return mask

    @property
    def occupancy(self) -> Occupancy:
        """Which NUMA nodes pods under SingleNUMANode hold, and which pods across several do."""
        return self.pod_policies.occupancy

    def started(self, pod_uid: str, container_name: str) -> None:
        """Note that a container has started.

        The init containers before it have ended, and their memory is free, as in the kubelet, whose
        memory manager gives back what they hold when the next container is added. Sidecars run on
        and keep theirs; CPUs and devices stay with the pod until it is removed.

        Containers of a pod with resources of its own (in pod scope, where the managers give it
        these as a whole) get their devices now.

        Raises:
            AllocationError: such a container gets no devices, and does not start; the pod stays.
            UnknownPodError: no such pod is admitted.
            InputError: the pod has no such container.
        """
        with self.manager.lock.guard() as guard, guard.take():
            pod = self.manager.pod(pod_uid)
            containers = {container.name: container for container in pod.all_containers}
            container = containers.get(container_name)
            if container is None:
                expected = f"a container of the pod ({', '.join(containers)})"
                raise InputError.at("container", expected, container_name)

            if self.memory is not None:
                self.memory.started(pod, container_name)
            if self.devices is not None:
                self.devices.started(pod, container_name)

            if self.devices is not None and pod.has_shared_pool and container.devices:
                affinity = self.manager.affinity(pod_uid, container_name)
                if not self.devices.devices(pod_uid, container_name):
                    self.devices.allocate(pod, container, affinity)

    def resize(
        self, pod_uid: str, containers: Mapping[str, Any], pod: Mapping[str, Any] | None = None
    ) -> Resize:
        """Resize a pod in place if its kubelet would: other CPU and memory for a pod that runs.

        What the containers then hold is what that kubelet's managers leave them: most releases
        leave exclusive CPUs as they are, whatever is requested now.

        Args:
            pod_uid: the pod.
            containers: by name, `requests` and `limits` as in a manifest; what they leave out
                stays.
            pod: the same of the pod as a whole (`spec.resources`); None: they stay.

        Returns:
            Whether the resources are allocated, or why not; see
            `alignup.topology_manager.admission.Resize`.

        Raises:
            UnknownPodError: no such pod is admitted.
            InputError: the API server would refuse the new resources.
        """
        from alignup.node.resize import resize  # noqa: PLC0415  # admissions do without

        return self.manager.lock.attempt(resize, None, self, pod_uid, containers, pod)

    def remove(self, pod_uid: str) -> None:
        """Take back everything that a pod holds.

        Raises:
            UnknownPodError: no such pod is admitted.
        """
        if self._pod_policies is None:
            self.manager.remove(pod_uid)
        else:
            self.manager.pod(pod_uid)
            self.manager.lock.settle(self._remove, pod_uid)

    def _remove(self, pod_uid: str) -> None:
        # the last time a provider may have failed to release; the pod is removed all the same
        if self.manager.has_pod(pod_uid):
            self.manager.remove(pod_uid)
        self.pod_policies.removed(pod_uid)


def _memory_provider(machine: Machine, config: KubeletConfig) -> MemoryProvider | None:
    """Return the provider of memory.

    None: the policy is None, or cannot be followed on this machine.
    """
    if config.memory_manager_policy != "Static":
        return None

    if not machine.knows_memory:
        warn("memoryManagerPolicy Static is not followed: the memory of this machine is not known")
        return None

    return MemoryProvider(machine, config.reserved_memory, profile=config.profile)


def _checked_inventory(
    devices: Mapping[str, Any], machine: Machine
) -> Mapping[str, Sequence[Device]]:
    """Return the devices of each resource, decoded if one of them is a mapping.

    Raises:
        InputError: there is no list of devices under a resource, or a device is described wrongly.
    """
    is_decoded = True
    for resource, entries in devices.items():
        if not isinstance(entries, Sequence) or isinstance(entries, str):
            expected = 'a list of devices such as {"id": "gpu0", "numa": 0}'
            raise InputError.at(f'devices["{resource}"]', expected, entries)
        if not all(isinstance(device, Device) for device in entries):
            is_decoded = False

    return devices if is_decoded else decode_inventory(devices, machine)


def _checked_machine(machine: object) -> Machine:
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
            warn(f"{', '.join(passed_over)} of the machine ignored: Node.from_dict keeps them")
        return machine_from_dict(machine)

    message = f"expected a Machine, or a mapping as Machine.to_dict returns it, got {machine!r:.80}"
    if isinstance(machine, str):
        message += "; read_machine takes names and files"
    raise TypeError(message)


def _checked_config(
    config: object, version: KubeletVersion | str | None = None, reading: str | None = None
) -> KubeletConfig:
    """Return the configuration, decoded if it is a mapping; a kubelet's defaults for None.

    Args:
        config: a configuration, a mapping of its fields, or None.
        version: the kubelet's release, in place of that of a `KubeletConfig`; None: that, or the
            newest that is out.
        reading: the same of its reading.

    Raises:
        InputError: the mapping is no configuration.
        ConfigError: a kubelet would refuse to start with it.
        TypeError: it is something else.
    """
    if config is None:
        config = KubeletConfig()

    if isinstance(config, KubeletConfig):
        overrides: dict[str, Any] = {}
        if version is not None:
            overrides["version"] = version
        if reading is not None:
            overrides["reading"] = reading
        return replace(config, **overrides) if overrides else config

    if isinstance(config, Mapping):
        return KubeletConfig.from_dict(
            config, version=version or NEWEST, reading=reading or READINGS[0]
        )

    message = f"expected a KubeletConfig, or a mapping of its fields, got {config!r:.80}"
    if isinstance(config, str):
        message += "; load_config of alignup.kubernetes.kubelet_config reads text"
    raise TypeError(message)


def _copied_provider(provider: HintProvider) -> HintProvider:
    """Return the copy of a user's provider.

    Raises:
        TypeError: it has no method `copy()`.
    """
    copy = getattr(provider, "copy", None)
    if not callable(copy):
        raise TypeError(
            f"the node cannot be copied: the provider {provider!r} has no method copy()"
        )

    return cast("HintProvider", copy())


def _admitted_later(
    shares: Sequence[Share], pools: Mapping[str, DevicePool], numa_node_ids: tuple[int, ...]
) -> Admission:
    """Return the record of an admission of these shares, with the ids of devices in `pools`.

    Names and ids are put to it when somebody reads it.
    """
    return Admission.later("admitted", True, _admitted, shares, pools, numa_node_ids)


def _admitted(
    shares: Sequence[Share], pools: Mapping[str, DevicePool], numa_node_ids: tuple[int, ...]
) -> Admission:
    allocations = {}
    for share in shares:
        nodes = ids_of(share.memory_nodes, numa_node_ids)
        allocations[share.container.name] = ContainerAllocation(
            share.affinity,
            None if share.cpus is None else CPUSet.from_int(share.cpus),
            tuple([MemoryBlock(nodes, kind, size) for kind, size in share.sizes()]),
            {
                resource: pools[resource].sorted_ids(bits)
                for resource, bits in sorted((share.devices or {}).items())
            },
        )

    return Admission(True, containers=allocations, numa_node_ids=numa_node_ids)
