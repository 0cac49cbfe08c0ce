"""The design space: the shares of area, power and perimeter that every component gets (Section 7).

A *design* is the vector W of Section 7, of shape (|W|,). The shares of a budget are not negative and
sum to at most 1; the remainder is slack, and part of the space.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Inputs, Ints

BUDGETS = ("area", "power", "perimeter")
BUDGET_LABELS = {"area": "area", "power": "power", "perimeter": "die edge"}
"""Names of the budgets for display."""


class Space(NamedTuple):
    """Meaning of each entry of a design."""

    keys: tuple[str, ...]
    """Input columns: `chip.area.core` and so on."""
    budget: Ints
    """The budget that each share belongs to, 0 for the first of them; shape (|W|,)."""


def space_of(inputs: Inputs) -> Space:
    """Return the space of designs that the input columns describe, in the order of BUDGETS."""
    keys = [[key for key in inputs if key.startswith(f"chip.{name}.")] for name in BUDGETS]
    sizes = [len(of_budget) for of_budget in keys if of_budget]
    return Space(tuple(chain.from_iterable(keys)), np.repeat(np.arange(len(sizes)), sizes))


def sums(designs: Floats, space: Space) -> Floats:
    """Return the sums of the shares of each budget, shape (designs, budgets)."""
    total = np.zeros((len(designs), space.budget.max() + 1))
    for share, budget in enumerate(
        space.budget.tolist()
    ):  # a product's order depends on its size and machine
        total[:, budget] += designs[:, share]
    return total


def fill(designs: Floats, space: Space) -> Floats:
    """Scale the shares of each budget so that they sum to 1; shape (designs, |W|).

    Shares that are all 0 remain 0.
    """
    total = sums(designs, space)
    return designs / np.where(total > 0.0, total, 1.0)[:, space.budget]


def fit(designs: Floats, space: Space) -> Floats:
    """Scale down the shares of the budgets whose shares sum to more than 1; shape (designs, |W|)."""
    return designs / np.maximum(sums(designs, space), 1.0)[:, space.budget]


def with_slack(space: Space) -> Space:
    """Return the space whose designs carry the slack of every budget as a further share, at the end."""
    budgets = np.arange(space.budget.max() + 1)
    slack = tuple(f"slack {budget}" for budget in budgets)
    return Space(space.keys + slack, np.concatenate([space.budget, budgets]))


def random_designs(count: int, space: Space, seed: int | Sequence[int]) -> Floats:
    """Draw uniform designs without slack, shape (count, |W|).

    Of the same seed, a shorter draw is the beginning of a longer draw.
    """
    draws = np.random.default_rng(seed).exponential(size=(count, space.budget.size))
    return fill(draws, space)
