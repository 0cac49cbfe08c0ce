"""What a generation of chips gains over the one before it: real, generated, and as foreseen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pandas as pd

from fastflow.analysis.backtest.generated_chips import SCALINGS, budgeted, evaluated, leaves_of, pinned
from fastflow.analysis.backtest.options import Asked
from fastflow.config.composer import Composer

WORKLOADS = {
    "large product": ("model=gemm", "model.m=8192", "model.n=8192", "model.k=8192"),
    "thin product": ("model=gemm", "model.m=16", "model.n=8192", "model.k=8192"),
    "training": ("model=gpt_1_7b", "model.batch=8", "parallel.strategy=d1"),
    "prefill": ("model=llama3_8b", "serve=prefill", "serve.isl=2048", "serve.concurrency=4"),
    "decode": ("model=llama3_8b", "serve=decode", "serve.isl=2048", "serve.concurrency=32"),
}  # fmt: skip
"""Work of one device, in a data type that all chips have."""
_ALONE = ("system.devices=1", "model.dtype=fp16")
REAL, FORESIGHT = "real", "foresight"
WAYS = (REAL, *SCALINGS, FORESIGHT)
"""How a chip comes to be: as it is, from its budgets by either scaling, from what was known before it."""
_ON_CHIP = ("core", "l2", "l1", "l0")
_BOUGHT = ("dram", "inter")


def foresight(composer: Composer, asked: Asked, chip: str) -> tuple[str, ...]:
    """Return the overrides of a chip as those who knew the chips before it would have made it.

    A known chip is generated from its own budgets. Another has its own node, die, power and package, and the
    memory and links that it was bought with; all else is the last known chip's: the size of a bundle, the
    split of the die, and of the power that memory and links leave.
    """
    shares = (
        f"tech.core.shared_area={asked.shared_area}",
        f"tech.core.shared_power={asked.shared_power}",
    )
    if chip in asked.known:
        return (*budgeted(composer, asked, chip, "foundry"), *shares)
    last = asked.known[-1]
    own = leaves_of(composer, (*asked.overrides, f"chip={chip}"))
    model = leaves_of(composer, (*asked.overrides, f"chip={last}"))
    choices = composer.compose((*asked.overrides, f"chip={chip}")).choices
    left = (1.0 - sum(float(own[f"chip.power.{part}"]) for part in _BOUGHT)) / (
        1.0 - sum(float(model[f"chip.power.{part}"]) for part in _BOUGHT)
    )
    net = asked.chips[chip]
    return (
        *asked.overrides, f"chip={last}", "pins=none", "scaling=foundry", f"net={net}",
        f"tech={choices['tech']}", f"mem={choices['mem']}", *shares,
        *(f"chip.{key}={own[f'chip.{key}']}" for key in ("die_area", "node_area", "tdp")),
        f"chip.area.dram={own['chip.area.dram']}", f"chip.power.dram={own['chip.power.dram']}",
        *(f"chip.{budget}.intra={own[f'chip.{budget}.inter']}" for budget in ("area", "power", "perimeter")),
        *(f"chip.{budget}.inter=0" for budget in ("area", "power", "perimeter")),
        *(f"chip.power.{part}={float(model[f'chip.power.{part}']) * left}" for part in _ON_CHIP),
    )  # fmt: skip


def overrides_of(composer: Composer, asked: Asked, chip: str, way: str) -> tuple[str, ...]:
    """Return the overrides of a chip that comes to be in one of `WAYS`."""
    if way == REAL:
        return pinned(asked, chip)
    if way == FORESIGHT:
        return foresight(composer, asked, chip)
    return budgeted(composer, asked, chip, way)


def _time(composer: Composer, overrides: Sequence[str], workload: Sequence[str]) -> float:
    """Return how long a workload takes on a chip [s]: of servers, one pass."""
    row = evaluated(composer, (*overrides, *_ALONE, *workload)).iloc[0]
    for name in ("tpot_s", "ttft_s"):
        if any("serve=" in text for text in workload) and name in row and row[name] == row[name]:
            return float(row[name])
    return float(row["time_s"])


def gains(composer: Composer, asked: Asked) -> pd.DataFrame:
    """Return what every generation gains: a row for a workload and a pair of chips, a column for a way."""
    return pd.DataFrame(_rows(composer, asked))


def _rows(composer: Composer, asked: Asked) -> Iterator[dict[str, object]]:
    times = {
        (way, chip, name): _time(composer, overrides_of(composer, asked, chip, way), workload)
        for way in WAYS
        for chip in asked.generations
        for name, workload in WORKLOADS.items()
    }
    for name in WORKLOADS:
        for before, after in pairwise(asked.generations):
            yield {
                "workload": name,
                "before": before,
                "after": after,
                **{f"{way}_gain": times[way, before, name] / times[way, after, name] for way in WAYS},
            }
