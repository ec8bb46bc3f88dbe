"""Every example in a docstring of the package, compiled modules included, prints what it shows."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

import alignup

ROOT = Path(__file__).parents[1]
PYTHON_PAGES = sorted((ROOT / "docs" / "reference" / "python").glob("*.md"))
SOURCES = [(ROOT / "src", "*.py"), (ROOT / "cython", "*.pyx")]


def modules_with_examples() -> list[str]:
    """Return the names of the modules in whose source there is an example."""
    return [
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        for root, pattern in SOURCES
        for path in sorted(root.rglob(pattern))
        if ">>> " in path.read_text("utf-8")
    ]


def examples_of(name: str) -> list[doctest.DocTest]:
    """Return the examples of a module; they may use its own names, and all that are public."""
    module = importlib.import_module(name)
    names = {**{public: getattr(alignup, public) for public in alignup.__all__}, **vars(module)}
    finder = doctest.DocTestFinder()
    tests = [test for test in finder.find(module, name, globs=names) if test.examples]
    if not tests:  # doctest takes nothing of a compiled module for its own
        own = [
            member
            for member in vars(module).values()
            if getattr(member, "__module__", None) == name
        ]
        tests = [
            test
            for member in own
            for test in finder.find(member, member.__name__, globs=names)
            if test.examples
        ]

    return tests


def classes_of_the_reference() -> list[type]:
    """Return the classes that the page of the Python API describes."""
    names = re.findall(
        r"^::: ([\w.]+)", "".join(page.read_text() for page in PYTHON_PAGES), re.MULTILINE
    )
    members = [
        getattr(importlib.import_module(path.rpartition(".")[0]), path.rpartition(".")[2])
        for path in names
    ]
    return [member for member in members if isinstance(member, type)]


@pytest.mark.parametrize("public", classes_of_the_reference(), ids=lambda public: public.__name__)
def test_every_public_class_has_an_example(public: type) -> None:
    """A protocol shows a class that follows it."""
    text = inspect.cleandoc(public.__doc__ or "")  # Python 3.13 has done so already
    assert re.search(r"^ *>>> |^    class ", text, re.MULTILINE)


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_print_what_they_show(name: str) -> None:
    examples = examples_of(name)
    assert examples
    for example in examples:
        output: list[str] = []
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=output.append)
        assert not output, "".join(output)
