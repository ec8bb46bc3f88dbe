"""Tells the policies, policy options and feature gates of a kubelet that are in effect, and where each comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from alignup.kubernetes.feature_gates import ALL_OF, effective_gates
from alignup.kubernetes.policy_options import CPU_FAMILY, DEFAULT_MAXIMUM, TOPOLOGY_FAMILY, option_stages, set_options
from alignup.kubernetes.versions import release_of
from alignup.records import Record

if TYPE_CHECKING:
    from alignup.kubelet.config import Configuration
    from alignup.kubernetes.kubelet_config import KubeletConfig

# Of options that are not false by default.
_DEFAULTS: Final = {"max-allowable-numa-nodes": str(DEFAULT_MAXIMUM)}
_GATES: Final = "featureGates"


class Setting(Record):
    """A policy, an option of a policy, or a feature gate.

    Attributes:
        name: by its path in a KubeletConfiguration, such as `cpuManagerPolicyOptions.full-pcpus-only`.
        origin: the file, the drop-in or the kubelet's flags that set it, `default of VERSION`; or, where there is none
            of these files, `the state files`.
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
        ("topologyManagerPolicyOptions", TOPOLOGY_FAMILY, config.topology_manager_policy_options),
        ("cpuManagerPolicyOptions", CPU_FAMILY, config.cpu_manager_policy_options),
    ):
        given = set_options(options)
        for name in option_stages(family, config.version):
            yield (field, name), given.get(name, _DEFAULTS.get(name, "false"))
    for name, is_on in effective_gates(config.feature_gates or None, config.version).items():
        yield (_GATES, name), str(is_on).lower()


def _origin(configuration: Configuration, path: tuple[str, ...], config: KubeletConfig) -> str:
    """Return the last place that sets something; empty: nothing does."""
    paths = [path]
    if path[0] == _GATES and not _has(configuration.fields, path):
        maturity = release_of(config.version).gates[path[1]].maturity
        paths = [(_GATES, name) for name, stage in ALL_OF.items() if stage == maturity]
    if not configuration.parts and path[0] in {"cpuManagerPolicy", "memoryManagerPolicy"}:
        return "the state files"
    places = [(place, one) for one in paths for place, fields in configuration.parts if _has(fields, one)]
    return next((place for place, one in reversed(places) if _has(configuration.fields, one)), "")


def _has(fields: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    """Return whether something is set; an empty policy is its default."""
    found: Any = fields
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found is not None and found != ""
