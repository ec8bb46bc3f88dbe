"""Certificates are read again when their files change, and one that ends soon is complained of."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from alignup.control_plane.serving import ServedCertificate, end_of
from running.certificates import certificate

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl makes the certificates"
)


def shaken(served: ServedCertificate, client: ssl.SSLContext) -> bytes | None:
    """Return the certificate that a client gets; None: one of the two refuses the other."""
    there, here = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(here, there), served.context.wrap_bio(there, here, server_side=True)]
    try:
        for _ in range(6):
            for end in ends:
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLError:
        return None
    return ends[0].getpeercert(binary_form=True)


def client_of(folder: Path, name: str = "") -> ssl.SSLContext:
    """Return a client that believes anybody, and shows a certificate."""
    made = ssl.create_default_context()
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    if name:
        made.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    return made


@pytest.fixture
def files(tmp_path) -> Path:
    for name, issuer in (
        ("ca", ""),
        ("other", ""),
        ("one", "ca"),
        ("two", "ca"),
        ("client", "ca"),
        ("guest", "other"),
    ):
        certificate(tmp_path, name, issuer)
    for ending in ("crt", "key"):
        shutil.copy(tmp_path / f"one.{ending}", tmp_path / f"tls.{ending}")
    shutil.copy(tmp_path / "ca.crt", tmp_path / "clients.crt")
    return tmp_path


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def test_new_files_are_served_and_bad_ones_leave_the_old_in_use(files) -> None:
    said: list[str] = []
    paths = [str(files / name) for name in ("tls.crt", "tls.key", "clients.crt")]
    served = ServedCertificate(*paths, said.append)
    assert shaken(served, client_of(files)) == der(files / "one.crt")
    shutil.copy(files / "two.crt", files / "tls.crt")  # without its key
    served.look(0.0)
    assert shaken(served, client_of(files)) == der(files / "one.crt")
    assert "from before stays in use" in said[-1]
    shutil.copy(files / "two.key", files / "tls.key")
    served.look(0.0)
    assert shaken(served, client_of(files)) == der(files / "two.crt")
    (files / "tls.crt").unlink()
    served.look(0.0)
    assert shaken(served, client_of(files)) == der(files / "two.crt")
    assert len(said) == 3


def test_the_authorities_of_clients_are_read_again_and_old_ones_forgotten(files) -> None:
    served = ServedCertificate(
        *(str(files / name) for name in ("tls.crt", "tls.key", "clients.crt")), lambda _: None
    )

    def is_let_in(name: str) -> bool:
        return shaken_by_server(served, client_of(files, name))

    assert [is_let_in("client"), is_let_in("guest")] == [True, False]
    shutil.copy(files / "other.crt", files / "clients.crt")
    served.look(0.0)
    assert [is_let_in("client"), is_let_in("guest")] == [False, True]


def shaken_by_server(served: ServedCertificate, client: ssl.SSLContext) -> bool:
    """Return whether the server has verified the client."""
    there, here = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(here, there), served.context.wrap_bio(there, here, server_side=True)]
    try:
        for _ in range(6):
            for end in ends:
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLError:
        return False
    return bool(ends[1].getpeercert())


def test_a_certificate_that_ends_soon_is_complained_of_once_a_day(files) -> None:
    said: list[str] = []
    served = ServedCertificate(
        *(str(files / name) for name in ("tls.crt", "tls.key", "clients.crt")), said.append
    )
    now = time.time()
    served.look(now - 30 * 86400)
    assert said == []
    served.look(now)
    served.look(now + 3600)
    assert len(said) == 2
    assert all("ends at" in one for one in said)
    served.look(now + 90000)
    assert len(said) == 4
    assert served.ends().keys() == {"server", "clients"}


def openssl(folder: Path, *words: str) -> str:
    done = subprocess.run(  # noqa: S603  # ours
        ["openssl", *words],  # noqa: S607  # ours
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("days", [1, 8000, 9500, 60_000])
def test_the_end_is_that_of_openssl(files, days) -> None:
    """In either form of time, of which the longer begins with 2050, before a chain and behind a key and words."""
    openssl(files, "req", "-new", "-key", "one.key", "-subj", "/CN=far", "-out", "far.csr")
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-days", str(days), "-out", "far.crt")
    openssl(files, "x509", "-req", "-in", "far.csr", *signed)
    text = "".join((files / name).read_text() for name in ("one.key", "far.crt", "ca.crt"))
    (files / "chain.crt").write_text(f"of far\n{text}")
    for name in ("ca", "far", "chain"):
        said = openssl(files, "x509", "-enddate", "-noout", "-in", f"{name}.crt")
        expected = datetime.strptime(said, "notAfter=%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)
        assert end_of(files / f"{name}.crt") == expected.timestamp()


def test_torn_certificates_have_an_end_or_none(files) -> None:
    """Any byte changed, and the rest left out at any place.

    An error of the system, which callers expect.
    """
    whole = der(files / "one.crt")
    for at in range(len(whole)):
        for torn in (whole[:at], whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]):
            (files / "torn.crt").write_text(ssl.DER_cert_to_PEM_cert(torn))
            with suppress(OSError):
                assert isinstance(end_of(files / "torn.crt"), float)


@pytest.mark.parametrize(
    "text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"]
)
def test_what_is_no_certificate_has_no_end(tmp_path, text) -> None:
    (tmp_path / "one.crt").write_text(text)
    with pytest.raises(OSError, match=r"PEM|ASN1|asn1"):
        end_of(tmp_path / "one.crt")
