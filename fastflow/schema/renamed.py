"""Names that version 0.2.0 has changed, old to new: keys and groups, values, columns, Python functions.

Old names go on working, with one line that says the new one (docs/renames.md). Keys and values are translated
where overrides and files are read (config/renamed_keys.py); the reader of datasets renames columns
(engine/dataset/renamed.py), and so does whatever takes the name of a column; `import fastflow` finds
functions.
"""

from __future__ import annotations

import re
from functools import cache

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
    "cost.host.power": "power.host_fraction",
    "cost.pue": "power.pue",
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

COLUMNS: dict[str, str] = {
    "again_s": "recompute_s",
    "tensor_wait_s": "tp_comm_exposed_s",
    "context_wait_s": "cp_comm_exposed_s",
    "expert_wait_s": "ep_comm_exposed_s",
    "weight_wait_s": "param_gather_exposed_s",
    "gradient_wait_s": "grad_reduce_exposed_s",
    "send_wait_s": "pp_comm_exposed_s",
    "offload_wait_s": "offload_exposed_s",
    "head_s": "lm_head_s",
    "fullest_stage": "peak_memory_stage",
    "cuts": "layer_strategies",
    "placement_asked": "placement_requested",
    "lp_Bps": "pp_Bps",
    "lp_hops": "pp_hops",
    "gemm_parts": "gemm_split_k",
    "gemm_l*_stays": "gemm_l*_stationary",
    "batch_in_flight": "running_requests",
    "queue": "waiting_requests",
    "most_requests": "max_concurrent_requests",
    "kv_room_B": "kv_cache_capacity_B",
    "ttft_median_s": "ttft_p50_s",
    "tpot_median_s": "tpot_p50_s",
    "own_objective": "baseline_objective",
    "own_feasible": "baseline_feasible",
    "needs_compute_s": "roofline_compute_s",
    "needs_l*_s": "roofline_l*_s",
    "needs_dram_s": "roofline_dram_s",
    "needs_launch_s": "roofline_launch_s",
    "billions": "parameters_billions",
    "figure": "parameter",
    "figure_value": "parameter_value",
    "left_elasticity": "elasticity_minus",
    "right_elasticity": "elasticity_plus",
    "kink": "nonlinearity",
    "flat": "insensitive",
    "model_share": "model_error_share",
    "chance_of_first": "prob_first_better",
    "chance_on_front": "prob_on_front",
}
"""Result columns by their old names; `l*` stands for every on-chip memory level."""

FUNCTIONS: dict[str, str] = {
    "chances": "probability_better",
    "explain_layout": "explain_sharding",
}
"""Functions of `import fastflow` by their old names."""

_LEVEL = re.compile(r"(?<![A-Za-z0-9])l(\d+)(?=_)")


def new_column(name: str) -> str:
    """Return today's name of a result column or a key; the name itself where it has not changed."""
    return KEYS.get(name) or _translated(name, COLUMNS)


def old_column(name: str) -> str:
    """Return the name that a result column had before; the name itself where it has not changed."""
    return _translated(name, _old_columns())


@cache
def _old_columns() -> dict[str, str]:
    return {new: old for old, new in (KEYS | COLUMNS).items()}


def _translated(name: str, names: dict[str, str]) -> str:
    """Return what a name stands for among names; those with `l*` stand for any level."""
    if name in names:
        return names[name]
    level = _LEVEL.search(name)
    general = names.get(_LEVEL.sub("l*", name, count=1)) if level else None
    return name if level is None or general is None else general.replace("l*", f"l{level[1]}")
