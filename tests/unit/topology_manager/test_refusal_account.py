"""The amounts behind a refusal as text: in one unit where it suits them all, and by NUMA node."""

from __future__ import annotations

import pytest

from alignup.text.counting import BYTES, ByteUnit
from alignup.topology_manager.refusal_account import MemoryAccount, in_words

GI = 1 << 30
MI = 1 << 20
IN_GIBI = ByteUnit("Gi", GI)


@pytest.mark.parametrize(
    ("free", "ids", "text"),
    [
        ((2 * GI,), (0,), "3Gi asked, free: 2Gi on NUMA node 0"),
        ((2 * GI, 2 * GI), (0, 8), "3Gi asked, free: 2Gi on each of NUMA nodes 0, 8"),
        (
            (GI, 2 * GI, GI),
            (0, 1, 2),
            "3Gi asked, free: 1Gi on each of NUMA nodes 0, 2, 2Gi on NUMA node 1",
        ),
        ((0, 2 * GI), (0, 1), "3Gi asked, free: 2Gi on NUMA node 1"),
        ((0, 0), (0, 1), "3Gi asked, 0 free"),
        (None, (0, 1), "3Gi asked, the machine has none"),
    ],
)
def test_what_is_free_is_told_by_numa_node(free, ids, text) -> None:
    """Nodes with as much are told together, by the kernel's ids; those without are left out."""
    assert MemoryAccount(3 * GI, free, ids).words(IN_GIBI) == text


def test_what_is_asked_is_rounded_up_and_what_is_free_down() -> None:
    """So that what does not fit never reads as if it did."""
    account = MemoryAccount(2 * GI + 1, (2 * GI - 1,), (0,))

    assert account.words(IN_GIBI) == "2.01Gi asked, free: 1.99Gi on NUMA node 0"
    assert account.words(BYTES) == "2147483649 asked, free: 2147483647 on NUMA node 0"


@pytest.mark.parametrize(
    ("nodes", "pods", "text"),
    [
        (
            (0,),
            ("default/a",),
            "NUMA node 0 can only be used by itself while default/a holds memory there",
        ),
        (
            (0, 8),
            ("default/a", "default/b"),
            "NUMA nodes 0+8 can only be used together while default/a, default/b hold memory there",
        ),
    ],
)
def test_ties_say_which_pods_hold_nodes_together(nodes, pods, text) -> None:
    account = MemoryAccount(GI, (0,), (0,), ties=lambda: ((nodes, pods),))

    assert account.words(IN_GIBI) == f"1Gi asked, 0 free; {text}"


def test_ties_are_looked_up_only_when_the_text_is_read() -> None:
    calls = []
    account = MemoryAccount(GI, (0,), (0,), ties=lambda: calls.append("asked") or ())

    assert calls == []
    account.words(IN_GIBI)
    assert calls == ["asked"]


def test_types_of_memory_share_a_unit_where_one_suits_them() -> None:
    """Whole GiB of both are told in GiB."""
    accounts = {
        "hugepages-1Gi": MemoryAccount(GI, (0,), (0,)),
        "memory": MemoryAccount(20 * GI, (12 * GI,), (0,)),
    }

    assert in_words(accounts) == {
        "hugepages-1Gi": "1Gi asked, 0 free",
        "memory": "20Gi asked, free: 12Gi on NUMA node 0",
    }


def test_types_of_memory_are_both_told_in_gibibytes_though_one_has_a_larger_unit() -> None:
    """2 TiB beside 4 GiB of pages: amounts in one unit are the easier to compare."""
    accounts = {
        "hugepages-1Gi": MemoryAccount(4 * GI, (2 * GI,), (0,)),
        "memory": MemoryAccount(2048 * GI, (1024 * GI,), (0,)),
    }

    assert in_words(accounts) == {
        "hugepages-1Gi": "4Gi asked, free: 2Gi on NUMA node 0",
        "memory": "2048Gi asked, free: 1024Gi on NUMA node 0",
    }


def test_types_of_memory_keep_their_own_units_where_none_suits_both() -> None:
    """2 MiB of pages would be nothing in GiB, and 20 GiB a long number in MiB."""
    accounts = {
        "hugepages-2Mi": MemoryAccount(2 * MI, (0,), (0,)),
        "memory": MemoryAccount(20 * GI, (12 * GI,), (0,)),
    }

    assert in_words(accounts) == {
        "hugepages-2Mi": "2Mi asked, 0 free",
        "memory": "20Gi asked, free: 12Gi on NUMA node 0",
    }


def test_other_resources_tell_their_own_account() -> None:
    accounts = {"cpu": lambda: "4 asked, 2 free", "memory": MemoryAccount(GI, None, ())}

    assert in_words(accounts) == {
        "cpu": "4 asked, 2 free",
        "memory": "1Gi asked, the machine has none",
    }
    assert in_words({}) == {}
