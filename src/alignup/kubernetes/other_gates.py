"""Checks the feature gates of a configuration that do not concern the resource managers, and which gates need others.

A kubelet does not start with a gate that its release does not know, with another value for a locked one, or with a
gate on whose needs are off. The managers' own gates are those of `alignup.kubernetes.feature_gates`; all others are
in `gate_data/other_gates.json`, as the kubelets themselves list them.
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import resources
from typing import TYPE_CHECKING

import msgspec

from alignup.kubernetes.feature_gates import (
    ALL_OF,
    FEATURE_GATES,
    GateStage,
    in_release,
    refused_value,
    unrecognized,
)
from alignup.kubernetes.versions import KubeletVersion
from alignup.text.known_keys import unknown_keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["gate_complaints", "gates_of"]


class _Data(msgspec.Struct, frozen=True):
    """The file: by gate its stages, (first minor, maturity, on by default, locked), and by minor what needs what."""

    gates: dict[str, list[tuple[int, str, bool, bool]]]
    needs: dict[int, dict[str, list[str]]]


@lru_cache(maxsize=1)
def _data() -> _Data:
    text = resources.files("alignup.kubernetes").joinpath("gate_data", "other_gates.json").read_bytes()
    return msgspec.json.decode(text, type=_Data)


@cache
def gates_of(version: KubeletVersion) -> Mapping[str, GateStage]:
    """Return all feature gates that the kubelet of a release knows, by name."""
    known = {
        name: tuple(
            GateStage(KubeletVersion(minor), maturity, is_on, is_locked)
            for minor, maturity, is_on, is_locked in stages
        )
        for name, stages in _data().gates.items()
    }
    found = {name: in_release(stages, version) for name, stages in {**known, **FEATURE_GATES}.items()}
    return {name: stage for name, stage in sorted(found.items()) if stage is not None}


def gate_complaints(given: Mapping[str, bool], version: KubeletVersion) -> Iterator[str]:
    """Yield a sentence for each reason beside the managers' own gates for which a kubelet refuses some gates.

    Args:
        given: the gates that a configuration sets.
        version: the kubelet's release.
    """
    known = gates_of(version)
    for name, close in unknown_keys(sorted(given), (*known, *ALL_OF)):
        if name not in FEATURE_GATES:
            yield unrecognized(name, version) + (f"; {close} is one" if close else "")
    for name in sorted(given.keys() & known.keys() - FEATURE_GATES.keys()):
        if known[name].is_locked and given[name] != known[name].is_on:
            yield refused_value(name, given[name], known[name], version)
    on = _all_gates(given, known)
    for name, needed in sorted(_data().needs.get(version.minor, {}).items()):
        off = [one for one in needed if not on.get(one)]
        if on.get(name) and off:
            yield (
                f"{name} is enabled, but depends on features that are disabled: [{' '.join(off)}] "
                f"(featureGates of kubelet {version})"
            )


def _all_gates(given: Mapping[str, bool], known: Mapping[str, GateStage]) -> dict[str, bool]:
    """Return which gates are on, of all that the release knows."""
    on = {name: stage.is_on for name, stage in known.items()}
    for name, maturity in ALL_OF.items():
        if name in given:
            on.update({gate: given[name] for gate, stage in known.items() if stage.maturity == maturity})
    return on | {name: value for name, value in given.items() if name in known}
