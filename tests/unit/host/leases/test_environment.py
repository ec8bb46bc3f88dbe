"""What a process is told of what it has."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from alignup.errors import InputError
from alignup.host.device_plugins.answer import DeviceAnswer, Mount
from alignup.host.leases.agent_messages import Grant
from alignup.host.leases.evidence import Evidence
from alignup.host.leases.record import MemoryShare, lease_decoder
from alignup.host.parts.part import device_variable, variables, visible_variables
from alignup.machine.cpuset import CPUSet
from alignup.machine.machine import PciDevice
from inputs import leasing

HOSTILE = "LD_PRELOAD LD_LIBRARY_PATH PATH PYTHONPATH PYTHONSTARTUP IFS HOME BASH_ENV ENV PERL5LIB"

MORE = (
    "ALIGNUP_AGENT NODE_OPTIONS GCONV_PATH GLIBC_TUNABLES CUDA_INJECTION64_PATH BASH_FUNC_ls%% "
    "PS4 TMPDIR"
)


def lease_variables(lease, cuda, *, is_own=True):
    return Grant(
        lease, leasing.site().identity, "/s.json", (), is_here=True, cuda=cuda, is_own=is_own
    ).environment()


def told(site, **fields):
    fields = {"cpus": CPUSet(), "numa_nodes": (), "memory": 0, "devices": {}, **fields}
    return {
        **variables(**fields),
        **visible_variables(fields["devices"], site.inventory, site.machine),
    }


def test_all_that_is_had_is_told_and_nothing_else():
    """Empty variables would be taken for something."""
    site = leasing.site()
    assert told(site) == {}
    assert told(
        site, cpus=CPUSet.parse("0-3"), numa_nodes=(0, 2), memory=5, devices={"a.b/c-d": ("x", "y")}
    ) == {
        "ALIGNUP_CPUS": "0-3",
        "ALIGNUP_NUMA_NODES": "0,2",
        "ALIGNUP_MEMORY": "5",
        "ALIGNUP_DEVICE_A_B_C_D": "x,y",
    }


def test_names_of_resources_become_names_of_variables():
    """Upper case, and an underscore for whatever else."""
    assert device_variable("nvidia.com/gpu") == "ALIGNUP_DEVICE_NVIDIA_COM_GPU"
    assert device_variable("hub/é1") == "ALIGNUP_DEVICE_HUB__1"


def pci(address, vendor="10de", class_="0302"):
    return PciDevice(address, class_, vendor, "2330", 0)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (("GPU-1", "MIG-2"), {"CUDA_VISIBLE_DEVICES": "GPU-1,MIG-2"}),
        (("gpu2", "gpu3"), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "2,3"}),
        (("00000000:2A:00.0",), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}),
        (("0000:2a:00.0",), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}),
    ],
)
def test_cuda_is_told_in_its_own_terms(ids, expected):
    """UUIDs as they are; addresses by their position among NVIDIA's GPUs.

    Its bridges and other people's GPUs do not count.
    """
    devices = (
        pci("0000:01:00.0", vendor="1002"),
        pci("0000:02:00.0", class_="0680"),
        pci("0000:2a:00.0"),
        pci("0000:09:00.0"),
    )
    site = leasing.site(replace(leasing.machine(), pci_devices=devices))

    variables = told(site, devices={leasing.GPU: ids})

    assert {name: value for name, value in variables.items() if "CUDA" in name} == expected


def test_a_gpu_that_cuda_has_no_number_for_is_an_error():
    """Left out, it would be held by somebody who never sees it."""
    devices = (pci("0000:02:00.0", class_="0680"), pci("0000:2a:00.0"))
    site = leasing.site(replace(leasing.machine(), pci_devices=devices))

    with pytest.raises(InputError, match=r"a GPU that CUDA can number, got '0000:02:00\.0'"):
        told(site, devices={leasing.GPU: ("0000:02:00.0", "0000:2a:00.0")})


def test_a_command_is_told_its_name_its_file_and_what_it_has():
    """And carries the lease with it."""
    lease = leasing.record("n", cpus=CPUSet([0]), memory=(MemoryShare(1, "memory", 5),))
    variables = lease_variables(lease, {"CUDA_VISIBLE_DEVICES": "0"})
    evidence = lease_decoder(Evidence).decode(variables.pop("ALIGNUP_LEASE"))
    assert (evidence.lease, evidence.state) == (lease, "/s.json")
    assert variables == {
        "ALIGNUP_NAME": "n",
        "ALIGNUP_STATE": "/s.json",
        "ALIGNUP_CPUS": "0",
        "ALIGNUP_MEMORY": "5",
        "CUDA_VISIBLE_DEVICES": "0",
    }


def test_what_device_plugins_answered_reaches_the_command():
    """But the names that are alignup's own stay its own."""
    answer = DeviceAnswer(
        {"A": "1", "ALIGNUP_NAME": "theirs"}, (Mount("/c", "/h"),), (), {}, ("v.com/gpu=0",)
    )
    lease = leasing.record("n", answer=answer)
    variables = lease_variables(lease, {})
    assert (variables["A"], variables["ALIGNUP_NAME"]) == ("1", "n")
    assert variables["ALIGNUP_CDI_DEVICES"] == "v.com/gpu=0"
    assert json.loads(variables["ALIGNUP_DEVICE_ANSWER"]) == {
        "mounts": [{"containerPath": "/c", "hostPath": "/h"}],
        "cdiDevices": ["v.com/gpu=0"],
    }


def test_an_answer_of_another_user_sets_no_variable_of_the_loader():
    """Neither as a plugin's nor as CUDA's; those that devices need are set."""
    hostile = {*HOSTILE.split(), *MORE.split()}
    answer = DeviceAnswer(dict.fromkeys([*hostile, "NVIDIA_VISIBLE_DEVICES"], "/evil"))
    lease = leasing.record("n", answer=answer)
    cuda = dict.fromkeys([*hostile, "CUDA_VISIBLE_DEVICES"], "/evil")
    variables = lease_variables(lease, cuda, is_own=False)
    assert {name for name, value in variables.items() if value == "/evil"} == {
        "NVIDIA_VISIBLE_DEVICES",
        "CUDA_VISIBLE_DEVICES",
    }
    own_variables = lease_variables(lease, cuda)
    assert {name for name, value in own_variables.items() if value == "/evil"} >= hostile
