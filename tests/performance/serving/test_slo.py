"""Limits of latencies (`serve.slo`): compared with a percentile or mean, in columns, reasons and scores."""

import re

import numpy as np
import pytest

import fastflow
from fastflow.analysis.search.optimizers.objective import LACKS_MEMORY
from fastflow.analysis.search.optimizers.serving_objective import score_served
from fastflow.cli.commands.sweep import main as sweep
from fastflow.core.errors import InputError
from fastflow.core.reasons.codes import Code
from fastflow.performance.serving.analytic.applicability import MAX_STEPS
from fastflow.performance.serving.columns import served_columns
from fastflow.performance.serving.predict import serve
from fastflow.performance.serving.slo import ordinal, requests_past_burst
from fastflow.reporting.charts.serving import latencies_of, lines_of
from fastflow.reporting.terminal.serving import limits_of, load_of, served_sheets
from tests.conftest import columns_of

SMALL = (
    "model=transformer", "model.layers=4", "model.hidden=1024", "model.heads=8", "model.vocabulary=8000",
    "system=dgx_h100", "chip=h100_sxm", "system.devices=4", "server=vllm", "serve.isl=64", "serve.osl=48",
)  # fmt: skip
CLOSED = (
    *SMALL, "serve=continuous", "parallel.strategy=TP-2-d2", "server.eager_launch_time='0 s'",
    "serve.concurrency=16",
)  # fmt: skip
OPEN = (
    *SMALL, "serve=continuous", "parallel.strategy=TP-4", "serve.concurrency=0",
    "serve.request_rate='20 1/s'",
    "serve.num_requests=200",
)  # fmt: skip
POOLS = (
    *SMALL, "serve=disaggregated", "parallel.strategy=TP-1", "serve.prefill.devices=2",
    "serve.concurrency=16",
)  # fmt: skip
DECODE = (*SMALL, "serve=decode", "parallel.strategy=TP-4", "serve.batch=8")
BOTH = ("serve.slo.ttft='1 s'", "serve.slo.tpot='1 s'")
TIMES = ("ttft", "tpot")


@pytest.mark.parametrize("load", [CLOSED, OPEN, POOLS])
def test_the_limit_is_compared_with_the_percentile_of_the_key(load):
    """Percentiles of kernels are compared with numpy in test_serving and test_disaggregated."""
    simulated = fastflow.evaluate(*load, *BOTH, "serve.slo.percentile=0,50,99,100", "serve.simulate=true")
    fast = fastflow.evaluate(*load, *BOTH, "serve.slo.percentile=0,50,99,100")
    for name in TIMES:
        mean, median, p99, most = simulated[f"{name}_slo_s"]
        assert [mean, median, p99] == [simulated[f"{name}{part}_s"][0] for part in ("", "_p50", "_p99")]
        assert most >= p99 >= median
        assert fast[f"{name}_slo_s"].tolist() == [fast[f"{name}_s"][0], median, p99, most]
    assert fast["simulated"].tolist()[1:] == [True] * 3
    assert fast["meets_slo"].tolist() == [True] * 4


def test_without_a_limit_nothing_is_compared_and_the_percentile_says_so():
    # equal lengths with round trips are simulated anyway
    varied = (*CLOSED, "serve.length_range_ratio=0.5", "server.request_overhead='0 s'")
    frame = fastflow.evaluate(*varied, "serve.slo.percentile=50")
    assert frame[["ttft_slo_s", "tpot_slo_s", "meets_slo"]].isna().all(axis=None)
    assert not frame["simulated"][0]
    assert frame["no_effect"].tolist() == ["serve.slo.percentile: as without it"]
    frame = fastflow.evaluate(*varied, "serve.slo.tpot='1 s'", "serve.slo.percentile=50")
    assert frame["ttft_slo_s"].isna().all()
    assert frame["no_effect"].tolist() == [""]


@pytest.mark.parametrize("load", [CLOSED, POOLS, DECODE])
@pytest.mark.parametrize("percentile", ["0", "99"])
def test_a_limit_that_is_met_has_an_effect_where_there_is_its_time(load, percentile):
    frame = fastflow.evaluate(*load, *BOTH, f"serve.slo.percentile={percentile}")
    assert frame["meets_slo"].tolist() == [True]
    without_effect = [part.split(":")[0] for part in frame["no_effect"][0].split("; ") if part]
    of_one_pass = ["serve.slo.ttft", *(["serve.slo.percentile"] if percentile == "0" else [])]
    assert without_effect == (of_one_pass if load is DECODE else [])


def test_answers_of_one_token_have_no_time_per_further_token():
    frame = fastflow.evaluate(*CLOSED, "serve.osl=1", "serve.slo.tpot='1 us'", "serve.simulate=false,true")
    lacks = ["tpot_slo_s", "tpot_s", "tpot_p50_s", "tpot_p99_s", "meets_slo"]
    assert frame[lacks].isna().all(axis=None)
    assert frame["e2e_s"].tolist() == frame["ttft_s"].tolist()
    assert frame["feasible"].tolist() == [True, True]


def test_a_single_pass_has_one_time():
    frame = fastflow.evaluate(*DECODE, "serve.slo.tpot='1 us','1 s'", "serve.slo.percentile=50,99")
    assert frame["tpot_slo_s"].tolist() == frame["tpot_s"].tolist()
    assert frame["meets_slo"].tolist() == [False, False, True, True]
    assert frame["reason"][0].startswith("tpot is ")
    frame = fastflow.evaluate(*DECODE, "serve.slo.ttft='1 us'")
    assert (frame["meets_slo"].isna().all(), frame["feasible"].tolist()) == (True, [True])


def drawn(compose, count, mode):
    """Return columns of points of many loads with limits about their times."""
    random, base = np.random.default_rng(3), compose(*(CLOSED if mode == "continuous" else POOLS))
    points = []
    for i in range(count):
        load = {
            "isl": float(int(2 ** random.uniform(5, 11))), "osl": float(int(2 ** random.uniform(3, 8))),
            "length_range_ratio": float(random.choice([0.0, 0.2, 1.0])),
            "concurrency": int(2 ** random.uniform(0, 8)),
            "request_rate": 0.0, "num_requests": 0,
            "slo.ttft": float(random.choice([0.0, 10.0 ** random.uniform(-2, 0)])),
            "slo.tpot": float(random.choice([0.0, 10.0 ** random.uniform(-2.6, -1.8)])),
            "slo.percentile": float(random.choice([10.0, 50.0, 95.0, 99.0])),
        }  # fmt: skip
        if i % 4 == 0:
            load |= {"concurrency": 0, "request_rate": 10.0 ** random.uniform(-1, 1.5), "num_requests": 300}
        points.append(base | {f"serve.{key}": value for key, value in load.items()})
    return columns_of(points)


@pytest.mark.parametrize(
    ("mode", "count"),
    [
        ("continuous", 120),
        ("disaggregated", 40),
        pytest.param("continuous", 2000, marks=pytest.mark.long),
        pytest.param("disaggregated", 400, marks=pytest.mark.long),
    ],
)
def test_verdicts_are_the_same_in_both_methods(compose, mode, count):
    """Of loads that the analytic form takes; means of both methods differ, so it may not judge."""
    columns = drawn(compose, count, mode)
    fast = serve(columns)
    full = serve(columns | {"serve.simulate": np.ones(count, dtype=np.bool_)})
    taken = ~fast.reason.exists
    assert taken.mean() > 0.7
    assert fast.short.texts()[taken].tolist() == full.short.texts()[taken].tolist()
    limited = taken & ((columns["serve.slo.ttft"] > 0) | (columns["serve.slo.tpot"] > 0))
    assert 0.05 < fast.short.exists[limited].mean() < 0.95
    results = [served_columns(columns, served) for served in (fast, full)]
    assert results[0]["meets_slo"][taken].tolist() == results[1]["meets_slo"][taken].tolist()


def test_a_simulation_that_takes_too_long_leaves_the_mean(compose):
    point = compose(*CLOSED) | {"serve.concurrency": MAX_STEPS, "serve.num_requests": 4 * MAX_STEPS,
                                "serve.slo.tpot": 1e-9, "serve.slo.ttft": 1e9}  # fmt: skip
    served = serve(columns_of([point]))
    assert served.columns["simulated"][0] == 0.0
    assert str(served.short.at(0)).startswith("mean tpot is ")
    assert served.columns["tpot_slo_s"][0] == served.columns["tpot_s"][0]
    assert any(
        "compared with means" in line and "serve.simulate=true" in line for line in load_of(point, False)
    )


@pytest.mark.parametrize("load", [CLOSED, OPEN, POOLS])
def test_percentiles_of_simulated_points_and_medians_of_others_that_are_near(load):
    """A request takes the time to its first token, and one per further token."""
    frame = fastflow.evaluate(*load, "serve.simulate=false,true", "serve.length_range_ratio=0.2")
    fast, full = (frame[frame["simulated"] == value].iloc[-1] for value in (frame["simulated"].min(), True))
    for name in ("ttft", "tpot", "e2e"):
        assert 0.0 < full[f"{name}_p50_s"] <= full[f"{name}_p90_s"] <= full[f"{name}_p99_s"]
    for row in (fast, full):
        mean = row["ttft_s"] + 47.0 * row["tpot_s"]
        assert row["e2e_s"] == pytest.approx(mean, rel=0.02)
    if not fast["simulated"]:
        lacks = [f"{name}_p{share}_s" for name in ("ttft", "tpot", "e2e") for share in (90, 99)]
        assert fast[[*lacks, "e2e_p50_s"]].isna().all()
        assert fast["tpot_p50_s"] == pytest.approx(full["tpot_p50_s"], rel=0.08)
        assert np.isnan(fast["ttft_p50_s"]) == (load is POOLS)


BURST = (
    *(text for text in CLOSED if "concurrency" not in text), "serve.isl=2048", "serve.concurrency=200",
)  # fmt: skip


@pytest.mark.parametrize("percentile", [95, 99, 99.9])
def test_the_reason_names_the_first_burst_and_requests_that_pass_over_it(percentile):
    load = (*BURST, f"serve.slo.percentile={percentile}")
    burst = fastflow.evaluate(*load, "serve.slo.ttft='1 s'").iloc[0]
    limit = 0.5 * (2.0 * burst["ttft_p50_s"] + burst["ttft_slo_s"])
    load = (*load, f"serve.slo.ttft='{limit} s'")
    late = fastflow.evaluate(*load).iloc[0]
    assert not late["feasible"]
    assert late["reason_code"] == "slo"
    assert "; the first burst of 200 requests counts: serve.num_requests=" in late["reason"]
    advice = re.search(r"(serve\.num_requests=\d+) has it in less than (\S+)%, .* has none$", late["reason"])
    assert float(advice[2]) == pytest.approx(100 - percentile)
    more = fastflow.evaluate(*load, advice[1]).iloc[0]
    assert (more["feasible"], more["reason"]) == (True, "")
    free = fastflow.evaluate(
        *load, "serve.concurrency=0", "serve.request_rate='1 1/s'", "serve.num_requests=400"
    ).iloc[0]
    assert free["feasible"]


@pytest.mark.parametrize("servers", [1, 3, 8])
@pytest.mark.parametrize("percentile", [50.0, 95.0, 99.0, 99.9])
@pytest.mark.parametrize("at_once", [1, 7, 200, 2001])
def test_requests_that_pass_over_a_burst_are_the_fewest(at_once, percentile, servers):
    """By numpy's percentile of times that are 1 of the burst of a server, and else 0."""
    servers_busy = min(servers, at_once)
    burst = -(-at_once // servers_busy)

    def late(requests):
        each = max(-(-int(requests) // servers_busy), burst)
        times = np.repeat([0.0, 1.0], [each - burst, burst])
        return np.percentile(times, percentile) > 0.0

    enough = requests_past_burst(at_once, percentile, servers)
    assert not late(enough)
    assert late((1.0 - 3.0 / (burst + 2)) * enough)


@pytest.mark.parametrize(
    "change", ["serve.slo.percentile=50", "serve.slo.percentile=0", "serve.num_requests=30000"]
)
def test_other_late_points_say_nothing_of_the_burst(change):
    late = fastflow.evaluate(*BURST, "serve.slo.ttft='1 us'", change).iloc[0]
    assert late["reason_code"] == "slo"
    assert "burst" not in late["reason"]


def test_no_number_of_requests_takes_the_burst_from_the_longest_time():
    reason = fastflow.evaluate(*BURST, "serve.slo.ttft='80 ms'", "serve.slo.percentile=100")["reason"][0]
    assert reason.endswith("200 requests counts: serve.request_rate with serve.concurrency=0 has none")


@pytest.mark.parametrize(
    ("percentile", "requests", "said"),
    [(99.0, 3, "99th percentile of 3 requests"), (99.0, 99, "takes 100"), (99.0, 100, ""),
     (90.0, 9, "takes 10"), (90.0, 10, ""), (100.0, 3, ""), (0.0, 3, ""), (99.9, 999, "takes 1,000"),
     (99.0, 0, "")],
)  # fmt: skip
def test_the_screen_says_of_how_few_requests_a_percentile_is(compose, percentile, requests, said):
    point = compose(*CLOSED) | {
        "serve.num_requests": requests, "serve.slo.percentile": percentile, "serve.slo.ttft": 1.0,
    }  # fmt: skip
    lines = [line for line in load_of(point, True) if "near their maximum" in line]
    assert len(lines) == (said != "")
    assert said in "".join(lines)


def test_scores_of_late_servers_are_of_the_compared_values(compose):
    points = [
        compose(*CLOSED) | {"serve.slo.ttft": 1e-4, "serve.slo.percentile": percentile}
        for percentile in (50.0, 99.0)
    ]
    inputs = columns_of(points)
    served = serve(inputs)
    late = score_served(inputs, served, "time", None, np.zeros(2)) - LACKS_MEMORY
    assert late == pytest.approx(np.log(served.columns["ttft_slo_s"] / 1e-4))
    assert late[1] > late[0]
    assert (served.short.code == Code.SLO).all()


def test_the_best_layout_keeps_the_limit_at_the_percentile():
    """Of those whose simulation keeps it. The layout with most tokens keeps it in the mean alone."""
    layouts = ["TP-1-d4", "TP-2-d2", "TP-4", "TP-2-p2", "TP-1-d2-p2", "TP-1-p4"]
    load = (*(text for text in CLOSED if "strategy" not in text), "serve.length_range_ratio=1")
    results = fastflow.evaluate(*load, f"parallel.strategy={','.join(layouts)}", "serve.simulate=true")
    results = results.sort_values("tokens_per_s", ascending=False)
    best = results.iloc[0]
    limit = 0.5 * (results["ttft_p99_s"].min() + best["ttft_p99_s"])
    keeps = results[results["ttft_p99_s"] <= limit]
    assert 0 < len(keeps) < (results["ttft_s"] <= limit).sum()
    best_auto = fastflow.evaluate(*load, "parallel.strategy=auto", f"serve.slo.ttft='{limit} s'")
    assert best_auto["strategy"][0] == keeps["strategy"].iloc[0] != best["strategy"]
    assert best_auto["meets_slo"][0]


@pytest.mark.parametrize(
    ("percentile", "column"), [(99.0, "99%"), (50.0, "median"), (95.0, "95%"), (0.0, "mean")]
)
def test_the_verdict_stands_beside_what_is_compared(compose, percentile, column):
    point = compose(*CLOSED, "serve.simulate=true") | {
        "serve.slo.percentile": percentile,
        "serve.slo.ttft": 1.0,
    }
    inputs = columns_of([point])
    columns = served_columns(inputs, serve(inputs))
    limit = columns["ttft_slo_s"][0]
    row = {name: values[0] for name, values in columns.items()}
    for most, verdict in ((limit, "met"), (0.99 * limit, "missed")):
        sheet = served_sheets(row, limits_of(point | {"serve.slo.ttft": most}))[0]
        names = [str(column_.header) for column_ in sheet.columns]
        assert names[-3:] == [column, "allowed", ""]
        assert len({*names}) == len(names) - 1  # but for the empty ones
        assert verdict in next(iter(sheet.columns[-1].cells))


@pytest.mark.parametrize(
    ("percentile", "text"),
    [(1.0, "1st"), (2.0, "2nd"), (11.0, "11th"), (93.0, "93rd"), (99.0, "99th"), (99.9, "99.9th")],
)
def test_ordinals(percentile, text):
    assert ordinal(percentile) == text


@pytest.mark.parametrize("value", ["-1", "100.5", "mean", "null", "'99 s'"])
def test_other_percentiles_are_refused(value):
    with pytest.raises(InputError, match=r"serve\.slo\.percentile"):
        fastflow.evaluate(*CLOSED, f"serve.slo.percentile={value}")


def test_grids_show_what_is_compared_in_place_of_the_mean(cli):
    for limits, shown in ((BOTH, ["ttft_slo", "tpot_slo"]), (BOTH[1:], ["ttft", "tpot_slo"])):
        output = f"output=o{len(limits)}"
        code, out, _ = cli(sweep, "-m", *CLOSED[:-1], "serve.concurrency=4,8", *limits, output)
        assert code == 0
        head = next(line.split() for line in out if line.startswith("point"))
        assert [name for name in head if name[:4] in TIMES] == shown


def test_charts_draw_what_is_compared():
    loads = (*CLOSED[:-1], "serve.concurrency=4,64")
    limit = fastflow.evaluate(*loads, BOTH[0])["ttft_slo_s"].mean()
    frame = fastflow.evaluate(*loads, f"serve.slo.ttft='{limit} s'")
    lines = lines_of(frame)
    assert latencies_of(lines.frame) == ["ttft_slo_s", "tpot_s"]
    assert lines.frame["late"].tolist() == (~frame["feasible"]).tolist() == [False, True]
    assert latencies_of(lines.frame.drop(columns=["ttft_slo_s"])) == ["ttft_s", "tpot_s"]


def test_samples_miss_limits_by_the_error_of_the_model_too():
    """About half of them where the limit is the value that is compared."""
    uncertain = ("uncertainty=on", "uncertainty.samples=32", *CLOSED)
    limit = fastflow.evaluate(*CLOSED, "serve.slo.tpot='1 s'")["tpot_slo_s"][0]
    failed = [
        fastflow.evaluate(*uncertain, f"serve.slo.tpot='{share * limit} s'")["samples_failed"][0]
        for share in (0.2, 1.0, 5.0)
    ]
    assert failed[0] == 32
    assert 4 < failed[1] < 28
    assert failed[2] == 0
