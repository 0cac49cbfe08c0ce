"""A pass of a server whose attention has devices of its own: what each set of devices computes of it.

Tables of passes over whole layers are there for both sets, each with its chip and layout. Of the layers but
the core of attention, the devices of attention compute its products, the sums with their norms, and the
embedding; all else is of the other devices. Half of the exchanges of a set are those of its part of a layer:
the other half is the transfer to the other set, which sends each device a shard. Experts on several ranks
get their tokens in the transfer, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Ints
from fastflow.performance.serving.attention_pool.transfers import Transfers
from fastflow.performance.serving.passes.interpolate import interpolate_at
from fastflow.performance.serving.passes.parts import Part
from fastflow.performance.serving.pipeline_stages import EMBEDDING_TIME


class Sets(NamedTuple):
    """Both sets of devices of servers; (servers,)."""

    row: Ints  # of the passes of the other devices
    side: Ints  # of those of the devices of attention
    attention: Ints  # devices of attention
    others: Ints  # other devices
    ranks: Ints  # of attention
    groups: Ints  # ranks of the other devices
    microbatches: Ints
    queries: Ints  # tokens of a decoding request in a pass
    layers: Ints
    is_operator: Bools  # whether devices of attention compute its core alone
    idle: Floats  # power of another device at rest [W]
    side_idle: Floats  # of a device of attention [W]
    transfers: Transfers

    @property
    def num_layers(self) -> Floats:
        """Layers of the model, as a number for times."""
        return self.layers.astype(np.float64)

    @property
    def share(self) -> Floats:
        """Share of the devices that are of attention."""
        share: Floats = self.attention / (self.attention + self.others)
        return share


class Share(NamedTuple):
    """What a set of devices computes of all layers in a micro-batch; (servers, tokens, ...)."""

    time: Floats  # of kernels and exchanges in the layers [s]
    exchange: Floats  # of it [s]
    outside: Floats  # time of the embedding [s]
    part: Part  # the pass over whole layers
    kernels: Floats  # kernels and embedding, over all kernels of this pass


class Split(NamedTuple):
    """A pass by sets of devices; (servers, tokens)."""

    batches: Floats  # micro-batches: as many as there are, or requests
    attention: Share
    others: Share
    send: Floats  # time of a transfer to the other devices in a layer [s]
    back: Floats  # [s]

    def serial_s(self, layers: Floats) -> Floats:
        """Return the time without overlap and without the core of attention [s]."""
        computed = sum(of.time + of.outside for of in (self.attention, self.others))
        serial: Floats = self.batches * (computed + layers * (self.send + self.back))
        return serial


def read(part: Part, axes: tuple[Ints, ...], rows: Ints, *sizes: Floats) -> Part:
    """Return a part of passes at sizes, (servers, ...): of rows of the tables, (servers,)."""
    shape = np.broadcast_shapes(*(size.shape for size in sizes))
    server = np.broadcast_to(rows.reshape(-1, *(1,) * (len(shape) - 1)), shape).ravel()
    values = [np.broadcast_to(size, shape).ravel() for size in sizes]
    columns = (interpolate_at(column, axes, server, values) for column in part)
    return Part(*(column.reshape(*shape, *column.shape[1:]) for column in columns))


def split_of(sets: Sets, tokens: Ints, others: Part, attention: Part) -> Split:
    """Return passes over some tokens of an attention rank, by sets of devices.

    others, attention: of layers without the core of attention, of either set's tables.
    """
    is_operator, groups = sets.is_operator[:, None], sets.groups[:, None]
    whole_requests = tokens // sets.queries[:, None]
    batches = np.clip(whole_requests, 1, sets.microbatches[:, None]).astype(np.float64)
    size = tokens / batches
    whole = read(others, (tokens,), sets.row, np.maximum(size * (sets.ranks[:, None] / groups), 1.0))
    side = read(attention, (tokens,), sets.side, size)
    embedding = side.of_model[..., EMBEDDING_TIME]
    own_kernels = np.where(is_operator, 0.0, side.attention + side.sums)
    own_exchange = np.where(is_operator, 0.0, 0.5 * side.exchange)
    rest = whole.time - whole.exchange - whole.of_model[..., EMBEDDING_TIME]
    rest = np.maximum(np.where(is_operator, rest, rest - whole.attention - whole.sums), 0.0)
    kept = np.where(is_operator, 1.0, np.where(groups > 1, 0.0, 0.5)) * whole.exchange
    transfers = sets.transfers
    send, back = (
        transfers.latency[:, None] + seconds[:, None] * size for seconds in (transfers.send, transfers.back)
    )
    return Split(
        batches=batches,
        attention=_share(own_kernels, own_exchange, np.where(is_operator, 0.0, embedding), side),
        others=_share(
            rest, kept, np.where(is_operator, whole.of_model[..., EMBEDDING_TIME], 0.0), whole
        ),
        send=send,
        back=back,
    )  # fmt: skip


def _share(kernels: Floats, exchange: Floats, outside: Floats, part: Part) -> Share:
    """Return what a set computes; kernels, exchange: in the layers; outside: the embedding [s]."""
    of_kernels = part.time - part.exchange
    share = (kernels + outside) / np.where(of_kernels > 0.0, of_kernels, 1.0)
    return Share(kernels + exchange, exchange, outside, part, np.minimum(share, 1.0))
