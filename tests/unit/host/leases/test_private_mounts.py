"""A command sees mounts and device files where plugins say.

Nobody else sees a trace of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from alignup.cli import run as run_module
from alignup.errors import InputError
from alignup.host.device_plugins.answer import DeviceAnswer, DeviceNode, Mount
from alignup.host.leases import private_mounts
from alignup.host.leases.agent_messages import Grant
from alignup.host.leases.private_mounts import closed_devices, may_mount, needed_mounts
from alignup.host.leases.request import make_request
from fakes.device_plugins import FakePlugin, report, short_folder, wire
from inputs import leasing
from running.agents import LONG, client, running_agent
from running.pid_namespaces import UNSHARE, needs_namespaces

PRIVATE = """
import ctypes, os, sys, msgspec
from alignup.host.leases import private_mounts as module
from alignup.host.device_plugins.answer import Mount
from alignup.host.leases.private_mounts import mount_privately
if sys.argv[3:]:  # the host of this command has other file systems there
    module._call("unshare", "/", ctypes.c_int(module._CLONE_NEWNS))
    module._mount("none", "/", "", module._MS_REC | module._MS_PRIVATE)
for folder in sys.argv[3:]:
    module._mount("none", folder, "tmpfs", 0)
    module._mount("none", folder, "", 1 << 20)  # shared, as under systemd
os.dup2(os.open("/proc/self/ns/mnt", os.O_RDONLY), 9)  # the host's
module._MOUNT_SETATTR = int(os.environ.get("MOUNT_SETATTR", module._MOUNT_SETATTR))
if "REMOVE" in os.environ:
    os.rmdir(os.getcwd())
mount_privately(msgspec.json.decode(sys.argv[1], type=tuple[Mount, ...]))
os.execvp("sh", ["sh", "-c", sys.argv[2]])
"""
needs_root = pytest.mark.skipif(not may_mount(), reason="only who has CAP_SYS_ADMIN may mount")

UNKNOWN_CALL = "9999"


def privately(script, *mounts, cwd=None, mounted=(), **variables):
    """Return what a shell prints that has some mounts.

    The host has file systems mounted at some folders.
    """
    command = [
        sys.executable,
        "-c",
        PRIVATE,
        msgspec.json.encode(mounts).decode(),
        script,
        *map(str, mounted),
    ]

    done = subprocess.run(  # noqa: S603  # ours
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=LONG,
        env={**os.environ, **variables},
    )
    if done.returncode:
        return f"{done.returncode}: {done.stderr}"
    return done.stdout


@pytest.fixture
def host(tmp_path):
    """A folder as of a host."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "lib.so").write_text("library")
    (tmp_path / "file").write_text("the host's")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "old").write_text("old")
    return tmp_path


# --- what is needed


def test_what_is_seen_anyway_needs_no_mount(host):
    at = str(host / "file")
    answer = DeviceAnswer(
        mounts=(Mount(at, at), Mount(f"{at}/", at)),
        devices=(DeviceNode("/dev/null", "/dev/null", "rw"),),
    )
    assert needed_mounts(answer) == ()


def test_other_paths_and_what_is_read_only_are_needed(host):
    """Those above others first."""
    at = str(host / "file")
    answer = DeviceAnswer(
        mounts=(Mount("/a/b/c/", at), Mount(at, at, read_only=True), Mount("/a", "/")),
        devices=(DeviceNode("/dev/x0", "/dev/null", "rw"),),
    )
    assert [mount.container_path for mount in needed_mounts(answer)] == [
        "/a",
        "/dev/x0",
        "/a/b/c",
        at,
    ]


@pytest.mark.parametrize(
    "answer",
    [
        DeviceAnswer(mounts=(Mount("/x", "/no/such"),)),
        DeviceAnswer(devices=(DeviceNode("/no/such", "/no/such"),)),
    ],
)
def test_what_is_not_there_is_said(answer):
    with pytest.raises(InputError, match=r"a device plugin asks for .*, which does not exist"):
        needed_mounts(answer)


def test_who_may_mount_is_read_off_the_process(tmp_path):
    status = tmp_path / "status"
    for capabilities, expected in (("000001ffffffffff", True), ("0000000000000000", False)):
        status.write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
        assert may_mount(status) == expected
    status.write_text("Name:\tx\n")
    assert not may_mount(status)


def test_device_files_that_a_user_may_not_open_are_known(monkeypatch):
    accesses = []
    monkeypatch.setattr(os, "access", lambda path, mode: bool(accesses.append((path, mode))))
    closed = DeviceNode("/dev/x", "/dev/null", "rwm")
    assert closed_devices(DeviceAnswer(devices=(closed,))) == [closed]
    assert accesses == [("/dev/null", os.R_OK | os.W_OK)]


# --- the kernel's part


@needs_root
def test_a_file_and_a_folder_are_seen_by_the_command_only(host):
    mounts = (
        Mount(str(host / "file"), str(host / "library" / "lib.so")),
        Mount(str(host / "there"), str(host / "library")),
    )
    assert (
        privately("cat file there/lib.so; echo new > there/new", *mounts, cwd=host)
        == "librarylibrary"
    )
    assert (host / "file").read_text() == "the host's"
    assert (host / "there" / "old").exists()
    assert (host / "library" / "new").exists()
    assert str(host) not in Path("/proc/self/mountinfo").read_text()


@needs_root
def test_what_is_read_only_cannot_be_written(host):
    mount = Mount(str(host / "there"), str(host / "library"), read_only=True)
    script = (
        "cat there/lib.so; (touch there/new || echo no; touch there/lib.so || echo no) 2>/dev/null"
    )
    assert privately(script, mount, cwd=host) == "libraryno\nno\n"
    own = Mount(str(host / "file"), str(host / "file"), read_only=True)
    assert privately("echo x >> file 2>/dev/null || cat file", own, cwd=host) == "the host's"
    assert (host / "library" / "lib.so").read_text() == "library"


@needs_root
def test_what_is_mounted_below_what_is_read_only_cannot_be_written_either(host):
    """Where it is mounted on the host it can.

    A folder that is covered leaves those below it as they are.
    """
    cache = host / "library" / "cache"
    cache.mkdir()
    mount = Mount(str(host / "there"), str(host / "library"), read_only=True)
    script = "(touch there/cache/x || echo no) 2>/dev/null; touch library/cache/y; ls there/cache"
    assert privately(script, mount, cwd=host, mounted=[cache]) == "no\ny\n"
    covering = Mount(str(host / "a"), str(host / "file"))
    assert (
        privately("touch library/cache/y && echo written", covering, cwd=host, mounted=[cache])
        == "written\n"
    )


@needs_root
@pytest.mark.parametrize(("is_read_only", "seen"), [(False, "there\n"), (True, "")])
def test_what_the_host_mounts_later_does_not_appear_below_what_is_read_only(
    host, is_read_only, seen
):
    """It could be written there."""
    library = host / "library"
    later = (
        f"nsenter --mount=/proc/self/fd/9 sh -c 'mkdir {library}/late; mount -t tmpfs none "
        f"{library}/late'"
    )
    script = f"{later}; grep -q ' {host}/there/late ' /proc/self/mountinfo && echo there; true"
    mount = Mount(str(host / "there"), str(library), read_only=is_read_only)
    assert privately(script, mount, cwd=host, mounted=[library]) == seen


@needs_root
def test_kernels_without_the_call_refuse_what_is_read_only(host):
    """It would stay writable."""
    mount = Mount(str(host / "there"), str(host / "library"), read_only=True)
    refused = privately("echo ran", mount, cwd=host, MOUNT_SETATTR=UNKNOWN_CALL)
    assert (
        f"a read-only mount needs Linux 5.12 or later, and this kernel is older: {host}" in refused
    )
    assert "ran" not in refused


@needs_root
def test_a_working_directory_that_has_been_removed_is_nobodys_trouble(host):
    (host / "gone").mkdir()
    mount = Mount(str(host / "file"), str(host / "library" / "lib.so"))
    assert privately(f"cat {host}/file", mount, cwd=host / "gone", REMOVE="1") == "library"


@needs_root
def test_a_path_that_is_not_there_is_shown_without_being_made(host):
    """The folder above shows what it did, and takes nothing new that would be lost."""
    (host / "link").symlink_to("there/old")
    mounts = (
        Mount(str(host / "a" / "b" / "libs"), str(host / "library")),
        Mount(str(host / "a" / "b" / "file"), str(host / "file")),
    )
    script = (
        "cat a/b/libs/lib.so a/b/file link; echo more > there/more; ls; touch new "
        "2>/dev/null || echo no"
    )
    expected = "librarythe host'sold" + "a\nfile\nlibrary\nlink\nthere\nno\n"
    assert privately(script, *mounts, cwd=host) == expected
    assert sorted(path.name for path in host.iterdir()) == ["file", "library", "link", "there"]
    assert (host / "there" / "more").exists()


@needs_root
def test_a_device_file_is_seen_at_another_path():
    """In /dev, where nothing may be made for others to stumble on.

    Its other files and folders stay.
    """
    mount = Mount("/dev/alignup-test-0", "/dev/zero")
    script = (
        "head -c 2 /dev/alignup-test-0 | od -An -tx1; test -c /dev/null && echo null; ls "
        "/dev/pts/ptmx;"
        "echo x > /dev/alignup-test-0 && echo written"
    )
    assert privately(script, mount) == " 00 00\nnull\n/dev/pts/ptmx\nwritten\n"
    assert not Path("/dev/alignup-test-0").exists()


@needs_root
def test_one_device_is_seen_in_the_place_of_another():
    """As where a plugin numbers those of a container from 0."""
    mounts = (Mount("/dev/null", "/dev/zero"), Mount("/dev/zero", "/dev/null"))
    assert privately("head -c 1 /dev/null | od -An -tx1", mounts[0]) == " 00\n"
    # each is what was there on the host, whatever was mounted before
    script = "head -c 1 /dev/null | od -An -tx1; head -c 1 /dev/zero | od -An -tx1"
    assert privately(script, *mounts) == " 00\n"


@needs_root
def test_what_cannot_be_mounted_is_an_error_that_names_it(host):
    output = privately("true", Mount(str(host / "file"), str(host / "library")))
    assert "NotADirectoryError" in output
    assert str(host / "file") in output
    assert "cannot create /alignup-test" in privately(
        "true", Mount("/alignup-test", str(host / "file"))
    )


# --- with an agent


@pytest.fixture
def folder(monkeypatch):
    monkeypatch.delenv("ALIGNUP_AGENT", raising=False)
    monkeypatch.delenv("ALIGNUP_STATE", raising=False)
    with short_folder() as made:
        (made / "p").mkdir()
        yield made


def answer_of(folder):
    """Return an answer with everything in it."""
    (folder / "library").write_text("library")
    return wire.AllocateResponse(
        container_responses=[
            wire.ContainerAllocateResponse(
                mounts=[
                    wire.Mount(container_path=f"{folder}/seen/lib", host_path=f"{folder}/library")
                ],
                devices=[
                    wire.DeviceSpec(
                        container_path="/dev/alignup0", host_path="/dev/null", permissions="rw"
                    )
                ],
                cdi_devices=[
                    wire.CDIDevice(name="v.com/nic=0"),
                    wire.CDIDevice(name="v.com/nic=1"),
                ],
            )
        ]
    )


def run(folder, *words, inside=()):
    """Run a command with a NIC."""
    alignup = [
        *inside,
        sys.executable,
        "-m",
        "alignup",
        "run",
        "--device",
        "example.com/nic=1",
        "--no-bind",
        *words,
    ]

    return subprocess.run(  # noqa: S603  # ours
        alignup,
        env={**os.environ, "ALIGNUP_AGENT": str(folder / "agent.sock")},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG,
    )


@pytest.fixture
def agent(folder):
    plugin = FakePlugin(folder / "p")
    plugin.answer = lambda _: answer_of(folder)
    with running_agent(folder, device_plugins=folder / "p"):
        plugin.serve().reports.put(report("nic0"))
        plugin.register()
        end = time.monotonic() + LONG
        while not has_nic(folder):
            assert time.monotonic() < end
            time.sleep(0.01)
        yield
        assert client(folder).overview().leases == ()
        plugin.die()


def has_nic(folder):
    try:
        client(folder).parts(1, 0, {"example.com/nic": 1})
    except InputError:
        return False
    return True


@needs_root
@pytest.mark.usefixtures("agent")
def test_the_answer_of_a_plugin_reaches_the_command(folder):
    script = f"cat {folder}/seen/lib; test -c /dev/alignup0 && echo; echo $ALIGNUP_CDI_DEVICES"
    done = run(folder, "--", "sh", "-c", script)
    assert (done.stdout, done.stderr, done.returncode) == (
        "library\nv.com/nic=0,v.com/nic=1\n",
        "",
        0,
    )
    assert not (folder / "seen").exists()


@pytest.mark.usefixtures("agent")
def test_a_launcher_of_containers_is_told_only(folder):
    done = run(
        folder,
        "--no-mounts",
        "--",
        "sh",
        "-c",
        f"test -e {folder}/seen || echo $ALIGNUP_DEVICE_ANSWER",
    )
    assert f'"containerPath":"{folder}/seen/lib"' in done.stdout
    assert (done.stderr, done.returncode) == ("", 0)


@needs_namespaces
@pytest.mark.usefixtures("agent")
def test_in_a_container_paths_of_the_host_are_not_mounted(folder):
    """They are other files there."""
    done = run(folder, "--", "echo", "started", inside=UNSHARE)
    assert (done.stdout, done.returncode) == ("", 125)
    assert "this container has other files: use --no-mounts" in done.stderr
    assert client(folder).overview().leases == ()
    done = run(folder, "--no-mounts", "--", "sh", "-c", "echo $ALIGNUP_CDI_DEVICES", inside=UNSHARE)
    assert (done.stdout, done.stderr, done.returncode) == ("v.com/nic=0,v.com/nic=1\n", "", 0)


@pytest.mark.usefixtures("agent")
def test_without_the_right_to_mount_a_command_is_refused(folder, monkeypatch):
    """It would run without its devices, or with those of somebody else."""
    monkeypatch.setattr(private_mounts, "may_mount", lambda: False)
    with pytest.raises(
        InputError,
        match=r"mounting /dev/null at /dev/alignup0, .* needs CAP_SYS_ADMIN; --no-mounts",
    ):
        run_module.run(
            client(folder), make_request(devices={"example.com/nic": 1}), ("true",), binds=False
        )


def test_nothing_is_mounted_for_the_agent_of_another_user():
    """What it mounts may be another program."""
    answer = DeviceAnswer(mounts=(Mount("/usr/bin/id", "/bin/sh"),))
    grant = Grant(
        leasing.record(answer=answer),
        leasing.site().identity,
        "/s.json",
        (),
        True,
        is_trusted=False,
    )
    with pytest.raises(
        InputError, match="the agent of another user asks for a mount of /bin/sh: use --no-mounts"
    ):
        run_module._mounts(grant)
