"""Sums over the kernels of a pass: shared experts beside routed ones, and what a host launches."""

import numpy as np
import pytest

import fastflow
from fastflow.performance.crossflow import predict
from fastflow.performance.serving.passes.kernel_sums import read_prediction
from fastflow.physics.timing.roofline import limiter_names
from fastflow.physics.workload.ops.recurrence.rules import RULES
from fastflow.schema.servers import BESIDE_TOKENS

MIXTURE = (
    "model=transformer", "model.layers=3", "model.hidden=1024", "model.heads=8", "model.pattern=experts",
    "model.experts=32", "model.topk=4", "model.expert_ffn=512", "model.shared_ffn=512",
    "model.vocabulary=8000", "chip=h100_sxm", "system=dgx_h100",
)  # fmt: skip


def read_part(compose, tokens, beside):
    """Return the prediction of a pass over tokens, and its table; beside: tokens at which experts do so."""
    inputs = {key: np.array([value]) for key, value in compose(*MIXTURE, "model.dtype=bf16").items()}
    inputs |= {
        name: np.array([value]) for name, value in (
            ("model.name", "served_pass"), ("model.pass", "tokens"), ("model.before", 0),
            ("model.batch", tokens), ("model.sequence", 1), ("model.expert_rows", 0),
            ("model.sampler", "none"), ("model.expert_kernels", "cutlass"), ("model.training", False),
            ("system.devices", 1),
            ("system.package.devices", 1), ("parallel.strategy", "TP-1"), ("parallel.microbatches", 1),
            ("parallel.sequence_parallel", False), (BESIDE_TOKENS, beside),
        )
    }  # fmt: skip
    result = predict(inputs)
    assert result.reason.at(0) is None
    parts = np.zeros(result.graph.kind.size, dtype=np.int64)
    return result, read_prediction(result, inputs, parts, 1).part


@pytest.mark.parametrize(("tokens", "beside"), [(64, 0), (64, 63), (64, 64), (2048, 8192)])
def test_shared_experts_beside_routed_ones_take_what_they_move_and_compute(compose, tokens, beside):
    result, part = read_part(compose, tokens, beside)
    graph, timing, seconds, experts, launches = result.graph, result.timing, 0.0, 0.0, 0
    dram = limiter_names(len(result.chip.levels)).index("dram")
    for i in range(graph.kind.size):
        label, count = str(graph.names[graph.label[i]]), result.pipeline.launches[i]
        took = timing.time[i]
        if label.startswith("shared") and tokens <= beside:
            took = min(took, max(timing.times[i, dram], timing.flop[i] / result.peaks.kernels[i]))
        seconds, launches = seconds + count * took, launches + count
        if label in ("router", "route", "dispatch", "gate and up", "gate", "down", "combine"):
            experts += count * took
    assert part.time[0] == pytest.approx(seconds, rel=1e-9)
    assert part.experts[0] == pytest.approx(experts, rel=1e-12)
    assert part.launches[0] == launches
    assert part.by.sum() == pytest.approx(part.time[0], rel=1e-9)


def launched(*overrides):
    """Return how many kernels and collectives a host launches for a prompt, from the time that it takes."""
    alone = ("serve=continuous", "serve.concurrency=1", "serve.isl=128", "serve.osl=4", "serve.simulate=true")
    slow = ("server=sglang", "server.eager_launch_time=10ms,20ms", "chip=h100_sxm", "system=dgx_h100")
    return round(np.diff(fastflow.evaluate(*alone, *slow, *overrides)["ttft_s"])[0] / 0.01)


def test_a_host_launches_collectives_too():
    """Two sums in each of 32 layers, and one of the embedding; the head is captured."""
    alone, both = (
        launched("model=llama3_8b", f"system.devices={n}", f"parallel.strategy=TP-{n}") for n in (1, 2)
    )
    assert both - alone == 2 * 32 + 1


def test_a_host_launches_all_kernels_of_a_recurrence():
    """Its layer launches 20 others and two sums; a layer with attention launches 24."""
    few, many = (
        launched("model=qwen3_next_80b", "system.devices=4", "parallel.strategy=TP-4", f"model.layers={n}")
        for n in (4, 8)
    )
    kernels = len(RULES["gated_delta"].kernels)
    assert kernels == 6
    assert many - few == 3 * (kernels + 22) + 24
