"""Behaviour of `.ci/release`, as far as no kubelet is asked."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rig.managers import compacted
from rig.themes import CHANGES, fresh

ROOT = Path(__file__).parents[2]
RELEASES = sorted((ROOT / "src/alignup/kubernetes/releases").glob("*.json"))


@pytest.fixture(scope="module")
def release():
    return runpy.run_path(str(ROOT / ".ci/release"))


def test_every_theme_changes_scenarios_of_every_kind():
    """Those among them with containers that have no resources."""
    drawn = {theme for theme, _ in fresh(4_000_000, 400)}
    assert drawn == {theme for theme, _ in CHANGES}


@pytest.mark.parametrize("path", RELEASES, ids=lambda path: path.stem)
def test_a_draft_is_written_as_the_files_of_releases_are(release, path):
    text = path.read_text("utf-8")
    assert release["as_file"](json.loads(text)) == text


def test_what_only_some_runs_decide_otherwise_is_not_a_difference(release):
    def answer(mask):
        hints = {"devices": {"example.com/nic": [{"numa": [mask], "preferred": True}]}}
        return {"s": {"expect": [{"admitted": True, "containers": {"c": {"hints": hints}}}]}}

    case = {"name": "s", "steps": []}
    answers = {"1.36.3": [answer(0), answer(0)], "1.37.2": [answer(1), answer(1)]}
    assert release["parts"](case, answers, "1.36.3", "1.37.2")
    answers["1.36.3"].append(answer(1))
    assert not release["parts"](case, answers, "1.36.3", "1.37.2")


def test_what_a_start_is_refused_for_is_recorded():
    """A container can start without the devices that its pod was admitted without.

    Or it can fail for want of them.
    """
    case = {
        "name": "s",
        "steps": [{"start": "a", "container": "c"}, {"start": "a", "container": "d"}],
    }
    steps = [
        {"admitted": True, "sharedCpus": "0-3", "message": message}
        for message in ("devices unavailable", "")
    ]
    recorded = compacted(case, [{"expect": steps}])["expect"]
    assert [step.get("message") for step in recorded] == ["devices unavailable", None]


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="programs are run by root, by unshare"
)
def test_a_program_that_dies_of_a_scenario_ends_the_comparison_with_its_words(release, tmp_path):
    program = tmp_path / "managers"
    program.write_text(
        "#!/bin/sh\necho 'panic: nothing to pass as topologymanager.HintProvider' >&2\nexit 2\n"
    )
    program.chmod(0o755)
    cases = [{"kubelet": {"cpuManagerPolicy": "static", "memoryManagerPolicy": "Static"}}]
    with pytest.raises(
        SystemExit, match=r"managers of 1\.38\.0 end without an answer: panic: nothing to pass as"
    ):
        release["try_out"]("1.38.0", program, cases, tmp_path / "var")


def test_without_the_package_it_says_which_environment_to_use(tmp_path):
    (tmp_path / "alignup").mkdir()
    (tmp_path / "alignup/__init__.py").write_text(
        "raise ModuleNotFoundError('none', name='alignup')"
    )

    ended = subprocess.run(  # noqa: S603  # ours
        [sys.executable, ROOT / ".ci/release", "1.36.3", "1.37.2"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("release: no module alignup in ")
    assert "pip install -e ." in ended.stderr
