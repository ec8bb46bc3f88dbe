"""The names that the contract promises are there, all of them.

They cost nothing until they are used.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import alignup

CONTRACT = [
    "BitMask",
    "HintList",
    "Machine",
    "Node",
    "Pod",
    "TopologyHint",
    "TopologyManager",
    "make_policy",
    "lease",
    "AlignupWarning",
    "Container",
    "ContainerAllocation",
    "Device",
    "Evaluation",
    "Lease",
    "Policy",
    "RoomPlan",
    "Standing",
    "plan_room",
]


def test_every_name_is_there_and_explains_itself() -> None:
    """It has a docstring of its own, and is the same object at each look."""
    for name in alignup.__all__:
        exported = getattr(alignup, name)

        assert exported is getattr(alignup, name), name
        assert exported.__doc__, name
        assert name in dir(alignup), name


def test_the_contract_is_public() -> None:
    assert set(CONTRACT) <= set(alignup.__all__)
    assert alignup.__all__ == sorted(alignup.__all__, key=lambda name: (name[0].islower(), name))


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'bogus'"):
        getattr(alignup, "bogus")  # noqa: B009 - mypy would object to the attribute


@pytest.mark.parametrize(
    "module",
    [
        "topology_manager.hints",
        "topology_manager.policy",
        "topology_manager.scope",
        "topology_manager.manager",
        "node",
        "replay",
        "topology_manager.refusal_message",
    ],
)
def test_modules_say_what_is_public(module: str) -> None:
    """Every name in `__all__` is there."""
    home = import_module(f"alignup.{module}")

    assert home.__doc__
    assert all(hasattr(home, name) for name in home.__all__)


def test_importing_imports_nothing_else() -> None:
    """Neither numpy nor msgspec nor our own modules, until a name is used."""
    code = (
        "import sys; before = set(sys.modules); import alignup; "
        "print(sorted(m for m in set(sys.modules) - before if 'alignup' in m or m in ('numpy', "
        "'msgspec')))"
    )
    done = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "['alignup']"


def test_the_example_of_the_contract() -> None:
    """A node from plain data, a manifest, and what the container got."""
    machine = alignup.read_machine("align-up-article")
    node = alignup.Node.from_dict(
        {
            "machine": machine.to_dict(),
            "kubelet": {"topologyManagerPolicy": "restricted"},
            "devices": {},
        }
    )
    manifest = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"containers": [{"name": "c0", "image": "i"}]},
    }
    admission = node.admit(alignup.read_pod(manifest))

    assert isinstance(admission, alignup.Admission)
    assert (admission.admitted, admission.reason, admission.message) == (True, "", "")
    got = admission.containers["c0"]
    assert got.affinity == alignup.TopologyHint(alignup.BitMask([0, 1]), True)
    assert (got.cpus, got.memory, got.devices) == (None, (), {})
    node.remove("u")
    with pytest.raises(alignup.UnknownPodError):
        node.remove("u")
