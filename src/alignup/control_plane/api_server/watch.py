"""Follows a kind of objects on an API server.

It lists them, watches what changes, and lists again after a gap. A dropped connection is resumed
from the last version that was seen, bookmarks included; a version that is too old (410 Gone) leads
to a new list. Errors, and watches that end at once without an event, lead to ever longer pauses, as
in client-go. A list from time to time makes up for lost events. An object that cannot be read is
ignored.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Generic, Protocol, TypeVar

import aiohttp
import msgspec

from alignup.control_plane.api_server.api_client import (
    FORBIDDEN,
    GONE,
    MISSING,
    Api,
    ApiError,
    Pauses,
    Status,
)
from alignup.errors import AlignupError, InputError
from alignup.records import Record
from alignup.text.json_text import decode_json, is_too_deep, without_depths

T = TypeVar("T")
_D = TypeVar("_D")
_LOG: Final = logging.getLogger(__name__)
_PAGE: Final = 500
_WATCH_SECONDS: Final = 300
# Seconds after which a connection that is not made is given up, and a watch that goes on although
# the server was told to end it: one timer, where one that waits for silence begins anew with each
# part of an event.
_TOO_LATE: Final = 60.0
# Seconds within which a watch that ends without an event is as good as an error.
_SHORT: Final = 1.0
# What an event can say of an object.
_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
# The version that asks for what the server remembers, which may be behind and costs it little.
_ANY_VERSION: Final = {"resourceVersion": "0"}
# Of one list: five million objects.
_MOST_PAGES: Final = 10_000
# Bytes of an event: etcd takes no object of more than some MiB.
_LONGEST_LINE: Final = 64 << 20
# Levels of nesting that are kept of an object that nests too deeply; objects of a cluster have
# about ten.
_LEVELS: Final = 64


class _Meta(msgspec.Struct, rename="camel"):
    """Of an object, or of a list of them; what an object does not have may be null."""

    name: str | None = ""
    namespace: str | None = ""
    resource_version: str | None = ""
    next_page: str = msgspec.field(name="continue", default="")


class ObjectList(msgspec.Struct, Generic[T]):
    """A list of objects on the wire, or a page of one.

    Objects of the type `msgspec.Raw` are text still.
    """

    metadata: _Meta = msgspec.field(default_factory=_Meta)
    items: list[T] | None = None


class _Event(msgspec.Struct, Generic[T]):
    """What a watch tells: how an object has changed, and the object, decoded or as text."""

    type: str
    object: T


class _Versioned(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class Sink(Protocol[T]):
    """A place for the objects of one kind."""

    def listed(self, items: list[T]) -> None:
        """Take in all objects that there are."""

    def changed(self, item: T) -> None:
        """Take in an object that is new or changed."""

    def gone(self, item: T) -> None:
        """Take in an object that was deleted, or that the query no longer selects."""


class Calls(Record, Generic[T]):
    """A sink that hands objects to three functions."""

    listed: Callable[[list[T]], None]
    changed: Callable[[T], None]
    gone: Callable[[T], None]


class Backoff:
    """Ever longer pauses, until something succeeds."""

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses
        self.reset()

    def reset(self) -> None:
        """Begin anew with the shortest pause."""
        self._next = self._pauses.first

    async def pause(self) -> None:
        """Wait, twice as long as the last time."""
        await asyncio.sleep(self._next)
        self._next = min(2 * self._next, self._pauses.longest)


class Follower(Generic[T]):
    """Follows the objects under one path.

    Args:
        api: the server.
        path: of the list.
        decode: makes an object of its JSON; an object of which it raises `AlignupError` is ignored.
        kind: a type of which `decode` takes values too, with the metadata of objects: pages and
            events of it are read in one step where that can be done.
        sink: where objects go.
        query: selectors.
        is_optional: do without objects that the server does not have, or does not show.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        decode: Callable[[Any], T],
        sink: Sink[T],
        *,
        kind: Any = msgspec.Raw,
        query: Mapping[str, str] | None = None,
        is_optional: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._path = path
        self._decode = decode
        self._sink = sink
        self._kind = kind
        self._event_decoder = msgspec.json.Decoder(_Event[kind])
        self._query = dict(query or {})
        self._is_optional = is_optional
        self._clock = clock

        # Of the newest object, or list, that was seen.
        self._version = ""
        # By name, the version of each object that was said to be ignored.
        self._ignored: dict[str, str] = {}
        # Set once the first list is there.
        self.synced = asyncio.Event()
        # How many times all objects were listed.
        self.lists = 0
        # When the newest list began, by the clock.
        self.list_began = 0.0
        # Whether it is what the server remembered: no older than any event that was seen before.
        self.list_is_cached = False

        # Those who wait for a list that begins after their call, and whether a cached one will do.
        self._list_calls: list[tuple[asyncio.Future[None], bool]] = []
        self._until_resync: asyncio.Timeout | None = None

    async def list_again(self, *, cached: bool = False) -> None:
        """Wait until all objects were listed once more, by a list that begins after this call.

        Args:
            cached: be content with what the server remembers, which costs it little; it is listed
                in full all the same where that is older than what was seen already.
        """
        done = asyncio.get_running_loop().create_future()
        self._list_calls.append((done, cached))
        if self._until_resync is not None:
            with suppress(RuntimeError):  # it is over at this very moment
                self._until_resync.reschedule(0)

        await done

    async def run(self) -> None:
        """Follow until cancelled."""
        backoff = Backoff(self._api.pauses)
        while True:
            try:
                await self._list()
                seconds = 0 if self._list_calls else self._api.pauses.resync
                async with asyncio.timeout(seconds) as self._until_resync:
                    await self._watch_on(backoff)
            except TimeoutError:
                continue  # time for another list
            except (ApiError, InputError) as error:
                if not isinstance(error, ApiError):
                    self._api.complain(f"{self._path}: {error}")
                elif error.status == GONE:
                    _LOG.info(
                        "a gap in the watch of %s, which is listed again: %s", self._path, error
                    )
                else:
                    self._api.complain(str(error))
                    if self._is_optional and error.status in {FORBIDDEN, MISSING}:
                        self._sink.listed([])
                        self.synced.set()
                        await asyncio.sleep(self._api.pauses.resync)

                await backoff.pause()
            finally:
                self._until_resync = None

    async def _list(self) -> None:
        """List all objects, and let those go on who wait for that."""
        list_calls = list(self._list_calls)
        self.list_is_cached = bool(list_calls) and all(cached for _, cached in list_calls)
        self.list_began = self._clock()
        objects, version = await self._fetch()
        if self.list_is_cached and _is_older(version, self._version):
            self.list_is_cached = False
            self.list_began = self._clock()
            objects, version = await self._fetch()

        self._version = version
        self._sink.listed(objects)
        self.lists += 1
        _LOG.info(
            "listed %s: %d objects in %.3f seconds",
            self._path,
            len(objects),
            self._clock() - self.list_began,
        )
        self.synced.set()
        for list_call in list_calls:
            self._list_calls.remove(list_call)
            done, _ = list_call
            if not done.done():
                done.set_result(None)

    async def _fetch(self) -> tuple[list[T], str]:
        """Return all objects and their version, page by page: only what is decoded stays."""
        objects: list[T] = []
        version = ""
        ignored_before = self._ignored
        self._ignored = {}  # those that are gone are forgotten

        query = self._query
        if self.list_is_cached:
            query = {**query, **_ANY_VERSION}
        async for page in _pages(self._api, self._path, query, self._kind):
            for item in page.items or ():
                decoded_object = self._read(item, ignored_before)
                if decoded_object is not None:
                    objects.append(decoded_object)

            version = page.metadata.resource_version or ""

        return objects, version

    async def _watch_on(self, backoff: Backoff) -> None:
        """Watch, and go on after connections that end or drop; return never.

        The pauses begin anew after a watch that brought an event or lasted for a while.

        Raises:
            ApiError: the version is gone, or the server does not let us watch.
            InputError: something came that is no event.
        """
        while True:
            version = self._version
            begun = self._clock()
            is_good = True
            try:
                await self._watch()
            except ApiError as error:
                if error.status == GONE:
                    raise
                self._api.complain(str(error))
                is_good = False
            finally:
                was_short = self._clock() < begun + _SHORT and self._version == version
                if not was_short:
                    backoff.reset()

            if was_short or not is_good:
                await backoff.pause()

    async def _watch(self) -> None:
        query = {
            **self._query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        limits = aiohttp.ClientTimeout(total=_WATCH_SECONDS + _TOO_LATE, sock_connect=_TOO_LATE)

        async with self._api.open("GET", self._path, None, query, limits) as response:
            async for line in _lines(response):
                self._take(self._event(line))

    def _event(self, line: bytes) -> _Event[Any]:
        """Return an event; its object is text where it cannot be read in one step.

        Raises:
            InputError: it is none.
        """
        if self._kind is not msgspec.Raw:
            with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
                decoded_event = self._event_decoder.decode(line)
                if decoded_event.type in _CHANGES:  # others are about objects of other kinds
                    return decoded_event

        event = _decoded(line, "an event", _Event[msgspec.Raw])
        event.object = _shallow(event.object)
        return event

    def _take(self, event: _Event[Any]) -> None:
        """Take in one event.

        Raises:
            ApiError: the event says that the watch cannot go on.
            InputError: the event says so, and not why.
        """
        if event.type == "ERROR":
            status = decode_json(event.object, "a Status", kind=Status)
            raise ApiError(f"watch of {self._path}: {status.code}: {status.message}", status.code)

        if event.type in _CHANGES:
            decoded_object = self._read(event.object, self._ignored)
            is_deleted = event.type == "DELETED"
            if decoded_object is None and is_deleted:  # only a list tells which object it was
                raise ApiError(f"watch of {self._path}: a deleted object cannot be read", GONE)

            if decoded_object is not None and is_deleted:
                self._sink.gone(decoded_object)
            elif decoded_object is not None:
                self._sink.changed(decoded_object)

        version = _version_of(event.object)
        if version:
            self._version = version

    def _read(self, data: Any, ignored_versions: Mapping[str, str]) -> T | None:
        """Return an object; None if it cannot be read.

        Then there is a complaint, if there was none of this version.
        """
        try:
            return self._decode(data)
        except AlignupError as error:
            meta = _meta(msgspec.json.encode(data))
            name = "/".join(filter(None, (meta.namespace, meta.name))) or "without a name"
            version = meta.resource_version or ""
            if ignored_versions.get(name) != version:
                self._api.complain(f"{self._path}: the object {name} is ignored: {error}")
            self._ignored[name] = version
            return None


async def _pages(
    api: Api, path: str, query: Mapping[str, str], kind: Any = msgspec.Raw
) -> AsyncIterator[ObjectList[Any]]:
    """Yield the pages of a list.

    Raises:
        AlignupError: the server refuses, does not answer, with no list, or with pages that do not
            come to an end.
    """
    query = {**query, "limit": str(_PAGE)}
    earlier_marks: set[object] = set()
    for _ in range(_MOST_PAGES):
        page = decode_list(await api.request("GET", path, query=query), kind)
        token = page.metadata.next_page
        marks: set[object] = {token}
        if page.items:
            marks.add(hash(msgspec.json.encode(page.items[0])))
        if not marks.isdisjoint(earlier_marks):
            raise InputError(f"a list of {path} has pages that repeat")

        yield page
        if not token:
            return

        earlier_marks |= marks
        query.pop("resourceVersion", None)  # the token has it
        query["continue"] = token

    raise InputError(f"a list of {path} has more than {_MOST_PAGES} pages")


def _version_of(item: Any) -> str:
    """Return the version of an object, in text or decoded; empty: it has none."""
    metadata = _meta(item) if isinstance(item, msgspec.Raw) else item.metadata
    return "" if metadata is None else metadata.resource_version or ""


def _is_older(version: str, seen: str) -> bool:
    """Return whether a version is from before another one, as numbers tell (KEP-5504)."""
    if not version.isdecimal() or not seen.isdecimal():
        return version != seen
    return int(version) < int(seen)


async def list_objects(
    api: Api, path: str, query: Mapping[str, str] | None = None
) -> AsyncIterator[msgspec.Raw]:
    """Yield all objects under a path, as they are now.

    Raises:
        AlignupError: the server refuses, does not answer, or with no list.
    """
    async for page in _pages(api, path, query or {}):
        for item in page.items or ():
            yield item


def decode_list(text: bytes, kind: Any = msgspec.Raw) -> ObjectList[Any]:
    """Return a list of objects of some type; of text, if one of them cannot be read so.

    Values in text that are nested beyond measure are null.

    Raises:
        InputError: it is none.
    """
    if kind is not msgspec.Raw:
        with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
            return msgspec.json.decode(text, type=ObjectList[kind])

    page = _decoded(text, "a list of objects", ObjectList[msgspec.Raw])
    page.items = [_shallow(item) for item in page.items or ()]
    return page


def _decoded(text: bytes, expected: str, kind: type[_D]) -> _D:
    """Return what a text says.

    What is nested so deeply in it that the interpreter cannot pass over it is left out.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        text = without_depths(text, _LEVELS)
    except (msgspec.MsgspecError, UnicodeError):
        pass

    return decode_json(text, expected, kind=kind)


def _shallow(data: msgspec.Raw) -> msgspec.Raw:
    """Return the text of an object, without what is nested more deeply than any text is read."""
    text = bytes(data)
    if is_too_deep(text):
        return msgspec.Raw(without_depths(text, _LEVELS))
    return data


def _meta(data: bytes | msgspec.Raw) -> _Meta:
    """Return what there is of an object's metadata, of which all may be missing."""
    with suppress(InputError):
        return decode_json(data, "an object", kind=_Versioned).metadata
    return _Meta()


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the lines of a body; a last one without an end was cut off and is left out.

    Raises:
        InputError: one is longer than any event.
    """
    unfinished = b""
    async for chunk in response.content.iter_any():
        *lines, unfinished = (unfinished + chunk).split(b"\n")
        if len(unfinished) > _LONGEST_LINE:
            raise InputError(f"an event of more than {_LONGEST_LINE} bytes")
        for line in lines:
            if line.strip():
                yield line
