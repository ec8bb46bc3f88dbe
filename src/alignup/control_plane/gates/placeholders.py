"""Lets a cluster autoscaler see the pods that wait behind the gate, which it passes over.

For a pod that has waited long a placeholder is made: a pod of low priority with the same requests,
tolerations and selectors that no present node can take, so that the autoscaler makes a node for it.
Members of a group get as many as are left out, the first group that has waited long. Once a node
reports to which a placeholder was bound, the placeholder is deleted, and the pod that
waits is given its place there; one whose pod waits no more is deleted, too.

How present nodes are kept out is told by what the autoscaler simulates:

- **Karpenter** takes neither field selectors nor names of hosts (`IsRestrictedLabel`): present
  nodes get a label, and a term says that it does not exist. The label is in no domain that any
  release of it refuses.
- **cluster-autoscaler** copies the labels of a present node for those that it would make, but for
  the name of the host (`sanitizeNode`): that is not one of those present.

A placeholder has no limits of CPU, and so no CPU of its own where it is bound. Its image is never
there, nor is it needed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from alignup.control_plane.api_server import api_client
from alignup.control_plane.api_server.objects import decode_pod
from alignup.control_plane.api_server.watch import list_objects
from alignup.control_plane.gates.confined_pods import confined_pod
from alignup.control_plane.gates.node_affinity import narrowed, required_terms
from alignup.kubernetes.node_fit import requests_of
from alignup.kubernetes.pod import NODE_SELECTOR_TERMS, REQUIRED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from alignup.control_plane.api_server.objects import PodObject
    from alignup.control_plane.gates.keeper import Keeper
    from alignup.control_plane.gates.waiting_pods import WaitingPod

KARPENTER: Final = "karpenter"
CLUSTER_AUTOSCALER: Final = "cluster-autoscaler"

# Where placeholders are; its name is that of their class of priority, too.
NAMESPACE: Final = "alignup-placeholders"

# The label of nodes that were there before a placeholder.
PRESENT: Final = "alignup.dev/present"

_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_HOST: Final = "kubernetes.io/hostname"
_NAME: Final = "placeholder-"

# Placeholders at once: further pods wait for those before them.
_MOST: Final = 100

# Seconds between two looks.
_LOOK_SECONDS: Final = 5.0


def placeholder_of(pod: WaitingPod, autoscaler: str, present: Collection[str]) -> dict[str, Any]:
    """Return the placeholder of a pod.

    Args:
        pod: the pod that waits.
        autoscaler: `KARPENTER` or `CLUSTER_AUTOSCALER`.
        present: the names of the nodes that must not take it.
    """
    absent: dict[str, Any] = {"key": PRESENT, "operator": "DoesNotExist"}
    if autoscaler == CLUSTER_AUTOSCALER:
        absent = {"key": _HOST, "operator": "NotIn", "values": sorted(present)}

    terms = [narrowed(term, "matchExpressions", absent) for term in required_terms(pod.affinity)]
    terms = terms or [{"matchExpressions": [absent]}]

    constraints = pod.kind.constrained.constraints
    amounts = {
        name: f"{amount}m" if name == "cpu" else str(amount)
        for name, amount in requests_of(pod.watched.pod).items()
    }
    # what cannot be had beyond what is requested has to have a limit
    limits = {
        name: amount
        for name, amount in amounts.items()
        if "/" in name or name.startswith("hugepages-")
    }
    return confined_pod(
        {
            "name": _NAME + pod.uid,
            "namespace": NAMESPACE,
            "annotations": {"alignup.dev/waiting-pod": pod.watched.pod.namespaced_name},
        },
        {"requests": amounts, "limits": limits},
        terminationGracePeriodSeconds=0,
        priorityClassName=NAMESPACE,
        nodeSelector=dict(constraints.node_selector),
        tolerations=[dict(toleration) for toleration in constraints.tolerations],
        affinity={"nodeAffinity": {REQUIRED: {NODE_SELECTOR_TERMS: terms}}},
    )


def in_turns(pods: Sequence[WaitingPod]) -> list[WaitingPod]:
    """Return pods by priority, and among equal ones those of each namespace in turns.

    A namespace whose pods no node can ever take then leaves placeholders to the others.

    Args:
        pods: in the order in which those of a priority and namespace come.
    """
    turns: Counter[tuple[int, str]] = Counter()
    keyed = []
    for pod in pods:
        line = pod.watched.priority, pod.watched.pod.namespace
        keyed.append(((-pod.watched.priority, turns[line]), pod))
        turns[line] += 1

    keyed.sort(key=lambda entry: entry[0])
    return [pod for _, pod in keyed]


class Placeholders:
    """Keeps placeholders for the pods that have waited long.

    Args:
        api: the API server.
        keeper: knows who waits.
        clock: that of the keeper.
        autoscaler: `KARPENTER` or `CLUSTER_AUTOSCALER`.
        patience: seconds that a pod has waited before it gets one.
    """

    def __init__(
        self,
        api: api_client.Api,
        keeper: Keeper,
        clock: Callable[[], float],
        *,
        autoscaler: str,
        patience: float,
    ) -> None:
        self._api = api
        self._keeper = keeper
        self._clock = clock
        self._autoscaler = autoscaler
        self._patience = patience

    async def run(self, leads: Callable[[], bool]) -> None:
        """Make and delete placeholders until cancelled, while this process leads."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if leads():
                with self._api.complaining("no placeholder is made: "):
                    await self._look()

    async def _look(self) -> None:
        there = {
            pod.metadata.name: pod
            async for pod in _decoded(self._api)
            if pod.metadata.name.startswith(_NAME)
        }
        wanted = self._wanted()
        over = [name for name, pod in there.items() if name not in wanted or self._has_node(pod)]
        for name in over:
            with api_client.accepting(api_client.MISSING):
                await self._api.request("DELETE", api_client.object_path(_PODS, name))

        if self._autoscaler == KARPENTER:
            await self._label_present(are_new_expected=bool(there))

        # one that was deleted now is made anew at the next look, if its pod waits still
        missing = [pod for name, pod in wanted.items() if name not in there]
        await self._make(missing)

    def _wanted(self) -> dict[str, WaitingPod]:
        """Return which pods get placeholders, by the names of these."""
        keeper = self._keeper
        now = self._clock()
        pods = keeper.queue.overdue(now, self._patience)
        group = keeper.groups.overdue(now - self._patience, keeper.queue.charged)
        if group is not None:
            # of equal members any may be left out, and those with a placeholder keep it
            kinds = Counter(pod.kind for pod in keeper.group_places.left_out(group))
            members = sorted(group.waiting.values(), key=lambda pod: pod.uid)
            for kind, count in kinds.items():
                pods += [pod for pod in members if pod.kind is kind][:count]

        return {_NAME + pod.uid: pod for pod in in_turns(pods)[:_MOST]}

    def _has_node(self, pod: PodObject) -> bool:
        """Return whether a placeholder is on a node that reports, where its pod can have a place.

        Or it has ended there, for whatever reason.
        """
        return pod.has_ended or pod.spec.node_name in self._keeper.state.members

    async def _label_present(self, *, are_new_expected: bool) -> None:
        """Label the nodes that no placeholder is for.

        While there are placeholders, a node that has not reported yet may have been made for one.
        """
        reporting = self._keeper.state.members
        for name, node in list(self._keeper.nodes.objects.items()):
            if PRESENT not in node.labels and (name in reporting or not are_new_expected):
                body = {"metadata": {"labels": {PRESENT: "true"}}}
                with api_client.accepting(api_client.MISSING):
                    await self._api.request(
                        "PATCH", api_client.object_path(api_client.NODES, name), body
                    )

    async def _make(self, pods: Sequence[WaitingPod]) -> None:
        names = list(self._keeper.nodes.objects)
        for pod in pods:
            # a server that refuses one, say for its size, may take those after it
            name = pod.watched.pod.namespaced_name
            with (
                self._api.complaining(f"no placeholder is made for {name}: "),
                api_client.accepting(api_client.CONFLICT),
            ):
                body = placeholder_of(pod, self._autoscaler, names)
                await self._api.request("POST", _PODS, body)


async def _decoded(api: api_client.Api) -> Any:
    """Yield the pods of the namespace of placeholders."""
    async for item in list_objects(api, _PODS):
        yield decode_pod(item)
