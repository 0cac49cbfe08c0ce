"""Draws of what is uncertain: the same figure of the same file has the same draws in every point.

Common random numbers: what two designs share does not tell them apart, what only one of them has does. A
figure is lognormal in two halves: its value is the median, its 10th and 90th percentile are what its file
says.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Ints

P90 = 1.2815515655446004  # of a standard normal


class Spread(NamedTuple):
    """How a figure may differ from its value, in every combination of a batch of inputs; (rows,) each."""

    key: str
    """The input."""
    draw: Ints
    """Which draws it has, -1: it is exact."""
    low: Floats
    """Its 10th percentile over its value."""
    high: Floats
    """Its 90th percentile over its value."""


class ModelError(NamedTuple):
    """Mean relative errors of the model for a kind of work."""

    error: float | None  # of times; None: that of the class of validation that a point is in
    gain_error: float  # of ratios of times of two designs


class Uncertainty(NamedTuple):
    """What of a grid is not exact, and how often it is sampled."""

    samples: int
    seed: int
    model: dict[str, ModelError]
    """By kind of work."""
    draws: tuple[str, ...]
    """The file and the key of every draw."""
    spreads: tuple[tuple[Spread, ...], ...]
    """Of each batch of inputs."""

    def content(self) -> list[object]:
        """Return all of it as plain lists."""
        plain = [
            [(key, *(column.tolist() for column in columns)) for key, *columns in many]
            for many in self.spreads
        ]
        return [*self[:-1], plain]


@lru_cache(maxsize=4096)
def normals(name: str, seed: int, samples: int) -> Floats:
    """Return standard normal draws, (samples,): one from each of as many equally likely parts, shuffled.

    Those of different names are independent of each other: a Latin hypercube (McKay, Beckman and Conover,
    Technometrics 21(2), 1979).
    """
    from scipy.special import ndtri

    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    rng = np.random.default_rng(list(digest))
    drawn: Floats = ndtri((rng.permutation(samples) + rng.random(samples)) / samples)
    drawn.flags.writeable = False
    return drawn


def factors(drawn: Floats, low: Floats, high: Floats) -> Floats:
    """Return what figures are multiplied by, (points, samples).

    drawn: standard normals, (points, samples); low, high: 10th and 90th percentile, (points,).
    """
    below, above = np.log(low)[:, None], np.log(high)[:, None]
    found: Floats = np.exp(np.abs(drawn) / P90 * np.where(drawn < 0.0, below, above))
    return found


def figure_factors(spread: Spread, rows: Ints, uncertainty: Uncertainty) -> Floats:
    """Return what a figure is multiplied by in points of some rows of its batch, (points, samples)."""
    draws = spread.draw[rows]
    every = np.unique(draws)
    known = [
        np.zeros(uncertainty.samples)
        if draw < 0
        else normals(uncertainty.draws[draw], uncertainty.seed, uncertainty.samples)
        for draw in every.tolist()
    ]
    drawn = np.array(known)[np.searchsorted(every, draws)]
    return factors(drawn, spread.low[rows], spread.high[rows])


def model_factors(work: str, designs: list[str], errors: Floats, uncertainty: Uncertainty) -> Floats:
    """Return what the model's own error multiplies times by, (points, samples).

    A part of it is common to all designs, and a part is each one's own: of two designs' ratio, the mean error
    is `gain_error`, of each of their times what is given. designs: names, errors: (points,).
    """
    to_deviation = np.sqrt(np.pi / 2.0)  # of a normal, over its mean absolute deviation
    whole = to_deviation * errors[:, None]
    own = np.minimum(to_deviation * uncertainty.model[work].gain_error / np.sqrt(2.0), whole)
    common = np.sqrt(whole**2 - own**2)
    samples, seed = uncertainty.samples, uncertainty.seed
    shared = common * normals(f"model {work}", seed, samples)
    apart = {name: normals(f"model {work} {name}", seed, samples) for name in set(designs)}
    found: Floats = np.exp(shared + own * np.array([apart[name] for name in designs]))
    return found
