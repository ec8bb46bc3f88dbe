"""`.ci/address`: what a package index shows leads to the repository."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
ADDRESS = "https://forge.example/team/alignup"


def test_links_lead_to_the_repository_at_that_revision(tmp_path) -> None:
    for name in (".ci/address", "pyproject.toml", "README.md", "src/alignup/version.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    program = tmp_path / ".ci/address"
    subprocess.run([sys.executable, program, ADDRESS, "v1"], check=True)  # noqa: S603  # ours
    urls = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]["urls"]
    assert all(url.startswith(ADDRESS) for url in urls.values())
    code = (tmp_path / "src/alignup/version.py").read_text()
    assert f'DOCUMENTATION: Final = "{ADDRESS}/tree/v1/docs"' in code
    text = (tmp_path / "README.md").read_text()
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]*)\)", text)
    assert [link for _, link in links if not link.startswith(("https://", "#"))] == []
    pictures = [link for mark, link in links if mark]
    assert pictures
    for link in pictures:
        assert (ROOT / link.removeprefix(f"{ADDRESS}/raw/v1/")).is_file()
