"""Execution of a run: workers evaluate ranges of points, which are stored or returned."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from fastflow.config.engine_settings import Settings
from fastflow.config.messages import pluralize
from fastflow.core.errors import InputError
from fastflow.engine.dataset.schema import ResultTable, schema_of, to_arrow
from fastflow.engine.dataset.store import Store, parts_of_grid
from fastflow.engine.grid.grid import Grid
from fastflow.engine.grid.run import Run
from fastflow.engine.run.chunks import evaluated, warm_up, with_no_effect
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
    """The input of a worker, besides the number of a part."""

    grid: Grid
    settings: Settings
    schema: pa.Schema
    store: Store | None
    """The store of the parts; None: tables are returned."""


def _do_part(token: CancellationToken, job: Job, number: int) -> tuple[int, list[ResultTable]]:
    """Evaluate a part; returns the number of points not reported to `token`, and tables not stored."""
    check_model(job.schema.metadata[b"fastflow.model"].decode(), job.settings.address)
    start, stop = parts_of_grid(job.grid).range(number)
    tables: list[ResultTable] = []
    stored: list[pa.Table] = []
    with token:
        for table in evaluated(job.grid, start, stop, job.settings):
            if job.store is None:
                tables.append(table)
            else:
                stored.append(to_arrow(table, job.schema))
            token.advance(table["point"].size)
            token.check()
        if job.store is not None:
            job.store.write(number, stored)
    return 0 if token.has_listener else stop - start, tables


def _distribute_parts(
    run: Run, job: Job, numbers: Sequence[int], token: CancellationToken
) -> Iterator[list[ResultTable]]:
    """Evaluate parts on the configured workers; yields their tables, in order if they are not stored."""
    settings = run.settings
    if len(numbers) == 1 and not settings.address:
        settings = settings._replace(jobs=1)  # a single part
    work = partial(_do_part, token)
    for points, tables in distribute(work, job, token.until_cancelled(numbers), settings, job.store is None):
        token.advance(points)
        yield tables


def collect(run: Run, listener: Listener = SILENT) -> tuple[list[ResultTable], pa.Schema]:
    """Evaluate a run, and return its rows in the order of points, and their schema; raises InputError.

    listener: receives the number of points, and of points done.
    """
    token = CancellationToken(listener.advance)
    grid = with_no_effect(run.grid)
    job = Job(grid=grid, settings=run.settings, schema=schema_of(grid), store=None)
    numbers = range(parts_of_grid(run.grid).total)
    collected: list[ResultTable] = []
    try:
        with connected(run.settings, job), interruptible(token):
            if len(numbers) > 1 or run.settings.address:
                warm_up(grid)
            listener.start(run.grid.describe(), run.grid.points)
            for tables in _distribute_parts(run, job, numbers, token):
                collected += tables
    except Lost as error:
        allowed = f"the address of a scheduler that keeps its workers ({error})"
        raise InputError("engine.address", run.settings.address, allowed) from None
    return collected, job.schema


def store(
    run: Run,
    output: str | os.PathLike[str],
    begin: Callable[[int], None] = lambda num_done: None,
    advance: Callable[[int], None] | None = None,
) -> Store:
    """Evaluate the missing points of a dataset; raises InputError.

    begin is called with the number of existing points, and once more after a loss of workers; advance with
    the number of new points, from any thread. An interrupt, or any error, leaves the finished parts.
    """
    with opened(run, output) as (dataset, missing):
        fill(run, dataset, missing, begin, advance)
    return dataset


@contextmanager
def opened(run: Run, output: str | os.PathLike[str]) -> Iterator[tuple[Store, list[int]]]:
    """Open the dataset of a run, and yield it with the parts that it lacks; raises InputError.

    After an error, the message has the number of kept parts, and an empty folder is removed.
    """
    dataset = Store(str(output), run.grid)
    missing = dataset.open()
    try:
        yield dataset, missing
    except BaseException as error:
        num_kept = len(dataset.existing())
        if not num_kept:
            dataset.discard()
            raise
        kept = f"{num_kept} of {dataset.parts.total} parts are kept in {dataset.folder.shown}"
        if isinstance(error, KeyboardInterrupt):
            hint = f"the same command with output={dataset.folder.shown} resumes from there"
            raise KeyboardInterrupt(f"{kept}; {hint}") from None
        if isinstance(error, InputError):
            raise error.replaced(allowed=f"{error.allowed}; {kept}") from None
        raise


def fill(
    run: Run,
    dataset: Store,
    missing: list[int],
    begin: Callable[[int], None] = lambda num_done: None,
    advance: Callable[[int], None] | None = None,
) -> None:
    """Evaluate the missing points of an open dataset, as `store` does; raises InputError."""
    token = CancellationToken(advance)
    with interruptible(token):
        while not _work_through(run, dataset, missing, token, begin):
            missing = _still_missing(missing, dataset, run)
        remaining = dataset.missing()
        if remaining and not token.is_cancelled:
            allowed = (
                "a folder that the workers share with this process; missing in it: "
                f"{pluralize(len(remaining), 'part')}"
            )
            raise InputError("output", dataset.folder.shown, allowed)
        if not remaining:
            dataset.tidy()


def fill_from(rows: pa.Table, dataset: Store, missing: Sequence[int]) -> None:
    """Write the missing parts of an open dataset from evaluated rows; raises InputError."""
    for number in missing:
        start, stop = dataset.parts.range(number)
        dataset.write(number, [rows.slice(start, stop - start)])
    dataset.tidy()


def _work_through(
    run: Run, dataset: Store, missing: Sequence[int], token: CancellationToken, begin: Callable[[int], None]
) -> bool:
    """Evaluate the missing parts; returns False after a loss of workers."""
    num_done = run.grid.points - sum(stop - start for start, stop in map(dataset.parts.range, missing))
    grid = with_no_effect(run.grid) if missing else run.grid
    job = Job(grid=grid, settings=run.settings, schema=dataset.schema, store=dataset)
    try:
        with connected(run.settings, job) if missing else nullcontext():
            if missing:
                warm_up(grid)  # before any message: it raises the error of a missing input
            begin(num_done)
            for _ in _distribute_parts(run, job, missing, token):
                pass
    except Lost:
        return False
    return True


def _still_missing(missing: Sequence[int], dataset: Store, run: Run) -> list[int]:
    """Return the parts that are still missing; raises InputError if no part was added."""
    remaining = dataset.missing()
    if len(remaining) == len(missing):
        allowed = "the address of a scheduler that keeps its workers; they left before they wrote a part"
        raise InputError("engine.address", run.settings.address, allowed)
    return remaining
