"""`model.dtype=auto`: what a model is published or trained in, or the nearest that the chip has."""

import json

import pytest

import fastflow
from fastflow.cli.commands.sweep import main
from fastflow.core.errors import InputError
from fastflow.physics.workload.models.transformer.config_json.read import inputs_of
from fastflow.physics.workload.models.transformer.published import DTYPE, OF_EXPERTS, note_of_types
from tests.physics.workload.models.transformer.config_json.test_read import FILES

TRAIN, SERVE = (), ("serve=decode",)


@pytest.mark.parametrize(
    ("model", "chip", "what", "types"),
    [
        ("llama3_8b", "h100_sxm", TRAIN, ("bf16", "operand")),
        ("llama3_8b", "v100", SERVE, ("fp16", "operand")),  # the nearest: it has no bf16
        ("gpt_oss_120b", "h100_sxm", TRAIN, ("bf16", "operand")),
        ("gpt_oss_120b", "h100_sxm", SERVE, ("bf16", "mxfp4")),
        ("gpt_oss_120b", "b200_sxm", SERVE, ("bf16", "mxfp4")),
        ("gpt_oss_120b", "v100", SERVE, ("fp16", "mxfp4")),  # converted to fp16
        ("gpt_oss_120b", "h100_sxm", (*SERVE, "model.dtype=bf16"), ("bf16", "operand")),
        ("gpt_oss_120b", "h100_sxm", (*SERVE, "precision.experts=fp8"), ("bf16", "fp8")),
        ("deepseek_v3", "h100_sxm", TRAIN, ("fp8_block", "operand")),
        ("deepseek_v3", "a100", TRAIN, ("bf16", "operand")),
        ("deepseek_v3", "a100", SERVE, ("fp8_w8a16", "operand")),  # as Marlin converts it
        ("deepseek_v3", "b200_sxm", SERVE, ("fp8_block", "operand")),
        ("deepseek_v3", "b200_sxm", ("model.dtype=bf16",), ("bf16", "operand")),
        ("kimi_k2", "h100_sxm", TRAIN, ("bf16", "operand")),
        ("kimi_k2", "h100_sxm", SERVE, ("fp8_block", "operand")),
        ("kimi_k2", "h100_sxm", ("model.training=false",), ("fp8_block", "operand")),
    ],
)
def test_a_model_computes_as_published(compose, model, chip, what, types):
    inputs = compose(f"model={model}", f"chip={chip}", *what)
    assert (inputs["model.dtype"], inputs["precision.experts"]) == types


def of_groups(bits, kind, strategy, **more):
    weights = {"num_bits": bits, "type": kind, "strategy": strategy}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights, **more}}}


@pytest.mark.parametrize(
    ("file", "quantized", "dtype", "experts"),
    [
        ("deepseek-v3", None, "fp8_block", None),
        ("gpt-oss-120b", {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, "bf16", "mxfp4"),
        ("llama3-70b", None, "bf16", None),
        ("llama3-70b", {"quant_method": "fp8"}, "fp8", None),
        ("llama3-70b", {"quant_method": "fbgemm_fp8"}, "fp8", None),
        ("llama3-70b", {"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block", None),
        ("llama3-70b", {"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", None),
        ("llama3-70b", of_groups(8, "float", "channel"), "fp8", None),
        ("llama3-70b", of_groups(8, "float", "block"), "fp8_block", None),
        ("llama3-70b", of_groups(4, "float", "tensor_group"), "nvfp4", None),
        ("llama3-70b", of_groups(8, "int", "channel", input_activations={"num_bits": 8}), "int8", None),
        ("qwen3-235b", of_groups(4, "float", "group") | {"ignore": ["re:.*self_attn.*"]}, "bf16", "nvfp4"),
    ],
)
def test_a_config_json_says_how_it_is_quantised(file, quantized, dtype, experts):
    config = dict(FILES[file]["config"])
    if quantized is not None:
        config["quantization_config"] = quantized
    result = inputs_of(config)
    assert (result[DTYPE], result.get(OF_EXPERTS)) == (dtype, experts)


def test_weights_of_16_bits_are_of_those_that_the_file_names():
    assert inputs_of(FILES["llama3-70b"]["config"] | {"torch_dtype": "float16"})[DTYPE] == "fp16"


def test_a_quantisation_that_is_not_modelled_wants_a_type(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(FILES["llama3-70b"]["config"] | {"quantization_config": {"quant_method": "aqlm"}})
    )
    run = ("model=transformer", f"model.config={path}", "chip=h100_sxm", "system=dgx_h100", "serve=decode")
    with pytest.raises(InputError, match=r"model\.dtype=auto.*since the model is published in aqlm"):
        fastflow.evaluate(*run)
    assert fastflow.evaluate(*run, "model.dtype=bf16")["dtype"][0] == "bf16"
    assert fastflow.evaluate(*run[:-1], "parallel.strategy=TP-8")["dtype"][0] == "bf16"  # which is trained


def test_an_explicit_type_has_an_effect_though_auto_resolves_to_it():
    served = ("model=llama3_8b", "system=dgx_h100", "serve=decode", "parallel.strategy=TP-8")
    auto, given = (fastflow.evaluate(*served, *more) for more in ((), ("model.dtype=bf16",)))
    assert given["no_effect"][0] == ""
    same = [name for name in auto if auto[name].dtype.kind == "f" and name in given]
    assert auto[same].equals(given[same])


def test_a_grid_over_types_has_what_each_stands_for():
    served = ("model=gpt_oss_120b", "serve=decode", "parallel.strategy=TP-8", "system=dgx_h200")
    grid = fastflow.evaluate(*served, "model.dtype=auto,bf16")
    assert grid["model.dtype"].tolist() == ["auto", "bf16"]
    assert grid["dtype"].tolist() == ["bf16, experts mxfp4", "bf16"]
    assert grid["weight_B"][0] < 0.5 * grid["weight_B"][1]
    plain = fastflow.evaluate(*served, "model.dtype=bf16,fp16")
    assert plain["weight_B"][0] == grid["weight_B"][1]


def test_the_screen_says_what_the_chip_lacks(cli):
    code, out, _ = cli(main, "model=deepseek_v3", "system=dgx_a100", "serve=decode", "parallel.strategy=TP-8")
    assert code == 0
    assert f"{'Assumed':13}model.dtype: fp8_w8a16, since A100-SXM4-80GB has no fp8_block" in out
    _, out, _ = cli(main, "model=llama3_8b", "system=dgx_a100", "serve=decode", "parallel.strategy=TP-8")
    assert out[0].endswith("TP-8, bf16")
    assert not any("model.dtype" in line for line in out)


def test_other_models_have_no_auto():
    with pytest.raises(InputError, match=r"model\.dtype=auto"):
        fastflow.evaluate("model=gemm", "chip=a100", "model.dtype=auto")
    assert note_of_types({"model.dtype": "auto"}) == ""


def test_a_type_that_is_not_modelled_is_a_row_of_a_grid_with_a_reason(tmp_path):
    llama = FILES["llama3-70b"]["config"]
    for name, method in (("a", {"quant_method": "awq", "bits": 4}), ("b", {"quant_method": "aqlm"})):
        (tmp_path / f"{name}.json").write_text(json.dumps(llama | {"quantization_config": method}))
    files = f"model.config={tmp_path / 'a.json'},{tmp_path / 'b.json'}"
    frame = fastflow.evaluate("model=transformer", files, "chip=h100_sxm", "system=dgx_h100", "serve=decode")
    assert frame.feasible.tolist() == [True, False]
    assert frame["dtype"][0] == "w4a16"
    assert "model.dtype=auto is invalid" in frame.reason[1]
    assert "since fastflow does not model what the model is published in" in frame.reason[1]
