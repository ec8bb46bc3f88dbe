"""Pods come to random nodes and go again.

Nothing is given twice, nothing is lost, a refusal changes nothing.

What holds always, for every policy, scope and option:

- a CPU, a byte and a device belong to one pod; inside a pod they are shared only with init
  containers that are done;
- given and free together are what there was to give: CPUs, each device, memory of each type on each
  NUMA node;
- a pod that is refused leaves what is free, the shared pool, and what CPUs and devices would offer
  as it was;
- the same pod on an equal node, with all mappings in another order, gets the same;
- when all pods are gone everything is as in the beginning, what providers would offer included.

Two habits of the kubelet are kept on purpose, and bounded here. Where sockets or cores differ in
size, distribute-cpus-across-numa may give away reserved CPUs, so that reserved CPUs are checked on
even machines only. And a NUMA node on which a container sat alone stays out of its memory group
while anybody uses it, even if that container was refused: so that what memory would offer is
compared after a refusal only where the node is told to leave no such trace (`keepRefusedBindings`,
every other node).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from alignup import read_pod
from alignup.errors import ConfigError
from alignup.node import Node

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod
    from alignup.topology_manager.admission import Admission

GIBI = 1 << 30
MEBI = 1 << 20
POLICIES = ["none", "best-effort", "restricted", "single-numa-node"]
CPU_OPTIONS = [
    {},
    {"full-pcpus-only": "true"},
    {"distribute-cpus-across-numa": "true"},
    {"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"},
    {"align-by-socket": "true"},
    {"distribute-cpus-across-cores": "true"},
    {"prefer-align-cpus-by-uncorecache": "true"},
    {"strict-cpu-reservation": "true"},
    {"strict-cpu-reservation": "true", "distribute-cpus-across-numa": "true"},
]
RESOURCES = ["example.com/gpu", "example.com/nic"]

QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@st.composite
def machines(draw: st.DrawFn) -> dict[str, Any]:
    """Machines of one to five NUMA nodes, even or not.

    With gaps in their numbers, and with nodes without CPUs.
    """
    count = draw(st.integers(1, 5))
    ids = draw(st.sampled_from([list(range(count)), list(range(1, 3 * count, 3))]))
    threads = draw(st.sampled_from([1, 2, 2, 4]))
    a_node = draw(
        st.lists(st.integers(0, 4), min_size=count, max_size=count)
        | st.just([draw(st.integers(1, 4))] * count)
    )
    assume(sum(a_node))
    sockets = draw(st.sampled_from([1, 2, count]))
    distances = draw(st.sampled_from([None, 20]))
    total = sum(a_node)
    first = 0
    nodes = []
    for position, numa_id in enumerate(ids):
        cores = [
            {
                "cpus": [core + thread * total for thread in range(threads)],
                "socket": position * sockets // count,
                "l3": core // 2,
            }
            for core in range(first, first + a_node[position])
        ]
        first += a_node[position]
        memory = draw(st.sampled_from([1, 2, 4])) * GIBI
        node = {
            "id": numa_id,
            "memory": memory,
            "cores": cores,
            "hugepages": {"2Mi": draw(st.sampled_from([0, 64, 256]))},
        }
        if distances is not None:
            node["distances"] = [
                10 if to_position == position else distances + abs(to_position - position)
                for to_position in range(count)
            ]

        nodes.append(node)

    return {"numaNodes": nodes}


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    """Everything that `Node.from_dict` takes."""
    machine = draw(machines())
    ids = [node["id"] for node in machine["numaNodes"]]
    cpus = sorted(
        cpu for node in machine["numaNodes"] for core in node["cores"] for cpu in core["cpus"]
    )
    kubelet: dict[str, Any] = {
        "topologyManagerPolicy": draw(st.sampled_from(POLICIES)),
        "topologyManagerScope": draw(st.sampled_from(["container", "pod"])),
    }
    if "distances" in machine["numaNodes"][0] and draw(st.booleans()):
        kubelet["topologyManagerPolicyOptions"] = {"prefer-closest-numa-nodes": "true"}

    if draw(st.integers(0, 4)):
        kubelet["cpuManagerPolicy"] = "static"
        kubelet["cpuManagerPolicyOptions"] = draw(st.sampled_from(CPU_OPTIONS))
        kubelet["reservedSystemCPUs"] = ",".join(
            map(str, draw(st.sets(st.sampled_from(cpus), min_size=1, max_size=2)))
        )

    if draw(st.integers(0, 4)):
        kubelet["memoryManagerPolicy"] = "Static"
        kubelet["reservedMemory"] = [
            {"numaNode": draw(st.sampled_from(ids)), "limits": {"memory": "100Mi"}}
        ]

    places = st.none() | st.lists(st.sampled_from(ids), min_size=1, max_size=2, unique=True).map(
        sorted
    )
    devices = {}
    for resource in RESOURCES[: draw(st.integers(0, 2))]:
        drawn_devices = draw(
            st.lists(
                st.tuples(places, st.sampled_from([True] * 5 + [False])), min_size=1, max_size=6
            )
        )
        devices[resource] = [
            {"id": f"{resource[-3:]}{number}", "numa": numa, "healthy": healthy}
            for number, (numa, healthy) in enumerate(drawn_devices)
        ]

    version = draw(st.sampled_from(["1.37", "1.38"]))
    return {
        "machine": machine,
        "kubelet": kubelet,
        "devices": devices,
        "kubeletVersion": version,
    }


@st.composite
def containers(draw: st.DrawFn) -> dict[str, Any]:
    """Containers that ask for whole or broken CPUs, memory, large pages and devices.

    Or for nothing.
    """
    limits: dict[str, str] = {}
    if draw(st.integers(0, 5)):
        limits["cpu"] = draw(st.sampled_from(["1", "2", "2", "3", "4", "6", "500m"]))
        limits["memory"] = draw(st.sampled_from(["64Mi", "256Mi", "1Gi", "1500Mi", "3Gi"]))
        if draw(st.integers(0, 4)) == 0:
            limits["hugepages-2Mi"] = draw(st.sampled_from(["32Mi", "128Mi", "600Mi"]))
    for resource in RESOURCES:
        if draw(st.integers(0, 2)) == 0:
            limits[resource] = str(draw(st.integers(1, 3)))
    return {"image": "i", "resources": {"limits": limits}}


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    """Pods with init containers of both kinds.

    Some of them are not Guaranteed, some have a policy of their own.
    """
    spec: dict[str, Any] = {"containers": draw(st.lists(containers(), min_size=1, max_size=2))}
    spec["initContainers"] = draw(st.lists(containers(), max_size=2))
    for kind, containers_of_kind in spec.items():
        for number, container in enumerate(containers_of_kind):
            container["name"] = f"{kind[:4]}{number}"

    for container in spec["initContainers"]:
        if draw(st.booleans()):
            container["restartPolicy"] = "Always"

    metadata: dict[str, Any] = {"name": "pod"}
    if draw(st.integers(0, 9)) == 0:
        policy = draw(st.sampled_from(["SingleNUMANode", "Restricted", "BestEffort"]))
        metadata["annotations"] = {
            "scheduling.koordinator.sh/numa-topology-spec": f'{{"numaTopologyPolicy": "{policy}"}}'
        }

    return {"metadata": metadata, "spec": spec}


def reordered(value: Any) -> Any:
    """Return the same plain data with every mapping in the opposite order."""
    if isinstance(value, dict):
        return {key: reordered(item) for key, item in reversed(value.items())}
    return [reordered(item) for item in value] if isinstance(value, list) else value


class NodeMachine(RuleBasedStateMachine):
    """A node, an equal one that sees everything in another order, and the pods that are on them."""

    @initialize(data=nodes(), probe=pods(), bindings_stay=st.booleans())
    def start(self, data: dict[str, Any], probe: dict[str, Any], bindings_stay: bool) -> None:
        try:
            self.node = Node.from_dict({**data, "keepRefusedBindings": bindings_stay})
        except ConfigError:
            assume(False)

        # of which each provider is asked, where the other places pods in one call
        self.twin = Node.from_dict(
            {**reordered(data), "keepRefusedBindings": bindings_stay},
            wrap=lambda provider: provider,
        )
        self.bindings_stay = bindings_stay
        self.probe = read_pod({**probe, "metadata": {"name": "probe"}})
        self.live: dict[str, Pod] = {}
        self.count = 0
        sizes = {len(node.cores) for node in self.node.machine.numa_nodes}
        sockets = {cpus.bit_count() for cpus in self.node.machine.socket_cpus}
        self.is_even = len(sizes) == len(sockets) == 1
        self.at_first = self.offers("devices", "cpu", "memory"), self.amounts()

    def offers(self, *names: str) -> dict[str, Any]:
        """Return what these providers would offer a pod that nobody has seen."""
        offers: dict[str, Any] = {}
        for provider in self.node.manager.providers:
            if provider.name in names:
                hints = [provider.topology_hints(self.probe, c) for c in self.probe.all_containers]
                for number, resources in enumerate(
                    [*hints, provider.pod_topology_hints(self.probe)]
                ):
                    offers[f"{provider.name}{number}"] = resources and {
                        resource: offered and list(offered)
                        for resource, offered in resources.items()
                    }
        return offers

    def amounts(self) -> tuple[Any, ...]:
        """Return what is free and what is shared."""
        node = self.node
        return (
            node.cpu and (node.cpu.free_cpus, node.cpu.shared_cpus),
            node.memory and node.memory.free,
            node.devices and (node.devices.free, node.devices.given),
            [pod.uid for pod in node.pods],
        )

    @rule(manifest=pods())
    def admit(self, manifest: dict[str, Any]) -> None:
        """A pod comes."""
        self.count += 1
        manifest["metadata"]["uid"] = uid = f"u{self.count}"
        names = ("devices", "cpu") if self.bindings_stay else ("devices", "cpu", "memory")
        before = self.offers(*names), self.amounts()

        admission = self.node.admit(manifest)
        twin_admission = self.twin.admit(reordered(manifest))

        assert (admission, admission.message) == (twin_admission, twin_admission.message)
        if admission.admitted:
            self.live[uid] = read_pod(manifest)
            self.check_policy(admission)
        else:
            assert admission.reason
            assert admission.message
            assert not admission.containers
            assert before == (self.offers(*names), self.amounts())

    def check_policy(self, admission: Admission) -> None:
        """An admitted pod is aligned as the policy demands."""
        policy = self.node.manager.policy.name
        for got in admission.containers.values():
            if policy in {"restricted", "single-numa-node"}:
                assert got.affinity.preferred
            if policy == "single-numa-node":
                assert got.affinity.affinity is None or len(got.affinity.affinity) == 1

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """A pod goes."""
        uid = data.draw(st.sampled_from(sorted(self.live)))
        for node in (self.node, self.twin):
            node.remove(uid)
        del self.live[uid]

    @invariant()
    def cpus_add_up(self) -> None:
        """No CPU is two pods', and given and free CPUs are all there are."""
        cpu = self.node.cpu
        if cpu is None:
            return

        by_pod = []
        for uid, pod in self.live.items():
            self.check_inside(
                pod, {c.name: set(cpu.cpus(uid, c.name) or ()) for c in pod.all_containers}
            )
            by_pod.append(
                {cpu_id for c in pod.all_containers for cpu_id in cpu.cpus(uid, c.name) or ()}
            )

        pod_cpus = set().union(*by_pod)
        assert len(pod_cpus) == sum(map(len, by_pod))
        if self.is_even:
            assert pod_cpus <= set(cpu.allocatable_cpus)

        assert pod_cpus & set(cpu.allocatable_cpus) | set(cpu.free_cpus) == set(
            cpu.allocatable_cpus
        )
        assert not pod_cpus & (set(cpu.free_cpus) | set(cpu.shared_cpus))

    def check_inside(self, pod: Pod, by_container: dict[str, set[Any]]) -> None:
        """Containers that run at the same time have nothing in common."""
        running = [c.name for c in pod.all_containers if c.is_sidecar or not c.is_init]
        assert sum(len(by_container[name]) for name in running) == len(
            set().union(*(by_container[name] for name in running))
        )

    @invariant()
    def memory_adds_up(self) -> None:
        """On every node, given and free bytes of a type are all there are."""
        memory = self.node.memory
        if memory is None:
            return

        ids = self.node.machine.numa_node_ids
        bytes_given: Counter[tuple[str, int]] = Counter()
        for uid, pod in self.live.items():
            for container in pod.all_containers:
                for kind, shares in memory.shares(uid, container.name).items():
                    bytes_given.update({(kind, numa_id): size for numa_id, size in shares.items()})
                blocks = memory.blocks(uid, container.name)
                if not container.is_init:
                    assert sorted((block.type, block.size) for block in blocks) == sorted(
                        container.memory
                    )

        for kind, free in memory.free.items():
            for numa_id, free_bytes, all_bytes in zip(
                ids, free, memory.allocatable[kind], strict=True
            ):
                assert 0 <= free_bytes <= all_bytes
                assert free_bytes + bytes_given[kind, numa_id] == all_bytes

    @invariant()
    def devices_add_up(self) -> None:
        """No device is two pods', and the healthy ones are given or free."""
        provider = self.node.devices
        if provider is None:
            return

        for resource, devices in self.inventory().items():
            by_pod = []
            for uid, pod in self.live.items():
                by_container = {
                    c.name: set(provider.devices(uid, c.name).get(resource, ()))
                    for c in pod.all_containers
                }
                self.check_inside(pod, by_container)
                by_pod.append(set().union(*by_container.values()))

            pod_devices = set().union(*by_pod)
            assert len(pod_devices) == sum(map(len, by_pod))
            assert pod_devices == set(provider.given[resource])
            assert pod_devices | set(provider.free[resource]) == devices
            assert not pod_devices & set(provider.free[resource])

    def inventory(self) -> dict[str, set[str]]:
        """Return the ids of all healthy devices; nobody has one that is not."""
        free, device_ids_given = self.at_first[1][2]
        assert not any(device_ids_given.values())
        return {resource: set(ids) for resource, ids in free.items()}

    def teardown(self) -> None:
        """All pods go, first come first gone, and nothing is left of them."""
        if not hasattr(self, "at_first"):
            return
        for uid in list(self.live):
            self.node.remove(uid)
        assert self.at_first == (self.offers("devices", "cpu", "memory"), self.amounts())


def test_nodes_neither_lose_nor_give_twice() -> None:
    run_state_machine_as_test(
        NodeMachine,
        settings=settings(
            max_examples=12,
            stateful_step_count=10,
            deadline=None,
            suppress_health_check=QUIET,
            derandomize=True,
        ),
    )


@pytest.mark.slow
def test_nodes_never_lose_nor_give_twice() -> None:
    """The same, for long."""
    run_state_machine_as_test(
        NodeMachine,
        settings=settings(
            max_examples=1500, stateful_step_count=25, deadline=None, suppress_health_check=QUIET
        ),
    )
