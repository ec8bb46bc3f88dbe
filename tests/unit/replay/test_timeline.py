"""A timeline shows after each step what the node holds then, and says what happened, without a script."""

from __future__ import annotations

import re

import pytest

from alignup import Node
from alignup.errors import InputError
from alignup.node.holdings import holdings_of
from alignup.pictures.overlay import holding_title
from alignup.replay.report_page import MOST_STEPS, replay_page, timeline
from alignup.replay.scenario import apply_step, read_steps
from pictures import HOSTILE, read_page, texts_of
from traces import scenario


def classes_of(style: str) -> list[set[str]]:
    """Return the classes that are shown after each step."""
    found = re.findall(r"\.stage :is\(([^)]*)\)", style)
    return [{name.removeprefix(".") for name in one.split(",")} for one in found]


def drawn(section) -> dict[str, str]:
    """Return the tooltip of each group that comes and goes, by its class."""
    return {
        one.get("class").split()[-1]: one.findtext("title", "")
        for one in section.iter("g")
        if "film" in (one.get("class") or "").split() and one.find("title") is not None
    }


@pytest.mark.parametrize("policy", ["none", "restricted"])
def test_each_step_shows_who_holds_what_then(policy: str) -> None:
    one = scenario(5, policy=policy)
    steps = read_steps(one)
    [section], style = timeline(0, one, steps)
    titles = drawn(section)
    node, refused = Node.from_dict(one), {}
    for step, classes in zip(steps, classes_of(style), strict=True):
        apply_step(node, step, refused)
        expected = {holding_title(each) for each in holdings_of(node).containers if each.cpus or each.devices}
        shown = {titles[name].partition(": ")[2] for name in classes & titles.keys()}
        assert shown == expected


def test_signs_of_pods_that_are_there_together_differ() -> None:
    one = scenario(6)
    [section], style = timeline(0, one, read_steps(one))
    legend = {
        entry.get("class").split()[-1]: entry.findtext("svg/text")
        for entry in section.iter("span")
        if "film" in entry.get("class")
    }
    for classes in classes_of(style):
        signs = [legend[name] for name in classes & legend.keys()]
        assert len(signs) == len(set(signs))


def test_every_step_has_a_button_a_label_and_a_panel() -> None:
    one = scenario(1)
    [section], style = timeline(3, one, read_steps(one))
    count = len(one["steps"])
    buttons = list(section.iter("input"))
    checked = [one.get("id") for one in buttons if one.get("checked")]

    assert [one.get("id") for one in buttons] == [f"t3s{index}" for index in range(count)]
    assert len([one for one in section.iter("label") if one.get("class")]) == count
    assert style.count(".panels .d") == count
    refused = [one.get("for") for one in section.iter("label") if one.get("class") == "refused"]
    assert checked == refused[:1]


def test_a_long_scenario_is_cut_and_says_so() -> None:
    steps = [{"admit": {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c"}]}}}, {"remove": "default/x"}]
    one = scenario(0, steps=0) | {"steps": steps * MOST_STEPS}
    [section], _ = timeline(0, one, read_steps(one))

    assert f"the first {MOST_STEPS} of {2 * MOST_STEPS} steps" in texts_of(section)


def test_a_scenario_without_steps_shows_the_machine() -> None:
    [section], style = timeline(0, scenario(0, steps=0), [])

    assert style == ""
    assert section.find(".//svg") is not None


def test_starts_and_removals_of_refused_pods_are_told() -> None:
    one = scenario(0, steps=0)
    big = {"metadata": {"name": "big", "uid": "big"}, "spec": {"containers": [{"name": "c"}]}}
    big["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "64", "memory": "1Gi"}}
    small = {"metadata": {"name": "small", "uid": "small"}, "spec": {"containers": [{"name": "c"}]}}
    steps = [{"admit": big}, {"remove": "big"}, {"admit": small}, {"start": "small", "container": "c"}]
    [section], _ = timeline(0, one, read_steps({"steps": steps}))
    told = " ".join(texts_of(section))

    assert "default/big refused: TopologyAffinityError" in told
    assert "big is removed, which was refused" in told
    assert "default/small admitted" in told
    assert "container c of small starts" in told


def test_hostile_names_stay_text() -> None:
    one = scenario(0, steps=20)
    one["steps"] = [step for step in one["steps"] if "admit" in step]
    for number, step in enumerate(one["steps"]):
        step["admit"]["metadata"] = {"name": HOSTILE, "uid": f"{HOSTILE}{number}"}
    page = replay_page([{**one, "name": HOSTILE}], 1, None)

    assert set(read_page(page).tags).isdisjoint({"script", "img", "link"})
    assert page.count("<style>") == 2  # of the page, and of the picture


def test_a_step_that_cannot_be_is_named() -> None:
    with pytest.raises(InputError, match=r"^steps\[0\]: "):
        timeline(0, scenario(0, steps=0), read_steps({"steps": [{"remove": "nobody"}]}))


def test_a_page_of_many_scenarios_says_how_many_it_shows() -> None:
    stuck = scenario(1) | {"kubelet": {"cpuManagerPolicy": "static", "reservedSystemCPUs": "99"}}
    page = replay_page([scenario(0), stuck], 7, None)

    assert "the first 2 of 7 scenarios" in page
    assert "the kubelet would not start: expected CPUs" in page
