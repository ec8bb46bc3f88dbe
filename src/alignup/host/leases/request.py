"""Checks a request for CPUs, memory and devices, and how well they must be aligned.

Text is parsed here, once. A `LeaseRequest` says, beside what is wanted, which process wants it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from alignup.errors import InputError
from alignup.host.launchers import local_rank
from alignup.host.leases.record import (
    DEFAULT_POLICY,
    LeaseRecord,
    MachineIdentity,
    Near,
    PartOf,
    Request,
    Seen,
    Waiter,
)
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES
from alignup.kubernetes.quantity import parse_quantity, whole_units
from alignup.kubernetes.versions import KubeletVersion, parse_version
from alignup.records import Record, field, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from alignup.host.processes.identity import ProcessIdentity

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_DEVICE: Final = re.compile(r"(?P<resource>[A-Za-z0-9][A-Za-z0-9._/-]*)=(?P<count>[0-9]{1,9})")
_PART: Final = re.compile(r"(?P<rank>[0-9]{1,6})/(?P<parts>[0-9]{1,6})")
# The prefix that turns a claim's name into a resource; a lease lists the claim's devices by full id
# under it.
CLAIM: Final = "resourceclaim/"
_CPUS_AT_MOST: Final = 1 << 20
_DEVICES_AT_MOST: Final = 1_000_000_000
_PARTS_AT_MOST: Final = 999_999
# An agent reads what anybody sends.
_NEAR_NAME: Final = 300
_NEAR_NODES: Final = 1024


class Question(Record):
    """A question to a device plugin: which `size` of the available devices it prefers."""

    resource: str
    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int


class LeaseRequest(Record):
    """A request for a lease: what is wanted, and what else the lease will say.

    Attributes:
        demand: what is wanted.
        holder: the process whose lease it will be: it ends with the process at the latest.
        command: what the process is, for people.
        name: the lease's name if the request has none; a number is added if it is in use.
        keeper: a process that outlives the holder if something that the holder started does; the
            lease then ends with it.
        show: called with the lease, its machine and its file before anybody else knows of it, to
            leave evidence of it.
        id: of the lease: never used before, except for this very request.
        ancestors: see `Waiter.ancestors`.
        in_container: it comes from another PID namespace; its processes are named by their numbers
            here.
        advice: the answers to the questions that earlier tries gave rise to; a text says why there
            is none.
    """

    demand: Request
    holder: ProcessIdentity
    command: str
    name: str
    keeper: ProcessIdentity | None = None
    show: Callable[[LeaseRecord, MachineIdentity, Path], None] | None = None
    id: str = field(default_factory=lambda: os.urandom(8).hex())
    uid: int = field(default_factory=os.geteuid)
    ancestors: tuple[tuple[int, int], ...] = ()
    in_container: bool = False
    advice: dict[Question, tuple[str, ...] | str] = field(default_factory=dict)

    def waiter(self) -> Waiter:
        """Return its place in the queue."""
        demand = self.demand
        kinds = list(demand.devices)
        if demand.cpus or demand.part:
            kinds.append("cpu")
        if demand.memory:
            kinds.append("memory")

        fields: dict[str, Any] = structs.asdict(demand) | {"name": demand.name or self.name}
        return Waiter(
            id=self.id,
            process=self.holder,
            kinds=tuple(kinds),
            command=self.command,
            uid=self.uid,
            since=int(time.time()),
            ancestors=self.ancestors,
            **fields,
        )


def request_of(waiter: Waiter) -> LeaseRequest | None:
    """Return the request of a waiter, to be tried.

    None: it is not known, since an earlier release wrote it.
    """
    if not waiter.policy:
        return None
    return LeaseRequest(
        waiter, waiter.process, command="", name=waiter.name, id=f"trial {waiter.id}"
    )


def without_devices(request: LeaseRequest, resources: AbstractSet[str]) -> LeaseRequest:
    """Return a request that asks for no device of some resources."""
    demand = request.demand
    devices = {name: count for name, count in demand.devices.items() if name not in resources}
    if devices == demand.devices:
        return request
    return replace(request, demand=structs.replace(demand, devices=devices))


def make_request(
    *,
    cpus: int = 0,
    memory: int | str = 0,
    devices: Mapping[str, int] | None = None,
    policy: str = DEFAULT_POLICY,
    name: str = "",
    part: PartOf | None = None,
    kubelet_version: KubeletVersion | str | None = None,
    seen: Mapping[str, Seen] | None = None,
    near: Near | None = None,
    prefix: str = "",
) -> Request:
    """Return the request with these wishes, checked.

    Args:
        cpus: whole CPUs.
        memory: bytes, or a quantity such as `8Gi`.
        devices: how many by resource.
        policy: how well they must be aligned.
        name: the name of the lease.
        part: the part of the machine.
        kubelet_version: the release of a kubelet whose managers decide; None: the newest that is
            out, or the agent's.
        seen: by resource, the devices that may be chosen.
        near: what CPUs, memory and devices are to be near.
        prefix: what an error puts before the name of a wish: `--` on the command line.

    Raises:
        InputError: one of them cannot be.
    """
    if not isinstance(cpus, int) or not 0 <= cpus <= _CPUS_AT_MOST:
        raise InputError.at(f"{prefix}cpus", "a number of whole CPUs", cpus)
    if policy not in TOPOLOGY_POLICIES:
        raise InputError.at(f"{prefix}policy", f"one of {', '.join(TOPOLOGY_POLICIES)}", policy)
    if name:
        check_name(name, f"{prefix}name")

    if part is not None and not 0 <= part.rank < part.parts <= _PARTS_AT_MOST:
        text = f"{part.rank}/{part.parts}"
        raise InputError.at(
            f"{prefix}part", "RANK/PARTS such as 0/8, the rank counted from 0", text
        )

    counts = _device_counts(devices, prefix)

    release = ""
    if kubelet_version:
        release = str(parse_version(kubelet_version, "kubelet_version"))

    request = Request(
        cpus=cpus,
        memory=parse_memory(memory, f"{prefix}memory"),
        devices=counts,
        policy=policy,
        name=name,
        part=part,
        kubelet_version=release,
        seen=dict(seen or {}),
        near=near,
    )
    if near is not None:
        check_near(request, prefix)
        if len(near.name) > _NEAR_NAME or len(near.numa_nodes) > _NEAR_NODES:
            raise InputError.at(f"{prefix}near", "one thing and the NUMA nodes near it", near)

    return request


def check_near(demand: Request, prefix: str = "") -> None:
    """Refuse a request that can be near nothing.

    Args:
        demand: the request.
        prefix: as `make_request` takes it.

    Raises:
        InputError: it asks for nothing, for a part, or under a policy that aligns nothing.
    """
    if demand.part is not None:
        raise InputError(f"{prefix}near cannot be used with {prefix}part, which has its own place")
    if demand.policy == TOPOLOGY_POLICIES[0]:
        raise InputError(f"{prefix}near cannot be used with policy none, which aligns nothing")
    if not (demand.cpus or demand.memory or demand.devices):
        raise InputError.at(f"{prefix}near", "some CPUs, memory or devices to take near it", "none")


def check_name(name: str, where: str) -> None:
    """Refuse what is no name of a lease; `where` is the place that an error names.

    Raises:
        InputError: it is none.
    """
    if not _NAME.fullmatch(name):
        raise InputError.at(
            where, "a name of up to 100 letters, digits, dots, dashes and underscores", name
        )


def _device_counts(devices: Mapping[str, int] | None, prefix: str) -> dict[str, int]:
    """Return how many devices are wanted of each resource, without those of which none is.

    Raises:
        InputError: they are no numbers by resource.
    """
    if not isinstance(devices, Mapping | None):
        raise InputError.at(
            "--device" if prefix else "devices", 'numbers such as {"nvidia.com/gpu": 1}', devices
        )

    for resource, count in (devices or {}).items():
        if not isinstance(count, int) or not 0 <= count <= _DEVICES_AT_MOST:
            place = f"--device {resource}" if prefix else f"devices[{resource!r}]"
            raise InputError.at(place, "a number of devices", count)

    return {resource: count for resource, count in sorted((devices or {}).items()) if count}


def check_wait(wait: float | None, where: str) -> None:
    """Refuse what is no time to wait; `where` is the place that an error names.

    Raises:
        InputError: it is negative, or no number.
    """
    if wait is not None and not (isinstance(wait, int | float) and wait >= 0):
        raise InputError.at(where, "seconds of at least 0", wait)


def parse_memory(amount: int | str, where: str = "memory") -> int:
    """Return bytes, of an int or of a Kubernetes quantity such as `8Gi`.

    `where` is the place that an error names.

    Raises:
        InputError: it is no quantity, or negative.
    """
    size = whole_units(parse_quantity(amount, where))
    if size < 0:
        raise InputError.at(where, "bytes that are not negative, such as 8Gi", amount)
    return size


def parse_device_counts(texts: Iterable[str]) -> dict[str, int]:
    """Return the counts in texts such as `nvidia.com/gpu=2`; those of one resource add up.

    Raises:
        InputError: one of them is not of this form.
    """
    counts: dict[str, int] = {}
    for text in texts:
        match = _DEVICE.fullmatch(text)
        if match is None:
            raise InputError.at("--device", "RESOURCE=COUNT such as nvidia.com/gpu=1", text)

        resource = match["resource"]
        counts[resource] = counts.get(resource, 0) + int(match["count"])

    return counts


def parse_part(text: str, environment: Mapping[str, str]) -> PartOf:
    """Return the part that a text such as `3/8` names.

    `auto` stands for the part that a launcher's environment names.

    Raises:
        InputError: it is neither, the part is not among the parts, or no launcher says which part
            this is.
    """
    if text == "auto":
        local = local_rank(environment)
        return PartOf(local.rank, local.ranks)

    match = _PART.fullmatch(text)
    if not match or int(match["rank"]) >= int(match["parts"]):
        raise InputError.at(
            "--part", "RANK/PARTS such as 0/8, the rank counted from 0, or auto", text
        )

    return PartOf(int(match["rank"]), int(match["parts"]))
