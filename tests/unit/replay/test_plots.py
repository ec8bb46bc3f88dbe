"""Plots are as long, and as high, as their values."""

from __future__ import annotations

import re

from alignup.replay.plots import areas, bars
from pictures import texts_of


def widths(plot) -> list[int]:
    return [int(re.search(r"h(\d+)v", path.get("d"))[1]) for path in plot.iter("path")]


def test_bars_are_as_long_as_their_values() -> None:
    plot = bars("pods", [("a", 1, "one"), ("b", 4, "four"), ("c", None, "-")])

    assert widths(plot) == [90, 360, 0]
    assert {"a", "one", "four", "-"} <= set(texts_of(plot))


def test_parts_are_drawn_of_a_whole() -> None:
    assert widths(bars("parts", [("a", 0.25, "25%")], whole=1)) == [90]
    assert widths(bars("nothing", [("a", 0.0, "0")])) == [0]


def test_areas_rise_with_their_parts() -> None:
    plot = areas("held", [("NUMA node 0", [0.0, 1.0, 0.5], "mean 50%"), ("NUMA node 1", [], "-")])
    path = [one.get("d") for one in plot.iter("path") if one.get("d").endswith("z")]
    heights = [float(y) for y in re.findall(r"V([\d.]+)H", path[0])]

    assert len(path) == 1
    assert heights == [30.0, 4.0, 17.0]
