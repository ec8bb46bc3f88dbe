"""Selectors are asked about devices once, and their errors are the scheduler's."""

from __future__ import annotations

from typing import Any

import pytest

from alignup.claims.objects import Cel, Device, DeviceId, Pool, Selector, Slice
from alignup.claims.question import AllocationError, Effort
from alignup.claims.scheduler_gates import Gates, gates_of
from alignup.claims.selector_answers import Candidate, SelectorAnswers
from alignup.claims.selectors.evaluate import Program
from alignup.records import replace
from alignup.text.typed import decode

GATES = gates_of()
DRIVER = "gpu.example.com"
MODEL = f'device.attributes["{DRIVER}"].model'


def answers(
    *attributes: dict[str, Any], gates: Gates = GATES, effort: Effort | None = None
) -> SelectorAnswers:
    """Return what answers for devices with these attributes."""
    candidates = []
    for number, device_attributes in enumerate(attributes):
        device = decode({"name": f"d{number}", "attributes": device_attributes}, Device)
        part = Slice("s", DRIVER, Pool("p"), devices=(device,))
        candidates.append(Candidate(DeviceId(DRIVER, "p", device.name), device, part, 0))

    return SelectorAnswers(candidates, gates, effort or Effort())


def selectors(*expressions: str) -> list[Selector]:
    return [Selector(Cel(expression)) for expression in expressions]


@pytest.fixture
def evaluations(monkeypatch) -> list[object]:
    """Return the devices that programs are asked about, in order."""
    devices: list[object] = []
    matches = Program.matches

    def counted(program: Program, variables: Any) -> tuple[bool, int]:
        devices.append(variables)
        return matches(program, variables)

    monkeypatch.setattr(Program, "matches", counted)
    return devices


def test_all_have_to_match() -> None:
    answering = answers({"model": {"string": "a"}}, {"model": {"string": "b"}})
    is_a = f'{MODEL} == "a"'
    assert [answering.all_match(selectors(is_a), "class c", place) for place in (0, 1)] == [
        True,
        False,
    ]
    assert not answering.all_match(selectors(is_a, "false"), "class c", 0)
    assert answering.all_match([], "class c", 1)


def test_what_comes_behind_one_that_does_not_match_is_not_asked() -> None:
    assert answers({}).all_match(selectors("false", "nonsense("), "class c", 0) is False


@pytest.mark.parametrize(
    ("expression", "devices"), [("device.driver == 'x'", 1), (f'{MODEL} == "a"', 3)]
)
def test_each_question_is_asked_once(expression: str, devices: int, evaluations) -> None:
    """Of one about the driver, once for all devices of the driver."""
    answering = answers(*[{"model": {"string": "b"}}] * 3)
    for _ in range(2):
        for place in range(3):
            assert not answering.all_match(selectors(expression), "class c", place)

    assert len(evaluations) == devices


@pytest.mark.parametrize(
    "attribute", [{"version": "1.2.3"}, {"ints": [1]}, {}], ids=["version", "list", "nothing"]
)
def test_a_device_that_may_not_be_read_is_asked_for_itself(attribute, evaluations) -> None:
    """Every selector has an error where an attribute cannot be read."""
    answering = answers({}, {"x": attribute}, {})
    about_driver = selectors(f"device.driver == '{DRIVER}'")
    assert answering.all_match(about_driver, "class c", 0)
    if attribute:
        assert answering.all_match(about_driver, "class c", 1)
    else:
        with pytest.raises(AllocationError, match="attribute x: unsupported attribute value"):
            answering.all_match(about_driver, "class c", 1)

    assert answering.all_match(about_driver, "class c", 2)
    assert len(evaluations) == (2 if attribute else 1)


@pytest.mark.parametrize(
    ("expression", "problem", "kind"),
    [
        ("1 +", "CEL compile error: ", "fatal"),
        ("device.driver", "CEL compile error: must evaluate to bool", "fatal"),
        ("1 / 0 == 1", " on device gpu.example.com/p/d0: CEL runtime error: division", "fatal"),
        ("(" * 100 + "true" + ")" * 100, "not understood: ", "notUnderstood"),
    ],
)
def test_a_selector_that_has_no_answer_is_an_error(expression, problem, kind) -> None:
    with pytest.raises(AllocationError) as error:
        answers({"model": {"string": "a"}}).all_match(selectors("true", expression), "class c", 0)
    assert str(error.value).startswith("class c: selector #1")
    assert problem in str(error.value)
    assert error.value.kind == kind


def test_a_key_that_is_missing_comes_with_a_hint_since_1_37() -> None:
    absent = selectors(f"{MODEL} == 'a'")
    message = f"class c: selector #0 on device {DRIVER}/p/d0: CEL runtime error: no such key: model"
    with pytest.raises(AllocationError) as error:
        answers({"x": {"int": 1}}).all_match(absent, "class c", 0)
    assert str(error.value).startswith(f"{message}. consider using CEL optional chaining")

    with pytest.raises(AllocationError) as error:
        answers({"x": {"int": 1}}, gates=gates_of("1.36")).all_match(absent, "class c", 0)
    assert str(error.value) == "class c: selector #0: CEL runtime error: no such key: model"


def test_an_answer_that_is_an_error_stays_one() -> None:
    answering = answers({"x": {"int": 1}})
    for _ in range(2):
        with pytest.raises(AllocationError, match="no such key"):
            answering.all_match(selectors(f"{MODEL} == 'a'"), "class c", 0)


def test_lists_are_read_where_they_are_known() -> None:
    numa = selectors(f"device.attributes['{DRIVER}'].numa.includes(1)")
    lists = {"numa": {"ints": [1, 2]}}
    assert answers(lists).all_match(numa, "class c", 0)
    without = replace(GATES, list_selectors=False)
    with pytest.raises(AllocationError, match="unsupported attribute value"):
        answers(lists, gates=without).all_match(selectors("true"), "class c", 0)


def test_a_selector_of_another_kind_is_an_empty_expression() -> None:
    with pytest.raises(AllocationError, match="class c: selector #0: CEL compile error"):
        answers({}).all_match([Selector()], "class c", 0)


NEXT = gates_of("1.38")
BROKEN: dict[str, Any] = {
    "model": {"string": "a"},
    "firmware": {"version": "99999999999999999999.0.0"},
}
FIRMWARE = f'device.attributes["{DRIVER}"]'


def test_up_to_1_37_an_attribute_that_cannot_be_read_is_an_error_to_every_selector() -> None:
    with pytest.raises(AllocationError, match="parse semantic version"):
        answers(BROKEN).all_match(selectors(f'{MODEL} == "a"'), "class c", 0)


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        (f'{MODEL} == "a"', True),
        (f'"firmware" in {FIRMWARE}', False),
        (f"{FIRMWARE}.size() == 2", True),
        (f'{FIRMWARE}.exists(name, name == "firmware")', True),
    ],
)
def test_from_1_38_on_it_is_one_to_who_looks_at_it(expression: str, matches) -> None:
    answering = answers(BROKEN, gates=NEXT)
    assert answering.all_match(selectors(expression), "class c", 0) is matches


@pytest.mark.parametrize(
    "expression",
    [
        f'{FIRMWARE}.firmware == semver("1.0.0")',
        f"has({FIRMWARE}.firmware)",
        f"{FIRMWARE}.?firmware.hasValue()",
        f"{FIRMWARE} == {FIRMWARE}",
        f'{FIRMWARE}.all(name, value, name == "model" || value == semver("1.0.0"))',
    ],
)
def test_from_1_38_on_looking_at_it_is_an_error(expression: str) -> None:
    """Asked of cel-go 0.33.2, as the allocator of 1.38.0-beta.0 has it."""
    with pytest.raises(AllocationError, match="firmware: value is invalid or its type is not"):
        answers(BROKEN, gates=NEXT).all_match(selectors(expression), "class c", 0)


def test_a_function_of_1_38_is_not_declared_before() -> None:
    expression = 'cidr("10.0.0.0/8").isMask()'
    assert answers({}, gates=NEXT).all_match(selectors(expression), "class c", 0)
    with pytest.raises(
        AllocationError, match="CEL compile error: undeclared reference to 'isMask'"
    ):
        answers({}).all_match(selectors(expression), "class c", 0)


def test_what_selectors_cost_in_all_is_bounded() -> None:
    """Each is below the scheduler's bound for a device, and all of them would take long."""
    costly = f'{MODEL} == "none" || !lists.range(300).all(x, lists.range(300).all(y, x >= 0))'
    effort = Effort(cost=700_000)
    answering = answers(*({"model": {"string": f"m{n}"}} for n in range(9)), effort=effort)
    outcomes = []
    for place in range(9):
        try:
            outcomes.append(answering.all_match(selectors(costly), "class c", place))
        except AllocationError as error:
            outcomes.append((error.kind, str(error)))

    given_up = "timeout", "the selectors were given up: they cost too much"
    assert outcomes[:2] == [False, False]
    assert outcomes[-1] == given_up
    assert set(outcomes) == {False, given_up}
    # what was answered stays so
    assert not answering.all_match(selectors(costly), "class c", 0)


def test_an_error_costs_as_well() -> None:
    endless = f'{MODEL} == "none" || lists.range(1000).all(x, lists.range(1000).all(y, x >= 0))'
    effort = Effort()
    answering = answers({"model": {"string": "a"}}, effort=effort)
    with pytest.raises(AllocationError, match="cost limit exceeded"):
        answering.all_match(selectors(endless), "class c", 0)
    assert effort.cost <= Effort().cost - 1_000_000


def test_what_was_answered_is_not_paid_again_for_a_question_beside_it(evaluations) -> None:
    effort = Effort()
    device = {"model": {"string": "a"}}
    first = answers(device, effort=effort)
    second = SelectorAnswers(first._devices, GATES, effort)
    for answering in (first, second):
        assert answering.all_match(selectors(f'{MODEL} == "a"'), "class c", 0)
    assert len(evaluations) == 1
