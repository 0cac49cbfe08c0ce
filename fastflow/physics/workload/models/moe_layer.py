"""`model=experts`: the expert layer of a mixture, on one of the devices that share it.

Tokens are those of all these devices, before dispatch: communication between devices is not included.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastflow.core.field import Column, count, text
from fastflow.core.tables import Bools, Inputs, Ints
from fastflow.physics.timing.moe import expert_tiles
from fastflow.physics.workload.family import Family, independent_rows, single_operation
from fastflow.physics.workload.graph import HIDDEN, Dims
from fastflow.physics.workload.network import INPUT, KernelType, Layer, Network, Node, PassCost, connect
from fastflow.physics.workload.ops import TYPES, grouped_gemm
from fastflow.physics.workload.ops.moe_passes import MASKED_PASSES, TRITON_PASSES, TRTLLM_PASSES
from fastflow.physics.workload.ops.moe_passes import TYPES as PASSES
from fastflow.physics.workload.ops.pointwise import OPERATORS

CUTLASS, TRITON, DEEPGEMM, TRTLLM, AITER = "cutlass", "triton", "deepgemm", "trtllm", "aiter"
BACKEND = text(
    "model.moe_backend",
    "kernels of an expert layer: cutlass, TensorRT-LLM's fused mixture; triton, the module of triton_kernels"
    " with separate routing kernels; deepgemm, products of DeepGEMM; trtllm, TensorRT-LLM's batched kernels"
    " for Blackwell; aiter, its two products, of tokens that are sorted and quantised before",
    (CUTLASS, TRITON, DEEPGEMM, TRTLLM, AITER),
)
ONE_STAGE = Column(
    "model.one_stage", "bool", "", "true: under the backend aiter, one kernel computes both products"
)
RELEASE = text(
    "model.moe_release",
    "release of TensorRT-LLM whose routing kernels run: 1.0, which routes up to 128 experts and 8 choices in"
    " one kernel; 1.3, up to 512 and 10",
    ("1.0", "1.3"),
)
LEFTOVER = text(
    "model.leftover",
    "experts that get the tokens which a power law leaves over: last, those of the last device; any",
    ("last", "any"),
)
GATE = text(
    "model.gate",
    "gate of an expert layer: topk, tokens get the experts that they are meant to choose; groups,"
    " DeepSeek-V3's where most of a benchmark's scores are equal, which gives the first experts more tokens",
    ("topk", "groups"),
)
REPEATED = Column(
    "model.repeated", "bool", "",
    "true: the layer runs again and again, as in a benchmark, and the last cache holds some of its weights",
)  # fmt: skip
TUNED = Column(
    "model.tuned", "bool", "",
    "true: under the backend cutlass on chips with tensor memory, products have kernels that TensorRT-LLM's"
    " tuner chose, which swap operands; false: its default kernels",
)  # fmt: skip
SUMMED = Column(
    "model.summed",
    "bool",
    "",
    "true: a token's rows are summed at the end of the layer; false: they are left for another kernel",
)
_LIBRARIES = {
    CUTLASS: expert_tiles.CUTLASS, TRITON: expert_tiles.COMPARED, DEEPGEMM: expert_tiles.DEEPGEMM,
    TRTLLM: expert_tiles.TRTLLM, AITER: expert_tiles.COMPARED,
}  # fmt: skip
GATED = Column(
    "model.gated", "bool", "",
    "true: the feed-forward layer is gated (as SwiGLU): it has a second GEMM, for the gate",
)  # fmt: skip
_TOKENS, _GROUPS = Dims(("tokens",)), ("experts",)


def network(points: Inputs) -> Network:
    """Return the network of each point's layer, as the kernels of its backend run it."""
    tokens, topk, experts, hidden = (
        points[f"model.{name}"] for name in ("tokens", "topk", "experts", "hidden")
    )
    local, ffn = -(-experts // points["model.ep"]), -(-points["model.ffn"] // points["model.tp"])
    gated, backend = bool(points[GATED.name][0]), str(points[BACKEND.name][0])
    is_triton, is_aiter, fuses = backend == TRITON, backend == AITER, backend in (TRITON, TRTLLM)
    is_tuned = backend == CUTLASS and bool(points[TUNED.name][0])
    rows = np.maximum(1, -(-tokens * topk * local // experts))
    attributes = grouped_gemm.mixture(
        tokens, topk, experts, local, points["model.power_law"], triton=is_triton, plain=not gated,
        library=expert_tiles.TUNED if is_tuned else _LIBRARIES[backend],
        recent=points[RELEASE.name][0] == "1.3",
        random=points[grouped_gemm.RANDOM.name], scattered=points[LEFTOVER.name][0] == "any",
        grouped=points[GATE.name][0] == "groups", of_aiter=is_aiter,
        fused=is_aiter and bool(points[ONE_STAGE.name][0]),
        reread=points[REPEATED.name] * hidden * ffn * (3.0 if gated else 2.0),
    )  # fmt: skip

    def a_pass(name: str, kind: KernelType, rows: Ints, cols: Ints, read: str, moves: Any = None) -> Node:
        return Node(
            name=name, type=kind, rows=rows, cols=cols, reads=(read,), attributes=attributes,
            dims=_TOKENS, cost=PassCost(moves=moves, backward_moves=moves), keeps=0, keeps_whole=0,
        )  # fmt: skip

    def product(name: str, inner: Ints, cols: Ints, read: str, **further: float) -> Node:
        return Node(
            name=name, type=grouped_gemm.TYPE, rows=rows, cols=cols, inner=inner, groups=local, reads=(read,),
            attributes={**attributes, **further}, dims=_TOKENS._replace(groups=_GROUPS),
        )  # fmt: skip

    up = "gate and up" if gated else "up"
    first = product(up, hidden, 2 * ffn if gated else ffn, INPUT, gated=float(gated))
    second = product("down", ffn, hidden, up, second=1.0)
    passes = {TRITON: TRITON_PASSES, DEEPGEMM: MASKED_PASSES, TRTLLM: TRTLLM_PASSES}.get(backend, PASSES)
    nodes: list[Node] = [a_pass("route", passes["route"], tokens, experts, INPUT)]
    if not is_triton:
        nodes += [a_pass("dispatch", passes["dispatch"], rows, hidden, "route", 1.0 + 1.0 / topk)]
    nodes += [first._replace(reads=(nodes[-1].name,))]
    if not fuses:
        nodes += [a_pass("gate" if gated else "activation", passes["expert_gate"], rows, ffn, up)]
    nodes += [second._replace(reads=(nodes[-1].name,))]
    if points[SUMMED.name][0]:
        nodes += [a_pass("combine", passes["combine"], tokens, hidden, "down", 1.0 + topk)]
    nodes = [first, second] if is_aiter else nodes
    if shared := int(points["model.shared_experts"][0]):
        nodes += _shared(tokens, hidden, ffn * shared, nodes[-1].name)
    return connect([Layer("experts", HIDDEN, tuple(nodes))], needs_input_gradient=True)


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
    structure=(
        grouped_gemm.SHARED_EXPERTS,
        GATED,
        BACKEND,
        ONE_STAGE,
        RELEASE,
        LEFTOVER,
        GATE,
        REPEATED,
        TUNED,
        SUMMED,
    ),
    sizes=(
        count("model.tokens", "tokens of all devices that share the experts"),
        count("model.topk", "experts that a token chooses"),
        count("model.experts", "experts of a layer, on all devices together", high=grouped_gemm.MAX_EXPERTS),
        count("model.hidden", "columns of a token between layers (hidden size)"),
        count("model.ffn", "columns of an expert: of its gate, and of its up product"),
        count("model.tp", "devices that share the columns of each expert"),
        count("model.ep", "devices that share the experts; with tp, groups of devices"),
        grouped_gemm.POWER_LAW,
        grouped_gemm.RANDOM,
    ),
    network=network,
    kernels=single_operation,
    rows=independent_rows("model.tokens"),
    invalid_sizes=_invalid_sizes,
    multiplied=("model.tokens", "model.topk"),
)
