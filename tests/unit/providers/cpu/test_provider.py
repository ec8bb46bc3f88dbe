"""The CPU manager's static policy: hints, allocation, refusals, and its books."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import AllocationError, ConfigError
from alignup.kubernetes.pod import Container, Pod
from alignup.kubernetes.policy_options import CpuOptions
from alignup.kubernetes.versions import KubeletVersion, PodLevel, VersionProfile, profile_of
from alignup.machine.cpuset import CPUSet
from alignup.machine.machine import Core
from alignup.node import Node
from alignup.providers.cpu.provider import CpuProvider, reserved_cpus
from alignup.topology_manager.hints import BitMask, TopologyHint
from alignup.topology_manager.provider import HintProvider
from inputs.cpu_machines import grid, machine_of, machines
from inputs.strategies import examples

if TYPE_CHECKING:
    from collections.abc import Mapping

PROFILES = [profile_of(KubeletVersion(minor), {}) for minor in (37, 38)]
ANYWHERE = TopologyHint(None, False)
NONE = CpuOptions()

OPTIONS = st.sampled_from(
    [
        CpuOptions(),
        CpuOptions(full_pcpus_only=True),
        CpuOptions(distribute_cpus_across_numa=True),
        CpuOptions(full_pcpus_only=True, distribute_cpus_across_numa=True),
        CpuOptions(distribute_cpus_across_cores=True, strict_cpu_reservation=True),
        CpuOptions(prefer_align_cpus_by_uncorecache=True),
    ]
)


def near(*positions):
    return TopologyHint(BitMask(positions), True)


def asking(name, cpus, *, init=False, sidecar=False):
    return Container(name, exclusive_cpus=cpus, is_init=init or sidecar, is_sidecar=sidecar)


def pod_of(*containers, uid="u", cpus=0):
    return Pod(uid, uid, all_containers=containers, exclusive_cpus=cpus)


def provider_of(machine, reserved="", **options):
    return CpuProvider(machine, int(CPUSet.parse(reserved)), CpuOptions(**options))


def admit(provider, pod, affinity=ANYWHERE):
    for container in pod.all_containers:
        provider.allocate(pod, container, affinity)
    return [str(provider.cpus(pod.uid, container.name)) for container in pod.all_containers]


def hints(offered):
    return {tuple(hint.affinity): hint.preferred for hint in offered["cpu"]}


def hints_for(provider, cpus):
    container = asking("c", cpus)
    return hints(provider.topology_hints(pod_of(container), container))


def test_it_is_a_hint_provider():
    assert isinstance(provider_of(grid(1, 1)), HintProvider)


class TestHints:
    def test_no_preference_without_cpus_of_its_own(self):
        provider = provider_of(grid(2, 2))
        pod = pod_of(asking("c", 0))
        assert provider.topology_hints(pod, pod.all_containers[0]) is None
        assert provider.pod_topology_hints(pod) is None

    def test_the_narrowest_masks_that_hold_the_request_are_preferred(self):
        assert hints_for(provider_of(grid(2, 4), "0"), 3) == {(0,): True, (1,): True, (0, 1): False}

    def test_preference_goes_by_what_nodes_have_not_by_what_is_free(self):
        assert hints_for(provider_of(grid(2, 4), "0,4"), 4) == {(0, 1): False}

    def test_no_hint_at_all_is_an_empty_list(self):
        assert hints_for(provider_of(grid(2, 4), "0"), 8) == {}
        assert hints_for(provider_of(grid(2, 4), "0"), 9) == {}

    def test_masks_are_positions_and_leave_out_nodes_without_cpus(self):
        machine = machine_of([[Core((0,), 0)], [], [Core((1,), 0)]], ids=[1, 5, 9])
        assert hints_for(provider_of(machine), 1) == {(0,): True, (2,): True, (0, 2): False}
        assert hints_for(provider_of(machine), 2) == {(0, 2): True}

    def test_what_an_init_container_left_must_be_in_reach(self):
        provider = provider_of(grid(3, 4))
        pod = pod_of(asking("i", 2, init=True), asking("c", 4))
        provider.allocate(pod, pod.all_containers[0], near(1))
        assert hints(provider.topology_hints(pod, pod.all_containers[1])) == {
            (1,): True,
            (0, 1): False,
            (1, 2): False,
            (0, 1, 2): False,
        }

    def test_of_another_pod_it_is_nobodys_business(self):
        provider = provider_of(grid(2, 4))
        provider.allocate(pod_of(uid="other"), asking("i", 2, init=True), near(1))
        assert hints_for(provider, 3) == {(0,): True, (0, 1): False}

    def test_a_container_that_has_its_cpus_is_told_where_they_are(self):
        provider = provider_of(grid(2, 4))
        container = asking("c", 2)
        pod = pod_of(container, cpus=2)
        provider.allocate(pod, container, near(1))
        expected = {(1,): True, (0, 1): False}
        assert hints(provider.topology_hints(pod, container)) == expected
        assert hints(provider.pod_topology_hints(pod)) == expected

    def test_unless_it_asks_for_another_number_now(self):
        provider = provider_of(grid(2, 4))
        pod = pod_of(asking("c", 2))
        admit(provider, pod)
        changed = pod_of(asking("c", 3), cpus=3)
        assert hints(provider.topology_hints(changed, changed.all_containers[0])) == {}
        assert hints(provider.pod_topology_hints(changed)) == {}

    def test_a_pod_that_has_some_of_its_cpus_asks_for_the_rest_beside_them(self):
        provider = provider_of(grid(2, 4))
        pod = pod_of(asking("a", 2), asking("b", 2), cpus=4)
        provider.allocate(pod, pod.all_containers[0], near(1))
        assert hints(provider.pod_topology_hints(pod)) == {(1,): True, (0, 1): False}

    def test_a_socket_is_as_good_as_a_node_with_align_by_socket(self):
        provider = provider_of(grid(4, 2, sockets=2), align_by_socket=True)
        offered = hints_for(provider, 2)
        assert offered[0, 1]
        assert not offered[1, 2]
        assert all(
            preferred == (len(mask) == 2) for mask, preferred in hints_for(provider, 4).items()
        )


class TestAllocation:
    def test_cpus_come_from_the_affinity(self):
        provider = provider_of(grid(2, 4), "0")
        assert admit(provider, pod_of(asking("c", 2)), near(1)) == ["4-5"]
        assert str(provider.shared_cpus) == "0-3,6-7"
        assert str(provider.free_cpus) == "1-3,6-7"
        assert str(provider.allocatable_cpus) == "1-7"

    def test_and_the_rest_from_elsewhere(self):
        assert admit(provider_of(grid(2, 4), "0"), pod_of(asking("c", 5)), near(1)) == ["1,4-7"]

    def test_without_an_affinity_they_come_from_anywhere(self):
        assert admit(provider_of(grid(2, 4), "0"), pod_of(asking("c", 4)), ANYWHERE) == ["4-7"]

    def test_align_by_socket_widens_the_affinity_to_sockets(self):
        machine = grid(4, 2, sockets=2)
        pod = pod_of(asking("c", 2))
        assert admit(provider_of(machine, "0-2,4"), pod, near(2)) == ["3,5"]
        assert admit(provider_of(machine, "0-2,4", align_by_socket=True), pod, near(2)) == ["6-7"]

    def test_a_container_without_cpus_of_its_own_gets_none(self):
        provider = provider_of(grid(1, 2))
        provider.allocate(pod_of(), asking("c", 0), ANYWHERE)
        assert provider.cpus("u", "c") is None

    def test_a_container_that_has_its_cpus_keeps_them(self):
        provider = provider_of(grid(1, 4))
        pod = pod_of(asking("c", 2))
        assert admit(provider, pod) == admit(provider, pod) == ["0-1"]

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({}, "1-2,5-6"),
            ({"distribute_cpus_across_cores": True}, "1-4"),
            ({"prefer_align_cpus_by_uncorecache": True}, "1,3,5,7"),
        ],
    )
    def test_options_choose_the_cpus(self, options, expected):
        cores = [Core((k, k + 4), 0, l3) for k, l3 in enumerate([0, 1, 0, 1])]
        provider = provider_of(machine_of([cores]), "0", **options)
        assert admit(provider, pod_of(asking("c", 4))) == [expected]

    def test_distribution_over_nodes(self):
        provider = provider_of(grid(2, 4), distribute_cpus_across_numa=True)
        assert admit(provider, pod_of(asking("c", 6))) == ["0-2,4-6"]

    def test_distribution_keeps_cores_whole_with_full_pcpus_only(self):
        provider = provider_of(
            grid(2, 4, smt=2), distribute_cpus_across_numa=True, full_pcpus_only=True
        )
        assert admit(provider, pod_of(asking("c", 10))) == ["0-5,8-11"]


class TestInitContainers:
    def test_what_they_had_goes_to_those_after_them(self):
        provider = provider_of(grid(1, 8), "0")
        pod = pod_of(
            asking("i", 2, init=True), asking("j", 4, init=True), asking("a", 3), asking("b", 2)
        )
        assert admit(provider, pod) == ["1-2", "1-4", "1-3", "4-5"]
        assert str(provider.shared_cpus) == "0,6-7"

    def test_sidecars_keep_theirs(self):
        provider = provider_of(grid(1, 8), "0")
        pod = pod_of(asking("i", 2, init=True), asking("s", 1, sidecar=True), asking("a", 2))
        assert admit(provider, pod) == ["1-2", "1", "2-3"]

    def test_cpus_come_back_with_their_last_user(self):
        provider = provider_of(grid(1, 4))
        pod = pod_of(asking("i", 3, init=True), asking("a", 2))
        admit(provider, pod)
        provider.release("u", "i")
        assert str(provider.shared_cpus) == "2-3"
        provider.release("u", "a")
        assert str(provider.shared_cpus) == "0-3"

    def test_another_pod_does_not_get_them(self):
        provider = provider_of(grid(1, 4))
        admit(provider, pod_of(asking("i", 3, init=True), uid="other"))
        with pytest.raises(AllocationError):
            admit(provider, pod_of(asking("c", 2)))


class TestRefusals:
    def test_too_few_cpus(self):
        provider = provider_of(
            machine_of([[Core((0,), 0), Core((1,), 0)], [], [Core((2,), 0)]], ids=[0, 3, 7]), "0"
        )
        with pytest.raises(AllocationError) as refusal:
            admit(provider, pod_of(asking("c", 3)), near(0))
        assert refusal.value.reason == "UnexpectedAdmissionError"
        assert (
            str(refusal.value)
            == "too few CPUs are free: 3 asked, 2 free: 1 on NUMA node 0, 1 on NUMA node 7"
        )
        assert provider.cpus("u", "c") is None
        assert str(provider.shared_cpus) == "0-2"

    def test_no_multiple_of_a_core(self):
        with pytest.raises(AllocationError, match="multiple of the 2 CPUs of a core") as refusal:
            admit(provider_of(grid(1, 4, smt=2), full_pcpus_only=True), pod_of(asking("c", 3)))
        assert refusal.value.reason == "SMTAlignmentError"

    def test_cores_with_a_reserved_cpu_do_not_count(self):
        provider = provider_of(grid(1, 4, smt=2), "0,2", full_pcpus_only=True)
        with pytest.raises(
            AllocationError, match="too few CPUs are free in whole cores: 6 asked, 4 free"
        ) as refusal:
            admit(provider, pod_of(asking("c", 6)))
        assert refusal.value.reason == "SMTAlignmentError"
        assert admit(provider, pod_of(asking("c", 4))) == ["4-7"]


class TestReservedCpus:
    def test_they_stay_in_the_shared_pool(self):
        provider = provider_of(grid(1, 4), "1,3")
        assert admit(provider, pod_of(asking("c", 2))) == ["0,2"]
        assert str(provider.shared_cpus) == "1,3"

    def test_unless_the_reservation_is_strict(self):
        provider = provider_of(grid(1, 4), "1,3", strict_cpu_reservation=True)
        assert str(provider.shared_cpus) == "0,2"
        admit(provider, pod_of(asking("c", 2)))
        provider.release("u", "c")
        assert str(provider.shared_cpus) == "0,2"

    def test_a_number_of_them_is_taken_as_a_container_would_get_them(self):
        assert reserved_cpus(grid(1, 4, smt=2, split=True), 2, NONE) == 0b10001
        assert reserved_cpus(grid(2, 2), 3, CpuOptions(distribute_cpus_across_numa=True)) == 0b111
        assert reserved_cpus(grid(2, 2), 0, NONE) == 0

    def test_more_than_there_are_cannot_be_reserved(self):
        with pytest.raises(ConfigError, match="at most 4 CPUs"):
            reserved_cpus(grid(2, 2), 5, NONE)

    def test_the_kubelet_gives_one_away_where_cores_differ_in_size(self):
        hybrid = machine_of([[Core((0, 1), 0), Core((2,), 0), Core((3,), 0)]])
        assert admit(provider_of(hybrid, "0"), pod_of(asking("c", 2))) == ["0-1"]

    def test_no_cpu_counts_twice_where_sockets_differ_in_size(self):
        rows = [
            [(0, 0), (2, 0), (3, 1)],
            [(1, 2), (4, 2), (5, 3), (6, 3)],
            [(7, 4), (8, 4), (9, 5)],
        ]
        machine = machine_of([[Core((cpu,), socket) for cpu, socket in row] for row in rows])
        (cpus,) = admit(provider_of(machine, "1"), pod_of(asking("c", 5)), near(1))
        assert len(CPUSet.parse(cpus)) == 5


class TestConfiguration:
    def test_reserved_cpus_must_exist(self):
        with pytest.raises(
            ConfigError, match=r"CPUs of this machine \(0-3\), got '3-5' at reservedSystemCPUs"
        ):
            provider_of(grid(1, 4), "3-5")

    def test_align_by_socket_needs_as_many_nodes_as_sockets(self):
        with pytest.raises(ConfigError, match="no more sockets than the 1 NUMA nodes"):
            provider_of(grid(1, 4, sockets=2), align_by_socket=True)
        provider_of(grid(2, 4, sockets=2), align_by_socket=True)


def test_releasing_what_is_not_known_changes_nothing():
    provider = provider_of(grid(1, 2))
    admit(provider, pod_of(asking("c", 1)))
    provider.release("u", "other")
    provider.release("other", "c")
    assert str(provider.shared_cpus) == "1"


@given(machines(), OPTIONS, st.sampled_from(PROFILES), st.data())
@examples(80)
def test_nothing_is_given_twice_and_everything_comes_back(machine, options, profile, data):
    """Over any pods: running containers share no CPU, and given + free = allocatable.

    Releases restore all.
    """
    every = sorted(cpu for node in machine.numa_nodes for core in node.cores for cpu in core.cpus)
    reserved = data.draw(st.sets(st.sampled_from(every), max_size=2))
    provider = CpuProvider(machine, int(CPUSet(reserved)), options, profile)
    running: dict[str, Pod] = {}
    for number in range(data.draw(st.integers(1, 6))):
        if running and data.draw(st.booleans()):
            pod = running.pop(data.draw(st.sampled_from(sorted(running))))
            release(provider, pod)

        kinds = data.draw(
            st.lists(st.sampled_from(["init", "sidecar", "app"]), min_size=1, max_size=3)
        )
        pod = pod_of(
            *(
                asking(
                    f"c{i}",
                    data.draw(st.integers(0, 6)),
                    init=kind == "init",
                    sidecar=kind == "sidecar",
                )
                for i, kind in enumerate(kinds)
            ),
            uid=f"u{number}",
        )
        before = provider.shared_cpus
        affinity = data.draw(
            st.sampled_from([ANYWHERE, *(near(i) for i in range(len(machine.numa_nodes)))])
        )
        try:
            admit(provider, pod, affinity)
            running[pod.uid] = pod
        except AllocationError:
            release(provider, pod)
            assert provider.shared_cpus == before

        check_books(provider, running, CPUSet(reserved))

    for pod in running.values():
        release(provider, pod)

    assert provider.free_cpus == provider.allocatable_cpus


def release(provider, pod):
    for container in reversed(pod.all_containers):
        provider.release(pod.uid, container.name)


def check_books(provider, running, reserved):
    """Check that what containers hold, and what is free, add up.

    Where cores or sockets differ in size a reserved CPU can be given away, as in the kubelet.
    """
    allocated = CPUSet()
    long_running = CPUSet()
    for pod in running.values():
        of_pod = CPUSet()
        for container in pod.all_containers:
            cpus = provider.cpus(pod.uid, container.name)
            assert len(cpus or ()) == container.exclusive_cpus
            if cpus is None:
                continue
            assert not cpus & allocated
            if not container.is_init or container.is_sidecar:
                assert not cpus & long_running
                long_running |= cpus

            of_pod |= cpus

        allocated |= of_pod

    assert not allocated & provider.free_cpus
    assert (allocated - reserved) | provider.free_cpus == provider.allocatable_cpus
    assert not allocated & provider.shared_cpus


def test_cpus_of_a_refused_init_container_do_not_bind_the_next_pod_of_that_uid():
    """A launcher admits the same uid again.

    What its first try had on node 1 must not draw it there.
    """
    cores = [[{"cpus": [4 * node + cpu], "socket": node} for cpu in range(4)] for node in range(2)]
    nodes = [{"id": node, "memory": 1 << 30, "cores": cores[node]} for node in range(2)]
    kubelet = {"topologyManagerPolicy": "restricted", "cpuManagerPolicy": "static"}
    devices = {"example.com/nic": [{"id": "nic0", "numa": [1]}]}
    node = Node.from_dict({"machine": {"numaNodes": nodes}, "kubelet": kubelet, "devices": devices})

    def container(name, cpus, **more):
        return {"name": name, "resources": {"limits": {"cpu": cpus, "memory": "1Mi", **more}}}

    def pod(*containers, init=()):
        return {
            "metadata": {"name": "p"},
            "spec": {"initContainers": [*init], "containers": [*containers]},
        }

    first = node.admit(
        pod(container("c", "9"), init=[container("i", "2", **{"example.com/nic": "1"})])
    )
    assert not first.admitted
    again = node.admit(pod(container("c", "2")))
    assert (list(again.containers["c"].affinity.affinity), str(again.containers["c"].cpus)) == (
        [0],
        "0-1",
    )


def test_released_cpus_are_no_longer_kept_for_the_rest_of_the_pod():
    provider = provider_of(grid(2, 4))
    init, app = asking("i", 2, init=True), asking("c", 2)
    pod = pod_of(init, app)
    before = provider.topology_hints(pod, app)
    provider.allocate(pod, init, near(1))
    assert provider.topology_hints(pod, app) != before
    provider.release("u", "i")
    assert provider.topology_hints(pod, app) == before


class TestRestoredPods:
    """Pods with CPUs as a whole, found in the state of a kubelet that restarts."""

    # an init container that ends, one that stays, and two, of which the last shares what is left
    CONTAINERS = (
        asking("i", 3, init=True),
        asking("s", 1, sidecar=True),
        asking("c", 2),
        asking("d", 0),
    )
    WHOLE = 0b11_1111_00
    HELD = MappingProxyType({"i": 0b1110_0, "s": 0b1_00, "c": 0b110_00, "d": 0b1110_0000})

    def pod(self, cpus: int = 6) -> Pod:
        return Pod(
            "u",
            "u",
            all_containers=self.CONTAINERS,
            exclusive_cpus=cpus,
            pod_level=PodLevel.MANAGED,
        )

    def provider(
        self, held: Mapping[str, int], shared: int = 0xFF03, *, restores: bool = True
    ) -> CpuProvider:
        """Return a provider of two NUMA nodes of 8 CPUs each, whose kubelet has restarted."""
        profile = VersionProfile(pod_resources_restored=restores)
        made = CpuProvider(grid(2, 8), 0b1, CpuOptions(), profile)
        made.restore({"u": dict(held)}, shared, {"u": self.WHOLE})
        made.readmits_pods = True
        return made

    def test_keep_what_they_have(self) -> None:
        made = self.provider(self.HELD)
        pod = self.pod()
        assert hints(made.pod_topology_hints(pod)) == {(0,): True, (0, 1): False}

        made.allocate_pod(pod, near(1))
        assert dict(made.held["u"]) == dict(self.HELD)
        assert made.whole_pods["u"] == self.WHOLE
        assert int(made.shared_cpus) == 0xFF03

    @pytest.mark.parametrize("known", range(4))
    def test_are_completed_where_the_kubelet_had_not_written_down_all(self, known: int) -> None:
        """The first containers keep theirs; the others choose among what is left of the pod's."""
        first = dict(list(self.HELD.items())[:known])
        made = self.provider(first)
        pod = self.pod()
        assert hints(made.pod_topology_hints(pod)) == {(0,): True, (0, 1): False}

        made.allocate_pod(pod, near(0))
        held = made.held["u"]
        assert {name: held[name] for name in first} == first
        assert [cpus.bit_count() for cpus in held.values()] == [3, 1, 2, 3]
        assert held["s"] | held["c"] | held["d"] == self.WHOLE
        assert int(made.shared_cpus) == 0xFF03

    def test_give_all_back_where_too_little_is_left_to_complete_them(self) -> None:
        made = self.provider({"i": 0b1110_0, "s": self.WHOLE & ~0b100})
        with pytest.raises(AllocationError, match="too few CPUs are free: 2 asked"):
            made.allocate_pod(self.pod(), near(0))

        assert "u" not in made.held
        assert "u" not in made.whole_pods
        assert int(made.shared_cpus) == 0xFFFF

    def test_of_another_size_have_no_hints(self) -> None:
        assert hints(self.provider(self.HELD).pod_topology_hints(self.pod(cpus=7))) == {}

    @pytest.mark.parametrize(
        ("held", "shared"),
        [
            (HELD, 0xFFFF),  # all were given back, and the pod's entry not deleted yet
            ({"c": HELD["c"]}, 0xFF03),  # entries of others were deleted, in any order
            ({**HELD, "x": 0b100}, 0xFF03),
        ],
    )
    def test_are_allocated_anew_where_they_are_left_of_a_release(
        self, held: Mapping[str, int], shared: int
    ) -> None:
        """The hints are those of the pool as it will be then."""
        made = self.provider(held, shared)
        pod = self.pod()
        assert hints(made.pod_topology_hints(pod)) == {(0,): True, (1,): True, (0, 1): False}

        made.allocate_pod(pod, near(1))
        assert made.whole_pods["u"] == 0b11_1111 << 8
        assert {*made.held["u"]} == {"i", "s", "c", "d"}
        assert int(made.shared_cpus) == 0xC0FF

    def test_lose_what_they_had_in_kubelets_that_restore_nothing(self) -> None:
        """A container that shares the pod's CPUs has more than it asks for, so there are no hints.

        The old CPUs are nobody's, and not free.
        """
        made = self.provider(self.HELD, restores=False)
        pod = self.pod()
        assert hints(made.pod_topology_hints(pod)) == {}

        made.allocate_pod(pod, ANYWHERE)
        assert made.whole_pods["u"] == 0x1F02
        assert int(made.shared_cpus) == 0xE001
        made.release("u", "i")
        for name in ("s", "c", "d"):
            made.release("u", name)
        assert int(made.shared_cpus) == 0xFF03

    def test_are_left_alone_while_the_kubelet_runs(self) -> None:
        made = self.provider(self.HELD, restores=False)
        made.readmits_pods = False
        made.allocate_pod(self.pod(), ANYWHERE)
        assert made.whole_pods["u"] == self.WHOLE


@pytest.mark.parametrize(
    ("options", "shared", "held", "message"),
    [
        ({}, 0b1111_0001, {"c": 0b0110}, r'"0-7" doesn\'t match with CPUs in state "0-2,4-7"$'),
        (
            {"strict_cpu_reservation": True},
            0b1111_0000,
            {"c": 0b0110},
            r'"1-7" doesn\'t match with CPUs in state "1-2,4-7"$',
        ),
        (
            {"strict_cpu_reservation": True},
            0,
            {"c": 0b1111_1110},
            "^default cpuset cannot be empty$",
        ),
    ],
)
def test_a_kubelet_that_lost_cpus_does_not_start_on_its_state(options, shared, held, message):
    predecessor = CpuProvider(grid(1, 8), 0b1, CpuOptions(**options))
    predecessor.restore({"u": held}, shared)
    with pytest.raises(ConfigError, match=message):
        CpuProvider(grid(1, 8), 0b1, CpuOptions(**options)).inherit(predecessor)


def test_a_kubelet_without_a_pool_and_without_containers_begins_anew():
    options = CpuOptions(strict_cpu_reservation=True)
    predecessor = CpuProvider(grid(1, 2), 0b1, options)
    predecessor.restore({}, 0)
    successor = CpuProvider(grid(1, 2), 0b1, options)
    successor.inherit(predecessor)
    assert str(successor.shared_cpus) == "1"


@pytest.mark.parametrize(("version", "cpus"), [("1.37", "1-2"), ("1.38", "1,4")])
def test_from_1_38_on_containers_span_as_many_numa_nodes_as_their_pod(
    version: str, cpus: str
) -> None:
    """A pod that has six CPUs as a whole, on two NUMA nodes of four, with a container of two."""
    kubelet = {
        "featureGates": {
            "PodLevelResourceManagers": True,
            "CPUManagerPolicyAlphaOptions": True,
            "CPUManagerPolicyBetaOptions": True,
        },
        "topologyManagerPolicy": "restricted",
        "topologyManagerScope": "pod",
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true"},
        "reservedSystemCPUs": "0",
    }
    node = Node(grid(2, 4), kubelet, kubelet_version=version)
    two, six = {"cpu": "2", "memory": "1Mi"}, {"cpu": "6", "memory": "1Gi"}
    pod = {
        "metadata": {"name": "p"},
        "spec": {
            "resources": {"limits": six, "requests": six},
            "containers": [
                {"name": "own", "resources": {"limits": two, "requests": two}},
                {"name": "shared"},
            ],
        },
    }
    admission = node.admit(pod)
    assert str(admission.pod_cpus) == "1-6"
    assert str(admission.containers["own"].cpus) == cpus
