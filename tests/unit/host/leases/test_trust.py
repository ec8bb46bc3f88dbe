"""Files and agents of other users are not believed, and impossible leases are not read."""

from __future__ import annotations

import json
import os
import socket
import threading
import zlib
from pathlib import Path

import pytest

from alignup.errors import InputError
from alignup.host.leases import source as module
from alignup.host.leases.agent_messages import Leases, frame
from alignup.host.leases.file import LeaseFile, encode_table
from alignup.host.leases.record import LeaseTable, MemoryShare
from alignup.host.leases.source import AgentSource, open_source
from inputs import leasing

SOMEBODY = 12345
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")


@pytest.fixture
def shared(tmp_path):
    """A folder of another user."""
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o755)
    os.chown(folder, SOMEBODY, SOMEBODY)
    return folder


@ROOT
def test_a_file_of_others_names_no_agent(shared):
    """It would be asked, and answer with variables that make the command run other code."""
    file = shared / "leases.json"
    file.write_bytes(encode_table(LeaseTable(agent=str(shared / "evil.sock"))))
    os.chown(file, SOMEBODY, SOMEBODY)
    with pytest.raises(
        InputError, match=r"is not trusted: .*shared belongs to user 12345; .* in ALIGNUP_AGENT"
    ):
        open_source(file, pytest.fail)


@ROOT
def test_a_file_in_a_folder_of_others_is_not_changed(shared):
    with pytest.raises(InputError, match=r"is not trusted: .*shared belongs to user 12345"):
        leasing.put(LeaseFile(shared / "leases.json", pytest.fail), leasing.record())
    assert list(shared.iterdir()) == []


def test_a_file_in_a_folder_that_others_may_write_to_is_not_changed(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    file = LeaseFile(tmp_path / "open" / "leases.json", pytest.fail)
    with pytest.raises(InputError, match=r"other users may write to .*open$"):
        leasing.put(file, leasing.record())
    (tmp_path / "open").chmod(0o1777)
    leasing.put(file, leasing.record())


@pytest.fixture
def served(tmp_path):
    """A socket whose server shows no leases, as often as it is asked."""
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return

                with connection:
                    if connection.recv(100):
                        connection.sendall(frame(Leases(())))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield path
        listening.shutdown(socket.SHUT_RDWR)

    thread.join()


def test_a_socket_that_another_user_serves_is_not_asked(served, monkeypatch):
    """The kernel says who listens, whoever owns the path."""
    source = AgentSource(served, pytest.fail, 0.5)
    assert source.overview() == Leases(())
    monkeypatch.setattr(module, "peer", lambda _: (1, SOMEBODY))
    with pytest.raises(
        InputError, match=r"is not trusted: user 12345 serves it; .* in ALIGNUP_AGENT"
    ):
        source.overview()
    assert AgentSource(served, pytest.fail, 0.5, is_named=True).overview() == Leases(())


def test_a_socket_where_others_can_put_one_is_not_asked(served):
    served.parent.chmod(0o777)
    with pytest.raises(InputError, match="is not trusted: other users may write to"):
        AgentSource(served, pytest.fail, 0.5).overview()
    assert AgentSource(served, pytest.fail, 0.5, is_named=True).overview() == Leases(())


def test_who_names_a_socket_believes_it(served, monkeypatch):
    """And nobody else: neither a file nor a path that everybody knows."""
    served.parent.chmod(0o777)
    monkeypatch.setenv("ALIGNUP_AGENT", str(served))
    assert open_source(None, pytest.fail).overview() == Leases(())


@pytest.mark.parametrize(
    "change",
    [
        {"memory": [{"numaNode": 0, "type": "memory", "size": -5}]},
        {"memory": [{"numaNode": 0, "type": "memory", "size": 2**62}]},
        {"memory": [{"numaNode": 0, "type": "memory", "size": 2**70}]},
        {"memory": [{"numaNode": -1, "type": "memory", "size": 5}]},
        {"memory": [{"numaNode": 2**40, "type": "memory", "size": 5}]},
        {"memory": [{"numaNode": 0, "type": t, "size": 2**59} for t in "ab"]},
        {"numaNodes": [-1]},
    ],
)
def test_amounts_that_no_machine_has_are_refused(tmp_path, change):
    """Though the checksum is right: somebody took pains."""
    file = tmp_path / "leases.json"
    leasing.put(LeaseFile(file, pytest.fail), leasing.record("one"))
    data = json.loads(file.read_bytes())
    data["table"]["leases"][0].update(change)
    inner = json.dumps(data["table"], separators=(",", ":")).encode()
    file.write_bytes(b'{"version":1,"checksum":"%08x","table":%b}\n' % (zlib.crc32(inner), inner))
    for use in (lambda one: one.read(), lambda one: leasing.put(one, leasing.record("two"))):
        with pytest.raises(InputError, match=rf"impossible, at {file}"):
            use(LeaseFile(file, pytest.fail))
    assert [path.name for path in tmp_path.iterdir() if "damaged" in path.name] == []


def test_the_largest_amounts_are_read(tmp_path):
    file = LeaseFile(tmp_path / "leases.json", pytest.fail)
    share = MemoryShare(65535, "memory", 2**60 - 1)
    leasing.put(file, leasing.record("one", memory=(share,)))
    assert file.read().leases[0].memory == (share,)


def test_the_system_s_socket_is_not_believed_for_its_name(served, monkeypatch):
    monkeypatch.delenv("ALIGNUP_AGENT", raising=False)
    monkeypatch.setattr("alignup.host.leases.source.SYSTEM_SOCKET", Path(served))
    monkeypatch.setattr(module, "peer", lambda _: (1, SOMEBODY))
    with pytest.raises(InputError, match="user 12345 serves it"):
        open_source(None, pytest.fail).overview()
