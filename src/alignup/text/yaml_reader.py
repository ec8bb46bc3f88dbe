"""Reads YAML text into plain objects.

Bounds on nesting, aliases and numbers make untrusted files safe. Importing this imports PyYAML,
so `alignup.text.documents` does it only when it has YAML in hand.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NoReturn

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from alignup.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    _SafeLoader = yaml.SafeLoader
else:
    _SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_MERGE: Final = "tag:yaml.org,2002:merge"
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
_NUMBERS: Final = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})
# Entries that merge keys (`<<`) may copy in one text.
_MERGED_LIMIT: Final = 100_000
# The factor by which aliases may make a document larger than its distinct values are.
_EXPANSION_LIMIT: Final = 10
# Values up to which a document may expand by any factor.
_EXPANSION_FREE: Final = 10_000
# The depth to which values may nest; PyYAML's composer is recursive and would exhaust the stack.
_DEPTH_LIMIT: Final = 200
_TOO_DEEP: Final = f"found values nested more than {_DEPTH_LIMIT} deep"
# Values in one text, keys too; a manifest of the largest size that is read has fewer, and each
# takes a kilobyte.
_VALUE_LIMIT: Final = 400_000
# Characters that a number may have; reading longer ones takes time that grows faster than they do.
_NUMBER_LIMIT: Final = 64


def _refusal(problem: str, node: Node) -> ConstructorError:
    return ConstructorError(None, None, problem, node.start_mark)


class _Loader(_SafeLoader):
    """PyYAML's safe loader, without dates (Kubernetes has none), and with bounds it lacks."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.merged_left = _MERGED_LIMIT
        # By the mapping's id, whether its merge keys are replaced; False: they are being.
        self.flattened: dict[int, bool] = {}
        self.depth = 0
        self.values = 0

    def descend_resolver(
        self,
        current_node: Node | None,
        current_index: object,  # noqa: ARG002
    ) -> None:
        """Count a level of nesting.

        The composer calls this on its way down, for resolvers by path.
        """
        self.depth += 1
        self.values += 1
        mark = current_node.start_mark if current_node else None
        if self.values > _VALUE_LIMIT:
            raise ComposerError(None, None, f"found more than {_VALUE_LIMIT} values", mark)
        if self.depth > _DEPTH_LIMIT:
            raise ComposerError(None, None, _TOO_DEEP, mark)

    def ascend_resolver(self) -> None:
        """Count one level of nesting less."""
        self.depth -= 1

    def flatten_mapping(self, node: MappingNode) -> None:
        """Replace merge keys by the entries they stand for.

        The mapping's own entries come last and win.
        """
        if id(node) in self.flattened:
            if not self.flattened[id(node)]:
                raise ConstructorError(
                    None, None, "found a mapping that merges itself", node.start_mark
                )

            return

        self.flattened[id(node)] = False
        sources: list[Node] = []
        own_entries: list[tuple[Node, Node]] = []
        own_keys: set[str] = set()
        for key, value in node.value:
            if key.tag == _MERGE:
                sources.extend(value.value if isinstance(value, SequenceNode) else [value])
                continue

            if isinstance(key, ScalarNode):
                if key.value in own_keys:
                    raise _refusal(f"found the key {key.value[:40]!r} a second time", key)
                own_keys.add(key.value)

            own_entries.append((key, value))

        node.value = own_entries
        merged_entries: list[tuple[Node, Node]] = []
        for source in reversed(sources):
            if not isinstance(source, MappingNode):
                raise _refusal("found a merge of something else than a mapping", source)

            self.flatten_mapping(source)
            self.merged_left -= len(source.value) + 1
            if self.merged_left < 0:
                raise _refusal("found more merged entries than are read", node)

            merged_entries.extend(source.value)

        node.value = merged_entries + own_entries
        self.flattened[id(node)] = True

    def construct_number(self, node: ScalarNode) -> int | float:
        """Return the number of a scalar that looks like one."""
        if len(node.value) > _NUMBER_LIMIT:
            raise _refusal("found a number of more digits than are read", node)

        if ":" in node.value:
            raise _refusal(f"found no number in {node.value!r}", node)

        try:
            if node.tag.endswith(":int"):
                return self.construct_yaml_int(node)

            return self.construct_yaml_float(node)
        except (ValueError, IndexError):
            raise _refusal(f"found no number in {node.value!r}", node) from None

    def construct_bool(self, node: ScalarNode) -> bool:
        """Return the truth value of a scalar that looks like one, or is said to be one by a tag."""
        try:
            return bool(self.construct_yaml_bool(node))
        except KeyError:
            raise _refusal(
                f"found neither true nor false in {node.value[:_NUMBER_LIMIT]!r}", node
            ) from None

    def construct_date(self, node: ScalarNode) -> NoReturn:
        """Refuse a value that a tag makes a date."""
        raise _refusal("found a date, which Kubernetes has none of", node)

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        try:
            return super().construct_mapping(node, deep)
        except TypeError:
            raise _refusal("found a key that is not a scalar", node) from None


def _resolvers(resolvers: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return forms of plain scalars without dates and without numbers to the base of 60.

    Go's YAML, which the kubelet and kubectl use, has neither: `1:30` is a text there.
    """
    return [
        (tag, _without_colon(form.pattern) if tag in _NUMBERS else form)
        for tag, form in resolvers
        if tag != _TIMESTAMP
    ]


@cache
def _without_colon(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?!.*:){pattern}", re.VERBOSE)


_Loader.yaml_implicit_resolvers = {
    first: _resolvers(resolvers) for first, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_number)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_number)
_Loader.add_constructor("tag:yaml.org,2002:bool", _Loader.construct_bool)
_Loader.add_constructor(_TIMESTAMP, _Loader.construct_date)


def read_yaml(text: str, source: str) -> list[object]:
    """Return the documents of a YAML text, as `alignup.text.documents.read_documents` does.

    Raises:
        InputError: the text is not YAML, or one of the bounds above is passed.
    """
    loader = None
    try:
        loader = _Loader(text)
        documents: list[object] = []
        while loader.check_data():  # type: ignore[no-untyped-call]  # the stubs miss it
            documents.append(loader.get_data())
        if "&" in text and any(_expands(document) for document in documents):
            raise InputError(f"aliases expand beyond measure in {source}")
    except yaml.YAMLError as error:
        raise InputError(f"expected YAML or JSON, but {_problem(error)} of {source}") from None
    finally:
        if loader is not None:
            loader.dispose()

    return documents


def _problem(error: yaml.YAMLError) -> str:
    """Return one line about what PyYAML found, ending in the place."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context
        if problem == "exceeded maximum nesting depth":  # libyaml's own bound, since 0.2.6
            problem = _TOO_DEEP
        if mark is None:
            return f"{problem} in some line"

        return f"{problem} at line {mark.line + 1}, column {mark.column + 1}"

    if isinstance(error, yaml.reader.ReaderError):
        return f"found the character {chr(error.character)!r} at offset {error.position}"

    return f"{' '.join(str(error).split())} in some line"


def _expands(document: object) -> bool:
    """Return whether aliases make a document far larger, as a tree, than its distinct values."""
    sizes: dict[int, int] = {}
    distinct = 1

    def expanded(value: object) -> int:
        """Return how many values a walk of `value` meets; one that contains itself: 2**62."""
        nonlocal distinct
        if not isinstance(value, (dict, list, tuple, set)):
            return 1
        if id(value) not in sizes:
            sizes[id(value)] = 2**62
            distinct += len(value)
            inner = value.values() if isinstance(value, dict) else value
            sizes[id(value)] = 1 + sum(map(expanded, inner))

        return sizes[id(value)]

    whole = expanded(document)
    return whole > _EXPANSION_FREE and whole > _EXPANSION_LIMIT * distinct
