"""Faults in the files of a real kubelet that is stopped.

Each is found, and the kubelet then does what is said.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from alignup.kubelet.check import check_node
from alignup.kubelet.layout import FolderFiles
from inputs.kernel_trees import server
from inputs.kubelet_faults import FAULTS, Place
from inputs.kubelet_files import guaranteed
from rig.lone_kubelet import KubeletRig, why_not
from rig.processes import RigError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rig,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

GPUS = [{"id": f"gpu{i}", "numa": [i % 2]} for i in range(4)]
STOPS = "the kubelet does not start: "


@pytest.fixture(scope="module")
def rig():
    """A kubelet with three pods, stopped; the copies that each test starts from are beside it."""
    folder = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))  # sockets need a short path
    files = server(sockets=2, cores=8, nodes=2, memory=16 << 20)
    with KubeletRig(
        folder, files, {"topologyManagerPolicy": "restricted"}, {"nvidia.com/gpu": GPUS}
    ) as made:
        for name, wish in (("a", (2, 2, 1)), ("b", (3, 4)), ("c", (2, 1, 1))):
            pod = guaranteed(name, wish)
            pod["metadata"].pop("uid")
            assert made.admit(pod)["phase"] == "Running"

        made.record()
        made.stop()
        shutil.copytree(
            made.root, folder / "good", symlinks=True, ignore=shutil.ignore_patterns("*.sock")
        )
        shutil.copy(made.config_file, folder / "good.json")
        yield made

    shutil.rmtree(folder, ignore_errors=True)


def restored(rig):
    """Bring the good files back."""
    shutil.rmtree(rig.root)
    shutil.copytree(rig.folder / "good", rig.root, symlinks=True)
    shutil.copy(rig.folder / "good.json", rig.config_file)
    return Place(rig.root, rig.state, rig.config_file)


def said_in(log, words):
    """Return whether the log has the words; it escapes quotation marks."""
    return words in log.replace('\\"', '"').replace('err="', "").replace("err=", "") or words in log


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_and_the_kubelet_does_what_is_said(rig, name):
    spoil, kinds, starts = FAULTS[name]
    spoil(restored(rig))
    options = {"config": rig.config_file, "kubelet_version": rig.version}
    found = check_node(FolderFiles(rig.root), options)
    assert {one.kind for one in found} == kinds
    try:
        rig.start()
        started = True
    except RigError:
        started = False

    assert started is starts
    log = rig.log
    stops = [one.effect.removeprefix(STOPS)[1:-1] for one in found if one.effect.startswith(STOPS)]
    assert bool(stops) is not starts or not found
    if stops:  # of several reasons, the kubelet says the first
        assert any(said_in(log, words) for words in stops), (stops, log[-3000:])

    for one in found:
        if not one.effect.startswith(STOPS) and "again is refused" not in one.effect:
            for words in re.findall(r'"([^"]*)"', one.effect):
                assert said_in(log, words), (words, log[-3000:])

    if started:
        time.sleep(0.5)
        rig.stop()
