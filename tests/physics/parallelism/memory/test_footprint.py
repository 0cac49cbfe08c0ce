"""Each part of a device's memory in training, and what lies with the host, against counts by hand."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastflow.performance import results
from fastflow.physics.workload.optimizers import OPTIMIZERS
from tests.naive import footprint as naive

MODEL = naive.Model(hidden=512, heads=8, kv_heads=2, ffn=1024, vocabulary=1000, layers=6)
SEQUENCE, BATCH = 256, 24
COLUMNS = {
    "weights": "weight_B", "gradients": "gradient_B", "optimizer": "optimizer_B",
    "activations": "activation_B", "buffers": "buffer_B", "host": "host_B",
}  # fmt: skip
LAYOUTS = {"d1": (1, 1), "d3": (3, 1), "d1-p2": (1, 2), "d2-p3": (2, 3)}
AGAIN = {"none": 0, "full": MODEL.layers, "1": 1, "2": 2}
OFFLOADS = ("none", "optimizer", "activations", "all")
CHUNKS = ("chunked", "fused")
MICROBATCHES = 4


@pytest.fixture(scope="module")
def llama(compose):
    return compose(
        "model=llama3_8b", "memory=tensors", "precision=mixed", "chip=h100_sxm", "system=dgx_h100",
        "system.package.devices=1",
        f"model.batch={BATCH}", f"model.sequence={SEQUENCE}", f"model.vocabulary={MODEL.vocabulary}",
        f"model.layers={MODEL.layers}", f"model.hidden={MODEL.hidden}", f"model.heads={MODEL.heads}",
        f"model.kv_heads={MODEL.kv_heads}", f"model.ffn={MODEL.ffn}",
    )  # fmt: skip


@pytest.fixture(scope="module")
def cases(llama):
    found = []
    for layout, zero, recompute, offload in product(LAYOUTS, range(4), AGAIN, OFFLOADS):
        replicas, stages = LAYOUTS[layout]
        tokens = BATCH * SEQUENCE // (replicas * MICROBATCHES)
        plan = naive.Plan(tokens, MICROBATCHES, stages, replicas, zero, AGAIN[recompute], offload)
        point = {
            "parallel.strategy": layout, "parallel.zero_stage": zero, "parallel.recompute": recompute,
            "parallel.offload": offload, "parallel.microbatches": MICROBATCHES,
            "system.devices": replicas * stages,
        }  # fmt: skip
        found.append((llama | point, plan))
    return found


def test_each_part_of_the_memory_is_counted_by_hand(cases, predict):
    stages = check(predict, cases)
    assert len(stages) > len({count for count, _ in stages})  # of some pipelines, several stages decide


def check(predict, cases, model=MODEL):
    """Check the memory of points; returns their numbers of stages, and the stages that decide."""
    got = results.summary(predict([point for point, _ in cases]))
    stages = set()
    for i, (_, plan) in enumerate(cases):
        assert got["reason"][i] == "", plan
        stage, expected = naive.fullest(model, plan)
        stages.add((plan.stages, stage))
        assert got["peak_memory_stage"][i] == stage, plan
        for part, column in COLUMNS.items():
            assert got[column][i] == pytest.approx(getattr(expected, part), rel=1e-12, abs=1e-6), (part, plan)
        assert got["footprint_B"][i] == pytest.approx(expected.device, rel=1e-12)
    return stages


@settings(max_examples=60, deadline=None)
@given(
    layout=st.sampled_from(sorted(LAYOUTS)), zero=st.integers(0, 3), recompute=st.sampled_from(sorted(AGAIN)),
    offload=st.sampled_from([*OFFLOADS, "weights"]), optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    state=st.sampled_from(sorted(naive.STATES)), loss=st.sampled_from(sorted(naive.LOGITS)),
    chunks=st.sampled_from([0, 1, 2, 64]), vocabulary=st.sampled_from([1000, 16384, 50000]),
    live=st.sampled_from([0, 10**6, 10**12]), bucket=st.sampled_from([0, 3 * 10**6]),
)  # fmt: skip
def test_optimizers_losses_and_offloads_together(
    llama, predict, layout, zero, recompute, offload, optimizer, state, loss, chunks, vocabulary, live, bucket
):
    if offload == "weights":
        zero = 3
    replicas, stages = LAYOUTS[layout]
    model = MODEL._replace(vocabulary=vocabulary)
    tokens = BATCH * SEQUENCE // (replicas * MICROBATCHES)
    own = {"chunked": 8, "fused": naive.liger_chunks(model)}.get(loss, 1)
    count = own if chunks == 0 or loss not in CHUNKS else chunks
    plan = naive.Plan(
        tokens, MICROBATCHES, stages, replicas, zero, AGAIN[recompute], offload, optimizer, state, loss,
        count, live, bucket,
    )  # fmt: skip
    point = llama | {
        "parallel.strategy": layout, "parallel.zero_stage": zero, "parallel.recompute": recompute,
        "parallel.offload": offload, "parallel.microbatches": MICROBATCHES,
        "system.devices": replicas * stages, "model.optimizer": optimizer, "precision.state": state,
        "model.loss": loss, "model.loss_chunks": chunks, "model.vocabulary": vocabulary,
        "parallel.max_live_parameters": float(live), "parallel.reduce_bucket_size": float(bucket),
    }  # fmt: skip
    check(predict, [(point, plan)], model)
