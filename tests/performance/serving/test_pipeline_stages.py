"""Pipeline stages of servers: the partition of layers, the bottleneck stage, the memory of the fullest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.performance.serving.passes.step_time import Pipeline, stall_time
from fastflow.performance.serving.pipeline_stages import even_layers
from tests.naive import served_stages as naive
from tests.support.checks import cases

SERVER = (
    "serve=decode", "model=llama3_8b", "chip=h100_sxm", "system=dgx_h100", "server=ideal", "serve.isl=512",
    "serve.osl=64", "engine.jobs=1",
)  # fmt: skip
EXTRA = ("first", "before_last", "last")


@given(st.integers(1, 200), st.integers(1, 64), st.sampled_from(EXTRA))
def test_layers_are_partitioned_as_servers_do(layers, stages, extra):
    stages = min(layers, stages)
    assert list(even_layers(layers, stages, extra)) == naive.split(layers, stages, extra)


@pytest.mark.parametrize(("server", "want"), [("vllm", (31, 30)), ("sglang", (30, 31)), ("trtllm", (31, 30))])
def test_61_layers_in_two_stages(compose, server, want):
    """vLLM and SGLang, get_pp_indices; TensorRT-LLM, Mapping.pp_layers."""
    point = compose("serve=decode", "model=deepseek_v3", f"server={server}")
    assert even_layers(point["model.layers"], 2, point["server.extra_layers"]) == want


@cases(60)
@given(
    st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5), st.integers(1, 5), st.floats(0.0, 1.0),
)  # fmt: skip
def test_a_pass_takes_as_long_as_batches_that_go_round(stages, batches, head):
    batches = min(batches, len(stages))
    layers = sum(stages)
    last = stages[-1] / layers
    widest = max([stage / layers for stage in stages[:-1]], default=0.0)
    pass_s = layers + head + stall_time(Pipeline(float(batches), widest, last), layers, head)
    assert pass_s == pytest.approx(naive.round_s([*stages[:-1], stages[-1] + head], batches), rel=1e-6)


def of_stages(*more):
    return fastflow.evaluate(*SERVER, *more)


@pytest.mark.parametrize("split", ["even", "balanced"])
@pytest.mark.parametrize("batch", [3, 96])
def test_a_pass_waits_for_the_slowest_stage(split, batch):
    """A layer's time, and that of embedding and head, follow from models of fewer layers and words."""
    layers, stages = 11, 3
    single = f"serve.batch={batch // stages}"
    small = of_stages(single, "system.devices=1", "parallel.strategy=TP-1", "model.layers=4,8").time_s
    layer = (small[1] - small[0]) / 4
    ends = small[0] - 4 * layer
    results = of_stages(
        f"serve.batch={batch}", f"model.layers={layers}", "system.devices=3", "parallel.strategy=TP-1-p3",
        f"parallel.pipeline_partition={split}",
    )  # fmt: skip
    if split == "balanced":
        slowest = naive.balanced_s(stages, [layer] * layers, 0.0, ends)
    else:
        slowest = max(naive.stages_s(naive.split(layers, stages, "before_last"), [layer] * layers, 0.0, ends))
    assert results.reason[0] == ""
    assert results.time_s[0] == pytest.approx(stages * slowest, rel=0.02)
    # a batch runs through all stages once, and waits for the slowest stage the rest of the time
    waits = stages * slowest - layers * layer - ends
    assert results.pipeline_stall_s[0] == pytest.approx(waits, abs=0.02 * results.time_s[0])


def test_the_fullest_stage_sets_the_room():
    """Eleven layers in three stages: the second has most layers, the last has the head."""

    def weights(*more):
        return of_stages("serve.batch=3", *more).iloc[0]

    small, large = (
        weights("system.devices=1", "parallel.strategy=TP-1", f"model.layers={layers}") for layers in (4, 8)
    )
    layer = (large.weight_B - small.weight_B) / 4
    ends = small.weight_B - 4 * layer
    stages = weights("system.devices=3", "parallel.strategy=TP-1-p3", "model.layers=11")
    assert naive.split(11, 3, "before_last") == [4, 4, 3]
    assert stages.weight_B == pytest.approx(4 * layer + ends / 2)
    assert stages.kv_token_B == pytest.approx(small.kv_token_B)
    last = weights(
        "system.devices=3", "parallel.strategy=TP-1-p3", "model.layers=11", "server.extra_layers=last"
    )
    assert last.weight_B == pytest.approx(4 * layer + ends / 2)


def test_balanced_stages_are_never_slower():
    results = fastflow.evaluate(
        *SERVER, "serve.batch=1,64", "model.layers=5,8,13", "system.devices=4",
        "parallel.strategy=TP-1-p4,TP-2-p2", "parallel.pipeline_partition=even,balanced",
        "model.vocabulary=1000,128256",
        "server.extra_layers=first,before_last,last",
    )  # fmt: skip
    assert (results.reason == "").all()
    index = [
        name for name in results if name.startswith(("serve.", "server.", "model.")) or name == "strategy"
    ]
    even_, balanced = (
        results[results["parallel.pipeline_partition"] == split].reset_index()
        for split in ("even", "balanced")
    )
    assert (even_[index] == balanced[index]).all(axis=None)
    assert (balanced.tpot_s <= even_.tpot_s * (1 + 1e-9)).all()
    assert (balanced.tpot_s < even_.tpot_s * 0.99).any()


def test_no_more_stages_than_layers():
    results = of_stages("serve.batch=8", "model.layers=2", "system.devices=8", "parallel.strategy=TP-1-p8")
    assert "at most 2 pipeline stages, one for each layer of the model" in results.reason[0]


def test_a_lone_batch_does_not_wait_for_other_stages():
    """Its pass is that of one device and what goes from stage to stage."""
    more = ("serve.batch=1", "model.layers=11", "server.extra_layers=last")
    one = of_stages(*more, "system.devices=1", "parallel.strategy=TP-1").time_s[0]
    two = of_stages(*more, "system.devices=2", "parallel.strategy=TP-1-p2")
    assert one < two.time_s[0] < one * 1.02 + 1e-4
    assert two.pipeline_stall_s[0] == 0.0


def test_simulation_and_analytic_form_agree_on_stages():
    results = fastflow.evaluate(
        *SERVER, "serve=continuous", "serve.concurrency=64", "model.layers=13", "system.devices=4",
        "parallel.strategy=TP-1-p4", "serve.simulate=true,false", "serve.isl=128", "serve.osl=512",
    )  # fmt: skip
    assert results.tpot_s[0] == pytest.approx(results.tpot_s[1], rel=0.02)
    assert np.isfinite(results.ttft_s).all()


@pytest.mark.parametrize("strategy", ["TP-2", "TP-2-p2"])
def test_layers_without_attention_may_be_the_last(strategy):
    """In passes of attention alone they have no kernels; their place changes no time of a token."""
    base = ("model=transformer", *SERVER[:1], *SERVER[2:], f"parallel.strategy={strategy}", "model.layers=8")
    first, last = (
        fastflow.evaluate(*base, f"model.pattern='{pattern}'")
        for pattern in ("2*no_mixer dense, 2*dense", "2*dense, 2*no_mixer dense(ffn=11008)")
    )
    assert first.tpot_s[0] == pytest.approx(last.tpot_s[0], rel=0.05)
    assert first.parameters[0] == last.parameters[0]
