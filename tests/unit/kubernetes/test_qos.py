"""The QoS class follows the API's: sums of positive requests and limits of CPU and memory."""

from __future__ import annotations

import pytest

from alignup.kubernetes.pod import qos_class

ONE, TWO = {"cpu": 1, "memory": 1}, {"cpu": 2, "memory": 1}
CROSSED = [(ONE, TWO), (TWO, ONE)]
"""Sums are compared, not one container after another."""


@pytest.mark.parametrize(
    ("resources", "qos"),
    [
        ([({}, {})], "BestEffort"),
        ([({"cpu": 0, "memory": 0}, {"cpu": 0})], "BestEffort"),
        ([({}, {"example.com/gpu": 1})], "BestEffort"),
        ([({"cpu": 1, "memory": 1}, {"cpu": 1, "memory": 1})], "Guaranteed"),
        ([({"cpu": 1, "memory": 1}, {"cpu": 2, "memory": 1})], "Burstable"),
        ([({"cpu": 1}, {"cpu": 1})], "Burstable"),
        ([({"cpu": 1, "memory": 1}, {})], "Burstable"),
        ([({"cpu": 1, "memory": 1}, {"cpu": 1, "memory": 1}), ({}, {})], "Burstable"),
        # sums are compared, not one container after another
        (
            [
                ({"cpu": 1, "memory": 1}, {"cpu": 2, "memory": 1}),
                ({"cpu": 2, "memory": 1}, {"cpu": 1, "memory": 1}),
            ],
            "Guaranteed",
        ),
    ],
)
def test_qos_is_that_of_sums(resources, qos):
    assert qos_class(resources) == qos
