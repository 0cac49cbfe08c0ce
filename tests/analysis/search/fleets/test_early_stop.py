"""Searches whose simulations stop early: the same answers as without, and hopeless fleets are stopped."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.performance.serving.fleet import loading
from fastflow.reporting.terminal.fleet_search import plan_parts, ranking_parts
from tests.naive import fleet_search as naive
from tests.performance.serving.fleet.test_predict import SERVER, sessions, singles
from tests.support.checks import cases

FLEETS = (
    *SERVER[:2], *SERVER[-1:], "system=dgx_h100", "serve=continuous", "system.devices=1,2,4",
    "router=round_robin,least_loaded",
)  # fmt: skip
SPLIT = (*SERVER, "serve=disaggregated", "serve.prefill.devices=1,2,3")
COLUMNS = (
    *("ttft_s", "ttft_p50_s", "ttft_p99_s", "tpot_s", "tpot_p90_s", "tpot_p99_s"),
    *("e2e_s", "e2e_p95_s", "e2e_p99_s"),
)


@pytest.fixture(autouse=True)
def short_windows(monkeypatch):
    """Look as often at a short trace as at a long one."""
    monkeypatch.setattr(loading, "LEAST_WINDOW", 1)


def rows_of(frame):
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def stopped_of(found):
    """Return which fleets of a ranking were stopped, and compare their number with that of the search."""
    stopped = found.ranking["reason_code"] == "stopped"
    assert json.loads(found.ranking.attrs["fastflow.fleets"])["stopped"] == stopped.sum()
    return stopped


def assert_as_of_a_grid(found, grid, limits):
    """Compare a search with a grid of the same fleets: what ran to the end; others miss a limit."""
    stopped, both = stopped_of(found), [name for name in grid if name != "no_effect"]
    whole = found.ranking[~stopped]
    of_grid = grid.loc[whole["point"], both].reset_index(drop=True)
    whole = whole[both].reset_index(drop=True).astype(of_grid.dtypes)
    pd.testing.assert_frame_equal(whole, of_grid, rtol=1e-12)
    of_stopped = grid.loc[found.ranking.loc[stopped, "point"]]
    assert not any(naive.meets(row, limits) for row in rows_of(of_stopped))
    assert not found.ranking.loc[stopped, "feasible"].any()


@pytest.fixture(scope="module")
def grids(tmp_path_factory):
    """Overrides of several kinds of fleets and traces, each with the grid of all fleets."""
    folders = [tmp_path_factory.mktemp(name) for name in "abc"]
    kinds = [
        (*FLEETS, f"serve.trace={sessions(folders[0], 80, seed=1)}"),
        (*FLEETS, f"serve.trace={singles(folders[1], 300)}", "serve.trace_speed=3", "serve.num_requests=250"),
        (*SPLIT, f"serve.trace={singles(folders[2], 250)}"),
        (*SPLIT, f"serve.trace={singles(folders[2], 250)}", "serve.first_token=decode"),
    ]
    return [(overrides, fastflow.evaluate(*overrides)) for overrides in kinds]


@cases(30)
@given(
    kind=st.integers(0, 3), column=st.sampled_from(COLUMNS), other=st.sampled_from(COLUMNS),
    shares=st.tuples(st.floats(-0.2, 1.2), st.floats(0.2, 1.2)),
)  # fmt: skip
def test_the_best_fleet_and_the_front_do_not_depend_on_stopping(grids, kind, column, other, shares):
    overrides, grid = grids[kind]
    limits = []
    for name, share in ((column, shares[0]), (other, shares[1])):
        least, most = grid[name].min(), grid[name].max()
        limits.append((name, "<", float(least + share * (most - least))))
    text = ",".join(f"{name}<{limit!r} s" for name, _, limit in limits)
    found = fastflow.search(*overrides, constraints=text, objective="devices", pareto="ttft_p99_s")
    assert_as_of_a_grid(found, grid, limits)
    front = naive.front(rows_of(grid), "devices", "ttft_p99_s", limits)
    assert ([] if found.front.empty else found.front["point"].tolist()) == front
    best = naive.best(rows_of(grid), "devices", limits)
    assert (None if found.best is None else grid["devices"][found.best["point"]]) == (
        None if best is None else grid["devices"][best]
    )


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("kind", range(4))
def test_hopeless_fleets_are_stopped(grids, kind, column):
    overrides, grid = grids[kind]
    limit = 0.5 * float(grid[column].min())
    found = fastflow.search(*overrides, constraints=f"{column}<{limit!r} s")
    assert found.best is None
    assert len(found.ranking) == len(grid)
    assert stopped_of(found).all()
    texts = found.ranking["missed_constraint"]
    assert (texts == found.ranking["reason"]).all()
    assert texts.str.contains(f"{column} is above", regex=False).all()
    counts = texts.str.extract(r"stopped after ([\d,]+) of ([\d,]+) requests").replace(",", "", regex=True)
    ended, requests = (counts[name].astype(int) for name in (0, 1))
    assert (requests == (250 if kind else 320)).all()
    assert (ended < 0.8 * requests).all()
    assert found.ranking[column].isna().all()
    assert found.ranking["devices"].notna().all()
    found._repr_html_()


@pytest.mark.parametrize("percentile", [0, 90])
def test_limits_of_serve_slo_stop_too(grids, percentile):
    overrides, _ = grids[1]
    limits = ("serve.slo.ttft='1 ms'", f"serve.slo.percentile={percentile}")
    found = fastflow.search(*overrides, *limits)
    assert stopped_of(found).all()
    assert found.ranking["missed_constraint"].str.contains("above serve.slo.ttft=1 ms", regex=False).all()
    goodput = fastflow.search(*overrides, "serve.slo.ttft=9 s", constraints="goodput_per_s>900 1/s")
    assert stopped_of(goodput).all()
    assert goodput.ranking["missed_constraint"].str.endswith("goodput_per_s is below 900/s").all()


def test_a_plan_counts_what_was_stopped(grids):
    overrides, grid = grids[0]
    limit = float(grid["tpot_p99_s"].median())
    found = fastflow.search(
        *overrides, objective="usd_per_h", constraints=f"tpot_p99_s<{limit!r} s", plan="20 s"
    )
    about = json.loads(found.plan.attrs["fastflow.fleets"])
    assert 0 < about["stopped"] < about["simulated"]
    last = [*plan_parts(found.plan, about)][-1]
    assert last.endswith(f"periods, {about['stopped']} of them stopped early")
    about = json.loads(found.ranking.attrs["fastflow.fleets"])
    last = [*ranking_parts(found.ranking, about)][-1]
    assert f"simulated, {about['stopped']} of them stopped early" in last
    del about["stopped"]  # as in a dataset of an older version
    assert "stopped" not in [*ranking_parts(found.ranking, about)][-1]


def test_bands_of_uncertainty_need_whole_runs(grids):
    overrides, grid = grids[2]
    limit = 0.5 * float(grid["ttft_p99_s"].min())
    found = fastflow.search(
        *overrides, "uncertainty=on", "uncertainty.samples=8", constraints=f"ttft_p99_s<{limit!r} s"
    )
    assert not stopped_of(found).any()
    assert np.isfinite(found.ranking["ttft_p99_s"].astype(float)).all()
