"""Puts a kubelet's configuration together: its file, its drop-ins, and the running kubelet's flags.

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
from alignup.kubernetes.config_documents import read_configuration as read_text
from alignup.kubernetes.kubelet_config import NodeReserve
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
        platform: the platform whose part of a configuration it is; empty: it is whole.
    """

    fields: Mapping[str, Any]
    parts: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    kubelet: RunningKubelet | None = None
    platform: str = ""

    @property
    def source(self) -> str:
        """The places in words; empty: there is no configuration."""
        return ", ".join(place for place, _ in self.parts)


def read_configuration(
    files: NodeFiles,
    config: AnyPath | None = None,
    config_dir: AnyPath | None = None,
    reserved_cpus: str = "",
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
        reserved_cpus: the CPUs to reserve in place of what is read; empty: that.

    Raises:
        InputError: a file cannot be read, or is no mapping of fields.
    """
    fields: dict[str, Any] = {}
    parts: list[tuple[str, Mapping[str, Any]]] = []
    kubelet = files.kubelet
    platform = ""
    for place, data in _texts(files, config, config_dir):
        text = read_text(data, place)
        patch = text.fields
        platform = text.platform or platform
        if parts and "evictionHard" in patch:  # the file's defaults are laid below its drop-ins
            fields.setdefault("evictionHard", {"memory.available": NodeReserve().eviction_memory})
        parts.append((place, patch))
        fields = _merged(fields, patch)

    if kubelet is not None and kubelet.flags:
        fields = kubelet.flags.over(fields)
        parts.append((f"the flags of process {kubelet.pid}", kubelet.flags.over({})))

    if reserved_cpus:
        parts.append(("--reserved-cpus", {"reservedSystemCPUs": reserved_cpus}))
        fields = {**fields, "reservedSystemCPUs": reserved_cpus}

    return Configuration(fields, tuple(parts), kubelet, platform)


def _texts(
    files: NodeFiles, config: AnyPath | None, config_dir: AnyPath | None
) -> Iterator[tuple[str, bytes]]:
    """Yield where each part of the configuration stands, and its text, in the order of merging."""
    kubelet = files.kubelet
    if config is not None:
        yield str(config), _named_file(Path(config))
    elif kubelet is None:
        yield from _usual_file(files)
    else:
        path = kubelet.flags.config.lstrip("/")
        data = files.read(path) if path else None
        if data is not None:
            yield files.place(path), data
        elif path:
            raise InputError(
                f"the configuration of the kubelet is missing: no file at {files.place(path)}"
            )

    if config_dir is not None:
        for file in sorted(Path(config_dir).glob(f"*{_DROP_IN}")):
            yield str(file), _named_file(file)
        return

    folder = CONFIG_FOLDER if kubelet is None else kubelet.flags.config_dir.strip("/")
    if folder:
        yield from _drop_ins(files, folder)


def _usual_file(files: NodeFiles) -> Iterator[tuple[str, bytes]]:
    """Yield the configuration's file where no kubelet runs that names it, if there is one."""
    data = files.read(CONFIG)
    if data is not None:
        yield files.place(CONFIG), data
        return

    for path, word in CONFIGS_ELSEWHERE.items():
        data = files.read(path)
        if data is not None and word in data:
            yield files.place(path), data
            return


def _drop_ins(files: NodeFiles, folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield the drop-ins in a folder of the node."""
    for name in files.names(folder):
        if name.endswith(_DROP_IN):
            path = f"{folder}/{name}"
            data = files.read(path)
            if data is not None:
                yield files.place(path), data


def _named_file(path: Path) -> bytes:
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
    settings = []
    for path, value in _values(config):
        origin = _origin(configuration, path, config)
        settings.append(
            Setting(".".join(path), value, origin or f"default of {config.version}", not origin)
        )

    return tuple(settings)


def _values(config: KubeletConfig) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what is in effect by its path."""
    yield ("topologyManagerPolicy",), config.topology_manager_policy
    yield ("topologyManagerScope",), config.topology_manager_scope
    yield ("cpuManagerPolicy",), config.cpu_manager_policy
    yield ("memoryManagerPolicy",), config.memory_manager_policy

    families = (
        (
            "topologyManagerPolicyOptions",
            policy_options.TOPOLOGY_FAMILY,
            config.topology_manager_policy_options,
        ),
        ("cpuManagerPolicyOptions", policy_options.CPU_FAMILY, config.cpu_manager_policy_options),
    )
    for field, family, options in families:
        values = policy_options.set_options(options)
        for name in policy_options.option_stages(family, config.version):
            yield (field, name), values.get(name, _DEFAULTS.get(name, "false"))

    gates = policy_options.effective_gates(config.feature_gates or None, config.version)
    for name, is_on in gates.items():
        yield (_GATES, name), str(is_on).lower()


def _origin(configuration: Configuration, path: tuple[str, ...], config: KubeletConfig) -> str:
    """Return the last place that sets something; empty: nothing does."""
    if not configuration.parts and path[0] in {"cpuManagerPolicy", "memoryManagerPolicy"}:
        return "the state files"

    paths = [path]
    if path[0] == _GATES and not _has(configuration.fields, path):
        # a gate that sets all gates of its stage
        maturity = release_of(config.version).gates[path[1]].maturity
        paths = [
            (_GATES, name) for name, stage in policy_options.ALL_OF.items() if stage == maturity
        ]

    for field in reversed(paths):
        if _has(configuration.fields, field):
            for place, fields in configuration.parts[::-1]:
                if _has(fields, field):
                    return place

    return ""


def _has(fields: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    """Return whether something is set; an empty policy is its default."""
    value: Any = fields
    for name in path:
        if not isinstance(value, Mapping):
            return False
        value = value.get(name)

    return value is not None and value != ""
