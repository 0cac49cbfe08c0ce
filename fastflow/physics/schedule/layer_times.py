"""What a layer takes on its device, forward and backward, where a graph has one layer for several alike.

A layer is a walk through its rows: a kernel starts when the one before it is done, and what it waits for has
come. What one layer exchanges is done before the next one begins.

Exchanges of tensor and context parallelism hide behind a product where asked for: one that is summed behind
the product that makes the sum, one that is gathered behind the product that reads it, both in as many parts
as there are devices, of which the first has nothing to hide behind (Wang et al., ASPLOS 2023,
doi:10.1145/3567955.3567959). The exchanges of experts hide behind another micro-batch's kernels of the same
layer. Gathers of weights (ZeRO-3) hide behind the layer before, and so do sums of gradients that every
micro-batch makes, one after the other on the same network (PyTorch's FSDP).

What hides is not free (`overlap`): kernels have fewer bundles for as long as a collective runs with them.
Each part of an exchange of context parallelism runs with a part of attention. The parts of a product behind
which tensor parallelism hides are laid out for the bundles that are left, from the first to the last
(set_sm_margin of NVIDIA/TransformerEngine).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.schedule.overlap import waited
from fastflow.physics.workload.graph import ALL_GATHER, FORWARD, PRODUCTS, REDUCE_SCATTER, UPDATE, Graph

TENSOR, CONTEXT, EXPERT, WEIGHTS, GRADIENTS = 0, 1, 2, 3, 4
WAITS = ("tensor", "context", "expert", "weights", "gradients")
"""What a kernel waits for: exchanges by what they are for; the last are gathers of weights, and sums of their
gradients where every micro-batch has its own."""
_KINDS = len(WAITS)


class Waits(NamedTuple):
    """What one launch of every kernel waits for."""

    time: Floats  # by WAITS [s], (waits, kernels)
    level: Ints  # of the network, (kernels,)
    ranks: Ints  # of the first exchange of activations, (kernels,)
    collective: Ints  # the same


class Overlap(NamedTuple):
    """What hides behind kernels, (points,)."""

    tensor: Bools
    context: Bools
    expert: Bools
    weights: Bools
    taken: Floats  # share of the bundles that a collective takes from the kernels beside it


class LayerTimes(NamedTuple):
    """What one of the layers that a layer of the graph stands for takes; (layers of all points,).

    Of one micro-batch, but for the update.
    """

    first: Ints  # point p has layers first[p] to first[p + 1]
    forward: Floats  # [s]
    backward: Floats  # without what only the update reads [s]
    weight: Floats  # kernels that only the update reads: weight gradients [s]
    update: Floats  # without gathers of what it makes [s]
    gather: Floats  # of the weights that are updated by parts [s]
    core: Floats  # of the forward pass, what selective recomputation runs again [s]
    waits: Floats  # how much longer it is for what it waits for, [s], (3 phases, waits, layers)


class _Rows(NamedTuple):
    """The rows of one phase of a layer, and room for what they wait for."""

    begin: int
    end: int
    last: int  # end of the point's
    wait: Ints  # as `Graph` has it, (kernels,)
    level: Ints  # as `Waits` has it, (kernels,)
    launched: Floats  # all launches of a kernel [s], (kernels,)
    waiting: Floats  # all launches, from `begin` on [s], (waits, rows)
    due: Floats  # when what a row waits for is there, from `begin` on [s], (rows,)


@lean_kernel
def _laid_out(product: float, exchanged: float, ranks: int, taken: float) -> float:
    """Return what is waited for of an exchange behind a product in parts, laid out for fewer bundles [s].

    An exchange that is short beside its product is not hidden so: libraries say it product by product
    (tp_comm_overlap_disable_qkv and _fc1 of NVIDIA/Megatron-LM, tp_comm_overlap_cfg of NVIDIA NeMo).
    """
    part, lost = 1.0 / ranks, taken / (1.0 - taken) * product
    hidden = part * exchanged + (1.0 - part) * max(exchanged - product - lost, 0.0) + lost
    return min(hidden, exchanged)


@lean_kernel
def _hide(kind: Ints, rows: _Rows, hidden: int, waits: Waits, taken: float) -> None:
    """Take off what the rows of a layer wait for what hides behind a product, which has fewer bundles then.

    kind: of kernels. hidden: TENSOR, whose product has fewer in all its parts, or CONTEXT, whose product has
    while a part of the exchange runs.
    """
    for row in range(rows.begin, rows.end):
        time, collective = rows.waiting[hidden, row - rows.begin], waits.collective[row]
        if time == 0.0 or collective not in (REDUCE_SCATTER, ALL_GATHER):
            continue
        product = row if collective == REDUCE_SCATTER else row + rows.wait[row]
        if product < rows.last and kind[product] in PRODUCTS:
            busy, ranks = rows.launched[product], waits.ranks[row]
            if hidden == TENSOR:
                left = _laid_out(busy, time, ranks, taken)
            else:
                part = 1.0 / ranks
                left = part * time + (1.0 - part) * waited(busy, time, taken)
            rows.waiting[hidden, row - rows.begin] = left


@lean_kernel
def _left(exchanged: float, busy: float, taken: float) -> float:
    """Return the share of some exchanges that is waited for beside kernels, with what these lose."""
    return waited(busy, exchanged, taken) / exchanged if exchanged > 0.0 else 1.0


@lean_kernel
def _walk(rows: _Rows, kinds_from: int) -> float:
    """Return how long the rows take [s], of whose waits the kinds from `kinds_from` on count."""
    now, tail, free, other = 0.0, 0.0, 0.0, 0.0
    count, due = rows.end - rows.begin, rows.due
    for i in range(count):
        due[i] = 0.0
    for i in range(count):
        row = rows.begin + i
        now = max(now, due[i]) + rows.launched[row]
        sent = 0.0
        for kind in range(kinds_from, _KINDS):
            sent += rows.waiting[kind, i]
        if sent > 0.0:
            if rows.level[row] == 0:
                free = done = max(free, now) + sent
            else:
                other = done = max(other, now) + sent
            reader = i + rows.wait[row]
            if reader < count:
                due[reader] = max(due[reader], done)
            tail = max(tail, done)
    return float(max(now, tail))


@lean_kernel
def _attribute(rows: _Rows, waits: Floats) -> float:
    """Return what `_walk` does of all waits, and add how much longer that is for each kind [s].

    Kinds are left out one after the other, so that kernels and waits add up to what rows take, whatever hides
    behind what. waits: by kind, (waits,).
    """
    total = left = _walk(rows, rows.begin - rows.begin)  # for a literal 0 Numba would compile it twice
    for kind in range(GRADIENTS):
        if rows.waiting[kind, : rows.end - rows.begin].any():
            without = _walk(rows, kind + 1)
            waits[kind] += left - without
            left = without
    return total


@kernel
def _empty_layers(first: Ints) -> LayerTimes:
    """Return what layers of points take so far: nothing."""
    layers = first[-1]
    return LayerTimes(
        first=first,
        forward=np.zeros(layers),
        backward=np.zeros(layers),
        weight=np.zeros(layers),
        update=np.zeros(layers),
        gather=np.zeros(layers),
        core=np.zeros(layers),
        waits=np.zeros((3, _KINDS, layers)),
    )


@kernel
def walk_layers(graph: Graph, first: Ints, kernel_s: Floats, waits: Waits, overlap: Overlap) -> LayerTimes:
    """Return what every layer takes; first: where the layers of each point begin, (points + 1,).

    kernel_s: one launch of every kernel [s], (kernels,).
    """
    out, launched, most = _empty_layers(first), kernel_s * graph.repeat, 0
    for p in range(first.size - 1):
        most = max(most, graph.offset[p + 1] - graph.offset[p])
    due, waiting, sums = np.empty(most), np.empty((_KINDS, most)), np.empty(_KINDS)
    phases, layer_of, wait, level = graph.phase, graph.layer, graph.wait, waits.level
    for p in range(first.size - 1):
        row, last = graph.offset[p], graph.offset[p + 1]
        while row < last:
            begin, layer, phase = row, layer_of[row], phases[row]
            while row < last and layer_of[row] == layer and phases[row] == phase:
                row += 1
            rows, count = _Rows(begin, row, last, wait, level, launched, waiting, due), row - begin
            at, busy, side, core = first[p] + layer, 0.0, 0.0, 0.0
            for i in range(begin, row):
                busy += launched[i]
                side += launched[i] * graph.side[i]
                core += launched[i] * (graph.selective[i] > 0)
                for kind in range(_KINDS):
                    waiting[kind, i - begin] = graph.repeat[i] * waits.time[kind, i]
            for kind, hides in ((TENSOR, overlap.tensor[p]), (CONTEXT, overlap.context[p])):
                if hides:
                    _hide(graph.kind, rows, kind, waits, overlap.taken[p])
            for kind in range(_KINDS):
                sums[kind] = waiting[kind, :count].sum()
            if phase == UPDATE:
                waiting[WEIGHTS, :count] = 0.0  # gathers are beside the iteration after
                out.gather[at] += sums[WEIGHTS]
                out.update[at] += _attribute(rows, out.waits[phase, :, at])
                continue
            if overlap.expert[p]:
                waiting[EXPERT, :count] *= _left(sums[EXPERT], busy, overlap.taken[p])
            shared = sums[WEIGHTS] + sums[GRADIENTS]
            left = _left(shared, busy, overlap.taken[p]) if overlap.weights[p] else 1.0
            waiting[WEIGHTS, :count] *= left
            waiting[GRADIENTS, :count] = 0.0  # no row waits for them, but the end of the layer
            total = _attribute(rows, out.waits[phase, :, at])
            out.waits[phase, GRADIENTS, at] += left * sums[GRADIENTS]
            total += left * sums[GRADIENTS]
            if phase == FORWARD:
                out.forward[at] += total
                out.core[at] += core
            else:
                out.backward[at] += total - side
                out.weight[at] += side
    return out
