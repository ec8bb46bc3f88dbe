"""`alignup explain --log`: refusals that a kubelet's log tells of."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from alignup.cli.explain_log import LOG_LIMIT, MOST_LINES

SCHEMA = Path(__file__).parents[3] / "docs" / "explanation.schema.json"
LOG = Path(__file__).parents[2] / "logs/1.36-restricted.log"


def test_json_is_a_line_a_pod(alignup):
    ended = alignup("explain", "--log", LOG, "--json", "--product")
    assert ended.status == 1
    assert [answer["pod"] for answer in ended.lines] == [
        f"default/{name}" for name in ("wide", "gpus", "mem", "cpus")
    ]
    for answer in ended.lines:
        Draft202012Validator(json.loads(SCHEMA.read_text())).validate(answer)
        assert answer["log"]["agrees"] is True


@pytest.mark.parametrize("pod", ["default/gpus", "gpus"])
def test_a_pod_is_picked(alignup, pod):
    ended = alignup("explain", "--log", LOG, "--pod", pod)
    assert ended.status == 1
    assert "not enough example.com/gpu is free: 3 asked, 1 free" in ended.out
    assert "wide" not in ended.out


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_is_read_gzipped_or_not(alignup, packed):
    data = LOG.read_bytes()
    ended = alignup("explain", "--log", "-", stdin=gzip.compress(data) if packed else data)
    assert (ended.status, ended.out) == (1, alignup("explain", "--log", LOG).out)


def test_a_log_of_no_refusal_is_told_in_a_sentence(alignup):
    lines = [line for line in LOG.read_bytes().splitlines(keepends=True) if b"default/" not in line]
    ended = alignup("explain", "--log", "-", stdin=b"".join(lines))
    assert (ended.status, ended.out) == (0, "the log tells of no refusal\n")
    ended = alignup("explain", "--log", LOG, "--pod", "default/a")
    assert (ended.status, ended.out) == (0, "the log tells of no refusal of default/a\n")


DEVICES_LATE = (
    b'I1125 23:23:36.452343     411 kubelet.go:619] "Pod admission denied" podUID="dd42" '
    b'pod="ml/trainer-0" reason="UnexpectedAdmissionError" message="Allocate failed due to no '
    b"healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu, which is "
    b'unexpected" operation="add"\n'
)


def test_pods_that_came_before_their_device_plugin_get_the_remedy(alignup):
    """kubernetes#125579, project-akri/akri#849."""
    ended = alignup("explain", "--log", "-", stdin=DEVICES_LATE)
    assert ended.status == 1
    assert "what to do: wait until the device plugin has registered" in ended.out
    assert "\nsee Messages: no-healthy-devices" in ended.out
    [answer] = alignup("explain", "--log", "-", "--json", stdin=DEVICES_LATE).lines
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(answer)
    assert answer["see"] == "no-healthy-devices"
    assert "then delete the rejected pod" in answer["log"]["repair"]


CPUS_CHANGED = (
    b'Oct 24 14:37:24 node1 kubelet: E1024 14:37:24.053489    9720 kubelet.go:1541] "Failed to '
    b'start ContainerManager" err="start cpu manager error: current set of available CPUs '
    b'\\"0-7\\" doesn\'t match with CPUs in state \\"0-3\\""\n'
)


def test_a_kubelet_that_does_not_start_is_explained(alignup):
    """kubernetes#84333."""
    ended = alignup("explain", "--log", "-", stdin=CPUS_CHANGED)
    assert ended.status == 1
    for words in (
        "the kubelet does not start (CPU manager)",
        "the kubelet may use CPUs 0-7 of the machine, and the file was written for CPUs 0-3",
        "file: /var/lib/kubelet/cpu_manager_state",
        "repair: drain the node, stop the kubelet, delete the file, and start the kubelet",
        "the kubelet's words: current set of available CPUs \"0-7\" doesn't match",
    ):
        assert words in ended.out

    ended = alignup("explain", "--log", "-", "--json", stdin=CPUS_CHANGED * 3)
    assert ended.status == 1
    [answer] = ended.lines
    assert (answer["kubelet"], answer["count"]) == ("does not start", 3)


def test_a_start_that_failed_before_refusals_is_told_after_them(alignup):
    ended = alignup(
        "explain", "--log", "-", "--tables", "none", stdin=CPUS_CHANGED + LOG.read_bytes()
    )
    assert ended.status == 1
    assert "did not start, and has started since (CPU manager)" in ended.out
    assert (
        "did not start"
        not in alignup(
            "explain", "--log", "-", "--pod", "gpus", stdin=CPUS_CHANGED + LOG.read_bytes()
        ).out
    )


def test_a_start_that_failed_for_words_of_no_table_is_told_with_them(alignup):
    line = CPUS_CHANGED.replace(b"current set of available CPUs", b"no space left on")
    ended = alignup("explain", "--log", "-", stdin=line)
    assert ended.status == 1
    assert "the kubelet's words: no space left on" in ended.out


def test_another_file_is_refused_with_the_command_that_gets_one(alignup, write):
    ended = alignup("explain", "--log", write("pod.json", {"kind": "Pod"}))
    assert ended.complains("is of a kubelet's log", "journalctl -u kubelet > kubelet.log")


def test_what_kubectl_prints_is_told_with_the_refusal_and_the_command_for_the_rest(alignup):
    """squat/generic-device-plugin#33."""
    text = (
        b"Name:             zigbee\nNamespace:        default\nStatus:           Failed\n"
        b"Reason:           UnexpectedAdmissionError\n"
        b"Message:          Pod was rejected: Allocate failed due to no healthy devices present\n"
    )
    for arguments in (["--log", "-"], ["--machine", "xeon-2s", "-"]):
        ended = alignup("explain", *arguments, stdin=text)
        assert ended.complains(
            'pod default/zigbee: UnexpectedAdmissionError ("Allocate failed due to no healthy',
            "kubectl get pod zigbee -n default -o yaml > pod.yaml",
        )


def test_a_log_in_place_of_a_manifest_is_told_with_the_option(alignup):
    ended = alignup("explain", "--machine", "xeon-2s", LOG)
    assert ended.complains(f"{LOG} is a log", f"`alignup explain --log {LOG}` reads it")


def test_a_log_goes_alone(alignup):
    ended = alignup("explain", "--log", LOG, "pod.yaml")
    assert (ended.status, ended.out) == (2, "")
    assert "--log goes without pods" in ended.err


def test_lines_that_the_journal_left_out_are_told(alignup):
    omitted = b'{"__REALTIME_TIMESTAMP": "1", "MESSAGE": null}\n'
    assert (
        "journalctl -o json needs --all"
        in alignup("explain", "--log", "-", stdin=LOG.read_bytes() + omitted).err
    )


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_log_of_utf_16_is_read_as_one_of_utf_8(alignup, encoding: str, packed) -> None:
    """So PowerShell writes what it redirects."""
    text = LOG.read_text("utf-8")
    data = text.encode(encoding) if encoding == "utf-16" else f"\ufeff{text}".encode(encoding)
    for cut in (0, 1):  # in the middle of a character
        given = data[: len(data) - cut]
        ended = alignup("explain", "--log", "-", stdin=gzip.compress(given) if packed else given)
        assert (ended.status, ended.out) == (1, alignup("explain", "--log", LOG).out)


def test_a_longer_log_than_is_read_in_seconds_is_refused_at_once(alignup, tmp_path):
    long = tmp_path / "long.log"
    with long.open("wb") as file:
        file.truncate(LOG_LIMIT + 1)  # takes no space, and is never read
    ended = alignup("explain", "--log", long)
    assert ended.status == 2
    assert "has more than 48 MiB or 1000000 lines: write less of the log" in ended.err

    # nobody knows how long standard input is
    for data in (b"x\n" * (MOST_LINES + 1), (b"x" * 999 + b"\n") * (LOG_LIMIT // 1000 + 1)):
        ended = alignup("explain", "--log", "-", stdin=data)
        assert ended.status == 2
        assert "- has more than 48 MiB or 1000000 lines" in ended.err


def test_of_very_many_refusals_the_newest_are_explained(alignup, monkeypatch):
    monkeypatch.setattr("alignup.kubelet.log.MOST_EXPLAINED", 2)
    monkeypatch.setattr("alignup.cli.explain_log.MOST_EXPLAINED", 2)
    ended = alignup("explain", "--log", LOG, "--json")
    assert [answer["pod"] for answer in ended.lines] == ["default/mem", "default/cpus"]
    assert "2 refusals of" in ended.err
    assert "--pod NAMESPACE/NAME picks a pod" in ended.err

    ended = alignup("explain", "--log", LOG, "--json", "--pod", "wide")
    assert [answer["pod"] for answer in ended.lines] == ["default/wide"]
    assert ended.err == ""
