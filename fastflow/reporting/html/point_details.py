"""Points of a dataset predicted again: their kernels, the areas of their chips, drawings of placements.

A dataset has a row a point; what is inside of it is predicted once more, from the overrides that
the dataset holds. A point whose time comes out otherwise than the dataset says, as the library or the model
has changed since, is left without.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.config.messages import counted
from fastflow.core.errors import InputError
from fastflow.core.tables import Columns, Floats, Ints, take
from fastflow.engine.dataset.reader import Dataset
from fastflow.engine.grid.plan import plan
from fastflow.engine.run.predict import predict_points
from fastflow.performance.results import explain
from fastflow.performance.serving import serves
from fastflow.physics.parallelism.candidates import CHOSEN
from fastflow.reporting.html.content import Details, Kernels
from fastflow.reporting.placement.drawing import render_placement
from fastflow.reporting.terminal.point import merged

if TYPE_CHECKING:
    from fastflow.engine.grid.grid import Grid
    from fastflow.performance.prediction import Prediction

_AT_ONCE = 512  # points
_MOST_KERNELS = 100_000  # of all points: more of them are a file of more than 5 MB
_SAME = 1e-9  # relative difference of a time that is the same
_MOST_PICTURES = 6  # each takes half a second
_PLACED = ("system", "strategy", "placement", "devices")
"""What a drawing follows from."""
_STRATEGY = CHOSEN[0]
_PER_LAYER = "parallel.per_layer"
_COMPETE = re.compile(r"\bcompete=(\w+)")


def details_of(dataset: Dataset, frame: pd.DataFrame, config_dir: str | None) -> tuple[Details | None, str]:
    """Predict points again; returns their details, or None and why there are none.

    Points that serve have areas alone: no kernel is of one of them. frame: rows of a grid, or of a search,
    with all columns. config_dir: the user's own library.
    """
    found = _Found(frame)
    try:
        with hydra_rules():
            grid = plan(Composer.of_library(config_dir), dataset.user_overrides).grid
            for places, inputs in _inputs(dataset, grid, frame):
                found.add_areas(places, inputs)
                if serves(inputs):
                    continue
                for start in range(0, places.size, _AT_ONCE):
                    some = np.arange(start, min(start + _AT_ONCE, places.size))
                    predicted = predict_points(take(inputs, some))
                    found.add(places[some], predicted.inputs, predicted.prediction)  # type: ignore[arg-type]
    except InputError as error:
        own = "" if config_dir else "; --config-dir names your own library, if they were made with one"
        return None, f"Kernels are not shown: the points cannot be predicted again ({error}){own}."
    if not found.kernels and found.changed:
        changed = "the library or the model has changed since, and their times with it"
        return None, f"Kernels are not shown: {changed}."
    if not found.kernels and not found.areas:
        return None, ""
    told = []
    if found.changed:
        told.append(f"{counted(found.changed, 'point')} would have another time today: without kernels.")
    if found.crowded:
        told.append(f"{counted(found.crowded, 'point')} without kernels: the page would be too large.")
    return found.details(), " ".join(told)


def _inputs(dataset: Dataset, grid: Grid, frame: pd.DataFrame) -> Iterator[tuple[Ints, Columns]]:
    """Yield places of rows that share a call of the model, and their inputs; raises InputError."""
    if "candidate" in frame:
        from fastflow.analysis.search.candidates import candidates_of

        compete = _COMPETE.search(dataset.about("search"))
        candidates = candidates_of(grid, compete[1] if compete else "software")
        rows = np.flatnonzero(frame["time_s"].notna())  # a design without shares was not scored
        designs = frame[list(candidates.space.keys)].to_numpy(dtype=np.float64)[rows]
        of = frame["candidate"].to_numpy(dtype=np.int64)[rows]
        if of.size and of.max() >= candidates.point.size:
            raise InputError("candidate", int(of.max()), f"one of {candidates.point.size:,}")
        for places, inputs in candidates.inputs(of, designs):
            yield rows[places], inputs
        return
    axes = dataset.texts("axes") if dataset.about("axes") else []
    if not {*axes} <= {*grid.keys}:
        yield np.arange(len(frame)), _ranked(grid, frame, axes)
        return
    points = frame["point"].to_numpy(dtype=np.int64)
    if points.size and points.max() >= grid.points:
        raise InputError("point", int(points.max()), f"one of {grid.points:,}")
    strategy = np.array(frame["strategy"].astype(str).to_list(), dtype=np.str_)
    for places, share in grid.shares_of(points):
        inputs = grid.inputs(share)
        if not grid.has_layer_runs:  # the strategy is all that `auto` chooses, unless each layer has its own
            inputs[_STRATEGY] = np.where(inputs[_PER_LAYER], inputs[_STRATEGY], strategy[places])
        yield places, inputs


def _ranked(grid: Grid, frame: pd.DataFrame, axes: list[str]) -> Columns:
    """Return the inputs of a ranking's rows, which vary what fastflow chose for the one point of a grid."""
    inputs = take(grid.first_inputs(), np.zeros(len(frame), dtype=np.int64))
    for key in axes:
        inputs[key] = np.array(frame[key].to_list(), dtype=inputs[key].dtype.type)
    return inputs


class _Found:
    """What has been found of the rows of a frame."""

    def __init__(self, frame: pd.DataFrame) -> None:
        """Take the rows."""
        self.rows = len(frame)
        self.time = frame["time_s"].to_numpy(dtype=np.float64)
        self.kernels: dict[int, Columns] = {}
        self.room, self.changed, self.crowded = _MOST_KERNELS, 0, 0
        self.areas: dict[str, Floats] = {}
        self.levels: dict[str, None] = {}
        keys = list(frame[[name for name in _PLACED if name in frame]].astype(str).itertuples(index=False))
        often = Counter(key for key, devices in zip(keys, frame["devices"], strict=True) if devices > 1)
        wanted = [key for key, _ in often.most_common(_MOST_PICTURES)]
        self.wanted = np.array([wanted.index(key) if key in wanted else -1 for key in keys])
        self.pictures: dict[int, bytes] = {}

    def add(self, places: Ints, inputs: Columns, prediction: Prediction) -> None:
        """Take points that were predicted; places: of their rows, (points,)."""
        again = np.full(places.size, np.nan)
        again[prediction.timed] = prediction.timeline.total
        same = np.abs(again - self.time[places]) <= _SAME * self.time[places]
        self.changed += int((~same & np.isfinite(self.time[places])).sum())
        for point in np.flatnonzero(same).tolist():
            row = int(places[point])
            if self.room <= 0:
                self.crowded += 1
                continue
            self.kernels[row] = merged(explain(prediction, point, of_stage=True))
            self.room -= self.kernels[row]["kernel"].size
            self.levels |= dict.fromkeys(_levels_of(self.kernels[row]))
            number = int(self.wanted[row])
            if number >= 0 and number not in self.pictures:
                self.pictures[number] = render_placement(prediction, point)

    def add_areas(self, places: Ints, inputs: Columns) -> None:
        """Add the area of every part of the die, and what of it no part has."""
        parts = [key for key in inputs if key.startswith("chip.area.")]
        if not parts:
            return
        shares = {key.removeprefix("chip.area."): inputs[key] for key in parts}
        shares[""] = np.maximum(1.0 - np.sum(list(shares.values()), axis=0), 0.0)
        for part, share in shares.items():
            area = self.areas.setdefault(part, np.full(self.rows, np.nan))
            area[places] = share * inputs["chip.die_area"]

    def details(self) -> Details:
        """Return all of it."""
        order = sorted(self.pictures)
        shown = {number: place for place, number in enumerate(order)}
        picture = np.array([shown.get(int(number), -1) for number in self.wanted])
        picture[[row not in self.kernels for row in range(self.rows)]] = -1
        pictures = tuple(self.pictures[number] for number in order)
        return Details(self._kernels(), self.areas, pictures, picture)

    def _kernels(self) -> Kernels:
        """Return the kernels of all rows, one after the other."""
        if not self.kernels:
            nothing = np.zeros(0, dtype=np.str_)
            return Kernels(np.zeros(self.rows + 1, dtype=np.int64), nothing, nothing, nothing, {}, ())
        levels = sorted(self.levels, key=lambda level: (level == "dram", level))
        each = [self.kernels.get(row) for row in range(self.rows)]
        sizes = [0 if one is None else one["kernel"].size for one in each]
        known = [one for one in each if one is not None]

        def joined(name: str) -> Any:
            return np.concatenate([one[name] for one in known])

        launches = joined("repeat").astype(np.float64)
        numbers = {"launches": launches, "time_s": joined("time_s"), "comm_s": joined("comm_s")}
        numbers["flop"] = launches * joined("flop")
        for level in levels:
            moved = [one.get(f"{level}_B", np.zeros(one["kernel"].size)) for one in known]
            numbers[f"{level}_B"] = launches * np.concatenate(moved)
        offset = np.concatenate([[0], np.cumsum(sizes)])
        name, phase, bound_by = (joined(one) for one in ("kernel", "phase", "bound_by"))
        return Kernels(offset, name, phase, bound_by, numbers, tuple(levels))


def _levels_of(kernels: Columns) -> list[str]:
    """Return the memory levels that kernels have bytes of."""
    return [name.removesuffix("_B") for name in kernels if name.endswith("_B")]
