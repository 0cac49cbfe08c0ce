"""Result columns of a server's memory: of a device, and of lower tiers that it reads weights from."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Columns, Floats
from fastflow.performance.serving.scenario import ServingScenario
from fastflow.performance.serving.streamed_weights import LIMITER


def read_s(scenario: ServingScenario, by: Floats) -> Floats:
    """Return how long passes wait for weights from lower tiers [s], (points,).

    by: their time by limiter, (points, limiters) [s].
    """
    if LIMITER not in scenario.passes.limiters:
        return np.zeros(by.shape[0])
    wait_s: Floats = by[:, scenario.passes.limiters.index(LIMITER)]
    return wait_s


def tier_columns(scenario: ServingScenario, by: Floats, reads: Floats) -> Columns:
    """Return the columns of weights in lower tiers; none where no point has any.

    by, reads: of passes, by limiter [s] and of a device of each stage [B].
    """
    if LIMITER not in scenario.passes.limiters:
        return {}
    return {
        "offloaded_B": scenario.room.lower, "weight_read_B": reads, "weight_read_s": read_s(scenario, by),
    }  # fmt: skip


def memory_columns(scenario: ServingScenario, cached: Floats, tokens: Floats) -> Columns:
    """Return the columns of a device's memory; cached: by all requests [B], of some tokens each."""
    room, layouts, cache = scenario.room, scenario.layouts, scenario.cache
    most = np.floor(np.maximum(room.caches, 0.0) / scenario.request_cache) * layouts.ranks * layouts.replicas
    request = cache.of(tokens)
    requests = cached / np.where(request > 0.0, request, 1.0)
    return {
        "footprint_B": room.fixed + cached, "weight_B": room.weights, "workspace_B": room.work,
        "library_B": room.libraries, "graph_B": room.graphs, "context_B": room.context,
        "communicator_B": room.communicators,
        "kv_window_B": requests * cache.windowed * np.minimum(tokens, cache.window),
        "kv_states_B": requests * cache.state,
        "kv_token_B": cache.token + cache.windowed,
        "kv_window_token_B": cache.windowed, "kv_state_B": cache.state,
        "kv_cache_capacity_B": np.maximum(room.caches, 0.0),
        "max_concurrent_requests": most, "compute_flops": scenario.passes.peak[scenario.server],
    }  # fmt: skip
