"""The readers that the campaign of mutated inputs tries.

For each, what makes an input, and what reads it.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import tarfile
from pathlib import Path

import yaml

from alignup.cluster import Cluster, read_node_resource_topologies
from alignup.cluster.traces import read_trace
from alignup.host.leases.file import LeaseFile, checksum, decode_table, encode_table
from alignup.host.leases.record import LeaseTable, MachineIdentity, Waiter
from alignup.kubelet.node_resource_topology.read import read_topologies
from alignup.kubernetes.kubelet_config import load_config
from alignup.kubernetes.pod_documents import read_pod_documents
from alignup.kubernetes.quantity import parse_quantity
from alignup.machine.archive import load_snapshot
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import decode_inventory
from alignup.machine.hwloc_xml import machine_from_hwloc_xml
from alignup.machine.load import load_machine
from alignup.machine.machine import Machine
from alignup.machine.sysfs.machine import describe
from alignup.machine.sysfs.tree import MemoryTree
from alignup.node import Node
from alignup.replay import replay
from alignup.text.documents import read_documents
from alignup.text.json_text import decode_json
from inputs import kernel_trees, leasing
from inputs.cluster_files import TOPOLOGY, node_line, pod_manifest
from inputs.kubelet_mutations import a_kubelet_node, read_node
from inputs.mutation import as_json, mutated_bytes, mutated_document, mutated_files

__all__ = ["READERS"]

POD = pod_manifest("one", cpus=3, gpu=1)
POD["spec"]["initContainers"] = [
    {
        "name": "i",
        "restartPolicy": "Always",
        "resources": {
            "requests": {"cpu": "500m", "hugepages-2Mi": "4Mi"},
            "limits": {"hugepages-2Mi": "4Mi"},
        },
    }
]
POD["spec"]["resources"] = {"limits": {"cpu": "8", "memory": "4Gi", "hugepages-2Mi": "4Mi"}}
POD["metadata"]["annotations"] = {
    "scheduling.koordinator.sh/resource-spec": '{"preferredCPUBindPolicy": "FullPCPUs"}',
    "scheduling.koordinator.sh/numa-topology-spec": '{"numaTopologyPolicy": "Restricted"}',
}
CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "topologyManagerPolicy": "restricted",
    "topologyManagerScope": "pod",
    "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    "reservedSystemCPUs": "0,4",
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}],
    "kubeReserved": {"cpu": "1", "memory": "512Mi"},
    "systemReserved": {"memory": "512Mi"},
    "evictionHard": {"memory.available": "100Mi"},
    "featureGates": {"CPUManagerPolicyAlphaOptions": True},
}
MACHINE = leasing.machine(cores=2).to_dict()
DEVICES = {
    "example.com/gpu": [
        {"id": "a", "numa": [0]},
        {"id": "b", "numa": [1], "healthy": True},
        {"id": "c"},
    ]
}
API_NODE = {
    "kind": "Node",
    "metadata": {"name": "worker-a", "labels": {"zone": "z"}},
    "status": {"nodeInfo": {"kubeletVersion": "v1.33.4-eks-1"}},
}
SCENARIO = {
    "name": "s",
    "machine": MACHINE,
    "kubelet": {
        key: CONFIG[key]
        for key in CONFIG
        if key.startswith(("topology", "cpu", "memory", "reserved"))
    },
    "devices": DEVICES,
    "preferredSets": {"example.com/gpu": [["a", "b"]]},
    "nodeObject": API_NODE,
    "steps": [{"admit": POD}, {"admit": pod_manifest("two", gpu=1)}, {"remove": "one"}],
}
NODES = [
    json.loads(node_line(name, cores=2, pods=[pod_manifest("x", cpus=1)])) for name in ("n", "m")
]
TOPOLOGIES = yaml.safe_load(TOPOLOGY)
TOPOLOGIES["items"].append(API_NODE)
TRACE = [{"time": 0, "admit": POD, "duration": 2.5}, {"time": 1.5, "remove": "one"}]
FILES = kernel_trees.server() | kernel_trees.pci("0000:01:00.0", numa_node="-1", local_cpus="ff")
FILES["proc/cpuinfo"] = "processor : 0\nvendor_id : AuthenticAMD\ncpu family : 21\n"
HWLOC = b"""<?xml version="1.0" encoding="UTF-8"?><topology version="2.0">
<object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000001f">
<object type="Package" os_index="0" cpuset="0x3"><object type="L3Cache" cpuset="0x3" depth="3">
<object type="NUMANode" os_index="0" cpuset="0x3" local_memory="1073741824">\
<page_type size="4096" count="9"/>
<page_type size="2097152" count="4"/></object>
<object type="Core" cpuset="0x3"><object type="PU" os_index="0" cpuset="0x1"/>
<object type="PU" os_index="1" cpuset="0x2"/></object></object></object>\
<object type="Package" cpuset="0xc">
<object type="NUMANode" os_index="2" cpuset="0xc" local_memory="1073741824"/>\
<object type="PU" cpuset="0x4"/>
<object type="PU" cpuset="0x8"/>\
<object type="PCIDev" pci_busid="0000:01:00.0" pci_type="0302 [10de:2330] [0:0] a1"/>
</object></object><distances2 type="NUMANode" nbobjs="2" kind="5" indexing="os">\
<indexes length="4">0 2 </indexes>
<u64values length="9">10 21 21 10 </u64values></distances2>
<distances nbobjs="2" relative_depth="1" latency_base="10.0">\
<latency value="1"/><latency value="2.1"/>
<latency value="2.1"/><latency value="1"/></distances></topology>"""
LISTS = (b"0-3,8", b"0-31:2,64-95", b"0", b"", b"0-65535", b"7,3,1-2\n")
QUANTITIES = (
    "500m",
    "4Gi",
    "1e3",
    "0.5",
    "12345678901234567890",
    "-1",
    "1.5Ki",
    "+2",
    "2E",
    "1e-9",
)


def json_of(document):
    """Return what makes mutated JSON of a document."""
    return lambda rng: as_json(mutated_document(document, rng), rng)


def json_lines_of(documents):
    """Return what makes JSON lines, one or more of them mutated."""

    def make(rng):
        lines = [
            mutated_document(document, rng) if rng.random() < 0.6 else document
            for document in documents
        ]
        return b"\n".join(
            as_json(line, rng) if rng.random() < 0.9 else json.dumps(line).encode()
            for line in lines
        )

    return make


def yaml_of(document):
    """Return what makes mutated YAML of a document: its values, then at times its text.

    JSON now and then.
    """

    def make(rng):
        changed = mutated_document(document, rng)
        if rng.random() < 0.3:
            return as_json(changed, rng)
        try:
            text = yaml.dump(changed, Dumper=yaml.CSafeDumper).encode("utf-8", "replace")
        except (yaml.YAMLError, ValueError):
            return as_json(changed, rng)
        if rng.random() < 0.5:
            return mutated_bytes(text, rng)
        return text

    return make


def bytes_of(*seeds):
    """Return what makes mutated bytes of some texts."""
    return lambda rng: mutated_bytes(rng.choice(seeds), rng)


def an_archive(rng):
    """Return an archive of mutated files, whose headers are mutated too at times."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=rng.choice([0, 1, 2])) as archive:
        for name, text in mutated_files(FILES, rng).items():
            member = tarfile.TarInfo(f"box/{name}"[:90])
            data = text.encode("ascii", "replace")
            member.size = len(data)
            if rng.random() < 0.02:
                member.pax_headers = {
                    rng.choice(["size", "GNU.sparse.size", "path", "x"]): rng.choice(
                        ["-9", "abc", "9" * 99]
                    )
                }

            archive.addfile(member, io.BytesIO(data))

    data = packed.getvalue()
    if rng.random() < 0.7:
        data = mutated_bytes(data[: 512 * rng.randint(1, 40)], rng)

    way = rng.randrange(4)
    if way == 0:
        packed = gzip.compress(data, 1)
    elif way == 1:
        packed = lzma.compress(data, preset=0)
    else:
        packed = data

    if rng.random() < 0.2:
        return mutated_bytes(packed, rng)
    return packed


def a_lease_file(rng):
    """Return a file of leases: a mutated table with a checksum that fits, or a mutated text."""
    mine = leasing.record("one").process
    table = LeaseTable(
        MachineIdentity("m", "a machine"),
        (
            leasing.record("one", cpus=CPUSet([0, 1]), devices={"x/y": ("a",)}),
            leasing.record("two", keeper=mine),
        ),
        (Waiter("w", mine, ("cpu",)),),
    )
    text = encode_table(table)
    if rng.random() < 0.5:
        return mutated_bytes(text, rng)

    inner = as_json(mutated_document(json.loads(text)["table"], rng), rng)
    return b'{"version":1,"checksum":"%s","table":%s}\n' % (checksum(inner).encode(), inner)


class File:
    """Hands bytes to a reader of files."""

    def __init__(self, read, name):
        self.read = read
        # ours, and gone with the reading
        self.path = Path(f"/dev/shm/alignup-{os.getpid()}-{name}")  # noqa: S108

    def __call__(self, data):
        """Let the reader read the file."""
        self.path.write_bytes(data)
        try:
            return self.read(self.path)
        finally:
            for left in self.path.parent.glob(f"{self.path.name}*"):
                left.unlink()


def node_on(machine):
    """Return a node on a machine that a reader accepted, and what is written of it."""
    Node(machine, {"topologyManagerPolicy": "restricted"})
    return Machine.from_dict(machine.to_dict())


def with_pods(data):
    """Read pods and admit them."""
    node = Node.from_dict({key: SCENARIO[key] for key in ("machine", "kubelet", "devices")})
    for document in read_pod_documents(data, "f"):
        if document.pod.uid not in {pod.uid for pod in node.manager.pods}:
            node.admit(document.pod)


def change_leases(path):
    """Read a file of leases and change it."""
    messages = []
    file = LeaseFile(path, messages.append)
    file.read()
    leasing.put(file, leasing.record("new"))
    if not file.read().leases:
        raise AssertionError("the new lease is not there")


def one_mapping(data):
    """Return the one document of a text."""
    documents = read_documents(data, "f")
    if documents:
        return documents[0]
    return None


def evaluated(data):
    """Read the nodes of a cluster and ask them about a pod."""
    return Cluster.from_json_lines(data, "f").evaluate(POD)


READERS = {
    "pods": (yaml_of(POD), with_pods),
    "configuration": (yaml_of(CONFIG), lambda data: load_config(data, "f")),
    "inventory": (
        yaml_of(DEVICES),
        lambda data: decode_inventory(one_mapping(data), Machine.from_dict(MACHINE)),
    ),
    "machine": (
        json_of(MACHINE),
        File(lambda path: node_on(load_machine(str(path)).machine), "m.json"),
    ),
    "scenario": (
        json_of(SCENARIO),
        lambda data: replay(decode_json(data, "a scenario"), with_hints=True),
    ),
    "nodes": (json_lines_of(NODES), evaluated),
    "trace": (json_lines_of(TRACE), lambda data: read_trace(data, "f")),
    "topologies": (
        yaml_of(TOPOLOGIES),
        lambda data: read_node_resource_topologies(data).evaluate(POD) and read_topologies(data),
    ),
    "hwloc": (bytes_of(HWLOC), lambda data: node_on(machine_from_hwloc_xml(data))),
    "sysfs": (
        lambda rng: mutated_files(FILES, rng),
        lambda files: node_on(describe(MemoryTree("t", files))),
    ),
    "snapshot": (an_archive, File(lambda path: node_on(describe(load_snapshot(path))), "s.tar")),
    "cpulist": (bytes_of(*LISTS), lambda data: str(CPUSet.parse(data.decode(errors="replace")))),
    "quantity": (
        lambda rng: mutated_document([rng.choice(QUANTITIES)], rng),
        lambda value: parse_quantity(value[0] if isinstance(value, list) and value else value),
    ),
    "kubelet node": (a_kubelet_node, read_node),
    "lease texts": (a_lease_file, lambda data: decode_table(data, "f")),
    "lease files": (a_lease_file, File(change_leases, "l.json")),
}
"""By name: a function that makes an input of a generator, and one that reads it."""
