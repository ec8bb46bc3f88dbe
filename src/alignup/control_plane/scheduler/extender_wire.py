"""The JSON of a scheduler extender (`k8s.io/kube-scheduler/extender/v1`).

It decodes questions and encodes answers. Keys are capitalised, as Go names fields; they are read
without regard to case, as Go reads them. Nodes that come as whole objects go back as they came.
"""

from __future__ import annotations

import ctypes
import resource
import signal
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from alignup.control_plane.api_server.objects import NodeObject, PodObject
from alignup.errors import InputError
from alignup.kubernetes.wire import Metadata
from alignup.text.json_text import check_levels, decode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from alignup.control_plane.scheduler.extender_answers import Filtered

_T = TypeVar("_T", bound=msgspec.Struct)


class _NodeList(msgspec.Struct, gc=False):
    items: list[msgspec.Raw] | None = None


class ExtenderArgs(msgspec.Struct, rename="pascal", gc=False):
    """The question of `filter` and `prioritize`.

    Attributes:
        objects: by name, the whole nodes, where these were sent; no key of the question.
    """

    pod: PodObject
    nodes: _NodeList | None = None
    node_names: list[str] | None = None
    objects: dict[str, msgspec.Raw] = {}

    @property
    def names(self) -> list[str]:
        """The names of the nodes asked for."""
        if self.node_names is None:
            return list(self.objects)
        return self.node_names


class _Victim(msgspec.Struct, gc=False):
    """A pod that comes by its uid, or whole."""

    uid: str = msgspec.field(name="UID", default="")
    metadata: Metadata = msgspec.field(default_factory=Metadata)


class Victims(msgspec.Struct, gc=False):
    """What the scheduler would evict from a node."""

    pods: list[_Victim] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)

    @property
    def uids(self) -> list[str]:
        """The uid of each pod."""
        return [pod.uid or pod.metadata.uid for pod in self.pods or ()]


class PreemptionArgs(msgspec.Struct, rename="pascal", gc=False):
    """The question of `preempt`."""

    pod: PodObject
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, Victims] | None = None

    @property
    def by_node(self) -> Mapping[str, Victims]:
        """What the scheduler would evict from each node."""
        return self.node_name_to_meta_victims or self.node_name_to_victims or {}


class Batch(msgspec.Struct, gc=False):
    """The question of `evaluate`, which is ours: any number of pods, for all nodes."""

    pods: list[PodObject]


class Binding(msgspec.Struct, gc=False):
    """The question of `bind`."""

    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


class _HostPriority(msgspec.Struct, rename="pascal", gc=False):
    host: str
    score: int


# Nodes in a question, twice as many as clusters are made for, or victims on one of them.
MOST_NAMES: Final = 20_000
# Pods in a question of `evaluate`.
MOST_PODS: Final = 1000
# In a question.
_MOST_VICTIMS: Final = 5 * MOST_NAMES
# Bytes: an API server stores objects of 1.5 MiB at most.
LARGEST_POD: Final = 2 << 20
# Bytes of a pod's containers, as far as they are read: their names and resources; and of its
# claims.
LARGEST_REQUESTS: Final = 256 << 10
_GO_KEYS: Final = {
    key.lower(): key
    for key in (
        "Pod",
        "Nodes",
        "NodeNames",
        "NodeNameToVictims",
        "NodeNameToMetaVictims",
        "Pods",
        "NumPDBViolations",
        "UID",
        "PodName",
        "PodNamespace",
        "PodUID",
        "Node",
    )
}
# By its name here, what OpenTelemetry calls a field of a question.
_KEY: Final = {
    "name": "k8s.pod.name",
    "namespace": "k8s.namespace.name",
    "uid": "k8s.pod.uid",
    "node": "k8s.node.name",
}
_NOT_DECODED: Final = (msgspec.MsgspecError, UnicodeError)
_PR_SET_PDEATHSIG: Final = 1
_ENCODE: Final = msgspec.json.Encoder().encode
_AnyKeys = dict[str, msgspec.Raw]


def begin_process(memory: int) -> None:
    """Prepare a process that decodes for another one.

    It has so many bytes of memory, and ends with that one.
    """
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def decode_args(data: bytes) -> ExtenderArgs:
    """Return the question of `filter` or `prioritize`.

    Raises:
        InputError: it is none, or of too many nodes.
    """
    args = _decoded(
        data,
        ExtenderArgs,
        "ExtenderArgs",
        lambda question: question.node_names is None and question.nodes is None,
    )
    _check_requests(args.pod)

    items = (args.nodes.items if args.nodes else None) or ()
    _check_count("nodes", max(len(args.node_names or ()), len(items)))
    if args.node_names is None:
        args.objects = {
            decode_json(item, "a Node", "Nodes.items", NodeObject).metadata.name: item
            for item in items
        }

    return args


def decode_preemption(data: bytes) -> PreemptionArgs:
    """Return the question of `preempt`.

    Raises:
        InputError: it is none, or of too many nodes or victims.
    """
    args = _decoded(
        data,
        PreemptionArgs,
        "ExtenderPreemptionArgs",
        lambda question: not any(victims.uids for victims in question.by_node.values()),
    )
    _check_requests(args.pod)

    counts = [len(victims.pods or ()) for victims in args.by_node.values()]
    _check_count("nodes", len(counts))
    _check_count("victims of a node", max(counts, default=0))
    _check_count("victims", sum(counts), _MOST_VICTIMS)
    return args


def decode_batch(data: bytes) -> Batch:
    """Return the question of `evaluate`.

    Raises:
        InputError: it is none, or of too many pods.
    """
    batch = decode_json(data, 'a JSON object with "pods"', kind=Batch)
    _check_count("pods", len(batch.pods), MOST_PODS)
    for pod in batch.pods:
        _check_requests(pod)

    return batch


def decode_binding(data: bytes) -> Binding:
    """Return the question of `bind`.

    Raises:
        InputError: it is none.
    """
    return _decoded(data, Binding, "ExtenderBindingArgs", lambda _: False)


def about(args: object) -> dict[str, str]:
    """Return what a span tells of a question, by OpenTelemetry's names.

    It tells the pod, and of a binding the node.
    """
    named = args.pod.metadata if isinstance(args, ExtenderArgs | PreemptionArgs) else args
    attributes = {key: getattr(named, name, "") for name, key in _KEY.items()}
    return {key: value for key, value in attributes.items() if value}


def _check_count(description: str, count: int, limit: int = MOST_NAMES) -> None:
    if count > limit:
        raise InputError(f"{count} {description} are more than the {limit} allowed")


def _check_requests(pod: PodObject) -> None:
    spec = pod.spec
    size = len(_ENCODE((spec.containers, spec.init_containers, spec.resources)))
    _check_count("bytes of a pod's containers and their resources", size, LARGEST_REQUESTS)

    size = len(_ENCODE((spec.resource_claims, pod.status.resource_claim_statuses)))
    _check_count("bytes of a pod's claims", size, LARGEST_REQUESTS)


def _check_parts(data: bytes) -> None:
    """Refuse a large question that would take much longer, and far more memory, than it is worth.

    Raises:
        InputError: the pod is larger than any, or there are too many names.
        MsgspecError: it is no JSON object.
    """
    for key, value in msgspec.json.decode(data, type=_AnyKeys).items():
        text = memoryview(value)
        if key.lower() == "pod":
            _check_count("bytes of a pod", len(text), LARGEST_POD)
        elif key.lower() == "nodenames":
            # a name has no commas
            _check_count("nodes", bytes(text).count(b",") + 1)


def _decoded(data: bytes, kind: type[_T], name: str, lacks_all: Callable[[_T], bool]) -> _T:
    """Return the decoded question, with keys of any case.

    Args:
        data: the body.
        kind: of the question, with keys in Go's case.
        name: of that, in Go.
        lacks_all: whether a question asks about nothing, as one does whose keys are in another
            case.
    """
    expected = f"the JSON of {name}"
    check_levels(data, expected)
    try:
        if len(data) > LARGEST_POD:
            _check_parts(data)

        question = msgspec.json.decode(data, type=kind)
        if not lacks_all(question):
            return question
    except _NOT_DECODED as error:
        question = None
        message = str(error)

    try:
        recased = msgspec.json.encode(_recased(msgspec.json.decode(data, type=_AnyKeys)))
        return msgspec.json.decode(recased, type=kind)
    except _NOT_DECODED as error:
        if question is None:
            raise InputError(f"expected {expected}: {message}") from error

        return question


def _recased(fields: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    """Return the fields of a question with the keys in Go's case, those of victims too."""
    recased: dict[str, Any] = _in_go_case(fields)
    for key in ("NodeNameToVictims", "NodeNameToMetaVictims"):
        by_node = msgspec.json.decode(
            recased.get(key, b"null"), type=dict[str, dict[str, Any]] | None
        )
        if by_node is not None:
            by_node = {name: _recased_victims(victims) for name, victims in by_node.items()}
        recased[key] = by_node

    return recased


def _recased_victims(victims: Mapping[str, Any]) -> dict[str, Any]:
    """Return the victims of a node with the keys in Go's case, those of the pods too."""
    recased = _in_go_case(victims)
    pods = recased.get("Pods")
    if isinstance(pods, list):
        recased["Pods"] = [_in_go_case(pod) if isinstance(pod, dict) else pod for pod in pods]

    return recased


def _in_go_case(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {_GO_KEYS.get(key.lower(), key): value for key, value in fields.items()}


def encode_filtered(filtered: Filtered, args: ExtenderArgs) -> bytes:
    """Return the answer of `filter`; whole nodes if these were sent."""
    answer: dict[str, Any] = {
        "FailedNodes": filtered.failed,
        "FailedAndUnresolvableNodes": filtered.unresolvable,
        "Error": "",
    }
    if args.node_names is not None:
        answer["NodeNames"] = filtered.passed
    else:
        answer["Nodes"] = {
            "metadata": {},
            "items": [args.objects[name] for name in filtered.passed],
        }
    return _ENCODE(answer)


def encode_error(message: str) -> bytes:
    """Return the answer of `bind`, and that of `filter` to a question that cannot be answered.

    An empty message: it is done.
    """
    return msgspec.json.encode({"Error": message})


def encode_scores(names: Sequence[str], scores: Sequence[int]) -> bytes:
    """Return the answer of `prioritize`: the score of each name."""
    return msgspec.json.encode(list(map(_HostPriority, names, scores)))


def victims_as_json(
    victims: Mapping[str, tuple[list[str], int | None]], args_by_node: Mapping[str, Victims]
) -> dict[str, Any]:
    """Return what the answer of `preempt` says of some nodes.

    Violations that are not known are those of the question.
    """
    answers = {}
    for name, (uids, violations) in victims.items():
        if violations is None:
            violations = args_by_node[name].violations  # noqa: PLW2901
        pods = [{"UID": uid} for uid in uids]
        answers[name] = {"Pods": pods, "NumPDBViolations": violations}

    return answers


def encode_preemption(victims_of_nodes: Mapping[str, Any]) -> bytes:
    """Return the answer of `preempt`, by node what `victims_as_json` returns."""
    return _ENCODE({"NodeNameToMetaVictims": victims_of_nodes})
