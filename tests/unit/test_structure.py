"""The source tree keeps its shape: one direction of imports, no circles, few entries at the top, short modules."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatch
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
    {"errors"},
    {"text"},
    {"machine"},
    {"kubernetes"},
    {"core"},
    {"topology_manager"},
    {"providers", "koordinator"},
    {"node"},
    {"replay", "cluster", "leases", "metrics", "kubelet"},
    {"cli", "__main__"},
)
"""The rooms from the lowest to the highest; rooms of one set know nothing of each other, or in one direction only."""

CONVENIENCE = {
    ("machine.machine", "machine.catalog"): "Machine.catalog",
    ("machine.machine", "machine.device_inventory"): "Machine.from_dict, where the mapping has devices",
    ("machine.machine", "machine.load"): "Machine.load",
    ("machine.machine", "machine.machine_json"): "Machine.from_dict, Machine.to_dict",
    ("machine.machine", "machine.sysfs.machine"): "Machine.from_sysfs",
    ("machine.machine", "leases.machine_parts"): "Machine.split",
    ("machine.machine", "node.pictures.notebook"): "Machine._repr_svg_",
    ("topology_manager.admission", "node.pictures.notebook"): "Admission._repr_html_",
    ("node.node", "node.pictures.notebook"): "Node._repr_svg_",
    ("node.explain.explanation", "node.pictures.explanation_page"): "Explanation._repr_html_",
    ("machine.described", "machine.catalog"): "only a name needs the catalog",
    ("machine.described", "machine.machine_json"): "only an object is decoded",
    ("kubernetes.pod", "kubernetes.manifest"): "Pod.from_manifest",
    ("node.node", "kubelet.read"): "Node.from_kubelet",
    ("node.node", "node.explain.why"): "Node.explain",
}
"""Public convenience methods of a record that import the reader which makes it: the only imports against the order."""

LATE = {
    (
        "kubernetes.kubelet_config",
        "kubernetes.other_gates",
    ): "few configurations set gates, whose list is long",
    ("cluster.cluster", "cluster.json_lines"): "only Cluster.from_file reads files",
    ("cluster.cluster", "cluster.node_resource_topology"): "only Cluster.from_file reads files",
    ("kubelet.pod_resources_client", "kubelet.pod_resources_pb2"): "needs an extra",
    ("kubelet.verify", "kubelet.allocate_response"): "needs an extra",
    ("leases.child_process", "errors"): "the child imports after the fork, and only what it needs",
    ("leases.child_process", "leases.binding"): "the child imports after the fork, and only what it needs",
    ("leases.child_process", "machine.cpuset"): "the child imports after the fork, and only what it needs",
    (
        "leases.child_process",
        "leases.private_mounts",
    ): "the child imports after the fork, and only what it needs",
    (
        "leases.agent.agent",
        "leases.agent.*",
    ): "only who wants device plugins or metrics needs their libraries",
    ("leases.lease_node", "leases.machine_parts"): "only a part of a machine needs it",
    ("leases.lease_node", "topology_manager.refusal_message"): "only a refusal needs words",
    ("leases.agent.client", "leases.machine_parts"): "listing leases is not to wait for what others need",
    ("leases.grant", "leases.environment"): "as above",
    ("leases.source", "leases.*"): "as above; and the agent's side only where there is an agent",
    ("machine.load", "*"): "only the reader of the source at hand is imported",
    ("machine.with_devices", "*"): "only the readers of devices that are asked for are imported",
    ("node.inputs", "koordinator.*"): "few nodes have labels of a Koordinator cluster",
    ("node.node", "koordinator.*"): "few nodes ever see a pod with a policy of its own",
    ("text.documents", "text.yaml_reader"): "processes that read JSON only must not pay for PyYAML",
    ("topology_manager.admission", "topology_manager.refusal_message"): "only a refusal needs words",
    ("cli.agent", "leases.*"): "help, and wrong usage, are shown without it",
    ("cli.admit", "cli.admit_hints"): "only --hints needs it",
    ("cli.admit", "cli.admit_versions"): "only several versions need it",
    ("cli.admit", "kubernetes.*"): "help, and wrong usage, are shown without it",
    ("cli.admit", "replay.scenario"): "as above",
    ("cli.admit", "text.byte_sizes"): "as above",
    ("cli.admit", "topology_manager.refusal_message"): "as above",
    ("cli.completion", "machine.catalog"): "only a shell that completes a machine's name needs it",
    ("cli.comparison", "kubernetes.policy_options"): "as above",
    ("cli.extender", "cluster.scheduler.*"): "as above",
    ("cli.explain", "cli.explain_nodes"): "as above",
    ("cli.explain", "cli.explain_view"): "as above",
    ("cli.fleet", "cluster.scheduler.*"): "as above",
    ("cli.node_publish", "cluster.scheduler.*"): "as above",
    ("cli.node_publish", "kubelet.read"): "as above",
    ("cli.reconcile", "cluster.scheduler.*"): "as above",
    ("cli.inputs", "kubelet.*"): "as above",
    ("cli.inputs", "kubernetes.*"): "as above",
    ("cli.inputs", "machine.device_inventory"): "as above",
    ("cli.inputs", "machine.with_devices"): "as above",
    ("cli.inputs", "node"): "as above",
    ("cli.inputs", "text.documents"): "as above",
    ("cli.machine", "cli.machine_view"): "as above",
    ("cli.machine", "kubelet.read"): "as above",
    ("cli.machine", "machine.*"): "as above",
    ("cli.explain", "node.pictures.*"): "only a picture needs it",
    ("cli.machine", "node.pictures.*"): "as above",
    ("cli.node_check", "kubelet.*"): "as above",
    ("cli.node_collect", "cli.extender"): "only with --kubeconfig",
    ("cli.node_collect", "cluster.scheduler.api_client"): "only with --kubeconfig",
    ("cli.node_collect", "kubelet.*"): "as above",
    ("cli.node_collect", "text.json_text"): "as above",
    ("cli.node_export", "kubelet.*"): "as above",
    ("cli.node_options", "kubelet.read"): "as above",
    ("cli.node_show", "cli.inputs"): "as above",
    ("cli.node_verify", "kubelet.*"): "as above",
    ("cli.node_verify", "leases.store"): "as above",
    ("cli.node_show", "node.*"): "as above",
    ("cli.node_options", "machine.load"): "as above",
    ("cli.options", "kubernetes.versions"): "only a version needs it",
    ("cli.ps", "leases.*"): "as for `cli.admit`",
    ("cli.rank", "cli.rank_koordinator"): "as above",
    ("cli.rank", "cli.rank_replicas"): "as above",
    ("cli.rank_replicas", "cluster.capacity"): "as above",
    ("cli.rank", "cluster"): "as above",
    ("cli.rank", "cluster.*"): "as above",
    ("cli.rank", "text.json_text"): "as above",
    ("cli.rank_koordinator", "cluster.koordinator"): "as above",
    ("cli.release", "cli.ps"): "as above",
    ("cli.release", "leases.*"): "as above",
    ("cli.replay", "cli.comparison"): "as above",
    ("cli.replay", "kubernetes.versions"): "as above",
    ("cli.replay", "cli.replay_report"): "as above",
    ("cli.replay", "replay"): "as above",
    ("cli.replay", "replay.*"): "as above",
    ("cli.replay_report", "replay.*"): "as above",
    ("cli.replay", "text.json_text"): "as above",
    ("cli.release", "errors"): "as above",
    ("cli.run", "leases.*"): "each step between a launcher and its command imports its own",
    ("cli.simulate", "cluster.*"): "as for `cli.admit`",
    ("cli.split", "leases.*"): "as above",
}
"""Imports inside functions that save time, with the reason; `*` stands for any name."""

TYPES_ONLY = {
    ("kubelet.verify", "leases.record"): "leases are verified as containers are",
    ("machine.machine", "leases.machine_parts"): "the return type of Machine.split",
    ("node.node", "kubelet.options"): "the options of Node.from_kubelet",
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

MOST_TOP_ENTRIES = 18
MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 40


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


def imports_of(name: str) -> list[Import]:
    """Return what a module imports from this package."""
    found: list[Import] = []

    def walk(node: ast.AST, kind: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            kind = "function"
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for child in node.body:
                walk(child, "types")
            for child in node.orelse:
                walk(child, kind)
            return
        found.extend(Import(name, target, kind) for target in targets(node))
        for child in ast.iter_child_nodes(node):
            walk(child, kind)

    walk(ast.parse(MODULES[name].read_text(encoding="utf-8")), "module")
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


IMPORTS = [found for name in MODULES for found in imports_of(name)]


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
    upward = [found for found in IMPORTS if rank(found.target) > rank(found.module) and not allowed(found)]
    assert upward == []


def test_no_imports_run_in_a_circle() -> None:
    """Neither those of modules nor those for annotations; inside functions only conveniences may close one."""
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for found in IMPORTS:
        if not allowed(found) and found.target != found.module:
            graph[found.module].add(found.target)
    assert circle(graph) == []


def test_rooms_of_one_height_know_each_other_in_one_direction_at_most() -> None:
    sideways: dict[str, set[str]] = {}
    for found in IMPORTS:
        source, target = found.module.partition(".")[0], found.target.partition(".")[0]
        if source != target and rank(source) == rank(target) and not allowed(found):
            sideways.setdefault(source, set()).add(target)
    assert circle(sideways) == []


def test_imports_inside_functions_are_named_with_a_reason() -> None:
    """So that nobody hides an arrow in a function."""
    late = [found for found in IMPORTS if found.kind == "function"]
    assert [found for found in late if not named(found, [*CONVENIENCE, *LATE])] == []


def test_rooms_import_nothing_by_themselves() -> None:
    """To import a module of a room costs that module alone."""
    filled = {
        found.module
        for found in IMPORTS
        if found.module and found.kind == "module" and MODULES[found.module].name == "__init__.py"
    }
    assert filled == FILLED_ROOMS.keys()


def test_no_exception_outlives_its_reason() -> None:
    late = [found for found in IMPORTS if found.kind == "function"]
    assert [name for name in [*CONVENIENCE, *LATE] if not any(named(found, [name]) for found in late)] == []
    types = {(found.module, found.target) for found in IMPORTS if found.kind == "types"}
    assert TYPES_ONLY.keys() <= types


def test_private_names_stay_in_their_module() -> None:
    found = {
        (name, alias.name)
        for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
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
        found = re.findall(
            r"^\s*(?:from|cimport)\s+(alignup[\w.]*)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
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


def test_the_top_is_small() -> None:
    entries = [path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"]
    assert len(entries) <= MOST_TOP_ENTRIES, entries


SOURCES = sorted([*PACKAGE.rglob("*.py"), *COMPILED.rglob("*.pyx"), *COMPILED.rglob("*.pxd")])


def test_modules_are_short() -> None:
    lines = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n") for path in SOURCES}
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def test_functions_are_short() -> None:
    """A docstring does not count: nobody should save on it."""
    found: dict[str, int] = {}
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first, last = node.body[0], node.end_lineno or 0
                text = (
                    (first.end_lineno or 0) - first.lineno + 1 if ast.get_docstring(node) is not None else 0
                )
                found[f"{name}.{node.name}"] = last - node.lineno + 1 - text
    assert {name: lines for name, lines in found.items() if lines > MOST_LINES_OF_A_FUNCTION} == {}


def compiled_functions(text: str) -> list[tuple[str, int]]:
    """Return the name of each function of a `.pyx` or `.pxd` and its lines, without its docstring."""
    text = re.sub(r'^\s*""".*?"""\n', "", text, flags=re.DOTALL | re.MULTILINE)
    found: list[tuple[str, int]] = []
    within_function = within_class = False
    for line in text.splitlines():
        start = re.match(r"( {4})?(?:cdef|cpdef|def)\b(?! (?:class|struct|enum|extern)\b)[^(]*?(\w+)\(", line)
        if line and not line.startswith((" ", "#", ")")):
            within_class = re.match(r"(?:cdef )?class\b", line) is not None
            within_function = False
        if start and (within_class or not start[1]):
            within_function = True
            found.append((start[2], 0))
        if within_function and line.strip():
            found[-1] = (found[-1][0], found[-1][1] + 1)
    return found


def test_compiled_functions_are_short() -> None:
    found = [
        (f"{path.relative_to(COMPILED / 'alignup' / 'core')}: {name}", count)
        for path in SOURCES
        if path.suffix != ".py"
        for name, count in compiled_functions(path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 100
    assert [one for one in found if one[1] > MOST_LINES_OF_A_FUNCTION] == []


@pytest.mark.parametrize("graph", [{"a": {"b"}, "b": {"c"}, "c": {"a"}}, {"a": {"a"}}])
def test_a_circle_is_seen(graph) -> None:
    assert circle(graph)
