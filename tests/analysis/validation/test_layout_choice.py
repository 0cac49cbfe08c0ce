"""Choice among measured layouts: regret and Kendall's tau, against counting pairs one by one."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.analysis.validation.layout_choice import comparison_errors, kendall_tau, layout_choice, regret
from fastflow.cli.commands.validate import main
from tests.support.checks import cases, near

TIMES = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=9)


@given(TIMES)
@cases(120)
def test_pairs_in_order_less_pairs_in_the_opposite_one(times):
    agree = differ = 0
    for (first_measured, first_predicted), (measured, predicted) in combinations(times, 2):
        product = (first_measured - measured) * (first_predicted - predicted)
        agree, differ = agree + (product > 0), differ + (product < 0)
    got = kendall_tau(*np.array(times, dtype=float).T)
    assert (got != got) if agree + differ == 0 else near(got, (agree - differ) / (agree + differ))


@given(TIMES)
@cases(120)
def test_regret_is_what_the_choice_costs(times):
    measured, predicted = np.array(times, dtype=float).T
    chosen = [time for time, guess in times if guess == predicted.min()]
    assert near(regret(measured, predicted), np.mean(chosen) / measured.min() - 1.0)
    assert regret(measured, measured) == 0.0


@given(TIMES)
@cases(120)
def test_a_comparison_is_off_by_the_ratio_of_ratios(times):
    expected = []
    for (first_measured, first_predicted), (measured, predicted) in combinations(times, 2):
        off = (first_predicted / predicted) / (first_measured / measured)
        expected.append(max(off, 1.0 / off) - 1.0)
    got = comparison_errors(*np.array(times, dtype=float).T)
    assert np.allclose(got, expected)


def test_rows_of_a_job_are_those_that_agree_in_its_columns():
    rows = pd.DataFrame({
        "model": ["a", "a", "a", "b", "b", "c", "d", "d"],
        "file.dtype": ["x"] * 8,
        "measured_s": [2.0, 1.0, 4.0, 3.0, 3.3, 9.0, 1.0, 1.0],
        "predicted_s": [1.0, 2.0, 3.0, 3.0, 2.0, 9.0, 5.0, 5.0],
    })  # fmt: skip
    found = layout_choice(rows, ("model", "dtype", "nothing"))
    assert (found.jobs, found.rows) == (2, 5)  # one row of c, and d in one layout
    assert found.mean_regret == pytest.approx((1.0 + 0.1) / 2)
    assert found.max_regret == pytest.approx(1.0)
    assert found.tau == pytest.approx((1 / 3 - 1.0) / 2)
    assert found.comparison_error == pytest.approx((0.65 + 5.0 / 3.0) / 2)  # the middle of four pairs
    rows.loc[4, "predicted_s"] = np.nan
    assert layout_choice(rows, ("model",)).jobs == 1
    assert layout_choice(rows[3:], ("model",)) is None
    assert layout_choice(rows, ("nothing",)) is None


RUN = {
    "device": "H100", "gpus": 16, "framework": "NeMo", "year": 2024, "model": "Llama3-8B", "hidden": 4096,
    "layers": 32, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256, "seq": 4096, "global_batch": 64,
    "dtype": "bf16",
}  # fmt: skip


def test_a_validation_says_how_well_layouts_are_chosen(cli, tmp_path):
    measured = ((1, 1, 3.0), (8, 1, 4.5), (1, 8, 3.9))
    layouts = [{"tp": tp, "pp": pp, "time_s": seconds} for tp, pp, seconds in measured]
    path = tmp_path / "runs.csv"
    pd.DataFrame([RUN | one for one in layouts]).to_csv(path, index=False)
    _, out, _ = cli(main, f"measurements={path}", "output=here")
    text = " ".join(" ".join(out).split())
    assert (
        "Choice of layouts: of 1 job with 3 rows, the layout that is predicted fastest was measured" in text
    )
    assert "Kendall's tau" in text
    pd.DataFrame([RUN | one for one in layouts[:1]]).to_csv(path, index=False)
    _, out, _ = cli(main, f"measurements={path}", "output=there")
    assert "Choice of layouts" not in " ".join(out)
