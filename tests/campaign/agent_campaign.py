"""Runs an agent under load, in processes of its own.

How fast it is, whether it stays small, whether it can be killed.

    python tests/campaign/agent_campaign.py load|soak|kill|beside SECONDS

Prints one JSON object; the exit status is 1 if anything was held twice, leaked or forgotten. This
process makes no thread and no connection of grpc: all others are copies of it, and start at once.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

from alignup.errors import AlignupError, AllocationError
from alignup.host.agent.agent import AgentOptions, run_agent
from alignup.host.agent.ownership import Ownership
from alignup.host.leases.agent_messages import Ask, GiveBack, decode_reply, frame
from alignup.host.leases.file import LeaseFile
from alignup.host.leases.ledger import Ledger
from alignup.host.leases.local_machine import load_site
from alignup.host.leases.request import LeaseRequest, make_request
from alignup.host.leases.source import AgentSource
from alignup.host.leases.users import Limits
from alignup.host.processes.cgroups import remove_cgroup
from alignup.host.processes.identity import identify
from fakes.device_plugins import NIC, FakePlugin, report
from running.real_cgroups import cgroup_mount

CLIENTS = 8
NICS = 8
LONG = 60.0

HANGING = 16


def forked(work, *arguments):
    """Run a function in a copy of this process; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        work(*arguments)
        status = 0
    except BaseException:  # noqa: BLE001  # as the interpreter would
        traceback.print_exc()
    finally:
        os._exit(status)


def ended(pid):
    """Kill a process and wait for its end."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


class Campaign:
    """A folder with an agent's file and socket."""

    def __init__(self, folder):
        self.folder = folder
        self.site = load_site("dgx-h100", all_resources=True)
        self.problems = folder / "problems"
        self.problems.touch()
        self.cgroup = None
        """Where commands get cgroups; None: nowhere."""

    def agent(self, *, durable=True, plugins=False):
        """Start an agent."""
        device_plugins = None
        if plugins:
            device_plugins = self.folder / "p"

        options = AgentOptions(
            self.folder / "agent.sock",
            limits=Limits(leases=None),
            device_plugins=device_plugins,
            durable=durable,
            cgroups=self.cgroup is not None,
            cgroup=self.cgroup,
        )
        pid = forked(
            lambda: run_agent(LeaseFile(self.folder / "leases.json", self.say), self.site, options)
        )
        self.source().overview()
        return pid

    def say(self, _sentence):
        """Pass over what the file of leases has to say."""

    def source(self):
        """Return a client."""
        return AgentSource(self.folder / "agent.sock", lambda _: None, LONG)

    def wrong(self, problem):
        """Write down a problem."""
        with self.problems.open("a") as file:
            file.write(f"{problem}\n")


# --- load


def exchange(connection, stream, message):
    connection.sendall(frame(message))
    return decode_reply(stream.read(int.from_bytes(stream.read(4), "big")))


def commands(campaign, seconds):
    """Take and give back leases as commands do, each over a connection of its own.

    Write how long that took.
    """
    process = identify(os.getpid())
    source = campaign.source()
    durations = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.perf_counter()
        lease = source.acquire(
            LeaseRequest(make_request(cpus=2), process, command="load", name="x")
        ).lease
        durations.append(time.perf_counter() - start)
        source.give_back(lease)
    (campaign.folder / f"took-{INNOCENT}").write_text(json.dumps(durations))


def loading(campaign, number, seconds):
    """Take and give back leases as fast as one can; write how long each took."""
    process, durations = identify(os.getpid()), []
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(campaign.folder / "agent.sock"))
        stream = connection.makefile("rb")
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            count += 1
            lease_id = f"{number:08}{count:08}"
            start = time.perf_counter()
            reply = exchange(
                connection, stream, Ask(lease_id, process, "load", "x", cpus=2, memory=1 << 30)
            )
            durations.append(time.perf_counter() - start)
            if type(reply).__name__ != "Grant":
                campaign.wrong(f"refused: {reply}")
            exchange(connection, stream, GiveBack(lease_id))

    (campaign.folder / f"took-{number}").write_text(json.dumps(durations))


def in_process(campaign):
    """Return placements a second of the ledger alone, each given back."""
    ledger, me, count = Ledger(campaign.site, Limits(), 0), identify(os.getpid()), 3000
    request, best = make_request(cpus=2, memory=1 << 30), math.inf
    for _ in range(5):
        start = time.perf_counter()
        for number in range(count):
            ledger.keep(
                ledger.ask(
                    LeaseRequest(request, me, command="load", name="x", id=str(number), uid=0)
                ).id
            )
            ledger.free(str(number))

        best = min(best, time.perf_counter() - start)

    return round(count / best)


def load(campaign, seconds):
    """Return placements a second and the times that they took, without fsync and with it."""
    figures = {"in process": {"placements a second": in_process(campaign)}}
    for durable in (False, True):
        agent = campaign.agent(durable=durable)
        clients = [forked(loading, campaign, number, seconds) for number in range(CLIENTS)]
        for pid in clients:
            os.waitpid(pid, 0)
        ended(agent)
        durations = sorted(
            duration
            for number in range(CLIENTS)
            for duration in json.loads((campaign.folder / f"took-{number}").read_text())
        )
        name = "without fsync"
        if durable:
            name = "with fsync"
        figures[name] = {
            "placements a second": round(len(durations) / seconds),
            "median ms": round(durations[len(durations) // 2] * 1000, 3),
            "p99 ms": round(durations[len(durations) * 99 // 100] * 1000, 3),
        }

    return figures


# --- beside neighbours

INNOCENT, NEIGHBOUR = 12_001, 12_002
"""Users."""


def innocent(campaign, seconds):
    """Take and give back a lease of two CPUs, as one user among others."""
    if os.geteuid() == 0:
        os.setuid(INNOCENT)
    commands(campaign, seconds)


def asking(campaign, resources):
    """Ask for devices of some resources, four times each, and wait for the answers."""
    me, connections = identify(os.getpid()), []
    for number, resource in enumerate(4 * resources):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(campaign.folder / "agent.sock"))
        connection.sendall(
            frame(Ask(f"hang{number:012}", me, "hang", "x", devices={resource: 1}, wait=-1.0))
        )
        connections.append(connection)
    time.sleep(10 * LONG)


def hanging(campaign):
    """Be plugins that never answer Allocate, and that are asked by many."""
    resources = [f"example.com/hangs-{number}" for number in range(HANGING)]
    for resource in resources:
        plugin = FakePlugin(campaign.folder / "p", resource).serve().register()
        plugin.hangs.add("Allocate")
        plugin.reports.put(report("a", "b", "c", "d"))
    time.sleep(1)
    asking(campaign, resources)


def flapping(campaign):
    """Be a plugin whose 2,000 devices fall ill and get well 200 times a second."""
    plugin = FakePlugin(campaign.folder / "p", NIC).serve().register()
    ids = [f"nic{number}" for number in range(2000)]
    reports = [report(*ids), report(*ids, healthy=False)]
    while True:
        for devices in reports:
            plugin.reports.put(devices)
            time.sleep(0.005)


def flooding(campaign):
    """Open connections as fast as one can, some of which stay, and send little or nonsense."""
    if os.geteuid() == 0:
        os.setuid(NEIGHBOUR)
    chance, connections = random.Random(), []
    while True:
        connection = socket.socket(socket.AF_UNIX)
        with suppress(OSError):
            connection.connect(str(campaign.folder / "agent.sock"))
            connection.sendall(chance.choice([b"", b"\0", b"\0\0\0\x05nope!", b"\xff" * 100]))
        connections.append(connection)
        if len(connections) > 1000:
            connections.pop(chance.randrange(len(connections))).close()


def asking_in_vain(campaign):
    """Wait for more than there is, again and again, with as many requests as a user may have."""
    if os.geteuid() == 0:
        os.setuid(NEIGHBOUR)
    me, number = identify(os.getpid()), 0
    while True:
        with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
            connection.connect(str(campaign.folder / "agent.sock"))
            number += 1
            connection.sendall(frame(Ask(f"vain{number:012}", me, "vain", "x", cpus=200, wait=0.2)))
            connection.recv(1000)


def beside(campaign, seconds):
    """Return how long an innocent client waits for a lease.

    It is alone, and beside each kind of neighbour.
    """
    campaign.folder.chmod(0o711)
    for name in (f"took-{INNOCENT}", "problems"):
        (campaign.folder / name).touch()
        (campaign.folder / name).chmod(0o666)

    neighbours = {
        "alone": (),
        f"{HANGING} hanging plugins": (hanging,),
        "a flapping plugin": (flapping,),
        "a flood of connections": (flooding, flooding),
        "a queue that is never met": (asking_in_vain,) * 4,
    }
    figures = {}
    for name, works in neighbours.items():
        agent = campaign.agent(plugins=True, durable=False)
        pids = [forked(work, campaign) for work in works]
        time.sleep(2)
        os.waitpid(forked(innocent, campaign, seconds / len(neighbours)), 0)
        for pid in pids:
            ended(pid)
        ended(agent)
        durations = sorted(json.loads((campaign.folder / f"took-{INNOCENT}").read_text()))
        figures[name] = {
            "leases": len(durations),
            "median ms": round(durations[len(durations) // 2] * 1000, 2),
            "p99 ms": round(durations[len(durations) * 99 // 100] * 1000, 2),
            "longest ms": round(durations[-1] * 1000, 1),
        }

    return figures


# --- soak and kill


class Locks:
    """Locks of the CPUs and NICs of a lease.

    The kernel lets go of them when a process ends, before anybody hears.
    """

    def __init__(self, campaign, lease):
        self.files = []
        for name in [
            *(f"cpu-{cpu}" for cpu in lease.cpus),
            *(f"nic-{nic}" for nic in lease.devices.get(NIC, ())),
        ]:
            descriptor = os.open(
                campaign.folder / "held" / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            )
            self.files.append(descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                campaign.wrong(f"held twice: {name} by {lease.name}")

    def close(self):
        """Let go."""
        for descriptor in self.files:
            os.close(descriptor)


def claiming(campaign, number, seconds, plugins):
    """Take, hold and give back leases.

    See that nobody else has anything of them, and that they are known.
    """
    chance, source, me = (
        random.Random(f"{number} {time.time()}"),
        campaign.source(),
        identify(os.getpid()),
    )
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        wishes = {"cpus": chance.randrange(1, 60), "memory": chance.choice([0, 1 << 30])}
        if plugins and chance.random() < 0.3:
            wishes["devices"] = {NIC: chance.randrange(1, 4)}
        request = LeaseRequest(make_request(**wishes), me, command="campaign", name=f"c{number}")
        try:
            lease = source.acquire(request, chance.choice([None, 2.0])).lease
        except AllocationError:
            time.sleep(0.01)
            continue
        except AlignupError as error:
            if "resource that it has" not in str(error):
                campaign.wrong(f"failed: {error}")
            continue

        locks = Locks(campaign, lease)
        time.sleep(chance.random() * 0.05)
        if chance.random() < 0.2 and lease.id not in {
            overview_lease.lease.id for overview_lease in source.overview().leases
        }:
            campaign.wrong(f"forgotten: {lease}")

        locks.close()
        source.give_back(lease)


def plugging(campaign):
    """Be a device plugin, and register whenever there is an agent anew."""
    plugin = FakePlugin(campaign.folder / "p", NIC, preferred=True, pre_start=True).serve()
    socket_of_agent, registered_at = campaign.folder / "p" / "kubelet.sock", None
    while True:
        with suppress(OSError):
            status = socket_of_agent.stat()
            if (status.st_ino, status.st_mtime_ns) != registered_at:
                plugin.die()
                plugin.serve()
                plugin.reports.put(report(*(f"nic{number}" for number in range(NICS))))
                with suppress(Exception):
                    plugin.register()
                    registered_at = status.st_ino, status.st_mtime_ns

        time.sleep(0.05)


def all_free(campaign):
    """See that nothing is held once nobody is left to hold it."""
    source, end = campaign.source(), time.monotonic() + LONG
    while (leases := source.overview().leases) and time.monotonic() < end:
        time.sleep(0.05)
    if leases:
        campaign.wrong(f"leaked: {leases}")
    request = LeaseRequest(make_request(cpus=224), identify(os.getpid()), command="", name="all")
    try:
        source.give_back(source.acquire(request, 10.0).lease)
    except AlignupError as error:
        campaign.wrong(f"not all can be had at the end: {error}")


def size_of(pid):
    """Return the resident kilobytes and the open files of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = next(
        int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")
    )
    return kilobytes, sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def commanding(campaign, seconds):
    """Take leases for commands that leave a daemon behind, whose keepers are killed.

    See that the daemon has them.
    """
    source, end = campaign.source(), time.monotonic() + seconds
    while time.monotonic() < end:
        go, answer = os.pipe(), os.pipe()
        command, keeper = forked(leaving_a_daemon, go, answer), forked(time.sleep, LONG)
        request = LeaseRequest(
            make_request(cpus=1),
            identify(command),
            command="daemon",
            name="d",
            keeper=identify(keeper),
        )
        try:
            lease = source.acquire(request, 5.0).lease
        except AllocationError:
            lease = None

        os.write(go[1], b"x")
        daemon = int(os.read(answer[0], 20))
        for pid in (command, keeper):
            ended(pid)
        if lease is not None and lease.cgroup:
            time.sleep(0.02)
            if lease.id not in {
                overview_lease.lease.id for overview_lease in source.overview().leases
            }:
                campaign.wrong(f"forgotten, though its daemon runs: {lease.name}")

        os.kill(daemon, signal.SIGKILL)
        for descriptor in (*go, *answer):
            os.close(descriptor)
        time.sleep(0.1)


def leaving_a_daemon(go, answer):
    """Start a process that outlives this one, and say which."""
    os.read(go[0], 1)
    os.write(answer[1], str(forked(time.sleep, LONG)).encode())
    time.sleep(LONG)


def soak(campaign, seconds):
    """Return how large the agent was, every ten seconds.

    All but itself are killed now and then meanwhile.
    """
    chance, every = random.Random(), min(10.0, seconds / 10)
    end = time.monotonic() + seconds
    agent, plugin = campaign.agent(plugins=True), forked(plugging, campaign)
    clients = [forked(claiming, campaign, number, seconds, True) for number in range(CLIENTS)]
    commands = forked(commanding, campaign, seconds)
    sizes, killed = [], 0
    while (seconds_left := end - time.monotonic()) > 0:
        time.sleep(min(seconds_left, every))
        sizes.append(size_of(agent))
        seconds_left, number = max(0.0, end - time.monotonic()), chance.randrange(CLIENTS)
        ended(clients[number])
        clients[number] = forked(claiming, campaign, number, seconds_left, True)
        if len(sizes) % 6 == 0:
            ended(plugin)
            plugin = forked(plugging, campaign)

        killed += 1

    for pid in (*clients, commands):
        os.waitpid(pid, 0)

    all_free(campaign)
    sizes.append(size_of(agent))
    ended(plugin)
    ended(agent)
    early, late = sizes[len(sizes) // 4], sizes[-1]
    if late[0] > early[0] + 16_000 or late[1] > early[1] + 16:
        campaign.wrong(f"grown: {early} to {late}")

    return {"clients killed": killed, "samples": len(sizes), **summary(sizes)}


def summary(sizes):
    """Return the first, last, smallest and largest of what was measured."""
    return {
        name: {"first": values[0], "last": values[-1], "min": min(values), "max": max(values)}
        for name, values in zip(("kilobytes", "files"), zip(*sizes, strict=True), strict=True)
    }


def kill(campaign, seconds):
    """Kill agent, plugin and clients at random moments; return how often each."""
    chance, end = random.Random(), time.monotonic() + seconds
    agent, plugin = campaign.agent(plugins=True), forked(plugging, campaign)
    clients = [forked(claiming, campaign, number, LONG, True) for number in range(CLIENTS)]
    kills = {"agent": 0, "plugin": 0, "client": 0}
    while time.monotonic() < end:
        time.sleep(chance.random() * 0.15)
        victim = chance.choice(["agent", "client", "client", "plugin"])
        kills[victim] += 1
        if victim == "agent":
            ended(agent)
            agent = campaign.agent(plugins=True)
        elif victim == "plugin":
            ended(plugin)
            plugin = forked(plugging, campaign)
        else:
            number = chance.randrange(CLIENTS)
            ended(clients[number])
            clients[number] = forked(claiming, campaign, number, LONG, True)

    for pid in clients:
        ended(pid)

    all_free(campaign)
    ended(plugin)
    ended(agent)
    ownership = Ownership(LeaseFile(campaign.folder / "leases.json", campaign.say))
    if ownership.hand_back(campaign.say).leases:
        campaign.wrong("leaked in the journal")

    ownership.close()
    return {"kills": kills}


def main():
    mode, seconds = sys.argv[1], float(sys.argv[2])
    os.setpgid(0, 0)
    folder = Path(tempfile.mkdtemp(prefix="ag-", dir="/tmp"))
    for name in ("held", "p"):
        (folder / name).mkdir()

    mount, campaign = cgroup_mount(), Campaign(folder)
    if mount is not None and os.access(mount, os.W_OK):
        campaign.cgroup = mount / f"alignup-{folder.name}"

    try:
        figures = {"load": load, "soak": soak, "kill": kill, "beside": beside}[mode](
            campaign, seconds
        )
        problems = campaign.problems.read_text().splitlines()
        sys.stdout.write(f"{json.dumps({**figures, 'problems': problems[:20]})}\n")
        sys.exit(bool(problems))
    finally:
        # whoever reads what this process says waits for the end of all that it has started
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
        shutil.rmtree(folder)
        if campaign.cgroup is not None and not remove_cgroup(str(campaign.cgroup)):
            sys.stderr.write(f"left behind: {campaign.cgroup}\n")


if __name__ == "__main__":
    main()
