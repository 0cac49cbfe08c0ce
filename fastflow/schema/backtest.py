"""The registry of the columns of a back-test."""

from __future__ import annotations

from fastflow.core.field import Column, text

_SCENARIOS = {
    "real": "real chips",
    "paper": "chips that are generated from their budgets, scaled by the paper's rule",
    "foundry": "chips that are generated from their budgets, scaled by foundries' figures",
    "foresight": "chips that are extrapolated from the older chips only",
}

BACKTEST: tuple[Column, ...] = (
    text("scaling", "how the generated chip's node is scaled"),
    text("quantity", "quantity that is compared: an amount, or the rate in a data type"),
    Column("real", "float", "", "value of the real chip, in SI units"),
    Column("generated", "float", "", "value of the chip that is generated from its budgets, in SI units"),
    Column("difference", "float", "", "generated over real, less 1"),
    text("workload", "workload that is timed"),
    text("before", "older chip of the two that the gain compares"),
    text("after", "newer chip of the two that the gain compares"),
    Column(
        "measured_gain",
        "float",
        "",
        "measured time of the older chip over that of the newer, geometric mean of rows of equal shape",
    ),
    *(
        Column(
            f"{scenario}_gain",
            "float",
            "",
            f"predicted time of the older chip over that of the newer: {meaning}",
        )
        for scenario, meaning in _SCENARIOS.items()
    ),
    text("file", "file of measurements"),
    *(
        Column(f"{scenario}_error", "float", "", f"mean relative error of predictions for {meaning}")
        for scenario, meaning in _SCENARIOS.items()
        if scenario != "foresight"
    ),
)
