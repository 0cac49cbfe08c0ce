"""Files of expert layers whose column `kernel` says what the library ran (ai-dynamo/aiconfigurator)."""

import pytest

import fastflow

HEAD = "tokens,hidden,ffn,experts,topk,tp,ep,balance,dtype,gated,kernel,time_s"
SIZES = ("model=experts", "chip=b200_sxm", "model.tokens=64", "model.hidden=4096", "model.ffn=2048",
         "model.dtype=nvfp4", "model.repeated=true", "model.moe_release='1.3'",
         "model.leftover=any")  # fmt: skip


def validated(tmp_path, *lines):
    path = tmp_path / "some.csv"
    path.write_text("\n".join([HEAD, *lines]) + "\n", encoding="utf-8")
    return fastflow.validate(f"measurements={path}", "chip=b200_sxm").rows["predicted_s"].tolist()


def layer(experts, ep, kernel, tp=1):
    return f"64,4096,{2048 * tp},{experts},8,{tp},{ep},balanced,nvfp4,True,{kernel},1e-4"


def predicted(experts, ep, *keys):
    return fastflow.evaluate(*SIZES, f"model.experts={experts}", f"model.ep={ep}", *keys).time_s[0]


def test_layers_whose_name_no_layer_of_least_latency_begins_with_are_tuned(tmp_path):
    alone, tuned = (predicted(512, 8, f"model.tuned={tuned}") for tuned in ("false", "true"))
    assert tuned < 0.8 * alone
    cutlass = layer(512, 8, "cutlass")  # 64 experts of a device
    assert validated(tmp_path, cutlass) == pytest.approx([tuned])
    assert validated(tmp_path, cutlass, layer(128, 2, "min_latency"))[0] == pytest.approx(alone)
    assert validated(tmp_path, cutlass, layer(128, 2, "cutlass", tp=2))[0] == pytest.approx(alone)
    assert validated(tmp_path, cutlass, layer(128, 1, "cutlass"))[0] == pytest.approx(tuned)
    # of 16 experts, the name begins with that of one
    few = layer(512, 512, "cutlass")
    assert validated(tmp_path, few, layer(128, 8, "cutlass"))[0] == pytest.approx(
        predicted(512, 512, "model.tuned=false")
    )


def test_rows_of_least_latency_are_not_summed_and_have_a_gate_of_groups(tmp_path):
    keys = ("model.moe_backend=trtllm", "model.gate=groups", "model.summed=false")
    expected = predicted(128, 8, *keys)
    assert validated(tmp_path, layer(128, 8, "min_latency")) == pytest.approx([expected])
