"""Every way to cut the kinds of layer of a model: all products of all cuts, stage count by stage count."""

from itertools import product

from tests.naive.space import every_strategy

KINDS = ("embedding", "hidden", "softmax")


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
