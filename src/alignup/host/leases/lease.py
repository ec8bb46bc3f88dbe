"""Takes leases for the Python process itself: `with alignup.lease(cpus=4) as lease:`."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from alignup.errors import AllocationError, InputError
from alignup.host.leases.evidence import evidence_file, evidence_of, show_evidence
from alignup.host.leases.local_machine import (
    HERE,
    Site,
    load_site,
    only_seen,
    seen_by_client,
)
from alignup.host.leases.record import DEFAULT_POLICY, Request
from alignup.host.leases.request import LeaseRequest, check_wait, make_request
from alignup.host.leases.source import AgentSource, FileSource, open_source
from alignup.host.parts.visible_devices import launched_rank
from alignup.host.processes.binding import Binding, bind, restore
from alignup.host.processes.identity import identify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.host.leases.agent_messages import Grant
    from alignup.host.leases.record import LeaseRecord, MachineIdentity
    from alignup.machine.cpuset import CPUSet
    from alignup.machine.machine import Machine

_ALL_DEVICES: Final = "all_devices=True"


class Lease:
    """CPUs, memory and devices that this process holds until it gives them back, or ends.

    A context manager, made by `lease`.

    A child made by `os.fork` may look at it, but only the process that took it can give it back.

    Examples:
        >>> with lease(  # doctest: +SKIP
        ...     cpus=2, machine="xeon-2s", state="/tmp/leases.json", bind=False
        ... ) as held:
        ...     print(held.cpus)
        0,64
    """

    __slots__ = ("_binding", "_evidence", "_grant", "_is_held", "_pid", "_record", "_source")

    def __init__(
        self, grant: Grant, source: FileSource | AgentSource, evidence: int | None
    ) -> None:
        self._record = grant.lease
        self._grant = grant
        self._source = source
        self._binding: Binding | None = None
        # The descriptor of the file that shows the lease to those who look for lost ones.
        self._evidence = evidence
        self._is_held = True
        # the agent may call this process by another number
        self._pid = os.getpid()

    @property
    def name(self) -> str:
        """The name that `alignup ps` shows."""
        return self._record.name

    @property
    def cpus(self) -> CPUSet:
        """The CPUs; empty if none were asked for."""
        return self._record.cpus

    @property
    def numa_nodes(self) -> tuple[int, ...]:
        """Kernel ids of the NUMA nodes of its CPUs and memory.

        Without either, those near its devices.
        """
        return self._record.numa_nodes

    @property
    def memory(self) -> Mapping[int, int]:
        """Bytes by kernel id of the NUMA node; empty if no memory was asked for."""
        return {share.numa_node: share.size for share in self._record.memory if share.size}

    @property
    def devices(self) -> Mapping[str, tuple[str, ...]]:
        """Ids by resource."""
        return dict(self._record.devices)

    @property
    def is_here(self) -> bool:
        """True if it is of the machine at hand."""
        return self._grant.is_here

    def environment(self) -> dict[str, str]:
        """Return the variables that `alignup run` would set in an environment.

        They can be passed to a child.
        """
        return self._grant.environment()

    def release(self) -> None:
        """Give everything back and undo the binding; a second time, do nothing.

        Raises:
            InputError: the file of leases cannot be used. The lease then ends with this process.
        """
        if self._pid != os.getpid():
            return

        self._is_held = False
        binding, self._binding = self._binding, None
        evidence, self._evidence = self._evidence, None
        try:
            if binding is not None:
                restore(binding)
        finally:
            if evidence is not None:
                with suppress(OSError):
                    os.close(evidence)

            self._source.give_back(self._record)

    def bind(self) -> None:
        """Bind the calling thread to the CPUs and the memory, if none is bound yet.

        `release` undoes it.

        Raises:
            AllocationError: the kernel does not let the thread use these CPUs, or the lease was
                released.
        """
        self._check_held()
        if self._binding is not None:
            return

        record = self._record
        self._binding, trouble = bind(
            record.cpus, self._grant.memory_nodes, strict=record.is_strict
        )
        if trouble:
            warnings.warn(
                f"{trouble}; going on with CPUs {record.cpus}", RuntimeWarning, stacklevel=3
            )

    def _check_held(self) -> None:
        if not self._is_held:
            raise AllocationError(f"lease {self.name!r} was released")

    def __enter__(self) -> Self:
        self._check_held()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        # not there if the construction failed
        if getattr(self, "_is_held", False) and self._pid == os.getpid():
            message = f"lease {self.name!r} was not released; it is held until this process ends"
            warnings.warn(message, ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        record = self._record
        if not self._is_held:
            return f"<Lease {record.name!r}: released>"
        return (
            f"<Lease {record.name!r}: CPUs {str(record.cpus) or 'none'}, devices "
            f"{dict(record.devices)}>"
        )


def lease(
    *,
    cpus: int = 0,
    memory: int | str = 0,
    devices: Mapping[str, int] | None = None,
    policy: str = DEFAULT_POLICY,
    name: str = "",
    bind: bool = True,
    machine: str | Machine = HERE,
    device_resources: Sequence[str] = (),
    inventory: Mapping[str, Any] | None = None,
    resources: Sequence[Mapping[str, Any]] = (),
    state: str | os.PathLike[str] | None = None,
    wait: float | None = None,
    kubelet_version: str | None = None,
    all_devices: bool = False,
) -> Lease:
    """Take CPUs, memory and devices of this machine that nobody else has a lease of.

    The lease ends with the `with` block, with `release`, or with this process, whichever is first;
    it is safe from other processes that use alignup, of the same user and with the same file of
    leases, and from nobody else.

    With `bind`, the calling thread runs on these CPUs only and has its memory from their NUMA nodes
    (from there only, under the policies restricted and single-numa-node), and so do threads and
    processes that it starts from then on. Threads that run already are not touched. The end of the
    lease undoes this for that thread. Where the kernel forbids to bind memory, there is a
    `RuntimeWarning`, and CPUs are bound all the same.

    Args:
        cpus: how many whole CPUs.
        memory: bytes, or a Kubernetes quantity such as `8Gi`.
        devices: how many by resource; by a claim of `resources` with `resourceclaim/` before its
            name.
        policy: how well they must be aligned: none, best-effort, restricted or single-numa-node.
        name: what `alignup ps` shows; made up if not given.
        bind: whether to bind the calling thread; only on the machine at hand.
        machine: `/` for the machine at hand, or anything else that `--machine` takes, or a record.
        device_resources: PCI devices of resources, as in `nvidia.com/gpu=10de:*`.
        inventory: devices of resources, as in `{"nvidia.com/gpu": [{"id": "gpu0", "numa": [0]}]}`.
        resources: the objects of claims (DRA), each as `kubectl get -o json` prints it.
        state: the file of leases; by default in the user's XDG state directory.
        wait: how many seconds to wait at most until it can be had, in order of arrival (`math.inf`:
            as long as it takes); None: not at all.
        kubelet_version: the release of a kubelet whose managers decide, such as `1.33`; None: the
            newest that is out, or the agent's.
        all_devices: choose among all devices of the machine, whatever CUDA_VISIBLE_DEVICES, other
            such variables and device files leave to this process.

    Raises:
        AllocationError: it cannot be had now, or not within that time; the sentence says why.
        InputError: an argument cannot be, this process sees no device of a resource, or the file of
            leases cannot be used.

    Examples:
        >>> with lease(cpus=4, memory="8Gi", name="training") as held:  # doctest: +SKIP
        ...     print(held.cpus, held.numa_nodes)
        0-1,112-113 (0,)
    """
    request = make_request(
        cpus=cpus,
        memory=memory,
        devices=devices,
        policy=policy,
        name=name,
        kubelet_version=kubelet_version,
    )
    check_wait(wait, "wait")
    if not (cpus or memory or devices):
        raise InputError.at("a lease", "some CPUs, memory or devices to take", "none")

    def load(resource_names: list[str]) -> Site:
        from alignup.claims.read import resources_of  # noqa: PLC0415  # few leases have claims

        claims = resources_of(resources, "resources") if resources else None
        site = load_site(
            machine,
            resources=resource_names,
            selectors=device_resources,
            devices=inventory,
            claims=claims,
        )
        if all_devices:
            return site

        rank = launched_rank(os.environ)
        site, hidden = only_seen(site, request.devices, os.environ, rank, option=_ALL_DEVICES)
        for note in hidden.notes:
            _warn(note)
        return site

    agent_options = {
        "machine": machine != HERE,
        "device_resources": device_resources,
        "inventory": inventory,
        "resources": resources,
    }
    named_options = ", ".join(argument for argument, value in agent_options.items() if value)
    source = open_source(Path(state) if state is not None else None, _warn, load, named_options)
    if isinstance(source, AgentSource) and not all_devices:
        rank = launched_rank(os.environ)
        seen, hidden = seen_by_client(request.devices, os.environ, rank, option=_ALL_DEVICES)
        request = msgspec.structs.replace(request, seen=seen)
        for note in hidden.notes:
            _warn(note)

    new_lease = _take(request, source, wait)
    # nobody can be bound to CPUs of another machine
    if bind and new_lease.is_here:
        try:
            new_lease.bind()
        except BaseException:
            new_lease.release()
            raise

    return new_lease


def _take(demand: Request, source: FileSource | AgentSource, wait: float | None) -> Lease:
    """Return the lease of what is wanted for this process, which nothing is bound to yet.

    Raises:
        AllocationError: it cannot be had now, or not within `wait` seconds.
        InputError: whoever keeps leases cannot be used.
    """
    evidence = evidence_file()

    def show(lease: LeaseRecord, machine: MachineIdentity, state: Path) -> None:
        show_evidence(evidence_of(lease, machine, state), evidence)

    try:
        command = " ".join(sys.orig_argv).encode("utf-8", "backslashreplace").decode()
        request = LeaseRequest(
            demand,
            identify(os.getpid()),
            command=command[:100] or "python",
            name=f"python-{os.getpid()}",
            show=show,
        )
        return Lease(source.acquire(request, wait), source, evidence)
    except BaseException:
        if evidence is not None:
            os.close(evidence)
        raise


def _warn(sentence: str) -> None:
    warnings.warn(sentence, RuntimeWarning, stacklevel=2)
