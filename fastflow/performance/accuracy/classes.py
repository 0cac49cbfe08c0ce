"""Classes of validation of points, and the result columns with the errors of these classes."""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.core.dedupe import factorize, unique_rows
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
from fastflow.physics.workload.models.transformer.layer_kind import EXPERTS
from fastflow.physics.workload.models.transformer.layer_pattern import KEY as PATTERN
from fastflow.physics.workload.models.transformer.layer_pattern import largest_own
from fastflow.physics.workload.models.transformer.lora import RANK
from fastflow.schema.results import TYPICAL, TYPICAL_TTFT
from fastflow.schema.serving import NO_SERVING

TRAINING, SERVING, FIRST_TOKEN = "training", "serving", "first token"
SPLIT_SERVING, SPLIT_FIRST_TOKEN = "disaggregated serving", "disaggregated first token"
WORK = {
    "gemm": "products", "operator": "operators", "attention": "attention",
    "latent_attention": "latent attention", "linear_attention": "linear attention",
    "sparse_attention": "sparse attention",
    "experts": "experts",
    "rnn": "recurrent", "transformer": TRAINING,
}  # fmt: skip
"""The kind of work of each family of models that measurements are of."""
BACKWARD = ("gemm", "rnn", "transformer")
"""Families whose backward passes are measured too."""
SERVED = {"continuous": SERVING, "disaggregated": SPLIT_SERVING}
"""The kind of work of each mode of serving that is measured."""
FIRST_TOKENS = {SERVING: FIRST_TOKEN, SPLIT_SERVING: SPLIT_FIRST_TOKEN}
"""The kind of work of their times to the first token."""
_EXPERTS = "model.experts"
_THRESHOLDS = {
    "model.training": 0.0, "system.devices": 1.0, _EXPERTS: 1.0, "model.latent": 0.0,
    "model.linear_heads": 0.0, "model.index_topk": 0.0, RANK: 0.0,
}  # fmt: skip
"""Inputs that matter only by whether they exceed a threshold."""
_HOST = ("server.step_overhead", "server.step_overhead_per_request", "server.step_overhead_per_worker")
_ZERO, _NO_TEXT = np.zeros(1), np.array([""])
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
    """Properties of a point that determine its class; "" and False for an absent input."""

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
    linear: bool  # with linear-time mixers
    sparse: bool  # with an indexer that selects keys
    adapted: bool  # whether it trains adapters alone
    hosted: bool  # by a server with host overheads
    generated: bool
    stock: bool

    def standing(self) -> ChipStanding:
        """Return the standing of its chip."""
        return ChipStanding(self.chip, self.architecture, self.maker, self.generated, self.stock)


class ClassErrors(NamedTuple):
    """Errors of the class of a point."""

    errors: Errors | None  # None: not validated
    first_token: Errors | None
    description: str


def typical_columns(inputs: Inputs, stock: Bools) -> Columns:
    """Return the errors of points' classes, (points,) each: `schema.results.TYPICAL`, and of servers more.

    inputs: of points that share a call of the model. stock: whether a point's chip is an unchanged chip of
    the library.
    """
    points, inverse = describe(inputs, stock)
    if len(points) == 1:
        return {name: repeat(values, inverse.size) for name, values in _point_columns(points[0]).items()}
    parts = [_point_columns(point) for point in points]
    return {name: np.concatenate([part[name] for part in parts])[inverse] for name in parts[0]}


@lru_cache(maxsize=1024)
def _point_columns(point: Point) -> Columns:
    """Return the columns of a point, (1,) each."""
    class_errors = _class_errors(point)
    error, bias, rows = np.nan, np.nan, 0
    if class_errors.errors is not None:
        error, bias, rows = class_errors.errors.mean_error, class_errors.errors.bias, class_errors.errors.rows
    description = np.array([class_errors.description], dtype=object)
    values = (np.array([error]), np.array([bias]), np.array([rows]), description)
    columns: Columns = {column.name: value for column, value in zip(TYPICAL, values, strict=True)}
    if point.mode not in ("", NO_SERVING):
        first = class_errors.first_token
        columns[TYPICAL_TTFT.name] = np.array([np.nan if first is None else first.mean_error])
    for value in columns.values():
        value.flags.writeable = False
    return columns


def typical_errors(inputs: Inputs, stock: Bools, first_token: bool = False) -> Floats:
    """Return the mean relative error of every point's class, NaN where it is not validated; (points,).

    inputs, stock: as for `typical_columns`. first_token: that of the time to the first token.
    """
    points, inverse = describe(inputs, stock)
    classes = [_class_errors(point) for point in points]
    errors = [each.first_token if first_token else each.errors for each in classes]
    return np.array([error.mean_error if error else np.nan for error in errors])[inverse]


def describe(inputs: Inputs, stock: Bools) -> tuple[list[Point], NDArray[np.int64]]:
    """Return the distinct points with respect to classes, and the index of each point among them, (points,).

    inputs: (points,) each, or (1,) where all are equal; stock: (points,).
    """
    if stock.size == 1:
        return [_describe_single(inputs, bool(stock[0]))], np.zeros(1, dtype=np.int64)
    columns: list[NDArray[Any]] = [_squeezed(inputs.get(key, _NO_TEXT)) for key in _TEXTS]
    columns += [
        _exceeds(inputs, key, least) | _kinds_exceed(inputs, key, least) for key, least in _THRESHOLDS.items()
    ]
    hosted = reduce(np.logical_or, (_exceeds(inputs, key) for key in _HOST))  # one, or all points
    columns += [hosted, np.array([_is_generated(inputs)]), _squeezed(stock)]
    first, inverse = unique_rows([column for column in columns if column.size > 1], stock.size)
    points = [
        Point._make(column[row if column.size > 1 else 0].item() for column in columns)
        for row in first.tolist()
    ]
    return points, inverse


def _describe_single(inputs: Inputs, stock: bool) -> Point:
    """Return the class properties of a single point."""
    texts = [str(inputs[key][0]) if key in inputs else "" for key in _TEXTS]
    flags = [
        key in inputs and bool(inputs[key][0] > least or _kinds_exceed(inputs, key, least)[0])
        for key, least in _THRESHOLDS.items()
    ]
    hosted = any(key in inputs and inputs[key][0] > 0.0 for key in _HOST)
    return Point._make([*texts, *flags, hosted, _is_generated(inputs), stock])


def _is_generated(inputs: Inputs) -> bool:
    """Say whether points' chips are generated from their budgets."""
    return "chip.pinned.mcus" not in inputs and "chip.pinned.core_Hz" not in inputs


def _squeezed(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column, of shape (1,) where it is broadcast."""
    return column[:1] if is_broadcast(column) else column


def _exceeds(inputs: Inputs, key: str, least: float = 0.0) -> Bools:
    """Return which points have an input that exceeds a threshold; False where it is absent."""
    return np.asarray(_squeezed(inputs.get(key, _ZERO)) > least)


def _kinds_exceed(inputs: Inputs, key: str, least: float) -> Bools:
    """Return which points have kinds of layers with experts of their own that exceed a threshold."""
    if key != _EXPERTS or PATTERN not in inputs:
        return _ZERO > 0.0
    texts, inverse = factorize(_squeezed(inputs[PATTERN]))
    return np.array([largest_own(text, EXPERTS) > least for text in texts])[inverse]


def work_of(point: Point) -> tuple[str, str]:
    """Return the kind of work of a point, "" where there are no measurements of it, and the kind of model."""
    if point.mode not in ("", NO_SERVING):
        return (SERVED.get(point.mode, "") if point.hosted else ""), kind_of_model(point)
    work = WORK.get(point.name, "")
    if work == TRAINING:
        kind = f"{kind_of_model(point)} with adapters" if point.adapted else kind_of_model(point)
        return (work if point.training else ""), kind
    if point.several or (point.training and point.name not in BACKWARD):
        return "", ""
    return work, point.phase


def kind_of_model(point: Point) -> str:
    """Return the kind of model of a transformer."""
    words = (("hybrid", point.linear), ("sparse", point.sparse), ("latent", point.latent))
    return " ".join([word for word, has in words if has] + ["mixture" if point.mixture else "dense"])


@lru_cache(maxsize=1024)
def _class_errors(point: Point) -> ClassErrors:
    """Return the errors of the class of a point."""
    work, kind = work_of(point)
    if not work:
        return ClassErrors(None, None, f"{_NOT_VALIDATED} (no measurements of {_unknown_work(point)})")
    chip = point.standing()
    match = find(work, kind, point.dtype, chip)
    work_and_kind = ", ".join(filter(None, (work, kind)))
    if match is None:
        return ClassErrors(None, None, f"{_NOT_VALIDATED} ({work_and_kind}: no measurements on such a chip)")
    key, errors = match
    if work not in FIRST_TOKENS:
        error_text, bias = f"{errors.mean_error:.0%}", f"{errors.bias:.2f}"
        return ClassErrors(errors, None, _format_class(key, error_text, errors.rows, bias))
    first_match = find(FIRST_TOKENS[work], kind, point.dtype, chip)
    first_token = first_match[1] if first_match else None
    error_text, bias = f"{errors.mean_error:.0%} per token", f"{errors.bias:.2f}"
    if first_token is not None:
        error_text = f"{error_text}, {first_token.mean_error:.0%} to the first token,"
        bias = f"{bias}, {first_token.bias:.2f}"
    return ClassErrors(errors, first_token, _format_class(key, error_text, errors.rows, bias))


_NOT_VALIDATED = "not validated"


def _unknown_work(point: Point) -> str:
    """Return a description of work without measurements."""
    if point.mode in ("", NO_SERVING):
        return "this kind of work"
    return "a server without host overheads" if point.mode in SERVED else f"serve.mode={point.mode}"


def _format_class(key: Key, error: str, rows: int, bias: str) -> str:
    """Describe a class and its errors in a line."""
    where = {
        MEASURED: f"on {key.chip}", RELATIVE: f"on chips of {key.chip}",
        UNMEASURED: f"on other chips of {key.chip}",
    }.get(key.standing, "on chips generated from their budgets")  # fmt: skip
    name = ", ".join(filter(None, (key.work, key.kind, key.dtype, where)))
    return f"{name} ({key.standing}): mean error {error} of {rows:,} rows, predicted/measured {bias}"
