"""`model=lstm_lm`: the LSTM language model of the paper's validation and case studies (Sections 8, 9).

Embedding, layers of LSTM cells over the steps of a sequence, softmax over the vocabulary and its
cross-entropy, the backward pass of all of it, gradient clipping by the global norm, weight update.

A cell is a fused GEMM, [x, h] (2 hidden wide) times the weights of the four gates (4 hidden
wide), and a memory-bound pass over the gates. The weight gradient of a layer is a single GEMM
over all steps, as in cuDNN, rather than a GEMM a step.

Kernel parallelism communicates what the next kernel needs. Gate columns are sharded so
that a device has all four gates of its hidden units: the pointwise pass is local, and a
Row-Column split gathers h, not the gates. Loss and its gradient need of other devices' logits only
each row's maximum and sum.
"""

from __future__ import annotations

from fastflow.core.field import Column, count
from fastflow.core.tables import Inputs, single
from fastflow.physics.workload.family import Family, independent_rows
from fastflow.physics.workload.graph import EMBEDDING, HIDDEN, SOFTMAX, Dims
from fastflow.physics.workload.network import INPUT, Layer, Network, Node, PassCost, connect
from fastflow.physics.workload.ops import elementwise, gemm, rowwise
from fastflow.physics.workload.ops import embedding as lookup

# Elements that a fused pass reads and writes, per element of h, and its operations.
# Forward: four gates and c in, four activated gates, c and h out; biases, five activations, c and h.
CELL_MOVES, CELL_FLOP = 11.0, 13.0
# Backward: four gates, c, previous c, dh from above and from the next step, dc in; dgates and dc out.
CELL_BACKWARD_MOVES, CELL_BACKWARD_FLOP = 14.0, 24.0
# Softmax and cross-entropy in one pass over the logits; gradient in place.
LOSS_MOVES, LOSS_FLOP = 1.0, 4.0
LOSS_BACKWARD_MOVES, LOSS_BACKWARD_FLOP = 2.0, 3.0
# Kept for the backward pass by each cell, per element of h: four gates and c (h is kept whole).
SAVED_PER_CELL = 5

_TOKENS = ("batch", "sequence")
OTHER_LAYERS = 2  # embedding and softmax


def network(points: Inputs) -> Network:
    """Return the network of language models that share their number of layers."""
    h, batch, vocabulary, steps = (
        single(points[f"model.{size}"]) for size in ("hidden", "batch", "vocabulary", "sequence")
    )
    layers = int(points["model.layers"][0])
    tokens = batch * steps
    embedding = Node(
        name="embedding", type=lookup.TYPE, rows=tokens, cols=h, inner=vocabulary, reads=(),
        dims=Dims(_TOKENS, ("vocabulary",), ("hidden",)),
    )  # fmt: skip
    cell = Node(
        name="lstm cell", type=gemm.TYPE, rows=batch, cols=4 * h, inner=2 * h, steps=steps,
        reads=(INPUT, "lstm gates"), keeps=0, dims=Dims(("batch",), ("hidden",), ("gates",)),
    )  # fmt: skip
    gates = Node(
        name="lstm gates", type=elementwise.TYPE, rows=batch, cols=h, steps=steps, reads=("lstm cell",),
        cost=PassCost(CELL_MOVES, CELL_FLOP, CELL_BACKWARD_MOVES, CELL_BACKWARD_FLOP),
        keeps=SAVED_PER_CELL * h,
        dims=Dims(("batch",), (), ("gates", "hidden")),  # a device has all gates of its units
    )  # fmt: skip
    softmax = Node(
        name="softmax", type=gemm.TYPE, rows=tokens, cols=vocabulary, inner=h,
        dims=Dims(_TOKENS, ("hidden",), ("vocabulary",)),
    )  # fmt: skip
    loss = Node(
        name="loss", type=rowwise.TYPE, rows=tokens, cols=vocabulary, reads=("softmax",),
        cost=PassCost(LOSS_MOVES, LOSS_FLOP, LOSS_BACKWARD_MOVES, LOSS_BACKWARD_FLOP),
        dims=Dims(_TOKENS, (), ("vocabulary",)),
    )  # fmt: skip
    return connect(
        (
            Layer("embedding", EMBEDDING, (embedding,)),
            Layer(name="lstm", kind=HIDDEN, nodes=(cell, gates), repeat=layers),
            Layer("softmax", SOFTMAX, (softmax, loss)),
        )
    )


FAMILY = Family(
    name="lstm_lm",
    work="recurrent",
    structure=(Column("model.layers", "int", "", "LSTM layers", 1.0, 10_000.0),),
    sizes=(
        count("model.hidden", "hidden units of a recurrent layer"),
        count("model.batch", "sequences of the global batch"),
        count("model.vocabulary", "tokens in the vocabulary"),
        count("model.sequence", "time steps per sequence"),
    ),
    network=network,
    rows=independent_rows("model.batch"),
    layers=lambda inputs: inputs["model.layers"] + OTHER_LAYERS,
    multiplied=("model.batch", "model.sequence"),
)
