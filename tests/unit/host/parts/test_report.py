"""A binding in a line: CPUs as sockets, cores and threads."""

from __future__ import annotations

import io
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup import split
from alignup.host.parts.report import cores_text, is_wanted, say_binding
from alignup.machine.cpuset import CPUSet
from alignup.machine.load import load_machine
from inputs import leasing
from inputs.strategies import examples

GROUP = re.compile(r"core ([0-9,-]+)(?:\[hwt ([0-9,-]+)\])?")


def cpus_of(text, machine):
    """Return the CPUs that the cores of a line stand for, by a plain count of the cores."""
    cores = sorted(
        ((core.socket, core.cpus) for node in machine.numa_nodes for core in node.cores),
    )
    cpus = set()
    for numbers, threads in GROUP.findall(text):
        for number in CPUSet.parse(numbers):
            core_cpus = cores[number][1]
            cpus.update(core_cpus[thread] for thread in CPUSet.parse(threads or "0"))
    return cpus


@pytest.mark.parametrize(
    "name", ["align-up-article", "dgx-h100", "epyc-2s-nps4", "gb200", "xeon-2s"]
)
def test_parts_of_real_machines_are_their_cores(name):
    machine = load_machine(name).machine
    for part in split(machine, 4):
        text = cores_text(machine, part.cpus)
        assert cpus_of(text, machine) == set(part.cpus)
        assert f"(CPUs {part.cpus})" in text
        assert text.endswith(",".join(map(str, part.numa_nodes)))


@given(data=st.data())
@examples(60)
def test_any_cpus_are_their_cores(data):
    nodes, cores, threads = (data.draw(st.integers(1, 4)) for _ in range(3))
    machine = leasing.machine(nodes, cores, threads)
    cpus = data.draw(st.sets(st.integers(0, nodes * cores * threads - 1), min_size=1))
    text = cores_text(machine, CPUSet(cpus))
    assert cpus_of(text, machine) == cpus


def test_cpus_of_no_core_are_shown_by_number():
    assert cores_text(leasing.machine(), CPUSet([99])) == "no core that is known (CPUs 99)"


@pytest.mark.parametrize(
    ("value", "wanted"), [(None, False), ("", False), ("0", False), ("1", True), ("yes", True)]
)
def test_the_variable_asks_for_the_line(monkeypatch, value, wanted):
    if value is None:
        monkeypatch.delenv("ALIGNUP_REPORT_BINDINGS", raising=False)
    else:
        monkeypatch.setenv("ALIGNUP_REPORT_BINDINGS", value)
    assert is_wanted() == wanted


def test_devices_stand_behind_the_cores(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    devices = {"b/nic": ("nic0",), "a/gpu": ("gpu0", "gpu1")}
    say_binding("rank 1 of 2", CPUSet([0]), devices, pid=7, machine=leasing.machine())
    assert re.fullmatch(
        r"\[[^]]+:7\] rank 1 of 2 bound to socket 0\[core 0\[hwt 0\]\] \(CPUs 0\), NUMA node 0; "
        r"a/gpu gpu0, gpu1; b/nic nic0\n",
        written.getvalue(),
    )


def test_a_process_without_standard_error_goes_on(monkeypatch):
    """So is one that was started by `pythonw`-like launchers, or whose terminal is gone."""

    class Gone:
        def write(self, _text):
            raise OSError

    for stream in (None, Gone()):
        monkeypatch.setattr(sys, "stderr", stream)
        say_binding("rank 0 of 1", CPUSet([0]), {}, machine=leasing.machine())
