"""Errors of rows that are several times of the same point: by part, and by ranges of a column of numbers."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.analysis.validation.error_metrics import errors, errors_by_part, errors_of, is_of_file
from fastflow.schema.quantities import THROUGHPUT, TIME
from tests.support.checks import cases, near

ENDS = {"concurrency": (8, 32, 128, 512)}


def frame_of(ratios, **columns):
    """Return the rows of a validation with a measured time of a second each."""
    ratio = np.array(ratios, dtype=float)
    return pd.DataFrame(
        {"measured_s": 1.0, "predicted_s": ratio, "error": abs(ratio - 1.0), "bound_by": "dram", **columns}
    )


def name_of(concurrency):
    """Return the range of a number of requests."""
    names = {8: "1-8", 32: "9-32", 128: "33-128", 512: "129-512"}
    return next((name for last, name in names.items() if concurrency <= last), "above 512")


@given(st.lists(st.tuples(st.integers(1, 600), st.floats(0.1, 9.0)), min_size=1, max_size=60))
@cases(80)
def test_many_numbers_are_grouped_by_range(points):
    numbers, ratios = zip(*points, strict=True)
    table = errors(frame_of(ratios, concurrency=numbers), ["concurrency"], TIME, ENDS)
    table = table[table["by"] == "concurrency"].set_index("value")
    group_of = name_of if len(set(numbers)) > 8 else str
    groups = {}
    for number in sorted(numbers):
        groups.setdefault(group_of(number), [])
    for number, ratio in points:
        groups[group_of(number)].append(abs(ratio - 1.0))
    assert table.index.tolist() == list(groups)
    for name, group in groups.items():
        assert table.loc[name, "rows"] == len(group)
        assert near(table.loc[name, "mean_error"], np.mean(group), 1e-9)


def test_a_missing_number_is_in_no_range_and_texts_have_none():
    numbers = [np.nan, *range(1, 10), 513, 2048]
    table = errors(frame_of([2.0] * 12, concurrency=numbers), ["concurrency"], TIME, ENDS)
    table = table[table["by"] == "concurrency"]
    assert dict(zip(table["value"], table["rows"], strict=True)) == {"1-8": 8, "9-32": 1, "above 512": 2}
    texts = frame_of([2.0] * 12, concurrency=[f"c{number}" for number in numbers])
    assert len(errors(texts, ["concurrency"], TIME, ENDS)) == len(errors(texts, ["concurrency"]))


def test_each_part_has_the_errors_of_its_rows_alone():
    rows = frame_of([2.0, 1.5, 4.0, 1.1], part=["ttft", "tpot"] * 2, model=["a", "a", "b", "b"])
    table = errors_by_part(rows, ["part", "model"])
    assert table["part"].unique().tolist() == ["", "ttft", "tpot"]
    together = errors_of(table, TIME).drop(columns="part").reset_index(drop=True)
    pd.testing.assert_frame_equal(together, errors(rows, ["part", "model"]))
    for part, expected in (("ttft", [2.0, 1.0, 3.0]), ("tpot", [0.3, 0.5, 0.1])):
        of_part = errors_of(table, TIME, part)
        shown = of_part[of_part["by"].isin(["all", "model"])]
        assert shown["mean_error"].tolist() == pytest.approx(expected)
        assert "part" not in set(of_part["by"])


def test_columns_of_the_file_are_what_sizes_and_limiters_are_not():
    rows = frame_of([1.5] * 8, model="a", measured_tokens_per_s_per_device=np.arange(1.0, 9.0))
    rows["predicted_tokens_per_s_per_device"] = 2.0
    bys = {*errors(rows, ["model"])["by"], *errors(rows, ["model"], THROUGHPUT)["by"]}
    assert {by for by in bys if is_of_file(by)} == {"model"}
    assert bys - {"model"} == {"all", "bound_by", "measured time", "measured throughput"}
