"""Details of the points of a dataset: their kernels, the areas of their chips, drawings of placements.

A dataset has one row per point; the details are predicted from the overrides of the dataset. A point
whose predicted time differs from the dataset, since the library or the model has changed, has no details.
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
from fastflow.config.messages import pluralize
from fastflow.core.errors import InputError
from fastflow.core.tables import Columns, Floats, Ints, take
from fastflow.engine.dataset.reader import Dataset
from fastflow.engine.grid.plan import plan
from fastflow.engine.run.predict import predict_points
from fastflow.performance.results import explain
from fastflow.performance.serving import is_serving
from fastflow.physics.parallelism.candidates import CHOSEN
from fastflow.reporting.html.content import Details, Kernels
from fastflow.reporting.html.memory_boxes import MemoryBuilder
from fastflow.reporting.placement.drawing import render_placement
from fastflow.reporting.terminal.point import merge_identical

if TYPE_CHECKING:
    from fastflow.engine.grid.grid import Grid
    from fastflow.performance.prediction import Prediction

_CHUNK = 512  # points
_MAX_KERNELS = 100_000  # of all points: more than these exceed 5 MB
_REL_TOLERANCE = 1e-9  # largest relative difference of equal times
_MAX_PICTURES = 6  # each takes half a second
_PLACEMENT_COLUMNS = ("system", "strategy", "placement", "devices")
"""Columns that determine a drawing."""
_STRATEGY = CHOSEN[0]
_PER_LAYER = "parallel.per_layer"
_COMPARE = re.compile(r"\bcomp(?:are|ete)=(\w+)")  # compete: before version 0.2.0


def details_of(dataset: Dataset, frame: pd.DataFrame, config_dir: str | None) -> tuple[Details | None, str]:
    """Predict the kernels of points; returns their details, or None and the reason.

    Points that serve have areas only, no kernels. frame: rows of a grid or of a search,
    with all columns. config_dir: the user's library.
    """
    builder = _DetailsBuilder(frame)
    try:
        with hydra_rules():
            grid = plan(Composer.of_library(config_dir), dataset.user_overrides).grid
            for rows, inputs in _inputs(dataset, grid, frame):
                builder.add_areas(rows, inputs)
                if is_serving(inputs):
                    continue
                for start in range(0, rows.size, _CHUNK):
                    chunk = np.arange(start, min(start + _CHUNK, rows.size))
                    predicted = predict_points(take(inputs, chunk))
                    builder.add(rows[chunk], predicted.inputs, predicted.prediction)  # type: ignore[arg-type]
    except InputError as error:
        advice = "" if config_dir else "; --config-dir names your own library, if they were made with one"
        return None, f"Kernels are not shown: the points cannot be predicted again ({error}){advice}."
    if not builder.kernels and builder.num_changed:
        reason = "the library or the model has changed since, and their times with it"
        return None, f"Kernels are not shown: {reason}."
    if not builder.kernels and not builder.areas:
        return None, ""
    notes = []
    if builder.num_changed:
        notes.append(
            f"{pluralize(builder.num_changed, 'point')} would have another time today: without kernels."
        )
    if builder.num_crowded:
        notes.append(
            f"{pluralize(builder.num_crowded, 'point')} without kernels: the page would be too large."
        )
    return builder.details(), " ".join(notes)


def _inputs(dataset: Dataset, grid: Grid, frame: pd.DataFrame) -> Iterator[tuple[Ints, Columns]]:
    """Yield indices of rows that share a call of the model, and their inputs; raises InputError."""
    if "candidate" in frame:
        from fastflow.analysis.search.candidates import candidates_of

        compare = _COMPARE.search(dataset.about("search"))
        candidates = candidates_of(grid, compare[1] if compare else "software")
        rows = np.flatnonzero(frame["time_s"].notna())  # designs without shares are not scored
        designs = frame[list(candidates.space.keys)].to_numpy(dtype=np.float64)[rows]
        candidate = frame["candidate"].to_numpy(dtype=np.int64)[rows]
        if candidate.size and candidate.max() >= candidates.point.size:
            raise InputError("candidate", int(candidate.max()), f"one of {candidates.point.size:,}")
        for rows_of, inputs in candidates.inputs(candidate, designs):
            yield rows[rows_of], inputs
        return
    axes = dataset.texts("axes") if dataset.about("axes") else []
    if not {*axes} <= {*grid.keys}:
        yield np.arange(len(frame)), _ranking_inputs(grid, frame, axes)
        return
    points = frame["point"].to_numpy(dtype=np.int64)
    if points.size and points.max() >= grid.points:
        raise InputError("point", int(points.max()), f"one of {grid.points:,}")
    strategy = np.array(frame["strategy"].astype(str).to_list(), dtype=np.str_)
    for rows_of, share in grid.shares_of(points):
        inputs = grid.inputs(share)
        if (
            not grid.has_layer_runs
        ):  # `auto` selects only the strategy, unless layers have separate strategies
            inputs[_STRATEGY] = np.where(inputs[_PER_LAYER], inputs[_STRATEGY], strategy[rows_of])
        yield rows_of, inputs


def _ranking_inputs(grid: Grid, frame: pd.DataFrame, axes: list[str]) -> Columns:
    """Return the inputs of a ranking's rows: of the single point of a grid, with the options of each row."""
    inputs = take(grid.first_inputs(), np.zeros(len(frame), dtype=np.int64))
    for key in axes:
        inputs[key] = np.array(frame[key].to_list(), dtype=inputs[key].dtype.type)
    return inputs


class _DetailsBuilder:
    """Collects the details of the rows of a frame."""

    def __init__(self, frame: pd.DataFrame) -> None:
        """Take the rows."""
        self.rows = len(frame)
        self.time = frame["time_s"].to_numpy(dtype=np.float64)
        self.kernels: dict[int, Columns] = {}
        self.num_left, self.num_changed, self.num_crowded = _MAX_KERNELS, 0, 0
        self.areas: dict[str, Floats] = {}
        self.levels: dict[str, None] = {}
        keys = list(
            frame[[name for name in _PLACEMENT_COLUMNS if name in frame]].astype(str).itertuples(index=False)
        )
        counts = Counter(key for key, devices in zip(keys, frame["devices"], strict=True) if devices > 1)
        picture_of_row = [key for key, _ in counts.most_common(_MAX_PICTURES)]
        self.picture_of_row = np.array(
            [picture_of_row.index(key) if key in picture_of_row else -1 for key in keys]
        )
        self.pictures: dict[int, bytes] = {}
        self.memory = MemoryBuilder(len(frame))

    def add(self, rows: Ints, inputs: Columns, prediction: Prediction) -> None:
        """Add predicted points; rows: their indices in the frame, (points,)."""
        time = np.full(rows.size, np.nan)
        time[prediction.timed] = prediction.timeline.total
        is_same = np.abs(time - self.time[rows]) <= _REL_TOLERANCE * self.time[rows]
        self.num_changed += int((~is_same & np.isfinite(self.time[rows])).sum())
        for point in np.flatnonzero(is_same).tolist():
            row = int(rows[point])
            if self.num_left <= 0:
                self.num_crowded += 1
                continue
            self.kernels[row] = merge_identical(explain(prediction, point, of_stage=True))
            self.num_left -= self.kernels[row]["kernel"].size
            self.levels |= dict.fromkeys(_levels_of(self.kernels[row]))
            self.memory.add(row, prediction, point)
            number = int(self.picture_of_row[row])
            if number >= 0 and number not in self.pictures:
                self.pictures[number] = render_placement(prediction, point)

    def add_areas(self, rows: Ints, inputs: Columns) -> None:
        """Add the area of every part of the die, and the unassigned area."""
        parts = [key for key in inputs if key.startswith("chip.area.")]
        if not parts:
            return
        shares = {key.removeprefix("chip.area."): inputs[key] for key in parts}
        shares[""] = np.maximum(1.0 - np.sum(list(shares.values()), axis=0), 0.0)
        for part, share in shares.items():
            area = self.areas.setdefault(part, np.full(self.rows, np.nan))
            area[rows] = share * inputs["chip.die_area"]

    def details(self) -> Details:
        """Return the details."""
        order = sorted(self.pictures)
        index_of = {number: index for index, number in enumerate(order)}
        picture = np.array([index_of.get(int(number), -1) for number in self.picture_of_row])
        picture[[row not in self.kernels for row in range(self.rows)]] = -1
        pictures = tuple(self.pictures[number] for number in order)
        return Details(self._kernels(), self.areas, pictures, picture, self.memory.result())

    def _kernels(self) -> Kernels:
        """Return the kernels of all rows, concatenated."""
        if not self.kernels:
            empty = np.zeros(0, dtype=np.str_)
            return Kernels(np.zeros(self.rows + 1, dtype=np.int64), empty, empty, empty, {}, ())
        levels = sorted(self.levels, key=lambda level: (level == "dram", level))
        by_row = [self.kernels.get(row) for row in range(self.rows)]
        sizes = [0 if kernels is None else kernels["kernel"].size for kernels in by_row]
        present = [kernels for kernels in by_row if kernels is not None]

        def joined(name: str) -> Any:
            return np.concatenate([kernels[name] for kernels in present])

        launches = joined("repeat").astype(np.float64)
        numbers = {"launches": launches, "time_s": joined("time_s"), "comm_s": joined("comm_s")}
        numbers["flop"] = launches * joined("flop")
        for level in levels:
            moved = [kernels.get(f"{level}_B", np.zeros(kernels["kernel"].size)) for kernels in present]
            numbers[f"{level}_B"] = launches * np.concatenate(moved)
        offset = np.concatenate([[0], np.cumsum(sizes)])
        name, phase, bound_by = (joined(column) for column in ("kernel", "phase", "bound_by"))
        return Kernels(offset, name, phase, bound_by, numbers, tuple(levels))


def _levels_of(kernels: Columns) -> list[str]:
    """Return the memory levels with bytes in a table of kernels."""
    return [name.removesuffix("_B") for name in kernels if name.endswith("_B")]
