"""Names the environment variables that tell a process what it holds, for itself and for CUDA."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from alignup.errors import InputError
from alignup.host.leases.evidence import VARIABLE, evidence_of, evidence_text
from alignup.machine.nvidia import GPU_RESOURCE, is_gpu

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from alignup.host.leases.record import LeaseRecord, MachineIdentity
    from alignup.machine.cpuset import CPUSet
    from alignup.machine.device_inventory import Device
    from alignup.machine.machine import Machine

_NOT_IN_NAMES: Final = re.compile("[^A-Za-z0-9]")
_PCI_ADDRESS: Final = re.compile(r"(?P<domain>[0-9a-fA-F]{4,8}):(?P<slot>[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])")
_UUID_PREFIXES: Final = ("GPU-", "MIG-")
_NEVER: Final = re.compile(
    r"""
      (ALIGNUP|BASH_FUNC|CONDA|COR|CORECLR|CURL|DBUS|DOTNET|DYLD|GEM|GIT|GTK|JULIA|LD|LUA|MALLOC|NODE|NPM)_.*
    | (OPENSSL|PIP|QT|R|SSH|SSL|SUDO|SYSTEMD|UV|XDG)_.*
    | (PERL|PHP|PYTHON|RUBY|VIRTUAL_ENV).*
    | BASH_ENV | BASHOPTS | CDPATH | CLASSPATH | CUDA_INJECTION(32|64)_PATH | EDITOR | ENV | FPATH | GCONV_PATH
    | GETCONF_DIR | GLIBC_TUNABLES | GLOBIGNORE | HOME | HOSTALIASES | IFS | INFOPATH | JAVA_TOOL_OPTIONS
    | JDK_JAVA_OPTIONS | _JAVA_OPTIONS | LESSCLOSE | LESSOPEN | LOCALDOMAIN | LOCPATH | LOGNAME | MAIL | MANPATH
    | NIS_PATH | NLSPATH | OLDPWD | OMP_TOOL_LIBRARIES | PAGER | PATH | PROMPT_COMMAND | PS[1-4] | PWD | RES_OPTIONS
    | RESOLV_HOST_CONF | SHELL | SHELLOPTS | TCLLIBPATH | TERMCAP | TERMINFO(_DIRS)? | TERMPATH | TE?MP(DIR)? | TZDIR
    | USER | VISUAL | ZDOTDIR
    """,
    re.VERBOSE,
)


def device_variable(resource: str) -> str:
    """Return the name of the variable with a resource's devices.

    >>> device_variable("nvidia.com/gpu")
    'ALIGNUP_DEVICE_NVIDIA_COM_GPU'
    """
    return "ALIGNUP_DEVICE_" + _NOT_IN_NAMES.sub("_", resource).upper()


def may_be_set(name: str) -> bool:
    """Return whether a variable may be set by another user's agent or by a device plugin that it asks.

    Not those by which a program runs other code or finds other files: the loader's, interpreters', shells', and those
    of the session. `docs/security.md` has the list.
    """
    return not _NEVER.fullmatch(name)


def lease_variables(
    lease: LeaseRecord, machine: MachineIdentity, state: Path, cuda: Mapping[str, str], *, is_own: bool = True
) -> dict[str, str]:
    """Return the environment variables of a command that has the lease.

    Those that device plugins ask for come first: the names that are alignup's own stay its own. What plugins answered
    for a container (mounts, device nodes, annotations, CDI names) is in ALIGNUP_DEVICE_ANSWER, as JSON; the CDI names
    are in ALIGNUP_CDI_DEVICES too, with commas between them.

    Args:
        lease: the lease.
        machine: the machine that it is of.
        state: the file of leases.
        cuda: what `cuda_variables` returned for its devices.
        is_own: it was given by this user; else the variables that another one may never set are left out.
    """
    answer = lease.answer
    asked: dict[str, str] = {}
    if answer is not None:
        asked = {name: value for name, value in answer.environment.items() if is_own or may_be_set(name)}
        rest = msgspec.structs.replace(answer, environment={})
        if rest:
            asked["ALIGNUP_DEVICE_ANSWER"] = msgspec.json.encode(rest).decode()
        if answer.cdi_devices:
            asked["ALIGNUP_CDI_DEVICES"] = ",".join(answer.cdi_devices)
    if not is_own:
        cuda = {name: value for name, value in cuda.items() if may_be_set(name)}
    return {
        **asked,
        "ALIGNUP_NAME": lease.name,
        "ALIGNUP_STATE": str(state),
        VARIABLE: evidence_text(evidence_of(lease, machine, state)),
        **variables(
            cpus=lease.cpus, numa_nodes=lease.numa_nodes, memory=sum(lease.memory_sizes.values()), devices=lease.devices
        ),
        **cuda,
    }


def variables(
    *, cpus: CPUSet, numa_nodes: Iterable[int], memory: int, devices: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return the variables for some CPUs, NUMA nodes, memory and devices; none for what there is nothing of.

    Args:
        cpus: the CPUs.
        numa_nodes: kernel ids.
        memory: bytes that were asked for.
        devices: ids by resource.
    """
    found = {
        "ALIGNUP_CPUS": str(cpus),
        "ALIGNUP_NUMA_NODES": ",".join(map(str, numa_nodes)),
        "ALIGNUP_MEMORY": str(memory or ""),
    }
    named = {device_variable(resource): ",".join(ids) for resource, ids in sorted(devices.items())}
    return {**{name: value for name, value in found.items() if value}, **named}


def cuda_variables(
    devices: Mapping[str, Sequence[str]], inventory: Mapping[str, Sequence[Device]], machine: Machine
) -> dict[str, str]:
    """Return the variables that make CUDA see some GPUs only; none where there is no GPU among the devices.

    CUDA takes UUIDs, and numbers: of PCI addresses, the position among the machine's NVIDIA GPUs in the
    order of the bus; of names that mean nothing to it, the position in the inventory.

    Args:
        devices: ids by resource.
        inventory: all devices of the machine.
        machine: the machine.

    Raises:
        InputError: there is a GPU that CUDA has no number for, such as a PCI address of no NVIDIA GPU.
    """
    ids = devices.get(GPU_RESOURCE, ())
    if not ids:
        return {}
    if all(identity.startswith(_UUID_PREFIXES) for identity in ids):
        return {"CUDA_VISIBLE_DEVICES": ",".join(ids)}
    order, wanted = [device.id for device in inventory.get(GPU_RESOURCE, ())], list(ids)
    addresses = [found for found in map(_PCI_ADDRESS.fullmatch, ids) if found]
    if len(addresses) == len(ids):
        # NVIDIA's tools write the domain in eight digits and capitals, sysfs does not
        wanted = [f"{int(found['domain'], 16):04x}:{found['slot'].lower()}" for found in addresses]
        order = sorted(device.address for device in machine.pci_devices if is_gpu(device))
    for identity, name in zip(ids, wanted, strict=True):
        if name not in order:  # left out, it would be held and never seen
            raise InputError.at(f"the devices of {GPU_RESOURCE}", "a GPU that CUDA can number", identity)
    numbers = sorted(map(order.index, wanted))
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, numbers))}
