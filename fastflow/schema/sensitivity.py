"""The registry of the columns of a sensitivity."""

from __future__ import annotations

from fastflow.core.field import Column, text

SENSITIVITY: tuple[Column, ...] = (
    text("parameter", "parameter of technology, chip or system: its dotted key"),
    Column("parameter_value", "float", "", "its value, in the unit"),
    text("unit", "its SI unit"),
    Column("elasticity", "float", "", "relative change of the objective for one of the parameter, both ways"),
    Column("elasticity_minus", "float", "", "the same for a smaller parameter"),
    Column("elasticity_plus", "float", "", "the same for a larger parameter"),
    text("nonlinearity", "why both sides differ: strategy, limiter, whole units, curved, or one side alone"),
    Column("insensitive", "bool", "", "whether neither side moves the objective, within a thousandth"),
    Column("sobol_first", "float", "", "share of the variance that the parameter alone explains"),
    Column("sobol_first_error", "float", "", "half of its 90% interval"),
    Column("sobol_total", "float", "", "share of the variance that the parameter takes part in"),
    Column("sobol_total_error", "float", "", "half of its 90% interval"),
)
