"""A pass whose layers are read from lower tiers of memory, event by event, and bytes tier by tier."""


def pass_with_two_buffers(computes, reads):
    """Return the time of a pass [s]; computes, reads: of each layer in order [s].

    One link reads a layer after the other. A read needs a free buffer: that of the layer two before, once it
    is computed. A layer is computed when it is read and the one before is computed.
    """
    read_end, computed_end = [], []
    for layer, (compute, read) in enumerate(zip(computes, reads, strict=True)):
        link_free = read_end[-1] if read_end else 0.0
        buffer_free = computed_end[layer - 2] if layer >= 2 else 0.0
        read_end.append(max(link_free, buffer_free) + read)
        before = computed_end[-1] if computed_end else 0.0
        computed_end.append(max(before, read_end[-1]) + compute)
    return computed_end[-1]


def pass_on_demand(computes, reads):
    """Return the time of a pass that reads a layer when it needs it [s]."""
    time = 0.0
    for compute, read in zip(computes, reads, strict=True):
        time += read
        time += compute
    return time


def filled_tiers(held, capacities):
    """Return the bytes in every tier, and what no tier has room for [B]."""
    filled = []
    for capacity in capacities:
        taken = min(held, capacity)
        filled.append(taken)
        held -= taken
    return filled, held


def read_s(filled, bandwidths, latencies, layers):
    """Return the time of reading all layers [s], each an equal part of every tier, tiers at the same time."""
    time = 0.0
    for _ in range(layers):
        tier_s = [held / layers / bandwidth for held, bandwidth in zip(filled, bandwidths, strict=True)]
        time += max(tier_s) + max(
            (latency for held, latency in zip(filled, latencies, strict=True) if held > 0), default=0.0
        )
    return time
