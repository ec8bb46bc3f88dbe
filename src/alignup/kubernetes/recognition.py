"""Says what a text is that has no pods to read, and what reads it or prints what can be read.

`kubectl describe`, its tables and Events tell why a pod was rejected, in the kubelet's words, and
not what it asked for: these words are quoted. Whatever else alignup reads is told by its first
lines, or by the keys of an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from alignup.errors import InputError, one_line
from alignup.kubernetes.versions import is_rejection
from alignup.text.counting import counted
from alignup.text.documents import is_utf_16, utf8_of

# How much of a text is looked at, in letters; tables of kubectl are read to this length.
_LOOKED_AT: Final = 1 << 18
_MOST_QUOTED: Final = 3
_LONGEST_QUOTE: Final = 200

# No pattern goes back over a long text for each of its letters.
_TABLE_OF_PODS: Final = re.compile(
    r"^(?:NAMESPACE[ \t]+)?NAME[ \t]+READY[ \t]+STATUS\b.*$", re.MULTILINE
)
_TABLE_OF_EVENTS: Final = re.compile(
    r"^(?:NAMESPACE[ \t]+)?LAST SEEN[ \t]+(?:TYPE[ \t]+REASON[ \t]+OBJECT|FIRST SEEN)\b.*$",
    re.MULTILINE,
)
_EVENTS_OF_A_POD: Final = re.compile(
    r"^[ \t]*Type[ \t]+Reason[ \t]+Age[ \t]+From[ \t]+Message[ \t]*$", re.MULTILINE
)
_DESCRIPTION: Final = re.compile(r"^Name:[ \t]++(\S++)[ \t]*+$", re.MULTILINE)
_OF_A_NODE: Final = re.compile(r"^(?:Capacity|Allocatable|Roles):", re.MULTILINE)
_OF_A_POD: Final = re.compile(
    r"^(?:Namespace|Node|Containers|Status|Controlled By|QoS Class|Events):", re.MULTILINE
)
_FIELD: Final = re.compile(r"^(Namespace|Reason|Message):[ \t]++(\S.*)$", re.MULTILINE)
_GAP: Final = re.compile(r"\s{2,}|\t")
# A manifest, whatever its comments and texts quote.
_MANIFEST: Final = re.compile(
    r"^(?:---)?[ ]{0,2}(?:- )?[\"']?(?:kind|apiVersion|spec|metadata)[\"']?[ \t]*:", re.MULTILINE
)
_UNSCHEDULABLE: Final = "FailedScheduling"

_LOG_IN_JSON: Final = re.compile(r'\{.*"caller":\s*"[\w/.-]+\.go:\d+"')
_LOG: Final = (
    "a log of a program of Kubernetes: of a kubelet, `alignup explain --log {name}` reads it"
)
_LOG_LINE: Final = (
    r"(?:^|\s)[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [\w.-]+\.go:\d+\] "
    r'|"caller":"[\w/.-]+\.go:\d+"'
)
_OF_A_MACHINE: Final = (
    r"^(?:Architecture:[ \t]++\S|[ \t]*NUMA node\d+ CPU\(s\):|[ \t]*node \d+ cpus:[ \t]"
    r"|# The following is the parsable format|# CPU,Core,"
    r"|[ \t]*CPU[ \t]+(?:NODE|CORE|SOCKET)\b|available: \d+ nodes"
    r"|[ \t]*+(?:\x1b\[\d*+m)*+[ \t]*+GPU0[ \t]"
    r"|Machine \(\S+ total|=+ ROC[mM]|<topology\b)"
)

# What the lines of a text show, and what reads it.
_BY_LINES: Final = tuple(
    (re.compile(pattern, re.MULTILINE), sentence)
    for pattern, sentence in (
        (_LOG_LINE, _LOG),
        (
            r"^NAME[ \t]+(?:STATUS[ \t]+ROLES|.*\bAGE[ \t]*$)",
            "a table that kubectl prints: `kubectl get pods -o yaml` prints pods that can be read",
        ),
        (
            _OF_A_MACHINE,
            "what a program prints of a machine: `alignup explain -m {name} pod.yaml` reads it",
        ),
        (
            r"\A\s*(?:\S*kubelet\s+)?--[a-z][a-z-]*[= ]",
            "flags of a program: those of a kubelet are read by --config",
        ),
        (r"\A#!/", "a script: `kubectl get pod NAME -o yaml` prints a pod"),
        (
            r"(?i)\A\s*<(?:!doctype html|html)\b",
            "a page of HTML: save the manifest itself, as `kubectl get pod NAME -o yaml` prints it",
        ),
    )
)

_CLAIMS: Final = ("objects of claims", "`alignup claims` and --resources read them")
# What objects are that make no pods, by their kind.
_BY_KIND: Final = {
    "KubeletConfiguration": ("a kubelet's configuration", "--config reads it"),
    "KubeletConfig": ("a kubelet's configuration in a platform's object", "--config reads it"),
    "Node": (
        "a Node",
        "its kubelet's files say what is free, which `alignup node collect` packs there",
    ),
    "NodeResourceTopology": ("what a node publishes", "`alignup rank` reads it"),
    "ResourceClaim": _CLAIMS,
    "ResourceClaimTemplate": _CLAIMS,
    "ResourceSlice": _CLAIMS,
    "DeviceClass": _CLAIMS,
}
# What an object without a kind is, by keys that it has all of.
_BY_KEYS: Final = (
    ({"numaNodes"}, "a machine", "--machine reads it"),
    ({"policyName", "checksum"}, "a state file of a kubelet", "`alignup node check` reads it"),
    ({"policyName", "machineState"}, "a state file of a kubelet", "`alignup node check` reads it"),
    ({"Data", "Checksum"}, "a checkpoint of a kubelet", "`alignup node check` reads it"),
    ({"machine", "steps"}, "a scenario", "`alignup replay` reads it"),
    ({"machine", "events"}, "a scenario", "`alignup replay` reads it"),
    ({"machine", "kubelet"}, "a node or a scenario", "`alignup rank` or `alignup replay` reads it"),
    ({"causeKind", "steps"}, "what `alignup explain --json` prints", "it has no request to read"),
    ({"lscpu"}, "what lscpu prints", "--machine reads it"),
    *(
        ({key}, "a kubelet's configuration", "--config reads it")
        for key in (
            "kubeletconfig",
            "kubeletConfig",
            "kubelet-arg",
            "kubelet-arg+",
            "cpuManagerPolicy",
            "memoryManagerPolicy",
            "topologyManagerPolicy",
            "reservedSystemCPUs",
        )
    ),
)
_ARCHIVES: Final = (b"\xfd7zXZ", b"\x1f\x8b", b"BZh", b"PK\x03\x04", b"\x28\xb5\x2f\xfd")
_ELF: Final = b"\x7fELF"


class Refusal(NamedTuple):
    """What a text for people tells of a pod.

    Attributes:
        pod: its name, behind its namespace where that is told; empty: not told.
        reason: the reason of its status, or of its Event.
        message: the words of whoever refused it; empty: not told.
    """

    pod: str
    reason: str
    message: str


def refuse_what_is_no_manifest(text: str | bytes, name: str) -> None:
    """Say what a text is, where its form shows that it is no YAML or JSON of pods.

    Args:
        text: the text.
        name: its name in errors.

    Raises:
        InputError: it is something else.
    """
    if isinstance(text, bytes):
        if text.startswith(_ARCHIVES) or text[257:262] == b"ustar":
            raise InputError(
                f"{name} is an archive: of a node --node reads it, and of a machine --machine"
            )
        text = utf8_of(text)
        if is_utf_16(text):
            raise InputError(f"{name} is UTF-16 that is cut off or damaged: save it as UTF-8")
        if text.startswith(_ELF) or b"\0" in text[:1024]:
            raise InputError(f"{name} is a binary file; `kubectl get pod -o yaml` prints a pod")
        text = text[:_LOOKED_AT].decode(errors="replace")

    sentence = recognised(text[:_LOOKED_AT], name)
    if sentence:
        raise InputError(sentence)


def recognised(text: str, name: str) -> str:
    """Return what a text is, and what reads it; empty: its form does not show that.

    >>> recognised("Architecture:  x86_64", "a.txt").partition(":")[0]
    'a.txt is what a program prints of a machine'
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    beginning = text.lstrip()
    if beginning.startswith(("{", "[")):
        sentence = _LOG.format(name=name) if _LOG_IN_JSON.match(beginning) else ""
    elif _MANIFEST.search(text):
        sentence = ""
    else:
        sentence = _printed_by_kubectl(text) or next(
            (sentence.format(name=name) for pattern, sentence in _BY_LINES if pattern.search(text)),
            "",
        )

    return f"{name} is {sentence}" if sentence else ""


def objects_recognised(documents: Iterable[object]) -> str:
    """Return what objects are that make no pods, and what reads them; empty: not known."""
    events = []
    for document in _with_items(documents):
        kind = document.get("kind")
        if kind == "Event":
            events.append(_event(document))
        elif isinstance(kind, str) and kind in _BY_KIND:
            noun, way = _BY_KIND[kind]
            return f"{noun}: {way}"
        elif kind is None:
            sentence = _by_keys(document)
            if sentence:
                return sentence

    return f"Events{_told(events)}" if events else ""


def _with_items(documents: Iterable[object]) -> Iterator[Mapping[str, Any]]:
    """Yield objects, and those in Lists."""
    for document in documents:
        if not isinstance(document, Mapping):
            continue

        items = document.get("items")
        if isinstance(items, list) and str(document.get("kind", "")).endswith("List"):
            yield from (item for item in items if isinstance(item, Mapping))
        else:
            yield document


def _event(document: Mapping[str, Any]) -> Refusal:
    """Return what an Event tells."""
    involved = document.get("involvedObject") or document.get("regarding")
    pod = ""
    if isinstance(involved, Mapping):
        pod = "/".join(str(involved[key]) for key in ("namespace", "name") if key in involved)

    reason = str(document.get("reason", ""))
    if not _is_worth_quoting(reason):
        return Refusal(pod, "", "")
    return Refusal(pod, reason, str(document.get("message") or document.get("note") or ""))


def _by_keys(document: Mapping[str, Any]) -> str:
    """Return what an object without a kind is, and what reads it; empty: not known."""
    if "spec" in document or "metadata" in document:
        return ""

    for keys, noun, way in _BY_KEYS:
        if keys <= document.keys():
            return f"{noun}: {way}"

    inventory = list(document.values())
    devices = [item for value in inventory if isinstance(value, list) for item in value]
    is_inventory = all(isinstance(value, list) for value in inventory) and all(
        isinstance(item, Mapping) and "id" in item for item in devices
    )
    return "an inventory of devices: --devices reads it" if devices and is_inventory else ""


def _printed_by_kubectl(text: str) -> str:
    """Return what kubectl has printed for people, and what that tells; empty: it is not kubectl's.

    Other words may stand before it, such as the command.
    """
    table = _TABLE_OF_PODS.search(text)
    if table:
        return f"the table of `kubectl get pods`{_told(_rows_of_pods(text, table))}"

    table = _TABLE_OF_EVENTS.search(text)
    if table:
        return f"the table of `kubectl get events`{_told(_rows_of_events(text, table))}"

    heads = list(_DESCRIPTION.finditer(text))
    if heads and _OF_A_NODE.search(text) and "\nNamespace:" not in text:
        return (
            f"what `kubectl describe` prints of node {heads[0][1]}: `alignup node collect` on the "
            "node packs what --node reads"
        )
    if heads and _OF_A_POD.search(text):
        ends = [head.start() for head in heads[1:]] + [len(text)]
        refusals = [
            refusal
            for head, end in zip(heads, ends, strict=True)
            for refusal in _refusals_described(head[1], text[head.end() : end])
        ]
        return f"what `kubectl describe` prints{_told(refusals)}"

    if _EVENTS_OF_A_POD.search(text):
        return f"the Events of `kubectl describe`{_told(_events_described('', text))}"
    return ""


def _refusals_described(name: str, text: str) -> Iterator[Refusal]:
    """Yield what `kubectl describe` tells of a pod: its status, or else its Events."""
    fields: dict[str, str] = {}
    for found in _FIELD.finditer(text):
        fields.setdefault(found[1], found[2].rstrip())

    pod = f"{fields['Namespace']}/{name}" if "Namespace" in fields else name
    reason = fields.get("Reason", "")
    if _is_worth_quoting(reason):
        message = fields.get("Message", "").removeprefix("Pod was rejected: ")
        yield Refusal(pod, reason, message)
        return

    quoted = False
    for refusal in _events_described(pod, text):
        quoted = True
        yield refusal

    if not quoted:
        yield Refusal(pod, "", "")


def _events_described(pod: str, text: str) -> Iterator[Refusal]:
    """Yield the Events below their heading in what `kubectl describe` prints."""
    heading = _EVENTS_OF_A_POD.search(text)
    if heading is None:
        return

    for line in text[heading.end() :].splitlines():
        cells = _GAP.split(line.strip(), 4)
        if len(cells) > 4 and _is_worth_quoting(cells[1]):  # noqa: PLR2004  # as the heading has
            yield Refusal(pod, cells[1], cells[4])


def _rows_of_pods(text: str, heading: re.Match[str]) -> Iterator[Refusal]:
    """Yield the pods of a table whose status is that they were rejected."""
    columns = _GAP.split(heading[0].strip())
    for cells in _rows(text, heading):
        row = dict(zip(columns, cells, strict=False))
        name, status = row.get("NAME", ""), row.get("STATUS", "")
        if _is_worth_quoting(status):
            namespace = row.get("NAMESPACE")
            yield Refusal(f"{namespace}/{name}" if namespace else name, status, "")


def _rows_of_events(text: str, heading: re.Match[str]) -> Iterator[Refusal]:
    """Yield the Events of a table that tell of pods that were rejected."""
    columns = _GAP.split(heading[0].strip())
    for cells in _rows(text, heading, len(columns)):
        row = dict(zip(columns, cells, strict=False))
        reason = row.get("REASON", "")
        if _is_worth_quoting(reason):
            kind, _, name = row.get("OBJECT", "").partition("/")
            namespace = row.get("NAMESPACE")
            name = name or kind
            pod = f"{namespace}/{name}" if namespace else name
            yield Refusal(pod, reason, row.get("MESSAGE", ""))


def _rows(text: str, heading: re.Match[str], most: int = 0) -> Iterator[list[str]]:
    """Yield the cells of the lines below a heading."""
    for line in text[heading.end() :].splitlines():
        cells = _GAP.split(line.strip(), max(most - 1, 0))
        if len(cells) > 1:
            yield cells


def _is_worth_quoting(reason: str) -> bool:
    """Return whether a status or an Event's reason says that a pod was not admitted."""
    reason = reason.replace(" ", "")  # up to 1.17 it is Topology Affinity Error
    return is_rejection(reason) or reason == _UNSCHEDULABLE


def _told(refusals: Iterable[Refusal]) -> str:
    """Return what a text tells, and the commands that tell the rest."""
    distinct = list(dict.fromkeys(refusals))
    told = [refusal for refusal in distinct if refusal.reason]
    sentence = ", from which no requests can be read"

    quotes = []
    for refusal in told[:_MOST_QUOTED]:
        subject = f"pod {refusal.pod}: " if refusal.pod else ""
        words = f' ("{refusal.message[:_LONGEST_QUOTE]}")' if refusal.message else ""
        quotes.append(f"{subject}{refusal.reason}{words}")

    if quotes:
        more = len(told) - len(quotes)
        sentence += f"; it tells: {'; '.join(quotes)}"
        if more:
            sentence += f"; and {counted(more, 'more refusal')}"

    pod = next((refusal.pod for refusal in distinct if refusal.pod), "")
    namespace, _, name = pod.rpartition("/")
    command = f"kubectl get pod {name or 'NAME'}{f' -n {namespace}' if namespace else ''} -o yaml"
    return one_line(
        f"{sentence}. For the rest: {command} > pod.yaml, and alignup explain --node node.tar.xz "
        "pod.yaml with what `alignup node collect node.tar.xz` packs on its node"
    )
