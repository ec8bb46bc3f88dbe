"""The manifests and the container file fit the program: commands, options, paths, and the rights that it needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from alignup.cli import program
from alignup.cluster.scheduler.api_client import TOPOLOGIES
from alignup.text.documents import read_documents

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["resources"]


def documents(name: str) -> list[dict[str, Any]]:
    return list(read_documents((DEPLOY / name).read_bytes(), name))


ALL = [document for name in MANIFESTS for document in documents(name)]


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    return [document for document in ALL if document["kind"] in kinds]


WORKLOADS = of_kind("Deployment", "DaemonSet")
CONTAINERS = [one for found in WORKLOADS for one in found["spec"]["template"]["spec"]["containers"]]


def test_every_manifest_is_in_the_kustomization() -> None:
    others = {"kustomization.yaml", "scheduler-configuration.yaml"}
    assert {path.name for path in DEPLOY.glob("*.yaml")} - others == set(MANIFESTS)


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda one: one["name"])
def test_the_commands_and_options_exist(container) -> None:
    """Each container's arguments are read by the program's own parser."""
    # the program's own names for help: click remembers those of a command's first context
    context = click.Context(program, info_name="alignup", help_option_names=["-h", "--help"])
    command: click.Command = program
    words = list(container["args"])
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, words[0]
        command, words = found, words[1:]
    given = {one["name"] for one in container.get("env", ())}
    needed = [one for one in command.params if one.required and one.envvar not in given]
    prefilled = bool(set(command.params) - set(needed))
    command.make_context(command.name, words, parent=context, resilient_parsing=prefilled)
    known = {option for parameter in command.params for option in parameter.opts}
    assert [word for word in words if word.startswith("--") and word not in known] == []
    assert not [one.name for one in needed if not any(option in words for option in one.opts)]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda one: one["metadata"]["name"])
def test_selectors_accounts_and_volumes_fit_together(workload) -> None:
    template = workload["spec"]["template"]
    assert workload["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    accounts = {one["metadata"]["name"] for one in of_kind("ServiceAccount")}
    assert template["spec"]["serviceAccountName"] in accounts
    volumes = {one["name"] for one in template["spec"].get("volumes", ())}
    mounts = {
        one["name"] for found in template["spec"]["containers"] for one in found.get("volumeMounts", ())
    }
    assert mounts == volumes


def test_every_account_is_bound_to_its_role() -> None:
    roles = {one["metadata"]["name"] for one in of_kind("ClusterRole")}
    for binding in of_kind("ClusterRoleBinding"):
        assert binding["roleRef"]["name"] in roles
        assert [one["namespace"] for one in binding["subjects"]] == ["alignup"]
    bound = {one["name"] for binding in of_kind("ClusterRoleBinding") for one in binding["subjects"]}
    assert bound == {one["metadata"]["name"] for one in of_kind("ServiceAccount")}


def rights(role: str) -> set[tuple[str, str]]:
    found = next(one for one in of_kind("ClusterRole") if one["metadata"]["name"] == role)
    return {
        (resource, verb)
        for rule in found["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_roles_have_the_rights_that_the_requests_need_and_no_others() -> None:
    topologies = TOPOLOGIES.rpartition("/")[2]
    follow = {"list", "watch"}
    assert rights("alignup-extender") == {
        *((kind, verb) for kind in ("pods", "nodes", topologies) for verb in follow),
        ("pods", "get"),
        ("pods/binding", "create"),
        ("nodes", "patch"),
    }
    assert rights("alignup-reconcile") == {("pods", "list"), ("pods", "watch"), ("pods", "delete")}
    assert rights("alignup-publish") == {(topologies, "create"), (topologies, "patch")}


def test_the_scheduler_asks_where_the_extender_answers() -> None:
    (configuration,) = documents("scheduler-configuration.yaml")
    (extender,) = configuration["extenders"]
    service = next(one for one in of_kind("Service"))
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    assert extender["urlPrefix"] == f"http://{name}.{namespace}.svc"
    assert {extender[f"{verb}Verb"] for verb in ("filter", "prioritize", "preempt", "bind")} == {
        "filter",
        "prioritize",
        "preempt",
        "bind",
    }
    workload = next(one for one in WORKLOADS if one["metadata"]["name"] == name)
    assert workload["spec"]["template"]["metadata"]["labels"] == service["spec"]["selector"]
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    (port,) = container["ports"]
    assert f"0.0.0.0:{port['containerPort']}" in container["args"]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]


def test_the_container_file_copies_what_the_build_needs() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    copied = [
        word
        for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE)
        for word in line.split()[:-1]
    ]
    assert [word for word in copied if not (ROOT / word).exists()] == []
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE", "cython", "src"} <= set(copied)
    assert 'ENTRYPOINT ["alignup"]' in text
    assert re.search(r"^USER \d+$", text, re.MULTILINE)
