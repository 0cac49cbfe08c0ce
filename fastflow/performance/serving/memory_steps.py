"""Memory of a device that serves: its parts at rest, and with the KV cache at its mean and at its most."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Columns
from fastflow.performance.serving.predict import ServingResult

_FIXED = ("weight", "workspace", "library", "graph", "communicator", "context")


def served_steps(result: ServingResult, point: int) -> Columns | None:
    """Return the memory of a device of a point, (3,) [B]; None for a point without results.

    Rows: at rest; with the mean KV cache; with a KV cache that fills the memory left for it. Columns: `step`,
    each part as `weight_B`, `kv_B`, `footprint_B`, `is_peak`. Under disaggregated serving, of devices that
    decode.
    """
    columns = result.columns
    if result.reason.exists[point] or not np.isfinite(columns["footprint_B"][point]):
        return None
    mean = float(columns["kv_B"][point])
    most = max(float(columns["kv_cache_capacity_B"][point]), mean)
    steps: Columns = {"step": np.array(["at rest", "mean KV cache", "full KV cache"])}
    for name in _FIXED:
        steps[f"{name}_B"] = np.full(3, float(columns[f"{name}_B"][point]))
    steps["kv_B"] = np.array([0.0, mean, most])
    fixed = float(columns["footprint_B"][point]) - mean
    steps["footprint_B"] = fixed + steps["kv_B"]
    steps["is_peak"] = np.array([False, False, True])
    return steps
