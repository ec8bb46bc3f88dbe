"""`alignup admit`: what a person and a program see, and what happens to bad input."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from alignup import read_machine
from checks.memory_use import at_most

ARTICLE = ("admit", "--machine", "align-up-article")
MACHINE = {
    "numaNodes": [
        {
            "id": 0,
            "memory": 1 << 30,
            "cores": [{"cpus": [0], "socket": 0}, {"cpus": [1], "socket": 0}],
        },
        {
            "id": 1,
            "memory": 1 << 30,
            "cores": [{"cpus": [2], "socket": 1}, {"cpus": [3], "socket": 1}],
        },
    ],
    "pciDevices": [
        {
            "address": f"0000:0{n}:00.0",
            "class": "0302",
            "vendor": "10de",
            "device": "2330",
            "numaNode": n,
        }
        for n in (0, 1)
    ],
}
STATIC = {
    "topologyManagerPolicy": "single-numa-node",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "3",
}

SPEC = {"containers": [{"name": "c0", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}]}

WIDE = {
    "kind": "KubeletConfiguration",
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "topologyManagerPolicy": "single-numa-node",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
}


def pod(name: str = "web", **limits: Any) -> dict[str, Any]:
    """Return a manifest of one container with these limits."""
    resources = {"limits": {"cpu": "1", "memory": "1Mi", **limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c0", "image": "i", "resources": resources}]},
    }


def test_the_articles_pod_is_a_table(alignup) -> None:
    """Container 0 gets CPUs 0-1, gpu0 and nic0; container 1 gets CPUs 4-5, gpu1 and nic1."""
    ended = alignup(*ARTICLE)
    text = " ".join(ended.out.split())

    assert (ended.status, ended.err) == (0, "")
    assert "default/numa-aligned admitted" in text
    assert "numa-aligned-container0 0 yes 0-1 - example.com/nic nic0 nvidia.com/gpu gpu0" in text
    assert "numa-aligned-container1 1 yes 4-5 - example.com/nic nic1 nvidia.com/gpu gpu1" in text
    assert text.endswith("shared pool: CPUs 2-3,6-7")


def test_a_refusal_names_resources_and_nodes(alignup) -> None:
    ended = alignup(*ARTICLE, "--replicas", 2)

    assert (ended.status, ended.err) == (1, "")
    assert "default/numa-aligned-1 refused: TopologyAffinityError" in ended.out
    assert "not enough example.com/nic is free: 1 asked, 0 of 2 free" in " ".join(ended.out.split())
    assert "nvidia.com/gpu is free: 1 asked, 0 of 2 free" in ended.out


def test_a_refusal_names_its_entry_among_the_messages(alignup) -> None:
    words = ("admit", "--machine", "align-up-article", "--replicas", "2")
    assert "\n  see Messages: topology-affinity-error" in alignup(*words).out
    admitted, refused = alignup(*words, "--json").lines
    assert "see" not in admitted
    assert refused["see"] == "topology-affinity-error"


def test_json_is_one_object_a_pod(alignup) -> None:
    """The same facts, and for a refusal what each resource could have offered."""
    admitted, refused = alignup(*ARTICLE, "--replicas", 2, "--json").lines

    assert admitted["pod"] == "numa-aligned-0"
    assert admitted["namespace"] == "default"
    assert admitted["uid"].endswith("-0")
    assert admitted["admitted"] is True
    assert admitted["containers"]["numa-aligned-container1"] == {
        "affinity": {"numaNodes": [1], "preferred": True},
        "cpus": "4-5",
        "memory": [],
        "devices": {"example.com/nic": ["nic1"], "nvidia.com/gpu": ["gpu1"]},
    }
    assert refused["admitted"] is False
    assert refused["reason"] == refused["explanation"]["reason"] == "TopologyAffinityError"
    assert refused["explanation"]["container"] == "numa-aligned-container0"
    assert [view["resource"] for view in refused["explanation"]["resources"]] == [
        "example.com/nic",
        "nvidia.com/gpu",
        "cpu",
    ]


def test_files_of_the_users_own(alignup, write) -> None:
    """A machine, a configuration, devices and pods.

    YAML and JSON, several documents, gzip, standard input.
    """
    machine = write("machine.json", MACHINE)
    config = write("config.yaml", "".join(f"{key}: {value!r}\n" for key, value in STATIC.items()))
    devices = write("devices.yaml", "example.com/nic:\n- {id: nic0, numa: [1]}\n")
    first = write("first.json.gz", gzip.compress(str(pod("zipped")).replace("'", '"').encode()))
    options = ("--machine", machine, "--config", config, "--devices", devices, "--json")
    piped_pod = str(pod("typed", **{"example.com/nic": "1"})).replace("'", '"')

    ended = alignup("admit", *options, first, "-", stdin=piped_pod.encode())

    assert (ended.status, ended.err) == (0, "")
    assert [line["pod"] for line in ended.lines] == ["zipped", "typed"]
    assert [line["containers"]["c0"]["cpus"] for line in ended.lines] == ["0", "2"]
    assert ended.lines[1]["containers"]["c0"]["devices"] == {"example.com/nic": ["nic0"]}


def test_memory_and_shared_cpus_in_the_table(alignup, write) -> None:
    """Bytes are in the largest unit that divides them; a container in the shared pool says so."""
    config = write(
        "config.json",
        {
            **STATIC,
            "reservedSystemCPUs": "0",
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
        },
    )
    pods = write("pod.json", pod(cpu="500m", memory="1025Ki"))
    text = alignup("admit", "-m", write("m.json", MACHINE), "-c", config, pods).out

    assert "memory 1025Ki @ 0" in text
    assert "shared" in text


def test_odd_bytes_are_shown_as_they_are(alignup, write) -> None:
    config = {
        "memoryManagerPolicy": "Static",
        "evictionHard": {"memory.available": "1Mi"},
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Mi"}}],
    }
    ended = alignup(
        "admit",
        "-m",
        write("m.json", MACHINE),
        "-c",
        write("c.json", config),
        write("p.json", pod(memory="1025")),
    )

    assert "memory 1025 @ 0" in ended.out
    assert "any" in ended.out


def test_pci_devices_can_be_a_resource(alignup, write) -> None:
    """--device-resource takes them by vendor and device, or class."""
    machine, config = write("m.json", MACHINE), write("c.json", STATIC)
    pods = write("p.json", pod(**{"nvidia.com/gpu": "1", "cpu": "2"}))
    ended = alignup(
        "admit",
        "-m",
        machine,
        "-c",
        config,
        "--device-resource",
        "nvidia.com/gpu=10de:*",
        "--json",
        pods,
    )

    assert ended.lines[0]["containers"]["c0"]["devices"] == {"nvidia.com/gpu": ["0000:00:00.0"]}
    assert alignup("admit", "-m", machine, "--device-resource", "bogus", pods).complains(
        "bogus", "10de:*"
    )
    assert alignup("admit", "-m", machine, "--device-resource", "a/b=8086:*", pods).complains(
        "8086:*"
    )


def test_devices_on_nodes_without_cpus_can_count_as_near(alignup, write) -> None:
    """As on a GB200: without --near-cpus nothing aligns with them."""
    far = {"id": 2, "memory": 0, "cores": []}
    machine = write("m.json", {"numaNodes": [*MACHINE["numaNodes"], far]})
    config = write("c.json", STATIC)
    devices = write("d.json", {"a/gpu": [{"id": "gpu0", "numa": [2]}]})
    manifest = write("p.json", pod(**{"a/gpu": "1"}))
    arguments = ("admit", "-m", machine, "-c", config, "--devices", devices, manifest)

    assert alignup(*arguments).status == 1
    assert alignup(*arguments, "--near-cpus").status == 0


def test_names_cannot_upset_the_terminal(alignup, write) -> None:
    """Neither markup nor control characters of a manifest are obeyed."""
    ended = alignup(*ARTICLE, write("p.json", pod("[red]\x1b[2J", cpu="1")))

    assert "\x1b" not in ended.out
    assert "default/[red]\N{REPLACEMENT CHARACTER}[2J admitted" in ended.out


def test_without_a_manifest_a_machine_must_have_examples(alignup) -> None:
    assert alignup("admit", "-m", "gb200").complains("name at least one POD.yaml")


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"a: [1\n", ["p.yaml"]),
        (
            b"apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\nspec:\n  containers:\n  - name: 'c",
            ["p.yaml"],
        ),
        (b"\xff\xfe\x00", ["UTF-8", "p.yaml"]),
        (b"\x1f\x8bnot gzip", ["gzip", "p.yaml"]),
        (b"", ["no Pod", "p.yaml"]),
        (b"--- \n---\n", ["no Pod", "p.yaml"]),
        (b"just words", ["a Pod"]),
        (b"[1, 2]", ["a Pod"]),
        (b"kind: Deployment\nmetadata: {name: x}", ["Pod", "Deployment", "kind"]),
        (b"kind: Pod\nmetadata: {name: x}", ["spec.containers"]),
        (b"&a [*a, *a]", ["p.yaml"]),
    ],
    ids=[
        "yaml",
        "truncated",
        "utf-8",
        "gzip",
        "empty",
        "null",
        "words",
        "list",
        "kind",
        "no spec",
        "cycle",
    ],
)
def test_what_is_no_pod(alignup, write, content: bytes, parts: list[str]) -> None:
    ended = alignup(*ARTICLE, write("p.yaml", content))

    assert ended.complains(*parts), ended


@pytest.mark.parametrize(
    ("limits", "parts"),
    [
        ({"cpu": "two"}, ['resources.limits["cpu"]', "'two'"]),
        ({"memory": "-1"}, ['resources.limits["memory"]', "'-1'"]),
        ({"nvidia.com/gpu": "0.5"}, ['limits["nvidia.com/gpu"]', "'0.5'"]),
        ({"cpu": None}, ['resources.limits["cpu"]']),
    ],
)
def test_quantities_that_are_none(alignup, write, limits: dict[str, Any], parts: list[str]) -> None:
    """The place of the field, what was expected and what came."""
    ended = alignup(*ARTICLE, write("p.json", pod(**limits)))

    assert ended.complains("spec.containers[0].", "p.json", *parts), ended


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        (
            {"topologyManagerPolicy": "bogus"},
            ["topologyManagerPolicy", "'bogus'", "single-numa-node"],
        ),
        (
            {
                "topologyManagerPolicy": "restricted",
                "topologyManagerPolicyOptions": {"bogus": "true"},
            },
            ["topologyManagerPolicyOptions", "'bogus'"],
        ),
        ({"cpuManagerPolicy": "static", "cpuManagerPolicyOptions": {"bogus": "true"}}, ["'bogus'"]),
        (
            {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0,77"},
            ["reserved-cpus: 0,77 is not a subset of online-cpus: 0-7"],
        ),
        ({"memoryManagerPolicy": "BestEffort"}, ["memoryManagerPolicy", "BestEffort"]),
        ([1], ["c.json"]),
    ],
)
def test_configurations_that_a_kubelet_refuses(
    alignup, write, config: Any, parts: list[str]
) -> None:
    ended = alignup(*ARTICLE, "--config", write("c.json", config))

    assert ended.complains(*parts), ended


@pytest.mark.parametrize(
    ("devices", "parts"),
    [
        ({"a/b": [{"id": "d", "numa": [0]}, {"id": "d", "numa": [1]}]}, ["[1].id", "'d'"]),
        ([1], ["one mapping", "d.json"]),
        ("--- {}\n--- {}\n", ["one mapping", "d.json"]),
    ],
)
def test_devices_that_cannot_be(alignup, write, devices: Any, parts: list[str]) -> None:
    ended = alignup(*ARTICLE, "--devices", write("d.json", devices))

    assert ended.complains(*parts), ended


def test_numa_nodes_of_devices_that_the_machine_lacks_are_said(alignup, write) -> None:
    """They are passed over, as by a kubelet; the device counts where else it is."""
    devices = {
        "nvidia.com/gpu": [{"id": "d", "numa": [9, 0]}],
        "example.com/nic": [{"id": "n", "numa": -1}],
    }
    ended = alignup(*ARTICLE, "--devices", write("d.json", devices))

    assert (
        "['nvidia.com/gpu'] names NUMA nodes that this machine (0, 1) does not have: 9" in ended.err
    )
    assert "does not have: -1; ignored, as a kubelet does" in ended.err
    assert ended.status == 1


def test_machines_that_cannot_be(alignup, write) -> None:
    """No CPUs, too many nodes, no file, no machine in the file."""
    node = MACHINE["numaNodes"][0]
    nine = [{**node, "id": n, "cores": [{"cpus": [n], "socket": 0}]} for n in range(9)]
    pods = write("p.json", pod())
    for machine, parts in (
        (
            write("none.json", {"numaNodes": [{"id": 0, "memory": 1, "cores": []}]}),
            ["the machine has no CPUs"],
        ),
        (write("other.json", {"a": 1}), ["'numaNodes'"]),
        (write("empty.json", b""), ["empty.json"]),
        ("no-such-machine", ["unknown machine", "align-up-article"]),
    ):
        assert alignup("admit", "-m", machine, pods).complains(*parts)

    ended = alignup(
        "admit", "-m", write("nine.json", {"numaNodes": nine}), "-c", write("c.json", STATIC), pods
    )
    assert ended.complains("1 to 8 NUMA nodes", "got 9", "max-allowable-numa-nodes")


def test_a_pod_is_admitted_once(alignup, write) -> None:
    """The same manifest twice is an error, not a refusal."""
    manifest = write("p.json", pod())

    assert alignup(*ARTICLE, manifest, manifest).complains("default/web", "admitted already")


def test_files_that_cannot_be_read(alignup, tmp_path) -> None:
    for option in ("--config", "--devices"):
        assert alignup(*ARTICLE, option, tmp_path / "none").complains("none", "no such file")
        assert alignup(*ARTICLE, option, tmp_path).complains("directory")
    assert alignup(*ARTICLE, "-").complains("Pod")


def test_a_huge_manifest_is_refused_unread(alignup, write) -> None:
    """50 MB are not even parsed, and a bomb is not even unpacked."""
    blanks = b"a: b\n" * (10 << 20)
    for name, content in (("big.yaml", blanks), ("bomb.yaml", gzip.compress(blanks, 1))):
        path = write(name, content)
        with at_most(32):
            ended = alignup(*ARTICLE, path)
        assert ended.complains("more than", name), ended


def test_a_machine_without_a_configuration_is_said_to_align_nothing(alignup, write) -> None:
    """A kubelet's defaults admit what its real configuration might refuse."""
    machine = write("m.json", read_machine("xeon-2s").to_dict())
    ended = alignup(
        "admit", "-m", machine, write("p.json", {"metadata": {"name": "p"}, "spec": SPEC})
    )

    assert ended.status == 0
    assert ended.err == (
        "alignup: no KubeletConfiguration was read (--config FILE); by default a kubelet "
        "aligns nothing\n"
    )
    assert "; policy none, CPU manager none" in ended.out
    assert "no KubeletConfiguration" not in alignup("admit", "-m", "align-up-article").err


def test_a_pod_that_the_kubelet_itself_refuses_gets_no_tick(alignup, write) -> None:
    """Its managers admit it where they hand nothing out: --managers-only says what they say."""
    spec = {
        "containers": [{"name": "c0", "resources": {"limits": {"cpu": "5000", "memory": "9000Gi"}}}]
    }
    pod = write("p.json", {"metadata": {"name": "huge"}, "spec": spec})
    config = write("k.yaml", "topologyManagerPolicy: restricted")
    ended = alignup("admit", "-m", "xeon-2s", "-c", config, pod)
    assert (ended.status, "✗ default/huge refused: OutOfcpu" in ended.out, ended.err) == (
        1,
        True,
        "",
    )
    assert alignup("explain", "-m", "xeon-2s", "-c", config, pod).status == 1

    ended = alignup("admit", "-m", "xeon-2s", "-c", config, "--managers-only", pod)
    assert ended.status == 0
    assert (
        "default/huge requests 5000 cpu of 128 and 9000Gi memory of 479.9Gi: a kubelet refuses "
        "it, but --managers-only"
    ) in ended.err
    assert alignup("explain", "-m", "xeon-2s", "-c", config, "--managers-only", pod).status == 0


def test_a_windows_pod_is_refused_for_what_it_is(alignup, write) -> None:
    pod = write(
        "p.json", {"metadata": {"name": "win"}, "spec": {**SPEC, "os": {"name": "windows"}}}
    )
    assert "win refused: PodOSNotSupported" in alignup("admit", "-m", "xeon-2s", pod).out
    ended = alignup("admit", "-m", "xeon-2s", "--managers-only", pod)
    assert "default/win is a Windows pod, which a kubelet on Linux refuses" in ended.err


def test_pods_that_are_evicted_for_a_critical_one_are_named(alignup, write) -> None:
    def pod(name: str, **fields: Any) -> dict[str, Any]:
        resources = {"limits": {"cpu": "5", "memory": "1Gi"}}
        return {
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "resources": resources}], **fields},
        }

    critical = pod("critical", priorityClassName="system-node-critical")
    file = write("p.json", {"kind": "List", "items": [pod("a"), critical]})
    config = write("k.yaml", "topologyManagerPolicy: none")
    ended = alignup("admit", "-m", "align-up-article", "-c", config, file)
    assert "✓ default/critical admitted, after 1 pod is evicted: default/a" in ended.out


def test_equal_refusals_of_replicas_are_told_once(alignup, write) -> None:
    """With their number; JSON has all of them."""
    spec = {"containers": [{"name": "c", "resources": {"limits": {"cpu": "40", "memory": "1Gi"}}}]}
    made = {
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 60, "template": {"metadata": {}, "spec": spec}},
    }

    file = write("d.json", made)
    config = write(
        "k.yaml",
        "{topologyManagerPolicy: restricted, cpuManagerPolicy: static, reservedSystemCPUs: '0'}",
    )
    arguments = ("-m", "xeon-2s", "-c", config, file)

    for command in ("admit", "explain"):
        ended = alignup(command, *arguments)
        assert ended.status == 1
        assert "and 57 more pods alike: web-3 to web-59" in ended.out
        assert ended.out.count("✗") == 1

        lines = alignup(command, "--json", *arguments).lines
        assert [line["pod"].rpartition("/")[2] for line in lines] == [
            f"web-{number}" for number in range(60)
        ]
        assert len({line["reason"] for line in lines[2:]}) == 1


def test_a_resource_that_is_probably_meant_is_named(alignup, write) -> None:
    limits = {"nvidia.com/gpus": "1", "example.com/rdma": "1"}
    pod = write(
        "p.json",
        {
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
        },
    )

    err = alignup("admit", "-m", "align-up-article", pod).err
    assert (
        "nvidia.com/gpus is not on this machine; ignored, as a kubelet does; did you mean "
        "nvidia.com/gpu?\n"
    ) in err
    assert "example.com/rdma is not on this machine; ignored, as a kubelet does\n" in err


def test_deployments_and_live_pods(alignup, write) -> None:
    """As many pods as the object says, unless --replicas says otherwise.

    Those that ended hold nothing.
    """
    template = {"metadata": {"labels": {}}, "spec": SPEC}
    made = {
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "template": template},
    }
    file = write("d.json", made)
    assert [line["pod"] for line in alignup("admit", "-m", "xeon-2s", "--json", file).lines] == [
        "web-0",
        "web-1",
        "web-2",
    ]
    assert len(alignup("admit", "-m", "xeon-2s", "--json", "--replicas", 2, file).lines) == 2

    pods = [
        {
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {**SPEC, "nodeName": node},
            "status": {"phase": phase},
        }
        for name, node, phase in (
            ("a", "n1", "Running"),
            ("b", "n1", "Succeeded"),
            ("c", "n2", "Running"),
        )
    ]
    listed = write("l.json", {"kind": "List", "items": pods})
    assert alignup("admit", "-m", "xeon-2s", listed).status == 2
    ended = alignup("admit", "-m", "xeon-2s", "--node-name", "n1", "--json", listed)
    assert [line["pod"] for line in ended.lines] == ["a"]
    assert "pod default/b has ended (Succeeded) and is ignored" in ended.err
    assert "1 pod of other nodes than n1 ignored" in ended.err


def test_memory_that_an_init_container_handed_on_is_not_shown(alignup, write) -> None:
    """The container after it has it now."""
    pod = {
        "metadata": {"name": "p"},
        "spec": {"initContainers": [{**SPEC["containers"][0], "name": "i"}], **SPEC},
    }
    ended = alignup("admit", "-m", "xeon-2s", write("p.json", pod))

    assert ended.status == 0
    assert "memory 0" not in ended.out
    assert "memory 1Gi @ 0" in ended.out


def test_policies_of_containers_are_ignored_unless_they_are_asked_for(alignup, write) -> None:
    """A kubelet does not read them either."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"alignup.dev/policies": '{"c": "best-effort"}'}},
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "130", "memory": "1Gi"}}}]
        },
    }

    arguments = (
        "admit",
        "-m",
        "dgx-h100",
        write("pod.json", pod),
        "--config",
        write("config.json", WIDE),
    )

    ignored, judged = alignup(*arguments), alignup(*arguments, "--beyond-kubelet")
    assert (ignored.status, judged.status) == (1, 0)
    assert (
        "default/p: alignup.dev/policies is ignored, as by a kubelet; see --beyond-kubelet"
        in ignored.err
    )
    assert "alignup.dev/policies" not in judged.err


def test_a_runtime_class_among_the_manifests_names_a_policy_for_its_pods(alignup, write) -> None:
    """What a pod says itself goes before; nothing of it counts for a kubelet."""
    kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runc"}
    loose = {
        **kind,
        "metadata": {"name": "loose", "annotations": {"alignup.dev/policies": "best-effort"}},
    }
    plain = {**kind, "metadata": {"name": "plain"}}

    def pod(name, runtime_class, annotations=None):
        containers = [{"name": "c", "resources": {"limits": {"cpu": "130", "memory": "1Gi"}}}]
        spec = {"runtimeClassName": runtime_class, "containers": containers}
        return {"kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": spec}

    strict = {"alignup.dev/policies": '{"c": "single-numa-node"}'}
    pods = [pod("b", "plain"), pod("c", "loose", strict)]
    deployment = {
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"template": pod("x", "loose")},
    }
    files = write("pods.json", {"kind": "List", "items": [*pods, deployment, loose, plain]})
    config = {**WIDE, "topologyManagerPolicy": "single-numa-node"}
    arguments = (
        "admit",
        "-m",
        "dgx-h100",
        files,
        "--config",
        write("config.json", config),
        "--json",
    )
    wide = {"b": False, "c": False, "d": True}
    for beyond, expected in (((), dict.fromkeys(wide, False)), (("--beyond-kubelet",), wide)):
        ended = alignup(*arguments, *beyond)
        assert {
            line["pod"].rpartition("/")[2]: line["admitted"] for line in ended.lines
        } == expected
        said = {
            name
            for name in "bcd"
            if f"default/{name}" in ended.err and "policies is ignored" in ended.err
        }
        assert said == (set() if beyond else {"c", "d"})


def test_a_runtime_class_may_be_in_a_file_of_its_own(alignup, write) -> None:
    """Before its pods or behind them; alone it is nothing to admit."""
    containers = [{"name": "c", "resources": {"limits": {"cpu": "130", "memory": "1Gi"}}}]
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"runtimeClassName": "loose", "containers": containers},
    }
    loose = {"name": "loose", "annotations": {"alignup.dev/policies": "best-effort"}}
    kind = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "handler": "runc",
        "metadata": loose,
    }
    files = [write("pod.json", pod), write("class.json", kind)]
    arguments = ("admit", "-m", "dgx-h100", "--config", write("config.json", WIDE))
    for order in (files, files[::-1]):
        assert alignup(*arguments, *order, "--beyond-kubelet").status == 0
        ignored = alignup(*arguments, *order)
        assert (
            ignored.status,
            "alignup.dev/policies is ignored, as by a kubelet" in ignored.err,
        ) == (1, True)

    alone = alignup(*arguments, files[1], files[1], "--beyond-kubelet")
    assert alone.complains(f"there is no Pod in {files[1]}, {files[1]}")


def test_which_cpus_pods_of_the_shared_pool_run_on_is_said(alignup, write):
    amounts = {"cpu": "7", "memory": "1Gi"}
    big = {
        "metadata": {"name": "big"},
        "spec": {
            "containers": [
                {"name": "c", "image": "i", "resources": {"limits": amounts, "requests": amounts}}
            ]
        },
    }
    small = {
        "metadata": {"name": "small"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    cores = [{"cpus": [cpu], "socket": 0} for cpu in range(8)]
    machine = write("machine.json", {"numaNodes": [{"id": 0, "memory": 1 << 33, "cores": cores}]})
    kubelet = {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
    }
    options = {"strict-cpu-reservation": "true"}
    strict = write("strict.json", {**kubelet, "cpuManagerPolicyOptions": options})
    plain = write("plain.json", kubelet)
    pods = [
        write(f"{pod['metadata']['name']}.json", {"apiVersion": "v1", "kind": "Pod", **pod})
        for pod in (big, small)
    ]

    shown = alignup("admit", "-m", machine, "-c", strict, *pods)
    assert shown.status == 0
    assert "shared pool: CPUs none\n  the shared pool is empty" in shown.out
    assert "reserve them without strict-cpu-reservation" in shown.out

    shown = alignup("admit", "-m", machine, "-c", plain, *pods)
    assert "shared pool: CPUs 0\n  containers without CPUs of their own run on CPUs 0, the res" in (
        shown.out
    )
    assert alignup("admit", "-m", machine, "-c", plain, pods[0]).out.endswith("pool: CPUs 0\n")

    for line in alignup("admit", "--json", "-m", machine, "-c", strict, *pods).lines:
        assert line["notes"][0].startswith("the shared pool is empty")
        assert len(line["notes"]) == 2  # what follows, and how to keep CPUs in it

    lines = alignup("admit", "--json", "-m", machine, "-c", plain, *pods).lines
    assert [len(line.get("notes", ())) for line in lines] == [0, 1]
