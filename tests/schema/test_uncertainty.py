"""What an error of predicted times does to a result, and which of its values are better: by its unit."""

import pytest

from fastflow.analysis import pairwise
from fastflow.reporting.html.columns import better_of
from fastflow.schema import BANDED, find_result

POWERS = {"s": 1, "1/s": -1, "USD": 1, "USD/token": 1, "g": 1, "g/token": 1, "kg": 1}
"""Unit to the power of time in it: costs of work are those of the time that it takes. Others have none."""
BOUGHT = ("die_usd", "device_usd", "system_usd", "device_carbon_kg")
"""Costs, and emissions, of what is bought once."""
LESS_IS_BETTER = ("s", "J", "USD", "USD/token", "g", "g/token", "kg")
MORE_IS_BETTER = ("1/s", "1/(s MW)", "flop/s", "B/s", "B")


@pytest.mark.parametrize("name", BANDED)
def test_the_unit_says_how_a_result_follows_time_and_which_is_better(name):
    unit = find_result(name).unit
    assert BANDED[name] == (0 if name in BOUGHT else POWERS.get(unit, 0))
    assert unit in LESS_IS_BETTER + MORE_IS_BETTER
    assert (name in pairwise._MORE_IS_BETTER) == (unit in MORE_IS_BETTER)
    assert better_of(name) in ("", "more" if unit in MORE_IS_BETTER else "less")
