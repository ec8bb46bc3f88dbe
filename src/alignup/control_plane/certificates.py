"""Serves TLS with certificates that are read again when their files change, and says when they end.

A Secret of Kubernetes changes its mounted files while the process runs. Connections that begin after a change get the
new certificate, and are judged by the new authorities; one that cannot be read leaves the old one in use.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from alignup.control_plane.serving import tls_context
from alignup.errors import InputError

_LOOK_SECONDS: Final = 10.0
_SOON: Final = 7 * 86400.0
_AGAIN: Final = 86400.0
"""Seconds between two complaints about a certificate that ends soon."""
_END_OF_CERTIFICATE: Final = "-----END CERTIFICATE-----"
_LONG_LENGTH: Final = 0x80
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17


class ServedCertificate:
    """A server's certificate and its clients' authorities, as their files are now.

    Args:
        certificate: the file of the server's certificate.
        key: the file of its key.
        client_ca: as `tls_context` has it.
        complain: called with what went wrong, or is about to, in one line.

    Raises:
        InputError: as `tls_context`.
    """

    def __init__(self, certificate: str, key: str, client_ca: str | None, complain: Callable[[str], None]) -> None:
        self._files = {"server": certificate, "key": key} | ({"clients": client_ca} if client_ca else {})
        self._arguments, self._complain = (certificate, key, client_ca), complain
        self._stamp = self._stamps()
        self._current = self._read()
        self._said = float("-inf")
        self.context = self._read()
        """What to serve with: each connection gets what there is when it begins."""
        self.context.sni_callback = self._choose
        self.context.num_tickets = 0  # who comes back shows the certificate again, for the authorities of then

    def _read(self) -> ssl.SSLContext:
        context = tls_context(*self._arguments)
        assert context is not None  # noqa: S101  # a certificate is given
        return context

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        """Return what changes when a file does; None for one that is not there."""
        found: list[tuple[int, int, int] | None] = []
        for path in self._files.values():
            try:
                state = Path(path).stat()
                found.append((state.st_ino, state.st_mtime_ns, state.st_size))
            except OSError:
                found.append(None)
        return found

    def look(self, now: float) -> None:
        """Read the files again if they have changed, and complain of a certificate that ends soon.

        Args:
            now: seconds since 1970.
        """
        stamp = self._stamps()
        if stamp != self._stamp:
            self._stamp = stamp  # of files that do not fit together yet, the other one changes too
            try:
                self._current = self._read()
                self._said = float("-inf")
                self._complain(f"the certificate in {self._files['server']} was read again")
            except InputError as error:
                self._complain(f"the certificate from before stays in use: {error}")
        soon = {of: end for of, end in self.ends().items() if end < now + _SOON}
        if soon and now >= self._said + _AGAIN:
            self._said = now
            for of, end in soon.items():
                moment = datetime.fromtimestamp(end, UTC).isoformat()
                self._complain(f"the certificate in {self._files[of]} ends at {moment}")

    def ends(self) -> dict[str, float]:
        """Return when the certificates end, in seconds since 1970: `server`, and `clients` for their authority."""
        found = {}
        for of in self._files.keys() & {"server", "clients"}:
            try:
                found[of] = end_of(Path(self._files[of]).read_text("ascii"))
            except (OSError, ValueError, IndexError):  # being replaced; `look` complains of what stays so
                continue
        return found

    async def keep(self) -> None:
        """Look again and again until cancelled."""
        while True:
            self.look(time.time())
            await asyncio.sleep(_LOOK_SECONDS)


def end_of(text: str) -> float:
    """Return when the first certificate of a PEM file ends, in seconds since 1970.

    RFC 5280: the validity is the fourth field of what is signed, after version, serial number, algorithm and issuer.

    Raises:
        ValueError: the text has none.
        IndexError: its bytes end too early.
    """
    start = text.find("-----BEGIN CERTIFICATE-----")
    stop = text.find(_END_OF_CERTIFICATE, start)
    data = ssl.PEM_cert_to_DER_cert(text[start : stop + len(_END_OF_CERTIFICATE)])
    at, _ = _field(data, 0)
    at, _ = _field(data, at)
    for _ in range(4 if data[at] == _VERSION else 3):
        at = sum(_field(data, at))
    at, _ = _field(data, at)
    at = sum(_field(data, at))  # not before
    begin, length = _field(data, at)
    form = "%y%m%d%H%M%SZ" if data[at] == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(data[begin : begin + length].decode("ascii"), form).replace(tzinfo=UTC).timestamp()


def _field(data: bytes, at: int) -> tuple[int, int]:
    """Return where the contents of a field of DER begin, and how long they are."""
    length = data[at + 1]
    if length < _LONG_LENGTH:
        return at + 2, length
    count = length - _LONG_LENGTH
    return at + 2 + count, int.from_bytes(data[at + 2 : at + 2 + count], "big")
