"""Constraints: what is read, what is refused, and what misses them."""

import numpy as np
import pytest

from fastflow.analysis.search.fleets.constraints import missed, read_constraints, stop_at
from fastflow.core.errors import InputError

COLUMNS = ["ttft_p99_s", "tpot_p50_s", "devices", "prefix_hit_rate", "usd_per_h"]


def test_limits_have_units():
    first, second, third = read_constraints(
        "ttft_p99_s<1 s, tpot_p50_s <= 50 ms,prefix_hit_rate>0.5", COLUMNS
    )
    assert (first.name, first.sense, first.limit) == ("ttft_p99_s", "<", 1.0)
    assert (second.sense, second.limit) == ("<=", 0.05)
    assert (third.sense, third.limit, third.is_upper) == (">", 0.5, False)
    assert [one.text for one in (first, second, third)] == [
        "ttft_p99_s<1 s", "tpot_p50_s<=50 ms", "prefix_hit_rate>0.5",
    ]  # fmt: skip
    assert read_constraints(None, COLUMNS) == ()
    assert read_constraints(["devices<9"], COLUMNS)[0].limit == 9.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ttft_p99_s", "COLUMN<VALUE"),
        ("ttft_p99_s=1 s", "COLUMN<VALUE"),
        ("ttft_p99<1 s", "not ttft_p99; did you mean ttft_p99_s"),
        ("ttft_p99_s<1", "a quantity in s"),
        ("ttft_p99_s<1 W", "a quantity in s"),
        ("devices<many", "a number for devices"),
        ("devices<inf", "a finite number"),
        ("ttft_p99_s<1 s,", "COLUMN<VALUE"),
    ],
)
def test_a_wrong_one_is_a_line(text, says):
    with pytest.raises(InputError, match="constraints=") as error:
        read_constraints(text, COLUMNS)
    assert says in str(error.value)


def test_the_first_missed_one_is_named_and_a_missing_value_misses():
    constraints = read_constraints("devices<=4,ttft_p99_s<1 s", COLUMNS)
    columns = {
        "devices": np.array([2, 8, 4, 4]),
        "ttft_p99_s": np.ma.MaskedArray([0.5, 2.0, 2.0, 0.0], mask=[False, False, False, True]),
    }
    assert missed(constraints, columns, np.array(["", "", "", "too long"], dtype=object)).tolist() == [
        "", "devices is 8, not <= 4", "ttft_p99_s is 2 s, not < 1 s", "too long",
    ]  # fmt: skip
    assert (
        missed(constraints, columns, np.array([""] * 4, dtype=object))[3] == "ttft_p99_s is none, not < 1 s"
    )


def test_bounds_exclude_what_they_show_to_miss():
    few, many = read_constraints("devices<4,prefix_hit_rate>=0.5", COLUMNS)
    bound = np.array([3.0, 4.0, np.nan])
    assert few.excludes(bound).tolist() == [False, True, False]
    assert many.excludes(np.array([0.4, 0.5, np.nan])).tolist() == [True, False, False]


def test_simulations_stop_at_most_latencies_and_at_the_least_goodput():
    columns = ["ttft_p99_s", "e2e_s", "devices", "goodput_per_s", "prefix_hit_rate", "tpot_p50_s"]
    text = "ttft_p99_s<1 s,e2e_s<=9 s,devices<9,goodput_per_s>2 1/s,prefix_hit_rate>0.5,tpot_p50_s>1 ms"
    limits = stop_at(read_constraints(text, columns))
    assert [limit[:3] for limit in limits] == [
        ("ttft", 99.0, 1.0), ("e2e", 0.0, 9.0), ("goodput_per_s", 0.0, 2.0)
    ]  # fmt: skip
    assert [limit.text for limit in limits] == [
        "ttft_p99_s is above 1 s", "e2e_s is above 9 s", "goodput_per_s is below 2/s",
    ]  # fmt: skip
