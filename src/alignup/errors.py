"""Every error that alignup raises on purpose.

Each derives from the builtin that a caller would already catch. Messages have three parts: what was expected,
what came, and where; they are lower case, without a final stop, and show values by repr.
"""

from __future__ import annotations

import reprlib

__all__ = ["AlignupError", "AllocationError", "ConfigError", "InputError", "PodExistsError", "UnknownPodError"]


class AlignupError(Exception):
    """The base of all errors of this package."""


class InputError(AlignupError, ValueError):
    """Raised when a manifest, machine, device inventory or scenario cannot be what it claims to be.

    >>> raise InputError.at('spec.containers[0].resources.limits["cpu"]', "a quantity such as 2 or 500m", "two")
    Traceback (most recent call last):
    alignup.errors.InputError: expected a quantity such as 2 or 500m, got 'two' at spec.containers[0]...
    """

    @classmethod
    def at(cls, where: str, expected: str, got: object) -> InputError:
        """Return the error whose message says what was expected, what came (cut to a line's worth) and where."""
        short = reprlib.Repr()
        short.maxlevel = 2
        short.maxstring = short.maxother = 80
        return cls(f"expected {expected}, got {short.repr(got)} at {where}")


class ConfigError(InputError):
    """Raised when a configuration is well formed but a kubelet would refuse to start with it."""


class AllocationError(AlignupError, RuntimeError):
    """Raised by a provider's `allocate` when it cannot give what was asked for.

    `reason` is the word that the kubelet puts into the pod's status (`UnexpectedAdmissionError`,
    `SMTAlignmentError`), `detail` the sentence about the cause.
    """

    def __init__(self, detail: str, reason: str = "UnexpectedAdmissionError") -> None:
        super().__init__(detail)
        self.detail = detail
        self.reason = reason


class PodExistsError(AlignupError, ValueError):
    """Raised when a pod is admitted whose uid is admitted already."""


class UnknownPodError(AlignupError, KeyError):
    """Raised when a pod is removed or looked up that was never admitted, or is gone."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""
