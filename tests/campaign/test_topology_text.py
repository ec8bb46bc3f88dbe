"""Mutated NodeResourceTopology objects: their text says what plain objects say, or is left to them.

    python tests/campaign/test_topology_text.py [OPTION ...] [FOLDER]

goes on until something is wrong, with the options of libFuzzer, such as -max_total_time=SECONDS.
The package atheris has to be installed; where it is not, the status is 77, as of a step that was
skipped. What is reached guides it if clang built `topology_text` with -fsanitize=fuzzer-no-link.
With `address,undefined` beside that, and -fno-sanitize=function,pointer-overflow for what Cython
writes, preload `asan_with_fuzzer.so` of atheris, and set PYTHONMALLOC=malloc and
ASAN_OPTIONS=detect_leaks=0.

ALIGNUP_FUZZ_SEED chooses other inputs of the tests.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from random import Random
from typing import Any

import msgspec
import pytest

from alignup.core.topology_text import TopologyText
from alignup.errors import AlignupWarning, InputError
from alignup.kubelet.node_resource_topology.read import read_topology
from alignup.text.json_text import decode_json

SEED = os.environ.get("ALIGNUP_FUZZ_SEED", "12")
LONGEST = 16_384
SKIPPED = 77
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[-+0-9.eE]+|true|false|null|\s+|[^\s]', re.DOTALL)

NAMES = (
    *("name", "value", "capacity", "allocatable", "available", "type", "costs", "resources"),
    *("metadata", "zones", "kind", "apiVersion", "topologyPolicies", "attributes", "items"),
    *("note", "n\\u0061me", "\\/", 'k:{\\"a\\":1}', "\\ud83d\\ude00", "\\ud800", ""),
    *("Node", "List", "NodeResourceTopology", "topology.node.k8s.io", "topology.node.k8s.io/v1"),
    *("topologyManagerPolicy", "topologyManagerScope", "restricted", "BestEffortPodLevel", "pod"),
    *("cpu", "pods", "storage", "node-0", "node-1", "node-00", "node-10", "0", "00016", "1Gi"),
    *("2k", "3Ki", "1500m", "7n", "1E", "32Pi", "+3", "1e3", "9999999999999999"),
    *("36028797018963968", "36028797018963969", "99999999999999999"),
)
TOKENS = (
    *(b'"%b"' % name.encode() for name in NAMES),
    *(
        b'"\xc3\xa9"',
        b'"\xff"',
        b'{"a": 1, "a": 2}',
        b"[]",
        b"{}",
        b"true",
        b"null",
        b"\x00",
        b"\xef",
    ),
    *(b"0", b"-0", b"007", b"255", b"2147483648", b"36028797018963969", b"1.5", b"1e3", b"1e400"),
    *(b" ", b"\n", b",", b":", b"[", b"]", b"{", b"}", b"[" * 399 + b"]" * 399),
)
"""What takes the place of something else, or is put beside it."""


def described(zones: int, metadata: dict[str, Any]) -> dict[str, Any]:
    """Return an object as an exporter publishes it."""
    names = [f"node-{number}" for number in range(zones)]
    amounts = {"capacity": "16", "allocatable": "14Gi", "available": 3}
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "worker-1", **metadata},
        "topologyPolicies": ["SingleNUMANodePodLevel"],
        "attributes": [
            {"name": "topologyManagerPolicy", "value": "restricted"},
            {"name": "nodeTopologyPodsFingerprint", "value": "pfp0v001"},
        ],
        "zones": [
            {
                "name": name,
                "type": "Node",
                "parent": "socket",
                "costs": [{"name": neighbour, "value": 20} for neighbour in names],
                "resources": [
                    {"name": resource, **amounts} for resource in ("cpu", "a.b/c", "pods")
                ],
            }
            for name in names
        ],
    }


def seeds() -> list[bytes]:
    """Return objects and Lists in different layouts."""
    managed = {"f:metadata": {".": {}, 'k:{"uid":"1"}': {}}}
    metadata = {"labels": {"a/b": "c", "d": "e"}, "managedFields": [{"fieldsV1": managed}]}
    node = {"kind": "Node", "metadata": {"name": "worker-1"}, "status": {"nodeInfo": {}}}
    small, large = described(2, metadata), described(11, {})
    items = {"kind": "NodeResourceTopologyList", "metadata": {"resourceVersion": ""}}
    values = [small, large, {**items, "items": [small, node, small]}, {**items, "items": []}]
    for count in (64, 65):  # what is read in one pass, and what is not
        resources = [{"name": f"resource-{number}"} for number in range(count)]
        zones = [{"name": f"node-{number}"} for number in range(count)]
        values.append({"metadata": {"name": "a"}, "zones": zones})
        values.append({"metadata": {"name": "a"}, "zones": [{"name": "n", "resources": resources}]})

    texts = [json.dumps(value).encode() for value in values]
    return [*texts, msgspec.json.encode(small), json.dumps(small, indent=1).encode()]


def mutated(text: bytes, random: Random) -> bytes:
    """Return a text in which values or entries are replaced, doubled, moved or wrapped."""
    tokens = TOKEN.findall(text)
    for _ in range(random.choice([1, 1, 1, 1, 2, 3])):
        spans = spans_of(tokens)
        if not spans:
            break

        start, end = random.choice(spans)
        entry = start  # from its key on, if it has one
        while entry > 0 and tokens[entry - 1] not in {b",", b"{", b"["}:
            entry -= 1

        source = random.choice(spans)
        place = random.randrange(len(tokens) + 1)
        kind = random.choice(["value"] * 3 + ["entry"] * 3 + ["put", "drop", "move", "new", "wrap"])
        if kind == "value":
            tokens[start:end] = [random.choice(TOKENS)]
        elif kind == "entry":
            place = random.choice([end, end, source[1]])
            tokens[place:place] = [b",", *tokens[entry:end]]
        elif kind == "put":
            tokens.insert(place, random.choice(TOKENS))
        elif kind == "drop":
            del tokens[place : place + random.choice([1, 1, 2, 9])]
        elif kind == "move":
            tokens[start:end] = tokens[slice(*source)]
        elif kind == "new":
            tokens[end:end] = [b",", random.choice(TOKENS), b":", random.choice(TOKENS)]
        else:
            tokens[start:end] = [b'{"a":', *tokens[start:end], b"}"]

    return b"".join(tokens)[:LONGEST]


def spans_of(tokens: list[bytes]) -> list[tuple[int, int]]:
    """Return where the values are, and the keys."""
    spans = []
    opened = []
    for place, token in enumerate(tokens):
        if token in {b"{", b"["}:
            opened.append(place)
        elif token in {b"}", b"]"}:
            if opened:
                spans.append((opened.pop(), place + 1))
        elif token[:1] in b'"-0123456789tfn':
            spans.append((place, place + 1))

    return spans


def check(text: bytes) -> int:
    """Compare with plain objects what is read of a text; return how many objects were read."""
    if TopologyText().read_object(text) is not None:
        # plain objects say the same; where they refuse the text, an error ends this
        plain = decode_json(text, "an object")
        assert read_topology(msgspec.Raw(text), "x") == read_topology(plain, "x")
        return 1

    items = TopologyText().read_list(text)
    if items is None:
        return 0

    try:
        plain_items = decode_json(text, "a List")["items"]
    except InputError:  # at least one is refused where it is decoded by itself
        assert any(isinstance(item, bytes) and is_refused(item) for item in items), text
        return 0

    assert len(items) == len(plain_items)
    for item, plain in zip(items, plain_items, strict=True):
        if isinstance(item, bytes):
            assert msgspec.json.decode(item) == plain
        else:
            assert read_topology(item, "x") == read_topology(plain, "x")

    return sum(isinstance(item, tuple) for item in items)


def is_refused(text: bytes) -> bool:
    """Return whether a text is no JSON for the reader of plain objects."""
    try:
        decode_json(text, "an object")
    except InputError:
        return True
    return False


def campaign(count: int) -> int:
    """Read so many mutated texts; return how many objects were read straight."""
    texts = seeds()
    read = 0
    for number in range(count):
        random = Random(f"{SEED} {number}")
        text = mutated(random.choice(texts), random)
        try:
            read += check(text)
        except Exception as error:
            error.add_note(f"seed {SEED!r}, input {number}: {text!r}")
            raise

    return read


@pytest.mark.filterwarnings("ignore::alignup.errors.AlignupWarning")
def test_some_mutated_objects():
    """A few, at every change."""
    assert campaign(500) > 20


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::alignup.errors.AlignupWarning")
def test_many_mutated_objects():
    """As many as a minute or two are enough for."""
    assert campaign(50_000) > 2_000


class Choices(Random):
    """Takes what it chooses from bytes, which a fuzzer makes; at their end, always the first."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self.bits = int.from_bytes(data, "little")

    def getrandbits(self, count: int) -> int:
        """Return the next bits."""
        bits = self.bits & ((1 << count) - 1)
        self.bits >>= count
        return bits


def main() -> int:
    """Let libFuzzer choose: a text is what begins as one, and all else says what is mutated."""
    try:
        import atheris  # noqa: PLC0415  # nothing else needs it
    except ImportError:
        print("skipped: the package atheris is not installed")  # noqa: T201  # the reason
        return SKIPPED

    warnings.simplefilter("ignore", AlignupWarning)
    texts = seeds()

    def check_input(data: bytes) -> None:
        if not data.startswith(b"{"):
            random = Choices(data)
            data = mutated(random.choice(texts), random)
        check(data)

    atheris.Setup(sys.argv, check_input)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
