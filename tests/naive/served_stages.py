"""Pipeline stages of servers, from what servers do: layers one by one, batches that go round."""

from itertools import combinations


def split(layers, stages, extra):
    """Return how many layers each stage has: evenly, then one more for each layer that is left over."""
    counts = [layers // stages] * stages
    places = {
        "first": list(range(stages)),
        "last": list(range(stages))[::-1],
        "before_last": list(range(stages - 1))[::-1],
    }[extra]
    for place in places[: layers % stages]:
        counts[place] += 1
    return counts


def stages_s(counts, layer_s, embedding_s, head_s):
    """Return what each stage takes of a pass; layer_s: of every layer in order."""
    found, rest = [], list(layer_s)
    for count in counts:
        found.append(sum(rest[:count]))
        rest = rest[count:]
    found[0] += embedding_s
    found[-1] += head_s
    return found


def balanced_s(stages, layer_s, embedding_s, head_s):
    """Return what the slowest stage takes at least: the best of all splits, each tried."""
    layers = len(layer_s)
    every = []
    for cuts in combinations(range(1, layers), stages - 1):
        counts = [b - a for a, b in zip((0, *cuts), (*cuts, layers), strict=True)]
        every.append(max(stages_s(counts, layer_s, embedding_s, head_s)))
    return min(every)


def round_s(stage_s, batches, rounds=400):
    """Return how long a batch takes for a pass where so many go round through the stages.

    Each stage runs one batch at a time, the one that came first; a batch that has left the last stage comes
    to the first one.
    """
    free, ready = [0.0] * len(stage_s), [0.0] * batches
    for done in range(rounds):
        if done == rounds // 2:
            begin = ready[0]
        for batch in range(batches):
            for stage, takes in enumerate(stage_s):
                ready[batch] = free[stage] = max(ready[batch], free[stage]) + takes
    return (ready[0] - begin) / (rounds - rounds // 2)


def pass_s(server, layers, head):
    """Return what a pass takes at the pace of the slowest stage."""
    slowest = max(server["widest"] * layers, server["last"] * layers + head)
    return max(layers + head, server["in_flight"] * slowest if server["in_flight"] > 1 else 0.0)
