"""Loads whose lengths come from a file (`serve.lengths`): their means, their longest, and what is sent.

The simulation sends the file's requests. The fast form knows uniform lengths alone: it has their means, and
a spread that makes answers differ as much (their standard deviation over their mean), as far as uniform ones
can.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from fastflow.distinct import vocabulary
from fastflow.tables import Floats, Inputs, Ints
from fastflow.workload.request_lengths import KEY, RequestLengths, read_lengths

MOST_SENT = 4096  # requests of a file that are told apart; of more, so many at even distances


def with_lengths(inputs: Inputs) -> Inputs:
    """Return inputs with what a file says in place of `serve.isl`, `serve.osl`, `serve.spread`.

    Raises InputError for a file that cannot be read.
    """
    if KEY not in inputs:
        return inputs
    found = _of_files(inputs, lambda one: (one.isl.mean(), one.osl.mean(), _spread_of(one.osl)))
    return dict(inputs) | dict(zip(("serve.isl", "serve.osl", "serve.spread"), found.T, strict=True))


def longest_of(inputs: Inputs) -> tuple[Floats, Floats, Floats]:
    """Return the longest prompts and answers, and most tokens of both, as far as files say; (points,).

    Else the means.
    """
    if KEY not in inputs:
        isl, osl = inputs["serve.isl"], inputs["serve.osl"]
        return isl, osl, isl + osl
    isl, osl, both = _of_files(
        inputs, lambda one: (one.isl.max(), one.osl.max(), (one.isl + one.osl).max())
    ).T
    return isl, osl, both


def sent_of(inputs: Inputs) -> tuple[Ints, Ints]:
    """Return how many requests of a file points send, (points,), and their prompts and answers.

    These have the shape (points, 2, most). None where there is no file, and where nothing is simulated.
    """
    points = inputs["serve.isl"].size
    if KEY not in inputs or not inputs["serve.simulate"].any():
        return np.zeros(points, dtype=np.int64), np.zeros((points, 2, 0), dtype=np.int64)
    names, place = vocabulary(inputs[KEY])
    every = [_some_of(read_lengths(str(name))) for name in names]
    counts = np.array([one.shape[1] for one in every], dtype=np.int64)
    lengths = np.zeros((len(every), 2, counts.max()), dtype=np.int64)
    for number, one in enumerate(every):
        lengths[number, :, : one.shape[1]] = one
    return counts[place], lengths[place]


def _some_of(one: RequestLengths) -> Ints:
    """Return a file's prompts and answers, (2, rows)."""
    rows = one.isl.size
    if rows <= MOST_SENT:
        return np.array(one)
    return np.array(one)[:, ((np.arange(MOST_SENT) + 0.5) * rows / MOST_SENT).astype(np.int64)]


def _of_files(inputs: Inputs, tells: Callable[[RequestLengths], tuple[float, ...]]) -> Floats:
    """Return what is told of each point's file, (points, figures)."""
    names, place = vocabulary(inputs[KEY])
    told: NDArray[np.float64] = np.array([tells(read_lengths(str(name))) for name in names], dtype=np.float64)
    return told[place]


def _spread_of(lengths: Ints) -> float:
    """Return the spread of uniform lengths of the same mean and standard deviation, at most 1.

    Uniform lengths from (1 - s) x to x have the mean (1 - s / 2) x and the standard deviation s x / sqrt(12).
    """
    varies = float(lengths.std() / lengths.mean())
    return min(1.0, varies / (1.0 / sqrt(12.0) + varies / 2.0))
