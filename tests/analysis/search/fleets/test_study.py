"""Searches over fleets, from overrides to what they leave, against a grid of all fleets."""

import json

import numpy as np
import pandas as pd
import pytest

import fastflow
from fastflow.analysis.search.fleets.periods import periods_of, write_period
from fastflow.cli.commands.report import main as report
from fastflow.cli.commands.search import main as search
from fastflow.cli.commands.sweep import main as sweep
from fastflow.core.errors import InputError
from fastflow.physics.workload.request_trace import read_trace
from tests.naive import fleet_search as naive
from tests.performance.serving.fleet.test_predict import FLEET, SERVER, sessions, singles

FLEETS = (
    "server=vllm", "model=llama3_8b", "system=dgx_h100", "serve=continuous", "parallel.strategy=TP-1",
    "system.devices=1,2,3,5", "router=round_robin,session_sticky", "server.max_num_batched_tokens=512,8192",
)  # fmt: skip


def rows_of(frame):
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return sessions(tmp_path_factory.mktemp("trace"), 120)


@pytest.fixture(scope="module")
def grid(trace):
    """All fleets."""
    return fastflow.evaluate(*FLEETS, f"serve.trace={trace}")


@pytest.mark.parametrize(
    ("objective", "sign"),
    [("devices", 1), ("usd_per_h", 1), ("joules_per_token", 1), ("ttft_p99_s", 1), ("prefix_hit_rate", -1)],
)
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_best_fleet_is_that_of_a_grid(trace, grid, objective, sign, share):
    limit = float(np.quantile(grid["tpot_p99_s"], share))
    constraint = f"tpot_p99_s<{1e3 * limit!r} ms"
    found = fastflow.search(*FLEETS, f"serve.trace={trace}", objective=objective, constraints=constraint)
    best = naive.best(rows_of(grid), objective, [("tpot_p99_s", "<", limit)], sign)
    assert found.points == len(grid) == 16
    if best is None:
        assert found.best is None
        assert len(found.ranking) == len(grid)
        assert found.ranking["missed_constraint"].str.startswith("tpot_p99_s is").all()
        return
    assert found.best["point"] == best
    both = [name for name in grid if name in found.ranking and name != "no_effect"]
    of_grid = grid.loc[found.ranking["point"], both].reset_index(drop=True)
    pd.testing.assert_frame_equal(found.ranking[both], of_grid, rtol=1e-12)
    simulated = set(found.ranking["point"])
    if objective == "devices":
        at_most = grid["devices"] <= grid["devices"][best]
        assert simulated >= set(np.flatnonzero(at_most))
        assert len(simulated) < len(grid) or at_most.all()


def test_the_front_is_that_of_a_grid(trace, grid):
    found = fastflow.search(*FLEETS, f"serve.trace={trace}", objective="usd_per_h", pareto="ttft_p99_s")
    assert found.front["point"].tolist() == naive.front(rows_of(grid), "usd_per_h", "ttft_p99_s", [])
    assert found.plan is None
    found.plot()
    assert f"Front of usd_per_h and ttft_p99_s: {len(found.front)} fleets" in found._repr_html_()


def test_serve_slo_is_a_constraint(trace, grid):
    limit = float(grid["ttft_p99_s"].median())
    found = fastflow.search(
        *FLEETS, f"serve.trace={trace}", f"serve.slo.ttft={limit!r} s", "serve.slo.percentile=99"
    )
    best = naive.best(rows_of(grid), "devices", [("ttft_p99_s", "<=", limit)])
    assert found.best["point"] == best
    missed = found.ranking[~found.ranking["meets_constraints"]]
    assert missed.empty or missed["missed_constraint"].str.contains("serve.slo.ttft").all()


def test_a_plan_is_that_of_grids_of_its_periods(trace, tmp_path):
    limit, length = 0.012, 20.0
    found = fastflow.search(
        *FLEETS, f"serve.trace={trace}", objective="usd_per_h", constraints=f"tpot_p99_s<{limit} s",
        plan=f"{length} s",
    )  # fmt: skip
    requests, tables = read_trace(trace), []
    periods = periods_of(requests, 0, 1.0, length)
    for number, period in enumerate(periods):
        write_period(requests, period, tmp_path / f"{number}.csv")
        tables.append(rows_of(fastflow.evaluate(*FLEETS, f"serve.trace={tmp_path / f'{number}.csv'}")))
    constraints = [("tpot_p99_s", "<", limit)]
    best = [naive.best(rows, "usd_per_h", constraints) for rows in tables]
    assert found.plan["point"].tolist() == best
    assert found.plan["period_requests"].tolist() == [period.requests.size for period in periods]
    fixed = naive.fixed(tables, "usd_per_h", [length / 3600.0] * len(periods), constraints)
    assert found.plan["fixed_point"].tolist() == [fixed] * len(periods)
    hours = length / 3600.0
    total = sum(rows[index]["usd_per_h"] * hours for rows, index in zip(tables, best, strict=True))
    assert found.totals.loc["plan", "usd"] == pytest.approx(total, rel=1e-12)
    total = sum(rows[fixed]["usd_per_h"] * hours for rows in tables)
    assert found.totals.loc["fixed fleet", "usd"] == pytest.approx(total, rel=1e-12)
    assert found.totals["usd"].is_monotonic_increasing
    devices = sum(rows[index]["devices"] * hours for rows, index in zip(tables, best, strict=True))
    assert found.totals.loc["plan", "device_hours"] == pytest.approx(devices, rel=1e-12)
    found.plot()
    assert "Capacity plan" in found._repr_html_()


def test_a_quiet_period_and_one_that_no_fleet_serves(tmp_path):
    path = tmp_path / "gap.csv"
    busy = [f"{50 + i / 1000},3000,200" for i in range(200)]
    path.write_text("\n".join(["arrival_time,isl,osl", "0,500,50", *busy]), encoding="utf-8")
    found = fastflow.search(
        *FLEETS,
        f"serve.trace={path}",
        constraints="ttft_p99_s<200 ms",
        plan="20 s",
        **{"system.devices": [1, 2]},
    )
    assert found.best is None
    assert found.plan["period_requests"].tolist() == [1, 0, 200]
    assert found.plan["devices"].isna().tolist() == [False, True, True]
    assert found.plan["fixed_point"].isna().all()
    assert found.totals.isna().any(axis=1).all()
    found.plot()


def test_a_command_writes_datasets_that_a_report_shows(cli, trace, tmp_path):
    arguments = (
        *FLEETS, f"serve.trace={trace}", "constraints=tpot_p99_s<12 ms", "objective=usd_per_h",
        "pareto=ttft_p99_s", "plan=20 s", "output=mine",
    )  # fmt: skip
    code, out, _ = cli(search, "-m", *arguments)
    assert code == 0
    shown = "\n".join(out)
    assert "Front of usd_per_h and ttft_p99_s" in shown
    assert "Capacity plan" in shown
    ranking = pd.read_parquet(tmp_path / "mine")
    assert (tmp_path / "mine-front.svg").exists()
    assert (tmp_path / "mine-plan.svg").exists()
    (command,) = (line for line in out if line.startswith("python -m fastflow.sweep "))
    best = ranking[ranking["rank"] == 1].iloc[0]
    assert f"system.devices={best['devices']}" in command
    assert cli(sweep, *command.split()[3:])[0] == 0
    for name, words in (("mine", "Front of"), ("mine-plan", "Capacity plan")):
        code, again, _ = cli(report, name)
        assert code == 0
        start = next(i for i, line in enumerate(again) if words in line)
        first = next(i for i, line in enumerate(out) if words in line)
        assert again[start : start + 6] == out[first : first + 6]
        code, out_of_page, _ = cli(report, name, f"html={name}.html")
        assert code == 0
        assert out_of_page[-1].startswith(f"Page: {name}.html")
    assert cli(search, "-m", *arguments)[0] == 0  # replaces its own
    code, _, err = cli(search, "-m", *arguments[:-1], "output=mine-plan")
    assert code == 2
    assert "configurations of a search over fleets" in err[-1]


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("objective=time", "a result column of servers that is a number, such as devices"),
        ("objective=strategy", "a result column"),
        ("pareto=devices", "an objective other than devices"),
        ("constraints=ttft_p99<1 s", "did you mean ttft_p99_s"),
        ("plan=now", "such as '1 h'"),
        ("plan=1 ms", "1 s or more"),
        ("method=random", "nothing here"),
        ("tolerance=0.1", "nothing here"),
        ("serve.trace_speed=1,2", "fleets are compared under the same requests"),
        ("system.devices=auto", "a number, which a search over fleets needs"),
        ("report=fig10", "null: a search over fleets has no study"),
        ("columns=ttft_s", "null here"),
    ],
)
def test_a_mistake_is_a_line(trace, override, says):
    with pytest.raises(InputError) as error:
        fastflow.search(*FLEETS, f"serve.trace={trace}", override)
    assert says in str(error.value)


def test_a_plan_needs_an_objective_that_adds_up(trace):
    with pytest.raises(InputError, match="add up over its periods"):
        fastflow.search(*FLEETS, f"serve.trace={trace}", "objective=ttft_p99_s", "plan=1 min")


def test_a_search_over_fleets_runs_on_this_machine(trace):
    with pytest.raises(InputError, match="runs on threads of this machine"):
        fastflow.search(*FLEETS, f"serve.trace={trace}", "engine=dask", "engine.address=tcp://localhost:1")


def test_keys_of_fleets_need_a_trace():
    for override in ("constraints=ttft_p99_s<1 s", "plan=1 h"):
        with pytest.raises(InputError, match=r"null without serve\.trace"):
            fastflow.search("tech=n7", override)


def test_a_generated_chip_is_searched_for_shares_or_for_fleets(tmp_path):
    """Chips that exist have no shares; those from budgets have, and keys of fleets say what is meant."""
    chip = ("chip=pathfinding_today", "tech=n3", "mem=hbm3e", "model=llama3_8b", "parallel.strategy=TP-1")
    chip += ("serve=continuous", "server=vllm", f"serve.trace={singles(tmp_path, 30)}")
    found = fastflow.search(*chip, "system.devices=1,2", "constraints=devices<9")
    assert isinstance(found, fastflow.FleetSearch)
    shares = fastflow.search(*chip, "system.devices=1", "objective=joules_per_token", "steps=1", "starts=1")
    assert isinstance(shares, fastflow.Search)


def test_bounds_of_constraints_leave_fleets_out(tmp_path):
    """One device costs more than the limit of a constraint says: none is simulated."""
    found = fastflow.search(*FLEET, f"serve.trace={singles(tmp_path, 30)}", "constraints=devices<3")
    assert found.best is None
    assert found.ranking.empty
    assert found.points == 1
    assert json.loads(found.ranking.attrs["fastflow.fleets"])["simulated"] == 0
    found._repr_html_()


def test_disaggregated_fleets_are_searched(tmp_path):
    split = (*SERVER, "serve=disaggregated", f"serve.trace={singles(tmp_path)}")
    found = fastflow.search(*split, "serve.prefill.devices=1,2,3", "objective=ttft_p99_s")
    grid = fastflow.evaluate(*split, "serve.prefill.devices=1,2,3")
    assert found.best["prefill_devices"] == grid.loc[grid["ttft_p99_s"].idxmin(), "prefill_devices"]
    assert len(found.ranking) == 3
