"""One call for every rank, on the machine at hand and on others in its place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import alignup
from alignup.errors import AlignupWarning, InputError
from alignup.host.launchers import LAUNCHERS
from alignup.host.parts import part as part_module
from alignup.host.parts import ranks
from alignup.host.parts.usable import reachable, usable
from alignup.host.parts.visible_devices import HostFiles
from alignup.host.processes import binding
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device, LoadedMachine
from alignup.machine.load import load_machine
from alignup.machine.pci_devices import devices_from_pci, usual_selectors
from alignup.records import replace

GPU = "nvidia.com/gpu"
LAUNCHED = [name for launcher in LAUNCHERS for name in (launcher.rank, *launcher.sizes)]


@pytest.fixture
def bound(monkeypatch):
    """What a rank is bound to; the environment has no launcher."""
    calls = []
    for name in (*LAUNCHED, "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(binding, "bind_threads", lambda cpus: calls.append(str(cpus)))
    monkeypatch.setattr(binding, "bind_cpus", lambda cpus: calls.append(f"{cpus}, one thread"))
    monkeypatch.setattr(
        binding, "set_memory", lambda nodes, mode: calls.append((tuple(nodes), mode)) or ""
    )
    monkeypatch.setattr(part_module, "_is_all_memory", lambda _: False)
    return calls


@pytest.fixture
def on_dgx(monkeypatch, bound):
    """The machine at hand is a DGX H100."""
    monkeypatch.setattr(ranks, "_load", lambda *_: load_machine("dgx-h100"))
    return bound


def test_each_rank_is_bound_to_the_part_that_split_shows(on_dgx):
    parts = alignup.split("dgx-h100", 8, devices={GPU: 1})

    for rank in range(8):
        part = alignup.bind(rank, 8, devices={GPU: 1})
        assert part == parts[rank]
        assert on_dgx[-2:] == [str(part.cpus), ((part.numa_nodes[0],), "preferred")]
        assert part.environment() == {
            "ALIGNUP_PART": f"{rank}/8",
            "ALIGNUP_CPUS": str(part.cpus),
            "ALIGNUP_NUMA_NODES": str(rank // 4),
            "ALIGNUP_MEMORY": str(256 << 30),
            "ALIGNUP_DEVICE_NVIDIA_COM_GPU": f"gpu{rank}",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": str(rank),
        }


def test_the_launcher_says_which_part(on_dgx, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "5")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert (
        alignup.bind(cpus=2, threads=False, memory="interleave")
        == alignup.split("dgx-h100", 8, cpus_per_part=2)[5]
    )
    assert on_dgx == ["57,169, one thread", ((1,), "interleave")]


def test_without_a_launcher_the_error_says_what_was_looked_for(on_dgx):
    with pytest.raises(
        InputError, match="OMPI_COMM_WORLD_LOCAL_RANK with OMPI_COMM_WORLD_LOCAL_SIZE"
    ):
        alignup.bind()
    assert on_dgx == []


@pytest.mark.usefixtures("on_dgx")
@pytest.mark.parametrize(
    "wrong", [{"part": 8, "of": 8}, {"part": 0}, {"of": 8}, {"part": -1, "of": 2}]
)
def test_a_part_is_one_of_several(wrong):
    with pytest.raises(InputError, match="a part below the number of parts, or neither"):
        alignup.bind(**wrong)


@pytest.mark.usefixtures("on_dgx")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        # as from an environment
        ({"part": "0", "of": 8}, "expected a whole number, got '0' at part"),
        ({"part": 0, "of": "8"}, "expected a whole number, got '8' at of"),
        ({"part": 0, "of": 8.0}, "expected a whole number, got 8.0 at of"),
        ({"cpus": "2"}, "expected a whole number, got '2' at cpus"),
        ({"devices": {GPU: "1"}}, "expected a whole number, got '1' at devices"),
        ({"devices": [GPU]}, r"expected numbers such as \{\"nvidia.com/gpu\": 1\}, got \["),
        ({"devices": GPU}, "got 'nvidia.com/gpu' at devices"),
    ],
)
def test_what_is_no_number_is_named(wrong, message):
    with pytest.raises(InputError, match=message):
        alignup.bind(**{"part": 0, "of": 2, **wrong})


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"parts": "2"}, "'2' at parts"),
        ({"parts": 2.0}, "2.0 at parts"),
        ({"cpus_per_part": "1"}, "'1' at cpus_per_part"),
        ({"devices": {GPU: 1.5}}, r"1.5 at devices\['nvidia.com/gpu'\]"),
        ({"devices": [GPU]}, r"\['nvidia.com/gpu'\] at devices"),
    ],
)
def test_what_is_no_number_of_parts_is_named(wrong, place):
    with pytest.raises(InputError, match=f"got {place}"):
        alignup.split("dgx-h100", **{"parts": 2, **wrong})


def test_numbers_of_numpy_are_numbers():
    parts = alignup.split("align-up-article", np.int64(2), cpus_per_part=np.int32(1))
    assert parts == alignup.split("align-up-article", 2, cpus_per_part=1)


@pytest.mark.usefixtures("on_dgx")
def test_a_memory_policy_that_is_none():
    with pytest.raises(
        InputError, match="one of preferred, bind, interleave, weighted-interleave, local"
    ):
        alignup.bind(0, 1, memory="near")
    with pytest.raises(InputError, match="one of preferred"):
        alignup.split("dgx-h100", 1)[0].bind("near")


@pytest.mark.usefixtures("on_dgx")
def test_gpus_are_those_that_the_rank_sees(monkeypatch):
    """In that order: two ranks on the machine's last GPUs, the other way around."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,1")
    parts = [alignup.bind(rank, 2, devices={GPU: 1}) for rank in (0, 1)]
    assert [(part.devices[GPU], part.numa_nodes) for part in parts] == [
        (("gpu7",), (1,)),
        (("gpu1",), (0,)),
    ]
    assert [part.environment()["CUDA_VISIBLE_DEVICES"] for part in parts] == ["7", "1"]
    with pytest.raises(InputError, match=r"2 parts of 3 nvidia\.com/gpu are too many for the 2"):
        alignup.bind(0, 2, devices={GPU: 3})


@pytest.mark.usefixtures("on_dgx")
def test_the_gpu_that_a_launcher_gave_to_each_rank_stays_its_own(monkeypatch):
    """And its CPUs are near, and nobody else's: the ranks' GPUs are in any order."""
    gpus = [6, 2, 0, 5, 1, 7, 3, 4]
    parts = []
    for rank, gpu in enumerate(gpus):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", str(gpu))
        parts.append(alignup.bind(rank, 8, devices={GPU: 1}))

    assert [(part.rank, part.devices[GPU]) for part in parts] == [
        (rank, (f"gpu{gpu}",)) for rank, gpu in enumerate(gpus)
    ]
    assert [part.numa_nodes for part in parts] == [(gpu // 4,) for gpu in gpus]
    assert (
        sum(len(part.cpus) for part in parts)
        == len(frozenset().union(*(set(part.cpus) for part in parts)))
        == 224
    )
    # two ranks on a machine of eight GPUs: each has the CPUs of its GPU's eighth
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    assert str(alignup.bind(0, 2, devices={GPU: 1}).cpus) == "56-69,168-181"


@pytest.mark.usefixtures("on_dgx")
def test_gpus_far_from_each_other_bring_the_cpus_of_both(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,7")
    part = alignup.bind(1, 4, devices={GPU: 2})
    assert part.devices[GPU] == ("gpu0", "gpu7")
    assert str(part.cpus) == "0-13,98-125,210-223"


@pytest.mark.usefixtures("on_dgx")
@pytest.mark.parametrize("gpus", [(4, 5), (4, 5, 6, 7), (3, 6, 5, 4, 0, 7, 1, 2)])
def test_ranks_are_near_the_gpus_that_are_listed(monkeypatch, gpus):
    """And those of two servers with four GPUs each are apart."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(map(str, gpus)))
    ranks = len(gpus)
    parts = [alignup.bind(rank, ranks, devices={GPU: 1}) for rank in range(ranks)]
    assert [part.devices[GPU] for part in parts] == [(f"gpu{gpu}",) for gpu in gpus]
    assert [part.numa_nodes for part in parts] == [(gpu // 4,) for gpu in gpus]

    others = [gpu for gpu in range(8) if gpu not in gpus]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(map(str, others)))
    parts += [alignup.bind(rank, len(others), devices={GPU: 1}) for rank in range(len(others))]
    assert sum(len(part.cpus) for part in parts) == 224
    assert len({cpu for part in parts for cpu in part.cpus}) == 224


@pytest.mark.usefixtures("on_dgx")
def test_fewer_ranks_than_gpus_have_the_first_gpus(monkeypatch):
    """As a program that takes `cuda:LOCAL_RANK` does."""
    parts = [alignup.bind(rank, 3, devices={GPU: 1}) for rank in range(3)]
    assert [part.devices[GPU] for part in parts] == [("gpu0",), ("gpu1",), ("gpu2",)]
    assert str(parts[2].cpus) == "28-41,140-153"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    alone = alignup.bind(1, 2, devices={GPU: 1}, share="seen")
    assert str(alone.cpus) == "28-55,140-167"
    with pytest.raises(InputError, match="one of machine, seen, got 'mine' at share"):
        alignup.bind(1, 2, devices={GPU: 1}, share="mine")


@pytest.mark.usefixtures("on_dgx")
def test_a_layout_is_followed_in_place_of_the_gpus(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    part = alignup.bind(0, 2, devices={GPU: 1}, layout="core")
    assert (str(part.cpus), part.devices[GPU]) == ("0-55,112-167", ("gpu4",))


def test_split_shows_what_bind_gives():
    parts = alignup.split("dgx-h100", 2, devices={GPU: 1}, share="machine")
    assert [str(part.cpus) for part in parts] == ["0-13,112-125", "14-27,126-139"]
    assert parts[1].visible["CUDA_VISIBLE_DEVICES"] == "1"
    with pytest.raises(InputError, match="at share"):
        alignup.split("dgx-h100", 2, share="mine")


@pytest.mark.usefixtures("on_dgx")
def test_more_ranks_than_cpus_share_them_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(ranks, "_load", lambda *_: load_machine("align-up-article"))
    with pytest.raises(InputError, match=r"9 parts are too many for the 8 .*oversubscribe=True"):
        alignup.bind(0, 9)
    with pytest.raises(InputError, match=r"2 parts of 5 CPUs .* the 8 CPUs that this process may"):
        alignup.bind(0, 2, cpus=5)
    parts = [alignup.bind(rank, 9, oversubscribe=True) for rank in range(9)]
    assert [str(part.cpus) for part in parts] == [*map(str, range(8)), "0"]
    assert [part.environment()["ALIGNUP_PART"] for part in parts][8] == "8/9"


def test_devices_of_a_snapshot_are_known():
    """By its PCI devices, as NVIDIA's device plugin would offer them."""
    machine = Path(__file__).parents[3] / "reports" / "bare" / "02-gpus-on-odd-nodes.tar.xz"
    parts = alignup.split(machine, 8, devices={GPU: 1}, cpus_per_part=16)
    assert [part.numa_nodes[0] for part in parts] == [3, 3, 1, 1, 7, 7, 5, 5]
    assert [part.visible["CUDA_VISIBLE_DEVICES"] for part in parts] == [
        str(rank) for rank in range(8)
    ]
    with pytest.raises(InputError, match="too many for the 0 of the machine"):
        alignup.split(machine, 1, devices={"amd.com/gpu": 1})


@pytest.mark.parametrize(
    ("given", "sets", "first"),
    [
        ({}, {"x": [["d0", "d3"]]}, ("d0", "d3")),
        ({"preferred_sets": {"x": [["d0", "d2"]]}}, {"x": [["d0", "d3"]]}, ("d0", "d2")),
        ({"preferred_sets": {}}, {"x": [["d0", "d3"]]}, ("d0", "d1")),
        ({"inventory": {"x": ["d0"]}}, {"x": [["d0", "d3"]]}, ("d0", "d1")),
    ],
)
def test_the_machines_sets_of_devices_count_unless_sets_or_devices_are_given(
    given, sets, first, monkeypatch
):
    devices = {"x": tuple(Device(f"d{number}", (0,)) for number in range(4))}
    loaded = load_machine("align-up-article").with_devices(devices, sets)
    monkeypatch.setattr(ranks, "_load", lambda *_: loaded)
    part, _ = alignup.split("here", 2, devices={"x": 2}, **given)
    assert tuple(part.devices["x"]) == first


def test_whole_cores_can_be_demanded():
    assert len(alignup.split("dgx-h100", 2, full_cores=True, layout="numa")) == 2
    with pytest.raises(InputError, match="113 parts are not whole cores"):
        alignup.split("dgx-h100", 113, full_cores=True)


@pytest.mark.usefixtures("on_dgx")
def test_a_rank_that_an_mpi_has_bound_is_told_how_to_unbind_it(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3} if pid else {0})
    with pytest.warns(
        AlignupWarning,
        match=r"Open MPI has bound this rank to CPUs 0 of 0-3.*mpirun --bind-to none",
    ):
        alignup.bind()

    with pytest.raises(
        InputError, match=r"are too many .* start the ranks with mpirun --bind-to none"
    ):
        alignup.bind(cpus=200)

    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alignup.bind()  # torchrun binds nobody


@pytest.mark.usefixtures("on_dgx")
def test_a_rank_can_have_the_part_of_its_place_in_the_world(monkeypatch):
    """As rank 1 of four under `--map-by numa` of Open MPI 5.0.11: its local rank is 2."""
    values = {"LOCAL_RANK": "2", "LOCAL_SIZE": "4", "RANK": "1", "SIZE": "4"}
    for name, value in values.items():
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)

    parts = alignup.split("/", 4)
    assert alignup.bind().cpus == parts[2].cpus
    assert alignup.bind(order="world").cpus == parts[1].cpus
    with pytest.raises(InputError, match="one of local, world, got 'node' at order"):
        alignup.bind(order="node")

    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "8")
    with pytest.raises(InputError, match="of the 8 ranks that OMPI_COMM_WORLD_SIZE counts 4"):
        alignup.bind(order="world")


def test_a_rank_is_really_bound_and_imports_little(tmp_path):
    """In a process of its own: its CPUs are its part's; no numpy, no typing, no file is written."""
    code = (
        "import sys, os, json, alignup; p = alignup.bind(0, 1);"
        "print(json.dumps([sorted(os.sched_getaffinity(0)) == list(p.cpus), "
        "sorted(set(sys.modules) & "
        "{'numpy', 'msgspec', 'typing', 'click', 'pathlib', 'json.decoder', "
        "'alignup.host.leases'})]))"
    )

    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path),
    }

    done = subprocess.run(  # noqa: S603  # ours
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [True, ["json.decoder"]]  # of this test's own words
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_was_bound_to_isolated_cpus_stays_there(monkeypatch):
    """Others leave them alone."""
    machine = replace(load_machine("dgx-h100").machine, isolated_cpus=tuple(range(8)))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(224)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
    assert str(CPUSet.from_int(ranks._here(machine).cpus)) == "8-223"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3})
    assert str(CPUSet.from_int(ranks._here(machine).cpus)) == "2-3"
    with pytest.raises(
        InputError, match="this process may use CPUs 2-3 only, and they are isolated"
    ):
        reachable(usable(machine))


@pytest.fixture
def on_bus(monkeypatch, bound, tmp_path):
    """The machine at hand is a DGX H100 of which only the PCI bus tells, and has no device file."""
    assert bound == []
    loaded = load_machine("dgx-h100")
    gpus = devices_from_pci(loaded.machine, usual_selectors(loaded.machine, GPU))
    monkeypatch.setattr(ranks, "_load", lambda *_: LoadedMachine(loaded.machine, gpus))
    monkeypatch.setattr(ranks, "HostFiles", lambda: HostFiles(str(tmp_path)))
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    return tmp_path, [gpu.id for gpu in gpus[GPU]]


def test_each_task_of_slurm_has_its_own_gpu_of_a_cgroup(on_bus, monkeypatch):
    """And tells its children the number that the cgroup has for it."""
    root, addresses = on_bus
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("SLURM_STEP_GPUS", "0")
    (root / "dev").mkdir()
    parts = []
    for rank in range(8):
        (root / f"dev/nvidia{rank}").touch()
        parts.append(alignup.bind(rank, 8, devices={GPU: 1}))
        (root / f"dev/nvidia{rank}").unlink()

    assert [part.devices[GPU] for part in parts] == [(address,) for address in addresses]
    assert [part.numa_nodes for part in parts] == [(rank // 4,) for rank in range(8)]
    assert len({cpu for part in parts for cpu in part.cpus}) == 224
    assert {part.visible["CUDA_VISIBLE_DEVICES"] for part in parts} == {"0"}

    with pytest.warns(AlignupWarning, match="within a device cgroup of Slurm"):
        alignup.bind(3, 8, devices={GPU: 1})


@pytest.mark.usefixtures("on_bus")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, r"nothing tells which of them this process may use: install the extra `nvidia`"),
        ("", r"sees no nvidia\.com/gpu: CUDA_VISIBLE_DEVICES \(''\) hides all"),
        ("-1", r"sees no nvidia\.com/gpu: CUDA_VISIBLE_DEVICES \('-1'\) hides all"),
        ("8", r"\('8'\) begins with none of the 8 of the machine"),
        ("GPU-00", r"\('GPU-00'\) names a UUID, which only the driver can tell"),
        ("0,1,9", r"3 parts .* for the 2 that this process sees: CUDA_VISIBLE_DEVICES \('0,1,9'\)"),
    ],
)
def test_what_hides_gpus_is_named(text, words, monkeypatch):
    if text is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
    with pytest.raises(InputError, match=words):
        alignup.bind(0, 3, devices={GPU: 1})


@pytest.mark.usefixtures("on_bus")
def test_a_variable_that_is_not_read_is_warned_of(monkeypatch):
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "3")
    with pytest.warns(AlignupWarning, match=r"ASCEND_RT_VISIBLE_DEVICES \('3'\) is not read"):
        alignup.bind(0, 2)


@pytest.mark.usefixtures("on_dgx")
def test_a_layout_keeps_what_a_launcher_gave(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6")
    part = alignup.bind(1, 8, devices={GPU: 1}, layout="core")
    assert (str(part.cpus), part.devices[GPU]) == ("14-27,126-139", ("gpu6",))


@pytest.mark.parametrize(
    ("argument", "variable"), [("report=True", ""), ("", "1"), ("report=True", "0"), ("", "0")]
)
def test_a_rank_says_where_it_is_bound(argument, variable):
    """In a process of its own, once, and on standard error only."""
    program = f"import alignup, os; p = alignup.bind(0, 1, {argument}); print(os.getpid(), p.cpus)"
    environment = {**os.environ, "ALIGNUP_REPORT_BINDINGS": variable}
    done = subprocess.run(  # noqa: S603  # ours
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    pid, cpus = done.stdout.split()
    if argument or variable == "1":
        assert f":{pid}] rank 0 of 1 bound to socket " in done.stderr
        assert f"(CPUs {cpus}), NUMA node" in done.stderr
        assert done.stderr.count("\n") == 1
    else:
        assert done.stderr == ""
