"""Images of requests: tokens and passes of the vision tower in prefill, its memory, and what is refused."""

from functools import cache

import numpy as np
import pytest

import fastflow
from tests.naive import encoder as naive
from tests.support.checks import refusal
from tests.support.transformers import overrides

SMALL = (
    "model=transformer", "model.layers=4", "model.hidden=1024", "model.heads=8", "model.kv_heads=8",
    "model.vocabulary=8000", "model.dtype=bf16",
)  # fmt: skip
VISION = {
    "layers": 6, "hidden": 512, "heads": 8, "ffn": 2048, "patch": 14, "merge": 2, "projector": "2048, 1024",
}  # fmt: skip
TOWER = overrides(VISION, "model.vision.")
ONE = ("chip=h100_sxm", "system=dgx_h100", "system.devices=1", "parallel.strategy=TP-1", "server=vllm")
TWO = ("chip=h100_sxm", "system=dgx_h100", "system.devices=2", "server=vllm")
QUICK = "server.eager_launch_time='0 s'"  # else launches of the language model's kernels hide a tower
LOAD = (QUICK, "serve=continuous", "serve.isl=500", "serve.osl=50", "serve.concurrency=8")


@cache
def row(*changed):
    """The results of one point."""
    return fastflow.evaluate(*SMALL, *changed).iloc[0]


def tokens_of(height, width):
    """The tokens of an image of the small tower, by hand."""
    return naive.image_of(height, width, VISION | {"image_size": 0, "tiles": 0, "image_tokens": 0})[2]


def test_no_images_leave_every_result_as_it_is():
    plain, towered = row(*ONE, *LOAD), row(*ONE, *LOAD, *TOWER)
    names = [name for name in plain.index if name not in ("parameters", "typical_error")]
    assert [name for name in names if plain[name] != towered[name] and plain[name] == plain[name]] == []
    assert "encode_s" not in plain.index or plain.encode_s != plain.encode_s


@pytest.mark.parametrize("size", ["448", "300x1000"])
@pytest.mark.parametrize("images", [1, 3])
def test_a_pass_over_a_prompt_is_that_of_its_tokens_and_the_tower(images, size):
    height, *width = map(int, size.split("x"))
    tokens = images * tokens_of(height, (width or [height])[0])
    run = (*ONE, *TOWER, "serve=prefill", "serve.batch=1")
    made = row(*run, "serve.isl=500", f"serve.images={images}", f"serve.image_size={size}")
    text = row(*run, f"serve.isl={500 + tokens}")
    assert made.image_tokens == tokens
    assert made.ttft_s == pytest.approx(text.ttft_s + made.encode_s, rel=1e-9)
    assert made.energy_J > text.energy_J
    assert made.kv_B == text.kv_B


def test_the_pass_of_a_tower_is_that_of_an_encoder_alone():
    made = row(*ONE, *TOWER, "serve=prefill", "serve.images=2", "serve.image_size=448")
    names = {"merge": 2, "projector": "2048, 1024", "patch": 14, "heads": 8, "hidden": 512, "layers": 6,
             "ffn": 2048, "batch": 2, "sequence": 1024, "input": "patches", "segments": 0, "positions": 0,
             "vocabulary": 1, "tied": False, "block": "pre", "embedding_norm": False, "output": "projector",
             "training": False, "dtype": "bf16"}  # fmt: skip
    alone = fastflow.evaluate("model=encoder", *ONE[:-1], *overrides(names), "parallel.microbatches=1").iloc[
        0
    ]
    assert made.encode_s == pytest.approx(alone.time_s, rel=1e-9)


def test_the_weights_of_a_tower_are_in_the_memory_of_its_server():
    text, made = row(*ONE, *TOWER, *LOAD), row(*ONE, *TOWER, *LOAD, "serve.images=1")
    # of products and tables; vectors are not counted, as in a language model's
    layer = 4 * 512 * 512 + 2 * 512 * 2048
    weights = 6 * layer + 588 * 512 + 2048 * 2048 + 2048 * 1024
    assert made.weight_B - text.weight_B == pytest.approx(2.0 * (weights + made_positions()), rel=1e-6)
    assert text.kv_cache_capacity_B - made.kv_cache_capacity_B == pytest.approx(
        made.weight_B - text.weight_B, rel=1e-6
    )


def made_positions():
    """Weights of the learned vectors of an image's positions: as many as the image of 1024 pixels has."""
    patches = naive.image_of(1024, 1024, VISION | {"image_size": 0, "tiles": 0, "image_tokens": 0})[1]
    return patches * 512


@pytest.mark.parametrize("simulate", ["true", "false"])
def test_requests_with_images_wait_longer(simulate):
    run = (*ONE, *TOWER, *LOAD, f"serve.simulate={simulate}", "serve.length_range_ratio=0")
    some = [row(*run, f"serve.images={images}", "serve.image_size=448") for images in (0, 1, 4)]
    assert np.all(np.diff([one.ttft_s for one in some]) > 0.0)
    assert np.all(np.diff([one.requests_per_s for one in some]) < 0.0)
    alone = row(*ONE, *TOWER, QUICK, "serve=continuous", f"serve.simulate={simulate}", "serve.isl=500",
                "serve.osl=50", "serve.concurrency=1", "serve.images=4", "serve.image_size=448",
                "serve.length_range_ratio=0")  # fmt: skip
    text = row(*ONE, *TOWER, QUICK, "serve=continuous", f"serve.simulate={simulate}", "serve.osl=50",
               f"serve.isl={500 + 4 * tokens_of(448, 448)}", "serve.concurrency=1",
               "serve.length_range_ratio=0")  # fmt: skip
    assert alone.ttft_s - text.ttft_s == pytest.approx(alone.encode_s, rel=0.02)


def test_a_chunk_has_its_share_of_the_tower():
    run = (*ONE, *TOWER, QUICK, "serve=continuous", "serve.osl=10", "serve.concurrency=1",
           "serve.simulate=true", "serve.length_range_ratio=0",
           "server.max_num_batched_tokens=512")  # fmt: skip
    made = row(*run, "serve.isl=500", "serve.images=4", "serve.image_size=448")
    text = row(*run, f"serve.isl={500 + 4 * tokens_of(448, 448)}")
    assert made.ttft_s - text.ttft_s == pytest.approx(made.encode_s, rel=0.02)


def test_images_in_the_prefix_cache_need_no_pass():
    run = (*ONE, *TOWER, QUICK, "serve=continuous", "serve.osl=10", "serve.concurrency=1",
           "serve.simulate=true", "serve.length_range_ratio=0",
           "serve.images=4", "serve.isl=500")  # fmt: skip
    whole, half = row(*run), row(*run, "serve.prefix_cache_hit_rate=0.5")
    assert whole.encode_s == half.encode_s  # of all images
    assert half.ttft_s < whole.ttft_s - 0.4 * whole.encode_s


def test_tensor_parallelism_splits_weights_or_images():
    run = (*TWO, *TOWER, "parallel.strategy=TP-2", *LOAD, "serve.images=4")
    weights, data = (row(*run, f"server.mm_encoder_tp_mode={mode}") for mode in ("weights", "data"))
    text = row(*TWO, *TOWER, "parallel.strategy=TP-2", *LOAD)
    alone = row(*ONE, *TOWER, *LOAD, "serve.images=2")
    assert data.encode_s == pytest.approx(alone.encode_s, rel=1e-9)  # two images on each device
    assert weights.encode_s != data.encode_s
    assert data.weight_B - text.weight_B > 1.5 * (weights.weight_B - text.weight_B)


def test_a_single_image_is_on_one_device():
    run = (*TWO, *TOWER, "parallel.strategy=TP-2", *LOAD, "server.mm_encoder_tp_mode=data")
    one, two = (row(*run, f"serve.images={images}") for images in (1, 2))
    assert one.encode_s == two.encode_s


def test_a_server_that_only_decodes_has_no_tower():
    run = (*TWO, *TOWER, "serve=disaggregated", "serve.isl=500", "serve.osl=50", "serve.concurrency=8",
           "serve.prefill.devices=1", "parallel.strategy=TP-1")  # fmt: skip
    text, made = row(*run), row(*run, "serve.images=2")
    assert made.weight_B == text.weight_B  # of devices that decode
    assert made.ttft_s > text.ttft_s + made.encode_s > text.ttft_s


def test_stages_of_a_pipeline_have_the_tower_on_the_first():
    run = (*TWO, *TOWER, "parallel.strategy=TP-1-d1-p2", *LOAD)
    text, made = row(*run), row(*run, "serve.images=4")
    assert made.weight_B > text.weight_B
    assert made.ttft_s > text.ttft_s


def test_a_grid_has_points_with_and_without_images():
    grid = fastflow.evaluate(*SMALL, *ONE, *TOWER, *LOAD, "serve.images=0,1,2", "serve.image_size=448,896")
    assert (grid.reason == "").all()
    alone = [row(*ONE, *TOWER, *LOAD, f"serve.images={images}", f"serve.image_size={size}")
             for images in (0, 1, 2) for size in (448, 896)]  # fmt: skip
    assert grid.ttft_s.tolist() == [one.ttft_s for one in alone]
    assert grid.encode_s.iloc[2:].tolist() == [one.encode_s for one in alone[2:]]


def test_attention_ranks_that_share_experts_have_towers():
    """A point's passes are its model's, with experts of the tokens of all ranks."""
    experts = ("model.pattern=experts", "model.experts=8", "model.expert_ffn=512")
    ranks = (*TWO, "parallel.strategy=TP-1-e2-d2", *experts, *TOWER, *LOAD, "serve.simulate=true")
    grid = fastflow.evaluate(*SMALL, *ranks, "serve.images=0,1,2", "model.topk=2,4")
    assert (grid.reason == "").all()
    alone = [row(*ranks, f"serve.images={n}", f"model.topk={k}") for n in (0, 1, 2) for k in (2, 4)]
    assert grid.tpot_s.tolist() == [one.tpot_s for one in alone]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ((), "serve.images=1 is invalid: expected 0, since the model has no vision tower"),
        ((*TOWER, "serve.image_size=big"), "serve.image_size=big is invalid: expected pixels of a side"),
        ((*TOWER, "model.vision.patch=0"), "model.vision.patch=0 is invalid: expected at least 1"),
        ((*TOWER, "model.vision.hidden=500"), "model.vision.heads=8 is invalid"),
        ((*TOWER, "model.vision.heads=1", "system.devices=2", "parallel.strategy=TP-2"),
         "server.mm_encoder_tp_mode=weights is invalid: expected data, since the 1 heads"),
        ((*TOWER, "model.positions=600"), "the 600 tokens of model.positions"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(changed, message):
    assert message in refusal(*SMALL, *ONE, *LOAD, "serve.images=1", *changed)
