"""Experts of a mixture that a device keeps of all: how many a pass chooses, and how many of them it lacks.

*Popularity*: as in `expert_load`, by a power law, or all alike. A token chooses `topk` different experts,
each with a chance in proportion to its popularity, but at most 1. Tokens choose independently: a pass of n
tokens chooses an expert of chance p with a probability of 1 - (1 - p)^n.

*LRU*: a device keeps the experts that were chosen last. By Che's approximation (H. Che, Y. Tung, Z. Wang,
Hierarchical Web caching systems, IEEE JSAC 20, 2002; why it is accurate: C. Fricker, P. Robert, J. Roberts,
arXiv:1202.3974) each of them is kept for the same number of passes: the number with which as many experts are
expected as there is room for. Of a pass that chooses more experts than that, those that are kept come first.

*LFU*: a device keeps those that are chosen most often.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.timing.moe.expert_load import FEW, MAX_POPULAR, popularities

_MOST = 1.0 - 1e-15  # probability of an expert in a pass, of which a logarithm is taken
_HALVINGS = 60  # of the interval in which the characteristic time is looked for


class ExpertUse(NamedTuple):
    """Passes over mixtures; shape (passes,)."""

    tokens: Ints  # of all devices that share the experts
    topk: Ints  # experts that a token chooses
    experts: Ints
    exponent: Floats  # of the power law; 0: all experts are alike
    resident: Ints  # experts that are kept, of all devices
    by_count: Bools  # those that are chosen most often, else those that were chosen last


class Choices(NamedTuple):
    """Different experts that passes choose, means; shape (passes,)."""

    distinct: Floats
    missed: Floats  # of these, experts that are not kept


@lean_kernel
def _chances(tokens: int, topk: int, exponent: float, out: Floats) -> None:
    """Write the chance that a token chooses each expert, the most popular first; they sum to topk."""
    rarest, most = FEW
    if tokens * topk > out.size:
        rarest, most = 1.0, max(1.0, MAX_POPULAR * tokens)
    if exponent == 0.0:
        out[:] = 1.0
    else:
        popularities(rarest, most, exponent, out)
    certain = 0  # experts that every token chooses
    total = 0.0
    for popularity in out:
        total += popularity
    while certain < topk and certain < out.size:
        scale = (topk - certain) / total
        if out[certain] * scale <= 1.0:
            for r in range(certain, out.size):
                out[r] *= scale
            return
        total -= out[certain]
        out[certain] = 1.0
        certain += 1


@lean_kernel
def _kept(time: float, log_absent: Floats) -> float:
    """Return how many experts are kept on average that were chosen in the last passes; time: their number."""
    kept = 0.0
    for log in log_absent:
        kept -= np.expm1(time * log)
    return float(kept)


@lean_kernel
def _missed_by_time(resident: int, chosen: Floats, log_absent: Floats) -> float:
    """Return the experts of a pass that are not among those chosen last.

    chosen: probability of each; log_absent: space for as many.
    """
    for r in range(chosen.size):
        log_absent[r] = np.log1p(-min(chosen[r], _MOST))
    low, high = 0.0, 1.0
    while _kept(high, log_absent) < resident and high < 1e15:
        low, high = high, 2.0 * high
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _kept(middle, log_absent) < resident:
            low = middle
        else:
            high = middle
    missed = 0.0
    for r in range(chosen.size):
        missed += chosen[r] * np.exp(high * log_absent[r])
    return float(missed)


@kernel
def choices_of(uses: ExpertUse) -> Choices:
    """Return the experts that passes choose, and those of them that a device has to get.

    Example:
        >>> one = np.ones(1, dtype=np.int64)
        >>> uses = ExpertUse(one, one, 4 * one, np.zeros(1), 2 * one, np.zeros(1, dtype=np.bool_))
        >>> [round(float(number[0]), 3) for number in choices_of(uses)]
        [1.0, 0.5]
    """
    distinct, missed = np.zeros(uses.tokens.size), np.zeros(uses.tokens.size)
    for i in range(uses.tokens.size):
        chosen = np.empty(uses.experts[i])
        _chances(uses.tokens[i], uses.topk[i], uses.exponent[i], chosen)
        for r in range(chosen.size):
            chosen[r] = -np.expm1(uses.tokens[i] * np.log1p(-min(chosen[r], _MOST)))
        distinct[i] = chosen.sum()
        if uses.resident[i] >= chosen.size:
            continue
        if uses.by_count[i]:
            missed[i] = chosen[uses.resident[i] :].sum()
        else:
            missed[i] = _missed_by_time(uses.resident[i], chosen, np.empty(chosen.size))
    return Choices(distinct, missed)
