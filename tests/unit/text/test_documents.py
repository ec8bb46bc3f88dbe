"""Behaviour of `alignup.text.documents` and of the YAML reader behind it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.text.documents import TEXT_LIMIT, read_documents
from checks.memory_use import at_most

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.text(st.characters(categories=["L", "N"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text("abc", min_size=1), PLAIN))
def test_json_reads_alike_as_json_and_as_yaml(value):
    """JSON is YAML: the quick way for the one and the long way for the other give the same."""
    text = json.dumps(value, ensure_ascii=False)
    assert read_documents(text, "t") == [value]
    assert read_documents(f"---\n{text}\n", "t") == [value]
    assert read_documents(text.encode(), "t") == [value]
    assert read_documents(b"\xef\xbb\xbf" + text.encode(), "t") == [value]


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
        ("a: 1" + ":1" * 1000, "digits"),
        ("a: !!int x", "found no number in 'x'"),
        ("a: !!float x", "found no number in 'x'"),
        ("a: *nowhere", "undefined alias"),
        (b"\xff\xfe", "UTF-8"),
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


def test_a_text_beyond_the_limit_is_refused_unread():
    text = "a" * 50 * 2**20
    expected = rf"^big.yaml has 52428800 bytes or more: at most {TEXT_LIMIT} are read$"
    with pytest.raises(InputError, match=expected), at_most(0.1):
        read_documents(text, "big.yaml")


def test_importing_the_package_imports_no_yaml():
    """PyYAML costs milliseconds that an agent never needs."""
    code = (
        "import sys, alignup, alignup.kubernetes.manifest, alignup.kubernetes.kubelet_config; "
        "sys.exit('yaml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)  # noqa: S603  # our own words
    assert done.returncode == 0


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


def test_who_reads_json_only_pays_for_no_yaml() -> None:
    program = (
        "import sys; from alignup.text.documents import read_documents; read_documents('{}', 'x')"
    )
    subprocess.run(  # noqa: S603  # ours
        [sys.executable, "-c", f"{program}; assert 'yaml' not in sys.modules"], check=True
    )
