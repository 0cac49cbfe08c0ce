"""Lines on the infeasible points of a grid: how many have which code of reasons."""

import pandas as pd
import pyarrow as pa
import pytest

from fastflow.reporting.terminal.digest import Digest, counts_of_codes, infeasible_lines


def lines_of(codes):
    """Return the lines on points without a time that have these codes, (points,); "" is feasible."""
    digest, feasible = Digest(), [code == "" for code in codes]
    times = [1.0 if one else None for one in feasible]
    part = pd.DataFrame({"time_s": times, "feasible": feasible, "reason_code": codes})
    digest.add(pa.Table.from_pandas(part))
    digest.add(pa.Table.from_pandas(part[:1]))
    points = len(codes) + 1
    return [*infeasible_lines(digest, points, lambda point: {"point": point, "reason": f"why {point}"})]


@pytest.mark.parametrize(
    ("codes", "line"),
    [
        (["", "model", "batch", "model"], "3 of 5 points have no time: 2 model, 1 batch (columns"
         " `reason_code`, `reason`); point 1: why 1"),
        (["", "", "model", "model"], "2 of 5 points have no time (column `reason`); point 2: why 2"),
    ],
)  # fmt: skip
def test_several_codes_are_counted_and_one_is_not(codes, line):
    assert lines_of(codes) == [line]


def test_counts_of_a_frame():
    assert counts_of_codes(pd.DataFrame({"reason_code": ["a", "b", "b"]})) == ": 2 b, 1 a"
    assert counts_of_codes(pd.DataFrame({"reason_code": ["a", "a"]})) == ""
    assert counts_of_codes(pd.DataFrame({"reason": ["of an older dataset", "and another"]})) == ""
