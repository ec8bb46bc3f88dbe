"""Lock a node while it changes, and count its changes for readers without the lock.

No exception ends a change half-way. An exception can come from outside at any moment: a signal
handler raises, or another thread makes this one raise. Python looks for them between instructions
of its own, and never while compiled code runs. So what may not be parted is a call into this
module: between taking the lock, the work, and the end of a change no Python instruction runs.
"""

cimport cython
from posix.unistd cimport getpid

from threading import RLock

cdef extern from *:
    """
    #define alignup_set_odd(count, value) \
        (__atomic_store_n(count, value, __ATOMIC_RELAXED), __atomic_thread_fence(__ATOMIC_RELEASE))
    #define alignup_set_even(count, value) __atomic_store_n(count, value, __ATOMIC_RELEASE)
    """
    void set_odd "alignup_set_odd"(int64_t* count, int64_t value) noexcept nogil
    void set_even "alignup_set_even"(int64_t* count, int64_t value) noexcept nogil

cdef enum:
    # of what has to be done whatever comes; an error that comes each time is not from outside
    MOST_TRIES = 4096
    PROVIDER_TRIES = 8  # of a provider that fails: a user's may do so each time


@cython.final
cdef class Changes:
    """The count of the changes of a node; callers hold the node's lock."""

    cdef void begin(self) noexcept:
        """Note that a change begins, maybe within another one."""
        self.depth += 1
        if self.depth == 1:
            set_odd(&self.count, self.count + 1)

    cdef void end(self) noexcept:
        """Note that the change that began last is over."""
        self.depth -= 1
        if self.depth == 0:
            set_even(&self.count, self.count + 1)


@cython.final
cdef class ManagerLock:
    """A lock that its thread can take again, and that knows whether a change is under way.

    A process that is forked while another thread has the lock gets a copy that nobody will ever
    release, of a manager that is half changed. Taking it there is an error.

    Attributes:
        changes: for those who read amounts without the lock: whether it was taken meanwhile.
        patience: seconds to wait for the lock in a forked process, where another thread may be
            checking it too.
    """

    def __init__(self, double patience=1.0):
        self.lock = RLock()
        self.pid = getpid()
        self.changes = Changes()
        self.patience = patience

    cdef int take(self) except -1:
        if self.pid != getpid():
            self.look_after_fork()
        self.lock.acquire()
        self.changes.begin()
        return 0

    cdef int leave(self) except -1:
        self.changes.end()
        self.lock.release()
        return 0

    cdef int look_after_fork(self) except -1:
        if self.lock.acquire(timeout=self.patience):
            self.pid = getpid()
            self.lock.release()
        elif self.pid != getpid():
            raise RuntimeError(
                "another thread used the manager when this process was forked, "
                "so it may be half changed"
            )
        return 0

    def guard(self):
        """Return what gives the lock back at the end of `with`; see `Guard`."""
        return Guard(self)

    def attempt(self, work, undo, *args):
        """Return `work(*args)`, done with the lock held.

        Args:
            work: what to do.
            undo: called with the same arguments where that raises, until it has run to its end;
                None: nothing to undo.
        """
        self.take()
        try:
            return self.tried(work, undo, args)
        finally:
            self.leave()

    def change(self, work, undo, *args):
        """Do the same as a change, during which no other one may begin.

        Raises:
            RuntimeError: a change is under way already, so the caller is a provider.
        """
        self.take()
        try:
            self.begin()
            try:
                return self.tried(work, undo, args)
            finally:
                self.is_changing = False
        finally:
            self.leave()

    def settle(self, work, *args):
        """Call `work(*args)`, with the lock held, until it has run to its end.

        Then raise the first exception. That is what interrupted it, or an exception that it
        returns: an error that keeps none of it from being done.
        """
        self.take()
        try:
            self.settled(work, args)
        finally:
            self.leave()

    def finish(self, find, work, key):
        """Settle `work(find(key))` as a change, and return what was found.

        An error of `find` changes nothing.

        Raises:
            RuntimeError: a change is under way already, as above.
        """
        self.take()
        try:
            self.begin()
            try:
                result = find(key)
                self.settled(work, (result,))
                return result
            finally:
                self.is_changing = False
        finally:
            self.leave()

    cdef int begin(self) except -1:
        if self.is_changing:
            raise RuntimeError(
                "a provider must not call the manager while a pod is admitted or removed"
            )
        self.is_changing = True
        return 0

    cdef object tried(self, work, undo, tuple args):
        try:
            return work(*args)
        except BaseException:
            if undo is not None:
                repeat(undo, args)
            raise

    cdef int settled(self, work, tuple args) except -1:
        interruption = repeat(work, args)
        if interruption is not None:
            raise interruption
        return 0


@cython.final
cdef class Guard:
    """A context manager that takes a lock only when it has been entered.

        with lock.guard() as guard, guard.take():

    From Python 3.14 on, `with` lets an exception from outside in after `__enter__` and before what
    it protects: what `__enter__` had taken nobody would give back.
    """

    cdef ManagerLock lock
    cdef bint is_taken

    def __init__(self, ManagerLock lock not None):
        self.lock = lock

    def __enter__(self):
        return self

    def take(self):
        """Take the lock, once, and return the guard, so that one `with` enters and takes."""
        if not self.is_taken:
            self.lock.take()
            self.is_taken = True
        return self

    def __exit__(self, *_):
        if self.is_taken:
            self.is_taken = False
            self.lock.leave()


def release_all(
    tuple containers not None, tuple providers not None, str uid not None, forget not None
):
    """Have each provider release what each container has, then forget the pod.

    Return the first error, if any. What was released before is released again without harm. A
    provider that fails is asked some times more, since the exception may have come from outside,
    and then the others are; what is no `Exception` never is a provider's own.

    Args:
        containers: of the pod, in the order of their release.
        providers: in the order in which they release.
        uid: of the pod.
        forget: called with it at the end.
    """
    first = None
    for container in containers:
        name = container.name
        for provider in providers:
            try:
                provider.release(uid, name)
            except BaseException as error:
                first = first or error
                repeat(provider.release, (uid, name), PROVIDER_TRIES)

    failed = repeat(forget, (uid,))
    return first or failed


cdef object repeat(object work, tuple args, int most_errors=MOST_TRIES):
    """Call something until it has run to its end.

    Return the first exception that was raised or returned, if any.
    """
    cdef int _tries, errors = 0

    first = None
    for _tries in range(MOST_TRIES):
        try:
            failed = work(*args)
        except BaseException as error:
            first = first or error
            errors += isinstance(error, Exception)
            if errors == most_errors:
                break
        else:
            return first or (failed if isinstance(failed, BaseException) else None)

    return first
