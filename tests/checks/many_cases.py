"""Checks many small cases in one test.

A test of each would take longer to start and to report than to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def check_each(check: Callable[..., object], cases: Iterable[tuple[str, tuple[Any, ...]]]) -> None:
    """Check every case, a name and arguments.

    Fail with all that do not hold: each named, and as it fails alone.
    """
    checked, failed = 0, []
    for name, values in cases:
        checked += 1
        try:
            check(*values)
        except Exception as error:  # noqa: BLE001  # whatever a test fails with
            error.add_note(f"case: {name}")
            failed.append(error)
    assert checked
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {checked} cases do not hold", failed)
