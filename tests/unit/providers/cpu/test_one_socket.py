"""distribute-cpus-across-numa with align-by-socket, as kubelets from 1.37 on do it."""

from __future__ import annotations

from alignup.providers.cpu.distribution import plan_distribution

SOCKETS = [frozenset({0}), frozenset({1}), frozenset({0}), frozenset({1})]


def test_one_socket_wins_over_perfect_balance():
    left = [4, 4, 2, 2]
    across = plan_distribution(left, 2, 4, 1)
    within = plan_distribution(left, 2, 4, 1, SOCKETS)
    assert across is not None
    assert within is not None
    assert (across.nodes, across.balance) == ((0, 1), 0)
    assert within.nodes == (0, 2)


def test_a_node_that_cannot_give_an_equal_share_gives_what_it_can():
    within = plan_distribution([6, 6, 1, 1], 2, 6, 1, SOCKETS)
    assert within is not None
    assert (within.nodes, within.share, within.remainder_nodes) == ((0, 2), 1, (0,))
