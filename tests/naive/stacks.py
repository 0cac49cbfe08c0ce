"""Layers dealt to pipeline stages, and the walk through one of them, slow and obvious."""

from __future__ import annotations


def deal(before, hidden, after, stages, chunks):
    """Return the layers of every virtual stage, by their places in the model, None for a rest."""
    virtual, every = stages * chunks, list(range(before + hidden + after))
    if hidden % virtual == 0:
        each = hidden // virtual
        parts = [every[before + j * each : before + (j + 1) * each] for j in range(virtual)]
        parts[0] = every[:before] + parts[0]
        parts[-1] = parts[-1] + every[before + hidden :]
        return parts
    if (hidden + 2) % virtual or hidden + 2 <= virtual:
        return None
    each = (hidden + 2) // virtual  # embedding and head count as one layer each
    counted = [
        every[:before],
        *[[place] for place in every[before : before + hidden]],
        every[before + hidden :],
    ]
    return [[one for part in counted[j * each : (j + 1) * each] for one in part] for j in range(virtual)]


def walk(rows):
    """Return how long rows take one after the other; each: time, waits, network level, who waits.

    What a row waits for is sent once the row is done and its network is free.
    """
    now, ports, arrives = 0.0, {}, [0.0] * len(rows)
    last = 0.0
    for place, (time, wait, level, reader) in enumerate(rows):
        now = max(now, arrives[place]) + time
        if wait:
            ports[level] = max(ports.get(level, 0.0), now) + wait
            if place + reader < len(rows):
                arrives[place + reader] = max(arrives[place + reader], ports[level])
            last = max(last, ports[level])
    return max(now, last)


def hidden(wait, product, ranks, taken):
    """Return what is left of an exchange in as many parts as devices, all but one behind a product.

    And how much longer that takes, which has all bundles but those taken, a share of them.
    """
    part = wait / ranks
    left = part + max(0.0, (wait - part) - product * (ranks - 1) / ranks)
    return left + (product / (1.0 - taken) - product if wait else 0.0)


def beside(busy, exchanged, taken):
    """Return how long kernels and exchanges beside them take.

    While an exchange is on its way the kernels lose a share of what they do.
    """
    return busy + max(exchanged - busy, 0.0) + taken * min(exchanged, busy)
