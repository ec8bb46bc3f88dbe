"""Tables of what containers got, and hold."""

from __future__ import annotations

from alignup.node.holdings import holdings_of
from alignup.node.pictures.signs import signs_of
from alignup.node.pictures.tables import containers_table, holders_table
from pictures import pod, used_node


def test_what_a_container_got() -> None:
    admission = used_node(0).admit(pod("new", 2, 1, gpu=1))
    table = containers_table(admission.to_dict()["containers"])

    assert table.rows == [("c0", "0", "yes", "1-2", "memory 1Gi @ 0", "example.com/gpu gpu0")]


def test_containers_of_the_shared_pool_hold_nothing() -> None:
    node = used_node(1)
    node.admit({"metadata": {"name": "shared"}, "spec": {"containers": [{"name": "c0"}]}})
    held = holdings_of(node)
    table = holders_table(held, signs_of(one.pod_uid for one in held.containers if one))

    assert table.rows == [
        ("A", "default/pod-0", "c0", "1", "memory 2Gi @ 0", "example.com/gpu gpu0"),
        ("-", "default/shared", "c0", "shared", "-", "-"),
    ]
