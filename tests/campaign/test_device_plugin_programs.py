"""Device plugins that are programs of others register, are asked, and come back after a restart.

`ALIGNUP_PLUGIN_PROGRAMS` names a folder with `device-plugin`, which offers the devices of a file
and logs its calls as JSON lines, and `sample-device-plugin` of Kubernetes; without it there is
nothing to try.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from alignup.errors import AlignupError
from alignup.host.device_plugins.plugins import DevicePlugins
from alignup.host.leases.request import LeaseRequest, make_request
from alignup.host.processes.identity import identify
from alignup.kubernetes.pod import Container, Pod
from alignup.machine.device_inventory import Device
from alignup.node import Node
from fakes.device_plugins import short_folder
from inputs import leasing
from running.agents import LONG, client, eventually, running_agent

PROGRAMS = Path(os.environ.get("ALIGNUP_PLUGIN_PROGRAMS", ""))
GPU, SAMPLE = "nvidia.com/gpu", "example.com/resource"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rig,
    pytest.mark.skipif(
        "ALIGNUP_PLUGIN_PROGRAMS" not in os.environ, reason="ALIGNUP_PLUGIN_PROGRAMS is not set"
    ),
]

KUBELET = "/var/lib/kubelet/device-plugins"

AT_THE_KUBELETS = (
    f"mount -t tmpfs none /var/lib && mkdir -p {KUBELET} && mount --bind $1 {KUBELET} && exec $2"
)
"""The sample plugin registers in the kubelet's folder only.

In its own mount namespace that is another one.
"""


@contextmanager
def program(name, *arguments, **variables):
    process = subprocess.Popen(  # noqa: S603  # a test's own
        [name, *map(str, arguments)], env={**os.environ, **variables}, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def folder():
    with short_folder() as path:
        yield path


def offer(folder, **health):
    """Write the inventory that the plugin offers; it looks at it twice a second."""
    devices = [
        {"id": f"gpu{i}", "numa": [i // 2], "healthy": health.get(f"gpu{i}", True)}
        for i in range(4)
    ]
    path = folder / "gpu.json"
    path.write_text(
        json.dumps({"resource": GPU, "devices": devices, "preferred": True, "prestart": True})
    )
    return path


def calls(folder):
    """Return the calls that the plugin has logged, without those before a container came."""
    lines = map(json.loads, (folder / "log").read_text().splitlines())
    return [
        (line["call"], line["request"])
        for line in lines
        if line["call"] not in {"Register", "ListAndWatch"}
    ]


def pod(resource, count, uid="pod"):
    devices = ((resource, count),)
    return Pod(uid=uid, name=uid, containers=(Container("c", devices=devices),), devices=devices)


def test_a_node_is_fed_by_a_program(folder):
    path = offer(folder)
    sockets = folder / "p"
    arguments = ("-folder", sockets, "-inventory", path, "-log", folder / "log")
    with program(PROGRAMS / "device-plugin", *arguments), DevicePlugins(sockets) as plugins:
        plugins.wait_for([GPU], LONG)
        node = Node(leasing.machine(), {"topologyManagerPolicy": "restricted"}, {GPU: ()})
        plugins.feed(node)

        devices = node.admit(pod(GPU, 1)).containers["c"].devices
        assert devices == {GPU: ("gpu0",)}
        assert plugins.allocate(devices).environment == {"DEVICES_NVIDIA_COM_GPU": "gpu0"}
        plugins.pre_start(devices)
        assert node.admit(pod(GPU, 2, "two")).containers["c"].devices == {GPU: ("gpu2", "gpu3")}
        assert [name for name, _ in calls(folder)] == [
            "GetDevicePluginOptions",
            "GetPreferredAllocation",
            "Allocate",
            "PreStartContainer",
        ]
        _, request = calls(folder)[1]
        assert request["container_requests"][0]["allocation_size"] == 1

        offer(folder, gpu1=False)
        eventually(lambda: Device("gpu1", (0,), healthy=False) in plugins.inventory()[GPU])
        assert node.devices.free == {GPU: ()}


def test_a_program_registers_again_after_a_restart(folder):
    path = offer(folder)
    sockets = folder / "p"
    arguments = ("-folder", sockets, "-inventory", path, "-log", folder / "log")
    with program(PROGRAMS / "device-plugin", *arguments) as process:
        for _ in range(2):
            with DevicePlugins(sockets) as plugins:
                plugins.wait_for([GPU], LONG)
                eventually(lambda: len(plugins.inventory()[GPU]) == 4)  # asked at once

        with DevicePlugins(sockets) as plugins:
            plugins.wait_for([GPU], LONG)
            process.kill()
            eventually(lambda: not any(device.healthy for device in plugins.inventory()[GPU]))
            with program(PROGRAMS / "device-plugin", *arguments):
                # it registers when the folder's socket is made anew, or when it starts
                eventually(lambda: all(device.healthy for device in plugins.inventory()[GPU]))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a mount namespace")
def test_an_agent_gives_the_devices_of_the_sample_plugin(folder):
    sockets = folder / "p"
    sockets.mkdir()
    command = (
        "unshare",
        "--mount",
        "sh",
        "-c",
        AT_THE_KUBELETS,
        "sh",
        str(sockets),
        str(PROGRAMS / "sample-device-plugin"),
    )
    with (
        running_agent(folder, device_plugins=sockets),
        program(*command, PLUGIN_SOCK_DIR=f"{KUBELET}/"),
    ):
        source = client(folder)
        request = LeaseRequest(
            make_request(devices={SAMPLE: 1}), identify(os.getpid()), command="", name="x"
        )
        end = time.monotonic() + LONG
        while True:
            try:
                grant = source.acquire(request, LONG)
                break
            except AlignupError:
                assert time.monotonic() < end
                time.sleep(0.1)

        (identity,) = grant.lease.devices[SAMPLE]
        assert identity in {"Dev-1", "Dev-2"}
        answer = json.loads(grant.environment()["ALIGNUP_DEVICE_ANSWER"])
        (mount,) = answer["mounts"]
        assert mount["containerPath"] == mount["hostPath"]
        assert mount["hostPath"].endswith(f"/{identity}")
