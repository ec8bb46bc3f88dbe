"""Mutated files of a node: read, or refused in one line; `tests/campaign` reads many more."""

from __future__ import annotations

import random
import warnings

import pytest

from alignup.errors import AlignupError
from inputs.kubelet_mutations import a_kubelet_node, read_node
from inputs.strategies import seeds


@pytest.mark.parametrize("part", seeds(2, 16))
def test_damaged_files_are_read_or_refused_in_one_line(part):
    refusals = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(40):
            try:
                read_node(a_kubelet_node(random.Random(f"{part} {number}")))
            except AlignupError as error:
                refusals.append(str(error))
    assert 0 < len(refusals) < 40
    assert all(refusal.isprintable() and len(refusal) < 4000 for refusal in refusals)
