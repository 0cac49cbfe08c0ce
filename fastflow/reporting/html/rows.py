"""The points of a large dataset that its page draws: the best points, and a random sample."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement
from typing import NamedTuple

import numpy as np
import pandas as pd

from fastflow.core.tables import Bools, Floats, Ints

MAX_DRAWN = 5120
"""Most points of a page: more make it slow and large."""
_MAX_BEST = 3072  # of these are on a front, or the best of a cell
_SEED = 0


class Sample(NamedTuple):
    """The points that are drawn."""

    rows: Ints
    """Their indices in the dataset, in its order."""
    weight: Floats | None
    """Points of the dataset per drawn point; None if all are drawn."""
    num_best: int
    """Number of drawn points that are on a front or the best of a cell."""
    num_dropped: int
    """Number of such points beyond the limit, which are not drawn."""
    fronts: tuple[str, ...]
    """Columns with every point of the front of any two drawn."""


def sample_points(frame: pd.DataFrame, better: dict[str, str], axes: Sequence[str], main: str) -> Sample:
    """Select the points of a dataset to draw: all, if they are few.

    Otherwise the best of every column, and every point of the front of any two; the best in `main` of
    every pair of values of two axes; and a weighted random sample of the others.

    better: "less" or "more" by column; axes: columns that vary; main: a column of numbers.
    """
    rows = len(frame)
    if rows <= MAX_DRAWN:
        return Sample(np.arange(rows), None, 0, 0, ())
    usable = frame[main].notna().to_numpy()
    if "feasible" in frame and frame["feasible"].any():
        usable = usable & frame["feasible"].to_numpy(dtype=bool)
    ranks = _ranks(frame, better, usable)
    best = list(dict.fromkeys([*_fronts(ranks, usable), *_best_of_cells(frame, axes, main, better, usable)]))
    kept = np.sort(np.array(best[:_MAX_BEST], dtype=np.int64))
    others = np.setdiff1d(np.arange(rows), kept, assume_unique=True)
    sampled = np.random.default_rng(_SEED).choice(others, MAX_DRAWN - kept.size, replace=False)
    chosen = np.sort(np.concatenate([kept, sampled]))
    weight = np.where(np.isin(chosen, kept), 1.0, others.size / sampled.size)
    num_dropped = len(best) - kept.size
    return Sample(chosen, weight, kept.size, num_dropped, () if num_dropped else tuple(ranks))


def _ranks(frame: pd.DataFrame, better: dict[str, str], usable: Bools) -> dict[str, Ints]:
    """Return the rank of every usable point in every column without gaps, the best first."""
    ranks = {}
    for name, direction in better.items():
        values = frame[name].to_numpy(dtype=np.float64)[usable]
        if not np.isnan(values).any():
            ranks[name] = pd.factorize(values if direction == "less" else -values, sort=True)[0]
    return ranks


def _fronts(ranks: dict[str, Ints], usable: Bools) -> list[int]:
    """Return the points of the front of any two columns, in the order of the pairs."""
    points = np.flatnonzero(usable)
    members: dict[int, None] = {}
    order = {name: np.argsort(rank, kind="stable") for name, rank in ranks.items()}
    for first, second in combinations_with_replacement(ranks, 2):  # a column with itself: its best
        members |= dict.fromkeys(points[_front(ranks[first], ranks[second], order[first])].tolist())
    return list(members)


def _front(first: Ints, second: Ints, order: Ints) -> Ints:
    """Return the indices of the nondominated points in two ranks; order: argsort of the first."""
    sorted_second = second[order]
    running_min = np.minimum.accumulate(sorted_second)
    candidates = order[
        np.concatenate([[True], sorted_second[1:] < running_min[:-1]])
    ]  # with several points of equal first rank
    is_last = np.concatenate(
        [first[candidates][1:] != first[candidates][:-1], [True]]
    )  # the last of equal first rank is the best
    front: Ints = candidates[is_last]
    return front


def _best_of_cells(
    frame: pd.DataFrame, axes: Sequence[str], main: str, better: dict[str, str], usable: Bools
) -> list[int]:
    """Return the best point of every pair of values of two axes, pairs with the fewest cells first."""
    codes = {name: pd.factorize(frame[name])[0] for name in axes}
    size = {name: int(code.max()) + 1 for name, code in codes.items()}
    value = frame[main].to_numpy(dtype=np.float64)
    value = np.where(usable, -value if better.get(main) == "more" else value, np.inf)
    order = np.argsort(value, kind="stable")
    order = order[: int(usable.sum())]
    best: dict[int, None] = {}
    for first, second in sorted(combinations(axes, 2), key=lambda pair: size[pair[0]] * size[pair[1]]):
        cell = codes[first].astype(np.int64) * size[second] + codes[second]
        best |= dict.fromkeys(order[np.unique(cell[order], return_index=True)[1]].tolist())
    return list(best)
