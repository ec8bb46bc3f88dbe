"""The JSON of a scheduler extender (`k8s.io/kube-scheduler/extender/v1`): decodes questions, encodes answers.

Keys are capitalised, as Go names fields; they are read without regard to case, as Go reads them. Nodes that come as
whole objects go back as they came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from alignup.errors import InputError
from alignup.scheduler.objects import Metadata, PodObject  # noqa: TC001  # msgspec reads annotations
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.scheduler.extender_answers import Filtered

__all__ = [
    "Binding",
    "ExtenderArgs",
    "PreemptionArgs",
    "decode_args",
    "decode_binding",
    "decode_preemption",
    "encode_bound",
    "encode_error",
    "encode_filtered",
    "encode_preemption",
    "encode_scores",
]

_T = TypeVar("_T", bound=msgspec.Struct)
_GO_NAMES: Final = {
    "ExtenderArgs": "ExtenderArgs",
    "PreemptionArgs": "ExtenderPreemptionArgs",
    "Binding": "ExtenderBindingArgs",
}


class _Named(msgspec.Struct, gc=False):
    metadata: Metadata


class _NodeList(msgspec.Struct, gc=False):
    items: list[msgspec.Raw] | None = None


class ExtenderArgs(msgspec.Struct, rename="pascal", gc=False):
    """The question of `filter` and `prioritize`."""

    pod: PodObject
    nodes: _NodeList | None = None
    node_names: list[str] | None = None

    @property
    def names(self) -> list[str]:
        """The names of the nodes asked for.

        Raises:
            InputError: as `objects`.
        """
        if self.node_names is not None:
            return self.node_names
        return list(self.objects)

    @property
    def objects(self) -> dict[str, msgspec.Raw]:
        """By name, the whole nodes, where these were sent.

        Raises:
            InputError: one of them is no Node.
        """
        items = (self.nodes.items or []) if self.nodes else []
        nodes = [decode_json(item, "a Node", "Nodes.items", _NAMED.decode) for item in items]
        return {node.metadata.name: item for node, item in zip(nodes, items, strict=True)}


class _MetaVictim(msgspec.Struct, gc=False):
    uid: str = msgspec.field(name="UID", default="")


class _MetaVictims(msgspec.Struct, gc=False):
    pods: list[_MetaVictim] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class _Victims(msgspec.Struct, gc=False):
    pods: list[_Named] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptionArgs(msgspec.Struct, rename="pascal", gc=False):
    """The question of `preempt`."""

    pod: PodObject
    node_name_to_victims: dict[str, _Victims] | None = None
    node_name_to_meta_victims: dict[str, _MetaVictims] | None = None

    @property
    def victims(self) -> dict[str, list[str]]:
        """By node, the uids of the pods that the scheduler would evict."""
        if self.node_name_to_meta_victims is not None:
            meta = self.node_name_to_meta_victims
            return {name: [one.uid for one in found.pods or ()] for name, found in meta.items()}
        whole = self.node_name_to_victims or {}
        return {name: [one.metadata.uid for one in found.pods or ()] for name, found in whole.items()}

    @property
    def violations(self) -> dict[str, int]:
        """By node, how many disruption budgets these evictions violate."""
        found: Mapping[str, _Victims | _MetaVictims] | None
        found = self.node_name_to_meta_victims or self.node_name_to_victims
        return {name: one.violations for name, one in (found or {}).items()}


class Binding(msgspec.Struct, gc=False):
    """The question of `bind`."""

    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


class _HostPriority(msgspec.Struct, rename="pascal", gc=False):
    host: str
    score: int


_NOT_DECODED: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
_NAMED: Final = msgspec.json.Decoder(_Named)
_ARGS: Final = msgspec.json.Decoder(ExtenderArgs)
_PREEMPTION: Final = msgspec.json.Decoder(PreemptionArgs)
_BINDING: Final = msgspec.json.Decoder(Binding)
_ANY_KEYS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode_args(data: bytes) -> ExtenderArgs:
    """Return the question of `filter` or `prioritize`.

    Raises:
        InputError: it is none.
    """
    return _decoded(data, _ARGS, ExtenderArgs)


def decode_preemption(data: bytes) -> PreemptionArgs:
    """Return the question of `preempt`.

    Raises:
        InputError: it is none.
    """
    return _decoded(data, _PREEMPTION, PreemptionArgs)


def decode_binding(data: bytes) -> Binding:
    """Return the question of `bind`.

    Raises:
        InputError: it is none.
    """
    return _decoded(data, _BINDING, Binding)


def _decoded(data: bytes, decoder: msgspec.json.Decoder[_T], form: type[_T]) -> _T:
    """Return the decoded question, with keys of any case."""
    try:
        return decoder.decode(data)
    except _NOT_DECODED as error:
        try:
            fields = _ANY_KEYS.decode(data)
            names = {field.encode_name.lower(): field.encode_name for field in msgspec.structs.fields(form)}
            renamed = {names.get(key.lower(), key): value for key, value in fields.items()}
            return decoder.decode(msgspec.json.encode(renamed))
        except _NOT_DECODED:
            why = "values are nested too deeply" if isinstance(error, RecursionError) else error
            raise InputError(
                f"expected the JSON of {_GO_NAMES[form.__name__]}, got something else: {why}"
            ) from error


def encode_filtered(found: Filtered, args: ExtenderArgs) -> bytes:
    """Return the answer of `filter`; whole nodes if these were sent."""
    answer: dict[str, Any] = {
        "FailedNodes": found.failed,
        "FailedAndUnresolvableNodes": found.unresolvable,
        "Error": "",
    }
    if args.node_names is not None:
        answer["NodeNames"] = found.passed
    else:
        objects = args.objects
        answer["Nodes"] = {"metadata": {}, "items": [objects[name] for name in found.passed]}
    return msgspec.json.encode(answer)


def encode_error(message: str) -> bytes:
    """Return the answer of `filter` to a question that cannot be answered."""
    return msgspec.json.encode({"Error": message})


def encode_scores(names: Sequence[str], scores: Sequence[int]) -> bytes:
    """Return the answer of `prioritize`: the score of each name."""
    return msgspec.json.encode(list(map(_HostPriority, names, scores)))


def encode_preemption(victims: Mapping[str, list[str]], violations: Mapping[str, int]) -> bytes:
    """Return the answer of `preempt`."""
    found = {
        name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations.get(name, 0)}
        for name, uids in victims.items()
    }
    return msgspec.json.encode({"NodeNameToMetaVictims": found})


def encode_bound(error: str = "") -> bytes:
    """Return the answer of `bind`; empty: it is done."""
    return msgspec.json.encode({"Error": error})
