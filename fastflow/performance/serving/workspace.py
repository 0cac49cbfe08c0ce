"""Memory of a server's device beside weights and caches: activations of a pass, and what libraries hold.

A server that sizes its caches by a run at its token budget sees the largest of two peaks: of a layer, and of
sampling, when the logits of all requests exist in several copies. Buffers of experts stay beside both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.physics.parallelism.memory.process import buffers_of
from fastflow.physics.workload.data_types import AS_WEIGHTS
from fastflow.physics.workload.models.transformer.dimensions import Sizes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.precision import Precision, stored_experts

# Live activations of a pass, in columns of a token: inputs, residual sums, queries and outputs of a layer;
# and of its feed-forward part the gate, its partner, and their product. So the peaks that vLLM 0.19 logs of
# its profiling runs, within 3%: CodeLlama 7B and Granite 3.1 8B on H100 (llm-d-incubation/
# llm-d-planner@d3121e0, accuracy/results/v0.19.0)
_HIDDEN_LIVE, _WIDE_LIVE = 4.0, 3.0
_SAMPLED_HIDDEN = 1.42  # hidden columns of a token while logits are sampled; the same logs
LOGIT_BYTES = 4.0
MIB, GIB = 2.0**20, 2.0**30
_OF_TENSOR = 2  # communicators of a tensor-parallel group: PyTorch's, and the server's own (pynccl)
_WITHOUT_BUFFERS = ("mxfp4", AS_WEIGHTS["mxfp4"])
"""Types of experts whose kernels scatter their results themselves (triton_kernels of openai/gpt-oss)."""


class OtherMemory(NamedTuple):
    """Memory of a device beside weights and caches; (points,) [B]."""

    work: Floats  # activations of a pass, on stages before the last
    last_work: Floats  # the same on the last stage, which samples
    libraries: Floats  # outside of the allocator, of which a server's profile knows
    communicators: Floats  # of which it does not, with the context


def dense_columns(size: Sizes, kind: LayerKind) -> Any:
    """Return the columns of the feed-forward part of a kind of layer that every token has."""
    if kind.has_experts:
        return np.asarray(size.shared_ffn)
    return np.asarray(size.ffn)


def expert_columns(size: Sizes, kind: LayerKind, tensor: Ints) -> Any:
    """Return the columns of a token's buffers of experts; tensor: devices that share an expert.

    Fused kernels have two, of a token's chosen experts: one for inputs or the results of gate and its
    partner, one for their product or the outputs (workspace13 and workspace2 of
    vllm/model_executor/layers/fused_moe).
    """
    if not kind.has_experts:
        return 0.0
    hidden, inner = np.asarray(size.hidden), np.asarray(size.expert_ffn) / tensor
    buffers = np.maximum(inner, hidden) + np.maximum(2.0 * inner, hidden)
    return np.where(np.asarray(size.experts) > 1, size.topk * buffers, 0.0)


def other_memory(
    inputs: Inputs, size: Sizes, widest: Floats, of_experts: Floats, numbers: Precision,
    layouts: ServerLayouts,
) -> OtherMemory:  # fmt: skip
    """Return what every point's devices hold beside weights and caches.

    inputs: `server.max_num_batched_tokens`, `.max_num_seqs`, `.sampler_copies`, `.library_memory`,
    `.parallel_memory`, `.dispatch_memory`, and those of `buffers_of`; widest, of_experts:
    columns of a token in the widest layer, by `dense_columns` and `expert_columns`, (points,).
    """
    tokens, hidden = inputs["server.max_num_batched_tokens"], np.asarray(size.hidden)
    columns = _HIDDEN_LIVE * hidden + _WIDE_LIVE * widest
    buffers = np.where(np.isin(stored_experts(inputs), _WITHOUT_BUFFERS), 0.0, of_experts)
    work = tokens * columns * numbers.activation
    experts = tokens * buffers * numbers.activation
    rows = np.minimum(inputs["server.max_num_seqs"], tokens)
    logits = inputs["server.sampler_copies"] * rows * inputs["model.vocabulary"] * LOGIT_BYTES
    sampled = np.where(logits > 0.0, logits + _SAMPLED_HIDDEN * tokens * hidden * numbers.activation, 0.0)
    is_parallel, shares = layouts.tensor > 1, layouts.ranks > 1
    groups = _OF_TENSOR * is_parallel + shares + (layouts.slots > 1)
    libraries = inputs["server.library_memory"] + np.where(is_parallel, inputs["server.parallel_memory"], 0.0)
    return OtherMemory(
        work=work + experts,
        last_work=np.maximum(work, sampled) + experts,
        libraries=libraries + np.where(shares, inputs["server.dispatch_memory"], 0.0),
        communicators=buffers_of(inputs, groups),
    )


def static_share(inputs: Inputs, capacity: Floats, layouts: ServerLayouts) -> Floats:
    """Return the share of memory that SGLang takes for weights and caches, (points,).

    It sets aside 512 MiB, 1.5 MiB for each token of a chunk (2,048 at least), 2 MiB for each request of its
    largest graph, and 128 MiB for each device of a server; on more than 60 GiB at least 10 GiB
    (python/sglang/srt/server_args.py of sgl-project/sglang, PR 10975). capacity: of a device [B].
    """
    tokens = np.maximum(inputs["server.max_num_batched_tokens"], 2048)
    classes, wide = [capacity < 35 * GIB, capacity < 60 * GIB], layouts.tensor >= 4
    graph = np.where(wide, np.select(classes, [80, 160], 512), np.select(classes, [24, 32], 256))
    devices = layouts.tensor * layouts.slots
    reserved = MIB * (512.0 + 1.5 * tokens + 2.0 * graph + 128.0 * devices)
    reserved = np.where(capacity > 60 * GIB, np.maximum(reserved, 10 * GIB), reserved)
    return np.clip(1.0 - reserved / np.maximum(capacity, 1.0), 0.01, 1.0)
