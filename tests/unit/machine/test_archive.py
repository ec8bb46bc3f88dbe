"""Archives that are written, and read without being unpacked to disk; snapshots of kernel files."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile

import pytest

from alignup.errors import InputError
from alignup.machine import archive as archive_module
from alignup.machine.archive import (
    find_kernel_files,
    is_archive,
    is_kernel_file,
    kept_text,
    load_snapshot,
    read_archive,
    take_snapshot,
    write_archive,
)
from alignup.machine.sysfs.machine import describe, read_sysfs
from alignup.machine.sysfs.tree import MemoryTree
from inputs.kernel_trees import CPU, NODE, pci, server, write

FILES = [("a/b", b"1"), ("c", b"22")]

KERNEL_FILES = server() | pci("0000:01:00.0", numa_node=1)


def read(path, most=10):
    bounds = {"a/b": most, "c": most}
    return read_archive(path, {"a", "c"}, bounds.get, lambda _: True)


@pytest.mark.parametrize("suffix", [".tar.xz", ".tar.gz", ".tgz"])
def test_what_is_written_is_read(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    write_archive(path, FILES, "an archive")
    assert is_archive(path.read_bytes()[:512])
    assert read(path).files == dict(FILES)
    second = tmp_path / f"y{suffix}"
    write_archive(second, FILES, "an archive")
    if suffix == ".tar.xz":
        assert second.read_bytes() == path.read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([path.name, second.name])


def test_what_a_link_leads_to_is_not_written_over(tmp_path):
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    (tmp_path / f".x.tgz.{os.getpid()}").symlink_to(precious)
    with pytest.raises(InputError, match=r"cannot write an archive .*: file exists"):
        write_archive(tmp_path / "x.tgz", FILES, "an archive")
    assert precious.read_bytes() == b"precious"


def test_only_what_is_wanted_is_read_and_links_are_not_followed(tmp_path):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as packed_archive:
        for name in ("box/a/b", "box/other"):
            member = tarfile.TarInfo(name)
            member.size = 1
            packed_archive.addfile(member, io.BytesIO(b"x"))
        link = tarfile.TarInfo("box/c")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        packed_archive.addfile(link)
    (tmp_path / "x.tar").write_bytes(packed.getvalue())
    contents = read(tmp_path / "x.tar")
    assert contents.files == {"a/b": b"x"}
    assert contents.links == {"c": "/etc/passwd"}


def test_links_in_a_zip_are_not_followed(tmp_path):
    link = zipfile.ZipInfo("box/c")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as packed:
        packed.mkdir("box/a")
        packed.writestr("box/a/b", b"x")
        packed.writestr(link, "/etc/passwd")
    contents = read(tmp_path / "x.zip", most=20)
    assert contents.files == {"a/b": b"x"}
    assert contents.links == {"c": "/etc/passwd"}


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
    """Return an extended header, of which tarfile makes the block; its size may be another."""
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
    with tarfile.open(fileobj=packed, mode="w") as packed_archive:
        packed_archive.addfile(tarfile.TarInfo("c"))
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
        with tarfile.open(tmp_path / "x.tar", "w", format=form) as packed_archive:
            packed_archive.addfile(tarfile.TarInfo(name))
        assert read_archive(tmp_path / "x.tar", {"a"}, lambda _: 10, lambda _: True).files == {
            name: b""
        }


def archive(path, members, mode="w:gz", format_=tarfile.PAX_FORMAT):
    """Write an archive of texts, links (`->target`) and folders (None)."""
    with tarfile.open(path, mode, format=format_) as packed:
        for name, text in members.items():
            member = tarfile.TarInfo(name)
            if text is None:
                member.type = tarfile.DIRTYPE
                packed.addfile(member)
            elif text.startswith("->"):
                member.type, member.linkname = tarfile.SYMTYPE, text[2:]
                packed.addfile(member)
            else:
                member.size = len(text)
                packed.addfile(member, io.BytesIO(text.encode()))

    return path


@pytest.fixture
def root(tmp_path):
    """Return a tree with files that a snapshot must not have."""
    secrets = {
        "proc/sys/kernel/hostname": "secret",
        "sys/class/net/eth0/address": "02:00:00:00:00:01",
        "sys/class/dmi/id/product_serial": "secret",
    }
    return write(
        tmp_path / "root",
        KERNEL_FILES | secrets | {"proc/cpuinfo": "processor : 0\nSerial : secret\n"},
    )


@pytest.mark.parametrize("suffix", [".tar.xz", ".tar.gz", ".tgz"])
def test_a_snapshot_is_the_same_machine(root, tmp_path, suffix):
    """Packed and read back without being unpacked."""
    path = tmp_path / f"machine{suffix}"
    count = take_snapshot(root, path)

    assert count == len(KERNEL_FILES) + 1
    assert describe(load_snapshot(path)) == read_sysfs(root)
    assert is_archive(path.read_bytes()[:512])


def test_a_snapshot_has_nothing_else_in_it(root, tmp_path):
    """No other files, and no owner, time or right of the machine."""
    path = tmp_path / "machine.tar.gz"
    take_snapshot(root, path)
    with tarfile.open(path) as packed:
        members = packed.getmembers()
        texts = [packed.extractfile(member).read() for member in members]

    assert all(is_kernel_file(member.name) for member in members)
    assert {(member.uid, member.uname, member.mtime) for member in members} == {(0, "", 0)}
    assert not any(b"secret" in text for text in texts)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["machine.tar.gz", "root"]


def test_a_machine_in_a_folder_of_its_own_is_found(tmp_path):
    """Archives that others made have one; their links to PCI devices are followed."""
    members = {f"./box/{path}": text for path, text in server().items()}
    target = "box/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    members |= {
        "box": None,
        f"{target}/class": "0x030200",
        f"{target}/vendor": "0x10de",
        f"{target}/numa_node": "1",
    }
    members["box/sys/bus/pci/devices/0000:01:00.0"] = (
        "->../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    )
    members["box/sys/bus/pci/devices/0000:02:00.0"] = "->../../../devices/pci0000:00/missing"
    members["box/etc/hostname"] = "secret"
    machine = describe(load_snapshot(archive(tmp_path / "box.tgz", members)))

    assert machine.cpu_count == 8
    assert [(device.address, device.numa_node) for device in machine.pci_devices] == [
        ("0000:01:00.0", 1)
    ]


def test_names_that_lead_elsewhere_lead_nowhere(tmp_path):
    """Nothing is unpacked, so nothing can be written where it should not be."""
    members = {f"../../{path}": text for path, text in server().items()} | {"/etc/passwd": "x"}

    with pytest.raises(
        InputError,
        match=r"no files of sys and proc in the snapshot .*tar czf FILE -C / sys/devices/system",
    ):
        load_snapshot(archive(tmp_path / "evil.tgz", members))


def test_an_uncompressed_archive_is_one_too(tmp_path):
    path = archive(tmp_path / "machine.tar", server(), "w")

    assert is_archive(path.read_bytes()[:512])
    assert describe(load_snapshot(path)).cpu_count == 8


@pytest.mark.parametrize("content", [b"", b"rubbish", b"\x1f\x8brubbish", b"\xfd7zXZ\x00rubbish"])
def test_a_file_that_is_no_archive_is_a_clear_error(tmp_path, content):
    (tmp_path / "x.tar.gz").write_bytes(content)

    with pytest.raises(InputError, match=r"(expected|cannot read) a snapshot.* at .*x\.tar\.gz"):
        load_snapshot(tmp_path / "x.tar.gz")


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.xz"])
@pytest.mark.parametrize("kept", [30, 200, -30])
def test_a_truncated_archive_is_a_clear_error(root, tmp_path, suffix, kept):
    path = tmp_path / f"machine{suffix}"
    take_snapshot(root, path)
    path.write_bytes(path.read_bytes()[:kept])

    with pytest.raises(InputError, match=r"expected a snapshot"):
        load_snapshot(path)


def test_an_archive_that_is_too_large_is_a_clear_error(tmp_path, monkeypatch):
    """What it unpacks to counts, not what it is packed to."""
    path = archive(tmp_path / "x.tgz", server())
    monkeypatch.setattr(archive_module, "_MAX_UNPACKED", 1000)

    with pytest.raises(InputError, match="a snapshot may have up to 1000 bytes, and this has more"):
        load_snapshot(path)


@pytest.mark.parametrize("format_", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_long_names_are_read_in_every_format_of_tar(tmp_path, format_):
    """A machine's own folder can have any name; deep PCI devices have long paths."""
    folder = "sys/devices/pci0000:00/" + "0000:00:01.0/" * 3 + "0000:01:00.0"
    box = "b" * 60
    members = {f"{box}/{path}": text for path, text in server().items()}
    members |= {
        f"{box}/{folder}/class": "0x030200",
        f"{box}/sys/bus/pci/devices/0000:01:00.0": f"->../../../../{folder}",
    }
    path = archive(tmp_path / "x.tar", members, "w", format_)

    assert [device.class_ for device in describe(load_snapshot(path)).pci_devices] == ["0302"]


def test_a_header_that_is_damaged_is_a_clear_error(tmp_path):
    """Even where nothing is compressed, and so nothing has a checksum but the header."""
    path = archive(tmp_path / "x.tar", server(), "w")
    path.write_bytes(path.read_bytes()[:124] + b"x" * 12 + path.read_bytes()[136:])

    with pytest.raises(InputError, match="damaged or no archive"):
        load_snapshot(path)


def test_a_missing_file_is_a_clear_error(tmp_path):
    with pytest.raises(InputError, match=r"cannot read a snapshot at .*: no such file"):
        load_snapshot(tmp_path / "x.tgz")


def test_other_suffixes_are_refused_before_anything_is_read(tmp_path):
    with pytest.raises(InputError, match=r"\.tar\.xz, \.tar\.gz or \.tgz, got 'machine\.zip'"):
        take_snapshot(tmp_path / "missing", tmp_path / "machine.zip")


def test_a_root_without_kernel_files_is_refused(tmp_path):
    with pytest.raises(InputError, match="no kernel files to pack"):
        take_snapshot(tmp_path, tmp_path / "machine.tgz")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(root, tmp_path):
    """And what was begun there is taken away."""
    with pytest.raises(InputError, match="cannot write a snapshot"):
        take_snapshot(root, tmp_path / "missing" / "machine.tgz")
    (tmp_path / "taken.tgz").mkdir()
    with pytest.raises(InputError, match="cannot write a snapshot"):
        take_snapshot(root, tmp_path / "taken.tgz")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["root", "taken.tgz"]


def test_equal_machines_make_equal_archives(root, tmp_path):
    for name in ("a.tar.xz", "b.tar.xz"):
        take_snapshot(root, tmp_path / name)

    assert (tmp_path / "a.tar.xz").read_bytes() == (tmp_path / "b.tar.xz").read_bytes()


def tar_with(size=None, pax=None, name=f"box/{CPU}/online"):
    """Return an archive of one file, with a size field or pax headers of any content."""
    member = tarfile.TarInfo(name)
    member.size = 4
    if pax:
        member.pax_headers = pax
        header = bytearray(member.tobuf(tarfile.PAX_FORMAT))
    else:
        header = bytearray(member.tobuf(tarfile.USTAR_FORMAT))
    if size is not None:
        header[124:136] = size
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + b"0-3\n".ljust(512, b"\0") + bytes(1024)


@pytest.mark.parametrize(
    "archive_",
    [
        {"size": b"-0000001000\0"},
        {"size": b"\xff" * 10 + b"\xfc\x00"},
        {"size": b"\x80" + b"\xff" * 11},
        {"pax": {"size": "-9999999999"}},
        {"pax": {"GNU.sparse.size": "abc"}},
        {"pax": {"GNU.sparse.map": "a,b"}},
        {"pax": {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}},
    ],
)
def test_sizes_that_cannot_be_are_damage(tmp_path, archive_):
    """A negative one would lead back to where one was before, again and again."""
    path = tmp_path / "x.tar"
    path.write_bytes(tar_with(**archive_))

    with pytest.raises(InputError, match=r"damaged or no archive|no kernel file|files of sys"):
        load_snapshot(path)


@pytest.mark.parametrize(
    ("name", "part", "count"),
    [("proc/cpuinfo", b"\n", 17 << 20), (f"{CPU}/online", b"0,", 1 << 20)],
)
def test_a_file_that_is_larger_than_any_of_a_kernel_is_damage(tmp_path, name, part, count):
    """However small it is packed."""
    path, text = tmp_path / "x.tar.xz", part * count
    member = tarfile.TarInfo(f"box/{name}")
    member.size = len(text)
    with tarfile.open(path, "w:xz", preset=0) as packed:
        packed.addfile(member, io.BytesIO(text))

    with pytest.raises(InputError, match="damaged"):
        load_snapshot(path)


class RecordingTree(MemoryTree):
    """Remembers what was read and was there."""

    def __init__(self, files):
        super().__init__("test", files)
        self.seen = set()

    def read(self, path, *, whole=True):
        text = super().read(path, whole=whole)
        if text is not None:
            self.seen.add(path)

        return text


def everything():
    """Return a tree that makes discovery read files of every kind."""
    files = server() | pci("0000:01:00.0", numa_node=-1, local_cpus="3", local_cpulist="0-1")
    files |= {f"{CPU}/cpu{cpu}/topology/core_id": f"{cpu}\n" for cpu in range(8)}
    files |= {path.replace("/level", "/id"): "0\n" for path in files if path.endswith("/level")}
    files[f"{CPU}/online"] = ""
    files[f"{CPU}/cpu1/online"] = "1\n"
    files["proc/cpuinfo"] = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 21\n"
    files[f"{NODE}/node1/cpumap"] = ""
    files[f"{NODE}/node1/cpulist"] = "2-3"
    return files


def test_discovery_reads_nothing_that_is_not_on_the_list():
    """So what a snapshot has is what discovery needs."""
    tree = RecordingTree(everything())
    describe(tree)

    assert [path for path in tree.seen if not is_kernel_file(path)] == []
    assert "proc/cpuinfo" in tree.seen


def test_what_is_found_describes_the_same_machine():
    tree = MemoryTree("test", everything())
    kernel_files = dict(find_kernel_files(tree))

    assert describe(MemoryTree("again", kernel_files)) == describe(tree)
    assert all(map(is_kernel_file, kernel_files))


@pytest.mark.parametrize(
    "path",
    [
        "proc/sys/kernel/hostname",
        "sys/class/dmi/id/product_serial",
        "sys/class/net/eth0/address",
        "sys/bus/pci/devices/0000:01:00.0/config",
        "sys/bus/pci/devices/0000:01:00.0/vpd",
        "sys/devices/system/node/node0/x/meminfo",
        "sys/devices/system/cpu/online/x",
        "etc/passwd",
    ],
)
def test_other_files_are_not_on_the_list(path):
    assert not is_kernel_file(path)
    assert list(find_kernel_files(MemoryTree("test", {path: "secret"}))) == []


def test_serial_numbers_in_cpuinfo_are_not_kept():
    """ARM and POWER have some; only what tells AMD's modules is kept."""
    text = (
        "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 21\nSerial\t\t: "
        "00c0ffee\n\nHardware : X\n"
    )

    assert (
        kept_text("proc/cpuinfo", text)
        == "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 21\n"
    )
    assert kept_text("proc/meminfo", text) == text
