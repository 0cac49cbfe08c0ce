"""Execution of a run: workers evaluate ranges of points, which are stored or returned."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from fastflow.config.engine_settings import Settings
from fastflow.config.messages import counted
from fastflow.core.errors import InputError
from fastflow.engine.dataset.schema import ResultTable, schema_of, to_arrow
from fastflow.engine.dataset.store import Store, parts_of
from fastflow.engine.grid.grid import Grid
from fastflow.engine.grid.run import Run
from fastflow.engine.run.chunks import evaluated, tried, warm_up
from fastflow.engine.run.progress import SILENT, Listener
from fastflow.engine.run.workers import (
    CancellationToken,
    Lost,
    check_model,
    connected,
    distribute,
    interruptible,
)


class Job(NamedTuple):
    """All that a worker needs, besides the number of a part."""

    grid: Grid
    settings: Settings
    schema: pa.Schema
    store: Store | None
    """The store of the parts; None: tables are returned."""


def _do_part(watch: CancellationToken, job: Job, number: int) -> tuple[int, list[ResultTable]]:
    """Evaluate one part; returns the points that `watch` has not heard of, and the tables if handed over."""
    check_model(job.schema.metadata[b"fastflow.model"].decode(), job.settings.address)
    start, stop = parts_of(job.grid.points).range(number)
    tables: list[ResultTable] = []
    stored: list[pa.Table] = []
    with watch:
        for table in evaluated(job.grid, start, stop, job.settings):
            if job.store is None:
                tables.append(table)
            else:
                stored.append(to_arrow(table, job.schema))
            watch.advance(table["point"].size)
            watch.check()
        if job.store is not None:
            job.store.write(number, stored)
    return 0 if watch.hears else stop - start, tables


def _spread(
    run: Run, job: Job, numbers: Sequence[int], watch: CancellationToken
) -> Iterator[list[ResultTable]]:
    """Evaluate parts on the configured workers; yields their tables, in order if they are not stored."""
    settings = run.settings
    if len(numbers) == 1 and not settings.address:
        settings = settings._replace(jobs=1)  # nobody to share it with
    work = partial(_do_part, watch)
    for points, tables in distribute(work, job, watch.until_asked(numbers), settings, job.store is None):
        watch.advance(points)
        yield tables


def collect(run: Run, listener: Listener = SILENT) -> tuple[list[ResultTable], pa.Schema]:
    """Evaluate a run, and return its rows in the order of points, and their schema; raises InputError.

    listener: hears how many points there are, and how many are done.
    """
    watch = CancellationToken(listener.advance)
    grid = tried(run.grid)
    job = Job(grid=grid, settings=run.settings, schema=schema_of(grid), store=None)
    numbers = range(parts_of(run.grid.points).total)
    found: list[ResultTable] = []
    try:
        with connected(run.settings, job), interruptible(watch):
            if len(numbers) > 1 or run.settings.address:
                warm_up(grid)
            listener.start(run.grid.describe(), run.grid.points)
            for tables in _spread(run, job, numbers, watch):
                found += tables
    except Lost as error:
        allowed = f"the address of a scheduler that keeps its workers ({error})"
        raise InputError("engine.address", run.settings.address, allowed) from None
    return found, job.schema


def store(
    run: Run,
    output: str | os.PathLike[str],
    begin: Callable[[int], None] = lambda there: None,
    advance: Callable[[int], None] | None = None,
) -> Store:
    """Evaluate what a dataset lacks of a run into it; raises InputError.

    begin is called with the number of points that are there already, again where workers were lost, advance
    with the number of further ones, from any thread. An interrupt, or any error, leaves the parts that are
    done.
    """
    with opened(run, output) as (dataset, missing):
        fill(run, dataset, missing, begin, advance)
    return dataset


@contextmanager
def opened(run: Run, output: str | os.PathLike[str]) -> Iterator[tuple[Store, list[int]]]:
    """Open the dataset of a run, and yield it with the parts that it lacks; raises InputError.

    Leaving it after an error says what is kept, and leaves no folder that is empty.
    """
    dataset = Store(str(output), run.grid)
    missing = dataset.open()
    with _keeping(dataset):
        yield dataset, missing


def fill(
    run: Run,
    dataset: Store,
    missing: list[int],
    begin: Callable[[int], None] = lambda there: None,
    advance: Callable[[int], None] | None = None,
) -> None:
    """Evaluate what an open dataset lacks into it, as `store` does; raises InputError."""
    watch = CancellationToken(advance)
    with interruptible(watch):
        while not _work_through(run, dataset, missing, watch, begin):
            missing = _fewer(missing, dataset, run)
        left = dataset.missing()
        if left and not watch.asked:
            allowed = (
                "a folder that the workers share with this process; missing in it: "
                f"{counted(len(left), 'part')}"
            )
            raise InputError("output", dataset.folder.shown, allowed)
        if not left:
            dataset.tidy()


def fill_from(rows: pa.Table, dataset: Store, missing: Sequence[int]) -> None:
    """Write what an open dataset lacks of its rows, which are evaluated already; raises InputError."""
    for number in missing:
        start, stop = dataset.parts.range(number)
        dataset.write(number, [rows.slice(start, stop - start)])
    dataset.tidy()


def _work_through(
    run: Run, dataset: Store, missing: Sequence[int], watch: CancellationToken, begin: Callable[[int], None]
) -> bool:
    """Evaluate the parts that are missing; False where those who did so were lost on the way."""
    there = run.grid.points - sum(stop - start for start, stop in map(dataset.parts.range, missing))
    grid = tried(run.grid) if missing else run.grid
    job = Job(grid=grid, settings=run.settings, schema=dataset.schema, store=dataset)
    try:
        with connected(run.settings, job) if missing else nullcontext():
            if missing:
                warm_up(grid)  # before anything is said: an input that is missing is missed here
            begin(there)
            for _ in _spread(run, job, missing, watch):
                pass
    except Lost:
        return False
    return True


def _fewer(missing: Sequence[int], dataset: Store, run: Run) -> list[int]:
    """Return what is still missing; raises InputError if it is as much as before."""
    left = dataset.missing()
    if len(left) == len(missing):
        allowed = "the address of a scheduler that keeps its workers; they left before they wrote a part"
        raise InputError("engine.address", run.settings.address, allowed)
    return left


@contextmanager
def _keeping(dataset: Store) -> Iterator[None]:
    """Say after an interrupt, or when the disk refuses, what is kept; leave no folder that is empty."""
    try:
        yield
    except BaseException as error:
        there = len(dataset.there())
        if not there:
            dataset.discard()
            raise
        kept = f"{there} of {dataset.parts.total} parts are kept in {dataset.folder.shown}"
        if isinstance(error, KeyboardInterrupt):
            again = f"the same command with output={dataset.folder.shown} resumes from there"
            raise KeyboardInterrupt(f"{kept}; {again}") from None
        if isinstance(error, InputError):
            raise InputError(error.key, error.value, f"{error.allowed}; {kept}", error.origin) from None
        raise
