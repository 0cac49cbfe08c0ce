"""Servers of a strategy: data parallelism makes independent ones, unless it shares experts.

Tensor parallelism shards all layers of a server. Data-parallel devices that share experts are the attention
ranks of one server: each has requests of its own, and all run the expert layers together (DeepSeek-V3,
arXiv:2412.19437, section 3.4). The remaining data parallelism makes replicas, and so do devices beyond the
strategy's. Stages of a pipeline are slots: as many batches are in flight, each on another stage.

Experts are distributed over the tensor-parallel devices first, and no expert is then sharded, as in vLLM and
TensorRT-LLM. Without expert parallelism, tensor parallelism shards each expert.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from fastflow.core.reasons.codes import Code, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons, first_reasons
from fastflow.core.tables import Columns, Floats, Inputs, Ints, Texts
from fastflow.performance.serving.expert_kernels import PADDED, expert_kernels
from fastflow.physics.hardware.packages import DEVICES, PACKAGE, devices_per_package, per_package
from fastflow.physics.network.collectives.custom_all_reduce import BACKEND, NCCL
from fastflow.physics.parallelism.mesh import AXES, axes, devices_along
from fastflow.physics.parallelism.pipeline_layout import AUTO
from fastflow.physics.parallelism.pipeline_layout import KEY as PIPELINE_LAYOUT
from fastflow.physics.parallelism.strategy import TENSOR, Strategy, invalid_strategy, parse_column
from fastflow.physics.workload.models.transformer.served_experts import DEEPGEMM, EXPERT_KERNELS
from fastflow.physics.workload.models.transformer.serving_pass import EXPERT_ROWS, SAMPLER
from fastflow.physics.workload.ops.top_p import NO_FILTER
from fastflow.physics.workload.precision import stored_experts
from fastflow.schema.servers import BESIDE_TOKENS, REDUNDANT
from fastflow.schema.serving import TOP_P

STRATEGY, SHAPE = "parallel.strategy", "system.shape"


class ServerLayouts(NamedTuple):
    """Servers of every point; (points,)."""

    printed: Texts  # the strategy of all devices
    tensor: Ints  # devices that a layer's heads are sharded over
    ranks: Ints  # attention ranks: groups of such devices, each with its own requests
    slots: Ints  # stages
    replicas: Ints  # independent servers
    experts: Ints  # devices that experts are distributed over
    others: Ints  # devices of a server that do all but attention, where attention has devices of its own
    reason: ReasonColumn  # why there is none

    @property
    def stage(self) -> Ints:
        """Devices of one stage of one server."""
        return self.tensor * self.ranks + self.others

    @property
    def rank_devices(self) -> Floats:
        """Devices of one stage of one server, for each of its attention ranks."""
        devices: Floats = self.stage / np.maximum(self.ranks, 1)
        return devices

    @property
    def devices(self) -> Ints:
        """Devices of one server."""
        return self.stage * self.slots


def server_layouts(inputs: Inputs, key: str = STRATEGY, devices_key: Texts | None = None) -> ServerLayouts:
    """Return the servers that strategies make; raises InputError for a text that is not a strategy.

    key, devices_key: as reasons name the strategy and each point's devices (`invalid_strategy`).
    """
    texts, devices = inputs[STRATEGY], inputs["system.devices"]
    strategies, printed = parse_column(texts, np.ones(texts.size, dtype=np.bool_))
    degrees, reason = strategies.degrees, Reasons(texts.size)
    for i in reason.without((devices_along(degrees, axes("kp1", "kp2", "cp")) > 1) | (strategies.chunks > 1)):
        allowed = "tensor, expert, data and pipeline parallelism alone, where serve is not none"
        reason.add(i, rejected(Code.STRATEGY, key, texts[i], allowed))
    layers, stages = inputs["model.layers"], np.maximum(strategies.pp, 1)
    degree = {name: degrees[:, AXES.index(name)] for name in ("tp", "ep", "dp")}
    _refuse_uneven_stages(inputs, degree["tp"] * degree["ep"], key, reason)
    return ServerLayouts(
        printed=printed,
        tensor=degree["tp"],
        ranks=degree["ep"],
        slots=stages,
        replicas=degree["dp"] * (devices // np.maximum(strategies.devices, 1)),
        experts=strategies.experts,
        others=np.zeros_like(degree["tp"]),
        reason=first_reasons(
            invalid_strategy(strategies, printed, devices, layers, key, devices_key), reason.column()
        ),
    )


def _refuse_uneven_stages(inputs: Inputs, stage: Ints, key: str, reason: Reasons) -> None:
    """Name strategies whose stages use packages unevenly.

    stage: devices of each, (points,); key: of the strategy.
    """
    for i in reason.without((stage > inputs[PACKAGE]) & (stage % np.maximum(inputs[PACKAGE], 1) > 0)):
        devices, package = int(stage[i]), int(inputs[PACKAGE][i])
        if not devices_per_package(devices, package):
            allowed = f"stages with as many of each package of {package} devices, at least half of them"
            strategy = inputs[STRATEGY][i]
            reason.add(i, rejected(Code.STRATEGY, key, strategy, f"{allowed}; not {devices}"))


def stage_inputs(inputs: Inputs, servers: ServerLayouts) -> Columns:
    """Return inputs of the model with the layout of one stage of each point's server."""
    stages = zip(servers.tensor.tolist(), servers.experts.tolist(), servers.ranks.tolist(), strict=True)
    package = per_package({DEVICES: servers.stage, PACKAGE: inputs[PACKAGE]})
    count, kernels = servers.tensor.size, expert_kernels(inputs, servers.tensor)
    changed = {
        STRATEGY: np.array([_stage_strategy(*degrees) for degrees in stages], dtype=np.str_),
        "parallel.expert_tensor_parallel": servers.experts == 1,
        "parallel.sequence_parallel": np.full(count, "false"),
        "parallel.microbatches": np.ones(count, dtype=np.int64),
        "parallel.microbatch": np.zeros(count, dtype=np.int64),
        "model.training": np.zeros(count, dtype=np.bool_),
        "model.dropout": np.zeros(count, dtype=np.bool_),  # of training alone
        "model.fused_attention": np.ones(count, dtype=np.bool_),  # as in all serving libraries
        "system.devices": servers.stage,
        EXPERT_ROWS.name: _expert_rows(inputs, kernels),
        EXPERT_KERNELS.name: kernels,
        BESIDE_TOKENS: inputs[BESIDE_TOKENS] * servers.ranks,
        "model.experts": np.where(
            servers.experts > 1, inputs["model.experts"] + inputs[REDUNDANT], inputs["model.experts"]
        ),
        SAMPLER.name: np.where(inputs["serve.sampling"] == TOP_P, inputs["server.sampler"], NO_FILTER),
        PIPELINE_LAYOUT: np.full(count, AUTO),  # servers partition layers by a rule of their own
        BACKEND: np.where(inputs["system.library"] == "none", NCCL, inputs["server.all_reduce_backend"]),
    }
    packages = inputs[DEVICES] // per_package(inputs), servers.stage // package
    each_shape = zip(inputs[SHAPE].tolist(), *(counts.tolist() for counts in packages), strict=True)
    return dict(inputs) | changed | {SHAPE: np.array([_shape(*row) for row in each_shape], dtype=np.str_)}


@lru_cache(maxsize=4096)
def _shape(text: str, whole: int, part: int) -> str:
    """Return the shape of a part of a network, whose text may give the sides of the whole.

    Sides that do not match the number of packages stay, and are refused.
    """
    sides = [int(side) for side in text.split("x") if re.fullmatch(r"[1-9][0-9]{0,7}", side)]
    return f"{len(sides)}d" if part != whole and 0 < len(sides) < 4 and prod(sides) == whole else text


def _expert_rows(inputs: Inputs, kernels: Texts) -> Ints:
    """Return the minimum rows of each expert's GEMM, (servers,): DeepGEMM pads them to a whole block."""
    padded = (stored_experts(inputs) == PADDED) & (kernels == DEEPGEMM)
    return np.where(padded, inputs["server.moe_alignment"], 0)


@lru_cache(maxsize=4096)
def _stage_strategy(tensor: int, experts: int, ranks: int) -> str:
    return str(Strategy(TENSOR, tp=tensor, ep=experts, dp=ranks))
