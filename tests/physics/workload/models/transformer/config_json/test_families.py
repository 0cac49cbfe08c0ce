"""Files of families against every matrix of their layers: small models, and sizes that a file changes."""

import copy

import pytest

from fastflow.physics import workload
from fastflow.physics.workload.models.transformer import parameters
from fastflow.physics.workload.models.transformer.config_json.read import inputs_of
from fastflow.physics.workload.models.transformer.dimensions import DEFAULTS
from fastflow.physics.workload.models.transformer.published import with_types
from tests.naive import published_tensors as naive
from tests.support.transformers import OF_MODELS, column_of_each

HEADS = {
    "vocab_size": 5000, "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 4,
    "head_dim": 96, "intermediate_size": 2560, "num_hidden_layers": 8,
}  # fmt: skip
LATENT = {
    "kv_lora_rank": 256, "q_lora_rank": 384, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 80,
}  # fmt: skip
MIXTURE = {
    "moe_intermediate_size": 384,
    "n_routed_experts": 12,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
}
WINDOWS = ["sliding_attention"] * 3 + ["full_attention"]
SMALL = {
    "qwen3_next": {
        "num_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 320,
        "shared_expert_intermediate_size": 448, "linear_num_value_heads": 12, "linear_num_key_heads": 6,
        "linear_key_head_dim": 80, "linear_value_head_dim": 96, "linear_conv_kernel_dim": 4,
    },
    "deepseek_v32": {
        **LATENT, **MIXTURE, "first_k_dense_replace": 2, "index_n_heads": 24, "index_head_dim": 64,
        "index_topk": 512,
    },
    "glm5_next_text": {
        **LATENT, **MIXTURE, "head_dim": 0, "qk_rope_head_dim": 0, "hc_mult": 4, "index_n_heads": 24,
        "index_head_dim": 64, "index_topk": 256, "linear_num_heads": 12, "linear_head_dim": 64,
        "linear_conv_kernel_dim": 4, "layer_types": (["linear_attention"] * 3 + ["indexed_attention"]) * 2,
        "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 5,
    },
    "deepseek_v4": {
        **MIXTURE, "q_lora_rank": 384, "o_groups": 4, "o_lora_rank": 256, "hc_mult": 4, "index_n_heads": 24,
        "index_head_dim": 64, "index_topk": 256, "sliding_window": 128, "qk_rope_head_dim": 32,
        "num_key_value_heads": 1, "compress_ratios": [0, 0, 4, 128, 4, 128, 4, 0],
    },
    "gemma4_text": {
        "layer_types": WINDOWS * 2, "global_head_dim": 192, "num_global_key_value_heads": 2,
        "attention_k_eq_v": True, "hidden_size_per_layer_input": 64, "vocab_size_per_layer_input": 5000,
        "num_kv_shared_layers": 3, "use_double_wide_mlp": True, "enable_moe_block": False,
        "sliding_window": 128, "tie_word_embeddings": True,
    },
    "mimo_v2_flash": {
        **MIXTURE, "n_shared_experts": None, "hybrid_layer_pattern": [0, 1, 1, 1, 0, 1, 1, 1],
        "moe_layer_freq": [0] + [1] * 7, "swa_num_key_value_heads": 8, "swa_num_attention_heads": 16,
        "swa_head_dim": 96, "swa_v_head_dim": 64, "v_head_dim": 64, "sliding_window": 128,
    },
    "step3_text": {
        "num_attention_groups": 1, "share_q_dim": 384, "moe_layers_enum": "2,3,4,5,7", "moe_num_experts": 12,
        "moe_top_k": 3, "moe_intermediate_size": 384, "share_expert_dim": 512,
    },
    "step3p5": {
        "layer_types": WINDOWS * 2 + ["full_attention"], "num_nextn_predict_layers": 1,
        "attention_other_setting": {"num_attention_heads": 24, "num_attention_groups": 4, "head_dim": 96},
        "num_attention_groups": 4, "moe_layers_enum": "3,4,5,6,7", "moe_num_experts": 12, "moe_top_k": 3,
        "moe_intermediate_size": 384, "share_expert_dim": 512, "sliding_window": 128,
    },
    "longcat_flash": {
        **LATENT, "num_layers": 5, "num_hidden_layers": None, "intermediate_size": None,
        "ffn_hidden_size": 2560, "expert_ffn_hidden_size": 384, "n_routed_experts": 12,
        "zero_expert_num": 6, "moe_topk": 3,
    },
    "nemotron_h": {
        "hybrid_override_pattern": "MEM*-MEM*", "num_hidden_layers": 9, "mamba_num_heads": 24,
        "mamba_head_dim": 64, "ssm_state_size": 96, "n_groups": 4, "conv_kernel": 4, **MIXTURE,
        "moe_shared_expert_intermediate_size": 640, "moe_latent_size": 256,
    },
    "nemotron-nas": {
        "head_dim": 64, "num_key_value_heads": None, "intermediate_size": None, "num_hidden_layers": 5,
        "block_configs": [
            {
                "attention": {"n_heads_in_group": group, "no_op": no, "replace_with_linear": linear},
                "ffn": {"ffn_mult": mult, "no_op": mult is None, "replace_with_linear": False},
            }
            for group, no, linear, mult in (
                (8, False, False, 2.625), (4, False, False, 1.3125), (None, True, False, 0.5),
                (None, False, True, 2.625), (8, False, False, None),
            )
        ],
    },
    "granitemoehybrid": {
        "layer_types": ["mamba", "mamba", "attention", "mamba"] * 2, "num_local_experts": 6,
        "num_experts_per_tok": 2, "shared_intermediate_size": 512, "mamba_n_heads": 32, "mamba_d_head": 64,
        "mamba_d_state": 96, "mamba_n_groups": 2, "mamba_d_conv": 4, "tie_word_embeddings": True,
    },
    "jamba": {
        "attn_layer_period": 4, "attn_layer_offset": 2, "expert_layer_period": 2, "expert_layer_offset": 1,
        "num_experts": 6, "num_experts_per_tok": 2, "mamba_d_state": 24, "mamba_dt_rank": 96,
        "mamba_d_conv": 4, "mamba_expand": 2,
    },
    "zamba": {
        "layers_block_type": ["mamba", "mamba", "hybrid"] * 2 + ["mamba", "hybrid"], "mamba_d_state": 24,
        "mamba_dt_rank": 96, "mamba_d_conv": 4, "mamba_expand": 2, "n_mamba_heads": 2, "head_dim": None,
        "attention_head_dim": 128, "num_key_value_heads": 16, "tie_word_embeddings": True,
    },
    "zamba2": {
        "hybrid_layer_ids": [1, 3, 5, 7], "num_mem_blocks": 2, "adapter_rank": 96, "n_mamba_heads": 32,
        "mamba_d_state": 96, "mamba_ngroups": 2, "mamba_d_conv": 4, "mamba_expand": 2, "head_dim": None,
        "attention_head_dim": 128, "num_key_value_heads": 16, "use_shared_attention_adapter": True,
        "tie_word_embeddings": True, "use_mem_rope": True,
    },
    "kimi_linear": {
        **LATENT, "q_lora_rank": None, "first_k_dense_replace": 1, "num_experts": 12,
        "num_experts_per_token": 3, "moe_intermediate_size": 384, "num_shared_experts": 1,
        "linear_attn_config": {
            "full_attn_layers": [4, 8], "kda_layers": [1, 2, 3, 5, 6, 7], "num_heads": 12, "head_dim": 64,
            "short_conv_kernel_size": 4,
        },
    },
    "minimax_text_01": {
        "attn_type_list": [0, 0, 0, 1] * 2, "num_local_experts": 6, "num_experts_per_tok": 2,
    },
    "lfm2": {
        "head_dim": 64, "full_attn_idxs": [2, 5], "block_ff_dim": 4000, "block_ffn_dim_multiplier": 1.0,
        "block_multiple_of": 256, "block_auto_adjust_ff_dim": True, "conv_L_cache": 3,
        "tie_word_embeddings": True,
    },
    "minimax_m3": {
        "num_local_experts": 12, "num_experts_per_tok": 3, "intermediate_size": 384,
        "dense_intermediate_size": 2560, "shared_intermediate_size": 512, "moe_layer_freq": [0, 0] + [1] * 6,
        "sparse_attention_config": {
            "sparse_attention_freq": [0, 0] + [1] * 6, "sparse_num_index_heads": 4, "sparse_index_dim": 96,
            "sparse_block_size": 64, "sparse_topk_blocks": 8, "use_sparse_attention": True,
        },
    },
    "llama4_text": {
        "num_local_experts": 8, "num_experts_per_tok": 1, "intermediate_size": 640,
        "intermediate_size_mlp": 2560, "interleave_moe_layer_step": 2, "attention_chunk_size": 128,
    },
    "hunyuan_v1_moe": {
        "num_experts": 12, "moe_topk": [3] * 8, "num_shared_expert": [2] * 8,
        "moe_intermediate_size": [384] * 8, "tie_word_embeddings": True,
    },
}  # fmt: skip


def config_of(name):
    given = {**HEADS, **copy.deepcopy(SMALL[name]), "model_type": name}
    return {key: value for key, value in given.items() if value is not None}


def counted(config):
    """Total parameters, as the file gives them."""
    columns = column_of_each(with_types({**DEFAULTS, **OF_MODELS, **inputs_of(config)}))
    assert not workload.invalid_model_dims(columns).exists[0]
    total, active = parameters(columns)
    assert 0 < active[0] <= total[0]
    return total[0]


@pytest.mark.parametrize("name", SMALL)
def test_every_matrix_of_a_family_is_counted(name):
    config = config_of(name)
    assert counted(config) == pytest.approx(naive.count(config), rel=0.003)
