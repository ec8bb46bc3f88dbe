"""`read_pods`: the pods in a file or a text, as the command line reads them."""

from __future__ import annotations

import json

import pytest

from alignup import read_pods
from alignup.errors import AlignupWarning, InputError

CONTAINER = {"name": "c", "resources": {"limits": {"cpu": "1"}}}
POD = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [CONTAINER]}}
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  template:
    spec:
      containers: [{name: c, image: i}]
---
kind: Pod
metadata: {name: alone}
spec:
  containers: [{name: c, image: i}]
"""


def test_a_file_has_as_many_pods_as_its_objects_ask_for(tmp_path) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(DEPLOYMENT)
    names = ["web-0", "web-1", "web-2", "alone"]
    assert [pod.name for pod in read_pods(path)] == names
    assert [pod.name for pod in read_pods(str(path))] == names
    assert [pod.name for pod in read_pods(DEPLOYMENT)] == names


def test_json_and_lists_are_read(tmp_path) -> None:
    listed = {"kind": "List", "items": [POD, {**POD, "metadata": {"name": "q"}}]}
    assert [pod.name for pod in read_pods(json.dumps(listed))] == ["p", "q"]
    assert [pod.name for pod in read_pods(json.dumps(POD))] == ["p"]

    lines = tmp_path / "pods.jsonl"
    lines.write_text(f"{json.dumps(POD)}\n{json.dumps({**POD, 'metadata': {'name': 'q'}})}\n")
    assert [pod.name for pod in read_pods(lines)] == ["p", "q"]


def test_pods_that_have_ended_are_told() -> None:
    ended = {**POD, "metadata": {"name": "old"}, "status": {"phase": "Succeeded"}}
    with pytest.warns(AlignupWarning, match="default/old has ended"):
        pods = read_pods(json.dumps({"kind": "List", "items": [POD, ended]}))
    assert [pod.name for pod in pods] == ["p"]


@pytest.mark.filterwarnings("ignore:the text. ignored objects")
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nope.yaml", "cannot read a file: no such file or directory at nope.yaml"),
        ("", "cannot read a file"),
        ("kind: ConfigMap\nmetadata: {name: a}\n", "the text"),
        ("{", "the text"),
    ],
)
def test_what_holds_no_pods_is_an_error(source, words) -> None:
    with pytest.raises(InputError, match=words):
        read_pods(source)


def test_a_file_beyond_measure_is_an_error(tmp_path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * ((8 << 20) + 1))
    with pytest.raises(InputError, match="more than"):
        read_pods(path)
