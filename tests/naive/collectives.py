"""Ring collectives, simulated step by step with the pieces that every rank holds (5.1, 6.4).

A piece is a chunk of the tensor with the set of ranks whose values are summed in it. In a step, every
rank sends one chunk to its right neighbour over a link of its own.
"""


def simulate(collective, ranks, size):
    """Return (steps, bytes that one rank sends) of a collective over a tensor of `size` bytes."""
    if collective == "":
        return 0, 0.0
    everyone = frozenset(range(ranks))
    steps, sent = 0, [0.0] * ranks
    chunk = size / ranks
    if collective == "all-gather":
        held = [{rank: everyone} for rank in range(ranks)]  # a rank's own chunk is complete
    else:
        held = [{part: frozenset([rank]) for part in range(ranks)} for rank in range(ranks)]
    if collective in ("reduce-scatter", "all-reduce"):
        for step in range(ranks - 1):
            outgoing = [(rank - step - 1) % ranks for rank in range(ranks)]
            moving = [held[rank][outgoing[rank]] for rank in range(ranks)]
            for rank in range(ranks):
                right = (rank + 1) % ranks
                assert not held[right][outgoing[rank]] & moving[rank], "a value must not be summed twice"
                held[right][outgoing[rank]] |= moving[rank]
                sent[rank] += chunk
            steps += 1
        held = [{rank: held[rank][rank]} for rank in range(ranks)]
        assert all(held[rank][rank] == everyone for rank in range(ranks))
    if collective in ("all-gather", "all-reduce"):
        for step in range(ranks - 1):
            moving = [((rank - step) % ranks, held[rank][(rank - step) % ranks]) for rank in range(ranks)]
            for rank, (part, value) in enumerate(moving):
                held[(rank + 1) % ranks][part] = value
                sent[rank] += chunk
            steps += 1
        assert all(set(pieces) == everyone for pieces in held)
    assert max(sent) == min(sent)
    return steps, sent[0]


def time(collective, ranks, size, bandwidth, latency):
    """Return the time of a ring: every step takes the latency and a chunk over the bandwidth."""
    steps, sent = simulate(collective, ranks, size)
    return sum(latency + sent / steps / bandwidth for _ in range(steps))
