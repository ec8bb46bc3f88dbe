"""Installs the policy that gives pods their gate, after a trial in a namespace of its own.

A MutatingAdmissionPolicy is carried out by the API server at every pod that it matches, and not
every policy that a server takes can be carried out by it. So a copy of it is bound to one namespace
first, where two pods are made as dry runs: one that has to get the gate, and one that must not.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import yaml

from alignup.control_plane.api_server.api_client import (
    FORBIDDEN,
    MISSING,
    ApiError,
    accepting,
    object_path,
    pod_path,
    write_object,
)
from alignup.control_plane.gates.confined_pods import confined_pod
from alignup.control_plane.gates.node_affinity import GATE, LABEL_VALUE, NAMESPACE_LABEL
from alignup.errors import AlignupError
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from alignup.control_plane.api_server.api_client import Api

_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_POLICIES: Final = f"{_ADMISSION}/mutatingadmissionpolicies"
_BINDINGS: Final = f"{_ADMISSION}/mutatingadmissionpolicybindings"
_NAMESPACES: Final = "/api/v1/namespaces"
# Seconds within which a policy is in force: a second or two were seen.
_LONGEST_TRIAL: Final = 30.0
_TRIAL_PAUSE: Final = 0.2


def admission_objects() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the policy and its binding to the namespaces that have the label."""
    text = files(__package__).joinpath("admission.yaml").read_text(encoding="utf-8")
    policy, binding = yaml.safe_load_all(text)
    return policy, binding


async def install(api: Api, say: Callable[[str], None]) -> None:
    """Install the policy and its binding, if the server carries the policy out rightly.

    Also over an earlier one, which stays as it is where the trial of the new one fails.

    Args:
        api: the API server, with the rights of an administrator.
        say: is told each step, in a line.

    Raises:
        AlignupError: the server has no such policies, refuses a request, or does not carry the
            policy out. Nothing but the earlier policy is in force then.
    """
    await _check_served(api)
    policy, binding = admission_objects()
    # a name of its own: the namespace of an earlier trial may be on its way out
    trial = f"alignup-gates-trial-{secrets.token_hex(4)}"
    try:
        await _begin_trial(api, trial, policy)
        say(f"trying the policy in the namespace {trial}")
        await _try(api, trial)
    finally:
        await asyncio.shield(_end_trial(api, trial))

    await write_object(api, _POLICIES, policy["metadata"]["name"], policy)
    await write_object(api, _BINDINGS, binding["metadata"]["name"], binding)
    label = f"{NAMESPACE_LABEL}={LABEL_VALUE}"
    say(f"installed: new pods of namespaces with the label {label} get the gate")
    say("pods with the gate wait until `alignup gates` runs and has a place for them")


async def uninstall(api: Api, say: Callable[[str], None]) -> None:
    """Take the binding and the policy away; pods that have the gate keep it.

    Raises:
        AlignupError: the server refuses a request, or does not answer.
    """
    policy, binding = admission_objects()
    for collection, document in ((_BINDINGS, binding), (_POLICIES, policy)):
        with accepting(MISSING):
            await api.request("DELETE", object_path(collection, document["metadata"]["name"]))

    say("new pods get no gate any more; those that wait still need `alignup gates`")


async def _check_served(api: Api) -> None:
    """Check that the server knows such policies.

    Raises:
        AlignupError: it does not.
    """
    kinds: list[dict[str, Any]] = []
    with accepting(MISSING):
        document: Any = decode_json(await api.request("GET", _ADMISSION), "an APIResourceList")
        kinds = document.get("resources") or []

    if not any(kind.get("name") == "mutatingadmissionpolicies" for kind in kinds):
        raise AlignupError(
            "this API server has no MutatingAdmissionPolicy of version v1 (Kubernetes 1.36 has it "
            "by default): write the gate into the templates of pods instead, as "
            f"spec.schedulingGates: [{{name: {GATE}}}]"
        )


async def _begin_trial(api: Api, trial: str, policy: dict[str, Any]) -> None:
    """Make the namespace of the trial, and a copy of the policy that is bound to it alone."""
    namespace = {"metadata": {"name": trial}}
    await write_object(api, _NAMESPACES, trial, namespace)
    copy = {**policy, "metadata": {"name": trial}}
    await write_object(api, _POLICIES, trial, copy)

    selector = {"matchLabels": {"kubernetes.io/metadata.name": trial}}
    binding = {
        "apiVersion": policy["apiVersion"],
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": trial},
        "spec": {"policyName": trial, "matchResources": {"namespaceSelector": selector}},
    }
    await write_object(api, _BINDINGS, trial, binding)


async def _end_trial(api: Api, trial: str) -> None:
    """Take away what the trial made; what cannot be is complained of."""
    for collection in (_BINDINGS, _POLICIES, _NAMESPACES):
        with api.complaining(f"{trial} is still there: "), accepting(MISSING):
            await api.request("DELETE", object_path(collection, trial))


async def _try(api: Api, trial: str) -> None:
    """Make the two pods of the trial until the policy is in force.

    Raises:
        AlignupError: the server fails at one, gives the gate to the wrong one, or to none in time.
    """
    amounts = {"cpu": "1", "memory": "64Mi"}
    matching = confined_pod({"name": "matching"}, {"requests": amounts, "limits": amounts})
    other = confined_pod({"name": "other"}, {"requests": amounts})

    end = time.monotonic() + _LONGEST_TRIAL
    while not await _gets_gate(api, trial, matching, end):
        if time.monotonic() > end:
            raise AlignupError(
                f"in {_LONGEST_TRIAL:.0f} seconds the policy gave no pod the gate: nothing was "
                "installed"
            )
        await asyncio.sleep(_TRIAL_PAUSE)

    if await _gets_gate(api, trial, other, end):
        raise AlignupError(
            "the policy gives the gate to a pod that needs no place of its own: nothing was "
            "installed"
        )


async def _gets_gate(api: Api, trial: str, pod: dict[str, Any], end: float) -> bool:
    """Return whether a pod that is made as a dry run gets the gate.

    Raises:
        AlignupError: the server fails at it, or still refuses it at the end of the trial.
    """
    path = pod_path(trial, pod["metadata"]["name"]).rpartition("/")[0]
    try:
        answer = await api.request("POST", path, pod, query={"dryRun": "All"})
    except ApiError as error:
        # a new namespace gets its service account a moment later
        if error.status == FORBIDDEN and time.monotonic() < end:
            return False
        raise AlignupError(
            f"the API server fails at a pod that the policy matches, so that it is not installed: "
            f"{error}"
        ) from error

    document: Any = decode_json(answer, "a Pod")
    gates = document["spec"].get("schedulingGates") or []
    return any(gate.get("name") == GATE for gate in gates)
