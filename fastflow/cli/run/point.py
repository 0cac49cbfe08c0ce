"""One point: predicted, stored, printed with its breakdown, with a trace, a picture or a page on request."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from fastflow.core.errors import CompositionError, InputError
from fastflow.core.reasons.codes import Reason
from fastflow.core.tables import Columns, take
from fastflow.engine.dataset.folder import RANKING
from fastflow.engine.grid.run import Run
from fastflow.physics.hardware.packages import DEVICES
from fastflow.physics.workload.request_trace import KEY as TRACE

if TYPE_CHECKING:
    import pyarrow as pa

    from fastflow.core.reasons.codes import Reason
    from fastflow.engine.dataset.schema import ResultTable
    from fastflow.engine.dataset.store import Store
    from fastflow.engine.run.ranking import Ranking
    from fastflow.performance.prediction import Prediction
    from fastflow.performance.serving.predict import ServingResult


def run_point(run: Run, output: str) -> None:
    """Predict one point, store it, and print the breakdown of its time; raises InputError if it has none."""
    from fastflow.engine.dataset.schema import column_order, to_arrow
    from fastflow.engine.dataset.selected_columns import select_columns
    from fastflow.engine.run.execute import opened
    from fastflow.reporting.terminal import strategy_ranking
    from fastflow.reporting.terminal.tables import column_sheet, console

    _check_output_files(run)
    columns = select_columns(run.columns, column_order(run.grid))
    _refuse_files(run)
    with ExitStack() as later:
        with opened(run, output) as (store, missing):
            result = _predict(run)
            row = {name: values[0] for name, values in result.table.items()}
            if not row["time_s"] == row["time_s"]:
                raise _without_time(result.reason)
            ranking = result.ranking
            if ranking is not None:
                ranking_store = later.enter_context(opened(ranking.run, output + RANKING))
            _write_missing(run, to_arrow(result.table, store.schema), store, missing)
        _print_breakdown(run, result, row)
        if columns:
            console().print(column_sheet(columns, row))
        if ranking is not None:
            ranking_dataset, ranking_missing = ranking_store
            rows = to_arrow(ranking.table, ranking_dataset.schema)
            _write_missing(ranking.run, rows, ranking_dataset, ranking_missing)
            chances = partial(ranking.chances_of_best, run) if run.grid.uncertainty is not None else None
            strategy_ranking.show(rows, ranking_dataset.folder.shown, ranking.search, chances)
    for line in _draw(run, result, row, store):
        print(line)
    print(f"Dataset: {store.folder.shown}")


def _print_breakdown(run: Run, result: _PointResult, row: dict[str, Any]) -> None:
    """Print the breakdown of a point."""
    if run.grid.served:
        from fastflow.performance.serving.columns import other_chip_columns
        from fastflow.reporting.terminal.serving import show_served

        load_inputs = _load_inputs(run, result)
        chips = {
            prefix: {name: column[0] for name, column in columns.items()}
            for prefix, columns in other_chip_columns(load_inputs).items()
        }
        show_served(row, {key: column[0] for key, column in load_inputs.items()}, chips)
        return
    from fastflow.engine.run.stage_imbalance import uneven_stages
    from fastflow.performance.memory_timeline import memory_timeline
    from fastflow.performance.results import explain, explain_sharding
    from fastflow.reporting.terminal import point
    from fastflow.reporting.terminal.point import SHOWN_PREFIXES

    prediction = cast("Prediction", result.prediction)
    layouts = explain_sharding(prediction, result.point)
    inputs = {
        key: column[result.point].item()
        for key, column in prediction.inputs.items()
        if key.startswith(SHOWN_PREFIXES)
    }
    kernels = explain(prediction, result.point, of_stage=True)
    advice = "" if result.ranking is not None else uneven_stages(prediction, result.point)
    has_blocks = prediction.pipeline_blocks is not None
    memory = memory_timeline(prediction, result.point, with_times=False) if has_blocks else None
    point.breakdown(row | inputs, kernels, layouts, run.grid.levels, advice, memory)


def _load_inputs(run: Run, result: _PointResult) -> Columns:
    """Return the inputs of a point that serves, with the mean lengths of its file and its devices."""
    from fastflow.performance.serving.requests.lengths import with_lengths

    devices = result.prediction.inputs[DEVICES][[result.point]]
    return dict(with_lengths(run.grid.first_inputs())) | {DEVICES: devices}


def _refuse_files(run: Run) -> None:
    """Refuse files that a point does not have; raises InputError.

    A page is of a fleet; a schedule and a placement are of one iteration, or of a fleet.
    """
    if not (run.trace or run.picture or run.html):
        return
    from fastflow.performance.serving.requests.lengths import BATCHED

    inputs = run.grid.first_inputs()
    if run.grid.served and TRACE in inputs and inputs["serve.mode"][0] in BATCHED:
        return
    if run.html:
        allowed = (
            "null where a point has no fleet: serve.trace=FILE with serve=continuous or disaggregated;"
            " python -m fastflow.report DATASET html=FILE.html makes a page of any dataset"
        )
        raise InputError("html", run.html, allowed)
    for key in ("trace", "picture") if run.grid.served else ():
        if getattr(run, key):
            allowed = (
                "null where a point serves without a fleet (serve.trace=FILE with serve=continuous or"
                " disaggregated): it is of one iteration"
            )
            raise InputError(key, getattr(run, key), allowed)


class _PointResult(NamedTuple):
    """The results of one point."""

    table: ResultTable
    """Its row."""
    prediction: Prediction | ServingResult
    point: int
    """Its index among the points of the prediction."""
    ranking: Ranking | None
    """All its strategies, where the best one is selected."""
    reason: Reason | None
    """Why it is not feasible."""


def _predict(run: Run) -> _PointResult:
    """Predict one point, or all of its strategies; raises InputError."""
    from fastflow.engine.run.chunks import tabulate
    from fastflow.engine.run.predict import predict_range, reasons_of
    from fastflow.engine.run.ranking import ranking_of, ranks_strategies
    from fastflow.engine.run.workers import CancellationToken, interruptible

    with interruptible(CancellationToken()):
        if ranks_strategies(run):
            ranking = ranking_of(run)
            table, reason = ranking.table_of_best(run), ranking.reasons.at(0)
            return _PointResult(table, ranking.prediction, ranking.best, ranking, reason)
        (predicted,) = predict_range(run.grid, 0, 1)
        table, reason = (
            tabulate(run.grid, np.zeros(1, dtype=np.int64), [predicted]),
            reasons_of(predicted).at(0),
        )
        return _PointResult(table, predicted.prediction, 0, None, reason)


def _write_missing(run: Run, rows: pa.Table, store: Store, missing: list[int]) -> None:
    """Write the missing parts of an open dataset from known rows, or by workers where there is an address."""
    from fastflow.engine.run.execute import fill, fill_from

    if run.settings.address:
        fill(run, store, missing)
    else:
        fill_from(rows, store, missing)


def _without_time(reason: Reason | None) -> InputError:
    """Return the error of a single point, with key and value where its reason names them."""
    return CompositionError("no time can be predicted") if reason is None else reason.error()


def _check_output_files(run: Run) -> None:
    """Refuse a file that cannot be written before anything is computed."""
    for key, name, endings in (
        ("trace", run.trace, (".json",)),
        ("picture", run.picture, (".svg", ".png", ".pdf")),
        ("html", run.html, (".html", ".htm")),
    ):
        if name and Path(name).suffix not in endings:
            raise InputError(key, name, "a file whose name ends in " + " or ".join(endings))
        if name and not Path(name).absolute().parent.is_dir():
            raise InputError(key, name, "a file in a folder that exists")
        if name and (Path(name).is_dir() or not os.access(Path(name).absolute().parent, os.W_OK)):
            raise InputError(key, name, "a file that can be written")


def _draw(run: Run, result: _PointResult, row: dict[str, Any], store: Store) -> list[str]:
    """Write the trace, the picture and the page of a point; returns a line on each."""
    if run.grid.served:
        return _draw_fleet(run, result, row, store) if run.trace or run.picture or run.html else []
    lines: list[str] = []
    prediction = cast("Prediction", result.prediction)  # files are refused where a point serves
    if run.trace:
        from fastflow.reporting.trace import trace_point, write_trace

        with _writing("trace", run.trace):
            write_trace(run.trace, trace_point(prediction, result.point))
        lines.append(f"Trace: {run.trace}; open it at https://ui.perfetto.dev")
    if run.picture:
        from fastflow.reporting.placement.drawing import draw_placement

        with _writing("picture", run.picture):
            draw_placement(run.picture, prediction, result.point)
        lines.append(f"Picture: {run.picture}")
    return lines


def _draw_fleet(run: Run, result: _PointResult, row: dict[str, Any], store: Store) -> list[str]:
    """Write the trace, the picture and the page of a point with a fleet; returns a line on each."""
    from fastflow.performance.serving.predict import run_fleet_of
    from fastflow.reporting.charts import fleet as chart
    from fastflow.reporting.charts.style import render
    from fastflow.reporting.fleet_trace import trace_fleet
    from fastflow.reporting.trace import write_trace

    served = run_fleet_of(take(dict(result.prediction.inputs), np.array([result.point])))
    lines: list[str] = []
    if run.trace:
        with _writing("trace", run.trace):
            write_trace(run.trace, trace_fleet(served))
        lines.append(f"Trace: {run.trace}; open it at https://ui.perfetto.dev")
    if run.picture:
        title = f"{served.members.pool.size} servers, {result.prediction.inputs['chip.name'][result.point]}"
        with _writing("picture", run.picture):
            kind = Path(run.picture).suffix.removeprefix(".")
            Path(run.picture).write_bytes(render(lambda: chart.draw(served, title), kind))
        lines.append(f"Picture: {run.picture}")
    if run.html:
        from fastflow.engine.dataset.reader import find
        from fastflow.reporting.html.fleet import fleet_page

        inputs = {key: column[0] for key, column in _load_inputs(run, result).items()}
        with _writing("html", run.html):
            Path(run.html).write_bytes(fleet_page(served, row, inputs, find(store.folder.shown)))
        lines.append(f"Page: {run.html}; open it in a browser")
    return lines


@contextmanager
def _writing(key: str, name: str) -> Iterator[None]:
    """Raise InputError with the key and the name of a file that cannot be written."""
    try:
        yield
    except OSError as error:
        raise InputError(key, name, f"a file that can be written ({error.strerror or error})") from None
