"""Models by the names that a hub has for them."""

import pytest

import fastflow
from fastflow.config.catalog import choices
from fastflow.config.hub_names import HUB_NAMES, with_library_names
from fastflow.config.keyword_overrides import as_overrides
from fastflow.core.errors import InputError


def test_every_name_is_of_a_model_of_the_library():
    assert {*HUB_NAMES.values()} <= {*choices("model")}
    assert len({name.lower() for name in HUB_NAMES}) == len(HUB_NAMES)


@pytest.mark.parametrize(
    "value",
    ["Qwen/Qwen3-32B,llama3_8b", "[openai/gpt-oss-120b]", "mine/net.yaml", "meta-llama/Llama-3.1-8B-FP8"],
)
def test_names_are_replaced_alone(value):
    expected = value.replace("Qwen/Qwen3-32B", "qwen3_32b").replace("openai/gpt-oss-120b", "gpt_oss_120b")
    assert with_library_names(value) == expected
    assert as_overrides((f"model={value}",), {}) == (f"model={expected}",)


def test_a_name_is_the_model_in_overrides_keywords_and_either_case():
    of_library = fastflow.evaluate("model=qwen3_32b", "chip=h100_sxm")
    for asked, keywords in (
        (("model=Qwen/Qwen3-32B",), {}), (("model=qwen/qwen3-32b",), {}), ((), {"model": "Qwen/Qwen3-32B"}),
    ):  # fmt: skip
        assert fastflow.evaluate(*asked, "chip=h100_sxm", **keywords).equals(of_library)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("Qwen/Qwen3-235B-A22B-Thinking-2507", "bf16"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507-FP8", "fp8_block"),
        ("meta-llama/Llama-3.1-405B-Instruct-FP8", "fp8, attention bf16"),
        ("meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8", "bf16, experts fp8"),
    ],
)
def test_checkpoints_have_the_types_of_their_weights(name, dtype):
    served = fastflow.evaluate(f"model={name}", "system=dgx_h200", "serve=decode", "parallel.strategy=TP-8")
    assert served.dtype[0] == dtype


def test_checkpoints_of_longer_sequences_take_longer_prompts():
    prompt = ("serve=prefill", "serve.isl=100000", "serve.osl=1", "system=dgx_h200", "parallel.strategy=TP-8")
    reasons = [
        fastflow.evaluate(f"model=Qwen/Qwen3-30B-A3B{suffix}", *prompt).reason[0]
        for suffix in ("", "-Instruct-2507")
    ]
    assert "40960 tokens of model.positions" in reasons[0]
    assert reasons[1] == ""


def test_an_unknown_name_is_one_line_with_the_nearest_and_another_way():
    with pytest.raises(InputError) as caught:
        fastflow.evaluate("model=Qwen/Qwen3-33B")
    line = str(caught.value)
    assert line.startswith("model=Qwen/Qwen3-33B (from the overrides) is invalid: expected one of ")
    way = "; model=transformer model.config=FILE reads the config.json of another model"
    assert line.endswith(f"{way}; did you mean Qwen/Qwen3-32B?")
