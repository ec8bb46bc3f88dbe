"""What is to be deployed fits the program: manifests, container file and unit, options, paths, and rights."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from alignup.cli.program import program
from alignup.scheduler.api_client import TOPOLOGIES
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
    check_words(list(container["args"]), {one["name"] for one in container.get("env", ())})


def check_words(words: list[str], given: set[str]) -> None:
    """Read the words of a command line as the program does; `given` are variables of its environment."""
    # the program's own names for help: click remembers those of a command's first context
    context = click.Context(program, info_name="alignup", help_option_names=["-h", "--help"])
    command: click.Command = program
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, words[0]
        command, words = found, words[1:]
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


UNIT = DEPLOY / "alignup-agent.service"


def test_the_unit_fits_the_program() -> None:
    settings = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    _, alignup, *words = settings["ExecStart"].split()
    assert alignup == "alignup"
    check_words(words, set())
    value = dict(pairwise(words))
    assert value["--socket"] == f"/run/{settings['RuntimeDirectory']}/agent.sock"
    assert str(Path(value["--state"]).parent) == f"/var/lib/{settings['StateDirectory']}"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
@pytest.mark.parametrize(
    "words", [("verify",), ("security", "--offline=true", "--threshold=25")], ids=lambda words: words[0]
)
def test_systemd_finds_nothing_in_the_unit(words) -> None:
    """Neither what it does not know, nor an exposure above 2.5 of 10."""
    done = subprocess.run(  # noqa: S603  # ours
        ["systemd-analyze", *words, UNIT],  # noqa: S607  # wherever it is
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-2000:]
