"""`chip.power_limit` through whole predictions: training, servers, single kernels, wrong values."""

import numpy as np
import pytest

import fastflow
from fastflow.__main__ import main
from fastflow.core.errors import InputError

TRAINING = (
    "model=llama2_7b",
    "system.devices=8",
    "parallel.strategy=d8",
    "model.batch=8",
    "model.sequence=2048",
)
SERVER = (
    "model=llama3_8b", "system.devices=1", "parallel.strategy=TP-1", "serve=decode", "serve.batch=64",
)  # fmt: skip
PRODUCT = ("model=gemm", "model.m=8192", "model.k=8192", "model.n=8192", "model.dtype=bf16")
VECTOR = ("model=gemm", "model.m=1", "model.k=8192", "model.n=8192", "model.dtype=bf16")
BUDGETS = {"h100_sxm": 700.0, "a100_sxm_80": 400.0, "pathfinding": 300.0}
REST = 0.22
STEPS = (0.3, 0.4, 0.55, 0.7, 0.85, 1.0)


def at_limits(chip, work, shares=STEPS):
    limits = [f"chip.power_limit={share * BUDGETS[chip]:.6g} W" for share in shares]
    return [fastflow.evaluate(f"chip={chip}", *work, limit).iloc[0] for limit in limits]


def watts(row):
    if "power_W" in row:
        return row["power_W"]
    return row["energy_J"] / row["time_s"] / row["devices"]


@pytest.mark.parametrize("chip", ["h100_sxm", "a100_sxm_80"])
@pytest.mark.parametrize(
    "work", [TRAINING, SERVER, PRODUCT, VECTOR], ids=["train", "serve", "product", "vector"]
)
def test_a_device_draws_at_most_its_limit_and_is_slower_the_lower_it_is(chip, work):
    rows = at_limits(chip, work)
    times = np.array([row["time_s"] for row in rows])
    assert (np.diff(times) <= times[1:] * 1e-9).all()
    for row, share in zip(rows, STEPS, strict=True):
        assert (
            REST * BUDGETS[chip] <= watts(row) <= share * BUDGETS[chip] * (1 + 1e-9) + 0.005 * BUDGETS[chip]
        )
        assert row["power_limit_W"] == pytest.approx(share * BUDGETS[chip])


@pytest.mark.parametrize("chip", BUDGETS)
@pytest.mark.parametrize("work", [SERVER, PRODUCT], ids=["serve", "product"])
def test_the_budget_as_limit_is_no_limit(chip, work):
    if chip == "pathfinding":
        work = PRODUCT
    free = fastflow.evaluate(f"chip={chip}", *work).iloc[0]
    null = fastflow.evaluate(f"chip={chip}", *work, "chip.power_limit=null").iloc[0]
    (most,) = at_limits(chip, work, (1.0,))
    for row in (null, most):
        assert row["time_s"] == free["time_s"]
        assert row["energy_J"] == free["energy_J"]
    assert np.isnan(free["power_limit_W"])


@pytest.mark.parametrize("chip", BUDGETS)
@pytest.mark.parametrize("share", [0.28, 0.35, 0.42, 0.5])
def test_a_kernel_that_a_limit_slows_down_draws_the_limit(chip, share):
    (row,) = at_limits(chip, PRODUCT, (share,))
    assert row["throttled_frac"] == pytest.approx(1.0)
    assert watts(row) == pytest.approx(share * BUDGETS[chip], rel=0.03)


def test_a_product_of_a_vector_is_insensitive_to_high_limits():
    free, *_, low = reversed(at_limits("h100_sxm", VECTOR, (0.4, 0.7, 1.0)))
    (high,) = at_limits("h100_sxm", VECTOR, (0.7,))
    assert high["time_s"] == pytest.approx(free["time_s"], rel=0.01)
    assert low["time_s"] > 1.05 * free["time_s"]


def test_a_limit_that_no_kernel_reaches_throttles_nothing():
    (row,) = at_limits("h100_sxm", VECTOR, (0.95,))
    assert row["throttled_frac"] == 0.0


@pytest.mark.parametrize("mode", ["continuous", "disaggregated"])
def test_servers_keep_to_the_limit(mode):
    work = ["model=llama3_8b", "system.devices=1", "parallel.strategy=TP-1", f"serve={mode}", "serve.isl=512",
            "serve.osl=128", "serve.concurrency=32"]  # fmt: skip
    if mode == "disaggregated":
        work[1:2] = ["system.devices=2", "serve.prefill.devices=1", "serve.prefill.strategy=TP-1"]
    rows = at_limits("h100_sxm", work, (0.4, 0.7, 1.0))
    assert all(watts(row) <= share * 700.0 * 1.001 for row, share in zip(rows, (0.4, 0.7, 1.0), strict=True))
    speeds = [row["tokens_per_s"] for row in rows]
    assert speeds == sorted(speeds)
    assert rows[1]["joules_per_token"] < rows[2]["joules_per_token"]


@pytest.mark.parametrize(
    ("chip", "limit", "words"),
    [
        (
            "h100_sxm",
            "154 W",
            "above the 154 W that H100-SXM5-80GB draws at rest, and at most chip.tdp=700 W",
        ),
        ("h100_sxm", "100 W", "above the 154 W"),
        ("h100_sxm", "700.1 W", "at most chip.tdp=700 W"),
        ("a100_sxm_80", "0.5 kW", "at most chip.tdp=400 W"),
        ("pathfinding", "1 W", "draws at rest"),
        ("h100_sxm", "300", "needs one such as 'W'"),
        ("h100_sxm", "300 J", "a number in W above 0 W"),
        ("h100_sxm", "70%", "a number in W above 0 W"),
        ("h100_sxm", "-5 W", "above 0 W"),
        ("h100_sxm", "nan W", "a number in W"),
        ("h100_sxm", "auto", "a number in W"),
    ],
)
def test_wrong_limits_are_refused_in_a_line(chip, limit, words):
    try:
        (line,) = fastflow.evaluate(f"chip={chip}", "model=gemm", f"chip.power_limit={limit}")["reason"]
    except InputError as error:
        line = str(error)
    assert line.startswith("chip.power_limit=")
    assert words in line
    assert "\n" not in line


def test_a_grid_keeps_the_points_without_a_wrong_limit():
    rows = fastflow.evaluate("chip=h100_sxm", *PRODUCT, "chip.power_limit=null,300 W,800 W")
    assert rows["feasible"].tolist() == [True, True, False]
    assert rows["reason_code"].tolist() == ["", "", "power_limit"]
    assert rows["power_limit_W"].isna().tolist()[0]


def test_a_screen_says_so_in_a_line(capsys, tmp_path):
    def shown(*words):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        main(["sweep", "chip=h100_sxm", *words, f"output={folder}"])
        return " ".join(capsys.readouterr().out.split())

    line = "Power a limit of 350 W per device slows down 100% of kernel time"
    assert line in shown(*PRODUCT, "chip.power_limit=350 W")
    assert "Power a limit" not in shown(*PRODUCT, "chip.power_limit=700 W")
    energy = "350 W per device within a limit of 350 W"
    assert energy in shown(*SERVER, "chip.power_limit=350 W")
    assert "within a limit" not in shown(*SERVER)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("chip", ["h100_sxm", "a100_pcie_40", "b200_sxm", "v100_sxm", "l40s", "mi300x"])
def test_products_of_any_size_keep_to_every_limit(compose, chip, seed):
    drawn = np.random.default_rng(seed)
    budget = compose(f"chip={chip}", "model=gemm")["chip.tdp"]
    sizes = [f"model.{name}=" + ",".join(map(str, 2 ** drawn.integers(0, 14, 2))) for name in ("m", "k", "n")]
    shares = [*np.sort(drawn.uniform(0.23, 0.99, 4)).tolist(), 1.0]
    limits = "chip.power_limit=" + ",".join(f"'{share * budget!r} W'" for share in shares)
    rows = fastflow.evaluate(f"chip={chip}", "model=gemm", "model.dtype=fp16", *sizes, limits)
    times, power, slowed = (
        column.to_numpy(np.float64).reshape(-1, len(shares))
        for column in (rows["time_s"], rows["energy_J"] / rows["time_s"], rows["throttled_frac"])
    )
    limit = budget * np.array(shares)
    assert (np.diff(times) <= times[:, 1:] * 1e-9).all()
    assert (power >= REST * budget * (1 - 1e-9)).all()
    assert (power <= limit * (1 + 1e-9)).all()
    assert (np.abs(power / limit - 1)[slowed > 0.0] < 0.03).all()
    assert (times[slowed == 0.0] == np.broadcast_to(times[:, -1:], times.shape)[slowed == 0.0]).all()
