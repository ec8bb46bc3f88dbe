"""The program and the agent's unit on a Linux with systemd as PID 1 and real NUMA nodes.

They are virtual machines. `ALIGNUP_VM` names a folder where their disk is built, and kept: see
`build-image`.

Each boot takes a minute without KVM, so all but the first tests share one machine, in which each
ends what it has started.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from campaign.systemd.virtual_machine import PATIENCE, Layout, VirtualMachine, new_disk

TWO = Layout((4, 4), (1024, 1024), device_node=1)
FOUR = Layout((2, 2, 2, 2), (512, 512, 512, 512), device_node=2)
WITHOUT_MEMORY = Layout((2, 2, 2, 2), (1024, 0, 512, 512), device_node=3)
AGENT = "alignup-agent"


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def disk(image, tmp_path_factory):
    return new_disk(image, tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="module")
def machine(image, disk):
    """A machine of four NUMA nodes whose agent runs."""
    with VirtualMachine(image, disk, FOUR) as machine:
        machine.run(f"systemctl enable --now {AGENT}")
        yield machine


def eventually(function):
    """Return what a function returns once that is true."""
    end = time.monotonic() + PATIENCE
    while not (value := function()):
        assert time.monotonic() < end
        time.sleep(1)
    return value


def leases(machine, user="root"):
    """Return the leases that a user sees, by name; an agent that starts is waited for."""

    def shown():
        done = machine.run(f"runuser -u {user} -- alignup ps --json", check=False)
        if done.status != 0:
            return None
        return (done.out,)

    (lines,) = eventually(shown)
    return {lease["name"]: lease for lease in map(json.loads, lines.splitlines())}


@contextmanager
def running(machine, **commands):
    """Let users run commands that last, as units of their names: `name="user options"`."""
    try:
        for name, user_and_options in commands.items():
            user, _, options = user_and_options.partition(" ")
            run = f"alignup run --name {name} {options} -- sleep 100000"
            machine.run(f"systemd-run --quiet --collect --uid={user} --unit={name} {run}")
        eventually(lambda: set(commands) <= set(leases(machine)))
        yield
    finally:
        # stopped ones may have been collected already
        machine.run(f"systemctl stop {' '.join(commands)}", check=False)
        eventually(lambda: not set(commands) & set(leases(machine)))


def is_active(machine, *units):
    return machine.run(f"systemctl is-active {' '.join(units)}", check=False).out.split() == [
        "active"
    ] * len(units)


def log(machine):
    """Return what the agent has logged since the boot, as records of the journal."""
    lines = machine.run(f"journalctl --boot --unit {AGENT} --output json").out.splitlines()
    return [record for record in map(json.loads, lines) if record.get("SYSLOG_IDENTIFIER") == AGENT]


def messages(machine):
    return [json.loads(record["MESSAGE"])["message"] for record in log(machine)]


@pytest.mark.parametrize(
    "layout", [TWO, WITHOUT_MEMORY], ids=["two nodes", "a node without memory"]
)
def test_the_machine_is_what_the_kernel_says_and_commands_are_bound(image, tmp_path, layout):
    with VirtualMachine(image, new_disk(image, tmp_path), layout) as machine:
        check_machine(machine, layout)
        for policy, mode in (("restricted", "bind"), ("best-effort", "prefer")):
            check_binding(machine, policy, mode)


def test_four_nodes_are_what_the_kernel_says(machine):
    check_machine(machine, FOUR)
    check_binding(machine, "restricted", "bind")


def check_machine(machine, layout):
    """Compare `alignup machine` with numactl, lscpu and the layout."""
    described = json.loads(machine.run("alignup machine --json").out)
    hardware = machine.run("numactl --hardware").out
    cores = cores_of_nodes(machine)
    rows = re.findall(r"^ +\d+: (.*)", hardware, re.MULTILINE)
    assert len(described["numaNodes"]) == len(layout.cpus)
    for node in described["numaNodes"]:
        number = node["id"]
        cpus, size = re.findall(
            rf"^node {number} (?:cpus|size): (.*?)(?: MB)?$", hardware, re.MULTILINE
        )
        assert sorted(cpu for core in node["cores"] for cpu in core["cpus"]) == list(
            map(int, cpus.split())
        )
        assert node["memory"] >> 20 == int(size)
        assert node["distances"] == list(map(int, rows[number].split()))
        assert {(core["socket"], *core["cpus"]) for core in node["cores"]} == cores[number]

    (card,) = (device for device in described["pciDevices"] if device["class"] == "0200")
    assert card["numaNode"] == layout.device_node


def cores_of_nodes(machine):
    """Return the cores of each node as lscpu has them: socket and CPUs."""
    cores = {}
    for line in machine.run("lscpu --parse=NODE,SOCKET,CORE,CPU | grep -v '#'").out.split():
        *core, cpu = map(int, line.split(","))
        cores.setdefault(tuple(core), []).append(cpu)
    nodes = {}
    for (node, socket, _), cpus in cores.items():
        nodes.setdefault(node, set()).add((socket, *cpus))
    return nodes


def check_binding(machine, policy, mode):
    """Let a command say where the kernel lets it run, and where its memory is from."""
    show = "echo $ALIGNUP_CPUS $ALIGNUP_NUMA_NODES; grep Cpus_allowed_list /proc/self/status; "
    show += "tail -1 /proc/self/numa_maps"
    out = machine.run(
        f"alignup run --policy {policy} --cpus 2 --memory 100Mi -- sh -c '{show}'"
    ).out
    lease, allowed, memory = out.splitlines()
    cpus, nodes = lease.split()
    assert allowed.split()[1] == cpus
    assert memory.split()[1] == f"{mode}:{nodes}"


def test_the_unit_is_sound_and_its_service_ready(machine):
    assert machine.run(f"systemd-analyze verify {AGENT}.service").err == ""
    assert is_active(machine, AGENT)
    show = machine.run(f"systemctl show --property Type,StatusText,KillMode {AGENT}").out
    assert "Type=notify" in show
    assert "StatusText=0 leases" in show
    assert (
        machine.run("stat --format '%A %U %G' /run/alignup/agent.sock").out
        == "srw-rw---- root alignup\n"
    )
    assert machine.run("stat --format '%A %U' /var/lib/alignup").out == "drwx------ root\n"


def test_users_see_and_take_what_they_may(machine):
    with running(machine, a="anna --cpus 2 --memory 32Mi", b="bert --cpus 2"):
        leases_of_bert = leases(machine, "bert")
        (foreign_lease,) = (lease for name, lease in leases_of_bert.items() if name != "b")
        assert (foreign_lease["name"], foreign_lease["pid"], foreign_lease["command"]) == (
            "(user 1000)",
            0,
            "",
        )
        for option in ("", "--force"):
            refused = machine.run(f"runuser -u bert -- alignup release {option} a", check=False)
            assert (refused.status, "expected the name of a lease" in refused.err) == (1, True)

        assert is_active(machine, "a")
        for read in ("cat /var/lib/alignup/leases.json.journal", "ls /run/alignup/device-plugins"):
            assert machine.run(f"runuser -u bert -- {read}", check=False).status != 0
        machine.run("runuser -u bert -- alignup release --force b")
        assert set(leases(machine)) == {"a"}


def test_who_is_not_in_the_group_cannot_ask(machine):
    for command in ("ps", "run --cpus 1 true", "release a"):
        refused = machine.run(f"runuser -u carl -- alignup {command}", check=False)
        assert refused.status != 0
        assert "permission denied" in refused.err


def test_limits_are_each_users(machine):
    override = f"/run/systemd/system/{AGENT}.service.d"
    start = machine.run(f"systemctl cat {AGENT} | grep ^ExecStart").out.strip()
    text = f"[Service]\\nExecStart=\\n{start} --limit cpus=3\\n"
    machine.run(
        f"mkdir -p {override} && printf '{text}' >{override}/limit.conf && systemctl daemon-reload"
    )

    try:
        machine.run(f"systemctl restart {AGENT}")
        with running(machine, a="anna --cpus 2"):
            refused = machine.run("runuser -u anna -- alignup run --cpus 2 true", check=False)
            assert "4 CPUs are more than the 3 that one user may have" in refused.err
            machine.run("runuser -u bert -- alignup run --cpus 3 true")
            machine.run("alignup run --cpus 6 true")
    finally:
        machine.run(f"rm -r {override} && systemctl daemon-reload && systemctl restart {AGENT}")


@pytest.mark.parametrize(
    "end",
    [
        f"systemctl restart {AGENT}",
        f"kill -KILL $(systemctl show --value --property MainPID {AGENT})",
    ],
)
def test_leases_and_commands_outlive_the_agent(machine, end):
    """Nothing is held twice after it, and what has ended is free."""
    with running(machine, a="anna --cpus 2 --memory 32Mi", b="bert --cpus 3"):
        before = leases(machine)
        pid = machine.run(f"systemctl show --value --property MainPID {AGENT}").out
        machine.run(end)
        eventually(lambda: is_active(machine, AGENT))
        assert machine.run(f"systemctl show --value --property MainPID {AGENT}").out != pid
        assert leases(machine) == before
        assert is_active(machine, "a", "b")
        machine.run("alignup run --cpus 3 true")
        refused = machine.run("alignup run --cpus 4 true", check=False)
        assert "too few CPUs are free: 4 asked, 3 free" in refused.err
    machine.run("alignup run --cpus 8 true")


def test_a_lease_lasts_as_long_as_anything_that_its_command_started(machine):
    """A daemon has another parent and session, and the same cgroup."""
    daemon = "setsid sleep 200000 >/dev/null 2>&1 &"
    machine.run(f"runuser -u anna -- alignup run --name d --cpus 2 -- sh -c '{daemon}'")
    cgroup = machine.run(
        "sed s/0::// /proc/$(pgrep --exact --full 'sleep 200000')/cgroup"
    ).out.strip()
    assert Path(cgroup).name.startswith("alignup-")
    assert set(leases(machine)) == {"d"}
    machine.run(f"kill -KILL $(systemctl show --value --property MainPID {AGENT})")
    assert set(leases(machine)) == {"d"}
    machine.run("pkill --exact --full 'sleep 200000'")
    eventually(lambda: not leases(machine))
    eventually(lambda: machine.run(f"test -e /sys/fs/cgroup{cgroup}", check=False).status == 1)


def test_limits_and_the_end_of_a_service_hold_for_its_command(machine):
    """Its cgroup is below that of the service."""
    with running(machine, a="anna --cpus 2"):
        machine.run("systemctl daemon-reload")
        (group,) = machine.run(
            "find /sys/fs/cgroup -path '*/a.service/alignup-*' -type d"
        ).out.split()
        assert machine.run(f"cat {group}/cgroup.procs").out.split()

    assert machine.run(f"test -e {group}", check=False).status == 1
    limits = "--property MemoryMax=64M --property MemorySwapMax=0"
    eats = "alignup run --name e --cpus 1 -- python3 -c 'print(len(bytearray(200 << 20)))'"
    killed = machine.run(
        f"systemd-run --quiet --wait --pipe --collect {limits} {eats}", check=False
    )
    assert (killed.status != 0, killed.out) == (True, "")
    assert leases(machine) == {}


def test_nothing_is_given_beside_an_agent_that_is_stopped(machine):
    with running(machine, a="anna --cpus 2"):
        machine.run(f"systemctl stop {AGENT}")
        assert is_active(machine, "a")
        failed = machine.run("runuser -u bert -- alignup run --cpus 1 echo given", check=False)
        assert (failed.status, failed.out) == (125, "")
        assert "start it again" in failed.err
        wait = "alignup run --wait --name b --cpus 2 -- sleep 100000"
        machine.run(f"systemd-run --quiet --collect --uid=bert --unit=b {wait}")
        machine.run(f"systemctl start {AGENT}")
        eventually(lambda: "b" in leases(machine))
        machine.run("systemctl stop b")


def test_a_boot_ends_leases_in_order_or_not_and_another_machine_is_said(image, disk, machine):
    """The last test: the machine is shut down, and its disk put into another one."""
    with running(machine, a="anna --cpus 2"):
        machine.reboot()
        eventually(lambda: is_active(machine, AGENT))

    assert leases(machine) == {}
    check_log(machine)
    machine.run(
        "systemd-run --quiet --collect --uid=anna --unit=a alignup run --name a --cpus 5 -- sleep "
        "100000"
    )
    eventually(lambda: "a" in leases(machine))
    machine.close()
    with VirtualMachine(image, disk, Layout((2, 2), (1024, 1024))) as second_machine:
        eventually(lambda: is_active(second_machine, AGENT))
        assert leases(second_machine) == {}
        logged = messages(second_machine)
        assert "1 lease ended with an earlier boot of this machine" in logged
        assert (
            "this machine has 4 CPUs, 2 NUMA nodes now, and had 8 CPUs, 4 NUMA nodes before"
            in logged
        )
        second_machine.run("alignup run --cpus 4 true")
        check_log(second_machine)


def check_log(machine):
    """See that each line is a record with its level, and none has a traceback."""
    priorities = {"critical": "2", "error": "3", "warning": "4", "info": "6"}
    for record in log(machine):
        line = json.loads(record["MESSAGE"])
        assert record["PRIORITY"] == priorities[line["level"]]
        assert "traceback" not in line
