"""The registry of the columns of a back-test."""

from __future__ import annotations

from fastflow.core.field import Column, text

_SCENARIOS = {
    "real": "of the chips as they are",
    "paper": "of chips that budgets make, scaled by the paper's rule",
    "foundry": "of chips that budgets make, scaled by foundries' figures",
    "foresight": "of chips as the known ones would have been scaled",
}

BACKTEST: tuple[Column, ...] = (
    text("scaling", "how the generated chip's node is scaled"),
    text("quantity", "what is compared: an amount, or rate and a data type"),
    Column("real", "float", "", "of the real chip, in SI units"),
    Column("generated", "float", "", "of the chip that budgets make, in SI units"),
    Column("difference", "float", "", "generated over real, less 1"),
    text("workload", "what is timed"),
    text("before", "chip that the gain is over"),
    text("after", "chip whose gain it is"),
    Column("measured_gain", "float", "", "time measured before over after, geometric mean of rows alike"),
    *(
        Column(f"{scenario}_gain", "float", "", f"predicted time before over after, {meaning}")
        for scenario, meaning in _SCENARIOS.items()
    ),
    text("file", "file of measurements"),
    *(
        Column(f"{scenario}_error", "float", "", f"mean relative error {meaning}")
        for scenario, meaning in _SCENARIOS.items()
        if scenario != "foresight"
    ),
)
