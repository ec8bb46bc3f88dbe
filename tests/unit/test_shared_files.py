"""What a wheel puts below `share`: the completions.

Tests/unit/test_docs.py compares the manual page.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPLETIONS = {
    "bash": "bash-completion/completions/alignup",
    "zsh": "zsh/site-functions/_alignup",
    "fish": "fish/vendor_completions.d/alignup.fish",
}


@pytest.mark.parametrize("shell", COMPLETIONS)
def test_a_completion_asks_the_program(shell: str) -> None:
    text = (ROOT / "share" / COMPLETIONS[shell]).read_text("utf-8")
    assert f"_ALIGNUP_COMPLETE={shell}_complete" in text


def test_bash_completes_with_it(tmp_path) -> None:
    script = ROOT / "share" / COMPLETIONS["bash"]
    commands = (
        "COMP_WORDS=(alignup exp); COMP_CWORD=1; _alignup_completion alignup; echo ${COMPREPLY[@]}"
    )

    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(  # noqa: S603  # ours
        ["/bin/bash", "-c", f"source {script}; {commands}"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.split() == ["explain"]
