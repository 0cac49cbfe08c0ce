"""Points that serve on screen, in reports and in searches."""

import numpy as np
import pandas as pd
import pytest

import fastflow
from fastflow.analysis.search.optimizers.objective import LACKS_MEMORY, NO_CHIP
from fastflow.analysis.search.optimizers.serving_objective import measure_served, score_served
from fastflow.cli.commands.report import main as report
from fastflow.cli.commands.search import main as search
from fastflow.cli.commands.sweep import main as sweep
from fastflow.core.errors import InputError
from fastflow.engine.dataset.reader import find
from fastflow.performance.serving.columns import served_columns
from fastflow.performance.serving.predict import serve
from fastflow.reporting.charts.serving import PROMPTS, draw, lines_of
from fastflow.reporting.charts.style import render
from fastflow.reporting.terminal.digest import Digest
from fastflow.reporting.terminal.serving import load_of
from tests.conftest import columns_of
from tests.support.paths import DATA, ROOT

SMALL = [
    "model=transformer", "model.layers=4", "model.hidden=1024", "model.heads=8", "model.vocabulary=8000",
    "system=dgx_h100", "chip=h100_sxm", "system.devices=4",
]  # fmt: skip
LOADED = [*SMALL, "serve=continuous", "server=vllm", "serve.isl=64", "serve.osl=32"]
OF_A_CHIP = [
    "model=transformer", "model.layers=4", "model.hidden=1024", "model.heads=8", "model.vocabulary=8000",
    "tech=n5", "mem=hbm3", "system=dgx_h100", "chip=pathfinding", "system.devices=4",
    "parallel.strategy=TP-4", "serve=decode", "serve.batch=16",
]  # fmt: skip


def words(lines, start):
    """Return the words of the first line that starts so."""
    return next(line.split() for line in lines if line.strip().startswith(start))


def test_a_grid_shows_its_rates_and_its_best_points(cli):
    loads = ",".join(map(str, range(1, 23)))
    code, out, err = cli(
        sweep, "-m", *LOADED, "parallel.strategy=TP-4", f"serve.concurrency={loads}",
        "serve.slo.tpot='20 ms'", "output=o",
    )  # fmt: skip
    assert (code, err) == (0, [line for line in err if "points" in line or "compiling" in line])
    at = next(i for i, line in enumerate(out) if line.startswith("Most tokens per second and device"))
    assert out[at + 1].split() == [
        "point", "serve.concurrency", "strategy", "ttft", "tpot_slo", "tokens_per_s_per_device",
        "tokens_per_s_per_user", "feasible",
    ]  # fmt: skip
    frame = find("o").read(["feasible", "tokens_per_s_per_device", "reason"])
    best = frame[frame["feasible"]].sort_values("tokens_per_s_per_device").index[::-1][:5]
    assert [int(line.split()[0]) for line in out[at + 3 : at + 8]] == best.tolist()


def test_grids_of_passes_and_of_iterations_beside_servers(cli):
    code, out, _ = cli(sweep, "-m", *SMALL, "serve=prefill,decode,none", "parallel.strategy=TP-4", "output=o")
    assert code == 0
    assert words(out, "point") == [
        "point", "serve", "strategy", "time", "ttft", "tpot", "tokens_per_s_per_device", "feasible"
    ]  # fmt: skip
    assert cli(report, "o")[0] == 0
    code, out, _ = cli(sweep, "-m", *SMALL, "serve=prefill", "parallel.strategy=TP-2-d2,TP-4", "output=p")
    assert code == 0
    assert words(out, "point")[-3:] == ["ttft", "prefill_tokens_per_s", "feasible"]


def test_best_are_those_with_most_tokens_then_late_ones_then_none():
    digest = Digest(serves=True)
    nan = None
    part = pd.DataFrame(
        {
            "time_s": [1.0, nan, 1.0, 1.0, 1.0], "feasible": [True, False, True, False, True],
            "devices": [2] * 5,
            "tokens_per_s_per_device": [10.0, nan, nan, 99.0, 20.0],
            "prefill_tokens_per_s": [70.0, nan, 30.0, 5.0, 1.0],
            "stationary": [nan, nan, False, False, True],
            "reason_code": ["", "load", "", "slo", ""],
        }
    )  # fmt: skip
    import pyarrow as pa

    digest.add(pa.Table.from_pandas(part))
    assert digest.not_stationary == 1  # of those that are feasible
    assert digest.best == [4, 2, 0, 3, 1]
    assert digest.infeasible == {"no time": 1, "memory": 1}


def test_one_point_tells_its_latencies_rates_limits_and_memory(cli):
    own = [*LOADED, "parallel.strategy=TP-4", "serve.concurrency=4", "serve.simulate=true"]
    code, out, _ = cli(sweep, *own, "serve.slo.ttft='1 us'", "serve.slo.tpot='1 s'", "output=o")
    assert code == 0
    row = find("o").read(find("o").schema.names).iloc[0]
    assert out[1:3] == [
        "Requests of 64 tokens on average (57 to 71), answers of 32 (28 to 36)",
        "as benchmarks draw them (serve.length_range_ratio=0.2), 4 at a time; continuous batching,"
        " every step simulated",
    ]
    first, further = words(out, "to the first token"), words(out, "per further token")
    assert (first[-1], further[-1]) == ("missed", "met")
    assert f"{row['ttft_p99_s'] * 1e3:.3g}" in first
    assert f"{row['tpot_p50_s'] * 1e3:.3g}" in further
    assert (
        words(out, "requests in flight")[-7:]
        == f"the KV cache has room for {row['max_concurrent_requests']:,.0f}".split()
    )
    assert words(out, "Bound by")[2:5] == ["prefill", "by", row["prefill_bound_by"]]
    assert words(out, "Not feasible")[2:7] == ["ttft", "at", "the", "99th", "percentile"]
    assert any(line.startswith("weights") for line in out)


POINT = {
    "serve.mode": "continuous", "serve.isl": 1000.0, "serve.osl": 100.0, "serve.length_range_ratio": 0.2,
    "serve.concurrency": 8, "serve.request_rate": 0.0, "serve.num_requests": 0, "serve.simulate": False,
    "serve.context": 0, "serve.batch": 0, "serve.slo.ttft": 0.0, "serve.slo.tpot": 0.0,
    "serve.slo.percentile": 99.0,
}  # fmt: skip
TRACE = "tests/data/trace_vidur.csv"


@pytest.mark.parametrize(
    ("asked", "simulated", "says"),
    [
        ({}, False, ["(serve.length_range_ratio=0.2), 8 at a time; continuous batching, analytic estimate"]),
        ({}, True, ["simulated: the analytic estimate may be far off"]),
        ({"serve.simulate": True}, True, ["every step simulated"]),
        (
            {"serve.length_range_ratio": 0.0},
            False,
            ["of 1,000 tokens with answers of 100, all alike (serve.length_range_ratio=0), 8"],
        ),
        (
            {"serve.length_range_ratio": 0.5},
            False,
            ["(667 to 1,333), answers of 100 (67 to 133)", "evenly between (serve.l"],
        ),
        (
            {"serve.lengths": TRACE},
            True,
            [
                "on average (60 to 897), answers of 100 (8 to 120)",
                f"those of {TRACE}, 8 at a time",
                f"Times of arrival in {TRACE} are not used: serve.concurrency=0 sends requests then",
            ],
        ),
        (
            {"serve.lengths": TRACE, "serve.concurrency": 0, "serve.request_rate": 2.0},
            True,
            [
                "2 a second, at random times",
                "serve.concurrency=0 serve.request_rate='0 1/s' sends requests then",
            ],
        ),
        (
            {"serve.lengths": TRACE, "serve.mode": "decode", "serve.concurrency": 0, "serve.batch": 4},
            False,
            ["are not used: serve=continuous serve.concurrency=0 sends requests then"],
        ),
        (
            {"serve.lengths": TRACE, "serve.concurrency": 0},
            True,
            ["all 40 as they arrive;", "step simul"],
        ),
        (
            {"serve.lengths": TRACE, "serve.concurrency": 0, "serve.num_requests": 9},
            True,
            ["the first 9 of 40 as they arrive;"],
        ),
    ],
)
def test_what_is_asked_is_told_and_which_times_are_not_used(asked, simulated, says, monkeypatch):
    monkeypatch.chdir(ROOT)
    lines = list(load_of(POINT | asked, simulated))
    told = "\n".join(lines)
    for text in says:
        assert text in told
    assert ("are not used" in told) == any("are not used" in text or "sends" in text for text in says)


def test_the_advice_on_times_that_are_not_used_works(cli):
    own = [
        *LOADED,
        "parallel.strategy=TP-4",
        f"serve.lengths={DATA / 'trace_azure.csv'}",
    ]
    code, out, _ = cli(sweep, *own, "serve.concurrency=0", "serve.request_rate='2 1/s'", "output=o")
    assert code == 0
    assert "serve.request_rate='0 1/s' sends requests then" in " ".join(" ".join(out).split())
    code, out, _ = cli(sweep, *own, "serve.concurrency=0", "serve.request_rate='0 1/s'", "output=p")
    assert code == 0
    assert not any("not used" in line for line in out)
    assert "as they arrive" in " ".join(" ".join(out).split())


def test_a_point_without_results_and_files_of_one_that_serves_are_refused(cli):
    tight = [
        "model=llama3_70b",
        "chip=h100_sxm",
        "serve=continuous",
        "parallel.strategy=TP-1",
        "system.devices=1",
    ]
    code, _, err = cli(sweep, *tight, "output=o")
    assert (code, len(err)) == (2, 1)
    assert "caches need" in err[0]
    for key, name in (("trace", "t.json"), ("picture", "p.svg")):
        code, _, err = cli(sweep, *LOADED, "parallel.strategy=TP-4", f"{key}={name}", "output=o")
        assert code == 2
        assert err[0].startswith(f"{key}={name} ")
        assert "null where a point serves without a fleet" in err[0]
    with pytest.raises(InputError, match="serve=continuous"):
        fastflow.explain_sharding(*LOADED, "parallel.strategy=TP-4")


def test_the_screen_says_of_an_open_loop_that_it_is_stationary_or_not(cli):
    load = (*LOADED, "parallel.strategy=TP-4", "serve.concurrency=0", "serve.request_rate='5 1/s'")
    _, out, _ = cli(sweep, *load, "output=o1")
    assert words(out, "requests  ")[-6:] == ["of", "5/s", "that", "are", "sent,", "stationary"]
    _, out, _ = cli(sweep, *load, "serve.simulate=true", "serve.num_requests=6", "output=o2")
    assert any(line.startswith("Not stationary after 6 ") for line in out)
    assert words(out, "requests  ")[-1] == "sent"
    _, out, _ = cli(sweep, *LOADED, "parallel.strategy=TP-4", "serve.concurrency=4", "output=o3")
    assert not any("stationary" in line for line in out)


def test_auto_takes_the_best_layout_and_lists_the_others(cli):
    own = [*LOADED, "parallel.strategy=auto", "serve.concurrency=16"]
    code, out, _ = cli(sweep, *own, "output=o")
    assert code == 0
    ranked = find("o-ranking").read(["strategy", "tokens_per_s", "feasible"])
    assert ranked["strategy"].astype(str).is_unique
    assert ranked["tokens_per_s"].is_monotonic_decreasing
    assert (
        find("o").read(["strategy"])["strategy"].astype(str).iloc[0] == ranked["strategy"].astype(str).iloc[0]
    )
    at = next(i for i, line in enumerate(out) if line.startswith("Best of"))
    assert out[at + 3].split()[1] == str(ranked["strategy"].iloc[0])
    frame = fastflow.evaluate(*own)
    assert frame["strategy"].iloc[0] == ranked["strategy"].iloc[0]
    assert fastflow.rank_strategies(*own)["strategy"].tolist() == ranked["strategy"].astype(str).tolist()


def frame_of(rows):
    frame = pd.DataFrame(
        rows,
        columns=["chip", "strategy", "serve.concurrency", "tokens_per_s_per_user", "tokens_per_s_per_device"],
    )
    beside = {
        "time_s": 1.0, "ttft_s": 0.1, "tpot_s": 0.01, "prefill_tokens_per_s": 4.0, "joules_per_token": 1.0,
        "devices": 2, "feasible": True, "reason": "", "reason_code": "",
    }  # fmt: skip
    return frame.assign(point=range(len(frame)), **beside)


def test_lines_run_through_loads_and_the_front_is_of_all_of_them():
    frame = frame_of(
        [
            ["a", "TP-1", 1, 90.0, 10.0], ["a", "TP-1", 9, 30.0, 50.0],
            ["a", "TP-2", 1, 80.0, 20.0], ["a", "TP-2", 9, 20.0, 40.0],
            ["b", "TP-1", 1, 70.0, 99.0], ["b", "TP-1", 9, 10.0, 60.0],
        ]
    )  # fmt: skip
    frame.loc[4, ["feasible", "reason_code"]] = [False, "slo"]
    frame.loc[5, ["feasible", "reason_code"]] = [False, "memory"]
    lines = lines_of(frame)
    assert lines.load == "serve.concurrency"
    assert lines.names == ["a, TP-1", "a, TP-2", "b, TP-1"]
    assert lines.frame["point"].tolist() == [0, 1, 2, 3, 4]  # what lacks memory is no point
    assert lines.frame["late"].tolist() == [False] * 4 + [True]
    assert lines.frame.loc[lines.front, "point"].tolist() == [1, 2, 0]
    assert (lines.frame[PROMPTS] == 2.0).all()
    assert b"overall front" in render(lambda: draw(lines, "title"))


def test_a_report_draws_the_front_of_a_dataset(cli, tmp_path):
    own = [*LOADED, "parallel.strategy=TP-2-d2,TP-4", "serve.concurrency=2,32", "output=o"]
    assert cli(sweep, "-m", *own)[0] == 0
    code, out, _ = cli(report, "o")
    assert code == 0
    assert out[0] == "o: 4 points, 2 lines"
    assert out[-1] == "Figure: o-report.svg"
    text = (tmp_path / "o-report.svg").read_text()
    for said in ("tokens per second and user [1/s]", "mean time to the first token [ms]", "overall front"):
        assert said in text


@pytest.mark.parametrize("objective", ["time", "device_time_per_token", "joules_per_token"])
def test_a_served_design_scores_the_log_of_its_objective(compose, objective):
    inputs = columns_of([compose(*OF_A_CHIP), compose(*OF_A_CHIP, "chip.power.dram=0")])
    served = serve(inputs)
    columns = served_columns(inputs, served)
    measured = measure_served(inputs, served, objective)
    want = {
        "time": columns["time_s"], "joules_per_token": columns["joules_per_token"],
        "device_time_per_token": 1.0 / columns["tokens_per_s_per_device"],
    }[objective]  # fmt: skip
    np.testing.assert_allclose(measured, want)
    found = score_served(inputs, served, objective, None, np.zeros(2))
    assert found[0] == pytest.approx(np.log(want[0]))
    assert found[1] > NO_CHIP


def test_scores_of_late_designs_fall_with_their_lateness(compose):
    late = [compose(*OF_A_CHIP, f"serve.slo.tpot='{most} us'") for most in ("1", "2", "1000000")]
    without = compose(*OF_A_CHIP, "model.layers=4000", "model.hidden=16384")
    inputs = columns_of([*late, without])
    found = score_served(inputs, serve(inputs), "time", None, np.zeros(4))
    assert LACKS_MEMORY < found[1] < found[0] < found[3] < NO_CHIP
    assert found[0] - found[1] == pytest.approx(np.log(2.0))
    assert found[2] < LACKS_MEMORY


@pytest.mark.long
def test_a_search_finds_a_chip_that_serves_better(cli):
    rules = ["method=random", "steps=8", "starts=2", "objective=device_time_per_token"]
    code, out, err = cli(search, *OF_A_CHIP, *rules, "output=o")
    assert code == 0, err
    assert words(out, "device_time_per_token")
    history = find("o").read(["objective", "tokens_per_s_per_device", "feasible"])
    made = history[history["feasible"]]
    np.testing.assert_allclose(made["objective"], 1.0 / made["tokens_per_s_per_device"])
    code, out, _ = cli(
        sweep, *[text for text in OF_A_CHIP if "chip=" not in text], "chip=o-best.yaml", "output=p"
    )
    assert code == 0
    best = find("p").read(["tokens_per_s_per_device"])["tokens_per_s_per_device"].iloc[0]
    assert best == pytest.approx(made["tokens_per_s_per_device"].max(), rel=1e-9)


@pytest.mark.long
def test_a_search_ranks_the_layouts_of_servers(cli):
    own = [text for text in OF_A_CHIP if "strategy" not in text]
    rules = ["parallel.strategy=auto", "method=random", "steps=2", "starts=1", "objective=joules_per_token"]
    assert cli(search, *own, *rules, "output=o")[0] == 0
    ranked = find("o-ranking").read(["strategy", "objective", "joules_per_token", "reason"])
    assert len(ranked) > 2
    searched = ranked[ranked["reason"] == ""]
    assert searched["objective"].is_monotonic_increasing
    np.testing.assert_allclose(searched["objective"], searched["joules_per_token"])
    code, _, err = cli(
        search, *[text for text in own if "serve" not in text], "serve=disaggregated",
        "parallel.strategy=auto", "output=p",
    )  # fmt: skip
    assert (code, len(err)) == (2, 1)
    assert "prefill has devices of its own" in err[0]


def test_objectives_of_tokens_need_servers(cli):
    code, _, err = cli(search, "objective=joules_per_token", "output=o")
    assert code == 2
    assert err[0].startswith("objective=joules_per_token")


def test_points_that_serve_have_the_chip_that_points_of_training_have():
    """Its columns are those of the generator, whatever runs on it, and where a point has no results too."""
    training = fastflow.evaluate(*[word for word in OF_A_CHIP if not word.startswith("serve")]).iloc[0]
    served = fastflow.evaluate(*OF_A_CHIP[:-1], "serve.batch=16,0")  # a pass over nothing has no results
    made = [name for name in training.index if name in served and name in (
        "core_V", "core_Hz", "mcus", "bundles", "dram_devices", "dram_Bps", "dram_capacity_B", "intra_Bps",
        "inter_Bps", *(f"l{level}_{what}" for level in range(3) for what in ("B", "Bps", "banks")),
    )]  # fmt: skip
    assert len(made) == 18
    for name in made:
        assert served[name].tolist() == [training[name]] * 2, name
    assert served["feasible"].tolist() == [True, False]


def test_a_chip_of_prefill_is_shown_beside_that_of_decode(cli):
    apart = [*SMALL, "serve=disaggregated", "serve.concurrency=4", "serve.prefill.devices=2"]
    code, out, _ = cli(
        sweep,
        *apart,
        "parallel.strategy=TP-2",
        "serve.prefill.strategy=TP-2",
        "serve.prefill.chip=a100",
        "output=o",
    )
    assert code == 0
    titles = [line.strip() for line in out if line.startswith("Chip ")]
    assert titles == ["Chip of decode", "Chip of prefill"]
    cores = [line.split()[1:3] for line in out if line.startswith("core ")]
    assert cores == [["989", "Tflop/s"], ["312", "Tflop/s"]]
    code, out, _ = cli(sweep, *LOADED, "parallel.strategy=TP-4", "serve.concurrency=4", "output=p")
    assert [line.strip() for line in out if line.rstrip() == "Chip"] == ["Chip"]
