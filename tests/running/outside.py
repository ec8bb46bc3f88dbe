"""The environment of programs that ask servers outside, such as Go's."""

from __future__ import annotations

import os

HIDDEN = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""What tests set so that no client reads this machine's authorities (tests/conftest.py)."""


def outside_environment() -> dict[str, str]:
    """Return the environment with this machine's authorities, which other tests do without."""
    return {name: value for name, value in os.environ.items() if name not in HIDDEN}
