"""What several test files share: settings of the cases, and comparisons that allow for rounding."""

from math import isclose

import numpy as np
from hypothesis import HealthCheck, settings

BUDGETS = [
    f"chip.{kind}.{part}"
    for kind, parts in (
        ("area", ("core", "l0", "l1", "l2", "dram", "intra", "inter")),
        ("power", ("core", "l0", "l1", "l2", "dram", "intra", "inter")),
        ("perimeter", ("dram", "intra", "inter")),
    )
    for part in parts
]
"""The shares of the library's chips."""


def mixed(points, **roles):
    """Return the columns of `precision=mixed`, and of roles that have another type; shape (points,)."""
    every = {"weight": "operand", "activation": "operand", "cache": "operand", "gradient": "operand"}
    every |= {"state": "fp32", "master": "auto", "attention": "auto"} | roles
    return {f"precision.{role}": np.full(points, name) for role, name in every.items()}


def cases(count):
    """Return the settings of a property: `count` cases, the same ones on every run."""
    return settings(
        max_examples=count, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
    )


def near(got, expected, rel=1e-12):
    """Say whether two numbers are equal but for rounding."""
    return isclose(got, expected, rel_tol=rel, abs_tol=1e-300)


def row(table, **values):
    """Return a struct-of-arrays table of one row."""
    return table(**{name: np.array([value]) for name, value in values.items()})


def hair(value):
    """Return a value a hair smaller and a hair larger: a count on a border may fall either way."""
    return value * (1 - 1e-12), value * (1 + 1e-12)
