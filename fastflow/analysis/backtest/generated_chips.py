"""Chips that exist, beside what the generator makes of their budgets alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from fastflow.analysis.backtest.options import Asked
from fastflow.config.composer import Composer
from fastflow.engine.dataset.schema import frame_of
from fastflow.engine.grid.plan import plan
from fastflow.engine.grid.run import explaining
from fastflow.engine.run.execute import collect

SCALINGS = ("paper", "foundry")
"""Under which every chip is generated."""
QUANTITIES = (
    "mcus", "core_Hz", "l2_B", "l2_Bps", "l1_B", "l1_Bps", "l0_B", "l0_Bps", "dram_capacity_B", "dram_Bps",
)  # fmt: skip
RATE, LINK = "rate", "link_Bps"
"""The quantities that have a column for each data type, and one of their own."""
_ANY = ("model=gemm", "system.devices=1", "parallel.strategy=d1")
_LINK_BUDGETS = ("area", "power", "perimeter")


def evaluated(composer: Composer, overrides: Iterable[str]) -> pd.DataFrame:
    """Predict the points that overrides span; raises InputError."""
    run = plan(composer, tuple(overrides))
    with explaining(composer, run):
        return frame_of(*collect(run))


def leaves_of(composer: Composer, overrides: Iterable[str]) -> Mapping[str, Any]:
    """Return the leaves of a configuration."""
    return composer.compose(tuple(overrides)).leaves


def pinned(asked: Asked, chip: str) -> tuple[str, ...]:
    """Return the overrides of a chip as it is."""
    return (*asked.overrides, f"chip={chip}")


def budgeted(composer: Composer, asked: Asked, chip: str, scaling: str) -> tuple[str, ...]:
    """Return the overrides of a chip that its budgets alone make, with the links that it was bought with.

    A chip file's budgets for links off the package are those of the links to its neighbours, which are
    networks within a package here.
    """
    net, own = asked.chips[chip], leaves_of(composer, (*asked.overrides, f"chip={chip}"))
    moved = () if net.endswith("_x8") else _LINK_BUDGETS
    return (
        *asked.overrides, f"chip={chip}", "pins=none", f"scaling={scaling}", f"net={net}",
        *(f"chip.{budget}.intra={own[f'chip.{budget}.inter']}" for budget in moved),
        *(f"chip.{budget}.inter=0" for budget in moved),
    )  # fmt: skip


def types_of(composer: Composer, overrides: Sequence[str]) -> list[str]:
    """Return the data types that a chip computes in."""
    start = "chip.rate."
    leaves = leaves_of(composer, overrides)
    rates = {key.removeprefix(start): rate for key, rate in leaves.items() if key.startswith(start)}
    return [name for name, rate in rates.items() if rate]


def _quantities(composer: Composer, overrides: Sequence[str], link: str) -> dict[str, float]:
    """Return what a chip is: its quantities, and its tensor rate in every data type."""
    types = types_of(composer, overrides)
    rows = evaluated(composer, (*overrides, *_ANY, f"model.dtype={','.join(types)}"))
    found = {name: float(rows[name].iloc[0]) for name in QUANTITIES}
    found[LINK] = float(rows[link].iloc[0])
    return found | {
        f"{RATE}.{name}": float(flops)
        for name, flops in zip(types, rows["compute_flops"].tolist(), strict=True)
    }


def beside(composer: Composer, asked: Asked) -> pd.DataFrame:
    """Return every chip as it is and as its budgets make it: a row for a quantity, chip and scaling."""
    rows = []
    for chip, net in asked.chips.items():
        real = _quantities(composer, pinned(asked, chip), "inter_Bps")
        link = "inter_Bps" if net.endswith("_x8") else "intra_Bps"
        for scaling in SCALINGS:
            made = _quantities(composer, budgeted(composer, asked, chip, scaling), link)
            rows += [
                {
                    "chip": chip, "scaling": scaling, "quantity": name, "real": value,
                    "generated": made[name], "difference": made[name] / value - 1.0 if value else None,
                }
                for name, value in real.items()
                if not (name == LINK and net.endswith("_x8"))
            ]  # fmt: skip
    return pd.DataFrame(rows)
