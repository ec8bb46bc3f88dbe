"""What subcommands read: files and standard input, whole or in part, and nodes from options."""

from __future__ import annotations

import gzip
import io
import sys
from typing import Any

import pytest

from alignup import read_machine
from alignup.cli.inputs import (
    NodeSource,
    asked_pods,
    load_node,
    open_input,
    read_bytes,
    read_lines,
    read_mapping,
    read_pods,
)
from alignup.errors import AlignupWarning, ConfigError, InputError


@pytest.mark.parametrize("content", [b"", b"a", b"words\n", gzip.compress(b"words\n", mtime=0)])
def test_files_and_standard_input_are_alike(write, monkeypatch, content: bytes) -> None:
    """Packed or not, as long as two bytes or not."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))
    expected = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content

    assert read_bytes(write("file", content)) == expected
    assert read_bytes("-") == expected


def test_what_is_too_long_is_not_read_whole(write) -> None:
    """What is as long as the limit is."""
    for name in (write("plain", b"abcdef"), write("packed", gzip.compress(b"abcdef" * 1000))):
        with pytest.raises(InputError, match=f"^{name} has more than 3 bytes$"):
            read_bytes(name, 3)
    assert read_bytes(write("packed", gzip.compress(b"abc")), 3) == b"abc"


def test_lines_that_are_too_long_are_not_read_whole(write, monkeypatch) -> None:
    """Those before are there."""
    monkeypatch.setattr("alignup.cli.inputs.LINE_LIMIT", 4)
    name = write("lines", b"abc\nabcdef\n")
    with open_input(name) as file:
        lines = read_lines(file, name)
        assert next(lines) == b"abc\n"
        with pytest.raises(InputError, match=f"a line of more than 4 bytes at {name}:2"):
            next(lines)


def test_errors_say_which_file(tmp_path, write) -> None:
    torn = write("torn", gzip.compress(b"words" * 100)[:-9])
    for name, complaint in (
        (str(tmp_path), "directory"),
        (str(tmp_path / "none"), "no such file"),
        (torn, "whole gzip file"),
    ):
        with pytest.raises(InputError, match=complaint) as caught:
            read_bytes(name)
        assert name in str(caught.value)


def test_lines_can_be_read_one_by_one(write) -> None:
    with open_input(write("lines", gzip.compress(b"one\ntwo\n"))) as file:
        assert next(iter(file)) == b"one\n"


def test_pods_of_several_files_in_order(write) -> None:
    manifest = "metadata: {{name: {}}}\nspec: {{containers: [{{name: c, image: i}}]}}\n"
    two = write("two.yaml", manifest.format("b") + "---\n" + manifest.format("c"))

    assert [
        document.pod.name for document in read_pods([two, write("one.yaml", manifest.format("a"))])
    ] == [
        "b",
        "c",
        "a",
    ]


@pytest.mark.parametrize("text", ["[]", "3", "", "a: 1\n---\nb: 2\n"])
def test_a_mapping_is_one_mapping(write, text: str) -> None:
    assert read_mapping(write("fine", "a: 1")) == {"a": 1}
    with pytest.raises(InputError, match="one mapping"):
        read_mapping(write("other", text))


def test_a_catalog_machine_brings_configuration_devices_and_pods() -> None:
    source = NodeSource(machine="align-up-article")
    loaded = load_node(source)

    assert loaded.node.manager.policy.name == "single-numa-node"
    assert loaded.node.devices is not None
    assert [pod.name for pod in asked_pods((), source, loaded).pods] == ["numa-aligned"]
    assert loaded.title.startswith(
        "align-up-article: 2 NUMA nodes, 8 CPUs; policy single-numa-node"
    )


def test_options_come_before_what_the_machine_brings(write) -> None:
    config = write("config.json", {"topologyManagerPolicy": "best-effort"})
    devices = write("devices.json", {"a/b": [{"id": "x", "numa": [1]}]})
    node = load_node(NodeSource(machine="align-up-article", config=config, inventory=devices)).node

    assert node.manager.policy.name == "best-effort"
    assert node.devices is not None
    assert node.devices.free == {"a/b": ("x",)}


def test_a_file_may_hold_a_whole_scenario(write) -> None:
    """As `alignup machine --json` with devices, and the lines of the conformance vectors."""
    machine = read_machine("xeon-2s").to_dict()
    scenario = {
        "machine": machine,
        "kubelet": {"topologyManagerPolicy": "restricted"},
        "devices": {"a/b": [{"id": "x", "numa": [1]}, {"id": "y", "numa": [0]}]},
        "preferredSets": {"a/b": [["y"]]},
    }
    node = load_node(NodeSource(machine=write("scenario.json", scenario))).node

    assert node.manager.policy.name == "restricted"
    pod = {
        "metadata": {"name": "p"},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"a/b": "1"}}}]
        },
    }
    assert node.admit(pod).containers["c"].devices == {"a/b": ("y",)}


def test_a_configuration_must_fit_the_machine(write) -> None:
    config = write("config.json", {"cpuManagerPolicy": "static", "reservedSystemCPUs": "99"})
    with pytest.raises(ConfigError, match="reserved-cpus: 99 is not a subset of online-cpus: 0-7"):
        load_node(NodeSource(machine="align-up-article", config=config))


def test_millions_of_blank_lines_are_no_input(monkeypatch):
    """Packed they are small, and reading them takes for ever."""
    monkeypatch.setattr("alignup.cli.inputs.BLANK_LIMIT", 10)
    assert len(list(read_lines(io.BytesIO(b"\n" * 10 + b"a\n" + b"\n" * 10), "f"))) == 21
    with pytest.raises(InputError, match="more than 10 blank lines in a row at f:12"):
        list(read_lines(io.BytesIO(b"a" + b"\n" * 12), "f"))


STATIC = "cpuManagerPolicy: static\ntopologyManagerPolicy: single-numa-node\n"
OPENSHIFT = "kind: KubeletConfig\nspec:\n  kubeletConfig: {cpuManagerPolicy: static}\n"


def test_a_platform_completes_its_configuration(write) -> None:
    name = write("k.yaml", OPENSHIFT)
    with pytest.warns(AlignupWarning, match="k.yaml is a part of a configuration: OpenShift"):
        loaded = load_node(NodeSource(machine="xeon-2s", config=name))

    assert loaded.node.config.reserved_cpu_count == 1


@pytest.mark.parametrize("text", [OPENSHIFT, STATIC, f"{STATIC}reservedSystemCPUs: '3'\n"])
def test_reserved_cpus_win_over_a_configuration(write, text) -> None:
    source = NodeSource(machine="xeon-2s", config=write("k.yaml", text), reserved_cpus="0-1")
    assert str(load_node(source).node.config.reserved_system_cpus) == "0-1"


def test_reserved_cpus_win_over_those_of_a_catalog_machine() -> None:
    loaded = load_node(NodeSource(machine="xeon-2s", reserved_cpus="0-1"))
    assert str(loaded.node.config.reserved_system_cpus) == "0-1"

    with pytest.raises(InputError, match="9999"):
        load_node(NodeSource(machine="xeon-2s", reserved_cpus="9999"))


def test_without_a_platform_the_kubelet_does_not_start(write) -> None:
    with pytest.raises(ConfigError, match="to be greater than zero"):
        load_node(NodeSource(machine="xeon-2s", config=write("k.yaml", STATIC)))


@pytest.mark.parametrize(
    ("flags", "option"),
    [
        # of an old kubelet, whose gates are gone
        ("--feature-gates=TopologyManager=true,CPUManager=true --reserved-cpus=0", "--lenient"),
        # some of the flags of a kubelet: its file may have the others
        ("--cpu-manager-policy=static --topology-manager-policy=restricted", "--reserved-cpus"),
    ],
)
def test_a_configuration_that_is_refused_names_the_option_that_reads_it(
    alignup, write, flags: str, option: str
) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    words = ("admit", "-m", "xeon-2s", "-c", write("flags.txt", flags), write("p.json", pod))
    assert alignup(*words).complains(option)
    value = ("0",) if option == "--reserved-cpus" else ()
    assert alignup(*words, option, *value).status == 0


def test_a_node_lines_kubelet_is_told_what_it_lacks_as_a_configuration(alignup, write) -> None:
    """A node line needs no reserved CPUs, and a kubelet does."""
    file = write("kubelet.json", '{"cpuManagerPolicy": "static"}')
    ended = alignup("admit", "-m", "xeon-2s", "-c", file)
    assert ended.status == 2
    assert "reservedSystemCPUs reserves some" in ended.err
    assert "--reserved-cpus" in ended.err


def deployment(name: str, replicas: int, containers: int = 1) -> dict[str, Any]:
    spec = {"containers": [{"name": f"c{number}", "image": "i"} for number in range(containers)]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "template": {"spec": spec}},
    }


@pytest.mark.parametrize("command", ["admit", "explain"])
def test_more_pods_than_a_node_is_asked_about_are_refused_at_once(alignup, write, command) -> None:
    """Also those that the counts of a few templates add up to."""
    items = [deployment("d", 3_000), deployment("e", 2_001)]
    file = write("pods.json", {"apiVersion": "v1", "kind": "List", "items": items})
    words = "at most 5000 pods for one node, got 5001"
    assert alignup(command, file, "-m", "xeon-2s").complains(words)
    several = ("--replicas", "2501")
    words = "at most 5000 pods for one node, got 5002"
    assert alignup(command, file, "-m", "xeon-2s", *several).complains(words)

    large = write("large.json", deployment("f", 1, containers=1001))
    words = "at most 1000 containers, got 1001"
    assert alignup(command, large, "-m", "xeon-2s").complains(words)
