"""Corner scenarios in which kubelet and alignup parted once.

Now as the kubelet, or as `docs/deviations.md` says.

`recorded_deviations.json` holds, by scenario and step, each field of our answer that is not the
kubelet's: all else must be the kubelet's to the letter. Scenarios that are not recorded there
(`ALIGNUP_VECTORS` may bring others) may differ where a row of the table is about machines or pods
like theirs.
"""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from alignup import read_pod
from alignup.node import Node
from alignup.replay import replay
from checks.many_cases import check_each
from inputs.vectors import corner_cases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alignup.machine.cpuset import CPUSet

pytestmark = pytest.mark.filterwarnings("ignore::alignup.errors.AlignupWarning")

PAGE = Path(__file__).parents[2] / "docs" / "deviations.md"
RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).with_name("recorded_deviations.json")).read_text(encoding="utf-8")
)
"""By scenario: the row of the table of deviations, and by step the fields of ours that differ."""

CASES = {case["name"]: case for case in corner_cases()}
PLAIN = {
    name: case
    for name, case in CASES.items()
    if "expect" in case and "scenario_as_the_kubelet_sees_it" not in case
}


def sizes_differ(machine: dict[str, Any]) -> bool:
    """Return whether cores, or sockets, are of different sizes."""
    cores = [core for node in machine["numaNodes"] for core in node["cores"]]
    sockets: dict[int, int] = {}
    for core in cores:
        sockets[core["socket"]] = sockets.get(core["socket"], 0) + len(core["cpus"])
    return len({len(core["cpus"]) for core in cores}) > 1 or len(set(sockets.values())) > 1


def nodes_cross_sockets(machine: dict[str, Any]) -> bool:
    """Return whether NUMA nodes and sockets cross.

    Some NUMA node has cores of several sockets, and some socket has cores of several nodes.
    """
    of_node = [{core["socket"] for core in node["cores"]} for node in machine["numaNodes"]]
    shared = any(first & second for first, second in combinations(of_node, 2))
    return shared and any(len(sockets) > 1 for sockets in of_node)


def deviations_of(case: dict[str, Any]) -> set[str]:
    """Return the rows of the table of deviations that a scenario may fall under.

    They are named by their anchors.
    """
    scenario = case["scenario"]
    uids = [step["admit"]["metadata"]["uid"] for step in scenario["steps"] if "admit" in step]
    options = scenario["kubelet"].get("cpuManagerPolicyOptions", {})
    applies = {
        "sizes": sizes_differ(scenario["machine"]),
        "sockets": nodes_cross_sockets(scenario["machine"]),
        "strict": sizes_differ(scenario["machine"])
        and options.get("strict-cpu-reservation") == "true",
        "uid": len(uids) > len(set(uids)),
        "panic": any("panic" in step for step in case["expect"]),
    }
    return {name for name, is_so in applies.items() if is_so}


def differences(case: dict[str, Any]) -> Iterator[int]:
    """Yield the steps of which an answer differs from the kubelet's."""
    answers = replay(case["scenario"])
    for index, (step, expected) in enumerate(zip(answers["steps"], case["expect"], strict=True)):
        if summary(step, step["containers"]) != summary(expected, expected.get("containers") or {}):
            yield index


def summary(step: dict[str, Any], containers: dict[str, Any]) -> dict[str, Any]:
    """Return what an answer says of the verdict and of what an admitted pod got.

    It is in one form for our answers and for the recorded ones.
    """
    got = {}
    for name, container in containers.items() if step["admitted"] else ():
        blocks = [
            (tuple(b.get("numa", b.get("numaNodes"))), b["type"], b["size"])
            for b in container["memory"] or ()
        ]
        got[name] = (
            container["cpus"],
            sorted(blocks, key=lambda block: block[1]),
            container["devices"] or {},
        )

    return {
        "admitted": step["admitted"],
        "reason": step.get("reason", ""),
        "sharedCpus": step["sharedCpus"],
        "containers": got,
    }


def plain_hints(hints: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return hints by provider and resource in one form for both.

    Each as [NUMA node ids, preferred], sorted.
    """
    if hints is None:
        return None

    def plain(listed: list[dict[str, Any]] | None) -> list[list[Any]] | None:
        if listed is None:
            return None
        pairs = [[hint.get("numa", hint.get("numaNodes")), hint["preferred"]] for hint in listed]
        return sorted(pairs, key=str)

    return {
        provider: resources and {resource: plain(listed) for resource, listed in resources.items()}
        for provider, resources in hints.items()
    }


def whole(step: dict[str, Any]) -> dict[str, Any]:
    """Return all that an answer says but for sentences, hints included.

    It is in one form for our answers and for the recorded ones, and as JSON has it.
    """
    containers = step.get("containers") or {}
    fields = summary(step, containers) | {"podHints": plain_hints(step.get("podHints"))}
    fields |= {
        f"hints of {name}": plain_hints(container.get("hints"))
        for name, container in sorted(containers.items())
    }
    plain: dict[str, Any] = json.loads(json.dumps(fields))
    return plain


def parted(case: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return by step each field of ours that differs from the kubelet's."""
    answers = replay(case["scenario"], with_hints=True)["steps"]
    differences = {}
    for index, (step, expected) in enumerate(zip(answers, case["expect"], strict=True)):
        ours, theirs = whole(step), whole(expected)
        fields = {name: value for name, value in ours.items() if value != theirs.get(name)}
        if fields:
            differences[str(index)] = fields
    return differences


def held_at_once(scenario: dict[str, Any]) -> Iterator[list[tuple[str, CPUSet]]]:
    """Yield after each step the exclusive CPUs of all containers that run at the same time."""
    node = Node.from_dict(scenario)
    refused = set()
    for step in scenario["steps"]:
        if "admit" in step:
            pod = read_pod(step["admit"])
            if not node.admit(pod).admitted:
                refused.add(pod.uid)
        elif step["remove"] not in refused:
            node.remove(step["remove"])

        yield [
            (f"{pod.uid}/{container.name}", cpus)
            for pod in node.pods
            for container in pod.all_containers
            if container.is_sidecar or not container.is_init
            if (cpus := node.allocation(pod.uid, container.name).cpus) is not None
        ]


def test_a_corner_ends_as_in_the_kubelet_or_as_the_table_of_deviations_says() -> None:
    def ends_so(case: dict[str, Any]) -> None:
        parted = list(differences(case))
        assert not parted or deviations_of(case), f"step {parted[0]} differs"
        if parted and case.get("step") is not None:
            assert parted[0] >= case["step"]

    check_each(ends_so, [(name, (case,)) for name, case in PLAIN.items()])


def test_a_recorded_corner_is_the_kubelets_but_for_what_is_recorded() -> None:
    foreign = []

    def is_the_kubelets(name: str, case: dict[str, Any]) -> None:
        differences = parted(case)
        if differences and name not in RECORDED and deviations_of(case):
            foreign.append(name)
        else:
            assert differences == RECORDED.get(name, {"steps": {}})["steps"]

    check_each(is_the_kubelets, [(name, (name, case)) for name, case in PLAIN.items()])
    if foreign:
        pytest.skip(f"not of the repository's own: {foreign}")


def test_the_table_names_each_recorded_deviation_and_no_other() -> None:
    rows = re.findall(
        r"^\| `([\w-]+)` \| \[[^]]+\]\(#(\w+)\) \| ([\d, ]+) \|", PAGE.read_text(), re.MULTILINE
    )
    assert {name: (row, steps) for name, row, steps in rows} == {
        name: (record["row"], ", ".join(record["steps"])) for name, record in RECORDED.items()
    }
    assert all(f'id="{record["row"]}"' in PAGE.read_text() for record in RECORDED.values())


def test_no_cpu_is_given_twice_in_any_corner() -> None:
    for name, case in PLAIN.items():
        for holdings in held_at_once(case["scenario"]):
            for (first, cpus), (second, second_cpus) in combinations(holdings, 2):
                assert not int(cpus) & int(second_cpus), (
                    f"{name}: {first} and {second} share {cpus} and {second_cpus}"
                )


@pytest.mark.parametrize("name", ["hand-memory-512m", "hand-device-on-node-minus-one"])
def test_what_differed_once_is_the_kubelets_now(name: str) -> None:
    """These were mistakes of ours."""
    if name in PLAIN:
        assert list(differences(PLAIN[name])) == []


def test_every_deviation_has_its_row() -> None:
    """The page names each kind, and each recorded scenario that differs."""
    page = PAGE.read_text()
    for name, case in PLAIN.items():
        if any(differences(case)):
            assert all(f'id="{kind}"' in page for kind in deviations_of(case)), name


def test_uncore_caches_are_what_cadvisor_reports() -> None:
    """With the field that discovery fills in, the CPUs are the kubelet's.

    That is so although `l3` says otherwise.
    """
    case = CASES.get("l3node-204")
    if case is None:
        pytest.skip("the vectors lack this case")
    scenario = json.loads(json.dumps(case["scenario"]))
    for node in scenario["machine"]["numaNodes"]:
        for core in node["cores"]:
            core["uncoreCache"] = core["socket"]

    assert replay(scenario)["steps"] == replay(case["scenario_as_the_kubelet_sees_it"])["steps"]
    assert replay(scenario)["steps"][0]["containers"]["c0"]["cpus"] == case["kubelet"]
    assert replay(case["scenario"])["steps"][0]["containers"]["c0"]["cpus"] == "2,6"
