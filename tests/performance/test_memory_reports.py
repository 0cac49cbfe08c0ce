"""Public reports of memory against predictions: of training, and the room for caches of servers."""

import numpy as np
import pytest

import fastflow
from tests.support.memory_reports import DENSE_SERVERS, MIXTURE_SERVERS, OFFLOADED, TRAINING, WEIGHTS


def error(report):
    row = fastflow.evaluate(*report.overrides).iloc[0]
    assert row["reason"] == "", report.title
    predicted = row[report.column] / (row[report.per] if report.per else report.unit)
    return predicted / report.measured - 1.0


@pytest.mark.parametrize(
    ("reports", "mean", "most"),
    [
        (DENSE_SERVERS, 0.01, 0.05), (MIXTURE_SERVERS, 0.04, 0.08), (WEIGHTS, 0.05, 0.05),
        (OFFLOADED, 0.05, 0.06),
    ],
    ids=["dense servers", "servers of mixtures", "weights", "offloaded"],
)  # fmt: skip
def test_the_memory_is_that_of_the_logs(reports, mean, most):
    errors = np.array([error(report) for report in reports])
    assert np.abs(errors).max() <= most, errors.round(3)
    assert np.abs(errors).mean() <= mean, errors.round(3)


@pytest.mark.parametrize(
    ("column", "mean", "most"), [("allocated_B", 0.025, 0.06), ("reserved_B", 0.04, 0.10)]
)
def test_training_takes_the_memory_of_the_reports(column, mean, most):
    errors = np.array([error(report) for report in TRAINING if report.column == column])
    assert np.abs(errors).max() <= most, errors.round(3)
    assert np.abs(errors).mean() <= mean, errors.round(3)


def test_what_runs_fits():
    """DeepSeek-V3 on 256 GB300, in fp8 with a scale for 32 numbers (NVIDIA's published runs)."""
    run = (
        "model=deepseek_v3", "system=gb300_nvl72", "system.devices=256", "framework=nemo",
        "parallel.strategy=TP-1-e32-d128-p2x8", "parallel.microbatch=1", "model.batch=15360",
        "parallel.pipeline_partition=balanced",
    )  # fmt: skip
    assert fastflow.evaluate(*run).iloc[0]["feasible"]
    whole, without = fastflow.evaluate(*run, "precision.fp8_param_gather=auto,false").to_dict("records")
    assert without["weight_B"] > 1.7 * whole["weight_B"]


def test_what_does_not_fit_does_not_run():
    row = fastflow.evaluate(
        "model=llama2_70b", "system=dgx_a100", "system.devices=8", "framework=megatron_core",
        "parallel.strategy=TP-8", "model.batch=8",
    ).iloc[0]  # fmt: skip
    assert not row["feasible"]
