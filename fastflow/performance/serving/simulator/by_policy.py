"""Simulation of points whose servers have different scheduling policies."""

from __future__ import annotations

import numpy as np

from fastflow.core.dedupe import factorize
from fastflow.core.tables import Columns, Texts, take
from fastflow.performance.serving.passes.step_time import Servers
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import Loads
from fastflow.performance.serving.simulator.latencies import columns_of
from fastflow.performance.serving.simulator.run import simulate
from fastflow.schema.scheduling import POLICIES


def simulate_each(times: PassTimes, servers: Servers, loads: Loads, policies: Texts) -> Columns:
    """Simulate points in one call for each policy; returns columns of metrics, (points,).

    policies: as of `simulated_policies`, (points,). Raises InputError where one cannot be loaded or run.
    """
    names, number = factorize(policies)
    columns: Columns = {}
    for i, name in enumerate(names):
        rows = np.flatnonzero(number == i)
        policy = POLICIES.find(name) if name else None
        metrics = columns_of(simulate(times, take(servers, rows), take(loads, rows), policy))
        if len(names) == 1:
            return metrics
        for key, column in metrics.items():
            columns.setdefault(key, np.empty(policies.size, column.dtype))[rows] = column
    return columns
