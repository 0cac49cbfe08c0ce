"""Which of the user's keys have no effect: points are predicted once more without each of them.

These points come after the others in the same call of the model, which costs little more. A key has no effect
where every result is the same to the bit. A value that says what the key's default stands for by itself has
one: it is what is done. In a grid of more than `max_trials` points some are tried, and a key counts if it has
no effect at any of them.
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
from fastflow.performance.serving import serves
from fastflow.performance.serving.scenario import CONTINUOUS, DISAGGREGATED
from fastflow.physics.hardware.packages import DEVICES
from fastflow.physics.parallelism.bounds import KEY as WITHIN
from fastflow.physics.parallelism.candidates import CHOSEN, STRATEGY
from fastflow.physics.parallelism.strategy import AUTO, parse
from fastflow.physics.parallelism.virtual_stages import RECOMPUTE
from fastflow.physics.workload.precision import OPERAND
from fastflow.physics.workload.request_lengths import KEY as LENGTHS
from fastflow.schema import find_input
from fastflow.schema.results import BETWEEN, NO_EFFECT

COLUMN = NO_EFFECT.name
UNSET = "as without it"
_OF_PREFILL = ("serve.prefill.strategy", "serve.prefill.devices")
"""Keys that result columns name, where prefill has devices of its own."""
_SIZES = ("model.batch", "model.hidden", "model.layers", "model.sequence")
"""Keys that every iteration of training depends on."""
_LOADS = ("serve.isl", "serve.osl", "serve.concurrency", "serve.rate")
"""Keys that all servers of requests depend on, unless a file says what is sent."""
_OF_CHOICE = (*CHOSEN, WITHIN, "parallel.per_layer", "parallel.microbatches")
"""Keys that direct the choice of a strategy in training: they have acted once it is made."""
_MEANINGS = {
    RECOMPUTE: "recompute", "parallel.split": "split", "parallel.zero": "zero",
    "parallel.microbatch": "microbatch", "parallel.microbatches": "microbatches", "placement": "placement",
}  # fmt: skip
"""Key to the result column that says what it comes to, where its default stands for something."""
_ECHOES = (COLUMN, "placement_asked", "recompute", "schedule", "split", "zero")
"""Result columns that repeat an input, as it was given or as it is meant."""
_STANDS_FOR = (AUTO, OPERAND)
"""Defaults that stand for another value."""


class Trial(NamedTuple):
    """Points predicted once more with other values of some inputs."""

    key: str  # of the user: that of an input, or a group
    said: str  # with which value results are the same, if they are in all trials that say so
    points: Ints  # of the share, (rows,)
    values: Mapping[str, list[Scalar | None]]  # of inputs, (rows,); None: the input is not there
    stands: Bools  # whether the value stands for another one, (rows,)

    def fits(self, inputs: Columns) -> bool:
        """Say whether points have the same inputs with and without it."""
        return all(key in inputs and None not in column for key, column in self.values.items())


# --- what is tried


def trials_of(grid: Grid, share: Share, inputs: Columns) -> list[Trial]:
    """Return what is tried of the points of a share; inputs: theirs, as the user has them."""
    if not grid.unset or grid.no_effect is not None:
        return []
    known = [grid.unset.get(one, {}) for one in share.block.combinations(share.points).tolist()]
    chosen = (inputs[STRATEGY] == AUTO).tolist() if not serves(inputs) else [False] * len(known)
    found: list[Trial] = []
    never: tuple[str, ...] = _SIZES
    if serves(inputs):
        mode = inputs["serve.mode"]
        is_loaded = np.isin(mode, (CONTINUOUS, DISAGGREGATED)).all() and LENGTHS not in inputs
        never = *(_LOADS if is_loaded else ()), *(_OF_PREFILL if (mode == DISAGGREGATED).any() else ())
    for key in dict.fromkeys(key for one in known for key in one if key not in never):
        tried: dict[str, list[tuple[int, Sequence[Mapping[str, Scalar | None]], bool]]] = {}
        for point, one in enumerate(known):
            if key in one and not (chosen[point] and key in _OF_CHOICE):
                for said, others, stands in _others(key, point, one, inputs):
                    tried.setdefault(said, []).append((point, others, stands))
        found += [trial for said, rows in tried.items() for trial in _trials(key, said, rows)]
    return found


def _others(
    key: str, point: int, known: Unset, inputs: Columns
) -> Iterator[tuple[str, Sequence[Mapping[str, Scalar | None]], bool]]:
    """Yield what results of a point may be as with: in words, and by other values, all of them.

    And whether these are of a default that stands for another value.
    """
    without = known[key]
    if {*without} != {key}:  # several inputs follow from it, as from a group
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
    others: list[Scalar | None] = [default]
    stands = default in _STANDS_FOR or (column.auto is not None and default == column.auto)
    if stands and column.choices and key not in _MEANINGS:
        others = [choice for choice in column.choices if choice not in (value, default)]
    elif column.kind == "int" and default == 0 and not stands:  # which may stand for what others give
        others += [2 * int(value)]
    yield UNSET, [{key: other} for other in others], stands


def _devices_of(strategy: str) -> int:
    """Return the devices of a strategy, which are those of the system then; 0 of none."""
    try:
        return 0 if strategy == AUTO else parse(str(strategy)).devices
    except InputError:
        return 0


def _trials(
    key: str, said: str, rows: Sequence[tuple[int, Sequence[Mapping[str, Scalar | None]], bool]]
) -> Iterator[Trial]:
    """Yield the trials of a key at points: the first values of each, then the second, and so on."""
    for number in range(max(len(others) for _, others, _ in rows)):
        some = [(point, others[number], stands) for point, others, stands in rows if number < len(others)]
        names = dict.fromkeys(name for _, other, _ in some for name in other)
        yield Trial(
            key,
            said,
            points=np.array([point for point, _, _ in some]),
            values={name: [other.get(name) for _, other, _ in some] for name in names},
            stands=np.array([stands for _, _, stands in some]),
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
    at = points
    for trial in fitting:
        for key, values in trial.values.items():
            other = np.array(values)
            tried[key] = tried[key].astype(np.result_type(tried[key], other))
            tried[key][at : at + other.size] = other
        at += trial.points.size
    return tried


# --- what came of it


def without_effect(
    columns: Columns,
    points: int,
    trials: Sequence[Trial],
    inputs: Columns,
    results_of: Callable[[Columns], Columns],
    chosen_alike: Callable[[Trial, Ints], Bools],
) -> Columns:
    """Return the result columns of points alone, with the one that names keys without effect.

    columns: of points, and after them of the trials that fit; inputs: of points, under their strategy;
    results_of: predicts the other trials, which have other inputs. chosen_alike: says of some rows of a trial
    whether what is chosen, as the strategy may be, is the same.
    """
    if not trials:
        return columns
    time = columns.get("time_s", np.full(points, np.nan))  # points that serve have none without results
    has_time = ~np.isnan(np.ma.filled(np.ma.asarray(time, np.float64), np.nan))
    same: dict[tuple[str, str], dict[int, bool]] = {}
    at = points
    for trial in trials:
        if trial.fits(inputs):
            others, first = columns, at
            at += trial.points.size
        else:
            try:
                others, first = results_of(changed(inputs, trial)), 0
            except InputError:  # what is missing is needed
                continue
        alike = _same(columns, others, trial, first) & has_time[trial.points]
        known = same.setdefault((trial.key, trial.said), {})
        alike &= [known.get(point, True) for point in trial.points.tolist()]
        alike[alike] = chosen_alike(trial, np.flatnonzero(alike))
        for point, is_alike in zip(trial.points.tolist(), alike.tolist(), strict=True):
            known[point] = is_alike
    texts = [
        BETWEEN.join(
            f"{key}: {said}"
            for (key, said), known in same.items()
            if known.get(point) and (said == UNSET or not same.get((key, UNSET), {}).get(point))
        )
        for point in range(points)
    ]
    own = {name: column[:points] for name, column in columns.items()} if at > points else columns
    return own | {COLUMN: np.array(texts, dtype=np.str_)}


def changed(inputs: Columns, trial: Trial) -> Columns:
    """Return the inputs of a trial's points, which lack some of the points' or have others beside."""
    found = {key: column[trial.points] for key, column in inputs.items()}
    for key, values in trial.values.items():
        if None in values:
            found.pop(key, None)
        else:
            found[key] = np.array(values)
    return found


def _same(columns: Columns, others: Columns, trial: Trial, first: int) -> Bools:
    """Say at which of a trial's points all results are the same; others: results, its own from `first` on."""
    same = np.zeros(trial.points.size, dtype=np.bool_)
    if {*columns} - {COLUMN} != {*others} - {COLUMN}:
        return same
    rows = np.arange(same.size)
    points, tried = trial.points, first + rows
    for name in (name for name in columns if name not in _ECHOES):
        alike = _equal(columns[name][points], others[name][tried])
        if not alike.all():
            rows, points, tried = rows[alike], points[alike], tried[alike]
            if not rows.size:
                return same
    same[rows] = True
    meaning = _MEANINGS.get(trial.key, "")
    if meaning in columns:
        meant = columns[meaning][trial.points] == others[meaning][first : first + same.size]
        same &= ~(trial.stands & np.ma.filled(meant, False))
    return same


def _equal(left: NDArray[np.generic], right: NDArray[np.generic]) -> Bools:
    """Compare values of two columns; what is missing in both is the same."""
    if not isinstance(left, np.ma.MaskedArray) and not isinstance(right, np.ma.MaskedArray):
        alike: Bools = left == right
        if left.dtype.kind == "f" and not alike.all():
            alike |= np.isnan(left) & np.isnan(right)
        return alike
    lacks = [np.ma.getmaskarray(left), np.ma.getmaskarray(right)]
    values = [np.ma.getdata(left), np.ma.getdata(right)]
    if values[0].dtype.kind == "f":
        lacks = [missing | np.isnan(column) for missing, column in zip(lacks, values, strict=True)]
    same: Bools = (lacks[0] & lacks[1]) | (~lacks[0] & ~lacks[1] & (values[0] == values[1]))
    return same


# --- grids of many points


def tried_of_large(grid: Grid, predict: Callable[[Columns, Sequence[Trial]], Columns]) -> Grid:
    """Return a grid of many points with what of the user's keys has no effect in all of it.

    predict: returns the result columns of points and their trials.
    """
    if grid.points <= max_trials(grid):
        return grid
    said: set[str] | None = None
    for _, share in grid.shares_of(_some_points(grid)) if grid.unset else ():
        inputs = grid.inputs(share)
        for text in predict(inputs, trials_of(grid, share, inputs))[COLUMN].tolist():
            here = {*text.split(BETWEEN)}
            said = here if said is None else said & here
    return grid._replace(no_effect=BETWEEN.join(sorted(said or ())))


def _some_points(grid: Grid) -> Ints:
    """Return points of a large grid of which it is known what they would be without the user's keys.

    Some of every batch are among them.
    """
    combinations = sorted(grid.unset)
    if len(combinations) == grid.batch.size:
        points = np.linspace(0, grid.points - 1, num_sampled(grid)).astype(np.int64)
    else:
        some = combinations[:: -(-len(combinations) // num_sampled(grid))]
        points = np.array([grid.first_point_of(one) for one in some], dtype=np.int64)
    return np.unique(np.concatenate([points, grid.first_points()]))
