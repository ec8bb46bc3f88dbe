"""Makes HTML pages about replays: reports with plots, several configurations side by side, and timelines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from xml.etree.ElementTree import Element

from alignup.errors import ConfigError
from alignup.node.pictures.boxes import fitted, text_width
from alignup.node.pictures.page import heading, page, paragraph, scrolling, table
from alignup.node.pictures.svg import add, picture, style, svg_text
from alignup.replay.scenario import read_steps, steps_of
from alignup.replay.summary import HEADINGS, STRANDED, NodeReport, Report, Use, share
from alignup.replay.timeline import timeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from alignup.kubernetes.versions import KubeletVersion

MOST_SCENARIOS: Final = 20
"""Scenarios whose timeline a page has; it says how many more there are."""

MOST_NODES: Final = 20
"""Nodes whose use over time is drawn; a page says how many more there are."""


def comparison_page(reports: Sequence[Report]) -> str:
    """Return the page of several configurations side by side."""
    parts = [_table(reports), paragraph(f"stranded: {STRANDED}")]
    totals = [(report.configuration, report.total) for report in reports]
    for title, rows, whole in (
        ("Pods admitted", [(name, one.admitted, str(one.admitted)) for name, one in totals], None),
        (
            "Pods refused although the node had enough of every resource in total",
            [(name, one.fitting, str(one.fitting)) for name, one in totals],
            None,
        ),
        ("Containers whose affinity is preferred", [_part(name, one.preferred_share) for name, one in totals], 1),
        (
            "NUMA nodes a container",
            [(name, one.mean_numa_nodes, f"{one.mean_numa_nodes or 0:.2f}") for name, one in totals],
            None,
        ),
    ):
        parts += [heading(title), bars(title, rows, whole=whole)]
    for resource in dict.fromkeys(name for report in reports for name in report.utilisation):
        for words, amounts in (
            ("held on average", [(one.configuration, one.utilisation) for one in reports]),
            ("stranded", [(one.configuration, one.stranded) for one in reports]),
        ):
            rows = [_part(name, found.get(resource)) for name, found in amounts]
            parts += [heading(f"{resource}: {words}"), bars(f"{resource}: {words}", rows, whole=1)]
    return page("Policies compared", parts)


def _part(label: str, value: float | None) -> tuple[str, float | None, str]:
    """Return the bar of a part of a whole."""
    return label, value, share(value)


def _table(reports: Sequence[Report]) -> Element:
    """Return a line for each report."""
    rows = [(report.configuration or "as configured", *report.total.cells()) for report in reports]
    return table(("configuration", *HEADINGS), rows, frozenset(HEADINGS))


def replay_page(
    scenarios: Sequence[Mapping[str, Any]],
    count: int,
    report: Report | None,
    kubelet_version: KubeletVersion | str | None = None,
) -> str:
    """Return the page of a replay: a report, if there is one, then the timelines of scenarios.

    Args:
        scenarios: up to `MOST_SCENARIOS`.
        count: how many there are in all.
        report: on all of them.
        kubelet_version: the kubelet's release, in place of the key `kubeletVersion`.

    Raises:
        InputError: a scenario is malformed, or a step cannot be.
    """
    parts = [] if report is None else list(_report_parts(report))
    parts.append(heading("Step by step"))
    parts.append(paragraph("Choose a step; with the keyboard, the arrow keys go from one to the next."))
    if count > len(scenarios):
        parts.append(paragraph(f"the first {len(scenarios)} of {count} scenarios"))
    rules = style("timeline")
    for number, scenario in enumerate(scenarios):
        steps = read_steps(steps_of(scenario))
        try:
            made, more = timeline(number, scenario, steps, kubelet_version)
        except ConfigError as error:
            name = str(scenario.get("name") or f"scenario {number}")
            made, more = [heading(name), paragraph(f"the kubelet would not start: {error}")], ""
        parts += made
        rules += more
    return page("Replay", parts, rules)


def _report_parts(report: Report) -> Iterator[Element]:
    """Yield the elements of a report on one configuration."""
    total = report.total
    yield heading("Summary")
    yield _table([report])
    if total.reasons:
        yield heading("Refusals")
        for what, counts in (("reason", total.reasons), ("resource", total.resources)):
            rows = [(one, count, f"{count} pods") for one, count in sorted(counts.items())]
            yield bars(f"refusals by {what}", rows)
    yield heading("Stranded capacity")
    yield paragraph(STRANDED)
    yield bars("stranded", [_part(*one) for one in report.stranded.items()], whole=1)
    for node in report.nodes[:MOST_NODES]:
        yield from _use_over_time(node)
    if len(report.nodes) > MOST_NODES:
        yield paragraph(f"the first {MOST_NODES} of {len(report.nodes)} nodes")


def _use_over_time(node: NodeReport) -> Iterator[Element]:
    """Yield how full the NUMA nodes of one node were."""
    by_resource: dict[str, list[Use]] = {}
    for use in node.uses:
        by_resource.setdefault(use.place.resource, []).append(use)
    for resource, uses in by_resource.items():
        yield heading(f"{node.name or 'node'}: {resource} held over time", 3)
        rows = []
        for use in uses:
            ids = use.place.numa_nodes
            label = f"NUMA node{'' if len(ids) == 1 else 's'} {', '.join(map(str, ids))}" if ids else "no NUMA node"
            rows.append((label, use.curve, f"mean {share(use.mean)}, peak {share(use.peak)}"))
        yield scrolling(areas(resource, rows))


_ROW: Final = 22
_AREA_ROW: Final = 34
_WIDTH: Final = 360
_FONT: Final = 11
_WIDEST_LABEL: Final = 220
_TEXT_WIDTH: Final = 190
_FILL: Final = "#7f9fc4"
_LINE: Final = "#2f4f74"


def _label_width(labels: Sequence[str]) -> int:
    return min(max([60, *(text_width(label, _FONT) for label in labels)]), _WIDEST_LABEL)


def bars(title: str, rows: Sequence[tuple[str, float | None, str]], *, whole: float | None = None) -> Element:
    """Return horizontal bars below each other.

    Args:
        title: the tooltip of the whole.
        rows: label, value (not negative; None: there is none) and text of each.
        whole: the value whose bar is as wide as the plot; None: the largest.
    """
    left = _label_width([label for label, _, _ in rows]) + 10
    most = whole or max([0.0, *(value or 0.0 for _, value, _ in rows)]) or 1.0
    shapes, texts = Element("g"), Element("g")
    for index, (label, value, text) in enumerate(rows):
        y = index * _ROW
        width = round(_WIDTH * (value or 0.0) / most)
        add(shapes, "path", d=f"M{left} {y + 3}h{width}v{_ROW - 8}h-{width}z", fill=_FILL, stroke=_LINE)
        svg_text(texts, 0, y + 14, fitted(label, left - 10, _FONT))
        svg_text(texts, left + width + 6, y + 14, fitted(text, _TEXT_WIDTH, _FONT))
    return picture(left + _WIDTH + _TEXT_WIDTH, max(1, len(rows)) * _ROW, title, [shapes, texts])


def areas(title: str, rows: Sequence[tuple[str, Sequence[float], str]]) -> Element:
    """Return areas below each other, each of parts from 0 to 1 from left to right.

    Args:
        title: the tooltip of the whole.
        rows: label, curve and text of each.
    """
    left = _label_width([label for label, _, _ in rows]) + 10
    shapes, texts = Element("g"), Element("g")
    for index, (label, curve, text) in enumerate(rows):
        top, bottom = index * _AREA_ROW + 4, (index + 1) * _AREA_ROW - 4
        add(shapes, "path", d=f"M{left} {top}h{_WIDTH}M{left} {bottom}h{_WIDTH}", stroke="#bbb", fill="none")
        if curve:
            add(shapes, "path", d=_area(curve, left, top, bottom), fill=_FILL, stroke=_LINE)
        svg_text(texts, 0, bottom - 8, fitted(label, left - 10, _FONT))
        svg_text(texts, left + _WIDTH + 6, bottom - 8, fitted(text, _TEXT_WIDTH, _FONT))
    return picture(left + _WIDTH + _TEXT_WIDTH, max(1, len(rows)) * _AREA_ROW, title, [shapes, texts])


def _area(curve: Sequence[float], left: int, top: int, bottom: int) -> str:
    """Return the outline of an area of steps."""
    points = [f"M{left} {bottom}"]
    for index, part in enumerate(curve):
        y = bottom - (bottom - top) * min(1.0, max(0.0, part))
        points.append(f"V{y:.1f}H{left + _WIDTH * (index + 1) / len(curve):.1f}")
    return "".join([*points, f"V{bottom}z"])
