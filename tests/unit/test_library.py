"""What a user of the library may expect of its records.

They copy, pickle, print short, and warn about his own line.
"""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
import warnings
from typing import Any

import pytest

import alignup
from alignup import (
    AlignupWarning,
    ConfigError,
    Explanation,
    InputError,
    KubeletConfig,
    Node,
    Suggestion,
    explain,
    read_pod,
)
from alignup.node.holdings import holdings_of
from inputs.machines import busy_node, machine_of, manifest


def records() -> dict[str, Any]:
    node = busy_node()
    admission = node.admit(manifest("a", 2, 1, 1))
    explanation = explain(node, manifest("b", 50, 1, 1))
    return {
        "machine": node.machine,
        "config": node.config,
        "pod": node.pods[0],
        "admission": admission,
        "explanation": explanation,
        "suggestion": explanation.suggestions[0],
        "hint": admission.containers["c0"].affinity,
        "holdings": holdings_of(node),
    }


RECORDS = records()


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize(
    "through",
    [copy.deepcopy, lambda record: pickle.loads(pickle.dumps(record))],  # noqa: S301  # our own
)
def test_records_are_copied_and_pickled(name: str, through: Any) -> None:
    assert through(RECORDS[name]) == RECORDS[name]


def test_what_is_not_pickled_says_so_in_a_line() -> None:
    node = busy_node()
    with pytest.raises(TypeError, match=r"nodes are not pickled: make one with Node\.from_dict"):
        pickle.dumps(node)
    refused = node.try_admit(manifest("b", 50, 1, 1))
    with pytest.raises(TypeError, match=r"not pickled: use Admission\.to_dict"):
        pickle.dumps(refused)
    assert copy.deepcopy(refused).message == refused.message


def test_a_deep_copy_of_a_node_goes_its_own_way() -> None:
    node = busy_node()
    copied = copy.deepcopy(node)
    assert copied.admit(manifest("a", 2, 1, 1))
    assert (len(node.pods), len(copied.pods)) == (0, 1)


def test_explanations_and_suggestions_print_short() -> None:
    explanation, suggestion = RECORDS["explanation"], RECORDS["suggestion"]
    assert isinstance(explanation, Explanation)
    assert isinstance(suggestion, Suggestion)
    assert str(explanation).startswith("<Explanation: default/b refused, TopologyAffinityError: ")
    assert str(suggestion) == f"<Suggestion: {suggestion.text}>"
    assert len(str(explanation)) < 300


def test_records_print_in_a_line() -> None:
    machine = alignup.read_machine("gb200")
    assert all(len(repr(node)) < 120 for node in machine.numa_nodes)
    assert repr(alignup.read_machine("xeon-2s").numa_nodes[1]) == (
        "<NumaNode 1 of 64 CPUs, 262144 MiB>"
    )
    pod = alignup.read_pod(
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    )
    assert repr(pod) == "<Pod default/p of 1 container, BestEffort>"
    config = alignup.KubeletConfig.from_dict(
        {"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}
    )
    assert repr(config) == (
        "KubeletConfig(topology_manager_policy='restricted', topology_manager_scope='pod')"
    )


@pytest.mark.parametrize("name", ["Pod", "Machine", "KubeletConfig", "Device", "Explanation"])
def test_signatures_show_no_addresses(name: str) -> None:
    assert "object at 0x" not in str(inspect.signature(getattr(alignup, name)))


MACHINE = alignup.read_machine("xeon-2s")
MANIFEST: dict[str, Any] = {
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: alignup.Node(MACHINE, devices={"x": ["a"]}),  # type: ignore[list-item]
            "expected a device with an id and its NUMA nodes, got 'a' at devices",
        ),
        (
            lambda: alignup.explain(MANIFEST, alignup.Node(MACHINE)),  # type: ignore[arg-type]
            "explain takes the node first",
        ),
        (
            lambda: alignup.Node(MACHINE, providers=42),  # type: ignore[arg-type]
            "providers are several hint providers, not 42",
        ),
        (alignup.lease, "some CPUs, memory or devices to take"),
        (lambda: alignup.read_pod("pod.yaml"), "read_pods reads files"),  # type: ignore[arg-type]
    ],
)
def test_arguments_of_another_kind_are_told_in_words(call: Any, words: str) -> None:
    with pytest.raises((InputError, TypeError), match=words):
        call()


def test_the_catalog_can_be_listed() -> None:
    names = alignup.machines()
    assert list(names) == sorted(names)
    assert all(alignup.read_machine(name).numa_nodes for name in names)


def test_a_notebook_shows_machines_admissions_and_explanations() -> None:
    program = (
        "import sys, types\n"
        "sys.modules['IPython'] = types.ModuleType('IPython')\n"
        "import alignup\n"
        "machine = alignup.read_machine('xeon-2s')\n"
        "node = alignup.Node(machine)\n"
        "pod = {'metadata': {'name': 'p'}, 'spec': {'containers': [{'name': 'c'}]}}\n"
        "shown = [machine, alignup.explain(node, pod), node.admit(pod)]\n"
        "print([type(record).__name__ for record in shown if '<' in record._repr_html_()])\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(  # noqa: S603  # our own interpreter
        command, check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "['Machine', 'Explanation', 'Admission']\n"


def test_devices_may_be_mappings() -> None:
    node = Node(machine_of(2, 2), {}, {"g/a": [{"id": "a0", "numa": 1}]})
    assert node.devices
    assert node.devices.pools["g/a"].devices[0].numa_nodes == (1,)
    with pytest.raises(InputError, match=r"devices\['g/a'\]\[0\]"):
        Node(machine_of(2, 2), {}, {"g/a": [{"numa": 1}]})


@pytest.mark.parametrize(
    "issue",
    [
        lambda: KubeletConfig.from_dict({"topologyManagerPolcy": "none"}),
        lambda: Node(machine_of(1, 1), {"nonsense": 1}),
        lambda: Node.from_dict({"machine": machine_of(1, 1), "kublet": {}}),
        lambda: read_pod(
            {
                "metadata": {"name": "p"},
                "spec": {"containers": [{"name": "c"}], "resourceClaims": [{"name": "x"}]},
            }
        ),
        lambda: Node({**machine_of(1, 1), "kubelet": {"maxPods": 1}}),
    ],
)
def test_warnings_point_to_the_caller(issue: Any) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        issue()
    assert seen
    assert {(warning.category, warning.filename) for warning in seen} == {
        (AlignupWarning, __file__)
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"topology_manager_policy": "strict"},
        {"topology_manager_scope": "node"},
        {"cpu_manager_policy": "Static"},
        {"memory_manager_policy": "static"},
    ],
)
def test_a_configuration_is_checked_when_it_is_made(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"at {next(iter(fields))}"):
        KubeletConfig(**fields)


def test_the_package_shows_its_names_and_no_more() -> None:
    assert dir(alignup) == sorted([*alignup.__all__, "__version__"])
