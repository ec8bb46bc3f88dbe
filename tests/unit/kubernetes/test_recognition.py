"""What a text is that has no pods to read."""

from __future__ import annotations

import json

import pytest

from alignup.errors import InputError
from alignup.kubernetes.pod_documents import read_pod_documents
from alignup.kubernetes.recognition import recognised

WORDS = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices a.b/c"
REJECTED = f"""\
Name:             zigbee-5984
Namespace:        default
Status:           Failed
Reason:           UnexpectedAdmissionError
Message:          Pod was rejected: {WORDS}
Events:
  Type     Reason                    Age   From     Message
  ----     ------                    ----  ----     -------
  Warning  UnexpectedAdmissionError  48s   kubelet  {WORDS}
"""
PENDING = """\
$ kubectl describe pod web-0
Name:             web-0
Namespace:        prod
Status:           Pending
Containers:
  c:
    Limits:
      cpu:     4
Events:
  Type     Reason            Age                 From               Message
  ----     ------            ----                ----               -------
  Warning  FailedScheduling  5m12s (x3 over 6m)  default-scheduler  0/3 nodes are fit
"""
RUNNING = "Name:  web-1\nNamespace:  prod\nStatus:  Running\nEvents:  <none>\n"
NODE = "Name:  node1\nRoles:  <none>\nCapacity:\n  cpu:  8\nAllocatable:\n  cpu:  8\n"
PODS = """\
NAME          READY   STATUS                     RESTARTS     AGE
zigbee-5984   0/1     UnexpectedAdmissionError   0            48s
web-0         1/1     Running                    5 (3d ago)   3d
big-0         0/1     OutOfcpu                   0            1s
"""
WIDE = """\
NAMESPACE   NAME      READY   STATUS                  RESTARTS   AGE   IP       NODE
ml          train-0   0/1     TopologyAffinityError   0          5m    <none>   node1
"""
EVENTS = f"""\
LAST SEEN   TYPE      REASON                     OBJECT        MESSAGE
48s         Warning   UnexpectedAdmissionError   pod/zigbee    {WORDS}
10m         Normal    Scheduled                  pod/zigbee    Successfully assigned default/zigbee
"""
EVENTS_OF_ALL = """\
NAMESPACE   LAST SEEN   TYPE      REASON                  OBJECT     MESSAGE
ml          48s         Warning   TopologyAffinityError   pod/t-0    Resources cannot be  allocated
"""
EVENTS_OF_A_POD = """\
Events:
  Type     Reason                 Age   From               Message
  ----     ------                 ----  ----               -------
  Normal   Scheduled              10s   default-scheduler  Successfully assigned default/p to node1
  Warning  TopologyAffinityError  10s   kubelet            Resources cannot be allocated
"""

PRINTED = [
    (REJECTED, ["`kubectl describe` prints", "pod default/zigbee-5984: UnexpectedAdm", WORDS]),
    (REJECTED, ["kubectl get pod zigbee-5984 -n default -o yaml > pod.yaml"]),
    (PENDING, ["pod prod/web-0: FailedScheduling", '("0/3 nodes are fit")']),
    (RUNNING, ["from which no requests can be read. For the rest: kubectl get pod web-1 -n prod"]),
    (RUNNING + "\n" + REJECTED, ["pod default/zigbee-5984: UnexpectedAdmissionError"]),
    (NODE, ["prints of node node1: `alignup node collect`"]),
    (PODS, ["the table of `kubectl get pods`", "pod zigbee-5984: UnexpectedAdmissionError; pod "]),
    (PODS, ["pod big-0: OutOfcpu", "kubectl get pod zigbee-5984 -o yaml"]),
    ("$ kubectl get pods -A -o wide\n" + WIDE, ["pod ml/train-0: TopologyAffinityError", "-n ml"]),
    (EVENTS, ["the table of `kubectl get events`", "pod zigbee: UnexpectedAdmissionError", WORDS]),
    (EVENTS_OF_ALL, ["pod ml/t-0: TopologyAffinityError", "be  allocated"]),
    (EVENTS_OF_A_POD, ["the Events of `kubectl describe`", "kubectl get pod NAME -o yaml"]),
    # kubernetes#83775
    (
        PODS.replace("UnexpectedAdmissionError", "Topology Affinity Error "),
        ["pod zigbee-5984: Topology Affinity Error"],
    ),
    (
        PODS + "".join(f"p-{number}  0/1  OutOfcpu  0  1s\n" for number in range(4)),
        ["and 3 more refusals"],
    ),
]


@pytest.mark.parametrize(("text", "words"), PRINTED)
def test_what_kubectl_prints_for_people_is_told_with_the_command_for_the_rest(text, words):
    for part in (text, text.encode(), "\ufeff" + text, text.replace("\n", "\r\n")):
        with pytest.raises(InputError) as error:
            read_pod_documents(part, "f.txt")
        assert str(error.value).startswith("f.txt is ")
        for word in words:
            assert word in str(error.value)


TEXTS = [
    ('I0711 09:00:00.000001    1000 kubelet.go:2306] "Pod admission denied"', "explain --log f"),
    ('Jul 1 n kubelet[1]: E0711 09:00:00.000001 1 run.go:72] "command failed"', "explain --log f"),
    ('{"ts":1.0,"caller":"app/server.go:545","msg":"Kubelet version"}', "explain --log f"),
    ('10.0.0.9: {"ts":1.0,"caller":"kubelet/kubelet.go:1480","msg":"Failed"}', "--log f"),
    ("Architecture:        x86_64\nCPU(s):  8\n", "-m f pod.yaml"),
    ("CPU NODE SOCKET CORE\n  0    0      0    0\n", "-m f pod.yaml"),
    ("available: 2 nodes (0-1)\nnode 0 cpus: 0 1\n", "-m f pod.yaml"),
    ("NUMA node0 CPU(s): 0-3\nNUMA node1 CPU(s): 4-7\n", "-m f pod.yaml"),
    ("  NUMA node0 CPU(s):  0-3\n", "-m f pod.yaml"),
    ("node 0 cpus: 0 1 2\nnode 0 size: 4000 MB\n", "-m f pod.yaml"),
    ("--cpu-manager-policy=static --kube-reserved=cpu=1", "flags of a program"),
    ("/usr/bin/kubelet --v=2 --cpu-manager-policy static", "by --config"),
    ("kubeletConfig: {cpuManagerPolicy: static}\n", "is a kubelet's configuration: --config"),
    ('{"topologyManagerPolicy": "restricted"}', "is a kubelet's configuration: --config"),
    ("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV1\t0-3\n", "-m f pod.yaml"),
    ("NAME  STATUS   ROLES    AGE   VERSION\nn1    Ready    <none>   1d    v1.30\n", "a table"),
    ("NAME       DESIRED   AGE\nset        2         1d\n", "a table that kubectl prints"),
    ("#!/bin/sh\necho hi\n", "a script"),
    ("<!DOCTYPE html><html></html>", "a page of HTML"),
    ("\x7fELF...", "a binary file"),
    (b"\0\1\2", "a binary file"),
    (b"\xfd7zXZ\0", "an archive"),
    (EVENTS.encode("utf-16"), "events"),
    ('{"numaNodes": []}', "a machine: --machine"),
    ('{"policyName": "none", "checksum": 1}', "alignup node check"),
    ("machine: xeon-2s\nsteps: []\n", "alignup replay"),
    ('{"nvidia.com/gpu": [{"id": "a", "numa": 0}]}', "--devices"),
    ("kind: KubeletConfiguration\n", "it has a kubelet's configuration: --config"),
    ("kind: ResourceSlice\n", "`alignup claims`"),
    ("kind: NodeList\nitems: [{kind: Node}]\n", "it has a Node"),
]


@pytest.mark.parametrize(("text", "words"), TEXTS)
@pytest.mark.filterwarnings("ignore:f. ignored objects")
def test_another_file_is_told_with_what_reads_it(text, words):
    if isinstance(text, str) and text.startswith("\x7f"):
        text = text.encode()

    with pytest.raises(InputError, match=r"^f is |^there is no Pod in f: it has ") as error:
        read_pod_documents(text, "f")
    assert words in str(error.value)


@pytest.mark.filterwarnings("ignore:f. ignored objects")
def test_events_as_objects_are_quoted():
    event = {
        "kind": "Event",
        "involvedObject": {"kind": "Pod", "namespace": "d", "name": "p"},
        "reason": "TopologyAffinityError",
        "message": "Resources cannot be allocated",
    }
    normal = {"kind": "Event", "reason": "Scheduled", "note": "Successfully assigned"}
    text = json.dumps({"kind": "List", "items": [normal, event, 3]})
    with pytest.raises(InputError, match="a Pod manifest, which is a mapping"):
        read_pod_documents(text, "f")

    text = json.dumps({"kind": "EventList", "items": [normal, event, event]})
    with pytest.raises(InputError) as error:
        read_pod_documents(text, "f")
    assert 'pod d/p: TopologyAffinityError ("Resources cannot be allocated").' in str(error.value)
    assert "Successfully" not in str(error.value)


POD = "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c}]}\n"


@pytest.mark.parametrize("quoted", [text for text, _ in PRINTED] + [TEXTS[0][0], TEXTS[3][0]])
def test_a_manifest_may_quote_all_of_these(quoted):
    comment = "".join(f"# {line}\n" for line in quoted.splitlines())
    text = "".join(f"    {line}\n" for line in quoted.splitlines())
    for manifest in (
        comment + POD,
        POD + comment,
        f"status:\n  message: |\n{text}" + POD,
        json.dumps(
            {
                "kind": "Pod",
                "metadata": {"name": "a", "annotations": {"a": quoted}},
                "spec": {"containers": [{"name": "c"}]},
            },
            indent=1,
        ),
    ):
        [document] = read_pod_documents(manifest, "f")
        assert document.pod.name == "a"


@pytest.mark.parametrize("text", ["", "just words", "a,b\n1,2\n", "key: value\n", "[1, 2]"])
def test_what_nothing_is_known_of_is_not_named(text):
    assert recognised(text, "f") == ""


HOSTILE = [
    " ",
    "\n",
    "\t",
    "Name: ",
    "Reason:  ",
    "NAME AGE  ",
    "LAST SEEN REASON ",
    "Machine (total ",
    "E0711 09:00:00.1",
    "\x1b[m",
    "Name: a\nStatus: b\n",
]


@pytest.mark.parametrize("part", HOSTILE)
def test_long_texts_are_looked_at_once(part):
    """Patterns that go back for each letter would not end within the time of the whole suite."""
    recognised(part * (200_000 // len(part)), "f")
