"""Served points as measurements: what a row is taken for, what is left out and refused, both errors."""

import numpy as np
import pandas as pd
import pytest

import fastflow
from fastflow.analysis.validation.error_metrics import errors_of
from fastflow.cli.commands.validate import main
from fastflow.core.errors import InputError
from fastflow.schema.quantities import THROUGHPUT, TIME
from tests.support.commands import report
from tests.support.measured import whole

POINT = {
    "system": "h100_sxm", "model": "meta-llama/Llama-3.1-70B", "isl": 1024, "osl": 256, "concurrency": 8,
    "tp": 4, "pp": 1, "attention_dp": 1, "moe_tp": 4, "moe_ep": 1, "backend": "vllm",
    "gemm_quant_mode": "fp8", "moe_quant_mode": "fp8", "silicon_ttft_ms": 100.0, "silicon_tpot_ms": 11.0,
}  # fmt: skip


@pytest.fixture
def points(tmp_path):
    """A function from points, each what differs from POINT, to the override that names a file of them."""

    def write(*changed):
        rows = [POINT | one for one in changed or ({},)]
        names = [name for name in rows[0] if all(row[name] is not None for row in rows)]
        lines = [names, *([row[name] for name in names] for row in rows)]
        path = tmp_path / "points.csv"
        path.write_text("\n".join(",".join(map(str, line)) for line in lines) + "\n")
        return f"measurements={path}"

    return write


def test_both_times_of_a_row_are_those_of_one_simulated_point(points):
    rows = fastflow.validate(points()).rows
    assert rows["part"].tolist() == ["ttft", "tpot"]
    assert rows["measured_s"].tolist() == [pytest.approx(0.1), pytest.approx(0.011)]
    (same,) = fastflow.evaluate(
        "serve=continuous", "server=vllm", "model=llama3_70b", "system=superpod_h100", "chip=h100_sxm",
        "model.dtype=fp8", "precision.cache=fp8", "parallel.strategy=TP-4", "system.devices=4",
        "serve.isl=921.6", "serve.osl=230.4", "serve.length_range_ratio=0.2", "serve.concurrency=8",
        "serve.simulate=true", "server.step_overhead='1.6 ms'",
    ).to_dict("records")  # fmt: skip
    assert rows["predicted_s"].tolist() == [same["ttft_s"], same["tpot_s"]]


@pytest.mark.parametrize(
    ("changed", "strategy"),
    [
        ({}, "TP-4"),
        ({"pp": 2}, "TP-4-p2"),
        ({"model": "Qwen/Qwen3-235B-A22B-FP8", "attention_dp": "", "moe_tp": 1, "moe_ep": 4}, "TP-4-e4"),
        ({"model": "Qwen/Qwen3-235B-A22B-FP8", "attention_dp": "", "moe_tp": 8, "moe_ep": 1}, "TP-4-e8-d2"),
        (
            {"model": "deepseek-ai/DeepSeek-R1", "tp": 1, "attention_dp": 8, "moe_tp": 1, "moe_ep": 8},
            "TP-1-e8-d8",
        ),
    ],
)  # fmt: skip
def test_layouts(points, changed, strategy):
    rows = fastflow.validate(points({"system": "h200_sxm"} | changed)).rows
    assert rows["strategy"].iloc[0] == strategy


@pytest.mark.parametrize("model", ["google/gemma-3-27b-it", "qwen/qwen3-30b-a3b"])
def test_a_name_on_a_hub_is_that_model_of_the_library(points, model):
    rows = fastflow.validate(points({"model": model})).rows
    own = fastflow.validate(points({"model": "anything"}), f"model={model}").rows
    assert rows["predicted_s"].tolist() == own["predicted_s"].tolist()
    assert np.isfinite(rows["predicted_s"]).all()


def test_types_are_those_that_a_model_is_published_in(points):
    """Where a file says a width alone: Qwen's fp8 has scales of blocks, whose experts vLLM pads."""
    qwen = {"model": "Qwen/Qwen3-235B-A22B-FP8"}
    own, block = (qwen | {"gemm_quant_mode": one, "moe_quant_mode": one} for one in ("fp8", "fp8_block"))
    rows = fastflow.validate(points(own, block)).rows
    assert rows["predicted_s"].iloc[:2].tolist() == rows["predicted_s"].iloc[2:].tolist()


def test_bf16_stays_bf16_where_a_model_is_published_in_fewer_bits(points):
    minimax = {"model": "MiniMaxAI/MiniMax-M2.5", "gemm_quant_mode": "", "moe_quant_mode": ""}
    fp8 = minimax | {"gemm_quant_mode": "fp8", "moe_quant_mode": "fp8"}
    precisions = ({"precision": "bf16"}, {"precision": "fp8"}, {"precision": "fp8"})
    changed = [one | more for one, more in zip((minimax, minimax, fp8), precisions, strict=True)]
    types = fastflow.validate(points(*changed)).rows["dtype"].tolist()
    assert types[::2] == ["bf16", "fp8_block", "fp8_block"]


def test_a_client_lets_no_more_requests_go_than_it_has_connections(points):
    alone = {"model": "openai/gpt-oss-120b", "gemm_quant_mode": "nvfp4", "moe_quant_mode": "nvfp4"}
    rows = fastflow.validate(points(alone | {"concurrency": 200}, alone | {"concurrency": 80})).rows
    in_flight = rows["running_requests"]
    assert 90 < in_flight.iloc[0] <= 100
    assert 70 < in_flight.iloc[2] <= 80
    assert rows["ttft_s"].iloc[0] > 10 * rows["ttft_s"].iloc[2]


def test_the_chip_of_the_command_line_goes_first(points):
    own, other = (fastflow.validate(points(), *more).rows for more in ((), ("chip=h200_sxm",)))
    assert (other["predicted_s"] < own["predicted_s"]).all()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"model": "nobody/unknown-3B"}, "model=nobody/unknown-3B is unknown"),
        ({"backend": "abacus"}, "backend=abacus is unknown"),
        ({"system": "z80"}, "system=z80 is unknown"),
        ({"gemm_quant_mode": "fp3"}, "data type fp3 is unknown"),
    ],
)
def test_rows_that_nobody_can_predict_say_why(points, changed, reason):
    rows = fastflow.validate(points({}, changed)).rows
    assert rows["predicted_s"].notna().tolist() == [True, True, False, False]
    assert reason in rows["reason"].iloc[2]


@pytest.mark.parametrize(("table", "value"), [("connections", "abc"), ("prompts", "-5"), ("spreads", "1.5")])
def test_a_table_without_numbers_is_refused(points, table, value):
    with pytest.raises(
        InputError, match=rf"serving.{table}.x={value} is invalid: expected a (whole )?number"
    ):
        fastflow.validate(points(), f"+serving.{table}.x={value}")


RATE = "tokens_per_s_per_device"


def test_throughput_follows_from_both_times_of_a_line(points):
    """By Little's law, of answers as long as they are read: Llama 70B's are 0.9 of the file's in the mean."""
    validated = fastflow.validate(points({}, {"pp": 2, "concurrency": 32}))
    rows = validated.rows
    assert rows[f"measured_{RATE}"].isna().tolist() == [True, False, True, False]
    expected = [8 * 230.4 / (0.1 + 230.4 * 0.011) / 4, 32 * 230.4 / (0.1 + 230.4 * 0.011) / 8]
    assert rows[f"measured_{RATE}"].iloc[[1, 3]].tolist() == pytest.approx(expected)
    assert rows[f"predicted_{RATE}"].tolist() == rows[RATE].tolist()
    ratio = rows[RATE].iloc[[1, 3]].to_numpy() / expected
    assert rows[f"error_{RATE}"].iloc[[1, 3]].tolist() == pytest.approx(abs(ratio - 1.0).tolist())
    total = errors_of(validated.errors, THROUGHPUT).iloc[0]
    assert (total["by"], total["rows"]) == ("all", 2)
    assert total["mean_error"] == pytest.approx(abs(ratio - 1.0).mean())
    assert not (errors_of(validated.errors, THROUGHPUT)["by"] == "error of time").any()


def test_lengths_of_the_command_line_count_in_the_throughput(points):
    rows = fastflow.validate(points(), "serve.osl=100").rows
    assert rows[f"measured_{RATE}"].iloc[1] == pytest.approx(8 * 100 / (0.1 + 100 * 0.011) / 4)


def test_a_file_may_state_its_throughput(points, tmp_path):
    points({}, {"concurrency": 16})
    path = tmp_path / "points.csv"
    head, *lines = path.read_text().splitlines()
    stated = [f"{head},output_tokens_per_s_per_device", f"{lines[0]},123.5", f"{lines[1]},"]
    path.write_text("\n".join(stated) + "\n")
    rows = fastflow.validate(f"measurements={path}").rows
    measured = rows[f"measured_{RATE}"]
    assert measured.iloc[1] == 123.5
    assert measured.iloc[3] == pytest.approx(16 * 230.4 / (0.1 + 230.4 * 0.011) / 4)
    assert measured.notna().sum() == 2


@pytest.mark.parametrize("lacking", ["silicon_ttft_ms", "silicon_tpot_ms"])
def test_a_file_of_a_single_time_has_no_throughput(points, lacking):
    rows = fastflow.validate(points({lacking: None})).rows
    assert len(rows) == 1
    assert f"measured_{RATE}" not in rows


def test_the_last_lines_are_the_errors_of_both_times(points, cli):
    code, out, _ = cli(main, points(), "output=here")
    assert code == 0
    rows = fastflow.validate(points()).rows
    throughput, ttft, tpot = [line for line in out if "mean relative error" in line]
    error = rows[f"error_{RATE}"].iloc[1]
    assert throughput == f"throughput mean relative error {error:.1%}, median {error:.1%} (1 row)"
    assert ttft == f"ttft mean relative error {rows['error'].iloc[0]:.1%}"
    assert tpot == f"tpot mean relative error {rows['error'].iloc[1]:.1%}"
    places = [out.index(line) for line in (throughput, ttft, tpot)]
    assert places == list(range(places[0], places[0] + 3))
    assert not [line for line in out[places[-1] + 1 :] if not line.startswith(("Figure:", "Errors:", "Data"))]


def test_errors_are_printed_for_each_time_and_by_group(points, cli):
    """Nine numbers of requests and more are in ranges."""
    numbers = [1, 2, 4, 8, 9, 16, 32, 33, 64]
    changed = [{"concurrency": number, "silicon_tpot_ms": 5.0 + number} for number in numbers]
    code, out, _ = cli(main, points(*changed), "output=here", "serve.simulate=false")
    assert code == 0
    text = "\n".join(out)
    for name in ("ttft", "tpot", "throughput"):
        assert f"Error of {name}, relative" in text
    for name in ("system", "model", "backend", "concurrency"):
        assert f"by {name}" in text
    rows, table = pd.read_parquet("here"), pd.read_parquet("here-errors")
    of_tpot = errors_of(table, TIME, "tpot")
    of_tpot = of_tpot[of_tpot["by"] == "concurrency"].set_index("value")
    assert of_tpot["rows"].to_dict() == {"1-8": 4, "9-32": 3, "33-128": 2}
    few = rows[(rows["part"] == "tpot") & (rows["concurrency"] <= 8)]
    assert of_tpot.loc["1-8", "mean_error"] == pytest.approx(few["error"].mean())
    (line,) = [line for line in out if line.split()[:2] == ["1-8", "4"]]
    assert f"{few['error'].mean():.1%}" in line.split()
    assert f"{few[f'error_{RATE}'].mean():.1%}" in line.split()


def test_choices_of_layouts_and_servers_are_printed(points, cli, tmp_path):
    """Two layouts of vLLM, the second better as measured, and one of them on two servers; a row twice."""
    wide = {"tp": 8, "moe_tp": 8, "concurrency": 16, "silicon_tpot_ms": 9.0}
    other = {"backend": "trtllm", "silicon_tpot_ms": 8.0}
    code, out, _ = cli(main, points({}, wide, wide, other), "output=here", "serve.simulate=false")
    assert code == 0
    text = " ".join(" ".join(out).split())
    assert (
        "Choice of layouts: of 1 job with 2 layouts at the same lengths, load per device and server" in text
    )
    assert (
        "Choice of servers: of 1 job with 2 servers at the same lengths, load per device and layout" in text
    )
    assert "Choices by model" in text
    rows = pd.read_parquet("here")
    rows = rows[(rows["part"] == "tpot") & (rows["backend"] == "vllm")].drop_duplicates("strategy")
    chosen = rows.loc[rows[f"predicted_{RATE}"].idxmax()]
    regret = 1.0 - chosen[f"measured_{RATE}"] / rows[f"measured_{RATE}"].max()
    assert f"was measured {regret:.1%} below the best in the mean" in text.split("Choice of servers")[0]
    assert "Choice of layouts" in fastflow.validate(points({}, wide), "serve.simulate=false")._repr_html_()
    assert report(["here", f"html={tmp_path / 'page.html'}"]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Mean error of throughput" in page
    code, out, _ = cli(main, points(), "output=there", "serve.simulate=false")
    assert code == 0
    assert "Choice" not in " ".join(out)


@pytest.mark.long
def test_errors_of_the_whole_file():
    """What docs/validation.md says, with some room: a change of the model may not lose it unseen."""
    rows = fastflow.validate(f"measurements={whole('serving_h100_h200')}").rows
    for part, mean, median, alike in (("tpot", 0.14, 0.10, 0.95), ("ttft", 0.32, 0.24, 0.87)):
        own = rows[(rows["part"] == part) & (rows["reason"] == "")]
        assert own["error"].mean() < mean
        assert own["error"].median() < median
        logs = np.log(own["predicted_s"]), np.log(own["measured_s"])
        assert np.corrcoef(*logs)[0, 1] > alike


def test_stages_without_links_have_a_reason_and_no_warning():
    """Of a warning the tests make an error."""
    asked = ("serve=decode", "serve.batch=64", "model=llama3_70b", "tech=n5", "mem=hbm3", "system=torus")
    layout = ("system.devices=8", "parallel.strategy=TP-4-p2", "chip.area.inter=0")
    row = fastflow.evaluate(*asked, *layout).iloc[0]
    assert row["time_s"] != row["time_s"]
    assert "inter has no room" in row["reason"]
