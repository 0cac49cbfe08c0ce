"""`fastflow.sensitivity`: what a result hangs on, for Python and the command."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from fastflow.analysis.sensitivity.elasticity import Elasticity, Evaluate, changed, elasticities, logarithms
from fastflow.analysis.sensitivity.parameters import Figure, figures_of
from fastflow.analysis.sensitivity.reoptimize import CANDIDATES, among_the_best, has_candidates
from fastflow.analysis.sensitivity.sobol import Indices, sobol
from fastflow.config.composer import Composer
from fastflow.config.messages import counted, one_of, sets, suggestion
from fastflow.core import units
from fastflow.core.errors import CompositionError, InputError
from fastflow.core.tables import Columns, Floats, Ints, take
from fastflow.core.uncertainty.sampling import Spread, factors
from fastflow.engine.dataset.folder import folder_at
from fastflow.engine.dataset.reader import Dataset
from fastflow.engine.dataset.schema import field_of, identity, to_frame
from fastflow.engine.grid.plan import plan
from fastflow.engine.grid.run import Run, refuse_others
from fastflow.engine.run.monte_carlo import varied
from fastflow.engine.run.predict import resolved_inputs, results_of
from fastflow.engine.run.progress import SILENT, Listener
from fastflow.engine.run.workers import ThreadPool
from fastflow.performance.accuracy.classes import typical_columns
from fastflow.performance.serving import serves
from fastflow.schema import BANDS, RESULTS, SERVED, STACKED, find_result
from fastflow.schema.results import ASSUMPTIONS, TYPICAL

CONFIG = "sensitivity"
CLASS = TYPICAL[-1]
BEST, FIXED = "best", "fixed"
_STRATEGIES = (BEST, FIXED)
_SHORT = {"time": "time_s", "energy": "energy_J"}
"""Objectives by the names that a search knows them by."""
_MOST = 2**24  # samples
_LEAST = 1e-9  # of a share of probability: Sobol' points hold 0
_LEAST_ROWS = 32  # of each of Sobol's matrices: below that, indices are noise
_PIECE, _LEAST_PIECE = 8192, 64  # points that a thread evaluates at once: at most, and at least
_TURNS = 4  # pieces of a thread, so that progress shows


class SensitivityOptions(NamedTuple):
    """What a sensitivity is asked."""

    run: Run
    objective: str
    strategy: str
    step: float
    samples: int
    range: float
    seed: int
    output: str | None
    origin: str
    """Where the objective was said."""


class Sensitivity(NamedTuple):
    """What a result hangs on; `attrs` of the frame hold units, as of `fastflow.evaluate`, and the step."""

    figures: pd.DataFrame
    """A row for every figure, the one that moves the result most to either side first."""
    objective: str
    value: float
    """The objective of the point itself, in SI units."""
    points: int
    """Points that were evaluated for Sobol's indices; 0: none."""
    failed: int
    """Those of them without a result, which count as the mean of the others."""
    assumptions: str = ""
    """What the point takes that was not asked for, as the result column."""
    validation_class: str = ""
    """How far such answers were off, as the result column; "" in older datasets."""


def question_of(composer: Composer, overrides: Sequence[str]) -> SensitivityOptions:
    """Read what is asked; raises InputError."""
    composition = composer.compose(overrides)
    leaves, origin = composition.leaves, composer.origin_of_overrides

    def said(name: str) -> object:
        return leaves.get(f"sensitivity.{name}")

    def share(name: str) -> float:
        value = said(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0.0 < value < 1.0:
            return float(value)
        raise InputError(f"sensitivity.{name}", value, "a number above 0 and below 1", origin)

    def count(name: str, most: int) -> int:
        value = said(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
            return value
        raise InputError(f"sensitivity.{name}", value, f"a whole number from 0 to {most:,}", origin)

    strategy = said("strategy")
    if strategy not in _STRATEGIES:
        raise InputError("sensitivity.strategy", strategy, one_of(_STRATEGIES), origin)
    objective = _SHORT.get(str(leaves.get("objective")), str(leaves.get("objective")))
    column = find_result(objective)
    if column is None or column.kind not in ("float", "int"):
        close = suggestion(objective, _numeric())
        raise InputError("objective", objective, f"a numeric result column (docs/columns.md){close}", origin)
    given = sets(overrides, "output")
    step, span = share("step"), share("range")
    samples, seed = count("samples", _MOST), count("seed", 2**32 - 1)
    run = plan(composer, overrides)
    refuse_others(run)
    if run.grid.points != 1:
        key = run.grid.keys[0]
        raise InputError(key, "several values", "one: a sensitivity is of one point", origin)
    varied_at_most = _most_varied(run)
    least = _LEAST_ROWS * (varied_at_most + 2)
    if 0 < samples < least:
        allowed = f"0 for none, or at least {least:,} ({_LEAST_ROWS} in a matrix, {varied_at_most} figures)"
        said_at = composer.origin("sensitivity.samples", composition)
        raise InputError("sensitivity.samples", samples, allowed, said_at)
    output = str(leaves["output"]) if given else None
    if output is not None:
        folder_at(output)
    said_at = composer.origin("objective", composition)
    return SensitivityOptions(run, objective, str(strategy), step, samples, span, seed, output, said_at)


def _numeric() -> list[str]:
    """Return the names that an objective may have."""
    columns = (*RESULTS, *STACKED, *SERVED, *BANDS)
    return [*_SHORT, *(one.name for one in columns if one.kind in ("float", "int"))]


def _most_varied(run: Run) -> int:
    """Return how many figures may vary at once, at most: those that turn out flat do not."""
    stated = {one.key for one in _spreads(run)}
    figures = figures_of(run.grid.first_inputs())
    return sum(one.value != 0.0 and (not stated or one.key in stated) for one in figures)


def answered(question: SensitivityOptions, listener: Listener = SILENT) -> tuple[pa.Table, Sensitivity]:
    """Answer; raises InputError where the point has no such result.

    listener: hears how many points are to be evaluated, and how many are done.
    """
    with ThreadPool(question.run.settings) as crew:
        evaluate = _evaluator(crew, listener)
        inputs = _inputs(question)
        each = 1  # points that are evaluated for one
        if not serves(inputs) and has_candidates(inputs):
            evaluate, each = among_the_best(inputs, evaluate), CANDIDATES
        figures = figures_of(inputs)
        changes = counted(2 * len(figures), "change")
        listener.start(f"{question.objective} under {changes}", each * (1 + 2 * len(figures)))
        results = evaluate(changed(inputs, figures, question.step))
        value = _value(question, results)
        found = elasticities(results, figures, question.objective, question.step)
        stated = {one.key: one for one in _spreads(question.run)}
        some = [
            place
            for place, one in enumerate(found)
            if not (one.reason or one.flat) and (not stated or figures[place].key in stated)
        ]
        factors_of = _of_range(question.range)
        if stated:
            factors_of = _as_stated([stated[figures[place].key] for place in some])
        points, indices = _points(question, len(some)), None
        if points:
            listener.start(f"Sobol's indices of {counted(len(some), 'figure')}", each * points)
            indices = _indices(question, inputs, [figures[place] for place in some], evaluate, factors_of)
    frame = _frame(figures, found, some, indices)
    fields = [field_of(name, _kind(name)) for name in map(str, frame)]
    about = identity(question.run.grid, question.objective, *question[2:7])
    failed = 0 if indices is None else indices.failed
    rest: dict[str, Any] = {"value": value, "points": points, "failed": failed}
    rest |= _trust(question.run, inputs)
    about |= {
        "fastflow.objective": question.objective, "fastflow.answer": json.dumps(rest),
        "fastflow.step": repr(question.step),
    }  # fmt: skip
    table = pa.Table.from_pandas(frame, pa.schema(fields, metadata=about), preserve_index=False)
    rows = to_frame([table])
    rows.attrs["step"] = question.step
    return table, Sensitivity(rows, question.objective, **rest)


def _trust(run: Run, inputs: Columns) -> dict[str, str]:
    """Return what a point takes that was not asked for, and how far such answers were off."""
    grid = run.grid
    (share,) = grid.shares(0, 1)
    typical = typical_columns(inputs, grid.is_stock(share))
    return {ASSUMPTIONS.name: str(grid.labels[ASSUMPTIONS.name][0]), CLASS.name: str(typical[CLASS.name][0])}


def read(dataset: Dataset) -> Sensitivity:
    """Return the sensitivity that a dataset holds; raises InputError."""
    figures = dataset.read(dataset.schema.names)
    with dataset.whole("the metadata of its part"):
        figures.attrs["step"] = float(dataset.about("step"))
        return Sensitivity(figures, dataset.about("objective"), **dataset.mapping("answer"))


def _inputs(question: SensitivityOptions) -> Columns:
    """Return the inputs of the point, with the strategy that it keeps where it is to keep one."""
    inputs = {key: column.copy() for key, column in question.run.grid.first_inputs().items()}
    if question.strategy == FIXED:
        from fastflow.performance.auto.no_fit import LEAST

        inputs = resolved_inputs(inputs)
        inputs.pop(LEAST, None)  # of this point, not of those beside it
    return inputs


def _evaluator(crew: ThreadPool, listener: Listener) -> Evaluate:
    """Return what evaluates points, in pieces for the crew; the listener hears of each."""

    def results(row: Ints, columns: Columns) -> Columns:
        found = results_of(take(columns, row))
        listener.advance(row.size)
        return found

    def evaluate(columns: Columns) -> Columns:
        points = next(iter(columns.values())).size
        size = min(_PIECE, max(-(-points // (_TURNS * crew.size)), _LEAST_PIECE))
        rows = [np.arange(start, min(start + size, points)) for start in range(0, points, size)]
        parts = crew.map(partial(results, columns=columns), rows)
        names = [name for name in parts[0] if all(name in part for part in parts)]
        return {name: _joined([part[name] for part in parts]) for name in names}

    return evaluate


def _joined(parts: list[Any]) -> Any:
    """Return the parts of a result column as one."""
    masked = any(isinstance(part, np.ma.MaskedArray) for part in parts)
    return np.ma.concatenate(parts) if masked else np.concatenate(parts)  # type: ignore[no-untyped-call]


def _value(question: SensitivityOptions, results: Columns) -> float:
    """Return the objective of the point itself, the first of the results; raises InputError for none."""
    lacking = question.objective not in results
    if lacking or np.isnan(logarithms(results[question.objective])[0]):
        if "time_s" in results and np.isnan(logarithms(results["time_s"])[0]) and results["reason"][0]:
            raise CompositionError(f"{results['reason'][0]}: this point has no {question.objective}")
        if lacking:
            allowed = "a result column that this point has (docs/columns.md)"
            raise InputError("objective", question.objective, allowed, question.origin)
        raise CompositionError(f"{question.objective} of this point is no number above 0")
    return float(np.ma.asarray(results[question.objective])[0])


def _indices(
    question: SensitivityOptions,
    inputs: Columns,
    figures: list[Figure],
    evaluate: Evaluate,
    factors_of: Callable[[Floats], Floats],
) -> Indices:
    """Return Sobol's indices of figures that matter, of the logarithm of the objective."""

    def values(even: Floats) -> Floats:
        every = factors_of(even)
        moved = {one.key: one.value * every[None, :, place] for place, one in enumerate(figures)}
        return logarithms(evaluate(varied(inputs, moved, 1, len(even)))[question.objective])

    return sobol(values, len(figures), question.samples, question.seed)


def _spreads(run: Run) -> Sequence[Spread]:
    """Return how the figures of the point may differ from their values, none where all are exact."""
    uncertain = run.grid.uncertainty
    return () if uncertain is None else uncertain.spreads[0]


def _of_range(share: float) -> Callable[[Floats], Floats]:
    """Return what figures are multiplied by that vary alike, for numbers from 0 to 1."""
    reach = np.log1p(share)
    return lambda even: np.exp((2.0 * even - 1.0) * reach)


def _as_stated(spreads: Sequence[Spread]) -> Callable[[Floats], Floats]:
    """Return what figures are multiplied by that vary as their files say, for numbers from 0 to 1."""

    def factors_of(even: Floats) -> Floats:
        from scipy.special import ndtri

        drawn = ndtri(np.clip(even, _LEAST, 1.0 - _LEAST))
        low, high = (np.array([spread[end][0] for spread in spreads]) for end in (2, 3))
        return factors(drawn.T, low, high).T

    return factors_of


def _points(question: SensitivityOptions, variables: int) -> int:
    """Return how many points Sobol's indices take, 0 where none are asked for or nothing matters."""
    if not question.samples or not variables:
        return 0
    from fastflow.analysis.sensitivity.sobol import base_of

    return max(base_of(question.samples, variables), 2) * (variables + 2)


def _kind(name: str) -> str:
    column = find_result(name)
    assert column is not None, name
    return column.kind


def _frame(
    figures: list[Figure], found: list[Elasticity], some: list[int], indices: Indices | None
) -> pd.DataFrame:
    """Return the figures as rows, the one that moves the result most to either side first."""
    rows = pd.DataFrame(
        {
            "figure": one.key,
            "figure_value": one.value,
            "unit": one.unit,
            "elasticity": answer.both,
            "left_elasticity": answer.left,
            "right_elasticity": answer.right,
            "kink": answer.kink,
            "flat": answer.flat,
        }
        for one, answer in zip(figures, found, strict=True)
    )
    if indices is not None:
        for name, column in zip(
            ("sobol_first", "sobol_first_error", "sobol_total", "sobol_total_error"), indices[:4], strict=True
        ):
            whole = np.where(rows["flat"], 0.0, np.nan)
            whole[some] = column
            rows[name] = whole
    rows["reason"] = [answer.reason for answer in found]
    rank = rows[["left_elasticity", "right_elasticity"]].abs().max(axis=1).fillna(-1.0)
    return rows.iloc[np.argsort(-rank.to_numpy(), kind="stable")].reset_index(drop=True)


def shown(value: float, unit: str) -> str:
    """Write the value of a figure with its unit."""
    return units.show(value, unit)
