"""Checks the arguments of `alignup.node.Node` and the keys of its JSON form, and warns of those that are ignored.

Values are decoded by the modules of the machine and kubernetes rooms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from alignup.errors import warn
from alignup.kubernetes.kubelet_config import KubeletConfig
from alignup.machine.loaded import EXTRA_KEYS
from alignup.machine.machine import Machine
from alignup.text.known_keys import misspelt_keys

__all__ = ["check_keys", "checked_config", "checked_machine"]

KEYS: Final = (
    "machine",
    *EXTRA_KEYS,
    "labels",
    "singleNUMANodeExclusive",
    "keepRefusedBindings",
    "kubeletVersion",
    "name",
    "steps",
    "pods",
)
"""The keys of a scenario and of a node line; `docs/scenarios.md` says what they mean."""


def check_keys(keys: Iterable[object], what: str) -> None:
    """Warn of keys that resemble one of `KEYS`; others are the writer's own notes."""
    for key, meant in misspelt_keys(keys, KEYS):
        warn(f"the key {key!r} of {what} is unknown and ignored; {meant!r} is meant")


def checked_machine(machine: object) -> Machine:
    """Return the machine, decoded if it is a mapping.

    Raises:
        InputError: the mapping describes no machine.
        TypeError: it is something else.
    """
    if isinstance(machine, Machine):
        return machine
    if isinstance(machine, Mapping):
        passed_over = [key for key in EXTRA_KEYS if machine.get(key)]
        if passed_over:
            warn(
                f"{', '.join(passed_over)} of the machine ignored: Node.from_dict takes what comes with a machine"
            )
        return Machine.from_dict(machine)
    hint = "; Machine.load takes names and files" if isinstance(machine, str) else ""
    raise TypeError(
        f"expected a Machine, or a mapping as Machine.to_dict returns it, got {machine!r:.80}{hint}"
    )


def checked_config(config: object) -> KubeletConfig:
    """Return the configuration, decoded if it is a mapping; a kubelet's defaults for None.

    Raises:
        InputError: the mapping is no configuration.
        ConfigError: a kubelet would refuse to start with it.
        TypeError: it is something else.
    """
    if config is None:
        return KubeletConfig()
    if isinstance(config, KubeletConfig):
        return config
    if isinstance(config, Mapping):
        return KubeletConfig.from_dict(config)
    hint = "; load_config of alignup.kubernetes.kubelet_config reads text" if isinstance(config, str) else ""
    raise TypeError(f"expected a KubeletConfig, or a mapping of its fields, got {config!r:.80}{hint}")
