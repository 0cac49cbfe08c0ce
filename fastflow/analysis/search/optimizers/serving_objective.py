"""Objectives and scores of designs that serve; as of `objective`, lower is better and always finite.

Scores from best to worst: designs that meet their load, `serve.slo` and limits of power; designs that do not,
by how much; designs without memory for the cache of a request besides the weights, by the missing memory;
designs that make no chip.
"""

from __future__ import annotations

import numpy as np

from fastflow.analysis.search.optimizers.objective import (
    LACKS_MEMORY,
    NO_CHIP,
    OF_TOKENS,
    PER_DEVICE,
    PER_JOULE,
    PER_SITE_JOULE,
    TIME_COST,
    area_of,
    devices_short,
)
from fastflow.core.tables import Columns, Floats, Inputs, take
from fastflow.performance.serving.overload import overload_excess
from fastflow.performance.serving.predict import ServingResult
from fastflow.performance.serving.slo import slo_excess
from fastflow.physics.hardware.budget_deficit import shortage
from fastflow.physics.site.limits import power_excess
from fastflow.schema.power import A_MEGAWATT, TOKENS_PER_MW

_WITHOUT_CACHE = 20.0  # above LACKS_MEMORY: a design so many e-folds late is still better


def measure_served(inputs: Inputs, served: ServingResult, objective: str) -> Floats:
    """Return an objective of every point, in its unit; NaN without results, shape (points,)."""
    columns, missing = served.columns, np.full(served.reason.size, np.nan)
    results = {name: columns.get(name, missing) for name in ("time_s", "energy_J", *OF_TOKENS.values())}
    time, energy = results["time_s"], results["energy_J"]
    if objective == PER_DEVICE:
        prompts = columns.get("prefill_tokens_per_s", missing) / inputs["system.devices"]
        rate = results[OF_TOKENS[PER_DEVICE]]
        value: Floats = 1.0 / np.where(np.isnan(rate), prompts, rate)
    elif objective == PER_JOULE:
        value = results[OF_TOKENS[PER_JOULE]]
    elif objective == PER_SITE_JOULE:
        value = A_MEGAWATT / columns[TOKENS_PER_MW.name]
    elif objective == "time_area":
        value = time * area_of(inputs)
    elif objective == TIME_COST:
        value = time * columns["system_usd"]
    elif objective in columns:
        value = np.where(served.reason.exists, np.nan, columns[objective])
    else:
        value = {"time": time, "energy": energy, "edp": energy * time}[objective]
    return value


def score_served(
    inputs: Inputs, served: ServingResult, objective: str, second: str | None, weight: Floats
) -> Floats:
    """Return the score of every point, shape (points,); second, weight: as of `objective.score`."""
    value = np.log(measure_served(inputs, served, objective))
    if second is not None:
        value = (1.0 - weight) * value + weight * np.log(measure_served(inputs, served, second))
    missed = served.short.exists | served.above_limits.exists
    rows = np.flatnonzero(missed & ~served.reason.exists)
    excesses = (
        excess(inputs, served.columns)[rows] for excess in (slo_excess, overload_excess, power_excess)
    )
    value[rows] = LACKS_MEMORY + sum(excesses)
    has_weights = ~np.isnan(served.columns.get("weight_B", np.full(value.size, np.nan)))
    lacks = np.flatnonzero(served.reason.exists & has_weights)
    if lacks.size:
        needed = _needed(inputs, served.columns)[lacks]
        value[lacks] = LACKS_MEMORY + _WITHOUT_CACHE + devices_short(take(dict(inputs), lacks), needed)
    rest = np.flatnonzero(np.isnan(value))
    if rest.size:
        value[rest] = NO_CHIP + shortage(take(dict(inputs), rest))
    return value


def _needed(inputs: Inputs, columns: Columns) -> Floats:
    """Return the memory that a device needs for weights and its cache, of a request at least [B]."""
    tokens = inputs["serve.isl"] + inputs["serve.osl"]
    request = columns["kv_token_B"] * tokens + columns["kv_state_B"]
    cached = columns.get("kv_B", np.full(request.size, np.nan))
    total: Floats = columns["weight_B"] + np.where(np.isnan(cached), request, np.maximum(cached, request))
    return total / inputs["server.gpu_memory_utilization"]
