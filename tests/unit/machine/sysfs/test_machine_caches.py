"""L3 groups, and what of them a kubelet sees."""

from __future__ import annotations

from alignup.machine.machine import Machine
from alignup.machine.sysfs.machine import cores, describe, l3_groups
from alignup.machine.sysfs.tree import MemoryTree
from alignup.node import Node
from inputs.kernel_trees import CPU, mask, server


def l3_groups_of(files, online=255):
    tree = MemoryTree("test", files)
    return l3_groups(tree, online, cores(tree, online))


def l3_files(files, name, text):
    """Change one file of the L3 cache of every CPU."""
    return files | {f"{CPU}/cpu{cpu}/cache/index3/{name}": text for cpu in range(8)}


def test_cpus_that_share_an_l3_are_a_group():
    """Without those that are offline."""
    assert l3_groups_of(server()) == [0b00110011, 0b11001100]
    assert l3_groups_of(server(), 0b11111101) == [0b00110001, 0b11001100]


def test_the_number_of_a_cache_is_not_its_level():
    """An L2 at index 3 is none, and an L3 at index 12 is one."""
    assert l3_groups_of(l3_files(server(), "level", "2\n")) == []
    moved = {path.replace("index3", "index12"): text for path, text in server().items()}
    assert len(l3_groups_of(moved)) == 2


def test_a_cache_of_instructions_or_of_no_size_is_none():
    """The latter is how Knights Landing shows a cache that it lacks."""
    assert l3_groups_of(l3_files(server(), "type", "Instruction\n")) == []
    assert l3_groups_of(l3_files(server(), "size", "0K\n")) == []


def test_lists_do_where_masks_are_missing():
    files = {path: text for path, text in server().items() if not path.endswith("shared_cpu_map")}

    assert l3_groups_of(l3_files(files, "shared_cpu_list", "0-7\n")) == [255]


def test_a_cache_that_nobody_shares_is_the_cores_own():
    """Itanium's masks are all zero."""
    assert l3_groups_of(l3_files(server(), "shared_cpu_map", "0\n")) == [
        0b10001,
        0b100010,
        0b1000100,
        0b10001000,
    ]


def test_cpus_without_caches_are_in_no_group():
    """A machine may tell of the caches of one socket only."""
    silent = tuple(f"{CPU}/cpu{cpu}/cache" for cpu in (0, 1, 4, 5))
    files = {path: text for path, text in server().items() if not path.startswith(silent)}

    assert l3_groups_of(files) == [0b11001100]
    assert l3_groups_of({}) == []


def with_ids(files, ids):
    """Give every cache an id: index 3 those of `ids` by CPU, the others the CPU's number."""
    for path in list(files):
        if path.endswith("/level"):
            cpu = int(path.split("/cpu")[2].split("/")[0])
            number = cpu
            if "/index3/" in path:
                number = ids[cpu]
            files[path.removesuffix("level") + "id"] = f"{number}\n"

    return files


def uncore_caches(files):
    """Return the uncore cache of each core, by NUMA node."""
    machine = describe(MemoryTree("test", files))
    return [[core.uncore_cache for core in node.cores] for node in machine.numa_nodes]


def test_a_cache_of_just_one_numa_node_is_no_uncore_cache():
    """Cadvisor calls it the node's; the kubelet then groups by socket.

    `l3` tells of it all the same.
    """
    files = with_ids(server(), [7, 7, 9, 9] * 2)
    assert uncore_caches(files) == [[0, 0], [1, 1]]
    assert {
        core.l3 for node in describe(MemoryTree("test", files)).numa_nodes for core in node.cores
    } == {0, 1}


def test_other_l3_caches_are_uncore_caches_by_their_ids():
    """A cache of a part of a node, or of several nodes."""
    assert uncore_caches(with_ids(server(nodes=1), [7, 7, 9, 9] * 2)) == [[7, 7, 9, 9]]
    assert uncore_caches(with_ids(server(nodes=4), [7, 7, 9, 9] * 2)) == [[7], [7], [9], [9]]


def test_caches_without_an_id_are_not_seen():
    """Nor are those of the cores of the node that cadvisor reads after them."""
    assert uncore_caches(server(nodes=1)) == [[0, 0, 1, 1]]
    files = with_ids(server(nodes=1), [7, 7, 9, 9] * 2)
    del files[f"{CPU}/cpu2/cache/index0/id"]
    assert uncore_caches(files) == [[7, 7, 1, 1]]


def test_cores_are_read_in_the_order_of_their_numbers_as_text():
    """As cadvisor does.

    Where the id of CPU 10's cache is missing, CPU 2's is not seen any more, and CPU 1's is.
    """
    files = server(sockets=1, cores=12, threads=1, nodes=1)
    for cpu in range(12):
        files[f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_map"] = mask([cpu & ~1, cpu | 1])
    files = with_ids(files, [20 + cpu // 2 for cpu in range(12)])
    del files[f"{CPU}/cpu10/cache/index3/id"]
    assert uncore_caches(files) == [[20, 20, *[0] * 10]]


def test_the_cpu_manager_aligns_to_what_the_kubelet_sees():
    """Its answers on a socket of two NUMA nodes, each with an L3 of its own.

    It is the conformance corner l3node-204.
    """
    files = with_ids(server(sockets=1, cores=4, nodes=2), [0, 0, 1, 1] * 2)
    for cpu in range(8):
        shared = [2, 3, 6, 7]
        if cpu % 4 < 2:
            shared = [0, 1, 4, 5]
        files[f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_map"] = mask(shared)

    machine = describe(MemoryTree("test", files))
    assert [[core.l3 for core in node.cores] for node in machine.numa_nodes] == [[0, 0], [1, 1]]
    kubelet = {
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "cpuManagerPolicyOptions": {"prefer-align-cpus-by-uncorecache": "true"},
    }
    limits = {"limits": {"cpu": "2", "memory": "64Mi"}}
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c0", "resources": limits}]}}
    for read in (machine, Machine.from_dict(machine.to_dict())):
        assert str(Node(read, kubelet).admit(pod).containers["c0"].cpus) == "1,5"
