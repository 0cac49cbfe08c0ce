"""Exchanges of experts that are not all-to-alls alone, by Megatron-core's dispatchers (6.4).

`alltoall`: a rank with several experts sorts the rows beside every exchange. `allgather`: every token goes to
all ranks that share experts, and the outputs of all of them are summed: an all-gather and a reduce-scatter of
all ranks' tokens, whatever these chose. `flex`: a token goes once to each machine (`moe_dispatch`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.network.moe_dispatch import Dispatch, expert_choices
from fastflow.physics.parallelism.defaults import gathers_tokens, has_experts, sends_once
from fastflow.physics.parallelism.sharding.local_graph import CrossEdges
from fastflow.physics.workload.graph import ALL_GATHER, ALL_TO_ALL, EXPERTS, Graph


class Gathered(NamedTuple):
    """The exchanges of experts of some points that send all tokens to all ranks."""

    rows: Ints  # kernels that may have one
    share: Floats  # bytes of all ranks' tokens, of those of an all-to-all


def gathered_of(inputs: Inputs, experts: Ints, graph: Graph) -> Gathered | None:
    """Return the exchanges of experts that send all tokens to all ranks, None where there are none.

    experts: ranks that share the experts, (points,).
    """
    gathers = gathers_tokens(inputs)
    if not gathers.any():
        return None
    rows = np.flatnonzero(gathers[graph.point] & (graph.layer.part == EXPERTS))
    _, topk = expert_choices(rows, graph)
    return Gathered(rows, experts[graph.point[rows]] / topk)


class Sorted(NamedTuple):
    """The all-to-alls of experts behind or before which a rank sorts rows by its experts."""

    rows: Ints  # kernels that may have one
    s_per_byte: Floats  # of a row that is read and written


def sorted_of(inputs: Inputs, experts: Ints, chip: Chip, graph: Graph) -> Sorted | None:
    """Return the all-to-alls of experts with rows to sort, None where there are none.

    An all-to-all delivers rows rank by rank; a rank with several experts needs them expert by expert, and
    sends them back rank by rank (sort_chunks_by_idxs of NVIDIA/Megatron-LM, megatron/core/transformer/moe/
    token_dispatcher.py). Servers have kernels of their own.

    experts: ranks that share the experts, (points,).
    """
    sorts = inputs["model.training"] & ~sends_once(inputs) & ~gathers_tokens(inputs)
    sorts = sorts & has_experts(inputs) if sorts.any() else sorts
    if not sorts.any():
        return None
    rows = np.flatnonzero(sorts[graph.point] & (graph.layer.part == EXPERTS))
    of_layer, _ = expert_choices(rows, graph)
    rows = rows[of_layer > experts[graph.point[rows]]]
    reached = chip.dram.bandwidth * inputs["chip.dram_utilization"]
    return Sorted(rows, 2.0 / reached[graph.point[rows]])


def gather_tokens(gathered: Gathered, collective: Ints, size: Floats) -> tuple[Ints, Floats]:
    """Return collectives and their bytes with all-gathers for the all-to-alls of `gathered`, (kernels,)."""
    rows = gathered.rows
    collective, size = collective.copy(), size.copy()
    of_tokens = collective[rows] == ALL_TO_ALL
    size[rows] *= np.where(of_tokens, gathered.share, 1.0)
    collective[rows[of_tokens]] = ALL_GATHER
    return collective, size


def sort_times(sorts: Sorted, edges: CrossEdges) -> Floats:
    """Return the time to sort the rows of every all-to-all, (rows of `sorts`,) [s]."""
    is_sorted = edges.collective[sorts.rows] == ALL_TO_ALL
    return np.where(is_sorted, sorts.s_per_byte * edges.bytes[sorts.rows], 0.0)


class ExpertExchanges(NamedTuple):
    """What is not an all-to-all alone; None where no point has any."""

    dispatch: Dispatch | None = None  # dispatch and combine that are no collectives
    gathered: Gathered | None = None
    sorted: Sorted | None = None
