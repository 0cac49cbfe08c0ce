"""`model=experts`: the expert layer of a mixture, on one of the devices that share it.

Tokens are those of all these devices, before dispatch: communication between devices is not included.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.field import count
from fastflow.core.tables import Bools, Floats, Inputs, Ints
from fastflow.physics.workload.family import Family, independent_rows, single_operation
from fastflow.physics.workload.graph import HIDDEN, Dims
from fastflow.physics.workload.network import INPUT, Layer, Network, Node, PassCost, connect
from fastflow.physics.workload.ops import TYPES, grouped_gemm
from fastflow.physics.workload.ops.moe_passes import TYPES as PASSES
from fastflow.physics.workload.ops.pointwise import OPERATORS

_TOKENS, _GROUPS = Dims(("tokens",)), ("experts",)


def network(points: Inputs) -> Network:
    """Return the network of each point's layer, gated, as TensorRT-LLM's fused mixture runs it."""
    tokens, topk, experts, hidden = (
        points[f"model.{name}"] for name in ("tokens", "topk", "experts", "hidden")
    )
    local, ffn = -(-experts // points["model.ep"]), -(-points["model.ffn"] // points["model.tp"])
    rows = np.maximum(1, -(-tokens * topk * local // experts))
    attributes = grouped_gemm.mixture(tokens, topk, experts, local, points["model.power_law"])

    def a_pass(name: str, kind: str, rows: Ints, cols: Ints, read: str, moves: Floats | None = None) -> Node:
        return Node(
            name=name, type=PASSES[kind], rows=rows, cols=cols, reads=(read,), attributes=attributes,
            dims=_TOKENS, cost=PassCost(moves=moves, backward_moves=moves), keeps=0, keeps_whole=0,
        )  # fmt: skip

    def product(name: str, inner: Ints, cols: Ints, read: str, gated: bool) -> Node:
        return Node(
            name=name, type=grouped_gemm.TYPE, rows=rows, cols=cols, inner=inner, groups=local, reads=(read,),
            attributes={**attributes, "gated": float(gated)}, dims=_TOKENS._replace(groups=_GROUPS),
        )  # fmt: skip

    nodes: tuple[Node, ...] = (
        a_pass("route", "route", tokens, experts, INPUT),
        a_pass("dispatch", "dispatch", rows, hidden, "route", 1.0 + 1.0 / topk),
        product("gate and up", hidden, 2 * ffn, "dispatch", True),
        a_pass("gate", "expert_gate", rows, ffn, "gate and up"),
        product("down", ffn, hidden, "gate", False),
        a_pass("combine", "combine", tokens, hidden, "down", 1.0 + topk),
    )
    if shared := int(points["model.shared_experts"][0]):
        nodes += _shared(tokens, hidden, ffn * shared, nodes[-1].name)
    return connect([Layer("experts", HIDDEN, nodes)], needs_input_gradient=True)


def _shared(tokens: Ints, hidden: Ints, ffn: Ints, routed: str) -> tuple[Node, ...]:
    """Return the shared experts, as a single expert, and the add of their output to the routed output."""

    def product(name: str, inner: Ints, cols: Ints, read: str) -> Node:
        return Node(
            name=name, type=TYPES["gemm"], rows=tokens, cols=cols, inner=inner, reads=(read,), dims=_TOKENS
        )

    swiglu, add = OPERATORS["swiglu"], OPERATORS["add"]
    return (
        product("shared gate and up", hidden, 2 * ffn, INPUT),
        Node(
            name="shared gate", type=swiglu.base, rows=tokens, cols=ffn, reads=("shared gate and up",),
            cost=PassCost(moves=3.0, flop=swiglu.flop), dims=_TOKENS,
        ),
        product("shared down", ffn, hidden, "shared gate"),
        Node(
            name="add shared", type=add.base, rows=tokens, cols=hidden, reads=("shared down", routed),
            cost=PassCost(flop=add.flop, backward_moves=0.0), dims=_TOKENS,
        ),
    )  # fmt: skip


def _invalid_sizes(inputs: Inputs) -> list[tuple[Bools, str, str, str]]:
    return [
        (inputs[key] > inputs["model.experts"], key, "model.experts", "at most the {} of model.experts")
        for key in ("model.topk", "model.ep")
    ]


FAMILY = Family(
    name="experts",
    work="experts",
    structure=(grouped_gemm.SHARED_EXPERTS,),
    sizes=(
        count("model.tokens", "tokens of all devices that share the experts"),
        count("model.topk", "experts that a token chooses"),
        count("model.experts", "experts of a layer, on all devices together", high=grouped_gemm.MAX_EXPERTS),
        count("model.hidden", "columns of a token between layers (hidden size)"),
        count("model.ffn", "columns of an expert: of its gate, and of its up product"),
        count("model.tp", "devices that share the columns of each expert"),
        count("model.ep", "devices that share the experts; with tp, groups of devices"),
        grouped_gemm.POWER_LAW,
    ),
    network=network,
    kernels=single_operation,
    rows=independent_rows("model.tokens"),
    invalid_sizes=_invalid_sizes,
    multiplied=("model.tokens", "model.topk"),
)
