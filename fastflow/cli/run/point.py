"""One point: predicted, stored, printed with its breakdown, with a trace or a picture on request."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from fastflow.core.errors import CompositionError, InputError
from fastflow.engine.dataset.folder import RANKING
from fastflow.engine.grid.run import Run

if TYPE_CHECKING:
    import pyarrow as pa

    from fastflow.engine.dataset.schema import ResultTable
    from fastflow.engine.dataset.store import Store
    from fastflow.engine.run.ranking import Ranking
    from fastflow.performance.prediction import Prediction
    from fastflow.performance.serving.predict import Served


def run_point(run: Run, output: str) -> None:
    """Predict one point, store it, and print how its time comes about; raises InputError if it has none."""
    from fastflow.engine.dataset.schema import column_order, to_arrow
    from fastflow.engine.dataset.selected_columns import chosen_columns
    from fastflow.engine.run.execute import opened
    from fastflow.reporting.terminal import grid
    from fastflow.reporting.terminal.tables import column_sheet, console

    _check_files(run)
    columns = chosen_columns(run.columns, column_order(run.grid))
    if run.grid.served:
        _refuse_files(run)
    with ExitStack() as later:
        with opened(run, output) as (store, missing):
            found = _predicted(run)
            row = {name: values[0] for name, values in found.table.items()}
            if not row["time_s"] == row["time_s"]:
                raise _without_time(row["reason"])
            ranking = found.ranking
            if ranking is not None:
                ranked = later.enter_context(opened(ranking.run, output + RANKING))
            _complete(run, to_arrow(found.table, store.schema), store, missing)
        _tell(run, found, row)
        if columns:
            console().print(column_sheet(columns, row))
        if ranking is not None:
            beside, lacking = ranked
            rows = to_arrow(ranking.table, beside.schema)
            _complete(ranking.run, rows, beside, lacking)
            chances = partial(ranking.chances_of_best, run) if run.grid.uncertainty is not None else None
            grid.show_ranking(rows, beside.folder.shown, ranking.search, chances)
    for line in _draw(run, found):
        print(line)
    print(f"Dataset: {store.folder.shown}")


def _tell(run: Run, found: _Found, row: dict[str, Any]) -> None:
    """Print how the results of a point come about."""
    if run.grid.served:
        from fastflow.performance.serving.columns import prefill_chip_columns
        from fastflow.performance.serving.requests.lengths import with_lengths
        from fastflow.reporting.terminal.serving import show_served

        asked = with_lengths(run.grid.first_inputs())
        prefill = prefill_chip_columns(asked)
        show_served(
            row, {key: column[0] for key, column in asked.items()},
            None if prefill is None else {name: column[0] for name, column in prefill.items()},
        )  # fmt: skip
        return
    from fastflow.engine.run.stage_imbalance import uneven_stages
    from fastflow.performance.results import explain, explain_layout
    from fastflow.reporting.terminal import point
    from fastflow.reporting.terminal.point import SHOWN_PREFIXES

    prediction = cast("Prediction", found.prediction)
    layouts = explain_layout(prediction, found.place)
    inputs = {
        key: column[found.place].item()
        for key, column in prediction.inputs.items()
        if key.startswith(SHOWN_PREFIXES)
    }
    kernels = explain(prediction, found.place, of_stage=True)
    advice = "" if found.ranking is not None else uneven_stages(prediction, found.place)
    point.breakdown(row | inputs, kernels, layouts, run.grid.levels, advice)


def _refuse_files(run: Run) -> None:
    """Refuse what points that serve do not have: a schedule, a placement; raises InputError."""
    for key in ("trace", "picture"):
        if getattr(run, key):
            raise InputError(key, getattr(run, key), "null where a point serves: it is of one iteration")


class _Found(NamedTuple):
    """What is known of one point."""

    table: ResultTable
    """Its row."""
    prediction: Prediction | Served
    place: int
    """The point of the prediction that it is."""
    ranking: Ranking | None
    """Where it was asked for its best strategy."""


def _predicted(run: Run) -> _Found:
    """Predict one point, or all of its strategies; raises InputError."""
    from fastflow.engine.run.chunks import tabulate
    from fastflow.engine.run.predict import predict_range
    from fastflow.engine.run.ranking import asks_for_the_best, ranking_of
    from fastflow.engine.run.workers import CancellationToken, interruptible

    with interruptible(CancellationToken()):
        if asks_for_the_best(run):
            ranking = ranking_of(run)
            return _Found(ranking.table_of_best(run), ranking.prediction, ranking.best, ranking)
        predicted = predict_range(run.grid, 0, 1)
        return _Found(tabulate(run.grid, 0, 1, predicted), predicted[0].prediction, 0, None)


def _complete(run: Run, rows: pa.Table, store: Store, missing: list[int]) -> None:
    """Write what an open dataset lacks of rows that are known, unless workers are asked for them."""
    from fastflow.engine.run.execute import fill, fill_from

    if run.settings.address:
        fill(run, store, missing)
    else:
        fill_from(rows, store, missing)


def _without_time(reason: str) -> InputError:
    """Return the refusal of a single point, as one of a key and its value where the reason is one."""
    return InputError.read(reason) or CompositionError(f"no time can be predicted: {reason}")


def _check_files(run: Run) -> None:
    """Refuse a file that cannot be written before anything is computed."""
    for key, name, endings in (
        ("trace", run.trace, (".json",)),
        ("picture", run.picture, (".svg", ".png", ".pdf")),
    ):
        if name and Path(name).suffix not in endings:
            raise InputError(key, name, "a file whose name ends in " + " or ".join(endings))
        if name and not Path(name).absolute().parent.is_dir():
            raise InputError(key, name, "a file in a folder that exists")
        if name and (Path(name).is_dir() or not os.access(Path(name).absolute().parent, os.W_OK)):
            raise InputError(key, name, "a file that can be written")


def _draw(run: Run, found: _Found) -> list[str]:
    """Write the files that the point was asked for; returns a line on each."""
    lines: list[str] = []
    prediction = cast("Prediction", found.prediction)  # files are refused where a point serves
    if run.trace:
        from fastflow.reporting.trace import trace_point, write_trace

        with _writing("trace", run.trace):
            write_trace(run.trace, trace_point(prediction, found.place))
        lines.append(f"Trace: {run.trace}; open it at https://ui.perfetto.dev")
    if run.picture:
        from fastflow.reporting.placement.drawing import draw_placement

        with _writing("picture", run.picture):
            draw_placement(run.picture, prediction, found.place)
        lines.append(f"Picture: {run.picture}")
    return lines


@contextmanager
def _writing(key: str, name: str) -> Iterator[None]:
    """Say of a file that cannot be written which one it is."""
    try:
        yield
    except OSError as error:
        raise InputError(key, name, f"a file that can be written ({error.strerror or error})") from None
