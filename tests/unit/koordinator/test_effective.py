"""What pods and nodes say of their policies, and the matrix of the design document."""

from __future__ import annotations

import json
import re

import pytest

from alignup.errors import AlignupWarning, InputError
from alignup.koordinator.effective import (
    NODE_LABEL,
    NUMA_TOPOLOGY_SPEC,
    RESOURCE_SPEC,
    NumaTopologySpec,
    PodPolicy,
    checked_spec,
    decode_spec,
    joined_policy,
    labelled_config,
    pod_policy,
)
from alignup.kubernetes.kubelet_config import KubeletConfig
from alignup.kubernetes.pod import Pod

KUBELET = ["single-numa-node", "restricted", "best-effort", "none"]

KEYS = (NUMA_TOPOLOGY_SPEC, RESOURCE_SPEC)


def pod(policy="", exclusive="", key=NUMA_TOPOLOGY_SPEC):
    text = json.dumps({"numaTopologyPolicy": policy, "singleNUMANodeExclusive": exclusive})
    return Pod("uid", "pod", annotations={key: text})


@pytest.mark.parametrize("key", [NUMA_TOPOLOGY_SPEC, RESOURCE_SPEC])
def test_a_pod_policy_has_the_kubelets_name_and_is_required_by_default(key):
    assert pod_policy(pod("SingleNUMANode", key=key)) == PodPolicy("single-numa-node", "Required")
    assert pod_policy(pod("BestEffort", "Preferred", key)) == PodPolicy("best-effort", "Preferred")


def test_exclusivity_without_a_policy_is_kept_as_it_is():
    assert pod_policy(pod("", "Preferred")) == PodPolicy("none", "Preferred")


@pytest.mark.parametrize("silent", [Pod("u", "p"), Pod("u", "p", annotations={"a": "b"}), pod()])
def test_a_silent_pod_has_none(silent):
    assert pod_policy(silent) is None


@pytest.mark.parametrize("wrong", [pod("Bogus"), pod("Restricted", "bogus")])
def test_unknown_values_are_clear_errors(wrong):
    with pytest.raises(
        InputError, match=r"expected one of .* got '[Bb]ogus' at metadata.annotations"
    ):
        pod_policy(wrong)


@pytest.mark.parametrize("node", KUBELET)
@pytest.mark.parametrize("pod_policy_name", KUBELET)
def test_the_matrix(pod_policy_name, node):
    """Equal or absent policies go together, and the pod's comes first.

    All others are a mismatch.
    """
    joined = joined_policy(pod_policy_name, node, none="none")
    if pod_policy_name == "none":
        assert joined == node
    elif node in {"none", pod_policy_name}:
        assert joined == pod_policy_name
    else:
        assert joined is None


def test_a_label_names_the_policy_of_a_node():
    config = KubeletConfig(topology_manager_policy="restricted")
    assert labelled_config(config, {}) is config
    labelled = labelled_config(config, {NODE_LABEL: "BestEffort"})
    assert (labelled.topology_manager_policy, labelled.topology_manager_scope) == (
        "best-effort",
        "pod",
    )
    with pytest.raises(InputError, match=r"got 'Bogus' at metadata.labels"):
        labelled_config(config, {NODE_LABEL: "Bogus"})


def annotation(text):
    return decode_spec({NUMA_TOPOLOGY_SPEC: text}, KEYS)


def test_both_fields_are_read():
    text = json.dumps({"numaTopologyPolicy": "Restricted", "singleNUMANodeExclusive": "Preferred"})
    assert annotation(text) == NumaTopologySpec("Restricted", "Preferred")


@pytest.mark.parametrize("text", ["{}", "null", '{"other": 5}', '{"numaTopologyPolicy": null}'])
def test_silence(text):
    """An empty object, null and fields of other names say nothing, as in Go."""
    assert annotation(text) == NumaTopologySpec()


def test_field_names_are_compared_without_case():
    assert annotation('{"NUMATOPOLOGYPOLICY": "BestEffort"}').policy == "BestEffort"


@pytest.mark.parametrize("meant", ["numaTopologyPolicy", "singleNUMANodeExclusive"])
@pytest.mark.parametrize(
    "spoil", [lambda name: name[:-1], lambda name: name + "s", lambda name: f"_{name}"]
)
def test_misspelt_fields_are_ignored_with_a_warning(meant, spoil):
    with pytest.warns(
        AlignupWarning,
        match=rf"the field {spoil(meant)} at .* unknown and ignored; did you mean '{meant}'\?",
    ):
        assert annotation(json.dumps({spoil(meant): "Restricted"})) == NumaTopologySpec()


@pytest.mark.parametrize("field", ["preferredCPUBindPolicy", "requiredCPUBindPolicy"])
def test_fields_about_cpus_are_no_misspelt_ones(field):
    assert annotation(json.dumps({field: "FullPCPUs"})) == NumaTopologySpec()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '"Restricted"', '{"numaTopologyPolicy": "Restricted",}']
)
def test_what_is_no_object_is_refused_with_its_place(text):
    """The design document's own example, with its trailing comma, is no JSON either."""
    with pytest.raises(
        InputError, match=r'a JSON object.*annotations\["scheduling.koordinator.sh/numa-top'
    ):
        annotation(text)


def test_a_field_of_another_type_is_refused_with_its_place():
    with pytest.raises(InputError, match=r'a string, got 5 at .*"\]\.numaTopologyPolicy'):
        annotation('{"numaTopologyPolicy": 5}')


def test_the_first_annotation_that_is_present_counts_alone():
    annotations = {RESOURCE_SPEC: '{"numaTopologyPolicy": "Restricted"}'}
    assert decode_spec(annotations, KEYS).policy == "Restricted"
    assert decode_spec({**annotations, NUMA_TOPOLOGY_SPEC: "{}"}, KEYS) == NumaTopologySpec()
    assert decode_spec({}, KEYS) == NumaTopologySpec()


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            '{"numaTopologyPolicy": "singlenumanode"}',
            r"'', 'SingleNUMANode', 'Restricted', 'BestEffort', got 'singlenumanode' at {}.numaTop",
        ),
        (
            '{"singleNUMANodeExclusive": "required"}',
            r"one of '', 'Required', 'Preferred', got 'required' at {}.singleNUMANodeExclusive",
        ),
    ],
)
def test_unknown_values_are_refused_where_they_stand(key, wrong, message):
    where = re.escape(f'metadata.annotations["{key}"]')
    with pytest.raises(InputError, match=message.format(where)):
        checked_spec({key: wrong})


def test_known_values_pass():
    text = '{"numaTopologyPolicy": "SingleNUMANode", "singleNUMANodeExclusive": "Required"}'
    assert checked_spec({RESOURCE_SPEC: text}) == NumaTopologySpec("SingleNUMANode", "Required")
