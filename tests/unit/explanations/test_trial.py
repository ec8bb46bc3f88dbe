"""What happened when a pod was tried on a copy of a node, question by question."""

from __future__ import annotations

from typing import Any

import pytest

from alignup import read_pod
from alignup.errors import PodExistsError
from alignup.explanations.trial import emptied, has_users_providers, tried
from alignup.node.holdings import holdings_of
from alignup.records import replace
from fakes.hint_providers import Licences
from inputs.refusals import EXAMPLE_GPU, gpu_pod, node_of


def pod_of_two(first_cpus: str, second_cpus: str) -> Any:
    """Return a pod of two containers."""
    manifest = gpu_pod("new", cpu=first_cpus)
    second = gpu_pod("new", cpu=second_cpus)["spec"]["containers"][0]
    manifest["spec"]["containers"].append({**second, "name": "second"})
    return read_pod(manifest)


def test_an_admitted_pod_is_tried_and_the_node_stays_as_it_is() -> None:
    node = node_of()
    before = holdings_of(node)
    trial = tried(node, read_pod(gpu_pod("new", cpu="2", gpus=1)))

    assert trial.admission.admitted
    assert (holdings_of(node), node.pods) == (before, ())
    assert trial.before == before
    [holding] = trial.after.containers
    assert (holding.pod_uid, holding.cpus) == ("new", trial.allocations["main"].cpus)
    assert len(trial.allocations["main"].cpus) == 2

    [question] = trial.questions
    assert question.container.name == "main"
    assert question.affinity == trial.allocations["main"].affinity
    assert {resource for hints in question.hints.values() for resource in hints} == {
        "cpu",
        "memory",
        EXAMPLE_GPU,
    }


def test_a_later_question_counts_what_earlier_containers_were_given() -> None:
    """The refused container is the last that was asked about; what came before it was undone."""
    node = node_of()
    trial = tried(node, pod_of_two("6", "9"))
    first, second = trial.questions

    assert not trial.admission.admitted
    assert (first.container.name, second.container.name) == ("main", "second")
    assert [holding.cpus for holding in first.holdings.containers] == [None, None]
    assert [len(holding.cpus or ()) for holding in second.holdings.containers] == [6, 0]
    assert trial.after == second.holdings
    assert list(trial.allocations) == ["main"]
    assert first.affinity == trial.allocations["main"].affinity
    assert second.affinity == trial.admission.refusal.best


def test_a_pod_as_a_whole_is_one_question() -> None:
    node = node_of(topologyManagerScope="pod")
    trial = tried(node, pod_of_two("2", "3"))

    assert (trial.admission.admitted, trial.scope) == (True, "pod")
    [question] = trial.questions
    assert question.container is None
    assert question.affinity == trial.allocations["second"].affinity


def test_a_pod_with_a_policy_of_its_own_is_judged_by_it() -> None:
    node = node_of(topologyManagerPolicy="none")
    manifest = gpu_pod("new", cpu="2")
    spec = '{"numaTopologyPolicy": "Restricted"}'
    manifest["metadata"]["annotations"] = {"scheduling.koordinator.sh/numa-topology-spec": spec}
    trial = tried(node, read_pod(manifest))

    assert (trial.policy.name, trial.scope) == ("restricted", "pod")


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_a_provider_that_fails_to_allocate_is_named(scope: str) -> None:
    licences = Licences([1, 1], fails_for="main")
    node = node_of(topologyManagerScope=scope)
    node.manager.add_provider(licences)
    trial = tried(node, read_pod(gpu_pod("new", cpu="2")))

    assert not trial.admission.admitted
    assert [question.failed for question in trial.questions] == ["licences"]


def test_a_refusal_by_the_node_as_a_whole_says_what_the_node_offers() -> None:
    node = node_of(topologyManagerPolicy="none", cpuManagerPolicy="none")
    assert node.admit(gpu_pod("old", cpu="5"))
    node.whole_verdict = True
    trial = tried(node, read_pod(gpu_pod("new", cpu="15")))

    assert trial.admission.reason == "OutOfcpu"
    assert trial.limits is not None
    assert trial.after == trial.before
    assert [pod.uid for pod in trial.others] == ["old"]
    assert tried(node, read_pod(gpu_pod("new", cpu="1"))).limits is None


def test_a_pod_that_is_there_is_not_tried_again() -> None:
    node = node_of()
    assert node.admit(gpu_pod("old", cpu="2"))

    with pytest.raises(PodExistsError):
        tried(node, read_pod(gpu_pod("old", cpu="2")))


def test_an_emptied_node_has_neither_pods_nor_sick_devices() -> None:
    node = node_of()
    assert node.admit(gpu_pod("old", cpu="2", gpus=1))
    pool = node.pools[EXAMPLE_GPU]
    node.devices.update(EXAMPLE_GPU, [replace(device, healthy=False) for device in pool.reported])
    assert not node.try_admit(gpu_pod("new", cpu="1", gpus=1))

    empty_node = emptied(node)
    assert empty_node.pods == ()
    assert empty_node.admit(gpu_pod("new", cpu="8", gpus=2))
    assert [pod.uid for pod in node.pods] == ["old"]


def test_providers_of_users_are_told_from_those_of_the_kubelet() -> None:
    node = node_of()
    assert not has_users_providers(node)

    node.manager.add_provider(Licences([1, 1]))
    assert has_users_providers(node)
