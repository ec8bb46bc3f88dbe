"""Texts that repeat what a grammar repeats, of any length, from regular expressions.

Of each expression: a line that it matches, many times; and for each repetition in it the shortest
line up to there, and then what is repeated, many times, in one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from types import ModuleType

# The parser of Python's own expressions, under its name since 3.11.
_PARSER: Any = re._parser  # type: ignore[attr-defined]
_CODES: Any = re._constants  # type: ignore[attr-defined]
# A letter of each class of letters that an expression may ask for.
_CLASSES = {
    "CATEGORY_DIGIT": "1",
    "CATEGORY_SPACE": " ",
    "CATEGORY_WORD": "a",
    "CATEGORY_NOT_DIGIT": "a",
    "CATEGORY_NOT_SPACE": "a",
    "CATEGORY_NOT_WORD": "-",
}
_LETTERS = [chr(code) for code in (*b"a1 ,:-[{(Z", *range(33, 127), 9)]


class Shape(NamedTuple):
    """A text of which a part is repeated."""

    before: str
    repeated: str
    after: str = ""

    def text(self, length: int) -> str:
        """Return it with as many repetitions as come to a length."""
        times = max(1, (length - len(self.before) - len(self.after)) // len(self.repeated))
        return self.before + self.repeated * times + self.after


def shapes_of_module(module: ModuleType) -> list[Shape]:
    """Return the shapes of all expressions that a module compiles."""
    patterns = [value for value in vars(module).values() if isinstance(value, re.Pattern)]
    shapes = [shape for pattern in patterns for shape in shapes_of(pattern)]
    return list(dict.fromkeys(shapes))


def shapes_of(pattern: re.Pattern[Any]) -> Iterator[Shape]:
    """Yield the shapes of an expression."""
    text = pattern.pattern
    if isinstance(text, bytes):
        text = text.decode("latin-1")

    tree = _PARSER.parse(text, pattern.flags & ~re.UNICODE if isinstance(text, bytes) else 0)
    line = _sample(tree)
    if line.strip():
        yield Shape("", f"{line}\n")
        yield Shape("", f"{line} ")
    for before, repeated in _repetitions(tree, ""):
        if repeated:
            yield Shape(before, repeated)
            yield Shape(before, repeated, "\0x")  # no expression matches to the end
            yield Shape(f"{before}{repeated}\n", f"{before}{repeated}\n")


def _sample(tree: Any) -> str:
    """Return a short text that a part of an expression matches; what is repeated comes once."""
    return "".join(_letters(code, argument) for code, argument in tree)


def _letters(code: Any, argument: Any) -> str:  # noqa: PLR0911  # a kind of node each
    name = str(code)
    if name == "LITERAL":
        return chr(argument)
    if name == "NOT_LITERAL":
        return next(letter for letter in _LETTERS if ord(letter) != argument)
    if name == "ANY":
        return "a"
    if name == "IN":
        return _member(argument)
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, most, part = argument
        return _sample(part) * max(least, min(1, int(most)))
    if name == "SUBPATTERN":
        return _sample(argument[3])
    if name == "BRANCH":
        return _sample(argument[1][0])
    if name == "ATOMIC_GROUP":
        return _sample(argument)
    return ""  # what matches a place between letters


def _member(members: Any) -> str:
    """Return a letter of a set."""
    is_negated = str(members[0][0]) == "NEGATE"
    if not is_negated:
        code, argument = members[0]
        if str(code) == "LITERAL":
            return chr(argument)
        if str(code) == "RANGE":
            return chr(argument[0])
        return _CLASSES[str(argument)]

    expression = re.compile("".join(("[", _set_text(members[1:]), "]")))
    return next(letter for letter in _LETTERS if not expression.match(letter))


def _set_text(members: Any) -> str:
    parts = []
    for code, argument in members:
        if str(code) == "LITERAL":
            parts.append(re.escape(chr(argument)))
        elif str(code) == "RANGE":
            parts.append(f"{re.escape(chr(argument[0]))}-{re.escape(chr(argument[1]))}")
        else:
            parts.append(
                {"CATEGORY_DIGIT": r"\d", "CATEGORY_SPACE": r"\s"}.get(str(argument), r"\w")
            )
    return "".join(parts)


def _repetitions(tree: Any, before: str) -> Iterator[tuple[str, str]]:
    """Yield what stands before each repetition, and what is repeated."""
    for code, argument in tree:
        name = str(code)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            _, most, part = argument
            if most is _CODES.MAXREPEAT or most > 1:
                yield before, _sample(part)
            yield from _repetitions(part, before)
        elif name == "SUBPATTERN":
            yield from _repetitions(argument[3], before)
        elif name == "BRANCH":
            for branch in argument[1]:
                yield from _repetitions(branch, before)
        elif name == "ATOMIC_GROUP":
            yield from _repetitions(argument, before)
        before += _letters(code, argument)
