"""What a node publishes is read or refused in one line, whatever somebody wrote into it."""

from __future__ import annotations

import json

import msgspec
import pytest

from alignup.errors import InputError
from alignup.scheduler.report import Description, decode_holdings, decode_report
from watched import description, topology

DEEP = '{"a":' * 5000 + "1" + "}" * 5000


@pytest.mark.parametrize("text", [DEEP, '{"machine": ' + DEEP + "}", "[]", "{", '{"a":' * 900 + "1" + "}" * 900])
def test_what_is_no_description_is_refused(text) -> None:
    with pytest.raises(InputError, match="expected a node as a JSON object"):
        Description().template(text, {})


def test_labels_that_are_none_are_refused_also_where_the_node_has_labels() -> None:
    text = json.dumps({**description(), "labels": [1]})
    with pytest.raises(InputError, match="expected a mapping, got"):
        Description().template(text, {"a": "b"})


@pytest.mark.parametrize("size", [-1, 1 << 62, 1 << 80, "1"])
def test_memory_that_no_node_has_is_refused(size) -> None:
    held = {"uid": "u", "name": "p", "containers": {"c": {"memory": {"memory": {"0": size}}}}}
    with pytest.raises(InputError, match="expected holdings, got"):
        decode_holdings(json.dumps({"pods": [held]}))


@pytest.mark.parametrize("text", [DEEP, "[]", "", '{"pods": [' + DEEP + "]}"])
def test_what_is_no_list_of_holdings_is_refused(text) -> None:
    with pytest.raises(InputError, match=r"expected holdings, got .* at the annotation alignup.dev/holdings"):
        decode_holdings(text)


@pytest.mark.parametrize("text", [DEEP, '{"metadata": 3}', '{"metadata": {"name": "n", "annotations": {"a": 1}}}', "["])
def test_what_is_no_object_is_refused(text) -> None:
    with pytest.raises(InputError, match="expected a NodeResourceTopology, got"):
        decode_report(text.encode())


@pytest.mark.parametrize("field", ["apiVersion", "kind", "zones", "attributes", "topologyPolicies"])
@pytest.mark.parametrize("levels", [1, 900])
def test_fields_of_another_type_are_refused(field, levels) -> None:
    value = msgspec.json.decode('{"a":' * levels + "1" + "}" * levels)
    text = msgspec.json.encode({**topology("n"), field: value})
    with pytest.raises(InputError, match="expected"):
        decode_report(text).topology()
