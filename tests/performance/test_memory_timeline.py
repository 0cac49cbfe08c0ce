"""The memory of a device over an iteration, against a walk of its schedule and against its footprint."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastflow.performance.memory_timeline import memory_timeline
from fastflow.physics.parallelism.memory import timeline
from fastflow.physics.workload.optimizers import OPTIMIZERS
from tests.naive import footprint
from tests.naive import memory_timeline as naive
from tests.physics.parallelism.memory.test_footprint import (
    AGAIN,
    BATCH,
    LAYOUTS,
    MODEL,
    OFFLOADS,
    SEQUENCE,
    llama,  # noqa: F401, a fixture
)

EXACT = {"rel": 1e-12, "abs": 1e-3}


@settings(max_examples=80, deadline=None)
@given(
    layout=st.sampled_from([*sorted(LAYOUTS), "d1-p6"]), zero=st.integers(0, 3),
    recompute=st.sampled_from(sorted(AGAIN)), offload=st.sampled_from([*OFFLOADS, "weights"]),
    loss=st.sampled_from(sorted(footprint.LOGITS)), microbatches=st.sampled_from([1, 2, 4, 8]),
    schedule=st.sampled_from(["1f1b", "gpipe"]), vocabulary=st.sampled_from([1000, 16384]),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
)  # fmt: skip
def test_the_steps_are_those_of_a_walk(
    llama, predict, layout, zero, recompute, offload, loss, microbatches, schedule, vocabulary, optimizer  # noqa: F811
):  # fmt: skip
    replicas, stages = LAYOUTS.get(layout, (1, 6))
    zero = 3 if offload == "weights" else zero
    model = MODEL._replace(vocabulary=vocabulary)
    tokens = BATCH * SEQUENCE // (replicas * microbatches)
    chunks = {"chunked": 8, "fused": footprint.liger_chunks(model)}.get(loss, 1)
    plan = footprint.Plan(
        tokens, microbatches, stages, replicas, zero, AGAIN[recompute], offload, optimizer, loss=loss,
        chunks=chunks, schedule=schedule,
    )  # fmt: skip
    point = llama | {
        "parallel.strategy": layout, "parallel.zero_stage": zero, "parallel.recompute": recompute,
        "parallel.offload": offload, "parallel.microbatches": microbatches, "parallel.schedule": schedule,
        "system.devices": replicas * stages, "model.loss": loss, "model.vocabulary": vocabulary,
        "model.optimizer": optimizer, "parallel.max_live_parameters": 0.0,
        "parallel.reduce_bucket_size": 0.0,
    }  # fmt: skip
    found = check(predict, point)
    expected = naive.walk(model, plan)
    steps = [one for one in found.steps if one.phase not in (timeline.REDUCTION, timeline.UPDATE_STEP)]
    assert [(one.phase, one.microbatch) for one in steps] == [(name, number) for name, number, _ in expected]
    workspace = steps[0].workspace
    for one, (_, _, size) in zip(steps, expected, strict=True):
        assert one.allocated - workspace == pytest.approx(size, **EXACT)


def check(predict, point):
    """Check that the largest step is what the footprint says, and that steps follow one another."""
    prediction = predict([point])
    assert not prediction.reason.exists.any(), prediction.reason.first()
    found, untimed = (memory_timeline(prediction, 0, with_times) for with_times in (True, False))
    sizes = [one.allocated for one in found.steps]
    assert max(sizes) == pytest.approx(prediction.footprint.allocated[0], rel=1e-12)
    assert sizes[found.peak] == pytest.approx(max(sizes), rel=1e-12)
    assert found.stage == prediction.footprint.stage[0]
    assert min(one.activations for one in found.steps) >= 0.0
    assert found.steps[-1].activations == found.steps[0].activations == 0.0
    assert untimed.peak_name == found.peak_name
    if prediction.pipeline_blocks is not None:
        starts, ends = np.array([(one.start, one.end) for one in found.steps]).T
        assert (starts <= ends + 1e-12).all()
        assert (ends[:-1] <= starts[1:] * (1.0 + 1e-9) + 1e-12).all()
        assert ends[-1] == pytest.approx(prediction.timeline.total[0], rel=1e-6)
    return found


H100 = ("chip=h100_sxm", "system=dgx_h100", "system.devices=8")
SMALL = (
    "model=llama3_8b", "model.layers=8", "model.sequence=512", "model.batch=32", *H100,
)  # fmt: skip
EXPERTS = (
    "model=deepseek_v3", "model.layers=8", "model.sequence=512", "model.batch=32", "model.dtype=bf16", *H100,
)  # fmt: skip
CASES = {
    "dense": (*SMALL, "parallel.strategy=TP-2-d2-p2"),
    "chunks": (*SMALL, "parallel.strategy=TP-1-d2-p4x2"),
    "chunks, few micro-batches": (*SMALL, "parallel.strategy=TP-1-d2-p4x2", "parallel.microbatches=4"),
    "chunks, recomputed": (*SMALL, "parallel.strategy=TP-1-d2-p4x2", "parallel.recompute=full"),
    "chunks, gpipe": (*SMALL, "parallel.strategy=TP-1-d2-p4x2", "parallel.schedule=gpipe"),
    "zero bubble": (*SMALL, "parallel.strategy=TP-1-d2-p4", "parallel.schedule=zero-bubble"),
    "zero bubble, few": (
        *SMALL, "parallel.strategy=TP-1-d2-p4", "parallel.schedule=zero-bubble", "parallel.microbatches=2",
    ),
    "selective": (*SMALL, "parallel.strategy=TP-2-d2-p2", "parallel.recompute=selective"),
    "some layers": (*SMALL, "parallel.strategy=TP-2-d2-p2", "parallel.recompute=2", "parallel.offload=all"),
    "balanced": (*SMALL, "parallel.strategy=TP-1-d2-p4", "parallel.pipeline_partition=balanced"),
    "zero 3": (*SMALL, "parallel.strategy=d8", "parallel.zero_stage=3", "model.loss=chunked"),
    "zero 3, kept": (
        *SMALL, "parallel.strategy=d8", "parallel.zero_stage=3", "parallel.reshard_after_forward=false",
    ),
    "zero 2": (*SMALL, "parallel.strategy=TP-1-d2-p4", "parallel.zero_stage=2", "model.loss=eager"),
    "offload": (*SMALL, "parallel.strategy=d8", "parallel.offload=activations", "parallel.recompute=full"),
    "tied": (*SMALL, "parallel.strategy=TP-1-d2-p4", "model.tied=true"),
    "experts": (*EXPERTS, "parallel.strategy=TP-1-e4-d4-p2"),
    "experts, chunks": (*EXPERTS, "parallel.strategy=TP-1-e2-d4-p2x2", "parallel.pipeline_partition=even"),
    "adapters": (*SMALL, "parallel.strategy=d8", "model.lora.rank=16"),
    "adapters, quantised": (
        *SMALL, "parallel.strategy=d8", "model.lora.rank=16", "model.lora.base_dtype=nf4",
        "parallel.zero_stage=3",
    ),
    "no training": (*SMALL, "parallel.strategy=d8", "model.training=false", "parallel.zero_stage=3"),
    "no layer runs": ("tech=n7", "parallel.strategy=RC-1-16-d32"),
    "no layer runs, stages": ("tech=n7", "parallel.strategy=RC-1-16-d16-p2", "parallel.schedule=gpipe"),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_largest_step_is_the_footprint(compose, predict, case):
    check(predict, compose(*CASES[case]))
