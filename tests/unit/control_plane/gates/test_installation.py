"""The policy is installed once a trial has shown that the API server carries it out."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager

import msgspec
import pytest

from alignup.control_plane.api_server.api_client import ApiError
from alignup.control_plane.gates import installation, node_affinity
from alignup.control_plane.gates.installation import GATE, admission_objects, install, uninstall
from alignup.errors import AlignupError

POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"


class Server:
    """Keeps objects by path, and makes pods as dry runs.

    Args:
        gated: the names of pods that get the gate.
        answers: the status of the next answers to dry runs; 0: none.
    """

    def __init__(self, gated=("matching",), answers=(), *, serves=True) -> None:
        self.gated = gated
        self.answers = list(answers)
        self.serves = serves
        self.objects = {}
        self.complaints = []
        self.refused = set()

    async def request(self, method, path, body=None, *, query=None):
        await asyncio.sleep(0)
        if method in self.refused:
            raise ApiError(f"{method} {path}: 403: no", 403)
        if path == "/apis/admissionregistration.k8s.io/v1":
            names = ["validatingadmissionpolicies"]
            if self.serves:
                names.append("mutatingadmissionpolicies")
            return msgspec.json.encode({"resources": [{"name": name} for name in names]})
        if path.endswith("/pods"):
            assert query == {"dryRun": "All"}
            return self.dry_run(path.split("/")[4], body)
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
        if path not in self.objects and method != "POST":
            raise ApiError("missing", 404)
        if method == "DELETE":
            del self.objects[path]
        else:
            self.objects[path] = body
        return b"{}"

    def dry_run(self, namespace, pod):
        assert f"/api/v1/namespaces/{namespace}" in self.objects
        status = self.answers.pop(0) if self.answers else 201
        if status != 201:
            raise ApiError(f"{status}: as the test wants it", status)

        gates = []
        if pod["metadata"]["name"] in self.gated:
            gates = [{"name": GATE}]
        return msgspec.json.encode({**pod, "spec": {**pod["spec"], "schedulingGates": gates}})

    @contextmanager
    def complaining(self, before=""):
        try:
            yield
        except AlignupError as error:
            self.complaints.append(f"{before}{error}")


def installed(server):
    """Return what `install` says; the paths that are left."""
    lines = []
    asyncio.run(install(server, lines.append))
    return lines, set(server.objects)


@pytest.fixture(autouse=True)
def _short_trials(monkeypatch) -> None:
    monkeypatch.setattr(installation, "_LONGEST_TRIAL", 0.2)
    monkeypatch.setattr(installation, "_TRIAL_PAUSE", 0.01)


def test_the_policy_and_its_binding_are_left_and_nothing_of_the_trial() -> None:
    lines, paths = installed(Server())
    assert paths == {f"{POLICIES}/alignup-gates", f"{BINDINGS}/alignup-gates"}
    assert lines[0].startswith("trying the policy in the namespace alignup-gates-trial-")
    assert lines[1].startswith("installed")


def test_a_namespace_without_its_service_account_is_waited_for() -> None:
    lines, _ = installed(Server(answers=[403, 403]))
    assert any(line.startswith("installed") for line in lines)


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (Server(serves=False), "spec.schedulingGates"),
        (Server(gated=()), "gave no pod the gate"),
        (Server(gated=("matching", "other")), "needs no place of its own"),
        (Server(answers=[500]), "fails at a pod"),
        (Server(answers=[0]), "fails at a pod"),
        (Server(answers=[201, 500]), "fails at a pod"),
        (Server(answers=[403] * 1000), "fails at a pod"),
    ],
)
def test_where_the_trial_fails_nothing_is_left(server, words) -> None:
    with pytest.raises(AlignupError, match=words):
        installed(server)
    assert server.objects == {}


def test_an_earlier_policy_stays_where_the_trial_of_the_new_one_fails() -> None:
    server = Server()
    installed(server)
    before = dict(server.objects)
    server.answers = [500]
    with pytest.raises(AlignupError, match="fails at a pod"):
        installed(server)
    assert server.objects == before


def test_what_cannot_be_taken_away_is_said() -> None:
    server = Server()
    server.refused = {"DELETE"}
    installed(server)
    assert len(server.complaints) == 3
    assert all("is still there" in complaint for complaint in server.complaints)


def test_it_can_be_taken_away_also_twice() -> None:
    server = Server()
    installed(server)
    lines = []
    asyncio.run(uninstall(server, lines.append))
    asyncio.run(uninstall(server, lines.append))
    assert server.objects == {}
    assert [line.partition(";")[0] for line in lines] == ["new pods get no gate any more"] * 2


def test_the_policy_names_the_gate_that_the_code_knows() -> None:
    policy, binding = admission_objects()
    (mutation,) = policy["spec"]["mutations"]
    assert f'"{GATE}"' in mutation["applyConfiguration"]["expression"]
    assert policy["spec"]["failurePolicy"] == "Ignore"
    labels = binding["spec"]["matchResources"]["namespaceSelector"]["matchLabels"]
    assert labels == {node_affinity.NAMESPACE_LABEL: "enabled"}
