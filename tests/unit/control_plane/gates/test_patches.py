"""A patch is sent until it is known what became of it, and no longer."""

from __future__ import annotations

import asyncio

import pytest

from alignup.control_plane.api_server.api_client import ApiError, Pauses
from alignup.control_plane.gates.patches import Patches

TAKEN = b'{"metadata": {}}'
NO_ANSWER = ApiError("no answer")
FAILED = ApiError("etcdserver: request timed out", 500)
NO_WEBHOOK = ApiError("failed calling webhook", 500, is_webhooks=True)
BUSY = ApiError("too many requests", 429)
FORBIDDEN = ApiError("forbidden", 403)
INVALID = ApiError("invalid", 422)
CONFLICT = ApiError("conflict", 409)
MISSING = ApiError("not found", 404)


class ScriptedApi:
    """An API server that answers as it is told; after each answer some time goes by."""

    def __init__(self, *answers: ApiError | bytes, seconds: float = 10.0) -> None:
        self.pauses = Pauses(first=0.0, longest=0.0)
        self.now = 0.0
        self.complaints: list[str] = []
        self._answers = list(answers)
        self._seconds = seconds

    def complain(self, line: str) -> None:
        """Take what went wrong."""
        self.complaints.append(line)

    async def request(self, *_: object, **__: object) -> bytes:
        """Answer; the last answer comes again and again."""
        self.now += self._seconds
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, ApiError):
            raise answer
        return answer


def sent(api: ScriptedApi, until: float = 1000.0) -> tuple[ApiError | None, bool]:
    """Send a patch; return what ended it, and whether it may still be carried out."""
    patches = Patches(api, None, lambda: api.now)  # type: ignore[arg-type]  # as far as it is used

    async def send() -> None:
        async with patches.turns:
            await patches.send("/x", {}, lambda: api.now < until)

    try:
        asyncio.run(send())
    except ApiError as error:
        return error, patches.has_unanswered
    return None, patches.has_unanswered


@pytest.mark.parametrize(
    ("answers", "seconds"),
    [
        ((NO_ANSWER, FAILED, BUSY, NO_WEBHOOK, TAKEN), 50),
        ((NO_ANSWER, FORBIDDEN, TAKEN), 20),  # who refuses may take it later
        ((NO_WEBHOOK,) * 4 + (TAKEN,), 50),
    ],
)
def test_a_patch_is_sent_until_it_is_taken(answers, seconds) -> None:
    api = ScriptedApi(*answers)
    assert sent(api) == (None, False)
    assert api.now == pytest.approx(seconds, abs=20)


@pytest.mark.parametrize(
    ("answers", "is_over_at"),
    [
        ((FORBIDDEN,), 10),
        ((INVALID,), 10),
        ((BUSY, CONFLICT), 20),
        # what was not answered finds another version, or no object
        ((NO_ANSWER, CONFLICT), 20),
        ((FAILED, MISSING), 20),
        # nothing was stored, and nothing will be
        ((NO_WEBHOOK,), 60),
        ((BUSY, NO_WEBHOOK), 60),
    ],
)
def test_a_patch_of_which_nothing_can_come_late_is_given_up(answers, is_over_at) -> None:
    api = ScriptedApi(*answers)
    assert sent(api) == (answers[-1], False)
    assert api.now == is_over_at


@pytest.mark.parametrize("refusal", [FORBIDDEN, INVALID, NO_WEBHOOK])
@pytest.mark.parametrize("first", [NO_ANSWER, FAILED])
def test_a_refusal_says_nothing_of_what_was_not_answered_before(first, refusal) -> None:
    api = ScriptedApi(first, refusal)
    assert sent(api) == (refusal, True)
    assert api.now == 130
    assert len(api.complaints) == 12


@pytest.mark.parametrize("answers", [(NO_ANSWER,), (NO_WEBHOOK, NO_ANSWER), (FAILED,)])
def test_a_patch_that_nobody_answers_is_sent_as_long_as_it_counts(answers) -> None:
    assert sent(ScriptedApi(*answers), until=995.0) == (answers[-1], True)


def test_an_answer_that_is_of_no_such_server_is_no_answer() -> None:
    api = ScriptedApi(b"<html>", TAKEN)
    assert sent(api) == (None, False)
    assert "PATCH /x" in api.complaints[0]
