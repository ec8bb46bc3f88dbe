"""`alignup split`: a machine in, its parts out."""

from __future__ import annotations

import json
import os
import shlex

import pytest
from click.testing import CliRunner

from alignup.cli.split import command
from alignup.errors import InputError
from alignup.machine.cpuset import CPUSet
from alignup.machine.load import catalog_entries

GPU_NIC = (
    "-d",
    "nvidia.com/gpu=1",
    "-d",
    "example.com/nic=1",
    "--pair",
    "nvidia.com/gpu,example.com/nic",
)

AS_KUBELET = ("--full-cores", "--as-kubelet", "--json")


def split(*arguments):
    return CliRunner().invoke(command, ["--machine", "dgx-h100", *arguments])


def test_a_table_for_people():
    """Ranks, nodes, CPUs, memory, devices."""
    done = split("8", "--device", "nvidia.com/gpu=1")
    assert done.exit_code == 0
    last = done.output.strip().splitlines()[-1].split()
    assert last == ["7", "1", "98-111,210-223", "28", "256Gi", "@", "1", "nvidia.com/gpu=gpu7"]


def test_lines_for_programs():
    """One JSON object a part."""
    parts = [
        json.loads(line)
        for line in split("8", "--cpus-per-part", "2", "--json").output.splitlines()
    ]
    assert len(parts) == 8
    assert parts[0] == {
        "rank": 0,
        "cpus": "0,112",
        "numaNodes": [0],
        "memory": [{"numaNode": 0, "type": "memory", "size": 256 << 30}],
        "devices": {},
    }


def test_lines_for_shells():
    """`env` can be given each of them."""
    lines = split("8", "--device", "nvidia.com/gpu=1", "--env").output.splitlines()
    assert len(lines) == 8
    variables = dict(word.split("=", 1) for word in shlex.split(lines[5]))
    assert variables == {
        "ALIGNUP_PART": "5/8",
        "ALIGNUP_CPUS": "70-83,182-195",
        "ALIGNUP_NUMA_NODES": "1",
        "ALIGNUP_MEMORY": str(256 << 30),
        "ALIGNUP_DEVICE_NVIDIA_COM_GPU": "gpu5",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "5",
    }


def test_this_machine_can_be_split():
    """Into one part, at the least."""
    done = CliRunner().invoke(command, ["1", "--json"])
    assert json.loads(done.output)["rank"] == 0


@pytest.mark.parametrize(
    "arguments", [("0",), ("x",), ("300",), ("9", "--device", "nvidia.com/gpu=1")]
)
def test_more_than_there_is_is_bad_usage(arguments):
    """In a sentence."""
    done = split(*arguments)
    assert isinstance(done.exception, InputError) or done.exit_code == 2


def test_an_inventory_replaces_the_devices_of_the_machine(tmp_path):
    """As with `admit`: what the file does not name is not there."""
    path = tmp_path / "devices.json"
    path.write_text(
        json.dumps({"example.com/x": [{"id": "x0", "numa": [0]}, {"id": "x1", "numa": [1]}]})
    )

    done = split("2", "--devices", str(path), "--device", "nvidia.com/gpu=1")
    assert isinstance(done.exception, InputError)
    assert "one of example.com/x, or one that --device-resource nvidia.com/gpu=10de:* or" in str(
        done.exception
    )
    done = split("2", "--devices", str(path), "--device", "example.com/x=1", "--json")
    assert [json.loads(line)["devices"] for line in done.output.splitlines()] == [
        {"example.com/x": ["x0"]},
        {"example.com/x": ["x1"]},
    ]


def test_an_affinity_mask_is_named(alignup):
    """The machine has more CPUs than this process may use."""
    before = os.sched_getaffinity(0)
    if len(before) < 2 or len(before) < (os.cpu_count() or 1):
        pytest.skip("there are no CPUs to do without")
    try:
        os.sched_setaffinity(0, {min(before)})
        ended = alignup("split", "2")
    finally:
        os.sched_setaffinity(0, before)
    assert ended.complains("too many for the 1 CPUs", f"may use only CPUs {min(before)} of ")


def test_one_form_of_output_at_a_time():
    done = CliRunner().invoke(command, ["1", "--json", "--env"])
    assert done.exit_code == 2
    assert "--json and --env exclude each other" in done.output


def test_parts_have_pairs_on_one_switch(tmp_path):
    """All parts near the same nodes are paired at once.

    One early choice does not cost a later part its switch.
    """
    loaded = catalog_entries()["dgx-h100"]
    entry = {"machine": loaded.machine.to_dict(), "devices": loaded.to_dict()["devices"]}
    nics = entry["devices"]["example.com/nic"]
    # of the first switch's adapters one is sick, and the others come in another order
    entry["devices"]["example.com/nic"] = [nics[3], nics[2], nics[1]]
    entry["devices"]["nvidia.com/gpu"] = entry["devices"]["nvidia.com/gpu"][:3]

    machine = tmp_path / "machine.json"
    machine.write_text(json.dumps(entry))

    done = CliRunner().invoke(
        command, ["3", "-m", str(machine), *GPU_NIC, "--cpus-per-part", "2", "--json"]
    )
    parts = [json.loads(line)["devices"] for line in done.output.splitlines()]

    nic_by_gpu = {part["nvidia.com/gpu"][0]: part["example.com/nic"][0] for part in parts}
    assert nic_by_gpu["gpu2"] in {"nic2", "nic3"}
    assert "nic1" in {nic_by_gpu["gpu0"], nic_by_gpu["gpu1"]}


def test_required_pairs_that_cannot_be_are_said(tmp_path):
    assert split("8", *GPU_NIC[:-1], "nvidia.com/gpu,example.com/nic:required").exit_code == 0

    options = ("--cpus-per-part", "2", "-d", "nvidia.com/gpu=3", "-d", "example.com/nic=3")
    assert split("2", *options, "--pair", "nvidia.com/gpu,example.com/nic:required").exit_code == 0

    far = tmp_path / "far.json"
    places = {"nvidia.com/gpu": "0000:18:00.0", "example.com/nic": "0000:3c:00.0"}
    far.write_text(
        json.dumps({name: [{"id": address, "numa": 0}] for name, address in places.items()})
    )

    refused = split("1", "--devices", str(far), *GPU_NIC[:-1], f"{GPU_NIC[-1]}:required").exception
    assert (
        "1 pair of nvidia.com/gpu and example.com/nic has to be on one PCIe root, 0 can be"
        in str(refused)
    )

    assert isinstance(split("2", "--pair", "nvidia.com/gpu").exception, InputError)


@pytest.mark.parametrize(
    ("machine", "layout", "cpus"),
    [
        ("dgx-h100", "numa", ["0-1", "56-57", "2-3", "58-59"]),
        ("dgx-h100", "core", ["0-1", "2-3", "4-5", "6-7"]),
        ("epyc-2s-nps4", "socket", ["0-1", "64-65", "2-3", "66-67"]),
        ("epyc-2s-nps4", "l3", ["0-1", "8-9", "16-17", "24-25"]),
    ],
)
def test_layouts_go_around_as_mpirun_does(machine, layout, cpus):
    """`mpirun --map-by numa:PE=2` and the like: rank by rank to the next place."""
    done = CliRunner().invoke(
        command,
        ["4", "-m", machine, "--layout", layout, "--cpus-per-part", "4", "--json"],
        catch_exceptions=False,
    )
    firsts = [json.loads(line)["cpus"].split(",")[0] for line in done.output.splitlines()]
    assert firsts == cpus


def test_a_layout_fills_its_places_and_says_where_they_end():
    done = split("3", "--layout", "numa", "--json")
    sizes = [len(CPUSet.parse(json.loads(line)["cpus"])) for line in done.output.splitlines()]
    assert sizes == [56, 56, 56]
    assert isinstance(
        split("3", "--layout", "numa", "--cpus-per-part", "112").exception, InputError
    )


@pytest.mark.parametrize(
    ("options", "cpus"),
    [
        (("--spread", "cores"), ["0-3", "4-7"]),
        (("--full-cores",), ["0-1,112-113", "56-57,168-169"]),
        (("--same-socket",), ["0-1,112-113", "2-3,114-115"]),
        (("--idle-siblings",), ["0-3", "56-59"]),
    ],
)
def test_rules_of_the_cpu_manager(options, cpus):
    """Parts are what it gives one after the other.

    Of whole cores, and with idle siblings, what split gives anyway.
    """
    done = split("2", "--cpus-per-part", "4", *options, "--json")
    assert [json.loads(line)["cpus"] for line in done.output.splitlines()] == cpus


def test_idle_siblings_leave_as_many_cores_as_there_are():
    done = split("2", "--idle-siblings", "--json")
    assert [json.loads(line)["cpus"] for line in done.output.splitlines()] == ["0-55", "56-111"]


def test_full_cores_refuse_a_part_of_a_core():
    refused = split("2", "--cpus-per-part", "3", "--full-cores").exception
    assert (
        "2 parts of 3 CPUs are not whole cores: those of CPUs 1,57,113,169 would be split"
        in str(refused)
    )


def test_cpus_are_reserved_and_memory_is_chosen():
    """By options that every command has which places work."""
    done = split("2", "--reserve", "0,112", "--memory-from", "1", "--json")
    parts = [json.loads(line) for line in done.output.splitlines()]
    assert [part["cpus"] for part in parts] == ["1-55,113-167", "56-110,168-222"]
    assert [[share["numaNode"] for share in part["memory"]] for part in parts] == [[1], [1]]
    for options, place in (
        (("--reserve", "x"), "--reserve"),
        (("--memory-from", "x"), "--memory-from"),
        (("--memory-from", "7"), "some of the machine's"),
        (("--memory-kind", "hbm"), "some of the machine's"),
        (("--memory-kind", "nvm"), "--memory-kind"),
        (("--isolated",), "no CPU is left for work by --isolated"),
    ):
        assert place in str(split("2", *options).exception)


def test_a_kubelets_rules_come_back():
    """The CPU manager gives cores from the front, and not whole ones by itself."""
    parts = [
        json.loads(line)["cpus"]
        for line in split("2", "--cpus-per-part", "4", *AS_KUBELET).output.splitlines()
    ]
    assert parts == ["0-1,112-113", "2-3,114-115"]


def test_parts_of_this_machine_have_the_gpus_that_this_process_sees(tmp_path, monkeypatch):
    """And the share of CPUs that these have; of a machine that is named they are all."""
    gpus = {"nvidia.com/gpu": [{"id": f"gpu{number}", "numa": None} for number in range(4)]}
    (tmp_path / "devices.json").write_text(json.dumps(gpus))
    options = ["1", "--devices", str(tmp_path / "devices.json"), "-d", "nvidia.com/gpu=1", "--json"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    done = CliRunner().invoke(command, options)
    assert json.loads(done.stdout)["devices"] == {"nvidia.com/gpu": ["gpu3"]}
    assert "1 of the 4 nvidia.com/gpu are to choose from" in done.stderr
    done = CliRunner().invoke(command, [*options, "--all-devices"])
    assert json.loads(done.stdout)["devices"] == {"nvidia.com/gpu": ["gpu0"]}
    assert CPUSet.parse(json.loads(done.stdout)["cpus"]) == CPUSet(os.sched_getaffinity(0))
    done = split("8", "--device", "nvidia.com/gpu=1", "--json")
    assert len(done.stdout.splitlines()) == 8
