"""Distributions of the times and lengths of generated requests; all draw from a seeded NumPy generator."""

from __future__ import annotations

from math import cos, log, pi, sqrt
from typing import NamedTuple, Protocol

import numpy as np

from fastflow.core.tables import Floats, Ints
from fastflow.physics.workload.request_file import MAX_TOKENS
from fastflow.physics.workload.request_lengths import read_lengths

DAY = 86_400.0  # [s]
_MINUTES = 1440  # of a day


class Arrivals(NamedTuple):
    """Times of arrival: a gamma process, whose rate may follow the time of day.

    rate: mean number of arrivals a second [1/s].
    burstiness: shape of the gamma distribution of the times between arrivals, as `--burstiness` of vLLM's
    benchmark (vllm/benchmarks/serve.py). 1 is a Poisson process; less is burstier, more is more even. The
    coefficient of variation is 1 / sqrt(burstiness).
    profile: relative rates in equal parts of the day, from midnight, as 24 hourly weights; () for a constant
    rate. Their mean stands for `rate`. With one, the times between arrivals are stretched where the rate is
    low. Times count from midnight; those of a trace, from its first arrival.
    """

    rate: float
    burstiness: float = 1.0
    profile: tuple[float, ...] = ()

    def draw(self, count: int, random: np.random.Generator) -> Floats:
        """Return times of arrival [s], in order, (count,); raises ValueError for a parameter out of range."""
        _check(self.rate > 0, "a rate above 0", self.rate)
        _check(self.burstiness > 0, "a burstiness above 0", self.burstiness)
        gaps = random.gamma(self.burstiness, 1.0 / (self.rate * self.burstiness), count)
        even = np.cumsum(gaps)  # at the mean rate
        if not self.profile:
            return even
        weights = np.array(self.profile, dtype=np.float64)
        _check(bool((weights >= 0).all() and weights.sum() > 0), "weights from 0, not all 0", self.profile)
        share = np.concatenate(([0.0], np.cumsum(weights))) / weights.sum()  # of a day's arrivals, by then
        share[-1] = 1.0
        days = np.floor(even / DAY)
        times = np.interp(even / DAY - days, share, np.linspace(0.0, DAY, share.size))
        return np.maximum.accumulate(days * DAY + times)


def sinusoidal(peak_to_mean: float, peak_hour: float = 14.0) -> tuple[float, ...]:
    """Return a profile of `Arrivals`: a sine over the day, a weight for each minute.

    peak_to_mean: highest rate over the mean rate, 1 to 2. peak_hour: time of the highest rate [h], 0 to 24.
    Raises ValueError for others.
    """
    _check(1 <= peak_to_mean <= 2, "a peak of 1 to 2 times the mean", peak_to_mean)
    middles = ((i + 0.5) / _MINUTES - peak_hour / 24 for i in range(_MINUTES))
    return tuple(1.0 + (peak_to_mean - 1.0) * cos(2 * pi * middle) for middle in middles)


class Distribution(Protocol):
    """Numbers of tokens."""

    def draw(self, count: int, random: np.random.Generator) -> Ints:
        """Return numbers of tokens from 1, (count,); raises ValueError for a parameter out of range."""


class Lognormal(NamedTuple):
    """Numbers of tokens whose logarithm is normal.

    mean: of the distribution before it is cut [tokens]. sigma: standard deviation of the natural logarithm;
    0 for equal lengths. least, most: what is drawn outside of them becomes one of them [tokens].
    """

    mean: float
    sigma: float
    least: int = 1
    most: int = MAX_TOKENS

    def draw(self, count: int, random: np.random.Generator) -> Ints:
        """Return numbers of tokens, (count,); raises ValueError for a parameter out of range."""
        _check(self.mean >= 1, "a mean from 1 token", self.mean)
        _check(self.sigma >= 0, "a sigma from 0", self.sigma)
        _check_range(self.least, self.most)
        tokens = random.lognormal(log(self.mean) - self.sigma**2 / 2, self.sigma, count)
        return np.clip(np.rint(tokens), self.least, self.most).astype(np.int64)


def sigma_of(mean: float, median: float) -> float:
    """Return the sigma of a log-normal distribution with this mean and median.

    The mean is exp(sigma^2 / 2) times the median. Raises ValueError for a median above the mean.
    """
    _check(0 < median <= mean, "a median above 0 and up to the mean", median)
    return sqrt(2.0 * log(mean / median))


class Uniform(NamedTuple):
    """Whole numbers of tokens from least to most [tokens], both included, all equally likely."""

    least: int
    most: int

    def draw(self, count: int, random: np.random.Generator) -> Ints:
        """Return numbers of tokens, (count,); raises ValueError for a parameter out of range."""
        _check_range(self.least, self.most)
        return random.integers(self.least, self.most, count, dtype=np.int64, endpoint=True)


class Lengths(Protocol):
    """Prompts and answers of requests."""

    def draw(self, count: int, random: np.random.Generator) -> tuple[Ints, Ints]:
        """Return tokens of prompts and of answers, both (count,); raises ValueError or InputError."""


class Independent(NamedTuple):
    """Prompts and answers that do not depend on each other, each of a distribution [tokens]."""

    prompts: Distribution
    answers: Distribution

    def draw(self, count: int, random: np.random.Generator) -> tuple[Ints, Ints]:
        """Return tokens of prompts and of answers, both (count,); raises ValueError."""
        return self.prompts.draw(count, random), self.answers.draw(count, random)


class FromFile(NamedTuple):
    """Prompts and answers of the lines of a file as that of `serve.lengths`, drawn with repetition."""

    path: str

    def draw(self, count: int, random: np.random.Generator) -> tuple[Ints, Ints]:
        """Return tokens of prompts and of answers, both (count,); raises InputError."""
        lengths = read_lengths(self.path)
        rows = random.integers(0, lengths.isl.size, count)
        return lengths.isl[rows], lengths.osl[rows]


def _check_range(least: int, most: int) -> None:
    _check(1 <= least <= most <= MAX_TOKENS, "least and most tokens in order, from 1", f"{least} and {most}")


def _check(is_valid: bool, allowed: str, value: object) -> None:
    if not is_valid:
        raise ValueError(f"expected {allowed}, not {value}")
