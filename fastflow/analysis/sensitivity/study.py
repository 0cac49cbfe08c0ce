"""`fastflow.sensitivity`: the parameters that a result depends on, for Python and the command."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from fastflow.analysis.sensitivity.elasticity import (
    SHORT_REASON,
    Elasticity,
    Evaluate,
    elasticities,
    logarithms,
    perturb,
)
from fastflow.analysis.sensitivity.parameters import Parameter, parameters_of
from fastflow.analysis.sensitivity.reoptimize import CANDIDATES, has_candidates, with_best_strategy
from fastflow.analysis.sensitivity.sobol import Indices, rows_per_matrix, sobol
from fastflow.config.composer import Composer
from fastflow.config.messages import one_of, pluralize, sets, suggestion
from fastflow.core.advice import advise
from fastflow.core.errors import CompositionError, InputError
from fastflow.core.tables import Columns, Floats, Ints, concat_tables, take
from fastflow.core.uncertainty.sampling import Distribution, factors
from fastflow.engine.dataset.folder import folder_at
from fastflow.engine.dataset.kinds import SENSITIVITY
from fastflow.engine.dataset.reader import Dataset
from fastflow.engine.dataset.renamed import current_column
from fastflow.engine.dataset.schema import identity, result_field, to_frame
from fastflow.engine.grid.plan import plan
from fastflow.engine.grid.run import Run, refuse_others
from fastflow.engine.run.monte_carlo import with_samples
from fastflow.engine.run.predict import (
    columns_of,
    has_wrong_degree,
    predict_points,
    reasons_of,
    resolved_inputs,
    with_devices,
)
from fastflow.engine.run.progress import SILENT, Listener
from fastflow.engine.run.workers import ThreadPool
from fastflow.performance.accuracy.classes import typical_columns
from fastflow.performance.serving import is_serving
from fastflow.schema import BANDS, RESULTS, SERVED, TRANSFORMER, find_result
from fastflow.schema.results import ASSUMPTIONS, TYPICAL

CONFIG = "sensitivity"
CLASS = TYPICAL[-1]
BEST, FIXED = "best", "fixed"
_STRATEGIES = (BEST, FIXED)
_SHORT = {"time": "time_s", "energy": "energy_J"}
"""Objectives by their names in a search."""
_MAX_SAMPLES = 2**24  # samples
_MIN_PROBABILITY = 1e-9  # smallest probability: Sobol' points contain 0
_MIN_ROWS = 32  # of each of Sobol's matrices: below that, indices are noise
_MAX_PIECE, _MIN_PIECE = 8192, 64  # points that a thread evaluates at once: at most, and at least
_PIECES_OF_A_THREAD = 4  # pieces of a thread, so that progress shows


class SensitivityOptions(NamedTuple):
    """Options of a sensitivity analysis."""

    run: Run
    objective: str
    strategy: str
    step: float
    samples: int
    range: float
    seed: int
    output: str | None
    origin: str
    """Where the objective was set."""


class Sensitivity(NamedTuple):
    """Elasticities and indices of a result; `attrs` of the frame hold the units and the step."""

    parameters: pd.DataFrame
    """A row for every parameter, sorted by the larger of its one-sided elasticities."""
    objective: str
    value: float
    """The objective of the point itself, in SI units."""
    points: int
    """Points that were evaluated for Sobol's indices; 0: none."""
    failed: int
    """Points without a result, which count as the mean of the others."""
    assumptions: str = ""
    """Assumptions of the point, as the result column."""
    validation_class: str = ""
    """Errors of predictions of its class in validation, as the result column; "" in older datasets."""

    @property
    def figures(self) -> pd.DataFrame:
        """The name of `parameters` before 0.2.0."""
        advise("the frame figures of a sensitivity is now parameters")
        return self.parameters


def read_options(composer: Composer, overrides: Sequence[str]) -> SensitivityOptions:
    """Read the options; raises InputError."""
    composition = composer.compose(overrides)
    leaves, origin = composition.leaves, composer.origin_of_overrides

    def setting(name: str) -> object:
        return leaves.get(f"sensitivity.{name}")

    def share(name: str) -> float:
        value = setting(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0.0 < value < 1.0:
            return float(value)
        raise InputError(f"sensitivity.{name}", value, "a number above 0 and below 1", origin)

    def count(name: str, most: int) -> int:
        value = setting(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
            return value
        raise InputError(f"sensitivity.{name}", value, f"a whole number from 0 to {most:,}", origin)

    strategy = setting("strategy")
    if strategy not in _STRATEGIES:
        raise InputError("sensitivity.strategy", strategy, one_of(_STRATEGIES), origin)
    objective = current_column(_SHORT.get(str(leaves.get("objective")), str(leaves.get("objective"))))
    result_column = find_result(objective)
    if result_column is None or result_column.kind not in ("float", "int"):
        close = suggestion(objective, _objective_names())
        raise InputError("objective", objective, f"a numeric result column (docs/columns.md){close}", origin)
    has_output = sets(overrides, "output")
    step, span = share("step"), share("relative_range")
    samples, seed = count("samples", _MAX_SAMPLES), count("seed", 2**32 - 1)
    run = plan(composer, overrides)
    refuse_others(run)
    if run.grid.points != 1:
        allowed = "one: a sensitivity is of one point"
        raise InputError(run.grid.first_key, "several values", allowed, origin)
    most_variables = _most_variables(run, objective)
    least = _MIN_ROWS * (most_variables + 2)
    if 0 < samples < least:
        allowed = f"0 for none, or at least {least:,} ({_MIN_ROWS} in a matrix, {most_variables} parameters)"
        origin_of_value = composer.origin("sensitivity.samples", composition)
        raise InputError("sensitivity.samples", samples, allowed, origin_of_value)
    output = run.output if has_output else None
    if output is not None:
        folder_at(output)
    origin_of_value = composer.origin("objective", composition)
    return SensitivityOptions(
        run, objective, str(strategy), step, samples, span, seed, output, origin_of_value
    )


def _objective_names() -> list[str]:
    """Return the possible names of an objective."""
    columns = (*RESULTS, *TRANSFORMER, *SERVED, *BANDS)
    return [*_SHORT, *(column.name for column in columns if column.kind in ("float", "int"))]


def _most_variables(run: Run, objective: str) -> int:
    """Return the most parameters of a result that may vary at once: insensitive ones will not vary."""
    stated = {distribution.key for distribution in _distributions(run)}
    parameters = parameters_of(run.grid.first_inputs(), objective)
    return sum(parameter.value != 0.0 and (not stated or parameter.key in stated) for parameter in parameters)


def analyse(options: SensitivityOptions, listener: Listener = SILENT) -> tuple[pa.Table, Sensitivity]:
    """Analyse a point; raises InputError where it does not have the objective.

    listener: gets the number of points to evaluate, and of those that are done.
    """
    with ThreadPool(options.run.settings) as pool:
        evaluate = _evaluator(pool, listener)
        inputs = _inputs(options)
        evaluations_of_point = 1  # points evaluated for one point
        if not is_serving(inputs) and has_candidates(inputs):
            evaluate, evaluations_of_point = with_best_strategy(inputs, evaluate), CANDIDATES
        parameters = parameters_of(inputs, options.objective)
        num_changes = pluralize(2 * len(parameters), "change")
        listener.start(
            f"{options.objective} under {num_changes}", evaluations_of_point * (1 + 2 * len(parameters))
        )
        results = evaluate(perturb(inputs, parameters, options.step))
        value = _base_value(options, inputs, results)
        per_parameter = elasticities(results, parameters, options.objective, options.step)
        stated = {distribution.key: distribution for distribution in _distributions(options.run)}
        variables = [
            index
            for index, elasticity in enumerate(per_parameter)
            if not (elasticity.reason or elasticity.insensitive)
            and (not stated or parameters[index].key in stated)
        ]
        factors_of = _uniform_factors(options.range)
        if stated:
            factors_of = _stated_factors([stated[parameters[index].key] for index in variables])
        points, indices = _num_points(options, len(variables)), None
        if points:
            listener.start(
                f"Sobol's indices of {pluralize(len(variables), 'parameter')}", evaluations_of_point * points
            )
            indices = _sobol_indices(
                options, inputs, [parameters[index] for index in variables], evaluate, factors_of
            )
    frame = _frame(parameters, per_parameter, variables, indices)
    fields = [result_field(name) for name in map(str, frame)]
    metadata = identity(options.run.grid, SENSITIVITY, options.objective, *options[2:7])
    failed = 0 if indices is None else indices.failed
    answer_fields: dict[str, Any] = {"value": value, "points": points, "failed": failed}
    answer_fields |= _trust_columns(options.run, inputs)
    metadata |= {
        "fastflow.objective": options.objective, "fastflow.answer": json.dumps(answer_fields),
        "fastflow.step": repr(options.step),
    }  # fmt: skip
    table = pa.Table.from_pandas(frame, pa.schema(fields, metadata=metadata), preserve_index=False)
    rows = to_frame([table])
    rows.attrs["step"] = options.step
    return table, Sensitivity(rows, options.objective, **answer_fields)


def _trust_columns(run: Run, inputs: Columns) -> dict[str, str]:
    """Return the assumptions of a point, and the class of validation that it is in."""
    grid = run.grid
    (share,) = grid.shares(0, 1)
    typical = typical_columns(inputs, grid.is_stock(share))
    return {ASSUMPTIONS.name: str(grid.labels[ASSUMPTIONS.name][0]), CLASS.name: str(typical[CLASS.name][0])}


def read(dataset: Dataset) -> Sensitivity:
    """Read a sensitivity from a dataset; raises InputError."""
    parameters = dataset.read(dataset.schema.names)
    with dataset.whole("the metadata of its part"):
        parameters.attrs["step"] = float(dataset.about("step"))
        return Sensitivity(parameters, dataset.about("objective"), **dataset.mapping("answer"))


def _inputs(options: SensitivityOptions) -> Columns:
    """Return the inputs of the point, with its strategy resolved if that is fixed."""
    inputs, _ = with_devices(options.run.grid.first_inputs())
    inputs = {key: column.copy() for key, column in inputs.items()}
    if options.strategy == FIXED:
        from fastflow.performance.auto.no_fit import LEAST

        inputs = resolved_inputs(inputs)
        inputs.pop(LEAST, None)  # of this point alone, not of its changes
    return inputs


def _evaluator(pool: ThreadPool, listener: Listener) -> Evaluate:
    """Return a function that evaluates points in pieces on the threads, and reports each to the listener."""

    def evaluate_rows(row: Ints, columns: Columns) -> Columns:
        predicted = predict_points(take(columns, row))
        results = columns_of(predicted) | {SHORT_REASON: reasons_of(predicted).texts(short=True)}
        listener.advance(row.size)
        return results

    def evaluate(columns: Columns) -> Columns:
        points = next(iter(columns.values())).size
        size = min(_MAX_PIECE, max(-(-points // (_PIECES_OF_A_THREAD * pool.size)), _MIN_PIECE))
        rows = [np.arange(start, min(start + size, points)) for start in range(0, points, size)]
        parts = pool.map(partial(evaluate_rows, columns=columns), rows)
        names = [name for name in parts[0] if all(name in part for part in parts)]
        return concat_tables([{name: part[name] for name in names} for part in parts])

    return evaluate


def _base_value(options: SensitivityOptions, inputs: Columns, results: Columns) -> float:
    """Return the objective of the point itself, the first of the results; raises InputError for none."""
    is_missing = options.objective not in results
    if is_missing or np.isnan(logarithms(results[options.objective])[0]):
        if "time_s" in results and np.isnan(logarithms(results["time_s"])[0]) and results["reason"][0]:
            message = f"{results['reason'][0]}: this point has no {options.objective}"
            raise CompositionError(message, has_wrong_degree(inputs))
        if is_missing:
            allowed = "a result column that this point has (docs/columns.md)"
            raise InputError("objective", options.objective, allowed, options.origin)
        raise CompositionError(f"{options.objective} of this point is no number above 0")
    return float(np.ma.asarray(results[options.objective])[0])


def _sobol_indices(
    options: SensitivityOptions,
    inputs: Columns,
    parameters: list[Parameter],
    evaluate: Evaluate,
    factors_of: Callable[[Floats], Floats],
) -> Indices:
    """Return Sobol's indices of some parameters, for the logarithm of the objective."""

    def values(uniform: Floats) -> Floats:
        drawn = factors_of(uniform)
        samples = {
            parameter.key: parameter.value * drawn[None, :, column]
            for column, parameter in enumerate(parameters)
        }
        return logarithms(evaluate(with_samples(inputs, samples, 1, len(uniform)))[options.objective])

    return sobol(values, len(parameters), options.samples, options.seed)


def _distributions(run: Run) -> Sequence[Distribution]:
    """Return the uncertainty of the parameters of the point; empty where all are exact."""
    uncertain = run.grid.uncertainty
    return () if uncertain is None else uncertain.distributions[0]


def _uniform_factors(share: float) -> Callable[[Floats], Floats]:
    """Return a function from uniform numbers to factors of parameters, log-uniform within a range."""
    reach = np.log1p(share)
    return lambda uniform: np.exp((2.0 * uniform - 1.0) * reach)


def _stated_factors(distributions: Sequence[Distribution]) -> Callable[[Floats], Floats]:
    """Return a function from uniform numbers to factors of parameters, distributed as their files say."""

    def factors_of(uniform: Floats) -> Floats:
        from scipy.special import ndtri

        normal = ndtri(np.clip(uniform, _MIN_PROBABILITY, 1.0 - _MIN_PROBABILITY))
        low = np.array([distribution.low[0] for distribution in distributions])
        high = np.array([distribution.high[0] for distribution in distributions])
        return factors(normal.T, low, high).T

    return factors_of


def _num_points(options: SensitivityOptions, variables: int) -> int:
    """Return the number of points of Sobol's indices, 0 without samples or variables."""
    if not options.samples or not variables:
        return 0
    return max(rows_per_matrix(options.samples, variables), 2) * (variables + 2)


def _frame(
    parameters: list[Parameter],
    per_parameter: list[Elasticity],
    variables: list[int],
    indices: Indices | None,
) -> pd.DataFrame:
    """Return the parameters as rows, sorted by the larger of their one-sided elasticities."""
    rows = pd.DataFrame(
        {
            "parameter": parameter.key,
            "parameter_value": parameter.value,
            "unit": parameter.unit,
            "elasticity": elasticity.both,
            "elasticity_minus": elasticity.left,
            "elasticity_plus": elasticity.right,
            "nonlinearity": elasticity.nonlinearity,
            "insensitive": elasticity.insensitive,
        }
        for parameter, elasticity in zip(parameters, per_parameter, strict=True)
    )
    if indices is not None:
        for name, column in zip(
            ("sobol_first", "sobol_first_error", "sobol_total", "sobol_total_error"), indices[:4], strict=True
        ):
            padded = np.where(rows["insensitive"], 0.0, np.nan)
            padded[variables] = column
            rows[name] = padded
    rows["reason"] = [elasticity.reason for elasticity in per_parameter]
    rows["reason_code"] = [elasticity.reason_code for elasticity in per_parameter]
    rank = rows[["elasticity_minus", "elasticity_plus"]].abs().max(axis=1).fillna(-1.0)
    return rows.iloc[np.argsort(-rank.to_numpy(), kind="stable")].reset_index(drop=True)
