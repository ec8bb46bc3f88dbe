"""Boxes are arranged without overlapping, and a frame goes round all that is in it."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.node.pictures.boxes import Box, columns_for, framed, in_columns, in_rows, stacked, walk
from pictures import overlap

SIZES = st.lists(st.tuples(st.integers(1, 80), st.integers(1, 80)), min_size=1, max_size=12)
ARRANGED = {
    "stacked": stacked,
    "rows": lambda boxes: in_rows(boxes, 100),
    "columns": lambda boxes: in_columns(boxes, 3),
    "best columns": lambda boxes: in_columns(boxes, columns_for(boxes, 1.5)),
}


@pytest.mark.parametrize("arrange", ARRANGED.values(), ids=ARRANGED.keys())
@given(sizes=SIZES)
def test_no_two_boxes_overlap(arrange, sizes) -> None:
    placed = arrange([Box("core", *size) for size in sizes])

    assert len(placed) == len(sizes)
    assert not any(overlap(*pair) for pair in combinations(placed, 2))


@given(sizes=SIZES)
def test_rows_keep_to_their_width(sizes) -> None:
    placed = in_rows([Box("core", *one) for one in sizes], 100)
    assert all(not box.x or box.x + box.width <= 100 for box in placed)


@given(sizes=SIZES)
def test_a_frame_holds_its_contents(sizes) -> None:
    frame = framed("node", stacked([Box("core", *size) for size in sizes]), "NUMA node 0").at(7, 9)

    for box in walk(frame):
        assert frame.x <= box.x <= box.x + box.width <= frame.x + frame.width
        assert frame.y <= box.y <= box.y + box.height <= frame.y + frame.height


def test_columns_make_a_block_of_the_shape_that_is_asked_for() -> None:
    cores = [Box("core", 20, 20)] * 16

    assert columns_for(cores, 1.0) == 4
    assert columns_for(cores, 4.0) == 8
    assert columns_for(cores, 4.0, widest=60) == 2
    assert columns_for(cores, 1.0, widest=5) == 1
