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
    ) as kubelet:
        for name, wish in (("a", (2, 2, 1)), ("b", (3, 4)), ("c", (2, 1, 1))):
            pod = guaranteed(name, wish)
            pod["metadata"].pop("uid")
            assert kubelet.admit(pod)["phase"] == "Running"

        kubelet.record()
        kubelet.stop()
        shutil.copytree(
            kubelet.root, folder / "good", symlinks=True, ignore=shutil.ignore_patterns("*.sock")
        )
        shutil.copy(kubelet.config_file, folder / "good.json")
        yield kubelet

    shutil.rmtree(folder, ignore_errors=True)


def restored(rig):
    """Bring the good files back."""
    shutil.rmtree(rig.root)
    shutil.copytree(rig.folder / "good", rig.root, symlinks=True)
    shutil.copy(rig.folder / "good.json", rig.config_file)
    return Place(rig.root, rig.state, rig.config_file)


def said_in(log, quotation):
    """Return whether the log has the words; it escapes quotation marks."""
    return (
        quotation in log.replace('\\"', '"').replace('err="', "").replace("err=", "")
        or quotation in log
    )


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_and_the_kubelet_does_what_is_said(rig, name):
    spoil, kinds, starts = FAULTS[name]
    spoil(restored(rig))
    options = {"config": rig.config_file, "kubelet_version": rig.version}
    problems = check_node(FolderFiles(rig.root), options)
    assert {problem.kind for problem in problems} == kinds
    try:
        rig.start()
        started = True
    except RigError:
        started = False

    assert started is starts
    log = rig.log
    stops = [
        problem.effect.removeprefix(STOPS)[1:-1]
        for problem in problems
        if problem.effect.startswith(STOPS)
    ]
    assert bool(stops) is not starts or not problems
    if stops:  # of several reasons, the kubelet says the first
        assert any(said_in(log, quotation) for quotation in stops), (stops, log[-3000:])

    for problem in problems:
        if not problem.effect.startswith(STOPS) and "again is refused" not in problem.effect:
            for quotation in re.findall(r'"([^"]*)"', problem.effect):
                assert said_in(log, quotation), (quotation, log[-3000:])

    if started:
        time.sleep(0.5)
        rig.stop()
