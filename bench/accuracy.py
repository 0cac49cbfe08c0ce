"""What parts of the model of kernel libraries gain, in mean relative error (docs/validation.md).

python bench/accuracy.py FOLDER     # of measurements: the files that tests/test_accuracy.py names
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import fastflow

TILES = (
    "16x64 64x16 16x128 128x16 32x32 32x64 64x32 32x128 128x32 64x64 128x64 64x128 256x64 64x256 128x128 "
    "256x128 128x256"
)
FILES = {  # column: file, overrides, and a column of the file that must be so
    "A100 fp16": ("gemm_a100_fp16", ("chip=a100",), {}),
    "V100 fp16": ("gemm_v100_deepbench", ("chip=v100_sxm",), {"dtype": "fp16"}),
    "V100 fp32": ("gemm_v100_deepbench", ("chip=v100_sxm",), {"dtype": "fp32"}),
    "V100 PCIe fp32": ("gemm_v100_fp32", ("chip=v100_pcie",), {}),
    "P100 fp32": ("gemm_p100_fp32", ("chip=p100",), {}),
    "A100 PCIe fp32": ("gemm_a100_40_fp32", ("chip=a100_pcie_40",), {}),
    "operators A100": ("ops_v100_a100_fp32", ("chip=a100_pcie_40", "device=A100-PCIe-40GB"), {}),
    "operators V100": ("ops_v100_a100_fp32", ("chip=v100_pcie", "device=V100-PCIe-32GB"), {}),
}
WITHOUT = {
    "as it is": (),
    "plain maximum instead of the soft one": ("tiling.overlap=0",),
    "one part of the inner dimension": ("tiling.parts=1",),
    "one list of blocks for all chips": tuple(
        f"chip.blocks.{kind}='{TILES}'" for kind in ("matrix", "vector", "batched_vector")
    ),
    "the highest clock, whatever the power": ("~chip.pinned.boost_W",),
    "no cost of strided operands": ("chip.strided.cost=0", "chip.strided.miss=0"),
    "no trips through the memories": (
        "mem.latency=0 s",
        *(f"tech.memory.{kind}.latency=0 s" for kind in ("cache", "scratchpad", "registers")),
    ),
    "no launch overhead": ("chip.launch_overhead=0 s",),
    "no overhead of calls": ("chip.call_overhead=0 s",),
    "L1 and L2 at their peaks": ("chip.memory.l1.utilization=1", "chip.memory.l2.utilization=1"),
    "searched tiles, section 6.2": ("tiling=divisors",),
}


def _error(folder: Path, name: str, overrides: tuple[str, ...], where: dict[str, str]) -> float:
    rows = fastflow.validate(f"measurements={folder / name}.csv", *overrides).rows
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return float(rows["error"].mean())


def _roofline(folder: Path, name: str, overrides: tuple[str, ...], where: dict[str, str]) -> float:
    """Return the error of the largest of operations and operands' bytes, each at its peak."""
    frame = pd.read_csv(folder / f"{name}.csv")
    for column, value in where.items():
        frame = frame[frame[column] == value]
    if "m" not in frame:
        frame = frame[frame["device"] == overrides[1].partition("=")[2]]
    of_chip = fastflow.evaluate("model=gemm", overrides[0], f"model.dtype={frame['dtype'].iloc[0]}").iloc[0]
    size = {"fp16": 2, "fp32": 4}[frame["dtype"].iloc[0]]
    if "m" in frame:
        m, n, k, batch = (frame[axis].to_numpy(np.float64) for axis in ("m", "n", "k", "batch"))
        flop, moved = 2 * m * n * k * batch, size * batch * (m * k + k * n + m * n)
    else:
        flop, moved = np.zeros(len(frame)), frame["min_bytes"].to_numpy()
    time = np.maximum(flop / of_chip["compute_flops"], moved / of_chip["dram_Bps"])
    return float(np.mean(np.abs(time / frame["time_s"] - 1.0)))


def main() -> None:
    """Print the table."""
    folder = Path(sys.argv[1])
    print("| | " + " | ".join(FILES) + " |\n|---" + "|---" * len(FILES) + "|")
    for what, without in WITHOUT.items():
        errors = [_error(folder, name, (*of, *without), where) for name, of, where in FILES.values()]
        print(f"| {what} | " + " | ".join(f"{error:.1%}" for error in errors) + " |", flush=True)
    errors = [_roofline(folder, *file) for file in FILES.values()]
    print("| plain roofline of peaks | " + " | ".join(f"{error:.1%}" for error in errors) + " |")


if __name__ == "__main__":
    main()
