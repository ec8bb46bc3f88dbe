"""Archives that are written, and read without being unpacked to disk."""

from __future__ import annotations

import io
import os
import tarfile

import pytest

from alignup.errors import InputError
from alignup.machine.archive import is_archive, read_archive, write_archive

FILES = [("a/b", b"1"), ("c", b"22")]


def read(path, most=10):
    return read_archive(
        path, {"a", "c"}, lambda name: most if name in {"a/b", "c"} else None, lambda _: True
    )


@pytest.mark.parametrize("suffix", [".tar.xz", ".tar.gz", ".tgz"])
def test_what_is_written_is_read(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    write_archive(path, FILES, "an archive")
    assert is_archive(path.read_bytes()[:512])
    assert read(path).files == dict(FILES)
    again = tmp_path / f"y{suffix}"
    write_archive(again, FILES, "an archive")
    if suffix == ".tar.xz":
        assert again.read_bytes() == path.read_bytes()
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted([path.name, again.name])


def test_what_a_link_leads_to_is_not_written_over(tmp_path):
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    (tmp_path / f".x.tgz.{os.getpid()}").symlink_to(precious)
    with pytest.raises(InputError, match=r"cannot write an archive .*: file exists"):
        write_archive(tmp_path / "x.tgz", FILES, "an archive")
    assert precious.read_bytes() == b"precious"


def test_only_what_is_wanted_is_read_and_links_are_not_followed(tmp_path):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in ("box/a/b", "box/other"):
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
        link = tarfile.TarInfo("box/c")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    (tmp_path / "x.tar").write_bytes(packed.getvalue())
    found = read(tmp_path / "x.tar")
    assert found.files == {"a/b": b"x"}
    assert found.links == {"c": "/etc/passwd"}


def test_what_is_too_large_or_no_archive_is_one_line(tmp_path):
    write_archive(tmp_path / "x.tgz", FILES, "an archive")
    with pytest.raises(InputError, match="damaged or no archive"):
        read(tmp_path / "x.tgz", most=1)
    (tmp_path / "y.tgz").write_bytes(b"hello")
    with pytest.raises(InputError, match="damaged or no archive"):
        read(tmp_path / "y.tgz")
    with pytest.raises(InputError, match=r"cannot read a snapshot at .*: no such file"):
        read(tmp_path / "none.tgz")
    with pytest.raises(InputError, match=r"a suffix of \.tar\.xz"):
        write_archive(tmp_path / "x.zip", FILES, "an archive")


def extended(kind: bytes, data: bytes, size: bytes | None = None) -> bytes:
    """Return an extended header, of which tarfile makes the block, with another size if one is given."""
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, len(data)
    block = bytearray(header.tobuf(tarfile.USTAR_FORMAT))
    if size is not None:
        block[124:136], block[148:156] = size, b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + data + b"\0" * (-len(data) % 512)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize(
    "headers",
    [lambda kind: extended(kind, b"6 a=b\n") * 2000, lambda kind: extended(kind, b"9" * 200_000),
     lambda kind: extended(kind, b"9" * 200_000, b"\x80" + (200_000).to_bytes(11)),
     lambda kind: extended(kind, b"9" * 1000)],
    ids=["one after another", "long", "long, in base 256", "a long number"],
)  # fmt: skip
def test_extended_headers_that_take_long_are_refused(tmp_path, kind, headers):
    path = tmp_path / "x.tar"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("c"))
    path.write_bytes(headers(kind) + packed.getvalue())
    with pytest.raises(InputError, match="damaged or no archive"):
        read(path)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_an_extended_header_with_a_length_beyond_64_bits_is_damage(tmp_path, kind):
    path = tmp_path / "x.tar"
    path.write_bytes(extended(kind, b"%d path=a\n" % (10**19)) + bytes(1024))
    with pytest.raises(InputError, match="damaged or no archive"):
        read(path)


def test_a_path_of_some_hundred_letters_is_read(tmp_path):
    name = "/".join(["a", *["folder"] * 100, "b"])
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        with tarfile.open(tmp_path / "x.tar", "w", format=form) as archive:
            archive.addfile(tarfile.TarInfo(name))
        assert read_archive(tmp_path / "x.tar", {"a"}, lambda _: 10, lambda _: True).files == {
            name: b""
        }
