"""Amounts and costs of zones.

From text and from plain objects alike, and what a missing one means.
"""

from __future__ import annotations

import json
from random import Random

import msgspec
import pytest

from alignup.core.topology_text import TopologyText
from alignup.errors import InputError
from alignup.kubelet.node_resource_topology.read import read_topologies
from alignup.text.json_text import decode_json
from inputs.strategies import seeds

AMOUNTS = (
    "0",
    "1",
    "7",
    "16",
    "4096",
    3,
    "2k",
    "1Gi",
    "1500m",
    "1M",
    "3Ki",
    "2Ti",
    "1001u",
    "7n",
    "0E",
    "00016",
    None,
    "9" * 16,
    "9" * 17,
    str(1 << 55),
    str((1 << 55) + 1),
    "32Pi",
    "33Pi",
    "36P",
    "37P",
    "1Ei",
    -1,
    2.5,
    "x",
    "",
    "-1",
    "+3",
    "1e3",
    "1.5Gi",
    "1K",
    "1ki",
    "1Kib",
    "1mi",
    " 16",
    "16 ",
    "\u0661",
    True,
    [],
    {},
    1e3,
    10**18,
)
TEXTS = (
    "a",
    "node",
    "node-1",
    "restricted",
    "NodeResourceTopology",
    "\u00e9",
    'a"b',
    "a\\b",
    "a\nb",
    "\U0001f600",
    3,
    None,
)


def topology(random):
    """Return an object as exporters write it, with something unusual now and then."""

    def amount():
        return random.choice(AMOUNTS[:5] if random.random() < 0.98 else AMOUNTS)

    count = random.randint(1, 4)
    names = [f"node-{number}" for number in random.sample(range(12), count)]
    zones = []
    for name in names:
        others = random.sample(names, count) if random.random() < 0.3 else names
        costs = [{"name": peer, "value": random.choice([10, 20, 32])} for peer in others]
        resources = []
        for resource in random.sample(
            ["cpu", "memory", "hugepages-2Mi", "example.com/gpu", "storage"], 3
        ):
            keys = random.sample(
                ["capacity", "allocatable", "available"], random.choice([3, 3, 3, 2, 1, 0])
            )
            resources.append({"name": resource, **{key: amount() for key in keys}})

        zones.append({"name": name, "type": "Node", "costs": costs, "resources": resources})

    if random.random() < 0.2:
        zones.append({"name": "socket-0", "type": "Socket"})

    if random.random() < 0.1:
        random.choice(zones)[random.choice(["costs", "resources", "type"])] = random.choice(
            [None, [], "Node", 3]
        )

    attributes = [{"name": "topologyManagerPolicy", "value": "restricted"}]
    metadata = {"name": "a"}
    return {
        "kind": "NodeResourceTopology",
        "metadata": metadata,
        "attributes": attributes,
        "zones": zones,
    }


def outcome(source):
    """Return what the reader makes of an object, or its complaint."""
    try:
        return read_topologies(source)[0].amounts
    except InputError as error:
        return (
            str(error).partition(" in the objects")[0].replace("document 1, items[0]", "document 1")
        )


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_text_and_objects_read_alike(seed):
    random = Random(seed)
    complaints = 0
    for _ in range(400):
        written = topology(random)
        text = json.dumps({"kind": "List", "items": [written]}).encode()
        assert outcome(written) == outcome(text)
        complaints += isinstance(outcome(written), str)
    assert 10 < complaints < 200


def zone(number, **changes):
    made = {
        "name": f"node-{number}",
        "type": "Node",
        "costs": [
            {"name": "node-0", "value": 10 + number},
            {"name": "node-10", "value": 21 - number},
        ],
        "resources": [{"name": "cpu", "capacity": "8", "allocatable": "6", "available": "3"}],
    }
    return {**made, **changes}


def amounts(*zones):
    return read_topologies(
        {"kind": "NodeResourceTopology", "metadata": {"name": "a"}, "zones": zones}
    )[0].amounts


def test_columns_and_costs_are_in_the_order_of_numbers():
    read = amounts(zone(10), zone(2), zone(0))
    assert read.numa_nodes == 3
    assert read.resources == {"cpu": ((8, 8, 8), (6, 6, 6), (3, 3, 3))}
    assert read.distances == ((10, 255, 21), (12, 255, 19), (20, 255, 11))


def test_a_missing_amount_is_the_next_larger_one():
    resources = [
        {"name": "a/a", "capacity": "8"},
        {"name": "b/b", "capacity": 8, "allocatable": "7"},
        {"name": "c/c", "available": "5"},
        {"name": "d/d", "allocatable": "4", "capacity": None},
        {"name": "e/e"},
        {"name": "f/f", "capacity": "9", "available": "2"},
        {"name": "storage", "capacity": "strange"},
        {"name": "cpu", "allocatable": "4", "available": "1"},
    ]

    read = amounts(zone(0, resources=resources, costs=None), zone(1, resources=None, costs=[]))
    assert (read.numa_nodes, read.distances) == (2, None)
    assert read.resources == {
        "a/a": ((8, 0), (8, 0), (8, 0)),
        "b/b": ((8, 0), (7, 0), (7, 0)),
        "c/c": ((5, 0), (5, 0), (5, 0)),
        "cpu": ((4, 0), (4, 0), (1, 0)),
        "d/d": ((4, 0), (4, 0), (4, 0)),
        "e/e": ((0, 0), (0, 0), (0, 0)),
        "f/f": ((9, 0), (9, 0), (2, 0)),
    }


def odd(random, value):
    """Return an object with its keys in another order, and further ones.

    With something unusual now and then.
    """
    if isinstance(value, list):
        return [odd(random, item) for item in value]
    if not isinstance(value, dict):
        return value

    entries = [(key, odd(random, item)) for key, item in value.items() if random.random() < 0.9995]
    if random.random() < 0.1:
        entries.append(
            (
                random.choice(["note"] * 60 + ["\u00e9", "n\n"]),
                {"a": [random.choice([TEXTS[:5], TEXTS[:5], TEXTS]), -1.5e-3, {}], "b": ""},
            )
        )

    if random.random() < 0.001:
        entries.append(
            (random.choice(["name", "type", "value", "kind", "zones"]), random.choice(TEXTS))
        )

    if random.random() < 0.5:
        random.shuffle(entries)

    return dict(entries)


def document(random):
    """Return an object as text."""
    written = {**topology(random), "apiVersion": "topology.node.k8s.io/v1alpha2"}
    written["topologyPolicies"] = random.choice(
        [None, [], ["None"], ["Restricted", "x"], ["BestEffortPodLevel"]]
    )
    written["attributes"] += [{"name": random.choice(TEXTS[:4]), "value": "x"}] * random.choice(
        [0, 0, 1]
    )
    written = odd(random, written)
    layout = random.choice([{}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}])
    return json.dumps(written, **layout).encode()


@pytest.mark.filterwarnings("ignore::alignup.errors.AlignupWarning")
@pytest.mark.parametrize("seed", seeds(1, 3))
def test_what_is_read_from_text_is_what_plain_objects_say(seed):
    """Of most objects it is read straight.

    Of the others nothing is, and then plain objects are asked.
    """
    random = Random(seed)
    straight = 0
    for _ in range(600):
        text = document(random)
        assert outcome(msgspec.json.decode(text)) == outcome(text)
        straight += TopologyText().read_object(text) is not None
    assert straight > 150


@pytest.mark.filterwarnings("ignore::alignup.errors.AlignupWarning")
@pytest.mark.parametrize("seed", seeds(1, 3))
def test_text_that_is_damaged_is_never_read_as_something_else(seed):
    """What is read of it straight, plain objects say too.

    Letters are replaced, left out, put in or doubled.
    """
    random = Random(seed)
    read = 0
    for _ in range(3000):
        text = bytearray(document(random))
        for _ in range(random.choice([1, 1, 2])):
            place = random.randrange(len(text))
            length = random.choice([0, 1, 1, 2, 9])
            new = bytes(
                random.choices(b'"{}[],:\\ 019-.eEntuKi\n\x00', k=random.choice([0, 1, 1, 2]))
            )
            text[place : place + length] = random.choice([new, text[place : place + length] * 2])

        text = bytes(text)
        straight = TopologyText().read_object(text)
        assert TopologyText().read_list(b'{"items": [%b], "kind": "List"}' % text) in (
            None,
            [straight or text.strip()],
        )
        if straight is not None:
            read += 1
            plain = read_topologies([decode_json(text, "an object")])[0]
            amounts = plain.amounts
            assert (straight[0], straight[1], straight[4:]) == (
                plain.name, amounts.numa_nodes, (amounts.resources, amounts.distances)
            )  # fmt: skip

    assert read > 300


def test_text_that_ends_early_is_not_read():
    whole = json.dumps({"kind": "List", "items": [topology(Random(1))]}).encode()
    for end in range(0, 400, 7):
        text = whole[:end]
        assert TopologyText().read_list(text) is None, text
        assert TopologyText().read_object(text) is None, text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"name": "a"', '"name": "b", "name": "a"'),
        ('"zones": [', '"zones": [], "zones": ['),
        ('"type": "Node"', '"type": "Node", "type": "Node"'),
        ('"capacity": "1"', '"capacity": "1", "capacity": "2"'),
        ('"value": 10', '"value": 10, "value": 10'),
        ('"value": "restricted"', '"value": "restricted", "value": "none"'),
        (
            '"kind": "NodeResourceTopology"',
            '"kind": "NodeResourceTopology", "kind": "NodeResourceTopology"',
        ),
    ],
)
def test_a_key_that_comes_twice_is_refused(old, new):
    """Which of the two is meant cannot be known; the place is that of the object in its list."""
    zone = {"name": "n", "type": "Node", "costs": [{"name": "n", "value": 10}]}
    zone["resources"] = [{"name": "cpu", "capacity": "1"}]
    attributes = [{"name": "topologyManagerPolicy", "value": "restricted"}]
    written = {
        "kind": "NodeResourceTopology",
        "metadata": {"name": "a"},
        "attributes": attributes,
        "zones": [zone],
    }
    text = json.dumps({"kind": "List", "items": [written, written]})
    assert len(read_topologies(text.encode())) == 2
    assert text.count(old) == 2
    before, _, last = text.rpartition(old)
    with pytest.raises(InputError, match=r"has the key .* twice\) at document 1, items\[1\]"):
        read_topologies(f"{before}{new}{last}".encode())

    with pytest.raises(InputError, match="a second time at line 1"):
        read_topologies(text.replace('"kind": "List"', '"kind": "List", "kind": "List"').encode())


PLACES = (
    '"metadata": {"name": "a"',
    '"name": "topologyManagerPolicy"',
    '"type": "Node"',
    '"value": 10',
    '"capacity": "1"',
    '"kind": "NodeResourceTopology"',
)
"""Where an object, of which each part is there once, can have keys that are not read."""

UNREAD = b"""{
    "kind": "NodeResourceTopology",
    "metadata": {"name": "a"},
    "attributes": [{"name": "topologyManagerPolicy", "value": "none"}],
    "zones": [{
        "name": "n",
        "type": "Node",
        "costs": [{"name": "n", "value": 10}],
        "resources": [{"name": "cpu", "capacity": "1"}]
    }]
}"""


def with_entry(place, entry):
    """Return an object that has something more in a place, and a List of it."""
    assert UNREAD.count(place.encode()) == 1
    text = UNREAD.replace(place.encode(), b"%b, %b" % (place.encode(), entry))
    return text, b'{"kind": "List", "items": [%b]}' % text


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "entry",
    [
        b'"note": 1, "note": 2',
        b'"note": {"a": 1, "b": [], "a": 1}',
        b'"note": [{"a": {"b": 1, "b": 1}}]',
        b'"note": {"a": 1, "\\u0061": 1}',
        b'"note": {"/": 1, "\\/": 1}',
        b'"note": {"\\"": 1, "\\u0022": 1}',
        b'"note": "\xff"',
        b'"note": ["\xed\xa0\x80"]',
        b'"note": {"\xc3": 1}',
        b'"\xe9": 1',
        b'"note": 1e400',
        b'"note": [-1E+309]',
        b'"note": 1' + b"0" * 400 + b".5",
    ],
)
def test_what_is_wrong_in_a_part_that_is_not_read_is_not_read_over(place, entry):
    """Plain objects refuse it, and so does the text, with the place of the object in its list."""
    text, items = with_entry(place, entry)
    with pytest.raises(InputError):
        decode_json(text, "an object")

    assert TopologyText().read_object(text) is None
    assert TopologyText().read_list(items) == [text]
    with pytest.raises(InputError, match=r"at document 1, items\[0\]"):
        read_topologies(items)


@pytest.mark.parametrize(
    "entry", [b'"note": 1, "note": 2', b'"note": "\xff"', b'"note": {"a": 1e400}']
)
def test_what_is_wrong_beside_the_objects_of_a_list_is_not_read_over(entry):
    text = b'{"kind": "List", %b, "items": [%b]}' % (entry, UNREAD)
    assert TopologyText().read_list(text) is None
    with pytest.raises(InputError):
        decode_json(text, "an object")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "entry",
    [
        b'"managedFields": [{"f:x": {".": {}, "k:{\\"uid\\":\\"1\\"}": {}}}, {"f:x": {".": {}}}]',
        b'"note": {"a": {"b": 1}, "b": [{"a": 1}, {"a": 2}]}, "others": {"a": 1}',
        b'"note": "\\u00e9\\/\\n"',
        b'"note": [0.125, -1e+99, 1E-9, 18446744073709551616]',
    ],
)
def test_what_is_right_in_a_part_that_is_not_read_is_passed_over(place, entry):
    """Keys with escapes too, as the API server writes them of who manages a field."""
    text, items = with_entry(place, entry)
    decode_json(text, "an object")
    straight = TopologyText().read_object(text)
    assert straight is not None
    assert straight == TopologyText().read_object(UNREAD)
    assert TopologyText().read_list(items) == [straight]


def test_so_many_keys_are_not_read():
    """Beyond a few hundred that are open at a time, plain objects are asked."""
    for count in (200, 300):
        fields = {f"key-{number}": {"a": number} for number in range(count)}
        text, _ = with_entry(PLACES[0], b'"note": %b' % json.dumps(fields).encode())
        assert (TopologyText().read_object(text) is not None) == (count == 200)
        assert outcome(text) == outcome(UNREAD)


def test_a_text_is_read_once():
    """What it finds lies in memory for one text."""
    reader = TopologyText()
    assert reader.read_list(b'{"kind": "List", "items": []}') == []
    with pytest.raises(TypeError, match="new reader"):
        reader.read_object(b"{}")
