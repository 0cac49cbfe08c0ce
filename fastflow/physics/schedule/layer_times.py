"""Times of a layer on its device, forward and backward, in graphs with runs of equal layers.

A layer is a walk through its rows: a kernel starts when the kernel before it is done, and the exchanges that
it waits for are. The exchanges of a layer are done before the next layer begins.

Exchanges of tensor and context parallelism overlap with a product where that is enabled: a reduce-scatter
with the product that makes its input, an all-gather with the product that reads its result, both in as many
parts as there are devices, of which the first cannot overlap (Wang et al., ASPLOS 2023,
doi:10.1145/3567955.3567959). The exchanges of experts overlap with another micro-batch's kernels of
the same layer. Gathers of weights (ZeRO-3) overlap with the layer before, and so do sums of gradients of
every micro-batch, one after the other on the same network (PyTorch's FSDP).

Overlap is not free (`overlap`): kernels have fewer bundles for as long as a collective runs with them.
Each part of an exchange of context parallelism runs with a part of attention. The parts of a product that
tensor parallelism overlaps with are tiled for the remaining bundles, from the first to the last
(set_sm_margin of NVIDIA/TransformerEngine).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.schedule.overlap import exposed_time
from fastflow.physics.workload.graph import (
    ALL_GATHER,
    BACKWARD,
    FORWARD,
    PRODUCTS,
    REDUCE_SCATTER,
    UPDATE,
    Graph,
)
from fastflow.physics.workload.recompute_modules import is_recomputed

TENSOR, CONTEXT, EXPERT, WEIGHTS, GRADIENTS = 0, 1, 2, 3, 4
WAITS = ("tensor", "context", "expert", "weights", "gradients")
"""What a kernel waits for: exchanges by their parallelism; the last are gathers of weights, and sums of their
gradients where every micro-batch sums its gradients."""
_KINDS = len(WAITS)
MODULES = 2
"""Index of launches of modules that are recomputed, after those forward and backward."""
ONCE, RECOMPUTED = 3, 4
"""Indices of waits after those of the phases: of the forward pass that no recomputation repeats, and that of
modules repeats."""


class Waits(NamedTuple):
    """The exchanges that one launch of every kernel waits for."""

    time: Floats  # by WAITS [s], (waits, kernels)
    level: Ints  # of the network, (kernels,)
    ranks: Ints  # of the first exchange of activations, (kernels,)
    collective: Ints  # the first exchange of activations, (kernels,)


class Overlap(NamedTuple):
    """Which exchanges overlap with kernels, (points,)."""

    tensor: Bools
    context: Bools
    expert: Bools
    weights: Bools
    taken: Floats  # share of the bundles that a collective takes from the kernels that it overlaps with


class LayerTimes(NamedTuple):
    """Times of one of the layers that a layer of the graph stands for; (layers of all points,).

    Of one micro-batch, but for the update.
    """

    first: Ints  # point p has layers first[p] to first[p + 1]
    forward: Floats  # [s]
    backward: Floats  # without kernels that only the update reads [s]
    weight: Floats  # kernels that only the update reads: weight gradients [s]
    update: Floats  # without gathers of the updated weights [s]
    gather: Floats  # of the weights whose update is sharded [s]
    recomputed: Floats  # of the forward pass, kernels of modules that are recomputed, with their waits [s]
    once: Floats  # of the forward pass, kernels that no recomputation repeats, with their waits [s]
    waits: Floats  # exposed communication [s], (3 phases, ONCE and RECOMPUTED, waits, layers)
    launches: Floats  # of kernels forward, backward and of `recomputed`, (3, layers)


class _Rows(NamedTuple):
    """The rows of one phase of a layer, and workspace for their waits."""

    begin: int
    end: int
    last: int  # end of the point's
    wait: Ints  # as `Graph` has it, (kernels,)
    level: Ints  # as `Waits` has it, (kernels,)
    launched: Floats  # all launches of a kernel [s], (kernels,)
    waiting: Floats  # all launches, from `begin` on [s], (waits, rows)
    due: Floats  # when the exchanges that a row waits for are done, from `begin` on [s], (rows,)


@lean_kernel
def _exposed_in_parts(product: float, exchanged: float, ranks: int, taken: float) -> float:
    """Return the exposed time of an exchange that overlaps with a product in parts, on fewer bundles [s].

    An exchange that is short next to its product is not overlapped: libraries choose product by product
    (tp_comm_overlap_disable_qkv and _fc1 of NVIDIA/Megatron-LM, tp_comm_overlap_cfg of NVIDIA NeMo).
    """
    part, lost = 1.0 / ranks, taken / (1.0 - taken) * product
    hidden = part * exchanged + (1.0 - part) * max(exchanged - product - lost, 0.0) + lost
    return min(hidden, exchanged)


@lean_kernel
def _hide_behind_products(kind: Ints, rows: _Rows, hidden: int, waits: Waits, taken: float) -> None:
    """Reduce the waits of the rows of a layer that overlap with a product, which has fewer bundles then.

    kind: of kernels. hidden: TENSOR, whose product has fewer bundles in all its parts, or CONTEXT, whose
    product has fewer while a part of the exchange runs.
    """
    for row in range(rows.begin, rows.end):
        time, collective = rows.waiting[hidden, row - rows.begin], waits.collective[row]
        if time == 0.0 or collective not in (REDUCE_SCATTER, ALL_GATHER):
            continue
        product = row if collective == REDUCE_SCATTER else row + rows.wait[row]
        if product < rows.last and kind[product] in PRODUCTS:
            busy, ranks = rows.launched[product], waits.ranks[row]
            if hidden == TENSOR:
                exposed = _exposed_in_parts(busy, time, ranks, taken)
            else:
                part = 1.0 / ranks
                exposed = part * time + (1.0 - part) * exposed_time(busy, time, taken)
            rows.waiting[hidden, row - rows.begin] = exposed


@lean_kernel
def _exposed_share(exchanged: float, busy: float, taken: float) -> float:
    """Return the exposed share of exchanges that overlap with kernels, the kernels' loss included."""
    return exposed_time(busy, exchanged, taken) / exchanged if exchanged > 0.0 else 1.0


@lean_kernel
def _walk_rows(rows: _Rows, first_kind: int) -> float:
    """Return the time of the rows [s], with the waits of the kinds from `first_kind` on."""
    now, last_sent, intra_free, inter_free = 0.0, 0.0, 0.0, 0.0
    count, due = rows.end - rows.begin, rows.due
    for i in range(count):
        due[i] = 0.0
    for i in range(count):
        row = rows.begin + i
        now = max(now, due[i]) + rows.launched[row]
        sent = 0.0
        for kind in range(first_kind, _KINDS):
            sent += rows.waiting[kind, i]
        if sent > 0.0:
            if rows.level[row] == 0:
                intra_free = done = max(intra_free, now) + sent
            else:
                inter_free = done = max(inter_free, now) + sent
            reader = i + rows.wait[row]
            if reader < count:
                due[reader] = max(due[reader], done)
            last_sent = max(last_sent, done)
    return float(max(now, last_sent))


@lean_kernel
def _attribute_waits(rows: _Rows, waits: Floats) -> float:
    """Return the time of the rows with all waits, and add the exposed time of each kind to `waits` [s].

    Kinds are left out one after the other, so that kernels and waits add up to the time of the rows, whatever
    overlaps. waits: by kind, (waits,).
    """
    none = rows.begin - rows.begin  # for a literal 0 Numba would compile `_walk_rows` twice
    total = remaining = _walk_rows(rows, none)
    for kind in range(GRADIENTS):
        if rows.waiting[kind, : rows.end - rows.begin].any():
            without = _walk_rows(rows, kind + 1)
            waits[kind] += remaining - without
            remaining = without
    return total


@kernel
def _empty_layers(first: Ints) -> LayerTimes:
    """Return times of 0 for all layers."""
    layers = first[-1]
    return LayerTimes(
        first=first,
        forward=np.zeros(layers),
        backward=np.zeros(layers),
        weight=np.zeros(layers),
        update=np.zeros(layers),
        gather=np.zeros(layers),
        recomputed=np.zeros(layers),
        once=np.zeros(layers),
        waits=np.zeros((RECOMPUTED + 1, _KINDS, layers)),
        launches=np.zeros((3, layers)),
    )


@lean_kernel
def _leave_modules(rows: _Rows, of_module: Ints, modules: int) -> bool:
    """Set the times of all rows to 0 but those of modules; say whether there are any of these.

    modules: as bits. Weights are gathered once for recomputation and the backward pass, in the latter.
    """
    has_any = False
    for row in range(rows.begin, rows.end if modules > 0 else rows.begin):
        has_any |= is_recomputed(of_module[row], modules)
    for row in range(rows.begin, rows.end if has_any else rows.begin):
        if is_recomputed(of_module[row], modules):
            rows.waiting[WEIGHTS, row - rows.begin] = 0.0
        else:
            rows.launched[row] = 0.0
            rows.waiting[:, row - rows.begin] = 0.0
    return has_any


@kernel
def walk_layers(
    graph: Graph, first: Ints, kernel_s: Floats, waits: Waits, overlap: Overlap, modules: Ints
) -> LayerTimes:
    """Return the times of every layer; first: where the layers of each point begin, (points + 1,).

    kernel_s: one launch of every kernel [s], (kernels,); modules: parts of layers that are recomputed, as
    bits, (points,).
    """
    out, launched, max_rows = _empty_layers(first), kernel_s * graph.launches.repeat, 0
    for p in range(first.size - 1):
        max_rows = max(max_rows, graph.offset[p + 1] - graph.offset[p])
    due, waiting, wait_sums = np.empty(max_rows), np.empty((_KINDS, max_rows)), np.empty(_KINDS)
    phases, layer_of, wait, level = graph.phase, graph.layer.number, graph.comm.wait, waits.level
    of_module, before = graph.memory.modules, np.zeros(_KINDS)
    for p in range(first.size - 1):
        row, last = graph.offset[p], graph.offset[p + 1]
        while row < last:
            begin, layer, phase, is_once = row, layer_of[row], phases[row], of_module[row] < 0
            while row < last and layer_of[row] == layer and phases[row] == phase:
                if (of_module[row] < 0) != is_once:
                    break
                row += 1
            rows, count = _Rows(begin, row, last, wait, level, launched, waiting, due), row - begin
            index, busy, side = first[p] + layer, 0.0, 0.0
            for i in range(begin, row):
                busy += launched[i]
                side += launched[i] * graph.comm.side[i]
                for kind in range(_KINDS):
                    waiting[kind, i - begin] = graph.launches.repeat[i] * waits.time[kind, i]
            for kind, hides in ((TENSOR, overlap.tensor[p]), (CONTEXT, overlap.context[p])):
                if hides:
                    _hide_behind_products(graph.kind, rows, kind, waits, overlap.taken[p])
            for kind in range(_KINDS):
                wait_sums[kind] = waiting[kind, :count].sum()
            if phase == UPDATE:
                waiting[WEIGHTS, :count] = 0.0  # gathers overlap with the next iteration
                out.gather[index] += wait_sums[WEIGHTS]
                out.update[index] += _attribute_waits(rows, out.waits[phase, :, index])
                continue
            if overlap.expert[p]:
                waiting[EXPERT, :count] *= _exposed_share(wait_sums[EXPERT], busy, overlap.taken[p])
            shared = wait_sums[WEIGHTS] + wait_sums[GRADIENTS]
            exposed_share = _exposed_share(shared, busy, overlap.taken[p]) if overlap.weights[p] else 1.0
            waiting[WEIGHTS, :count] *= exposed_share
            waiting[GRADIENTS, :count] = 0.0  # no row waits for them, but the end of the layer
            if is_once:
                before[:] = out.waits[phase, :, index]
            total = _attribute_waits(rows, out.waits[phase, :, index])
            out.waits[phase, GRADIENTS, index] += exposed_share * wait_sums[GRADIENTS]
            total += exposed_share * wait_sums[GRADIENTS]
            if phase == FORWARD:
                out.forward[index] += total
                if is_once:
                    out.once[index] += total
                    out.waits[ONCE, :, index] += out.waits[phase, :, index] - before
                for i in range(begin, row):
                    out.launches[FORWARD, index] += graph.launches.repeat[i]
                    if is_recomputed(of_module[i], modules[p]):
                        out.launches[MODULES, index] += graph.launches.repeat[i]
                if _leave_modules(rows, of_module, modules[p]):
                    out.recomputed[index] += _attribute_waits(rows, out.waits[RECOMPUTED, :, index])
            else:
                out.backward[index] += total - side
                out.weight[index] += side
                for i in range(begin, row):
                    out.launches[BACKWARD, index] += graph.launches.repeat[i]
    return out
