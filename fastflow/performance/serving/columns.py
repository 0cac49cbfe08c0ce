"""Result columns of points that serve."""

from __future__ import annotations

import numpy as np

from fastflow.core.dedupe import compute_unique
from fastflow.core.reasons.columns import ReasonColumn, first_reasons
from fastflow.core.tables import Columns, Inputs, broadcast_column
from fastflow.performance.chip_results import generated_columns, limit_columns
from fastflow.performance.kernel_times import HARDWARE
from fastflow.performance.serving.disaggregated.predict import is_disaggregated, with_prefill_chip
from fastflow.performance.serving.other_chips import has_chip, with_chip
from fastflow.performance.serving.predict import ServingResult
from fastflow.performance.serving.slo import COMPARED, has_limit
from fastflow.physics.hardware.chip import generate, peak_flops
from fastflow.physics.parallelism.defaults import has_experts
from fastflow.physics.workload import parameters_of
from fastflow.physics.workload.precision import product_type, types_of
from fastflow.schema import ALL, OF_PREFILL, OTHER_CHIPS, result_order


def served_columns(inputs: Inputs, served: ServingResult) -> Columns:
    """Return the result columns of every point, in the order of `schema.result_order`.

    NaN, or an empty text, where a point has no results.
    """
    meets_slo, has_results = ~served.short.exists, ~served.reason.exists
    parameters, _ = compute_unique(parameters_of, inputs, "model.", cached=True)
    has_latency = np.any([~np.isnan(served.columns[name]) for name in COMPARED.values()], axis=0)
    # a pass may lack the latency that a limit is of
    has_verdict = has_limit(inputs) & (has_latency | ~has_results)
    reason = reasons_of(served)
    columns: Columns = (
        dict(served.columns)
        | generated_columns(inputs, served.chip)
        | limits_of(inputs)
        | {
            "devices": inputs["system.devices"],
            "parameters": parameters,
            "layers": inputs["model.layers"],
            "hidden": inputs["model.hidden"],
            "dtype": types_of(inputs, has_experts(inputs)),
            "meets_slo": np.ma.MaskedArray(meets_slo & has_results, mask=~has_verdict),
            "feasible": ~reason.exists,
            **reason.columns(),
            "no_effect": broadcast_column(np.array([""]), reason.size),  # as far as the inputs alone tell
        }
    )
    for name in {"simulated", "stationary"} & set(columns):
        columns[name] = np.ma.MaskedArray(columns[name] > 0.0, mask=np.isnan(columns[name]))
    order = result_order(len(served.chip.levels), served=ALL)
    return {name: columns[name] for name in order if name in columns}


def limits_of(inputs: Inputs) -> Columns:
    """Return the columns of power limits, (points,); that of prefill where some points have such devices."""
    columns, rows = limit_columns(inputs), is_disaggregated(inputs)
    if rows.any():
        of_prefill = limit_columns(with_prefill_chip(inputs))["power_limit_W"]
        columns["prefill_power_limit_W"] = np.where(rows, of_prefill, np.nan)
    return columns


def reasons_of(served: ServingResult) -> ReasonColumn:
    """Return why a point is not feasible, (points,): no results, too much load, power or latency.

    Power comes before latency: a point with a reason of latency alone may meet it with other times.
    """
    return first_reasons(served.reason, served.overload, served.above_limits, served.short)


def other_chip_columns(inputs: Inputs) -> dict[str, Columns]:
    """Return columns of the generated chips of prefill and of attention, by prefix, where there are any."""
    result = {}
    for prefix in OTHER_CHIPS:
        if has_chip(inputs, prefix):
            columns = with_prefill_chip(inputs) if prefix == OF_PREFILL else with_chip(inputs, prefix)
            chip = compute_unique(generate, columns, *HARDWARE)
            flops = peak_flops(columns, chip, product_type(columns, columns["model.dtype"]))
            result[prefix] = generated_columns(columns, chip) | {"compute_flops": flops}
    return result
