"""The workflows of the forge do what `.ci/run` does, on what the package promises to run on."""

from __future__ import annotations

import os
import re
import shutil
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


def pins(root: Path, *arguments: str) -> tuple[int, str]:
    """Return the status and the lines of `.ci/pins`."""
    done = subprocess.run(  # noqa: S603  # ours
        [root / ".ci/pins", *arguments], check=False, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.fixture
def copy(tmp_path) -> Path:
    for folder in (".ci", ".github", "deploy"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_what_workflows_use_is_named_so_that_it_cannot_change() -> None:
    assert pins(ROOT)[0] == 0


CHECKOUT = "actions/checkout@11d5960a326750d5838078e36cf38b85af677262 # v4.4.0"


@pytest.mark.parametrize(
    ("path", "before", "after", "expected"),
    [
        (".github/workflows/site.yml", CHECKOUT, "actions/checkout@v4", "by its commit"),
        (".github/workflows/site.yml", CHECKOUT, "actions/checkout", "by its commit"),
        (".github/workflows/site.yml", CHECKOUT, CHECKOUT.partition(" ")[0], "whole tag"),
        (".github/workflows/site.yml", " # v4.4.0", " # v4", "whole tag"),
        (".github/workflows/wheels.yml", CHECKOUT, CHECKOUT.replace("@1", "@2"), "the other"),
        (".github/workflows/wheels.yml", "twine==7.0.0", "twine", "PACKAGE==VERSION"),
        (".github/workflows/image.yml", "--require-hashes ", "", "--require-hashes"),
        ("deploy/Containerfile", "--require-hashes ", "", "--require-hashes"),
        ("deploy/requirements/image.txt", "aiohttp==", "aiohttp>=", "versions with hashes"),
        ("deploy/requirements/image.txt", "--hash=sha256:", "--hash=md5:", "hashes of"),
        ("deploy/requirements/plugin.txt", "click==8.", "click==7.", "click>=8.1, got 7."),
        ("pyproject.toml", '"aiohttp>=3.9"', '"aiohttp>=99"', "aiohttp>=99"),
        ("pyproject.toml", '"xxhash>=3.4"', '"zstandard>=1"', "zstandard>=1, got none"),
    ],
    ids=str,
)
def test_what_may_change_is_named(copy, path: str, before: str, after: str, expected: str) -> None:
    text = (copy / path).read_text("utf-8")
    assert before in text
    (copy / path).write_text(text.replace(before, after, 1), "utf-8")
    status, lines = pins(copy)
    assert status == 1
    assert f"{path}:" in lines or path == "pyproject.toml"
    assert expected in lines


def test_a_release_wants_the_base_of_the_image_by_its_digest(copy) -> None:
    """The digest is known to the registry only; `.ci/pin-images` writes it, and renews it."""
    image = "docker.io/library/python:3.13-slim"
    containers = copy / "deploy/Containerfile"
    text = re.sub(r"@sha256:\w+", "", containers.read_text("utf-8"))
    containers.write_text(text, "utf-8")
    assert pins(copy)[0] == 0
    status, lines = pins(copy, "--release")
    assert (status, image in lines) == (1, True)

    for digit in "ab":
        digest = f"sha256:{digit * 64}"
        pin = [copy / ".ci/pin-images", image, digest]
        subprocess.run(pin, check=True)  # noqa: S603  # ours
        bases = re.findall(r"^FROM (\S+)", containers.read_text("utf-8"), re.MULTILINE)
        assert bases == [f"{image}@{digest}"] * 2
    assert pins(copy, "--release") == (0, "")
    steps = workflow("image")["jobs"]["plugin"]["steps"]
    assert ".ci/pins --release" in [step.get("run") for step in steps]


def test_a_bot_renews_what_is_named() -> None:
    bot = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text("utf-8"))
    kinds = {update["package-ecosystem"]: update["directory"] for update in bot["updates"]}
    assert kinds == {"github-actions": "/", "docker": "/deploy", "pip": "/deploy/requirements"}
    for folder in kinds.values():
        assert (ROOT / folder.lstrip("/")).is_dir()


def test_only_jobs_that_publish_may_write() -> None:
    """A job that runs what others wrote, such as a test's packages, has no right to publish."""
    for path in WORKFLOWS:
        made = yaml.safe_load(path.read_text("utf-8"))
        assert made["permissions"] == {"contents": "read"}
        for name, job in made["jobs"].items():
            rights = {
                right for right, value in job.get("permissions", {}).items() if value != "read"
            }
            assert not rights or name in {"publish", "image"}


def test_a_release_says_where_it_is_from() -> None:
    image = workflow("image")["jobs"]["image"]
    [build] = [
        step["with"] for step in image["steps"] if "build-push-action" in step.get("uses", "")
    ]
    assert (build["sbom"], build["provenance"]) == (True, "mode=max")
    attested = [
        step["with"] for step in image["steps"] if "actions/attest@" in step.get("uses", "")
    ]
    assert attested[0]["subject-digest"] == "${{ steps.build.outputs.digest }}"
    [upload] = [step["run"] for step in image["steps"] if "gh release" in step.get("run", "")]
    files = re.search(r"files=\((.*)\)", upload)[1]
    assert attested[1]["subject-path"].split() == files.split()
    assert {"id-token", "attestations"} <= set(image["permissions"])


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
