"""The lock of a manager: forks, and calls from within."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from alignup.core.amounts.changes import ManagerLock
from alignup.errors import PodExistsError
from alignup.topology_manager.manager import TopologyManager
from alignup.topology_manager.policy import make_policy
from fakes.hint_providers import Licences, pod_of


class Meddling(Licences):
    """A provider that calls the manager back when it is asked, or when it takes something back."""

    def __init__(self, free: list[int], when: str, call: Any) -> None:
        super().__init__(free)
        self.when, self.call = when, call
        self.manager: TopologyManager | None = None

    def topology_hints(self, pod: Any, container: Any) -> Any:
        if self.when == "topology_hints":
            self.call(self.manager, pod)
        return super().topology_hints(pod, container)

    def release(self, pod_uid: str, container_name: str) -> None:
        super().release(pod_uid, container_name)
        if self.when == "release":
            self.call(self.manager, pod_of(pod_uid))


CALLS = {
    "the same pod": lambda manager, pod: manager.admit(pod),
    "another pod": lambda manager, _: manager.admit(pod_of("other")),
    "removal": lambda manager, _: manager.remove("first"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("when", ["topology_hints", "release"])
def test_a_provider_that_calls_back_is_refused(when: str, call: str) -> None:
    """The manager and its providers are as before."""
    provider = Meddling([4, 4], "never", CALLS[call])
    manager = TopologyManager(make_policy("restricted", 2), "container", [provider])
    provider.manager = manager
    manager.admit(pod_of("first"))
    free = list(provider.free)
    provider.when = when
    with pytest.raises(RuntimeError, match="a provider must not call"):
        manager.admit(pod_of("second")) if when == "topology_hints" else manager.remove("first")

    provider.when = "never"
    if when == "topology_hints":
        assert [pod.uid for pod in manager.pods] == ["first"]
        assert provider.free == free

    assert manager.admit(pod_of("second")).admitted
    with pytest.raises(PodExistsError):
        manager.admit(pod_of("second"))


def status_of_child(work: Any) -> int:
    """Return how a child that does some work ends.

    0, or 1 for an error that says what it should.
    """
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            work()
            status = 0
        except RuntimeError as error:
            status = 1 if "when this process was forked" in str(error) else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def enter(lock: ManagerLock) -> None:
    with lock:
        pass


def test_a_child_of_a_process_where_another_thread_is_inside_is_refused() -> None:
    """It would wait for ever; what it waits for is half changed."""
    lock = ManagerLock(patience=0.05)
    inside, done = threading.Event(), threading.Event()

    def work() -> None:
        with lock:
            inside.set()
            done.wait()

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    try:
        assert status_of_child(lambda: enter(lock)) == 1
    finally:
        done.set()
        thread.join()

    assert status_of_child(lambda: enter(lock)) == 0
    enter(lock)


def test_a_child_that_is_forked_inside_goes_on() -> None:
    """It has the lock as its parent has."""
    lock = ManagerLock()
    with lock:
        assert status_of_child(lambda: enter(lock)) == 0
