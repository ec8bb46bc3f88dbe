"""The tables of messages, compared with the sources of Kubernetes by `.ci/messages`.

The sources are the Go modules `k8s.io/kubernetes` of all releases that `alignup` knows.
"""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from running.outside import outside_environment

PROGRAM = Path(__file__).parents[2] / ".ci/messages"
SCRIPT = runpy.run_path(str(PROGRAM))
MISSING = [
    path.stem
    for path in SCRIPT["sorted_releases"]()
    if not (
        SCRIPT["MODULES"] / f"kubernetes@v{json.loads(path.read_text('utf-8'))['source']}"
    ).is_dir()
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(MISSING) and shutil.which("go") is None,
        reason=f"no module k8s.io/kubernetes of {', '.join(MISSING)}, and no Go to get it",
    ),
]


def test_no_message_is_missing():
    done = subprocess.run(  # noqa: S603  # ours
        [sys.executable, str(PROGRAM)],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        env=outside_environment(),
    )
    if done.stderr.startswith("messages: no sources"):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr


def test_texts_are_read_from_sources():
    source = """
    // fmt.Errorf("not this one")
    func f() error {
        logger.Info("nor this", "pod", pod)
        klog.FromContext(ctx).Error(err, "nor that")
        if a { return fmt.Errorf("a \\"text\\" of "+
            "two parts: %w", err) }
        return errors.New(`another text`)
    }
    const reason = "one more"
    """
    assert list(SCRIPT["messages_of"](source)) == [
        'a "text" of two parts: %w',
        "another text",
        "one more",
    ]


@pytest.mark.parametrize(
    ("releases", "words"),
    [({"1", "2", "3"}, "1-3"), ({"1", "3", "4"}, "1, 3-4"), ({"2"}, "2"), (set(), "")],
)
def test_releases_are_written_in_short(releases, words):
    assert SCRIPT["span"](releases, ["1", "2", "3", "4"]) == words
