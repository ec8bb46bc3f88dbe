"""A legend says which sign is whose."""

from __future__ import annotations

from alignup.node.pictures.legend import legend
from alignup.node.pictures.signs import signs_of
from pictures import HOSTILE, texts_of, titles_of


def test_every_holder_has_an_entry_with_its_sign() -> None:
    signs = signs_of(["a", "b", "c"])
    box, layer = legend({sign: f"default/{name}" for name, sign in signs.items()}, signs["b"], 400)

    assert texts_of(layer.texts) == [
        "free, or in the shared pool",
        *("R", "reserved", "A", "default/a", "B", "default/b", "C", "default/c"),
    ]
    assert [one.get("class") for one in layer.shapes].count("au-held au-subject") == 1
    assert box.width <= 400


def test_a_long_name_is_cut_and_told_in_full_by_the_tooltip() -> None:
    [sign] = signs_of(["a"]).values()
    _, layer = legend({sign: HOSTILE}, None, 400)

    assert texts_of(layer.texts)[-1].endswith("…")
    assert list(titles_of(layer.shapes))[-1].endswith("x" * 300)


def test_a_hundred_holders_have_room() -> None:
    signs = signs_of(map(str, range(100)))
    box, _ = legend({sign: f"default/pod-{name}" for name, sign in signs.items()}, None, 1200)

    assert box.width <= 1200
    assert box.height < 500
