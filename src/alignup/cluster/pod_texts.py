"""Reads pods of which many differ by their names only: what they are made of is read once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from alignup.errors import InputError
from alignup.kubernetes.manifest import read_pod
from alignup.kubernetes.pod import OS_LABEL
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod

# Pods that are kept to be renamed.
_MOST_KEPT: Final = 10_000

# The keys of metadata in which equal pods differ.
_NAMES: Final = frozenset({"name", "namespace", "uid"})


class PodTexts:
    """Reads manifests of pods as JSON text; equal ones are read once, and renamed.

    Attributes:
        read_bytes: the length of all texts that were read whole.
    """

    def __init__(self) -> None:
        self.read_bytes = 0
        self._pods: dict[object, Pod] = {}

    def read(self, text: msgspec.Raw) -> Pod:
        """Return the pod of a manifest; see `alignup.kubernetes.manifest.read_pod`.

        Args:
            text: JSON that a reader has passed over, which looks at no letter of it.

        Raises:
            InputError: it is no Pod.
        """
        manifest: Any = decode_json(text, "the JSON of a Pod", once=False)
        if not isinstance(manifest, dict):
            raise InputError.at("the pod", "a mapping", manifest)

        names = _names_of(manifest.get("metadata"))
        if names is None:
            return self._read(text, manifest)

        key = _key_of(text, manifest)
        pod = self._pods.get(key)
        if pod is not None:
            return pod.renamed(**names)

        pod = self._read(text, manifest)
        # claims are named after their pod
        if not pod.constraints.claims:
            if len(self._pods) == _MOST_KEPT:
                self._pods.clear()
            self._pods[key] = pod
        return pod

    def _read(self, text: msgspec.Raw, manifest: dict[str, Any]) -> Pod:
        self.read_bytes += len(bytes(text))
        return read_pod(manifest)


def _names_of(metadata: object) -> dict[str, Any] | None:
    """Return what pods of one key differ in; None: it has to be read as it stands."""
    if not isinstance(metadata, dict):
        return None

    name = metadata.get("name")
    namespace = metadata.get("namespace") or "default"
    uid = metadata.get("uid") or f"{namespace}/{name}"
    names = {"name": name, "namespace": namespace, "uid": uid}
    return names if name and all(isinstance(value, str) for value in names.values()) else None


def _key_of(text: msgspec.Raw, manifest: dict[str, Any]) -> object:
    """Return the text of a manifest without that of its names."""
    parts = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    del parts["metadata"]
    others = {key: value for key, value in manifest["metadata"].items() if key not in _NAMES}
    labels = others.pop("labels", None)
    if isinstance(labels, dict):
        others["labels"] = {OS_LABEL: labels.get(OS_LABEL)}
    elif labels is not None:
        others["labels"] = labels
    return tuple((key, bytes(value)) for key, value in parts.items()), msgspec.json.encode(others)
