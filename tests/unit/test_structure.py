"""The source tree keeps its shape: one direction of imports, no circles, and few modules."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import alignup

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "alignup"
COMPILED = ROOT / "cython"
TESTS = ROOT / "tests"

WINGS = {"host", "control_plane"}
"""Packages that hold rooms, and no module of their own but those that all of these rooms share."""

ORDER = (
    {"errors", "records", "version"},
    {"text"},
    {"host.trusted_files", "host.proc_files"},
    {"machine"},
    {"host.launchers"},
    {"host.processes"},
    {"kubernetes"},
    {"core"},
    {"topology_manager", "claims"},
    {"providers", "koordinator"},
    {"host.parts", "node"},
    {"explanations"},
    {"pictures"},
    {"replay", "cluster"},
    {"kubelet", "host.device_plugins"},
    {"host.leases"},
    {"host.agent"},
    {"control_plane.process", "control_plane.serving", "control_plane.batched_loop"},
    {"control_plane.api_server"},
    {"control_plane.scheduler", "control_plane.publishers"},
    {"control_plane.gates"},
    {"cli", "__main__"},
)
"""The rooms from the lowest to the highest.

Rooms of one set know nothing of each other, or in one direction only.
"""

UPWARDS = {
    (
        "cluster",
        "kubelet.node_resource_topology.read",
    ): "`alignup.cluster` exports what reads a cluster of objects",
    ("kubelet.verify", "host.leases.record"): "leases are verified as containers are",
}
"""The imports against the order, of modules that close no circle."""

STRINGS = {"", "cli.program"}
"""The modules that import by a string: the table of public names, and the loader of subcommands."""

FILLED_ROOMS = {
    "cli": "the program itself: the console script is `alignup.cli:main`",
    "cluster": "`from alignup.cluster import Cluster, Evaluation, REASONS, STRATEGIES` is public",
    "node": "`from alignup.node import Node` is public",
    "replay": "`from alignup.replay import replay, replay_steps, RecordingProvider` is public",
}
"""Rooms whose `__init__` imports something."""

BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""The fields of a statement that hold statements."""

WITHOUT_TESTS = {
    "core/topology_text",
}
"""Modules whose tests are not in a file of their name yet."""

MOST_MODULES = 300
"""The room of gates has a job in each file, and so have the tables of messages."""

MOST_ENTRIES = 20


class Import(NamedTuple):
    """One import of a module of this package by another, names without `alignup.`."""

    module: str
    target: str
    kind: str
    """`module`, `types` (under TYPE_CHECKING) or `function`."""


def modules() -> dict[str, Path]:
    """Return the Python modules and the stubs of compiled ones, by name without `alignup.`."""
    by_name: dict[str, Path] = {}
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")]):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        by_name[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return by_name


MODULES = modules()


def parsed(name: str) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(MODULES[name].read_text(encoding="utf-8"))


@cache
def import_statements(name: str) -> list[tuple[ast.Import | ast.ImportFrom, str]]:
    """Return the import statements of a module, and the kind of each."""
    statements: list[tuple[ast.Import | ast.ImportFrom, str]] = []

    def walk(node: ast.AST, kind: str) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            statements.append((node, kind))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            kind = "function"
        types = (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.Name)
            and node.test.id == "TYPE_CHECKING"
        )
        for field in BLOCKS:
            for child in getattr(node, field, ()):
                walk(child, "types" if types and field == "body" else kind)

    walk(parsed(name), "module")
    return statements


def imports_of(name: str) -> list[Import]:
    """Return what a module imports from this package."""
    return [
        Import(name, target, kind)
        for node, kind in import_statements(name)
        for target in targets(node)
    ]


def targets(node: ast.AST) -> set[str]:
    """Return the modules of this package that an import statement names."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        assert not node.level, "imports name their module in full"
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        return set()
    within = [name.removeprefix("alignup.") for name in names if name.startswith("alignup.")]
    return {name if name in MODULES else name.rpartition(".")[0] for name in within}


@cache
def imports() -> list[Import]:
    """Return what all modules import from this package."""
    return [edge for name in MODULES for edge in imports_of(name)]


def room(name: str) -> str:
    """Return the room of a module: its package, or the part of a wing."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] in WINGS and len(parts) > 1 else parts[0]


def rank(name: str) -> int:
    """Return the place of a module's room in the order.

    The package itself is above all, a wing's below all.
    """
    if name in WINGS:
        return -1
    return next((place for place, rooms in enumerate(ORDER) if room(name) in rooms), len(ORDER))


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of a circle, if there is one."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def graph_of(edges: Iterable[Import]) -> dict[str, set[str]]:
    """Return which modules each edge imports."""
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for edge in edges:
        if edge.target != edge.module:
            graph[edge.module].add(edge.target)
    return graph


def test_every_room_has_its_place() -> None:
    assert {room(name) for name in MODULES} - {"", *WINGS} <= set().union(*ORDER)


def test_no_import_points_upwards() -> None:
    upward = {
        (edge.module, edge.target) for edge in imports() if rank(edge.target) > rank(edge.module)
    }
    assert upward == UPWARDS.keys()


def test_no_imports_run_in_a_circle() -> None:
    """Those of modules, those inside functions and those for annotations, all together."""
    assert circle(graph_of(imports())) == []


def test_rooms_of_one_height_know_each_other_in_one_direction_at_most() -> None:
    sideways: dict[str, set[str]] = {}
    for edge in imports():
        source, target = room(edge.module), room(edge.target)
        if source != target and rank(edge.module) == rank(edge.target):
            sideways.setdefault(source, set()).add(target)
    assert circle(sideways) == []


def test_only_two_modules_import_by_a_string() -> None:
    importing = {
        name
        for name, path in MODULES.items()
        if any(word in path.read_text(encoding="utf-8") for word in ("import_module", "__import__"))
        for node in ast.walk(parsed(name))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"import_module", "importlib.import_module", "__import__"}
    }
    assert importing == STRINGS


def test_the_package_has_few_entries() -> None:
    entries = [entry for entry in PACKAGE.iterdir() if entry.is_dir() or entry.suffix == ".py"]
    assert len([entry for entry in entries if not entry.name.startswith("__")]) <= MOST_ENTRIES


def test_no_entry_hides_a_public_function() -> None:
    """No module takes the place of a function once it is imported.

    A module `alignup.explain` would take the place of the function of that name.
    """
    for name in MODULES:
        if not name.rpartition(".")[2].startswith("__main__") and not name.endswith(
            ("_pb2", "_pb2_grpc")
        ):
            importlib.import_module(f"alignup.{name}" if name else "alignup")

    functions = [name for name in alignup.__all__ if name.islower()]
    assert {
        "explain",
        "split",
        "draw",
        "lease",
        "read_machine",
        "read_pod",
        "read_kubelet_node",
    } <= set(functions)
    assert [name for name in functions if not callable(getattr(alignup, name))] == []


def imported_first(name: str) -> str:
    """Return why a module cannot be the first of the package that a program imports.

    Empty: it can.
    """
    done = subprocess.run(  # noqa: S603  # ours
        [sys.executable, "-c", f"import alignup.{name}"],
        check=False,
        capture_output=True,
        text=True,
    )
    return done.stderr


@pytest.mark.parametrize("name", sorted({target for _, target in UPWARDS} | FILLED_ROOMS.keys()))
def test_a_module_is_imported_first(name: str) -> None:
    """Those on both sides of an import against the order."""
    assert imported_first(name) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sorted(name for name in MODULES if name and not name.endswith("__main__"))
)
def test_any_module_is_imported_first(name: str) -> None:
    assert imported_first(name) == ""


def test_rooms_import_nothing_by_themselves() -> None:
    """To import a module of a room costs that module alone."""
    filled = {
        edge.module
        for edge in imports()
        if edge.module and edge.kind == "module" and MODULES[edge.module].name == "__init__.py"
    }
    assert filled == FILLED_ROOMS.keys()


def test_private_names_stay_in_their_module() -> None:
    private = {
        (name, alias.name)
        for name in MODULES
        for node, _ in import_statements(name)
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
        if alias.name.startswith("_")
    }
    assert not private


def test_each_compiled_module_that_python_imports_has_a_stub() -> None:
    """Type checkers find a stub that was installed before where the tree lacks one."""
    imported = {
        node.module
        for name in MODULES
        for node, _ in import_statements(name)
        if isinstance(node, ast.ImportFrom) and node.module
    }
    compiled = {
        ".".join(path.relative_to(COMPILED).with_suffix("").parts)
        for path in COMPILED.rglob("*.pyx")
    }
    lacking = {name for name in imported & compiled if name.removeprefix("alignup.") not in MODULES}
    assert len(imported & compiled) > 10
    assert lacking == set()


def compiled_imports() -> dict[str, set[str]]:
    """Return what each compiled module cimports; a `.pxd` counts with its module."""
    graph: dict[str, set[str]] = {}
    for path in sorted([*COMPILED.rglob("*.pyx"), *COMPILED.rglob("*.pxd")]):
        name = ".".join(path.relative_to(COMPILED).with_suffix("").parts)
        cimported = re.findall(
            r"^\s*(?:from|cimport)\s+(alignup[\w.]*)",
            path.read_text(encoding="utf-8"),
            re.MULTILINE,
        )
        graph.setdefault(name, set()).update(set(cimported) - {name})
    return graph


def test_compiled_modules_import_each_other_without_circles() -> None:
    """And nothing of the package outside the core."""
    graph = compiled_imports()
    assert circle(graph) == []
    assert {
        target
        for targets in graph.values()
        for target in targets
        if not target.startswith("alignup.core")
    } == set()


def test_narrow_and_wide_know_nothing_of_amounts() -> None:
    graph = compiled_imports()
    machines = [
        name for name in graph if name.startswith(("alignup.core.narrow", "alignup.core.wide"))
    ]
    assert [
        name for name in machines if any("core.amounts" in target for target in graph[name])
    ] == []


def modules_with_code() -> set[Path]:
    """Return the modules that have something to test, from the package on, without suffixes."""
    python = {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")}
    compiled = {path.relative_to(COMPILED / "alignup") for path in COMPILED.rglob("*.pyx")}
    return {
        path.with_suffix("")
        for path in python | compiled
        if not path.name.startswith("__") and "_pb2" not in path.name
    }


def test_each_module_has_its_tests_in_a_file_of_its_name() -> None:
    """A stranger finds the tests of a module, and sees what a change of it may break."""
    without_tests = {
        str(module)
        for module in modules_with_code()
        if not (TESTS / "unit" / module.parent / f"test_{module.name}.py").is_file()
    }
    assert without_tests == WITHOUT_TESTS


def test_each_test_is_in_a_file_that_is_collected() -> None:
    """In another file pytest would never see it."""
    unseen = [
        f"{path.relative_to(TESTS)}::{node.name}"
        for path in sorted(TESTS.rglob("*.py"))
        if not path.name.startswith("test_") and path.name != "conftest.py"
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    ]
    assert unseen == []


def test_modules_are_few() -> None:
    """A stranger finds the file: two modules that only make sense together are one."""
    assert len([path for path in MODULES.values() if path.suffix == ".py"]) <= MOST_MODULES


@pytest.mark.parametrize("graph", [{"a": {"b"}, "b": {"c"}, "c": {"a"}}, {"a": {"a"}}])
def test_a_circle_is_seen(graph) -> None:
    assert circle(graph)
