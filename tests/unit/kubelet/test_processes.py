"""What /proc says of a process, and of a kubelet that runs."""

from __future__ import annotations

import pytest

from alignup.errors import AlignupWarning, InputError
from alignup.kubelet.processes import Process, find_kubelet, kubelet_of, read_process
from alignup.machine.cpuset import CPUSet

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
    """In the forms of cgroup drivers and runtimes; static pods have no dashes."""
    folder = tmp_path / "proc/7"
    folder.mkdir(parents=True)
    (folder / "status").write_text("Name:\tx\nCpus_allowed_list:\t0\n")
    (folder / "cgroup").write_text(cgroup)
    process = read_process(tmp_path, 7)
    assert (process.pod_uid, process.container_id) == (uid, container)


NUMA_MAPS = """\
7f00 default anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4
7f10 default file=/usr/lib/libc.so.6 mapped=9 N0=9 kernelpagesize_kB=4
7f20 interleave:0-1 file=/anon_hugepage huge dirty=2 N1=2 kernelpagesize_kB=2048
7f30 default anon=1 dirty=1 N0=1
7f40 default heap anon=5 dirty=5 N0=5 kernelpagesize_kB=4
"""


@pytest.mark.parametrize("parent", ["4", ""])
def test_a_process_is_what_its_files_say(tmp_path, parent):
    """Memory is what it has to itself: anonymous pages and hugepages."""
    folder = tmp_path / "proc/7"
    folder.mkdir(parents=True)
    (folder / "status").write_text(
        f"Name:\tserver\nPPid:\t{parent}\nCpus_allowed_list:\t2-3\nMems_allowed_list:\t0-1\n"
    )
    (folder / "numa_maps").write_text(NUMA_MAPS)
    assert read_process(tmp_path, 7) == Process(
        7,
        name="server",
        parent=int(parent or 0),
        cpus=CPUSet([2, 3]),
        mems=CPUSet([0, 1]),
        memory={0: (1 + 5) << 12, 1: (2 << 12) + (2 << 21)},
    )


@pytest.mark.parametrize("status", ["Name:\tx\n", "Cpus_allowed_list:\t0\nKthread:\t1\n"])
def test_threads_of_the_kernel_and_what_cannot_be_read_are_no_processes(tmp_path, status):
    folder = tmp_path / "proc/7"
    folder.mkdir(parents=True)
    (folder / "status").write_text(status)
    assert read_process(tmp_path, 7) is None
    assert read_process(tmp_path, 8) is None


def write_process(root, pid, *arguments, comm="kubelet"):
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{comm}\n")
    (folder / "cmdline").write_text("".join(f"{word}\0" for word in arguments))


def test_the_one_kubelet_is_found(tmp_path):
    write_process(tmp_path, 1, "/sbin/init", comm="systemd")
    write_process(
        tmp_path,
        70,
        "/usr/bin/kubelet",
        "--config=/etc/k.yaml",
        "--root-dir",
        "/data/kubelet",
        "-v=4",
    )

    kubelet = find_kubelet(tmp_path)
    assert (kubelet.pid, kubelet.flags.config, kubelet.flags.root_dir) == (
        70,
        "/etc/k.yaml",
        "/data/kubelet",
    )


def test_none_and_several_are_none(tmp_path):
    assert find_kubelet(tmp_path) is None
    write_process(tmp_path, 70, "kubelet")
    write_process(tmp_path, 71, "kubelet")
    with pytest.warns(AlignupWarning, match=r"several kubelets run here \(processes 70, 71\)"):
        assert find_kubelet(tmp_path) is None


def test_flags_become_fields():
    kubelet = kubelet_of(
        1,
        [
            "kubelet",
            "--cpu-manager-policy-options=full-pcpus-only=true",
            "--cpu-manager-policy-options=strict-cpu-reservation=true",
            "--reserved-cpus=0-1",
            "--reserved-memory=0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=2Gi",
            "--system-reserved",
            "cpu=1,memory=2Gi",
            "--eviction-hard=memory.available<100Mi",
            "--topology-manager-scope=pod",
            "--register-node",
        ],
    )

    assert kubelet.flags.fields == {
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true", "strict-cpu-reservation": "true"},
        "reservedSystemCPUs": "0-1",
        "reservedMemory": [
            {"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-2Mi": "4Mi"}},
            {"numaNode": 1, "limits": {"memory": "2Gi"}},
        ],
        "systemReserved": {"cpu": "1", "memory": "2Gi"},
        "evictionHard": {"memory.available": "100Mi"},
        "topologyManagerScope": "pod",
    }


@pytest.mark.parametrize(
    "flag", ["--feature-gates=A=maybe", "--reserved-memory=memory=1Gi", "--kube-reserved=cpu"]
)
def test_values_that_no_kubelet_takes_are_one_line(flag):
    with pytest.raises(InputError, match=flag.partition("=")[0]):
        kubelet_of(1, ["kubelet", flag])
