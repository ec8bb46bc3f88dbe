"""Puts the agent together and runs it.

It takes over the leases, serves, and leaves them as they are when it ends.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import threading
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError, system_errors
from alignup.host.agent.journal import Journal
from alignup.host.agent.ownership import Ownership
from alignup.host.agent.server import AgentServer, make_folder
from alignup.host.agent.service import Observer, PluginCalls, PluginDevices, Service
from alignup.host.leases.evidence import find_evidence, text_of
from alignup.host.leases.file import LeaseFile, is_default_state
from alignup.host.leases.ledger import Ledger
from alignup.host.leases.users import Limits
from alignup.host.processes.cgroups import Cgroups, Enclosures
from alignup.host.trusted_files import check_free, check_text
from alignup.kubelet.pod_resources import Allocatable, ContainerResources, PodResources
from alignup.kubernetes.versions import NEWEST, KubeletVersion
from alignup.machine.cpuset import CPUSet
from alignup.records import Record, field
from alignup.text.counting import counted
from alignup.topology_manager.admission import MemoryBlock

if TYPE_CHECKING:
    from pathlib import Path

    from alignup.host.leases.local_machine import Site
    from alignup.host.leases.record import LeaseTable
    from alignup.machine.machine import Machine

_LOG: Final = logging.getLogger(__name__)
# Seconds between looks at the file of leases, which somebody may remove.
_LOOK: Final = 1.0
# Errors that say nothing about a file, and pass: others use up descriptors or memory.
_SHORTAGES: Final = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
# Seconds from a signal to the end, whatever is under way: then the kernel ends the process
# (SIGALRM).
_LAST: Final = 20
# Seconds after a start in which those who waited before keep their places, and device plugins may
# register: they do so a second or more after they have seen the agent's socket.
_GRACE: Final = 10.0


class AgentOptions(Record):
    """How an agent runs.

    Attributes:
        group: whose members may connect; empty: the group of the process.
        device_plugins: the folder of device plugins; None: there are none.
        pod_resources: the socket of PodResources; None: it is not served.
        metrics: `[ADDRESS:]PORT`, or a path with a slash; empty: not served.
        durable: leases are on the disk before anybody is told.
        version: the release of the kubelet whose managers decide; None: the newest that is out.
        cgroups: commands get cgroups, where some can be made.
        cgroup: the cgroup (v2) below which they are made; None: that of each command.
        replaces_own_files: users who name no file of leases ask this agent from now on: it takes
            over what they have from such files.
    """

    socket: Path
    group: str = ""
    limits: Limits = field(default_factory=Limits)
    device_plugins: Path | None = None
    pod_resources: Path | None = None
    metrics: str = ""
    durable: bool = True
    version: KubeletVersion | None = None
    cgroups: bool = True
    cgroup: Path | None = None
    replaces_own_files: bool = False


def run_agent(file: LeaseFile, site: Site, options: AgentOptions) -> int:
    """Run an agent until it is told to end; return its exit status.

    Where it cannot serve, a file that had no agent before is as it was.

    Raises:
        InputError: another agent has the leases, or a file, folder or socket cannot be used.
    """
    check_text(file.path, "--state")  # users are told
    ownership = Ownership(file)
    try:
        check_free(options.socket, "--socket")  # before the file says that an agent serves there
        with system_errors("cannot serve a socket", options.socket):
            make_folder(options.socket, options.group)  # before device plugins have theirs in it

        table = ownership.take_over(site.identity, options.socket, _LOG.warning)
        agent = Agent(file, site, options, ownership, table)
        try:
            return asyncio.run(agent.run())
        except BaseException:
            if ownership.is_first and not agent.is_ready.is_set():
                # commands would wait for an agent that cannot start with these options
                with suppress(InputError):
                    ownership.hand_back(_LOG.warning)

            raise
    finally:
        signal.alarm(0)
        ownership.close()


class Agent:
    """An agent that runs.

    Args:
        file: the file whose leases it has taken over.
        site: the machine.
        options: how it runs.
        ownership: its right to the leases.
        table: what it has taken over.
    """

    def __init__(
        self,
        file: LeaseFile,
        site: Site,
        options: AgentOptions,
        ownership: Ownership,
        table: LeaseTable,
    ) -> None:
        self._file = file
        self._site = site
        self._options = options
        self._ownership = ownership
        self._table = table
        self._status = 0

        # Set when it is told to end, by a signal or otherwise.
        self.end = asyncio.Event()
        # Set when it serves.
        self.is_ready = threading.Event()

    async def run(self) -> int:
        """Serve until it is told to end, by a signal or otherwise, or the disk fails.

        Returns:
            The exit status.
        """
        loop = asyncio.get_running_loop()
        options = self._options
        ledger = Ledger(self._site, options.limits, os.geteuid(), options.version or NEWEST)
        ownership = self._ownership
        ledger.closed = ownership.lost
        ledger.await_plugins(awaits=options.device_plugins is not None)
        for notice in ledger.restore(self._table.leases, self._table.waiting):
            _LOG.warning("%s", notice)

        async with AsyncExitStack() as stack:
            journal = Journal(
                ownership.journal,
                ledger.table,
                self._fail,
                durable=options.durable,
                lost=ownership.lost,
                written=ownership.wrote,
            )
            stack.push_async_callback(journal.close)
            ledger.record = journal.append

            observer = Observer()
            if options.metrics:
                # needs prometheus-client
                from alignup.host.agent.metrics_server import (  # noqa: PLC0415
                    AgentMetrics,
                    serving_metrics,
                )

                observer = AgentMetrics(ledger)
                await stack.enter_async_context(serving_metrics(options.metrics, observer.registry))

            plugins = self._plugins(stack)
            enclosures = Enclosures(self._cgroups())
            stack.callback(enclosures.close)
            lease_cgroups = frozenset(lease.cgroup for lease in self._table.leases)
            enclosures.sweep(lease_cgroups, ownership.ended_cgroups)

            service = Service(
                ledger, journal, self._site, self._file.path, plugins, observer, enclosures
            )
            stack.callback(service.watch.close)
            plugins.feed(ledger, service.changed)

            if options.pod_resources is not None:
                # needs grpc
                from alignup.kubelet.pod_resources_server import (  # noqa: PLC0415
                    serve_pod_resources,
                )

                list_pods = partial(pod_resources_of, ledger, self._site.machine)
                stop = serve_pod_resources(
                    {options.pod_resources: list_pods}, loop, "--podresources"
                )
                # it asks the event loop, and must not be waited for within it
                stack.push_async_callback(asyncio.to_thread, stop)

            server = AgentServer(options.socket, options.group, service)
            await server.start()
            stack.push_async_callback(server.stop)
            if options.replaces_own_files:
                self._take_from_own_files(service)

            if threading.current_thread() is threading.main_thread():
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(number, self._told_to_end)

            stack.callback(asyncio.create_task(self._look_after_file(service)).cancel)
            loop.call_later(_GRACE, service.end_grace)

            lease_count = counted(len(ledger.leases), "lease")
            _LOG.info("serving %s with %s", options.socket, lease_count)
            settle_memory()
            self.is_ready.set()
            tell_systemd(f"READY=1\nSTATUS={lease_count} taken over")
            await self.end.wait()
            tell_systemd("STOPPING=1")

        return self._status

    async def _look_after_file(self, service: Service) -> None:
        """See now and then that the file still says whose its leases are.

        End if another agent may have them.
        """
        while True:
            await asyncio.sleep(_LOOK)
            try:
                leases = await asyncio.to_thread(self._ownership.look)
            except InputError as error:
                if getattr(error.__cause__, "errno", None) in _SHORTAGES:
                    continue

                self._fail(str(error))
                return

            for lease in leases:
                origin = "was granted without the agent, whose file was removed"
                service.adopt(lease, logging.ERROR, origin)

    def _take_from_own_files(self, service: Service) -> None:
        """Take over the leases that running processes have from files of their users' own.

        Called once the agent serves: a command that takes a lease from such a file looks afterwards
        whether an agent serves.
        """
        own_state = text_of(self._file.path)
        for evidence in find_evidence(None, of_all_users=os.geteuid() == 0):
            state = evidence.state
            is_own_file = state != own_state and is_default_state(state)
            if is_own_file and evidence.machine == self._site.identity:
                lease = evidence.lease
                origin = f"of user {lease.uid} was taken over from {state}"
                service.adopt(lease, logging.WARNING, origin)

    def _fail(self, trouble: str) -> None:
        """End: what cannot be written is promised to nobody."""
        _LOG.critical("%s", trouble)
        self._status = 1
        self.end.set()

    def _told_to_end(self) -> None:
        signal.alarm(_LAST)
        self.end.set()

    def _cgroups(self) -> Cgroups | None:
        """Return what makes cgroups.

        Return None, with a sentence in the log, if there is nowhere to make them.

        Raises:
            InputError: there is nowhere, and the options say where.
        """
        if not self._options.cgroups:
            return None

        try:
            cgroups = Cgroups(self._options.cgroup)
        except InputError as error:
            if self._options.cgroup is not None:
                raise

            _LOG.info(
                "leases of commands have no cgroups, and end with the processes that are known: %s",
                error,
            )
            return None

        where = "below that of the command"
        if cgroups.base:
            where = f"in {cgroups.base}"
        _LOG.info("each lease of a command has a cgroup %s, and ends when that is empty", where)
        return cgroups

    def _plugins(self, stack: AsyncExitStack) -> PluginCalls:
        """Start to serve device plugins, if that is wanted."""
        folder = self._options.device_plugins
        if folder is None:
            return PluginCalls()

        from alignup.host.device_plugins.plugins import DevicePlugins  # noqa: PLC0415  # needs grpc

        plugins = stack.enter_context(
            DevicePlugins(folder, numa_nodes=self._site.machine.numa_node_ids)
        )
        devices = PluginDevices(plugins, self._site.machine)
        stack.callback(devices.close)
        return devices


def pod_resources_of(ledger: Ledger, machine: Machine) -> tuple[list[PodResources], Allocatable]:
    """Return the leases as pods, and the allocatable resources.

    Each pod is in a namespace of its user, and has one container.
    """
    pods = []
    for lease in ledger.leases.values():
        blocks = [
            MemoryBlock(tuple(sorted(sizes)), kind, sum(sizes.values()))
            for kind, sizes in lease.memory_by_node.items()
        ]
        devices = {resource: tuple(ids) for resource, ids in lease.devices.items()}
        container = ContainerResources("command", lease.cpus, tuple(blocks), devices)
        namespace = f"user-{ledger.users.owner_of(lease)}"
        pods.append(PodResources(namespace, lease.name, (container,)))

    cores = [core for node in machine.numa_nodes for core in node.cores]
    cpus = CPUSet([cpu for core in cores for cpu in core.cpus])
    memory = tuple(
        MemoryBlock((node.id,), "memory", node.memory) for node in machine.numa_nodes if node.memory
    )
    inventory = {resource: tuple(devices) for resource, devices in ledger.node.inventory.items()}
    return pods, Allocatable(cpus, memory, inventory)


def tell_systemd(message: str) -> None:
    """Tell the service manager how it stands, where one wants to know."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return

    if address.startswith("@"):
        address = "\0" + address[1:]
    with (
        suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify,
    ):
        notify.connect(address)
        notify.sendall(message.encode())


def settle_memory() -> None:
    """Freeze start-up objects from the collector; only in an agent's own process.

    Each connection of asyncio leaves a cycle behind. With all that an agent has imported, a full
    collection would come after many thousands of them, and take long; memory would grow meanwhile,
    and stay in pieces.
    """
    if threading.current_thread() is threading.main_thread():
        gc.collect()
        gc.freeze()
        gc.collect()  # what is frozen counts no longer for when the next full one is due
        gc.set_threshold(700, 10, 1)
