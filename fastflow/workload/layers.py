"""A network as its user describes it: layers of forward kernels, each with what it computes and reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fastflow.tables import Floats, Ints
from fastflow.workload.graph import Dims, Form

Size = Ints | int
Amount = Floats | float

# types of node
GEMM, BATCHED_GEMM, LOOKUP, ELEMENTWISE, ROWWISE = range(5)

INPUT = "input"  # what enters a layer: the output of the layer below
OUTSIDE = -1  # the node that made the network's own input


class Node(NamedTuple):
    """One forward kernel. Dimensions are those of the whole model: scalars, or columns of shape (points,).

    GEMM: rows x inner times weights of inner x cols. BATCHED_GEMM: `batch` products of activations,
    rows x inner times inner x cols each. LOOKUP: rows of a table of inner x cols. ELEMENTWISE and ROWWISE:
    a pass that makes rows x cols. Of `steps` launches, one after the other, each has so many rows.
    """

    name: str
    type: int
    rows: Size
    cols: Size
    inner: Size = 1
    steps: Size = 1
    batch: Size = 1
    reads: tuple[str, ...] = (INPUT,)  # a node of this layer, "layer.node" of one below, or INPUT
    width: Size | None = None  # columns of the output as others read it, where these are not `cols`
    moves: Amount | None = None  # elements read and written, per element of a pass's output
    flop: Amount = 0.0  # operations, per element of it
    backward_moves: Amount | None = None
    backward_flop: Amount | None = None
    keeps: Size | None = None  # columns kept for the backward pass, cut with the layer
    keeps_whole: Size | None = None  # columns kept as a product reads them
    dims: Dims = Dims()

    @property
    def output(self) -> Size:
        """Columns of the output, as the kernels that read it see it."""
        return self.cols if self.width is None else self.width

    @property
    def form(self) -> Form:
        """What decides how it can be cut."""
        return Form(self.type, self.dims)

    @property
    def has_weights(self) -> bool:
        """Whether it owns inner x cols weights."""
        return self.type in (GEMM, LOOKUP)


class Layer(NamedTuple):
    """Nodes in their order; the last one makes the layer's output."""

    name: str
    kind: int  # EMBEDDING, HIDDEN or SOFTMAX
    nodes: tuple[Node, ...]
    repeat: int = 1  # instances, one on top of the other, each with its own weights


class Placed(NamedTuple):
    """A node of one instance of a layer."""

    node: Node
    layer: int  # which instance
    kind: int
    reads: tuple[int, ...]  # places of the nodes that it reads, or OUTSIDE; itself or a later one: a step ago


class Network(NamedTuple):
    """All nodes in forward order, repeated layers written out."""

    nodes: tuple[Placed, ...]
    readers: tuple[tuple[int, ...], ...]  # of every node, in order
    trained: tuple[bool, ...]  # whether a node's output depends on weights, so that its gradient is wanted
    asks_input_gradient: bool  # whether the gradient of the network's own input is wanted

    def wants(self, read: int) -> bool:
        """Say whether the gradient of something that a node reads is wanted."""
        return self.asks_input_gradient if read == OUTSIDE else self.trained[read]


def connect(layers: Iterable[Layer], asks_input_gradient: bool = False) -> Network:
    """Write a network out, with what every node reads; names are the caller's to check."""
    nodes: list[Placed] = []
    below, number = OUTSIDE, 0
    made: dict[str, int] = {}
    for layer in layers:
        for _ in range(layer.repeat):
            here = {node.name: len(nodes) + i for i, node in enumerate(layer.nodes)}
            here[INPUT] = below
            nodes += [
                Placed(
                    node=node,
                    layer=number,
                    kind=layer.kind,
                    reads=tuple(here[name] if name in here else made[name] for name in node.reads),
                )
                for node in layer.nodes
            ]
            del here[INPUT]
            below, number = len(nodes) - 1, number + 1
        made |= {f"{layer.name}.{name}": place for name, place in here.items()}
    readers: list[list[int]] = [[] for _ in nodes]
    for i, placed in enumerate(nodes):
        for read in set(placed.reads) - {OUTSIDE}:
            readers[read].append(i)
    trained = _trained(nodes, readers, asks_input_gradient)
    return Network(
        nodes=tuple(nodes),
        readers=tuple(map(tuple, readers)),
        trained=trained,
        asks_input_gradient=asks_input_gradient,
    )


def _trained(
    nodes: Sequence[Placed], readers: Sequence[Sequence[int]], asks_input_gradient: bool
) -> tuple[bool, ...]:
    """Return which nodes lie above weights: those that own some, and whatever reads one that does."""
    trained = [asks_input_gradient or placed.node.has_weights for placed in nodes]
    found = [i for i, above in enumerate(trained) if above]
    while found:
        for reader in readers[found.pop()]:
            if not trained[reader]:
                trained[reader] = True
                found.append(reader)
    return tuple(trained)
