"""What pages, tables of analyses and notebooks' headlines show is that of its column, in its unit.

As `test_shown_values` has it of points: of values all unlike, each number is read back.
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fastflow.analysis.validation.error_metrics import ALL
from fastflow.api.notebook import cards
from fastflow.reporting.charts.overview import AxisSummary, ValueSummary
from fastflow.reporting.html.kinds import backtest as backtest_page
from fastflow.reporting.html.kinds import grid, validation
from fastflow.reporting.html.kinds import search as search_page
from fastflow.reporting.html.kinds import sensitivity as sensitivity_page
from fastflow.reporting.terminal import (
    calibration,
    overview,
    sensitivity,
)
from fastflow.reporting.terminal.tables import quantity
from fastflow.reporting.terminal.validation import error_sheet
from fastflow.schema import VALIDATION, find_result
from tests.support.shown import (
    check_sheet,
    check_text,
    of,
    plain,
    rows_of,
    served,
    trained,
)

BEST = {
    "Fastest": ("time_s", "less"), "Least energy": ("energy_J", "less"),
    "Cheapest iteration": ("iteration_usd", "less"),
    "Most tokens per device": ("tokens_per_s_per_device", "more"),
    "Most tokens per user": ("tokens_per_s_per_user", "more"),
    "Shortest time to first token": ("ttft_s", "less"),
    "Cheapest million tokens": ("usd_per_million_tokens", "less"),
}  # fmt: skip


def test_bars_of_a_page_are_of_the_columns_that_their_labels_name():
    shown = {label: name for bar in (grid.MEMORY, grid.TIME) for label, name in bar.columns.items()}
    assert shown == {
        "weights": "weight_B", "gradients": "gradient_B", "optimizer": "optimizer_B",
        "activations": "activation_B", "buffers": "buffer_B", "KV cache": "kv_B",
        "workspaces": "workspace_B", "fragments": "fragment_B", "communicators": "communicator_B",
        "context": "context_B", "libraries": "library_B", "graphs": "graph_B",
        "kernels": "compute_s", "exposed communication": "exposed_comm_s", "bubble": "bubble_s",
    }  # fmt: skip
    assert {find_result(name).unit for name in grid.MEMORY.columns.values()} == {"B"}
    assert {find_result(name).unit for name in grid.TIME.columns.values()} == {"s"}
    assert (grid.MEMORY.limit, grid.MEMORY.total) == ("dram_offered_B", "footprint_B")
    assert [line[:2] for line in grid.SERVED_LINES[:15]] == [
        ("time to first token", "ttft_s"), ("p50", "ttft_p50_s"), ("p90", "ttft_p90_s"),
        ("p99", "ttft_p99_s"),
        ("time per further token", "tpot_s"), ("p50", "tpot_p50_s"), ("p90", "tpot_p90_s"),
        ("p99", "tpot_p99_s"),
        ("time to last token", "e2e_s"), ("p50", "e2e_p50_s"), ("p90", "e2e_p90_s"), ("p99", "e2e_p99_s"),
        ("time of a step", "time_s"),
        ("decode limited by", "decode_bound_by"), ("prefill limited by", "prefill_bound_by"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("main", "better", "labels", "x", "colour"),
    [
        ("time_s", ["time_s", "energy_J", "iteration_usd"], ["tech"], "iteration_usd", "bound_by"),
        ("time_s", ["time_s", "energy_J"], ["tech"], "energy_J", "bound_by"),
        ("time_s", ["time_s"], ["tech", "mem"], "tech", "bound_by"),
        ("time_s", ["time_s"], [], "point", "bound_by"),
        ("tokens_per_s_per_device", ["tokens_per_s_per_user"], ["tech"], "tokens_per_s_per_user", "tech"),
        ("tokens_per_s_per_device", ["ttft_s"], ["point", "mem"], "ttft_s", "mem"),
        ("tokens_per_s_per_device", [], ["point"], "ttft_s", "point"),
    ],
)
def test_the_first_view_of_a_grid_has_its_main_result_upwards(main, better, labels, x, colour):
    frame = pd.DataFrame([
        trained(seed) | {"point": seed, "time_s": 1 / seed, "tech": f"n{seed % 3}", "mem": f"hbm{seed % 2}"}
        for seed in range(1, grid.MAX_COLOURS + 2)
    ])  # fmt: skip
    view = grid._view(frame, labels, main, dict.fromkeys(better, ""), None)
    assert (view.x, view.y, view.colour, view.bars) == (x, main, colour, "bound_by")
    assert (view.histogram, view.table.sort) == (main, main)
    best = frame[main].idxmax() if main == "tokens_per_s_per_device" else frame[main].idxmin()
    assert view.opened == best
    assert (view.across, view.rows) == (tuple(labels) if len(labels) > 1 else ("", ""))


@pytest.mark.parametrize("serves", [False, True])
def test_headlines_of_a_page_are_the_best_of_their_columns(monkeypatch, serves):
    monkeypatch.setattr(grid, "_MAX_HEADLINES", 99)
    names = ["tpot_s"] if serves else []
    frame = pd.DataFrame([trained(seed) | {"point": seed, "time_s": 7.0 + seed} for seed in range(5)])
    frame = frame[["point", "feasible", *dict.fromkeys(name for name, _ in BEST.values()), *names]]
    first, *others = grid._headlines(frame, ["point"])
    check_text(first.value, [(5, ""), (5, "")])
    expected = {label for label in BEST if label != "Fastest" or not serves}
    assert {headline.label for headline in others} == expected
    for headline in others:
        name, which = BEST[headline.label]
        best = frame[name].min() if which == "less" else frame[name].max()
        check_text(headline.value, [(best, find_result(name).unit)])
        point = frame.index[frame[name] == best][0]
        check_text(headline.note, [(point, ""), (point, "")])


def test_headlines_of_a_search():
    metadata = {"objective": ("energy", "J"), "second_objective": ("time by area", "s m^2")}
    schema = pa.schema([
        pa.field(name, pa.float64(), metadata={"meaning": meaning, "unit": unit})
        for name, (meaning, unit) in metadata.items()
    ])  # fmt: skip
    frame = pd.DataFrame({
        "point": range(4), "mem": ["<a>", "<b>", "<c>", "<d>"], "feasible": [False, True, True, True],
        "reason": "", "objective": [1e6, 4.4e6, 3.1e6, 7.3e6],
        "second_objective": [1e-6, 23e-6, 41e-6, 17e-6], "baseline_objective": [3e6, 11e6, 9.3e6, 13e6],
    })  # fmt: skip
    headlines = search_page._headlines(SimpleNamespace(schema=schema), frame, ["mem"])
    assert [headline.label for headline in headlines] == [
        "Feasible", "Best energy", "Best time by area", "Gain over the unchanged chip",
    ]  # fmt: skip
    assert [headline.note for headline in headlines[1:3]] == ["mem=<c>", "mem=<d>"]
    expected = [[(3, ""), (4, "")], [(3.1e6, "J")], [(17e-6, "s m^2")], [(3.0, "")]]
    for headline, numbers in zip(headlines, expected, strict=True):
        check_text(headline.value, numbers)


def test_headlines_of_a_backtest():
    chips = pd.DataFrame({
        "scaling": ["foundry"] * 4 + ["paper"] * 3,
        "difference": [0.11, -0.19, 0.37, np.nan, 0.05, -0.21, -0.43],
    })  # fmt: skip
    foundry, paper = backtest_page._headlines(chips)
    for headline, name, counts, median in (
        (foundry, "foundry", (2, 3), 0.19), (paper, "paper", (1, 3), 0.21),
    ):  # fmt: skip
        assert headline.label == f"scaling={name}"
        check_text(headline.value, [(counts[0], ""), (counts[1], "")])
        check_text(headline.note, [(0.2, ""), (median, "")])


ERRORS = {
    "mean_error": 0.123,
    "median_error": 0.0456,
    "p90_error": 0.789,
    "bias": 1.37,
    "log_correlation": 0.9612,
}


def test_errors_of_a_validation_are_shown_as_what_they_are():
    frame = pd.DataFrame([{"by": ALL, "value": ALL, "rows": 17, **ERRORS}])
    rows = pd.DataFrame({"predicted_s": [1.0, 2.0, np.nan]})
    headlines = validation._headlines(rows, frame)
    numbers = [(value, "") for value in ERRORS.values()]
    check_text(headlines[0].value, [(2, ""), (3, "")])
    for headline, number in zip(headlines[1:], numbers[:4], strict=True):
        check_text(headline.value, [number])
    # what a headline calls a figure is what its column's meaning calls it
    kinds = {"mean", "median", "90"}
    for headline, name in zip(headlines[1:], ERRORS, strict=False):
        meaning = next(column for column in VALIDATION if column.name == name).meaning
        called = {kind for kind in kinds if kind in f"{headline.label} {headline.note}".lower()}
        assert called == {kind for kind in kinds if kind in meaning.lower()}, name
    sheet = error_sheet(frame)
    assert [column.header for column in sheet.columns[1:]] == [
        "rows", "mean", "median", "90%", "bias", "log corr.",
    ]  # fmt: skip
    check_sheet(sheet, [(ALL, (17, ""), *numbers)])


def test_headlines_of_a_sensitivity():
    moving = pd.DataFrame({"parameter": ["a", "b"], "elasticity": [0.71, -0.12]})
    value, count, *others = sensitivity_page._headlines(moving, "energy_J", 4.4e7, 9)
    check_text(value.value, [(4.4e7, "J")])
    check_text(count.value, [(2, ""), (9, "")])
    assert [headline.label for headline in others] == ["a", "b"]
    for headline, elasticity in zip(others, moving["elasticity"], strict=True):
        check_text(headline.value, [(elasticity / 100, "")])


def test_values_of_an_axis():
    values = [
        ValueSummary("hbm2", 17, 13, 7.1e3, 3.3e3, 1.1e3, 5.2e3, "dram", {"compute": 0.21, "dram": 0.79}),
        ValueSummary("hbm3", 19, 11, 91.0, 47.0, 31.0, 83.0, "compute", {"compute": 0.62, "dram": 0.38}),
    ]
    sheet = overview._sheet(AxisSummary("mem", values, True))
    assert [column.header for column in sheet.columns] == [
        "mem", "points", "feasible", "best", "median", "bound by", "compute", "dram",
    ]  # fmt: skip
    for cells, value in zip(rows_of(sheet), values, strict=True):
        counts, times = (value.points, value.feasible), (value.best_s, value.median_s)
        plain_numbers = [(number, "") for number in (*counts, *value.shares.values())]
        times = [(time, "s") for time in times]
        check_text(" | ".join(cells[1:]), [*plain_numbers[:2], *times, *plain_numbers[2:]])


def test_elasticities_and_indices():
    rows = pd.DataFrame([{
        "parameter": "tech.x", "parameter_value": 2.7e9, "unit": "B/s", "elasticity": 0.711,
        "elasticity_minus": -0.345, "elasticity_plus": 0.982, "nonlinearity": "", "sobol_first": 0.123,
        "sobol_first_error": 0.045, "sobol_total": 0.678, "sobol_total_error": 0.089,
    }])  # fmt: skip
    sheet = sensitivity._sheet(rows)
    assert [column.header for column in sheet.columns] == [
        "parameter", "value", "both", "less", "more", "alone", "in all", "nonlinearity",
    ]  # fmt: skip
    numbers = (0.711, -0.345, 0.982, 0.123, 0.045, 0.678, 0.089)
    check_sheet(sheet, [("tech.x", (2.7e9, "B/s"), *((number, "") for number in numbers))])


def test_scalars_and_errors_of_a_calibration():
    scalars = pd.DataFrame([{
        "scalar": "launch", "unit": "s", "before": 3.1e-6, "after": 4.7e-6, "standard_error": 2.3e-7,
        "state": "fitted",
    }])  # fmt: skip
    errors = pd.DataFrame({
        "rows_of": ["fitted", "held back"], "rows": [41, 13], "before": [0.31, 0.47], "after": [0.053, 0.071],
    })  # fmt: skip
    first, second = calibration.parts(scalars, errors)
    assert [column.header for column in first.columns[1:4]] == ["before", "after", "std. error"]
    check_sheet(first, [("launch", (3.1e-6, "s"), (4.7e-6, "s"), (2.3e-7, "s"))])
    assert [column.header for column in second.columns[1:]] == ["rows", "before", "after"]
    check_sheet(
        second,
        [("fitted", (41, ""), (0.31, ""), (0.053, "")), ("held back", (13, ""), (0.47, ""), (0.071, ""))],
    )
    check_text(calibration.summary(errors), [(0.071, ""), (0.47, "")])


# --- notebooks


@pytest.mark.parametrize("seed", range(3))
def test_headlines_of_cards(seed):
    row = trained(seed)
    check_text(plain(cards._headline(row, False)), of(row, "time_s", "tokens_per_s"))
    row = served(seed)
    check_text(plain(cards._headline(row, True)), of(row, "tokens_per_s", "ttft_s", "tpot_s"))
    row["tokens_per_s"] = float("nan")
    check_text(plain(cards._headline(row, True)), of(row, "prefill_tokens_per_s", "ttft_s", "tpot_s"))
    words = plain(cards._headline(row, True)).split(", ")
    assert [text.split(" ", 2)[2] for text in words[1:]] == ["to the first token", "per further token"]


def test_a_quantity_without_value_is_a_dash():
    assert [quantity("time_s", value) for value in (None, float("nan"), np.ma.masked)] == ["-"] * 3
    assert [quantity("feasible", value) for value in (True, np.False_)] == ["yes", "no"]
