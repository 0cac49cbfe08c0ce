"""Names that version 0.2.0 has changed, old to new: of keys and groups, and of their values.

Old names go on working, with one line that says the new one (docs/renames.md): `config/renamed_keys.py`
translates keys and values where overrides and files are read, so that nothing behind it knows them.
"""

from __future__ import annotations

KEYS: dict[str, str] = {
    "server.most": "server.max_num_seqs",
    "server.budget": "server.max_num_batched_tokens",
    "server.chunks": "server.chunked_prefill",
    "server.mixes": "server.mixed_batches",
    "server.reserves": "server.guaranteed_no_evict",
    "server.memory": "server.gpu_memory_utilization",
    "server.memory_of": "server.memory_fraction_of",
    "server.iteration": "server.step_overhead",
    "server.row": "server.step_overhead_per_request",
    "server.request": "server.request_overhead",
    "server.expert_rows": "server.moe_alignment",
    "server.exchange": "server.all_reduce_backend",
    "net.exchange": "net.all_reduce_backend",
    "serve.spread": "serve.length_range_ratio",
    "serve.draft": "serve.num_speculative_tokens",
    "serve.accepted": "serve.mean_acceptance_length",
    "serve.drafter": "serve.speculative_method",
    "serve.drafter_share": "serve.draft_cost_ratio",
    "serve.prompts": "serve.num_unique_prompts",
    "serve.prefix": "serve.prefix_cache_hit_rate",
    "serve.requests": "serve.num_requests",
    "serve.rate": "serve.request_rate",
    "parallel.within": "parallel.search_bounds",
    "parallel.shards": "parallel.hybrid_shard_size",
    "parallel.split": "parallel.pipeline_partition",
    "parallel.reduce": "parallel.grad_reduce",
    "parallel.reshard": "parallel.reshard_after_forward",
    "parallel.context": "parallel.cp_comm_type",
    "parallel.zero": "parallel.zero_stage",
    "parallel.sequence": "parallel.sequence_parallel",
    "parallel.expert_tensor": "parallel.expert_tensor_parallel",
    "system.taper": "system.oversubscription",
    "system.leaf": "system.leaf_radix",
    "tiling.parts": "tiling.max_split_k",
    "tiling.overlap": "tiling.soft_max_order",
    "chip.sustained": "chip.sustained_power_fraction",
    "sensitivity.range": "sensitivity.relative_range",
    "compete": "compare",
    "pins": "calibration",
}
"""Keys of the configuration, by their dotted names, and groups."""

VALUES: dict[str, dict[str, str]] = {
    "server.memory_fraction_of": {"all": "total"},
    "server.all_reduce_backend": {"library": "nccl", "peer": "custom"},
    "net.all_reduce_backend": {"library": "nccl", "peer": "custom"},
    "parallel.grad_reduce": {"iteration": "step"},
    "parallel.cp_comm_type": {"ring": "p2p", "all_to_all": "a2a"},
    "calibration": {"kept": "measured"},
}
"""Values of keys and choices of groups, by the new names of these."""
