"""Workers: threads of this machine, or the workers of a Dask scheduler, through joblib."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from fastflow.config.engine_settings import Settings
from fastflow.core import jit
from fastflow.core.errors import InputError
from fastflow.core.version import version

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Done = TypeVar("Done")
_TIMEOUT_S = 30  # seconds for a scheduler to answer, and for its first worker to come


class Stopped(Exception):  # noqa: N818 - no error: a user's request
    """The work was cancelled between two chunks."""


class CancellationToken:
    """Progress and cancellation of the threads of this process.

    Pickled to another process, it becomes a fresh token without a listener.
    """

    def __init__(self, advance: Callable[[int], None] | None = None) -> None:
        """Take a function that is called, from any thread, with the number of newly evaluated points."""
        self.has_listener = advance is not None
        self.advance: Callable[[int], None] = advance or (lambda points: None)
        self._cancelled = threading.Event()
        self._working = 0
        self._changed = threading.Condition()

    def __reduce__(self) -> tuple[type[CancellationToken], tuple[()]]:
        """Return a fresh token for another process."""
        return CancellationToken, ()

    def cancel(self) -> None:
        """Ask all threads to stop."""
        self._cancelled.set()

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raise Stopped if `cancel` was called."""
        if self.is_cancelled:
            raise Stopped

    def until_cancelled(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items until `cancel` is called."""
        for item in items:
            if self.is_cancelled:
                return
            yield item

    def __enter__(self) -> CancellationToken:
        """Begin to work."""
        self.check()
        with self._changed:
            self._working += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Note the end of the work."""
        with self._changed:
            self._working -= 1
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until no thread works."""
        with self._changed:
            self._changed.wait_for(lambda: self._working == 0)


@contextmanager
def interruptible(token: CancellationToken) -> Iterator[None]:
    """Turn Ctrl-C into a cancellation, and raise KeyboardInterrupt when all threads have stopped.

    Numba runs Python code, unchecked, where a kernel hands over its results: an interrupt raised just
    there is lost, or ends the process. A second Ctrl-C stops at once.
    """
    num_interrupts = 0

    def interrupt(number: int, frame: Any) -> None:
        nonlocal num_interrupts
        num_interrupts += 1
        if num_interrupts > 1:
            raise KeyboardInterrupt
        sys.stderr.write("\nstopping after the current chunks; Ctrl-C again stops at once\n")
        token.cancel()

    before = signal.getsignal(signal.SIGINT)
    # only the main thread may set a handler; ignored interrupts remain ignored
    is_main = threading.current_thread() is threading.main_thread() and before not in (None, signal.SIG_IGN)
    if is_main:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Stopped:
        pass
    finally:
        token.cancel()  # after an error, other threads may still work
        token.wait()
        if is_main:
            signal.signal(signal.SIGINT, before)
    if num_interrupts:
        raise KeyboardInterrupt


def distribute(
    work: Callable[[Shared, Item], Done],
    shared: Shared,
    items: Iterable[Item],
    settings: Settings,
    in_order: bool = False,
) -> Iterator[Done]:
    """Yield the result of the work for every item, as it comes or in order; raises the work's exceptions.

    Raises Lost where workers at an address leave in the middle of the work.

    shared: the first argument of every call. `joblib.parallel_config` may select another backend;
    `connected` does so.
    """
    if settings.jobs == 1 and not settings.address:
        yield from (work(shared, item) for item in items)
        return

    import joblib

    parallel = joblib.Parallel(
        n_jobs=settings.jobs,
        prefer="threads",
        batch_size=1,
        return_as="generator" if in_order else "generator_unordered",
    )
    done = parallel(joblib.delayed(work)(shared, item) for item in items)
    with _raising_lost() if settings.address else nullcontext():
        yield from done


@contextmanager
def _raising_lost() -> Iterator[None]:
    """Raise Lost for any exception of Dask on lost workers or a lost scheduler."""
    from concurrent.futures import CancelledError

    from distributed.client import FutureCancelledError
    from distributed.scheduler import KilledWorker

    try:
        yield
    except (FutureCancelledError, CancelledError, KilledWorker) as error:
        raise Lost(str(error)) from error


def check_model(digest: str, address: str) -> None:
    """Refuse to work for a process with another version of the model; raises InputError."""
    if digest != jit.MODEL_DIGEST:
        allowed = f"the address of workers with the same fastflow ({version()}) and Numba as this machine"
        raise InputError("engine.address", address, allowed)


class ThreadPool:
    """Threads of this machine for many small pieces of work."""

    def __init__(self, settings: Settings) -> None:
        """Take the number of threads."""
        import joblib

        self.size = joblib.effective_n_jobs(settings.jobs)
        self._parallel = joblib.Parallel(n_jobs=self.size, prefer="threads", batch_size=1)
        self._delayed = joblib.delayed

    def __enter__(self) -> ThreadPool:
        """Start the threads."""
        if self.size > 1:
            self._parallel.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the threads."""
        if self.size > 1:
            self._parallel.__exit__(*error)

    def map(self, work: Callable[[Item], Done], items: Sequence[Item]) -> list[Done]:
        """Return the result of the work for every item, in order; raises the work's exceptions."""
        if self.size == 1 or len(items) == 1:
            return [work(item) for item in items]
        return list(self._parallel(self._delayed(work)(item) for item in items))


class Lost(Exception):  # noqa: N818 - becomes an InputError after the last retry
    """The scheduler, or all workers with the shared context, were lost."""


@contextmanager
def connected(settings: Settings, shared: Any) -> Iterator[None]:
    """Make joblib use the workers of a Dask scheduler, if there is an address.

    shared: sent to the workers once. Raises InputError where no scheduler answers.
    """
    if not settings.address:
        yield
        return
    address = settings.address
    try:
        from dask.distributed import Client
    except ImportError:
        allowed = "an installed Dask (pip install 'fastflow[cluster]'), or no address"
        raise InputError("engine.address", address, allowed) from None

    import joblib
    from joblib._dask import DaskDistributedBackend

    class Workers(DaskDistributedBackend):  # type: ignore[misc]
        """joblib's back end, which also uses a scheduler with a single thread."""

        def effective_n_jobs(self, n_jobs: int) -> int:
            try:
                return max(2, int(super().effective_n_jobs(n_jobs)))
            except OSError as error:  # no scheduler, or no worker
                raise Lost(str(error)) from error

    _check_reachable(address)
    try:
        client = Client(  # type: ignore[no-untyped-call]
            address, timeout=_TIMEOUT_S, set_as_default=False
        )
    except (OSError, ValueError, TypeError) as error:
        raise _no_scheduler(address, error) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=_TIMEOUT_S)
        except TimeoutError:
            allowed = "the address of a scheduler with workers (dask worker ADDRESS); this one has none"
            raise InputError("engine.address", address, allowed) from None
        with joblib.parallel_config(backend=Workers(client=client, scatter=[shared])):
            yield


class SharedContext(NamedTuple):
    """The context that is sent to the workers of a cluster once."""

    shared: Any
    address: str
    model: str


class Cluster:
    """Workers of a Dask scheduler with a shared context, for many lists of items."""

    def __init__(self, settings: Settings, shared: Any) -> None:
        """Take the address of the scheduler, and the context of the work."""
        self.settings = settings
        self._context = SharedContext(shared, settings.address, jit.MODEL_DIGEST)
        self._connection = ExitStack()

    def __enter__(self) -> Cluster:
        """Connect; raises InputError where no scheduler answers."""
        self._connection.enter_context(connected(self.settings, self._context))
        return self

    def __exit__(self, *error: object) -> None:
        """Let them go."""
        self._connection.close()

    @property
    def size(self) -> int:
        """The number of workers now."""
        import joblib

        try:
            return int(joblib.effective_n_jobs(-1))
        except Lost:  # `map` handles it
            return 1

    def map(
        self,
        work: Callable[[Shared, Item], Done],
        items: Sequence[Item],
        token: CancellationToken,
        on_result: Callable[[Done], None] = lambda done: None,
    ) -> list[Done]:
        """Return the result of the work for every item, in order; raises the work's exceptions.

        on_result is called with each result as it comes. After a loss of all workers, the remaining
        items wait for new workers. Raises Lost where none come, or where they are lost without a result, and
        Stopped after a cancellation.
        """
        done: dict[int, Done] = {}
        losses = 0
        while len(done) < len(items):
            before = len(done)
            remaining = [(number, item) for number, item in enumerate(items) if number not in done]
            try:
                for number, result in distribute(
                    partial(_run_numbered, work),
                    self._context,
                    token.until_cancelled(remaining),
                    self.settings,
                ):
                    done[number] = result
                    on_result(result)
            except Lost as error:
                losses = losses + 1 if len(done) == before else 0
                if losses > 1:
                    raise Lost(f"the address of a scheduler that keeps its workers ({error})") from error
                self._reconnect()
            token.check()
        return [done[number] for number in range(len(items))]

    def _reconnect(self) -> None:
        """Connect after a loss."""
        self._connection.close()
        try:
            self.__enter__()
        except InputError as error:
            raise Lost(error.allowed) from error


def _run_numbered(
    work: Callable[[Shared, Item], Done], context: SharedContext, task: tuple[int, Item]
) -> tuple[int, Done]:
    """Run a task of a cluster on a worker; returns its number and result."""
    check_model(context.model, context.address)
    number, item = task
    return number, work(context.shared, item)


def _check_reachable(address: str) -> None:
    """Raise InputError where nothing listens at an address: Dask would retry for long, and log twice."""
    url = urlsplit(address)
    try:
        with socket.create_connection((url.hostname or "", url.port or 0), timeout=_TIMEOUT_S):
            pass
    except (OSError, OverflowError) as error:
        raise _no_scheduler(address, error) from None


def _no_scheduler(address: str, error: Exception) -> InputError:
    """Return the error for an address without a scheduler."""
    allowed = f"the address of a Dask scheduler that answers ({str(error) or type(error).__name__})"
    return InputError("engine.address", address, allowed)
