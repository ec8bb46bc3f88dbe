"""Behaviour of `alignup.kubernetes.node_fit`."""

from __future__ import annotations

import pytest

from alignup.errors import InputError
from alignup.kubernetes.node_fit import NodeObject, node_object


def test_name_labels_and_release_are_read():
    data = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "a", "labels": {"zone": "z"}, "uid": "1"},
        "status": {
            "nodeInfo": {"kubeletVersion": "v1.33.4-eks-1", "osImage": "x"},
            "capacity": {"cpu": "4"},
        },
    }
    assert node_object(data) == NodeObject("a", {"zone": "z"}, "v1.33.4-eks-1")


@pytest.mark.parametrize(
    "data", [{}, {"metadata": {}, "status": {}}, {"status": {"nodeInfo": {"kubeletVersion": ""}}}]
)
def test_what_is_not_there_is_not_known(data):
    assert node_object(data) == NodeObject()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "a Node object, got [] at nodeObject"),
        ({"kind": "Pod"}, "expected Node, got 'Pod' at nodeObject.kind"),
        ({"status": {"nodeInfo": 3}}, "got 3 at nodeObject.status.nodeInfo"),
    ],
)
def test_something_else_is_refused(data, message):
    with pytest.raises(InputError) as caught:
        node_object(data)
    assert message in str(caught.value)
