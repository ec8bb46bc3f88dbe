"""Puts a kubelet's configuration together: its file, its drop-ins, and the flags of the kubelet that runs.

The result is plain fields; their meaning is decided by `alignup.kubernetes.kubelet_config`.
`settings_of` tells which policies, policy options and feature gates are in effect then, and where
each comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError, system_errors
from alignup.kubelet.layout import (
    CONFIG,
    CONFIG_FOLDER,
    CONFIGS_ELSEWHERE,
    AnyPath,
    NodeFiles,
    read_file,
)
from alignup.kubernetes import policy_options
from alignup.kubernetes.config_documents import configuration_fields
from alignup.kubernetes.versions import release_of
from alignup.records import Record

if TYPE_CHECKING:
    from alignup.kubelet.processes import RunningKubelet
    from alignup.kubernetes.kubelet_config import KubeletConfig

_DROP_IN: Final = ".conf"

# Of options that are not false by default.
_DEFAULTS: Final = {"max-allowable-numa-nodes": str(policy_options.DEFAULT_MAXIMUM)}

_GATES: Final = "featureGates"


class Configuration(Record):
    """The fields of a KubeletConfiguration as they are in effect.

    Attributes:
        parts: where they come from, in the order of merging: the place in words, and the fields
            that are set there.
        kubelet: the kubelet whose flags are in it.
    """

    fields: Mapping[str, Any]
    parts: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    kubelet: RunningKubelet | None = None

    @property
    def source(self) -> str:
        """The places in words; empty: there is no configuration."""
        return ", ".join(place for place, _ in self.parts)


def read_configuration(
    files: NodeFiles, config: AnyPath | None = None, config_dir: AnyPath | None = None
) -> Configuration:
    """Return the configuration of a node.

    The kubelet merges the drop-ins into the file in the order of their names, as a JSON merge patch
    (RFC 7386), and its flags override both.

    Args:
        files: the node's files.
        config: the configuration's file; None: what the kubelet's flag says, else `config.yaml` in
            its folder if no kubelet runs.
        config_dir: the folder of the drop-ins; None: what the kubelet's flag says, else `config.d`
            in its folder if no kubelet runs.

    Raises:
        InputError: a file cannot be read, or is no mapping of fields.
    """
    fields: dict[str, Any] = {}
    parts = []
    kubelet = files.kubelet
    for place, data in _texts(files, config, config_dir):
        parts.append((place, configuration_fields(data, place)))
        fields = _merged(fields, parts[-1][1])

    if kubelet is not None and kubelet.flags:
        fields = kubelet.flags.over(fields)
        parts.append((f"the flags of process {kubelet.pid}", kubelet.flags.over({})))

    return Configuration(fields, tuple(parts), kubelet)


def _texts(
    files: NodeFiles, config: AnyPath | None, config_dir: AnyPath | None
) -> Iterator[tuple[str, bytes]]:
    """Yield where each part of the configuration stands, and its text, in the order of merging."""
    kubelet = files.kubelet
    if config is not None:
        yield str(config), _given(Path(config))
    else:
        named = CONFIG if kubelet is None else kubelet.flags.config.lstrip("/")
        data = files.read(named) if named else None
        if data is None and kubelet is None:
            named = next(
                (
                    path
                    for path, word in CONFIGS_ELSEWHERE.items()
                    if word in (files.read(path) or b"")
                ),
                named,
            )
            data = files.read(named)

        if data is not None:
            yield files.place(named), data
        elif kubelet is not None and named:
            raise InputError(
                f"the configuration of the kubelet is missing: no file at {files.place(named)}"
            )

    if config_dir is not None:
        for path in sorted(Path(config_dir).glob(f"*{_DROP_IN}")):
            yield str(path), _given(path)
        return

    folder = CONFIG_FOLDER if kubelet is None else kubelet.flags.config_dir.strip("/")
    for name in files.names(folder) if folder else ():
        data = files.read(f"{folder}/{name}") if name.endswith(_DROP_IN) else None
        if data is not None:
            yield files.place(f"{folder}/{name}"), data


def _given(path: Path) -> bytes:
    """Return the content of a file that a user names."""
    with system_errors("cannot read the KubeletConfiguration", path):
        return read_file(path)


def _merged(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with a JSON merge patch laid over them; null removes a field."""
    merged = dict(target)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            old = merged.get(key)
            merged[key] = _merged(old if isinstance(old, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


class Setting(Record):
    """A policy, an option of a policy, or a feature gate.

    Attributes:
        name: by its path in a KubeletConfiguration, such as
            `cpuManagerPolicyOptions.full-pcpus-only`.
        origin: the file, the drop-in or the kubelet's flags that set it, `default of VERSION`; or,
            where there is none of these files, `the state files`.
        is_default: whether nothing sets it.
    """

    name: str
    value: str
    origin: str
    is_default: bool


def settings_of(configuration: Configuration, config: KubeletConfig) -> tuple[Setting, ...]:
    """Return what is in effect, with the options and gates that the release knows and nothing sets.

    Args:
        configuration: the fields, and where they come from.
        config: what is made of them.
    """
    return tuple(
        Setting(".".join(path), value, origin or f"default of {config.version}", not origin)
        for path, value in _values(config)
        for origin in [_origin(configuration, path, config)]
    )


def _values(config: KubeletConfig) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what is in effect by its path."""
    yield ("topologyManagerPolicy",), config.topology_manager_policy
    yield ("topologyManagerScope",), config.topology_manager_scope
    yield ("cpuManagerPolicy",), config.cpu_manager_policy
    yield ("memoryManagerPolicy",), config.memory_manager_policy
    for field, family, options in (
        (
            "topologyManagerPolicyOptions",
            policy_options.TOPOLOGY_FAMILY,
            config.topology_manager_policy_options,
        ),
        ("cpuManagerPolicyOptions", policy_options.CPU_FAMILY, config.cpu_manager_policy_options),
    ):
        given = policy_options.set_options(options)
        for name in policy_options.option_stages(family, config.version):
            yield (field, name), given.get(name, _DEFAULTS.get(name, "false"))

    for name, is_on in policy_options.effective_gates(
        config.feature_gates or None, config.version
    ).items():
        yield (_GATES, name), str(is_on).lower()


def _origin(configuration: Configuration, path: tuple[str, ...], config: KubeletConfig) -> str:
    """Return the last place that sets something; empty: nothing does."""
    paths = [path]
    if path[0] == _GATES and not _has(configuration.fields, path):
        maturity = release_of(config.version).gates[path[1]].maturity
        paths = [
            (_GATES, name) for name, stage in policy_options.ALL_OF.items() if stage == maturity
        ]
    if not configuration.parts and path[0] in {"cpuManagerPolicy", "memoryManagerPolicy"}:
        return "the state files"
    places = [
        (place, one) for one in paths for place, fields in configuration.parts if _has(fields, one)
    ]
    return next((place for place, one in reversed(places) if _has(configuration.fields, one)), "")


def _has(fields: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    """Return whether something is set; an empty policy is its default."""
    found: Any = fields
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found is not None and found != ""
