"""Fingerprints of pods, as the ecosystem computes them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from alignup.cluster.fingerprint import fingerprint

NAMES = st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=5)


def test_no_pod_has_the_hash_of_nothing() -> None:
    assert fingerprint([]) == "pfp0v001ef46db3751d8e999"


def test_the_namespace_seeds_the_hash_of_the_name() -> None:
    """Worked out by the definition: xxh64 of xxh64("pod", seed=xxh64("namespace")), little-endian."""
    assert fingerprint([("namespace", "pod")]) != fingerprint([("pod", "namespace")])
    assert len(fingerprint([("namespace", "pod")])) == len("pfp0v001") + 16


@given(NAMES, st.randoms(use_true_random=False))
def test_the_order_does_not_matter(pods, random) -> None:
    mixed = list(pods)
    random.shuffle(mixed)
    assert fingerprint(mixed) == fingerprint(pods)
