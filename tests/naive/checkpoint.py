"""Bytes of a checkpoint, tensor by tensor, as its authors' quantiser writes it."""

from math import ceil

BITS = {"bf16": 16, "fp8": 8, "nvfp4": 4, "mxfp4": 4, "int8": 8, "int4": 4, "int2": 2}


def modules(config):
    """Yield the name, rows and columns of every matrix of a mixture or of a dense model."""
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head = hidden // heads
    yield "embed_tokens", vocabulary, hidden
    for layer in range(config["num_hidden_layers"]):
        for name, rows, columns in (
            ("q_proj", heads * head, hidden), ("k_proj", kv_heads * head, hidden),
            ("v_proj", kv_heads * head, hidden), ("o_proj", hidden, heads * head),
        ):  # fmt: skip
            yield f"layers.{layer}.self_attn.{name}", rows, columns
        experts = config.get("num_experts", 0)
        if experts:
            yield f"layers.{layer}.mlp.gate", experts, hidden
        for expert in range(experts or 1):
            where = f"layers.{layer}.mlp.experts.{expert}" if experts else f"layers.{layer}.mlp"
            ffn = config["moe_intermediate_size" if experts else "intermediate_size"]
            yield f"{where}.gate_proj", ffn, hidden
            yield f"{where}.up_proj", ffn, hidden
            yield f"{where}.down_proj", hidden, ffn
    yield "lm_head", vocabulary, hidden


def tensor_bytes(rows, columns, kind, group, zeros):
    """Return the bytes of a matrix: its packed numbers, and a scale for each group of each row."""
    bits = rows * columns * BITS[kind]
    for _ in range(rows):
        if kind in ("nvfp4", "mxfp4"):
            bits += ceil(columns / (16 if kind == "nvfp4" else 32)) * 8
        elif kind.startswith("int") and group:
            bits += ceil(columns / group) * (16 + (BITS[kind] if zeros else 0))
    return bits / 8


def checkpoint_bytes(config, kind, quantised, group=0, zeros=False):
    """Return the bytes of all matrices; quantised: says of a module's name whether it is."""
    total = 0
    for name, rows, columns in modules(config):
        is_narrow = (
            quantised(name) and name not in ("embed_tokens", "lm_head") and not name.endswith("mlp.gate")
        )
        total += tensor_bytes(rows, columns, kind if is_narrow else "bf16", group, zeros)
    return total
