"""A capacity plan: for each period of a trace the best fleet, and the best fixed fleet for all periods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from fastflow.analysis.search.fleets.options import PER_HOUR
from fastflow.analysis.search.fleets.periods import Period, periods_of, write_period
from fastflow.analysis.search.fleets.simulated import Problem, Simulated, Workers, batch_size
from fastflow.core.tables import Floats
from fastflow.physics.workload.request_trace import KEY as TRACE
from fastflow.physics.workload.request_trace import read_trace

HOUR = 3600.0
_ROUNDING = 1e-12
_REQUESTS, _SPEED = "serve.num_requests", "serve.trace_speed"


class PlannedPeriod(NamedTuple):
    """A period with what was simulated for its requests."""

    period: Period
    weight: float
    """What the objective is multiplied with over the period: hours, or tokens of answers."""
    simulated: Simulated | None
    """None for a period without requests."""

    @property
    def best(self) -> int:
        """The best point, -1 for none."""
        return -1 if self.simulated is None else self.simulated.best()


class Plan(NamedTuple):
    """A capacity plan."""

    length_s: float
    periods: list[PlannedPeriod]
    fixed: int
    """The point with the lowest total of the objective, of those that meet the constraints in every period;
    -1: none does."""


def make_plan(
    problem: Problem,
    workers: Workers,
    length_s: float,
    begin: Callable[[int], None],
    advance: Callable[[int], None],
) -> Plan:
    """Plan the periods of the trace of a problem; raises InputError.

    begin: called with the number of periods, and one; advance: with 1 after each, and after the fixed fleet.
    """
    problem = problem._replace(measures=problem.measures[:1])
    inputs = problem.grid.first_inputs()
    trace = read_trace(str(inputs[TRACE][0]))
    periods = periods_of(trace, int(inputs[_REQUESTS][0]), float(inputs[_SPEED][0]), length_s)
    begin(1 + len(periods))
    per_hour = problem.measures[0].name in PER_HOUR
    with TemporaryDirectory() as folder:
        planned = []
        for number, period in enumerate(periods):
            path, weight, simulated = Path(folder) / f"period-{number}.csv", length_s / HOUR, None
            if period.requests.size:
                write_period(trace, period, path)
                simulated = Simulated(problem, workers, {TRACE: str(path), _REQUESTS: 0})
            if not per_hour:
                weight = float(trace.osl[period.requests].sum())
            planned.append(PlannedPeriod(period, weight, simulated))
        fixed = fixed_fleet([part for part in planned if part.simulated is not None])
        advance(1)
        for part in planned:
            if part.simulated is not None:
                part.simulated.search(lambda points: None)
            advance(1)
    return Plan(length_s, planned, fixed)


def fixed_fleet(planned: Sequence[PlannedPeriod]) -> int:
    """Return the point with the lowest total over all periods that meets the constraints in each; -1: none.

    Points are simulated in the order of their bounds, and in busy periods first.
    """
    parts = [(part.simulated, part.weight, part.period.requests.size) for part in planned]
    busy_first = sorted(parts, key=lambda part: -part[2])
    simulated = [(fleets, weight) for fleets, weight, _ in busy_first if fleets is not None]
    least: Floats = np.sum([weight * fleets.bounds[0] for fleets, weight in simulated], axis=0)
    least = least - _ROUNDING * np.abs(least)  # sums in another order
    excluded = np.any([fleets.excluded for fleets, _ in simulated], axis=0)
    points = np.flatnonzero(~excluded)
    points = points[np.lexsort((points, least[points]))]
    best, best_total = -1, np.inf
    while points.size and least[points[0]] <= best_total:
        size = batch_size(least[None, points])
        alive, points = points[:size], points[size:]
        total = np.zeros(least.size)
        for fleets, weight in simulated:
            fleets.simulate(alive)
            alive = alive[fleets.meets[alive]]
            total[alive] += weight * fleets.values[0, alive]
        if alive.size:
            first = alive[np.lexsort((alive, total[alive]))[0]]
            if (total[first], first) < (best_total, best if best >= 0 else least.size):
                best, best_total = int(first), float(total[first])
    return best
