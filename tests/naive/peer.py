"""Exchanges of serving libraries over peers' memory, each way written out by hand (slow, obvious)."""

from math import inf


def ways(collective, size, ranks, speed, step, launch, load):
    """Return the time of every way among ranks of one machine, name to seconds; none of a single rank.

    speed: of a device's links, which reach every peer at once [B/s]; step: latency of one [s] by "ll" and by
    "simple"; launch [s]; load: share of the links that loads reach.
    """
    if ranks == 1:
        return {}
    found = {}
    if collective == "all-reduce" and ranks <= 8:
        others = ranks - 1
        waiting = {"barrier": step["ll"], "first bytes": step["ll"], "fenced barrier": step["simple"]}
        found["one-shot"] = launch + sum(
            [waiting["barrier"], waiting["first bytes"], others * size / (load * speed), waiting["barrier"]]
        )
        part = others * (size / ranks) / (load * speed)
        found["two-shot"] = launch + sum(
            [
                waiting["barrier"], waiting["first bytes"], part,
                waiting["fenced barrier"], waiting["first bytes"], part,
            ]
        )  # fmt: skip
    if collective == "all-to-all":
        stored = (ranks - 1) * (size / ranks) / speed
        found["stores"] = launch + step["ll"] + stored + step["simple"]
    return found


def time(*given):
    """Return the time of the fastest way [s]."""
    return min(ways(*given).values(), default=inf)
