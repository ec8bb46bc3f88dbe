"""Input that is deep or endless: one line, exit status 2 (125 of `run`), and soon, whatever the subcommand."""

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
    """Return a function that runs a subcommand with the name of a file where its words have FILE."""

    def run(words: tuple[str, ...], file: str):
        machine = '{"numaNodes": [{"id": 0, "memory": 1, "cores": [{"cpus": [0], "socket": 0}]}]}'
        names = {
            "FILE": file,
            "POD": write("pod.json", POD),
            "NODES": write("nodes.jsonl", f'{{"name": "n", "machine": {machine}}}\n'),
            "STATE": str(tmp_path / "leases.json"),
        }
        return alignup(*(names.get(word, word) for word in words))

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
