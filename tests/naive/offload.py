"""Iterations of one device whose tensors are with its host: what moves during each block, and how long.

Both directions of the link are busy at once (ZeRO-Infinity, arXiv:2104.07857). Forward, a layer's activations
go out while weights come in; backward both come in while gradients go out. A block takes as long as the
longest of its kernels and both directions. All bytes are of a micro-batch; no part hides behind another
block.
"""

from typing import NamedTuple


class Moved(NamedTuple):
    """Bytes of the device's tensors."""

    activations: float
    weights: float
    gradients: float
    states: float  # masters and states of the optimizer
    update: float  # that updating all weights moves


class Host(NamedTuple):
    """Rates of the host, one direction [B/s]."""

    link: float
    drives: float | None  # where weights and states are; None: in its memory
    memory: float
    updates: bool  # rather than the device


def iteration(forward, backward, update, microbatches, moved, what, host):
    """Return the time of an iteration [s]; what: names of fields of `Moved` that are with the host.

    forward, backward: of a micro-batch on the device; update: on the device [s].
    """
    of_state = min(host.link, host.drives or host.link)
    activations = moved.activations / host.link if "activations" in what else 0.0
    weights = moved.weights / of_state if "weights" in what else 0.0
    gradients = moved.gradients / of_state if "weights" in what else 0.0
    going = max(forward, activations, weights)
    returning = max(backward, activations + weights, gradients)
    if "states" in what:
        # gradients come back to a device that updates, and new weights go out
        more = max(moved.gradients, moved.weights) if "weights" in what else 0.0
        parts = [(moved.states + more) / of_state]
        if host.updates:
            parts = [moved.update / host.memory]
            if host.drives:
                parts.append(moved.states / host.drives)
            if "weights" not in what:
                parts += [moved.gradients / host.link, moved.weights / host.link]
        update = max(update, *parts)
    return microbatches * (going + returning) + update
