"""What designs are as good as a best one, by looking at every share's values one after the other."""

from __future__ import annotations

from fastflow.analysis.search.optimizers.design_space import Space


def moved(design: list[float], share: int, value: float, space: Space) -> list[float]:
    """One share has another value: it takes what is unused, then of the others; what it leaves they get."""
    budget = int(space.budget[share])
    others = [i for i, of in enumerate(space.budget.tolist()) if of == budget and i != share]
    rest = sum(design[i] for i in others)
    if value > design[share]:
        room = 1.0 - value
        scale = min(1.0, room / rest) if rest > 0.0 else 1.0
    else:
        scale = (rest + design[share] - value) / rest if rest > 0.0 else 1.0
    found = list(design)
    for i in others:
        found[i] *= scale
    found[share] = value
    return found


def ends(design, share, space, objective, limit, steps=400):
    """Return the lowest and the highest of many values of a share that keep an objective within a limit."""
    good = [design[share]]
    for step in range(1, steps):
        value = step / steps
        if objective(moved(list(design), share, value, space)) <= limit:
            good.append(value)
    return min(good), max(good)
