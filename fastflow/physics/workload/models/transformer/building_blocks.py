"""The building blocks of a transformer's layers: products, norms, activations, residual sums.

Activations saved for the backward pass are those of Korthikanti et al. (arXiv:2205.05198, section 4.1): the
inputs of products, norms and activations, and a dropout mask of a byte an element. The output of a norm is
saved as each device has it, so that sequence parallelism saves a shard.
"""

from __future__ import annotations

from typing import Any

from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.models.transformer.dimensions import ACTIVATIONS, RMS, Sizes
from fastflow.physics.workload.network import Node, PassCost, Size
from fastflow.physics.workload.ops import elementwise, pointwise
from fastflow.physics.workload.ops import gemm as product

TOKENS = ("batch", "sequence")
HIDDEN, HEADS, FEED_FORWARD, VOCABULARY = ("hidden",), ("heads",), ("feed_forward",), ("vocabulary",)
Names = tuple[str, ...]
DROPOUT_FLOP = 2.0  # compare, scale
GATE_FLOP = 5.0
"""Operations of a sigmoid and a product: negate, exponential, add, divide, multiply."""
GRADIENT_SUM_MOVES = 3.0
"""The input of a residual branch has two gradients, which PyTorch's autograd adds in a separate kernel: two
tensors in, a tensor out."""


def mask(size: Sizes, cols: Size) -> Size:
    """Return the columns of activations that a mask of `cols` bytes takes."""
    return -(-cols // size.activation_bytes)


def gemm(
    name: str, size: Sizes, inner: Size, cols: Size, read: str, names: tuple[Names, Names],
    biased: bool = False, **fields: Any,
) -> Node:  # fmt: skip
    """Return a product of all tokens; names: of the dimensions of its inner side and of its columns."""
    return Node(
        name=name, type=product.TYPE, rows=size.tokens, cols=cols, inner=inner, reads=(read,),
        dims=Dims(TOKENS, *names), vectors=cols if biased else 0, **fields,
    )  # fmt: skip


def norm(
    name: str, size: Sizes, kind: str, read: str, cols: Size, names: tuple[str, ...] = HIDDEN,
    keeps: bool = True,
) -> Node:  # fmt: skip
    """Return a norm over columns of every token; keeps: a product reads its output."""
    title = "rmsnorm" if kind == RMS else "layernorm"
    operator = pointwise.OPERATORS[title]
    return Node(
        name=name, type=pointwise.TYPES[title], rows=size.tokens, cols=cols, reads=(read,),
        cost=PassCost(2.0, operator.flop, float(operator.backward)), keeps=cols if keeps else 0,
        keeps_whole=0, dims=Dims(TOKENS, (), names), vectors=cols if kind == RMS else 2 * cols,
    )  # fmt: skip


def residual(name: str, size: Sizes, reads: tuple[str, ...], dropout: bool, biases: int = 0) -> Node:
    """Return the residual sum of branches and their input; with dropout of the branch.

    biases: of the products before it, which are added here (Megatron-LM's bias_dropout_add).
    """
    add = pointwise.OPERATORS["add"]
    mask_cols, num_adds = 1.0 / size.activation_bytes if dropout else 0.0, len(reads) - 1.0
    gradient_moves = GRADIENT_SUM_MOVES + (1.0 if biases else 0.0)
    cost = PassCost(
        moves=1.0 + len(reads) + mask_cols, flop=num_adds * add.flop + (DROPOUT_FLOP if dropout else 0.0),
        backward_moves=gradient_moves + (2.0 + mask_cols if dropout else 0.0),
    )  # fmt: skip
    return Node(
        name=name, type=pointwise.TYPES["add"], rows=size.tokens, cols=size.hidden, reads=reads,
        cost=cost, vectors=biases * size.hidden,
        keeps=size.hidden + (mask(size, size.hidden) if dropout else 0), keeps_whole=0,
        dims=Dims(TOKENS, (), HIDDEN),
    )  # fmt: skip


def activation(
    name: str, size: Sizes, kind: str, gated: bool, read: str, cols: Size, **fields: Any
) -> Node:  # fmt: skip
    """Return the activation of columns; gated: multiplied by as many further columns."""
    cost = PassCost(2.0, ACTIVATIONS[kind], backward_moves=3.0)
    if gated:
        cost = PassCost(3.0, ACTIVATIONS[kind] + 1.0, backward_moves=5.0)
    return Node(
        name=name, type=pointwise.TYPES.get(_title(kind, gated), elementwise.TYPE), cols=cols, reads=(read,),
        cost=cost,
        **{"rows": size.tokens, "dims": Dims(TOKENS, (), FEED_FORWARD)} | fields,
    )  # fmt: skip


def _title(kind: str, gated: bool) -> str:
    """Return the operator that an activation is."""
    return {"silu": "swiglu", "gelu": "geglu"}.get(kind, "") if gated else kind
