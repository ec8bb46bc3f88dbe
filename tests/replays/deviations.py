"""Documented deviations that answers to fresh scenarios meet (docs/deviations.md).

Recorded scenarios have them listed one by one (tests/conformance/recorded_deviations.json). Of
fresh ones only those are recognized here whose sign stands in the kubelet's own answer, so that
nothing that is a fault of ours can pass as one.
"""

from __future__ import annotations

from typing import Any

from alignup.machine.cpuset import CPUSet
from alignup.node import Node


def until_reserved_cpus_are_shared(vector: dict[str, Any]) -> dict[str, Any] | None:
    """Return a scenario up to the answer in which the kubelet's shared pool has reserved CPUs.

    Such an answer is the deviation `strict`: with `strict-cpu-reservation` no reserved CPU should
    be there. That step is left as it is but for the pool, and nothing after it can be compared.
    None: the kubelet gives no such answer.
    """
    options = vector["kubelet"].get("cpuManagerPolicyOptions") or {}
    if str(options.get("strict-cpu-reservation", "")).lower() != "true":
        return None

    node = Node.from_dict(vector)
    if node.cpu is None:
        return None

    reserved = CPUSet.from_int(node.machine.cpus & ~int(node.cpu.allocatable_cpus))
    for number, answer in enumerate(vector.get("expect", ()), 1):
        shared = CPUSet.parse(answer["sharedCpus"])
        if shared & reserved:
            last = {**answer, "sharedCpus": str(shared - reserved)}
            return {
                **vector,
                "steps": vector["steps"][:number],
                "expect": [*vector["expect"][: number - 1], last],
            }

    return None
