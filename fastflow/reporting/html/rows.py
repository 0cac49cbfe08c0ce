"""Which points of a large dataset its page draws: those that charts of the best need, and a sample."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement
from typing import NamedTuple

import numpy as np
import pandas as pd

from fastflow.core.tables import Bools, Floats, Ints

MOST = 5120
"""Points drawn: of more of them a page is slow and large."""
_MOST_BEST = 3072  # of these are there for a front, or as the best of a cell
_SEED = 0


class Drawn(NamedTuple):
    """The points that are drawn."""

    rows: Ints
    """Their places in the dataset, in its order."""
    weight: Floats | None
    """How many points each of them stands for; None where all are drawn."""
    best: int
    """How many of them are there for what they are the best of."""
    left: int
    """How many of those had no room."""
    fronts: tuple[str, ...]
    """Columns, of any two of which every point of the front is drawn."""


def drawn_of(frame: pd.DataFrame, better: dict[str, str], axes: Sequence[str], main: str) -> Drawn:
    """Choose the points of a dataset that are drawn: all, where they are few.

    Of more of them: the best of every column, and every point of the front of any two; the best in `main` of
    every pair of values of two axes; and a random sample of the others, which stands for all of them.

    better: "less" or "more" by column; axes: columns that vary; main: a column of numbers.
    """
    rows = len(frame)
    if rows <= MOST:
        return Drawn(np.arange(rows), None, 0, 0, ())
    usable = frame[main].notna().to_numpy()
    if "feasible" in frame and frame["feasible"].any():
        usable = usable & frame["feasible"].to_numpy(dtype=bool)
    ranks = _ranks(frame, better, usable)
    best = list(dict.fromkeys([*_fronts(ranks, usable), *_of_cells(frame, axes, main, better, usable)]))
    kept = np.sort(np.array(best[:_MOST_BEST], dtype=np.int64))
    others = np.setdiff1d(np.arange(rows), kept, assume_unique=True)
    sampled = np.random.default_rng(_SEED).choice(others, MOST - kept.size, replace=False)
    chosen = np.sort(np.concatenate([kept, sampled]))
    weight = np.where(np.isin(chosen, kept), 1.0, others.size / sampled.size)
    left = len(best) - kept.size
    return Drawn(chosen, weight, kept.size, left, () if left else tuple(ranks))


def _ranks(frame: pd.DataFrame, better: dict[str, str], usable: Bools) -> dict[str, Ints]:
    """Return the rank of every usable point in every column that has no gap, the best first."""
    ranks = {}
    for name, which in better.items():
        values = frame[name].to_numpy(dtype=np.float64)[usable]
        if not np.isnan(values).any():
            ranks[name] = pd.factorize(values if which == "less" else -values, sort=True)[0]
    return ranks


def _fronts(ranks: dict[str, Ints], usable: Bools) -> list[int]:
    """Return the points of the front of any two columns, in the order of the pairs."""
    places = np.flatnonzero(usable)
    found: dict[int, None] = {}
    order = {name: np.argsort(rank, kind="stable") for name, rank in ranks.items()}
    for first, second in combinations_with_replacement(ranks, 2):  # of one with itself, its best
        found |= dict.fromkeys(places[_front(ranks[first], ranks[second], order[first])].tolist())
    return list(found)


def _front(first: Ints, second: Ints, order: Ints) -> Ints:
    """Return the places of points that no other is better than in both ranks; order: that of the first."""
    along = second[order]
    least = np.minimum.accumulate(along)
    near = order[np.concatenate([[True], along[1:] < least[:-1]])]  # of points alike in the first, several
    falls = np.concatenate([first[near][1:] != first[near][:-1], [True]])  # the last of those is the best
    found: Ints = near[falls]
    return found


def _of_cells(
    frame: pd.DataFrame, axes: Sequence[str], main: str, better: dict[str, str], usable: Bools
) -> list[int]:
    """Return the best point of every pair of values of two axes, of the axis with the fewest values first."""
    codes = {name: pd.factorize(frame[name])[0] for name in axes}
    size = {name: int(code.max()) + 1 for name, code in codes.items()}
    value = frame[main].to_numpy(dtype=np.float64)
    value = np.where(usable, -value if better.get(main) == "more" else value, np.inf)
    order = np.argsort(value, kind="stable")
    order = order[: int(usable.sum())]
    found: dict[int, None] = {}
    for first, second in sorted(combinations(axes, 2), key=lambda pair: size[pair[0]] * size[pair[1]]):
        cell = codes[first].astype(np.int64) * size[second] + codes[second]
        found |= dict.fromkeys(order[np.unique(cell[order], return_index=True)[1]].tolist())
    return list(found)
