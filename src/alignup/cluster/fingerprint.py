"""Computes the fingerprint of a set of pods, by which a NodeResourceTopology object says of which pods it knows.

The definition is that of github.com/k8stopologyawareschedwg/podfingerprint, version v001: the hash of the sorted hashes
of the names, each seeded with the hash of its namespace. Needs the extra `cluster` (xxhash).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ATTRIBUTE", "METHOD_ATTRIBUTE", "fingerprint"]

ATTRIBUTE: Final = "nodeTopologyPodsFingerprint"
METHOD_ATTRIBUTE: Final = "nodeTopologyPodsFingerprintMethod"
_PREFIX: Final = "pfp0v001"


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of pods, each given by its namespace and its name, in any order.

    >>> fingerprint([])
    'pfp0v001ef46db3751d8e999'
    """
    hashes = sorted(
        xxhash.xxh64_intdigest(name.encode(), xxhash.xxh64_intdigest(namespace.encode()))
        for namespace, name in pods
    )
    return _PREFIX + xxhash.xxh64_hexdigest(b"".join(one.to_bytes(8, "little") for one in hashes))
