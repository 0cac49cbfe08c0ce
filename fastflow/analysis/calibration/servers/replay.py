"""Runs of benchmarks as loads of a simulated server: the same requests, sent as the benchmark sent them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from fastflow.analysis.benchmarks.benchmark_run import TPOT, TTFT, BenchmarkRun
from fastflow.analysis.benchmarks.read import KEY
from fastflow.config.messages import one_of, pluralize
from fastflow.core import units
from fastflow.core.errors import CompositionError, InputError
from fastflow.core.tables import Columns, Floats
from fastflow.engine.run.predict import results_of
from fastflow.performance.serving.requests.load import arrivals_of

RECORDED, CLOSED, POISSON = ARRIVALS = ("recorded", "closed", "poisson")
"""How requests arrive: at the times of the file; the next one when one ends; at random times with a rate."""
LENGTHS = "serve.lengths"
SETTINGS = ("serve.concurrency", "serve.num_requests", LENGTHS)
"""Inputs by which loads differ."""
MEAN, P50, P99 = STATISTICS = ("mean", "p50", "p99")
COLUMNS = {
    (name, statistic): f"{name}_s" if statistic == MEAN else f"{name}_{statistic}_s"
    for name in (TTFT, TPOT)
    for statistic in STATISTICS
}
"""The result column of each statistic of each time."""
Times = dict[tuple[str, str], Floats]
"""Times of loads by time and statistic [s], (loads,); NaN where no request has it."""


class Load(NamedTuple):
    """A run as a load."""

    run: BenchmarkRun
    arrivals: str
    """One of ARRIVALS."""
    concurrency: int
    """Requests in flight of a closed loop; else 0."""
    sent: Floats
    """When each request is sent [s], shape (requests,); (0,) for a closed loop."""

    def describe(self) -> str:
        """Say in words how requests arrive."""
        run, sent_as = self.run, self.run.sent_as
        if self.arrivals == RECORDED:
            return "at their recorded times"
        if self.arrivals == CLOSED:
            if self.concurrency == run.isl.size:
                return "all at once"
            return f"closed loop, {self.concurrency:,} in flight"
        return f"at random, {units.show(sent_as.rate, '1/s')}"

    def notes(self) -> list[str]:
        """Say what of the load is not in the file, and so not replayed."""
        run, sent_as = self.run, self.run.sent_as
        if self.arrivals != POISSON:
            return []
        rate = units.show(sent_as.rate, "1/s")
        lines = [
            f"{run.name} does not say when requests were sent: here they arrive at random times, {rate} "
            "(Poisson)"
        ]
        if sent_as.burstiness != 1.0:
            lines.append(f"burstiness={sent_as.burstiness:g} of {run.name} is not replayed")
        if sent_as.concurrency:
            lines.append(f"max_concurrency={sent_as.concurrency:,} of {run.name} is not replayed")
        return lines


def load_of(run: BenchmarkRun, wanted: str | None = None) -> Load:
    """Return a run as a load; wanted: one of ARRIVALS, None for what suits it. Raises InputError."""
    arrivals = _arrivals(run) if wanted is None else wanted
    count, sent_as = run.isl.size, run.sent_as
    if arrivals == RECORDED:
        if not run.sent.size:
            allowed = f"runs that say when requests were sent, which {run.name} does not"
            if wanted is None:
                allowed += f", or a rate; arrivals={CLOSED} replays it as a closed loop"
                raise InputError(KEY, run.name, allowed)
            raise InputError("arrivals", wanted, f"{one_of((CLOSED, POISSON))}, or {allowed}")
        return Load(run, RECORDED, 0, run.sent)
    if arrivals == CLOSED:
        return Load(run, CLOSED, min(sent_as.concurrency or count, count), np.zeros(0))
    if not (np.isfinite(sent_as.rate) and sent_as.rate > 0.0):
        allowed = f"{one_of((RECORDED, CLOSED))}, since {run.name} has no rate"
        raise InputError("arrivals", POISSON, allowed)
    return Load(run, POISSON, 0, arrivals_of(sent_as.rate, count))


def _arrivals(run: BenchmarkRun) -> str:
    """Return how the requests of a run arrive.

    In a closed loop the server itself says when requests are sent, so that their times would tie the
    prediction to the measurement; it is replayed as a loop.
    """
    sent_as = run.sent_as
    if sent_as.rate == np.inf and (not run.sent.size or _is_closed(run)):
        return CLOSED
    return POISSON if not run.sent.size and np.isfinite(sent_as.rate) else RECORDED


def _is_closed(run: BenchmarkRun) -> bool:
    """Say whether the recorded times are of a closed loop: all it may have in flight is sent at the start."""
    limit = run.sent_as.concurrency
    return 0 < limit < run.isl.size and bool(run.sent[limit - 1] < (run.sent + run.e2e).min())


@contextmanager
def request_files(loads: Sequence[Load]) -> Iterator[list[str]]:
    """Yield the files of the loads' requests, as `serve.lengths` takes them; they are removed at the end."""
    with TemporaryDirectory(prefix="fastflow-") as folder:
        paths = []
        for number, load in enumerate(loads):
            run, path = load.run, Path(folder, f"{number}.csv")
            columns = [run.isl.tolist(), run.osl.tolist()]
            names = ["isl", "osl"]
            if load.sent.size:
                columns.append([repr(time) for time in load.sent.tolist()])
                names.append("arrival_time")
            lines = (",".join(map(str, cells)) for cells in zip(*columns, strict=True))
            path.write_text("\n".join([",".join(names), *lines]) + "\n", encoding="utf-8")
            paths.append(str(path))
        yield paths


def overrides_of(load: Load, path: str) -> list[str]:
    """Return the overrides of a load."""
    return [
        "serve=continuous",
        "serve.simulate=true",
        "serve.request_rate='0 1/s'",
        f"serve.concurrency={load.concurrency}",
        f"serve.num_requests={load.run.isl.size}",
        f"{LENGTHS}='{path}'",
    ]


def inputs_of(loads: Sequence[Load], paths: Sequence[str], inputs: Columns) -> Columns:
    """Return the inputs of all loads, (loads,); inputs: of the first one, (1,)."""
    columns = {key: np.repeat(column, len(loads)) for key, column in inputs.items()}
    values = ([load.concurrency for load in loads], [load.run.isl.size for load in loads], list(paths))
    return columns | {key: np.array(column) for key, column in zip(SETTINGS, values, strict=True)}


def replay(loads: Sequence[Load], inputs: Columns) -> Times:
    """Predict loads; raises InputError where one has no times."""
    columns, column = results_of(inputs), COLUMNS[TTFT, MEAN]
    for index, load in enumerate(loads):
        if column not in columns or np.isnan(columns[column][index]):
            message = str(columns["reason"][index]) or "it has no times"
            # the user gave a benchmark's file, from which the file of lengths was written
            message = message.replace(f"{LENGTHS}={inputs[LENGTHS][index]}", f"requests={load.run.name}")
            message = message.replace(LENGTHS, "requests")
            raise CompositionError(f"the server of {load.run.name} cannot be predicted: {message}")
    return {key: np.asarray(columns[name], dtype=np.float64) for key, name in COLUMNS.items()}


def measured(loads: Sequence[Load]) -> Times:
    """Return the measured times of loads [s]; NaN where no request has it."""
    times = {key: np.full(len(loads), np.nan) for key in COLUMNS}
    for index, load in enumerate(loads):
        for name, values in load.run.times().items():
            for statistic in STATISTICS if values.size and name in (TTFT, TPOT) else ():
                times[name, statistic][index] = statistic_of(values, statistic)
    return times


def statistic_of(values: Floats | Sequence[int], statistic: str) -> float:
    """Return the mean, the median or the 99th percentile of values."""
    if statistic == MEAN:
        return float(np.mean(values))
    return float(np.percentile(values, 50.0 if statistic == P50 else 99.0))


def left_out(loads: Sequence[Load]) -> list[str]:
    """Say how many requests of each run failed."""
    return [
        f"left out of {load.run.name}: {pluralize(load.run.failed, 'failed request')}"
        for load in loads
        if load.run.failed
    ]
