"""DeepSeek-V3's gate, which lets a token choose experts in four of eight groups (arXiv:2412.19437, 2.1.2).

A group's score is the sum of its two best experts'. The best groups are taken, and the best experts in them.
A benchmark's scores have two values, high for the experts that a token is meant to choose (balanced_logits
and power_law_logits_v3 of ai-dynamo/aiconfigurator's collector/helper.py). So most scores are equal, and the
gate takes the first groups and experts of those that are equal:

- *equal loads*: a token has a high score in each group, so it goes to the first four groups, and to their
  first experts. Half of the experts are idle;
- *power law*: experts are listed as often as they have tokens, the most popular ones first; token t is meant
  to choose places t, t + tokens, t + 2 tokens, ... of the list. The collector gives the busiest device the
  first experts. Choices that fall in other groups go to the first experts of the token's own;
- *a single expert in each group* has no second best: no score counts, all tokens choose the first experts.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Floats, Ints

GROUPS, CHOSEN_GROUPS = 8, 4


@kernel
def _choose(meant: Floats, topk: int, tokens: float, loads: Floats) -> None:
    """Add tokens to the loads of the experts that they choose; meant: 1 where scores are high, or else 0."""
    size = meant.size // GROUPS
    if size == 1:
        loads[:topk] += tokens
        return
    scores = np.empty(GROUPS)
    for group in range(GROUPS):
        scores[group] = min(2.0, meant[group * size : (group + 1) * size].sum())
    is_taken = np.zeros(GROUPS)
    for _ in range(CHOSEN_GROUPS):
        best = -1
        for group in range(GROUPS):
            if is_taken[group] == 0.0 and (best < 0 or scores[group] > scores[best]):
                best = group
        is_taken[best] = 1.0
    left = topk
    for score in (1.0, 0.0):
        for expert in range(meant.size):
            if left > 0 and meant[expert] == score and is_taken[expert // size] > 0.0:
                loads[expert] += tokens
                left -= 1


@kernel
def assign_evenly_in_groups(tokens: int, topk: int, experts: int) -> Floats:
    """Return the loads of all experts where each token is meant to choose one expert in each group."""
    size = experts // GROUPS
    loads, meant = np.zeros(experts), np.empty(experts)
    for token in range(min(tokens, size)):
        first = token if tokens >= size else token * size // tokens
        meant[:] = 0.0
        meant[first::size] = 1.0
        each = (tokens - token - 1) // size + 1 if tokens >= size else 1
        _choose(meant, topk, float(each), loads)
    return loads


@kernel
def assign_in_groups(count: Ints, position: Ints, busiest: int, local: int, tokens: int, topk: int) -> Floats:
    """Return the loads of all experts, the busiest device first.

    count: of tokens that are meant to choose an expert, by popularity; position: of these experts; busiest:
    first position of the busiest device, which has `local` experts.
    """
    experts = count.size
    expert = np.empty(experts, dtype=np.int64)  # by popularity
    for r in range(experts):
        expert[r] = position[r]
        if busiest <= position[r] < busiest + local:
            expert[r] -= busiest
        elif position[r] < local:
            expert[r] += busiest
    ends = np.cumsum(count)
    loads, meant = np.zeros(experts), np.empty(experts)
    changes = np.unique(np.append(ends % tokens, tokens))  # tokens where a run of equal choices ends
    token = 0
    for end in changes:
        if end <= token:
            continue
        meant[:] = 0.0
        for choice in range(topk):
            meant[expert[np.searchsorted(ends, choice * tokens + token, side="right")]] = 1.0
        _choose(meant, topk, float(end - token), loads)
        token = end
    return loads
