"""`fastflow.fits`: the least number of devices for a model as given, and in every way that saves memory.

Each way is a point of its own: the user's overrides with those of the way in place of the same keys,
`system.devices=auto` and `parallel.strategy=auto` unless the user sets them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fastflow.config.composer import Composer
from fastflow.config.messages import key_of, sets
from fastflow.core.errors import InputError
from fastflow.core.tables import values_of
from fastflow.engine.grid.plan import plan
from fastflow.engine.grid.run import Run, naming_errors, refuse_others
from fastflow.engine.run.predict import Predicted, columns_of, predict_points
from fastflow.engine.run.progress import SILENT, Listener
from fastflow.performance.auto.ways import AS_GIVEN, SERVING, TRAINING, WAYS, Way
from fastflow.performance.serving import is_serving
from fastflow.physics.hardware.packages import DEVICES
from fastflow.physics.parallelism.candidates import STRATEGY
from fastflow.physics.parallelism.strategy import AUTO
from fastflow.physics.workload import has_layer_runs

CONFIG = "fits"
_LAYOUT = ("strategy", "microbatch", "recompute", "zero", "split")
_MEMORY = ("footprint_B", "dram_offered_B")
_NUMBERS = {"devices": "", "footprint_B": "B", "dram_offered_B": "B", "tokens_per_s": "1/s", "time_s": "s"}
"""Numeric columns and their units."""
_WHOLE = {"devices", "microbatch", "zero"}
"""Columns of whole numbers, some of them missing."""
RELATIVE, RELATIVE_DEVICE = "relative_time", "relative_device_time"


class Fits(NamedTuple):
    """The ways of a point, and whether each fits."""

    rows: pd.DataFrame
    """A row for every way; `attrs` of the frame hold the units."""
    serves: bool
    chip: str
    model: str
    chooses_devices: bool
    """Whether the least number of devices is chosen; False: the user sets a number."""


def fits(composer: Composer, overrides: Sequence[str], listener: Listener = SILENT) -> Fits:
    """Return the least number of devices of a point in every way; raises InputError.

    overrides: of one point. listener: gets the number of ways, and of those that are done.
    """
    if sets(overrides, "output"):
        raise InputError("output", "a folder", "null: fits prints a table, and leaves no dataset")
    given = with_auto(overrides)
    run = _single_point(composer, given)
    columns = run.grid.first_inputs()
    inputs = dict(values_of(columns))
    work, has_layers = SERVING if is_serving(columns) else TRAINING, has_layer_runs(columns)
    ways = [way for way in WAYS.values() if way.work == work and (has_layers or not way.of_transformers)]
    listener.start(f"{1 + len(ways)} ways", 1 + len(ways), "ways")
    with naming_errors(composer, run):
        rows = [_row(AS_GIVEN, (), predict_points(columns))]
    listener.advance(1)
    for way in ways:
        row = _row_of_way(composer, given, way, inputs)
        rows += [row] if row else []
        listener.advance(1)
    frame = _with_relative(pd.DataFrame(rows))
    labels = run.grid.labels
    chooses = run.grid.chooses_devices
    return Fits(frame, work == SERVING, str(labels["chip"][0]), str(labels["model"][0]), chooses)


def with_auto(overrides: Sequence[str]) -> tuple[str, ...]:
    """Return overrides with the number of devices and the strategy `auto`, where they do not set them."""
    unset = [f"{key}={AUTO}" for key in (DEVICES, STRATEGY) if not sets(overrides, key)]
    return (*overrides, *unset)


def _single_point(composer: Composer, overrides: Sequence[str]) -> Run:
    """Plan one point; raises InputError where it has several."""
    run = plan(composer, overrides)
    refuse_others(run)
    if run.grid.points != 1:
        allowed = "one: fits is of one point"
        raise InputError(run.grid.first_key, "several values", allowed, composer.origin_of_overrides)
    return run


def _row_of_way(
    composer: Composer, given: Sequence[str], way: Way, inputs: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the row of a way; None where it changes nothing. inputs: of the point as given.

    A way that does not apply to the model, the chip or a type has the reason alone.
    """
    changes = way.overrides_of(inputs)
    kept = [text for text in given if not sets(changes, key_of(text))]
    try:
        run = _single_point(composer, (*kept, *changes))
        columns = run.grid.first_inputs()
        if dict(values_of(columns)) == inputs:
            return None
        with naming_errors(composer, run):
            return _row(way.words, changes, predict_points(columns))
    except InputError as error:
        return {"way": way.words, "overrides": " ".join(changes), "fits": False, "reason": str(error)}


def _row(words: str, changes: Sequence[str], predicted: Predicted) -> dict[str, Any]:
    """Return the row of a predicted way."""
    columns = columns_of(predicted)

    def value(name: str) -> Any:
        column = columns.get(name)
        return None if column is None or np.ma.is_masked(column[0]) else np.asarray(column)[0].item()

    row = {"way": words, "overrides": " ".join(changes), "fits": _has_memory(value)}
    row |= {name: value(name) for name in ("devices", *_LAYOUT, *_MEMORY)}
    if not row["fits"] and value("reason_code") != "memory":
        row["devices"] = None  # refused on any number
    rate = value("tokens_per_s")
    row["tokens_per_s"] = rate if rate is not None and rate == rate else value("prefill_tokens_per_s")
    return row | {"time_s": value("time_s"), "reason": value("reason")}


def _has_memory(value: Any) -> bool:
    """Say whether a point fits: it has a time, and the memory that it needs; value: of a column by name.

    A point may exceed a limit of latency, load or power, and fit.
    """
    code, time = value("reason_code"), value("time_s")
    return code != "memory" and time is not None and time == time


def _with_relative(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the time of each, over that of the first which fits.

    Time is of a token, or of an iteration of models without tokens; `relative_device_time` is multiplied by
    the number of devices.
    """
    rows = rows.dropna(axis=1, how="all")
    for name in _NUMBERS:
        rows[name] = pd.to_numeric(rows.get(name, np.nan), errors="coerce")
    for name in _WHOLE & set(rows):
        rows[name] = rows[name].astype("Int64")
    rate = rows["tokens_per_s"].where(rows["tokens_per_s"].notna(), 1.0 / rows["time_s"])
    time = (1.0 / rate).where(rows["fits"])
    device_time = time * rows["devices"].astype(float)
    for name, column in ((RELATIVE, time), (RELATIVE_DEVICE, device_time)):
        fitting = column.dropna()
        rows[name] = column / fitting.iloc[0] if len(fitting) else np.nan
    rows["reason"] = rows.pop("reason").fillna("") if "reason" in rows else ""
    rows = rows.dropna(axis=1, how="all")
    rows.attrs["units"] = {name: _NUMBERS.get(str(name), "") for name in rows}
    return rows
