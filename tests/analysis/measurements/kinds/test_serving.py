"""Served points as measurements: what a row is taken for, what is left out and refused, both errors."""

import numpy as np
import pytest

import fastflow
from fastflow.cli.commands.validate import main
from fastflow.core.errors import InputError
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
        names = [name for name in POINT if all(row[name] is not None for row in rows)]
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
        "serve.simulate=true",
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


def test_the_last_lines_are_both_errors(points, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["validate", points(), f"output={tmp_path / 'out'}"])
    assert main() in (None, 0)
    said = [line.split()[0] for line in capsys.readouterr().out.splitlines() if "mean relative error" in line]
    assert sorted(said) == ["tpot", "ttft"]


@pytest.mark.long
def test_errors_of_the_whole_file():
    """What docs/validation.md says, with some room: a change of the model may not lose it unseen."""
    rows = fastflow.validate(f"measurements={whole('serving_h100_h200')}").rows
    for part, mean, median, alike in (("tpot", 0.21, 0.13, 0.91), ("ttft", 0.45, 0.30, 0.85)):
        own = rows[rows["part"] == part]
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
