"""The JSON of a scheduler extender, as kube-scheduler 1.36 sends and reads it."""

from __future__ import annotations

import json

import pytest

from alignup.control_plane.scheduler.extender_answers import Filtered
from alignup.control_plane.scheduler.extender_wire import (
    decode_args,
    decode_binding,
    decode_preemption,
    encode_error,
    encode_filtered,
    encode_preemption,
    encode_scores,
    victims_as_json,
)
from alignup.errors import InputError
from inputs.watched_objects import pod_object

POD = pod_object("p", cpu=4)

DEEP = b'{"a":' * 200_000 + b"1" + b"}" * 200_000  # Python 3.14 goes as deep as its stack
POD_TEXT = json.dumps(POD).encode()


def encoded(**fields) -> bytes:
    return json.dumps({"Pod": POD, "Nodes": None, "NodeNames": None, **fields}).encode()


def test_names_are_read_and_written_where_the_scheduler_caches_nodes() -> None:
    args = decode_args(encoded(NodeNames=["a", "b", "c"]))
    assert args.names == ["a", "b", "c"]
    assert args.pod.metadata.name == "p"
    filtered = Filtered(["a"], {"b": "why"}, {"c": "never"})
    assert json.loads(encode_filtered(filtered, args)) == {
        "NodeNames": ["a"],
        "FailedNodes": {"b": "why"},
        "FailedAndUnresolvableNodes": {"c": "never"},
        "Error": "",
    }


def test_an_answer_of_no_node_says_so_with_an_empty_list() -> None:
    """Without `NodeNames` the scheduler reads the same, but only where it caches nodes."""
    assert (
        json.loads(encode_filtered(Filtered(), decode_args(encoded(NodeNames=["a"]))))["NodeNames"]
        == []
    )


def test_whole_nodes_go_back_as_they_came() -> None:
    items = [{"metadata": {"name": name}, "status": {"strange": [1, 2.5, None]}} for name in "ab"]
    args = decode_args(encoded(Nodes={"metadata": {}, "items": items}))
    assert args.names == ["a", "b"]
    answer = json.loads(encode_filtered(Filtered(["b"]), args))
    assert answer["Nodes"]["items"] == [items[1]]
    assert "NodeNames" not in answer


def test_keys_are_read_without_regard_to_case() -> None:
    args = decode_args(json.dumps({"pod": POD, "nodenames": ["a"]}).encode())
    assert args.names == ["a"]
    binding = json.dumps({"podName": "p", "podNamespace": "d", "podUID": "u", "node": "n"}).encode()
    assert decode_binding(binding).uid == "u"


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b'{"Pod": 3}', b'{"NodeNames": []}', b"\xff"]
)
def test_anything_else_is_refused_in_one_line(data) -> None:
    for decode in (decode_args, decode_preemption, decode_binding):
        with pytest.raises(InputError, match="expected the JSON of Extender"):
            decode(data)


@pytest.mark.parametrize("decode", [decode_args, decode_preemption, decode_binding])
def test_what_is_nested_without_end_is_refused(decode) -> None:
    fields = {"Pod": POD, "PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n"}
    for key in ("Pod", "NodeNames", "PodName", "more"):
        text = json.dumps({**fields, key: "DEEP"}).encode().replace(b'"DEEP"', DEEP)
        with pytest.raises(InputError, match="expected the JSON of Extender"):
            decode(text)


@pytest.mark.parametrize(
    "item", [b"5", b"{}", b'{"metadata": {"name": 7}}', b'{"metadata": {"name": "\xff"}}', DEEP]
)
def test_nodes_that_are_none_are_refused(item) -> None:
    data = b'{"Pod": ' + POD_TEXT + b', "Nodes": {"items": [' + item + b"]}}"
    with pytest.raises(
        InputError, match=r"expected (a Node|the JSON of ExtenderArgs)(, got|: |, but)"
    ):
        decode_args(data).names  # noqa: B018  # the nodes are read where their names are asked for


@pytest.mark.parametrize(
    "fields",
    [
        {"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "u"}], "NumPDBViolations": 2}}},
        {"NodeNameToVictims": {"n": {"Pods": [{"metadata": {"uid": "u"}}], "NumPDBViolations": 2}}},
    ],
)
def test_victims_come_whole_or_by_uid_and_go_back_by_uid(fields) -> None:
    args = decode_preemption(json.dumps({"Pod": POD, **fields}).encode())
    assert args.by_node["n"].uids == ["u"]
    answer = json.loads(encode_preemption(victims_as_json({"n": (["u", "v"], None)}, args.by_node)))
    assert answer == {
        "NodeNameToMetaVictims": {
            "n": {"Pods": [{"UID": "u"}, {"UID": "v"}], "NumPDBViolations": 2}
        }
    }


def test_scores_are_a_bare_list() -> None:
    assert json.loads(encode_scores(["a", "b"], [10, 0])) == [
        {"Host": "a", "Score": 10},
        {"Host": "b", "Score": 0},
    ]


def test_a_binding_is_answered_with_an_error_or_none() -> None:
    assert json.loads(encode_error("")) == {"Error": ""}
    assert json.loads(encode_error("why")) == {"Error": "why"}
