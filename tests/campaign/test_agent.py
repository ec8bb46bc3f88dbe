"""An agent under load, for a while, and killed again and again.

`agent_campaign.py`, in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGN = Path(__file__).with_name("agent_campaign.py")
LONG = 300


def run(mode, seconds):
    """Run a campaign and return what it found.

    It fails if anything was held twice, leaked, forgotten, or grew.
    """
    # longer ones by hand, as in ALIGNUP_CAMPAIGN_SECONDS=1800
    seconds = float(os.environ.get("ALIGNUP_CAMPAIGN_SECONDS", seconds))
    done = subprocess.run(  # noqa: S603  # ours
        [sys.executable, str(CAMPAIGN), mode, str(seconds)],
        capture_output=True,
        text=True,
        timeout=seconds + LONG,
        check=False,
    )

    assert done.stdout, done.stderr[-2000:]
    figures = json.loads(done.stdout)
    sys.stdout.write(f"agent {mode}, {seconds:g} s: {figures}\n")
    assert (figures.pop("problems"), done.returncode) == ([], 0), done.stderr[-2000:]
    return figures


@pytest.mark.slow
def test_many_clients_at_once():
    """The numbers are said, not judged: a busy machine is no mistake."""
    figures = run("load", 4)
    assert figures["without fsync"]["placements a second"] > 0
    assert figures["with fsync"]["placements a second"] > 0


@pytest.mark.slow
def test_nothing_is_held_twice_leaked_or_forgotten_when_all_are_killed():
    figures = run("kill", 60)  # some five hundred kills
    assert min(figures["kills"].values()) > 0


@pytest.mark.slow
def test_an_innocent_client_is_served_beside_all_neighbours():
    """The numbers are said.

    docs/agent.md has the bound, which a machine that is busy otherwise may exceed.
    """
    figures = run("beside", 60)
    assert min(times["leases"] for times in figures.values()) > 0


@pytest.mark.slow
def test_an_agent_stays_small():
    run("soak", 120)
