"""Behaviour of `alignup.kubernetes.versions`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from alignup.errors import AlignupWarning, InputError
from alignup.kubernetes.policy_options import effective_gates
from alignup.kubernetes.versions import (
    KNOWN_VERSIONS,
    NEWEST,
    NEWEST_KNOWN,
    PREVIEWS,
    RELEASED,
    KubeletVersion,
    PodLevel,
    PodReading,
    StatusRequests,
    VersionProfile,
    known_names,
    parse_version,
    parse_versions,
    profile_of,
    read_table,
    release_of,
)
from alignup.records import replace

AS_1_34 = PodReading(
    PodLevel.SHARES, StatusRequests.WITH_SIDECARS, False, False, claimed_devices_left_out=False
)
PAGE = (Path(__file__).parents[3] / "docs" / "versions.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "text",
    [
        "1.33",
        "v1.33",
        "1.33.0",
        "v1.33.13",
        "v1.33.13-eks-1",
        "v1.33.4+k3s1",
        "v1.33.5-gke.1200",
        "1.33.0-rc.1",
    ],
)
def test_only_the_minor_counts(text):
    assert parse_version(text) == KubeletVersion(33)
    assert str(parse_version(text)) == "1.33"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "33",
        "1.33.x",
        "latest",
        "1.33,1.36",
        " 1.33",
        "1.-3",
        "v",
        1.33,
        33,
        True,
        ["1.33"],
    ],
)
def test_what_is_no_version_is_refused(text):
    with pytest.raises(InputError, match="expected the version of a kubelet such as"):
        parse_version(text)


@pytest.mark.parametrize("text", ["1.28.9", "0.99", "1.0"])
def test_what_is_too_old_is_refused(text):
    with pytest.raises(
        InputError, match=r"^expected kubelet 1\.29 or later; .* at kubeletVersion$"
    ):
        parse_version(text)


@pytest.mark.parametrize("text", ["1.39", "v1.99.1", "2.0"])
def test_what_is_newer_is_judged_as_the_newest_known(text):
    with pytest.warns(
        AlignupWarning,
        match=r"is newer than those known, and is judged as 1\.38 \(.*\); not known are its",
    ):
        assert parse_version(text) == NEWEST_KNOWN


@pytest.mark.parametrize("text", ["1.38", "v1.38", "1.38.0-beta.0", "v1.38.0-beta.0"])
def test_the_preview_is_taken_by_its_name_without_a_word(text, recwarn):
    version = parse_version(text)

    assert version == KubeletVersion(38)
    assert version.title == "1.38 (a preview: 1.38.0-beta.0)"
    assert not recwarn


@pytest.mark.parametrize("text", ["v1.38.0", "v1.38.4-eks-1", "1.38.0-rc.0"])
def test_what_is_out_later_than_the_preview_is_judged_by_it_with_a_word(text):
    with pytest.warns(
        AlignupWarning, match=rf"kubelet {text} is judged by a preview of its release"
    ):
        assert parse_version(text) == KubeletVersion(38)


def test_the_default_is_out_and_previews_are_not():
    assert NEWEST in RELEASED
    assert {*RELEASED, *PREVIEWS} == {*KNOWN_VERSIONS}
    assert NEWEST.title == str(NEWEST)
    for version in KNOWN_VERSIONS:
        source = read_table(f"releases/{version}")["source"]
        assert PREVIEWS.get(version) == (source if "-" in source else None)


def test_several_versions_come_once_each():
    assert parse_versions("1.33, v1.33.2,1.36") == (KubeletVersion(33), KubeletVersion(36))


def test_the_newest_profile_is_the_default_one():
    assert profile_of(NEWEST, effective_gates(None, NEWEST)) == VersionProfile()


@pytest.mark.parametrize(
    ("minor", "over_all", "checked", "down", "pod_level", "status", "newer"),
    [
        (29, True, False, True, PodLevel.IGNORED, StatusRequests.NOBODY, False),
        (31, True, False, True, PodLevel.IGNORED, StatusRequests.NOBODY, False),
        (32, True, True, True, PodLevel.IGNORED, StatusRequests.NOBODY, False),
        (33, True, True, True, PodLevel.IGNORED, StatusRequests.WITH_SIDECARS, False),
        (34, True, True, False, PodLevel.SHARES, StatusRequests.WITH_SIDECARS, False),
        (35, True, True, False, PodLevel.SHARES, StatusRequests.NOBODY, False),
        (36, False, True, False, PodLevel.SHARES, StatusRequests.NOBODY, False),
        (37, False, True, False, PodLevel.SHARES, StatusRequests.NOBODY, True),
    ],
)
def test_each_release_has_its_profile(minor, over_all, checked, down, pod_level, status, newer):
    version = KubeletVersion(minor)
    assert profile_of(version, effective_gates(None, version)) == VersionProfile(
        device_hints_over_all_nodes=over_all,
        memory_groups_checked=checked,
        odd_l3_rest_rounds_down=down,
        pods=PodReading(pod_level, status, newer, newer, claimed_devices_left_out=minor > 35),
        distribution_prefers_one_socket=newer,
        memory_only_where_requested=newer,
        state_before_smt_check=newer,
    )


@pytest.mark.parametrize(
    ("minor", "gates", "reading"),
    [
        (
            33,
            {"PodLevelResources": True},
            replace(AS_1_34, pod_level=PodLevel.SETS_QOS),
        ),
        (
            34,
            {"PodLevelResources": False},
            replace(AS_1_34, pod_level=PodLevel.IGNORED),
        ),
        (
            31,
            {"InPlacePodVerticalScaling": True},
            replace(AS_1_34, pod_level=PodLevel.IGNORED, from_status=StatusRequests.CONTAINERS),
        ),
        (
            34,
            {"InPlacePodVerticalScaling": False},
            replace(AS_1_34, from_status=StatusRequests.NOBODY),
        ),
        (35, {"DRAExtendedResource": False}, replace(AS_1_34, from_status=StatusRequests.NOBODY)),
        (
            35,
            {"DRAExtendedResource": True},
            replace(AS_1_34, from_status=StatusRequests.NOBODY, claimed_devices_left_out=True),
        ),
        (
            36,
            {"PodLevelResourceManagers": True},
            PodReading(PodLevel.MANAGED, StatusRequests.NOBODY, False, False),
        ),
        (37, {"PodLevelResourceManagers": True}, PodReading(PodLevel.MANAGED)),
        (37, {"AllBeta": True}, PodReading(PodLevel.MANAGED)),
        (
            37,
            {"PodLevelResourcesFixKubeletQOSClass": False},
            PodReading(empty_pod_resources_ignored=False),
        ),
        (
            37,
            {"PodLevelResourcesFixDefaulting": False},
            PodReading(pod_limits_defaulted_by_api_server=False),
        ),
    ],
)
def test_gates_change_how_pods_are_read(minor, gates, reading):
    version = KubeletVersion(minor)
    assert profile_of(version, effective_gates(gates, version)).pods == reading


def rows_of(page: str) -> dict[str, list[str]]:
    """Return the rows of tables whose first cell is a word in backticks, by that word."""
    rows = re.findall(r"^\| `([\w-]+)` \|(.*)\|$", page, re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}


def test_the_page_lists_every_rule_with_its_releases_and_source():
    rows = rows_of(PAGE)
    named = {
        version: release_of(version).rules | release_of(version).faults
        for version in KNOWN_VERSIONS
    }
    rules = set().union(*named.values())
    for name in rules:
        holding = [version for version in KNOWN_VERSIONS if name in named[version]]
        releases = str(holding[0])
        if len(holding) > 1:
            releases += f"-{holding[-1]}"

        assert rows[name][0] == releases, name
        assert all(rows[name]), name
    assert {name for name in rows if "_" in name} == rules


def test_the_page_lists_every_option_with_its_stages():
    rows = rows_of(PAGE)
    releases = {version: release_of(version) for version in KNOWN_VERSIONS}
    stages = {
        version: {**release.cpu_options, **release.topology_options}
        for version, release in releases.items()
    }
    for name in set().union(*stages.values()):
        assert rows[name] == [stages[version].get(name, "-") for version in KNOWN_VERSIONS], name


def test_the_page_lists_every_gate():
    assert rows_of(PAGE).keys() >= known_names("managerGates")
