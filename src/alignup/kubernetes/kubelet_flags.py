"""Reads the flags of a kubelet that matter here, as words or in a text such as a systemd unit or a line of `ps`.

A flag overrides the field of the configuration file (`cmd/kubelet/app/server.go`, kubeletConfigFlagPrecedence).
`kubelet_flags.json` has the flags: the field that each sets, the form of its value (`_FORMS`), and what joins the
values of one that comes several times.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from alignup.errors import InputError
from alignup.kubernetes.policy_options import GO_BOOLEANS
from alignup.kubernetes.versions import read_table
from alignup.records import Record, field

_MOST_DIGITS: Final = 9


class KubeletFlags(Record):
    """What flags say.

    Attributes:
        config: the path of the configuration file; empty: none is given.
        config_dir: the folder with drop-ins; empty: none is given.
        root_dir: the kubelet's own folder; empty: `/var/lib/kubelet`.
        hostname: the name of the node where a flag sets it.
        fields: the fields of a KubeletConfiguration that they set.
        feature_gates: the feature gates that they set, which join those of the file.
    """

    config: str = ""
    config_dir: str = ""
    root_dir: str = ""
    hostname: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    feature_gates: Mapping[str, bool] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.fields or self.feature_gates)

    def over(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a file with those that the flags set in their place."""
        merged = {**fields, **self.fields}
        if self.feature_gates:
            merged["featureGates"] = {**(fields.get("featureGates") or {}), **self.feature_gates}
        return merged


def read_flags(words: Iterable[str]) -> KubeletFlags:
    """Return what the words of a command line say, without its first.

    Raises:
        InputError: a flag that matters has a value that no kubelet takes.
    """
    flags, known = _values(words), read_table("kubelet_flags")
    told = [(name, value) for name, value in flags.items() if "field" in known[name]]
    fields = {known[name]["field"]: _FORMS[known[name]["form"]](value, name) for name, value in told}
    gates = {name: _bool(value, name) for name, value in _map(flags["feature-gates"], "feature-gates").items()}
    return KubeletFlags(
        flags["config"], flags["config-dir"], flags["root-dir"], flags["hostname-override"], fields, gates
    )


_COMMENT: Final = re.compile(r"[ \t]*[#;]")
_OTHER_PROGRAM: Final = re.compile(r"(?:^|[\s/])(?:kube-(?!let)[a-z-]+|grep)\s")
_QUOTES: Final = str.maketrans("", "", "\"'`")
_VARIABLE: Final = re.compile(r"(?:[A-Za-z_]\w*=)+(?=--)")
_RANCHERS: Final = re.compile(r"--kubelet-arg[= ]\s*(?:--)?")


def words_in_text(text: str) -> list[str]:
    """Return the words of a text that has flags in it, such as a systemd unit, a shell variable or a line of `ps`.

    Quotes, the names of variables before flags, comments and the lines of other programs are left out.
    """
    lines = text.replace("\\\n", " ").splitlines()
    kept = [line for line in lines if not _COMMENT.match(line) and not _OTHER_PROGRAM.search(line.partition("--")[0])]
    plain = _RANCHERS.sub("--", " ".join(kept).translate(_QUOTES))
    return [_VARIABLE.sub("", word) for word in plain.split()]


def _values(words: Iterable[str]) -> defaultdict[str, str]:
    """Return the values of flags that matter here; of one that comes twice, the last, or all of a map."""
    found: defaultdict[str, str] = defaultdict(str)
    rest, known = iter(words), read_table("kubelet_flags")
    for word in rest:
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        if name not in known:
            continue
        if not equals:
            value = next(rest, "")
        separator = known[name].get("joined")
        found[name] = f"{found[name]}{separator}{value}" if separator and name in found else value
    return found


def _map(text: str, flag: str) -> dict[str, str]:
    """Return the map in a flag such as `cpu=1,memory=2Gi`."""
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise InputError.at(f"the kubelet's flag --{flag}", "NAME=VALUE", part)
        found[name.strip()] = value.strip()
    return found


def _number(text: str, flag: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise InputError.at(f"the kubelet's flag --{flag}", "a whole number", text)
    return int(text)


def _bool(text: str, gate: str) -> bool:
    if text not in GO_BOOLEANS:
        raise InputError.at(f"the kubelet's flag --feature-gates, {gate}", "true or false", text)
    return GO_BOOLEANS[text]


def _reserved_memory(text: str, flag: str) -> list[dict[str, Any]]:
    """Return the reservations in a flag such as `0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=2Gi`."""
    found = []
    for part in filter(None, text.split(";")):
        node, colon, limits = part.partition(":")
        if not colon or not (node.strip().isascii() and node.strip().isdigit()):
            raise InputError.at(f"the kubelet's flag --{flag}", "NODE:TYPE=BYTES", part)
        found.append({"numaNode": int(node), "limits": _map(limits, flag)})
    return found


_FORMS: Final[Mapping[str, Callable[[str, str], Any]]] = {
    "text": lambda text, _flag: text,
    "map": _map,
    "number": _number,
    "eviction": lambda text, flag: _map(text.replace("<", "="), flag),  # such as `memory.available<100Mi`
    "reservedMemory": _reserved_memory,
}
