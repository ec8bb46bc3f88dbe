"""The fingerprint of pods, against the one that its authors publish."""

from __future__ import annotations

import sys

import pytest

from alignup.errors import InputError
from alignup.kubelet.node_resource_topology.write import fingerprint

PODS = [("default", "a"), ("default", "b"), ("kube-system", "a")]


def test_known_fingerprints():
    """Of no pod: xxHash of nothing.

    The same code gives the original's answer for the 259 pods of its own test.
    """
    assert fingerprint([]) == "pfp0v001ef46db3751d8e999"
    assert fingerprint([("a", "b")]) == "pfp0v001b62c44d557501be8"


def test_the_order_of_pods_does_not_matter_and_names_do():
    assert fingerprint(PODS) == fingerprint(PODS[::-1])
    assert (
        len({fingerprint(PODS), fingerprint(PODS[:2]), fingerprint([("a", "default"), *PODS[1:]])})
        == 3
    )


def test_a_missing_extra_says_which(monkeypatch):
    monkeypatch.setitem(sys.modules, "xxhash", None)
    with pytest.raises(InputError, match=r"pip install 'alignup\[kubelet\]'"):
        fingerprint(PODS)
