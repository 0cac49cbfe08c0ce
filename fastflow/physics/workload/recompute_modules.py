"""Parts of a layer that the backward pass may compute again, instead of keeping what they made.

They are Megatron-LM's (--recompute-modules; megatron/core/transformer/transformer_config.py):

- core_attn: scores, softmax and their product with values, where these are kernels of their own;
- moe_act: the activation between the experts' products;
- layernorm: the norms before attention and feed-forward part;
- mla_up_proj: the products that make heads of latent queries and keys, and their rotation;
- mlp: all of a dense feed-forward part;
- moe: all of a mixture of experts, with router, exchanges and shared experts;
- shared_experts: these alone.

A node has a bit for each module that it is part of. What the nodes of a recomputed module make is not kept,
but for nodes with a mark: the last ones of core_attn, mlp, moe and shared_experts (tensor_parallel.checkpoint
keeps a module's output; CheckpointWithoutOutput, of the others, does not).
"""

from __future__ import annotations

from collections.abc import Iterable

from fastflow.core.jit import lean_kernel

MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
CORE_ATTN, MOE_ACT, LAYERNORM, MLA_UP_PROJ, MLP, MOE, SHARED_EXPERTS = (1 << i for i in range(len(MODULES)))
KEEPS_OUTPUT = 1 << len(MODULES)
"""Mark of a node whose output is kept although a module with it is computed again."""
NEVER = -1
"""Of a node that no recomputation computes again."""


def bits(names: Iterable[str]) -> int:
    """Return the bits of modules."""
    return sum(1 << MODULES.index(name) for name in set(names))


@lean_kernel
def is_recomputed(node: int, modules: int) -> bool:
    """Say whether a node is part of one of some modules."""
    return node > 0 and (node & modules) > 0
