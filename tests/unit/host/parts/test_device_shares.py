"""CPUs near devices, shared out among all devices of a machine or among those that are seen."""

from __future__ import annotations

from random import Random

import pytest

from alignup.errors import AlignupWarning, InputError
from alignup.host.parts.device_shares import DeviceParts, ShareRules, device_shares
from alignup.host.parts.usable import within
from alignup.host.parts.visible_devices import Sight
from alignup.machine.bits import bit_numbers, bit_set
from alignup.machine.device_inventory import Device
from alignup.machine.load import load_machine
from inputs.gpu_machines import gpu_machine, has_a_core_for_each, has_cpus_near
from inputs.strategies import counts
from models import shares as model

GPU = "nvidia.com/gpu"
NIC = "example.com/nic"
DGX = load_machine("dgx-h100")
GPUS = tuple(DGX.devices[GPU])


def parts(seen, ranks, count=1, *, machine=DGX.machine, devices=GPUS, reason="", **rules):
    """Return the parts of all ranks of a job that sees some GPUs."""
    sight = Sight(tuple(devices), tuple(devices[index] for index in seen), reason)
    cut = DeviceParts(machine, ranks, {GPU: count}, {GPU: sight}, ShareRules(**rules))
    return [cut.part(rank) for rank in range(ranks)]


def texts(cut):
    return [str(part.cpus) for part in cut]


def test_a_subset_has_the_shares_of_its_gpus_and_another_subset_others():
    """The four GPUs of a socket, by two jobs that know nothing of each other."""
    first = parts(range(4), 4)
    last = parts(range(4, 8), 4)
    assert texts(last) == ["56-69,168-181", "70-83,182-195", "84-97,196-209", "98-111,210-223"]
    assert [part.numa_nodes for part in first] == [(0,)] * 4
    assert [part.devices[GPU] for part in last] == [(f"gpu{gpu}",) for gpu in range(4, 8)]
    assert {part.memory for part in last} == {((1, 256 << 30),)}
    assert not {cpu for part in first for cpu in part.cpus} & {
        cpu for part in last for cpu in part.cpus
    }


def test_who_is_alone_shares_among_the_gpus_that_are_seen():
    assert texts(parts((4, 5), 2, share="seen")) == ["56-83,168-195", "84-111,196-223"]
    assert texts(parts((4, 5), 2)) == ["56-69,168-181", "70-83,182-195"]
    assert texts(parts((5, 0), 2, share="seen")) == ["56-111,168-223", "0-55,112-167"]


def test_several_gpus_a_rank_are_near_each_other_and_bring_their_shares():
    cut = parts((0, 4, 1, 5), 2, 2)
    assert [part.devices[GPU] for part in cut] == [("gpu0", "gpu1"), ("gpu4", "gpu5")]
    assert texts(cut) == ["0-27,112-139", "56-83,168-195"]
    # seen by the rank alone: those of two sockets, if the launcher says so
    assert texts(parts((3, 4), 4, 2))[0] == "42-69,154-181"


def test_sets_that_belong_together_are_kept():
    sets = {GPU: [("gpu0", "gpu2"), ("gpu1", "gpu3")]}
    cut = parts(range(4), 2, 2, preferred_sets=sets)
    assert [part.devices[GPU] for part in cut] == [("gpu0", "gpu2"), ("gpu1", "gpu3")]


def test_several_ranks_a_gpu_are_asked_for_by_name():
    with pytest.raises(InputError, match=r"4 parts of 1 .* for the 2 .*with oversubscribe=True"):
        parts((4, 5), 4)
    cut = parts((4, 5), 4, oversubscribe=True)
    assert [part.devices[GPU] for part in cut] == [("gpu4",), ("gpu5",), ("gpu4",), ("gpu5",)]
    assert texts(cut) == ["56-62,168-174", "70-76,182-188", "63-69,175-181", "77-83,189-195"]


def test_the_number_of_cpus_is_one_of_the_share():
    assert texts(parts((4, 5), 2, cpus=4)) == ["56-57,168-169", "70-71,182-183"]
    with pytest.raises(InputError, match=r"29 CPUs are too many for the share of .* gpu4"):
        parts((4, 5), 2, cpus=29)
    assert len(parts((4, 5), 2, cpus=29, share="seen")[0].cpus) == 29


def test_a_gpu_without_a_node_counts_as_near_all():
    devices = [Device(f"gpu{index}", None) for index in range(4)]
    assert texts(parts((1, 2), 2, devices=devices)) == ["28-55,140-167", "56-83,168-195"]
    mixed = [Device("gpu0", (0,)), Device("gpu1", None)]
    shares = device_shares(DGX.machine, mixed)
    assert shares["gpu0"] == bit_set([*range(56), *range(112, 168)])
    assert shares["gpu1"] == bit_set([*range(56, 112), *range(168, 224)])


def test_more_gpus_than_cores_share_cores_and_then_cpus():
    """Within what the process may use: two cores of the socket, then two CPUs."""
    two_cores = within(DGX.machine, bit_set([56, 57, 168, 169]), -1)
    assert texts(parts(range(4, 8), 4, machine=two_cores)) == ["56", "57", "168", "169"]
    with pytest.raises(InputError, match="are not whole cores: those of CPUs 56,168"):
        parts(range(4, 8), 4, machine=two_cores, full_cores=True)

    two_cpus = within(DGX.machine, bit_set([56, 57]), -1)
    assert texts(parts(range(4, 8), 4, machine=two_cpus)) == ["56", "57", "56", "57"]
    sight = Sight(GPUS, GPUS[4:])
    cut = DeviceParts(two_cpus, 4, {GPU: 1}, {GPU: sight}, ShareRules())
    assert any("gpu5 shares CPUs 57 with gpu1, gpu3, gpu7" in note for note in cut.notes(1))


def test_a_process_without_cpus_near_a_gpu_is_told():
    away = within(DGX.machine, bit_set(range(56)), -1)
    cut = DeviceParts(away, 1, {GPU: 1}, {GPU: Sight(GPUS, GPUS[6:7])}, ShareRules())
    (note,) = cut.notes(0)
    assert "gpu6 is near NUMA nodes 1, of which this process may use no CPU" in note
    assert len(cut.part(0).cpus) == 7  # an eighth of what there is


def test_a_launcher_that_leaves_each_rank_its_own_hides_how_many_share():
    with pytest.warns(AlignupWarning, match=r"share='seen' needs to know .* X \('4'\) leaves each"):
        cut = parts((4,), 8, share="seen", reason="X ('4')")
    assert texts(cut)[0] == "56-69,168-181"


def test_devices_of_another_resource_are_the_nearest_of_their_own():
    nics = tuple(Device(f"nic{index}", (index // 4,)) for index in range(8))

    def cut(seen, nics=nics, ranks=2):
        sights = {GPU: Sight(GPUS, tuple(GPUS[gpu] for gpu in seen)), NIC: Sight(nics, nics)}
        job = DeviceParts(DGX.machine, ranks, {NIC: 1, GPU: 1}, sights, ShareRules(), (GPU,))
        return [job.part(rank).devices[NIC] for rank in range(ranks)]

    assert cut((6, 7)) == [("nic6",), ("nic7",)]  # others have theirs
    assert cut((6, 1), nics[::4]) == [("nic4",), ("nic0",)]
    with pytest.raises(InputError, match=r"2 parts of 1 example\.com/nic are too many for the 1"):
        cut((0, 1), nics[:1])


def test_a_number_of_devices_is_none_below_zero():
    with pytest.raises(InputError, match="a number of devices"):
        parts((0,), 1, -1)


@pytest.mark.parametrize("count", counts(200, 10_000))
def test_shares_are_those_of_the_model(count):
    for seed in range(count):
        machine, devices = gpu_machine(Random(seed), even=True)
        expected = model.shares(machine, devices)
        shares = {
            name: set(bit_numbers(cpus)) for name, cpus in device_shares(machine, devices).items()
        }
        if devices[0].numa_nodes is None or not has_a_core_for_each(machine, devices):
            # which cores are split, and which parts are on several nodes, is no matter of shares
            shares = {name: len(cpus) for name, cpus in shares.items()}
            expected = {name: len(cpus) for name, cpus in expected.items()}
        assert shares == expected, seed


@pytest.mark.parametrize("count", counts(200, 10_000))
def test_ranks_are_near_their_gpus_and_jobs_with_other_gpus_do_not_meet(count):
    """With default shares, a GPU a rank, and a core for each GPU of a NUMA node.

    The jobs may use some of the CPUs only, the same ones.
    """
    for seed in range(count):
        random = Random(seed)
        whole, devices = gpu_machine(random)
        machine = whole
        if random.random() < 0.3:
            cpus = random.sample(list(bit_numbers(whole.cpus)), random.randint(1, whole.cpu_count))
            machine = within(whole, bit_set(cpus), -1)

        order = random.sample(range(len(devices)), len(devices))
        end = random.randint(0, len(order))
        taken = set()
        for job in filter(None, (order[:end], order[end:])):
            cut = parts(job, len(job), machine=machine, devices=devices)
            for gpu, part in zip(job, cut, strict=True):
                device = devices[gpu]
                assert part.devices[GPU] == (device.id,)
                assert part.cpus
                if has_cpus_near(machine, device):
                    assert set(part.numa_nodes) <= set(device.numa_nodes or machine.numa_node_ids)
                if has_a_core_for_each(machine, devices):
                    assert not taken & set(part.cpus), seed

                taken |= set(part.cpus)
