"""Experts' exchanges that send a token once to each machine: a walk of every choice of a token."""

from itertools import combinations

import numpy as np


def choices(experts, topk, groups, topk_groups):
    """Yield the experts of every choice that a token can make, all equally likely (DeepSeek-V3, 2.1.2)."""
    each = experts // groups
    for chosen in combinations(range(groups), topk_groups):
        pool = [expert for expert in range(experts) if expert // each in chosen]
        yield from combinations(pool, topk)


def copies(experts, topk, groups, topk_groups, machines, inside):
    """Return how many copies of a token cross links within machines, and between them, on average.

    A rank has experts that follow each other. Rank r is device r % inside of machine r // inside. A token
    goes to the device of its sender's number in each machine that has an expert of it, and on to the others.
    """
    ranks = machines * inside
    owner = [
        rank for rank in range(ranks) for _ in range(experts * rank // ranks, experts * (rank + 1) // ranks)
    ]
    within, between = [], []
    for chosen in choices(experts, topk, groups, topk_groups):
        there = {(owner[expert] // inside, owner[expert] % inside) for expert in chosen}
        for sender in range(ranks):
            machine, device = sender // inside, sender % inside
            reached = {place for place, _ in there}
            between.append(len(reached - {machine}))
            within.append(sum(own != device for _, own in there))
    return np.mean(within), np.mean(between)
