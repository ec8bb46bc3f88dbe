"""Says why pods wait behind the gate: in a sentence, and as Events on them.

The sentence is in the form of kube-scheduler's, which people know: how many nodes there are, and
how many of them refuse the pod for what. Of a group it says how many members have come, or how many
of them fit, and what the next one lacks.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from alignup.cluster.pod_groups import TAKEN, shortfall_in_words
from alignup.cluster.ranking import causes_in_words
from alignup.control_plane.api_server.pod_events import EVENT_SECONDS, write_event
from alignup.control_plane.gates.node_affinity import GATE
from alignup.control_plane.gates.node_choice import UNREPORTED
from alignup.control_plane.gates.ungated_pods import remedy
from alignup.control_plane.gates.waiting_pods import DEFAULT_SCHEDULER, GatedPodReader, WaitingPod
from alignup.errors import AlignupError
from alignup.kubernetes.wire import Metadata
from alignup.text.counting import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from alignup.control_plane.api_server.api_client import Api
    from alignup.control_plane.api_server.objects import WatchedPod
    from alignup.control_plane.gates.keeper import Keeper

# The reason and the component of Events on pods that wait.
WAITS: Final = "WaitsForRoom"
COMPONENT: Final = "alignup-gates"

UNKNOWN: Final = "node(s) do not report their topology"

# Seconds that a pod waits before an Event says why, and between two of them on one pod.
_FIRST: Final = 10.0
_BETWEEN: Final = 60.0

# Of a pod that may be refused everywhere, as others of its namespace are.
_SHARE: Final = (
    "pods of its namespace with spread constraints, affinity to pods, volumes or claims keep as "
    "many nodes as such pods may: it is next when one of them is bound or deleted"
)

_LOOK_SECONDS: Final = 1.0
_MOST_AT_ONCE: Final = 5


def standing(manifest: Mapping[str, Any], unbound: Sequence[WatchedPod]) -> str:
    """Return how far a pod is that waits behind the gate, or was let go, by what the objects say.

    Empty: it is neither.

    Args:
        manifest: the pod, as the API server has it.
        unbound: the pods of the cluster that are bound to no node.
    """
    pod = GatedPodReader(str(manifest["spec"].get("schedulerName") or DEFAULT_SCHEDULER)).decode(
        msgspec.json.encode(manifest)
    )
    if not isinstance(pod, WaitingPod):
        return ""

    name = pod.watched.pod.namespaced_name
    if not pod.is_gated:
        nodes = ", ".join(pod.place)
        return f"{name} was let go to {nodes}, and is not bound yet" if nodes else ""

    sentences = [f"{name} waits behind the gate {GATE}"]
    if pod.fault:
        sentences.append(pod.fault)
    if pod.other_gates:
        sentences.append(f"the gates {', '.join(pod.other_gates)} have to go first")
    if pod.planned:
        sentences.append(f"with its group it is to go to node {pod.planned}")

    membership = pod.watched.membership
    if membership is not None and membership.fault:
        sentences.append(membership.fault)
    elif membership is not None:
        count = sum(
            other.membership is not None and other.membership.key == membership.key
            for other in unbound
        )
        size = f" of {membership.size}" if membership.size else ""
        sentences.append(f"{count}{size} members of its group {membership.name} wait")

    rank = _rank(pod.watched)
    before = sum(_rank(other) < rank for other in unbound)
    if before:
        sentences.append(f"{counted(before, 'pod')} without a node before it by priority or age")
    return "; ".join(sentences)


def without_gate(manifest: Mapping[str, Any]) -> str:
    """Return that a pod with something exclusive came to its node without the gate.

    Empty: it did not. The argument is the pod, as the API server has it.
    """
    pod = GatedPodReader().decode(msgspec.json.encode(manifest))
    if isinstance(pod, WaitingPod) or not pod.is_ungated:
        return ""
    name = pod.pod.namespaced_name
    return f"{name} came to its node without the gate {GATE}: {remedy(pod.pod.namespace)}"


def _rank(pod: WatchedPod) -> tuple[int, str, str]:
    return -pod.priority, pod.since, pod.pod.name


class Reasons:
    """Why pods wait, and who was told of it.

    The argument is the keeper with which they wait.
    """

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        # By uid, when an Event said why a pod waits, and what.
        self._told: dict[str, tuple[float, str]] = {}

    def reason(self, pod: WaitingPod) -> str:
        """Return why a pod that waits has no place."""
        if pod.fault:
            return pod.fault

        if not self._keeper.places.may_have_one(pod):
            return _SHARE

        group = self._keeper.groups.of(pod.uid)
        if group is None or pod.uid not in group.waiting:
            return causes_in_words(self._causes_of_nodes(pod))

        words = group.words()
        if group.lacking or group.left_out is None:
            return words

        name = group.left_out.watched.pod.name
        return shortfall_in_words(*group.fitting, name, self._causes_of_nodes(group.left_out))

    def due(self, now: float) -> list[tuple[WaitingPod, str]]:
        """Return of which pods an Event should say why they wait: a few at once.

        Each pod is named once a minute at most, and again only where the reason has changed.
        """
        keeper = self._keeper
        waiting = [(pod, keeper.queue.since(pod.uid)) for pod in keeper.queue]
        waiting += [(pod, keeper.groups.since(pod.uid)) for pod in keeper.groups.waiting]
        waiting += keeper.pods.faulty.values()
        uids = {pod.uid for pod, _ in waiting}
        self._told = {uid: entry for uid, entry in self._told.items() if uid in uids}

        never = float("-inf"), ""
        late = [
            (self._told.get(pod.uid, never)[0], since, pod)
            for pod, since in waiting
            if since <= now - _FIRST and self._told.get(pod.uid, never)[0] <= now - _BETWEEN
        ]
        late.sort(key=lambda entry: entry[:2])
        sentences = []
        for _, _, pod in late[:_MOST_AT_ONCE]:
            sentence = self.reason(pod)
            if self._told.get(pod.uid, never)[1] != sentence:
                sentences.append((pod, sentence))
            self._told[pod.uid] = now, sentence

        return sentences

    def _causes_of_nodes(self, pod: WaitingPod) -> Counter[str]:
        keeper = self._keeper
        view = keeper.state.view
        causes = Counter(UNKNOWN for name in keeper.nodes.objects if name not in view.members)
        try:
            judged = view.verdicts(pod.watched.pod, keeper.state.strategy)
        except AlignupError as error:
            return Counter({str(error): len(view.members)}) + causes

        names = view.names
        unaligned = []
        for number, words in enumerate(keeper.choice.why_not(pod, names)):
            is_admitted = bool(judged.admitted[number])
            if words and (is_admitted or words != UNREPORTED):
                causes[words] += 1
            elif is_admitted:
                causes[TAKEN] += 1
            else:
                unaligned.append(number)

        if unaligned:
            numbers = np.array(unaligned, np.int64)
            causes.update(view.texts(pod.watched.pod, judged, numbers))
        return causes


class ReasonWriter:
    """Writes Events on pods that wait.

    Args:
        api: the API server.
        keeper: with which they wait.
    """

    def __init__(self, api: Api, keeper: Keeper) -> None:
        self._api = api
        self._reasons = Reasons(keeper)

    async def run(self, leads: Callable[[], bool]) -> None:
        """Write until cancelled, while this process leads."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if not leads():
                continue

            for pod, sentence in self._reasons.due(time.monotonic()):
                metadata = pod.watched.pod
                about = Metadata(name=metadata.name, namespace=metadata.namespace, uid=metadata.uid)
                with self._api.complaining():
                    await write_event(self._api, about, WAITS, sentence, COMPONENT)
                await asyncio.sleep(EVENT_SECONDS)
