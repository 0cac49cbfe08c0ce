"""Networks as users describe them: layers of forward kernels, each with its operation and its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastflow.core.tables import Floats, Ints
from fastflow.physics.workload.graph import (
    BASE,
    BATCHED,
    FROZEN,
    NO_ATTRIBUTES,
    NO_GRADIENT,
    NO_WEIGHTS,
    OTHERS_BASE,
    TRAINED,
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

INPUT = "input"  # the input of a layer: the output of the layer below
OUTSIDE = -1  # index of the source of the network's input


class PassCost(NamedTuple):
    """Cost of a memory-bound pass, per element of its output. The fields are keys of graph files."""

    moves: Amount | None = None  # elements read and written; None: those of its inputs and output
    flop: Amount = 0.0  # operations
    backward_moves: Amount | None = None
    backward_flop: Amount | None = None  # None: as forward


AMOUNTS = PassCost._fields


class ProductPasses(NamedTuple):
    """What a product does by separate kernels, or once more in the backward pass."""

    regathers_input: bool = False  # its input is saved sharded, and gathered once more
    quantises_input: bool = False  # rather than the input's producer
    quantises_gradient: bool = False  # of its output, when training
    adds_gradient: bool = False  # accumulates its weight gradient over micro-batches
    shares_gradient: bool = False  # of its output, with another product, for which it is gathered
    conversion: float = 0.0  # operations that convert each stored weight before it; 0: no conversion


class Side(NamedTuple):
    """A side of a kernel in a file, and the named dimensions that multiply to it."""

    size: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelType(ShardingRule):
    """A type of kernel: holds everything that depends on the type, so that a file in `ops` adds a type.

    `forward` and `backward` take a network, the index of a node of this type, the common part of its kernel,
    and the bytes of an element by role.
    """

    name: str  # in files
    required: tuple[str, ...]  # keys that a file must give
    optional: tuple[str, ...]  # keys that a file may give; without "reads" it has no inputs
    forward: Callable[[Network, int, Kernel, Precision], Kernel]
    backward: Callable[[Network, int, Kernel, Precision], list[Kernel]]  # the kernels of its gradients
    # of a position in a file, a node, the columns of its inputs (None: of an input not read before) and the
    # rows of the model: returns the columns of that input, 0 where unknown; raises MistakeError
    check: Callable[[str, Node, Sequence[int | None], int], int]
    # of a position in a file, a node, its sides by key, the model's rows and all fields: returns the node
    from_file: Callable[[str, Node, Mapping[str, Side], Side, Mapping[str, Any]], Node] | None = None
    optional_sides: tuple[str, ...] = ()  # keys of `optional` that are sides
    required_strings: tuple[str, ...] = ()  # keys of `required` that are strings
    trains: bool = False  # whether its output needs a gradient for weights that another node owns
    # kernels launched before the node's kernel
    prologue: Callable[[Network, int, Kernel, Precision], list[Kernel]] | None = None
    # elements of an operand, by its index, that all rows need; operands are sharded with the first operand
    shared: Callable[[Node, int], Amount] | None = None


class Node(NamedTuple):
    """A forward kernel. Dimensions are those of the whole model: scalars, or columns of shape (points,).

    Its output is rows x cols; a product contracts `inner`, a table has `inner` rows. Each of `steps`
    sequential launches has `rows` rows, which `groups` share: each group has a product with separate weights.
    Other fields than `cost` and `passes` are flat: almost every family sets them.
    """

    name: str
    type: KernelType
    rows: Size
    cols: Size
    inner: Size = 1
    steps: Size = 1
    batch: Size = 1
    groups: Size = 1
    reads: tuple[str, ...] = (INPUT,)  # a node of this layer, "layer.node" of a layer below, or INPUT
    width: Size | None = None  # columns of the output as its readers see it, where not `cols`
    cost: PassCost = PassCost()
    keeps: Size | None = None  # columns saved for the backward pass, sharded with the layer
    keeps_whole: Size | None = None  # columns saved as a product reads them
    transient: Size = 0  # columns that a device has while it computes a launch, or its gradient
    vectors: Size = 0  # further weights: gains, biases; only their gradients take time
    passes: ProductPasses = ProductPasses()
    wide: bool = False  # of a product: computes in the data type of activations
    part: int = 0  # of graph.PARTS
    modules: int = 0  # bits of `recompute_modules`: parts of a layer that are recomputed for themselves
    frozen: bool = False  # its weights are not trained: it has the gradients of its inputs alone
    base_bytes: float = 0.0  # of a weight that is frozen beside trained ones; 0: no such weights
    shares_base: bool = False  # whether another node owns these weights
    # whether it makes the input of a run of layers that train, of which all but the first read such a layer:
    # its output counts as requiring a gradient
    below_run: bool = False
    defers_sum: bool = False  # its partial sums are summed after a later node, which reads them as they are
    dims: Dims = Dims()
    attributes: Attributes = NO_ATTRIBUTES

    @property
    def output(self) -> Size:
        """Columns of the output, as its readers see it."""
        return self.cols if self.width is None else self.width

    @property
    def form(self) -> Form:
        """What decides how it can be sharded."""
        return Form(self.type, self.dims, defers_sum=self.defers_sum)

    @property
    def is_batched(self) -> bool:
        """Whether it is `batch` products, each on a single shard."""
        return self.type.kind == BATCHED

    @property
    def has_weights(self) -> bool:
        """Whether it owns inner x cols weights that are trained."""
        return self.weights == TRAINED

    @property
    def weights(self) -> int:
        """Which inner x cols weights it owns, or reads: of `graph.Memory.weights`."""
        if self.type.gradient == NO_GRADIENT:
            return NO_WEIGHTS
        if not self.frozen:
            return TRAINED
        if not self.base_bytes:
            return FROZEN
        return OTHERS_BASE if self.shares_base else BASE


class Layer(NamedTuple):
    """Nodes in order; the last node makes the layer's output."""

    name: str
    kind: int  # EMBEDDING, HIDDEN or SOFTMAX
    nodes: tuple[Node, ...]
    repeat: int = 1  # stacked instances, each with separate weights
    times: Size = 1  # equal layers, each with separate weights, that the instance stands for


class NodeInstance(NamedTuple):
    """A node of an instance of a layer."""

    node: Node
    layer: int  # index of the instance
    kind: int
    # indices of its input nodes, or OUTSIDE; an index that is not below the node's is of the step before
    reads: tuple[int, ...]
    times: Size = 1  # layers that the instance stands for


class Network(NamedTuple):
    """All nodes in forward order, repeated layers unrolled."""

    nodes: tuple[NodeInstance, ...]
    readers: tuple[tuple[int, ...], ...]  # of every node: indices of its readers, in order
    requires_grad: tuple[bool, ...]  # whether a node's output depends on weights, as in PyTorch
    needs_input_gradient: bool  # whether the network's input needs a gradient
    layers: tuple[Layer, ...]  # as they are described

    def by_layer(self) -> Network:
        """Return the network with every described layer (repeated layers once) as a separate layer kind."""
        kinds = [number for number, layer in enumerate(self.layers) for _ in range(layer.repeat)]
        return self._replace(
            nodes=tuple(instance._replace(kind=kinds[instance.layer]) for instance in self.nodes)
        )

    def share(self, i: int, read: int) -> Size:
        """Return the elements of an input of a node, as columns of the node's rows."""
        producer, reader = self.nodes[i if read == OUTSIDE else read].node, self.nodes[i].node
        if reader.rows is producer.rows:
            return producer.output
        return -(
            -(producer.rows * producer.steps * producer.cols * producer.batch) // (reader.rows * reader.steps)
        )

    def needs_gradient(self, read: int) -> bool:
        """Say whether an input of a node needs a gradient."""
        return self.needs_input_gradient if read == OUTSIDE else self.requires_grad[read]

    def form(self, read: int) -> Form | None:
        """Return the form of the producer of an input of a node, None outside the network."""
        return None if read == OUTSIDE else self.nodes[read].node.form

    def operands(self, i: int) -> list[tuple[int, Form]]:
        """Return the inputs of a node with their forms; operands of a single input are parts of it."""
        node, reads = self.nodes[i].node, self.nodes[i].reads
        if len(node.type.reads) == 1:  # all inputs are read the same way
            return [(read, node.form) for read in reads]
        forms = [node.form._replace(operand=operand) for operand in range(len(node.type.reads))]
        return list(zip(reads * (len(forms) if len(reads) == 1 else 1), forms, strict=True))

    def read_cols(self, i: int, read: int) -> Size:
        """Return the columns of an input of a pass; the network's input has those of its output."""
        return self.nodes[i if read == OUTSIDE else read].node.output

    def sums(self, operands: Iterable[tuple[int, Form]]) -> tuple[Sum, ...]:
        """Return the needed gradients of operands to which no other node adds."""
        return tuple(Sum(self.form(read), (form,)) for read, form in operands if self.needs_gradient(read))

    def neighbour(self, i: int, others: Iterable[int]) -> int:
        """Return the layer kind of the first of the other nodes that is in another layer, or of this node."""
        instance = self.nodes[i]
        kinds = (self.nodes[other].kind for other in others if self.nodes[other].layer != instance.layer)
        return next(kinds, instance.kind)


def forward_with_attributes(
    base: KernelType, network: Network, i: int, kernel: Kernel, precision: Precision
) -> Kernel:
    """Return the forward kernel of a node as a base type has it, with the attributes that time the node."""
    return with_attributes(network, i, base.forward(network, i, kernel, precision), precision)


def with_attributes(network: Network, i: int, kernel: Kernel, precision: Precision) -> Kernel:
    """Return a forward kernel with the attributes that time its node."""
    return kernel._replace(attributes=network.nodes[i].node.attributes)


def no_gradient(network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    """Return the backward pass of a node that has none."""
    return []


def connect(layers: Iterable[Layer], needs_input_gradient: bool = False, are_stacked: bool = True) -> Network:
    """Return the unrolled network, names resolved to indices; the caller checks the names.

    are_stacked: whether the input of a layer is the output of the layer below; else that of the network.
    """
    nodes: list[NodeInstance] = []
    below, number = OUTSIDE, 0
    indices: dict[str, int] = {}
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
                    reads=tuple(index[name] if name in index else indices[name] for name in node.reads),
                    times=layer.times,
                )
                for node in layer.nodes
            ]
            del index[INPUT]
            below, number = len(nodes) - 1 if are_stacked else OUTSIDE, number + 1
        indices |= {f"{layer.name}.{name}": position for name, position in index.items()}
    readers: list[list[int]] = [[] for _ in nodes]
    for i, instance in enumerate(nodes):
        for read in set(instance.reads) - {OUTSIDE}:
            readers[read].append(i)
    trained = _requires_grad(nodes, readers, needs_input_gradient)
    return Network(tuple(nodes), tuple(map(tuple, readers)), trained, needs_input_gradient, layers)


def _requires_grad(
    nodes: Sequence[NodeInstance], readers: Sequence[Sequence[int]], needs_input_gradient: bool
) -> tuple[bool, ...]:
    """Return which nodes have trained weights, or read the output of a node that requires a gradient."""
    trained = [
        needs_input_gradient
        or instance.node.has_weights
        or (instance.node.type.trains and not instance.node.frozen)
        or instance.node.below_run
        for instance in nodes
    ]
    pending = [i for i, is_trained in enumerate(trained) if is_trained]
    while pending:
        for reader in readers[pending.pop()]:
            if not trained[reader]:
                trained[reader] = True
                pending.append(reader)
    return tuple(trained)
