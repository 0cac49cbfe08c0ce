"""The registry of the columns of a sensitivity."""

from __future__ import annotations

from fastflow.core.field import Column, text

SENSITIVITY: tuple[Column, ...] = (
    text("figure", "figure of technology, chip or system: its dotted key"),
    Column("figure_value", "float", "", "its value, in the unit"),
    text("unit", "its SI unit"),
    Column("elasticity", "float", "", "relative change of the objective for one of the figure, both ways"),
    Column("left_elasticity", "float", "", "the same for a smaller figure"),
    Column("right_elasticity", "float", "", "the same for a larger figure"),
    text("kink", "why both sides differ: strategy, limiter, whole units, curved, or one side alone"),
    Column("flat", "bool", "", "whether neither side moves the objective, within a thousandth"),
    Column("sobol_first", "float", "", "share of the variance that the figure alone explains"),
    Column("sobol_first_error", "float", "", "half of its 90% interval"),
    Column("sobol_total", "float", "", "share of the variance that the figure takes part in"),
    Column("sobol_total_error", "float", "", "half of its 90% interval"),
)
