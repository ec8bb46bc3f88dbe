"""The tables of what kubelets and kube-scheduler say, and how a refusal is found in them.

`tests/campaign/test_messages.py` compares them with the sources of Kubernetes.
"""

from __future__ import annotations

import json
import random
import re

import pytest

from alignup import version
from alignup.kubelet import messages as messages_module
from alignup.kubelet.messages import (
    Table,
    address_of,
    meaning_of_rejection,
    meaning_of_start,
    meanings_of_status,
    meanings_quoted,
    messages,
    reference_to,
)
from alignup.kubernetes.versions import known_names

ALL = [message for table in Table for message in messages(table)]
VERB = re.compile(r"%\+?q|\"%s\"|%\+?[sdvw]")


def said(text, value):
    """Return what a program makes of a text with a value in each place."""
    return VERB.sub(lambda verb: f'"{value}"' if "q" in verb[0] or '"' in verb[0] else value, text)


def test_anchors_are_names_of_their_own():
    anchors = [message.anchor for message in ALL]
    assert len(set(anchors)) == len(anchors) > 200
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", anchor) for anchor in anchors)


@pytest.mark.parametrize("message", messages(Table.STARTS), ids=lambda message: message.anchor)
def test_the_words_of_each_start_that_fails_are_found(message):
    meaning = meaning_of_start(said(message.text, "7 of them"))
    assert meaning is not None
    assert (meaning.message.component, meaning.message.file) == (message.component, message.file)
    assert meaning.repair
    assert "{" not in meaning.cause + meaning.repair


@pytest.mark.parametrize("message", messages(Table.REJECTIONS), ids=lambda message: message.anchor)
@pytest.mark.parametrize(
    "around", ["{}", "Pod was rejected: {}", "Allocate failed due to {}, which is unexpected"]
)
def test_the_words_of_each_rejection_are_found(message, around):
    words = around.format(said(message.text, str(random.randint(1, 99))))
    meaning = meaning_of_rejection(message.reason, words)
    assert meaning is not None
    assert meaning.message.anchor == message.anchor
    assert "{" not in meaning.cause + meaning.repair


@pytest.mark.parametrize("between", [" ", "\n", " \n  ", ""])
def test_the_sentence_behind_the_words_may_stand_in_another_line(between):
    """As where an error is wrapped, or only its first line is quoted."""
    words = f"invalid Node Allocatable configuration.{between}"
    for sentence in ("", "Resource cpu has a reservation of 9"):
        meaning = meaning_of_start(words + sentence)
        assert meaning is not None
        assert meaning.message.text == "invalid Node Allocatable configuration. %s"


@pytest.mark.parametrize("message", messages(Table.STATUSES), ids=lambda message: message.anchor)
def test_the_words_of_each_status_are_found_among_others(message):
    words = f"0/9 nodes are available: 3 {said(message.text, 'a.b/c')}, 6 Too many pods."
    anchors = {meaning.message.anchor for meaning in meanings_of_status(words)}
    alike = {other.anchor for other in ALL if other.text == message.text}
    assert "too-many-pods" in anchors
    assert message.anchor in anchors or alike & anchors or message.anchor.startswith("insufficient")


@pytest.mark.parametrize(
    ("reason", "anchor"),
    [
        ("TopologyAffinityError", "topology-affinity-error"),
        ("UnexpectedAdmissionError", "unexpected-admission-error"),
        ("SMTAlignmentError", "smt-alignment-error"),
        ("OutOfcpu", "outof"),
        ("OutOfnvidia.com/gpu", "outof"),
        ("NodeAffinity", "node-affinity"),
    ],
)
def test_a_reason_alone_has_an_entry(reason, anchor):
    meaning = meaning_of_rejection(reason, "words of nobody")
    assert meaning is not None
    assert meaning.message.anchor == anchor
    assert "{" not in meaning.cause


def test_the_reasons_by_which_a_rejected_pod_is_known_have_entries():
    """And those of the managers are all among them."""
    reasons = {message.reason for message in messages(Table.REJECTIONS)}
    known = known_names("rejections")
    assert set(known) <= reasons
    assert {
        message.reason
        for message in messages(Table.REJECTIONS)
        if message.component.lower().endswith("manager")
    } <= set(known)


def test_what_a_sentence_quotes_is_found():
    status = "0/3 nodes are available: 1 Insufficient cpu, 2 Too many pods."
    sentence = (
        'it tells: pod a: UnexpectedAdmissionError ("Allocate failed due to no healthy devices '
        f'present; cannot allocate unhealthy devices a.b/c, which is unexpected"); b ("{status}")'
    )
    anchors = [meaning.message.anchor for meaning in meanings_quoted(sentence)]
    assert anchors == ["no-healthy-devices", "insufficient", "too-many-pods"]
    assert meanings_quoted("nothing is quoted (here)") == []


def test_the_closest_entry_is_taken():
    words = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
    meaning = meaning_of_rejection("NodePorts", words)
    assert meaning is not None
    assert meaning.message.reason == "NodePorts"


def test_what_nobody_says_has_no_entry():
    assert meaning_of_start("running with swap on is not supported") is None
    assert meaning_of_rejection("", "") is None
    assert meaning_of_rejection("KoordinatorRefuses", "no such words") is None
    assert meanings_of_status("all is well") == []
    assert reference_to(None) == ""


def test_a_remedy_is_told_where_no_command_has_to_find_it():
    words = "no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu"
    meaning = meaning_of_rejection("UnexpectedAdmissionError", words)
    assert meaning is not None
    assert meaning.remedy.startswith("wait until the device plugin has registered")
    meaning = meaning_of_rejection("TopologyAffinityError")
    assert meaning is not None
    assert meaning.remedy == ""


def test_an_entry_has_an_address_where_the_build_knows_that_of_its_documents(monkeypatch):
    meaning = meaning_of_rejection("TopologyAffinityError")
    monkeypatch.setattr(version, "DOCUMENTATION", "")
    assert address_of("topology-affinity-error") == ""
    assert reference_to(meaning) == "see Messages: topology-affinity-error"

    documents = "https://forge.example/team/alignup/tree/v1.2.0/docs"
    monkeypatch.setattr(version, "DOCUMENTATION", documents)
    address = f"{documents}/messages.md#topology-affinity-error"
    assert reference_to(meaning) == f"see Messages: topology-affinity-error ({address})"


def test_one_repair_stands_in_one_table():
    """Of what `alignup node check` finds too, the repair is that of the finding."""
    folder = messages_module.Path(messages_module.__file__).parent
    entries = json.loads((folder / "start_errors.json").read_text())
    assert all(("kind" in entry) != ("repair" in entry) for entry in entries)
