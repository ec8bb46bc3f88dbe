"""What pods and nodes say."""

from __future__ import annotations

import json
import re

import pytest

from alignup.errors import AlignupWarning, InputError
from alignup.koordinator.effective import (
    NUMA_TOPOLOGY_SPEC,
    RESOURCE_SPEC,
    NumaTopologySpec,
    checked_spec,
    decode_spec,
)

KEYS = (NUMA_TOPOLOGY_SPEC, RESOURCE_SPEC)


def spec(text):
    return decode_spec({NUMA_TOPOLOGY_SPEC: text}, KEYS)


def test_both_fields_are_read():
    text = json.dumps({"numaTopologyPolicy": "Restricted", "singleNUMANodeExclusive": "Preferred"})
    assert spec(text) == NumaTopologySpec("Restricted", "Preferred")


@pytest.mark.parametrize("text", ["{}", "null", '{"other": 5}', '{"numaTopologyPolicy": null}'])
def test_silence(text):
    """An empty object, null and fields of other names say nothing, as in Go."""
    assert spec(text) == NumaTopologySpec()


def test_field_names_are_compared_without_case():
    assert spec('{"NUMATOPOLOGYPOLICY": "BestEffort"}').policy == "BestEffort"


@pytest.mark.parametrize("meant", ["numaTopologyPolicy", "singleNUMANodeExclusive"])
@pytest.mark.parametrize(
    "spoil", [lambda name: name[:-1], lambda name: name + "s", lambda name: f"_{name}"]
)
def test_misspelt_fields_are_ignored_with_a_warning(meant, spoil):
    with pytest.warns(
        AlignupWarning,
        match=rf"the field {spoil(meant)} at .* unknown and ignored; did you mean '{meant}'\?",
    ):
        assert spec(json.dumps({spoil(meant): "Restricted"})) == NumaTopologySpec()


@pytest.mark.parametrize("field", ["preferredCPUBindPolicy", "requiredCPUBindPolicy"])
def test_fields_about_cpus_are_no_misspelt_ones(field):
    assert spec(json.dumps({field: "FullPCPUs"})) == NumaTopologySpec()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '"Restricted"', '{"numaTopologyPolicy": "Restricted",}']
)
def test_what_is_no_object_is_refused_with_its_place(text):
    """The design document's own example, with its trailing comma, is no JSON either."""
    with pytest.raises(
        InputError, match=r'a JSON object.*annotations\["scheduling.koordinator.sh/numa-top'
    ):
        spec(text)


def test_a_field_of_another_type_is_refused_with_its_place():
    with pytest.raises(InputError, match=r'a string, got 5 at .*"\]\.numaTopologyPolicy'):
        spec('{"numaTopologyPolicy": 5}')


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
            r"got 'singlenumanode' at {}.numaTopologyPolicy",
        ),
        (
            '{"singleNUMANodeExclusive": "required"}',
            r"got 'required' at {}.singleNUMANodeExclusive",
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
