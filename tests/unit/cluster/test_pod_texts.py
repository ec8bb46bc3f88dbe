"""Pods of which many differ by their names only are read once, and come out as when read whole."""

from __future__ import annotations

import json
import random

import msgspec
import pytest

from alignup.cluster.pod_texts import PodTexts
from alignup.errors import AlignupError
from alignup.kubernetes.manifest import read_pod

SPECS = [
    {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}]},
    {"containers": [{"name": "c", "resources": {"limits": {"cpu": "3", "memory": "1Gi"}}}]},
    {"containers": [{"name": "c"}], "nodeSelector": {"zone": "east"}},
    {"containers": []},
    {"containers": [{"name": "c", "resources": {"limits": {"cpu": "-1"}}}]},
]
CHANGES = [
    {},
    {"kind": "Job"},
    {"apiVersion": "v2"},
    {"status": {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}}]}},
    {"spec": None},
    {"metadata": None},
    {"metadata": []},
]
METADATA = {
    "name": ["p", "q", "", None, 3, {}],
    "namespace": ["default", "other", "", None, 7],
    "uid": ["u", "v", "", None, 5],
    "generateName": ["g-", None, 4],
    "annotations": [{"a": "b"}, {"a": "c"}, None, 3],
    "labels": [{"kubernetes.io/os": "windows"}, {"kubernetes.io/os": 3}, {"app": "x"}, {}, None, 3],
}


def outcome(read):
    try:
        return read()
    except AlignupError as error:
        return type(error), str(error)


def drawn(chance):
    metadata = {
        key: chance.choice(values[:2] if chance.random() < 0.7 else values)
        for key, values in METADATA.items()
        if chance.random() < 0.6 or key == "name"
    }
    change = chance.choice(CHANGES) if chance.random() < 0.2 else {}
    return {"metadata": metadata, "spec": chance.choice(SPECS), **change}


@pytest.mark.parametrize("seed", range(6))
def test_a_pod_is_read_as_by_itself(seed) -> None:
    chance = random.Random(seed)
    texts = PodTexts()
    read_count = 0
    for _ in range(400):
        manifest = drawn(chance)
        text = json.dumps(manifest)
        before = texts.read_bytes
        pod = outcome(lambda: texts.read(msgspec.Raw(text.encode())))  # noqa: B023  # called here
        assert pod == outcome(lambda: read_pod(manifest))  # noqa: B023  # called here
        read_count += texts.read_bytes > before
    assert 40 < read_count < 380


def test_pods_with_claims_are_each_read_whole() -> None:
    claims = [{"name": "gpu", "resourceClaimName": "shared"}]
    spec = {"containers": [{"name": "c"}], "resourceClaims": claims}
    texts = PodTexts()
    for name in ("p", "q"):
        manifest = {"metadata": {"name": name}, "spec": spec}
        with pytest.warns(UserWarning, match=f"default/{name} are ignored"):
            texts.read(msgspec.Raw(json.dumps(manifest).encode()))


def test_not_all_pods_are_kept(monkeypatch) -> None:
    monkeypatch.setattr("alignup.cluster.pod_texts._MOST_KEPT", 3)
    texts = PodTexts()
    for number in range(20):
        spec = {"containers": [{"name": f"c{number}"}]}
        text = json.dumps({"metadata": {"name": "p"}, "spec": spec})
        assert texts.read(msgspec.Raw(text.encode())).containers[0].name == f"c{number}"
    assert len(texts._pods) <= 3


@pytest.mark.parametrize("text", ["3", "[]", "null", '"p"'])
def test_what_is_no_mapping_is_no_pod(text) -> None:
    with pytest.raises(AlignupError, match="a mapping"):
        PodTexts().read(msgspec.Raw(text.encode()))


@pytest.mark.parametrize("letters", [b"\xed\xa0\x80", b"\xff", b"\xc3"])
def test_a_text_that_is_no_utf_8_is_no_pod(letters: bytes) -> None:
    text = msgspec.Raw(b'{"metadata": {"name": "%s"}, "spec": {"containers": []}}' % letters)
    with pytest.raises(AlignupError, match="expected the JSON of a Pod"):
        PodTexts().read(text)
