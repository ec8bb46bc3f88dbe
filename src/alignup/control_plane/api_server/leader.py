"""Leader election by a Lease, by the rules of client-go.

One of several processes leads, the others stand by. A leader renews its lease, and leads no longer,
by its own clock, when it could not for a while: before anybody else may take over. A candidate
takes over when it has seen no change of the lease for as long as the lease says, by its own clock,
so that clocks need not agree. Each write names the version that was read: of two candidates one
succeeds.

A lease that is deleted or made shorter, or whose holder somebody takes out, is not free yet: who
led learns of it only when it reads the lease. It takes that again; others wait at least as long as
one of their own lasts, from the moment at which they saw it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final

import msgspec

from alignup.control_plane.api_server.api_client import (
    CONFLICT,
    MISSING,
    Api,
    accepting,
    now,
    object_path,
)
from alignup.control_plane.api_server.objects import decode_pod
from alignup.control_plane.api_server.watch import decode_list
from alignup.errors import AlignupError, sentence_of
from alignup.kubernetes.wire import Metadata
from alignup.records import Record
from alignup.text.json_text import decode_json

_LOG: Final = logging.getLogger(__name__)
# The label of the pod that leads: the Service selects it.
LEADER: Final = "alignup.dev/leader"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces"
# Seconds that a lease lasts which was given back: at least one.
_GIVEN_BACK: Final = 1
# Go on while the process or the machine is stopped.
_SECONDS: Final = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class Terms(Record):
    """Seconds of a lease; client-go has 15, 10 and 2.

    Attributes:
        lease: without a renewal after which another process may take over.
        renew: without a renewal after which the leader leads no longer.
        retry: between attempts; those of candidates come up to 1.2 times later at random, so that
            they do not meet.
    """

    lease: int = 10
    renew: float = 7.0
    retry: float = 1.5


class _Spec(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0

    @property
    def is_given_back(self) -> bool:
        """Whether its holder has given it back; one that was edited has more in it, or less."""
        is_emptied = not self.holder_identity and self.acquire_time is None
        is_renewed = self.renew_time is not None
        return is_emptied and is_renewed and self.lease_duration_seconds == _GIVEN_BACK


class _Lease(msgspec.Struct):
    metadata: Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


class Leader:
    """One candidate, which leads from time to time.

    Args:
        api: the API server.
        namespace: of the lease.
        name: of the lease.
        identity: of this process, unlike that of any other.
        terms: seconds.
        clock: seconds that never go back, nor stand still while the process is stopped.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        *,
        terms: Terms | None = None,
        clock: Callable[[], float] = _SECONDS,
    ) -> None:
        self.identity = identity
        self.terms = terms or Terms()
        self._api = api
        self._name = name
        self._namespace = namespace
        self._collection = f"{object_path(_LEASES, namespace)}/leases"
        self._clock = clock
        self._random = Random()  # noqa: S311  # pauses, not secrets

        # The lease as it was read last, and when it became so, by the clock.
        self._seen = _Spec()
        self._seen_at = float("-inf")
        self._renewed = float("-inf")

        # Asked by a process that ends before it gives the lease back; it keeps that if the answer
        # is no, or comes late.
        self.settle: Callable[[], Awaitable[bool]] | None = None
        # Counts how often this process began to lead.
        self.term = 0
        # Whether the process that led before has given the lease back, so that nothing of it is
        # still to come.
        self.was_handed_over = False

    @property
    def leads(self) -> bool:
        """Whether this process leads now: no other can, by any clock that runs as fast."""
        return self._clock() < self._renewed + self.terms.renew

    @property
    def holder(self) -> str:
        """The identity of the process that leads, as far as it is known; empty: none.

        It is one short line, whoever has written it.
        """
        return sentence_of(self._seen.holder_identity)

    async def run(self) -> None:
        """Try to lead, and go on leading, until cancelled.

        Then let another process take over at once. The same error is said once, until something
        else comes of a try.
        """
        fault = ""
        try:
            while True:
                led = self.leads
                try:
                    async with asyncio.timeout(self.terms.renew):
                        await self._try()
                    fault = ""
                except (AlignupError, TimeoutError) as error:
                    before, fault = fault, str(error) or "no answer"
                    if fault != before:
                        self._api.complain(f"lease {self._name}: {fault}")

                if led and not self.leads:
                    self._api.complain(f"lease {self._name}: this process leads no longer")

                pause = self.terms.retry
                if not self.leads:
                    pause *= 1 + 1.2 * self._random.random()
                await asyncio.sleep(pause)
        finally:
            if self.leads:
                self._renewed = float("-inf")
                with self._api.complaining(f"lease {self._name}: "), suppress(TimeoutError):
                    await self._give_back()

    async def confirm(self) -> None:
        """Read the lease, and lead no more if it is another's, or if that cannot be told.

        For one who has reason to doubt: the clock of a machine that is paused stands still.
        """
        if not self.leads:
            return

        holder = ""
        with self._api.complaining(f"lease {self._name}: "), suppress(TimeoutError):
            async with asyncio.timeout(self.terms.retry):
                holder = (await self._get()).spec.holder_identity

        if holder != self.identity:
            self._renewed = float("-inf")

    async def _give_back(self) -> None:
        """Write that the lease is free, if all is settled.

        Raises:
            AlignupError: as `_try`.
            TimeoutError: what is to be settled, or the server, takes too long.
        """
        async with asyncio.timeout(self.terms.lease - self.terms.renew):
            is_settled = self.settle is None or await self.settle()

        async with asyncio.timeout(self.terms.retry):
            lease = await self._get()
            while is_settled and lease.spec.holder_identity == self.identity:
                moment = now(precise=True)
                free = _Spec("", _GIVEN_BACK, None, moment, lease.spec.lease_transitions)
                if await self._put(free, lease.metadata.resource_version):
                    _LOG.info("lease %s: this process gives it back", self._name)
                    return

                # a renewal that was under way came first
                lease = await self._get()

    async def _try(self) -> None:
        """Take or renew the lease if that is allowed.

        Raises:
            AlignupError: the server refuses, does not answer, or has something else under the name.
        """
        begun = self._clock()
        lease = await self._get()
        holder = lease.spec.holder_identity
        if lease.spec != self._seen:
            is_news = holder not in {self._seen.holder_identity, self.identity}
            self._seen = lease.spec
            self._seen_at = self._clock()
            if is_news:
                _LOG.info("lease %s: %s leads", self._name, self.holder or "nobody")

        if holder != self.identity:
            led = self.leads
            self._renewed = float("-inf")  # its clock may have stood still
            if self._lasts(lease.spec) and (holder or not led):
                return

        version = lease.metadata.resource_version
        spec = self._renewed_spec(lease)
        if not await self._put(spec, version):  # another process was faster
            return

        self._seen = spec
        self._seen_at = self._clock()
        if not self.leads:
            self.term += 1
            self.was_handed_over = lease.spec.is_given_back
            _LOG.info(
                "lease %s: %s leads now, in its term %d", self._name, self.identity, self.term
            )

        self._renewed = begun  # not later than the server counts

    def _lasts(self, spec: _Spec) -> bool:
        """Return whether somebody may lead by a lease that is not of this process."""
        seconds = max(spec.lease_duration_seconds, self.terms.lease)
        if spec.is_given_back:
            seconds = 0
        return self._clock() - self._seen_at < seconds

    def _renewed_spec(self, lease: _Lease) -> _Spec:
        """Return what to write into a lease that this process takes or renews."""
        moment = now(precise=True)
        acquired: str | None = moment
        transitions = lease.spec.lease_transitions
        if lease.spec.holder_identity == self.identity:
            acquired = lease.spec.acquire_time
        elif lease.metadata.resource_version:
            transitions += 1

        return _Spec(self.identity, self.terms.lease, acquired, moment, transitions)

    async def _get(self) -> _Lease:
        """Return the lease; one without a version where there is none."""
        with accepting(MISSING):
            text = await self._api.request("GET", object_path(self._collection, self._name))
            return decode_json(text, "a Lease", kind=_Lease)

        return _Lease(Metadata())

    async def _put(self, spec: _Spec, version: str) -> bool:
        """Create the lease, or replace the version that was read.

        Return whether no other process was faster.

        Raises:
            AlignupError: the server refuses, or answers with something else than what was written.
        """
        metadata = {"name": self._name, "namespace": self._namespace, "resourceVersion": version}
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": spec,
        }
        method = "POST"
        path = self._collection
        if version:
            method = "PUT"
            path = object_path(self._collection, self._name)

        with accepting(CONFLICT):
            text = await self._api.request(method, path, body)
            written = decode_json(text, "the Lease that was written", kind=_Lease).spec
            return written.holder_identity == spec.holder_identity

        return False


async def label_leader(api: Api, namespace: str, name: str) -> None:
    """Label a pod as the one that leads, and take the label from all others.

    Raises:
        AlignupError: the server refuses, or does not answer.
    """
    pods = object_path("/api/v1/namespaces", namespace, "pods")
    text = await api.request("GET", pods, query={"labelSelector": f"{LEADER}=true"})
    labelled = {decode_pod(item).metadata.name for item in decode_list(text).items or ()}
    label_of: dict[str, str | None] = dict.fromkeys(sorted(labelled - {name}))
    label_of[name] = "true"
    for pod, label in label_of.items():
        body = {"metadata": {"labels": {LEADER: label}}}
        await api.request("PATCH", object_path(pods, pod), body)
