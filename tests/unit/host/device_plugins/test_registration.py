"""The registration socket tells who registers, and refuses who cannot.

It is one of its folder only.
"""

from __future__ import annotations

import socket

import grpc
import pytest

from alignup.errors import InputError
from alignup.host.device_plugins.plugins import SOCKET_NAME, RegistrationServer
from fakes.device_plugins import NIC, FakePlugin, short_folder


@pytest.fixture
def folder():
    with short_folder() as made:
        yield made


@pytest.fixture
def accepted(folder):
    """Registrations that a server has accepted, while it runs."""
    registrations = []
    server = RegistrationServer(folder, registrations.append)
    server.start()
    yield registrations
    server.stop()


def test_a_registration_is_handed_on(folder, accepted):
    FakePlugin(folder).register()
    assert [(registration.resource_name, registration.endpoint) for registration in accepted] == [
        (NIC, "example.com_nic.sock")
    ]


def test_a_registration_that_cannot_be_is_refused_before(folder, accepted):
    with pytest.raises(grpc.RpcError) as caught:
        FakePlugin(folder).register(endpoint="../x")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert accepted == []


def test_who_takes_it_may_refuse_it_in_words(folder):
    def refuse(_registration):
        raise InputError("expected fewer plugins, got one more")

    server = RegistrationServer(folder, refuse)
    server.start()
    try:
        with pytest.raises(grpc.RpcError) as caught:
            FakePlugin(folder).register()
        assert caught.value.details() == "expected fewer plugins, got one more"
    finally:
        server.stop()


def test_a_message_that_is_far_too_long_is_not_read(folder, accepted):
    with pytest.raises(grpc.RpcError) as caught:
        FakePlugin(folder).register(resource_name="x" * (1 << 17))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert accepted == []


@pytest.mark.usefixtures("accepted")
def test_the_socket_is_the_users_only_and_goes_with_the_server(folder):
    assert (folder / SOCKET_NAME).stat().st_mode & 0o777 == 0o600
    with pytest.raises(
        InputError, match=r"somebody serves the socket .* already at the folder of device plugins"
    ):
        RegistrationServer(folder, pytest.fail).start()


def test_a_socket_that_somebody_left_is_replaced(folder):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / SOCKET_NAME))
    server = RegistrationServer(folder / "new" / "folder", pytest.fail)
    server.start()
    server.stop()
    assert list((folder / "new" / "folder").iterdir()) == []
    server = RegistrationServer(folder, pytest.fail)
    server.start()
    server.stop()
    assert [entry.name for entry in folder.iterdir()] == ["new"]


def test_a_file_in_the_place_of_the_socket_stays(folder):
    (folder / SOCKET_NAME).write_text("precious")
    with pytest.raises(InputError, match=r".* is a file, not a socket"):
        RegistrationServer(folder, pytest.fail).start()
    assert (folder / SOCKET_NAME).read_text() == "precious"
