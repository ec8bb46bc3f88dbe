"""What the chart renders is taken by a real API server, whichever switches are on.

Helm renders every setting of one switch and of two; each object that comes of it is applied once,
as a dry run, with strict validation.
"""

from __future__ import annotations

import json
import subprocess
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from rig.programs import BIN
from rig.servers import DEPLOY, Server, control_plane, need_rig
from rig.topology_kind import PATH

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.rig]

VALUES = yaml.safe_load((DEPLOY / "values.yaml").read_text())
SWITCHES = {name: part["enabled"] for name, part in VALUES.items() if "enabled" in part}
FLIPPED = [names for count in range(3) for names in combinations(SWITCHES, count)]
"""The switches that are not as by default: none, each, and every two."""

TEXT = {"type": "string"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
RULE = {"alert": TEXT, "expr": TEXT, "for": TEXT, "labels": TEXTS, "annotations": TEXTS}
RULES = {
    "type": "array",
    "items": {"type": "object", "required": ["expr"], "properties": RULE},
}
GROUP = {
    "type": "object",
    "required": ["name", "rules"],
    "properties": {"name": TEXT, "rules": RULES},
}
STAND_INS = {
    "PodMonitor": ("monitoring.coreos.com", "podmonitors", ANYTHING),
    "PrometheusRule": (
        "monitoring.coreos.com",
        "prometheusrules",
        {"type": "object", "properties": {"groups": {"type": "array", "items": GROUP}}},
    ),
    "Certificate": ("cert-manager.io", "certificates", ANYTHING),
    "Issuer": ("cert-manager.io", "issuers", ANYTHING),
}
"""Kinds of other projects, with as much of their schemas as is of use here."""

REFUSED = {
    "a misspelt key": ["extender.replica=2"],
    "a misspelt part": ["extendr.enabled=true"],
    "less than no replicas": ["extender.replicas=-1"],
    "text for a switch": ["alerts.enabled=maybe"],
    "no repository": ["image.repository="],
    "no digest": ["image.digest=latest"],
    "an option that is no list": ["publish.args=--verbose"],
}


def definition(kind: str) -> dict[str, Any]:
    """Return the definition of a kind that stands for another project's."""
    group, plural, spec = STAND_INS[kind]
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [version],
        },
    }


def helm(*options: str) -> subprocess.CompletedProcess[str]:
    """Render the chart."""
    command = [BIN / "helm", "template", "alignup", DEPLOY, "--kube-version", "1.36.0", *options]
    # a known program
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603


def rendered(*values: str) -> list[dict[str, Any]]:
    """Return the objects of the chart with some values."""
    done = helm(*(word for value in values for word in ("--set", value)))
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    need_rig("helm")
    with control_plane() as plane:
        api_server = Server(plane.kubeconfig)
        for kind in STAND_INS:
            assert api_server.ask("POST", PATH, definition(kind)) == 201
        for group, plural, _ in STAND_INS.values():
            served = partial(api_server.get, f"/apis/{group}/v1/{plural}")
            plane.processes.wait_for("kube-apiserver", f"{plural} are served", served)
        yield api_server


def path_of(server: Server, document: dict[str, Any]) -> str:
    """Return the path of an object."""
    version = document["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    (resource,) = (
        resource
        for resource in server.get(root)["resources"]
        if resource["kind"] == document["kind"] and "/" not in resource["name"]
    )
    metadata = document["metadata"]
    space = f"namespaces/{metadata['namespace']}/" if resource["namespaced"] else ""
    return f"{root}/{space}{resource['name']}/{metadata['name']}"


def test_an_api_server_takes_what_every_two_switches_render(server: Server) -> None:
    documents: dict[str, dict[str, Any]] = {}
    for names in FLIPPED:
        values = [f"{name}.enabled={json.dumps(not SWITCHES[name])}" for name in names]
        documents |= {json.dumps(document): document for document in rendered(*values)}

    kinds = {document["kind"] for document in documents.values()}
    assert STAND_INS.keys() <= kinds
    apply = "application/apply-patch+yaml"
    options = "fieldManager=helm&force=true&fieldValidation=Strict"
    namespaces = [document for document in documents.values() if document["kind"] == "Namespace"]
    for document in namespaces:  # others can be tried only inside
        path = f"{path_of(server, document)}?{options}"
        assert server.ask("PATCH", path, document, kind=apply) == 201

    refused = []
    for document in documents.values():
        path = f"{path_of(server, document)}?dryRun=All&{options}"
        status, answer = server.asked("PATCH", path, document, kind=apply)
        if status not in {200, 201}:
            refused.append((document["kind"], document["metadata"]["name"], answer["message"]))
    assert not refused


@pytest.mark.parametrize("values", REFUSED.values(), ids=REFUSED.keys())
def test_values_that_mean_nothing_are_refused(values) -> None:
    need_rig("helm")
    done = helm(*(word for value in values for word in ("--set", value)))
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr


def test_what_is_null_counts_as_left_out() -> None:
    need_rig("helm")
    nulls = ["extender.args", "extender.env", "extender.resources", "publish.args", "alerts"]
    assert rendered(*(f"{name}=null" for name in nulls)) == rendered()
