"""Names the configurations that a trace is compared under: `POLICY` or `POLICY/SCOPE`, separated by commas."""

from __future__ import annotations

from dataclasses import dataclass

from alignup.errors import InputError
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES, TOPOLOGY_SCOPES

__all__ = ["Configuration", "parse_configurations"]


@dataclass(frozen=True, slots=True)
class Configuration:
    """A topology policy, and perhaps a scope; all else stays as a scenario has it."""

    policy: str
    scope: str = ""
    """Empty: that of the scenario."""

    @property
    def label(self) -> str:
        """The configuration as it is written on a command line."""
        return f"{self.policy}/{self.scope}" if self.scope else self.policy

    @property
    def fields(self) -> dict[str, str]:
        """The fields of a KubeletConfiguration."""
        scope = {"topologyManagerScope": self.scope} if self.scope else {}
        return {"topologyManagerPolicy": self.policy, **scope}


def parse_configurations(text: str, where: str = "--compare") -> tuple[Configuration, ...]:
    """Return the configurations that a text lists; one that comes twice counts once.

    Raises:
        InputError: a policy or a scope is unknown.
    """
    found = []
    for part in text.split(","):
        policy, slash, scope = part.strip().partition("/")
        if policy not in TOPOLOGY_POLICIES:
            raise InputError.at(where, f"one of {', '.join(TOPOLOGY_POLICIES)}, perhaps with a scope", part)
        if slash and scope not in TOPOLOGY_SCOPES:
            raise InputError.at(where, f"one of {', '.join(TOPOLOGY_SCOPES)} after the slash", part)
        found.append(Configuration(policy, scope))
    return tuple(dict.fromkeys(found))
