"""One point: predicted, stored, printed with its breakdown, with a trace or a picture on request."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fastflow.configuration.composer import Composer
from fastflow.dataset.folder import RANKING
from fastflow.errors import CompositionError, InputError
from fastflow.evaluation.ranking import asks_for_the_best, ranking_of
from fastflow.grid.run import Run

if TYPE_CHECKING:
    from fastflow.crossflow import Prediction


def run_point(composer: Composer, overrides: Sequence[str], run: Run, output: str) -> None:
    """Predict one point, store it, and print how its time comes about; raises InputError if it has none."""
    from fastflow.evaluation import execute
    from fastflow.evaluation.runner import predict_points, tabulate
    from fastflow.evaluation.workers import Watch, interruptible
    from fastflow.results import explain
    from fastflow.show import grid, point

    _check_files(run)
    _check_folder(run, output)
    ranking = ranking_of(composer, overrides, run) if asks_for_the_best(run) else None
    if ranking is not None:
        _check_folder(ranking, output + RANKING)
    with interruptible(Watch()):
        predicted = predict_points(run.grid, 0, 1)
        table = tabulate(run.grid, 0, 1, predicted)
    row = {name: values[0] for name, values in table.items()}
    if not row["time_s"] == row["time_s"]:
        raise _without_time(row["reason"])
    prediction = predicted[0].prediction
    by_workers = bool(run.settings.address)  # who are asked for it
    store = execute.store(run, output) if by_workers else execute.store_table(run, output, table)
    point.breakdown(row, explain(prediction, 0), run.grid.levels)
    if ranking is not None:
        grid.show_ranking(execute.store(ranking, output + RANKING))
    for line in _draw(run, prediction):
        print(line)
    print(f"Dataset: {store.folder.shown}")


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


def _check_folder(run: Run, output: str) -> None:
    """Refuse a folder that cannot take the study's dataset before anything is computed."""
    from fastflow.dataset.store import Store

    dataset = Store(output, run.grid)
    dataset.open()
    dataset.discard()


def _draw(run: Run, prediction: Prediction) -> list[str]:
    """Write the files that the point was asked for; returns a line on each."""
    lines: list[str] = []
    if run.trace:
        from fastflow.trace import trace_point, write_trace

        with _writing("trace", run.trace):
            write_trace(run.trace, trace_point(prediction, 0))
        lines.append(f"Trace: {run.trace}; open it at https://ui.perfetto.dev")
    if run.picture:
        from fastflow.figures.drawing import draw_placement

        with _writing("picture", run.picture):
            draw_placement(run.picture, prediction, 0)
        lines.append(f"Picture: {run.picture}")
    return lines


@contextmanager
def _writing(key: str, name: str) -> Iterator[None]:
    """Say of a file that cannot be written which one it is."""
    try:
        yield
    except OSError as error:
        raise InputError(key, name, f"a file that can be written ({error.strerror or error})") from None
