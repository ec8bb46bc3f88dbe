"""What /proc says of a process, in the forms of cgroup drivers and runtimes.

Static pods have no dashes.
"""

from __future__ import annotations

import pytest

from alignup.kubelet.processes import read_process

UID = "01234567-89ab-cdef-0123-456789abcdef"
ID = "ab" * 32
SLICE = f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"


@pytest.mark.parametrize(
    ("cgroup", "uid", "container"),
    [
        (f"0::/kubepods/burstable/pod{UID}/{ID}", UID, ID),
        (f"{SLICE}/cri-containerd-{ID}.scope", UID, ID),
        (f"{SLICE}/crio-{ID}.scope", UID, ID),
        (
            f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '')}.slice/{ID}",
            UID.replace("-", ""),
            ID,
        ),
        ("0::/user.slice/session-1.scope", "", ""),
        ("", "", ""),
    ],
)
def test_the_container_is_read_from_the_cgroup(tmp_path, cgroup, uid, container):
    folder = tmp_path / "proc/7"
    folder.mkdir(parents=True)
    (folder / "status").write_text("Name:\tx\nCpus_allowed_list:\t0\n")
    (folder / "cgroup").write_text(cgroup)
    process = read_process(tmp_path, 7)
    assert (process.pod_uid, process.container_id) == (uid, container)
