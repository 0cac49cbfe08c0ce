"""Points to their classes of validation, and to the result columns that say how far such answers were off."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.core.dedupe import unique_rows
from fastflow.core.tables import Bools, Columns, Floats, Inputs, is_broadcast, repeat
from fastflow.performance.accuracy.table import (
    MEASURED,
    RELATIVE,
    UNMEASURED,
    ChipStanding,
    Errors,
    Key,
    find,
)
from fastflow.schema.results import TYPICAL, TYPICAL_TTFT
from fastflow.schema.serving import NO_SERVING

TRAINING, SERVING, FIRST_TOKEN = "training", "serving", "first token"
WORK = {
    "gemm": "products", "operator": "operators", "attention": "attention",
    "latent_attention": "latent attention", "experts": "experts", "rnn": "recurrent",
    "transformer": TRAINING,
}  # fmt: skip
"""The kind of work of each family of models that measurements are of."""
BACKWARD = ("gemm", "rnn", "transformer")
"""Families whose backward passes are measured too."""
MODES = ("continuous",)
"""Ways to serve that are measured."""
_FLAGS = {"model.training": 0.0, "system.devices": 1.0, "model.experts": 1.0, "model.latent": 0.0}
"""Inputs of which it counts whether they are above something."""
_HOST = ("server.iteration", "server.row")
_NOTHING, _NO_TEXT = np.zeros(1), np.array([""])
_TEXTS = (
    "model.name",
    "model.dtype",
    "model.phase",
    "serve.mode",
    "chip.name",
    "chip.architecture",
    "chip.maker",
)


class Point(NamedTuple):
    """What the class of a point follows from; "" and False where it has no such input."""

    name: str
    dtype: str
    phase: str
    mode: str
    chip: str
    architecture: str
    maker: str
    training: bool
    several: bool  # devices
    mixture: bool
    latent: bool
    hosted: bool  # by a server that takes time of its own
    generated: bool
    stock: bool

    def standing(self) -> ChipStanding:
        """Return what is known of its chip."""
        return ChipStanding(self.chip, self.architecture, self.maker, self.generated, self.stock)


class Answer(NamedTuple):
    """What is said of a point."""

    errors: Errors | None  # None: not validated
    first_token: Errors | None
    said: str


def typical_columns(inputs: Inputs, stock: Bools) -> Columns:
    """Return how far such answers were off, (points,) each: `schema.results.TYPICAL`, of what serves more.

    inputs: of points that share a call of the model. stock: whether a point's chip is one of the library,
    none of whose figures is changed.
    """
    points, place = describe(inputs, stock)
    if len(points) == 1:
        return {name: repeat(values, place.size) for name, values in _columns_of_one(points[0]).items()}
    parts = [_columns_of_one(point) for point in points]
    return {name: np.concatenate([part[name] for part in parts])[place] for name in parts[0]}


@lru_cache(maxsize=1024)
def _columns_of_one(point: Point) -> Columns:
    """Return the columns of one point, (1,) each."""
    answer = _answer(point)
    error, bias, rows = np.nan, np.nan, 0
    if answer.errors is not None:
        error, bias, rows = answer.errors.mean_error, answer.errors.bias, answer.errors.rows
    values = (np.array([error]), np.array([bias]), np.array([rows]), np.array([answer.said], dtype=object))
    found: Columns = {column.name: value for column, value in zip(TYPICAL, values, strict=True)}
    if point.mode not in ("", NO_SERVING):
        first = answer.first_token
        found[TYPICAL_TTFT.name] = np.array([np.nan if first is None else first.mean_error])
    for value in found.values():
        value.flags.writeable = False
    return found


def typical_errors(inputs: Inputs, stock: Bools, first_token: bool = False) -> Floats:
    """Return the mean relative error of every point's class, NaN where it is not validated; (points,).

    inputs, stock: as for `typical_columns`. first_token: that of the time to the first token.
    """
    answers, place = _answers(inputs, stock)
    errors = [answer.first_token if first_token else answer.errors for answer in answers]
    return np.array([one.mean_error if one else np.nan for one in errors])[place]


def describe(inputs: Inputs, stock: Bools) -> tuple[list[Point], NDArray[np.int64]]:
    """Return the distinct points as far as classes go, and which of them each point is, (points,).

    inputs: (points,) each, or (1,) where all are alike; stock: (points,).
    """
    if stock.size == 1:
        return [_only(inputs, bool(stock[0]))], np.zeros(1, dtype=np.int64)
    columns: list[NDArray[Any]] = [_plain(inputs.get(key, _NO_TEXT)) for key in _TEXTS]
    columns += [_above(inputs, key, least) for key, least in _FLAGS.items()]
    hosted = _above(inputs, _HOST[0]) | _above(inputs, _HOST[1])
    columns += [hosted, np.array([_is_generated(inputs)]), _plain(stock)]
    first, place = unique_rows([column for column in columns if column.size > 1], stock.size)
    found = [
        Point._make(column[row if column.size > 1 else 0].item() for column in columns)
        for row in first.tolist()
    ]
    return found, place


def _only(inputs: Inputs, stock: bool) -> Point:
    """Return the only point, as far as classes go."""
    texts = [str(inputs[key][0]) if key in inputs else "" for key in _TEXTS]
    flags = [key in inputs and bool(inputs[key][0] > least) for key, least in _FLAGS.items()]
    hosted = any(key in inputs and inputs[key][0] > 0.0 for key in _HOST)
    return Point._make([*texts, *flags, hosted, _is_generated(inputs), stock])


def _is_generated(inputs: Inputs) -> bool:
    """Say whether points' chips are made from their budgets."""
    return "chip.pinned.mcus" not in inputs and "chip.pinned.core_Hz" not in inputs


def _plain(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column, of shape (1,) where it is known to have one value."""
    return column[:1] if is_broadcast(column) else column


def _above(inputs: Inputs, key: str, least: float = 0.0) -> Bools:
    """Return which points have more of an input than something; none of those that lack it."""
    return np.asarray(_plain(inputs.get(key, _NOTHING)) > least)


def _answers(inputs: Inputs, stock: Bools) -> tuple[list[Answer], NDArray[np.int64]]:
    """Return what is said of the distinct points, and which of them each point is."""
    points, place = describe(inputs, stock)
    return [_answer(point) for point in points], place


def work_of(point: Point) -> tuple[str, str]:
    """Return the kind of work of a point, "" where no measurement is of such work, and the kind of model."""
    if point.mode not in ("", NO_SERVING):
        is_measured = point.mode in MODES and point.hosted
        return (SERVING if is_measured else ""), kind_of_model(point)
    work = WORK.get(point.name, "")
    if work == TRAINING:
        return (work if point.training else ""), kind_of_model(point)
    if point.several or (point.training and point.name not in BACKWARD):
        return "", ""
    return work, point.phase


def kind_of_model(point: Point) -> str:
    """Return what kind of model a transformer is."""
    return " ".join(["latent"] * point.latent + ["mixture" if point.mixture else "dense"])


@lru_cache(maxsize=1024)
def _answer(point: Point) -> Answer:
    """Return what is said of a point."""
    work, kind = work_of(point)
    if not work:
        return Answer(None, None, f"{_NOT} (no measurements of {_unknown_work(point)})")
    chip = point.standing()
    found = find(work, kind, point.dtype, chip)
    of = ", ".join(filter(None, (work, kind)))
    if found is None:
        return Answer(None, None, f"{_NOT} ({of}: no measurements on such a chip)")
    key, errors = found
    if work != SERVING:
        off, bias = f"{errors.mean_error:.0%}", f"{errors.bias:.2f}"
        return Answer(errors, None, _said(key, off, errors.rows, bias))
    soon = find(FIRST_TOKEN, kind, point.dtype, chip)
    first = soon[1] if soon else None
    off, bias = f"{errors.mean_error:.0%} per token", f"{errors.bias:.2f}"
    if first is not None:
        off, bias = f"{off}, {first.mean_error:.0%} to the first,", f"{bias}, {first.bias:.2f}"
    return Answer(errors, first, _said(key, off, errors.rows, bias))


_NOT = "not validated"


def _unknown_work(point: Point) -> str:
    """Say what no measurement is of."""
    if point.mode in ("", NO_SERVING):
        return "such work"
    return "a server without time of its own" if point.mode in MODES else f"serve.mode={point.mode}"


def _said(key: Key, off: str, rows: int, bias: str) -> str:
    """Write what is known of a class in a line."""
    where = {
        MEASURED: f"on {key.chip}", RELATIVE: f"on chips of {key.chip}",
        UNMEASURED: f"on other chips of {key.chip}",
    }.get(key.standing, "on chips that their budgets make")  # fmt: skip
    what = ", ".join(filter(None, (key.work, key.kind, key.dtype, where)))
    return f"{what} ({key.standing}): mean error {off} of {rows:,} rows, predicted/measured {bias}"
