"""A capacity plan: for each period of a trace the best fleet, and the best fixed fleet for all periods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from fastflow.analysis.search.fleets.options import PER_HOUR
from fastflow.analysis.search.fleets.periods import Period, periods_of, write_period
from fastflow.analysis.search.fleets.simulated import Question, Simulated, Workers, batch_size
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
    question: Question,
    workers: Workers,
    length_s: float,
    begin: Callable[[int], None],
    advance: Callable[[int], None],
) -> Plan:
    """Plan the periods of a question's trace; raises InputError.

    begin: called with the number of periods, and one; advance: with 1 after each, and after the fixed fleet.
    """
    question = question._replace(measures=question.measures[:1])
    inputs = question.grid.first_inputs()
    trace = read_trace(str(inputs[TRACE][0]))
    periods = periods_of(trace, int(inputs[_REQUESTS][0]), float(inputs[_SPEED][0]), length_s)
    begin(1 + len(periods))
    per_hour = question.measures[0].name in PER_HOUR
    with TemporaryDirectory() as folder:
        planned = []
        for number, period in enumerate(periods):
            path, weight, simulated = Path(folder) / f"period-{number}.csv", length_s / HOUR, None
            if period.requests.size:
                write_period(trace, period, path)
                simulated = Simulated(question, workers, {TRACE: str(path), _REQUESTS: 0})
            if not per_hour:
                weight = float(trace.osl[period.requests].sum())
            planned.append(PlannedPeriod(period, weight, simulated))
        fixed = fixed_fleet([one for one in planned if one.simulated is not None])
        advance(1)
        for one in planned:
            if one.simulated is not None:
                one.simulated.search(lambda points: None)
            advance(1)
    return Plan(length_s, planned, fixed)


def fixed_fleet(planned: Sequence[PlannedPeriod]) -> int:
    """Return the point with the lowest total over all periods that meets the constraints in each; -1: none.

    Points are simulated in the order of their bounds, and in busy periods first.
    """
    pairs = [(one.simulated, one.weight, one.period.requests.size) for one in planned]
    simulated = [
        (one, weight) for one, weight, _ in sorted(pairs, key=lambda pair: -pair[2]) if one is not None
    ]
    least: Floats = np.sum([weight * one.bounds[0] for one, weight in simulated], axis=0)
    least = least - _ROUNDING * np.abs(least)  # sums in another order
    excluded = np.any([one.excluded for one, _ in simulated], axis=0)
    points = np.flatnonzero(~excluded)
    points = points[np.lexsort((points, least[points]))]
    best, best_total = -1, np.inf
    while points.size and least[points[0]] <= best_total:
        size = batch_size(least[None, points])
        alive, points = points[:size], points[size:]
        total = np.zeros(least.size)
        for one, weight in simulated:
            one.simulate(alive)
            alive = alive[one.meets[alive]]
            total[alive] += weight * one.values[0, alive]
        if alive.size:
            first = alive[np.lexsort((alive, total[alive]))[0]]
            if (total[first], first) < (best_total, best if best >= 0 else least.size):
                best, best_total = int(first), float(total[first])
    return best
