"""Answers of several plugins are joined as a kubelet joins them."""

from __future__ import annotations

import msgspec

from alignup.host.device_plugins.answer import DeviceAnswer, DeviceNode, Mount, join_answers


def test_answers_are_joined_in_order():
    joined = join_answers(
        [
            DeviceAnswer(
                {"A": "1", "B": "1"}, (Mount("/a", "/first"),), (), {"n": "1"}, ("v/c=0",)
            ),
            DeviceAnswer(
                {"B": "2"},
                (Mount("/a", "/second"),),
                (DeviceNode("/d", "/d"),),
                {"n": "2"},
                ("v/c=0", "v/c=1"),
            ),
        ]
    )

    assert joined == DeviceAnswer(
        {"A": "1", "B": "2"},
        (Mount("/a", "/first"),),
        (DeviceNode("/d", "/d"),),
        {"n": "2"},
        ("v/c=0", "v/c=1"),
    )


def test_nothing_is_false_and_short():
    assert not join_answers([])
    assert DeviceAnswer({"A": ""})
    assert msgspec.json.encode(DeviceAnswer()) == b"{}"
