"""Every tensor of a mixer, as its authors' modules have them, and what it keeps of a request.

Shapes are inputs x outputs of a product, and what a module registers of other weights.
"""


def gated_delta(h, m):
    """Qwen3NextGatedDeltaNet of transformers."""
    keys, values = m["key_heads"] * m["key"], m["heads"] * m["value"]
    return {
        "in_proj_qkvz": (h, 2 * keys + 2 * values), "in_proj_ba": (h, 2 * m["heads"]),
        "conv1d": (2 * keys + values, m["width"]), "A_log": (m["heads"],), "dt_bias": (m["heads"],),
        "norm": (m["value"],), "out_proj": (values, h),
    }  # fmt: skip


def kimi_delta(h, m):
    """KimiDeltaAttention of modeling_kimi.py."""
    keys, values, rank = m["key_heads"] * m["key"], m["heads"] * m["value"], m["rank"] or m["value"]
    return {
        "q_proj": (h, keys), "k_proj": (h, keys), "v_proj": (h, values), "q_conv1d": (keys, m["width"]),
        "k_conv1d": (keys, m["width"]), "v_conv1d": (values, m["width"]), "A_log": (m["heads"],),
        "f_a_proj": (h, rank), "f_b_proj": (rank, keys), "dt_bias": (keys,), "b_proj": (h, m["heads"]),
        "g_a_proj": (h, rank), "g_b_proj": (rank, values), "o_norm": (m["value"],), "o_proj": (values, h),
    }  # fmt: skip


def mamba(h, m):
    """Mamba of state-spaces/mamba: heads are channels, keys are states."""
    inner, state, rank = m["heads"], m["key"], m["rank"] or -(-h // 16)
    return {
        "in_proj": (h, 2 * inner), "conv1d": (inner, m["width"]), "conv1d bias": (inner,),
        "x_proj": (inner, rank + 2 * state), "dt_proj": (rank, inner), "dt_proj bias": (inner,),
        "A_log": (inner, state), "D": (inner,), "out_proj": (inner, h),
    }  # fmt: skip


def normed_mamba(h, m):
    """JambaMambaMixer of transformers."""
    rank = m["rank"] or -(-h // 16)
    norms = {"dt_layernorm": (rank,), "b_layernorm": (m["key"],), "c_layernorm": (m["key"],)}
    return mamba(h, m) | norms


def mamba2(h, m):
    """Mamba2 of state-spaces/mamba."""
    inner, groups = m["heads"] * m["value"], m["key_heads"] * m["key"]
    channels = inner + 2 * groups
    return {
        "in_proj": (h, inner + channels + m["heads"]), "conv1d": (channels, m["width"]),
        "conv1d bias": (channels,), "dt_bias": (m["heads"],), "A_log": (m["heads"],), "D": (m["heads"],),
        "norm": (inner,), "out_proj": (inner, h),
    }  # fmt: skip


def gated_linear(h, m):
    """GatedLinearAttention of fla-org/flash-linear-attention, with convolutions where it has them."""
    keys, values, rank = m["key_heads"] * m["key"], m["heads"] * m["value"], m["rank"] or 16
    return {
        "q_proj": (h, keys), "k_proj": (h, keys), "v_proj": (h, values), "g_proj": (h, values),
        "q_conv1d": (keys, m["width"]), "k_conv1d": (keys, m["width"]), "v_conv1d": (values, m["width"]),
        "gk_proj.0": (h, rank), "gk_proj.1": (rank, keys), "gk_proj.1 bias": (keys,),
        "g_norm_swish_gate": (m["value"],), "o_proj": (values, h),
    }  # fmt: skip


def retention(h, m):
    """MultiScaleRetention of fla-org/flash-linear-attention."""
    keys, values = m["key_heads"] * m["key"], m["heads"] * m["value"]
    return {
        "q_proj": (h, keys), "k_proj": (h, keys), "v_proj": (h, values), "g_proj": (h, values),
        "g_norm_swish_gate": (m["value"],), "o_proj": (values, h),
    }  # fmt: skip


def rwkv7(h, m):
    """RWKV_Tmix_x070 of BlinkDL/RWKV-LM, and x_k of RWKV_CMix_x070."""
    columns = m["heads"] * m["key"]

    def rank(share):
        return m["rank"] or max(32, round(share / 32) * 32)

    ranks = {
        "w": rank(1.8 * h**0.5),
        "a": rank(1.8 * h**0.5),
        "v": rank(1.3 * h**0.5),
        "g": rank(0.6 * h**0.8),
    }
    found = {f"x_{name}": (h,) for name in "rwkvag"} | {"ffn.x_k": (h,)}
    for name, of_rank in ranks.items():
        found |= {f"{name}1": (h, of_rank), f"{name}2": (of_rank, columns)}
        if name != "g":
            found[f"{name}0"] = (columns,)
    found |= {"k_k": (columns,), "k_a": (columns,), "r_k": (m["heads"], m["key"])}
    found |= dict.fromkeys(("receptance", "key", "value"), (h, columns)) | {"output": (columns, h)}
    return found | {"ln_x": (columns,), "ln_x bias": (columns,)}


def lightning(h, m):
    """MiniMaxLightningAttention of transformers."""
    columns = m["heads"] * m["value"]
    return {
        "qkv_proj": (h, 3 * columns), "output_gate": (h, columns), "norm": (columns,),
        "out_proj": (columns, h),
    }  # fmt: skip


def short_conv(h, m):
    """Lfm2ShortConv of transformers."""
    return {"in_proj": (h, 3 * h), "conv": (h, m["width"]), "out_proj": (h, h)}


def rg_lru(h, m):
    """RecurrentGemmaRecurrentBlock of transformers."""
    width, block = m["heads"] * m["value"], m["value"]
    gates = {}
    for name in ("input_gate", "recurrent_gate"):
        gates |= {f"{name}_weight": (m["heads"], block, block), f"{name}_bias": (m["heads"], block)}
    return gates | {
        "linear_y": (h, width), "linear_y bias": (width,), "linear_x": (h, width), "linear_x bias": (width,),
        "linear_out": (width, h), "linear_out bias": (h,), "conv_1d": (width, m["width"]),
        "conv_1d bias": (width,), "recurrent_param": (width,),
    }  # fmt: skip


def attention(h, m):
    """Queries, keys and values of every head, and the projection of their output."""
    queries, keys = m["attention_heads"] * m["head_dim"], m["kv_heads"] * m["head_dim"]
    return {"q_proj": (h, queries), "k_proj": (h, keys), "v_proj": (h, keys), "o_proj": (queries, h)}


def shared_block(h, m):
    """Zamba2AttentionDecoderLayer of transformers, which several layers share.

    Its first norm has 2 h columns; h of them are those of any layer's norm.
    """
    queries, keys = m["attention_heads"] * m["head_dim"], m["kv_heads"] * m["head_dim"]
    return {
        "input_layernorm": (h,), "q_proj": (2 * h, queries), "k_proj": (2 * h, keys),
        "v_proj": (2 * h, keys), "o_proj": (queries, h), "pre_ff_layernorm": (h,),
        "gate_up_proj": (h, 2 * m["ffn"]), "down_proj": (m["ffn"], h),
    }  # fmt: skip


def unshared(h, m, behind, products):
    """Of a layer with such a block what it has for itself: the block's projection, Mamba, adapters."""
    found = {"linear": (h, h), "mamba input_layernorm": (h,)} | behind(h, m)
    for name, (inner, columns) in products.items():
        found |= {f"{name} adapter 0": (inner, m["adapter"]), f"{name} adapter 1": (m["adapter"], columns)}
    return found


def zamba_layer(h, m):
    """ZambaHybridLayer, without the block."""
    return unshared(h, m, mamba, {})


def zamba2_layer(h, m):
    """Zamba2HybridLayer, without the block."""
    return unshared(h, m, mamba2, {"gate_up": (h, 2 * m["ffn"])})


def adapted_zamba2_layer(h, m):
    """The same with use_shared_attention_adapter."""
    queries, keys = m["attention_heads"] * m["head_dim"], m["kv_heads"] * m["head_dim"]
    of_attention = {"q": (2 * h, queries), "k": (2 * h, keys), "v": (2 * h, keys)}
    return unshared(h, m, mamba2, {"gate_up": (h, 2 * m["ffn"]), **of_attention})


UNSHARED = {"zamba": zamba_layer, "zamba2": zamba2_layer, "adapted_zamba2": adapted_zamba2_layer}


def with_block(name):
    """Return the tensors of a layer with its block."""
    return lambda h, m: shared_block(h, m) | UNSHARED[name](h, m)


TENSORS = {
    "attention": attention, "window": attention, "chunked": attention, "local_linear": attention,
    "gated_delta": gated_delta, "kimi_delta": kimi_delta, "mamba": mamba, "normed_mamba": normed_mamba,
    "mamba2": mamba2, "gated_linear": gated_linear, "retention": retention, "rwkv7": rwkv7,
    "lightning": lightning, "short_conv": short_conv, "rg_lru": rg_lru,
    **{name: with_block(name) for name in UNSHARED},
}  # fmt: skip


def weights_of(shapes):
    """Return the number of all weights."""
    total = 0
    for shape in shapes.values():
        count = 1
        for side in shape:
            count *= side
        total += count
    return total


def products(h, m, name):
    """Return the shapes of those tensors that every token is multiplied with."""
    found = dict(TENSORS[name](h, m))
    vectors = ("conv", "q_conv", "k_conv", "v_conv", "A_log")
    return {
        key: shape for key, shape in found.items()
        if len(shape) > 1 and not key.startswith(vectors) and key != "r_k" and "gate_bias" not in key
    }  # fmt: skip


def state_bytes(h, m, name, tensor=1, size=2, state_size=4, drafts=0):
    """Return the bytes that a device keeps of a request, of fixed size: states, and last tokens."""
    heads, key_heads = -(-m["heads"] // tensor), -(-m["key_heads"] // tensor)
    last = (m["width"] - 1 + drafts) if m["width"] else 0
    columns = 2 * key_heads * m["key"] + heads * m["value"]
    matrices = heads * m["key"] * m["value"]
    states, tokens = {
        "gated_delta": (matrices, last * columns),
        "kimi_delta": (matrices, last * columns),
        "mamba2": (matrices, last * columns),
        "gated_linear": (matrices, last * columns),
        "retention": (matrices, 0),
        "lightning": (matrices, 0),
        "mamba": (heads * m["key"], last * heads),
        "normed_mamba": (heads * m["key"], last * heads),
        "rwkv7": (matrices, 2 * h),
        "short_conv": (0, last * -(-h // tensor)),
        "rg_lru": (heads * m["value"], last * heads * m["value"]),
        "zamba": (heads * m["key"], last * heads),
        "zamba2": (matrices, last * columns),
        "adapted_zamba2": (matrices, last * columns),
    }.get(name, (0, 0))
    return (1 + drafts) * (states * state_size + tokens * size)
