"""Recipes of servers whose prefill and decode are apart, and which of them a row has."""

import pytest

from fastflow.analysis.measurements.splits import Split, Workers, by_speed, fitting, read_splits
from fastflow.core.errors import InputError


def split(text):
    (one,) = read_splits("serving.splits.x", text)
    return one


def test_a_text_is_a_split():
    one = split("1xDEP4>5xTEP8 mtp3 b32 c10,15")
    assert one == Split(Workers(1, "DEP", 4), Workers(5, "TEP", 8), 3, 32, frozenset({10, 15}))
    assert len(read_splits("x", "1xDEP4>5xTEP8 b32 c10; 2xTP8>1xDTP16 c1;")) == 2


@pytest.mark.parametrize(
    ("workers", "strategy"),
    [("TP8", (8, 1, 1)), ("TEP8", (8, 8, 1)), ("DEP8", (1, 8, 8)), ("DTP8", (1, 8, 8))],
)
def test_layouts_of_workers(workers, strategy):
    assert split(f"1x{workers}>1x{workers} c1").decode.strategy == strategy


@pytest.mark.parametrize(
    "text", ["1xDEP4 c1", "1xDEP4>5xPP8 c1", "1xDEP4>5xTEP8", "1xDEP4>5xTEP8 c1 n3", "1xDEP4>5xTEP8 mtp c1"]
)
def test_other_texts_are_told(text):
    with pytest.raises(InputError, match=r"serving\.splits\.x.*WORKERSxKINDdevices"):
        split(text)


PLAIN, DRAFTING, WIDE = splits = read_splits(
    "x", "1xDEP4>5xTEP8 b32 c10,15; 1xDEP4>5xTEP8 mtp3 b32 c10; 2xDEP4>5xDEP16 b64 c10"
)


def test_recipes_of_a_load_that_fit_what_a_row_says():
    assert fitting(splits, 10, [(1, 4), (5, 8)]) == [PLAIN, DRAFTING]
    assert fitting(splits, 10, [(2, 4), (0, 0)]) == [WIDE]
    assert fitting(splits, 15, [(2, 4), (0, 0)]) == [PLAIN]
    assert fitting(splits, 11, [(1, 4), (5, 8)]) == []


def test_the_faster_rows_of_a_load_draft():
    times = [0.01, 0.02]
    assert by_speed([PLAIN, DRAFTING], 0.01, times) == DRAFTING
    assert by_speed([PLAIN, DRAFTING], 0.02, times) == PLAIN
    assert by_speed([PLAIN, DRAFTING], 0.01, [0.01, 0.011]) == PLAIN
    assert by_speed([DRAFTING], 0.02, times) == DRAFTING
