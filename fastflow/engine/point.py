"""One point: predicted, stored, explained on the screen, and what it leaves beside its dataset."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import fastflow
from fastflow.engine.config import Composer
from fastflow.engine.folder import RANKING
from fastflow.engine.plan import Study
from fastflow.engine.ranking import asks_for_the_best, ranking_of
from fastflow.errors import CompositionError, InputError

if TYPE_CHECKING:
    from fastflow.crossflow import Prediction


def run_point(composer: Composer, overrides: Sequence[str], study: Study, output: str) -> None:
    """Predict one point, store it, and print how its time comes about; raises InputError if it has none."""
    from fastflow.engine import execute, show
    from fastflow.engine.crew import Watch, interruptible
    from fastflow.engine.runner import predict_points, tabulate
    from fastflow.results import explain

    _check_files(study)
    _check_folder(study, output)
    ranking = ranking_of(composer, overrides, study) if asks_for_the_best(study) else None
    if ranking is not None:
        _check_folder(ranking, output + RANKING)
    with interruptible(Watch()):
        predicted = predict_points(study.grid, 0, 1)
        table = tabulate(study.grid, 0, 1, predicted)
    row = {name: values[0] for name, values in table.items()}
    if not row["time_s"] == row["time_s"]:
        raise _without_time(row["reason"])
    prediction = predicted[0].prediction
    store = execute.store(study, output)
    show.breakdown(row, explain(prediction, 0), study.grid.levels)
    if ranking is not None:
        show.ranking(execute.store(ranking, output + RANKING))
    for line in _draw(study, prediction):
        print(line)
    print(f"Dataset: {store.folder.shown}")


def _without_time(reason: str) -> InputError:
    """Return the refusal of a single point, as one of a key and its value where the reason is one."""
    named = re.fullmatch(r"([\w.]+)=([^:]*): allowed is (.*)", reason)
    return InputError(*named.groups()) if named else CompositionError(f"no time can be predicted: {reason}")


def _check_files(study: Study) -> None:
    """Refuse a file that cannot be written before anything is computed."""
    for key, name, endings in (
        ("trace", study.trace, (".json",)),
        ("picture", study.picture, (".svg", ".png", ".pdf")),
    ):
        if name and Path(name).suffix not in endings:
            raise InputError(key, name, "a file whose name ends in " + " or ".join(endings))
        if name and not Path(name).absolute().parent.is_dir():
            raise InputError(key, name, "a file in a folder that exists")
        if name and (Path(name).is_dir() or not os.access(Path(name).absolute().parent, os.W_OK)):
            raise InputError(key, name, "a file that can be written")


def _check_folder(study: Study, output: str) -> None:
    """Refuse a folder that cannot take the study's dataset before anything is computed."""
    from fastflow.engine.store import Store

    dataset = Store(output, study.grid, fastflow.__version__)
    dataset.open()
    dataset.discard()


def _draw(study: Study, prediction: Prediction) -> list[str]:
    """Write the files that the point was asked for; returns a line on each."""
    lines: list[str] = []
    if study.trace:
        from fastflow.trace import trace_point, write_trace

        with _writing("trace", study.trace):
            write_trace(study.trace, trace_point(prediction, 0))
        lines.append(f"Trace: {study.trace}; open it at https://ui.perfetto.dev")
    if study.picture:
        from fastflow.figures.drawing import draw_placement

        with _writing("picture", study.picture):
            draw_placement(study.picture, prediction, 0)
        lines.append(f"Picture: {study.picture}")
    return lines


@contextmanager
def _writing(key: str, name: str) -> Iterator[None]:
    """Say of a file that cannot be written which one it is."""
    try:
        yield
    except OSError as error:
        raise InputError(key, name, f"a file that can be written ({error.strerror or error})") from None
