"""What plugins send becomes records, or is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.host.device_plugins import device_plugin_pb2 as wire
from alignup.host.device_plugins.answer import DeviceAnswer, DeviceNode, Mount
from alignup.host.device_plugins.connection import answer_of, devices_of, preferred_of
from alignup.host.device_plugins.plugins import check_registration
from alignup.machine.device_inventory import Device

IDS = st.lists(st.sampled_from("abcdef"), max_size=7)


def device(identity, health="Healthy", nodes=None):
    topology = None
    if nodes is not None:
        topology = wire.TopologyInfo(nodes=[wire.NUMANode(ID=node) for node in nodes])
    return wire.Device(ID=identity, health=health, topology=topology)


def listed(*devices):
    return devices_of(wire.ListAndWatchResponse(devices=devices))


def answered(**fields):
    return answer_of(
        wire.AllocateResponse(container_responses=[wire.ContainerAllocateResponse(**fields)])
    )


def test_devices_have_health_and_places():
    devices = listed(
        device("a", nodes=[0, 1, 0]), device("b", "Unhealthy"), device("c", "healthy", [])
    )
    assert devices == (
        Device("a", (0, 1)),
        Device("b", None, healthy=False),
        Device("c", (), healthy=False),
    )


def test_of_two_devices_with_one_id_the_last_counts():
    assert listed(device("a", nodes=[0]), device("a", nodes=[1])) == (Device("a", (1,)),)


@pytest.mark.parametrize("identity", ["", "x" * 1025, "a\0b"])
def test_an_id_has_some_letters_but_not_too_many(identity):
    with pytest.raises(InputError, match=r"an id of up to 1024 letters, .* at devices\[1\].ID"):
        listed(device("a"), device(identity))


def test_devices_have_an_end():
    with pytest.raises(InputError, match="expected up to 16384 devices, got 16385"):
        listed(*[device(str(number)) for number in range(16385)])


def test_as_much_as_is_allowed_is_taken():
    """The bounds that refusals name belong to what is allowed."""
    assert len(listed(*[device(str(number)) for number in range(16384)])) == 16384
    assert listed(device("x" * 1024))[0].id == "x" * 1024

    variables = {str(number): "" for number in range(256)}
    assert len(answered(envs=variables).environment) == 256
    assert len(answered(envs={"A": "x" * 119_999}).environment["A"]) == 119_999
    with pytest.raises(InputError, match="expected up to 120000 bytes, got 120001"):
        answered(envs={"A": "x" * 120_000})

    # {"annotations":{"a":""}} takes 24 bytes, of which the braces are those of the variables
    assert len(answered(annotations={"a": "x" * 119_978}).annotations["a"]) == 119_978
    with pytest.raises(InputError, match="expected up to 120000 bytes beside its variables, got"):
        answered(annotations={"a": "x" * 119_979})


@pytest.mark.parametrize(
    "resource", ["a/b", "nvidia.com/gpu", "example.com/NIC_0.a-b", "my-kubernetes.io/x"]
)
def test_extended_resources_can_register(resource):
    message = wire.RegisterRequest(version="v1beta1", endpoint="a.sock", resource_name=resource)
    check_registration(message)


@pytest.mark.parametrize(
    "resource",
    [
        "",
        "cpu",
        "/gpu",
        "a.b/",
        "a/b/c",
        "A.com/b",
        "x.kubernetes.io/b",
        "requests.a/b",
        "a/-",
        "a/" + "b" * 64,
        "a" * 254 + "/b",
        "a..b/c",
    ],
)
def test_others_cannot(resource):
    message = wire.RegisterRequest(version="v1beta1", endpoint="a.sock", resource_name=resource)
    with pytest.raises(InputError, match=r"the ResourceName .* is invalid"):
        check_registration(message)


def test_an_answer_becomes_a_record():
    answer = answered(
        envs={"B": "2", "A": "1"},
        mounts=[wire.Mount(container_path="/c", host_path="/h", read_only=True)],
        devices=[wire.DeviceSpec(container_path="/dev/c", host_path="/dev/h", permissions="rw")],
        annotations={"note": "text"},
        cdi_devices=[wire.CDIDevice(name="vendor.com/gpu=gpu0")],
    )

    assert answer == DeviceAnswer(
        {"A": "1", "B": "2"},
        (Mount("/c", "/h", read_only=True),),
        (DeviceNode("/dev/c", "/dev/h", "rw"),),
        {"note": "text"},
        ("vendor.com/gpu=gpu0",),
    )
    assert list(answer.environment) == ["A", "B"]


@pytest.mark.parametrize(
    "fields",
    [
        {"envs": {"": "x"}},
        {"envs": {"A=B": "x"}},
        {"envs": {"A": "\0"}},
        {"envs": {"A": "x" * 130_000}},
        {"envs": {str(number): "" for number in range(257)}},
        {"mounts": [wire.Mount(container_path="c", host_path="/h")]},
        {"mounts": [wire.Mount(container_path="/c")]},
        {"devices": [wire.DeviceSpec(container_path="/c", host_path="/h\0")]},
        {"devices": [wire.DeviceSpec(container_path="/c", host_path="/h", permissions="rx")]},
        {"cdi_devices": [wire.CDIDevice(name="gpu0")]},
        {"cdi_devices": [wire.CDIDevice(name="gpu=gpu0")]},
        {"cdi_devices": [wire.CDIDevice(name="vendor.com/gpu=")]},
    ],
)
def test_an_answer_that_no_command_could_use_is_refused(fields):
    with pytest.raises(InputError, match="expected"):
        answered(**fields)


@given(IDS, st.sets(st.sampled_from("abcde")), st.integers(0, 5), st.data())
def test_a_preference_is_believed_exactly_if_it_can_be(answer, available, size, data):
    must = set()
    if available:
        must = data.draw(st.sets(st.sampled_from(sorted(available)), max_size=size))

    message = wire.PreferredAllocationResponse(
        container_responses=[wire.ContainerPreferredAllocationResponse(deviceIDs=answer)]
    )

    makes_sense = must <= set(answer) <= available and len(answer) == len(set(answer)) == size
    if makes_sense or not answer:
        assert preferred_of(message, available, must, size) == tuple(answer)
    else:
        with pytest.raises(InputError):
            preferred_of(message, available, must, size)


def test_the_registration_s_own_socket_is_no_plugin():
    message = wire.RegisterRequest(
        version="v1beta1", endpoint="kubelet.sock", resource_name="a.b/c"
    )
    with pytest.raises(
        InputError, match=r"the name of a socket in the shared folder, got 'kubelet.sock'"
    ):
        check_registration(message)


def test_an_answer_that_no_command_can_be_told_is_refused():
    """It would be executed with more than the system allows."""
    for size, fails in ((110_000, False), (130_000, True)):
        container_answer = wire.ContainerAllocateResponse(annotations={"a": "x" * size})
        message = wire.AllocateResponse(container_responses=[container_answer])
        if fails:
            with pytest.raises(InputError, match="up to 120000 bytes beside its variables"):
                answer_of(message)
        else:
            assert len(answer_of(message).annotations["a"]) == size
