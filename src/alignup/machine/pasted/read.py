"""Finds in a text what reports paste of a machine, in any order, and makes one machine of it.

`_READERS` says which programs' outputs are known. What the text leaves open is told in a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError, errors_in
from alignup.machine.pasted.facts import Facts, machine_of_facts
from alignup.machine.pasted.lscpu import read_parsable, read_properties, read_table, without_json
from alignup.machine.pasted.lstopo import read_lstopo
from alignup.machine.pasted.numactl import read_numactl
from alignup.machine.pasted.nvidia_topology import read_nvidia_topology

if TYPE_CHECKING:
    from alignup.machine.loaded import LoadedMachine

_READERS: Final[Mapping[str, Callable[[Sequence[str]], Facts | None]]] = {
    "lscpu -e": read_table,
    "lscpu -p": read_parsable,
    "numactl -H": read_numactl,
    "lstopo": read_lstopo,
    "lscpu": read_properties,
    "nvidia-smi topo -m": read_nvidia_topology,
}
"""By the program, in the order in which they count where two tell the same: sizes of lstopo are rounded."""
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_QUOTE: Final = re.compile(r"(?:> ?)+")
_SHOWN: Final = 40


def read_pasted(text: str, source: str) -> LoadedMachine:
    """Return the machine that the outputs of programs in a text describe, and its GPUs if the text has them.

    What no output tells is warned of; memory that nothing tells is 0 (see `Machine.knows_memory`).

    Args:
        text: the outputs, with prompts, quotes or other words around them.
        source: the name of the text in errors and warnings.

    Raises:
        InputError: there is no such output, it is cut off, or outputs are of different machines.
    """
    with errors_in(source):
        lines = _lines(text)
        told = {name: facts for name, read in _READERS.items() if (facts := read(lines)) is not None}
        found = machine_of_facts(told, source)
    if found is None:
        got = f"that of {' and '.join(told)} only" if told else repr(text.strip()[:_SHOWN])
        raise InputError(
            f"expected a machine (JSON, hwloc's XML, a snapshot, or the output of {', '.join(_READERS)}), got {got} in "
            f"{source}; `(lscpu -e; numactl -H) > FILE` on the machine writes one"
        )
    return found


def _lines(text: str) -> list[str]:
    """Return the lines without what terminals and mails add."""
    plain = _ESCAPES.sub("", without_json(text)).replace("\u00a0", " ").expandtabs()
    return [_QUOTE.sub("", line, count=1) if line.startswith(">") else line for line in plain.splitlines()]
