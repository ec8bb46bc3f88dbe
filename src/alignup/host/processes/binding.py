"""Binds threads to CPUs and to the memory of NUMA nodes, and back again, by system calls.

Children and programs that are executed inherit both. Which CPUs and memory these are is decided by
leases and parts.
"""

from __future__ import annotations

import errno
import os
import sys
from _thread import get_native_id

from alignup.errors import AllocationError, system_reason
from alignup.machine.cpuset import CPUSet
from alignup.records import Record
from alignup.text.counting import named

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

_MPOL_PREFERRED: Final = 1
# Since Linux 5.15.
_MPOL_PREFERRED_MANY: Final = 5
# Of set_mempolicy(2).
_MODES: Final = {
    "bind": 2,
    "interleave": 3,
    "local": 4,
    "preferred": _MPOL_PREFERRED_MANY,
    "weighted-interleave": 6,
}
# (get_mempolicy, set_mempolicy) for 64-bit programs
_GENERIC: Final = (236, 237)
_NUMBERS: Final = {
    "x86_64": (239, 238),
    "aarch64": _GENERIC,
    "riscv64": _GENERIC,
    "loongarch64": _GENERIC,
    "ppc64": (260, 261),
    "ppc64le": (260, 261),
    "s390x": (269, 270),
}
_WORD: Final = 64
# Enough for the 1024 NUMA nodes that a kernel can be built for.
_WORDS: Final = 16


class Binding(Record):
    """The CPUs and memory policy of a thread, to be restored later.

    Attributes:
        thread: the kernel's id.
        memory: the memory policy's mode, with its flags, and bit set of nodes; None: it is not to
            be touched.
    """

    thread: int
    cpus: frozenset[int]
    memory: tuple[int, int] | None


def bind(cpus: CPUSet, numa_nodes: Iterable[int], *, strict: bool) -> tuple[Binding, str]:
    """Bind the calling thread to CPUs and to the memory of NUMA nodes.

    Args:
        cpus: none: leave the thread where it is.
        numa_nodes: kernel ids; none: leave the memory policy as it is.
        strict: have memory from these nodes or not at all, instead of from these nodes first.

    Returns:
        How the thread was bound before, and why memory could not be bound; an empty text if it
        could.

    Raises:
        AllocationError: the kernel does not let the thread use these CPUs; nothing has changed.
    """
    nodes = tuple(numa_nodes)
    thread = get_native_id()
    earlier_cpus = frozenset(os.sched_getaffinity(0))
    bind_cpus(cpus)
    if not nodes:
        return Binding(thread, earlier_cpus, None), ""

    earlier = _memory_policy()
    trouble = set_memory(nodes, "bind" if strict else "preferred")
    return Binding(thread, earlier_cpus, None if trouble else earlier), trouble


def restore(binding: Binding) -> None:
    """Bind a thread as it was bound before; its memory policy only if it is the calling thread.

    Raises:
        AllocationError: the kernel no longer lets the thread use these CPUs.
    """
    try:
        os.sched_setaffinity(binding.thread, binding.cpus)
    except ProcessLookupError:
        return
    except OSError as error:
        raise _refused(CPUSet(binding.cpus), error) from error

    if binding.memory is not None and binding.thread == get_native_id():
        _set_memory_policy(*binding.memory)


def bind_cpus(cpus: CPUSet) -> None:
    """Bind the calling thread to CPUs; to where it is, if there are none.

    Raises:
        AllocationError: the kernel does not let it.
    """
    if not cpus:
        return

    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        raise _refused(cpus, error) from error


def bind_threads(cpus: CPUSet) -> None:
    """Bind all threads of this process to CPUs, those too that are started meanwhile.

    Raises:
        AllocationError: the kernel does not let them.
    """
    bind_cpus(cpus)
    bound: set[str] = set()
    # pathlib is slow to import
    while unbound := set(os.listdir("/proc/self/task")) - bound:  # noqa: PTH208
        for thread in unbound:
            try:
                os.sched_setaffinity(int(thread), cpus)
            except ProcessLookupError:
                pass  # it has ended
            except OSError as error:
                raise _refused(cpus, error) from error

        bound |= unbound


def set_memory(numa_nodes: Iterable[int], mode: str) -> str:
    """Set where the memory of the calling thread comes from.

    Return why that failed, an empty text if it did not.

    Args:
        numa_nodes: kernel ids, the one to prefer first.
        mode: `preferred`, for which kernels before 5.15 know one node only, the first one; `bind`,
            `interleave`, `weighted-interleave` (since Linux 6.9), or `local`, for which nodes do
            not matter.
    """
    nodes = list(numa_nodes)
    mask = 0 if mode == "local" else sum(1 << node for node in nodes)
    number = _MPOL_PREFERRED if mode == "preferred" and len(nodes) == 1 else _MODES[mode]
    error_number = _set_memory_policy(number, mask)
    if error_number == errno.EINVAL and number == _MPOL_PREFERRED_MANY:
        error_number = _set_memory_policy(_MPOL_PREFERRED, 1 << nodes[0])

    if not error_number:
        return ""

    return (
        f"memory is not bound to {named('NUMA node', sorted(nodes), ',')}: "
        f"{os.strerror(error_number).lower()}"
    )


def _refused(cpus: CPUSet, error: OSError) -> AllocationError:
    return AllocationError(f"cannot bind this process to CPUs {cpus}: {system_reason(error)}")


def _set_memory_policy(mode: int, mask: int) -> int:
    """Set the policy of the calling thread; return the error number, 0 if there was none."""
    import ctypes  # noqa: PLC0415  # startup counts

    mask_words = None
    if mask:
        values = [mask >> _WORD * i & (1 << _WORD) - 1 for i in range(_WORDS)]
        mask_words = (ctypes.c_uint64 * _WORDS)(*values)

    # the kernel takes one off the number of bits
    size = ctypes.c_ulong(_WORDS * _WORD + 1)
    return _call(1, ctypes.c_long(mode), mask_words, size)


def _memory_policy() -> tuple[int, int] | None:
    """Return mode and nodes of the calling thread; None if the kernel does not tell."""
    import ctypes  # noqa: PLC0415  # startup counts

    mode = ctypes.c_int(0)
    mask_words = (ctypes.c_uint64 * _WORDS)()
    size = ctypes.c_ulong(_WORDS * _WORD)
    if _call(0, ctypes.byref(mode), mask_words, size, None, ctypes.c_ulong(0)):
        return None

    return mode.value, sum(word << _WORD * i for i, word in enumerate(mask_words))


def _call(which: int, *arguments: object) -> int:
    """Make one of the two system calls; return the error number, 0 if there was none."""
    numbers = _NUMBERS.get(os.uname().machine)
    if numbers is None or sys.maxsize <= 1 << 32:
        return errno.ENOSYS

    import ctypes  # noqa: PLC0415  # startup counts

    library = ctypes.CDLL(None, use_errno=True)
    result = library.syscall(ctypes.c_long(numbers[which]), *arguments)
    return 0 if result == 0 else ctypes.get_errno()
