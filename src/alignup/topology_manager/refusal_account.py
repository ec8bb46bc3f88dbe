"""Holds the amounts behind a refusal, requested and free at that moment, and writes them as text.

Providers make accounts when a pod is refused; `alignup.topology_manager.refusal_message` reads
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from alignup.records import Record, field
from alignup.text.counting import ByteUnit, amount_in, named, shared_unit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from alignup.topology_manager.hints import HintList, TopologyHint

_GIBI: Final = 1 << 30

# Returns the requested and free amounts of a resource as text; it runs only when the message is
# read.
Account: TypeAlias = "Callable[[], str]"

# Accounts by resource.
Accounts: TypeAlias = "Mapping[str, Account | MemoryAccount]"

# Ids of NUMA nodes that can only be used as this set, and the pods that hold memory on them.
Ties: TypeAlias = "tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]"


class MemoryAccount(Record):
    """The account of one type of memory, in bytes. Types of memory are hinted at together.

    Attributes:
        free: by position of the NUMA node; None: the machine has no memory of this type.
        families: the hints if only these types were requested; empty where this type is the only
            one.
        ties: returns the sets of NUMA nodes whose use rules others out; it runs only when the
            message is read.
    """

    requested: int
    free: tuple[int, ...] | None
    numa_node_ids: tuple[int, ...]
    families: Mapping[frozenset[str], HintList | Sequence[TopologyHint]] = field(
        default_factory=dict
    )
    ties: Callable[[], Ties] = tuple

    def words(self, unit: ByteUnit) -> str:
        """Return the account as text, with all amounts in one unit."""
        request = f"{amount_in(unit, self.requested, up=True)} asked"
        if self.free is None:
            return f"{request}, the machine has none"

        nodes: dict[int, list[int]] = {}
        for node, free in zip(self.numa_node_ids, self.free, strict=True):
            nodes.setdefault(free, []).append(node)

        stocks = []
        for free, ids in nodes.items():
            if free:
                each = "each of " if len(ids) > 1 else ""
                place = named("NUMA node", ids, ", ")
                stocks.append(f"{amount_in(unit, free)} on {each}{place}")

        stock = f"free: {', '.join(stocks)}" if stocks else "0 free"
        ties = "".join(map(_tie_words, self.ties()))
        return f"{request}, {stock}{ties}"


def _tie_words(tie: tuple[tuple[int, ...], tuple[str, ...]]) -> str:
    """Return which nodes can only be used together, or one by itself, because of which pods."""
    nodes, pods = tie
    verb = "holds" if len(pods) == 1 else "hold"
    holders = f"while {', '.join(pods)} {verb} memory there"
    if len(nodes) == 1:
        return f"; NUMA node {nodes[0]} can only be used by itself {holders}"
    return f"; NUMA nodes {'+'.join(map(str, nodes))} can only be used together {holders}"


def in_words(accounts: Accounts) -> dict[str, str]:
    """Return all accounts as text by resource.

    Amounts of memory share a unit where one suits them all.
    """
    texts = {}
    memory = {}
    for name, account in accounts.items():
        if isinstance(account, MemoryAccount):
            memory[name] = account
        else:
            texts[name] = account()

    if not memory:
        return texts

    units = {
        name: shared_unit([(account.requested, account.free or ())])
        for name, account in memory.items()
    }
    shared = shared_unit((account.requested, account.free or ()) for account in memory.values())
    is_shared = shared.size >= _GIBI or shared == max(units.values(), key=lambda unit: unit.size)
    for name, account in memory.items():
        texts[name] = account.words(shared if is_shared else units[name])

    return texts
