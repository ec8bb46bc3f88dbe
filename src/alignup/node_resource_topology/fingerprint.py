"""Computes the fingerprint of a node's pods, by which schedulers tell whether a NodeResourceTopology is up to date.

It is the one of `k8stopologyawareschedwg/podfingerprint`, version v001: xxHash (64 bits) of each pod's name, with that
of its namespace as the seed; then that of all these numbers, ascending, as 8 bytes each, the lowest first. Needs the
extra `kubelet`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

ATTRIBUTE: Final = "nodeTopologyPodsFingerprint"
"""The attribute of a NodeResourceTopology that has the fingerprint."""
METHOD_ATTRIBUTE: Final = "nodeTopologyPodsFingerprintMethod"
"""The attribute that says which pods it is of."""
METHOD: Final = "all"

_PREFIX: Final = "pfp0v001"


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of pods, given as (namespace, name), in any order.

    Raises:
        InputError: the extra `kubelet` is not installed.
    """
    try:
        import xxhash  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise InputError(
            "expected xxhash for the fingerprint of pods, which is not installed: pip install 'alignup[kubelet]'"
        ) from error
    hashes = sorted(
        xxhash.xxh64_intdigest(name.encode(), xxhash.xxh64_intdigest(namespace.encode())) for namespace, name in pods
    )
    whole = xxhash.xxh64(b"".join(one.to_bytes(8, "little") for one in hashes))
    return f"{_PREFIX}{whole.hexdigest()}"
