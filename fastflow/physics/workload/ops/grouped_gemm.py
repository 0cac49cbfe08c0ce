"""Grouped GEMMs of a mixture's experts: tokens are routed to experts, perhaps unevenly; a single launch.

Only the weights of experts that get tokens are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fastflow.core.field import Column
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.core.yaml_file import amount_of, wrong
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.timing.moe.expert_load import Routings
from fastflow.physics.timing.moe.expert_tiles import COMPARED, SORTED, TRTLLM
from fastflow.physics.timing.moe.grouped_gemm import (
    FIRST,
    SECOND,
    SEPARATE,
    GroupedProducts,
    rows_of_triton,
    time_grouped,
)
from fastflow.physics.workload.graph import WEIGHT_GRADIENT, Attributes, Kernel
from fastflow.physics.workload.network import (
    KernelType,
    Network,
    Node,
    Side,
    Size,
    forward_with_attributes,
)
from fastflow.physics.workload.ops.gemm import TYPE as PRODUCT
from fastflow.physics.workload.precision import Precision, expert_format, expert_type
from fastflow.physics.workload.sharding_rules import Share

MAX_POWER_LAW = 8.0
"""Exponent of the power law of expert loads."""
RANDOM = Column(
    "model.random_routing", "bool", "",
    "where model.power_law is 0: true: each token chooses its experts at random, all of them as likely, as"
    " routers trained for balance do; false: all experts get as many tokens",
)  # fmt: skip
SUM_MOVES, SHARED_SUM_MOVES = 2.0, 6.0
"""Moves of a result that is added to what memory holds (atomic adds): a read and a write. Where a block has
some columns of a row alone, blocks on several dies change the same lines at about the same time, so they move
between the L2s of these dies. Calibrated: 32 layers of aiter in bf16 on an MI300X (ROCm/aiter@e404860)."""
POWER_LAW = Column(
    "model.power_law", "float", "",
    "exponent of the power law of the experts' loads; 0: as model.random_routing says", 0.0, MAX_POWER_LAW,
)  # fmt: skip
CAPACITY = Column(
    "model.capacity_factor", "float", "",
    "tokens that an expert takes at most, over their mean; further ones are dropped"
    " (moe_expert_capacity_factor of Megatron-LM); 0: no limit", 0.0, 1e6,
)  # fmt: skip
PADDED = Column(
    "model.pad_to_capacity", "bool", "",
    "true: every expert computes as many rows as it may take (moe_pad_expert_input_to_capacity)",
)  # fmt: skip
SHARED_EXPERTS = Column(
    "model.shared_experts", "int", "", "shared experts of the same size, which every token uses", 0.0, 64.0
)
MAX_EXPERTS = 1e6
"""Experts of a layer: loads are drawn expert by expert, in some hundred bytes for each."""


def mixture(
    tokens: Size, topk: Size, experts: Size, local: Size, power_law: Floats | float, gated: bool = False,
    least: Size = 0, triton: bool = False, plain: bool = False, library: int = COMPARED, recent: bool = False,
    random: Bools | bool = False, scattered: bool = False, grouped: bool = False, reread: Size = 0,
    of_aiter: bool = False, fused: bool = False, capacity: Floats | float = 0.0,
) -> Attributes:  # fmt: skip
    """Return the attributes of kernels of an expert layer: `Node.attributes`.

    tokens: of all devices that share the experts, each token chooses topk experts; local: experts of a
    device; power_law: the exponent of their loads, 0 for equal loads; gated: a product of gates and values;
    least: minimum rows of each expert's product, chosen or not; triton: products are those of triton_kernels,
    which fuse the gate, and whose tiles have rows for all choices; plain: experts have no gate. library: of
    products, see `timing.moe.expert_tiles`; recent: routing kernels of TensorRT-LLM 1.3; random: tokens
    choose at random where power_law is 0; scattered, grouped: see `Routings`; reread: weights of an expert
    that a benchmark reads again and again, 0 for cold ones; of_aiter: products are those of aiter, which fuse
    the gate and sum a token's rows; fused: both in one kernel; capacity: rows that an expert takes at most,
    over their mean, 0 for all.
    """
    rare: dict[str, Any] = {
        "library": library, "recent": recent, "random": random & (power_law == 0.0), "scattered": scattered,
        "grouped": grouped, "reread": reread, "aiter": of_aiter, "fused": fused,
        "capacity": capacity,
    }  # fmt: skip
    return {
        "tokens": tokens, "topk": topk, "experts": experts, "local": local, "power_law": power_law,
        "gated": float(gated), "least": least, "triton": float(triton), "plain": float(plain),
        **{name: 1.0 * value for name, value in rare.items() if not (isinstance(value, int) and value == 0)},
    }  # fmt: skip


def rare_attribute(share: Share, name: str) -> Floats:
    """Return an attribute that few mixtures have, (kernels,); 0 where none has it."""
    column = share.attributes.get(name)
    return np.zeros(share.device.size) if column is None else column


def routings(share: Share) -> Routings:
    """Return the routing of the tokens of a device, and of the devices that share its experts."""

    def per_device(name: str, shards: Ints | int = 1) -> Ints:
        return np.asarray(-(-share.attributes[name].astype(np.int64) // shards))

    experts, local = per_device("experts"), per_device("local", share.group_shards)
    tokens, topk = per_device("tokens", share.row_shards * share.num_microbatches), per_device("topk")
    experts = -(-experts // local) * local  # the same number on each device
    capacity = rare_attribute(share, "capacity") * (tokens * topk / experts)
    return Routings(
        tokens=tokens,
        topk=topk,
        experts=experts,
        local=local,
        exponent=share.attributes["power_law"],
        least=per_device("least"),
        random=rare_attribute(share, "random") > 0.0,
        scattered=rare_attribute(share, "scattered") > 0.0,
        grouped=rare_attribute(share, "grouped") > 0.0,
        most=np.ceil(capacity).astype(np.int64),
    )


def is_fused(device: Device, share: Share) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return whether gates are fused into the products (TensorRT-LLM: on Ampere, in 16 bits)."""
    return ~device.library.shared[share.device] & (share.bytes.operand >= share.bytes.output)


def _library(device: Device, share: Share) -> Ints:
    """Return the library of each product.

    Tiles are compared where units have no tensor memory, and for gradients of weights.
    """
    library = rare_attribute(share, "library").astype(np.int64)
    has_tensor_memory = device.library.pair[share.device] > 1.0
    compares = (share.kind == WEIGHT_GRADIENT) | (~has_tensor_memory & (library != SORTED))
    return np.where(compares, COMPARED, library)


def _time(device: Device, share: Share) -> tuple[Launched, Floats]:
    of_weights = share.kind == WEIGHT_GRADIENT
    is_triton, routing = share.attributes["triton"] > 0.0, routings(share)
    library = _library(device, share)
    is_aiter, is_second = rare_attribute(share, "aiter") > 0.0, rare_attribute(share, "second") > 0.0
    in_one = rare_attribute(share, "fused") > 0.0
    fuses = is_fused(device, share) | is_triton | is_aiter | (share.bytes.conversion > 0.0)
    fuses |= library == TRTLLM
    gated = (share.attributes["gated"] > 0.0) & fuses
    stored = np.where(gated, share.n // 2, share.n)
    moves = np.where(in_one, SUM_MOVES, SHARED_SUM_MOVES)
    stored = np.where(is_aiter & is_second, moves * share.n, np.where(in_one, 0, stored))
    products = GroupedProducts(
        point=share.device,
        routing=routing,
        inner=np.where(of_weights, share.m, share.k),
        cols=share.n,
        stored=stored.astype(np.int64),
        of_weights=of_weights,
        size=share.bytes.operand,
        weight=np.where(of_weights, share.bytes.operand, share.bytes.stored),
        conversion=np.where(of_weights, 0.0, share.bytes.conversion),
        output=share.bytes.output,
        block_rows=np.where(is_triton, rows_of_triton(routing), 0.0),
        stage=np.where(in_one, np.where(is_second, SECOND, FIRST), SEPARATE),
        library=library,
        reread=rare_attribute(share, "reread") * np.ones(share.device.size),
    )
    # with fewer rows than experts, some experts are idle
    busy = np.minimum(1.0, share.rows / np.maximum(1, share.products))
    return time_grouped(device, products), 2.0 * busy * share.m * share.k * share.n * share.batch


def _backward(network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    attributes = {**network.nodes[i].node.attributes, "gated": 0.0, "aiter": 0.0, "fused": 0.0}
    return [
        gradient._replace(attributes=attributes)
        for gradient in PRODUCT.backward(network, i, kernel, precision)
    ]


def mixture_from_file(
    where: str, node: Node, sides: Mapping[str, Side], fields: Mapping[str, Any], chosen: bool
) -> Attributes:
    """Return the mixture of a graph file; chosen: rows are (token, expert) pairs rather than tokens."""
    topk, rows = sides["topk"].size, int(node.rows)
    experts = sides.get("experts", Side(int(node.groups))).size
    if experts > MAX_EXPERTS:
        raise wrong(f"{where}.experts", f"at most {MAX_EXPERTS:,.0f}", experts)
    if topk > experts:
        raise wrong(f"{where}.topk", f"at most its {experts} experts", topk)
    if chosen and rows % topk:
        raise wrong(f"{where}.topk", f"a divisor of its {rows} rows", topk)
    power_law, gated = (
        amount_of(f"{where}.power_law", fields.get("power_law", 0.0)),
        fields.get("gated", False),
    )
    if power_law > MAX_POWER_LAW:
        raise wrong(f"{where}.power_law", f"at most {MAX_POWER_LAW:g}", power_law)
    if not isinstance(gated, bool):
        raise wrong(f"{where}.gated", "true or false", gated)
    return mixture(rows // topk if chosen else rows, topk, experts, experts, power_law, gated)


def _from_file(
    where: str, node: Node, sides: Mapping[str, Side], model: Side, fields: Mapping[str, Any]
) -> Node:
    return node._replace(attributes=mixture_from_file(where, node, sides, fields, chosen=True))


TYPE: KernelType = replace(
    PRODUCT, name="experts", title="experts", required=("inner", "cols", "groups", "topk"),
    optional=("rows", "reads", "power_law", "gated"),
    forward=partial(forward_with_attributes, PRODUCT), backward=_backward,
    from_file=_from_file, time=_time, dtype=expert_type, stored=expert_format,
)  # fmt: skip
