"""Every way to cut layers, or kinds of them: all products of all cuts, stage count by stage count."""

from itertools import product
from math import inf

from tests.naive.space import every_strategy

KINDS = ("embedding", "hidden", "softmax")
LAYERS = "parallel.layers"


def every_combination(devices, layers, given=None):
    """Return all combinations, as inputs: the strategy, and of every kind of layer a cut; in no order.

    given: cuts of kinds that keep them, by kind.
    """
    given = given or {}
    found = []
    for stages in (count for count in range(1, layers + 1) if devices % count == 0):
        cuts = every_strategy(devices // stages, 1)  # of one stage
        pipeline = f"-p{stages}" if stages > 1 else ""
        for own in product(*([given[kind]] if kind in given else cuts for kind in KINDS)):
            point = {f"parallel.{kind}": cut for kind, cut in zip(KINDS, own, strict=True)}
            found.append(point | {"parallel.strategy": f"d{devices // stages}{pipeline}"})
    return found


def best(times, fits):
    """Return the best time of combinations, and whether it fits; a time is None where there is none."""
    timed = [(not fit, time) for time, fit in zip(times, fits, strict=True) if time is not None]
    misses, time = min(timed)
    return time, not misses


def every_cut_of_layers(devices, borders, names):
    """Return all combinations of cuts of some layers, as inputs; in no order.

    borders: how many layers a pipeline can cut between, repeated ones counted; names: of the layers.
    """
    found = []
    for stages in (count for count in range(1, borders + 1) if devices % count == 0):
        cuts = every_strategy(devices // stages, 1)
        pipeline = f"-p{stages}" if stages > 1 else ""
        for own in product(cuts, repeat=len(names)):
            text = ", ".join(f"{name}: {cut}" for name, cut in zip(names, own, strict=True))
            found.append({LAYERS: text, "parallel.strategy": f"d{devices // stages}{pipeline}"})
    return found


def least_sum(times, memory, room):
    """Return the least sum of steps from cut to cut that takes at most so much memory; infinite for none.

    times, memory (whole numbers): (steps, cuts before, cuts after). It is a knapsack: the least time of all
    beginnings that end in a cut and take just so much.
    """
    least = {(cut, 0): 0.0 for cut in range(len(times[0]))}
    for time, takes in zip(times, memory, strict=True):
        after = {}
        for (cut, taken), so_far in least.items():
            for other in range(len(time)):
                key = other, taken + int(takes[cut][other])
                if key[1] <= room:
                    after[key] = min(after.get(key, inf), so_far + time[cut][other])
        least = after
    return min(least.values(), default=inf)
