"""Every token of deploy/ on a real API server.

What its program's work takes goes through, and nothing else does.

What is tried is drawn from the roles of deploy/ and from what the server says of itself in OpenAPI:
every verb of every kind, every subresource, and every field of each kind that a token may write.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml

from alignup.control_plane.api_server.api_client import TOPOLOGIES
from alignup.control_plane.api_server.leader import LEADER
from alignup.control_plane.gates.node_affinity import GATE, pinned
from alignup.control_plane.gates.placeholders import NAMESPACE, PRESENT, placeholder_of
from alignup.control_plane.gates.waiting_pods import PLACE, PLACE_LABEL, SEEN_BY
from alignup.control_plane.scheduler.extender_service import WOKEN
from alignup.kubernetes.groups import GROUP_OBJECTS
from inputs.waiting_pods import waiting_pod
from rig.servers import BIN, DEPLOY, Server, control_plane

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.rig]

NODES = "/api/v1/nodes"
VERBS = {"post": "create", "put": "update"}
"""Verbs of rights by the actions of OpenAPI; all others have the same name."""
ANYBODY = {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}
"""Kinds that the server lets everybody ask about themselves."""
ANY_ACCOUNT = {("clustertrustbundles", "list"), ("clustertrustbundles", "get")}
"""What a server of 1.37 lets all service accounts read (system:cluster-trust-bundle-discovery)."""
CONFINED = {
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
}
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "set",
    "uid": "11",
    "controller": True,
}
WELL_FORMED: dict[str, Any] = {
    "metadata.finalizers": ["example.com/held"],
    "metadata.ownerReferences": [OWNER],
    "metadata.labels": {"example.com/a": "b"},
    "metadata.annotations": {"example.com/a": "b"},
    "metadata.generateName": "another-",
    "spec.taints": [{"key": "example.com/a", "effect": "NoExecute"}],
    "spec.podCIDRs": ["10.1.0.0/24"],
    "spec.podCIDR": "10.1.0.0/24",
    "spec.providerID": "cloud://a",
    "spec.tolerations": [{"operator": "Exists"}],
    "spec.activeDeadlineSeconds": 5,
    "spec.schedulingGates": [{"name": "example.com/a"}],
}
"""Values that the server itself would take; of other fields a value is made by its type."""
KEPT_BY_SERVER = {
    "resourceVersion",
    "managedFields",
    "generation",
    "creationTimestamp",
    "uid",
    "selfLink",
}

EVENT_FIELDS = frozenset(
    {
        "count",
        "firstTimestamp",
        "lastTimestamp",
        "eventTime",
        "message",
        "reason",
        "reportingInstance",
    }
    | {
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.fieldPath",
    }
    | {"involvedObject.resourceVersion", "source.host", "metadata.generateName", "metadata.name"}
)

POD = "/api/v1/namespaces/{}/pods/{}"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/alignup/leases"

LEASE = {
    "metadata": {"name": "alignup-extender", "namespace": "alignup"},
    "spec": {"holderIdentity": "x"},
}
GATES_LEASE = {**LEASE, "metadata": {"name": "alignup-gates", "namespace": "alignup"}}

EVENTS = "/api/v1/namespaces/default/events"

BINDING = {
    "metadata": {"name": "pending", "namespace": "default", "uid": "UID"},
    "target": {"apiVersion": "v1", "kind": "Node", "name": "a"},
}

EVICTION = {
    "apiVersion": "policy/v1",
    "kind": "Eviction",
    "metadata": {"name": "moved", "namespace": "default"},
    "deleteOptions": {"preconditions": {"uid": "UID"}},
}

HOME = {"alignup-extender": "alignup", "alignup-gates": "alignup", "alignup-asking": "default"}
OWN = {"alignup-gates": "keeper"}
"""The names of the accounts' own pods; of others it is `own`."""

KINDS = {
    "pods": ("api/v1", "Pod"),
    "nodes": ("api/v1", "Node"),
    "events": ("api/v1", "Event"),
    "pods/binding": ("api/v1", "Binding"),
    "leases": ("apis/coordination.k8s.io/v1", "Lease"),
    "noderesourcetopologies": ("apis/topology.node.k8s.io/v1alpha2", "NodeResourceTopology"),
    "pods/eviction": ("api/v1", "Eviction"),
}

IMAGE = [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}]


OTHER_VERSIONS = {"topology.node.k8s.io": "v1alpha2"} | {
    path.split("/")[2]: path.split("/")[3] for _, path in GROUP_OBJECTS.values()
}
"""The versions by which groups are asked; of others it is v1."""
OPTIONAL_KINDS = {path.rpartition("/")[2] for _, path in GROUP_OBJECTS.values()}
"""Kinds that a server may lack: it answers 404 then, once the right is there."""

RESOURCE = re.compile(
    r"/(?:v\w+)/(?:watch/)?(?:namespaces/\{namespace\}/)?([a-z]+)(?:/\{name\}((?:/\w+)?))?"
)
"""A resource and its subresource, in a path of OpenAPI."""


class Work(NamedTuple):
    """A request that the work of a program takes."""

    right: tuple[str, str]
    """The resource and the verb."""
    method: str
    path: str
    body: Any = None
    own: frozenset[str] = frozenset()
    """Fields of the body that are the program's to fill in."""
    pod: dict[str, Any] | None = None
    """The pod that it can be done to once; another one is made of it each time."""


def pod(name: str, namespace: str, account: str = "default", **more: Any) -> dict[str, Any]:
    """Return a confined pod that runs on node a."""
    container = {
        "name": "c",
        "image": "good",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {"nodeName": "a", "serviceAccountName": account, "containers": [container], **CONFINED}
    labels = {"app.kubernetes.io/name": account}
    metadata = {"name": name, "namespace": namespace, "labels": labels, **more.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, **more}}


def gated_pod(name: str, *gates: str, **more: Any) -> dict[str, Any]:
    """Return a confined pod that waits behind gates, with terms of its own."""
    zone = {"key": "zone", "operator": "In", "values": ["x"]}
    terms = [{"matchExpressions": [zone]}]
    manifest = pod(name, "default", schedulingGates=[{"name": gate} for gate in gates], **more)
    del manifest["spec"]["nodeName"]
    manifest["spec"]["affinity"] = {
        "podAntiAffinity": {},
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [zone]}}
            ],
        },
    }
    return manifest


LET_GO = gated_pod("placed", GATE)


PLACEHOLDER = placeholder_of(waiting_pod("w", cpu=3), "karpenter", ())
PLACEHOLDER_FIELDS = frozenset(
    f"spec.{name}"
    for name in (
        "activeDeadlineSeconds",
        "dnsPolicy",
        "enableServiceLinks",
        "hostUsers",
        "hostname",
        "hostnameOverride",
        "imagePullSecrets",
        "nodeSelector",
        "preemptionPolicy",
        "readinessGates",
        "restartPolicy",
        "schedulerName",
        "schedulingGates",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "subdomain",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
    )
) | {"status.qosClass"}  # the server works it out, and may come to what was sent
"""What may be otherwise in a pod in which nothing ever runs."""


def let_go(**more: Any) -> dict[str, Any]:
    """Return the patch by which the keeper lets a pod go; more fields of its spec."""
    affinity = pinned(LET_GO["spec"]["affinity"], ["a"])
    spec = {"schedulingGates": None, "affinity": affinity, **more}
    return {"metadata": {"annotations": {PLACE: "a"}}, "spec": spec}


def terms(*requirements: dict[str, Any], kind: str = "matchExpressions") -> dict[str, Any]:
    """Return the affinity of `LET_GO` with requirements behind those of its term."""
    affinity = deepcopy(LET_GO["spec"]["affinity"])
    required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    term[kind] = [*term.get(kind, ()), *requirements]
    return affinity


def event(component: str) -> dict[str, Any]:
    """Return an Event as a program of ours writes it."""
    about = {
        "kind": "Pod",
        "apiVersion": "v1",
        "namespace": "default",
        "name": "pending",
        "uid": "1",
    }
    return {
        "metadata": {"generateName": "pending.", "namespace": "default"},
        "involvedObject": about,
        "reason": "NotAligned",
        "message": "no",
        "type": "Warning",
        "source": {"component": component},
        "count": 1,
    }


def topology(name: str, annotation: str) -> dict[str, Any]:
    """Return a NodeResourceTopology object as the publisher writes it."""
    metadata = {"name": name, "annotations": {"alignup.dev/holdings": annotation}}
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": metadata,
        "zones": [],
    }


def documents(*kinds: str) -> list[dict[str, Any]]:
    """Return the objects of some kinds in the roles of deploy/."""
    texts = [path.read_text() for path in sorted(DEPLOY.glob("*-rbac.yaml"))]
    return [
        document
        for text in texts
        for document in yaml.safe_load_all(text)
        if document["kind"] in kinds
    ]


def roles_of(account: str) -> list[dict[str, Any]]:
    """Return the roles of an account, those of its options, too."""
    return [
        role
        for role in documents("Role", "ClusterRole")
        if role["metadata"]["name"] == account or role["metadata"]["name"].startswith(f"{account}-")
    ]


def rights_of(account: str) -> set[tuple[str, str]]:
    """Return the resources and verbs that the roles of an account name."""
    rules = [rule for role in roles_of(account) for rule in role["rules"]]
    return {(kind, verb) for rule in rules for kind in rule["resources"] for verb in rule["verbs"]}


def reads(account: str) -> list[Work]:
    """Return a request for each right of an account to read."""
    works = []
    for role in roles_of(account):
        for rule in role["rules"]:
            for group, kind in itertools.product(rule["apiGroups"], rule["resources"]):
                version = OTHER_VERSIONS.get(group, "v1")
                path = f"/apis/{group}/{version}/{kind}" if group else f"/api/{version}/{kind}"
                if "list" in rule["verbs"]:
                    works.append(Work((kind, "list"), "GET", path))
                if "watch" in rule["verbs"]:
                    works.append(Work((kind, "watch"), "GET", f"{path}?watch=1&timeoutSeconds=1"))

    return works


LEASE_FIELDS = frozenset(
    f"spec.{name}"
    for name in (
        "acquireTime",
        "holderIdentity",
        "leaseDurationSeconds",
        "leaseTransitions",
        "renewTime",
    )
)
WRITES = {
    "alignup-extender": [
        Work(("pods", "get"), "GET", POD.format("default", "pending")),
        Work(("events", "create"), "POST", EVENTS, event("alignup-extender"), EVENT_FIELDS),
        Work(("leases", "create"), "POST", LEASES, LEASE, LEASE_FIELDS),
        Work(("leases", "get"), "GET", f"{LEASES}/alignup-extender"),
        Work(("leases", "update"), "PUT", f"{LEASES}/alignup-extender", LEASE, LEASE_FIELDS),
        Work(
            ("nodes", "patch"), "PATCH", f"{NODES}/a", {"metadata": {"annotations": {WOKEN: "now"}}}
        ),
        Work(
            ("pods", "patch"),
            "PATCH",
            POD.format("alignup", "other"),
            {"metadata": {"labels": {LEADER: None}}},
        ),
        Work(
            ("pods", "patch"),
            "PATCH",
            POD.format("alignup", "own"),
            {"metadata": {"labels": {LEADER: "true"}}},
        ),
        Work(
            ("pods/binding", "create"),
            "POST",
            POD.format("default", "pending") + "/binding",
            BINDING,
            frozenset(
                {
                    "target.name",
                    "target.uid",
                    "target.apiVersion",
                    "target.namespace",
                    "target.fieldPath",
                }
            )
            | {"target.resourceVersion", "metadata.generateName"},
        ),
    ],
    "alignup-gates": [
        Work(("pods", "get"), "GET", POD.format("default", "pending")),
        Work(
            ("pods", "patch"),
            "PATCH",
            POD.format("default", "gated"),
            {"metadata": {"annotations": {SEEN_BY: "keeper/1"}}},
        ),
        Work(
            ("pods", "patch"),
            "PATCH",
            POD.format("default", "gated"),
            {"metadata": {"annotations": {PLACE: "a"}}},
        ),
        Work(
            ("pods", "patch"),
            "PATCH",
            POD.format("default", "placed"),
            let_go(),
            pod=LET_GO,
        ),
        Work(
            ("nodes", "patch"),
            "PATCH",
            f"{NODES}/a",
            {"metadata": {"labels": {f"{PLACE_LABEL}1": "true"}}},
        ),
        Work(
            ("nodes", "patch"),
            "PATCH",
            f"{NODES}/a",
            {"metadata": {"annotations": {SEEN_BY: "keeper/1"}}},
        ),
        Work(
            ("pods/eviction", "create"),
            "POST",
            POD.format("default", "moved") + "/eviction",
            EVICTION,
            frozenset(
                {"deleteOptions.preconditions", "deleteOptions.dryRun", "metadata.generateName"}
            ),
            pod("moved", "default"),
        ),
        Work(("events", "create"), "POST", EVENTS, event("alignup-gates"), EVENT_FIELDS),
        Work(
            ("nodes", "patch"),
            "PATCH",
            f"{NODES}/a",
            {"metadata": {"labels": {PRESENT: "true"}}},
        ),
        Work(
            ("pods", "create"),
            "POST",
            f"/api/v1/namespaces/{NAMESPACE}/pods",
            PLACEHOLDER,
            PLACEHOLDER_FIELDS,
        ),
        Work(("pods", "delete"), "DELETE", POD.format(NAMESPACE, "placeholder-uid-w")),
        Work(("leases", "create"), "POST", LEASES, GATES_LEASE, LEASE_FIELDS),
        Work(("leases", "get"), "GET", f"{LEASES}/alignup-gates"),
        Work(("leases", "update"), "PUT", f"{LEASES}/alignup-gates", GATES_LEASE, LEASE_FIELDS),
    ],
    "alignup-publish": [
        Work(("events", "create"), "POST", EVENTS, event("alignup-publish"), EVENT_FIELDS),
        Work(
            ("noderesourcetopologies", "create"),
            "POST",
            TOPOLOGIES,
            topology("a", "x"),
            frozenset({"attributes", "topologyPolicies", "zones"}),
        ),
        Work(
            ("noderesourcetopologies", "patch"),
            "PATCH",
            f"{TOPOLOGIES}/a",
            topology("a", "y"),
            frozenset({"attributes", "topologyPolicies", "zones"}),
        ),
    ],
    "alignup-reconcile": [
        Work(("events", "create"), "POST", EVENTS, event("alignup-reconcile"), EVENT_FIELDS),
        Work(("noderesourcetopologies", "get"), "GET", f"{TOPOLOGIES}/a"),
        Work(("pods", "delete"), "DELETE", POD.format("default", "rejected")),
    ],
    "alignup-rebalance": [
        Work(("pods", "get"), "GET", POD.format("default", "pending")),
        Work(
            ("pods/eviction", "create"),
            "POST",
            POD.format("default", "moved") + "/eviction",
            EVICTION,
            # a name in the path wins; the server ignores other metadata, and takes a trial for one
            frozenset(
                {"deleteOptions.preconditions", "deleteOptions.dryRun", "metadata.generateName"}
            ),
            pod("moved", "default"),
        ),
    ],
    "alignup-asking": [Work(("pods", "get"), "GET", POD.format("default", "pending"))],
}


def whole(schema: Any, schemas: Any) -> Any:
    """Return a schema, where another one is referred to."""
    while "$ref" in schema or "allOf" in schema:
        schema = (
            schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema["allOf"][0]
        )
    return schema


def value(schema: Any, schemas: Any, level: int = 0) -> Any:
    """Return something that a schema allows."""
    schema = whole(schema, schemas)
    kind = schema.get("type", "string")
    if kind == "object" and "properties" in schema:
        names = schema.get("required") or list(schema["properties"])[:1]
        properties = schema["properties"]
        return (
            {name: value(properties[name], schemas, level + 1) for name in names}
            if level < 6
            else {}
        )

    if kind == "object":
        return {
            "example.com/a": value(schema.get("additionalProperties") or {}, schemas, level + 1)
        }

    if kind == "array":
        return [value(schema["items"], schemas, level + 1)]

    moments = {"date-time": "2030-01-01T00:00:00Z", "micro-time": "2030-01-01T00:00:00.000000Z"}
    usual = {"string": "xyz", "integer": 7, "number": 7, "boolean": True}[kind]
    return moments.get(schema.get("format", ""), schema.get("enum", [usual])[0])


class Cluster:
    """An API server with deploy/, pods and nodes to try things on, and a token for each account."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.tokens: dict[str, str] = {}
        self.answers: Counter[tuple[str, str, str]] = Counter()
        self.specs: dict[str, Any] = {}

    def build(self) -> None:
        """Apply deploy/ and create what is tried upon."""
        server = self.server
        server.deployed()
        asking = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "alignup-asking", "namespace": "default"},
        }
        server.apply(asking)
        subject = {"kind": "ServiceAccount", "name": "alignup-asking", "namespace": "default"}
        role = {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "alignup-asking",
        }
        binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
        server.apply(
            {**binding, "metadata": {"name": "asking"}, "roleRef": role, "subjects": [subject]}
        )
        for name in ("a", "b"):
            metadata = {"name": name, "labels": {"zone": "x"}, "annotations": {"kept": "1"}}
            assert (
                server.ask(
                    "POST", NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
                )
                == 201
            )

        self.create(pod("other", "alignup", "alignup-extender"))
        assert (
            server.ask(
                "PATCH", POD.format("alignup", "other"), {"metadata": {"labels": {LEADER: "true"}}}
            )
            == 200
        )
        self.create(pod("stranger", "alignup"))
        for account in WRITES:
            home = HOME.get(account, account)
            own = OWN.get(account, "own")
            self.create(pod(own, home, account))
            self.tokens[account] = server.token_of(home, account, own)

        self.create(pod("moved", "default"))
        status = {"status": {"phase": "Failed", "reason": "TopologyAffinityError"}}
        for name, owners, state in (
            ("rejected", [OWNER], status),
            ("ownerless", [], status),
            ("failed", [OWNER], {"status": {"phase": "Failed", "reason": "Error"}}),
            ("running", [OWNER], {"status": {"phase": "Running"}}),
        ):
            self.create(pod(name, "default", metadata={"ownerReferences": owners}))
            assert server.ask("PATCH", POD.format("default", name) + "/status", state) == 200

        pending = pod("pending", "default")
        del pending["spec"]["nodeName"]
        self.create(pending)
        self.create(gated_pod("gated", GATE, "example.com/x"))
        self.create(gated_pod("strange", "example.com/x"))
        self.wait_for_policies()

    def create(self, manifest: dict[str, Any]) -> None:
        """Create a pod."""
        path = f"/api/v1/namespaces/{manifest['metadata']['namespace']}/pods"
        status, answer = self.server.asked("POST", path, manifest)
        assert status == 201, answer

    def renew(self, manifest: dict[str, Any]) -> None:
        """Create a pod anew that may be there, changed."""
        metadata = manifest["metadata"]
        path = POD.format(metadata["namespace"], metadata["name"])
        assert self.server.ask("DELETE", f"{path}?gracePeriodSeconds=0") in {200, 404}
        self.create(manifest)

    def wait_for_policies(self) -> None:
        """Wait until each policy is seen: one denies what the one that was applied last forbids."""
        bad = event("alignup-extender") | {
            "involvedObject": {"kind": "Node", "name": "a", "namespace": "default"}
        }
        deadline = time.monotonic() + 60
        while self.server.ask("POST", EVENTS, bad, self.tokens["alignup-extender"]) != 422:
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def filled(self, method: str, path: str, body: Any) -> Any:
        """Return a body with what is known on the server only.

        It is the uid of the pod that it is about, or the version of what it replaces.
        """
        if method == "PUT":
            version = self.server.get(path).get("metadata", {}).get("resourceVersion", "")
            return put(body, "metadata.resourceVersion", version)
        if '"UID"' not in json.dumps(body):
            return body
        uid = self.server.get(path.rpartition("/")[0])["metadata"]["uid"]
        return json.loads(json.dumps(body).replace('"UID"', json.dumps(uid)))

    def ask(
        self, account: str, method: str, path: str, body: Any = None, kind: str = ""
    ) -> tuple[int, Any]:
        """Ask with the token of an account, and note the answer."""
        status, answer = self.server.asked(
            method, path, self.filled(method, path, body), self.tokens[account], kind
        )
        message = ""
        if isinstance(answer, dict):
            message = str(answer.get("message", ""))

        if status < 300:
            verdict = "allowed"
        elif "ValidatingAdmissionPolicy" in message:
            verdict = "refused by policy"
        elif status == 403:
            verdict = "refused by RBAC"
        else:
            verdict = "refused by the API"

        self.answers[account, method, verdict] += 1
        return status, answer

    def offered(self) -> Iterator[tuple[str, str, str]]:
        """Yield everything that the server offers.

        Resource with its subresource, verb, method and path.
        """
        for name in self.server.get("/openapi/v3")["paths"]:
            if not name.startswith(("api/", "apis/")):
                continue
            for path, methods in self.spec(name)["paths"].items():
                match = RESOURCE.search(path)
                if match is None or "{path}" in path or "/watch/" in path:
                    continue
                resource = match[1] + (match[2] or "")
                for method, operation in methods.items():
                    if isinstance(operation, dict) and "x-kubernetes-action" in operation:
                        action = operation["x-kubernetes-action"]
                        yield (
                            resource,
                            VERBS.get(action, "create" if action == "connect" else action),
                            f"{method.upper()} {path}",
                        )

    def spec(self, name: str) -> Any:
        """Return the OpenAPI document of a group."""
        if name not in self.specs:
            self.specs[name] = self.server.get(f"/openapi/v3/{name}")
        return self.specs[name]

    def fields(self, group: str, kind: str) -> dict[str, Any]:
        """Return a value for each field of a kind, by its path of at most two names."""
        schemas = self.spec(group)["components"]["schemas"]

        values_by_path: dict[str, Any] = {}
        (name,) = [schema_name for schema_name in schemas if schema_name.endswith(f".{kind}")]
        for first, schema in whole(schemas[name], schemas)["properties"].items():
            properties = whole(schema, schemas).get("properties")
            if first in {"apiVersion", "kind"}:
                continue
            for second, inner in (properties or {"": schema}).items():
                path = f"{first}.{second}" if second else first
                if second not in KEPT_BY_SERVER:
                    values_by_path[path] = WELL_FORMED.get(path) or value(inner, schemas)

        return values_by_path


def put(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a body with another value at a path; maps of labels and annotations are added to."""
    changed = deepcopy(body)
    place = changed
    *before, last = path.split(".")
    for name in before:
        place = place.setdefault(name, {})
    if isinstance(value, dict) and isinstance(place.get(last), dict):
        value = {**place[last], **value}
    place[last] = value
    return changed


def at_path(document: Any, path: str) -> Any:
    """Return what an object has at a path."""
    for name in path.split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document


def test_each_token_may_do_what_its_work_takes_and_nothing_else(capsys) -> None:
    with control_plane() as plane:
        cluster = Cluster(Server(plane.kubeconfig))
        cluster.build()
        wrong: list[Any] = []
        for account, works in WRITES.items():
            wrong += changed_fields(cluster, account, works)
            wrong += answered_attacks(cluster, account)
            wrong += unfinished_work(cluster, account, works)
            wrong += offered_beside(cluster, account)
    assert not wrong, "\n".join(map(str, wrong))
    with capsys.disabled():
        for (account, method, answer), count in sorted(cluster.answers.items()):
            # a campaign tells its numbers
            print(f"{account:20} {method:7} {answer:18} {count}")  # noqa: T201


RECREATED = {("leases", "create"), ("noderesourcetopologies", "create"), ("pods", "create")}


def unfinished_work(cluster: Cluster, account: str, works: list[Work]) -> Iterator[Any]:
    """Yield what does not go through of an account's work.

    And the rights that no work of it takes.
    """
    everything = [*reads(account), *works]
    for work in everything:
        # it is there by now
        if work.right in RECREATED:
            cluster.server.ask("DELETE", f"{work.path}/{work.body['metadata']['name']}")
        if work.pod is not None:
            cluster.renew(work.pod)
        status, answer = cluster.ask(account, work.method, work.path, work.body)
        is_missing = status == 404 and work.right[0] in OPTIONAL_KINDS
        if status not in {200, 201} and not is_missing:
            yield account, work, answer
    yield from rights_of(account) ^ {work.right for work in everything}


def offered_beside(cluster: Cluster, account: str) -> Iterator[Any]:
    """Yield each verb of each kind and subresource that is not forbidden.

    It is of those that the roles do not name.
    """
    rights, home = rights_of(account), HOME.get(account, account)
    for resource, verb, request in cluster.offered():
        if (resource, verb) in rights | ANY_ACCOUNT or resource in ANYBODY:
            continue
        method, path = request.replace("{namespace}", home).replace("{name}", "x").split(" ")
        status, answer = cluster.ask(
            account, method, path, {"metadata": {}} if method[0] == "P" else None
        )
        if status != 403:
            yield account, resource, verb, request, status, answer


def changed_fields(cluster: Cluster, account: str, works: list[Work]) -> Iterator[Any]:
    """Yield each field of what an account may write that can be changed.

    It is of those that are not its program's.
    """
    for work in works:
        if work.method not in {"POST", "PUT", "PATCH"}:
            continue
        if work.method != "POST":  # on what is there
            cluster.server.ask(
                "POST", work.path.rpartition("/")[0], work.body, cluster.tokens[account]
            )

        if work.pod is not None:
            cluster.renew(work.pod)
        before = cluster.server.get(work.path) if work.method != "POST" else work.body
        for path, value in cluster.fields(*KINDS[work.right[0]]).items():
            # of another name it is another object, of which ATTACKS has some
            if path in work.own or (work.method == "POST" and path == "metadata.name"):
                continue
            if work.pod is not None:
                cluster.renew(work.pod)
            body = put(work.body, path, value)
            status, answer = cluster.ask(account, work.method, work.path, body)
            written = at_path(answer, path) if status < 300 else None
            is_changed = (
                written is not None
                and written == at_path(body, path)
                and at_path(before, path) != written
            )
            if is_changed:
                yield account, work.right, path, status, answer
            if work.method == "POST" and status == 201 and work.right[0] != "events":
                undo(cluster, work)


def undo(cluster: Cluster, work: Work) -> None:
    """Take back what a request without effect has created all the same."""
    name = work.body["metadata"]["name"]
    if work.right[0] in {"pods/binding", "pods/eviction"}:
        path = POD.format("default", name)
        assert cluster.server.ask("DELETE", f"{path}?gracePeriodSeconds=0") in {200, 404}
        recreated = pod(name, "default")
        if work.right[0] == "pods/binding":
            del recreated["spec"]["nodeName"]
        cluster.create(recreated)
    else:
        assert cluster.server.ask("DELETE", f"{work.path}/{name}") == 200


def answered_attacks(cluster: Cluster, account: str) -> Iterator[Any]:
    """Yield what goes through of what somebody would do who has a token."""
    for method, path, body, *kind in ATTACKS[account]:
        if path == POD.format("default", "placed"):
            cluster.renew(LET_GO)
        status, answer = cluster.ask(account, method, path, body, *kind)
        if status < 400:
            yield account, method, path, body, status, answer


MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
ATTACKS: dict[str, list[tuple[Any, ...]]] = {
    "alignup-extender": [
        ("PUT", f"{LEASES}/alignup-gates", GATES_LEASE),
        ("PATCH", POD.format("alignup", "own"), IMAGE, JSON_PATCH),
        ("PATCH", POD.format("alignup", "other"), IMAGE, JSON_PATCH),
        (
            "PATCH",
            POD.format("alignup", "own"),
            {"spec": {"containers": [{"name": "c", "image": "evil"}]}},
            STRATEGIC,
        ),
        (
            "PATCH",
            POD.format("alignup", "own") + "?fieldManager=x&force=true",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "own", "finalizers": ["a.b/c"]},
            },
            APPLY,
        ),
        ("PATCH", POD.format("alignup", "other"), {"metadata": {"labels": {LEADER: "yes"}}}),
        ("PATCH", POD.format("alignup", "stranger"), {"metadata": {"labels": {LEADER: "true"}}}),
        ("PATCH", POD.format("alignup", "own"), {"metadata": {"labels": None}}),
        ("PATCH", POD.format("alignup-publish", "own"), {"metadata": {"labels": {LEADER: "true"}}}),
        ("PATCH", POD.format("default", "moved"), IMAGE, JSON_PATCH),
        ("PATCH", f"{NODES}/a", {"metadata": {"annotations": {"kept": None}}}),
        ("PATCH", f"{NODES}/a", {"metadata": {"annotations": {"kept": "2"}}}),
        ("PATCH", f"{NODES}/a", {"metadata": {"annotations": {WOKEN: "x" * 65}}}),
        ("PATCH", f"{NODES}/a", {"metadata": {"labels": None}}),
        ("PATCH", f"{NODES}/a", {"spec": {"unschedulable": True}}),
        ("PATCH", f"{NODES}/a/status", {"status": {"conditions": []}}),
        ("POST", LEASES, {**LEASE, "metadata": {"name": "another"}}),
        ("POST", LEASES.replace("alignup", "kube-system"), LEASE),
        (
            "POST",
            POD.format("default", "pending") + "/binding",
            put(BINDING, "metadata.annotations", {"a": "b"}),
        ),
        ("POST", POD.format("default", "pending") + "/binding", put(BINDING, "target.kind", "Pod")),
        ("POST", POD.format("default", "pending") + "/binding", put(BINDING, "metadata.uid", None)),
        ("POST", EVENTS, event("kubelet")),
        ("POST", EVENTS, put(event("alignup-extender"), "type", "Normal")),
        ("GET", "/api/v1/secrets", None),
    ],
    "alignup-gates": [
        *(
            ("PATCH", POD.format("default", "placed"), body)
            for body in (
                # the gate stays
                {"spec": {"affinity": let_go()["spec"]["affinity"]}},
                # further requirements than the keeper's
                let_go(affinity=terms({"key": "rack", "operator": "Exists"})),
                let_go(affinity=terms({"key": f"{PLACE_LABEL}1", "operator": "Exists"})),
                let_go(
                    affinity=terms(
                        {"key": "metadata.name", "operator": "NotIn", "values": ["a"]},
                        kind="matchFields",
                    )
                ),
                # other parts of the affinity, which a server lets change while there are gates
                let_go(
                    affinity={
                        **let_go()["spec"]["affinity"],
                        "nodeAffinity": {
                            **let_go()["spec"]["affinity"]["nodeAffinity"],
                            "preferredDuringSchedulingIgnoredDuringExecution": None,
                        },
                    }
                ),
                # what a server lets one change of a pod
                let_go(tolerations=[{"key": "a", "operator": "Exists"}]),
                let_go(nodeSelector={"zone": "x"}),
                let_go(activeDeadlineSeconds=5),
                put(let_go(), "metadata.labels", {"a": "b"}),
                put(let_go(), "metadata.finalizers", ["a.b/c"]),
                put(let_go(), "metadata.annotations", {"a": "b"}),
                put(let_go(), "metadata.annotations", {PLACE: "a" * 2049}),
            )
        ),
        ("PATCH", POD.format("default", "placed"), IMAGE, JSON_PATCH),
        (
            "PATCH",
            POD.format("default", "placed"),
            [*IMAGE, {"op": "remove", "path": "/spec/schedulingGates"}],
            JSON_PATCH,
        ),
        # a gate that is another's
        ("PATCH", POD.format("default", "gated"), {"spec": {"schedulingGates": None}}),
        ("PATCH", POD.format("default", "strange"), {"spec": {"schedulingGates": None}}),
        ("PATCH", POD.format("default", "strange"), {"metadata": {"annotations": {SEEN_BY: "x"}}}),
        ("PATCH", POD.format("default", "strange"), {"metadata": {"annotations": {PLACE: "x"}}}),
        (
            "PATCH",
            POD.format("default", "gated"),
            {"metadata": {"annotations": {SEEN_BY: "x" * 513}}},
        ),
        ("PATCH", POD.format("default", "pending"), {"metadata": {"annotations": {PLACE: "a"}}}),
        ("PATCH", POD.format("default", "moved"), {"metadata": {"annotations": {SEEN_BY: "x"}}}),
        ("PATCH", POD.format("default", "moved"), {"spec": {"activeDeadlineSeconds": 5}}),
        ("PATCH", POD.format("alignup", "own"), IMAGE, JSON_PATCH),
        ("PATCH", POD.format("default", "moved") + "/status", {"status": {"phase": "Failed"}}),
        ("DELETE", POD.format("default", "moved"), None),
        ("DELETE", POD.format("alignup", "other"), None),
        *(
            ("POST", f"/api/v1/namespaces/{namespace}/pods", pod("placeholder-x", namespace))
            for namespace in ("default", "alignup", NAMESPACE)
        ),
        *(
            (
                "POST",
                f"/api/v1/namespaces/{NAMESPACE}/pods",
                put(put(PLACEHOLDER, "metadata.name", "placeholder-x"), path, given),
            )
            for path, given in (
                ("metadata.name", "other"),
                ("metadata.annotations", {"a": "b"}),
                ("spec.nodeName", "a"),
                ("spec.priorityClassName", "system-node-critical"),
                ("spec.serviceAccountName", "other"),
                ("spec.automountServiceAccountToken", True),
                ("spec.volumes", [{"name": "v", "emptyDir": {}}]),
                ("spec.containers", pod("x", "default")["spec"]["containers"]),
                ("spec.initContainers", pod("x", "default")["spec"]["containers"]),
            )
        ),
        (
            "POST",
            POD.format("default", "moved") + "/eviction",
            put(EVICTION, "deleteOptions.gracePeriodSeconds", 0),
        ),
        (
            "POST",
            POD.format("default", "moved") + "/eviction",
            put(EVICTION, "deleteOptions", {"preconditions": None}),
        ),
        ("POST", POD.format("default", "pending") + "/binding", BINDING),
        ("PATCH", f"{NODES}/a", {"metadata": {"labels": {"zone": "y"}}}),
        ("PATCH", f"{NODES}/a", {"metadata": {"labels": {"zone": None}}}),
        ("PATCH", f"{NODES}/a", {"metadata": {"labels": {f"{PLACE_LABEL}1": "false"}}}),
        ("PATCH", f"{NODES}/a", {"metadata": {"labels": {"alignup.dev/place-1": "true"}}}),
        ("PATCH", f"{NODES}/a", {"metadata": {"annotations": {WOKEN: "later"}}}),
        ("PATCH", f"{NODES}/a", {"metadata": {"annotations": {PLACE: "a"}}}),
        ("PATCH", f"{NODES}/a", {"metadata": {"annotations": {SEEN_BY: "x" * 513}}}),
        ("PATCH", f"{NODES}/a", {"metadata": {"annotations": {SEEN_BY: "x", "zone": "y"}}}),
        ("PATCH", f"{NODES}/a", {"spec": {"unschedulable": True}}),
        ("POST", LEASES, LEASE),
        ("PUT", f"{LEASES}/alignup-extender", LEASE),
        ("POST", LEASES, {**LEASE, "metadata": {"name": "another"}}),
        ("POST", EVENTS, event("alignup-extender")),
        ("POST", EVENTS, put(event("alignup-gates"), "type", "Normal")),
        ("GET", "/api/v1/secrets", None),
    ],
    "alignup-publish": [
        ("POST", TOPOLOGIES, topology("b", "x")),
        ("PATCH", f"{TOPOLOGIES}/b?fieldManager=x", topology("b", "x"), APPLY),
        ("POST", EVENTS, event("alignup-extender")),
        ("PATCH", f"{NODES}/a", {"metadata": {"annotations": {"alignup.dev/holdings": "x"}}}),
        ("DELETE", f"{TOPOLOGIES}/a", None),
    ],
    "alignup-reconcile": [
        ("DELETE", POD.format("default", "running"), None),
        ("DELETE", POD.format("default", "running") + "?gracePeriodSeconds=0", None),
        ("DELETE", POD.format("default", "failed"), None),
        ("DELETE", POD.format("default", "ownerless"), None),
        ("DELETE", POD.format("alignup-publish", "own"), None),
        ("DELETE", "/api/v1/namespaces/default/pods", None),
        ("POST", EVENTS, event("alignup-publish")),
    ],
    "alignup-rebalance": [
        (
            "POST",
            POD.format("default", "moved") + "/eviction",
            put(EVICTION, "deleteOptions.gracePeriodSeconds", 0),
        ),
        (
            "POST",
            POD.format("default", "moved") + "/eviction",
            put(EVICTION, "deleteOptions", {"preconditions": None}),
        ),
        ("DELETE", POD.format("default", "moved"), None),
    ],
    "alignup-asking": [
        ("PATCH", f"{NODES}/a", {"metadata": {"annotations": {WOKEN: "now"}}}),
        ("DELETE", POD.format("default", "moved"), None),
        ("GET", "/api/v1/secrets", None),
    ],
}


def test_a_publisher_without_a_node_in_its_token_publishes_nothing() -> None:
    with control_plane() as plane:
        cluster = Cluster(Server(plane.kubeconfig))
        cluster.build()
        token = cluster.server.token_of("alignup-publish", "alignup-publish")
        assert cluster.server.ask("POST", TOPOLOGIES, topology("a", "x"), token) == 422


def kubectl() -> str:
    """Return the program; the rig's own if there is one."""
    if (BIN / "kubectl").exists():
        return str(BIN / "kubectl")
    return shutil.which("kubectl") or ""


@pytest.mark.skipif(not kubectl(), reason="no kubectl applies the kustomization")
def test_what_is_applied_twice_is_unchanged_the_second_time() -> None:
    """Of a PodDisruptionBudget kubectl never says so.

    It sends the selector each time, which changes nothing.
    """
    budget = "/apis/policy/v1/namespaces/alignup/poddisruptionbudgets/alignup-extender"
    with control_plane() as plane:
        command = [kubectl(), "--kubeconfig", plane.kubeconfig, "apply", "-k", str(DEPLOY)]
        environment = {**os.environ, "HOME": str(plane.folder)}
        outputs, versions = [], []
        for _ in range(2):
            done = subprocess.run(  # noqa: S603  # ours
                command, check=True, capture_output=True, text=True, env=environment
            )
            outputs.append(done.stdout.splitlines())
            versions.append(Server(plane.kubeconfig).get(budget)["metadata"]["resourceVersion"])

    first, second = outputs
    assert [line for line in first if not line.endswith(" created")] == []
    assert [
        line
        for line in second
        if not line.endswith(" unchanged") and "poddisruptionbudget" not in line
    ] == []
    assert versions[0] == versions[1]
