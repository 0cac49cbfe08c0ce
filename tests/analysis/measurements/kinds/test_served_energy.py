"""Energy of served points as measurements: what a row is taken for, its three errors, what is left out."""

import numpy as np
import pandas as pd
import pytest

import fastflow
from fastflow.analysis.validation.error_metrics import errors_of
from fastflow.cli.commands.validate import main
from fastflow.schema.quantities import ENERGY, POWER, TIME
from tests.support.checks import near
from tests.support.measured import whole

STATE = {
    "device": "H100", "devices": 2, "model": "Qwen/Qwen3-32B", "framework": "vLLM", "task": "gpqa", "tp": 2,
    "dp": 1, "ep": 1, "max_num_seqs": 16, "avg_batch": 15.6, "osl_mean": 300.4, "dtype": "bfloat16",
    "tpot_median_s": 0.02, "power_per_device_W": 500.0, "energy_per_token_J": 1.25,
}  # fmt: skip
"""Made up."""


@pytest.fixture
def states(tmp_path, monkeypatch):
    """A function from rows, each what differs from STATE, to the override that names a file of them."""
    monkeypatch.chdir(tmp_path)

    def write(*changed):
        rows = [STATE | one for one in changed or ({},)]
        names = list(dict.fromkeys(name for row in rows for name in row))
        lines = [names, *([row.get(name, "") for name in names] for row in rows)]
        (tmp_path / "states.csv").write_text("\n".join(",".join(map(str, line)) for line in lines) + "\n")
        return "measurements=states.csv"

    return write


def test_a_row_is_the_steady_state_of_a_server(states):
    found = fastflow.validate(states())
    (row,) = found.rows.to_dict("records")
    (same,) = fastflow.evaluate(
        "serve=continuous", "server=vllm", "model=qwen3_32b", "system=superpod_h100", "chip=h100_sxm",
        "model.dtype=bf16", "parallel.strategy=TP-2", "system.devices=2", "serve.isl=256", "serve.osl=300",
        "serve.concurrency=16", "server.max_num_seqs=16", "serve.simulate=false", "serve.sampling=top_p",
    ).to_dict("records")  # fmt: skip
    assert row["predicted_s"] == same["tpot_s"]
    assert row["predicted_W"] == same["power_W"]
    assert row["predicted_J"] == same["joules_per_token"]
    assert near(row["error"], abs(same["tpot_s"] - 0.02) / 0.02)
    assert near(row["error_W"], abs(same["power_W"] - 500.0) / 500.0)
    assert near(row["error_J"], abs(same["joules_per_token"] - 1.25) / 1.25)
    for quantity in (TIME, POWER, ENERGY):
        total = errors_of(found.errors, quantity).iloc[0]
        assert (total["by"], total["rows"]) == ("all", 1)
        assert near(total["mean_error"], row[quantity.error])


def test_three_errors_are_printed_by_group_and_where_times_are_right(cli, states):
    """The second row's time is wrong by more than 20%."""
    right = fastflow.validate(states()).rows["predicted_s"].iloc[0]
    slow = {"tpot_median_s": 2.0 * right, "task": "v2-chat", "energy_per_token_J": 5.0}
    code, out, _ = cli(main, states({"tpot_median_s": right}, slow), "output=here")
    assert code == 0
    rows = pd.read_parquet("here")
    lines = [line for line in out if "mean relative error" in line]
    assert lines[0] == f"mean relative error {rows['error'].mean():.1%}"
    for line, quantity in zip(lines[1:], (POWER, ENERGY), strict=True):
        error = rows[quantity.error]
        assert line == (
            f"{quantity.name} mean relative error {error.mean():.1%} (2 rows; {error.iloc[0]:.1%} of the 1"
            " whose time is within 20%)"
        )
    errors = pd.read_parquet("here-errors")
    of_task = errors[(errors["quantity"] == "energy") & (errors["by"] == "task")].set_index("value")
    assert near(of_task.loc["v2-chat", "mean_error"], rows["error_J"].iloc[1])
    assert "tokens of a prompt by the task: gpqa 256, v2 chat 128" in " ".join(out)


MIXTURE = {"model": "Qwen/Qwen3-30B-A3B-Instruct-2507", "tp": 1}


@pytest.mark.parametrize(
    ("changed", "strategy", "devices"),
    [
        ({}, "TP-2", 2),
        ({"tp": 1, "devices": 1, "dp": "", "ep": ""}, "TP-1", 1),
        ({"model": "Qwen/Qwen3-30B-A3B-Instruct-2507", "tp": 1, "ep": 4, "devices": 4}, "TP-4-e4", 4),
        (
            {"model": "Qwen/Qwen3-30B-A3B-Instruct-2507", "tp": 1, "ep": 4, "dp": 4, "devices": 4},
            "TP-1-e4-d4",
            4,
        ),
        ({"model": "mistralai/Mixtral-8x7B-Instruct-v0.1", "tp": 4, "devices": 4}, "TP-4", 4),
        ({"model": "mistralai/Mixtral-8x7B-Instruct-v0.1", "ep": 2}, "TP-2-e2", 2),
        ({"tp": 8, "pp": 2, "devices": 16}, "TP-8-p2", 16),
        ({"tp": 1, "devices": 8, "parallel.strategy": "TP-8"}, "TP-8", 8),
    ],
)
def test_layouts(states, changed, strategy, devices):
    rows = fastflow.validate(states(changed)).rows
    assert rows["strategy"].iloc[0] == strategy
    assert rows["predicted_W"].notna().all()
    assert rows["devices"].iloc[0] == devices


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"task": "lm-arena-chat"}, ("serve.isl=128",)),
        ({"task": "sourcegraph-fim"}, ("serve.isl=1024",)),
        ({"task": "v2-code"}, ("serve.isl=180",)),
        ({"device": "A100-SXM4-40GB"}, ("chip=a100_sxm_40", "system=superpod_a100")),
        ({"framework": "TGI or vLLM"}, ("server=vllm_2024",)),
        ({"model": "Qwen/Qwen3-235B-A22B-Thinking-2507-FP8", "dtype": "fp8", "tp": 8, "devices": 8},
         ("model=qwen3_235b", "model.dtype=fp8_block")),
        ({"model": "openai/gpt-oss-20b", "dtype": "mxfp4"}, ("model.dtype=bf16", "precision.experts=mxfp4")),
        ({"avg_batch": 0.2}, ("serve.concurrency=1",)),
        ({"avg_batch": 1199.8, "max_num_seqs": 1200}, ("server.max_num_seqs=1200",)),
    ],
)  # fmt: skip
def test_what_names_and_means_stand_for(states, changed, same):
    read = fastflow.validate(states(changed)).rows
    plain = changed if "task" not in changed else {}
    chosen = fastflow.validate(states(plain), *same).rows
    for name in ("predicted_s", "predicted_J"):
        assert np.isfinite(read[name]).all()
        assert read[name].tolist() == chosen[name].tolist()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"model": "nobody/unknown-3B"}, "model=nobody/unknown-3B is unknown"),
        ({"framework": "abacus"}, "framework=abacus is unknown"),
        ({"device": "z80"}, "device=z80 is unknown"),
        ({"dtype": "fp3"}, "data type fp3 is unknown"),
        ({"task": "chess"}, "its task is unknown: expected a name with one of lm arena chat"),
        ({"avg_batch": ""}, "avg_batch is not said"),
        ({"devices": 4}, "devices is not what tp, ep, dp and pp make"),
    ],
)
def test_rows_that_nobody_can_predict_say_why(states, changed, reason):
    rows = fastflow.validate(states({}, changed)).rows
    assert rows["predicted_s"].notna().tolist() == [True, False]
    assert rows["predicted_J"].notna().tolist() == [True, False]
    assert reason in rows["reason"].iloc[1]


def test_a_line_names_the_models_that_the_library_lacks(states):
    rows = fastflow.validate(
        states({}, {"model": "no/a-3B"}, {"model": "no/b-3B"}, {"model": "no/a-3B"})
    ).rows
    line = "skipped, for 2 models that the library lacks: no/a-3B, no/b-3B"
    assert line in rows.attrs["fastflow.said"]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"avg_batch": "-3"}, "avg_batch=-3 (from states.csv, line 3) is invalid: expected a mean above 0"),
        ({"osl_mean": "long"}, "osl_mean=long (from states.csv, line 3) is invalid: expected a mean above 0"),
        ({"tp": "1.5"}, "tp=1.5 (from states.csv, line 3) is invalid: expected a whole number"),
        ({"tpot_median_s": "0"}, "tpot_median_s=0 (from states.csv, line 3) is invalid: expected a time"),
        (
            {"energy_per_token_J": "-1"},
            "energy_per_token_J=-1 (from states.csv, line 3) is invalid: expected",
        ),
        ({"power_per_device_W": "x"}, "power_per_device_W=x (from states.csv, line 3) is invalid: expected"),
    ],
)
def test_a_wrong_cell_is_refused_in_one_line(cli, states, tmp_path, changed, says):
    code, _, err = cli(main, states({}, changed), "output=here")
    assert (code, len(err)) == (2, 1)
    assert says in err[0]
    assert not (tmp_path / "here").exists()


def test_rows_may_lack_a_quantity(states):
    found = fastflow.validate(states({}, {"energy_per_token_J": ""}))
    assert found.rows["measured_J"].isna().tolist() == [False, True]
    assert errors_of(found.errors, ENERGY)["rows"].iloc[0] == 1
    assert errors_of(found.errors, POWER)["rows"].iloc[0] == 2


@pytest.mark.long
def test_all_rows_of_known_models_are_predicted():
    rows = fastflow.validate(f"measurements={whole('energy_served')}").rows
    assert len(rows) == 588
    lacking = rows["reason"].str.startswith("model=") & rows["reason"].str.contains("is unknown")
    assert (rows["predicted_s"].notna() | lacking).all()
    known = rows[~lacking]
    assert len(known) >= 287
    assert np.isfinite(known[["error", "error_W", "error_J"]].to_numpy()).all()
