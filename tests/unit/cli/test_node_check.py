"""`alignup node check`."""

from __future__ import annotations

import json
import tarfile

import pytest

from inputs.kubelet_files import EXAMPLE

ARCHIVE = EXAMPLE / "root.tar.xz"


@pytest.fixture
def root(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / "root", filter="data")
    return tmp_path / "root"


def test_a_sound_node_has_no_findings(alignup):
    ended = alignup("node", "check", "--node", ARCHIVE)
    assert (ended.status, ended.out) == (0, "nothing is wrong with the kubelet's files\n")
    assert alignup("node", "check", "--node", ARCHIVE, "--json").out == ""


def test_findings_are_told_with_effect_and_repair(alignup, root):
    path = root / "var/lib/kubelet/cpu_manager_state"
    path.write_text(json.dumps({**json.loads(path.read_text()), "checksum": 1}))
    ended = alignup("node", "check", "--node", root, "--json")
    (line,) = ended.lines
    assert ended.status == 1
    assert line.keys() == {"kind", "file", "text", "effect", "repair"}
    assert (line["kind"], line["file"]) == ("cpu-checksum", str(path))
    ended = alignup("node", "check", "--node", root)
    assert ended.status == 1
    assert "the next start: the kubelet does not start" in ended.out
    assert "repair: drain the node" in ended.out


def test_bad_input_is_one_line(alignup, tmp_path):
    assert alignup("node", "check", "--node", tmp_path).complains("no files of a kubelet")
    assert alignup("node", "check", "--node", tmp_path / "x").complains(
        "no machine's root folder or archive"
    )
    assert alignup("node", "check", "--node", ARCHIVE, "--machine", "nowhere").complains(
        "unknown machine 'nowhere'"
    )


def test_the_group_knows_its_subcommands(alignup):
    ended = alignup("node", "--help")
    assert "check" in ended.out
    assert alignup("node", "chekc").status == 2


def test_what_is_packed_and_missing_is_told_as_json(alignup, root, tmp_path):
    (root / "var/lib/kubelet/memory_manager_state").unlink()
    target = tmp_path / "node.tar.gz"
    ended = alignup("node", "collect", "--node", root, target, "--json")
    [report] = ended.lines
    with tarfile.open(target) as archive:
        assert sorted(report["files"]) == sorted(archive.getnames())
    assert (ended.status, report["archive"]) == (0, str(target))
    assert "var/lib/kubelet/memory_manager_state" in [
        missing["path"] for missing in report["missing"]
    ]


def test_an_object_is_exported_on_one_line(alignup):
    [node_object] = alignup("node", "export", "--node", ARCHIVE, "--json").lines
    assert node_object == json.loads(alignup("node", "export", "--node", ARCHIVE).out)
    assert (
        alignup("node", "export", "--node", ARCHIVE, "--json", "--format", "prometheus").status == 2
    )
