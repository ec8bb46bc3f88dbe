"""Boots a virtual machine with chosen NUMA nodes from a disk of `build-image`, and commands it.

Commands are given to QEMU's guest agent in the machine; they run as root, where systemd starts it
in its service.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Done", "Layout", "VirtualMachine"]

PATIENCE = 600
"""Seconds for a boot, and for a command: without KVM, on a busy machine, both take long."""
PAUSE = 0.2
OF_A_BUSY_MACHINE = "no_timer_check systemd.mask=serial-getty@ttyS0.service"
"""Where an interrupt is late the kernel panics else.

And systemd waits for the console, where nobody logs in.
"""
WITHOUT_SERVICES = (
    'init=/bin/sh -- -c "modprobe virtio_console; PATH=/usr/local/bin:$PATH exec '
    'qemu-ga -p /dev/vport*"'
)
"""The guest agent alone, in place of systemd."""
FAR = 21


@dataclass(frozen=True, slots=True)
class Layout:
    """NUMA nodes and what is on them."""

    cpus: tuple[int, ...]
    """How many CPUs each node has; 0: it has memory only."""
    memory: tuple[int, ...]
    """MiB of each node; 0: it has none."""
    device_node: int | None = None
    """The node that a network card is on."""
    sockets: int = 0
    """How many sockets there are; 0: each node has its own."""
    dies: int = 1
    """How many dies a socket has, each with an L3 cache."""
    threads: int = 2
    """How many CPUs a core has."""
    extra: tuple[str, ...] = ()
    """Further options of QEMU."""

    def options(self) -> Iterator[str]:
        """Return the options of QEMU."""
        nodes = len(self.cpus)
        sockets = self.sockets or nodes
        cores = sum(self.cpus) // (sockets * self.dies * self.threads)
        smp = f"sockets={sockets},dies={self.dies},cores={cores},threads={self.threads}"
        yield from ("-smp", f"{sum(self.cpus)},{smp}")
        yield from ("-m", f"{sum(self.memory)}M")
        first = 0
        for node, (cpus, memory) in enumerate(zip(self.cpus, self.memory, strict=True)):
            options = f"node,nodeid={node}"
            if cpus:
                options += f",cpus={first}-{first + cpus - 1}"
            if memory:
                options += f",memdev=memory{node}"
                yield from ("-object", f"memory-backend-ram,id=memory{node},size={memory}M")

            yield from ("-numa", options)
            first += cpus

        for node in range(nodes):
            for lower_node in range(node):
                yield from (
                    "-numa",
                    f"dist,src={node},dst={lower_node},val={FAR + 10 * (node - lower_node - 1)}",
                )

        if self.device_node is not None:
            yield from (
                "-device",
                f"pxb-pcie,id=pxb1,bus=pcie.0,bus_nr=64,numa_node={self.device_node}",
            )
            yield from ("-device", "pcie-root-port,id=root1,bus=pxb1,chassis=1")
            yield from ("-device", "virtio-net-pci,bus=root1,romfile=")

        yield from self.extra


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended in the machine."""

    status: int
    out: str
    err: str


class VirtualMachine:
    """A running machine; a context that powers it off as if the plug were pulled.

    Args:
        image: the folder of `build-image`.
        disk: what it is to boot from and write on; see `new_disk`.
        layout: its NUMA nodes.
        services: whether systemd runs in it; without, it is up sooner.
    """

    def __init__(self, image: Path, disk: Path, layout: Layout, *, services: bool = True) -> None:
        self.console = disk.with_suffix(".console")
        address = disk.with_suffix(".agent")
        accelerator = os.environ.get("ALIGNUP_VM_ACCEL", "tcg")
        command = [
            "nice",
            "qemu-system-x86_64",
            "-M",
            "q35",
            "-accel",
            accelerator,
            "-cpu",
            "max,vendor=GenuineIntel",
        ]
        command += [*layout.options(), "-nodefaults", "-display", "none"]
        command += ["-kernel", image / "kernel", "-initrd", image / "initrd"]

        init = ""
        if not services:
            init = WITHOUT_SERVICES
        command += ["-append", f"root=/dev/vda rw console=ttyS0 quiet {OF_A_BUSY_MACHINE} {init}"]
        command += [
            "-drive",
            f"file={disk},format=raw,if=none,id=disk",
            "-serial",
            f"file:{self.console}",
        ]
        command += ["-device", "virtio-blk-pci,drive=disk,bus=pcie.0"]
        command += ["-chardev", f"socket,id=agent,path={address},server=on,wait=off"]
        command += ["-device", "virtio-serial-pci,bus=pcie.0"]
        command += ["-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0"]

        self._process = subprocess.Popen(list(map(str, command)))  # noqa: S603  # ours
        self._address = str(address)
        self._connection = socket.socket(socket.AF_UNIX)
        self._buffer = b""
        try:
            self.wait_until_up()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Pull the plug."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def run(self, command: str, *, check: bool = True) -> Done:
        """Run a command of the shell as root, and return how it ended: well, if that is checked."""
        request = {"path": "/bin/sh", "arg": ["-c", command], "capture-output": True}
        pid = self._ask("guest-exec", **request)["pid"]
        end = time.monotonic() + PATIENCE
        while not (status := self._ask("guest-exec-status", pid=pid))["exited"]:
            if time.monotonic() > end:
                raise TimeoutError(command)
            time.sleep(PAUSE)

        out, err = (
            base64.b64decode(status.get(name, "")).decode() for name in ("out-data", "err-data")
        )
        done = Done(status.get("exitcode", 128 + status.get("signal", 0)), out, err)
        assert done.status == 0 or not check, (command, done)
        return done

    def reboot(self) -> None:
        """Shut the machine down in order, and wait until it is up again."""
        before = self.run("cat /proc/sys/kernel/random/boot_id").out
        self.run("systemctl --no-block reboot")
        while True:
            time.sleep(5)
            self.wait_until_up()
            if self.run("cat /proc/sys/kernel/random/boot_id").out != before:
                return

    def wait_until_up(self) -> None:
        """Wait until all services of the machine are started."""
        end = time.monotonic() + PATIENCE
        while True:
            assert self._process.poll() is None, "QEMU has ended"
            try:
                self._connect()
                self._ask("guest-sync", id=os.getpid())
                self._connection.settimeout(PATIENCE)
                break
            except OSError:
                if time.monotonic() > end:
                    raise TimeoutError(self.console.read_text(errors="replace")[-2000:]) from None
                time.sleep(1)

        self.run("systemctl is-system-running --wait", check=False)

    def _connect(self) -> None:
        self._connection.close()
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.settimeout(20)
        self._connection.connect(self._address)
        self._buffer = b""

    def _ask(self, name: str, **arguments: object) -> dict:
        """Return what the guest agent answers.

        An answer of an earlier connection is passed over.
        """
        self._connection.sendall(
            json.dumps({"execute": name, "arguments": arguments}).encode() + b"\n"
        )
        while True:
            while b"\n" not in self._buffer:
                received = self._connection.recv(1 << 16)
                if not received:
                    raise ConnectionResetError
                self._buffer += received

            line, _, self._buffer = self._buffer.partition(b"\n")
            answer = json.loads(line.lstrip(b"\xff"))
            if "error" in answer:
                raise OSError(answer["error"])
            if name != "guest-sync" or answer["return"] == arguments["id"]:
                return answer["return"]


def new_disk(image: Path, folder: Path) -> Path:
    """Return a copy of the image's disk, to be written on."""
    disk = folder / "disk"
    command = [shutil.which("cp"), "--sparse=always", "--reflink=auto", image / "disk.ext4", disk]
    subprocess.run(command, check=True)  # noqa: S603  # ours
    return disk
