"""The functions that Python users call, on the real model and library."""

import numpy as np
import pytest

import fastflow
from fastflow.config.library import library_root
from fastflow.schema.__main__ import markdown


def test_bad_points_of_a_grid_are_rows_with_a_reason():
    frame = fastflow.evaluate(
        "chip.area.core=0,0.3,0.9", "parallel.strategy=d512,d500", "tiling=random", "tiling.samples=5"
    )
    assert frame["time_s"].notna().tolist() == [False, False, True, False, False, False]
    assert not frame["feasible"].any()
    assert frame["reason"][0].startswith("core has no room")
    assert "256.8 GB of memory a device, has 16 GB" in frame["reason"][2]
    assert "(500 here) that divides system.devices=512" in frame["reason"][3]
    assert frame["reason"][4].startswith("chip.area=1.128")


def test_a_whole_grid_of_bad_points():
    frame = fastflow.evaluate("chip=v100", "model.dtype=bf16", "model.batch=512,1024")
    assert frame["time_s"].isna().all()
    assert frame["reason"].str.contains("fp16, fp32").all()


def test_workloads_and_layers_may_differ_within_a_grid():
    frame = fastflow.evaluate("model=gemm,lstm_lm", "model.training=true,false")
    assert frame["time_s"].notna().all()
    assert frame["model"].tolist() == ["gemm", "gemm", "lstm_lm", "lstm_lm"]
    layers = fastflow.evaluate("model.layers=3,1,2")["flop"]
    assert layers[0] - layers[2] == pytest.approx(layers[2] - layers[1])


def test_predict_gemm_is_vectorised():
    together = fastflow.predict_gemm([1, 512, 4096], 1024, [64, 64, 11008], chip="v100", batch=[1, 2, 3])
    alone = [
        fastflow.predict_gemm(m, 1024, n, chip="v100", batch=b)
        for m, n, b in ((1, 64, 1), (512, 64, 2), (4096, 11008, 3))
    ]
    assert together.tolist() == [float(time) for time in alone]
    assert fastflow.predict_gemm(64, 64, 64).shape == ()


def test_predict_gemm_agrees_with_a_point():
    frame = fastflow.evaluate("model=gemm", "chip=a100", "model.m=96", "model.k=4096", "model.n=640")
    assert fastflow.predict_gemm(96, 4096, 640) == frame["time_s"][0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"m": 0}, "model.m=0 is invalid: expected a whole number at least 1"),
        ({"n": [4, 2.5]}, "model.n=2.5"),
        ({"k": [[1, 2], [3, 4]]}, "one-dimensional"),
        ({"chip": "v101"}, "expected one of a10, a100"),
        ({"chip": "v100", "dtype": "bf16"}, "fp16, fp32"),
    ],
)
def test_predict_gemm_refuses(change, says):
    with pytest.raises(fastflow.InputError, match=says):
        fastflow.predict_gemm(**({"m": 8, "k": 8, "n": 8} | change))


def test_bandwidth_and_time_of_the_v100_are_those_of_its_pins():
    frame = fastflow.evaluate("model=gemm", "chip=v100", "model.m=8192", "model.k=8192", "model.n=8192")
    assert frame["compute_flops"][0] == pytest.approx(125e12, rel=0.01)
    assert frame["dram_Bps"][0] == 900e9
    # cuBLAS reaches 85 to 105 TFLOP/s on such a product (shared measurements, V100 at fp16)
    assert 2 * 8192.0**3 / frame["time_s"][0] == pytest.approx(95e12, rel=0.15)


def test_the_docs_show_the_registry():
    page = (library_root() / "docs" / "columns.md").read_text(encoding="utf-8")
    assert page.rstrip("\n") == markdown()


def test_numbers_do_not_depend_on_the_batch():
    """A point's values are the same to the bit alone and among others."""
    together = fastflow.evaluate("tech=n12,n3", "model.batch=4096,16384", "parallel.strategy=d512,CR-8-d64")
    alone = fastflow.evaluate("tech=n3", "model.batch=4096", "parallel.strategy=CR-8-d64")
    numbers = alone.select_dtypes("number").columns.drop("point")
    np.testing.assert_array_equal(together[numbers].iloc[5], alone[numbers].iloc[0])


def test_a_real_chip_is_made_in_its_own_technology():
    frame = fastflow.evaluate("chip=v100", "model=gemm", "tech=n12,n3")
    assert frame["time_s"].notna().tolist() == [True, False]
    assert frame["reason"][1].startswith("tech.name=N3 is invalid: expected N12")
    generated = fastflow.evaluate("chip=v100", "model=gemm", "tech=n12,n3", "chip.pinned=null")
    assert generated["time_s"][1] < generated["time_s"][0]


def test_fp32_of_the_real_chips():
    frame = fastflow.evaluate("chip=v100,a100", "model=gemm", "model.dtype=fp32")
    # NVIDIA's whitepapers: 15.7 and 19.5 TFLOP/s
    assert frame["compute_flops"].tolist() == pytest.approx([15.7e12, 19.5e12], rel=0.01)


def test_brute_force_agrees():
    """The search that a user doubts, and every result that he sees but how many tilings it took."""
    asked = ("tech=n7,n1", "tiling=random", "tiling.samples=4")
    exact, brute = (fastflow.evaluate(*asked, f"tiling.search={how}") for how in ("exact", "brute"))
    assert (exact["candidates"] < brute["candidates"]).all()
    assert exact.drop(columns="candidates").equals(brute.drop(columns="candidates"))


@pytest.mark.parametrize(
    ("axis", "worst"),
    [
        ("chip.tdp=100 W,150 W,200 W,250 W,300 W,400 W", 1.0),
        ("chip.area.l2=0.04,0.08,0.12,0.16,0.2,0.24", 1.06),
    ],
)
def test_a_larger_budget_makes_no_slower_chip(axis, worst):
    """Up to what a cache gives up in bandwidth, a quarter of its power at most, for capacity."""
    times = fastflow.evaluate("tech=n7", axis)["time_s"].to_numpy()
    assert (times[1:] <= worst * times[:-1]).all(), times


# --- single operations, beside whole points


ALONE = {
    "gemm": (fastflow.predict_gemm, {"m": 100, "k": 4096, "n": 512, "batch": 3}),
    "attention": (
        fastflow.predict_attention,
        {"batch": 2, "q_len": 300, "kv_len": 900, "heads": 8, "kv_heads": 2, "head_dim": 64, "window": 100},
    ),
    "experts": (
        fastflow.predict_experts,
        {"tokens": 77, "hidden": 1024, "ffn": 512, "experts": 16, "topk": 3, "tp": 2, "ep": 4,
         "power_law": 1.2},
    ),
}  # fmt: skip


@pytest.mark.parametrize("model", ALONE)
@pytest.mark.parametrize(("chip", "dtype"), [("a100", "bf16"), ("h100_sxm", "fp8"), ("b200_sxm", "bf16")])
def test_single_operations_take_what_their_point_takes(model, chip, dtype):
    """As an array, and as a point of its own with a schedule."""
    function, sizes = ALONE[model]
    longer = {key: [value, 2 * value if key != "power_law" else value] for key, value in sizes.items()}
    times = function(**longer, chip=chip, dtype=dtype)
    for place, time in enumerate(times):
        given = [f"model.{key}={values[place]}" for key, values in longer.items()]
        row = fastflow.evaluate(f"model={model}", f"chip={chip}", f"model.dtype={dtype}", *given)
        assert row["reason"].iloc[0] == ""
        assert time == pytest.approx(row["time_s"].iloc[0], rel=1e-12)


def test_attention_of_few_queries_over_a_cache_is_decoded():
    sizes = {"batch": 4, "kv_len": 4096, "heads": 8, "kv_heads": 1, "chip": "h100_sxm"}
    few = [fastflow.predict_attention(q_len=1, phase=phase, **sizes) for phase in (None, "decode", "prefill")]
    assert few[0] == few[1] != few[2]
    many = [fastflow.predict_attention(q_len=64, phase=phase, **sizes) for phase in (None, "prefill")]
    assert many[0] == many[1]
    narrow = fastflow.predict_attention(q_len=1, kv_dtype="fp8", **sizes)
    assert narrow < few[0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"q_len": 0}, "model.q_len=0 is invalid: expected a whole number at least 1"),
        ({"window": -1}, "model.window=-1 is invalid"),
        ({"kv_heads": 3}, "model.kv_heads=3 is invalid: expected a divisor of model.heads, 4"),
        ({"phase": "training"}, "phase=training is invalid: expected prefill, decode, or None"),
        ({"kv_dtype": "fp7"}, "precision.cache=fp7"),
        ({"heads": [[1]]}, "expected a number or a one-dimensional array"),
    ],
)  # fmt: skip
def test_mistakes_in_attention_are_one_line(given, said):
    sizes = {"batch": 1, "q_len": 16, "kv_len": 16, "heads": 4, "kv_heads": 4} | given
    with pytest.raises(fastflow.InputError, match=said):
        fastflow.predict_attention(**sizes)


def test_experts_that_are_not_there_are_chosen_by_nobody():
    with pytest.raises(fastflow.InputError, match=r"model\.topk=9 .* at most the 8 of model\.experts"):
        fastflow.predict_experts(64, 512, 256, 8, 9)
    row = fastflow.evaluate("model=experts", "model.experts=8", "model.ep=8,16")
    assert (row["reason"] == "").tolist() == [True, False]
