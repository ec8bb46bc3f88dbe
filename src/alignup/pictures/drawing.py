"""Draws what the library returns, for notebooks and files.

An explanation is shown as the machine with who held what, what the pod got or could not get, and
tables of the facts. `alignup.explanations` finds all of it out; nothing is decided here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError, system_errors
from alignup.explanations import words
from alignup.explanations.explanation import Explanation, PlacePart, ResourcePart, Step
from alignup.machine.device_inventory import Device
from alignup.machine.machine import Machine
from alignup.node.holdings import Holdings, holdings_of
from alignup.node.node import Node
from alignup.pictures import picture
from alignup.pictures.layout import LACKING
from alignup.records import Record, replace, show_with
from alignup.text.counting import counted
from alignup.text.output_files import write_output
from alignup.topology_manager.admission import Admission

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from xml.etree.ElementTree import Element

    from alignup.pictures.overlay import Sign


# Explanations in one page, which says how many more there are.
MOST_SHOWN: Final = 20


def explanation_scene(explanation: Explanation) -> picture.Scene:
    """Return the scene of an explanation.

    What an admitted pod got, or containers of a refused one before the one that was refused, is
    drawn with heavy lines. Of a refused pod each NUMA node says what it had then of what was asked
    for.

    Raises:
        ValueError: the explanation does not know its machine.
    """
    if explanation.machine is None:
        raise ValueError("the explanation does not know its machine")

    if explanation.admitted:
        title = f"{explanation.pod} admitted"
        remarks = {}
    else:
        title = f"{explanation.pod} refused: {explanation.reason}"
        remarks = _remarks(explanation)

    holdings = explanation.after or explanation.before
    units = {
        part.resource: words.amounts_in_words(part) for part in explanation.resources if part.places
    }
    return picture.Scene(
        title,
        explanation.machine,
        devices=_devices(holdings),
        holdings=holdings,
        subject=explanation.uid,
        remarks=remarks,
        units=units,
        subtitle=explanation.cause,
        verdict=explanation.admitted,
        short=explanation.blamed,
    )


def _devices(holdings: Holdings) -> dict[str, list[Device]]:
    """Return the devices that a record of holdings names."""
    devices = {}
    for amounts in holdings.resources:
        if amounts.devices:
            devices[amounts.resource] = [
                Device(device_id, numa_nodes, device_id not in amounts.unhealthy)
                for device_id, numa_nodes in amounts.devices.items()
            ]

    return devices


def _remarks(explanation: Explanation) -> dict[int, list[str]]:
    """Return by NUMA node what it has of each resource asked for.

    Nodes that have none of any are left out.
    """
    requested_parts = [
        part for part in explanation.resources if part.asked is not None and part.places
    ]
    remarks = {}
    for numa_id in explanation.before.numa_node_ids:
        lines = []
        has_capacity = False
        for part in requested_parts:
            places = [place for place in part.places if numa_id in place.numa_nodes]
            has_capacity |= any(place.capacity for place in places)
            lines.append(_remark(part, numa_id, places))

        if has_capacity:
            remarks[numa_id] = lines

    return remarks


def _remark(part: ResourcePart, numa_id: int, places: Sequence[PlacePart]) -> str:
    """Return what one NUMA node has of a resource, after the mark of what it can supply."""
    in_words = words.amounts_in_words(part)
    free = sum(place.free for place in places)
    stock = "none here"
    if any(place.capacity for place in places):
        stock = f"{in_words(free)} free"

    mark = _mark(part, numa_id, has_free=free > 0)
    return f"{mark}{part.resource}: {in_words(part.asked or 0)} asked, {stock}"


def _mark(part: ResourcePart, numa_id: int, *, has_free: bool) -> str:
    """Return whether one NUMA node can supply a resource alone, only with others, or not at all."""
    if part.offered is None or part.offered.anywhere:
        return ""

    numa_node_sets = [*part.offered.preferred, *part.offered.other]
    if (numa_id,) in numa_node_sets:
        return "✓ "
    if has_free and any(numa_id in numa_nodes for numa_nodes in numa_node_sets):
        return "○ "
    return LACKING


def explanations_page(title: str, explanations: Sequence[Explanation]) -> str:
    """Return the page of several explanations, refused pods first, as the text of an HTML file."""
    parts: list[Element] = []
    refused_first = sorted(explanations, key=lambda explanation: explanation.admitted)
    for explanation in refused_first[:MOST_SHOWN]:
        parts += _parts(explanation)

    if len(explanations) > MOST_SHOWN:
        parts.append(picture.paragraph(f"the first {MOST_SHOWN} of {len(explanations)} pods"))

    return picture.page(title, parts)


def _parts(explanation: Explanation) -> Iterator[Element]:
    """Yield the elements of one explanation."""
    verdict = "✓ admitted" if explanation.admitted else f"✗ refused: {explanation.reason}"
    yield picture.heading(f"{explanation.pod}: {verdict}", verdict=explanation.admitted)
    yield picture.paragraph(explanation.cause)

    facts = f"policy {explanation.policy}, scope {explanation.scope}, QoS class {explanation.qos}"
    if explanation.container is not None:
        facts += f"; container {explanation.container}"

    yield picture.paragraph(facts)

    holdings = explanation.after or explanation.before
    signs: dict[str, Sign] = {}
    if explanation.machine is not None:
        scene = explanation_scene(explanation)
        yield picture.scrolling(picture.scene_element(replace(scene, is_headed=False)))
        if not explanation.admitted:
            yield picture.paragraph(
                "✓: this NUMA node could supply it alone; ○: only with others; ✗: not now"
            )

        signs = scene.signs

    if explanation.suggestions:
        yield picture.heading("What would help", 3)
        yield picture.numbered(
            ("ask for less, all of these:", suggestion.changes)
            if suggestion.changes
            else (suggestion.text, ())
            for suggestion in explanation.suggestions
        )

    for step in explanation.relevant_steps:
        yield from _step_parts(step, explanation)

    if holdings.memory_groups:
        yield picture.listed(
            [words.group_in_words(group) for group in explanation.before.memory_groups]
        )

    yield picture.heading("Its containers", 3)
    rows = list(words.container_rows(explanation, explanation.containers))
    yield picture.scrolling(picture.table(words.container_columns(explanation), rows))
    if not explanation.admitted:
        other_containers = tuple(
            holding for holding in holdings.containers if holding.pod_uid != explanation.uid
        )
        holdings = replace(holdings, containers=other_containers)

    if holdings.containers:
        yield picture.heading("Who holds what", 3)
        yield picture.scrolling(picture.holders_table(holdings, signs))


def _step_parts(step: Step, explanation: Explanation) -> Iterator[Element]:
    """Yield one decision.

    It says what was asked, there and offered, the rule, and what every resource offers.
    """
    title = "The pod as a whole" if step.container is None else f"Container {step.container}"
    yield picture.heading(title, 3)

    if step.resources:
        rows = list(
            words.resource_rows(step.resources, explanation.named_first, explanation.unknown)
        )
        yield picture.scrolling(
            picture.table(words.RESOURCE_COLUMNS, rows, frozenset(words.RESOURCE_NUMBERS))
        )
    else:
        yield picture.paragraph("requests nothing that is allocated by NUMA node")

    yield picture.paragraph(f"rule: {step.rule}")

    common = words.in_common(step)
    if common:
        yield picture.paragraph(f"NUMA nodes left by the merge: {common}")


class Drawing(Record):
    """A picture or a page: a notebook shows it, `save` writes it.

    Examples:
        >>> draw(read_machine("xeon-2s")).save("machine.svg")  # doctest: +SKIP
    """

    subject: Machine | Node | Admission | Explanation

    def _repr_svg_(self) -> str | None:
        """Return the picture, for who takes no HTML; None: there is only the page."""
        if not isinstance(self.subject, Machine | Node):
            return None
        return picture.drawing_of(_scene(self.subject))

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the page, or the picture in the notebook's own theme."""
        if isinstance(self.subject, Explanation):
            return picture.fragment(_parts(self.subject))
        if isinstance(self.subject, Admission):
            return picture.fragment(_verdict(self.subject))
        return picture.fragment([picture.scrolling(picture.scene_element(_scene(self.subject)))])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a picture (`.svg`), or a self-contained page (`.html`).

        Raises:
            InputError: the path ends in something else, an admission is to be a picture, or the
                file cannot be written.
        """
        ending = os.path.splitext(path)[1].lower()  # noqa: PTH122  # of any path
        if ending == ".svg" and not isinstance(self.subject, Admission):
            text = picture.drawing_of(_scene(self.subject))
        elif ending == ".html":
            text = _page(self.subject)
        else:
            expected = "a file .svg or .html"
            if isinstance(self.subject, Admission):
                expected = "a file .html"
            raise InputError.at("the drawing", expected, os.fspath(path))

        with system_errors("cannot write the drawing", path):
            write_output(path, text.encode())


def show_in_notebooks() -> None:
    """Let notebooks show machines, admissions and explanations as drawings."""
    for kind in (Machine, Admission, Explanation):
        show_with(kind, lambda subject: Drawing(subject)._repr_html_())  # ours


def draw(subject: Machine | Node | Admission | Explanation) -> Drawing:
    """Return a drawing of a machine, a node, an admission, or an explanation.

    A node is drawn with what its pods hold. A notebook shows a machine and a node as a picture, an
    admission and an explanation as a page.

    Raises:
        TypeError: it is something else.

    Examples:
        >>> from alignup import draw, read_machine
        >>> draw(read_machine("align-up-article")).save("machine.svg")     # doctest: +SKIP
    """
    if not isinstance(subject, Machine | Node | Admission | Explanation):
        raise TypeError(f"expected a Machine, Node, Admission or Explanation, got {subject!r:.80}")
    return Drawing(subject)


def _scene(subject: Machine | Node | Explanation) -> picture.Scene:
    """Return what the picture shows."""
    if isinstance(subject, Explanation):
        return explanation_scene(subject)
    if isinstance(subject, Machine):
        return picture.Scene("Machine", subject)
    title = f"Node: policy {subject.manager.policy.name}, {counted(len(subject.pods), 'pod')}"
    return picture.Scene(title, subject.machine, subject.inventory, holdings_of(subject))


def _page(subject: Machine | Node | Admission | Explanation) -> str:
    """Return a whole page of HTML."""
    if isinstance(subject, Explanation):
        return explanations_page(subject.pod, [subject])
    if isinstance(subject, Admission):
        return picture.page("Admission", _verdict(subject))
    return picture.machine_page(_scene(subject))


def _verdict(admission: Admission) -> list[Element]:
    """Return the verdict, and what each container got or why the pod was refused."""
    if not admission.admitted:
        return [
            picture.verdict_paragraph(f"✗ refused: {admission.reason}", verdict=False),
            picture.paragraph(admission.message),
        ]
    return [
        picture.verdict_paragraph("✓ admitted", verdict=True),
        picture.containers_table(admission.to_dict()["containers"]),
    ]
