"""A trace that is loaded a few requests at a time: the same results as with all of it at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.performance.serving.fleet import loading, simulate
from fastflow.performance.serving.requests.load import TAKEN, TOO_LARGE
from tests.support.checks import cases
from tests.support.fleets import fleet_of_sessions, of_package, random_fleet


def assert_same(one, other):
    """Compare all results of two simulations, to the bit."""
    assert one.refused == other.refused == TAKEN
    for name, column in vars(one.served).items():
        assert np.array_equal(column, getattr(other.served, name)), name
    for name in ("totals", "on_s", "starts"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


@cases(60)
@given(seed=st.integers(0, 2**32), window=st.integers(1, 9))
def test_results_do_not_depend_on_how_many_requests_are_loaded(seed, window):
    fleet = random_fleet(np.random.default_rng(seed))
    whole = of_package(fleet)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "WINDOW", window)
        assert_same(of_package(fleet), whole)


def test_tables_do_not_grow_with_the_trace(monkeypatch):
    """Texts of two hours of sessions are in the tables as long as those of one."""
    rows = []
    load = loading.Loader.load

    def counted(self, tables, most_nodes):
        result = load(self, tables, most_nodes)
        rows.append((result.caches.texts.parent.size, result.fleet.requests.isl.size))
        return result

    monkeypatch.setattr(loading.Loader, "load", counted)
    monkeypatch.setattr(loading, "WINDOW", 100)
    most = []
    for sessions in (400, 1600):
        rows.clear()
        of_package(fleet_of_sessions(sessions, 4))
        most.append(np.max(rows, axis=0))
    assert (most[1] < 1.5 * most[0]).all()


def test_a_fleet_whose_window_exceeds_memory_is_refused(monkeypatch):
    monkeypatch.setattr(simulate, "MAX_BYTES", 12 * 100)
    assert of_package(fleet_of_sessions(40, 4)).refused == TOO_LARGE
