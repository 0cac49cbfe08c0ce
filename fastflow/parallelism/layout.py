"""How the layers of every kind are laid out over the devices of a pipeline stage.

A strategy's kernel and data parallelism holds for all layers, unless a kind of layer (embedding,
hidden, softmax) has its own: an LSTM with a vocabulary of 800K wants its softmax cut otherwise than its
cells. A kind's own cut takes the same devices, so that every layer has all of its stage.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.errors import InputError
from fastflow.parallelism.strategy import COLUMN_ROW, NO_KERNEL, ROW_COLUMN, Strategies, Strategy, parse
from fastflow.tables import Bools, Inputs, Ints, Texts
from fastflow.workload.graph import LAYER_KINDS

SAME = "same"  # as `parallel.strategy` says


class Layouts(NamedTuple):
    """Kernel and data parallelism of each kind of layer; int64, shape (points, kinds of layer)."""

    kernel: Ints  # NO_KERNEL, ROW_COLUMN or COLUMN_ROW
    kp1: Ints
    kp2: Ints
    dp: Ints

    @property
    def row_shards(self) -> Ints:
        """Ways in which the batch rows of a layer are cut: RC's KP1 joins the data shards."""
        return self.dp * np.where(self.kernel == ROW_COLUMN, self.kp1, 1)

    @property
    def inner_shards(self) -> Ints:
        """Ways in which the inner dimension of a layer's GEMM is cut (CR's KP1)."""
        return np.where(self.kernel == COLUMN_ROW, self.kp1, 1)

    @property
    def differ(self) -> Bools:
        """Whether kinds of layer are laid out differently, shape (points,)."""
        differ: Bools = np.logical_or.reduce([(column != column[:, :1]).any(axis=1) for column in self])
        return differ

    @property
    def kernel_ranks(self) -> Ints:
        """Devices that exchange what the kernel cut needs: RC's KP2, CR's KP1."""
        return np.where(self.kernel == ROW_COLUMN, self.kp2, self.kp1)


def lay_out(inputs: Inputs, strategies: Strategies) -> tuple[Layouts, Texts]:
    """Return every point's layouts, and why one does not suit its strategy (or "").

    inputs: `parallel.embedding`, `.hidden` and `.softmax`, each `same` or a strategy without stages; where
    that has no data parallelism, the devices that the cut leaves share the batch. Raises InputError.
    """
    points, kinds = strategies.dp.size, len(LAYER_KINDS)
    kernel, kp1, kp2, dp = (
        np.repeat(column[:, None], kinds, axis=1)
        for column in (strategies.kernel, strategies.kp1, strategies.kp2, strategies.dp)
    )
    layouts = Layouts(kernel=kernel, kp1=kp1, kp2=kp2, dp=dp)
    reason = np.full(points, "", dtype=object)
    for kind, name in enumerate(LAYER_KINDS):
        key = f"parallel.{name}"
        for i in np.flatnonzero(inputs[key] != SAME):
            available = int(strategies.devices[i] // strategies.lp[i])
            own = parse_layout(str(inputs[key][i]), key)
            cut = own.kp1 * own.kp2
            if own.dp == 1 and available % cut == 0:
                own = own._replace(dp=available // cut)
            if own.devices != available and reason[i] == "":
                devices = "one device" if available == 1 else f"{available} devices"
                allowed = f"a cut that uses the {devices} of a layer under the strategy"
                reason[i] = str(InputError(key, inputs[key][i], allowed))
            for column, degree in zip(layouts, own[: len(Layouts._fields)], strict=True):
                column[i, kind] = degree
    return layouts, reason.astype(str)


def parse_layout(text: str, key: str) -> Strategy:
    """Read the cut of one kind of layer; raises InputError where it is none or has pipeline stages."""
    if text == SAME:
        return Strategy(kernel=NO_KERNEL, kp1=1, kp2=1, dp=1, lp=1)
    own = parse(text, key)
    if own.lp > 1:
        raise InputError(
            key, text, "a cut without pipeline stages; parallel.strategy sets those for all layers"
        )
    return own
