"""Gains of a generation of chips over the generation before it: real, generated, and foreseen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pandas as pd

from fastflow.analysis.backtest.generated_chips import (
    SCALINGS,
    generated_overrides,
    leaves_of,
    predict_frame,
    real_overrides,
)
from fastflow.analysis.backtest.options import BacktestOptions
from fastflow.config.composer import Composer

WORKLOADS = {
    "large product": ("model=gemm", "model.m=8192", "model.n=8192", "model.k=8192"),
    "thin product": ("model=gemm", "model.m=16", "model.n=8192", "model.k=8192"),
    "training": ("model=gpt_1_7b", "model.batch=8", "parallel.strategy=d1"),
    "prefill": ("model=llama3_8b", "serve=prefill", "serve.isl=2048", "serve.concurrency=4"),
    "decode": ("model=llama3_8b", "serve=decode", "serve.isl=2048", "serve.concurrency=32"),
}  # fmt: skip
"""Work of one device, in a data type that all chips have."""
_ONE_DEVICE = ("system.devices=1", "model.dtype=fp16")
REAL, FORESIGHT = "real", "foresight"
VARIANTS = (REAL, *SCALINGS, FORESIGHT)
"""Variants of a chip: real, generated from its budgets by either scaling, and foreseen from older chips."""
_ON_CHIP = ("core", "l2", "l1", "l0")
_OFF_CHIP = ("dram", "inter")


def foresight_overrides(composer: Composer, options: BacktestOptions, chip: str) -> tuple[str, ...]:
    """Return the overrides of a chip as designed from the knowledge of older chips alone.

    A known chip is generated from its budgets. An unknown chip keeps its node, die, power, package, memory
    and links; the rest is the last known chip's: the size of a bundle, and the split of the die and of the
    power that memory and links leave.
    """
    shares = (
        f"tech.core.shared_area={options.shared_area}",
        f"tech.core.shared_power={options.shared_power}",
    )
    if chip in options.known:
        return (*generated_overrides(composer, options, chip, "foundry"), *shares)
    last = options.known[-1]
    real = leaves_of(composer, (*options.overrides, f"chip={chip}"))
    template = leaves_of(composer, (*options.overrides, f"chip={last}"))
    choices = composer.compose((*options.overrides, f"chip={chip}")).choices
    power_scale = (1.0 - sum(float(real[f"chip.power.{part}"]) for part in _OFF_CHIP)) / (
        1.0 - sum(float(template[f"chip.power.{part}"]) for part in _OFF_CHIP)
    )
    net = options.chips[chip]
    return (
        *options.overrides, f"chip={last}", "calibration=none", "scaling=foundry", f"net={net}",
        f"tech={choices['tech']}", f"mem={choices['mem']}", *shares,
        *(f"chip.{key}={real[f'chip.{key}']}" for key in ("die_area", "node_area", "tdp")),
        f"chip.area.dram={real['chip.area.dram']}", f"chip.power.dram={real['chip.power.dram']}",
        *(f"chip.{budget}.intra={real[f'chip.{budget}.inter']}" for budget in ("area", "power", "perimeter")),
        *(f"chip.{budget}.inter=0" for budget in ("area", "power", "perimeter")),
        *(f"chip.power.{part}={float(template[f'chip.power.{part}']) * power_scale}" for part in _ON_CHIP),
    )  # fmt: skip


def overrides_of(composer: Composer, options: BacktestOptions, chip: str, variant: str) -> tuple[str, ...]:
    """Return the overrides of a chip in one of `VARIANTS`."""
    if variant == REAL:
        return real_overrides(options, chip)
    if variant == FORESIGHT:
        return foresight_overrides(composer, options, chip)
    return generated_overrides(composer, options, chip, variant)


def _workload_time(composer: Composer, overrides: Sequence[str], workload: Sequence[str]) -> float:
    """Return the time of a workload on a chip [s]: of servers, one pass."""
    row = predict_frame(composer, (*overrides, *_ONE_DEVICE, *workload)).iloc[0]
    for name in ("tpot_s", "ttft_s"):
        if any("serve=" in text for text in workload) and name in row and row[name] == row[name]:
            return float(row[name])
    return float(row["time_s"])


def generation_gains(composer: Composer, options: BacktestOptions) -> pd.DataFrame:
    """Return the gains of every generation: a row a workload and pair of chips, a column a variant."""
    return pd.DataFrame(_rows(composer, options))


def _rows(composer: Composer, options: BacktestOptions) -> Iterator[dict[str, object]]:
    times = {
        (variant, chip, name): _workload_time(
            composer, overrides_of(composer, options, chip, variant), workload
        )
        for variant in VARIANTS
        for chip in options.generations
        for name, workload in WORKLOADS.items()
    }
    for name in WORKLOADS:
        for before, after in pairwise(options.generations):
            yield {
                "workload": name,
                "before": before,
                "after": after,
                **{
                    f"{variant}_gain": times[variant, before, name] / times[variant, after, name]
                    for variant in VARIANTS
                },
            }
