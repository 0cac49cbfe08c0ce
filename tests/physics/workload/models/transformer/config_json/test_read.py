"""config.json files of published models as `model.config`: what they say, and what is wrong with them."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.cli.commands.sweep import main
from fastflow.config.model_inputs import to_column
from fastflow.core.errors import InputError
from fastflow.core.yaml_file import MistakeError
from fastflow.physics import workload
from fastflow.physics.workload.models.transformer import parameters
from fastflow.physics.workload.models.transformer.config_json.families import TYPES
from fastflow.physics.workload.models.transformer.config_json.read import (
    inputs_of,
    note_of_type,
    read_config,
)
from fastflow.physics.workload.models.transformer.dimensions import DEFAULTS
from fastflow.physics.workload.models.transformer.layer_pattern import parse
from fastflow.physics.workload.models.transformer.network import network
from fastflow.physics.workload.models.transformer.published import with_types
from tests.support.checks import cases
from tests.support.config_files import FILES, columns
from tests.support.mutations import mutated
from tests.support.paths import ROOT
from tests.support.transformers import OF_MODELS, column_of_each

LIBRARY = {
    "llama3_70b": "llama3-70b", "mixtral_8x7b": "mixtral-8x7b", "qwen3_32b": "qwen3-32b",
    "bloom_176b": "bloom",
    "qwen3_235b": "qwen3-235b", "deepseek_v3": "deepseek-v3", "kimi_k2": "kimi-k2", "mpt_7b": "mpt-7b",
    "gpt_oss_120b": "gpt-oss-120b", "nemotron4_340b": "nemotron4-340b",
    "qwen3_30b": "qwen3-30b",
    "qwen3_next_80b": "qwen3-next-80b",
    "qwen3_5_27b": "qwen3.5-27b",
    "qwen3_5_35b": "qwen3.5-35b",
    "qwen3_5_397b": "qwen3.5-397b",
    "qwen3_vl_8b": "qwen3-vl-8b",
    "qwen3_vl_30b": "qwen3-vl-30b",
    "kimi_k2_5": "kimi-k2.5",
    "minimax_m2_5": "minimax-m2.5",
    "nemotron3_nano_30b": "nemotron-3-nano",
    "nemotron_h_56b": "nemotron-h-56b",
    "gemma3_27b": "gemma3-27b",
    "gemma4_26b": "gemma4-26b",
    "llama4_scout": "llama4-scout",
    "gpt_oss_20b": "gpt-oss-20b",
    "mimo_v2_flash": "mimo-v2-flash",
    "deepseek_v32": "deepseek-v3.2",
    "deepseek_v4_flash": "deepseek-v4-flash",
    "glm_5": "glm-5",
    "minimax_m3": "minimax-m3",
    "kimi_linear_48b": "kimi-linear-48b",
    "qwen3_8b": "qwen3-8b",
    "qwen3_14b": "qwen3-14b",
    "qwen3_235b_2507": "qwen3-235b",
    "qwen3_30b_2507": "qwen3-30b",
    "starcoder2_3b": "starcoder2-3b",
    "starcoder2_7b": "starcoder2-7b",
    "starcoder2_15b": "starcoder2-15b",
    "codellama_7b": "codellama-7b",
    "codellama_13b": "codellama-13b",
    "codellama_34b": "codellama-34b",
    "codellama_70b": "codellama-70b",
    "gemma_2b": "gemma-2b",
    "gemma_7b": "gemma-7b",
    "gemma2_2b": "gemma2-2b",
    "gemma2_9b": "gemma2-9b",
    "gemma2_27b": "gemma2-27b",
    "gemma3_12b": "gemma3-12b",
    "phi3_mini": "phi3-mini",
    "phi3_medium": "phi3-medium",
    "mistral_7b": "mistral-7b-v0.3",
    "mistral_nemo": "mistral-nemo",
    "mistral_large": "mistral-large",
    "nemotron_nano_9b": "nemotron-nano-9b",
    "nemotron_nano_12b": "nemotron-nano-12b",
}  # fmt: skip
LLAMA = FILES["llama3-70b"]["config"]
LLAMA_TEXT = json.dumps({"num_attention_heads": 8192, **LLAMA, "hidden_size": 8192})
QWEN_VL = {
    "model_type": "qwen3_vl", "tie_word_embeddings": False, "vision_config": {"depth": 27},
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "text_config": {
        "model_type": "qwen3_vl_text", "hidden_size": 4096, "intermediate_size": 12288,
        "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
        "head_dim": 128, "vocab_size": 151936,
    },
}  # fmt: skip
RUN = ("chip=h100_sxm", "system.devices=64", "parallel.strategy=TP-8-d8", "model=transformer")


QWEN = {"model_type": "qwen2", "sliding_window": 9, "max_window_layers": 8}


def described(inputs):
    """What a network computes: its layers, how many there are, and their kernels."""
    return [
        (
            layer.name,
            layer.times,
            [(node.name, node.cols, node.inner, node.groups, dict(node.attributes)) for node in layer.nodes],
        )
        for layer in network(inputs).layers
    ]


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_is_what_the_files_say(compose, name):
    inputs = compose(f"model={name}")
    known = {key: to_column(key, [value]) for key, value in inputs.items() if key.startswith("model.")}
    beside = {key: inputs[key] for key in ("model.batch", "model.sequence")}
    beside |= {key: inputs[key] for key in ("model.fused_attention", "model.dropout")}
    assert described(known) == described(columns(FILES[LIBRARY[name]]["config"], **beside))


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("gpt-oss-120b", {"pattern": "window experts, experts", "window": 128, "positions": 131072}),
        ("deepseek-v3", {"pattern": "3*dense, 58*experts", "mtp": 1, "positions": 163840, "latent": 512}),
        ("gemma3-1b", {"pattern": "5*window dense, dense", "window": 512, "block": "sandwich"}),
        ("gemma2-27b", {"pattern": "window dense, dense", "tied": True}),
        ("llama4-scout", {"pattern": "3*chunked experts, experts", "window": 8192}),
        ("llama4-maverick", {"pattern": "chunked dense, chunked experts, chunked dense, experts"}),
        ("qwen2.5-72b", {"pattern": "dense", "biases": "qkv"}),
        ("mistral-7b", {"pattern": "window dense", "sequence": None}),
        ("gpt2-xl", {"position": "learned", "positions": 1024, "sequence": 1024, "biases": "all"}),
        ("mpt-7b", {"position": "alibi", "positions": 0, "sequence": 2048, "norm": "layer"}),
        ("falcon-7b", {"kv_heads": 1, "block": "parallel"}),
        ("falcon-40b", {"kv_heads": 8, "block": "parallel_norms"}),
        ("internlm2-20b", {"positions": 98304}),
        ("olmoe", {"experts": 64, "topk": 8, "qk_norm": True, "qk_norm_across_heads": True}),
        ("starcoder2-15b", {"biases": "all", "gated": False}),
        ("qwen3-next-80b", {"shared_ffn": 512, "shared_gate": True, "output_gate": "full"}),
        ("deepseek-v3", {"shared_experts": 1, "shared_gate": None}),
    ],
)  # fmt: skip
def test_what_files_say_of_layers(name, result):
    given = inputs_of(FILES[name]["config"])
    assert {key: given.get(f"model.{key}") for key in result} == result


@pytest.mark.parametrize(
    ("changed", "windows"),
    [
        (QWEN | {"use_sliding_window": True}, 72),
        (QWEN, 0),
        ({"model_type": "mistral", "sliding_window": 9}, 80),
        ({"model_type": "mistral", "sliding_window": None}, 0),
        ({"sliding_window": 9, "layer_types": ["sliding_attention"] + 79 * ["full_attention"]}, 1),
        ({"model_type": "cohere2", "sliding_window": 9, "sliding_window_pattern": 4}, 60),
    ],
)  # fmt: skip
def test_windows_are_of_the_layers_that_the_code_gives_them(changed, windows):
    result = columns(LLAMA | changed)
    assert sum(layer.times for layer in network(result).layers if "window" in layer.name) == windows


@pytest.mark.parametrize(
    ("changed", "mixed"),
    [
        ({"first_k_dense_replace": 3}, 77),
        ({"moe_layer_freq": 2}, 40),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [1, 3]}, 38),
        ({"moe_layers": [1, 5]}, 2),
        ({"moe_layer_freq": [0, 1] * 40}, 40),
        ({}, 80),
    ],
)
def test_experts_are_in_the_layers_that_the_code_gives_them(changed, mixed):
    mixture = {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    result = columns(LLAMA | mixture | changed)
    assert sum(layer.times for layer in network(result).layers if "experts" in layer.name) == mixed


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_type": "deberta-v2"}, "model_type is one of the"),
        ({"model_type": "deepseek_v9", "index_heads": 64}, "the nearest are deepseek_v4, deepseek_v3"),
        ({"model_type": "llama5", "index_heads": 64}, "not understood in the file: index_heads"),
        ({"model_type": "t5", "num_encoder_layers": 6}, '"t5", an encoder'),
        ({"model_type": None, "vision_config": {}}, "null, a model of images"),
        ({"model_type": "qwen9_next"}, '"qwen9_next"'),
        ({"model_type": ["llama"]}, "model_type"),
        ({"model_type": None, "_diffusers_version": "0.30"}, "a diffusion model"),
        ({"hidden_act": "mish"}, "hidden_act is one of silu, swish"),
        ({"hidden_act": 3}, "hidden_act is one of"),
        ({"hidden_size": None}, "that gives hidden_size"),
        ({"hidden_size": "8192"}, "hidden_size is a whole number from 1 to 1e+12, not 8192"),
        ({"hidden_size": True}, "hidden_size is a whole number from 1 to 1e+12, not true"),
        ({"hidden_size": -8192}, "hidden_size is a whole number from 1"),
        ({"hidden_size": 8192.5}, "hidden_size is a whole number from 1"),
        ({"hidden_size": 10**400}, "hidden_size is a whole number from 1"),
        ({"hidden_size": [1]}, "hidden_size is a whole number from 1 to 1e+12, not [1]"),
        ({"hidden_size": 8191}, "num_attention_heads is a divisor of its hidden size, 8191"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is at most 10000"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is true or false, not yes"),
        ({"rope_scaling": 3}, "rope_scaling is an object, not 3"),
        ({"rope_scaling": {"factor": -1}}, "rope_scaling.factor is a number above 0"),
        ({"rope_scaling": {"factor": True}}, "rope_scaling.factor is a number above 0"),
        ({"rope_scaling": {"factor": "8"}}, "rope_scaling.factor is a number above 0"),
        ({"layer_types": ["full_attention"]}, "layer_types is a list with an entry for each of the 80"),
        ({"layer_types": ["full_attention"] * 79 + ["linear_attention"]}, "not linear_attention"),
        ({"layer_types": ["sliding_attention"] * 80}, "gives sliding_window"),
        ({"num_local_experts": 8}, "that gives num_experts_per_tok"),
        ({"mamba_layers": 8}, "without mamba_layers, which fastflow does not know (it is 8)"),
        ({"num_memory_heads": 2}, "without num_memory_heads"),
        ({"altup_num_inputs": 4}, "without altup_num_inputs"),
        ({"linear_key_head_dim": 128}, "without linear_key_head_dim"),
        ({"model_type": "opt", "word_embed_proj_dim": 512}, "word_embed_proj_dim is its hidden_size, 8192"),
        ({"model_type": "minimax", "attn_type_list": [0, 1]}, "attn_type_list is a list with an entry"),
        ({"model_type": "dbrx", "ffn_config": {"moe_num_experts": 4}}, "gives ffn_config.ffn_hidden_size"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(changed, message):
    with pytest.raises(MistakeError) as caught:
        inputs_of(LLAMA | changed)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    "unknown",
    [
        {"rope_theta_of_tomorrow": 7}, {"rope_scaling": {"rope_type": "spiral"}}, {"note": "size"},
        {"quantization_config": {"bits": 4, "group_size": 128}}, {"num_beams": 4}, {"router_z_loss": 0.1},
        {"attn_logit_softcapping": 50.0}, {"pretraining_tp": 4}, {"num_experts": 0}, {"mamba_layers": None},
    ],
)  # fmt: skip
def test_what_changes_no_operations_is_ignored(unknown):
    known = described(columns(LLAMA))
    assert described(columns(LLAMA | unknown)) == known


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps(LLAMA)[:-40], "a JSON file (line 1, column"),
        ("", "a JSON file (line 1, column 1"),
        ("[1, 2]", "a JSON file that holds an object, not [1, 2]"),
        ("3", "a JSON file that holds an object, not 3"),
        ('{"model_type": "llama", "model_type": "llama"}', "model_type is given twice"),
        ('{"rope_scaling": {"factor": 1, "factor": 2}}', "factor is given twice"),
        (LLAMA_TEXT.replace("8192", "NaN", 1), "a whole number"),
        (LLAMA_TEXT.replace("8192", "-Infinity", 1), "a whole number"),
        (LLAMA_TEXT.replace("8192", "1e400", 1), "a whole number"),
        ('{"hidden_size": 1' + "0" * 5000 + "}", "a number of too many digits"),
        ('{"a": ' * 20_000, "nested too deeply"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        (b"\xff\xfe\x00{", "a JSON file"),
        (b"\x80{}", "a JSON file (its text is not UTF-8)"),
        ("{}" + " " * 32_000_000, "a file of at most 32,000,000 bytes, not 32,000,002"),
        ("{}", "model_type is one of"),
        ("model_type: llama\n", "a JSON file (line 1, column 1"),
    ],
)  # fmt: skip
def test_hostile_files_are_refused_in_one_line(file, content, message):
    path = file(content)
    with pytest.raises(InputError) as caught:
        read_config(path)
    line = str(caught.value)
    assert line.startswith(f"model.config={path} is invalid: expected ")
    assert message in line
    assert "\n" not in line
    assert len(line) < 900


TINKER = {
    "model_type": "tinker", "architectures": ["TinkerForCausalLM"], "hidden_size": 2048, "vocab_size": 9000,
    "num_hidden_layers": 4, "num_attention_heads": 16, "intermediate_size": 4096,
}  # fmt: skip
OF_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
LATENT = {
    "kv_lora_rank": 64, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32, "q_lora_rank": 96,
}  # fmt: skip


@pytest.mark.parametrize(
    ("further", "known"),
    [
        ({}, "llama"), (OF_EXPERTS, "llama"), (LATENT, "deepseek_v3"),
        (LATENT | {"index_n_heads": 8, "index_head_dim": 32, "index_topk": 64}, "deepseek_v32"),
    ],
)  # fmt: skip
def test_an_unknown_type_whose_fields_are_understood_is_read_as_a_known_one(file, further, known):
    config = TINKER | further
    note = note_of_type(file(config))
    assert note == f"model.config: model_type tinker is not known; read as {known}, all fields understood"
    assert inputs_of(config) == inputs_of(config | {"model_type": known})
    assert note_of_type(file(config | {"model_type": known})) == ""


@pytest.mark.parametrize(
    "changed",
    [
        {"architectures": None}, {"architectures": ["TinkerModel"]}, {"architectures": ["LlamaForCausalLM"]},
        {"architectures": "TinkerForCausalLM"}, {"ssm_size": 16}, {"hidden_size": 0},
    ],
)  # fmt: skip
def test_an_unknown_type_is_refused_where_anything_is_not_understood(changed):
    with pytest.raises(MistakeError, match="tinker"):
        inputs_of(TINKER | changed)


def test_the_classes_of_the_whole_file_are_those_of_its_language_model():
    inner = {name: value for name, value in TINKER.items() if name != "architectures"}
    whole = {"model_type": "tinker_vl", "architectures": ["TinkerForConditionalGeneration"]}
    assert inputs_of(whole | {"text_config": inner}) == inputs_of(TINKER)


@pytest.mark.parametrize("name", ["jetmoe", "zaya", "rwkv"])
def test_types_of_other_layers_are_never_read_as_known_ones(name):
    with pytest.raises(MistakeError, match=name):
        inputs_of(TINKER | {"model_type": name, "architectures": [f"{name}ForCausalLM"]})


def test_the_screen_says_how_an_unknown_type_is_read(file, cli):
    code, lines, _ = cli(main, *RUN, f"model.config={file(TINKER)}", "model.batch=64")
    assert code == 0
    assert "model_type tinker is not known" in " ".join(" ".join(lines).split())


def test_the_page_on_files_lists_every_type():
    page = (ROOT / "docs" / "config_json.md").read_text(encoding="utf-8")
    table = page.split("## Types that are read")[1].split("A file of several models")[0]
    rows = [row.split("|")[2] for row in table.splitlines() if row.startswith("| ") and "`" in row][1:]
    assert [name.strip("` ") for row in rows for name in row.split(",")] == list(TYPES)
    assert f"one of the {len(TYPES)} that docs/config_json.md lists" in page


def test_the_language_model_of_a_file_of_several_is_read():
    text = QWEN_VL["text_config"]
    alone = text | {"model_type": "qwen3", "quantization_config": QWEN_VL["quantization_config"]}
    assert inputs_of(QWEN_VL) == inputs_of(alone)
    assert inputs_of({"model_type": "omni", "thinker_config": QWEN_VL}) == inputs_of(alone)
    with pytest.raises(MistakeError, match="qwen9"):
        inputs_of(QWEN_VL | {"text_config": text | {"model_type": "qwen9"}})


def test_a_field_that_nothing_reads_may_be_any_number_of_python(file):
    plain = read_config(file(LLAMA, "plain.json"))
    text = json.dumps(LLAMA | {"time_step_limit": [0.0, float("inf"), float("nan")]})
    assert read_config(file(text)) == plain


@pytest.mark.parametrize("path", ["nosuch.json", "/dev/zero", "/", "", "a\0b", "x" * 5000])
def test_what_is_no_file_is_refused(path):
    with pytest.raises(InputError, match=r"model\.config="):
        read_config(path)


def test_a_file_that_changes_is_read_again(file):
    path = file(LLAMA)
    assert read_config(path)["model.layers"] == 80
    file({**LLAMA, "num_hidden_layers": 7})
    assert read_config(path)["model.layers"] == 7


def test_sizes_that_a_layer_does_not_use_are_left_out():
    """A file may give those of attention and of dense parts for all layers alike."""
    sizes = {"num_key_value_heads": 4, "intermediate_size": 100}
    each = {"per_layer_config": {"0": sizes, "3": sizes}}
    inputs = inputs_of({**FILES["qwen3-next-80b"]["config"], **each})
    kinds = parse(inputs["model.pattern"])
    assert [dict(kinds[i].sizes) for i in (0, 3)] == [{}, {"kv_heads": 4}]
    read = column_of_each(with_types({**DEFAULTS, **OF_MODELS, **inputs}))
    assert not workload.invalid_model_dims(read).exists[0]


def read_or_refuse(config):
    """Count the parameters of a file, or be told in one line what is wrong with it."""
    try:
        result = columns(config)
    except (MistakeError, InputError) as mistake:
        line = str(mistake)
    else:
        line = ""
        if not workload.invalid_model_dims(result).exists[0]:
            assert parameters(result)[0][0] > 0
    assert "\n" not in line


@given(st.sampled_from(list(FILES)), st.integers(0, 2**32 - 1))
@cases(150)
def test_files_with_mistakes_are_read_or_refused(name, seed):
    """Never an error that is none of the user's."""
    read_or_refuse(mutated(FILES[name]["config"], np.random.default_rng(seed)))


@pytest.mark.long
def test_20_000_files_with_mistakes_are_read_or_refused():
    rng, names = np.random.default_rng(42), list(FILES)
    for number in range(20_000):
        read_or_refuse(mutated(FILES[names[number % len(names)]]["config"], rng))


# --- on the command line


def test_keys_beside_a_file_win(file):
    path = file(LLAMA)
    known = fastflow.evaluate(*RUN, f"model.config={path}", "model.batch=8", "model.layers=2")
    other = fastflow.evaluate(
        *RUN, "model.batch=8", "model.layers=2", "model.hidden=8192", "model.heads=64", "model.kv_heads=8",
        "model.ffn=28672", "model.vocabulary=128256",
    )  # fmt: skip
    assert known.time_s[0] == other.time_s[0] > 0.0


def test_files_can_be_swept_with_keys_beside(file):
    paths = [file(FILES[name]["config"], f"{name}.json") for name in ("llama3-70b", "gpt2-xl")]
    grid = fastflow.evaluate(
        *RUN, f"model.config={','.join(paths)}", "model.layers=2,4", "model.batch=8", "parallel.strategy=d8"
    )
    assert grid["model.config"].tolist() == [paths[0]] * 2 + [paths[1]] * 2
    assert grid["model.layers"].tolist() == [2, 4, 2, 4]
    alone = [
        fastflow.evaluate(
            *RUN, f"model.config={path}", f"model.layers={layers}", "model.batch=8", "parallel.strategy=d8"
        )
        for path in paths
        for layers in (2, 4)
    ]
    assert grid.flop.tolist() == [point.flop[0] for point in alone]
    assert grid.time_s.tolist() == [point.time_s[0] for point in alone]


def test_a_sequence_longer_than_positions_is_a_row_with_its_reason(file):
    grid = fastflow.evaluate(
        *RUN, f"model.config={file(LLAMA)}", "model.sequence=4096,200000", "model.batch=8"
    )
    assert grid.reason[0] == "" or "memory" in grid.reason[0]
    assert "at most the 131072 tokens of model.positions" in grid.reason[1]


@pytest.mark.parametrize(
    "content",
    [
        "{",
        *(
            pytest.param(content, marks=pytest.mark.long)
            for content in ({"model_type": "zaya"}, {**LLAMA, "hidden_act": "mish"})
        ),
    ],
)
def test_a_command_refuses_a_file_in_one_line(cli, file, content):
    path = file(content)
    code, _, errors = cli(main, *RUN, f"model.config={path}")
    assert code == 2
    assert len(errors) == 1
    assert errors[0].startswith(f"model.config={path} (from the command line) is invalid: expected ")
