"""A language model on a pipeline: cuts into stages, micro-batches, memory, what is sent (3.3, 5.1)."""

from itertools import combinations, pairwise

OPERAND, MASTER = 2, 4  # bytes of fp16 training: operands and gradients, and weights' master copies
STATE = {"sgd": 0, "momentum": 4, "adam": 8}


def best_cut(layer_s, stages):
    """Return what the longest stage takes under the best of all cuts into stages of neighbouring layers."""
    layers = len(layer_s)
    cuts = combinations(range(1, layers), stages - 1)
    bounds = ([0, *cut, layers] for cut in cuts)
    return min(max(sum(layer_s[a:b]) for a, b in pairwise(cut)) for cut in bounds)


def microbatches(asked, stages, rows):
    """Return the number of micro-batches: as asked, else four a stage, each with a row at least."""
    if asked:
        return asked
    return 1 if stages == 1 else min(4 * stages, rows)


def in_flight(schedule, stages, stage, count):
    """Return the micro-batches whose activations a stage keeps at once, by walking through its work."""
    done_forward = done_backward = most = 0
    ahead = count if schedule == "gpipe" else min(count, stages - stage)
    while done_backward < count:
        if done_forward < count and done_forward - done_backward < ahead:
            done_forward += 1
        else:
            done_backward += 1
            if schedule == "gpipe":
                ahead = 0
        most = max(most, done_forward - done_backward)
    return most


def layers(lm, kernel, ranks):
    """Return (weights, columns kept of every token) of each layer on one device; sizes divide evenly.

    Kept are the embedding's output, four gates, c and h of every cell, and logits; Row-Column keeps whole
    what a product reads: the embedding's output and h.
    """
    h, words = lm["hidden"], lm["vocabulary"]
    whole = h if kernel == "RC" else h // ranks
    embedding = (words * h // ranks, whole)
    cell = (2 * h * 4 * h // ranks, 5 * h // ranks + whole)
    return [embedding, *[cell] * lm["layers"], (h * words // ranks, words // ranks)]


def footprint(lm, cut, first, count, schedule, optimizer):
    """Return (weights, gradients, optimizer state, activations) [B] of the fullest stage, and which it is.

    cut: (kernel, row shards, ranks); first: the first layer of every stage.
    """
    kernel, row_shards, ranks = cut
    every = layers(lm, kernel, ranks)
    tokens = lm["batch"] // row_shards // count * lm["sequence"]
    found = []
    for stage, (a, b) in enumerate(zip(first, [*first[1:], len(every)], strict=True)):
        weights = sum(own for own, _ in every[a:b])
        kept = sum(cols for _, cols in every[a:b]) * tokens * in_flight(schedule, len(first), stage, count)
        found.append(
            (weights * (OPERAND + MASTER), weights * OPERAND, weights * STATE[optimizer], kept * OPERAND)
        )
    fullest = max(range(len(first)), key=lambda stage: sum(found[stage]))
    return *found[fullest], fullest


def sent_over_a_border(lm, cut, count):
    """Return the bytes that a device sends of a micro-batch: h of its tokens, its part of the columns."""
    _, row_shards, ranks = cut
    return lm["batch"] // row_shards // count * lm["sequence"] * lm["hidden"] // ranks * OPERAND
