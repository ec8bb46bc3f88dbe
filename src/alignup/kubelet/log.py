"""Reads from a kubelet's log which pods were refused, and why.

That is the hints behind each decision, and what was merged from them. Kubelets write hints at every
verbosity, from 1.26 on as JSON, in klog's text as with `--logging-format=json`, before as Go prints
them; the messages are those of `pkg/kubelet/cm/topologymanager`. That a pod was refused, and why,
is told by "Pod admission denied" from 1.31 on, and before by events (`-v=3`), or by a decision that
was not carried out. What stands before a line, and around it as a journal or a container runtime
exports it, is left out.

Of a kubelet that does not start it keeps the words, which `alignup.kubelet.messages` explains.

At -v=4 a kubelet 1.38 writes a line for each combination of hints, of which it says the score only:
these are passed over.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from alignup.errors import InputError
from alignup.kubelet.messages import DRAIN_AND_DELETE, meaning_of_start
from alignup.kubernetes.pod_documents import is_rejected
from alignup.kubernetes.recognition import recognised
from alignup.machine.bits import bit_set
from alignup.records import Record, field
from alignup.text.counting import short_difference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# The program's file that wrote a line, its message, and the values beside it.
LogLine = tuple[str, str, dict[str, Any]]

# What a line at -v=4 says of a combination of hints; of two lists on 8 NUMA nodes there are 65,025.
_OF_A_COMBINATION: Final = b"Merged hint includes aggregated score"
# Stands for a message that `journalctl -o json` left out, as it is too long for it.
_T = TypeVar("_T")

OMITTED: Final = "omitted"
_HEAD: Final = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ([\w.-]+\.go):\d+] ")
_KEY: Final = re.compile(r" ([^\s=\"]+)=")
# Files of a kubelet that no other program of Kubernetes is made of.
_FILES: Final = re.compile(
    r"(?:kubelet|kuberuntime|pod_workers|scope_|(?:cpu|memory|topology)_manager)\w*\.go"
)
# What journals, container runtimes and collectors call a message.
_WRAPPERS: Final = ("MESSAGE", "log", "message")
# Reads a value of JSON where one begins; its errors do not look for the line of the place, which
# takes time that grows with the length of the text before it.
_DECODER: Final[Any] = json.JSONDecoder()
_SCAN: Final[Callable[[str, int], tuple[Any, int]]] = _DECODER.scan_once
_EVERY_NODE: Final = (1 << 64) - 1
# A hint, and a list of them, as Go prints them.
_GO_HINT: Final = re.compile(r"{NUMANodeAffinity:([01]*)(?:<nil>)? Preferred:(true|false)}")
# More values than any line of a kubelet has.
_MOST_PAIRS: Final = 1000
# Refusals that are kept, and words of failed starts: the newest. To explain them takes seconds.
MOST_EXPLAINED: Final = 1000
# How many lines of other programs are looked at for what they are.
_MOST_OTHERS: Final = 1000
_GO_HINTS: Final = re.compile(r"([^\s\[]+):\[([^\]]*)\]")
# Messages with the error by which a kubelet ends, also with the error as part of the text.
_ENDS: Final = re.compile(
    r"(?:Failed to start ContainerManager|command failed|Failed to run kubelet"
    r"|failed to run Kubelet:|kubelet exited:)"
)
# Messages before these, with the same error.
_BEFORE_THE_END: Final = re.compile(
    r"Policy start error|Failed to initialize (?:cpu|memory) manager"
    r"|Could not initialize checkpoint manager, please drain node and remove policy state file"
    r"|(?:Static policy invalid|[Ii]nvalid) state, please drain node and remove policy state file"
)
# What a line that is cut off, or has numbers that no kubelet writes, ends in.
_CUT_OFF: Final = (ValueError, TypeError, LookupError, AttributeError, OverflowError)
# What stands before the words of a manager.
_AROUND_AN_ERROR: Final = re.compile(
    r"(?:(?:could not initialize checkpoint manager|kubelet exited|failed to run Kubelet"
    r"|failed to run the kubelet|start (?:cpu|memory|dra) manager error"
    r"|new (?:static|none) policy error): |Failed to start ContainerManager:? ?)+"
)
# The place in the sources where a line of klog begins whose time somebody has cut off.
_PLACE: Final = re.compile(r"[\w.-]+\.go:\d+\]? ")
# The message of a program that is not written by klog, such as k3s.
_QUOTED_MESSAGE: Final = re.compile(r'msg="((?:[^"\\]|\\.)*)"')
# The parts of klog's lines about a state of memory that is not as expected.
_DIFFERENCE: Final = re.compile(
    r"(?:Memory|Node) states?(?: for the NUMA node and resource)? (?:were|are|had|have|didn't)"
    r"|NUMA node and resource had different memory states"
)
# What differs, by the field that the memory manager names, and how to mend it. The kernel keeps
# another share of each NUMA node's memory at each boot.
_DIFFERENCES: Final = {
    "lengthNode": ("the machine has {now} NUMA nodes, and the file {before}", DRAIN_AND_DELETE),
    "TotalMemSize": (
        "{where} has {now} of memory, and had {before} when the file was written",
        f"{DRAIN_AND_DELETE}; there is no setting to put back",
    ),
    "hugepages": (
        "{where} has {now} of {resource}, and had {before} when the file was written",
        f"set the hugepages back, or {DRAIN_AND_DELETE}",
    ),
    "SystemReserved": (
        "of {where}, {now} of {resource} is reserved, and {before} was when the file was written",
        f"set reservedMemory back, or {DRAIN_AND_DELETE}",
    ),
    "Allocatable": (
        "of {where}, {now} of {resource} is for pods, and {before} was when the file was written",
        f"set reservedMemory back, or {DRAIN_AND_DELETE}",
    ),
    "free": (
        "{where} has {before} of {resource} free in the file, and {now} by its containers",
        DRAIN_AND_DELETE,
    ),
    "reserved": (
        "{where} has {before} of {resource} held in the file, and {now} by its containers",
        DRAIN_AND_DELETE,
    ),
}


class LoggedHint(NamedTuple):
    """A hint as a log has it.

    Attributes:
        mask: its bits are ids of NUMA nodes; None: any.
        score: how full the NUMA nodes are in percent; 0: it has none. None: it is a hint of a
            kubelet before 1.38.
    """

    mask: int | None
    preferred: bool
    score: int | None = None


class Startup(Record):
    """What a kubelet has said of itself when it started; empty: not in the log.

    Attributes:
        prefers_closest: the option prefer-closest-numa-nodes is on.
    """

    policy: str = ""
    scope: str = ""
    prefers_closest: bool = False


class Decision(Record, frozen=False):
    """A decision of the Topology Manager.

    Attributes:
        container: None: the pod as a whole.
        offers: how many providers have answered.
        hints: of each provider in its order (devices, CPUs, memory) by resource; None: no
            preference. Fewer than `offers`: a line of them is cut off.
        best: what the kubelet merged from them; None: not in the log.
        carried_out: resources were allocated by it then.
        too_few: by resource, how many devices were asked for and free, where there were too few.
    """

    pod: str
    container: str | None
    offers: int = 0
    hints: list[dict[str, list[LoggedHint] | None]] = field(default_factory=list)
    best: LoggedHint | None = None
    carried_out: bool = False
    too_few: dict[str, tuple[int, int]] = field(default_factory=dict)


class LoggedRefusal(Record):
    """A pod that was refused, as it was refused last.

    Attributes:
        pod: `namespace/name`.
        uid: empty: not in the log.
        message: the kubelet's; empty: not in the log.
        startup: what its kubelet has said of itself before.
        decisions: those about this pod, in order.
    """

    pod: str
    uid: str
    reason: str
    message: str
    startup: Startup
    decisions: tuple[Decision, ...]


class FailedStart(Record, frozen=False):
    """Starts of a kubelet that failed for the same words.

    Attributes:
        message: the kubelet's words.
        count: how many they are in the log.
        difference: the first thing that the memory manager found otherwise than in its file.
        repair: how to mend that.
        started_since: later lines are of a kubelet that runs.
    """

    message: str
    count: int = 0
    difference: str = ""
    repair: str = ""
    started_since: bool = False


class KubeletLog(Record, frozen=False):
    """What a log says.

    Attributes:
        refusals: by pod, in order.
        failed_starts: by the kubelet's words, in order.
        numa_nodes: the mask of the NUMA nodes that are named in it.
        omitted: how many messages are `OMITTED`.
        dropped: how many refusals, and words of failed starts, are the oldest of too many.
    """

    refusals: dict[str, LoggedRefusal] = field(default_factory=dict)
    failed_starts: dict[str, FailedStart] = field(default_factory=dict)
    numa_nodes: int = 0
    omitted: int = 0
    dropped: int = 0


def read_log(lines: Iterable[bytes], name: str, pod: str = "") -> KubeletLog:
    """Return what a kubelet's log says.

    Args:
        lines: its lines.
        name: its name in errors.
        pod: namespace and name of the only pod of which refusals are kept; empty: of all.

    Raises:
        InputError: no line is one that a kubelet writes.
    """
    reading = _Reading(pod)
    is_known = False
    others: list[str] = []
    for line in lines:
        if _OF_A_COMBINATION in line:
            is_known = True
            continue

        text = line.decode(errors="replace")
        file, message, values = log_line(text)
        if not file and _ENDS.search(text):
            message, values = _end_without_head(text)

        if _FILES.fullmatch(file):
            is_known = True
        elif not file and len(others) < _MOST_OTHERS:
            others.append(text)

        with suppress(*_CUT_OFF):
            if reading.take(message, values):
                is_known = True

    if not is_known:
        sentence = recognised("".join(others), name)
        if sentence:
            raise InputError(sentence)
        raise InputError(
            f"no line of {name} is of a kubelet's log, which is in the journal: journalctl -u "
            "kubelet > kubelet.log"
        )

    reading.end_of_pod()
    return reading.log


def _difference(message: str, values: Mapping[str, Any]) -> tuple[str, str]:
    """Return what the memory manager found otherwise than in its file, and how to mend it.

    Both are empty where its line does not tell.
    """
    if message == "Node state didn't have node ID" and "nodeID" in values:
        return f"the machine has no NUMA node {values['nodeID']}", DRAIN_AND_DELETE

    name = str(values.get("field", "lengthNode"))
    written, present = (values.get(f"{name}{number}") for number in (1, 2))
    resource = str(values.get("resource", "memory"))
    key = "hugepages" if name == "TotalMemSize" and resource != "memory" else name
    if key not in _DIFFERENCES or not (isinstance(written, int) and isinstance(present, int)):
        return "", ""

    before, now = short_difference(written, present)
    if name == "lengthNode":
        before, now = str(written), str(present)

    sentence, repair = _DIFFERENCES[key]
    where = f"NUMA node {values['node']}" if "node" in values else "a NUMA node"
    return sentence.format(where=where, resource=resource, now=now, before=before), repair


def log_line(text: str) -> LogLine:
    r"""Return what a line says, of klog's text or JSON; empty: it is neither.

    Whatever stands before it or around it is left out.

    >>> log_line('node kubelet[7]: I1125 10:00:00.000001 7 kubelet.go:12] "Hello" pod="a/b" n=[1]')
    ('kubelet.go', 'Hello', {'pod': 'a/b', 'n': [1]})
    """
    head = _HEAD.search(text)
    brace = text.find("{")
    if head and not 0 <= brace < head.start():
        message, end = _value(text, head.end())
        pairs: dict[str, Any] = {}
        while len(pairs) < _MOST_PAIRS and (key := _KEY.match(text, end)):
            pairs[key[1]], end = _value(text, key.end())
        return head[1], str(message), pairs

    values = _value(text, brace)[0] if brace >= 0 else None
    if not isinstance(values, dict):
        return "", "", {}

    if "msg" in values:
        file = str(values.get("caller")).rpartition("/")[2].partition(":")[0]
        return file, str(values["msg"]), values

    inner = next((values[key] for key in _WRAPPERS if key in values), "")
    if inner is None:
        return "", OMITTED, {}
    if isinstance(inner, str) and len(inner) < len(text):
        return log_line(inner)
    return "", "", {}


def _end_without_head(text: str) -> tuple[str, dict[str, Any]]:
    """Return the message of a line by which a kubelet ends, and the values beside it.

    The line is of a program that has a kubelet in it, or the beginning of klog's is cut off.
    """
    quoted = _QUOTED_MESSAGE.search(text)
    if quoted:
        return quoted[1].replace(r"\"", '"'), {}

    place = _PLACE.search(text)
    if place is None:
        return "", {}

    _, message, values = log_line(
        f"E0101 00:00:00.0 1 {place[0].rstrip(' ]')}] {text[place.end() :]}"
    )
    return message, values


def _value(text: str, place: int) -> tuple[Any, int]:
    """Return a value of klog's text, and where it ends: JSON, or else words as they stand."""
    try:
        value, end = _SCAN(text, place)
    except (StopIteration, ValueError, RecursionError):
        end = next((key.start() for key in _KEY.finditer(text, place)), len(text))
        return text[place:end], end

    return value, end


class _Reading:
    """Puts the lines of a log together.

    The argument is the only pod of which refusals are kept; empty: all.
    """

    def __init__(self, pod: str) -> None:
        self.log = KubeletLog()
        self._pod = pod
        self._startup = Startup()
        # those of one pod, by container
        self._decisions: dict[str | None, Decision] = {}
        self._too_few: dict[str, tuple[int, int]] = {}
        self._difference: tuple[str, Mapping[str, Any]] | None = None

    def take(self, message: str, values: Mapping[str, Any]) -> bool:  # noqa: C901  # a message each
        """Take a line; return whether only a kubelet writes such.

        Raises:
            ValueError, TypeError, LookupError, AttributeError: it is cut off, or not what a kubelet
                writes.
        """
        if values.get("operation") == "resize":  # the pod stays, whatever is decided
            self._decisions = {}
            return True

        match message:
            case (
                "Creating topology manager with none policy"
                | "Creating topology manager with policy per scope"
            ):
                options = values.get("topologyPolicyOptions", {})
                self._startup = Startup(
                    policy=str(values.get("topologyPolicyName", "none")),
                    scope=str(values.get("topologyScopeName", "")),
                    prefers_closest=bool(options.get("PreferClosestNUMA")),
                )

            case "Detected CPU topology":
                cpus = values["topology"]["CPUDetails"].values()
                self.log.numa_nodes |= bit_set(cpu["NUMANodeID"] & 63 for cpu in cpus)

            case "Unable to generate topology hints: requested number of devices unavailable":
                resource = values.get("resourceName") or values["resource"]
                self._too_few[resource] = values["request"], values["available"]

            case "TopologyHints":
                self._take_hints(values)

            case "Best TopologyHint":
                self._current(values).best = self._hint(values["bestHint"])

            case "Topology Affinity" if "bestHint" in values and self._decisions:
                # the CPU manager has such a line too
                self._last().carried_out = True

            case "Allocate error" if self._decisions:
                error = values["err"]
                self._refuse(self._last().pod, "", _reason_of(error), error)

            case "Pod admission denied":
                uid, reason, text = (str(values[key]) for key in ("podUID", "reason", "message"))
                self._refuse(_name(values["pod"]), uid, reason, text)

            case "Event occurred" if is_rejected("Failed", values["reason"]):
                self._take_event(values)
                return False

            case _:
                return self._take_of_start(message, values)

        if message in {"TopologyHints", "Pod admission denied"}:
            self._runs()

        return True

    def _take_of_start(self, message: str, values: Mapping[str, Any]) -> bool:
        """Take a line about the kubelet's start, or another; return whether only a kubelet does."""
        if message == OMITTED:
            self.log.omitted += 1
            return False

        if message.startswith("SyncLoop "):
            self._runs()
            return True

        if _DIFFERENCE.match(message):
            self._difference = self._difference or (message, values)
            return True

        ends = _ENDS.match(message)
        if not ends and not _BEFORE_THE_END.fullmatch(message):
            return False

        # the quote of an error of several lines ends in another line
        error = str(values.get("err", message if ends else "")).strip().removeprefix('"')
        # other programs of Kubernetes end with this line too
        is_known = message != "command failed" or "kubelet" in error.lower()
        words = _AROUND_AN_ERROR.sub("", error, count=1) if _AROUND_AN_ERROR.match(error) else error
        if not words or not (is_known or meaning_of_start(words)):
            return False

        failed = self.log.failed_starts.pop(words, None) or FailedStart(words)
        self._keep(self.log.failed_starts, words, failed)
        failed.count += bool(ends)
        failed.started_since = False
        if ends:
            if self._difference is not None and "expected machine state" in words:
                failed.difference, failed.repair = _difference(*self._difference)

            self._difference = None

        return True

    def _runs(self) -> None:
        """Note that the kubelet runs."""
        for failed in self.log.failed_starts.values():
            failed.started_since = True

    def _take_hints(self, values: Mapping[str, Any]) -> None:
        """Take the hints of a provider, and the devices of which there were too few for any."""
        decision = self._current(values)
        decision.offers += 1

        hints = _hints(values["hints"])
        masks = {
            name: logged and [self._hint(hint) for hint in logged] for name, logged in hints.items()
        }
        decision.hints.append(masks)

        for name, amounts in self._too_few.items():
            if hints.get(name) == []:
                decision.too_few[name] = amounts
        self._too_few = {}

    def _take_event(self, values: Mapping[str, Any]) -> None:
        """Take the event of a refused pod, unless another line has told of it."""
        pod, reason = _name(values["object"]), values["reason"]
        self.end_of_pod(pod)
        if pod not in self.log.refusals or self.log.refusals[pod].reason != reason:
            self._refuse(pod, "", reason, str(values["message"]))

    def _hint(self, value: Mapping[str, Any] | str) -> LoggedHint:
        """Return a hint, and note its NUMA nodes."""
        if isinstance(value, str):
            [(bits, preferred)] = _GO_HINT.findall(value)
            value = {
                "NUMANodeAffinity": int(bits, 2) if bits else None,
                "Preferred": preferred == "true",
            }

        mask = value["NUMANodeAffinity"]
        self.log.numa_nodes |= (mask or 0) & _EVERY_NODE
        score = value.get("Score")
        return LoggedHint(
            mask and mask & _EVERY_NODE,
            bool(value["Preferred"]),
            None if score is None else int(score),
        )

    def _current(self, values: Mapping[str, Any]) -> Decision:
        """Return the decision that a line is about.

        It is a new one after one that is done, and for another pod.
        """
        pod = _name(values["pod"])
        container = str(values["containerName"]) if "containerName" in values else None

        if self._decisions:
            last = self._last()
            if (last.pod, last.container) == (pod, container) and last.best is None:
                return last

            if last.pod != pod or container in self._decisions:
                self.end_of_pod()

        decision = Decision(pod, container)
        self._decisions[container] = decision
        return decision

    def _last(self) -> Decision:
        """Return the decision that was made last; there is one."""
        return next(reversed(self._decisions.values()))

    def _refuse(self, pod: str, uid: str, reason: str, message: str) -> None:
        decisions: tuple[Decision, ...] = ()
        if self._decisions and self._last().pod == pod:
            decisions = tuple(self._decisions.values())
            self._decisions = {}

        if self._pod not in {"", pod}:
            return

        earlier = self.log.refusals.pop(pod, None)
        if earlier is not None and not decisions:  # another line tells more
            decisions = earlier.decisions

        refusal = LoggedRefusal(pod, uid, reason, message, self._startup, decisions)
        self._keep(self.log.refusals, pod, refusal)

    def _keep(self, entries: dict[str, _T], key: str, entry: _T) -> None:
        """Put an entry behind all others, of which the oldest goes where there are too many."""
        entries[key] = entry
        if len(entries) > MOST_EXPLAINED:
            del entries[next(iter(entries))]
            self.log.dropped += 1

    def end_of_pod(self, pod: str | None = None) -> None:
        """Note a refusal that no line tells: a decision that was not carried out.

        Args:
            pod: only of this one.
        """
        last = self._last() if self._decisions else None
        if last is None or pod not in {None, last.pod}:
            return

        is_refused = last.best is not None and not (
            last.carried_out or last.best.preferred or self._startup.policy == "best-effort"
        )
        if is_refused:
            self._refuse(last.pod, "", "TopologyAffinityError", "")

        self._decisions = {}


def _hints(hints: dict[str, list[Any] | None] | str | None) -> dict[str, list[Any] | None]:
    """Return the hints of a provider by resource, as JSON has them or as Go prints them."""
    if not isinstance(hints, str):
        return hints or {}
    if not re.fullmatch(r"map\[.*\]", hints):
        raise ValueError(hints)

    return {
        name: re.findall(r"{[^}]*}", printed)
        for name, printed in _GO_HINTS.findall(hints.removeprefix("map["))
    }


def _reason_of(error: str) -> str:
    """Return the reason of a refusal whose resources could not be allocated."""
    if error.startswith("SMT Alignment"):
        return "SMTAlignmentError"
    return "UnexpectedAdmissionError"


def _name(pod: str | dict[str, str]) -> str:
    """Return `namespace/name` of a pod, which text and JSON write each in their way."""
    if isinstance(pod, str):
        return pod
    return f"{pod['namespace']}/{pod['name']}"
