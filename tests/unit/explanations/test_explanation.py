"""An explanation as JSON is what its schema says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from alignup import explain
from alignup.node import Node
from fakes.hint_providers import Licences
from inputs.machines import machine_of
from inputs.refusals import GPU, article, refusals, wish
from inputs.strategies import counts

SCHEMA = json.loads(
    (Path(__file__).parents[3] / "docs" / "explanation.schema.json").read_text(encoding="utf-8")
)
VALIDATOR = Draft202012Validator(SCHEMA)


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_admitted_pods_fit_the_schema() -> None:
    facts = explain(article(), wish("x", cpu="2", **{GPU: "1"})).to_dict(product=True)

    VALIDATOR.validate(json.loads(json.dumps(facts)))
    assert facts.keys() == SCHEMA["properties"].keys() - {
        "claims",
        "cluster",
        "group",
        "kubelet",
        "log",
        "see",
        "unknown",
        "was",
    }
    assert facts["steps"][0].keys() == SCHEMA["$defs"]["step"]["properties"].keys()


@pytest.mark.parametrize("count", counts(15, 300))
def test_refused_pods_fit_the_schema(count: int) -> None:
    for _, _, explanation in refusals(9, count):
        VALIDATOR.validate(json.loads(json.dumps(explanation.to_dict(product=True))))


def test_a_users_provider_fits_the_schema() -> None:
    node = Node.from_dict(
        {"machine": machine_of(2, 2), "kubelet": {"topologyManagerPolicy": "restricted"}},
        providers=[Licences([0, 0])],
    )
    facts = explain(node, wish("x", cpu="1")).to_dict(product=True)

    VALIDATOR.validate(facts)
    assert facts["resources"][-1]["asked"] is None


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"cause": ""}, {"suggestions": [{"kind": "magic"}]}]
)
def test_the_schema_refuses_what_is_none(change: dict) -> None:
    facts = explain(article(), wish("x", cpu="2")).to_dict()
    assert not VALIDATOR.is_valid({**facts, **change})
