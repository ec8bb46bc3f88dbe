"""`alignup run`: runs a command on CPUs, memory and devices that nobody else has.

Exit status: the command's; 126 or 127 if it cannot be executed, and 125 for whatever else goes
wrong before it starts: bad usage, bad input, a refusal.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from alignup.cli import options
from alignup.cli.failures import complain, status_of
from alignup.cli.inputs import SiteSource, seen_by_this_process
from alignup.errors import AlignupError, AllocationError, InputError, system_errors
from alignup.host.launchers import local_rank
from alignup.host.leases.record import DEFAULT_POLICY, PartOf, Request
from alignup.host.leases.request import (
    check_near,
    check_wait,
    make_request,
    parse_device_counts,
    parse_part,
)
from alignup.host.parts.report import is_wanted

if TYPE_CHECKING:
    from alignup.host.device_plugins.answer import Mount
    from alignup.host.leases.agent_messages import Grant
    from alignup.host.leases.record import LeaseRecord, Near
    from alignup.host.leases.source import AgentSource, FileSource
    from alignup.kubernetes.versions import KubeletVersion

STDERR = 2
_SHOWN_COMMAND = 100
_FOR_EVER = "inf"
_NOT_IN_NAMES = re.compile("[^A-Za-z0-9_]+")


class RunCommand(options.HelpWithSections):
    """A command whose bad usage has a status of its own.

    So it is not taken for the status of what it runs.
    """

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """Parse the words of the command line."""
        from alignup.host.leases.child_process import OWN_FAILURE

        try:
            return super().make_context(*arguments, **options)
        except click.ClickException as error:
            error.exit_code = OWN_FAILURE  # type: ignore[misc]  # of this one error
            raise
        except InputError as error:
            complain(str(error))
            raise click.exceptions.Exit(OWN_FAILURE) from None


@options.subcommand(
    "run",
    "the command's; 126 or 127 if it cannot be executed; 125 if it was not started: a refusal, "
    "bad usage or bad input",
    whole=True,
    cls=RunCommand,
    context_settings={"allow_interspersed_args": False},
)
def command(
    *,
    cpus: int = options.number("Whole CPUs; with --part: CPUs of each part.", 0, default=0),
    memory: str = options.value(
        "Memory, such as 8Gi.", default="0", show_default=False, metavar="SIZE"
    ),
    devices: tuple[str, ...] = options.devices,
    policy: str = options.word(
        "How strictly to align CPUs, memory and devices.", options.POLICIES, default=DEFAULT_POLICY
    ),
    near: str | None = options.value(
        "Take all near what is not leased: a NIC or disk by name, a PCI address, a NUMA node.",
        metavar="NAME|PCI|numa:N",
    ),
    name: str = options.value("The name that `alignup ps` shows.", default="", metavar="NAME"),
    part: str | None = options.value(
        "A part of the machine, as `alignup split` cuts it. auto: the part of the launcher's "
        "local rank.",
        metavar="RANK/PARTS|auto",
        shell_complete=options.one_of("auto"),
    ),
    site: SiteSource = options.all_of(SiteSource),
    all_devices: bool = options.all_devices,
    version: KubeletVersion | None = options.kubelet_version,
    state: Path | None = options.state,
    wait: float | None = options.value(
        "Wait in a queue until the request can be met, at most SECONDS or without a limit.",
        type=click.FloatRange(min=0),
        is_flag=False,
        flag_value=_FOR_EVER,
        metavar="[SECONDS]",
    ),
    no_bind: bool = options.flag(
        "Bind neither CPUs nor memory. Needed for any machine but this one."
    ),
    no_mounts: bool = options.flag(
        "Leave the mounts and device files that device plugins ask for to the command, such as a "
        "container engine."
    ),
    report: bool = options.flag(
        "Say on standard error which cores the command is bound to, like mpirun --report-bindings."
    ),
    json_fd: int | None = options.number(
        "Write the lease to file descriptor N as one line of JSON, like `alignup ps --json`.",
        0,
        0x7FFFFFFF,
    ),
    arguments: tuple[str, ...] = options.argument(
        "-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED
    ),
) -> int:
    """Run COMMAND on CPUs, memory and devices of its own, and give them back when it ends.

        alignup run --cpus 8 --memory 16Gi -- python train.py
        alignup run --cpus 4 --device nvidia.com/gpu=1 --wait -- ./job

    Its environment names what it got: ALIGNUP_CPUS, ALIGNUP_NUMA_NODES, ALIGNUP_MEMORY,
    ALIGNUP_DEVICE_<RESOURCE>, and CUDA_VISIBLE_DEVICES for GPUs of NVIDIA. A resource that is not
    requested is not restricted.

    Memory comes from the NUMA nodes of the CPUs first, then from the nearest other nodes. Under the
    policies restricted and single-numa-node it comes from the nodes of the CPUs only. With --near,
    these two policies refuse what does not fit on the nearest NUMA nodes, and best-effort then
    takes the next nearest.

    Processes that the command leaves running keep what they have until they end, too. Variables
    such as OMP_NUM_THREADS are not set: OpenMP and other libraries see the CPUs that the process is
    bound to. Device plugins may ask for mounts and device files at paths other than the host's.
    Only the command and its children see them, and mounting needs CAP_SYS_ADMIN.

    Standard output is the command's. The variable ALIGNUP_LEASE holds the lease as JSON.

    The exit status is the command's, 128+N if signal N ended it, 127 if it is not found, 126 if it
    cannot be executed, and 125 with a sentence on standard error if the request is refused or
    anything else is wrong.
    """
    from alignup.host.leases.child_process import OWN_FAILURE

    def work() -> int:
        # startup counts
        from alignup.host.leases.source import AgentSource, open_source

        request = make_request(
            cpus=cpus,
            memory=memory,
            devices=parse_device_counts(devices),
            policy=policy,
            name=name,
            part=None if part is None else _part(part),
            kubelet_version=version,
            prefix="--",
        )
        check_wait(wait, "--wait")
        if json_fd is not None:
            with system_errors("--json-fd cannot write to descriptor", json_fd):
                os.write(json_fd, b"")
                # the command has no use for it, and its reader is to see the end
                os.set_inheritable(json_fd, json_fd <= STDERR)

        load = site.load if all_devices else partial(site.load_seen, request.devices)
        source = open_source(state, complain, load, site.set_options)
        if near is not None:
            check_near(request, "--")
            request = structs.replace(request, near=_near(near, site))
        if isinstance(source, AgentSource) and not all_devices:
            request = structs.replace(request, seen=seen_by_this_process(request.devices))

        return run(
            source,
            request,
            arguments,
            binds=not no_bind,
            mounts=not no_mounts,
            wait=wait,
            json_fd=json_fd,
            report=report,
        )

    return status_of(work, OWN_FAILURE)


def _near(text: str, source: SiteSource) -> Near:
    """Return what an option names, on the machine at hand or another that is named.

    Raises:
        InputError: there is no such thing, or nothing tells where it is.
    """
    from alignup.host.leases.near import near_of  # few need it

    site = source.load(all_resources=True, tell=lambda _sentence: None)
    machine = site.whole or site.machine
    return near_of(text, machine, site.inventory, is_here=site.is_here)


def _part(text: str) -> PartOf:
    """Return the part of an option; say if the launcher that names it has bound this rank already.

    Raises:
        InputError: there is none.
    """
    if text == "auto":
        sentence = local_rank(os.environ).binding()
        if sentence:
            complain(sentence)

    return parse_part(text, os.environ)


def run(
    source: FileSource | AgentSource,
    request: Request,
    arguments: tuple[str, ...],
    *,
    binds: bool,
    mounts: bool = True,
    wait: float | None = None,
    json_fd: int | None = None,
    report: bool = False,
) -> int:
    """Run a command with a lease, and return its exit status.

    The lease is written to a descriptor if one is given, and with `report`, or where the
    environment wants it, a line about its cores to standard error.

    Raises:
        AllocationError: the request is refused.
        InputError: whoever keeps leases cannot be used, processes cannot be bound to that machine,
            CUDA has no number for a GPU of the lease, or what device plugins ask for cannot be
            mounted.
    """
    from alignup.host.leases.child_process import WaitingCommand  # startup counts

    # startup counts
    from alignup.host.leases.evidence import evidence_file, evidence_of, show_evidence
    from alignup.host.leases.request import LeaseRequest  # startup counts
    from alignup.host.processes.identity import identify  # startup counts

    source.prepare(request, binds=binds)
    evidence = evidence_file()
    waiting = WaitingCommand(arguments, () if evidence is None else (evidence,))
    grant: Grant | None = None
    try:
        # from here on, whatever ends this process ends the other one too, until that has its lease
        try:
            stem = _NOT_IN_NAMES.sub("-", Path(arguments[0]).name).strip("-") or "command"
            # arguments need not be UTF-8
            command_line = " ".join(arguments).encode("utf-8", "backslashreplace").decode()
            lease_request = LeaseRequest(
                request,
                identify(waiting.pid),
                command=command_line[:_SHOWN_COMMAND],
                name=f"{stem[:50]}-{waiting.pid}",
                keeper=identify(waiting.keeper),
                show=lambda lease, machine, state: show_evidence(
                    evidence_of(lease, machine, state), evidence
                ),
            )
            grant = source.acquire(lease_request, wait)
            start = _start(grant, binds=binds, mounts=_mounts(grant) if mounts else ())
            if json_fd is not None:
                _tell(grant.lease, json_fd)
            if report or is_wanted():
                _report(grant, request.part, waiting.pid, binds=binds)
        except BaseException as error:
            waiting.abandon()
            if isinstance(error, AllocationError):
                raise AllocationError(f"refused: {error}", error.reason) from None

            raise

        return waiting.run(start)
    finally:
        if grant is not None and waiting.is_over:
            _give_back(source, grant.lease)


def _report(grant: Grant, part: PartOf | None, pid: int, *, binds: bool) -> None:
    """Say which cores a command is bound to, or has."""
    from alignup.host.parts.report import say_binding  # few need it

    lease = grant.lease
    if not grant.is_here:
        complain(f"lease {lease.name!r} has CPUs {lease.cpus} of another machine")
        return

    who = f"lease {lease.name!r}"
    if part is not None:
        who = f"rank {part.rank} of {part.parts}, {who},"
    verb = "bound to" if binds and lease.cpus else "not bound, has"
    say_binding(who, lease.cpus, lease.devices, pid=pid, verb=verb)


def _tell(lease: LeaseRecord, descriptor: int) -> None:
    """Write a lease as a line of JSON, as `alignup ps` does.

    Close the descriptor unless others use it.

    Raises:
        InputError: it cannot be written.
    """
    from alignup.cli.ps import lease_dict  # few need it

    line = json.dumps(lease_dict(lease, "running"), separators=(",", ":"))
    with (
        system_errors("--json-fd cannot write to descriptor", descriptor),
        open(descriptor, "w", encoding="utf-8", closefd=descriptor > STDERR) as file,  # no path
    ):
        file.write(f"{line}\n")


def _mounts(grant: Grant) -> tuple[Mount, ...]:
    """Return the mounts that the command needs to see its devices as plugins say.

    Say which devices it may not open.

    Raises:
        InputError: some are needed, and this process may not mount; or it is in a container, where
            paths of the host mean something else. The command would go on without its devices, or
            with those of somebody else.
    """
    answer = grant.lease.answer
    if answer is None:
        return ()

    from alignup.host.processes.identity import identify  # startup counts

    host_paths = [mount.host_path for mount in answer.mounts]
    host_paths += [device.host_path for device in answer.devices]
    if host_paths:
        # a lease names its process as the agent does
        if grant.lease.process.pid_namespace != identify(os.getpid()).pid_namespace:
            raise InputError(
                f"a device plugin asks for {host_paths[0]} of the host, and this container has "
                "other files: use --no-mounts"
            )

        if not grant.is_trusted:
            raise InputError(
                f"the agent of another user asks for a mount of {host_paths[0]}: use --no-mounts"
            )

    # few need it
    from alignup.host.leases.private_mounts import closed_devices, may_mount, needed_mounts

    needed = needed_mounts(answer)
    if needed and not may_mount():
        mount = needed[0]
        raise InputError(
            f"mounting {mount.host_path} at {mount.container_path}, as a device plugin asks, "
            "needs CAP_SYS_ADMIN; "
            "--no-mounts leaves it to the command"
        )

    for device in closed_devices(answer):
        complain(
            f"{device.host_path} of the lease may not be opened ({device.permissions}) by this user"
        )

    return needed


def _start(grant: Grant, *, binds: bool, mounts: tuple[Mount, ...] = ()) -> Any:
    """Return what the process is told to do.

    Raises:
        InputError: it is to be bound to CPUs of another machine.
    """
    from alignup.host.leases.child_process import Start  # startup counts

    if binds and not grant.is_here:
        raise InputError(
            "the agent places work on another machine, where this process cannot be bound: use "
            "--no-bind"
        )

    environment = {name: os.fsencode(value) for name, value in grant.environment().items()}
    if not binds:
        return Start(environment, mounts=mounts)

    lease = grant.lease
    return Start(environment, str(lease.cpus), grant.memory_nodes, lease.is_strict, mounts)


def _give_back(source: FileSource | AgentSource, lease: LeaseRecord) -> None:
    """Give a lease back.

    If that cannot be now, the next one who looks will see that its process is gone.
    """
    try:
        source.give_back(lease)
    except AlignupError as error:
        with suppress(OSError):
            complain(f"{error}; lease {lease.name!r} is free all the same")
