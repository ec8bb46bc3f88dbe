"""Logs and configurations of platforms, damaged at random, end in an `AlignupError` or are read.

ALIGNUP_CAMPAIGN_SECONDS=60 python -m pytest -q -s -m slow tests/campaign/test_damaged_texts.py
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from alignup.errors import AlignupError
from alignup.kubelet.log import read_log
from alignup.kubernetes.config_documents import read_configuration

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("ALIGNUP_CAMPAIGN_SECONDS", "20"))
HEAD = "I1127 10:00:00.000000       1 scope_container.go:100] "
LINES = (
    (
        f'{HEAD}"TopologyHints" pod="a/b" containerName="c" '
        'hints={"cpu":[{"NUMANodeAffinity":1,"Preferred":true,"Score":30}]}'
    ),
    f'{HEAD}"TopologyHints" pod="a/b" hints="map[cpu:[{{NUMANodeAffinity:01 Preferred:true}}]]"',
    f'{HEAD}"Best TopologyHint" pod="a/b" bestHint={{"NUMANodeAffinity":1,"Preferred":false}}',
    f'{HEAD}"Pod admission denied" pod="a/b" podUID="u" reason="TopologyAffinityError" message="x"',
    f'{HEAD}"Detected CPU topology" topology={{"CPUDetails":{{"0":{{"NUMANodeID":0}}}}}}',
    f'{HEAD}"Allocate error" err="SMT Alignment Error: requested 3 cpus"',
    '{"caller":"kubelet/kubelet.go:1","msg":"Pod admission denied","pod":{"name":"a"}}',
)
DOCUMENTS: tuple[Any, ...] = (
    {
        "kind": "KubeletConfiguration",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1"}}],
    },
    {"machine": {"kubelet": {"extraConfig": {"cpuManagerPolicy": "static"}}}},
    {"kind": "ConfigMap", "data": {"kubelet": "cpuManagerPolicy: static"}},
    {"kind": "Cluster", "spec": {"kubelet": {"cpuManagerPolicy": "static"}}},
    {"kubelet-arg": ["cpu-manager-policy=static"]},
    {"services": {"kubelet": {"extra_args": {"cpu-manager-policy": "static"}}}},
    {"kind": "NodeConfig", "spec": {"kubelet": {"config": {"maxPods": 1}, "flags": ["--a=b"]}}},
)
PIECES = ("", "0", "9" * 30, "-", "}", "{", '"', " ", "\n", "null: 1, ", "\0", "[", "1e999", "*a ")


def damaged(text: str, random: Random) -> str:
    """Return a text with some pieces put in or taken out."""
    for _ in range(random.randint(0, 4)):
        place = random.randrange(len(text) + 1)
        taken = random.choice((0, 0, 1, 5, 20))
        text = text[:place] + random.choice(PIECES) + text[place + taken :]
    return text


def test_damaged_texts_end_in_an_error_of_ours() -> None:
    seed = int(os.environ.get("ALIGNUP_SEED", "1"))
    random = Random(seed)
    tried: Counter[str] = Counter()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        lines = [damaged(random.choice(LINES), random) for _ in range(random.randint(1, 9))]
        document = damaged(json.dumps(random.choice(DOCUMENTS)), random)
        with warnings.catch_warnings(), suppress(AlignupError):
            warnings.simplefilter("ignore")
            tried["logs"] += 1
            read_log([f"{line}\n".encode() for line in lines], "LOG")
        with warnings.catch_warnings(), suppress(AlignupError):
            warnings.simplefilter("ignore")
            tried["configurations"] += 1
            read_configuration(document, "FILE")
    print(f"seed {seed}: tried and held: {dict(tried)}")  # noqa: T201  # what a campaign says
