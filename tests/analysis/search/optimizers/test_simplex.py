"""The space of designs, and the projection on it (Section 7)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fastflow.analysis.search.optimizers.design_space import (
    Space,
    fill,
    fit,
    random_designs,
    space_of,
    sums,
    with_slack,
)
from fastflow.analysis.search.optimizers.simplex import project
from tests.naive import simplex as naive
from tests.support.checks import cases

PATHFINDING = Space(tuple("abcdefghijklmnopq"), np.repeat([0, 1, 2], [7, 7, 3]))


def designs(low=-2.0, high=2.0):
    shares = st.one_of(st.floats(low, high), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
    return arrays(np.float64, st.tuples(st.integers(1, 4), st.just(17)), elements=shares)


@cases(200)
@given(designs())
def test_the_projection_is_the_nearest_design(points):
    got = project(points, PATHFINDING)
    for row, point in zip(got, points, strict=True):
        for budget in range(3):
            of_budget = PATHFINDING.budget == budget
            np.testing.assert_allclose(row[of_budget], naive.project(point[of_budget]), rtol=0, atol=1e-9)


@cases(100)
@given(designs())
def test_a_projection_stays_where_it_is(points):
    got = project(points, PATHFINDING)
    assert (got >= 0.0).all()
    assert (sums(got, PATHFINDING) <= 1.0 + 1e-12).all()
    np.testing.assert_allclose(project(got, PATHFINDING), got, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("shares", "nearest"),
    [
        ([0.2, 0.3, 0.1], [0.2, 0.3, 0.1]),  # slack is left as it is
        ([0.2, -0.3, 0.1], [0.2, 0.0, 0.1]),
        ([1.0, 1.0, 0.0], [0.5, 0.5, 0.0]),
        ([2.0, 0.0, 0.0], [1.0, 0.0, 0.0]),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
        ([0.6, 0.6, -5.0], [0.5, 0.5, 0.0]),
    ],
)
def test_projections_by_hand(shares, nearest):
    alone = Space(("a", "b", "c"), np.zeros(3, dtype=np.int64))
    np.testing.assert_allclose(project(np.array([shares]), alone)[0], nearest, rtol=0, atol=1e-15)


@cases(50)
@given(designs(low=0.0))
def test_scaling_into_the_budgets(points):
    full, within = sums(fill(points, PATHFINDING), PATHFINDING), sums(fit(points, PATHFINDING), PATHFINDING)
    given_sums = sums(points, PATHFINDING)
    np.testing.assert_allclose(full[given_sums > 1e-9], 1.0, rtol=1e-12)
    np.testing.assert_allclose(within, np.minimum(given_sums, 1.0), rtol=1e-12, atol=1e-15)


def test_the_space_of_a_chip(compose):
    inputs = {key: np.array([value]) for key, value in compose().items()}
    space = space_of(inputs)
    parts = ("core", "l2", "l1", "l0", "dram", "intra", "inter")
    expected = [f"chip.{budget}.{part}" for budget in ("area", "power") for part in parts]
    expected += [f"chip.perimeter.{part}" for part in ("dram", "intra", "inter")]
    assert space.keys == tuple(expected)
    assert space.budget.tolist() == [0] * 7 + [1] * 7 + [2] * 3


def test_slack_is_a_share_at_the_end():
    whole = with_slack(PATHFINDING)
    assert whole.budget.tolist() == [*PATHFINDING.budget.tolist(), 0, 1, 2]
    assert len(whole.keys) == 20


def test_random_designs():
    drawn = random_designs(4000, PATHFINDING, 7)
    assert drawn.shape == (4000, 17)
    assert (drawn >= 0.0).all()
    np.testing.assert_allclose(sums(drawn, PATHFINDING), 1.0, rtol=1e-12)
    assert (random_designs(5, PATHFINDING, 7) == drawn[:5]).all()
    assert (random_designs(5, PATHFINDING, 8) != drawn[:5]).any()
    # uniform on a simplex of n corners: a share is Beta(1, n - 1), above x with probability (1 - x)^(n - 1)
    for place, corners in ((0, 7), (16, 3)):
        above = np.mean(drawn[:, place] > 0.2)
        assert abs(above - 0.8 ** (corners - 1)) < 4 * 0.5 / np.sqrt(4000)
