"""Files of a tuner of kernels (ROCm/aiter): what their columns of types and libraries mean."""

import pytest

import fastflow

PRODUCT = "m,n,k,dtype,lib,preshuffled_weights,time_s"
LAYER = "tokens,hidden,ffn,experts,topk,dtype_a,dtype_w,quant,one_stage,time_s"
SIZES = ("model=experts", "chip=mi300x", "model.hidden=4096", "model.ffn=384", "model.experts=64",
         "model.topk=8", "model.ep=1", "model.tokens=64")  # fmt: skip
OF_TUNER = ("model.moe_backend=aiter", "model.random_routing=true")


def validated(tmp_path, head, *lines):
    path = tmp_path / "some.csv"
    path.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    return fastflow.validate(f"measurements={path}", "chip=mi300x").rows["predicted_s"].tolist()


def test_operands_of_a_tuner_are_quantised_before_and_cold(tmp_path):
    lines = ["64,4096,4096,fp8_block,ck,False,1e-5", "64,4096,4096,fp8_block,,,1e-5"]
    sizes = (
        "model=gemm",
        "chip=mi300x",
        "model.m=64",
        "model.n=4096",
        "model.k=4096",
        "model.dtype=fp8_block",
    )
    of_tuner = fastflow.evaluate(*sizes, "model.quantized=true").time_s[0]
    of_framework = fastflow.evaluate(*sizes, "model.quantized=false", "model.copies=5").time_s[0]
    assert validated(tmp_path, PRODUCT, *lines) == pytest.approx([of_tuner, of_framework])


def test_weights_in_the_order_of_registers_go_past_l1(tmp_path):
    lines = [f"4096,4096,4096,fp8_block,ck,{order},1e-4" for order in (False, True)]
    plain, shuffled = validated(tmp_path, PRODUCT, *lines)
    assert 0.6 * plain < shuffled < 0.95 * plain


@pytest.mark.parametrize(
    ("types", "dtype"),
    [
        ("bfloat16,bfloat16,No", "bf16"), ("torch.bfloat16,torch.bfloat16,QuantType.No", "bf16"),
        ("float8_e4m3fnuz,float8_e4m3fnuz,per_1x128", "fp8_block"),
        ("float8_e4m3fn,float8_e4m3fn,per_Token", "fp8"),
        ("int8,int8,per_Tensor", "int8"), ("int8,int4,per_Token", "w4a8"),
    ],
)  # fmt: skip
def test_types_of_both_operands_and_of_scales_give_the_data_type(tmp_path, types, dtype):
    """All experts are on the device, and tokens choose at random."""
    found = validated(tmp_path, LAYER, f"64,4096,384,64,8,{types},0,1e-4")
    expected = fastflow.evaluate(*SIZES, *OF_TUNER, f"model.dtype={dtype}")
    assert found == pytest.approx(expected.time_s.tolist())


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ("float32,bfloat16,No", r"dtype_a=float32.* expected one of bfloat16, float16"),
        ("bfloat16,half,No", r"dtype_w=half.* expected one of bfloat16, float16"),
        ("bfloat16,int8,No", r"dtype_w=int8.* expected one of bfloat16, float4_e2m1fn_x2"),
        ("int8,int8,per_group", r"quant=per_group.* expected one of no, per_tensor"),
        ("float8_e4m3fn,float8_e4m3fn,No", r"quant=No.* expected one of per_tensor, per_token, per_1x128"),
    ],
)
def test_unknown_types_are_refused_in_one_line(tmp_path, types, message):
    with pytest.raises(fastflow.InputError, match=message) as error:
        validated(tmp_path, LAYER, f"64,4096,384,64,8,{types},0,1e-4")
    assert "\n" not in str(error.value)


def test_a_kernel_for_both_products_has_few_blocks_for_few_tokens():
    """A block has 128 or more columns of an expert, and loads all the weights of these."""
    asked = (*SIZES, "model.tokens=1", *OF_TUNER, "model.dtype=fp8_block", "model.one_stage=false,true")
    two, one = fastflow.evaluate(*asked).time_s
    assert one > two
    launches = fastflow.evaluate(*asked, "chip.launch_overhead='2.9 us','12.9 us'").time_s.to_numpy()
    added = launches.reshape(2, 2)[:, 1] - launches.reshape(2, 2)[:, 0]
    assert added == pytest.approx([2e-5, 1e-5])
    kernels = fastflow.explain_sharding(*SIZES, *OF_TUNER)["kernel"].tolist()
    assert kernels == ["gate and up", "down"]


def test_random_choices_leave_some_experts_idle():
    """Of 64 experts, 16 tokens with 8 choices each leave an eighth idle, which no even load does."""
    frame = fastflow.evaluate(
        *SIZES[:-1], "model.tokens=16", "model.moe_backend=aiter", "model.random_routing=false,true"
    )
    even, random = frame.time_s
    assert 0.75 * even < random < 0.95 * even
