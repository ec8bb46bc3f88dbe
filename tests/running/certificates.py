"""Makes certificates of an authority of our own, for servers and clients on this machine."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def certificate(folder: Path, name: str, issuer: str = "") -> None:
    """Make a key and a certificate in a folder.

    Of an authority, or of one that an authority has issued.
    """
    subject = [
        "-subj",
        f"/CN={name}",
        "-nodes",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
    ]

    files = ["-keyout", f"{name}.key", "-out", f"{name}.crt"]
    signed = [
        "-CA",
        f"{issuer}.crt",
        "-CAkey",
        f"{issuer}.key",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    ]

    # which Python 3.13 wants of what may sign
    authority = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    command = [
        "openssl",
        "req",
        "-x509",
        "-days",
        "2",
        *subject,
        *files,
        *(signed if issuer else authority),
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)  # noqa: S603  # our own
