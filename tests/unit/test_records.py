"""Records are dataclasses to whoever uses them, made without importing `dataclasses`."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.records import Record, Settings, Shown, field, replace, show_with


class Point(Record):
    """A record with every kind of field."""

    x: int
    y: int = 3
    seen: list[int] = field(default_factory=list, hash=False)
    note: str = field(default="", repr=False, compare=False)
    total: int = field(init=False, compare=False)
    kind: ClassVar[str] = "point"

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.x + self.y)


@dataclasses.dataclass(frozen=True, slots=True)
class Model:
    """The same as a dataclass."""

    x: int
    y: int = 3
    seen: list[int] = dataclasses.field(default_factory=list, hash=False)
    note: str = dataclasses.field(default="", repr=False, compare=False)
    total: int = dataclasses.field(init=False, compare=False)
    kind: ClassVar[str] = "point"

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.x + self.y)


class Deeper(Point):
    """A record that inherits fields."""

    z: int = 0


class Single(Record, eq=False):
    """A record that is itself only."""

    value: int


class Open(Record, frozen=False):
    """A record whose fields can be assigned."""

    value: int = 0


class Own(Record, eq=False):
    """A record that says itself what is equal."""

    value: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.value % 2 == other.value % 2

    def __hash__(self) -> int:
        return self.value % 2


ARGUMENTS = st.fixed_dictionaries(
    {"x": st.integers(0, 2)},
    optional={
        "y": st.integers(0, 2),
        "seen": st.lists(st.integers(0, 1), max_size=1),
        "note": st.sampled_from("ab"),
    },
)


@given(ARGUMENTS, ARGUMENTS)
def test_a_record_is_what_the_dataclass_is(arguments, changes) -> None:
    ours, theirs = Point(**arguments), Model(**arguments)

    assert repr(ours) == repr(theirs).replace("Model", "Point")
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert (ours == Point(**changes)) == (theirs == Model(**changes))
    assert (hash(ours) == hash(Point(**changes))) == (hash(theirs) == hash(Model(**changes)))
    assert dataclasses.astuple(dataclasses.replace(ours, **changes)) == dataclasses.astuple(
        dataclasses.replace(theirs, **changes)
    )
    assert replace(ours, **changes) == dataclasses.replace(ours, **changes)
    unpickled = pickle.loads(pickle.dumps(ours))  # noqa: S301 - our own
    for same in (copy.copy(ours), copy.deepcopy(ours), unpickled):
        assert (same, same.note, same.total) == (ours, ours.note, ours.total)


def test_arguments_are_by_place_and_by_name() -> None:
    assert Point(1, 2) == Point(y=2, x=1)
    assert str(inspect.signature(Point)).startswith("(x: 'int', y: 'int' = 3, seen: 'list[int]' = ")
    with pytest.raises(TypeError, match="x"):
        Point()
    with pytest.raises(TypeError, match="total"):
        Point(1, total=2)
    assert Point(1).seen is not Point(1).seen
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_fields_are_inherited_and_classes_differ() -> None:
    assert repr(Deeper(1, z=2)) == "Deeper(x=1, y=3, seen=[], total=4, z=2)"
    assert [field.name for field in dataclasses.fields(Deeper(1))] == [
        "x",
        "y",
        "seen",
        "note",
        "total",
        "z",
    ]
    assert Deeper(1) != Point(1)


def test_records_are_frozen() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
        del point.x
    assert not hasattr(point, "__dict__")


def test_a_record_may_be_open_to_changes() -> None:
    opened = Open()
    opened.value += 3

    assert opened == Open(3)
    with pytest.raises(TypeError, match="unhashable"):
        hash(opened)
    with pytest.raises(AttributeError):
        opened.other = 1


def test_identity_is_asked_for_and_there_is_no_order() -> None:
    with pytest.raises(TypeError):
        assert Point(1) < Point(2)
    assert Single(1) != Single(1)
    assert {Own(1), Own(3)} == {Own(5)}


def test_a_node_is_imported_without_what_is_slow() -> None:
    """Nor are a pod and a machine; documents bring msgspec and PyYAML."""
    slow = (
        "numpy",
        "msgspec",
        "dataclasses",
        "inspect",
        "pathlib",
        "yaml",
        "importlib.metadata",
        "click",
        "rich",
    )
    code = (
        f"from alignup import Machine, Node, Pod, make_policy; import sys; print(set({slow}) & "
        "set(sys.modules))"
    )
    done = subprocess.run(  # noqa: S603 - ours
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout == "set()\n"


def test_the_signature_is_the_fields_before_anything_is_made() -> None:
    """It is that of a constructor that nobody has called yet, and of one that a class has."""

    class Late(Record):
        x: int
        y: int = 3

    class Itself(Record):
        x: int

        def __init__(self, text: str) -> None:
            object.__setattr__(self, "x", int(text))

    assert str(inspect.signature(Late)) == "(x: 'int', y: 'int' = 3) -> None"
    assert list(inspect.signature(Itself).parameters) == ["text"]
    assert Itself("4").x == 4


class Options(Settings):
    """Settings with defaults of both kinds."""

    word: str = "a"
    names: tuple[str, ...] = ()
    by_name: dict[str, int] = field(default_factory=dict)
    hidden: int = field(default=1, repr=False)


def test_settings_show_what_differs_from_their_defaults():
    assert repr(Options()) == "Options()"
    assert repr(Options("b", by_name={"x": 1}, hidden=2)) == "Options(word='b', by_name={'x': 1})"


def test_a_signature_shows_what_a_constructor_makes():
    parameter = inspect.signature(Options).parameters["by_name"]
    assert repr(parameter.default) == "{}"
    first, second = Options(), Options()
    assert first.by_name == {}
    assert first.by_name is not second.by_name


class Page(Shown):
    """A record that somebody may draw."""

    text: str


def test_a_notebook_shows_what_somebody_can_draw():
    assert Page("a")._repr_html_() is None
    show_with(Page, lambda page: f"<p>{page.text}</p>")
    assert Page("a")._repr_html_() == "<p>a</p>"
