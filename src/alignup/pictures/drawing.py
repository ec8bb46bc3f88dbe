"""Draws what the library returns, for notebooks and files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from alignup.errors import InputError, system_errors
from alignup.explanations.explanation import Explanation
from alignup.machine.machine import Machine
from alignup.node.holdings import holdings_of
from alignup.node.node import Node
from alignup.pictures.explanation_page import explanation_html, explanation_scene, explanations_page
from alignup.pictures.page import containers_table, fragment, page, paragraph
from alignup.pictures.picture import Scene, drawing_of, machine_page
from alignup.records import Record
from alignup.text.counting import counted
from alignup.topology_manager.admission import Admission

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


class Drawing(Record):
    """A picture or a page: a notebook shows it, `save` writes it.

    >>> draw(read_machine("xeon-2s")).save("machine.svg")  # doctest: +SKIP
    """

    subject: Machine | Node | Admission | Explanation

    def _repr_svg_(self) -> str | None:
        """Return the picture that a notebook shows; None: it shows the page."""
        return drawing_of(_scene(self.subject)) if isinstance(self.subject, Machine | Node) else None

    def _repr_html_(self) -> str | None:
        """Return the page that a notebook shows; None: it shows the picture."""
        if isinstance(self.subject, Explanation):
            return explanation_html(self.subject)
        return fragment(_verdict(self.subject)) if isinstance(self.subject, Admission) else None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a picture (`.svg`), or a self-contained page (`.html`).

        Raises:
            InputError: the path ends in something else, an admission is to be a picture, or the file cannot be
                written.
        """
        ending = os.path.splitext(path)[1].lower()  # noqa: PTH122  # of any path
        if ending == ".svg" and not isinstance(self.subject, Admission):
            text = drawing_of(_scene(self.subject))
        elif ending == ".html":
            text = _page(self.subject)
        else:
            is_admission = isinstance(self.subject, Admission)
            expected = "a file .html" if is_admission else "a file .svg or .html"
            raise InputError.at("the drawing", expected, os.fspath(path))
        with system_errors("cannot write the drawing", path):
            Path(path).write_text(text, encoding="utf-8")


def draw(subject: Machine | Node | Admission | Explanation) -> Drawing:
    """Return a drawing of a machine, a node with what its pods hold, an admission, or an explanation.

    >>> from alignup import draw, read_machine
    >>> draw(read_machine("align-up-article")).save("machine.svg")     # doctest: +SKIP

    A notebook shows a machine and a node as a picture, an admission and an explanation as a page.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(subject, Machine | Node | Admission | Explanation):
        raise TypeError(f"expected a Machine, Node, Admission or Explanation, got {subject!r:.80}")
    return Drawing(subject)


def _scene(subject: Machine | Node | Explanation) -> Scene:
    """Return what the picture shows."""
    if isinstance(subject, Explanation):
        return explanation_scene(subject)
    if isinstance(subject, Machine):
        return Scene("Machine", subject)
    title = f"Node: policy {subject.manager.policy.name}, {counted(len(subject.pods), 'pod')}"
    return Scene(title, subject.machine, subject.inventory, holdings_of(subject))


def _page(subject: Machine | Node | Admission | Explanation) -> str:
    """Return a whole page of HTML."""
    if isinstance(subject, Explanation):
        return explanations_page(subject.pod, [subject])
    return page("Admission", _verdict(subject)) if isinstance(subject, Admission) else machine_page(_scene(subject))


def _verdict(admission: Admission) -> list[Element]:
    """Return the verdict, and what each container got or why the pod was refused."""
    if not admission.admitted:
        return [paragraph(f"✗ refused: {admission.reason}"), paragraph(admission.message)]
    return [paragraph("✓ admitted"), containers_table(admission.to_dict()["containers"])]
