"""The source tree keeps its shape: one direction of imports, no circles, and few modules."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatch
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "alignup"
COMPILED = ROOT / "cython"

ORDER = (
    {"errors", "records", "version"},
    {"text"},
    {"machine", "trusted_files"},
    {"processes"},
    {"kubernetes"},
    {"core"},
    {"topology_manager", "claims"},
    {"providers", "koordinator"},
    {"node", "machine_parts"},
    {"replay", "cluster", "leases", "metrics", "kubelet", "device_plugins", "node_resource_topology"},
    {"agent"},
    {"scheduler"},
    {"cli", "__main__"},
)
"""The rooms from the lowest to the highest; rooms of one set know nothing of each other, or in one direction only."""

CONVENIENCE = {
    ("cluster.cluster", "node_resource_topology.read"): "Cluster.from_file",
    ("machine.machine", "machine.catalog"): "Machine.catalog",
    ("machine.machine", "machine.device_inventory"): "Machine.from_dict, where the mapping has devices",
    ("machine.machine", "machine.load"): "read_machine",
    ("machine.machine", "machine.sysfs.machine"): "read_machine",
    ("machine.machine", "machine_parts"): "Machine.split",
    ("machine.machine", "node.pictures.picture"): "Machine._repr_svg_",
    ("topology_manager.admission", "node.pictures.page"): "Admission._repr_html_",
    ("node.node", "node.pictures.picture"): "Node._repr_svg_",
    ("node.explain.explanation", "node.pictures.explanation_page"): "Explanation._repr_html_",
    ("machine.load", "machine.catalog"): "only a name needs the catalog",
    ("kubernetes.pod", "kubernetes.manifest"): "read_pod",
    ("node.node", "kubelet.read"): "read_kubelet_node",
    ("node.node", "node.explain.why"): "Node.explain",
}
"""Public convenience methods of a record that import the reader which makes it: the only imports against the order."""

TYPES_ONLY = {
    ("kubelet.verify", "leases.record"): "leases are verified as containers are",
    ("machine.machine", "machine_parts"): "the return type of Machine.split",
    ("node.node", "kubelet.read"): "the options of read_kubelet_node",
    ("node.node", "node.explain.explanation"): "the return type of Node.explain",
}
"""Imports for annotations that go against the order or close a circle."""

FILLED_ROOMS = {
    "cli": "the program itself: the console script is `alignup.cli:main`",
    "cluster": "`from alignup.cluster import Cluster, Evaluation, REASONS, STRATEGIES` is public",
    "node": "`from alignup.node import Node` is public",
    "replay": "`from alignup.replay import replay, replay_steps, RecordingProvider` is public",
}
"""Rooms whose `__init__` imports something."""

MOST_MODULES = 260
MOST_TIED = 11


class Import(NamedTuple):
    """One import of a module of this package by another, names without `alignup.`."""

    module: str
    target: str
    kind: str
    """`module`, `types` (under TYPE_CHECKING) or `function`."""


def modules() -> dict[str, Path]:
    """Return the Python modules and the stubs of compiled ones, by name without `alignup.`."""
    found: dict[str, Path] = {}
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")]):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@cache
def parsed(name: str) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(MODULES[name].read_text(encoding="utf-8"))


def imports_of(name: str) -> list[Import]:
    """Return what a module imports from this package."""
    found: list[Import] = []

    def walk(node: ast.AST, kind: str) -> None:
        if isinstance(node, ast.expr):
            return  # holds no statement
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            kind = "function"
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for child in node.body:
                walk(child, "types")
            for child in node.orelse:
                walk(child, kind)
            return
        found.extend(Import(name, target, kind) for target in targets(node))
        for child in ast.iter_child_nodes(node):
            walk(child, kind)

    walk(parsed(name), "module")
    return found


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
    return [found for name in MODULES for found in imports_of(name)]


def rank(name: str) -> int:
    """Return the place of a module's room in the order; the package itself is above all."""
    room = name.partition(".")[0]
    return next((place for place, rooms in enumerate(ORDER) if room in rooms), len(ORDER))


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of a circle, if there is one."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def named(found: Import, names: Iterable[tuple[str, str]]) -> bool:
    """Return whether the import is among the names, in which `*` stands for anything."""
    return any(fnmatch(found.module, module) and fnmatch(found.target, target) for module, target in names)


def allowed(found: Import) -> bool:
    """Return whether the import is named as an exception to the order of rooms."""
    return named(found, {"function": CONVENIENCE, "types": TYPES_ONLY}.get(found.kind, ()))


def test_every_room_has_its_place() -> None:
    assert {name.partition(".")[0] for name in MODULES} - {""} <= set().union(*ORDER)


def test_no_import_points_upwards() -> None:
    upward = [found for found in imports() if rank(found.target) > rank(found.module) and not allowed(found)]
    assert upward == []


def test_no_imports_run_in_a_circle() -> None:
    """Neither those of modules nor those for annotations; inside functions only conveniences may close one."""
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for found in imports():
        if not allowed(found) and found.target != found.module:
            graph[found.module].add(found.target)
    assert circle(graph) == []


def test_rooms_of_one_height_know_each_other_in_one_direction_at_most() -> None:
    sideways: dict[str, set[str]] = {}
    for found in imports():
        source, target = found.module.partition(".")[0], found.target.partition(".")[0]
        if source != target and rank(source) == rank(target) and not allowed(found):
            sideways.setdefault(source, set()).add(target)
    assert circle(sideways) == []


def test_rooms_import_nothing_by_themselves() -> None:
    """To import a module of a room costs that module alone."""
    filled = {
        found.module
        for found in imports()
        if found.module and found.kind == "module" and MODULES[found.module].name == "__init__.py"
    }
    assert filled == FILLED_ROOMS.keys()


def test_no_exception_outlives_its_reason() -> None:
    late = [found for found in imports() if found.kind == "function"]
    assert [name for name in CONVENIENCE if not any(named(found, [name]) for found in late)] == []
    types = {(found.module, found.target) for found in imports() if found.kind == "types"}
    assert TYPES_ONLY.keys() <= types


def test_conveniences_tie_few_files_together() -> None:
    """The files of all circles that exist at run time, late imports and conveniences counted."""
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for found in imports():
        if found.kind != "types" and found.target != found.module:
            graph[found.module].add(found.target)
    reached = {name: reachable(graph, name) for name in graph}
    tied = sorted(name for name in graph if name in reached[name])
    assert len(tied) <= MOST_TIED, tied


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """Return the modules that a module imports, directly or not."""
    found: set[str] = set()
    ahead = [start]
    while ahead:
        for target in graph[ahead.pop()] - found:
            found.add(target)
            ahead.append(target)
    return found


def test_private_names_stay_in_their_module() -> None:
    found = {
        (name, alias.name)
        for name in MODULES
        for node in ast.walk(parsed(name))
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
        if alias.name.startswith("_")
    }
    assert not found


def compiled_imports() -> dict[str, set[str]]:
    """Return what each compiled module cimports; a `.pxd` counts with its module."""
    graph: dict[str, set[str]] = {}
    for path in sorted([*COMPILED.rglob("*.pyx"), *COMPILED.rglob("*.pxd")]):
        name = ".".join(path.relative_to(COMPILED).with_suffix("").parts)
        found = re.findall(r"^\s*(?:from|cimport)\s+(alignup[\w.]*)", path.read_text(encoding="utf-8"), re.MULTILINE)
        graph.setdefault(name, set()).update(set(found) - {name})
    return graph


def test_compiled_modules_import_each_other_without_circles() -> None:
    """And nothing of the package outside the core."""
    graph = compiled_imports()
    assert circle(graph) == []
    assert {
        target for targets in graph.values() for target in targets if not target.startswith("alignup.core")
    } == set()


def test_narrow_and_wide_know_nothing_of_amounts() -> None:
    graph = compiled_imports()
    machines = [name for name in graph if name.startswith(("alignup.core.narrow", "alignup.core.wide"))]
    assert [name for name in machines if any("core.amounts" in target for target in graph[name])] == []


def test_modules_are_few() -> None:
    """A stranger finds the file: two modules that only make sense together are one."""
    assert len([path for path in MODULES.values() if path.suffix == ".py"]) <= MOST_MODULES


@pytest.mark.parametrize("graph", [{"a": {"b"}, "b": {"c"}, "c": {"a"}}, {"a": {"a"}}])
def test_a_circle_is_seen(graph) -> None:
    assert circle(graph)
