"""The cluster's short reason of a refusal blames what the node's explanation does.

It does so of every refusal in the recorded scenarios.
"""

from __future__ import annotations

from itertools import islice

import pytest

from alignup.cluster.ranking import short_cause
from alignup.explanations.cause import causes_of
from alignup.explanations.trial import tried
from alignup.node import Node
from alignup.replay import replay
from inputs.vectors import vectors
from unit.cluster.test_reasons import check

EVERY = {"admission": 3, "wide": 1}
"""Of so many scenarios one is tried: each refusal is explained in full."""
LEAST = {"admission": 100, "wide": 50}
"""So many refusals are looked at, or more."""


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_every_refusal_is_blamed_on_the_same(name: str, monkeypatch) -> None:
    compared, inside = 0, False
    admit = Node.admit

    def checked(self, pod, *args, **options):
        nonlocal compared, inside
        if not inside and not self.try_admit(pod):
            inside = True  # an explanation admits pods itself, on copies
            check(short_cause(self, pod), causes_of(self, tried(self, pod)))
            inside = False
            compared += 1

        return admit(self, pod, *args, **options)

    monkeypatch.setattr(Node, "admit", checked)
    for case in islice(vectors(name), 0, None, EVERY[name]):
        replay(case)

    assert compared > LEAST[name]
