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
_PATIENCE = 30  # seconds for a scheduler to answer, and for its first worker to come


class Stopped(Exception):  # noqa: N818 - not an error: somebody asked for it
    """Work was given up between two chunks."""


class CancellationToken:
    """Hears how far those are who share this process's memory, asks them to stop, waits until they have.

    Sent to another process it becomes one of its own, which nobody listens to or asks.
    """

    def __init__(self, advance: Callable[[int], None] | None = None) -> None:
        """Take what is called, from any thread, with the number of points that have been evaluated."""
        self.hears = advance is not None
        self.advance: Callable[[int], None] = advance or (lambda points: None)
        self._asked = threading.Event()
        self._working = 0
        self._changed = threading.Condition()

    def __reduce__(self) -> tuple[type[CancellationToken], tuple[()]]:
        """Become a fresh one elsewhere."""
        return CancellationToken, ()

    def ask(self) -> None:
        """Ask everybody to stop."""
        self._asked.set()

    @property
    def asked(self) -> bool:
        """Whether somebody has asked to stop."""
        return self._asked.is_set()

    def check(self) -> None:
        """Raise Stopped if somebody has asked to stop."""
        if self.asked:
            raise Stopped

    def until_asked(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items until somebody asks to stop."""
        for item in items:
            if self.asked:
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
        """Say that the work is done."""
        with self._changed:
            self._working -= 1
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until nobody works."""
        with self._changed:
            self._changed.wait_for(lambda: self._working == 0)


@contextmanager
def interruptible(watch: CancellationToken) -> Iterator[None]:
    """Turn Ctrl-C into a request to stop, and raise KeyboardInterrupt when everybody has.

    Numba runs Python code, unchecked, where a kernel hands over its results: an interrupt raised just
    there is lost, or ends the process. A second Ctrl-C stops at once.
    """
    came = 0

    def interrupt(number: int, frame: Any) -> None:
        nonlocal came
        came += 1
        if came > 1:
            raise KeyboardInterrupt
        sys.stderr.write("\nstopping after the current chunks; Ctrl-C again stops at once\n")
        watch.ask()

    before = signal.getsignal(signal.SIGINT)
    # nobody but the main thread may; and who has had interrupts ignored wants them ignored
    ours = threading.current_thread() is threading.main_thread() and before not in (None, signal.SIG_IGN)
    if ours:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Stopped:
        pass
    finally:
        watch.ask()  # after an error others may be at work
        watch.wait()
        if ours:
            signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def distribute(
    work: Callable[[Shared, Item], Done],
    shared: Shared,
    items: Iterable[Item],
    settings: Settings,
    in_order: bool = False,
) -> Iterator[Done]:
    """Yield what the work gives for every item, as it comes or in order; raises what the work raises.

    Raises Lost where workers at an address leave in the middle of the work.

    shared: what every call needs. Which backend joblib uses can be overridden from outside, by
    `joblib.parallel_config`; `connected` does so.
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
    with _noticing_loss() if settings.address else nullcontext():
        yield from done


@contextmanager
def _noticing_loss() -> Iterator[None]:
    """Raise Lost where Dask says, in one way or another, that its workers or scheduler went away."""
    from concurrent.futures import CancelledError

    from distributed.client import FutureCancelledError
    from distributed.scheduler import KilledWorker

    try:
        yield
    except (FutureCancelledError, CancelledError, KilledWorker) as error:
        raise Lost(str(error)) from error


def check_model(digest: str, address: str) -> None:
    """Refuse to work, as one at an address, for somebody with another model; raises InputError."""
    if digest != jit.MODEL_DIGEST:
        allowed = f"the address of workers with the same fastflow ({version()}) and Numba as this machine"
        raise InputError("engine.address", address, allowed)


class ThreadPool:
    """Threads of this machine, ready for one small piece of work after the other."""

    def __init__(self, settings: Settings) -> None:
        """Take how many there are to be."""
        import joblib

        self.size = joblib.effective_n_jobs(settings.jobs)
        self._parallel = joblib.Parallel(n_jobs=self.size, prefer="threads", batch_size=1)
        self._delayed = joblib.delayed

    def __enter__(self) -> ThreadPool:
        """Call them together."""
        if self.size > 1:
            self._parallel.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Let them go."""
        if self.size > 1:
            self._parallel.__exit__(*error)

    def map(self, work: Callable[[Item], Done], items: Sequence[Item]) -> list[Done]:
        """Return what the work gives for every item, in order; raises what the work raises."""
        if self.size == 1 or len(items) == 1:
            return [work(item) for item in items]
        return list(self._parallel(self._delayed(work)(item) for item in items))


class Lost(Exception):  # noqa: N818 - becomes an InputError where nothing more can be tried
    """The scheduler, or all who had what they share, went away."""


@contextmanager
def connected(settings: Settings, shared: Any) -> Iterator[None]:
    """Have joblib hand its work to the workers of a Dask scheduler, if there is an address.

    shared: what workers are sent once. Raises InputError where nobody answers.
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
        """joblib's back end; but a scheduler with a single thread is no reason to work here instead."""

        def effective_n_jobs(self, n_jobs: int) -> int:
            try:
                return max(2, int(super().effective_n_jobs(n_jobs)))
            except OSError as error:  # nobody answers, or nobody is left
                raise Lost(str(error)) from error

    _reach(address)
    try:
        client = Client(  # type: ignore[no-untyped-call]
            address, timeout=_PATIENCE, set_as_default=False
        )
    except (OSError, ValueError, TypeError) as error:
        raise _unanswered(address, error) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            allowed = "the address of a scheduler with workers (dask worker ADDRESS); this one has none"
            raise InputError("engine.address", address, allowed) from None
        with joblib.parallel_config(backend=Workers(client=client, scatter=[shared])):
            yield


class SharedContext(NamedTuple):
    """What the workers of a cluster are told once."""

    shared: Any
    address: str
    model: str


class Cluster:
    """Workers of a Dask scheduler who share something, ready for one list of items after the other."""

    def __init__(self, settings: Settings, shared: Any) -> None:
        """Take where they are, and what all of their work needs."""
        self.settings = settings
        self._told = SharedContext(shared, settings.address, jit.MODEL_DIGEST)
        self._connection = ExitStack()

    def __enter__(self) -> Cluster:
        """Connect; raises InputError where nobody answers."""
        self._connection.enter_context(connected(self.settings, self._told))
        return self

    def __exit__(self, *error: object) -> None:
        """Let them go."""
        self._connection.close()

    @property
    def size(self) -> int:
        """How many work at once now."""
        import joblib

        try:
            return int(joblib.effective_n_jobs(-1))
        except Lost:  # `map` will see to it
            return 1

    def map(
        self,
        work: Callable[[Shared, Item], Done],
        items: Sequence[Item],
        watch: CancellationToken,
        hear: Callable[[Done], None] = lambda done: None,
    ) -> list[Done]:
        """Return what the work gives for what is shared and every item, in order; raises what it raises.

        hear is told each result as it comes. Where all workers are lost, others are waited for to do what is
        left. Raises Lost, with what address would do, where none come or they leave too before anything is
        done, and Stopped where somebody asks to stop.
        """
        done: dict[int, Done] = {}
        losses = 0
        while len(done) < len(items):
            before = len(done)
            left = [(number, item) for number, item in enumerate(items) if number not in done]
            try:
                for number, one in distribute(
                    partial(_numbered, work), self._told, watch.until_asked(left), self.settings
                ):
                    done[number] = one
                    hear(one)
            except Lost as error:
                losses = losses + 1 if len(done) == before else 0
                if losses > 1:
                    raise Lost(f"the address of a scheduler that keeps its workers ({error})") from error
                self._connect_again()
            watch.check()
        return [done[number] for number in range(len(items))]

    def _connect_again(self) -> None:
        """Connect after a loss."""
        self._connection.close()
        try:
            self.__enter__()
        except InputError as error:
            raise Lost(error.allowed) from error


def _numbered(
    work: Callable[[Shared, Item], Done], told: SharedContext, task: tuple[int, Item]
) -> tuple[int, Done]:
    """Do a task of a cluster at a worker; returns its number too."""
    check_model(told.model, told.address)
    number, item = task
    return number, work(told.shared, item)


def _reach(address: str) -> None:
    """Raise InputError where nothing listens at an address: Dask would try for long, and complain twice."""
    where = urlsplit(address)
    try:
        with socket.create_connection((where.hostname or "", where.port or 0), timeout=_PATIENCE):
            pass
    except (OSError, OverflowError) as error:
        raise _unanswered(address, error) from None


def _unanswered(address: str, error: Exception) -> InputError:
    """Return the refusal of an address where no scheduler is."""
    allowed = f"the address of a Dask scheduler that answers ({str(error) or type(error).__name__})"
    return InputError("engine.address", address, allowed)
