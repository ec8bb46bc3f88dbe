"""Holds sets of CPU numbers, `CPUSet`: their arithmetic, and their text form, as in `0-3,8`.

The CPUs of a machine are read, and given to containers, elsewhere. Inside the providers a set is an
int whose bit i is the CPU that the kernel numbers i; a `CPUSet` is the public form of that int.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from alignup.errors import InputError
from alignup.machine.bits import bit_numbers

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from typing import Final

# CPU numbers are below this: eight times what the kernel can be built for, so that a typing error
# in a list costs an error and not gigabytes.
CPU_LIMIT: Final = 65536

# CPUs that a discovered machine may have: as many as the kernel can be built for.
CPU_COUNT_LIMIT: Final = 8192

_SHOWN: Final = 40
# Characters of a list: one of every other CPU has fewer.
_LONGEST_LIST: Final = 4 * CPU_LIMIT


class CPUSet(AbstractSet[int]):
    """An immutable, hashable set of CPU numbers, ascending when iterated.

    It equals any set of the same ints.

    Examples:
        >>> cpus = CPUSet([0, 1, 2, 8])
        >>> str(cpus), int(cpus), 8 in cpus, len(cpus)
        ('0-2,8', 263, True, 4)
        >>> cpus & CPUSet.parse("2-9")
        CPUSet.parse('2,8')
    """

    __slots__ = ("_bits",)

    _bits: int

    def __init__(self, cpus: Iterable[int] = ()) -> None:
        """Hold the numbers in `cpus`.

        Raises:
            InputError: a number is negative or not below `CPU_LIMIT`.
            TypeError: something in `cpus` is not an integer.
        """
        bits = 0
        for cpu in cpus:
            number = operator.index(cpu)
            if not 0 <= number < CPU_LIMIT:
                raise InputError.at(
                    "a set of CPUs", f"a CPU number from 0 to {CPU_LIMIT - 1}", number
                )

            bits |= 1 << number

        self._bits = bits

    @classmethod
    def from_int(cls, bits: int) -> CPUSet:
        """Return the set whose members are the positions of the one bits in `bits`.

        Raises:
            InputError: `bits` is negative.
        """
        if bits < 0:
            raise InputError.at("a set of CPUs", "a bit set that is not negative", bits)

        cpus = cls.__new__(cls)
        cpus._bits = bits  # noqa: SLF001  # past __init__, which would count bit by bit
        return cpus

    @classmethod
    def parse(cls, text: str, where: str = "a CPU list") -> CPUSet:
        """Return the set that a CPU list describes.

        The kernel and `reservedSystemCPUs` write such lists. Numbers and ranges are separated by
        commas, in any order, and may overlap; a range may have a stride, as in taskset's `0-31:2`.
        White space around the whole is ignored, since files in sysfs end in a newline. An empty
        list is the empty set.

        Args:
            text: the list, such as `0-3,8`.
            where: the place that an error names.

        Raises:
            InputError: a part of the list is no number or range, goes backwards, or is too large,
                or the list is longer than one of all CPUs needs to be.
        """
        bits = 0
        stripped = text.strip()
        if len(stripped) > _LONGEST_LIST:
            raise InputError.at(where, f"a CPU list of up to {_LONGEST_LIST} characters", stripped)

        if stripped:
            # some lists repeat themselves
            for part in dict.fromkeys(stripped.split(",")):
                bits |= _part_bits(part, where)

        return cls.from_int(bits)

    def __int__(self) -> int:
        return self._bits

    def __bool__(self) -> bool:
        return self._bits != 0

    def __len__(self) -> int:
        return self._bits.bit_count()

    def __iter__(self) -> Iterator[int]:
        return bit_numbers(self._bits)

    def __contains__(self, cpu: object) -> bool:
        return isinstance(cpu, int) and cpu >= 0 and bool(self._bits >> cpu & 1)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, CPUSet):
            return self._bits == other._bits
        return super().__eq__(other)

    def __hash__(self) -> int:
        # equal to the hash of the frozenset that it is equal to
        return hash(frozenset(self))

    def __le__(self, other: AbstractSet[object]) -> bool:
        if isinstance(other, CPUSet):
            return not self._bits & ~other._bits
        return super().__le__(other)

    # what the library's methods return is made by our constructor
    def __and__(self, other: AbstractSet[object]) -> CPUSet:
        if isinstance(other, CPUSet):
            return CPUSet.from_int(self._bits & other._bits)
        return super().__and__(other)  # type: ignore[return-value]

    # the library's types let the union of sets be of mixed elements; a set of CPUs holds nothing
    # else
    def __or__(self, other: AbstractSet[int]) -> CPUSet:  # type: ignore[override]
        if isinstance(other, CPUSet):
            return CPUSet.from_int(self._bits | other._bits)
        return super().__or__(other)  # type: ignore[return-value]

    def __sub__(self, other: AbstractSet[int | None]) -> CPUSet:
        if isinstance(other, CPUSet):
            return CPUSet.from_int(self._bits & ~other._bits)
        return super().__sub__(other)  # type: ignore[return-value]

    def __xor__(self, other: AbstractSet[int]) -> CPUSet:  # type: ignore[override]
        if isinstance(other, CPUSet):
            return CPUSet.from_int(self._bits ^ other._bits)
        return super().__xor__(other)  # type: ignore[return-value]

    def __str__(self) -> str:
        """Return the CPU list: runs as ranges, ascending, `` when empty."""
        parts: list[str] = []
        bits = self._bits
        base = 0
        while bits:
            skipped = (bits & -bits).bit_length() - 1
            bits >>= skipped
            run = (~bits & (bits + 1)).bit_length() - 1
            first = base + skipped
            if run == 1:
                parts.append(str(first))
            else:
                parts.append(f"{first}-{first + run - 1}")

            bits >>= run
            base = first + run

        return ",".join(parts)

    def __repr__(self) -> str:
        return f"CPUSet.parse({str(self)!r})" if self._bits else "CPUSet()"


def _part_bits(part: str, where: str) -> int:
    """Return the bits of one part of a CPU list: `8`, `0-3` or `0-31:2`."""
    span, colon, stride_text = part.partition(":")
    first_text, dash, last_text = span.partition("-")
    if not dash:
        last_text = first_text
    if not colon:
        stride_text = "1"

    numbers = (first_text, last_text, stride_text)
    are_numbers = all(text.isascii() and text.isdigit() and len(text) < _SHOWN for text in numbers)
    if (colon and not dash) or not are_numbers:
        raise InputError.at(where, "a CPU number or range such as 8 or 0-3", part[:_SHOWN])

    first, last, stride = map(int, numbers)
    if last >= CPU_LIMIT:
        raise InputError.at(where, f"CPU numbers below {CPU_LIMIT}", part)
    if first > last or stride < 1:
        raise InputError.at(where, "a range that ascends", part)
    if stride == 1:
        return (1 << last + 1) - (1 << first)

    # twice as many at each step
    bits = 1
    width = stride
    while width <= last - first:
        bits |= bits << width
        width *= 2

    return (bits & (1 << last - first + 1) - 1) << first
