"""Energy of training runs as measurements: what a row is taken for, and where its meter is."""

import numpy as np
import pytest

import fastflow
from fastflow.cli.commands.validate import main
from tests.support.checks import near
from tests.support.measured import whole

RUN = {
    "device": "H100-SXM5-80GB", "devices": 16, "benchmark": "bert", "seq": 512, "global_batch": 64,
    "samples": 6400, "run_s": 10, "power_kind": "AC at the wall", "node_power_per_gpu_training_W": 800,
    "energy_MJ": 0.12,
}  # fmt: skip
"""Made up."""


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A function from rows, each what differs from RUN, to the override that names a file of them."""
    monkeypatch.chdir(tmp_path)

    def write(*changed):
        rows = [RUN | one for one in changed or ({},)]
        lines = [list(RUN), *(row.values() for row in rows)]
        (tmp_path / "runs.csv").write_text("\n".join(",".join(map(str, line)) for line in lines) + "\n")
        return "measurements=runs.csv"

    return write


def test_a_row_is_as_many_iterations_as_its_samples_make(runs):
    (row,) = fastflow.validate(runs()).rows.to_dict("records")
    (same,) = fastflow.evaluate(
        "model=bert_large", "system=superpod_h100", "chip=h100_sxm", "system.devices=16",
        "parallel.strategy=TP-1-d16", "model.batch=64", "model.sequence=256", "model.dtype=fp8",
    ).to_dict("records")  # fmt: skip
    assert near(row["predicted_s"], 100 * same["time_s"], 1e-12)
    assert near(row["predicted_W"], same["machine_W"], 1e-12)
    assert near(row["predicted_J"], 100 * same["machine_J"], 1e-12)
    assert (row["measured_W"], row["measured_J"]) == (800.0, 120_000.0)


def test_behind_the_supplies_their_losses_do_not_show(runs):
    plug, behind = fastflow.validate(runs({}, {"power_kind": "DC (after the supplies)"})).rows.to_dict(
        "records"
    )
    for name in ("predicted_W", "predicted_J"):
        assert near(behind[name], 0.978 * plug[name], 1e-12)
    assert behind["predicted_s"] == plug["predicted_s"]


def test_replicas_of_frozen_weights_exchange_nothing(runs):
    lora = {"benchmark": "llama2_70b_lora", "seq": 1024, "global_batch": 4, "samples": 400}
    one, two = fastflow.validate(
        runs(lora | {"devices": 8}, lora | {"devices": 16, "global_batch": 8, "samples": 800})
    ).rows.to_dict("records")
    assert near(two["predicted_s"], one["predicted_s"], 1e-12)
    assert near(two["predicted_J"], 2 * one["predicted_J"], 1e-12)
    (step,) = fastflow.evaluate(
        "model=llama2_70b", "system=superpod_h100", "chip=h100_sxm", "system.devices=4",
        "model.sequence=1024", "parallel.strategy=TP-4", "model.batch=2", "model.dtype=fp8",
    ).to_dict("records")  # fmt: skip
    passes = step["time_s"] - step["update_s"]
    forward = step["microbatches"] * step["forward_s"]
    assert near(one["predicted_s"], 100 * (1.5 * forward + (passes - forward) / 2), 1e-9)


def test_evaluations_take_forward_passes(runs):
    often = ("+training.evaluations.bert=700", "+training.examples.bert=100")
    (row,) = fastflow.validate(runs()).rows.to_dict("records")
    (evaluated,) = fastflow.validate(runs(), *often).rows.to_dict("records")
    forward = row["forward_s"]  # of 64 samples; 9 evaluations of 100
    assert near(evaluated["predicted_s"] - row["predicted_s"], 9 * 2 * forward, 1e-9)
    assert near(
        evaluated["predicted_J"] / row["predicted_J"], evaluated["predicted_s"] / row["predicted_s"], 1e-9
    )


def test_runs_of_adapters_leave_out_their_first_evaluations(runs):
    lora = {"benchmark": "llama2_70b_lora", "seq": 1024, "global_batch": 8, "devices": 16}
    few, more = fastflow.validate(
        runs(lora | {"samples": 3 * 384}, lora | {"samples": 4 * 384})
    ).rows.to_dict("records")
    passes = -(-173 // 8)  # of the one evaluation that is not left out
    forward = few["microbatches"] * few["forward_s"]
    assert near(more["predicted_s"] - few["predicted_s"], few["predicted_s"] / 3 + passes * forward, 1e-9)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"benchmark": "nobody"}, "benchmark=nobody is unknown"),
        ({"samples": 0}, "samples=0"),
        ({"devices": 12, "benchmark": "gpt3"}, "its layout does not divide its devices"),
        ({"energy_MJ": -1}, "energy_MJ=-1"),
        ({"device": "abacus"}, "device=abacus is unknown"),
    ],
)
def test_what_is_wrong_is_one_line(cli, tmp_path, runs, changed, says):
    code, _, err = cli(main, runs(changed), "output=here")
    assert (code, len(err)) == (2, 1)
    assert says in err[0]
    assert not (tmp_path / "here").exists()


def test_all_rows_are_predicted():
    rows = fastflow.validate(f"measurements={whole('energy_training')}").rows
    assert len(rows) == 11
    assert np.isfinite(rows[["error", "error_W", "error_J"]].to_numpy()).all()
    assert rows["error_W"].mean() < 0.12
