"""Bands by the book: every sample a command of its own, every percentile by sorting."""

import hashlib
import math
from statistics import NormalDist

import numpy as np


def draws(name, seed, samples):
    """One draw of each of as many equally likely parts of a standard normal, in a random order."""
    rng = np.random.default_rng(list(hashlib.sha256(f"{seed} {name}".encode()).digest()))
    part, within = rng.permutation(samples), rng.random(samples)
    return [NormalDist().inv_cdf((one + other) / samples) for one, other in zip(part, within, strict=True)]


def factor(draw, low, high):
    """What a value is multiplied by: `low` at the 10th percentile, 1 at the median, `high` at the 90th."""
    tenth = NormalDist().inv_cdf(0.9)
    return math.exp(abs(draw) / tenth * math.log(low if draw < 0.0 else high))


def percentile(values, nth):
    """The percentile of some values, linear between neighbours in order."""
    ordered = sorted(values)
    at = nth / 100.0 * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def chance(one, other):
    """How often one is less than the other, of the samples where either has a value; a lack loses."""
    points, count = 0.0, 0
    for a, b in zip(one, other, strict=True):
        if math.isnan(a) and math.isnan(b):
            continue
        count += 1
        a, b = (math.inf if math.isnan(value) else value for value in (a, b))
        points += 1.0 if a < b else 0.5 if a == b else 0.0
    return points / count if count else math.nan
