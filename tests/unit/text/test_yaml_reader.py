"""YAML is read within bounds, and what is wrong in it is one line with its place."""

from __future__ import annotations

import pytest

from alignup.errors import InputError
from alignup.text.documents import read_documents
from alignup.text.yaml_reader import read_yaml
from checks.memory_use import at_most


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ("", []),
        ("# nothing\n", []),
        ("---\n---\n", [None, None]),
        ("a: 1\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("{a: 1}", [{"a": 1}]),
        ("a: 2024-01-01", [{"a": "2024-01-01"}]),
        ("a: 0x10", [{"a": 16}]),
        ("a: 1.5", [{"a": 1.5}]),
        ("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}", [{"x": {"a": 1, "b": 2}, "y": {"a": 1, "b": 3}}]),
        ("y: {<<: [{a: 1}, {a: 2, b: 2}]}", [{"y": {"a": 1, "b": 2}}]),
        ("x: &x [1]\ny: *x", [{"x": [1], "y": [1]}]),
        (
            "x: &x {<<: {a: 1}}\ny: {<<: *x}\nz: {<<: *x}",
            [{"x": {"a": 1}, "y": {"a": 1}, "z": {"a": 1}}],
        ),
    ],
)
def test_yaml_is_read(text, documents):
    assert read_documents(text, "t") == documents


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "line 2, column 1 of pods.yaml"),
        ('{"a": ', "line 2"),
        ("a: b: c", "line 1, column 5"),
        ("a: \t- x\n b", "line"),
        ("a: 1\nb: 2\na: 3", "found the key 'a' a second time at line 3, column 1 of pods.yaml"),
        ("a: \x00", "found the character '\\x00' at offset 3 of pods.yaml"),
        ("a: !!python/object:os.system {}", "tag"),
        ("a: !mine 1", "tag"),
        ("? [1]\n: 2", "key"),
        ("? !!set {a}\n: 2", "key"),
        ("a: {<<: 3}", "merge"),
        ("a: " + "9" * 5000, "digits"),
        ("a: !!int 1:30", "found no number in '1:30'"),
        ("a: !!float 1:30.5", "found no number in '1:30.5'"),
        ("a: !!int x", "found no number in 'x'"),
        ("a: !!float x", "found no number in 'x'"),
        ("a: *nowhere", "undefined alias"),
        (b"\xff\xfc", "UTF-8"),
        (b"\xff\xfea", "UTF-8"),
        ("a: \ud800", "UTF-8"),
        ("&a [*a]", "aliases"),
        ("a: &a {<<: *a, b: *a}", "merges itself at line 1, column 4 of"),
        ("[" * 200_000, "nested more than 200 deep at line 1, column "),
        ("- " * 200_000, "nested more than 200 deep at line 1, column "),
        ("{a: " * 200_000, "nested more than 200 deep"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "nested more than 200 deep"),
        ("[" * 201 + "]" * 201, "nested more than 200 deep at line 1, column 200 of pods.yaml"),
        ("%YAML 3.0\n---\na: 1", "incompatible"),
    ],
)
def test_what_is_neither_yaml_nor_json_is_one_line(text, message):
    with pytest.raises(InputError) as caught:
        read_documents(text, "pods.yaml")
    assert message in str(caught.value)
    assert str(caught.value).startswith(("expected ", "not UTF-8: ", "aliases expand"))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def bomb(line: str) -> str:
    """A text in which each level refers nine times to the one before."""
    lines = ["a0: &a0 {k: v, l: w}"]
    lines += [
        f"a{level}: &a{level} " + line.format(", ".join([f"*a{level - 1}"] * 9))
        for level in range(1, 30)
    ]
    return "\n".join(lines)


@pytest.mark.parametrize("line", ["[{}]", "{{<<: [{}]}}"])
def test_bombs_of_aliases_go_off_in_an_error(line):
    """Neither references to references nor merges of merges cost much.

    They take no time or memory out of proportion.
    """
    with (
        pytest.raises(InputError, match=r"expand beyond measure in t$|more merged entries"),
        at_most(16),
    ):
        read_documents(bomb(line), "t")


def test_aliases_in_proportion_are_no_bomb():
    """A thousand containers that share their resources are a long file and no attack."""
    text = "x: &x {cpu: 1}\ny:\n" + "- {name: n, resources: {limits: *x}}\n" * 3000
    assert len(read_documents(text, "t")[0]["y"]) == 3000


@pytest.mark.parametrize(
    "value",
    [
        "!!bool foo",
        "!!timestamp foo",
        "!!timestamp 2020-13-45",
        "!!timestamp 2020-12-24",
        '!!int ""',
        "!!int _",
        "!!int +",
        '!!float ""',
        "!!float _",
        "!!binary ä",
        "!!omap x",
        "!!pairs [x]",
        "!!set [x]",
        "!!python/none x",
        "!<tag:yaml.org,2002:map> x",
    ],
)
def test_a_tag_that_does_not_fit_is_a_clear_error(value):
    """With the line."""
    with pytest.raises(
        InputError, match=r"^expected YAML or JSON, but .* line 1, column [0-9]+ of f$"
    ):
        read_documents(f"a: {value}\n", "f")


@pytest.mark.parametrize("text", ["- a\n", "a\n---\n", "- [[]]\n"])
def test_there_are_at_most_so_many_values(text, monkeypatch):
    """Each takes a kilobyte."""
    monkeypatch.setattr("alignup.text.yaml_reader._VALUE_LIMIT", 100)
    read_documents(text * 30, "f")
    with pytest.raises(InputError, match="found more than 100 values"):
        read_documents(text * 120, "f")


@pytest.mark.parametrize(
    "text", ["a: &a\n  <<: *a\n  b: 1\n", "a: &a\n  <<: [*a]\n", "a: &a\n  <<: {<<: *a}\n"]
)
def test_a_mapping_that_merges_itself_is_refused(text: str) -> None:
    with pytest.raises(
        InputError,
        match=r"^expected YAML or JSON, but found a mapping that merges itself at line .* of it$",
    ):
        read_documents(text, "it")


def test_a_key_given_twice_in_json_is_refused_with_its_place() -> None:
    with pytest.raises(
        InputError,
        match=(
            r"^expected YAML or JSON, but found the key 'a' a second time "
            r"at line 1, column 10 of it$"
        ),
    ):
        read_documents('{"a": 1, "a": 2}', "it")


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("yes", True),
        ("off", False),
        ("~", None),
        ("010", 8),
        ("1_000", 1000),
        ("1:30", "1:30"),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("1e3", "1e3"),
        ("12:30:45.5", "12:30:45.5"),
        ("-1:00", "-1:00"),
        ("1" + ":1" * 1000, "1" + ":1" * 1000),
        ("-12", -12),
        ("0x1F", 31),
        ("1.5e+3", 1500.0),
        ('"1"', "1"),
    ],
)
def test_scalars_are_those_of_yaml_1_1(scalar: str, value: object) -> None:
    """As in the kubelet's files: dates, and numbers to the base of 60, stay texts."""
    [read] = read_yaml(f"a: {scalar}", "t")
    assert read == {"a": value}
    assert type(read["a"]) is type(value)


def test_the_bound_of_numbers_is_in_characters() -> None:
    assert read_yaml(f"a: {'9' * 64}", "t") == [{"a": int("9" * 64)}]
    with pytest.raises(InputError, match="more digits than are read at line 1, column 4 of t"):
        read_yaml(f"a: {'9' * 65}", "t")


def test_values_side_by_side_are_no_depth() -> None:
    """And leave the bound for what comes behind them."""
    siblings = "[]," * 300
    deepest = "[" + siblings + "[" * 199 + "]" * 199 + "]"
    assert len(read_yaml(deepest, "t")[0]) == 301
    with pytest.raises(InputError, match="nested more than 200 deep"):
        read_yaml(f"[{siblings}{deepest}]", "t")


def test_the_bound_of_values_is_exact(monkeypatch) -> None:
    monkeypatch.setattr("alignup.text.yaml_reader._VALUE_LIMIT", 10)
    assert read_yaml("- a\n" * 9, "t") == [["a"] * 9]
    with pytest.raises(InputError, match="found more than 10 values at line 1"):
        read_yaml("- a\n" * 10, "t")


def test_the_bound_of_aliases_is_exact() -> None:
    """It counts every value of the tree, and each list or mapping as a value too."""

    def shared(size: int, references: int) -> str:
        return f"- &a [{'x, ' * size}]\n" + "- *a\n" * (references - 1)

    [values] = read_yaml(shared(100, 99), "t")
    assert len(values) == 99
    with pytest.raises(InputError, match=r"expand beyond measure in t$"):
        read_yaml(shared(99, 100), "t")
