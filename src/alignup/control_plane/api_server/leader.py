"""Leader election by a Lease, by the rules of client-go.

One of several processes leads, the others stand by. A leader renews its lease, and leads no longer,
by its own clock, when it could not for a while: before anybody else may take over. A candidate
takes over when it has seen no change of the lease for as long as the lease says, by its own clock,
so that clocks need not agree. Each write names the version that was read: of two candidates one
succeeds.
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
from alignup.errors import AlignupError
from alignup.kubernetes.wire import Metadata
from alignup.records import Record
from alignup.text.json_text import decode_json

_LOG: Final = logging.getLogger(__name__)
# The label of the pod that leads: the Service selects it.
LEADER: Final = "alignup.dev/leader"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces"
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
        self._seen_at = 0.0
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
        """The identity of the process that leads, as far as it is known; empty: none."""
        return self._seen.holder_identity

    async def run(self) -> None:
        """Try to lead, and go on leading, until cancelled.

        Then let another process take over at once.
        """
        try:
            while True:
                led = self.leads
                try:
                    async with asyncio.timeout(self.terms.renew):
                        await self._try()
                except (AlignupError, TimeoutError) as error:
                    self._api.complain(f"lease {self._name}: {str(error) or 'no answer'}")

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
            if is_settled and lease.spec.holder_identity == self.identity:
                _LOG.info("lease %s: this process gives it back", self._name)
                moment = now(precise=True)
                free = _Spec("", 1, None, moment, lease.spec.lease_transitions)
                await self._put(free, lease.metadata.resource_version)

    async def _try(self) -> None:
        """Take or renew the lease if that is allowed.

        Raises:
            AlignupError: the server refuses, does not answer, or has something else under the name.
        """
        begun = self._clock()
        lease = await self._get()
        if lease.spec != self._seen:
            if lease.spec.holder_identity not in {self._seen.holder_identity, self.identity}:
                _LOG.info("lease %s: %s leads", self._name, lease.spec.holder_identity or "nobody")
            self._seen = lease.spec
            self._seen_at = self._clock()

        lasts = self._seen_at + lease.spec.lease_duration_seconds > self._clock()
        if lasts and lease.spec.holder_identity not in {"", self.identity}:
            self._renewed = float("-inf")  # its clock may have stood still
            return

        version = lease.metadata.resource_version
        spec = self._renewed_spec(lease)
        if not await self._put(spec, version):  # another process was faster
            return

        self._seen = spec
        self._seen_at = self._clock()
        if not self.leads:
            self.term += 1
            self.was_handed_over = bool(version) and not lease.spec.holder_identity
            _LOG.info(
                "lease %s: %s leads now, in its term %d", self._name, self.identity, self.term
            )

        self._renewed = begun  # not later than the server counts

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
            await self._api.request(method, path, body)
            return True

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
