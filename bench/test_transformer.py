"""How fast transformers are predicted beside the paper's language model, and what that takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from test_tiling import seconds

from fastflow.core.tables import Inputs, take
from fastflow.performance.crossflow import predict
from fastflow.physics.workload.ops import attention

Points = Callable[..., Inputs]
LAYOUTS = "TP-1-d64,TP-2-d32,TP-4-d16,TP-8-d8,TP-2-c2-d16,TP-2-d16-p2,TP-4-d8-p2,TP-8-d4-p2,TP-4-d4-p4x2"
CUTS = "d512,RC-1-32-d16,CR-8-d64,RC-4-2-d64,CR-8-d16-p4,d128-p4,RC-1-8-d32-p2,RC-2-2-d128,CR-2-d256"
TRANSFORMERS = (
    "model=transformer", "chip=h100_sxm", "system=dgx_h100", "system.devices=64",
    f"parallel.strategy={LAYOUTS}", "model.batch=1024,2048", "parallel.microbatch=1,2",
    "model.layers=32,48,64", "model.hidden=4096,6144,8192", "model.heads=32",
)  # fmt: skip
PAPERS = (
    "tech=n12,n7,n5", "mem=hbm2,hbm3", "model.hidden=8192,16384", "model.batch=8192,16384,32768",
    f"parallel.strategy={CUTS}",
)  # fmt: skip


def test_transformers_against_the_papers_model(benchmark: BenchmarkFixture, points: Points) -> None:
    """324 distinct points of each, predicted in one batch; the same number of layouts of both."""
    one, other = points(*TRANSFORMERS), points(*PAPERS)
    prediction = predict(one)
    assert not prediction.reason.exists.any()
    assert len(next(iter(one.values()))) == len(next(iter(other.values()))) == 324
    stacks = prediction.pipeline_blocks
    assert stacks is not None
    microbatches, virtual = stacks.plan.microbatches, np.diff(stacks.blocks.offset)
    benchmark.extra_info["count:kernels_of_324_transformers"] = int(prediction.graph.offset[-1])
    benchmark.extra_info["count:blocks_of_324_transformers"] = int((2 * virtual * microbatches).sum())
    ours, papers = seconds(lambda: predict(one), lambda: predict(other))
    benchmark.extra_info["ratio:papers_points_over_transformers"] = papers / ours
    benchmark.extra_info["points_per_s"] = 324 / ours
    benchmark.pedantic(predict, (one,), rounds=3)


def test_attention_is_timed_once_a_kind(
    benchmark: BenchmarkFixture, points: Points, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches, micro-batches and depths share their layers: of hidden sizes, micro-batches, TP and
    context parallelism there are 3 x 2 x 5, each forward and backward."""
    timed: list[int] = []

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(device: Any, work: Any) -> Any:
            timed.append(work.q_len.size)
            return function(device, work)

        return counted

    for name in ("time_attention", "time_attention_backward"):
        monkeypatch.setattr(attention, name, counting(getattr(attention, name)))
    inputs = points(*TRANSFORMERS)
    predict(take(dict(inputs), np.arange(324)))
    benchmark.extra_info["count:attentions_timed_of_324_transformers"] = sum(timed)
    benchmark.pedantic(predict, (inputs,), rounds=1)
