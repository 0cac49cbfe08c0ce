"""Linear attention: a state for each head, and products within chunks of tokens; time linear in tokens.

`state_space` is Mamba-2 (Dao and Gu, arXiv:2405.21060, section 6), `gated_delta` the gated delta rule (Yang
et al., arXiv:2412.06464, section 3.3). A single token a sequence updates its states in one pass (their
recurrent form). The backward pass recomputes the kernels, then the gradients of each product's operands.

These types are of graph files. They time every product as any other product of the chip, and so say what a
chip's matrix units and memories could do; `recurrence` has the same rules as their authors' kernels run them,
whose instructions are calibrated on chips that exist. Both count the same operations, in the same chunks, and
are sharded alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from fastflow.core.yaml_file import MAX_NUMBER, listed, wrong
from fastflow.physics.workload.graph import ON_ACTIVATIONS, Dims, Kernel, PerElement
from fastflow.physics.workload.network import KernelType, Network, Node, Side
from fastflow.physics.workload.ops.batched_gemm import TYPE as PRODUCT
from fastflow.physics.workload.ops.recurrence.kernel_type import TOKENS_TO_HEADS
from fastflow.physics.workload.ops.recurrence.rules import DELTA, RULES, SCAN
from fastflow.physics.workload.precision import Precision
from fastflow.physics.workload.sharding_rules import COLS, GROUPS, ROWS


class Sizes(NamedTuple):
    """Sizes of a kernel of the network."""

    sequences: int
    tokens: int  # of each
    heads: int
    groups: int  # of heads that share keys and queries (B and C of Mamba-2)
    state: int  # columns of a key
    head_dim: int  # columns of a value
    chunk: int

    @property
    def chunks(self) -> int:
        """Chunks of all sequences."""
        return self.sequences * -(-self.tokens // self.chunk)


class Product(NamedTuple):
    """`products` products of m x k times k x n."""

    name: str
    products: int
    m: int
    k: int
    n: int


class Pass(NamedTuple):
    """A pass over elements of the chunks of every head."""

    name: str
    elements: int  # of a chunk and head
    moves: float  # elements read and written for each
    flop: float


Step = Product | Pass


def _state_space(s: Sizes) -> tuple[Step, ...]:
    """Return the kernels of Mamba-2; the last makes the output, from chunks and earlier states."""
    chunk_heads = s.chunks * s.heads
    return (
        Pass("decays", s.chunk, 2.0, 3.0),  # softplus of the step, its product with A, its running sum
        Product("states", chunk_heads, s.head_dim, s.chunk, s.state),
        Pass("passing", s.head_dim * s.state, 2.0, 2.0),
        Product("pairs", s.chunks * s.groups, s.chunk, s.state, s.chunk),
        Product("scan", chunk_heads, s.chunk, s.chunk + s.state, s.head_dim),
    )


def _gated_delta(s: Sizes) -> tuple[Step, ...]:
    """Return the kernels of the gated delta rule, whose states are sequential products."""
    chunk_heads = s.chunks * s.heads
    return (
        Pass("decays", s.chunk, 2.0, 1.0),
        Product("key pairs", chunk_heads, s.chunk, s.state, s.chunk),
        Pass("inverse", s.chunk**2, 2.0, s.chunk / 3.0),  # of a triangular matrix, column by column
        Product("keys and values", chunk_heads, s.chunk, s.chunk, s.state + s.head_dim),
        # each chunk subtracts the state at its keys from its values, and adds the difference to the state
        Product("states", s.sequences * s.heads, s.state, 2 * s.tokens, s.head_dim),
        Product("pairs", chunk_heads, s.chunk, s.state, s.chunk),
        Product("output", chunk_heads, s.chunk, s.chunk + s.state, s.head_dim),
    )


_STEPS = {SCAN: _state_space, DELTA: _gated_delta}
"""Kernels by the name of a rule."""


def steps_of(name: str, sizes: Sizes) -> tuple[Step, ...]:
    """Return the kernels of a type."""
    if sizes.tokens > 1:
        return _STEPS[name](sizes)
    single = sizes._replace(chunk=1)  # decay, add a key times a value, multiply by a query
    return (Pass("update", single.head_dim * single.state, 2.0, 5.0),)


def _sizes(node: Node) -> Sizes:
    return Sizes(**{name: int(value) for name, value in node.attributes.items()})


def _kernel(node: Node, step: Step, kernel: Kernel, precision: Precision) -> Kernel:
    """Return the kernel of a step; rows of all heads."""
    label = f"{kernel.label} {step.name}"
    if isinstance(step, Product):
        return kernel._replace(
            label=label, rows=step.products * step.m, inner=step.k, cols=step.n,
            launches=kernel.launches._replace(batch=1, products=step.products),
        )  # fmt: skip
    sizes = _sizes(node)
    return kernel._replace(
        label=label, kind=ON_ACTIVATIONS, rows=sizes.chunks * sizes.heads, cols=step.elements, inner=1,
        launches=kernel.launches._replace(batch=1),
        per_element=PerElement(step.moves * precision.activation, step.flop),
    )  # fmt: skip


def _prologue(name: str, network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    node = network.nodes[i].node
    return [_kernel(node, step, kernel, precision) for step in steps_of(name, _sizes(node))[:-1]]


def _forward(name: str, network: Network, i: int, kernel: Kernel, precision: Precision) -> Kernel:
    node = network.nodes[i].node
    last = steps_of(name, _sizes(node))[-1]
    return _kernel(node, last, kernel, precision)._replace(label=kernel.label)


def _backward(name: str, network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    instance = network.nodes[i]
    if not any(map(network.needs_gradient, instance.reads)):
        return []
    steps = steps_of(name, _sizes(instance.node))
    recomputed = [step for step in steps[:-1] if isinstance(step, Product)]
    gradients = [gradient for step in reversed(steps) for gradient in _gradients(step)]
    kernels = [_kernel(instance.node, step, kernel, precision) for step in (*recomputed, *gradients)]
    width = sum(network.read_cols(i, read) for read in instance.reads)
    last = kernels[-1]
    summed_cols = width * int(instance.node.batch) * int(instance.node.rows) // int(last.rows)
    last = last._replace(
        sums=network.sums(network.operands(i)), comm=last.comm._replace(summed_cols=summed_cols)
    )
    return [*kernels[:-1], last]


def _gradients(step: Step) -> Iterator[Step]:
    """Yield the kernels of the gradients of a step's operands."""
    if isinstance(step, Pass):
        yield step._replace(name=f"{step.name} gradient", moves=1.5 * step.moves, flop=2.0 * step.flop)
        return
    yield Product(f"{step.name} left gradient", step.products, step.m, step.n, step.k)
    yield Product(f"{step.name} right gradient", step.products, step.k, step.m, step.n)


def _from_file(
    name: str, where: str, node: Node, sides: Mapping[str, Side], model: Side, fields: Mapping[str, Any]
) -> Node:
    """Return a kernel of a graph file, whose tokens are the model's rows."""
    sequences, heads = sides["batch"].size, sides["heads"].size
    tokens = model.size // sequences
    if sequences * tokens != model.size:
        raise wrong(f"{where}.batch", f"a divisor of the {model.size} rows of the model", sequences)
    groups = sides["groups"].size if "groups" in sides else heads
    if heads % groups:
        raise wrong(f"{where}.groups", f"a divisor of its {heads} heads", groups)
    chunk = min(sides["chunk"].size if "chunk" in sides else RULES[name].chunk, tokens)
    sizes = Sizes(sequences, tokens, heads, groups, sides["state"].size, sides["head_dim"].size, chunk)
    if sizes.chunks * heads * chunk * (sizes.state + sizes.head_dim) > MAX_NUMBER:
        raise wrong(f"{where}.heads", f"so small that it has at most {MAX_NUMBER:.0e} elements", heads)
    return node._replace(
        batch=sequences, rows=tokens, cols=sizes.head_dim, width=heads * sizes.head_dim, groups=1,
        attributes=sizes._asdict(), dims=Dims((), (), sides["heads"].names, sides["batch"].names),
    )  # fmt: skip


def _check(at: str, node: Node, cols: Sequence[int | None], rows: int) -> int:
    """Check that it reads values, keys and queries from a single kernel, perhaps with a gate a head."""
    sizes = _sizes(node)
    if len(cols) != 1:
        raise wrong(f"{at}.reads", "one kernel", listed(node.reads))
    least = sizes.heads * sizes.head_dim + 2 * sizes.groups * sizes.state
    if cols[0] is not None and not least <= cols[0] <= least + 2 * sizes.heads:
        allowed = (
            f"a kernel of {least} to {least + 2 * sizes.heads} columns (values, keys, queries; two a head)"
        )
        raise wrong(f"{at}.reads", allowed, f"{node.reads[0]}, which has {cols[0]}")
    return 0


def _type(name: str) -> KernelType:
    return replace(
        PRODUCT,
        name=name,
        title=name.replace("_", " "),
        sides={ROWS: GROUPS, COLS: COLS} | TOKENS_TO_HEADS,
        reads=({COLS: COLS, GROUPS: ROWS},),
        makes={COLS: COLS, GROUPS: ROWS},
        required=("batch", "heads", "state", "head_dim"),
        optional=("groups", "chunk", "reads"),
        optional_sides=("chunk",),
        forward=partial(_forward, name),
        backward=partial(_backward, name),
        prologue=partial(_prologue, name),
        check=_check,
        from_file=partial(_from_file, name),
        shared=None,
    )


TYPES = {name: _type(name) for name in _STEPS}
