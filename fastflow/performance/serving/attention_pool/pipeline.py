"""The pipeline of micro-batches that go back and forth between two sets of devices.

In each layer, a micro-batch is on the devices of attention, is sent, is on the other devices, and is sent
back. Both sets and both directions of the links take one micro-batch at a time, in order. This is the
ping-pong pipeline of MegaScale-Infer (arXiv:2504.02263, section 4.1), whose equation for a full pipeline is
the case in which a set of devices is always busy, and the rotation of Lamina (arXiv:2405.01814).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats


class Trip(NamedTuple):
    """Times of a micro-batch in a layer [s]; of any shape."""

    attention: Floats  # on the devices of attention
    send: Floats
    others: Floats  # on the other devices
    back: Floats

    @property
    def total(self) -> Floats:
        """Time of a micro-batch alone in a layer [s]."""
        total: Floats = self.attention + self.send + self.others + self.back
        return total


def pipelined_s(trip: Trip, microbatches: Floats, layers: Floats) -> Floats:
    """Return the time of all micro-batches in all layers [s].

    A layer takes as long as a micro-batch needs alone, or as all of them need of the slowest of the four; the
    last micro-batch comes after the others. microbatches, layers: at least 1, of the shape of the times.

    >>> import numpy as np
    >>> two = np.array(2.0)
    >>> float(pipelined_s(Trip(two, 0.0 * two, two, 0.0 * two), np.array(2.0), np.array(3.0)))
    14.0
    """
    alone, slowest = trip.total, np.maximum.reduce(np.broadcast_arrays(*trip))
    layer_s = np.maximum(alone, microbatches * slowest)
    seconds: Floats = alone + (layers - 1.0) * layer_s + (microbatches - 1.0) * slowest
    return seconds
