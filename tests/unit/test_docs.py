"""The pages for contributors name files that exist.

The page about support and the manual name what is so.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from alignup.cli.program import SUBCOMMANDS
from alignup.kubernetes.versions import NEWEST, OLDEST
from alignup.version import VERSION

ROOT = Path(__file__).parents[2]
ROOMS = "benches|cython|docs|src|tests"
MAP = "docs/dev/architecture.md"
PAGES = (MAP, "docs/dev/kernels.md", "docs/dev/kubelet.md", "CONTRIBUTING.md")


def named_in(page: str) -> set[str]:
    """Return the words in backticks that are paths or files.

    These are paths from the root, or names of Python and Cython files.
    """
    names = re.findall(r"`([\w./-]+)`", (ROOT / page).read_text(encoding="utf-8"))
    file = re.compile(rf"(?:{ROOMS}|\.ci)/.*|.*\w\.(?:md|toml|pyi?|pyx|pxd)")
    return {name for name in names if file.fullmatch(name)}


def exists(word: str) -> bool:
    """Return whether there is such a path, or for a bare name such a file in the sources."""
    return (ROOT / word).exists() or (
        "/" not in word and any(any((ROOT / room).rglob(word)) for room in ("src", "cython"))
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_named_exists(page: str) -> None:
    named = named_in(page)
    assert len(named) > 10
    assert [word for word in sorted(named) if not exists(word)] == []


def test_what_a_page_names_as_its_proof_exists() -> None:
    """Paths, and tests by their names, on the pages for users, too."""
    paths = re.compile(r"`((?:benches|cython|deploy|examples|src|tests)/[\w./-]+)`")
    proofs = re.compile(r"`(test_\w+)`")
    tests = set()
    for path in (*ROOT.glob("tests/**/*.py"), *ROOT.glob("benches/**/*.py")):
        tests |= set(re.findall(r"def (test_\w+)", path.read_text("utf-8")))

    stale = []
    for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")):
        text = page.read_text("utf-8")
        stale += [(page.name, path) for path in paths.findall(text) if not (ROOT / path).exists()]
        stale += [(page.name, name) for name in proofs.findall(text) if name not in tests]

    assert not stale


def folders_in(text: str) -> set[Path]:
    """Return the folders that a text names.

    Those of the files that it names with their path count, too.
    """
    paths = [ROOT / word for word in re.findall(r"`([\w./-]+/[\w./-]+)`", text)]
    return {path if path.is_dir() else path.parent for path in paths if path.exists()}


def test_files_that_are_named_alone_are_in_a_folder_named_before() -> None:
    """In the same section of the map, up to the end of the row or paragraph that names the file."""
    lost = []
    for section in re.split(r"^#{2,3} ", (ROOT / MAP).read_text("utf-8"), flags=re.MULTILINE):
        folders: set[Path] = set()
        for block in re.split(r"\n\n|\n(?=[-|\d])", section):
            folders |= folders_in(block)
            names = re.findall(r"`(\w+\.(?:py|pyx|pxd|json))`", block)
            lost += [
                name for name in names if not any((folder / name).exists() for folder in folders)
            ]
    assert lost == []


def test_every_room_of_the_package_is_on_the_map() -> None:
    """The map leaves out no folder of the package."""
    text = (ROOT / MAP).read_text(encoding="utf-8")
    folders = {path.name for path in (ROOT / "src" / "alignup").iterdir() if path.is_dir()}
    rooms = folders - {"__pycache__"}
    assert [room for room in sorted(rooms) if f"src/alignup/{room}" not in text] == []


def test_a_newcomer_is_led_to_each_page_for_developers() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    names = [f"docs/dev/{path.name}" for path in (ROOT / "docs" / "dev").glob("*.md")]
    assert [name for name in sorted(names) if name not in page] == []


def test_the_support_page_names_the_interpreters_that_wheels_are_built_for() -> None:
    """Its table and the classifiers are the same.

    So are what cibuildwheel builds, and what the workflow counts.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    page = (ROOT / "docs/support.md").read_text("utf-8")
    named = re.findall(r"^\| (3\.\d+) \|", page, re.MULTILINE)
    classified = [
        classifier.rpartition(" ")[2]
        for classifier in project["project"]["classifiers"]
        if re.search(r":: 3\.\d+$", classifier)
    ]
    built = [
        f"3.{tag[3:]}" for tag in re.findall(r"cp3\d+", project["tool"]["cibuildwheel"]["build"])
    ]
    assert named == classified == built
    assert project["project"]["requires-python"] == f">={named[0]}"

    workflow = (ROOT / ".github/workflows/wheels.yml").read_text("utf-8")
    first, last = re.search(r"cp31\[(\d)-(\d)\]", workflow).groups()
    assert [f"3.1{minor}" for minor in range(int(first), int(last) + 1)] == named
    assert f'wc -l)" = {4 * len(named)}' in workflow  # two systems, two architectures

    for system in re.findall(r"`\.ci/systems ([\w .-]+)`", page):
        script = (ROOT / ".ci/systems").read_text("utf-8")
        assert [name for name in system.split() if name not in script] == []


def test_releases_that_the_support_page_names_are_those_that_are_known() -> None:
    page = (ROOT / "docs/support.md").read_text("utf-8")
    assert f"Releases {OLDEST} to {NEWEST} " in page


def test_the_citation_is_of_this_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["version"] == VERSION


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_to_files(page: str) -> None:
    """Those among the pages of the site are checked when it is built."""
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / page).read_text("utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_page_of_messages_is_that_of_the_tables() -> None:
    page = (ROOT / "docs/messages.md").read_text("utf-8")
    assert page == runpy.run_path(str(ROOT / ".ci/messages"))["page"](), "run .ci/messages --page"


def test_the_manual_page_is_what_the_program_says_of_its_commands_and_options() -> None:
    page = (ROOT / "share/man/man1/alignup.1").read_text("utf-8")
    assert page == runpy.run_path(str(ROOT / ".ci/generate-manual"))["manual"](), (
        "run .ci/generate-manual"
    )
    assert [name for name in SUBCOMMANDS if f".SS alignup {name}\n" not in page] == []


@pytest.mark.parametrize(
    ("variables", "devices"),
    [
        (
            {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"},
            ["nvidia.com/gpu=GPU-1", "nvidia.com/gpu=GPU-2"],
        ),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1"}, ["nvidia.com/gpu=GPU-1"]),
        (
            {"CUDA_VISIBLE_DEVICES": "GPU-1", "ALIGNUP_CDI_DEVICES": "a.b/c=0,a.b/c=1"},
            ["a.b/c=0", "a.b/c=1"],
        ),
    ],
)
def test_a_container_is_started_with_its_devices(tmp_path, variables, devices):
    """By the command on the page of the agent, with a podman that prints its arguments."""
    page = (ROOT / "docs/agent.md").read_text("utf-8")
    (script,) = re.findall(r"^alignup run .* -- (sh -c '[^']*podman[^']*')", page, re.MULTILINE)
    podman = tmp_path / "podman"
    podman.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    podman.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ALIGNUP_CPUS": "0-3", **variables}
    command = ["/bin/sh", "-c", script]
    ended = subprocess.run(command, env=environment, check=True, capture_output=True)  # noqa: S603
    arguments = [argument for device in devices for argument in ("--device", device)]
    expected = ["run", "--cpuset-cpus=0-3", *arguments, "IMAGE", "COMMAND"]
    assert ended.stdout.decode().splitlines() == expected
