"""The errors that alignup raises on purpose, and the warning that it issues.

Each error derives from the builtin exception that a caller would already catch. A message names the expected value, the
actual one and the place; it is lower case, without a final stop, and shows values by repr.
"""

from __future__ import annotations

import reprlib
import warnings
from typing import Final

__all__ = [
    "AlignupError",
    "AlignupWarning",
    "AllocationError",
    "ConfigError",
    "InputError",
    "PodExistsError",
    "UnknownPodError",
    "warn",
]


_LONGEST_PLACE: Final = 250


class AlignupError(Exception):
    """The base of all errors of this package."""


class AlignupWarning(UserWarning):
    """Issued when something that was given is passed over, so that the answer is about less than was asked."""


def warn(sentence: str) -> None:
    """Issue an `AlignupWarning`; by default Python shows each sentence once."""
    warnings.warn(sentence, AlignupWarning, stacklevel=3)


class InputError(AlignupError, ValueError):
    """Raised when a manifest, machine, device inventory or scenario is malformed.

    >>> raise InputError.at("spec.containers[0].name", "a name", 3)
    Traceback (most recent call last):
    alignup.errors.InputError: expected a name, got 3 at spec.containers[0].name
    """

    @classmethod
    def at(cls, where: str, expected: str, got: object) -> InputError:
        """Return an error of one line with the expected value, the actual one (shortened) and the place."""
        short = reprlib.Repr()
        short.maxlevel = 2
        short.maxstring = short.maxother = 80
        if len(where) > _LONGEST_PLACE or not where.isprintable():  # it may contain a user's key
            where = ascii(where[:_LONGEST_PLACE])[1:-1]
        return cls(f"expected {expected}, got {short.repr(got)} at {where}")


class ConfigError(InputError):
    """Raised when a configuration is well-formed but a kubelet would refuse to start with it."""


class AllocationError(AlignupError, RuntimeError):
    """Raised by a provider's `allocate` when it cannot meet the request.

    `reason` is the reason in the pod's status (`UnexpectedAdmissionError`, `SMTAlignmentError`), `detail` a sentence
    about the cause.
    """

    def __init__(self, detail: str, reason: str = "UnexpectedAdmissionError") -> None:
        super().__init__(detail)
        self.detail = detail
        self.reason = reason


class PodExistsError(AlignupError, ValueError):
    """Raised when a pod is admitted although a pod of its uid is admitted already."""


class UnknownPodError(AlignupError, KeyError):
    """Raised when a pod that is not admitted is removed or looked up."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""
