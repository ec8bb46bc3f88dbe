"""Names the environment variables that tell a process what it holds, for itself and its GPUs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from alignup.host.leases.evidence import VARIABLE, evidence_of, evidence_text
from alignup.host.parts.part import variables

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from alignup.host.leases.record import LeaseRecord, MachineIdentity

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
        cuda: what `visible_variables` returned for its devices.
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
