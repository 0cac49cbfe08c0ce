"""How every kernel of a point lies on the mesh and what is exchanged after it, in the papers' notation.

OneFlow (arXiv:2110.15032) and GSPMD (arXiv:2105.04663) write a letter an axis: S(dimension) where a tensor is
split, B where every device has all of it, P where each has a partial sum. Layouts follow from `splits`; bytes
and ranks are those of the cut graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from fastflow.core.tables import Bools, Ints
from fastflow.physics.parallelism.mesh import AXES, members
from fastflow.physics.parallelism.pipeline import Pipeline
from fastflow.physics.parallelism.plans import Assignment, assignments
from fastflow.physics.parallelism.sharding.layout import Layouts
from fastflow.physics.parallelism.sharding.local_graph import Supergraph
from fastflow.physics.parallelism.sharding.placements import (
    cut_at,
    gradient_placement,
    operand_placement,
    output_gradient_placement,
    output_placement,
    side,
)
from fastflow.physics.parallelism.sharding.propagation import STATISTICS, Split, splits_of
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
"""Of a Supergraph; where a kernel has several of the first, the others are sync2 and so on."""
OF_STATISTICS = " of statistics"  # of rows, or the norms of gradients


class Along(NamedTuple):
    """Layouts of a kernel's operands along one axis; "" for an operand that it has not."""

    axis: str
    cut: str  # side of the kernel: rows, inner or cols; "" where the axis cuts none
    reads: str  # of a weight gradient "input | gradient of the output" where they differ
    weights: str
    makes: str  # before anything is exchanged


class Exchanged(NamedTuple):
    """What is exchanged after a kernel."""

    role: str  # of EXCHANGES
    what: str  # the collective, and of what
    axes: tuple[str, ...]
    ranks: int
    bytes: float  # as in Supergraph


class Explained(NamedTuple):
    """One kernel on its device."""

    kernel: str
    phase: str
    layer: int
    stage: int  # of the pipeline
    repeat: int  # launches in an iteration
    type: str  # its title, or update
    along: tuple[Along, ...]  # the axes that have several devices
    exchanges: tuple[Exchanged, ...]


def explain(
    graph: Graph,
    shards: Supergraph,
    layouts: Layouts,
    pipe: Pipeline,
    launches: Ints,
    point: int,
    names: Sequence[str],
) -> list[Explained]:
    """Return the kernels of one point in their order; point: its number in all that is given.

    launches: of every kernel in an iteration, shape (kernels,); names: of the columns of its layouts.
    """
    structure = graph.structures[graph.structure[point]]
    several = layouts.degrees[point] > 1
    known = assignments()
    of_kind = [known[number] for number in layouts.assignment[point].tolist()]
    splits = [splits_of(structure, assignment) for assignment in of_kind]
    cutting = [
        tuple(one for one in assignment if there[AXES.index(one[0])])
        for assignment, there in zip(of_kind, several, strict=True)
    ]
    explained = []
    for number, facts in enumerate(structure):
        row = int(graph.offset[point]) + number
        kind, other = int(graph.layer_kind[row]), int(graph.peer_kind[row])
        peer = names[other] if other != kind else ""
        exchanges = _exchanged(shards, row, splits[kind][number], several, peer)
        explained.append(
            Explained(
                kernel=str(graph.names[graph.label[row]]),
                phase=PHASES[facts.phase],
                layer=int(graph.layer[row]),
                stage=int(pipe.stage[row]),
                repeat=int(launches[row]),
                type="update" if facts.kind == ON_WEIGHTS else facts.form.type.title,
                along=signature(facts, cutting[kind]),
                exchanges=tuple(one for one in exchanges if one.role != "send" or pipe.crosses[row]),
            )
        )
    return explained


def _exchanged(shards: Supergraph, row: int, split: Split, several: Bools, peer: str) -> Iterator[Exchanged]:
    """Yield what is exchanged after a kernel, sends across stages or not.

    several: which axes have several devices, (columns of layouts, axes); peer: the tensor's other end,
    "" in a layer of this kind.
    """
    waited = [
        (edges, OF_STATISTICS if one.of == STATISTICS else "")
        for edges, one in zip((shards.sync, *shards.further), split.exchanges, strict=False)
        if edges.collective[row] != NO_EXCHANGE
    ]
    found = [("sync" if i == 1 else f"sync{i}", *one) for i, one in enumerate(waited, start=1)]
    found += [
        ("relayout", shards.relayout, f" to the layout of {peer}" if peer else ""),
        ("fetch", shards.fetch, " of weights"),
        ("gradient", shards.gradient, ""),
        ("replicas", shards.replicas, ""),
        ("send", shards.send, ""),
    ]
    for role, edges, of in found:
        if edges.collective[row] != NO_EXCHANGE:
            number, kind = divmod(int(edges.group[row]), len(several))
            names = tuple(AXES[axis] for axis in members(shards.groups.sets[number]) if several[kind, axis])
            what = COLLECTIVES[edges.collective[row]] + of
            yield Exchanged(role, what, names, int(edges.ranks[row]), float(edges.bytes[row]))


@lru_cache(maxsize=1024)
def signature(facts: KernelSignature, assignment: Assignment) -> tuple[Along, ...]:
    """Return the layouts of a kernel's operands along every axis of an assignment."""
    return tuple(
        Along(
            axis,
            side(cuts, facts.form),
            *(_written(cuts, facts.form, layouts) for layouts in _operands(cuts, facts)),
        )
        for axis, cuts in assignment
    )


def _operands(cuts: tuple[str, ...], facts: KernelSignature) -> tuple[tuple[str, ...], ...]:
    """Return layouts along an axis, by the kernel's own sides: of what it reads, its weights, its result."""
    form, cut = facts.form, side(cuts, facts.form)
    weights = cut if cut in (INNER, COLS, GROUPS) else REPLICATE
    if facts.kind == ON_WEIGHTS:
        sums = REPLICATE if weights == REPLICATE else PARTIAL
        return (weights,), (weights,), (sums if facts.statistics else weights,)
    given, wanted = operand_placement(cuts, form), output_gradient_placement(cuts, form)
    owned = (weights,) if form.type.gradient != NO_GRADIENT else ()
    if facts.phase == FORWARD:
        every = (operand_placement(cuts, form._replace(operand=one)) for one in range(len(form.type.reads)))
        return tuple(every), owned, (output_placement(cuts, form),)
    if facts.gradient != NO_GRADIENT:
        return (given, wanted), (), (gradient_placement(cut, weights),)
    return (wanted,), owned, (gradient_placement(cut, given),)


def _written(cuts: tuple[str, ...], form: Form, layouts: tuple[str, ...]) -> str:
    """Write layouts along an axis, equal ones once, with the dimension's name where the network has one.

    A cut of a whole side is one of its first dimension, the outermost.
    """
    where, name = cut_at(cuts, form)
    if name in form.type.sides:
        name = (*getattr(form.dims, where), name)[0]
    texts = (placement if placement in (REPLICATE, PARTIAL) else f"S({name})" for placement in layouts)
    return " | ".join(dict.fromkeys(texts))
