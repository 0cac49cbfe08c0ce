"""Every matrix of published decoders, by the fields of their config.json, written down layer by layer.

From the modeling code of huggingface/transformers 5.18, a function a family (of nemotron-nas, bailing and
Step from the code beside their weights). Vectors (norms, biases, decays) are left out but for convolutions.
"""


def head_and_embedding(c):
    tied = c.get("tie_word_embeddings", False)
    return [(c["vocab_size"], c["hidden_size"])] * (1 if tied else 2)


def gated(h, f):
    """Gate, up and down."""
    return [(h, f), (h, f), (f, h)]


def plain(h, f):
    """Up and down."""
    return [(h, f), (f, h)]


def heads(c, kv_heads=None, columns=None, values=None, queries=None, gate=0):
    """Queries, keys, values and output of attention; gate: further columns of the first product."""
    h, d = c["hidden_size"], columns or c["head_dim"]
    v, n, k = values or d, queries or c["num_attention_heads"], kv_heads or c["num_key_value_heads"]
    return [(h, n * d), (h, k * d), (h, k * v), (n * v, h)] + ([(h, gate)] if gate else [])


def latent(c):
    """Latent attention."""
    h, n = c["hidden_size"], c["num_attention_heads"]
    d, r, v, rank = (c[f] for f in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank"))
    q = c.get("q_lora_rank")
    queries = [(h, q), (q, n * (d + r))] if q else [(h, n * (d + r))]
    return [*queries, (h, rank + r), (rank, n * (d + v)), (n * v, h)]


def indexer(c):
    """The indexer of sparse attention: its queries come from latent ones."""
    n, d = c["index_n_heads"], c["index_head_dim"]
    return [(c["q_lora_rank"], n * d), (c["hidden_size"], d), (c["hidden_size"], n)]


def experts(c, count, columns, shared=0, width=None, is_gated=True):
    """Router, experts and the shared one; width: of what experts read, where it is latent."""
    h, block = c["hidden_size"], gated if is_gated else plain
    found = [(h, count)]
    for _ in range(count):
        found += block(width or h, columns)
    if width:
        found += [(h, width), (width, h)]
    return found + (block(h, shared) if shared else [])


def delta(c):
    """A gated delta net."""
    h, n, k = c["hidden_size"], c["linear_num_value_heads"], c["linear_num_key_heads"]
    keys, values = k * c["linear_key_head_dim"], n * c["linear_value_head_dim"]
    conv = (2 * keys + values, c["linear_conv_kernel_dim"])
    return [(h, 2 * keys + values), (h, values), (h, n), (h, n), conv, (values, h)]


def kimi_delta(h, n, d, width):
    """Kimi delta attention: products and convolutions, two low-rank gates, strengths, output."""
    return [(h, n * d)] * 3 + [(3 * n * d, width)] + [(h, d), (d, n * d)] * 2 + [(h, n), (n * d, h)]


def mamba2(h, n, d, state, groups, width):
    """Mamba-2."""
    inner, shared = n * d, 2 * groups * state
    return [(h, 2 * inner + shared + n), (inner + shared, width), (inner, h)]


def mamba(h, inner, state, rank, width):
    """Mamba-1; its decays are a matrix."""
    return [
        (h, 2 * inner),
        (inner, width),
        (inner, rank + 2 * state),
        (rank, inner),
        (inner, state),
        (inner, h),
    ]


def qwen3_next(c):
    found = head_and_embedding(c)
    for i in range(c["num_hidden_layers"]):
        full = (i + 1) % 4 == 0
        columns = c["num_attention_heads"] * c["head_dim"]
        found += heads(c, gate=columns) if full else delta(c)
        found += experts(
            c, c["num_experts"], c["moe_intermediate_size"], c["shared_expert_intermediate_size"]
        )
    return found


def deepseek_v32(c):
    found = head_and_embedding(c)
    for i in range(c["num_hidden_layers"]):
        found += latent(c) + indexer(c)
        if i < c["first_k_dense_replace"]:
            found += gated(c["hidden_size"], c["intermediate_size"])
        else:
            columns = c["moe_intermediate_size"]
            found += experts(c, c["n_routed_experts"], columns, c["n_shared_experts"] * columns)
    return found


def deepseek_v4(c):
    h, n, d, q = (c[f] for f in ("hidden_size", "num_attention_heads", "head_dim", "q_lora_rank"))
    groups, low, streams = c["o_groups"], c["o_lora_rank"], c["hc_mult"]
    found = [*head_and_embedding(c), (streams, streams * h)]
    for i in range(c["num_hidden_layers"]):
        found += [(h, q), (q, n * d), (h, d), (n * d // groups, groups * low), (groups * low, h)]
        ratio = c["compress_ratios"][i]
        if ratio:
            windows = 2 if ratio < 16 else 1
            found += [(h, windows * d), (h, windows * d), (ratio, windows * d)]
        if 0 < ratio < 16:
            m, e = c["index_n_heads"], c["index_head_dim"]
            found += [(h, 2 * e), (h, 2 * e), (ratio, 2 * e), (q, m * e), (h, m)]
        found += [((2 + streams) * streams, streams * h)] * 2
        columns = c["moe_intermediate_size"]
        found += experts(c, c["n_routed_experts"], columns, c["n_shared_experts"] * columns)
    return found


def gemma4_text(c):
    h, found = c["hidden_size"], head_and_embedding(c)
    own, layers = c["hidden_size_per_layer_input"], c["num_hidden_layers"]
    if own:
        found += [(c["vocab_size_per_layer_input"], layers * own), (h, layers * own)]
    for i, kind in enumerate(c["layer_types"]):
        shares = i >= layers - c["num_kv_shared_layers"]
        full = kind == "full_attention"
        d = c["global_head_dim"] if full else c["head_dim"]
        k = c["num_global_key_value_heads"] if full and c["attention_k_eq_v"] else c["num_key_value_heads"]
        found += [(h, c["num_attention_heads"] * d), (c["num_attention_heads"] * d, h)]
        if not shares:
            found += [(h, k * d)] * (1 if full and c["attention_k_eq_v"] else 2)
        found += gated(h, c["intermediate_size"] * (2 if shares and c["use_double_wide_mlp"] else 1))
        if c["enable_moe_block"]:
            found += experts(c, c["num_experts"], c["moe_intermediate_size"])
        if own:
            found += [(h, own), (own, h)]
    return found


def mimo_v2_flash(c):
    found = head_and_embedding(c)
    for i in range(c["num_hidden_layers"]):
        windowed = c["hybrid_layer_pattern"][i]
        kv_heads = c["swa_num_key_value_heads"] if windowed else c["num_key_value_heads"]
        found += heads(c, kv_heads, values=c["v_head_dim"])
        if c["moe_layer_freq"][i]:
            found += experts(c, c["n_routed_experts"], c["moe_intermediate_size"])
        else:
            found += gated(c["hidden_size"], c["intermediate_size"])
    return found


def step3p5(c):
    found, other = head_and_embedding(c), c["attention_other_setting"]
    mixed = [int(i) for i in c["moe_layers_enum"].split(",")]
    for i in range(c["num_hidden_layers"]):
        full = c["layer_types"][i] == "full_attention"
        n = c["num_attention_heads"] if full else other["num_attention_heads"]
        found += heads(c, c["num_attention_groups"], queries=n, gate=n)
        if i in mixed:
            found += experts(c, c["moe_num_experts"], c["moe_intermediate_size"], c["share_expert_dim"])
        else:
            found += gated(c["hidden_size"], c["intermediate_size"])
    return found


def longcat_flash(c):
    found = head_and_embedding(c)
    for _ in range(c["num_layers"]):
        found += (latent(c) + gated(c["hidden_size"], c["ffn_hidden_size"])) * 2
        found += experts(c, c["n_routed_experts"], c["expert_ffn_hidden_size"])
    return found


def nemotron_h(c):
    h, found = c["hidden_size"], head_and_embedding(c)
    for letter in c["hybrid_override_pattern"]:
        if letter == "M":
            found += mamba2(
                h, c["mamba_num_heads"], c["mamba_head_dim"], c["ssm_state_size"], c["n_groups"],
                c["conv_kernel"],
            )  # fmt: skip
        elif letter == "*":
            found += heads(c)
        elif letter == "-":
            found += plain(h, c["intermediate_size"])
        else:
            found += experts(
                c, c["n_routed_experts"], c["moe_intermediate_size"],
                c["n_shared_experts"] * c["moe_shared_expert_intermediate_size"],
                c.get("moe_latent_size"), is_gated=False,
            )  # fmt: skip
    return found


def nemotron_nas(c):
    h, found = c["hidden_size"], head_and_embedding(c)
    for block in c["block_configs"]:
        attention, ffn = block["attention"], block["ffn"]
        if attention["replace_with_linear"]:
            found.append((h, h))
        elif not attention["no_op"]:
            found += heads(c, c["num_attention_heads"] // attention["n_heads_in_group"])
        if ffn["replace_with_linear"]:
            found.append((h, h))
        elif not ffn["no_op"]:
            columns = int(2 * ffn["ffn_mult"] * h / 3)
            found += gated(h, columns if columns % 256 == 0 else columns + 256 - columns % 256)
    return found


def granitemoehybrid(c):
    h, found = c["hidden_size"], head_and_embedding(c)
    for kind in c["layer_types"]:
        found += (
            heads(c)
            if kind == "attention"
            else mamba2(
                h, c["mamba_n_heads"], c["mamba_d_head"], c["mamba_d_state"], c["mamba_n_groups"],
                c["mamba_d_conv"],
            )
        )  # fmt: skip
        if c["num_local_experts"]:
            found += experts(c, c["num_local_experts"], c["intermediate_size"], c["shared_intermediate_size"])
        else:
            found += gated(h, c["shared_intermediate_size"])
    return found


def jamba(c):
    h, found = c["hidden_size"], head_and_embedding(c)
    for i in range(c["num_hidden_layers"]):
        if i % c["attn_layer_period"] == c["attn_layer_offset"]:
            found += heads(c)
        else:
            inner = c["mamba_expand"] * h
            found += mamba(h, inner, c["mamba_d_state"], c["mamba_dt_rank"], c["mamba_d_conv"])
        if i % c["expert_layer_period"] == c["expert_layer_offset"]:
            found += experts(c, c["num_experts"], c["intermediate_size"])
        else:
            found += gated(h, c["intermediate_size"])
    return found


def lfm2(c):
    h, found = c["hidden_size"], head_and_embedding(c)
    columns = int(2 * c["block_ff_dim"] / 3) * c["block_ffn_dim_multiplier"]
    columns = int(c["block_multiple_of"] * -(-columns // c["block_multiple_of"]))
    for i in range(c["num_hidden_layers"]):
        convolution = [(h, 3 * h), (h, c["conv_L_cache"]), (h, h)]
        found += heads(c, columns=h // c["num_attention_heads"]) if i in c["full_attn_idxs"] else convolution
        found += gated(h, columns)
    return found


def kimi_linear(c):
    h, found, linear = c["hidden_size"], head_and_embedding(c), c["linear_attn_config"]
    n, d = linear["num_heads"], linear["head_dim"]
    for i in range(c["num_hidden_layers"]):
        if i + 1 in linear["full_attn_layers"]:
            found += latent(c)
        else:
            found += kimi_delta(h, n, d, linear["short_conv_kernel_size"])
        if i < c["first_k_dense_replace"]:
            found += gated(h, c["intermediate_size"])
        else:
            columns = c["moe_intermediate_size"]
            found += experts(c, c["num_experts"], columns, c["num_shared_experts"] * columns)
    return found


def minimax_text_01(c):
    h, found = c["hidden_size"], head_and_embedding(c)
    n, d = c["num_attention_heads"], c["head_dim"]
    for full in c["attn_type_list"]:
        found += heads(c) if full else [(h, 3 * n * d), (h, n * d), (n * d, h)]
        found += experts(c, c["num_local_experts"], c["intermediate_size"])
    return found


def minimax_m3(c):
    h, found, sparse = c["hidden_size"], head_and_embedding(c), c["sparse_attention_config"]
    n, d = sparse["sparse_num_index_heads"], sparse["sparse_index_dim"]
    for i in range(c["num_hidden_layers"]):
        found += heads(c)
        if sparse["sparse_attention_freq"][i]:
            found += [(h, n * d), (h, d)]
        if c["moe_layer_freq"][i]:
            found += experts(c, c["num_local_experts"], c["intermediate_size"], c["shared_intermediate_size"])
        else:
            found += gated(h, c["dense_intermediate_size"])
    return found


def llama4_text(c):
    found, step = head_and_embedding(c), c["interleave_moe_layer_step"]
    for i in range(c["num_hidden_layers"]):
        found += heads(c)
        if (i + 1) % step == 0:
            found += experts(c, c["num_local_experts"], c["intermediate_size"], c["intermediate_size"])
        else:
            found += gated(c["hidden_size"], c["intermediate_size_mlp"])
    return found


def hunyuan_v1_moe(c):
    found = head_and_embedding(c)
    for i in range(c["num_hidden_layers"]):
        columns = c["moe_intermediate_size"][i]
        found += heads(c) + experts(c, c["num_experts"], columns, c["num_shared_expert"][i] * columns)
    return found


def glm5_next_text(c):
    h, found, streams = c["hidden_size"], head_and_embedding(c), c["hc_mult"]
    n, d = c["linear_num_heads"], c["linear_head_dim"]
    found.append((streams, streams * h))
    for kind, part in zip(c["layer_types"], c["mlp_layer_types"], strict=True):
        if kind == "linear_attention":
            found += kimi_delta(h, n, d, c["linear_conv_kernel_dim"])
        else:
            found += latent(c) + indexer(c)
        found += [((2 + streams) * streams, streams * h)] * 2
        columns = c["moe_intermediate_size"]
        mixed = experts(c, c["n_routed_experts"], columns, c["n_shared_experts"] * columns)
        found += gated(h, c["intermediate_size"]) if part == "dense" else mixed
    return found


def shared_blocks(c, hybrids, blocks):
    """Blocks of attention to token and embedding that layers take in turns, and what each layer adds."""
    h, f, rank = c["hidden_size"], c["intermediate_size"], c.get("adapter_rank", 0)
    columns, both = c["num_attention_heads"] * c["attention_head_dim"], 2 * c["hidden_size"]
    found = []
    for _ in range(min(blocks, hybrids)):
        found += [(both, columns)] * 3 + [(columns, h), *gated(h, f)]
    for _ in range(hybrids):
        found += [(h, h)] + ([(h, rank), (rank, 2 * f)] if rank else [])
        if c.get("use_shared_attention_adapter"):
            found += [(both, rank), (rank, both)] * 3
    return found


def zamba(c):
    h, layers = c["hidden_size"], c["num_hidden_layers"]
    hybrids = sum(kind == "hybrid" for kind in c["layers_block_type"])
    block = mamba(h, 2 * h, c["mamba_d_state"], c["mamba_dt_rank"], c["mamba_d_conv"])
    return head_and_embedding(c) + block * layers + shared_blocks(c, hybrids, 1)


def zamba2(c):
    h, n = c["hidden_size"], c["n_mamba_heads"]
    block = mamba2(h, n, 2 * h // n, c["mamba_d_state"], c["mamba_ngroups"], c["mamba_d_conv"])
    found = head_and_embedding(c) + block * c["num_hidden_layers"]
    return found + shared_blocks(c, len(c["hybrid_layer_ids"]), c["num_mem_blocks"])


def step3_text(c):
    h, n, d, factor = (c[f] for f in ("hidden_size", "num_attention_heads", "head_dim", "share_q_dim"))
    found, mixed = head_and_embedding(c), [int(i) for i in c["moe_layers_enum"].split(",")]
    for i in range(c["num_hidden_layers"]):
        found += [(h, factor), (factor, n * d), (h, 2 * d), (n * d, h)]
        columns = c["moe_intermediate_size"]
        parts = experts(c, c["moe_num_experts"], columns, c["share_expert_dim"])
        found += parts if i in mixed else gated(h, c["intermediate_size"])
    return found


FAMILIES = {
    "step3_text": step3_text, "zamba": zamba, "zamba2": zamba2,
    "glm5_next_text": glm5_next_text,
    "qwen3_next": qwen3_next, "deepseek_v32": deepseek_v32, "deepseek_v4": deepseek_v4,
    "gemma4_text": gemma4_text, "mimo_v2_flash": mimo_v2_flash, "step3p5": step3p5,
    "longcat_flash": longcat_flash, "nemotron_h": nemotron_h, "nemotron-nas": nemotron_nas,
    "granitemoehybrid": granitemoehybrid, "jamba": jamba, "lfm2": lfm2, "kimi_linear": kimi_linear,
    "minimax_text_01": minimax_text_01, "minimax_m3": minimax_m3, "llama4_text": llama4_text,
    "hunyuan_v1_moe": hunyuan_v1_moe,
}  # fmt: skip
"""By `model_type`."""


def count(config):
    """Return the elements of all matrices."""
    return sum(rows * cols for rows, cols in FAMILIES[config["model_type"]](config))
