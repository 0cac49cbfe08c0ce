"""Chips that exist, compared with chips generated from their budgets alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from fastflow.analysis.backtest.options import BacktestOptions
from fastflow.config.composer import Composer
from fastflow.engine.dataset.schema import frame_of, schema_of
from fastflow.engine.grid.plan import plan
from fastflow.engine.grid.run import naming_errors
from fastflow.engine.run.chunks import rows

SCALINGS = ("paper", "foundry")
"""Scaling models under which every chip is generated."""
QUANTITIES = (
    "mcus", "core_Hz", "l2_B", "l2_Bps", "l1_B", "l1_Bps", "l0_B", "l0_Bps", "dram_capacity_B", "dram_Bps",
    "idle_W", "full_W",
)  # fmt: skip
RATE, LINK = "rate", "link_Bps"
"""The quantity with a column for each data type, and the quantity of links."""
_ANY_WORKLOAD = ("model=gemm", "system.devices=1", "parallel.strategy=d1")
_LINK_BUDGETS = ("area", "power", "perimeter")


def predict_frame(composer: Composer, overrides: Iterable[str]) -> pd.DataFrame:
    """Predict the grid of some overrides, as a frame; raises InputError."""
    run = plan(composer, tuple(overrides))
    grid = run.grid._replace(no_effect="")  # nobody reads which keys have none
    with naming_errors(composer, run):
        return frame_of([rows(grid, 0, grid.points)], schema_of(grid))


def leaves_of(composer: Composer, overrides: Iterable[str]) -> Mapping[str, Any]:
    """Return the leaves of a configuration."""
    return composer.compose(tuple(overrides)).leaves


def real_overrides(options: BacktestOptions, chip: str) -> tuple[str, ...]:
    """Return the overrides of a chip as it is in the library."""
    return (*options.overrides, f"chip={chip}")


def generated_overrides(
    composer: Composer, options: BacktestOptions, chip: str, scaling: str
) -> tuple[str, ...]:
    """Return the overrides of a chip generated from its budgets alone, with the links of the real chip.

    A chip file's budgets for links off the package are those of the links to its neighbours, which are
    networks within a package here.
    """
    net, leaves = options.chips[chip], leaves_of(composer, (*options.overrides, f"chip={chip}"))
    moved_budgets = () if net.endswith("_x8") else _LINK_BUDGETS
    return (
        *options.overrides, f"chip={chip}", "calibration=none", f"scaling={scaling}", f"net={net}",
        *(f"chip.{budget}.intra={leaves[f'chip.{budget}.inter']}" for budget in moved_budgets),
        *(f"chip.{budget}.inter=0" for budget in moved_budgets),
    )  # fmt: skip


def types_of(composer: Composer, overrides: Sequence[str]) -> list[str]:
    """Return the data types that a chip computes in."""
    start = "chip.rate."
    leaves = leaves_of(composer, overrides)
    rates = {key.removeprefix(start): rate for key, rate in leaves.items() if key.startswith(start)}
    return [name for name, rate in rates.items() if rate]


def _quantities(composer: Composer, overrides: Sequence[str], link: str) -> dict[str, float]:
    """Return the quantities of a chip, and its tensor rate in every data type."""
    types = types_of(composer, overrides)
    frame = predict_frame(composer, (*overrides, *_ANY_WORKLOAD, f"model.dtype={','.join(types)}"))
    quantities = {name: float(frame[name].iloc[0]) for name in QUANTITIES}
    quantities[LINK] = float(frame[link].iloc[0])
    return quantities | {
        f"{RATE}.{name}": float(flops)
        for name, flops in zip(types, frame["compute_flops"].tolist(), strict=True)
    }


def compare_chips(composer: Composer, options: BacktestOptions) -> pd.DataFrame:
    """Return real and generated quantities: a row for each quantity, chip and scaling."""
    compared = []
    for chip, net in options.chips.items():
        real = _quantities(composer, real_overrides(options, chip), "inter_Bps")
        link = "inter_Bps" if net.endswith("_x8") else "intra_Bps"
        for scaling in SCALINGS:
            generated = _quantities(composer, generated_overrides(composer, options, chip, scaling), link)
            compared += [
                {
                    "chip": chip, "scaling": scaling, "quantity": name, "real": value,
                    "generated": generated[name],
                    "difference": generated[name] / value - 1.0 if value else None,
                }
                for name, value in real.items()
                if not (name == LINK and net.endswith("_x8"))
            ]  # fmt: skip
    return pd.DataFrame(compared)
