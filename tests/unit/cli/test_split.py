"""`alignup split`: a machine in, its parts out."""

from __future__ import annotations

import json
import os
import shlex

import pytest
from click.testing import CliRunner

from alignup.cli.split import command
from alignup.errors import InputError


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
    parts = [json.loads(line) for line in split("8", "--cpus-per-part", "2", "--json").output.splitlines()]
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
    told = dict(word.split("=", 1) for word in shlex.split(lines[5]))
    assert told == {
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


@pytest.mark.parametrize("arguments", [("0",), ("x",), ("300",), ("9", "--device", "nvidia.com/gpu=1")])
def test_more_than_there_is_is_bad_usage(arguments):
    """In a sentence."""
    done = split(*arguments)
    assert isinstance(done.exception, InputError) or done.exit_code == 2


def test_an_inventory_replaces_the_devices_of_the_machine(tmp_path):
    """As with `admit`: what the file does not name is not there."""
    path = tmp_path / "devices.json"
    path.write_text(json.dumps({"example.com/x": [{"id": "x0", "numa": [0]}, {"id": "x1", "numa": [1]}]}))

    done = split("2", "--devices", str(path), "--device", "nvidia.com/gpu=1")
    assert isinstance(done.exception, InputError)
    assert "one of example.com/x, got 'nvidia.com/gpu'" in str(done.exception)
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
    assert ended.complains("the machine's 1 CPUs", f"may use only CPUs {min(before)} of ")


def test_one_form_of_output_at_a_time():
    done = CliRunner().invoke(command, ["1", "--json", "--env"])
    assert done.exit_code == 2
    assert "--json and --env exclude each other" in done.output
