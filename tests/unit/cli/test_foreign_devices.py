"""Pods that ask for devices that the machine does not have, or of which nothing is known."""

from __future__ import annotations

from typing import Any

import pytest


def pod(name: str, **limits: Any) -> dict[str, Any]:
    """Return a manifest of two containers with these limits."""
    containers = [
        {"name": each, "image": "i", "resources": {"limits": limits}} for each in ("a", "b")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers},
    }


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_they_are_ignored_and_that_is_said_once(alignup, write, options: tuple[str, ...]) -> None:
    """On standard error, so that what is on standard output is still all of one form."""
    limits = {"example.com/fpga": 1, "nvidia.com/gpu": 1, "a.b/none": 0}
    pods = [write(f"{name}.json", pod(name, **limits)) for name in ("one", "two")]
    ended = alignup("admit", "-m", "dgx-h100", *options, *pods)

    assert ended.status == 0
    assert (
        ended.err
        == "alignup: example.com/fpga is not on this machine; ignored, as a kubelet does\n"
    )
    assert "fpga" not in ended.out


def test_nothing_is_said_where_nothing_is_ignored(alignup, write) -> None:
    ended = alignup(
        "admit", "-m", "dgx-h100", write("one.json", pod("one", **{"nvidia.com/gpu": 1}))
    )

    assert (ended.status, ended.err) == (0, "")


# ---- where it is not known what the machine has

LSCPU = """\
Thread(s) per core:  1
CPU(s):              8
Socket(s):           2
NUMA node(s):        2
NUMA node0 CPU(s):   0-3
NUMA node1 CPU(s):   4-7
"""
NUMACTL = """\
node 0 cpus: 0 1 2 3
node 0 size: 16000 MB
node 1 cpus: 4 5 6 7
node 1 size: 16000 MB
"""
LSTOPO = """\
Machine{}
  NUMANode P#0{}
    Package P#0
      Core P#0 + PU P#0
      Core P#1 + PU P#1
      Core P#2 + PU P#2
      Core P#3 + PU P#3
  NUMANode P#1{}
    Package P#1
      Core P#0 + PU P#4
      Core P#1 + PU P#5
      Core P#2 + PU P#6
      Core P#3 + PU P#7
"""
TOPOLOGY = """
        GPU0    GPU1    CPU Affinity    NUMA Affinity
GPU0     X      SYS     0-3             0
GPU1    SYS      X      4-7             1
"""
ALIGNED = {
    "kind": "KubeletConfiguration",
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "topologyManagerPolicy": "single-numa-node",
}
PINNED = {
    **ALIGNED,
    "memoryManagerPolicy": "Static",
    "kubeReserved": {"memory": "924Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
}

PASTES = {
    "lscpu": (LSCPU, "CPUs", "8Gi memory and "),
    "numactl": (NUMACTL, "CPUs and memory", ""),
    "lstopo": (LSTOPO.format(" (31GB total)", " (16GB)", " (16GB)"), "CPUs and memory", ""),
    "lstopo without memory": (LSTOPO.format("", "", ""), "CPUs", "8Gi memory and "),
}


def guaranteed(name: str = "train", **limits: Any) -> dict[str, Any]:
    """Return a manifest of one container that asks for CPUs, memory and more."""
    resources = {"limits": {"cpu": 2, "memory": "8Gi", **limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }


@pytest.mark.parametrize("text", PASTES)
@pytest.mark.parametrize("command", ["admit", "explain"])
def test_a_verdict_on_pasted_text_says_how_far_it_goes(
    alignup, write, command: str, text: str
) -> None:
    """The first line of the verdict, a field of JSON and the exit status say it."""
    paste, judged, memory = PASTES[text]
    words = (
        command,
        *("-m", write("machine.txt", paste)),
        *("-c", write("kubelet.yaml", ALIGNED)),
        write("pod.json", guaranteed(**{"nvidia.com/gpu": 8})),
    )
    ended = alignup(*words)
    [verdict] = [line for line in ended.out.splitlines() if "default/train" in line]
    assert verdict.startswith("? default/train admitted")
    assert verdict.endswith(
        f", as far as {judged} go; {memory}8 nvidia.com/gpu unknown here (`--devices`)"
    )
    assert ended.status == 1
    assert "--ignore-unknown" in ended.err
    assert "is not on this machine" not in ended.err

    ended = alignup(*words, "--json")
    [line] = ended.lines
    amounts = {"memory": 8 << 30} if memory else {}
    assert (ended.status, line["admitted"]) == (1, True)
    assert line["unknown"] == {**amounts, "nvidia.com/gpu": 8}

    ended = alignup(*words, "--ignore-unknown")
    assert ended.status == 0
    assert "8 nvidia.com/gpu unknown here" in ended.out
    assert "nvidia.com/gpu is unknown here; ignored\n" in ended.err


@pytest.mark.parametrize("command", ["admit", "explain"])
def test_with_an_inventory_all_devices_are_known(alignup, write, command: str) -> None:
    """Also where it lists others: the kubelet's answer then."""
    devices = {"nvidia.com/gpu": [{"id": f"gpu{number}", "numa": 0} for number in range(4)]}
    words = (
        command,
        *("-m", write("machine.txt", NUMACTL)),
        *("-c", write("kubelet.yaml", ALIGNED)),
        *("--devices", write("devices.json", devices)),
    )
    ended = alignup(*words, write("pod.json", guaranteed(**{"nvidia.com/gpu": 4})))
    assert (ended.status, "unknown here" in ended.out) == (0, False)

    ended = alignup(*words, write("pod.json", guaranteed(**{"nvidia.com/gpu": 5})))
    assert (ended.status, "unknown here" in ended.out) == (1, False)

    ended = alignup(*words, write("pod.json", guaranteed(**{"example.com/fpga": 1})))
    assert (ended.status, "unknown here" in ended.out) == (0, False)
    assert "example.com/fpga is not on this machine; ignored, as a kubelet does" in ended.err


@pytest.mark.parametrize("command", ["admit", "explain"])
def test_a_list_of_gpus_does_not_tell_of_other_devices(alignup, write, command: str) -> None:
    words = (
        command,
        *("-m", write("machine.txt", NUMACTL + TOPOLOGY)),
        *("-c", write("kubelet.yaml", ALIGNED)),
    )
    pod = guaranteed(**{"nvidia.com/gpu": 1, "rdma/hca": 2})
    ended = alignup(*words, write("pod.json", pod))
    extent = "as far as CPUs, memory and nvidia.com/gpu go; 2 rdma/hca unknown here (`--devices`)"
    assert extent in ended.out
    assert ended.status == 1

    ended = alignup(*words, write("pod.json", guaranteed(**{"nvidia.com/gpu": 1})))
    assert (ended.status, "unknown here" in ended.out) == (0, False)

    # what is known and refused is refused, whatever is not known
    pod = guaranteed(**{"nvidia.com/gpu": 2, "rdma/hca": 2})
    [line] = alignup(*words, "--json", write("pod.json", pod)).lines
    assert (line["admitted"], line["unknown"]) == (False, {"rdma/hca": 2})


@pytest.mark.parametrize("command", ["admit", "explain"])
def test_memory_that_would_be_pinned_leaves_the_verdict_open(alignup, write, command: str) -> None:
    """Without a memory manager only the sum of the node is not checked."""
    words = (command, "-m", write("machine.txt", LSCPU), write("pod.json", guaranteed()))
    extent = "as far as CPUs go; 8Gi memory unknown here (`numactl -H`)"
    ended = alignup(*words, "-c", write("kubelet.yaml", ALIGNED))
    assert ended.status == 0
    assert "✓ default/train" in ended.out
    assert extent in ended.out

    ended = alignup(*words, "-c", write("kubelet.yaml", PINNED))
    assert ended.status == 1
    assert "? default/train" in ended.out
    assert extent in ended.out
    assert alignup(*words, "-c", write("kubelet.yaml", PINNED), "--ignore-unknown").status == 0


@pytest.mark.parametrize("command", ["admit", "explain"])
@pytest.mark.parametrize("machine", ["xeon-2s", "epyc-2s-nps4"])
def test_plain_servers_of_the_catalog_may_have_other_cards(
    alignup, write, command: str, machine: str
) -> None:
    """Their network cards are known; a scenario of such a machine lists all devices."""
    pod = write("pod.json", guaranteed(**{"nvidia.com/gpu": 8}))
    ended = alignup(command, "-m", machine, pod)
    assert ended.status == 1
    assert "8 nvidia.com/gpu unknown here" in ended.out

    nics = write("pod.json", guaranteed(**{"example.com/nic": 1}))
    ended = alignup(command, "-m", machine, nics)
    assert (ended.status, "unknown here" in ended.out) == (0, False)

    pod = write("pod.json", guaranteed(**{"nvidia.com/gpu": 8}))
    ended = alignup(command, "-m", write("scenario.json", {"machine": machine}), pod)
    assert (ended.status, "unknown here" in ended.out) == (0, False)
    assert "nvidia.com/gpu is not on this machine; ignored, as a kubelet does" in ended.err


def test_rank_and_explain_take_no_pod_for_devices_that_nobody_lists(alignup, write) -> None:
    """A node line lists all devices: `rank` counts what it lacks as missing."""
    pod = write("pod.json", guaranteed(**{"nvidia.com/gpu": 8}))
    nodes = write("nodes.jsonl", '{"name": "a", "machine": "xeon-2s"}\n')
    assert alignup("rank", "-n", nodes, pod).status == 1

    ended = alignup("explain", "-m", "xeon-2s", "--nodes", nodes, pod)
    assert ended.status == 1
    assert "0 of 1 other node would take it now" in ended.out

    pod = write("pod.json", guaranteed(**{"nvidia.com/gpu": 2}))
    others = write("others.jsonl", '{"name": "b", "machine": "dgx-h100"}\n')
    ended = alignup("explain", "-m", "xeon-2s", "--nodes", others, pod)
    assert ended.status == 1
    assert "1 of 1 other node would take it now: b" in ended.out


def test_several_releases_say_how_far_they_go(alignup, write) -> None:
    words = (
        "admit",
        *("--kubelet-version", "1.35,1.37"),
        *("-m", write("machine.txt", NUMACTL)),
        write("pod.json", guaranteed(**{"nvidia.com/gpu": 8})),
    )
    ended = alignup(*words)
    assert ended.status == 1
    assert "nvidia.com/gpu is unknown here" in ended.err
    lines = alignup(*words, "--json").lines
    assert [line["pods"][0]["unknown"] for line in lines] == [{"nvidia.com/gpu": 8}] * 2
    assert alignup(*words, "--ignore-unknown").status == 0


def test_a_name_that_is_like_a_known_one_is_asked_about(alignup, write) -> None:
    ended = alignup(
        *("admit", "-m", write("machine.txt", NUMACTL + TOPOLOGY)),
        write("pod.json", guaranteed(**{"nvidia.com/gpus": 1})),
    )
    assert ended.status == 1
    assert "did you mean nvidia.com/gpu?" in ended.err


def test_memory_that_nothing_pins_is_nothing_that_is_aligned(alignup, write) -> None:
    pod = guaranteed()
    pod["spec"]["containers"][0]["resources"] = {"requests": {"memory": "1Gi"}}
    ended = alignup(
        *("explain", "--json", "-m", write("machine.txt", LSCPU)),
        *("-c", write("kubelet.yaml", ALIGNED), write("pod.json", pod)),
    )
    [line] = ended.lines
    assert ended.status == 0
    assert line["cause"] == (
        "admitted, as far as CPUs go; 1Gi memory unknown here; it requests nothing that is aligned "
        "to NUMA nodes"
    )


def test_a_pod_that_requests_nothing_else_is_not_aligned(alignup, write) -> None:
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"a.b/c": 1}}}]},
    }
    ended = alignup(
        *("explain", "--json", "-m", write("machine.txt", NUMACTL)),
        *("-c", write("kubelet.yaml", ALIGNED), write("pod.json", pod)),
    )
    [line] = ended.lines
    assert line["cause"] == (
        "admitted, as far as CPUs and memory go; 1 a.b/c unknown here; it requests nothing else "
        "that is aligned to NUMA nodes"
    )
