"""PodResources of an agent is read as that of a kubelet."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import grpc
import pytest

from alignup.errors import InputError
from alignup.host.leases.request import LeaseRequest, make_request
from alignup.host.processes.identity import identify
from alignup.kubelet import pod_resources_pb2 as wire
from alignup.kubelet.pod_resources import allocatable_from_wire, plain_answer, pods_from_wire
from alignup.kubelet.pod_resources_client import ask_kubelet
from alignup.kubelet.pod_resources_server import serve_pod_resources
from alignup.machine.cpuset import CPUSet
from fakes.device_plugins import short_folder
from inputs import leasing
from running.agents import client, running_agent

READER = Path(os.environ.get("ALIGNUP_PLUGIN_PROGRAMS", "")) / "pod-resources"


@pytest.fixture
def socket():
    """Serve an agent with one lease; return the socket of its PodResources."""
    with (
        short_folder() as folder,
        running_agent(folder, pod_resources=folder / "r" / "kubelet.sock"),
    ):
        request = make_request(cpus=3, memory="1Gi", devices={leasing.GPU: 2}, name="lease")
        client(folder).acquire(LeaseRequest(request, identify(os.getpid()), command="", name="x"))
        yield folder / "r" / "kubelet.sock"


def get(socket, namespace, name):
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        method = channel.unary_unary(
            "/v1.PodResourcesLister/Get",
            wire.PodQuestion.SerializeToString,
            wire.PodAnswer.FromString,
        )
        return method(
            wire.PodQuestion(pod_namespace=namespace, pod_name=name), timeout=60
        ).pod_resources


def test_leases_are_pods(socket):
    listed, allocatable = map(plain_answer, ask_kubelet(socket))
    (pod,) = pods_from_wire(listed, "the answer")
    resources = allocatable_from_wire(allocatable, "the answer")

    (container,) = pod.containers
    assert (pod.namespace, pod.name, container.name) == (f"user-{os.geteuid()}", "lease", "command")
    assert (str(container.cpus), dict(container.devices)) == (
        "0-1,8",
        {leasing.GPU: ("gpu0", "gpu1")},
    )
    assert [(block.size, tuple(block.numa_nodes)) for block in container.memory] == [
        (leasing.GI, (0,))
    ]

    assert resources.cpus == CPUSet(range(16))
    assert [device.id for device in resources.devices[leasing.GPU]] == [
        "gpu0",
        "gpu1",
        "gpu2",
        "gpu3",
    ]
    assert [block.size for block in resources.memory] == [16 * leasing.GI] * 2


def test_one_pod_is_found_by_its_name(socket):
    assert get(socket, f"user-{os.geteuid()}", "lease").containers[0].cpu_ids == [0, 1, 8]
    with pytest.raises(grpc.RpcError) as caught:
        get(socket, "user-1", "lease")
    assert caught.value.code() is grpc.StatusCode.UNKNOWN
    assert caught.value.details() == "pod lease in namespace user-1 not found"


def test_a_place_that_cannot_be_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot serve PodResources"):
        serve_pod_resources({tmp_path / "file" / "x": tuple}, None, "--podresources")


@pytest.mark.slow
@pytest.mark.rig
@pytest.mark.skipif(
    not READER.exists(), reason="ALIGNUP_PLUGIN_PROGRAMS names no folder with pod-resources"
)
def test_a_client_of_kubernetes_reads_it(socket):
    def read(*words):
        command = [READER, socket, *words]
        done = subprocess.run(command, capture_output=True, check=True, timeout=60)  # noqa: S603
        return json.loads(done.stdout)

    (pod,) = read("list")["pod_resources"]
    assert pod["name"] == "lease"
    assert pod["containers"][0]["cpu_ids"] == ["0", "1", "8"]
    assert pod["containers"][0]["devices"][0]["topology"]["nodes"] == [{"ID": "0"}]
    assert len(read("allocatable")["cpu_ids"]) == 16
    assert read("get", pod["namespace"], "lease")["pod_resources"] == pod
