"""Passes around the grouped GEMMs of experts, as in TensorRT-LLM's fused mixture.

Or as in triton_kernels: `triton_route` and `triton_combine`.

`route` finds the experts of each token and sorts the choices, `dispatch` gathers a row for each choice (and
rounds it), `expert_gate` multiplies the products by the gate (and rounds them), `combine` sums a token's
rows. The launches and bytes of each pass are in `physics.timing.moe.layer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from fastflow.core.tables import Floats
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.timing.moe.layer import ExpertLayers, time_passes
from fastflow.physics.workload.network import KernelType, Node, Side, forward_with_attributes
from fastflow.physics.workload.ops.elementwise import TYPE as PASS
from fastflow.physics.workload.ops.grouped_gemm import mixture_from_file, rare_attribute, routings
from fastflow.physics.workload.ops.rowwise import TYPE as ROWWISE
from fastflow.physics.workload.precision import expert_format, expert_type
from fastflow.physics.workload.sharding_rules import GROUPS, INNER, OUTPUT, PARTIAL, REPLICATE, Share

_KERNELS = {
    "route": ("route", "sort"),
    "dispatch": ("quantise", "gather", "scale"),
    "expert_gate": ("activate", "scale_gated"),
    "combine": ("combine",),
    "triton_route": ("triton_route",),
    "triton_combine": ("triton_combine",),
    "masked_dispatch": ("masked_gather",),
    "masked_gate": ("masked_gate",),
    "masked_combine": ("masked_combine",),
    "trtllm_route": ("trtllm_route",),
    "trtllm_dispatch": ("quantise",),
    "token_dispatch": ("quantise_tokens",),
    "fused_dispatch": ("fused",),
}
"""The kernels of each type."""


def _time(kernels: tuple[str, ...], device: Device, share: Share) -> tuple[Launched, Floats]:
    layers = ExpertLayers(
        point=share.device, routing=routings(share), hidden=share.n, ffn=share.n,
        size=share.bytes.operand, activation=share.bytes.output,
        matrices=2.0 - share.attributes["plain"], converted=share.bytes.conversion > 0.0,
        recent=rare_attribute(share, "recent") > 0.0,
    )  # fmt: skip
    return time_passes(device, layers, kernels)


def _from_file(
    name: str, where: str, node: Node, sides: Mapping[str, Side], model: Side, fields: Mapping[str, Any]
) -> Node:
    known_sides = {**sides, "experts": Side(int(node.cols))} if name == "route" else sides
    attributes = mixture_from_file(
        where, node, known_sides, fields, chosen=name in ("dispatch", "expert_gate")
    )
    topk = sides["topk"].size
    # dispatch writes, and combine reads, a row for each choice
    moves = {"dispatch": 1.0 + 1.0 / topk, "combine": 1.0 + topk}.get(name)
    dims = node.dims._replace(inner=sides["experts"].names) if moves else node.dims
    cost = node.cost._replace(moves=moves, backward_moves=moves)
    return node._replace(attributes=attributes, cost=cost, dims=dims)


def _type(name: str, base: KernelType, *required: str, reads: str = REPLICATE, makes: str = "") -> KernelType:
    """Return a type; reads, makes: placements of its input and output along an expert-parallel axis."""
    if makes:
        base = replace(base, reads=({**OUTPUT, INNER: reads},), makes={**OUTPUT, INNER: makes})
    return replace(
        base, name=name, title=name.replace("_", " "), required=("cols", "topk", *required),
        optional=("rows", "reads", "power_law"), forward=partial(forward_with_attributes, base),
        from_file=partial(_from_file, name), time=partial(_time, _KERNELS[name]), dtype=expert_type,
        stored=expert_format,
    )  # fmt: skip


TYPES = {
    "route": _type("route", ROWWISE),
    "dispatch": _type("dispatch", PASS, "experts", makes=GROUPS),
    "expert_gate": _type("expert_gate", PASS, "groups"),
    "combine": _type("combine", PASS, "experts", reads=GROUPS, makes=PARTIAL),
}
TRITON_PASSES = {
    "route": _type("triton_route", ROWWISE),
    "combine": _type("triton_combine", PASS, "experts", reads=GROUPS, makes=PARTIAL),
}
"""Of the module of triton_kernels."""
FUSED_DISPATCH = {"dispatch": _type("fused_dispatch", PASS, "experts", makes=GROUPS)}
"""Of a library whose products gather rows: no kernel, but a place where devices exchange them."""
MASKED_PASSES = {
    "route": TYPES["route"],
    "dispatch": _type("masked_dispatch", PASS, "experts", makes=GROUPS),
    "expert_gate": _type("masked_gate", PASS, "groups"),
    "combine": _type("masked_combine", PASS, "experts", reads=GROUPS, makes=PARTIAL),
}
"""Around DeepGEMM's products in masked layout; only `model=experts` has them."""
SORTED_PASSES = {"dispatch": _type("token_dispatch", PASS, "experts", makes=GROUPS)}
"""Before products that gather the rows of tokens themselves: fused_moe of vLLM and SGLang, and trtllm's
batched kernels in fp8 with scales of blocks."""
TRTLLM_PASSES = {
    "route": _type("trtllm_route", ROWWISE),
    "dispatch": _type("trtllm_dispatch", PASS, "experts", makes=GROUPS),
    "combine": TYPES["combine"],
}
"""Of trtllm's batched kernels, which gather rows and apply the gate themselves; only `model=experts` has
them."""
