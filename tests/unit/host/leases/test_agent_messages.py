"""Messages are framed, bounded and typed; what they say comes through."""

from __future__ import annotations

import json
import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.host.device_plugins.answer import DeviceAnswer, DeviceNode, Mount
from alignup.host.leases.agent_messages import (
    HEADER,
    LARGEST_REQUEST,
    Ask,
    Cut,
    Done,
    Failed,
    GiveBack,
    Grant,
    KnownLease,
    KnownPart,
    Leases,
    List,
    Parts,
    Refused,
    Release,
    decode_reply,
    decode_request,
    frame,
    length_of,
)
from alignup.host.leases.evidence import Evidence
from alignup.host.leases.record import MachineIdentity, MemoryShare, PartOf, lease_decoder
from alignup.host.processes.identity import identify
from alignup.machine.cpuset import CPUSet
from inputs import leasing

ME = identify(os.getpid())
LEASE = leasing.record(
    cpus=CPUSet.parse("0-3,9"),
    memory=(MemoryShare(1, "memory", 1 << 40),),
    devices={leasing.GPU: ("gpu0",)},
    keeper=ME,
    uid=1000,
    answer=DeviceAnswer({"A": "ä"}, (Mount("/c", "/h", True),), (DeviceNode("/d", "/d", "rw"),)),
    cgroup="/sys/fs/cgroup/x",
)
MACHINE = MachineIdentity("f", "8 CPUs")
REQUESTS = [
    Ask("0" * 16, ME, "train", "train"),
    Ask(
        *("0" * 16, ME, "c", "s", ME, -1.0),
        cpus=4,
        memory=1 << 40,
        devices={leasing.GPU: 2},
        policy="none",
        name="n",
        part=PartOf(1, 8),
        kubelet_version="1.33",
    ),
    GiveBack("x"),
    Release("x", force=True),
    List(),
    Cut(8, 2, {leasing.GPU: 1}),
]
REPLIES = [
    Grant(LEASE, MACHINE, "/leases.json", (0, 1), True, {"CUDA_VISIBLE_DEVICES": "0"}),
    Refused("no", "TopologyAffinityError"),
    Failed("no"),
    Done(),
    Done(LEASE),
    Leases((KnownLease(LEASE, "running"),)),
    Parts((KnownPart(0, CPUSet([1]), (0,), ((0, 5),), {leasing.GPU: ("gpu0",)}, {}),)),
]

HOSTILE = "LD_PRELOAD LD_LIBRARY_PATH PATH PYTHONPATH PYTHONSTARTUP IFS HOME BASH_ENV ENV PERL5LIB"
MORE = (
    "ALIGNUP_AGENT NODE_OPTIONS GCONV_PATH GLIBC_TUNABLES CUDA_INJECTION64_PATH BASH_FUNC_ls%% "
    "PS4 TMPDIR"
)


def body(message):
    data = frame(message)
    assert length_of(data, LARGEST_REQUEST) == len(data) - HEADER
    return data[HEADER:]


@pytest.mark.parametrize("message", REQUESTS)
def test_requests_come_through(message):
    assert decode_request(body(message)) == message


@pytest.mark.parametrize("message", REPLIES)
def test_replies_come_through(message):
    assert decode_reply(body(message)) == message


@pytest.mark.parametrize("message", REQUESTS)
def test_a_request_is_no_reply(message):
    with pytest.raises(InputError, match="expected a reply of the agent"):
        decode_reply(body(message))


def test_what_later_releases_add_is_passed_over():
    """An agent and its commands are not upgraded at one moment."""
    text = body(List()).replace(b"}", b',"colour":"red"}')
    assert decode_request(text) == List()


@given(st.binary(max_size=200))
def test_whatever_comes_is_a_message_or_an_error_of_input(text):
    for decode in (decode_request, decode_reply):
        with suppress(InputError):
            decode(text)


@pytest.mark.parametrize(
    "text",
    [
        b'{"type":"list"' + b"[" * 60000,
        b'{"type":"ask"}',
        b'{"type":"cut","parts":"two"}',
        b'{"type":"release","name":"a","name":"b"}',
        b"\xff",
        b"",
    ],
)
def test_what_is_none_is_an_error(text):
    with pytest.raises(InputError, match="expected a request to the agent, got "):
        decode_request(text)


def test_what_no_message_can_hold_is_an_error():
    with pytest.raises(InputError, match="expected text of UTF-8"):
        frame(Release("\udcff"))


def test_a_message_has_a_largest_length():
    assert length_of((5).to_bytes(HEADER, "big") + b"more", 5) == 5
    with pytest.raises(InputError, match="expected up to 5 bytes, got 6"):
        length_of((6).to_bytes(HEADER, "big"), 5)


def lease_variables(lease, cuda, *, is_own=True):
    return Grant(
        lease, leasing.site().identity, "/s.json", (), is_here=True, cuda=cuda, is_own=is_own
    ).environment()


def test_a_command_is_told_its_name_its_file_and_what_it_has():
    """And carries the lease with it."""
    lease = leasing.record("n", cpus=CPUSet([0]), memory=(MemoryShare(1, "memory", 5),))
    environment = lease_variables(lease, {"CUDA_VISIBLE_DEVICES": "0"})
    evidence = lease_decoder(Evidence).decode(environment.pop("ALIGNUP_LEASE"))
    assert (evidence.lease, evidence.state) == (lease, "/s.json")
    assert environment == {
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
    environment = lease_variables(lease, {})
    assert (environment["A"], environment["ALIGNUP_NAME"]) == ("1", "n")
    assert environment["ALIGNUP_CDI_DEVICES"] == "v.com/gpu=0"
    assert json.loads(environment["ALIGNUP_DEVICE_ANSWER"]) == {
        "mounts": [{"containerPath": "/c", "hostPath": "/h"}],
        "cdiDevices": ["v.com/gpu=0"],
    }


def test_an_answer_of_another_user_sets_no_variable_of_the_loader():
    """Neither as a plugin's nor as CUDA's; those that devices need are set."""
    hostile = {*HOSTILE.split(), *MORE.split()}
    answer = DeviceAnswer(dict.fromkeys([*hostile, "NVIDIA_VISIBLE_DEVICES"], "/evil"))
    lease = leasing.record("n", answer=answer)
    cuda = dict.fromkeys([*hostile, "CUDA_VISIBLE_DEVICES"], "/evil")
    environment = lease_variables(lease, cuda, is_own=False)
    assert {name for name, value in environment.items() if value == "/evil"} == {
        "NVIDIA_VISIBLE_DEVICES",
        "CUDA_VISIBLE_DEVICES",
    }
    own_environment = lease_variables(lease, cuda)
    assert {name for name, value in own_environment.items() if value == "/evil"} >= hostile
