"""Finds a kubelet that runs, in `/proc`, and reads the flags of its command line that matter here.

A flag overrides the configuration file's field (`cmd/kubelet/app/server.go`, kubeletConfigFlagPrecedence).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError, warn
from alignup.kubelet.processes import process_ids, text_of
from alignup.kubernetes.policy_options import GO_BOOLEANS
from alignup.records import Record, field

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence


class RunningKubelet(Record):
    """A kubelet's process."""

    pid: int
    config: str = ""
    """The path of its configuration file; empty: it was given none."""
    config_dir: str = ""
    """The folder with drop-ins; empty: it was given none."""
    root_dir: str = ""
    """Its own folder; empty: `/var/lib/kubelet`."""
    hostname: str = ""
    """The name of its node where a flag sets it."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a KubeletConfiguration that flags set."""
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    """Feature gates that a flag sets; they join those of the file."""


def find_kubelet(root: str | os.PathLike[str]) -> RunningKubelet | None:
    """Return the kubelet that runs on a machine; None where there is none, or more than one, which is warned of.

    Args:
        root: the folder with `proc` in it.

    Raises:
        InputError: a flag that matters has a value that no kubelet takes.
    """
    found = []
    for pid in process_ids(Path(root)):
        folder = Path(root, "proc", str(pid))
        if text_of(folder / "comm").strip() == "kubelet":
            words = text_of(folder / "cmdline").split("\0")
            if words[0]:  # a zombie has none
                found.append((pid, words))
    if len(found) > 1:
        pids = ", ".join(str(pid) for pid, _ in sorted(found))
        warn(f"several kubelets run here (processes {pids}); their command lines are ignored")
    return kubelet_of(*found[0]) if len(found) == 1 else None


def kubelet_of(pid: int, words: Sequence[str]) -> RunningKubelet:
    """Return the kubelet of a command line.

    Raises:
        InputError: a flag that matters has a value that no kubelet takes.
    """
    flags = _flags(words)
    fields = {_FIELDS[name][0]: _FIELDS[name][1](value, name) for name, value in flags.items() if name in _FIELDS}
    gates = _map(flags.get("feature-gates", ""), "feature-gates")
    return RunningKubelet(
        pid,
        flags.get("config", ""),
        flags.get("config-dir", ""),
        flags.get("root-dir", ""),
        flags.get("hostname-override", ""),
        fields,
        {name: _bool(value, name) for name, value in gates.items()},
    )


def _flags(words: Sequence[str]) -> dict[str, str]:
    """Return the flags of a command line that matter here; of one that comes twice, the last, or all of a map."""
    found: dict[str, str] = {}
    rest = iter(words[1:])
    for word in rest:
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        if name not in _KNOWN:
            continue
        if not equals:
            value = next(rest, "")
        separator = _JOINED.get(name)
        found[name] = f"{found[name]}{separator}{value}" if separator and name in found else value
    return found


def _words(value: str, _flag: str) -> str:
    return value


def _map(text: str, flag: str) -> dict[str, str]:
    """Return the map in a flag such as `cpu=1,memory=2Gi`."""
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise InputError.at(f"the kubelet's flag --{flag}", "NAME=VALUE", part)
        found[name.strip()] = value.strip()
    return found


def _bool(text: str, gate: str) -> bool:
    if text not in GO_BOOLEANS:
        raise InputError.at(f"the kubelet's flag --feature-gates, {gate}", "true or false", text)
    return GO_BOOLEANS[text]


def _eviction(text: str, flag: str) -> dict[str, str]:
    """Return the map in a flag such as `memory.available<100Mi`."""
    return _map(text.replace("<", "="), flag)


def _reserved_memory(text: str, flag: str) -> list[dict[str, Any]]:
    """Return the reservations in a flag such as `0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=2Gi`."""
    found = []
    for part in filter(None, text.split(";")):
        node, colon, limits = part.partition(":")
        if not colon or not (node.strip().isascii() and node.strip().isdigit()):
            raise InputError.at(f"the kubelet's flag --{flag}", "NODE:TYPE=BYTES", part)
        found.append({"numaNode": int(node), "limits": _map(limits, flag)})
    return found


_FIELDS: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "cpu-manager-policy": ("cpuManagerPolicy", _words),
    "cpu-manager-policy-options": ("cpuManagerPolicyOptions", _map),
    "reserved-cpus": ("reservedSystemCPUs", _words),
    "memory-manager-policy": ("memoryManagerPolicy", _words),
    "reserved-memory": ("reservedMemory", _reserved_memory),
    "topology-manager-policy": ("topologyManagerPolicy", _words),
    "topology-manager-policy-options": ("topologyManagerPolicyOptions", _map),
    "topology-manager-scope": ("topologyManagerScope", _words),
    "kube-reserved": ("kubeReserved", _map),
    "system-reserved": ("systemReserved", _map),
    "eviction-hard": ("evictionHard", _eviction),
}
"""By flag, the field that it sets, and how its value is read."""
_KNOWN: Final = frozenset({*_FIELDS, "config", "config-dir", "root-dir", "hostname-override", "feature-gates"})
_JOINED: Final = {
    "reserved-memory": ";",
    **dict.fromkeys((name for name, (_, read) in _FIELDS.items() if read in {_map, _eviction}), ","),
    "feature-gates": ",",
}
"""Flags that may come several times, and what separates their parts."""
