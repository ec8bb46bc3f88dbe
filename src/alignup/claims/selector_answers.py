"""What selectors say of the devices that a node reaches, and the scheduler's errors about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alignup.claims.question import AllocationError
from alignup.claims.selectors.evaluate import Program, program_of, variables_of
from alignup.claims.selectors.syntax import CompileError, NotUnderstood
from alignup.claims.selectors.values import EvaluationError, StoppedError
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.claims import objects
    from alignup.claims.question import Effort
    from alignup.claims.scheduler_gates import Gates


class Candidate(Record, eq=False):
    """A device of a pool that the node reaches.

    Attributes:
        pool: the place of its pool in the order of pools.
    """

    id: objects.DeviceId
    device: objects.Device
    slice: objects.Slice
    pool: int


class SelectorAnswers:
    """Asks selectors about devices, each once.

    Args:
        devices: which are named by their places here.
        gates: of the scheduler.
        effort: what may be spent, and what was answered before.
    """

    def __init__(self, devices: Sequence[Candidate], gates: Gates, effort: Effort) -> None:
        self._devices = devices
        self._gates = gates
        self._effort = effort
        # By device.
        self._variables: dict[int, Mapping[str, Any]] = {}

    def all_match(self, selectors: Sequence[objects.Selector], owner: str, index: int) -> bool:
        """Return whether a device satisfies all selectors of a class or a claim.

        Raises:
            AllocationError: one cannot be asked.
        """
        for number, selector in enumerate(selectors):
            expression = selector.cel.expression if selector.cel is not None else ""
            answer = self._answer(expression, index)
            if isinstance(answer, Exception):
                raise self._error(answer, f"{owner}: selector #{number}", self._devices[index])
            if not answer:
                return False

        return True

    def _answer(self, expression: str, index: int) -> bool | Exception:
        """Return what a selector says of a device; of a driver where it reads nothing else."""
        program = program_of(expression)
        if not isinstance(program, Program):
            return program
        if program.newest_function and self._gates.is_before_38:
            return CompileError(f"undeclared reference to '{program.newest_function}'")

        candidate = self._devices[index]
        device = candidate.device
        is_of_driver = program.is_of_driver and _has_no_faults(device)
        whose = candidate.id.driver if is_of_driver else id(device)
        key = expression, whose, self._gates.list_selectors, self._gates.is_before_38
        answered = self._effort.answers.get(key)
        if answered is None:
            answered = device, self._asked(program, index)
            self._effort.answers[key] = answered

        return answered[1]

    def _asked(self, program: Program, index: int) -> bool | Exception:
        """Return what a selector says of a device when it is asked.

        Raises:
            AllocationError: too much was spent on selectors.
        """
        effort = self._effort
        if effort.cost <= 0:
            raise AllocationError("the selectors were given up: they cost too much", "timeout")

        try:
            is_match, cost = program.matches(self._variables_of(index))
        except (EvaluationError, StoppedError, NotUnderstood) as error:
            effort.cost -= getattr(error, "cost", 0)
            return error

        effort.cost -= cost
        return is_match

    def _variables_of(self, index: int) -> Mapping[str, Any]:
        """Return a device as expressions see it.

        Raises:
            EvaluationError: they cannot read it.
        """
        candidate = self._devices[index]
        values = candidate.device.attributes.values()
        if not self._gates.list_selectors and any(value.is_list for value in values):
            raise EvaluationError("unsupported attribute value")

        if index not in self._variables:
            self._variables[index] = variables_of(
                candidate.id.driver, candidate.device, is_lazy=not self._gates.is_before_38
            )

        return self._variables[index]

    def _error(self, error: Exception, where: str, candidate: Candidate) -> AllocationError:
        if isinstance(error, NotUnderstood):
            return AllocationError(f"{where}: not understood: {error}", "notUnderstood")
        if not isinstance(error, EvaluationError | StoppedError):
            return AllocationError(f"{where}: CEL compile error: {error}")
        if self._gates.is_before_37:
            return AllocationError(f"{where}: CEL runtime error: {error}")

        hint = ""
        if "no such key:" in str(error):
            hint = (
                ". consider using CEL optional chaining (.? followed by orValue()) or guarding "
                "the check with has() for optional fields"
            )

        return AllocationError(
            f"{where} on device {candidate.id}: CEL runtime error: {error}{hint}"
        )


def _has_no_faults(device: objects.Device) -> bool:
    """Return whether each attribute is such that every selector can read the device."""
    return all(
        value.kind not in ("", "version") and not value.is_list
        for value in device.attributes.values()
    )
