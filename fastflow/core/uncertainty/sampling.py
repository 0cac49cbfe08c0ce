"""Draws of uncertain parameters: a parameter of a file has the same draws in every point.

These are common random numbers: parameters that two designs share do not separate them, other parameters do.
The distribution is lognormal in two halves: the value is the median, the 10th and 90th percentile are given
in the file.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Ints

P90 = 1.2815515655446004  # of a standard normal


class Distribution(NamedTuple):
    """The distribution of a parameter, in every combination of a batch of inputs; (rows,) each."""

    key: str
    """The key of the input."""
    draw: Ints
    """The index of its draws, -1: the parameter is exact."""
    low: Floats
    """Its 10th percentile over its value."""
    high: Floats
    """Its 90th percentile over its value."""


class ModelError(NamedTuple):
    """Mean relative errors of the model for a kind of work."""

    error: float | None  # of times; None: the error of the point's class of validation
    gain_error: float  # of ratios of times of two designs


class Uncertainty(NamedTuple):
    """The uncertain parameters of a grid, and the number of samples."""

    samples: int
    seed: int
    model: dict[str, ModelError]
    """By kind of work."""
    draws: tuple[str, ...]
    """The file and the key of every draw."""
    distributions: tuple[tuple[Distribution, ...], ...]
    """Of each batch of inputs."""

    def content(self) -> list[object]:
        """Return all of it as plain lists."""
        plain = [
            [(key, *(column.tolist() for column in columns)) for key, *columns in many]
            for many in self.distributions
        ]
        return [*self[:-1], plain]


@lru_cache(maxsize=4096)
def normals(name: str, seed: int, samples: int) -> Floats:
    """Return standard normal draws, (samples,): one from each of `samples` equally likely strata, shuffled.

    Draws of different names are independent: a Latin hypercube (McKay, Beckman and Conover,
    Technometrics 21(2), 1979).
    """
    from scipy.special import ndtri

    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    rng = np.random.default_rng(list(digest))
    drawn: Floats = ndtri((rng.permutation(samples) + rng.random(samples)) / samples)
    drawn.flags.writeable = False
    return drawn


def factors(drawn: Floats, low: Floats, high: Floats) -> Floats:
    """Return the factors of parameters, (points, samples).

    drawn: standard normals, (points, samples); low, high: 10th and 90th percentile, (points,).
    """
    below, above = np.log(low)[:, None], np.log(high)[:, None]
    result: Floats = np.exp(np.abs(drawn) / P90 * np.where(drawn < 0.0, below, above))
    return result


def figure_factors(distribution: Distribution, rows: Ints, uncertainty: Uncertainty) -> Floats:
    """Return the factors of a parameter in points of some rows of its batch, (points, samples)."""
    draws = distribution.draw[rows]
    unique = np.unique(draws)
    normal_draws = [
        np.zeros(uncertainty.samples)
        if draw < 0
        else normals(uncertainty.draws[draw], uncertainty.seed, uncertainty.samples)
        for draw in unique.tolist()
    ]
    drawn = np.array(normal_draws)[np.searchsorted(unique, draws)]
    return factors(drawn, distribution.low[rows], distribution.high[rows])


def model_factors(work: str, designs: list[str], errors: Floats, uncertainty: Uncertainty) -> Floats:
    """Return the factors of times by the model's error, (points, samples).

    A part of the error is common to all designs, a part is individual: the mean error of the ratio of two
    designs is `gain_error`, of each of their times `errors`. designs: names, errors: (points,).
    """
    to_deviation = np.sqrt(np.pi / 2.0)  # of a normal, over its mean absolute deviation
    whole = to_deviation * errors[:, None]
    individual = np.minimum(to_deviation * uncertainty.model[work].gain_error / np.sqrt(2.0), whole)
    common = np.sqrt(whole**2 - individual**2)
    samples, seed = uncertainty.samples, uncertainty.seed
    shared = common * normals(f"model {work}", seed, samples)
    by_design = {name: normals(f"model {work} {name}", seed, samples) for name in set(designs)}
    result: Floats = np.exp(shared + individual * np.array([by_design[name] for name in designs]))
    return result
