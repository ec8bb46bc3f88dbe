"""The errors that alignup raises on purpose, and the warning that it issues.

Each error derives from the builtin exception that a caller would already catch. A message names the
expected value, the actual one and the place; it is lower case, without a final stop, and shows
values by repr.
"""

from __future__ import annotations

import reprlib
import sys
import warnings
from contextlib import contextmanager

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from typing import Final


_LONGEST_PLACE: Final = 250
# Letters of a message, whatever is echoed in it: what is in the middle of a longer one is left out.
_LONGEST: Final = 2000


def one_line(text: str) -> str:
    r"""Return a text with everything escaped that cannot be printed, such as newlines in names.

    >>> print(one_line("gpu\n0"))
    gpu\n0
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def sentence_of(text: str) -> str:
    """Return a text as a message has it: one line, without its middle if it is long."""
    line = one_line(text)
    if len(line) <= _LONGEST:
        return line
    return f"{line[: _LONGEST // 2]}...{line[-_LONGEST // 2 :]}"


class AlignupError(Exception):
    """The base of all errors of this package.

    A message is one line, of which nobody can make a page.

    Examples:
        >>> try:
        ...     read_machine("epyc")
        ... except AlignupError as error:
        ...     print(error)
        unknown machine 'epyc': ... did you mean epyc-2s-nps4?
    """

    def __init__(self, *arguments: object) -> None:
        super().__init__(
            *(
                sentence_of(argument) if isinstance(argument, str) else argument
                for argument in arguments
            )
        )


class AlignupWarning(UserWarning):
    """Issued when something that was given is ignored.

    The answer is then about less than was asked.

    Examples:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     _ = KubeletConfig.from_dict({"topologyManagerPolcy": "restricted"})
        >>> caught[0].category.__name__
        'AlignupWarning'
    """


def warn(sentence: str) -> None:
    """Issue an `AlignupWarning` about the caller of this package.

    By default Python shows each sentence once.
    """
    # as `warnings` itself; `skip_file_prefixes` is of Python 3.12
    frame = sys._getframe()  # noqa: SLF001
    level = 1
    while frame.f_back is not None:
        package, _, _ = frame.f_globals.get("__name__", "").partition(".")
        if package != __package__:
            break
        frame = frame.f_back
        level += 1

    warnings.warn(sentence_of(sentence), AlignupWarning, stacklevel=level)


class _Short(reprlib.Repr):
    """Writes a value shortly, and alike on every Python."""

    def repr_int(self, x: int, level: int) -> str:
        """Write a number.

        Of one of more than 4,300 digits Python raises, and since 3.15 names its place in memory.
        """
        try:
            repr(x)
        except ValueError:
            return "a number of thousands of digits"
        return super().repr_int(x, level)


class InputError(AlignupError, ValueError):
    """Raised when a manifest, machine, device inventory or scenario is malformed.

    Examples:
        >>> raise InputError.at("spec.containers[0].name", "a name", 3)
        Traceback (most recent call last):
        alignup.errors.InputError: expected a name, got 3 at spec.containers[0].name
    """

    @classmethod
    def at(cls, where: str, expected: str, actual: object) -> InputError:
        """Return an error with the expected value, the actual one (shortened) and the place."""
        short = _Short()
        short.maxlevel = 2
        short.maxstring = short.maxother = 80
        return cls(f"expected {expected}, got {short.repr(actual)} at {where[:_LONGEST_PLACE]}")


@contextmanager
def errors_at(where: str, form: str = "{where}: {error}") -> Iterator[None]:
    """Put a place before the message of an error, or where the form has it.

    Raises:
        InputError: of the same type as the one that the block raises.
    """
    try:
        yield
    except InputError as error:
        raise type(error)(form.format(where=where, error=error)) from error


def errors_in(source: str) -> AbstractContextManager[None]:
    """Put the name of a document at the end of an error's message, as `errors_at` does."""
    return errors_at(source, "{error} in {where}")


@contextmanager
def needs_extra(needing: str, install: str) -> Iterator[None]:
    """Say who needs what the block cannot import, and how to install it.

    Args:
        needing: such as `metrics need prometheus-client`.
        install: the name of the package.

    Raises:
        InputError: a module is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise InputError(f"{needing}, which is not installed: pip install {install}") from error


def text_of(error: BaseException) -> str:
    """Return what an error says, or the name of its type where it says nothing.

    An error without a text is as true as any other: `error or "..."` is always the error.

    Examples:
        >>> text_of(ValueError("no such pod"))
        'no such pod'
        >>> text_of(TimeoutError())
        'TimeoutError'
    """
    return str(error) or type(error).__name__


def typed_text_of(error: BaseException) -> str:
    """Return the name of an error's type and what it says, if it says anything.

    Examples:
        >>> typed_text_of(ValueError("no such pod"))
        'ValueError: no such pod'
        >>> typed_text_of(TimeoutError())
        'TimeoutError'
    """
    text = str(error)
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def system_reason(error: Exception) -> str:
    """Return the reason that the system gives for an error, such as `no space left on device`."""
    return (getattr(error, "strerror", None) or str(error) or "an error").lower()


@contextmanager
def system_errors(failure: str, place: object, *more: type[Exception]) -> Iterator[None]:
    """Say in one sentence what the system refuses.

    It reads `cannot write the journal: no space left on device at PATH`.

    Args:
        failure: what cannot be done, in words.
        place: where.
        more: kinds of errors beside those of the system.

    Raises:
        InputError: the block raises such an error.
    """
    kinds: tuple[type[Exception], ...] = (OSError, *more)
    try:
        yield
    except InputError:
        raise
    except kinds as error:
        raise InputError(f"{failure}: {system_reason(error)} at {place}") from error


class ConfigError(InputError):
    """Raised when a configuration is well-formed but a kubelet would refuse to start with it.

    Examples:
        >>> try:
        ...     KubeletConfig.from_dict({"topologyManagerPolicy": "strict"})
        ... except ConfigError as error:
        ...     print(type(error).__name__)
        ConfigError
    """


class AllocationError(AlignupError, RuntimeError):
    """Raised by a provider's `allocate` when it cannot meet the request.

    `reason` is the reason in the pod's status (`UnexpectedAdmissionError`, `SMTAlignmentError`),
    `detail` a sentence about the cause, and `resources` those of which too little is left, as far
    as the provider tells.

    Examples:
        >>> error = AllocationError("2 licences asked, 1 free", resources=("example.com/licence",))
        >>> error.reason, error.resources
        ('UnexpectedAdmissionError', ('example.com/licence',))
    """

    def __init__(
        self,
        detail: str,
        reason: str = "UnexpectedAdmissionError",
        *,
        resources: tuple[str, ...] = (),
    ) -> None:
        super().__init__(detail)
        self.detail = sentence_of(detail)
        self.reason = reason
        self.resources = resources


class PodExistsError(AlignupError, ValueError):
    """Raised when a pod is admitted although a pod of its uid is admitted already.

    Examples:
        >>> node = Node(read_machine("xeon-2s"))
        >>> pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}
        >>> try:
        ...     node.admit(pod), node.admit(pod)
        ... except PodExistsError as error:
        ...     print(type(error).__name__)
        PodExistsError
    """


class UnknownPodError(AlignupError, KeyError):
    """Raised when a pod that is not admitted is removed or looked up.

    Examples:
        >>> try:
        ...     Node(read_machine("xeon-2s")).remove("nobody")
        ... except UnknownPodError as error:
        ...     print(type(error).__name__)
        UnknownPodError
    """

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""
