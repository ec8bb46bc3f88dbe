"""The texts by which managers of a kubelet end its start, compared with Kubernetes' sources.

Each is in the table of `alignup.kubelet.log`, or known to be of something else. The sources are the
Go modules `k8s.io/kubernetes` that `tests/rig/build` downloads.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from alignup.kubelet import log

MODULES = Path(os.environ.get("GOMODCACHE") or Path.home() / "go" / "pkg" / "mod") / "k8s.io"
RELEASES = sorted(MODULES.glob("kubernetes@v1.*"))
FOLDERS = (
    "cpumanager",
    "cpumanager/state",
    "cpumanager/topology",
    "memorymanager",
    "memorymanager/state",
    "topologymanager",
)
TEXT = re.compile(r'(?:fmt\.Errorf|errors\.New)\("((?:[^"\\]|\\.)*)"')
TABLE = {
    entry["text"]
    for entry in json.loads(Path(log.__file__).with_name("start_errors.json").read_text())
}

# Around the words of another text, or within "could not restore state from checkpoint".
PARTS = re.compile(
    r"new (?:none|static) policy error|could not (?:load|parse|save)|failed to (?:de)?serialize"
    r"|error migrating|failed to (?:parse cpuset|migrate checkpoint)|unknown checkpoint"
    r"|containerID '%v' not found"
    r"|could not restore state from checkpoint"
)
# Of the admission of a pod, or of a container that runs.
OF_PODS = re.compile(
    r"pod rejected|unable to find|\[memorymanager\] (?:failed to|preferred hint)|unknown CPU ID"
    r"|no cpus provided|cpus provided are not unique|not enough cpus|pod with pod-level|%s$"
    r"|failed to a(?:ccumulate|llocate)|accounting error"
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not RELEASES, reason="no module k8s.io/kubernetes is there"),
]


def texts_of(release: Path) -> set[str]:
    """Return the texts of errors in the managers of a release."""
    return {
        json.loads(f'"{text}"').replace('"%s"', "%q")
        for folder in FOLDERS
        for path in (release / "pkg/kubelet/cm" / folder).glob("*.go")
        if not path.name.endswith("_test.go") and not path.name.startswith("fake")
        for text in TEXT.findall(path.read_text())
    }


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_no_text_of_a_start_is_missing(release):
    texts = texts_of(release)
    assert len(texts) > 30

    table = {text.replace('"%s"', "%q") for text in TABLE}
    missing = {text for text in texts - table if not (PARTS.match(text) or OF_PODS.match(text))}
    assert missing == set()


def test_each_text_of_the_table_is_in_some_release():
    components = {"CPU manager", "memory manager", "Topology Manager"}
    entries = json.loads(Path(log.__file__).with_name("start_errors.json").read_text())
    written = {text for release in RELEASES for text in texts_of(release)}
    for entry in entries:
        text = entry["text"].replace('"%s"', "%q")
        if entry["component"] in components and "restore state" not in text:
            assert text in written
