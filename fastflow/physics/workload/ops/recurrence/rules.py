"""The rules of linear-time mixers: chunk, kernels and counted operations, each from its authors' code.

FLA is fla-org/flash-linear-attention. What kernels read and write is counted on their arguments, in numbers
of 2 bytes (fp32 counts twice). Local linear attention is none of them: see `ops.local_linear`.
"""

from __future__ import annotations

from types import MappingProxyType

from fastflow.core.tables import Floats
from fastflow.physics.workload.ops.recurrence.rule import ChunkKernel, Elements, Rule, Sides

DELTA, KIMI, SCAN, SELECTIVE = "gated_delta", "kimi_delta", "state_space", "selective_scan"
GATED, RETENTION, LIGHTNING, RWKV7 = "gated_linear", "retention", "lightning", "rwkv7"
SUB_BLOCK = 32.0
"""Queries that lightning attention's kernel of pairs holds; it leaves out later blocks of keys."""


# --- operations


def _delta_flop(s: Sides) -> Floats:
    # pairs of keys, the inverse of their triangle (column by column), keys and values times it
    corrected = 2.0 * s.chunk * s.key + s.chunk * s.chunk / 3.0 + 2.0 * s.chunk * (s.key + s.value)
    # pairs of queries and keys; the state at keys, and what is added to it
    return corrected + 2.0 * s.chunk * s.key + 4.0 * s.key * s.value + _delta_output(s)


def _delta_output(s: Sides) -> Floats:
    # pairs times values, the state at queries
    return 2.0 * (s.chunk + s.key) * s.value


def _linear_flop(s: Sides) -> Floats:
    # pairs, what is added to the state, and the output
    return 2.0 * s.chunk * s.key / s.shared + 2.0 * s.key * s.value + _delta_output(s)


def _lightning_flop(s: Sides) -> Floats:
    return (s.chunk + SUB_BLOCK) * s.key + 2.0 * s.key * s.value + _lightning_output(s)


def _lightning_output(s: Sides) -> Floats:
    return (s.chunk + SUB_BLOCK) * s.value + 2.0 * s.key * s.value


def _rwkv_flop(s: Sides) -> Floats:
    # four kinds of pairs; the inverse of a triangle, times another, times keys and values
    corrected = 8.0 * s.chunk * s.key + (1.0 / 3.0 + 2.0) * s.chunk * s.chunk
    corrected = corrected + 2.0 * s.chunk * (s.key + s.value)
    # the state at keys, and the two outer products that are added to it
    return corrected + 6.0 * s.key * s.value + _rwkv_output(s)


def _rwkv_output(s: Sides) -> Floats:
    # two kinds of pairs times values, the state at queries
    return 2.0 * (2.0 * s.chunk + s.key) * s.value


# step x decay and its exponential, decay, step x key x value and its sum, product with a query and its sum
_SELECTIVE_FLOP = 7.0


def _selective_flop(s: Sides) -> Floats:
    return _SELECTIVE_FLOP * s.key * s.value


def _selective_output(s: Sides) -> Floats:
    return 2.0 * s.key * s.value


# --- kernels

# Yang et al., arXiv:2412.06464; FLA@ffc1fb9, fla/ops/gated_delta_rule/chunk.py. The kernel of states keeps
# one, multiplies keys by it, adds to it, and stores it once a chunk; that of the output loads it.
_GATED_DELTA = (
    ChunkKernel("decays", Elements(gates=1), Elements(gates=1)),
    ChunkKernel("key pairs", Elements(gates=1, keys=1), Elements(pairs=2)),
    ChunkKernel("inverse", Elements(pairs=2), Elements(pairs=1)),
    ChunkKernel("keys and values", Elements(1, keys=1, values=1, pairs=1), Elements(keys=1, values=1)),
    ChunkKernel("states", Elements(keys=2, values=1), Elements(values=1, states=1), visits=3),
    ChunkKernel("output", Elements(keys=2, values=1, states=1), Elements(values=1), visits=1),
)
# Kimi Linear, arXiv:2510.26692; FLA@0a87b0f, fla/ops/kda/chunk_intra.py, FLA@577d9b5, chunk_fwd.py. Decays
# are a number a column of a key, summed in fp32; one kernel has the pairs of blocks, one those within them.
_KIMI_DELTA = (
    ChunkKernel("decays", Elements(keys=1), Elements(keys=2)),
    ChunkKernel("pairs of blocks", Elements(gates=1, keys=4), Elements(pairs=3)),
    ChunkKernel("pairs within blocks", Elements(gates=1, keys=4), Elements(pairs=1)),
    ChunkKernel("inverse", Elements(pairs=2), Elements(pairs=1)),
    ChunkKernel("keys and values", Elements(1, keys=3, values=1, pairs=1), Elements(keys=2, values=1)),
    ChunkKernel("states", Elements(keys=2, values=1), Elements(values=1, states=1), visits=3),
    ChunkKernel("output", Elements(keys=3, values=1, pairs=2, states=1), Elements(values=1), visits=1),
)
# Dao and Gu, arXiv:2405.21060; state-spaces/mamba@ac16c07, mamba_ssm/ops/triton/ssd_combined.py. States are
# stored, read and stored by the kernel that passes them on, and multiplied by queries.
_STATE_SPACE = (
    ChunkKernel("decays", Elements(gates=2), Elements(gates=2)),
    ChunkKernel("states", Elements(gates=2, keys=1, values=1), Elements(states=2), visits=2),
    ChunkKernel("passing", Elements(states=2), Elements(states=2), visits=2),
    ChunkKernel("pairs", Elements(keys=2), Elements(pairs=1)),
    ChunkKernel("scan", Elements(2, keys=1, values=1, pairs=1, states=2), Elements(values=1), visits=1),
)
# Gu and Dao, arXiv:2312.00752; state-spaces/mamba@1200d6e, csrc/selective_scan/selective_scan_fwd_kernel.cuh.
# A head is a channel, whose block reads its input, step and gate, and writes its output with and without the
# gate; all channels read the same keys and queries. After a chunk it stores each state with its decay, in
# fp32.
_SELECTIVE_SCAN = (ChunkKernel("scan", Elements(keys=2, values=3), Elements(values=2, states=4), visits=1),)
# Yang et al., arXiv:2312.06635; FLA@05b9003, fla/ops/gla/chunk.py. As of `_KIMI_DELTA`, without a correction.
_GATED_LINEAR = (
    ChunkKernel("decays", Elements(keys=1), Elements(keys=2)),
    ChunkKernel("states", Elements(keys=3, values=1), Elements(states=1), visits=2),
    ChunkKernel("pairs of blocks", Elements(keys=4), Elements(pairs=1.5)),
    ChunkKernel("pairs within blocks", Elements(keys=4), Elements(pairs=0.5)),
    ChunkKernel("output", Elements(keys=3, values=1, pairs=2, states=1), Elements(values=1), visits=1),
)
# Sun et al., RetNet, arXiv:2307.08621; FLA@07784bc, fla/ops/simple_gla/chunk.py: a constant decay a head.
_RETENTION = (
    ChunkKernel("states", Elements(keys=1, values=1), Elements(states=1), visits=2),
    ChunkKernel("output", Elements(keys=2, values=1, states=1), Elements(values=1), visits=1),
)
# MiniMax-01, arXiv:2501.08313; vllm-project/vllm@030ea52, vllm/model_executor/layers/lightning_attn.py: sums
# of keys x values of chunks in fp32; the kernel of later chunks adds to the output of the first kernel.
_LIGHTNING = (
    ChunkKernel("chunks", Elements(keys=2, values=1), Elements(values=1)),
    ChunkKernel("states", Elements(keys=1, values=1), Elements(states=2), visits=2),
    ChunkKernel("passing", Elements(states=2), Elements(states=2), visits=2),
    ChunkKernel("earlier chunks", Elements(keys=1, values=1, states=2), Elements(values=1), visits=1),
)
# Peng et al., arXiv:2503.14456; FLA@20ceee5, fla/ops/generalized_delta_rule/dplr/chunk.py: queries, keys and
# two more vectors as wide as a key, each times its decays; two kinds of pairs in fp32; two outer products.
_RWKV7 = (
    ChunkKernel("decays", Elements(keys=1), Elements(keys=4)),
    ChunkKernel("pairs", Elements(keys=8), Elements(keys=4, pairs=6)),
    ChunkKernel("inverse", Elements(pairs=2), Elements(pairs=2)),
    ChunkKernel("keys and values", Elements(keys=1, values=1, pairs=4), Elements(keys=1, values=1)),
    ChunkKernel("states", Elements(keys=3, values=2), Elements(values=1, states=1), visits=4),
    ChunkKernel("output", Elements(keys=1, values=2, pairs=2, states=1), Elements(values=1), visits=1),
)

# --- rules
# Operations of a step, for each element of the state: decay 1; what the state holds for a key 2, where the
# rule subtracts it; the outer product that is added 2; the product with a query 2. Launches of backward
# passes are those of the files above; of lightning attention OpenNLPLab/lightning-attention@2363947,
# lightning_attn2.py; of the selective scan selective_scan_bwd_kernel.cuh.
RULES = MappingProxyType(
    {
        DELTA: Rule(
            64, _GATED_DELTA, 9, _delta_flop, _delta_output, 7.0, Elements(gates=2, keys=2, values=1),
            saved_pairs=1.0,  # the inverse
        ),
        KIMI: Rule(
            64, _KIMI_DELTA, 8, _delta_flop, _delta_output, 7.0, Elements(gates=1, keys=3, values=1),
            saved_pairs=3.0,  # pairs of queries in fp32, and the inverse
        ),
        SCAN: Rule(
            256, _STATE_SPACE, 14, _linear_flop, _delta_output, 5.0, Elements(gates=1, keys=2, values=1),
            is_grouped=True,
        ),
        SELECTIVE: Rule(
            2048, _SELECTIVE_SCAN, 1, _selective_flop, _selective_output, _SELECTIVE_FLOP,
            Elements(keys=2, values=3), is_grouped=True, on_lanes=True,
        ),
        GATED: Rule(
            64, _GATED_LINEAR, 7, _linear_flop, _delta_output, 5.0, Elements(keys=3, values=1),
            saved_pairs=2.0,  # in fp32
        ),
        RETENTION: Rule(
            64, _RETENTION, 4, _linear_flop, _delta_output, 5.0, Elements(keys=2, values=1)
        ),
        LIGHTNING: Rule(
            256, _LIGHTNING, 2, _lightning_flop, _lightning_output, 5.0, Elements(keys=2, values=1)
        ),
        RWKV7: Rule(16, _RWKV7, 12, _rwkv_flop, _rwkv_output, 9.0, Elements(keys=5, values=1)),
    }
)  # fmt: skip
"""Recurrences by name."""
