"""The lock of a manager: forks, calls from within, and work that an exception interrupts."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from alignup.core.amounts.changes import ManagerLock, release_all
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
    begin = {
        "topology_hints": lambda: manager.admit(pod_of("second")),
        "release": lambda: manager.remove("first"),
    }
    with pytest.raises(RuntimeError, match="a provider must not call"):
        begin[when]()

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
    with lock.guard() as guard, guard.take():
        pass


def test_a_child_of_a_process_where_another_thread_is_inside_is_refused() -> None:
    """It would wait for ever; what it waits for is half changed."""
    lock = ManagerLock(patience=0.05)
    inside, done = threading.Event(), threading.Event()

    def work() -> None:
        with lock.guard() as guard, guard.take():
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
    with lock.guard() as guard, guard.take():
        assert status_of_child(lambda: enter(lock)) == 0


class Interrupted(BaseException):
    """What a signal handler raises, say."""


class Failing:
    """Something to call that raises so many times before it succeeds, and notes its calls."""

    def __init__(self, *errors: BaseException, returns: object = None) -> None:
        self.errors = list(errors)
        self.returns = returns
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *args: Any) -> Any:
        self.calls.append(args)
        if self.errors:
            raise self.errors.pop(0)
        return self.returns


def is_free(lock: ManagerLock) -> bool:
    """Return whether another thread gets the lock."""
    entered = threading.Event()

    def work() -> None:
        enter(lock)
        entered.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return entered.wait(0.5)


@pytest.mark.parametrize("how", ["attempt", "change"])
def test_work_that_fails_is_undone(how: str) -> None:
    """With the arguments of the work, though the undoing is interrupted as well."""
    lock = ManagerLock()
    work = Failing(OSError("no licence"))
    undo = Failing(Interrupted(), Interrupted())
    with pytest.raises(OSError, match="no licence"):
        getattr(lock, how)(work, undo, "a", 1)

    assert work.calls == [("a", 1)]
    assert undo.calls == [("a", 1)] * 3
    assert is_free(lock)


@pytest.mark.parametrize("how", ["attempt", "change"])
def test_work_that_succeeds_is_not_undone(how: str) -> None:
    lock = ManagerLock()
    undo = Failing()

    assert getattr(lock, how)(Failing(returns="done"), undo, "a") == "done"
    assert undo.calls == []
    with pytest.raises(OSError, match="alone"):
        getattr(lock, how)(Failing(OSError("alone")), None)
    assert is_free(lock)


def test_what_is_settled_runs_to_its_end() -> None:
    """However often it is interrupted, and then the first exception is raised."""
    lock = ManagerLock()
    work = Failing(Interrupted("first"), Interrupted("second"))
    with pytest.raises(Interrupted, match="first"):
        lock.settle(work, "a")

    assert work.calls == [("a",)] * 3
    assert is_free(lock)


def test_an_exception_that_work_returns_is_raised() -> None:
    """It kept none of the work from being done, so nothing is tried again."""
    lock = ManagerLock()
    work = Failing(returns=OSError("a provider's"))
    with pytest.raises(OSError, match="a provider's"):
        lock.settle(work, "a")

    assert work.calls == [("a",)]
    lock.settle(Failing(returns="no exception"))


def test_finishing_settles_what_was_found() -> None:
    """Where nothing is found nothing is done; what is found is returned."""
    lock = ManagerLock()
    work = Failing(returns=None)

    assert lock.finish({"p": "pod"}.__getitem__, work, "p") == "pod"
    assert work.calls == [("pod",)]
    with pytest.raises(KeyError):
        lock.finish({}.__getitem__, work, "q")
    assert work.calls == [("pod",)]
    with pytest.raises(Interrupted):
        lock.finish({"p": "pod"}.__getitem__, Failing(Interrupted()), "p")
    assert lock.change(str, None, "goes on") == "goes on"


@pytest.mark.parametrize("inner", ["change", "finish"])
@pytest.mark.parametrize("outer", ["change", "finish"])
def test_no_change_begins_within_another(outer: str, inner: str) -> None:
    """Trials do; and once the change is over the next one may begin."""
    lock = ManagerLock()

    def within(*_: object) -> None:
        assert lock.attempt(str, None, "tried") == "tried"
        begin[inner](str)

    begin = {
        "change": lambda work: lock.change(work, None, "x"),
        "finish": lambda find: lock.finish(find, str, "x"),
    }
    with pytest.raises(RuntimeError, match="a provider must not call"):
        begin[outer](within)

    assert lock.change(str, None, "goes on") == "goes on"


def test_all_is_released_though_a_provider_fails() -> None:
    """Container by container, provider by provider.

    The first error is returned, and the pod is forgotten.
    """
    calls: list[tuple[str, str]] = []

    class Provider:
        def __init__(self, name: str, errors: list[BaseException]) -> None:
            self.name, self.errors = name, errors

        def release(self, uid: str, container: str) -> None:
            assert uid == "p"
            calls.append((self.name, container))
            if self.errors:
                raise self.errors.pop(0)

    containers = pod_of("p", "b", "a").containers
    first, second = Provider("cpu", []), Provider("own", [OSError("down"), Interrupted()])
    forget = Failing(Interrupted())
    error = release_all(containers, (first, second), "p", forget)

    assert isinstance(error, OSError)
    assert calls == [("cpu", "b"), *[("own", "b")] * 3, ("cpu", "a"), ("own", "a")]
    assert forget.calls == [("p",)] * 2
    assert release_all(containers, (first,), "p", Failing()) is None


def test_a_provider_that_always_fails_is_given_up() -> None:
    """The others release all the same."""
    broken, sound = Licences([1]), Licences([0], held={("p", "c0"): 0})
    broken.release = Failing(*[OSError("down")] * 100)  # type: ignore[method-assign]
    error = release_all(pod_of("p").containers, (broken, sound), "p", Failing())

    assert isinstance(error, OSError)
    assert 2 <= len(broken.release.calls) < 100
    assert sound.free == [1]


def test_a_guard_gives_back_what_it_took_and_nothing_else() -> None:
    """An exception may come before its body: then nothing was taken. To take twice is once."""
    lock = ManagerLock()
    with lock.guard():
        assert status_of_child(lambda: enter(lock)) == 0

    def be_interrupted() -> None:
        with lock.guard() as guard, guard.take():
            guard.take()
            raise Interrupted

    with pytest.raises(Interrupted):
        be_interrupted()

    taken: list[bool] = []
    thread = threading.Thread(target=lambda: (enter(lock), taken.append(True)), daemon=True)
    thread.start()
    thread.join(10)
    assert taken
