"""Archives that are written, and read without being unpacked to disk."""

from __future__ import annotations

import io
import tarfile

import pytest

from alignup.errors import InputError
from alignup.machine.archive import is_archive, read_archive, write_archive

FILES = [("a/b", b"1"), ("c", b"22")]


def read(path, most=10):
    return read_archive(path, {"a", "c"}, lambda name: most if name in {"a/b", "c"} else None, lambda _: True)


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
