"""What is asked for, in words and numbers, and its place in the queue."""

from __future__ import annotations

import os

import pytest

from alignup.errors import InputError
from alignup.host.leases.record import Waiter
from alignup.host.leases.request import (
    LeaseRequest,
    PartOf,
    Question,
    Request,
    check_wait,
    make_request,
    parse_device_counts,
    parse_memory,
    parse_part,
    request_of,
)
from alignup.host.processes.identity import identify
from inputs import leasing

ME = identify(os.getpid())


def test_a_request_is_sorted_and_without_zeros():
    """Equal wishes are equal requests."""
    assert make_request(
        cpus=2, memory="1Gi", devices={"b/b": 1, "a/a": 2, "c/c": 0}, name="x.1-y"
    ) == Request(
        cpus=2, memory=1 << 30, devices={"a/a": 2, "b/b": 1}, policy="best-effort", name="x.1-y"
    )
    assert make_request() == Request(policy="best-effort")


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"cpus": -1}, "--cpus"),
        ({"cpus": 1.5}, "--cpus"),
        ({"cpus": 1 << 40}, "--cpus"),
        ({"memory": "-1"}, "--memory"),
        ({"memory": "much"}, "--memory"),
        ({"devices": {"a/a": -1}}, "--device a/a"),
        ({"devices": {"a/a": 10**9 + 1}}, "--device a/a"),
        ({"devices": {"a/a": 1 << 70}}, "--device a/a"),
        ({"devices": {"a/a": "1"}}, "--device a/a"),
        ({"devices": ["a/a"]}, "--device"),
        ({"policy": "strict"}, "one of none, best-effort, restricted, single-numa-node"),
        ({"name": "a b"}, "--name"),
        ({"name": "-rf"}, "--name"),
        ({"name": "x" * 101}, "--name"),
        ({"part": PartOf(9, 3)}, "--part"),
        ({"part": PartOf(-1, 8)}, "--part"),
        ({"part": PartOf(0, 1 << 40)}, "--part"),
    ],
)
def test_wishes_that_cannot_be_are_refused(wishes, message):
    """The message names the option, or the argument."""
    with pytest.raises(InputError, match=message):
        make_request(**wishes, prefix="--")
    with pytest.raises(InputError) as refused:
        make_request(**wishes)
    assert "--" not in str(refused.value)


def test_memory_is_a_number_of_bytes_or_a_quantity():
    """Fractions are rounded up."""
    assert [parse_memory(amount) for amount in (0, 7, "1k", "1.5Ki", "0.5")] == [
        0,
        7,
        1000,
        1536,
        1,
    ]


@pytest.mark.parametrize("wait", [-1, float("nan"), -float("inf"), "10"])
def test_a_time_to_wait_is_a_number_of_seconds(wait):
    for possible in (None, 0, 1e12, float("inf")):
        check_wait(possible, "--wait")
    with pytest.raises(InputError, match=r"expected seconds of at least 0, got .* at --wait"):
        check_wait(wait, "--wait")


def test_counts_of_a_resource_add_up():
    """An option may come twice."""
    assert parse_device_counts(["a/a=1", "b=2", "a/a=2"]) == {"a/a": 3, "b": 2}


@pytest.mark.parametrize(
    "text", ["", "a", "a=", "=1", "a=-1", "a=x", "a b=1", "a=1=1", "a=9999999999"]
)
def test_other_texts_are_no_counts(text):
    """The message shows one that is."""
    with pytest.raises(InputError, match=r"nvidia.com/gpu=1"):
        parse_device_counts([text])


def test_a_part_is_named_or_found_in_a_launchers_environment():
    """torchrun's, Open MPI's, MPICH's and Slurm's."""
    assert parse_part("0/1", {}) == PartOf(0, 1)
    assert parse_part("auto", {"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8"}) == PartOf(3, 8)
    assert parse_part("auto", {"SLURM_LOCALID": "1", "SLURM_NTASKS_PER_NODE": "2"}) == PartOf(1, 2)


@pytest.mark.parametrize("text", ["", "8/8", "1", "1/0", "-1/2", "a/b", "1/2/3", "Auto"])
def test_other_texts_are_no_parts(text):
    """Ranks are counted from 0."""
    with pytest.raises(InputError, match="--part"):
        parse_part(text, {})


def test_without_a_launcher_there_is_no_automatic_part():
    """Half an environment is none."""
    with pytest.raises(InputError, match="LOCAL_RANK with LOCAL_WORLD_SIZE"):
        parse_part("auto", {"LOCAL_RANK": "1"})


def test_the_release_is_read_once():
    assert make_request().kubelet_version == ""
    assert make_request(kubelet_version="v1.33.1").kubelet_version == "1.33"
    with pytest.raises(InputError, match="at kubelet_version"):
        make_request(kubelet_version="new")


@pytest.mark.parametrize(
    ("wishes", "kinds"),
    [
        ({}, ()),
        ({"cpus": 1}, ("cpu",)),
        ({"part": PartOf(0, 2)}, ("cpu",)),
        ({"memory": "1Gi"}, ("memory",)),
        ({"devices": {leasing.GPU: 1, "a/b": 0}}, (leasing.GPU,)),
        ({"cpus": 1, "memory": 1, "devices": {leasing.GPU: 1}}, (leasing.GPU, "cpu", "memory")),
    ],
)
def test_the_kinds_are_what_is_asked_for(wishes, kinds):
    demand = make_request(**wishes)
    waiter = LeaseRequest(demand, ME, command="c", name="s", id="x", uid=0).waiter()
    assert (waiter.id, waiter.process, waiter.kinds, waiter.uid) == ("x", ME, kinds, 0)
    tried = request_of(waiter)
    tried_demand = {name: getattr(tried.demand, name) for name in demand.__struct_fields__}
    assert make_request(**tried_demand | {"name": demand.name}) == demand
    assert (tried.holder, tried.id) == (ME, "trial x")
    assert request_of(Waiter("x", ME, kinds)) is None


def test_answers_of_plugins_belong_to_one_request():
    """Found by the question, whoever puts it together again."""
    first, second = (LeaseRequest(make_request(), ME, command="", name="") for _ in range(2))
    first.advice[Question("r", ("a", "b"), (), 1)] = ("b",)
    assert first.advice == {Question("r", ("a", "b"), (), 1): ("b",)}
    assert second.advice == {}
