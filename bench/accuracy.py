"""What parts of a model gain, in mean relative error (docs/validation.md): of kernel libraries and of NCCL.

Of Blackwell there are no measurements: what its parts change is printed in microseconds.

python bench/accuracy.py FOLDER      # of measurements, tests/analysis/validation/test_accuracy.py names them
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

import fastflow
from fastflow.analysis.measurements.kinds.attention import Attentions
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.physics.timing.moe import layer
from fastflow.physics.workload.graph import Attributes
from fastflow.physics.workload.ops import grouped_gemm, kv_cache

TILES = (
    "16x64 64x16 16x128 128x16 32x32 32x64 64x32 32x128 128x32 64x64 128x64 64x128 256x64 64x256 128x128 "
    "256x128 128x256"
)
FILES = {  # column: file, overrides, and a column of the file that must be so
    "A100 fp16": ("gemm_a100_fp16", ("chip=a100",), {}),
    "A100 bf16": ("gemm_a100_llm", ("chip=a100",), {}),
    "H100 bf16": ("gemm_h100_llm", ("chip=h100_sxm",), {"dtype": "bf16"}),
    "H100 fp8": ("gemm_h100_llm", ("chip=h100_sxm",), {"dtype": "fp8"}),
    "H100 fp8_block": ("gemm_h100_llm", ("chip=h100_sxm",), {"dtype": "fp8_block"}),
    "V100 fp16": ("gemm_v100_deepbench", ("chip=v100_sxm",), {"dtype": "fp16"}),
    "V100 fp32": ("gemm_v100_deepbench", ("chip=v100_sxm",), {"dtype": "fp32"}),
    "V100 PCIe fp32": ("gemm_v100_fp32", ("chip=v100_pcie",), {}),
    "P100 fp32": ("gemm_p100_fp32", ("chip=p100",), {}),
    "A100 PCIe fp32": ("gemm_a100_40_fp32", ("chip=a100_pcie_40",), {}),
    "operators A100": ("ops_v100_a100_fp32", ("chip=a100_pcie_40", "device=A100-PCIe-40GB"), {}),
    "operators V100": ("ops_v100_a100_fp32", ("chip=v100_pcie", "device=V100-PCIe-32GB"), {}),
}
WITHOUT = {
    "the whole model": (),
    "plain maximum of the resources' times, not the soft maximum": ("tiling.soft_max_order=0",),
    "no split of the inner dimension (split-K)": ("tiling.max_split_k=1",),
    "split-K of at most 8 parts": ("tiling.max_split_k=8",),
    "no least time of a block's step": ("chip.step_latency=0 s",),
    "operands read through registers, not from L1": ("chip.blocks.operands=registers",),
    "no clusters of blocks": ("chip.blocks.cluster=1",),
    "persistent kernels on all chips": ("chip.blocks.persistent=true",),
    "no kernels for vectors (m or n of 1)": ("chip.blocks.matrix='TILES OF MATRICES'",),
    "matrix units draw the power of vector lanes": ("chip.matrix_power=1",),
    "one L2, not two partitions": ("chip.memory.l2.partitions=1",),
    "the same list of block sizes on all chips": tuple(
        f"chip.blocks.{kind}='{TILES}'" for kind in ("matrix", "vector", "batched_vector")
    ),
    "always the highest clock, no power limit": ("~chip.pinned.boost_W",),
    "no cost of strided operands": ("chip.strided.cost=0", "chip.strided.miss=0"),
    "no latency of the memories": (
        "mem.latency=0 s",
        *(f"tech.memory.{kind}.latency=0 s" for kind in ("cache", "scratchpad", "registers")),
    ),
    "no launch overhead": ("chip.launch_overhead=0 s",),
    "no overhead of framework calls": ("chip.call_overhead=0 s",),
    "L1 and L2 at their peak bandwidths": ("chip.memory.l1.utilization=1", "chip.memory.l2.utilization=1"),
    "searched tiles (paper, section 6.2), not a library's blocks": ("tiling=divisors",),
}
COLLECTIVES = {  # column: file, and the least size
    "A100, all sizes": ("collectives_a100", 0),
    "A100, from 64 KiB": ("collectives_a100", 65536),
    "H100, all sizes": ("collectives_h100", 0),
    "H100, from 64 KiB": ("collectives_h100", 65536),
    "A100, all-reduces of another source": ("allreduce_a100", 0),
}
_NO_LL = ("net.library.block=1e12", "net.library.fill=1e3 s")  # what takes so long is not chosen
_NO_LL128, _NO_SIMPLE = ("net.intra.ll128_step=1 s",), ("net.intra.simple_step=1 s",)
WITHOUT_IN_COLLECTIVES = {
    "the whole model": (),
    "no protocol LL": _NO_LL,
    "no protocol LL128": _NO_LL128,
    "no protocol Simple": _NO_SIMPLE,
    "protocol Simple alone": (*_NO_LL, *_NO_LL128),
    "the same launch overhead for all protocols": (
        "net.library.ll128=1",
        "net.library.simple=1",
        "net.library.send_simple=1",
    ),
    "direct sends have the launch overhead of rings": ("net.library.send=1",),
    "a full block of threads is as fast as a warp": ("net.library.block=0",),
    "a full channel is as fast as an empty one": ("net.library.fill=0 s",),
    "no latency for each peer of a direct send": ("net.library.peer=0",),
    "no sums in the switch (NVLS)": ("net.library.reduce=0",),
    "the full rate of the links": ("net.intra.utilization=1",),
    "the paper's algorithms, not NCCL's": ("system.library=none",),
    "the paper's rings, not NCCL's algorithms": ("system.library=none", "system.collective=ring"),
}


BLACKWELL = {  # column: m, n, k and data type of a product on a B200, its A quantised before
    "16 x 8192 x 8192 bf16": (16, 8192, 8192, "bf16"),
    "256 x 8192 x 8192 bf16": (256, 8192, 8192, "bf16"),
    "300 x 6144 x 4096 bf16": (300, 6144, 4096, "bf16"),
    "8192 x 8192 x 8192 bf16": (8192, 8192, 8192, "bf16"),
    "8192 x 8192 x 8192 nvfp4": (8192, 8192, 8192, "nvfp4"),
    "256 x 8192 x 8192 fp8_block": (256, 8192, 8192, "fp8_block"),
    "8192 x 8192 x 8192 fp8_block": (8192, 8192, 8192, "fp8_block"),
}
_PARTS_OF_BLACKWELL = {
    "each SM multiplies a tile of its own": "chip.blocks.pair=1",
    "a tile's sums leave before the next tile starts": "chip.blocks.persistent=false",
    "vector lanes scale the sums, not matrix units": "chip.blocks.scales=lanes",
}
WITHOUT_IN_BLACKWELL = {
    "the whole model": (),
    **{what: (text,) for what, text in _PARTS_OF_BLACKWELL.items()},
    "all three changes": tuple(_PARTS_OF_BLACKWELL.values()),
}


def _even(*mixture: Any) -> Attributes:
    """Return what kernels want to know of a mixture whose loads are even."""
    return _MIXTURE(*mixture[:4], 0.0)


_MIXTURE = grouped_gemm.mixture
_NO_TRIPS = (
    "mem.latency=0 s",
    *(f"tech.memory.{kind}.latency=0 s" for kind in ("cache", "scratchpad", "registers")),
)
ATTENTION = {  # column: file, chip
    "attention, A100": ("attention_a100", "a100"),
    "attention, H100": ("attention_h100", "h100_sxm"),
    "latent attention, A100": ("mla_a100", "a100"),
    "latent attention, H100": ("mla_h100", "h100_sxm"),
}
EXPERTS = {  # column: file, chip, data type
    "A100 bf16": ("moe_a100", "a100", "bf16"),
    "H100 bf16": ("moe_h100", "h100_sxm", "bf16"),
    "H100 fp8": ("moe_h100", "h100_sxm", "fp8"),
    "H100 fp8_block": ("moe_h100", "h100_sxm", "fp8_block"),
}
# Overrides, and what a module has instead: module, name, value
Switch = tuple[tuple[str, ...], tuple[tuple[Any, str, Any], ...]]
WITHOUT_IN_PREFILL: dict[str, Switch] = {
    "the whole model": ((), ()),
    "products in bf16 where the cache is fp8": (("precision.attention=bf16",), ()),
    "no latency of the memories": (_NO_TRIPS, ()),
    "no launch overhead": (("chip.launch_overhead=0 s",), ()),
}
WITHOUT_IN_DECODE: dict[str, Switch] = {
    "the whole model": ((), ()),
    "values stored apart from the keys": ((), ((Attentions, "bytes_moved", lambda *_: 0.0),)),
    "no separate kernel for rotary embedding": (
        (),
        ((kv_cache, "fuses_rotary", lambda _, work: np.ones(work.point.size, np.bool_)),),
    ),
    "no least time of a block's step": (("chip.step_latency=0 s",), ()),
    "no latency of the memories": (_NO_TRIPS, ()),
    "no launch overhead": (("chip.launch_overhead=0 s",), ()),
}
WITHOUT_IN_EXPERTS: dict[str, Switch] = {
    "the whole model": ((), ()),
    "all experts have equal loads": ((), ((grouped_gemm, "mixture", _even),)),
    "passes over rows at the achievable bandwidth": ((), ((layer, "PASS", 1.0),)),
    "no latency of the memories in top-k": ((), ((layer, "TOPK_TRIPS", 0.0),)),
    "no operations that scale blocks of 128": ((), ((layer, "SCALE", 0.0),)),
    "no latency of the memories in prefix sums": ((), ((layer, "SUM_TRIPS", 0.0),)),
    "no latency of the memories": (_NO_TRIPS, ()),
    "no launch overhead": (("chip.launch_overhead=0 s",), ()),
}


def _error_of_layers(path: Path, chip: str, where: dict[str, str], switch: Switch) -> float:
    """Return the error of attention or expert layers."""
    overrides, patches = switch
    with ExitStack() as stack:
        for module, name, value in patches:
            stack.enter_context(patch.object(module, name, value))
        rows = fastflow.validate(f"measurements={path}", f"chip={chip}", *overrides).rows
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return float(rows["error"].mean())


def _roofline_of_layers(path: Path, chip: str, where: dict[str, str]) -> float:
    """Return the error of the largest of operations and bytes, each at its peak: each tensor moves once."""
    frame = pd.read_csv(path)
    for column, value in where.items():
        frame = frame[frame[column] == value]
    of_types = {
        dtype: fastflow.evaluate("model=gemm", f"chip={chip}", f"model.dtype={dtype}").iloc[0]
        for dtype in frame["dtype"].unique()
    }
    peak = frame["dtype"].map({dtype: one["compute_flops"] for dtype, one in of_types.items()})
    bandwidth = next(iter(of_types.values()))["dram_Bps"]
    flop, moved = _work_of_experts(frame) if "tokens" in frame else _work_of_attention(frame)
    return float(np.mean(np.abs(np.maximum(flop / peak, moved / bandwidth) / frame["time_s"] - 1.0)))


def _work_of_experts(frame: pd.DataFrame) -> tuple[Any, Any]:
    """Return operations, and bytes: weights of experts with tokens, and rows in bf16 before and after."""
    choices, weights = frame["tokens"] * frame["topk"], 3 * frame["hidden"] * frame["ffn"] / frame["tp"]
    reached = np.minimum(choices, frame["experts"]) / frame["ep"]
    size = frame["dtype"].map({"bf16": 2, "fp8": 1, "fp8_block": 1})
    rows = 4 * frame["tokens"] * frame["hidden"] / frame["ep"]
    return 2 * weights * choices / frame["ep"], reached * weights * size + rows


def _work_of_attention(frame: pd.DataFrame) -> tuple[Any, Any]:
    """Return operations of causal attention, and bytes of queries, keys, values and outputs."""
    if "kv_heads" in frame:
        d, dv = frame["head_dim"], frame["head_dim"]
        kept, window = 2 * d * frame["kv_heads"], frame["window"].where(frame["window"] > 0, frame["kv_len"])
    else:  # expanded in prefill, else absorbed: values are columns of the keys
        few, window = frame["phase"] == "decode", frame["kv_len"]
        d, dv = np.where(few, 576, 192), np.where(few, 512, 128)
        kept = np.where(few, 576, (192 + 128) * frame["heads"])
    seen = np.minimum(frame["kv_len"] - (frame["q_len"] - 1) / 2, window)
    queries = frame["batch"] * frame["heads"] * frame["q_len"]
    keys = np.minimum(frame["kv_len"], window + frame["q_len"] - 1)
    size, cache = (frame[column].map({"bf16": 2, "fp8": 1}) for column in ("dtype", "kv_dtype"))
    return 2 * queries * seen * (d + dv), queries * (d + dv) * size + frame["batch"] * keys * kept * cache


def _print_layers(folder: Path, title: str, columns: dict[str, Any], without: dict[str, Switch]) -> None:
    """Print a table of layers; a column's file, chip and rows."""
    print(f"\n| {title} | " + " | ".join(columns) + " |\n|---" + "|---" * len(columns) + "|")
    for what, switch in without.items():
        errors = [
            _error_of_layers(folder / f"{name}.csv", chip, where, switch)
            for name, chip, where in columns.values()
        ]
        print(f"| {what} | " + " | ".join(f"{error:.1%}" for error in errors) + " |", flush=True)
    errors = [
        _roofline_of_layers(folder / f"{name}.csv", chip, where) for name, chip, where in columns.values()
    ]
    print(
        "| plain roofline at the chip's peaks | " + " | ".join(f"{error:.1%}" for error in errors) + " |",
        flush=True,
    )


def print_layers(folder: Path) -> None:
    """Print the tables of attention and of expert layers."""
    for phase, without in (("prefill", WITHOUT_IN_PREFILL), ("decode", WITHOUT_IN_DECODE)):
        columns = {column: (*file, {"phase": phase}) for column, file in ATTENTION.items()}
        _print_layers(folder, phase, columns, without)
    columns = {column: (name, chip, {"dtype": dtype}) for column, (name, chip, dtype) in EXPERTS.items()}
    _print_layers(folder, "expert layers", columns, WITHOUT_IN_EXPERTS)


def _error_of_collectives(folder: Path, name: str, least: float, overrides: tuple[str, ...]) -> float:
    rows = fastflow.validate(f"measurements={folder / name}.csv", *overrides).rows
    return float(rows[rows["bytes"].astype(float) >= least]["error"].mean())


@lru_cache(1)  # data types of one file follow each other
def _validated(folder: Path, name: str, overrides: tuple[str, ...]) -> pd.DataFrame:
    return fastflow.validate(f"measurements={folder / name}.csv", *overrides).rows


def _of_matrices(chip: str) -> str:
    """Return the tiles of a chip's matrix units but those of vectors; chip: the override that chooses it."""
    with hydra_rules():
        tiles = Composer.of_library().compose([chip]).leaves["chip.blocks.matrix"].split()
    return " ".join(tile for tile in tiles if "1" not in tile.split("x"))


def _error(folder: Path, name: str, overrides: tuple[str, ...], where: dict[str, str]) -> float:
    own = _of_matrices(overrides[0])
    overrides = tuple(text.replace("TILES OF MATRICES", own) for text in overrides)
    rows = _validated(folder, name, overrides)
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return float(rows["error"].mean())


def _microseconds(product: tuple[int, int, int, str], overrides: tuple[str, ...]) -> float:
    """Return what a product takes on a B200 [us]."""
    named = zip(("m", "n", "k", "dtype"), product, strict=True)
    sizes = (f"model.{name}={value}" for name, value in named)
    frame = fastflow.evaluate("model=gemm", "chip=b200_sxm", "model.quantized=true", *sizes, *overrides)
    return float(frame["time_s"].iloc[0]) * 1e6


def _roofline(folder: Path, name: str, overrides: tuple[str, ...], where: dict[str, str]) -> float:
    """Return the error of the largest of operations and operands' bytes, each at its peak."""
    frame = pd.read_csv(folder / f"{name}.csv")
    for column, value in where.items():
        frame = frame[frame[column] == value]
    if "m" not in frame:
        frame = frame[frame["device"] == overrides[1].partition("=")[2]]
    of_chip = fastflow.evaluate("model=gemm", overrides[0], f"model.dtype={frame['dtype'].iloc[0]}").iloc[0]
    size = {"fp8": 1, "fp8_block": 1, "bf16": 2, "fp16": 2, "fp32": 4}[frame["dtype"].iloc[0]]
    if "m" in frame:
        frame = frame if "batch" in frame else frame.assign(batch=1)
        m, n, k, batch = (frame[axis].to_numpy(np.float64) for axis in ("m", "n", "k", "batch"))
        flop, moved = 2 * m * n * k * batch, size * batch * (m * k + k * n + m * n)
    else:
        flop, moved = np.zeros(len(frame)), frame["min_bytes"].to_numpy()
    time = np.maximum(flop / of_chip["compute_flops"], moved / of_chip["dram_Bps"])
    return float(np.mean(np.abs(time / frame["time_s"] - 1.0)))


def main() -> None:
    """Print all tables."""
    folder = Path(sys.argv[1])
    print("| | " + " | ".join(FILES) + " |\n|---" + "|---" * len(FILES) + "|")
    for what, without in WITHOUT.items():
        errors = [_error(folder, name, (*of, *without), where) for name, of, where in FILES.values()]
        print(f"| {what} | " + " | ".join(f"{error:.1%}" for error in errors) + " |", flush=True)
    errors = [_roofline(folder, *file) for file in FILES.values()]
    print("| plain roofline at the chip's peaks | " + " | ".join(f"{error:.1%}" for error in errors) + " |")
    print("\n| | " + " | ".join(COLLECTIVES) + " |\n|---" + "|---" * len(COLLECTIVES) + "|")
    for what, without in WITHOUT_IN_COLLECTIVES.items():
        errors = [_error_of_collectives(folder, *file, without) for file in COLLECTIVES.values()]
        print(f"| {what} | " + " | ".join(f"{error:.1%}" for error in errors) + " |", flush=True)
    print("\n| | " + " | ".join(BLACKWELL) + " |\n|---" + "|---" * len(BLACKWELL) + "|")
    for what, without in WITHOUT_IN_BLACKWELL.items():
        times = [_microseconds(product, without) for product in BLACKWELL.values()]
        print(f"| {what} | " + " | ".join(f"{time:.1f}" for time in times) + " |", flush=True)
    print_layers(folder)


if __name__ == "__main__":
    main()
