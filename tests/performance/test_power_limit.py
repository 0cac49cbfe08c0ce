"""`chip.power_limit` through whole predictions: training, servers, single kernels, wrong values."""

import numpy as np
import pytest

import fastflow
from fastflow.__main__ import main
from fastflow.core.errors import InputError
from fastflow.performance.serving import results
from fastflow.performance.serving.energy import energy_columns

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
        ("h100_sxm", "0 W", "above 0 W"),
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
    screen = shown(*SERVER, "chip.power_limit=350 W")
    assert energy in screen
    assert "Power the limit slows down 100% of kernel time" in screen
    assert "limit" not in shown(*SERVER)


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


# --- pools of disaggregated servers

POOLS = (
    "model=llama3_8b", "system=dgx_h100", "serve=disaggregated", "server=vllm", "serve.prefill.devices=4",
    "serve.prefill.strategy=TP-1-d4", "parallel.strategy=TP-1-d4", "serve.concurrency=64", "serve.isl=1024",
    "serve.osl=128", "server.cuda_graph_interval=1",
)  # fmt: skip
PREFILL_LIMIT = "serve.prefill.power_limit"
OTHER_CHIP = "serve.prefill.chip=l40s"


def pool_watts(monkeypatch, *overrides):
    """Return the row of a point, the mean power of each pool, and that of its passes; decode first [W]."""
    mean, passes = [], []

    def each_alone(pools, *sizes):
        mean.extend(float(energy_columns([pool], *sizes)["power_W"][0]) for pool in pools)
        passes.extend(float((pool.work.joules / pool.work.passes)[0]) for pool in pools)
        return energy_columns(pools, *sizes)

    monkeypatch.setattr(results, "energy_columns", each_alone)
    row = fastflow.evaluate(*POOLS, *overrides).iloc[0]  # the point first, then trials without a key
    return row, mean[:2], passes[:2]


@pytest.mark.parametrize(("chip", "budget"), [((), 700.0), ((OTHER_CHIP,), 350.0)], ids=["same", "l40s"])
@pytest.mark.parametrize("seed", range(2))
def test_a_prefill_pool_draws_at_most_its_limit_and_is_slower_the_lower_it_is(
    monkeypatch, chip, budget, seed
):
    shares = np.sort(np.random.default_rng(seed).uniform(0.24, 0.95, 3)).tolist()
    free, (decoding, _), _ = pool_watts(monkeypatch, *chip)
    times = []
    for share in shares:
        limit = f"{PREFILL_LIMIT}={share * budget!r} W"
        row, (decode, prefill), (_, of_passes) = pool_watts(monkeypatch, *chip, limit)
        assert prefill <= share * budget * (1 + 1e-9)
        assert of_passes <= share * budget * 1.005
        assert row["prefill_power_limit_W"] == pytest.approx(share * budget)
        assert np.isnan(row["power_limit_W"])
        assert decode <= decoding * (1 + 1e-6)  # it waits longer for prompts
        times.append(row["ttft_s"])
    assert times == sorted(times, reverse=True)
    assert times[0] > 1.2 * free["ttft_s"] * (1 - 1e-9)
    assert times[-1] >= free["ttft_s"]
    assert 0.0 < row["throttled_frac"] <= 1.0
    assert np.isnan(free["prefill_power_limit_W"])
    assert free["throttled_frac"] == 0.0


def test_pools_of_one_chip_share_its_limit_unless_prefill_has_its_own():
    both, same, own, alone = (
        fastflow.evaluate(*POOLS, *limits).iloc[0]
        for limits in (
            ("chip.power_limit=450 W",),
            ("chip.power_limit=450 W", f"{PREFILL_LIMIT}=450 W"),
            ("chip.power_limit=450 W", f"{PREFILL_LIMIT}=700 W"),
            (f"{PREFILL_LIMIT}=450 W",),
        )
    )
    free = fastflow.evaluate(*POOLS).iloc[0]
    assert same["ttft_s"] == both["ttft_s"]
    assert same["energy_J"] == both["energy_J"]
    assert both["prefill_power_limit_W"] == both["power_limit_W"] == 450.0
    assert own["ttft_s"] < both["ttft_s"]
    assert own["tpot_s"] > free["tpot_s"]
    assert alone["time_s"] <= both["time_s"]


def test_the_budget_of_another_chip_as_limit_is_no_limit_and_the_decode_limit_is_not_its():
    free, most, decode = (
        fastflow.evaluate(*POOLS, OTHER_CHIP, *limits).iloc[0]
        for limits in ((), (f"{PREFILL_LIMIT}=350 W",), ("chip.power_limit=450 W",))
    )
    assert most["ttft_s"] == free["ttft_s"]
    assert most["energy_J"] == free["energy_J"]
    assert decode["power_limit_W"] == 450.0
    assert np.isnan(decode["prefill_power_limit_W"])


@pytest.mark.parametrize(
    ("overrides", "key", "words"),
    [
        ((f"{PREFILL_LIMIT}=701 W",), PREFILL_LIMIT, "at most chip.tdp=700 W"),
        ((f"{PREFILL_LIMIT}=154 W",), PREFILL_LIMIT, "above the 154 W that H100-SXM5-80GB draws at rest"),
        (
            (OTHER_CHIP, f"{PREFILL_LIMIT}=400 W"),
            PREFILL_LIMIT,
            "L40S-48GB draws at rest, and at most chip.tdp=350 W",
        ),
        ((f"{PREFILL_LIMIT}=0 W",), PREFILL_LIMIT, "above 0 W"),
        ((f"{PREFILL_LIMIT}=300",), PREFILL_LIMIT, "needs one such as 'W'"),
        (("chip.power_limit=701 W", f"{PREFILL_LIMIT}=300 W"), "chip.power_limit", "at most chip.tdp=700 W"),
        (("serve=continuous", f"{PREFILL_LIMIT}=300 W"), PREFILL_LIMIT, "serve=disaggregated has it"),
        (
            (OTHER_CHIP, "serve.prefill.chip.power_limit=200 W"),
            "serve.prefill.chip.power_limit",
            "did you mean chip.power_limit or serve.prefill.power_limit?",
        ),
        (
            (OTHER_CHIP, "+serve.prefill.chip.power_limit=200 W"),
            "serve.prefill.chip.power_limit",
            "no key of the chip, which serve.prefill.chip names; serve.prefill.power_limit limits its power",
        ),
    ],
)  # fmt: skip
def test_wrong_limits_of_prefill_are_refused_in_a_line(overrides, key, words):
    work = [text for text in POOLS if not (overrides[0] == "serve=continuous" and "serve" in text)]
    try:
        (line,) = fastflow.evaluate(*work, *overrides)["reason"]
    except InputError as error:
        line = str(error)
    assert line.startswith(f"{key}=")
    assert words in line
    assert "\n" not in line


def test_the_screen_names_the_limits_of_both_pools(capsys, tmp_path):
    limits = ("chip.power_limit=500 W", f"{PREFILL_LIMIT}=300 W")
    main(["sweep", *POOLS, *limits, f"output={tmp_path / 'out'}"])
    screen = " ".join(capsys.readouterr().out.split())
    assert "per device within a limit of 500 W (decode) and 300 W (prefill)" in screen


# --- the share of kernel time that a limit slows down


@pytest.mark.parametrize("mode", ["decode", "prefill"])
def test_a_pass_of_a_server_is_throttled_as_its_kernels(mode):
    work = (*SERVER[:3], f"serve={mode}", "serve.batch=64")
    free, high, low = reversed(at_limits("h100_sxm", work, (0.3, 0.8, 1.0)))
    assert free["throttled_frac"] == 0.0
    assert 0.0 <= high["throttled_frac"] <= low["throttled_frac"] <= 1.0
    assert low["throttled_frac"] > 0.9


def test_servers_are_throttled_for_a_share_of_their_kernels():
    work = (*SERVER[:3], "serve=continuous", "serve.isl=512", "serve.osl=128", "serve.concurrency=32")
    shares = [row["throttled_frac"] for row in at_limits("h100_sxm", work, (0.3, 0.5, 0.7, 0.85, 1.0))]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.9
    assert 0.0 < shares[2] < 1.0
    assert shares[-1] == 0.0
