"""What kubelets and kube-scheduler say of a refusal, and what that means.

Three tables have their texts, as Go formats them, with the releases that say so: why a kubelet does
not start (`start_errors.json`), why it rejects a pod or a resize (`rejections.json`), and why the
scheduler finds no node (`scheduler_statuses.json`). `.ci/messages` compares them with the sources
of Kubernetes, and makes the page `docs/messages.md` of them. An entry's anchor on that page never
changes.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from alignup import version
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = "messages.md"

# How a state file goes that a kubelet cannot start with.
DRAIN_AND_DELETE: Final = "drain the node, stop the kubelet, delete the file, and start the kubelet"
# How much of what somebody says is compared with the tables.
_LONGEST_WORDS: Final = 2000
_VERB: Final = re.compile(r"%\+?q|\"%s\"|%\+?[sdvw]")
# What stands around the words of a manager.
_AROUND: Final = re.compile(
    r"(?:Pod was rejected: |Allocate failed due to )+|,? which is unexpected\.?\s*$"
)
# A reason and the words with it.
_QUOTED: Final = re.compile(r'([\w./-]+) \("(.*?)"\)')
# After the words of a status of the scheduler.
_NEXT: Final = r"(?=[.,;]?(?:\s|$))"
_OUT_OF: Final = "OutOf"
# In what there is to do, that it is for a command to find out.
_TO_FIND_OUT: Final = re.compile(r"the command says|see (?:those|the other) words")


class Table(Enum):
    """The tables, by the names of their files."""

    STARTS = "start_errors"
    REJECTIONS = "rejections"
    STATUSES = "scheduler_statuses"


class Message(Record):
    """What a program says, and what it means.

    Attributes:
        anchor: its name on the page, which never changes.
        component: the part of the kubelet or of the scheduler that says it.
        text: its words, as Go formats them.
        releases: those that say it, such as `1.29-1.34`.
        cause: the meaning, in a sentence, with `{0}` for the first value of the text.
        repair: what to do about it, likewise.
        reason: that of a pod that is rejected with these words; empty: there is none.
        file: the state file that it is about, by its name in the kubelet's folder; empty: none.
        command: the one of `alignup` that explains it; empty: none does.
    """

    anchor: str
    component: str
    text: str
    releases: str
    cause: str
    repair: str
    reason: str = ""
    file: str = ""
    command: str = ""


class Meaning(NamedTuple):
    """A message that somebody has received.

    Attributes:
        message: the entry of the table.
        cause: the meaning, with the values of what was said.
        repair: what to do about it, likewise.
    """

    message: Message
    cause: str
    repair: str

    @property
    def remedy(self) -> str:
        """What to do, where no command of `alignup` has to find it out; empty: one has."""
        return "" if _TO_FIND_OUT.search(self.repair) else self.repair


def messages(table: Table) -> tuple[Message, ...]:
    """Return the entries of a table."""
    return tuple(message for message, _ in _patterns(table))


def meaning_of_start(words: str) -> Meaning | None:
    """Return what the words mean by which a kubelet ends; None: no table has them.

    >>> meaning_of_start('unknown policy: "strict"').cause
    'there is no policy strict'
    """
    return next(_meanings(Table.STARTS, words), None)


def meaning_of_rejection(reason: str, words: str = "") -> Meaning | None:
    """Return what the rejection of a pod means; None: no table has it.

    Args:
        reason: the kubelet's; empty: not known.
        words: the kubelet's message, or one that has its words in it.

    >>> words = "Allocate failed due to cannot allocate unregistered device a.b/c, which is "
    >>> words += "unexpected"
    >>> meaning_of_rejection("UnexpectedAdmissionError", words).message.anchor
    'unregistered-device'
    """
    inner = _AROUND.sub("", words)
    for said in (inner, words):
        by_words = [
            meaning
            for meaning in _meanings(Table.REJECTIONS, said)
            if not reason or meaning.message.reason in {"", reason}
        ]
        if by_words:
            return max(by_words, key=lambda meaning: len(_VERB.sub("", meaning.message.text)))

    known_reason = "OutOfcpu" if reason.startswith(_OUT_OF) else reason
    for message in messages(Table.REJECTIONS):
        if reason and message.reason == known_reason:
            return Meaning(message, _without_values(message.cause), message.repair)

    return None


def meanings_of_status(words: str) -> list[Meaning]:
    """Return what the parts of a status of kube-scheduler mean, in their order.

    Where two plugins say the same words, it is the entry of the first in the table.

    >>> words = "0/2 nodes are available: 1 Insufficient cpu, 1 Too many pods."
    >>> [meaning.message.anchor for meaning in meanings_of_status(words)]
    ['insufficient', 'too-many-pods']
    """
    by_place: dict[tuple[int, int], Meaning] = {}
    for meaning, place in _found(Table.STATUSES, words):
        by_place.setdefault(place, meaning)

    return [by_place[place] for place in sorted(by_place)]


def meanings_quoted(sentence: str) -> list[Meaning]:
    """Return what the words mean that a sentence quotes, such as `OutOfcpu ("Node didn't ...")`.

    >>> [meaning.message.anchor for meaning in meanings_quoted('pod a/b: OutOfpods ("...")')]
    ['outof']
    """
    by_anchor: dict[str, Meaning] = {}
    for reason, words in _QUOTED.findall(sentence):
        rejection = meaning_of_rejection(reason, words)
        for meaning in meanings_of_status(words) or filter(None, [rejection]):
            by_anchor.setdefault(meaning.message.anchor, meaning)

    return list(by_anchor.values())


def address_of(anchor: str) -> str:
    """Return the address of an entry; empty: what was built does not know that of its documents."""
    return f"{version.DOCUMENTATION}/{PAGE}#{anchor}" if version.DOCUMENTATION else ""


def reference_to(meaning: Meaning | None) -> str:
    """Return a line that names an entry of the page; empty: there is none."""
    if meaning is None:
        return ""

    anchor = meaning.message.anchor
    address = address_of(anchor)
    return f"see Messages: {anchor}" + (f" ({address})" if address else "")


def _meanings(table: Table, words: str) -> Iterator[Meaning]:
    """Yield the entries of a table whose words are in others, with their values."""
    return (meaning for meaning, _ in _found(table, words))


def _found(table: Table, words: str) -> Iterator[tuple[Meaning, tuple[int, int]]]:
    """Yield the same, each with the place of its words."""
    for message, pattern in _patterns(table):
        values = pattern.search(words[:_LONGEST_WORDS])
        if values is not None:
            groups = [value or "none" for value in values.groups()]
            cause, repair = (text.format(*groups) for text in (message.cause, message.repair))
            yield Meaning(message, cause, repair), values.span()


@cache
def _patterns(table: Table) -> list[tuple[Message, re.Pattern[str]]]:
    """Return the entries of a table, each with a pattern of what it is with values."""
    folder = Path(__file__).parent
    entries = json.loads(folder.joinpath(f"{table.value}.json").read_bytes())
    repairs = json.loads(folder.joinpath("findings.json").read_bytes())
    read = []
    for entry in entries:
        kind = entry.pop("kind", "")
        if kind:
            entry["repair"] = repairs[kind]["repair"]

        read.append((Message(**entry), _pattern(entry["text"], table)))

    return read


def _pattern(text: str, table: Table) -> re.Pattern[str]:
    """Return a pattern of what Go makes of a format: its values are groups."""
    value_end = r"(\S+?)" if table is Table.STATUSES else "(.*?)"
    parts = []
    end = 0
    for verb in _VERB.finditer(text):
        value = '"(.*?)"' if '"' in verb[0] or verb[0].endswith("q") else value_end
        between = re.escape(text[end : verb.start()])
        if (
            text[verb.start() - 2 :] == f". {verb[0]}"
        ):  # a sentence, which may stand in another line
            between = between.removesuffix(r"\ ") + r"\s*"

        parts += [between, value]
        end = verb.end()

    ending = {Table.STARTS: "$", Table.REJECTIONS: r"\s*$", Table.STATUSES: _NEXT}[table]
    return re.compile("".join([*parts, re.escape(text[end:]), ending]))


def _without_values(sentence: str) -> str:
    """Return a sentence whose values are not known."""
    return re.sub(r"{\d}", "...", sentence)
