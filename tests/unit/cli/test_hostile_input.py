"""Input that is deep or endless.

One line, exit status 2 (125 of `run`), and soon, whatever the subcommand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from alignup.cli import inputs

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
DEEP = b'{"a":' * 50_000
WAYS = {
    "admit -m": ("admit", "-m", "FILE", "POD"),
    "admit": ("admit", "-m", "align-up-article", "FILE"),
    "machine -m": ("machine", "-m", "FILE"),
    "split -m": ("split", "2", "-m", "FILE"),
    "split --devices": ("split", "2", "-m", "align-up-article", "--devices", "FILE"),
    "run -m": ("run", "-m", "FILE", "--no-bind", "--state", "STATE", "true"),
    "rank -n": ("rank", "-n", "FILE", "POD"),
    "simulate -n": ("simulate", "-n", "FILE", "--generate", "1"),
    "simulate -p": ("simulate", "-n", "NODES", "-p", "FILE"),
    "replay": ("replay", "FILE"),
}
STATUS = {"run -m": 125}


@pytest.fixture
def end_with(alignup, write, tmp_path):
    """Return a function that runs a subcommand on a file.

    The name of the file is where the arguments of the subcommand have FILE.
    """

    def run(arguments: tuple[str, ...], file: str):
        machine = '{"numaNodes": [{"id": 0, "memory": 1, "cores": [{"cpus": [0], "socket": 0}]}]}'
        names = {
            "FILE": file,
            "POD": write("pod.json", POD),
            "NODES": write("nodes.jsonl", f'{{"name": "n", "machine": {machine}}}\n'),
            "STATE": str(tmp_path / "leases.json"),
        }
        return alignup(*(names.get(word, word) for word in arguments))

    return run


@pytest.mark.parametrize("way", WAYS)
def test_what_is_nested_without_end(end_with, write, way: str) -> None:
    """No subcommand lets the interpreter's stack overflow."""
    ended = end_with(WAYS[way], write("deep.json", DEEP))

    assert ended.complains("nested", status=STATUS.get(way, 2))
    assert len(ended.err) < 400


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no /dev/zero here")
@pytest.mark.parametrize("way", WAYS)
def test_what_never_ends(end_with, monkeypatch, way: str) -> None:
    """It is read up to a limit, which the line says."""
    monkeypatch.setattr(inputs.read_bytes, "__defaults__", (1 << 20,))
    monkeypatch.setattr(inputs.read_lines, "__defaults__", (1 << 20,))
    monkeypatch.setattr("alignup.machine.load._MAX_FILE", 1 << 20)
    ended = end_with(WAYS[way], "/dev/zero")

    assert ended.complains("bytes", "/dev/zero", status=STATUS.get(way, 2))


def test_a_long_word_is_not_echoed_whole(alignup, write) -> None:
    """Neither one of the command line, nor one of a file."""
    name = "x" * 65536
    ways = (("release", "--state", write("none", ""), name), ("admit", f"--{name}"), (name,))
    for arguments in ways:
        assert len(alignup(*arguments).err) < 2500, arguments[0]
    ended = alignup("machine", "-m", write("machine.json", {name: 1}))
    assert ended.complains("expected a mapping with 'numaNodes' or 'machine'", "machine.json")
    assert len(ended.err) < 2100


def test_an_inventory_that_is_none_is_named(alignup, write) -> None:
    path = write("devices.json", {"a/b": [{"id": None}]})
    for arguments in (
        ("split", "2", "-m", "align-up-article"),
        ("admit", "-m", "align-up-article", write("pod.json", POD)),
    ):
        assert alignup(*arguments, "--devices", path).complains("expected the id of a device", path)


def test_a_resource_in_bytes_makes_no_devices(alignup, write) -> None:
    """A published amount may be of anything.

    Sixteen thousand million devices would take all memory.
    """
    zones = [
        {"name": "node-0", "type": "Node", "resources": [{"name": "a/bytes", "capacity": "16Gi"}]}
    ]
    kind = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
    path = write(
        "nrt.json",
        {**kind, "metadata": {"name": "n"}, "topologyPolicies": ["None"], "zones": zones},
    )
    assert alignup("simulate", "-n", path, "--generate", "1").complains(
        "expected at most 65536 devices", "n, a/bytes"
    )


def test_objects_of_claims_without_a_node_are_said_to_have_none(alignup, write) -> None:
    ended = alignup(
        "admit", "-m", "align-up-article", "-r", write("none.yaml", ""), write("pod.json", POD)
    )
    assert ended.complains(
        "expected the name of a node, or ResourceSlices of one node only; these are of no node"
    )


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e308"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("node", "show", "--watch"),
        ("node", "publish", "--name", "n", "--interval"),
        ("fleet", "--duration"),
    ],
)
def test_a_time_that_no_clock_can_wait_is_refused(alignup, arguments, seconds: str) -> None:
    ended = alignup(*arguments, seconds)
    assert ended.status == 2
    assert f"Invalid value for '{arguments[-1]}'" in ended.err


def test_numbers_and_names_that_the_system_cannot_take_are_refused(alignup) -> None:
    ended = alignup("run", "--json-fd", str(1 << 31), "true")
    assert ended.status == 125
    assert "2147483648 is not in the range" in ended.err
    assert alignup("ps", "--state", "/" * 5000).complains(
        "expected the name of a file, got '/' at --state"
    )


def test_a_deep_file_of_leases_is_damaged(alignup, write) -> None:
    """As any other damaged one; a look changes nothing."""
    text = b'{"version":1,"checksum":"00000000","table":' + DEEP
    path = write("leases.json", text)
    ended = alignup("ps", "--state", path)

    assert (ended.status, ended.out) == (0, "no leases\n")
    assert "the file of leases is damaged" in ended.err
    assert Path(path).read_bytes() == text


def test_a_file_that_is_none_of_leases_is_left_alone(alignup, write) -> None:
    """It may be anything of the user's."""
    path = write("precious", DEEP)

    assert alignup("ps", "--state", path).complains("is no file of leases")
    assert alignup("run", "--state", path, "true").complains("is no file of leases", status=125)
    assert Path(path).read_bytes() == DEEP
