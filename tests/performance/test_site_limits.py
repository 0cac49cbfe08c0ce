"""`power.rack_limit`, `power.site_limit` and `tokens_per_s_per_MW` through whole predictions."""

import re

import numpy as np
import pytest

import fastflow
from fastflow.__main__ import main
from tests.naive.site_limits import site_limits, tokens_per_megawatt
from tests.support.checks import near

SERVER = ("model=llama3_8b", "system=dgx_h100", "parallel.strategy=TP-2-d4", "serve.isl=512", "serve.osl=64")
POOLS = (
    "model=llama3_8b", "system=dgx_h100", "parallel.strategy=TP-2-d2", "serve=disaggregated",
    "serve.isl=512", "serve.osl=64", "serve.prefill.devices=4", "serve.prefill.strategy=TP-2-d2",
)  # fmt: skip
WORK = {
    "training": ("model=llama3_8b", "system=superpod_h100", "system.devices=64", "parallel.strategy=TP-8-d8"),
    "product": ("model=gemm", "chip=a100", "model.m=8192", "model.k=8192", "model.n=8192"),
    "budgets": ("model=gemm", "model.m=4096", "model.k=4096", "model.n=4096"),
    "prefill": (*SERVER, "serve=prefill", "serve.batch=4"),
    "decode": (*SERVER, "serve=decode", "serve.batch=64"),
    "analytic": (*SERVER, "serve=continuous", "serve.concurrency=64", "serve.simulate=false"),
    "simulated": (*SERVER, "serve=continuous", "serve.concurrency=64", "serve.simulate=true"),
    "open": (
        *SERVER, "serve=continuous", "serve.concurrency=0", "serve.request_rate='20 1/s'",
        "serve.num_requests=200", "serve.simulate=true",
    ),
    "pools": (*POOLS, "serve.concurrency=16", "serve.simulate=false"),
    "simulated pools": (*POOLS, "serve.concurrency=16", "serve.simulate=true", "serve.num_requests=64"),
    "pools of two chips": (*POOLS, "serve.concurrency=16", "serve.simulate=false", "serve.prefill.chip=l40s"),
}  # fmt: skip
LIMITS = {"power.rack_limit": "rack_W", "power.site_limit": "system_W"}


def of_point(*words):
    return fastflow.evaluate(*words).iloc[0]


def watts(power):
    return f"'{float(power)!r} W'"


@pytest.fixture(scope="module")
def free():
    """Points without limits, predicted once."""
    rows = {}

    def point(work):
        if work not in rows:
            rows[work] = of_point(*WORK[work])
        return rows[work]

    return point


@pytest.mark.parametrize("key", LIMITS)
@pytest.mark.parametrize("work", WORK)
def test_a_limit_just_above_what_is_drawn_is_met_and_one_just_below_is_not(work, key, free):
    drawn = free(work)[LIMITS[key]]
    limits = [drawn * factor for factor in (1.0 + 1e-6, 1.0, 1.0 - 1e-6)]
    rows = fastflow.evaluate(*WORK[work], f"{key}={','.join(map(watts, limits))}")
    assert rows["feasible"].tolist() == [True, True, False]
    assert rows["reason_code"].tolist() == ["", "", "site_power"]
    assert f"above {key}=" in rows["reason"][2]
    assert not any("power." in text for text in rows["no_effect"])
    assert (rows["time_s"] == free(work)["time_s"]).all()  # a limit slows nothing down
    assert rows[f"{key[6:]}_W"].tolist() == pytest.approx(limits, rel=1e-12)


@pytest.mark.parametrize("work", WORK)
def test_limits_and_tokens_are_the_oracles(work, free):
    row = free(work)
    assert row["feasible"]
    point = row.to_dict() | {"rack_devices": 32}
    for share in (0.9, 1.1):
        for other in (0.8, 1.2):
            limits = share * row["rack_W"], other * row["system_W"]
            rack, site = map(watts, limits)
            found = of_point(*WORK[work], f"power.rack_limit={rack}", f"power.site_limit={site}")
            exceeded, _ = site_limits(point, *limits)
            assert found["feasible"] == (not exceeded)
            assert all(f"power.{key}_limit" in found["reason"] for key in exceeded[:1])
    rate = next(
        (
            row[name]
            for name in ("tokens_per_s", "prefill_tokens_per_s")
            if row.get(name) == row.get(name) and name in row
        ),
        None,
    )
    if rate is None:
        assert "tokens_per_s_per_MW" not in row
    else:
        joules = row["site_J"] / row["energy_J"] * row["gpu_W"] * row["devices"] * 7.0
        assert near(row["tokens_per_s_per_MW"], tokens_per_megawatt(7.0 * rate, 7.0, joules), 1e-9)


def advice_of(text):
    """Return the words of advice of a reason: overrides that keep to a limit, and a number of devices."""
    overrides = re.findall(r"(?:power\.rack_devices=\d+|chip\.power_limit='[^']+')", text)
    devices = re.search(r"a system of ([\d,]+) devices?", text)
    return overrides, int(devices[1].replace(",", "")) if devices else 0


LONG = pytest.mark.long


@pytest.mark.parametrize("share", [pytest.param(0.97, marks=LONG), 0.8, pytest.param(0.6, marks=LONG)])
@pytest.mark.parametrize("key", LIMITS)
@pytest.mark.parametrize("work", WORK)
def test_advice_keeps_to_the_limit(work, key, share, free):
    row = free(work)
    limit = f"{key}={watts(share * row[LIMITS[key]])}"
    overrides, devices = advice_of(of_point(*WORK[work], limit)["reason"])
    assert overrides or devices
    for override in overrides:
        followed = of_point(*WORK[work], limit, override)
        assert followed["reason"] == ""
        # not far below: racks hold whole machines, and a power limit cuts peaks of what is above the mean
        assert 0.6 * share * row[LIMITS[key]] < followed[LIMITS[key]]
    if devices:
        assert devices * row["site_W"] <= share * row["system_W"]
        assert devices < row["devices"]


def test_two_kinds_of_chips_have_no_power_limit_in_common(free):
    row = free("pools of two chips")
    rack = of_point(*WORK["pools of two chips"], f"power.rack_limit={watts(0.9 * row['rack_W'])}")
    assert "chip.power_limit" not in rack["reason"]
    same = of_point(*WORK["pools"], f"power.rack_limit={watts(0.9 * free('pools')['rack_W'])}")
    assert "chip.power_limit" in same["reason"]


def test_with_two_limits_the_power_limit_keeps_to_both(free):
    row = free("training")
    words = (
        f"power.rack_limit={watts(0.9 * row['rack_W'])}",
        f"power.site_limit={watts(0.8 * row['system_W'])}",
    )
    (override,) = re.findall(r"chip\.power_limit='[^']+'", of_point(*WORK["training"], *words)["reason"])
    assert of_point(*WORK["training"], *words, override)["feasible"]


def test_racks_hold_whole_machines_unless_they_hold_less_than_one(free):
    row = free("training")
    for devices, fit in ((24.5, 24), (23.9, 16), (7.5, 7), (0.5, 0)):
        found = of_point(*WORK["training"], f"power.rack_limit={watts(devices * row['machine_W'])}")
        assert (f"power.rack_devices={fit} keeps" in found["reason"]) == (fit > 0)


@pytest.mark.parametrize("work", ["training", "analytic"])
def test_latency_and_load_and_memory_are_told_beside_power(work):
    low = "power.rack_limit='1 W'"
    if work == "training":
        row = of_point(*WORK[work], low, "model.batch=4096", "parallel.microbatches=1")
        assert row["reason_code"] == "memory"
        return
    late = of_point(*WORK[work], low, "serve.slo.tpot='1 us'")
    assert late["reason_code"] == "site_power"  # a latency alone may be met with other times
    assert not late["meets_slo"]
    assert of_point(*WORK[work], low, "serve.slo.tpot='1 s'")["meets_slo"]
    load = ("serve.concurrency=0", "serve.request_rate='9000 1/s'")
    assert of_point(*WORK[work], low, *load)["reason_code"] == "overload"


def test_without_a_time_there_is_no_power():
    row = of_point(*WORK["product"], "model.dtype=fp8", "power.rack_limit='1 W'")
    assert row["reason_code"] == "data_type"
    assert np.isnan(row["rack_W"])


def test_a_grid_has_points_with_and_without_limits(free):
    rack = free("product")["rack_W"]
    rows = fastflow.evaluate(*WORK["product"], f"power.rack_limit=null,{watts(2 * rack)},{watts(rack / 2)}")
    assert rows["feasible"].tolist() == [True, True, False]
    assert rows["rack_limit_W"].isna().tolist() == [True, False, False]
    assert rows["site_limit_W"].isna().all()


# --- automatic choice


def test_servers_within_the_limit_are_chosen():
    words = ("model=llama3_8b", "system=dgx_h100", "serve=continuous", "serve.isl=512", "serve.osl=64",
             "serve.concurrency=16", "parallel.strategy=auto", "serve.simulate=false")  # fmt: skip
    best = of_point(*words)
    limit = f"power.site_limit={watts(0.98 * best['system_W'])}"
    other = of_point(*words, limit)
    assert other["feasible"]
    assert other["strategy"] != best["strategy"]
    assert not of_point(*words, limit, f"parallel.strategy={best['strategy']}")["feasible"]


@pytest.mark.parametrize(
    "words",
    [
        ("model=llama3_8b", "system=dgx_h100", "model.batch=64"),
        ("model=lstm_lm", "model.hidden=256", "model.batch=1024", "model.vocabulary=5000", "model.sequence=5",
         "system.devices=4"),
    ],
    ids=["transformer", "lstm"],
)  # fmt: skip
def test_a_strategy_within_the_limit_is_chosen(words):
    words = (*words, "parallel.strategy=auto")
    best = of_point(*words)
    other = of_point(*words, f"power.site_limit={watts(0.999 * best['system_W'])}")
    assert best["feasible"]
    assert other["feasible"]
    assert other["time_s"] >= best["time_s"]
    none = of_point(*words, "power.site_limit='1 W'")
    assert none["reason_code"] == "site_power"
    assert none["strategy"] == best["strategy"]


# --- screens and mistakes


def shown(capsys, tmp_path, *words):
    main([*words, f"output={tmp_path / 'out'}"])
    return " ".join(capsys.readouterr().out.split())


def test_a_screen_says_so_in_a_line(capsys, tmp_path):
    text = shown(
        capsys, tmp_path, "sweep", *WORK["decode"], "power.rack_limit='1 MW'", "power.site_limit='2 MW'"
    )
    assert re.search(r"Limits a rack draws [\d.]+ kW of 1 MW, the system draws [\d.]+ kW of 2 MW", text)
    assert "Not feasible" not in text


def test_a_grid_counts_its_points(capsys, tmp_path):
    text = shown(capsys, tmp_path, "sweep", "-m", *WORK["product"], "power.rack_limit='1 W','2 W','1 MW'")
    assert "2 of 3 points draw more power than their limits" in text


@pytest.mark.parametrize("key", LIMITS)
@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("0", "no unit given"), ("-5", "no unit given"), ("abc", "not a quantity"),
        *(pytest.param(value, says, marks=LONG) for value, says in (
            ("0 W", "at least"), ("-5 kW", "at least"), ("40 J", "'J' is no unit for this"),
            ("nan W", "a number in W"), ("auto", "a number in W"), ("1e30 W", "at most"),
        )),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(cli, tmp_path, monkeypatch, key, value, says):
    from fastflow.cli.commands.sweep import main as sweep

    monkeypatch.chdir(tmp_path)
    code, _, err = cli(sweep, "model=gemm", f"{key}='{value}'", "output=here")
    assert (code, len(err)) == (2, 1)
    assert err[0].startswith(f"{key}={value} (from the command line) is invalid")
    assert says in err[0]
    assert not (tmp_path / "here").exists()
