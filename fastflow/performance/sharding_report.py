"""Sharding of every kernel of a point on the mesh and the collectives after it, in the papers' notation.

OneFlow (arXiv:2110.15032) and GSPMD (arXiv:2105.04663) write a letter an axis: S(dimension) where a tensor is
split, B where it is replicated, P where each device has a partial sum. Layouts follow from `propagation`;
bytes and ranks are those of the sharded graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from fastflow.core.tables import Bools
from fastflow.physics.parallelism.mesh import AXES, members
from fastflow.physics.parallelism.pipeline import Pipeline
from fastflow.physics.parallelism.plans import Assignment, assignments
from fastflow.physics.parallelism.sharding.layout import Layouts
from fastflow.physics.parallelism.sharding.local_graph import Supergraph
from fastflow.physics.parallelism.sharding.placements import (
    gradient_placement,
    operand_placement,
    output_gradient_placement,
    output_placement,
    sharded_dim,
    side,
)
from fastflow.physics.parallelism.sharding.propagation import STATISTICS, Sharding, shardings_of
from fastflow.physics.workload.graph import (
    COLLECTIVES,
    FORWARD,
    NO_EXCHANGE,
    NO_GRADIENT,
    ON_WEIGHTS,
    PHASES,
    Form,
    Graph,
    KernelSignature,
)
from fastflow.physics.workload.sharding_rules import COLS, GROUPS, INNER, PARTIAL, REPLICATE

EXCHANGES = ("sync", "relayout", "fetch", "gradient", "replicas", "send")
"""Roles of the exchanges of a Supergraph; several syncs of a kernel are sync, sync2 and so on."""
STATISTICS_SUFFIX = " of statistics"  # of rows, or the norms of gradients


class AxisPlacements(NamedTuple):
    """Layouts of a kernel's operands along one axis; "" for an operand that it lacks."""

    axis: str
    cut: str  # side of the kernel: rows, inner or cols; "" where the axis splits none
    reads: str  # of a weight gradient "input | gradient of the output" where they differ
    weights: str
    makes: str  # its result, before the exchanges


class ExchangeReport(NamedTuple):
    """An exchange after a kernel."""

    role: str  # of EXCHANGES
    what: str  # the collective and its tensor
    axes: tuple[str, ...]
    ranks: int
    bytes: float  # as in Supergraph


class KernelSharding(NamedTuple):
    """One kernel on its device."""

    kernel: str
    phase: str
    layer: int
    stage: int  # of the pipeline
    repeat: int  # launches in an iteration
    type: str  # its title, or update
    along: tuple[AxisPlacements, ...]  # the axes that have several devices
    exchanges: tuple[ExchangeReport, ...]


def explain(
    graph: Graph,
    shards: Supergraph,
    layouts: Layouts,
    pipe: Pipeline,
    point: int,
    names: Sequence[str],
) -> list[KernelSharding]:
    """Return the kernels of a point in their order; point: its index in all arguments.

    names: of the columns of its layouts.
    """
    structure = graph.structures[graph.structure[point]]
    several = layouts.degrees[point] > 1
    all_assignments = assignments()
    by_kind = [all_assignments[index] for index in layouts.assignment[point].tolist()]
    splits = [shardings_of(structure, assignment) for assignment in by_kind]
    split_axes = [
        tuple(axis_split for axis_split in assignment if is_split[AXES.index(axis_split[0])])
        for assignment, is_split in zip(by_kind, several, strict=True)
    ]
    explained = []
    for i, op in enumerate(structure):
        row = int(graph.offset[point]) + i
        kind, other = int(graph.layer.kind[row]), int(graph.comm.peer_kind[row])
        peer = names[other] if other != kind else ""
        exchanges = _exchanged(shards, row, splits[kind][i], several, peer)
        explained.append(
            KernelSharding(
                kernel=str(graph.names[graph.label[row]]),
                phase=PHASES[op.phase],
                layer=int(graph.layer.number[row]),
                stage=int(pipe.stage[row]),
                repeat=int(pipe.launches[row]),
                type="update" if op.kind == ON_WEIGHTS else op.form.type.title,
                along=signature(op, split_axes[kind]),
                exchanges=tuple(
                    exchange for exchange in exchanges if exchange.role != "send" or pipe.crosses[row]
                ),
            )
        )
    return explained


def _exchanged(
    shards: Supergraph, row: int, split: Sharding, several: Bools, peer: str
) -> Iterator[ExchangeReport]:
    """Yield the exchanges after a kernel, sends within a stage included.

    several: which axes have several devices, (columns of layouts, axes); peer: the tensor's other end,
    "" in a layer of this kind.
    """
    syncs = [
        (edges, STATISTICS_SUFFIX if exchange.of == STATISTICS else "")
        for edges, exchange in zip((shards.sync, *shards.further), split.exchanges, strict=False)
        if edges.collective[row] != NO_EXCHANGE
    ]
    by_role = [("sync" if i == 1 else f"sync{i}", *sync) for i, sync in enumerate(syncs, start=1)]
    by_role += [
        ("relayout", shards.relayout, f" to the layout of {peer}" if peer else ""),
        ("fetch", shards.fetch, " of weights"),
        ("gradient", shards.gradient, ""),
        ("replicas", shards.replicas, ""),
        ("send", shards.send, ""),
    ]
    for role, edges, tensor in by_role:
        if edges.collective[row] != NO_EXCHANGE:
            number, kind = divmod(int(edges.group[row]), len(several))
            names = tuple(AXES[axis] for axis in members(shards.groups.sets[number]) if several[kind, axis])
            what = COLLECTIVES[edges.collective[row]] + tensor
            yield ExchangeReport(role, what, names, int(edges.ranks[row]), float(edges.bytes[row]))


@lru_cache(maxsize=1024)
def signature(kernel: KernelSignature, assignment: Assignment) -> tuple[AxisPlacements, ...]:
    """Return the layouts of a kernel's operands along every axis of an assignment."""
    return tuple(
        AxisPlacements(
            axis,
            side(cuts, kernel.form),
            *(_format_layouts(cuts, kernel.form, layouts) for layouts in _operands(cuts, kernel)),
        )
        for axis, cuts in assignment
    )


def _operands(cuts: tuple[str, ...], kernel: KernelSignature) -> tuple[tuple[str, ...], ...]:
    """Return the layouts of inputs, weights and result along an axis, by the sides of the kernel."""
    form, axis_side = kernel.form, side(cuts, kernel.form)
    weights = axis_side if axis_side in (INNER, COLS, GROUPS) else REPLICATE
    if kernel.kind == ON_WEIGHTS:
        sums = REPLICATE if weights == REPLICATE else PARTIAL
        return (weights,), (weights,), (sums if kernel.statistics else weights,)
    input_layout, gradient_layout = operand_placement(cuts, form), output_gradient_placement(cuts, form)
    weight_layouts = (weights,) if form.type.gradient != NO_GRADIENT else ()
    if kernel.phase == FORWARD:
        inputs = (
            operand_placement(cuts, form._replace(operand=operand)) for operand in range(len(form.type.reads))
        )
        return tuple(inputs), weight_layouts, (output_placement(cuts, form),)
    if kernel.gradient != NO_GRADIENT:
        return (input_layout, gradient_layout), (), (gradient_placement(axis_side, weights),)
    return (gradient_layout,), weight_layouts, (gradient_placement(axis_side, input_layout),)


def _format_layouts(cuts: tuple[str, ...], form: Form, layouts: tuple[str, ...]) -> str:
    """Write the distinct layouts along an axis, with the dimension's name where the network has one.

    A split of a whole side is a split of its first dimension, the outermost.
    """
    where, name = sharded_dim(cuts, form)
    if name in form.type.sides:
        name = (*getattr(form.dims, where), name)[0]
    texts = (placement if placement in (REPLICATE, PARTIAL) else f"S({name})" for placement in layouts)
    return " | ".join(dict.fromkeys(texts))
