"""An agent gives leases to commands as a file does, and asks device plugins.

It forgets nothing when it ends.
"""

from __future__ import annotations

import errno
import gc
import grp
import math
import os
import socket
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import msgspec
import pytest

from alignup.errors import AlignupError, AllocationError, InputError, system_errors
from alignup.host.agent.agent import tell_systemd
from alignup.host.agent.journal import read_entries, write_journal
from alignup.host.agent.ownership import Ownership
from alignup.host.leases.agent_messages import Ask, Failed, Grant, List, decode_reply, frame
from alignup.host.leases.evidence import evidence_file, evidence_of, show_evidence
from alignup.host.leases.file import AgentOwnsError, LeaseFile
from alignup.host.leases.ledger import Ledger
from alignup.host.leases.record import LeaseTable, MachineIdentity, PartOf, Seen
from alignup.host.leases.request import LeaseRequest, make_request
from alignup.host.leases.source import AgentSource, FileSource, open_source
from alignup.host.leases.users import Limits
from alignup.host.processes.identity import identify
from alignup.kubernetes.versions import parse_version
from alignup.machine.cpuset import CPUSet
from alignup.records import replace
from fakes.device_plugins import NIC, FakePlugin, WatchingPlugin, report, short_folder
from inputs import leasing
from inputs.leasing import Placer
from running.agents import LONG, client, eventually, running_agent


@pytest.fixture
def folder(monkeypatch):
    monkeypatch.delenv("ALIGNUP_AGENT", raising=False)
    monkeypatch.delenv("ALIGNUP_STATE", raising=False)
    with short_folder() as made:
        yield made


def me():
    return identify(os.getpid())


def asked(holder=None, keeper=None, show=None, **wishes):
    return LeaseRequest(
        make_request(**wishes),
        holder or me(),
        command="c",
        name="made-up",
        keeper=keeper,
        show=show,
    )


def sleeper():
    """Return a process that lasts."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def ended(process):
    process.kill()
    process.wait()


def file_of(folder):
    return LeaseFile(folder / "leases.json", lambda _: None)


def test_a_lease_is_given_shown_and_given_back(folder):
    seen = []
    with running_agent(folder) as agent:
        source = client(folder)
        wishes = {"cpus": 2, "memory": "1Gi", "devices": {leasing.GPU: 1}}
        grant = source.acquire(asked(show=lambda *shown: seen.append(shown), **wishes))
        expected = Placer(leasing.site(), make_request(**wishes)).place(me(), "made-up", "c", ())
        for name in ("cpus", "memory", "devices", "numa_nodes", "name", "process", "command"):
            assert getattr(grant.lease, name) == getattr(expected, name)
        assert (grant.memory_nodes, grant.is_here, grant.lease.uid) == ((0,), False, None)
        assert grant.environment()["ALIGNUP_AGENT"] == str(folder / "agent.sock")
        assert grant.environment()["CUDA_VISIBLE_DEVICES"] == "0"
        assert seen == [(grant.lease, leasing.site().identity, folder / "leases.json")]

        (known_lease,) = source.overview().leases
        assert (known_lease.lease, known_lease.state) == (grant.lease, "running")

        source.give_back(grant.lease)
        source.give_back(grant.lease)
        assert source.overview().leases == ()
        assert agent.said == []


def test_memory_is_settled_in_a_process_of_its_own_only(folder):
    """Not in one that it shares: whose garbage stays its own."""
    script = (
        "import gc; from alignup.host.agent.agent import settle_memory as settle; settle();"
        "raise SystemExit(gc.get_freeze_count() < 1000)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)  # noqa: S603  # ours
    frozen = gc.get_freeze_count()
    with running_agent(folder):
        client(folder).overview()
    assert gc.get_freeze_count() == frozen


def test_refusals_are_those_of_a_file(folder):
    with running_agent(folder):
        source = client(folder)
        with pytest.raises(AllocationError, match="too few CPUs are free: 17 asked, 16 free"):
            source.acquire(asked(cpus=17))
        with pytest.raises(InputError, match="a resource that it has"):
            source.acquire(asked(devices={NIC: 1}))
        with pytest.raises(AllocationError, match="no lease has the name 'x'"):
            source.release("x", force=True)
        with pytest.raises(InputError, match="100 parts"):
            source.parts(100, 0, {})


def test_an_agent_decides_as_one_release(folder):
    """Who names another one is refused, who names none gets its decisions."""
    with running_agent(folder, version=parse_version("1.33")) as agent:
        source = client(folder)
        for release in (None, "1.33", "v1.33.2"):
            source.give_back(source.acquire(asked(cpus=2, kubelet_version=release)).lease)
        with pytest.raises(
            InputError, match=r"expected 1\.33, as which the agent decides, got '1\.36'"
        ):
            source.acquire(asked(cpus=2, kubelet_version="1.36"))
        assert agent.said == []


def test_a_machine_that_a_release_does_not_know_is_refused(folder):
    """Kubelets up to 1.30 have no option for more than 8 NUMA nodes."""
    site = leasing.site(leasing.machine(nodes=9), {})
    with (
        running_agent(folder, site, version=parse_version("1.30")),
        pytest.raises(InputError, match="expected 1 to 8 NUMA nodes"),
    ):
        client(folder).acquire(asked(cpus=2))


def test_a_lease_is_released_by_its_name(folder):
    with running_agent(folder):
        source = client(folder)
        source.acquire(asked(cpus=16, name="big"))
        with pytest.raises(
            AllocationError, match=r"lease 'big' is held by pid \d+, which is running; --force"
        ):
            source.release("big", force=False)
        assert source.release("big", force=True).lease.name == "big"
        source.acquire(asked(cpus=16))


def test_the_machine_is_cut_as_without_an_agent(folder):
    with running_agent(folder):
        parts = client(folder).parts(4, 0, {leasing.GPU: 1})
    expected = FileSource(file_of(folder), lambda _: leasing.site()).parts(4, 0, {leasing.GPU: 1})
    assert parts == expected
    assert parts[3].visible["CUDA_VISIBLE_DEVICES"] == "3"


def test_a_lease_ends_with_its_processes(folder):
    """The keeper and the command, in whatever order they end."""
    with running_agent(folder):
        source = client(folder)
        for first, second in ((0, 1), (1, 0)):
            both = [sleeper(), sleeper()]
            command, keeper = (identify(process.pid) for process in both)
            source.acquire(asked(command, keeper, cpus=16))
            ended(both[first])
            with pytest.raises(AllocationError):
                source.acquire(asked(cpus=1))
            ended(both[second])
            eventually(lambda: not source.overview().leases)


def test_who_waits_gets_it_in_order(folder):
    with running_agent(folder):
        source = client(folder)
        holder = sleeper()
        first = source.acquire(asked(identify(holder.pid), cpus=16)).lease
        order, threads = [], []
        for number in range(3):
            threads.append(threading.Thread(target=wait_for_turn, args=(source, number, order)))
            threads[-1].start()
            eventually(lambda: waiting(folder) == len(threads))

        with pytest.raises(AllocationError, match="earlier requests are waiting"):
            source.acquire(asked(cpus=1))
        source.give_back(first)
        for thread in threads:
            thread.join(LONG)
        assert order == [0, 1, 2]
        ended(holder)


def wait_for_turn(source, number, order):
    grant = source.acquire(asked(cpus=16), math.inf)
    order.append(number)
    source.give_back(grant.lease)


def waiting(folder):
    table = read_entries((folder / "leases.json.journal").read_bytes(), "j").table
    return len(table.waiting)


def test_waiting_has_an_end(folder):
    with running_agent(folder):
        source = client(folder)
        source.acquire(asked(cpus=16))
        with pytest.raises(AllocationError, match=r"0 free.*\(waited for 0.05 s\)"):
            source.acquire(asked(cpus=1), 0.05)
        with pytest.raises(AllocationError, match="too few CPUs are free: 17 asked"):
            source.acquire(asked(cpus=17), math.inf)
        eventually(lambda: waiting(folder) == 0)


def test_who_goes_away_waits_no_longer(folder):
    with running_agent(folder):
        client(folder).acquire(asked(cpus=16))
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(folder / "agent.sock"))
            connection.sendall(frame(Ask("0" * 16, me(), "", "x", cpus=1, wait=-1)))
            eventually(lambda: waiting(folder) == 1)
        eventually(lambda: waiting(folder) == 0)


def test_a_restart_keeps_everything(folder):
    process = sleeper()
    with running_agent(folder):
        kept = client(folder).acquire(asked(identify(process.pid), cpus=2)).lease
        gone = sleeper()
        client(folder).acquire(asked(identify(gone.pid), cpus=2))
        back = client(folder).acquire(asked(cpus=2)).lease
        client(folder).give_back(back)
    ended(gone)
    with running_agent(folder) as agent:
        assert [known_lease.lease for known_lease in client(folder).overview().leases] == [kept]
        assert agent.said == ["1 lease ended while no agent ran"]
        ended(process)
        eventually(lambda: not client(folder).overview().leases)


def test_who_waited_waits_on_after_a_restart(folder):
    got = []
    with running_agent(folder):
        first = client(folder).acquire(asked(cpus=16)).lease
        thread = threading.Thread(
            target=lambda: got.append(client(folder).acquire(asked(cpus=4), math.inf).lease)
        )
        thread.start()
        eventually(lambda: waiting(folder) == 1)
    assert waiting(folder) == 1
    with running_agent(folder):
        client(folder).give_back(first)
        thread.join(LONG)
        assert len(got[0].cpus) == 4


def test_the_same_request_gets_the_same_lease(folder):
    ask = Ask("a" * 16, me(), "c", "x", cpus=3)
    with running_agent(folder):
        first = exchange(folder, frame(ask))
        assert exchange(folder, frame(ask)) == first
    with running_agent(folder):
        assert exchange(folder, frame(ask)) == first


def exchange(folder, data):
    """Send bytes and return the reply; None if the connection is closed."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LONG)
        connection.connect(str(folder / "agent.sock"))
        connection.sendall(data)
        stream = connection.makefile("rb")
        header = stream.read(4)
        if not header:
            return None
        return decode_reply(stream.read(int.from_bytes(header, "big")))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0\0\0\2{}", "expected a request to the agent"),
        (b"\0\0\0\4null", "expected a request to the agent"),
        (b"\xff\xff\xff\xff", "expected up to 65536 bytes"),
        (frame(Ask("short", identify(1), "", "x")), "an id of 16 letters"),
        (frame(Ask("a" * 16, identify(1), "", "x", policy="odd")), "expected one of none"),
        (
            frame(Ask("a" * 16, msgspec.structs.replace(identify(1), start_time=1), "", "x")),
            "process 1 has ended",
        ),
        (
            frame(Ask("a" * 16, msgspec.structs.replace(identify(1), pid_namespace=1), "", "x")),
            "a process of the agent's own PID namespace",
        ),
    ],
)
def test_what_is_no_request_is_answered_in_words(folder, data, reason):
    with running_agent(folder):
        reply = exchange(folder, data)
        assert isinstance(reply, Failed)
        assert reason in reply.detail
        client(folder).acquire(asked(cpus=1))


def test_two_requests_at_once_are_answered_in_turn(folder):
    with running_agent(folder), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LONG)
        connection.connect(str(folder / "agent.sock"))
        stream = connection.makefile("rb")
        asks = [Ask(f"{number:016}", me(), "", "x", cpus=1) for number in range(20)]
        replies = []
        requests = [*asks, List(), List()]
        for start in range(0, len(requests), 2):
            connection.sendall(b"".join(map(frame, requests[start : start + 2])))
            replies += [
                decode_reply(stream.read(int.from_bytes(stream.read(4), "big"))) for _ in range(2)
            ]

        assert [isinstance(reply, Grant) for reply in replies[:20]] == [True] * 16 + [False] * 4
        assert len(replies[20].leases) == 16


def test_a_slow_client_stalls_nobody(folder):
    """One that sends half a request, and one that takes no replies."""
    with (
        running_agent(folder),
        socket.socket(socket.AF_UNIX) as half,
        socket.socket(socket.AF_UNIX) as deaf,
    ):
        for connection in (half, deaf):
            connection.connect(str(folder / "agent.sock"))
        half.sendall(b"\0\0")
        deaf.setblocking(False)
        with suppress(BlockingIOError, ConnectionError):
            while True:
                deaf.send(frame(List()) * 100)

        source = client(folder)
        source.give_back(source.acquire(asked(cpus=16)).lease)


def test_a_file_that_an_agent_has_is_left_alone_while_it_is_down(folder):
    with running_agent(folder):
        pass
    with (
        pytest.raises(AgentOwnsError, match=r"the agent at .*agent.sock keeps the leases of"),
        file_of(folder).change(),
    ):
        pass
    source = open_source(folder / "leases.json", lambda _: None)
    assert isinstance(source, AgentSource)
    source._patience = 0.1
    with pytest.raises(InputError, match=r"does not answer at .*: start it again, or"):
        source.acquire(asked(cpus=1))


def test_leases_of_the_file_are_taken_over_and_handed_back(folder):
    files = FileSource(file_of(folder), lambda _: leasing.site())
    before = files.acquire(asked(cpus=16)).lease
    with running_agent(folder) as agent:
        source = open_source(folder / "leases.json", lambda _: None)
        assert [known_lease.lease for known_lease in source.overview().leases] == [before]
        with pytest.raises(AllocationError):
            source.acquire(asked(cpus=1))
        # those who began with the file find the agent
        files.give_back(before)
        assert files.acquire(asked(cpus=2)).agent == str(folder / "agent.sock")
        with pytest.raises(InputError, match=f"pid {os.getpid()} is the agent of"):
            Ownership(file_of(folder))
        assert agent.said == []

    ownership = Ownership(file_of(folder))
    assert len(ownership.hand_back(lambda _: None).leases) == 1
    assert ownership.hand_back(lambda _: None).leases == file_of(folder).read().leases
    ownership.close()
    assert len(file_of(folder).read().leases) == 1
    assert files.acquire(asked(cpus=2)).agent == ""


def test_what_ended_without_an_agent_and_what_changed_is_said(folder):
    """Leases of an earlier boot are not kept, even though their process ids are in use again."""
    with running_agent(folder):
        client(folder).acquire(asked(cpus=1))

    table = read_entries((folder / "leases.json.journal").read_bytes(), "j").table
    (lease,) = table.leases
    gone = msgspec.structs.replace(me(), start_time=1)
    earlier = msgspec.structs.replace(gone, boot_id="earlier")
    leases = [
        msgspec.structs.replace(lease, id=str(number), process=process)
        for number, process in enumerate((gone, earlier, earlier))
    ]
    was = msgspec.structs.replace(table.machine, description="9 CPUs, 9 NUMA nodes")
    write_journal(folder / "leases.json.journal", LeaseTable(was, tuple(leases)))
    with running_agent(folder) as agent:
        assert agent.said == [
            "2 leases ended with an earlier boot of this machine",
            "1 lease ended while no agent ran",
            (
                f"this machine has {table.machine.description} now, and had 9 CPUs, 9 NUMA nodes "
                "before"
            ),
        ]
        assert client(folder).overview().leases == ()


def test_leases_of_another_machine_are_not_taken_over(folder):
    FileSource(file_of(folder), lambda _: leasing.site()).acquire(asked(cpus=1))
    site = leasing.site()
    identity = msgspec.structs.replace(site.identity, fingerprint="x")
    other_site = type(site)(site.machine, identity, False)
    with (
        pytest.raises(InputError, match="the leases are not of this machine"),
        running_agent(folder, other_site),
    ):
        pass
    assert len(file_of(folder).read().leases) == 1


def test_the_agent_to_ask_is_found(folder, monkeypatch):
    state = folder / "leases.json"
    assert isinstance(open_source(state, print), FileSource)
    monkeypatch.setenv("ALIGNUP_AGENT", "/a")
    assert isinstance(open_source(state, print), FileSource)
    monkeypatch.setenv("ALIGNUP_STATE", str(state))
    assert isinstance(open_source(state, print), AgentSource)
    assert isinstance(open_source(None, print), AgentSource)
    with pytest.raises(InputError, match=r"--machine is for the agent at /a: start it again"):
        open_source(None, print, machine_options="--machine")
    monkeypatch.setenv("ALIGNUP_AGENT", "")
    assert isinstance(open_source(state, print), FileSource)


@pytest.fixture
def plugin(folder):
    (folder / "p").mkdir()
    made = FakePlugin(folder / "p", preferred=True, pre_start=True)
    yield made
    made.die()


def test_device_plugins_are_asked_and_their_answers_reach_the_command(folder, plugin):
    with running_agent(folder, device_plugins=folder / "p"):
        plugin.serve().reports.put(report("nic0", "nic1", "nic2", "nic3"))
        plugin.register()
        source = client(folder)
        eventually(lambda: any(NIC in part.devices for part in parts_or_none(source)))
        plugin.calls.clear()

        grant = source.acquire(asked(devices={NIC: 1, leasing.GPU: 1}))
        assert grant.lease.devices == {NIC: ("nic2",), leasing.GPU: ("gpu0",)}
        assert grant.environment()["NICS"] == "nic2"
        assert [name for name, *_ in plugin.calls] == [
            "GetPreferredAllocation",
            "Allocate",
            "PreStartContainer",
        ]

        # only one is left near
        source.acquire(asked(devices={NIC: 1}), 1.0)

        plugin.answer = lambda _: 1 / 0
        with pytest.raises(AllocationError, match=f"the device plugin of {NIC} failed Allocate"):
            source.acquire(asked(devices={NIC: 1}))
        source.acquire(asked(cpus=16))
        assert len(source.overview().leases) == 3


@pytest.mark.parametrize("others", [{"devices": {leasing.GPU: 3}}, {"cpus": 16}])
def test_who_waits_for_a_plugin_s_device_waits_on_after_a_restart(folder, others):
    """The plugin registers again a while after the agent serves, as that of NVIDIA does."""
    site = leasing.site(devices={})
    got = []
    holder = sleeper()
    wishes = {"cpus": 1, "devices": {leasing.GPU: 2}}
    with WatchingPlugin(folder / "p", ("GPU-1", "GPU-2", "GPU-3")):
        with running_agent(folder, site, device_plugins=folder / "p"):
            # at once, as at boot
            first = client(folder).acquire(asked(identify(holder.pid), **others), LONG).lease
            thread = threading.Thread(
                target=lambda: got.append(client(folder).acquire(asked(**wishes), LONG).lease)
            )
            thread.start()
            eventually(lambda: waiting(folder) == 1)

        for _ in range(2):
            with running_agent(folder, site, device_plugins=folder / "p"):
                with pytest.raises(AllocationError, match="has registered yet"):
                    client(folder).acquire(asked(devices={leasing.GPU: 1}))
                eventually(lambda: knows_gpus(folder))
                assert waiting(folder) == 1

        with running_agent(folder, site, device_plugins=folder / "p"):
            client(folder).give_back(first)
            thread.join(LONG)

    assert len(got[0].devices[leasing.GPU]) == 2
    ended(holder)


@pytest.mark.parametrize("resource", [leasing.GPU, "nvidia.com/gpu.shared"])
def test_a_command_sees_a_gpu_of_which_it_has_a_share(folder, resource):
    site = leasing.site(devices={})
    with (
        WatchingPlugin(folder / "p", ("GPU-1",), resource=resource, slices=3, delay=0),
        running_agent(folder, site, device_plugins=folder / "p"),
    ):
        grant = client(folder).acquire(asked(devices={resource: 2}), LONG)
        environment = grant.environment()

    assert len(grant.lease.devices[resource]) == 2
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"


@pytest.mark.parametrize("resource", [leasing.GPU, "nvidia.com/gpu.shared"])
def test_a_gpu_that_a_lease_has_from_the_driver_s_list_is_shared_with_nobody(folder, resource):
    """A plugin that shares GPUs registers later, under the same name or another."""
    site = leasing.site(devices={leasing.GPU: [{"id": "GPU-1", "numa": [0]}]})
    wish = {"devices": {resource: 1}}
    with running_agent(folder, site, device_plugins=folder / "p"):
        early = client(folder).acquire(asked(devices={leasing.GPU: 1})).lease
        with WatchingPlugin(folder / "p", ("GPU-1", "GPU-2"), resource=resource, slices=2, delay=0):
            # the other GPU is shared at once
            others = [client(folder).acquire(asked(**wish), LONG).lease for _ in range(2)]
            assert {lease.devices[resource] for lease in others} == {("GPU-2::0",), ("GPU-2::1",)}
            with pytest.raises(
                AllocationError, match=r"2 hidden \(leases have the same GPUs under other names\)"
            ):
                client(folder).acquire(asked(**wish))

            client(folder).give_back(early)
            shares = [client(folder).acquire(asked(**wish), LONG).lease for _ in range(2)]
            assert {lease.devices[resource] for lease in shares} == {("GPU-1::0",), ("GPU-1::1",)}

    # the plugin is set up anew, and has whole GPUs
    site = leasing.site(devices={})
    with (
        running_agent(folder, site, device_plugins=folder / "p"),
        WatchingPlugin(folder / "p", ("GPU-1", "GPU-2"), delay=0),
    ):
        client(folder).give_back(others[0])
        with pytest.raises(AllocationError, match=r"2 hidden \(leases have the same GPUs"):
            client(folder).acquire(asked(devices={leasing.GPU: 1}), 3)
        client(folder).give_back(others[1])
        whole = client(folder).acquire(asked(devices={leasing.GPU: 1}), LONG).lease
        assert whole.devices == {leasing.GPU: ("GPU-2",)}


UUIDS = ("GPU-11", "GPU-22", "GPU-33")


def seen(*names):
    return {leasing.GPU: Seen(names, "X ('2') lists no others")}


@pytest.mark.parametrize("slices", [1, 3])
def test_a_client_gets_no_other_gpu_than_those_that_it_sees(folder, slices):
    """It tells them by UUID and by PCI address; shares of a GPU have the UUID before theirs."""
    site = leasing.site(devices={})
    with (
        WatchingPlugin(folder / "p", UUIDS, slices=slices, delay=0),
        running_agent(folder, site, device_plugins=folder / "p"),
    ):
        wishes = {"devices": {leasing.GPU: 1}, "seen": seen("GPU-22", "0000:02:00.0")}
        for number in range(slices):
            grant = client(folder).acquire(asked(**wishes), LONG)
            assert grant.environment()["CUDA_VISIBLE_DEVICES"] == "GPU-22", number
            assert grant.notes == ()

        with pytest.raises(AllocationError) as refused:
            client(folder).acquire(asked(**wishes))
        total = 3 * slices
        assert refused.value.detail.startswith(
            f"too few devices of nvidia.com/gpu are free: 1 asked, 0 of {total} free, "
            f"{total - slices} hidden (X ('2') lists no others); held now: "
        )
        # nobody else is kept from the others
        others = client(folder).acquire(asked(devices={leasing.GPU: 2 * slices}))
        assert len(others.lease.devices[leasing.GPU]) == 2 * slices


def test_a_client_names_no_more_devices_than_an_agent_looks_for(folder):
    names = [f"GPU-{number}" for number in range(513)]
    with running_agent(folder):
        assert client(folder).acquire(asked(cpus=1, seen=seen(*names[:512]))).lease.cpus
        with pytest.raises(InputError, match=r"up to 512 names of devices, got 513 at the request"):
            client(folder).acquire(asked(cpus=1, seen=seen(*names)))


def test_a_client_that_sees_gpus_of_another_name_is_told(folder):
    """A plugin may have names of its own, which tell no GPU."""
    said = []
    site = leasing.site()
    with running_agent(folder, site):
        source = AgentSource(folder / "agent.sock", said.append, LONG)
        grant = source.acquire(asked(devices={leasing.GPU: 1}, seen=seen("GPU-9", "0000:02:00.0")))
        assert grant.lease.devices == {leasing.GPU: ("gpu0",)}
        (sentence,) = said
        assert sentence == (
            "the agent chose among all devices of nvidia.com/gpu, though X ('2') lists no others: "
            "their names tell no device that this process sees"
        )
        grant = source.acquire(asked(devices={leasing.GPU: 1}, seen=seen("gpu2")))
        assert grant.lease.devices == {leasing.GPU: ("gpu2",)}
        assert len(said) == 1


def test_who_waits_for_a_gpu_that_it_sees_holds_up_nobody_else(folder):
    """Nor does it get another one once that is free, before a restart of the agent or after."""
    site = leasing.site(devices={leasing.GPU: [{"id": uuid, "numa": [0]} for uuid in UUIDS]})
    got = []
    wishes = {"devices": {leasing.GPU: 1}, "seen": seen("GPU-22")}
    with running_agent(folder, site):
        first = client(folder).acquire(asked(**wishes)).lease
        thread = threading.Thread(
            target=lambda: got.append(client(folder).acquire(asked(**wishes), LONG).lease)
        )
        thread.start()
        eventually(lambda: waiting(folder) == 1)
        other = client(folder).acquire(asked(devices={leasing.GPU: 1})).lease
        assert other.devices == {leasing.GPU: ("GPU-11",)}
        client(folder).give_back(other)

    with running_agent(folder, site):
        eventually(lambda: waiting(folder) == 1)
        assert not got
        client(folder).give_back(first)
        thread.join(LONG)

    assert got[0].devices == {leasing.GPU: ("GPU-22",)}


def test_parts_of_a_client_are_those_of_the_gpus_that_it_sees(folder):
    devices = [{"id": f"GPU-{number}{number}", "numa": [number // 2]} for number in range(4)]
    site = leasing.site(devices={leasing.GPU: devices})
    with running_agent(folder, site):
        wishes = {"devices": {leasing.GPU: 1}, "seen": seen("GPU-22", "GPU-33")}
        parts = client(folder).parts(2, 0, wishes["devices"], wishes["seen"])
        leases = [
            client(folder).acquire(asked(part=PartOf(rank, 2), **wishes)).lease for rank in range(2)
        ]
    assert [part.cpus for part in parts] == [lease.cpus for lease in leases]
    assert [part.devices for part in parts] == [lease.devices for lease in leases]
    assert [lease.devices[leasing.GPU] for lease in leases] == [("GPU-22",), ("GPU-33",)]
    assert [lease.numa_nodes for lease in leases] == [(1,), (1,)]


def knows_gpus(folder):
    with suppress(InputError):
        return leasing.GPU in client(folder).parts(1, 0, {leasing.GPU: 1})[0].devices
    return False


def test_a_plugin_that_never_comes_is_waited_for_in_vain(folder, monkeypatch):
    site = leasing.site(devices={})
    pattern = r"no device plugin of nvidia.com/gpu has registered yet \(waited for 0.1 s\)"
    with (
        running_agent(folder, site, device_plugins=folder / "p"),
        pytest.raises(AllocationError, match=pattern),
    ):
        client(folder).acquire(asked(devices={leasing.GPU: 1}), 0.1)

    monkeypatch.setattr("alignup.host.agent.agent._GRACE", 0.05)
    with running_agent(folder, site, device_plugins=folder / "p"):
        eventually(lambda: is_unknown(folder))


def is_unknown(folder):
    """Return whether nobody waits for a resource any more that no plugin has registered."""
    with suppress(AllocationError):
        with pytest.raises(InputError, match="none: no device plugin has registered"):
            client(folder).acquire(asked(devices={leasing.GPU: 1}))
        return True
    return False


def parts_or_none(source):
    try:
        return source.parts(1, 0, {NIC: 1})
    except InputError:
        return []


def refused(source):
    with pytest.raises(AllocationError):
        source.acquire(asked(devices={NIC: 1}))


def test_a_plugin_that_hangs_stalls_nobody_else(folder, plugin):
    plugin.hangs.add("Allocate")
    with running_agent(folder, device_plugins=folder / "p"):
        plugin.serve().reports.put(report("nic0", "nic1"))
        plugin.register()
        source = client(folder)
        eventually(lambda: parts_or_none(source))

        thread = threading.Thread(target=refused, args=(source,))
        thread.start()
        eventually(
            lambda: (
                ("Allocate", ("nic0",)) in plugin.calls or ("Allocate", ("nic1",)) in plugin.calls
            )
        )

        source.give_back(source.acquire(asked(cpus=16)).lease)
        plugin.die()
        thread.join(LONG)
        assert source.overview().leases == ()


def test_a_part_is_given(folder):
    with running_agent(folder, limits=Limits(cpus=4)):
        grant = client(folder).acquire(asked(part=PartOf(1, 4), devices={leasing.GPU: 1}))
        assert grant.lease.devices == {leasing.GPU: ("gpu1",)}


@pytest.mark.parametrize("durable", [True, False])
def test_many_clients_hold_nothing_twice(folder, durable):
    with running_agent(folder, durable=durable):
        problems = []

        def work():
            source = client(folder)
            for _ in range(10):
                try:
                    lease = source.acquire(asked(cpus=3), LONG).lease
                    leased_cpus = [
                        cpu
                        for known_lease in source.overview().leases
                        for cpu in known_lease.lease.cpus
                    ]

                    if len(leased_cpus) != len(set(leased_cpus)):
                        problems.append(leased_cpus)
                    source.give_back(lease)
                except AlignupError as error:
                    problems.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
        assert problems == []
        assert client(folder).overview().leases == ()


def test_beside_an_agent_whose_file_somebody_removes_nothing_is_given(folder, monkeypatch):
    """The agent is asked, whose journal is still there; the file is made again."""
    monkeypatch.setattr("alignup.host.agent.agent._LOOK", 0.05)
    with running_agent(folder):
        lease = client(folder).acquire(asked(cpus=2)).lease
        (folder / "leases.json").unlink()
        beside = FileSource(file_of(folder), lambda _: leasing.site()).acquire(asked(cpus=2)).lease
        assert {lease.id, beside.id} == {
            known_lease.lease.id for known_lease in client(folder).overview().leases
        }
        assert not lease.cpus & beside.cpus
        eventually((folder / "leases.json").exists)


def own_machine():
    """Return the machine of the tests, but of no other test.

    All of them see the processes of all.
    """
    site = leasing.site()
    return replace(site, identity=MachineIdentity(uuid.uuid4().hex, site.identity.description))


@pytest.fixture
def shown():
    """What `show` of a request is to be, and the file in memory that it writes."""
    evidence = evidence_file()
    yield lambda *shown: show_evidence(evidence_of(*shown), evidence)
    os.close(evidence)


@pytest.mark.parametrize("name", ["alignup/leases.json", "elsewhere/leases.json"])
def test_what_users_have_from_their_own_files_is_the_agent_s_who_takes_their_place(
    folder, shown, name
):
    """A file that somebody named stays as it is, and who named it goes on with it."""
    site = own_machine()
    socket = folder / "agent.sock"
    files = FileSource(LeaseFile(folder / name, pytest.fail), lambda _: site, socket)
    lease = files.acquire(asked(show=shown, cpus=2)).lease
    with running_agent(folder, site, replaces_own_files=True):
        leases = [known_lease.lease for known_lease in client(folder).overview().leases]
        if "alignup" not in name:
            assert leases == []
        else:
            assert leases == [msgspec.structs.replace(lease, uid=os.geteuid())]
            others = client(folder).acquire(asked(cpus=2)).lease
            assert not others.cpus & lease.cpus
            client(folder).give_back(others)

        assert files.acquire(asked(cpus=2)).agent == str(socket)
        files.give_back(lease)
        assert lease.id not in {
            known_lease.lease.id for known_lease in client(folder).overview().leases
        }
        assert lease not in LeaseFile(folder / name, pytest.fail).read().leases


def test_who_waits_in_a_file_is_given_by_the_agent_that_takes_its_place(folder, shown):
    site = own_machine()
    state = folder / "alignup" / "leases.json"
    files = FileSource(LeaseFile(state, pytest.fail), lambda _: site, folder / "agent.sock")
    before = files.acquire(asked(show=shown, cpus=16)).lease
    grants = []
    with ThreadPoolExecutor() as pool:
        pool.submit(lambda: grants.append(files.acquire(asked(cpus=1), LONG)))
        eventually(lambda: LeaseFile(state, pytest.fail).read().waiting)
        with running_agent(folder, site, replaces_own_files=True):
            eventually(lambda: client(folder).overview().waiting)
            files.give_back(before)
            eventually(lambda: grants)
            assert grants[0].agent == str(folder / "agent.sock")

    assert LeaseFile(state, pytest.fail).read().waiting == ()


def test_a_lease_of_a_file_counts_only_if_no_agent_came_while_it_was_taken(folder, shown):
    """Either the agent sees what the process shows, or the process sees the agent."""
    site = own_machine()
    state = folder / "alignup" / "leases.json"
    files = FileSource(LeaseFile(state, pytest.fail), lambda _: site, folder / "agent.sock")
    with ExitStack() as stack:

        def show(*words):
            if not (folder / "agent.sock").exists():
                stack.enter_context(running_agent(folder, site, replaces_own_files=True))
            shown(*words)

        grant = files.acquire(asked(show=show, cpus=2))
        assert grant.agent == str(folder / "agent.sock")
        assert [known_lease.lease for known_lease in client(folder).overview().leases] == [
            grant.lease
        ]
        assert LeaseFile(state, pytest.fail).read().leases == ()


@pytest.mark.parametrize("is_shown", [True, False])
def test_files_that_somebody_removes_are_made_again(folder, monkeypatch, caplog, is_shown):
    """Leases that were given meanwhile are the agent's, unless it has some of what they have.

    They were given without it since nothing told of an agent.
    """
    monkeypatch.setattr("alignup.host.agent.agent._LOOK", 0.5)
    evidence = evidence_file()

    def show(*shown):
        show_evidence(evidence_of(*shown), evidence)

    with running_agent(folder):
        client(folder).acquire(asked(show=show if is_shown else None, cpus=2))
        (folder / "leases.json").unlink()
        journal = (folder / "leases.json.journal").rename(folder / "j")
        beside = (
            FileSource(file_of(folder), lambda _: leasing.site())
            .acquire(asked(cpus=2, name="beside"))
            .lease
        )
        journal.rename(folder / "leases.json.journal")
        eventually(lambda: "granted without the agent" in caplog.text)
        eventually(lambda: file_of(folder).agent())
        assert (
            beside.id in {known_lease.lease.id for known_lease in client(folder).overview().leases}
        ) == is_shown
        assert ("the lease was not taken over" in caplog.text) != is_shown

    os.close(evidence)
    with running_agent(folder):
        assert (
            beside.id in {known_lease.lease.id for known_lease in client(folder).overview().leases}
        ) == is_shown


def test_an_agent_ends_whose_lock_somebody_removes(folder, monkeypatch, caplog):
    monkeypatch.setattr("alignup.host.agent.agent._LOOK", 0.05)
    ended = []
    with suppress(AssertionError), running_agent(folder) as agent:
        (folder / "leases.json.agent").unlink()
        eventually(agent.end.is_set)
        ended.append(agent._status)
    assert ended == [1]
    assert "the lock file was removed" in caplog.text


def test_an_agent_goes_on_while_others_use_up_descriptors(folder, monkeypatch):
    """That its file cannot be read now says nothing about who has the leases."""
    monkeypatch.setattr("alignup.host.agent.agent._LOOK", 0.002)
    looks = []

    def look(ownership):
        looks.append(ownership)
        with system_errors("cannot read the file of leases", "/leases.json"):
            raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Ownership, "look", look)
    with running_agent(folder) as agent:
        eventually(lambda: len(looks) > 3)
        assert not agent.end.is_set()
        assert client(folder).acquire(asked(cpus=1))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_sees_and_takes_what_they_may(folder):
    """Played by a copy of this process."""
    nobody = 65534
    folder.chmod(0o755)
    group = grp.getgrgid(nobody).gr_name
    with running_agent(folder, group=group, limits=Limits(cpus=4)):
        own = client(folder).acquire(asked(cpus=2, name="roots")).lease
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.setgroups([])
                os.setresgid(nobody, nobody, nobody)
                os.setresuid(nobody, nobody, nobody)
                status = what_nobody_may(folder, own)
            finally:
                os._exit(status)

        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert [known_lease.lease.id for known_lease in client(folder).overview().leases] == [
            own.id
        ]


def what_nobody_may(folder, roots):
    """Return 0 if all is as it should be, else the number of what is not."""
    source = client(folder)
    lease = source.acquire(asked(cpus=3, name="roots")).lease
    shown = {known_lease.lease.name: known_lease.lease for known_lease in source.overview().leases}
    if (
        set(shown) != {"(user 0)", "roots"}
        or shown["(user 0)"].process.pid
        or lease.cpus & shown["(user 0)"].cpus
    ):
        return 2

    source.give_back(roots)
    if (
        len(source.overview().leases) != 2
        or source.release("roots", force=True).lease.id != lease.id
    ):
        return 3

    with pytest.raises(AllocationError, match="no lease has the name"):
        source.release("roots", force=True)

    with pytest.raises(AllocationError, match="5 CPUs are more than the 4 that one user may have"):
        source.acquire(asked(cpus=5))

    with pytest.raises(InputError, match="process 1 belongs to user 0, not to user 65534"):
        source.acquire(asked(identify(1), cpus=1))

    return 0


@pytest.mark.parametrize("wait", [0.0, 1.0])
def test_a_failure_of_the_agent_is_one_requests_only(folder, monkeypatch, caplog, wait):
    with running_agent(folder):
        with monkeypatch.context() as patched:
            patched.setattr(Ledger, "ask", lambda *_: 1 / 0)
            with pytest.raises(InputError, match="the agent failed: see its log"):
                client(folder).acquire(asked(cpus=1), wait)
        assert "ZeroDivisionError" in caplog.text
        client(folder).acquire(asked(cpus=16))


@pytest.mark.parametrize(
    "wishes", [{"memory": 1 << 62}, {"cpus": 1 << 20}, {"devices": {leasing.GPU: 10**9}}]
)
def test_what_is_far_too_much_is_refused(folder, wishes):
    with running_agent(folder), pytest.raises(AllocationError):
        client(folder).acquire(asked(**wishes))


@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_service_manager_listens_at_a_path_or_an_abstract_name(folder, monkeypatch, is_abstract):
    """An abstract name begins with NUL for the kernel, and with @ in the environment."""
    address = str(folder / "notify")
    name = address
    if is_abstract:
        address = f"@{uuid.uuid4()}"
        name = address.replace("@", "\0")

    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(name)
        notify.setblocking(False)
        tell_systemd("READY=1")
        assert notify.recv(100) == b"READY=1"


def test_a_lease_of_cpus_that_the_machine_lacks_now_is_said(folder, caplog):
    site = leasing.site()
    lease = leasing.record("old", cpus=CPUSet([1, 9999]))
    leasing.put(file_of(folder), lease, machine=site.identity)
    with running_agent(folder, site):
        pass

    assert "lease 'old' has CPUs 9999, which this machine lacks now" in caplog.text
