"""Makes the accounts of memory for a refusal: requested and free, type by type, and the pods that tie nodes together.

`alignup.providers.memory.provider` takes the amounts from its ledger; the words are those of
`alignup.topology_manager.refusal_account`.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final

from alignup.topology_manager.refusal_account import MemoryAccount, in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from alignup.topology_manager.hints import HintList
    from alignup.topology_manager.refusal_account import Ties

__all__ = ["Requests", "accounts_of_memory", "lacking", "shortage", "ties_of"]

Requests = tuple[tuple[str, int], ...]
"""(type, bytes), by type."""

_MOST_TYPES: Final = 4
"""More types than this are only looked at one by one and all together."""
_NAMES_SHOWN: Final = 3


def accounts_of_memory(
    requests: Requests,
    free_of: Callable[[str], tuple[int, ...] | None],
    numa_node_ids: tuple[int, ...],
    hints_of: Callable[[Requests], HintList],
    ties: Callable[[], Ties],
) -> dict[str, MemoryAccount]:
    """Return the account of each type.

    Args:
        requests: what is asked for.
        free_of: returns what is free of a type, by position; None where the machine has none.
        numa_node_ids: by position.
        hints_of: returns the hints for a part of the requests.
        ties: returns the nodes that can only be used together, with the pods that hold memory there.
    """
    families = {}
    if len(requests) > 1:
        sizes = range(1, len(requests)) if len(requests) <= _MOST_TYPES else (1,)
        parts = (part for size in sizes for part in combinations(requests, size))
        families = {frozenset(kind for kind, _ in part): hints_of(part) for part in parts}
        families[frozenset(kind for kind, _ in requests)] = hints_of(requests)
    return {
        kind: MemoryAccount(amount, free_of(kind), numa_node_ids, families, ties) for kind, amount in requests
    }


def ties_of(holders: Iterable[tuple[int, str]], mask: int, numa_node_ids: Sequence[int]) -> Ties:
    """Return the sets of nodes that touch a mask and are in use, each with the pods that hold memory there.

    Args:
        holders: the mask of each holding, and the pod whose it is.
        mask: the nodes that would do if nobody held memory there.
        numa_node_ids: by position.
    """
    pods: dict[int, dict[str, None]] = {}
    for used, pod in holders:
        if used & mask:
            pods.setdefault(used, {})[pod] = None
    found = []
    for used, names in sorted(pods.items()):
        ids = tuple(node for position, node in enumerate(numa_node_ids) if used >> position & 1)
        shown = list(names)[:_NAMES_SHOWN]
        more = [f"{len(names) - _NAMES_SHOWN} more"] if len(names) > _NAMES_SHOWN else []
        found.append((ids, (*shown, *more)))
    return tuple(found)


def shortage(accounts: Mapping[str, MemoryAccount], within: str, smallest: str) -> str:
    """Return that no set of nodes has enough, with the accounts of those types that alone are too much.

    Too much is more than is free on all nodes together; where no type is, what no set of nodes that may be used
    together can hold.

    Args:
        accounts: by type.
        within: what the set must include, in words; empty: nothing.
        smallest: what kind of set is meant; empty: any.
    """
    told = in_words(lacking(accounts))
    where = "" if any(map(_is_scarce, accounts.values())) else within
    return f"no {smallest}set of NUMA nodes{where} has enough memory: " + "; ".join(
        f"{kind} {words}" for kind, words in told.items()
    )


def lacking(accounts: Mapping[str, MemoryAccount]) -> dict[str, MemoryAccount]:
    """Return the types that are too much by themselves; all where none is."""
    scarce = {kind: one for kind, one in accounts.items() if _is_scarce(one)}
    unplaced = {kind: one for kind, one in accounts.items() if _has_no_place(kind, one)}
    return scarce or unplaced or dict(accounts)


def _is_scarce(account: MemoryAccount) -> bool:
    """Return whether more is asked for than is free on all nodes together."""
    return account.free is None or sum(account.free) < account.asked


def _has_no_place(kind: str, account: MemoryAccount) -> bool:
    """Return whether this type, if it were the only one, had no hint either; a lone type has no hints to look at."""
    hints = account.families.get(frozenset([kind]))
    return hints is not None and len(hints) == 0
