"""Parts of layers that are recomputed: what they save and cost (Megatron-LM's --recompute-modules)."""

import pytest

import fastflow
from fastflow.core.errors import InputError
from fastflow.physics.workload.recompute_modules import MODULES

TOKENS, LAYERS, HIDDEN, TOPK, FFN, EXPERT_FFN, HEADS = 512, 4, 1024, 2, 3072, 768, 16
LATENT, ROTARY, HEAD, VALUE = 512, 64, 128, 128
MODEL = (
    "model=deepseek_v3", f"model.hidden={HIDDEN}", f"model.heads={HEADS}", f"model.sequence={TOKENS}",
    f"model.ffn={FFN}", f"model.expert_ffn={EXPERT_FFN}", f"model.shared_ffn={EXPERT_FFN}",
    "model.experts=8", f"model.topk={TOPK}", "model.expert_groups=1", "model.topk_groups=1", "model.mtp=0",
    f"model.layers={LAYERS}", f"model.pattern='2*dense, {LAYERS - 2}*experts'", "model.batch=8",
    "model.dtype=bf16", "chip=h100_sxm", "system=dgx_h100", "system.devices=4", "parallel.strategy=d4",
)  # fmt: skip


def run(recompute, *more):
    return fastflow.evaluate(*MODEL, f"parallel.recompute={recompute}", *more).iloc[0]


# bytes that the backward pass does not find, of a token: of bf16 numbers
SAVED = {
    "moe_act": 2 * 2 * TOPK * EXPERT_FFN,
    "layernorm": 2 * LAYERS * 2 * HIDDEN,
    # queries with their rotated part, keys with theirs, values
    "mla_up_proj": 2 * LAYERS * HEADS * (2 * (HEAD + ROTARY) + VALUE),
    "mlp": 2 * 2 * 3 * FFN,  # gate, up, and their product
    "shared_experts": 2 * 2 * 3 * EXPERT_FFN,
}


@pytest.mark.parametrize("module", SAVED)
def test_what_a_module_saves(module):
    none, own = run("none"), run(module)
    assert none["activation_B"] - own["activation_B"] == pytest.approx(TOKENS * SAVED[module])
    assert own["recompute_s"] > 0.0
    assert own["time_s"] > none["time_s"]
    # what is made again is there while a layer goes back, which is smaller than what all of them would keep
    assert 0.0 < own["buffer_B"] - none["buffer_B"] <= TOKENS * SAVED[module] / 2


def test_a_mixture_made_again_has_its_exchanges_again():
    """Experts, shared ones, router: all that its layers make but their output; both exchanges of tokens."""
    spread = ("parallel.strategy=TP-1-e4-d4", "parallel.overlap.expert=false")
    none, own, shared = (run(what, *spread) for what in ("none", "moe", "shared_experts"))
    assert own["activation_B"] < shared["activation_B"] < none["activation_B"]
    assert own["ep_comm_exposed_s"] == pytest.approx(1.5 * none["ep_comm_exposed_s"], rel=0.05)
    assert run("moe", "parallel.strategy=d4")["ep_comm_exposed_s"] == 0.0


def test_modules_add_up():
    none, both = run("none"), run("moe_act+layernorm")
    alone = [run(module) for module in ("moe_act", "layernorm")]
    for column in ("activation_B", "recompute_s"):
        assert both[column] - none[column] == pytest.approx(sum(one[column] - none[column] for one in alone))
    assert both["recompute"] == "moe_act+layernorm"
    assert run("moe+moe_act")["activation_B"] == run("moe")["activation_B"]  # a part of it


def test_the_core_of_attention_is_what_selective_recomputes():
    unfused = ("model=gpt_1_7b", "model.fused_attention=false", "model.layers=4", "chip=a100")
    selective, core = (
        fastflow.evaluate(*unfused, f"parallel.recompute={what}") for what in ("selective", "core_attn")
    )
    for column in ("time_s", "activation_B", "recompute_s"):
        assert selective[column].item() == core[column].item()


@pytest.mark.parametrize("module", MODULES)
def test_every_module_acts_or_says_that_it_does_not(module):
    dense = fastflow.evaluate(
        "model=llama3_8b", "chip=h100_sxm", "model.layers=4", f"parallel.recompute={module}"
    )
    says = "parallel.recompute" in dense["no_effect"].item()
    assert says == (module not in ("layernorm", "mlp"))
    assert (dense["recompute_s"].item() > 0.0) != says


@pytest.mark.parametrize("text", ["moe_act+x", "moe_act,", "+", "mlp++moe"])
def test_unknown_modules_get_one_line(text):
    with pytest.raises(InputError, match="core_attn, moe_act, layernorm"):
        fastflow.evaluate("model=llama3_8b", "chip=h100_sxm", f"parallel.recompute='{text}'")
