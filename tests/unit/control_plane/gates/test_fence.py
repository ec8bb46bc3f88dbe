"""What a new leader writes into objects, and how it learns there that another one leads."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from alignup.control_plane.api_server.api_client import ApiError, Pauses
from alignup.control_plane.gates.fence import Fence
from alignup.control_plane.gates.waiting_pods import SEEN_BY

if TYPE_CHECKING:
    from collections.abc import Callable

BUSY = ApiError("too many requests", 429)
FORBIDDEN = ApiError("forbidden", 403)
INVALID = ApiError("invalid", 422)
FAILED = ApiError("failed", 500)
MISSING = ApiError("not found", 404)


class Scene:
    """A leader, and an API server that answers by the path: the last answer again and again."""

    def __init__(self, answers: dict[str, list[ApiError | None]] | None = None) -> None:
        self.now = 0.0
        self.written: list[tuple[str, dict[str, Any]]] = []
        self.complaints: list[str] = []
        self.confirmed = 0
        self.after_request: Callable[[], object] = lambda: None
        self._answers = answers or {}
        self.leader: Any = SimpleNamespace(
            identity="me",
            term=7,
            leads=True,
            terms=SimpleNamespace(lease=15.0, renew=10.0),
            confirm=self._confirm,
        )
        api: Any = SimpleNamespace(pauses=Pauses(0.0, 0.0), complain=self.complaints.append)
        patches: Any = SimpleNamespace(turns=asyncio.Semaphore(2), send_once=self._send_once)
        self.fence = Fence(api, self.leader, patches, lambda: self.now)

    async def _confirm(self) -> None:
        self.confirmed += 1

    async def _send_once(self, path: str, body: dict[str, Any]) -> None:
        self.now += 1.0
        self.after_request()
        answers = self._answers.get(path, [None])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is not None:
            raise answer
        self.written.append((path, body))

    def write(self, *paths: str, removed: tuple[str, ...] = ()) -> None:
        """Let the leader write into objects."""
        asyncio.run(self.fence.write_into("objects", dict.fromkeys(paths, removed)))


def test_each_object_says_who_leads_in_which_term() -> None:
    scene = Scene({"/b": [BUSY, FAILED, None], "/gone": [MISSING]})
    scene.write("/a", "/b", "/gone", removed=("old",))
    annotations = {"old": None, SEEN_BY: "me/7"}
    assert sorted(scene.written, key=lambda entry: entry[0]) == [
        (path, {"metadata": {"annotations": annotations}}) for path in ("/a", "/b")
    ]
    assert sorted(scene.complaints) == ["failed", "too many requests"]


@pytest.mark.parametrize("refusal", [FORBIDDEN, INVALID, FAILED])
def test_an_object_into_which_nobody_may_write_stops_no_other(refusal) -> None:
    scene = Scene({"/a": [refusal]})
    scene.write("/a", "/b")
    assert [path for path, _ in scene.written] == ["/b"]
    assert scene.complaints[-1] == f"1 of 2 objects cannot be written into: {refusal}"
    assert scene.now < 20


def test_a_leader_that_may_write_into_none_does_not_begin() -> None:
    scene = Scene({"/a": [FORBIDDEN], "/b": [INVALID]})
    with pytest.raises(ApiError, match="forbidden"):
        scene.write("/a", "/b")
    # each of them may be one that the server takes from nobody
    Scene({"/a": [INVALID], "/b": [INVALID]}).write("/a", "/b")


@pytest.mark.parametrize("change", [{"leads": False}, {"term": 8}])
def test_who_leads_no_more_does_not_begin(change) -> None:
    scene = Scene({"/a": [BUSY]})
    scene.after_request = lambda: vars(scene.leader).update(change)
    with pytest.raises(ApiError, match="did not lead for long enough"):
        scene.write("/a")
    assert not scene.written
    assert scene.now == 1


def test_the_lease_is_asked_once_for_each_other_leader() -> None:
    scene = Scene()
    scene.fence.begin(["earlier/1"])
    for seen_by in ("", "earlier/1", "me/6", "me/7", "x" * 513):
        scene.fence.seen(seen_by)
    asyncio.run(scene.fence.confirm())
    assert scene.confirmed == 0

    for _ in range(2):
        scene.fence.seen("other/8")
        asyncio.run(scene.fence.confirm())
    assert scene.confirmed == 1

    scene.fence.begin([])
    scene.fence.seen("other/8")
    asyncio.run(scene.fence.confirm())
    assert scene.confirmed == 2


def test_so_many_names_are_remembered_and_no_more() -> None:
    scene = Scene()
    scene.fence.begin(f"earlier/{number}" for number in range(1_000))
    for _ in range(2):
        scene.fence.seen("other/8")
        asyncio.run(scene.fence.confirm())
    assert scene.confirmed == 2
