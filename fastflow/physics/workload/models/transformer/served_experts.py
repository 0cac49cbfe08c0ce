"""Layers of servers as their libraries run them: kernels of experts, and products that they fuse.

Kernels of experts (`model.expert_kernels`):

- *cutlass*: TensorRT-LLM's fused mixture, also FlashInfer's cutlass_fused_moe;
- *triton*: fused_moe of vLLM and SGLang (fused_moe_kernel), whose blocks find their expert in a table;
- *triton_kernels*: the module of that name, with which TensorRT-LLM runs mxfp4 on Hopper;
- *deepgemm*: DeepGEMM's grouped products: those of fp8_block in TensorRT-LLM, vLLM and SGLang;
- *trtllm*: TensorRT-LLM's batched kernels for Blackwell, FlashInfer's trtllm_fp4_block_scale_moe and
  trtllm_fp8_block_scale_moe.

The first products of latent attention, of queries and of keys, read the same input: servers have their
weights in one matrix (fused_qkv_a_proj_with_mqa of SGLang and vLLM, kv_a_proj_with_mqa of TensorRT-LLM).

Shared experts run beside the routed ones, in another stream or as one more of them, for so few tokens that
neither fills the device (`BESIDE`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from fastflow.core.field import text
from fastflow.physics.timing.moe import expert_tiles
from fastflow.physics.workload.graph import BESIDE, ON_ACTIVATIONS, PRODUCT
from fastflow.physics.workload.models.transformer.building_blocks import FEED_FORWARD
from fastflow.physics.workload.models.transformer.mixers.queries import QUERY_DOWN
from fastflow.physics.workload.network import KernelType, Node
from fastflow.physics.workload.ops import grouped_gemm
from fastflow.physics.workload.ops.moe_passes import (
    FUSED_DISPATCH,
    MASKED_PASSES,
    SORTED_PASSES,
    TRITON_PASSES,
    TRTLLM_PASSES,
)
from fastflow.physics.workload.ops.moe_passes import TYPES as PASSES
from fastflow.physics.workload.recompute_modules import SHARED_EXPERTS
from fastflow.physics.workload.sharding_rules import INNER, OUTPUT, PARTIAL, REPLICATE

CUTLASS, TUNED, TRITON, DEEPGEMM, TRTLLM = "cutlass", "tuned", "triton", "deepgemm", "trtllm"
TRITON_KERNELS = "triton_kernels"
EXPERT_KERNELS = text(
    "model.expert_kernels",
    "kernels of experts; tuned: those of cutlass that TensorRT-LLM's tuner chose for chips with tensor"
    " memory",
    (CUTLASS, TUNED, TRITON, TRITON_KERNELS, DEEPGEMM, TRTLLM),
)
_LIBRARIES = {
    CUTLASS: expert_tiles.CUTLASS, TUNED: expert_tiles.TUNED, TRITON: expert_tiles.SORTED,
    TRITON_KERNELS: expert_tiles.COMPARED, DEEPGEMM: expert_tiles.DEEPGEMM, TRTLLM: expert_tiles.TRTLLM,
}  # fmt: skip
_OTHER_PASSES = {
    DEEPGEMM: MASKED_PASSES, TRTLLM: TRTLLM_PASSES | SORTED_PASSES, TRITON: SORTED_PASSES,
    TRITON_KERNELS: TRITON_PASSES | FUSED_DISPATCH,
}  # fmt: skip
_WITH_SUMS = (PASSES["combine"], MASKED_PASSES["combine"], TRITON_PASSES["combine"])
KEY_DOWN, DOWN = "key down", "query and key down"


def with_expert_kernels(nodes: Sequence[Node], kernels: str) -> list[Node]:
    """Return the nodes of a layer whose experts run on some kernels: of `EXPERT_KERNELS`."""
    others = _OTHER_PASSES.get(kernels, {})
    types = {PASSES[name]: kind for name, kind in others.items()}
    gates = {node.name: node.reads for node in nodes if node.type is PASSES["expert_gate"]}
    fused = gates if kernels in (TRTLLM, TRITON_KERNELS) else {}
    served = []
    for node in nodes:
        if node.name in fused:
            continue
        reads = tuple(source for read in node.reads for source in fused.get(read, (read,)))
        node = node._replace(reads=reads, type=types.get(node.type, node.type))
        num_experts = node.attributes.get("experts")
        if node.type is grouped_gemm.TYPE or num_experts is not None:
            rare = {
                "library": float(_LIBRARIES[kernels]), "recent": 1.0,
                "triton": float(kernels == TRITON_KERNELS),
            }  # fmt: skip
            node = node._replace(attributes={**node.attributes, **rare})
        if node.modules & SHARED_EXPERTS:
            node = node._replace(part=BESIDE)
        served.append(node)
    return served


def with_fused_downs(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes of a layer, with one product for the latent queries and keys."""
    by_name = {node.name: node for node in nodes}
    if QUERY_DOWN not in by_name or KEY_DOWN not in by_name:
        return [*nodes]
    queries, keys = by_name[QUERY_DOWN], by_name[KEY_DOWN]
    if queries.reads != keys.reads:
        return [*nodes]
    fused = queries._replace(name=DOWN, cols=queries.cols + keys.cols)
    renamed = {QUERY_DOWN: DOWN, KEY_DOWN: DOWN}
    served = []
    for node in nodes:
        if node.name == KEY_DOWN:
            continue
        node = fused if node.name == QUERY_DOWN else node
        served.append(node._replace(reads=tuple(renamed.get(read, read) for read in node.reads)))
    return served


def with_one_sum(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes of a layer whose devices sum the outputs of routed and shared experts at once.

    Each device first combines its parts of a token's rows, and adds those of shared experts. The sum over
    devices, of tokens rather than of their copies, follows the node that reads them.
    """
    deferred = {
        node.name
        for node in nodes
        if node.type in _WITH_SUMS
        or (node.type is grouped_gemm.TYPE and set(FEED_FORWARD) & {*node.dims.inner})
        or (node.part == BESIDE and node.type.kind == PRODUCT and set(FEED_FORWARD) & {*node.dims.inner})
    }
    hosts = [node for node in nodes if node.name not in deferred and {*node.reads} & deferred]
    if len(hosts) != 1 or hosts[0].type.kind != ON_ACTIVATIONS:
        return tuple(nodes)
    host = hosts[0]
    summing = host._replace(
        type=_summing(host.type), dims=host.dims._replace(inner=(*FEED_FORWARD, "experts"))
    )
    return tuple(
        summing if node is host else node._replace(defers_sum=True) if node.name in deferred else node
        for node in nodes
    )


@lru_cache
def _summing(kind: KernelType) -> KernelType:
    """Return the type of a pass that reads partial sums, and whose output is summed over devices."""
    return replace(kind, reads=({**OUTPUT, INNER: REPLICATE},), makes={**OUTPUT, INNER: PARTIAL})
