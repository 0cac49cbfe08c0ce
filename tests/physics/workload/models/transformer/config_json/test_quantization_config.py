"""`quantization_config`: the type of each module, as the formats of quantisers write it."""

import json
import random

import pytest

import fastflow
from fastflow.physics.workload.models.transformer.config_json.quantization_config import (
    WIDE,
    Quantized,
    Weights,
    read_quantization,
)
from tests.naive.checkpoint import checkpoint_bytes

LAYERS = 4
ATTENTION_OF_EACH = [f"model.layers.{layer}.self_attn*" for layer in range(LAYERS)]


def all_of(*weights):
    return Quantized(*[Weights(*weights)] * 4)


def of_experts(*weights):
    return Quantized(WIDE, WIDE, WIDE, Weights(*weights))


def group(bits, kind, targets=("Linear",), size=None, **more):
    weights = {"num_bits": bits, "type": kind, "strategy": "group", "group_size": size, "symmetric": True}
    return {"weights": weights, "targets": list(targets), **more}


def tensors(*groups, **more):
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {f"group_{number}": one for number, one in enumerate(groups)}, **more,
    }  # fmt: skip


OF_8_BITS = {"num_bits": 8, "type": "int"}
KIMI = ("lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|down)_proj.*")
MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True}
QUARK = {"weight": {"dtype": "fp4", "group_size": 32}, "input_tensors": {"dtype": "fp4"}}
NO_ATTENTION = Quantized(WIDE, *[Weights("nvfp4")] * 3)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (AWQ, all_of("w4a16", 128, True)),
        (AWQ | {"zero_point": False}, all_of("w4a16", 128)),
        (AWQ | {"modules_to_not_convert": ["self_attn"]}, Quantized(WIDE, *all_of("w4a16", 128, True)[1:])),
        (GPTQ, all_of("w4a16", 32, True)),
        (GPTQ | {"bits": 8, "group_size": -1}, all_of("w8a16", 0, True)),
        (GPTQ | {"dynamic": {r"-:.*attn.*": {}}}, Quantized(WIDE, *all_of("w4a16", 32, True)[1:])),
        (GPTQ | {"quant_method": "auto-round", "bits": 2}, all_of("w2a16", 32, True)),
        (tensors(group(4, "int", size=32, input_activations=None)), all_of("w4a16", 32)),
        (tensors(group(4, "int", size=32, input_activations=OF_8_BITS)), all_of("w4a8", 32)),
        (tensors(group(8, "int", input_activations=OF_8_BITS)), all_of("int8")),
        (tensors(group(8, "float", input_activations={"num_bits": 8, "type": "float"})), all_of("fp8")),
        (tensors(group(8, "float", input_activations=None)), all_of("fp8_w8a16")),
        (tensors(group(4, "float", size=16, input_activations={"num_bits": 4})), all_of("nvfp4")),
        (tensors(group(4, "float", size=16, input_activations=None)), all_of("nvfp4_w4a16")),
        (tensors(group(4, "float", size=32, input_activations=None)), all_of("mxfp4_w4a16")),
        (
            tensors(
                group(4, "int", size=32, input_activations=None),
                ignore=list(KIMI),
            ),
            of_experts("w4a16", 32),
        ),
        (
            tensors(
                group(8, "float", ["re:.*self_attn.*"], input_activations={"num_bits": 8}),
                group(4, "float", ["re:.*mlp.*"], size=16, input_activations={"num_bits": 4}),
            ),
            Quantized(Weights("fp8"), *[Weights("nvfp4")] * 3),
        ),
        (MODELOPT | {"exclude_modules": ATTENTION_OF_EACH}, NO_ATTENTION),
        (MODELOPT | {"ignore": ["*self_attn*"]}, NO_ATTENTION),
        (  # in a quarter of the layers
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ATTENTION_OF_EACH[:1]},
            all_of("nvfp4"),
        ),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ", "group_size": 128}, all_of("w4afp8", 128)),
        (
            {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {
                f"model.layers.{layer}.mlp.experts.{expert}.{name}": {"quant_algo": "NVFP4"}
                for layer in range(LAYERS) for expert in range(2)
                for name in ("gate_proj", "up_proj", "down_proj")
            }},
            of_experts("nvfp4"),
        ),
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128], "quant_algo": "MIXED_PRECISION",
             "moe_quant_algo": "NVFP4", "ignore": ["*.attn.*"],
             "quantized_layers": {"layers.0.ffn.experts": {"quant_algo": "NVFP4"}}},
            Quantized(*[Weights("fp8_block")] * 3, Weights("nvfp4")),
        ),
        ({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.mlp.gate"]}, all_of("fp8")),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, of_experts("mxfp4")),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, all_of("w4a16", 64)),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, all_of("int8")),
        ({"quant_method": "bitnet"}, all_of("w2a8", 0)),
        ({"quant_method": "fbgemm_fp8"}, all_of("fp8")),
        (
            {"quant_method": "torchao", "quant_type": {"default": {
                "_type": "Int4WeightOnlyConfig", "_data": {"group_size": 64}}}},
            all_of("w4a16", 64),
        ),
        ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, all_of("w8a16", 0)),
        ({"quant_method": "quark", "global_quant_config": QUARK}, all_of("mxfp4")),
        ({"quant_method": "quark", "global_quant_config": QUARK, "exclude": ["re:.*self_attn.*"]},
         Quantized(WIDE, *[Weights("mxfp4")] * 3)),
        (
            {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}},
            all_of("w4a16", 64, True),
        ),
        ({"quant_method": "vptq"}, all_of("vptq")),  # refused in these words
    ],
)  # fmt: skip
def test_formats_of_quantisers(config, expected):
    assert read_quantization(config, config["quant_method"], LAYERS) == expected


def test_a_long_list_of_modules_is_read_fast():
    """Some 300,000 names, 15 MB."""
    names = [f"model.layers.{i}.self_attn.q_proj.{j}" for i in range(600) for j in range(500)]
    config = AWQ | {"modules_to_not_convert": [*names, *ATTENTION_OF_EACH]}
    assert read_quantization(config, "awq", LAYERS).attention == WIDE


def test_garbage_is_read_without_a_traceback():
    """Every value of a file replaced by something else, at any depth."""
    draw = random.Random(0)
    whole = list(test_formats_of_quantisers.pytestmark[0].args[1])
    others = [None, 0, -1, 1e400, "x", "re:(", "re:(a*)*b", [], {}, [1], ["*"], {"a": 1}, True]

    def spoilt(value):
        if draw.random() < 0.2:
            return draw.choice(others)
        if isinstance(value, dict):
            return {key: spoilt(one) for key, one in value.items()}
        return [spoilt(one) for one in value] if isinstance(value, list) else value

    for _ in range(100):
        for config, _ in whole:
            file = {key: spoilt(value) for key, value in config.items()}
            read_quantization(file, config["quant_method"], draw.choice([0, 1, LAYERS]))


# --- bytes

MIXTURE = {
    "model_type": "qwen3_moe", "hidden_size": 512, "num_hidden_layers": LAYERS, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 1024, "moe_intermediate_size": 256,
    "num_experts": 16, "num_experts_per_tok": 4, "vocab_size": 2048, "max_position_embeddings": 8192,
}  # fmt: skip
DENSE = {key: MIXTURE[key] for key in list(MIXTURE)[:7]} | {
    "model_type": "llama", "vocab_size": 2048, "max_position_embeddings": 8192,
}  # fmt: skip


def anywhere(name):
    return True


def in_experts(name):
    return ".experts." in name


def outside_attention(name):
    return ".self_attn." not in name


@pytest.mark.parametrize(
    ("model", "quantized", "kind", "where", "group", "zeros"),
    [
        (DENSE, AWQ, "int4", anywhere, 128, True),
        (DENSE, GPTQ | {"bits": 8}, "int8", anywhere, 32, True),
        (DENSE, GPTQ | {"bits": 2}, "int2", anywhere, 32, True),
        (DENSE, AWQ | {"modules_to_not_convert": ["self_attn"]}, "int4", outside_attention, 128, True),
        (DENSE, {"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", anywhere, 0, False),
        (MIXTURE, {"quant_method": "fp8"}, "fp8", anywhere, 0, False),
        (MIXTURE, {"quant_method": "mxfp4"}, "mxfp4", in_experts, 0, False),
        (
            MIXTURE, tensors(group(4, "int", size=32, input_activations=None), ignore=["re:.*self_attn.*"]),
            "int4", in_experts, 32, False,
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("chip", ["a100", "b200_sxm"])
def test_a_server_holds_the_bytes_of_the_checkpoint(
    tmp_path, model, quantized, kind, where, group, zeros, chip
):
    """On every chip: what it does not multiply in is converted in kernels."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(model | {"quantization_config": quantized, "torch_dtype": "bfloat16"}))
    frame = fastflow.evaluate(
        "serve=decode", "model=transformer", f"model.config={path}", f"chip={chip}", "system.devices=1",
        "parallel.strategy=TP-1",
    )  # fmt: skip
    expected = checkpoint_bytes(model, kind, where, group, zeros)
    assert frame.weight_B[0] == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize(
    ("model", "types", "published"),
    [
        ("gpt_oss_120b", (), 65.2e9),  # as its page counts safetensors
        ("deepseek_v3", ("model.mtp=0",), 671e9),  # without the module of multi-token prediction
        ("kimi_k2", ("model.dtype=bf16", "precision.experts=w4a16", "precision.group=32"), 594e9),  # Thinking
        ("kimi_k2", ("model.dtype=nvfp4", "precision.attention_weights=bf16"), 591e9),
        ("deepseek_v3", ("model.dtype=nvfp4", "precision.attention_weights=bf16", "model.mtp=0"), 397e9),
    ],
)
def test_a_server_holds_the_bytes_that_are_published(model, types, published):
    """Of all modules on one device, for whose memory they may be too much."""
    one = ("serve=decode", f"model={model}", "chip=b200_sxm", "system.devices=1", "parallel.strategy=TP-1")
    assert fastflow.evaluate(*one, *types).weight_B[0] == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize(("has_own", "dtype"), [(False, "nvfp4, attention bf16"), (True, "w4a16")])
def test_the_file_of_modelopt_counts_where_a_config_says_nothing(tmp_path, has_own, dtype):
    quantisation = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ATTENTION_OF_EACH}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": quantisation}))
    own = {"quantization_config": AWQ} if has_own else {}
    (tmp_path / "config.json").write_text(json.dumps(DENSE | own))
    config = f"model.config={tmp_path / 'config.json'}"
    frame = fastflow.evaluate(
        "serve=decode", "model=transformer", config, "chip=b200_sxm", "system.devices=1"
    )
    assert frame["dtype"][0] == dtype
    assert frame.kv_token_B[0] == LAYERS * 2 * 2 * 64 * (2 if has_own else 1)
