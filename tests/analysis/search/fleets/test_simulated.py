"""Which configurations a search simulates: against a search that simulates all, on made results."""

from types import SimpleNamespace

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from fastflow.analysis.search.fleets.plan import PlannedPeriod, fixed_fleet
from fastflow.analysis.search.fleets.simulated import BATCH, Simulated, batch_size
from fastflow.analysis.search.fleets.tables import ranked
from tests.naive import fleet_search as naive


class Made(Simulated):
    """Configurations with results that are known beforehand."""

    def __init__(self, bounds, values, feasible):
        self.bounds, self.results = np.array(bounds), np.array(values)
        points = self.bounds.shape[1]
        self.feasible = np.array(feasible)
        self.excluded = np.zeros(points, dtype=np.bool_)
        self.values = np.full(self.bounds.shape, np.nan)
        self.is_known = np.zeros(points, dtype=np.bool_)
        self.missed = np.full(points, "", dtype=object)

    def simulate(self, points):
        self.is_known[points] = True
        self.values[:, points] = self.results[:, points]
        self.missed[points] = np.where(self.feasible[points], "", "missed")

    def rows_of_all(self):
        pairs = zip(self.results.T.tolist(), self.feasible.tolist(), strict=True)
        return [{"a": values[0], "b": values[-1], "feasible": feasible} for values, feasible in pairs]


@st.composite
def made(draw, measures, points=None, feasible=None):
    """Configurations whose results are at least their bounds; small numbers, so that many are equal."""
    points = draw(st.integers(1, 60)) if points is None else points
    rows = st.lists(st.integers(0, 8), min_size=points, max_size=points)
    bounds = np.array([draw(rows) for _ in range(measures)], dtype=np.float64)
    values = bounds + np.array([draw(rows) for _ in range(measures)])
    unknown = draw(st.lists(st.booleans(), min_size=points, max_size=points))
    bounds[:, np.array(unknown)] = -np.inf
    chance = st.booleans() if feasible is None else st.just(feasible)
    return Made(bounds, values, draw(st.lists(chance, min_size=points, max_size=points)))


@given(made(1))
def test_the_best_is_that_of_all_configurations(search):
    done = []
    search.search(done.append)
    best = naive.best(search.rows_of_all(), "a", [])
    assert search.best() == (-1 if best is None else best)
    assert sum(done) == search.is_known.size
    if best is not None:
        assert ranked(search)[0] == best
        # all that may still be as good are simulated, and all that tie
        assert search.is_known[search.bounds[0] <= search.results[0, best]].all()


@given(made(2))
def test_the_front_is_that_of_all_configurations(search):
    search.search(lambda points: None)
    assert search.front.tolist() == naive.front(search.rows_of_all(), "a", "b", [])


def test_configurations_that_cannot_be_better_are_not_simulated():
    bounds = np.repeat(np.arange(10.0), 20)[None, :]
    search = Made(bounds, bounds, bounds[0] >= 3.0)
    search.search(lambda points: None)
    assert np.flatnonzero(search.is_known).tolist() == list(range(80))  # of 0 to 3, all 20 each


def test_a_batch_ends_where_bounds_do():
    assert batch_size(np.zeros((1, 50))) == BATCH
    assert batch_size(np.array([[1.0] * 10 + [2.0] * 10])) == 10
    assert batch_size(np.arange(10.0)[None, :]) == 4
    assert batch_size(np.arange(2.0)[None, :]) == 2


@st.composite
def plans(draw):
    """Periods of the same configurations, with their weights."""
    points, count = draw(st.integers(1, 30)), draw(st.integers(1, 4))
    weights = [float(draw(st.integers(1, 5))) for _ in range(count)]
    return [draw(made(1, points)) for _ in range(count)], weights


@given(plans())
@example(([Made([[0.0, 0.0]], [[5.0, 1.0]], [True, True])], [1.0]))
def test_the_fixed_fleet_is_the_best_of_all_that_meet_every_period(plan):
    periods, weights = plan
    planned = [
        PlannedPeriod(SimpleNamespace(requests=np.arange(number)), weight, search)
        for number, (search, weight) in enumerate(zip(periods, weights, strict=True))
    ]
    expected = naive.fixed([search.rows_of_all() for search in periods], "a", weights, [])
    assert fixed_fleet(planned) == (-1 if expected is None else expected)
