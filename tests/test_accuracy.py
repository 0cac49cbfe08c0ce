"""Errors against measurements of real hardware, held where they are (docs/validation.md).

The files lie beside the project, not in it; without them these tests are skipped.
"""

from pathlib import Path

import pytest

import fastflow

FOLDER = Path(__file__).parents[2] / "shared" / "measurements"
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"no measurements in {FOLDER}: errors against real hardware are not tested"
)


def rows_of(name, *overrides):
    return fastflow.validate(f"measurements={FOLDER / name}.csv", *overrides).rows


def test_products_of_language_models_on_a100():
    found = fastflow.validate(f"measurements={FOLDER / 'gemm_a100_fp16.csv'}", "chip=a100")
    every = found.errors.iloc[0]
    assert every["mean_error"] <= 0.060
    assert every["log_correlation"] >= 0.998


def test_training_products_on_v100():
    error = rows_of("gemm_v100_deepbench", "chip=v100_sxm").groupby("dtype")["error"].mean()
    assert error["fp16"] <= 0.105
    assert error["fp32"] <= 0.075


@pytest.mark.parametrize(
    ("name", "chip", "most"),
    [
        ("gemm_v100_fp32", "v100_pcie", 0.099),
        ("gemm_p100_fp32", "p100", 0.080),
        ("gemm_a100_40_fp32", "a100_pcie_40", 0.090),
    ],
)
def test_products_of_odd_shapes(name, chip, most):
    """All of them take more than twice the time of the smallest call."""
    assert rows_of(name, f"chip={chip}")["error"].mean() <= most


def test_recurrent_layers_on_v100():
    rows = rows_of("rnn_v100_fp32", "chip=v100_sxm")
    forward = rows["part"] == "forward"
    assert rows[forward]["error"].mean() <= 0.115
    assert rows[~forward]["error"].mean() <= 0.150


def test_operators_on_both_devices():
    chips = {"A100-PCIe-40GB": "a100_pcie_40", "V100-PCIe-32GB": "v100_pcie"}
    parts = [
        rows_of("ops_v100_a100_fp32", f"chip={chip}", f"device={name}")["error"]
        for name, chip in chips.items()
    ]
    assert [len(part) for part in parts] == [1999, 1901]
    assert sum(part.sum() for part in parts) / sum(map(len, parts)) <= 0.080


def test_all_reduces_of_a_node():
    assert rows_of("allreduce_a100", "system=dgx_a100")["error"].mean() <= 0.065


@pytest.mark.parametrize(
    ("name", "chip", "own"),
    [("gemm_v100_fp32", "v100_sxm", "v100_pcie"), ("gemm_a100_40_fp32", "a100_sxm_40", "a100_pcie_40")],
)
def test_the_board_that_was_measured_is_nearer_than_its_relative(name, chip, own):
    """What differs between boards of one die, clock and power, is seen."""
    errors = [rows_of(name, f"chip={which}")["error"].mean() for which in (chip, own)]
    assert errors[1] < errors[0]
