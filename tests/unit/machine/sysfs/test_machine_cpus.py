"""CPUs, cores and sockets, as kernels old and new describe them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.machine.bits import bit_numbers
from alignup.machine.sysfs.machine import cores, cpu_numbers, cpu_set, partition, sockets
from alignup.machine.sysfs.tree import MemoryTree
from inputs.kernel_trees import CPU, mask, server

CORE = ("core_cpus", "core_cpus_list", "thread_siblings", "thread_siblings_list")


def tree(files):
    return MemoryTree("test", files)


def numbers(bits):
    return list(bit_numbers(bits))


def groups(masks):
    return [numbers(mask) for mask in masks]


def test_cpus_are_those_that_have_a_folder_and_are_online():
    """`online` may be stale, and a folder may be of a CPU that is off."""
    files = server() | {f"{CPU}/online": "1-99\n"}
    online_cpus, offline_cpus = cpu_numbers(tree(files))

    assert numbers(online_cpus) == [1, 2, 3, 4, 5, 6, 7]
    assert numbers(offline_cpus) == [0]


@pytest.mark.parametrize("online", [None, "", "rubbish"])
def test_without_a_list_each_cpu_says_whether_it_is_online(online):
    """A CPU that does not say is one that cannot be unplugged."""
    files = server() | {f"{CPU}/cpu3/online": "0\n", f"{CPU}/cpu4/online": "1\n"}
    if online is None:
        del files[f"{CPU}/online"]
    else:
        files[f"{CPU}/online"] = online
    online_cpus, offline_cpus = cpu_numbers(tree(files))

    assert numbers(offline_cpus) == [3]
    assert online_cpus == 0b11110111


def test_other_folders_are_no_cpus():
    """`cpufreq`, `cpuidle` and numbers that no kernel has."""
    files = server() | {f"{CPU}/{name}/x": "" for name in ("cpufreq", "cpu-1", "cpu99999", "acpu1")}

    assert cpu_numbers(tree(files))[0] == 0b11111111


def test_without_folders_the_list_or_cpuinfo_must_do():
    """Kernels before sysfs had only the latter."""
    assert cpu_numbers(tree({f"{CPU}/online": "0-1"}))[0] == 3
    assert cpu_numbers(tree({"proc/cpuinfo": "processor\t: 0\nx : 1\n\nprocessor\t: 2\n"}))[0] == 5
    assert cpu_numbers(tree({"proc/cpuinfo": "cpu: Alpha\n"}))[0] == 0
    assert cpu_numbers(tree({}))[0] == 0


@pytest.mark.parametrize("name", CORE)
def test_siblings_are_found_under_any_of_their_names(name):
    """New kernels, old kernels, masks only and lists only."""
    text = "5\n"
    if name.endswith("list"):
        text = "0,2\n"
    siblings = cpu_set(tree({f"t/{name}": text}), "t", *CORE)

    assert siblings == 5


def test_masks_win_over_lists_and_new_names_over_old():
    """And rubbish is passed over."""
    files = {"t/core_cpus": "rubbish", "t/core_cpus_list": "0-1", "t/thread_siblings": "f"}

    assert cpu_set(tree(files), "t", *CORE) == 3
    assert cpu_set(tree(files | {"t/core_cpus": "1"}), "t", *CORE) == 1
    assert cpu_set(tree({}), "t", *CORE) is None


def test_cores_are_siblings_that_are_online():
    """(package, core id) is the same for two cores here, and siblings name an offline CPU."""
    files = server()
    files |= {f"{CPU}/cpu{cpu}/topology/core_id": "0\n" for cpu in range(8)}

    assert groups(cores(tree(files), 0b11101111)) == [[0], [1, 5], [2, 6], [3, 7]]


def test_a_cpu_without_topology_is_a_core():
    files = {path: text for path, text in server().items() if "cpu5/topology" not in path}
    del files[f"{CPU}/cpu1/topology/core_cpus"]

    assert groups(cores(tree(files), 255)) == [[0, 4], [1], [2, 6], [3, 7], [5]]


def amd_modules(family, vendor="AuthenticAMD"):
    """Return a machine whose siblings have core ids of their own."""
    files = server() | {f"{CPU}/cpu{cpu}/topology/core_id": f"{cpu}\n" for cpu in range(8)}
    files["proc/cpuinfo"] = (
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel : 1\n"
    )
    return files


@pytest.mark.parametrize("family", [21, 22])
def test_the_two_cores_of_an_amd_module_are_two_cores(family):
    """Families 15h and 16h call them siblings."""
    assert groups(cores(tree(amd_modules(family)), 255)) == [[cpu] for cpu in range(8)]


def test_siblings_of_other_processors_are_threads():
    """Even if their core ids differ, or if an AMD module's threads share one."""
    assert len(cores(tree(amd_modules(23)), 255)) == 4
    assert len(cores(tree(amd_modules(21, "GenuineIntel")), 255)) == 4
    files = amd_modules(21) | {f"{CPU}/cpu{cpu}/topology/core_id": "1\n" for cpu in range(8)}
    assert len(cores(tree(files), 255)) == 4
    files = amd_modules(21)
    del files["proc/cpuinfo"]
    assert len(cores(tree(files), 255)) == 4


def test_sockets_have_the_kernels_number():
    """Which may be large, and start above 0."""
    files = server()
    for cpu in range(8):
        socket = "36"
        if cpu % 4 > 1:
            socket = "8442"
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = socket

    assert sockets(tree(files), 255) == {36: 0b00110011, 8442: 0b11001100}


def test_sockets_without_a_number_get_a_free_one():
    """-1, missing, or the same number twice: the siblings tell them apart."""
    files = server(sockets=4, cores=1, threads=1)
    for cpu, number in enumerate(["-1", "0", "0", None]):
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = number or ""

    assert sockets(tree(files), 15) == {0: 2, 1: 1, 2: 4, 3: 8}


def test_without_siblings_the_number_tells_sockets_apart():
    """And CPUs of which nothing is known are in one socket."""
    files = {path: text for path, text in server().items() if "package_cpus" not in path}

    assert sockets(tree(files), 255) == {0: 0b00110011, 1: 0b11001100}
    assert sockets(tree({}), 7) == {0: 7}


@given(
    st.integers(1, 2**16 - 1),
    st.lists(st.none() | st.integers(0, 2**16 - 1), min_size=16, max_size=16),
)
def test_groups_are_a_partition_whatever_the_files_say(cpus, claims):
    """Every CPU is in one group, and the first of each group is asked."""
    groups_by_first = list(partition(cpus, claims.__getitem__))
    union = 0
    for first, group in groups_by_first:
        assert group & -group == 1 << first
        assert not union & group
        union |= group

    assert union == cpus


def test_masks_of_the_helper_are_the_kernels():
    assert mask([0, 33]) == "00000002,00000001\n"
