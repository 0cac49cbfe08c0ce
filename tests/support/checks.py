"""What several test files share: settings of the cases, and comparisons that allow for rounding."""

from collections import Counter
from math import isclose

import numpy as np
from hypothesis import HealthCheck, settings

import fastflow

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
    every |= {"state": "fp32", "master": "auto", "attention": "auto", "fp8_param_gather": "false"} | roles
    return {f"precision.{role}": np.full(points, name) for role, name in every.items()}


def cases(count):
    """Return the settings of a property: `count` cases, the same ones on every run."""
    return settings(
        max_examples=count, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
    )


def near(got, expected, rel=1e-12):
    """Say whether two numbers are equal but for rounding."""
    return isclose(got, expected, rel_tol=rel, abs_tol=1e-300)


def refusal(*overrides):
    """Return why a point is refused: the reason in its row, or the error where there is no row."""
    try:
        return fastflow.evaluate(*overrides).reason.iloc[0]
    except fastflow.InputError as error:
        return str(error)


def row(table, **values):
    """Return a struct-of-arrays table of one row."""
    return table(**{name: np.array([value]) for name, value in values.items()})


def hair(value):
    """Return a value a hair smaller and a hair larger: a count on a border may fall either way."""
    return value * (1 - 1e-12), value * (1 + 1e-12)


class Deciding:
    """Which budgets decide what an oracle says, counted over the draws of a property.

    A budget decides an output where twice as much of it changes that output. A test of budgets that never
    decide says nothing about them.
    """

    def __init__(self, oracle, outputs, every=1):
        """Take an oracle of keyword arguments, names of its outputs in order, and which draws to count."""
        self.oracle, self.outputs, self.every = oracle, outputs, every
        self.draws, self.seen = 0, Counter()

    def count(self, **budgets):
        """Count a draw's budgets."""
        self.draws += 1
        if self.draws % self.every:
            return
        base = self.oracle(**budgets)
        found = set()
        for name, value in budgets.items():
            more = self.oracle(**budgets | {name: 2 * value})
            found |= {
                (name, output)
                for output, old, new in zip(self.outputs, base, more, strict=False)
                if output and not near(new, old, rel=1e-6)
            }
        self.seen.update(found or {("nothing", "")})

    def check(self, expected, least=3):
        """Assert that each of some pairs of a budget and an output is among the draws."""
        rare = {pair: self.seen[pair] for pair in expected if self.seen[pair] < least}
        assert not rare, f"decide too seldom: {rare}; all: {dict(self.seen)}"
