"""Makes HTML pages about replays: reports with plots, several configurations side by side, and timelines.

A timeline is one picture, and for each step the layers that are to be seen. The reader chooses a step with radio
buttons, and rules of CSS choose the layers, so that no script is needed. What a container holds is drawn once, however
long it holds it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final
from xml.etree.ElementTree import Element

from alignup.errors import ConfigError
from alignup.node import Node
from alignup.node.holdings import ContainerHolding, holdings_of
from alignup.pictures.boxes import Box, Key, fitted, text_width
from alignup.pictures.layout import lay_out
from alignup.pictures.overlay import Layer, Sign, amounts_layer, holding_layer, places_of, reserved_layer, sign_of
from alignup.pictures.page import containers_table, heading, page, paragraph, scrolling, table
from alignup.pictures.picture import assembled
from alignup.pictures.svg import add, picture, style, svg_text
from alignup.records import Record, field
from alignup.replay.scenario import Admit, Resize, Start, Step, apply_step, errors_of_step, read_steps
from alignup.replay.summary import HEADINGS, STRANDED, NodeReport, Report, Use
from alignup.text.counting import named, number_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from alignup.kubernetes.versions import KubeletVersion


# Steps that a timeline shows; it says how many more there are.
MOST_STEPS: Final = 400


class _Frame(Record):
    """What is to be seen after one step.

    Attributes:
        layers: classes of elements.
        mark: what the button of the step shows.
    """

    layers: tuple[str, ...]
    mark: str
    kind: str
    title: str
    details: tuple[Element, ...] = ()


class _Film(Record, frozen=False):
    """What has been drawn so far of one scenario.

    Attributes:
        signs: by uid of the pods on the node; a sign is free again once its pod is removed.
        holders: the class, sign and name of each entry of the legend.
    """

    node: Node
    places: Mapping[Key, Box]
    layers: list[Layer] = field(default_factory=list)
    signs: dict[str, Sign] = field(default_factory=dict)
    used: dict[int, Sign] = field(default_factory=dict)
    drawn: dict[tuple[object, ...], str] = field(default_factory=dict)
    holders: list[tuple[str, Sign, str]] = field(default_factory=list)

    def see(self) -> tuple[str, ...]:
        """Draw what is new, and return the classes of all that is to be seen now."""
        holdings = holdings_of(self.node)
        holders = [one for one in holdings.containers if one]
        self._give_signs(holders)
        shares = tuple((one.pod_uid, str(one.memory)) for one in holdings.containers)
        free = tuple(place.free for one in holdings.resources for place in one.places)
        bars = partial(amounts_layer, self.places, holdings, self.signs)
        classes = [self._layer(("bars", shares, free, tuple(self.signs.items())), bars)]
        for one in holders:
            sign = self.signs[one.pod_uid]
            held = ("holding", one.pod_uid, one.container, sign, one.cpus, str(one.devices), str(one.memory))
            classes.append(self._layer(held, partial(holding_layer, self.places, one, sign)))
            entry = ("entry", one.pod_uid, sign)
            if entry not in self.drawn:
                self.holders.append((self._new(entry), sign, one.pod))
            classes.append(self.drawn[entry])
        return tuple(dict.fromkeys(classes))

    def _give_signs(self, holders: Sequence[ContainerHolding]) -> None:
        """Give each pod that has none the lowest sign that is free."""
        there = {one.pod_uid for one in holders}
        self.signs = {uid: sign for uid, sign in self.signs.items() if uid in there}
        taken = {sign.number for sign in self.signs.values()}
        for uid in dict.fromkeys(one.pod_uid for one in holders):
            if uid not in self.signs:
                number = next(number for number in range(len(taken) + 1) if number not in taken)
                taken.add(number)
                self.signs[uid] = self.used.setdefault(number, sign_of(number))

    def _layer(self, key: tuple[object, ...], draw: Callable[..., Layer]) -> str:
        """Return the class of a layer, which is drawn if it was not yet."""
        if key not in self.drawn:
            self.layers.append(draw(name=f"film {self._new(key)}"))
        return self.drawn[key]

    def _new(self, key: tuple[object, ...]) -> str:
        return self.drawn.setdefault(key, f"f{len(self.drawn)}")


def timeline(
    number: int, scenario: Mapping[str, Any], steps: Sequence[Step], kubelet_version: KubeletVersion | str | None = None
) -> tuple[list[Element], str]:
    """Return the elements of a scenario's timeline, and the rules of CSS that it needs besides `timeline.css`.

    Args:
        number: of the scenario in the page.
        scenario: the node.
        steps: what happens on it; of more than `MOST_STEPS` the first are shown.
        kubelet_version: the kubelet's release, in place of the key `kubeletVersion`.

    Raises:
        ConfigError: a kubelet would refuse to start.
        InputError: the scenario is malformed, or a step cannot be.
    """
    node = Node.from_dict(scenario, kubelet_version=kubelet_version)
    boxes = lay_out(node.machine, node.inventory)
    film = _Film(node, places_of(boxes))
    film.layers.append(reserved_layer(film.places, holdings_of(node).reserved_cpus))
    frames = list(_frames(film, steps[:MOST_STEPS]))
    title = str(scenario.get("name") or f"scenario {number}")
    picture = assembled(title, boxes, film.layers, {}, further=film.used.values())
    section = Element("section")
    section.append(heading(title))
    if len(steps) > len(frames):
        section.append(paragraph(f"the first {len(frames)} of {len(steps)} steps"))
    if frames:
        _append_buttons(section, number, frames)
    stage = add(section, "div", class_="stage")
    stage.append(scrolling(picture))
    _append_holders(stage, film)
    panels = add(section, "div", class_="panels")
    for index, frame in enumerate(frames):
        _append_panel(panels, number, index, len(frames), frame)
    return [section], "".join(_rules(number, frames))


def _frames(film: _Film, steps: Sequence[Step]) -> Iterator[_Frame]:
    """Yield what is to be seen after each step."""
    refused: dict[str, str] = {}
    for index, step in enumerate(steps):
        with errors_of_step(index):
            was_refused = not isinstance(step, Admit) and step.uid in refused
            admission = apply_step(film.node, step, refused)
        layers = film.see()
        if isinstance(step, Admit):
            assert admission is not None  # noqa: S101  # an admission has a verdict
            name = step.pod.namespaced_name
            if admission:
                got = containers_table(admission.to_dict()["containers"])
                yield _Frame(layers, "✓", "admitted", f"{name} admitted", (got,))
            else:
                title = f"{name} refused: {admission.reason}"
                yield _Frame(layers, "✗", "refused", title, (paragraph(admission.message),))
        elif isinstance(step, Start):
            verb = "starts" if admission is None else f"cannot start: {admission.message}"
            yield _Frame(layers, "▸", "started", f"container {step.container} of {step.uid} {verb}")
        elif isinstance(step, Resize):
            answer = "" if admission is None else f": {admission.reason}"
            words = (paragraph(admission.message),) if admission is not None and admission.message else ()
            yield _Frame(layers, "↕", "resized", f"{step.uid} is resized{answer}", words)
        else:
            rest = ", which was refused" if was_refused else ""
            yield _Frame(layers, "−", "removed", f"{step.uid} is removed{rest}")  # noqa: RUF001  # a minus


def _append_buttons(section: Element, number: int, frames: Sequence[_Frame]) -> None:
    """Append the radio buttons of the steps, and the strip of their labels; the first refusal is chosen, or the end."""
    refusals = [index for index, frame in enumerate(frames) if frame.kind == "refused"]
    chosen = refusals[0] if refusals else len(frames) - 1
    for index, frame in enumerate(frames):
        button = add(section, "input", type="radio", class_="step", name=f"t{number}", id=f"t{number}s{index}")
        button.set("aria-label", f"step {index}: {frame.kind}")
        if index == chosen:
            button.set("checked", "checked")
    strip = add(section, "div", class_="strip")
    for index, frame in enumerate(frames):
        label = add(strip, "label", frame.mark, for_=f"t{number}s{index}", class_=frame.kind)
        label.set("title", f"step {index}: {frame.title}")


def _append_holders(stage: Element, film: _Film) -> None:
    """Append the legend: a swatch and a name for each holder."""
    legend = add(stage, "p", class_="holders")
    for name, sign, pod in film.holders:
        entry = add(legend, "span", class_=f"film {name}")
        swatch = add(entry, "svg", width=26, height=16, class_="au")
        add(swatch, "path", d="M0 0h26v16h-26z", fill=sign.fill, stroke="#444")
        add(swatch, "text", sign.text, x=24, y=12, class_="au-sign")
        swatch.tail = pod


def _append_panel(panels: Element, number: int, index: int, count: int, frame: _Frame) -> None:
    """Append what is to be said about a step."""
    panel = add(panels, "div", class_=f"panel d{index}")
    moves = add(panel, "p")
    if index:
        add(moves, "label", "previous", for_=f"t{number}s{index - 1}")
    if index + 1 < count:
        add(moves, "label", "next", for_=f"t{number}s{index + 1}")
    add(add(panel, "p"), "strong", f"step {index}: {frame.title}")
    panel.extend(frame.details)


def _rules(number: int, frames: Sequence[_Frame]) -> Iterator[str]:
    """Yield for each step the rules that show its layers and its panel, and mark its button."""
    for index, frame in enumerate(frames):
        chosen = f"#t{number}s{index}:checked~"
        layers = ",".join(f".{name}" for name in frame.layers)
        yield f"{chosen}.stage :is({layers}){{display:inline}}\n"
        yield f"{chosen}.panels .d{index}{{display:block}}\n"
        yield f"{chosen}.strip [for=t{number}s{index}]{{outline:3px solid #d33}}\n"


# Scenarios whose timeline a page has; it says how many more there are.
MOST_SCENARIOS: Final = 20

# Nodes whose use over time is drawn; a page says how many more there are.
MOST_NODES: Final = 20


def comparison_page(reports: Sequence[Report]) -> str:
    """Return the page of several configurations side by side."""
    parts = [_table(reports), paragraph(f"stranded: {STRANDED}")]
    totals = [(report.configuration, report.total) for report in reports]
    for title, what, form, whole in (
        ("Pods admitted", "admitted", "d", None),
        ("Pods refused although the node had enough of every resource in total", "fitting", "d", None),
        ("Containers whose affinity is preferred", "preferred_share", ".1%", 1),
        ("NUMA nodes a container", "mean_numa_nodes", ".2f", None),
    ):
        rows = [_bar(name, getattr(one, what), form) for name, one in totals]
        parts += [heading(title), bars(title, rows, whole=whole)]
    for resource in dict.fromkeys(name for report in reports for name in report.utilisation):
        for words, amounts in (
            ("held on average", [(one.configuration, one.utilisation) for one in reports]),
            ("stranded", [(one.configuration, one.stranded) for one in reports]),
        ):
            rows = [_bar(name, found.get(resource)) for name, found in amounts]
            parts += [heading(f"{resource}: {words}"), bars(f"{resource}: {words}", rows, whole=1)]
    return page("Policies compared", parts)


def _bar(label: str, value: float | None, form: str = ".1%") -> tuple[str, float | None, str]:
    """Return the bar of a number, by default of a part of a whole."""
    return label, value, number_in(value, form)


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
        steps = read_steps(scenario)
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
    yield bars("stranded", [_bar(*one) for one in report.stranded.items()], whole=1)
    for node in report.nodes[:MOST_NODES]:
        yield from _use_over_time(node)
    if len(report.nodes) > MOST_NODES:
        yield paragraph(f"the first {MOST_NODES} of {len(report.nodes)} nodes")


def _use_over_time(node: NodeReport) -> Iterator[Element]:
    """Yield how full the NUMA nodes of one node were."""
    by_resource: dict[str, list[Use]] = {}
    for use in node.uses:
        by_resource.setdefault(use.resource, []).append(use)
    for resource, uses in by_resource.items():
        yield heading(f"{node.name or 'node'}: {resource} held over time", 3)
        rows = []
        for use in uses:
            ids = use.numa_nodes
            label = named("NUMA node", ids, ", ") if ids else "no NUMA node"
            rows.append((label, use.curve, f"mean {number_in(use.mean)}, peak {number_in(use.peak)}"))
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
