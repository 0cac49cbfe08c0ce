"""A network as its user describes it: layers of forward kernels, each with what it computes and reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastflow.core.tables import Floats, Ints
from fastflow.physics.workload.graph import (
    BATCHED,
    NO_ATTRIBUTES,
    NO_GRADIENT,
    Attributes,
    Dims,
    Form,
    Kernel,
    Sum,
)
from fastflow.physics.workload.precision import Precision
from fastflow.physics.workload.sharding_rules import ShardingRule

Size = Ints | int
Amount = Floats | float

INPUT = "input"  # what enters a layer: the output of the layer below
OUTSIDE = -1  # the node that made the network's own input
AMOUNTS = ("moves", "flop", "backward_moves", "backward_flop")


class Side(NamedTuple):
    """A side of a kernel in a file, and the dimensions with a name that it is made of."""

    size: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelType(ShardingRule):
    """A type of kernel: all that depends on it is asked here, so that a file in `types` makes a new one.

    `forward` and `backward` take a network, the place of a node of this type, a kernel that has all but what
    is its type's own, and the bytes of an element by its role.
    """

    name: str  # in files
    required: tuple[str, ...]  # sides that a file gives
    optional: tuple[str, ...]  # keys that it may give; without "reads" it reads nothing
    forward: Callable[[Network, int, Kernel, Precision], Kernel]
    backward: Callable[[Network, int, Kernel, Precision], list[Kernel]]  # the kernels of its gradients
    # where in a file, a node, columns of what it reads (None: of an input not read before) and rows of the
    # model to the columns of that input, 0 where it does not tell; raises MistakeError
    check: Callable[[str, Node, Sequence[int | None], int], int]
    # where in a file, a node, its sides by key, the model's rows and all keys to the node as it is
    from_file: Callable[[str, Node, Mapping[str, Side], Side, Mapping[str, Any]], Node] | None = None
    sizes: tuple[str, ...] = ()  # of `optional`: those that are sides
    required_strings: tuple[str, ...] = ()  # of `required`: those that are none
    prologue: Callable[[Network, int, Kernel, Precision], list[Kernel]] | None = (
        None  # launched before its own
    )
    # elements of an operand, by its place, that all rows need; operands are dealt out with the first one
    shared: Callable[[Node, int], Amount] | None = None


class Node(NamedTuple):
    """One forward kernel. Dimensions are those of the whole model: scalars, or columns of shape (points,).

    It makes rows x cols; a product contracts `inner`, a table has so many rows. Of `steps` launches, one
    after the other, each has so many rows, which `groups` share: each has a product with weights of its own.
    """

    name: str
    type: KernelType
    rows: Size
    cols: Size
    inner: Size = 1
    steps: Size = 1
    batch: Size = 1
    groups: Size = 1
    reads: tuple[str, ...] = (INPUT,)  # a node of this layer, "layer.node" of one below, or INPUT
    width: Size | None = None  # columns of the output as others read it, where these are not `cols`
    moves: Amount | None = None  # elements read and written, per element of a pass's output
    flop: Amount = 0.0  # operations, per element of it
    backward_moves: Amount | None = None
    backward_flop: Amount | None = None
    keeps: Size | None = None  # columns kept for the backward pass, cut with the layer
    keeps_whole: Size | None = None  # columns kept as a product reads them
    vectors: Size = 0  # weights beside those of inner x cols: gains, biases; only their gradients take time
    regathers_input: bool = False  # of a product: what it reads is kept in parts, and gathered anew backward
    wide: bool = False  # of a product: computes in the type of activations, whatever others do
    quantises_input: bool = False  # of a product: by a pass of its own; its maker may have done so
    quantises_gradient: bool = False  # of its output, when training
    adds_gradient_separately: bool = (
        False  # of a product: a pass adds its weights' gradient to the sum of all micro-batches
    )
    part: int = 0  # of graph.PARTS
    # 1: selective recomputation keeps of it what products read, and launches it again
    selective: int = 0
    dims: Dims = Dims()
    attributes: Attributes = NO_ATTRIBUTES

    @property
    def output(self) -> Size:
        """Columns of the output, as the kernels that read it see it."""
        return self.cols if self.width is None else self.width

    @property
    def form(self) -> Form:
        """What decides how it can be cut."""
        return Form(self.type, self.dims)

    @property
    def is_batched(self) -> bool:
        """Whether it is `batch` products that are dealt out whole."""
        return self.type.kind == BATCHED

    @property
    def has_weights(self) -> bool:
        """Whether it owns inner x cols weights."""
        return self.type.gradient != NO_GRADIENT


class Layer(NamedTuple):
    """Nodes in their order; the last one makes the layer's output."""

    name: str
    kind: int  # EMBEDDING, HIDDEN or SOFTMAX
    nodes: tuple[Node, ...]
    repeat: int = 1  # instances, one on top of the other, each with its own weights
    times: Size = 1  # layers alike, one on top of the other, each with its own weights, written once


class NodeInstance(NamedTuple):
    """A node of one instance of a layer."""

    node: Node
    layer: int  # which instance
    kind: int
    reads: tuple[int, ...]  # places of the nodes that it reads, or OUTSIDE; itself or a later one: a step ago
    times: Size = 1  # layers that the instance stands for


class Network(NamedTuple):
    """All nodes in forward order, repeated layers written out."""

    nodes: tuple[NodeInstance, ...]
    readers: tuple[tuple[int, ...], ...]  # of every node, in order
    requires_grad: tuple[
        bool, ...
    ]  # whether a node's output depends on weights, so that its gradient is wanted
    needs_input_gradient: bool  # whether the gradient of the network's own input is wanted
    layers: tuple[Layer, ...]  # as they are described

    def by_layer(self) -> Network:
        """Return the network with every layer that is described, repeated ones once, as a kind of its own."""
        kinds = [number for number, layer in enumerate(self.layers) for _ in range(layer.repeat)]
        return self._replace(
            nodes=tuple(instance._replace(kind=kinds[instance.layer]) for instance in self.nodes)
        )

    def share(self, i: int, read: int) -> Size:
        """Return the elements of something that a node reads, as columns of its own rows."""
        maker, reader = self.nodes[i if read == OUTSIDE else read].node, self.nodes[i].node
        if reader.rows is maker.rows:
            return maker.output
        return -(-(maker.rows * maker.steps * maker.cols * maker.batch) // (reader.rows * reader.steps))

    def needs_gradient(self, read: int) -> bool:
        """Say whether the gradient of something that a node reads is wanted."""
        return self.needs_input_gradient if read == OUTSIDE else self.requires_grad[read]

    def form(self, read: int) -> Form | None:
        """Return the form of the maker of something that a node reads, None outside the network."""
        return None if read == OUTSIDE else self.nodes[read].node.form

    def operands(self, i: int) -> list[tuple[int, Form]]:
        """Return what a node reads, and how; of a single tensor each operand is a part."""
        node, reads = self.nodes[i].node, self.nodes[i].reads
        if len(node.type.reads) == 1:  # all is read alike
            return [(read, node.form) for read in reads]
        forms = [node.form._replace(operand=operand) for operand in range(len(node.type.reads))]
        return list(zip(reads * (len(forms) if len(reads) == 1 else 1), forms, strict=True))

    def read_cols(self, i: int, read: int) -> Size:
        """Return the columns of something that a pass reads; those that it makes, outside the network."""
        return self.nodes[i if read == OUTSIDE else read].node.output

    def sums(self, operands: Iterable[tuple[int, Form]]) -> tuple[Sum, ...]:
        """Return the wanted ones of the gradients of some operands, to which a node adds alone."""
        return tuple(Sum(self.form(read), (form,)) for read, form in operands if self.needs_gradient(read))

    def neighbour(self, i: int, others: Iterable[int]) -> int:
        """Return the kind of the first of some nodes that is in another layer; of this one where none is."""
        instance = self.nodes[i]
        kinds = (self.nodes[other].kind for other in others if self.nodes[other].layer != instance.layer)
        return next(kinds, instance.kind)


def connect(layers: Iterable[Layer], needs_input_gradient: bool = False) -> Network:
    """Write a network out, with what every node reads; names are the caller's to check."""
    nodes: list[NodeInstance] = []
    below, number = OUTSIDE, 0
    made: dict[str, int] = {}
    layers = tuple(layers)
    for layer in layers:
        for _ in range(layer.repeat):
            index = {node.name: len(nodes) + i for i, node in enumerate(layer.nodes)}
            index[INPUT] = below
            nodes += [
                NodeInstance(
                    node=node,
                    layer=number,
                    kind=layer.kind,
                    reads=tuple(index[name] if name in index else made[name] for name in node.reads),
                    times=layer.times,
                )
                for node in layer.nodes
            ]
            del index[INPUT]
            below, number = len(nodes) - 1, number + 1
        made |= {f"{layer.name}.{name}": position for name, position in index.items()}
    readers: list[list[int]] = [[] for _ in nodes]
    for i, instance in enumerate(nodes):
        for read in set(instance.reads) - {OUTSIDE}:
            readers[read].append(i)
    trained = _requires_grad(nodes, readers, needs_input_gradient)
    return Network(tuple(nodes), tuple(map(tuple, readers)), trained, needs_input_gradient, layers)


def _requires_grad(
    nodes: Sequence[NodeInstance], readers: Sequence[Sequence[int]], needs_input_gradient: bool
) -> tuple[bool, ...]:
    """Return which nodes lie above weights: those that own some, and whatever reads one that does."""
    trained = [needs_input_gradient or instance.node.has_weights for instance in nodes]
    pending = [i for i, is_trained in enumerate(trained) if is_trained]
    while pending:
        for reader in readers[pending.pop()]:
            if not trained[reader]:
                trained[reader] = True
                pending.append(reader)
    return tuple(trained)
