"""Training with images: a vision tower in the iteration, trained or frozen."""

from functools import cache

import numpy as np
import pytest

import fastflow
from fastflow.physics import workload
from fastflow.physics.workload.graph import BACKWARD, FORWARD, FROZEN, TRAINED, UPDATE
from fastflow.physics.workload.models.transformer.encoder.vision import PREFIX
from tests.naive import encoder as naive
from tests.physics.workload.models.transformer.encoder.test_vision import tower
from tests.support.checks import refusal
from tests.support.transformers import precision

VISION = {
    "layers": 3, "hidden": 512, "heads": 8, "ffn": 2048, "patch": 16, "merge": 2, "projector": "'2048, 1024'",
    "position": "rotary", "images": 2, "image_pixels": 256,
}  # fmt: skip
TEXT = (
    "model=transformer", "model.layers=4", "model.hidden=1024", "model.heads=8", "model.vocabulary=8000",
    "model.batch=16", "model.sequence=512", "chip=h100_sxm", "system=dgx_h100",
)  # fmt: skip
TOWER = tuple(f"{PREFIX}{key}={value}" for key, value in VISION.items())
STRATEGIES = ["TP-1-d8", "TP-8-d1", "TP-2-d4", "TP-2-c2-d2", "TP-2-d2-p2"]
# the tower as the count by hand takes it: 16 x 16 patches an image, of 16 sequences with two images each
BY_HAND = {
    "batch": 32, "layers": 3, "heads": 8, "head_dim": 64, "hidden": 512, "ffn": 2048, "sequence": 256,
    "class_tokens": 0, "window": 0, "causal": False, "gated": False, "biased": True, "input": "patches",
    "patch": 16, "channels": 3, "temporal_patch": 1, "output": "projector", "merge": 2, "mergers": 0,
    "pooled": False, "projector": (2048, 1024),
}  # fmt: skip


@cache
def row(strategy, *overrides):
    """The results of one iteration on eight devices."""
    run = (*TEXT, "system.devices=8", f"parallel.strategy={strategy}", *overrides)
    made = fastflow.evaluate(*run).iloc[0]
    assert made.reason == ""
    return made


def weights_by_hand():
    """The weights of the products of the tower, which memory counts."""
    per_layer = sum(inner * cols for inner, cols, _ in naive.layer_shapes(BY_HAND))
    return 3 * per_layer + 16 * 16 * 3 * 512 + sum(
        inner * cols for inner, cols, _ in naive.projector_shapes(BY_HAND)
    )  # fmt: skip


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_tower_adds_its_operations(strategy):
    text = row(strategy, *TOWER, f"{PREFIX}images=0")
    trained, frozen = row(strategy, *TOWER), row(strategy, *TOWER, f"{PREFIX}frozen=true")
    forward = naive.forward_flop(BY_HAND)
    assert frozen.flop - text.flop == pytest.approx(forward, rel=0.01)  # passes have operations too
    first = BY_HAND["batch"] * 256 * 2 * 16 * 16 * 3 * 512  # whose input needs no gradient
    attention = 3 * BY_HAND["batch"] * 256 * 256 * 4 * 512  # backward, five products for two
    assert trained.flop - text.flop == pytest.approx(3.0 * forward - first + 0.5 * attention, rel=0.02)
    assert text.time_s < frozen.time_s < trained.time_s
    assert text.forward_s < min(frozen.forward_s, trained.forward_s)
    assert frozen.backward_s < trained.backward_s
    assert text.parameters == trained.parameters == frozen.parameters


def test_a_frozen_tower_has_weights_alone():
    text = row("TP-1-d8", *TOWER, f"{PREFIX}images=0")
    trained, frozen = row("TP-1-d8", *TOWER), row("TP-1-d8", *TOWER, f"{PREFIX}frozen=true")
    weights = weights_by_hand()
    assert frozen.weight_B - text.weight_B == 2.0 * weights
    assert frozen.gradient_B == text.gradient_B
    assert frozen.optimizer_B == text.optimizer_B
    assert trained.gradient_B > text.gradient_B
    assert trained.optimizer_B > text.optimizer_B
    assert text.activation_B == frozen.activation_B < trained.activation_B


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_devices_do_not_shard_frozen_weights(zero):
    run = ("TP-1-d8", f"parallel.zero_stage={zero}", *TOWER, f"{PREFIX}frozen=true")
    assert row(*run).weight_B - row(*run, f"{PREFIX}images=0").weight_B == 2.0 * weights_by_hand()


def test_a_pipeline_has_the_tower_on_its_first_stage():
    few, many = (
        row("TP-1-d4-p2", *TOWER, f"{PREFIX}layers={layers}", "parallel.microbatch=1") for layers in (3, 30)
    )
    assert many.time_s > few.time_s
    per_layer = sum(inner * cols for inner, cols, _ in naive.layer_shapes(BY_HAND))
    assert many.weight_B - few.weight_B >= 2.0 * 27 * per_layer  # of the fullest stage


def test_kernels_of_a_frozen_tower_are_forward_alone():
    sizes = precision(1)
    inputs = tower(images=1, image_pixels="112", frozen=True)
    inputs["model.training"] = np.array([True])
    graph = workload.build_graph(inputs, sizes)
    order = workload.layer_order(inputs)
    count = int(workload.count_layers(inputs)[0])
    assert order.layer.size == count == 32 + 2 + 2 + 2
    assert (np.diff(order.layer) >= 0).all()
    of_tower = (graph.layer.number >= 1) & (graph.layer.number <= 3)  # its input, layers and projector
    owners = graph.memory.weights[of_tower]
    assert {*graph.phase[of_tower].tolist()} == {FORWARD, BACKWARD}  # of places for images' tokens alone
    assert (owners[owners > 0] == FROZEN).all()
    assert (graph.memory.weights[~of_tower] != FROZEN).all()
    assert not (of_tower & (graph.phase == UPDATE)).any()
    saved = graph.memory.saved_cols + graph.memory.saved_whole_cols
    assert not saved[of_tower].any()
    trained = workload.build_graph(inputs | {f"{PREFIX}frozen": np.array([False])}, sizes)
    of_tower = (trained.layer.number >= 1) & (trained.layer.number <= 3)
    assert (trained.memory.weights[of_tower] == TRAINED).any()
    assert (of_tower & (trained.phase == UPDATE)).any()


def test_a_projector_may_be_trained_alone():
    """As in LLaVA's first stage (arXiv:2304.08485): the language model hands gradients on to it."""
    frozen = (f"{PREFIX}frozen=true", f"{PREFIX}frozen_projector=false", f"{PREFIX}frozen_language=true")
    run = ("TP-1-d8", "parallel.zero_stage=0", *TOWER)
    alone, text = row(*run, *frozen), row(*run, f"{PREFIX}images=0")
    inner = [inner * cols for inner, cols, _ in naive.projector_shapes(BY_HAND)]
    assert alone.gradient_B == 2.0 * sum(inner)
    assert alone.optimizer_B == 8.0 * sum(inner)
    without = text.weight_B - text.optimizer_B / 2.0  # without masters
    assert alone.weight_B == without + 2.0 * weights_by_hand() + 4.0 * sum(inner)
    of_text = row("TP-1-d8", *TOWER, "model.lora.rank=1")  # whose base is frozen, too
    assert alone.backward_s < of_text.backward_s
    assert alone.flop > text.flop * 2.0 / 3.0


def test_a_frozen_language_model_is_sharded():
    run = ("TP-1-d8", *TOWER, f"{PREFIX}frozen_language=true")
    whole, shared = row(*run, "parallel.zero_stage=1"), row(*run, "parallel.zero_stage=3")
    assert shared.weight_B < whole.weight_B / 6.0  # masters are sharded in both


def test_all_of_a_tower_may_be_frozen_in_two_ways():
    one = row("TP-2-d4", *TOWER, f"{PREFIX}frozen=true")
    same = row("TP-2-d4", *TOWER, f"{PREFIX}frozen=true", f"{PREFIX}frozen_projector=true")
    assert (one.time_s, one.flop, one.footprint_B) == (same.time_s, same.flop, same.footprint_B)
    more = row("TP-2-d4", *TOWER, f"{PREFIX}frozen=true", f"{PREFIX}frozen_projector=false")
    assert more.gradient_B > one.gradient_B
    assert more.time_s > one.time_s


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_adapters_go_with_a_tower(strategy):
    asked = ("model.lora.rank=4", "model.lora.base_dtype=nf4", f"{PREFIX}frozen=true")
    adapted, whole = row(strategy, *TOWER, *asked), row(strategy, *TOWER)
    assert adapted.footprint_B < whole.footprint_B
    assert adapted.flop < whole.flop


def test_a_grid_mixes_points_with_and_without_images():
    grid = fastflow.evaluate(*TEXT, *TOWER, "system.devices=8", "parallel.strategy=TP-2-d4",
                             f"{PREFIX}images=0,1,2", f"{PREFIX}frozen=true,false")  # fmt: skip
    assert (grid.reason == "").all()
    alone = [
        row("TP-2-d4", *TOWER, f"{PREFIX}images={images}", f"{PREFIX}frozen={frozen}").time_s
        for images in (0, 1, 2)
        for frozen in ("true", "false")
    ]
    assert grid.time_s.tolist() == alone


def test_serving_has_no_images_of_training():
    run = (*TEXT, "serve=prefill", "system.devices=8", "parallel.strategy=TP-8", *TOWER)
    with_images, without = (fastflow.evaluate(*run, f"{PREFIX}images={images}") for images in (2, 0))
    assert with_images.ttft_s.tolist() == without.ttft_s.tolist()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            (f"{PREFIX}images=9",),
            f"{PREFIX}images=9 is invalid: expected so few that their tokens are at most",
        ),
        ((f"{PREFIX}image_pixels=x",), "pixels of a side, such as 1024"),
        ((f"{PREFIX}patch=0",), f"{PREFIX}patch=0 is invalid: expected at least 1"),
        ((f"{PREFIX}hidden=500",), f"{PREFIX}heads=8 is invalid"),
        ((f"{PREFIX}frozen_language=true", f"{PREFIX}frozen=true"), "expected false where the tower and its"),
        ((f"{PREFIX}frozen_language=true", f"{PREFIX}images=0"), "expected false without images"),
        ((f"{PREFIX}frozen_language=true", "model.lora.rank=8"), "expected false with model.lora.rank=8"),
    ],
)
def test_what_is_wrong_is_named(overrides, message):
    run = (*TEXT, "system.devices=8", "parallel.strategy=TP-1-d8", *TOWER, *overrides)
    assert message in refusal(*run)
