"""What the API server is sent."""

from __future__ import annotations

import pytest

from alignup.control_plane.gates.decisions import Label, Release, patch_of
from alignup.control_plane.gates.node_affinity import required_terms
from inputs.keepers import SPREAD, keeper_of
from inputs.waiting_pods import waiting_pod


@pytest.mark.parametrize("relabels", [True, False])
@pytest.mark.parametrize("has_terms", [True, False])
def test_every_release_can_be_written_as_a_patch(relabels, has_terms) -> None:
    """Several candidates too, for a pod with terms of its own or without."""
    keeper = keeper_of("a", "b", "c", relabels=relabels)
    term = {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    affinity = {"nodeAffinity": required} if has_terms else None
    keeper.pod_seen(waiting_pod("p", cpu=4, spec={**SPREAD, "affinity": affinity}), 1)
    (release,) = filter(lambda decision: isinstance(decision, Release), keeper.decide(1))
    assert len(release.nodes) == (1 if has_terms and not relabels else 3)
    terms = required_terms(patch_of(release)["spec"]["affinity"])
    assert len(terms) == (1 if has_terms else len(release.nodes) + relabels)


@pytest.mark.parametrize(("is_set", "value"), [(True, "true"), (False, None)])
def test_a_label_names_the_version_of_its_node(is_set, value) -> None:
    metadata = {"resourceVersion": "7", "labels": {"key": value}}
    assert patch_of(Label("a", "key", is_set, "7")) == {"metadata": metadata}
