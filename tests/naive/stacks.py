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


def both(busy, exchanged, taken):
    """Return when kernels and an exchange, started together, are both done: event by event.

    While the exchange is on its way the kernels go on at a share of their pace.
    """
    now = 0.0
    while busy > 0.0 or exchanged > 0.0:
        pace = 1.0 - taken if exchanged > 0.0 else 1.0
        ends = [left for left in (busy / pace, exchanged) if left > 0.0]
        step = min(ends)
        busy = 0.0 if busy / pace <= step else busy - step * pace
        exchanged = 0.0 if exchanged <= step else exchanged - step
        now += step
    return now


def in_parts(wait, kernel, ranks, taken):
    """Return how long a kernel and an exchange in as many parts as devices take.

    The first part of the exchange and the last one of the kernel have nothing beside them.
    """
    now = wait / ranks
    for _ in range(ranks - 1):
        now += both(kernel / ranks, wait / ranks, taken)
    return now + kernel / ranks


def laid_out(wait, product, ranks, taken):
    """The same of a product all of whose parts have all bundles but those taken, where that is quicker."""
    slower, now = product / ranks / (1.0 - taken), wait / ranks
    for _ in range(ranks - 1):
        now += max(slower, wait / ranks)
    return min(now + slower, product + wait)
