"""The registry of the columns of a sensitivity."""

from __future__ import annotations

from fastflow.core.field import Column, text

SENSITIVITY: tuple[Column, ...] = (
    text("parameter", "parameter of technology, chip or system, by its dotted key"),
    Column("parameter_value", "float", "", "value of the parameter, in the unit of the column unit"),
    text("unit", "SI unit of the parameter"),
    Column(
        "elasticity",
        "float",
        "",
        "relative change of the objective over the relative change of the parameter, from both directions",
    ),
    Column("elasticity_minus", "float", "", "elasticity towards a smaller value of the parameter"),
    Column("elasticity_plus", "float", "", "elasticity towards a larger value of the parameter"),
    text(
        "nonlinearity",
        "why both directions differ: another strategy or limiter, whole units, a curve, or one"
        " direction alone",
    ),
    Column(
        "insensitive",
        "bool",
        "",
        "whether 1% more or less of the parameter changes the objective by less than 0.001%",
    ),
    Column(
        "sobol_first", "float", "", "share of the variance of the objective that the parameter explains alone"
    ),
    Column("sobol_first_error", "float", "", "half of the 90% interval of sobol_first"),
    Column(
        "sobol_total",
        "float",
        "",
        "share of the variance of the objective that the parameter explains alone or together with others",
    ),
    Column("sobol_total_error", "float", "", "half of the 90% interval of sobol_total"),
)
