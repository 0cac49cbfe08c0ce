"""Result columns of generated chips."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastflow.core.dedupe import factorize
from fastflow.core.tables import Columns, Floats, Inputs, broadcast_column
from fastflow.performance.prediction import Prediction
from fastflow.physics.hardware.chip import Chip, peak_flops
from fastflow.physics.hardware.power import LIMIT, full_load, power_of
from fastflow.physics.parallelism.memory.process import offered
from fastflow.physics.workload.precision import product_type

_MAX_COUNT = 2.0**53  # floats represent every integer up to here


def limit_columns(inputs: Inputs) -> Columns:
    """Return the column of power limits, (points,): NaN without a limit."""
    no_limit = np.array([np.nan])
    points = inputs["chip.tdp"].size
    return {"power_limit_W": inputs[LIMIT] if LIMIT in inputs else broadcast_column(no_limit, points)}


@np.errstate(over="ignore", invalid="ignore")  # of infeasible chips, which have a reason
def generated_columns(inputs: Inputs, chip: Chip) -> Columns:
    """Return the columns of every generated chip, without the peak of a data type; (points,) each."""
    power = power_of(inputs, chip)
    columns: Columns = {
        "idle_W": power.idle,
        "full_W": full_load(power, chip),
        "dram_capacity_B": chip.dram.capacity,
        "dram_offered_B": offered(inputs, chip.dram.capacity),
        "dram_devices": _as_integers(chip.dram.devices),
        "dram_Bps": chip.dram.bandwidth,
        "intra_Bps": chip.intra.bandwidth,
        "inter_Bps": chip.inter.bandwidth,
        "core_V": chip.cores.voltage,
        "core_Hz": chip.cores.frequency,
        "mcus": _as_integers(chip.cores.mcus),
        "bundles": _as_integers(chip.bundles),
    }
    for number, level in enumerate(chip.levels):
        columns[f"l{number}_B"] = level.design.capacity
        columns[f"l{number}_Bps"] = level.design.bandwidth
        columns[f"l{number}_banks"] = _as_integers(level.design.banks)
    return {name: finite(column) for name, column in columns.items()}


@np.errstate(over="ignore", invalid="ignore")  # of infeasible chips, which have a reason
def device_peak(prediction: Prediction) -> Floats:
    """Return every chip's peak; NaN where the technology has no rate for the data type."""
    dtype = product_type(prediction.inputs, prediction.inputs["model.dtype"])
    peak = np.full(dtype.size, np.nan)
    peak[prediction.timed] = prediction.peaks.device
    has_no_time = prediction.reason.exists
    if not has_no_time.any():
        return peak
    names, inverse = factorize(dtype)
    is_known = np.array(
        [
            f"tech.core.flop_per_cycle.{name}" in prediction.inputs
            and f"chip.rate.{name}" in prediction.inputs
            for name in names
        ]
    )[inverse]
    rows = np.flatnonzero(is_known & has_no_time)
    if rows.size:
        known_dtype = np.where(is_known, dtype, dtype[rows[0]])
        peak[rows] = peak_flops(prediction.inputs, prediction.chip, known_dtype)[rows]
    return peak


def _as_integers(counts: Floats) -> NDArray[Any]:
    """Return counts as integers, masked where they are not counts: these points have a reason."""
    is_count = (counts >= 0.0) & (counts <= _MAX_COUNT)
    whole = np.where(is_count, counts, 0.0).astype(np.int64)
    return whole if is_count.all() else np.ma.MaskedArray(whole, mask=~is_count)


def finite(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column with NaN for infinity, which points with an infeasible chip have."""
    if column.dtype.kind != "f" or np.isfinite(column).all():
        return column
    without: NDArray[Any] = np.where(np.isfinite(column), column, np.nan)
    return without
