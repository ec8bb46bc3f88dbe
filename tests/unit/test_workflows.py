"""The workflows of the forge do what `.ci/run` does, on what the package promises to run on."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
STEPS = (ROOT / ".ci/steps").read_text("utf-8")


def workflow(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text("utf-8"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_steps_and_programs_that_exist(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"].values()
    for command in (step.get("run", "") for job in jobs for step in job["steps"]):
        for program, steps in re.findall(r"(\.ci/[\w-]+)((?: \w+)*)", command):
            assert os.access(ROOT / program, os.X_OK)
            if program == ".ci/run":
                assert [
                    name
                    for name in steps.split()
                    if not re.search(rf"^{name}\(\)", STEPS, re.MULTILINE)
                ] == []


def test_the_suite_runs_on_every_python_and_on_both_architectures() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "classifiers"
    ]
    matrix = workflow("ci")["jobs"]["suite"]["strategy"]["matrix"]
    assert matrix["python"] == [
        classifier.rpartition(" ")[2]
        for classifier in classifiers
        if re.search(r":: 3\.\d+$", classifier)
    ]
    assert matrix["include"] == [{"runner": "ubuntu-24.04-arm", "python": "3.13"}]
    assert workflow("ci")[True] == {"push": None, "pull_request": None}  # `on` is true in YAML 1.1


def test_the_image_is_built_for_the_architectures_of_the_plugin_under_a_lower_case_name(
    tmp_path,
) -> None:
    """A registry takes no capitals, which an owner's name may have."""
    jobs = workflow("image")["jobs"]
    [build] = [
        step["with"]
        for step in jobs["image"]["steps"]
        if "build-push-action" in step.get("uses", "")
    ]
    arches = [platform["arch"] for platform in jobs["plugin"]["strategy"]["matrix"]["include"]]
    assert build["platforms"] == ",".join(f"linux/{arch}" for arch in arches)

    [name] = [step["run"] for step in jobs["image"]["steps"] if "IMAGE=" in step.get("run", "")]
    env = {"GITHUB_REPOSITORY": "Team/AlignUp", "GITHUB_ENV": str(tmp_path / "env")}
    subprocess.run(["bash", "-e", "-c", name], env=env, check=True)  # noqa: S603, S607  # ours
    assert (tmp_path / "env").read_text("utf-8") == "IMAGE=ghcr.io/team/alignup\n"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_the_command_of_the_benchmarks_is_named(page: str) -> None:
    assert "pytest -q benches" in (ROOT / page).read_text("utf-8")


def answering(folder: Path, script: str) -> dict[str, str]:
    """Return an environment in which `gh` is a script."""
    (folder / "gh").write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
    (folder / "gh").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "GITHUB_REPOSITORY": "team/alignup"}


def test_the_history_of_the_last_run_is_fetched(tmp_path) -> None:
    """Where there is none it begins anew.

    Where it cannot be fetched, the workflow fails rather than lose it.
    """
    history = tmp_path / "history.jsonl"

    def fetch(script: str) -> int:
        env = answering(tmp_path, script)
        return subprocess.run(  # noqa: S603  # ours
            [ROOT / ".ci/history", history], env=env, check=False, capture_output=True
        ).returncode

    assert fetch("[ $1 = api ]") == 0
    assert not history.exists()
    download = '[ $1 = api ] && echo 7 && exit; [ "$1 $2 $3" = "run download 7" ] || exit 1'
    assert fetch(f"{download}; echo '{{}}' >{history}") == 0
    assert history.read_text("utf-8") == "{}\n"
    assert fetch("[ $1 = api ] && echo 7") != 0
    assert fetch("exit 1") != 0
