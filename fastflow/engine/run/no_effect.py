"""Which of the user's keys have no effect: points are predicted once more without each of them.

These trials follow the points in the same call of the model, which adds little time. A key has no effect
where every result is the same to the bit. A value that equals what the key's default stands for
counts as having an effect. In a grid of more than `max_trials` points some are tried, and a key counts if it
has no effect at any of them.
No key is tried at points with traces of more than MAX_REQUESTS requests, whose simulations take long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.config.model_inputs import Scalar
from fastflow.core.errors import InputError
from fastflow.core.tables import Bools, Columns, Ints, broadcast_column, is_broadcast
from fastflow.engine.grid.grid import Grid, Share, Unset
from fastflow.engine.grid.unset import max_trials, num_sampled
from fastflow.performance.serving import is_serving
from fastflow.performance.serving.requests.lengths import arrivals_of_files, file_key
from fastflow.physics.hardware.packages import DEVICES
from fastflow.physics.parallelism.bounds import KEY as WITHIN
from fastflow.physics.parallelism.candidates import CHOSEN, STRATEGY
from fastflow.physics.parallelism.strategy import AUTO, parse
from fastflow.physics.parallelism.virtual_stages import RECOMPUTE
from fastflow.physics.workload.precision import OPERAND
from fastflow.physics.workload.request_trace import KEY as TRACE
from fastflow.schema import find_input
from fastflow.schema.results import BETWEEN, NO_EFFECT
from fastflow.schema.serving import CONTINUOUS, DISAGGREGATED

COLUMN = NO_EFFECT.name
UNSET = "as without it"
_OF_PREFILL = ("serve.prefill.strategy", "serve.prefill.devices")
"""Keys that result columns have, where prefill has separate devices."""
_SIZES = ("model.batch", "model.hidden", "model.layers", "model.sequence")
"""Keys that every iteration of training depends on."""
_LOADS = ("serve.isl", "serve.osl", "serve.concurrency", "serve.request_rate")
"""Keys that all servers of requests depend on, unless a file has the requests."""
_OF_CHOICE = (*CHOSEN, WITHIN, "parallel.per_layer", "parallel.microbatches")
"""Keys that direct the choice of a strategy in training."""
_MEANINGS = {
    RECOMPUTE: "recompute", "parallel.pipeline_partition": "split", "parallel.zero_stage": "zero",
    "parallel.microbatch": "microbatch", "parallel.microbatches": "microbatches", "placement": "placement",
}  # fmt: skip
"""Key to the result column of its resolved value, where its default stands for a value."""
_ECHOES = (COLUMN, "placement_requested", "recompute", "schedule", "split", "zero")
"""Result columns that repeat an input, as written or resolved."""
MAX_REQUESTS = 5_000
"""Requests of a trace with which keys are tried."""
_PLACEHOLDERS = (AUTO, OPERAND)
"""Defaults that stand for another value."""


class Trial(NamedTuple):
    """Points predicted once more with other values of some inputs."""

    key: str  # the user's key: an input, or a group
    same_as: str  # the value with the same results, if all trials with this text have them
    points: Ints  # of the share, (rows,)
    values: Mapping[str, list[Scalar | None]]  # of inputs, (rows,); None: the input is not there
    is_placeholder: Bools  # whether the value stands for another value, (rows,)

    def fits(self, inputs: Columns) -> bool:
        """Say whether points have the same inputs with and without it."""
        return all(key in inputs and None not in column for key, column in self.values.items())


# --- trials


def trials_of(grid: Grid, share: Share, inputs: Columns) -> list[Trial]:
    """Return the trials of the points of a share; inputs: of the points, as the user set them."""
    if not grid.unset or grid.no_effect is not None or _has_long_traces(inputs):
        return []
    unset_of_points = [
        grid.unset.get(combination, {}) for combination in share.block.combinations(share.points).tolist()
    ]
    is_auto = (
        (inputs[STRATEGY] == AUTO).tolist() if not is_serving(inputs) else [False] * len(unset_of_points)
    )
    trials: list[Trial] = []
    never: tuple[str, ...] = _SIZES
    if is_serving(inputs):
        mode = inputs["serve.mode"]
        is_loaded = np.isin(mode, (CONTINUOUS, DISAGGREGATED)).all() and not file_key(inputs)
        never = *(_LOADS if is_loaded else ()), *(_OF_PREFILL if (mode == DISAGGREGATED).any() else ())
    for key in dict.fromkeys(key for unset in unset_of_points for key in unset if key not in never):
        rows_of: dict[str, list[tuple[int, Sequence[Mapping[str, Scalar | None]], bool]]] = {}
        for point, unset in enumerate(unset_of_points):
            if key in unset and not (is_auto[point] and key in _OF_CHOICE):
                for same_as, values, is_placeholder in _trial_values(key, point, unset, inputs):
                    rows_of.setdefault(same_as, []).append((point, values, is_placeholder))
        trials += [
            trial
            for same_as, tried_rows in rows_of.items()
            for trial in _make_trials(key, same_as, tried_rows)
        ]
    return trials


def _has_long_traces(inputs: Columns) -> bool:
    """Say whether points send so many requests of traces that another simulation takes long."""
    return TRACE in inputs and int(arrivals_of_files(inputs).max()) > MAX_REQUESTS


def _trial_values(
    key: str, point: int, unset: Unset, inputs: Columns
) -> Iterator[tuple[str, Sequence[Mapping[str, Scalar | None]], bool]]:
    """Yield the alternatives of a key at a point: their text, and all their values.

    Also whether the default stands for another value.
    """
    without = unset[key]
    if {*without} != {key}:  # several inputs depend on it, as on a group
        if without:
            yield UNSET, [without], False
        return
    value, default = inputs[key][point].item() if key in inputs else None, without[key]
    column = find_input(key)
    assert column is not None
    if key == RECOMPUTE and str(value).isdigit() and int(str(value)) > 0:
        fewer = str(int(str(value)) - 1)
        yield f"as with {fewer}", [{key: fewer}], False
    if (
        value == default
        or value is None
        or (key == DEVICES and _devices_of(inputs[STRATEGY][point]) == value)
    ):
        return
    values: list[Scalar | None] = [default]
    is_placeholder = default in _PLACEHOLDERS or (column.auto is not None and default == column.auto)
    if is_placeholder and column.choices and key not in _MEANINGS:
        values = [choice for choice in column.choices if choice not in (value, default)]
    elif column.kind == "int" and default == 0 and not is_placeholder:  # 0 may stand for a derived value
        values += [2 * int(value)]
    yield UNSET, [{key: other} for other in values], is_placeholder


def _devices_of(strategy: str) -> int:
    """Return the number of devices of a strategy; 0 for an invalid one or `auto`."""
    try:
        return 0 if strategy == AUTO else parse(str(strategy)).devices
    except InputError:
        return 0


def _make_trials(
    key: str, same_as: str, rows: Sequence[tuple[int, Sequence[Mapping[str, Scalar | None]], bool]]
) -> Iterator[Trial]:
    """Yield the trials of a key at points: the first values of each, then the second, and so on."""
    for number in range(max(len(values) for _, values, _ in rows)):
        selected = [
            (point, values[number], is_placeholder)
            for point, values, is_placeholder in rows
            if number < len(values)
        ]
        names = dict.fromkeys(name for _, other, _ in selected for name in other)
        yield Trial(
            key,
            same_as,
            points=np.array([point for point, _, _ in selected]),
            values={name: [other.get(name) for _, other, _ in selected] for name in names},
            is_placeholder=np.array([is_placeholder for _, _, is_placeholder in selected]),
        )


def with_trials(inputs: Columns, trials: Sequence[Trial]) -> Columns:
    """Return inputs of points, and after them those of the trials that fit, in order."""
    fitting = [trial for trial in trials if trial.fits(inputs)]
    if not fitting:
        return inputs
    points = next(iter(inputs.values())).size
    rows = np.concatenate([np.arange(points), *(trial.points for trial in fitting)])
    tried = {
        key: broadcast_column(column, rows.size) if points == 1
        else broadcast_column(column[:1], rows.size) if is_broadcast(column) else column[rows]
        for key, column in inputs.items()
    }  # fmt: skip
    row = points
    for trial in fitting:
        for key, values in trial.values.items():
            column_values = np.array(values)
            tried[key] = tried[key].astype(np.result_type(tried[key], column_values))
            tried[key][row : row + column_values.size] = column_values
        row += trial.points.size
    return tried


# --- results of trials


def without_effect(
    columns: Columns,
    points: int,
    trials: Sequence[Trial],
    inputs: Columns,
    results_of: Callable[[Columns], Columns],
    chosen_alike: Callable[[Trial, Ints], Bools],
) -> Columns:
    """Return the result columns of the points, with the column of keys without effect.

    columns: of points, and after them of the trials that fit; inputs: of points, under their strategy;
    results_of: predicts the other trials, which have other inputs. chosen_alike: whether rows of a trial
    have the same chosen strategy.
    """
    if not trials:
        return columns
    time = columns.get("time_s", np.full(points, np.nan))  # points that serve lack it without results
    has_time = ~np.isnan(np.ma.filled(np.ma.asarray(time, np.float64), np.nan))
    same_at: dict[tuple[str, str], dict[int, bool]] = {}
    row = points
    for trial in trials:
        if trial.fits(inputs):
            trial_columns, first = columns, row
            row += trial.points.size
        else:
            try:
                trial_columns, first = results_of(inputs_of_trial(inputs, trial)), 0
            except InputError:  # a missing input is required
                continue
        same_results = _same(columns, trial_columns, trial, first) & has_time[trial.points]
        same_at_point = same_at.setdefault((trial.key, trial.same_as), {})
        same_results &= [same_at_point.get(point, True) for point in trial.points.tolist()]
        same_results[same_results] = chosen_alike(trial, np.flatnonzero(same_results))
        for point, is_same in zip(trial.points.tolist(), same_results.tolist(), strict=True):
            same_at_point[point] = is_same
    texts = [
        BETWEEN.join(
            f"{key}: {same_as}"
            for (key, same_as), same_at_point in same_at.items()
            if same_at_point.get(point) and (same_as == UNSET or not same_at.get((key, UNSET), {}).get(point))
        )
        for point in range(points)
    ]
    points_only = {name: column[:points] for name, column in columns.items()} if row > points else columns
    return points_only | {COLUMN: np.array(texts, dtype=np.str_)}


def inputs_of_trial(inputs: Columns, trial: Trial) -> Columns:
    """Return the inputs of a trial's points, which may lack inputs of the points or have more."""
    changed_inputs = {key: column[trial.points] for key, column in inputs.items()}
    for key, values in trial.values.items():
        if None in values:
            changed_inputs.pop(key, None)
        else:
            changed_inputs[key] = np.array(values)
    return changed_inputs


def _same(columns: Columns, trial_columns: Columns, trial: Trial, first: int) -> Bools:
    """Return where a trial's points have the same results; trial_columns: theirs from row `first` on."""
    same = np.zeros(trial.points.size, dtype=np.bool_)
    if {*columns} - {COLUMN} != {*trial_columns} - {COLUMN}:
        return same
    rows = np.arange(same.size)
    points, tried = trial.points, first + rows
    for name in (name for name in columns if name not in _ECHOES):
        equal = _equal(columns[name][points], trial_columns[name][tried])
        if not equal.all():
            rows, points, tried = rows[equal], points[equal], tried[equal]
            if not rows.size:
                return same
    same[rows] = True
    meaning = _MEANINGS.get(trial.key, "")
    if meaning in columns:
        same_meaning = columns[meaning][trial.points] == trial_columns[meaning][first : first + same.size]
        same &= ~(trial.is_placeholder & np.ma.filled(same_meaning, False))
    return same


def _equal(left: NDArray[np.generic], right: NDArray[np.generic]) -> Bools:
    """Compare values of two columns; nulls are equal."""
    if not isinstance(left, np.ma.MaskedArray) and not isinstance(right, np.ma.MaskedArray):
        equal: Bools = left == right
        if left.dtype.kind == "f" and not equal.all():
            equal |= np.isnan(left) & np.isnan(right)
        return equal
    is_null = [np.ma.getmaskarray(left), np.ma.getmaskarray(right)]
    values = [np.ma.getdata(left), np.ma.getdata(right)]
    if values[0].dtype.kind == "f":
        is_null = [missing | np.isnan(column) for missing, column in zip(is_null, values, strict=True)]
    both_equal: Bools = (is_null[0] & is_null[1]) | (~is_null[0] & ~is_null[1] & (values[0] == values[1]))
    return both_equal


# --- grids of many points


def with_no_effect_of_sample(grid: Grid, predict: Callable[[Columns, Sequence[Trial]], Columns]) -> Grid:
    """Return a grid of many points with the user's keys that have no effect at any sampled point.

    predict: returns the result columns of points and their trials.
    """
    if grid.points <= max_trials(grid):
        return grid
    no_effect: set[str] | None = None
    for _, share in grid.shares_of(_sample_points(grid)) if grid.unset else ():
        inputs = grid.inputs(share)
        for text in predict(inputs, trials_of(grid, share, inputs))[COLUMN].tolist():
            of_point = {*text.split(BETWEEN)}
            no_effect = of_point if no_effect is None else no_effect & of_point
    return grid._replace(no_effect=BETWEEN.join(sorted(no_effect or ())))


def _sample_points(grid: Grid) -> Ints:
    """Return sampled points of a large grid whose inputs without the user's keys are known.

    They include points of every batch.
    """
    combinations = sorted(grid.unset)
    if len(combinations) == grid.batch.size:
        points = np.linspace(0, grid.points - 1, num_sampled(grid)).astype(np.int64)
    else:
        sampled = combinations[:: -(-len(combinations) // num_sampled(grid))]
        points = np.array([grid.first_point_of(combination) for combination in sampled], dtype=np.int64)
    return np.unique(np.concatenate([points, grid.first_points()]))
