"""Each part of a device's memory in training, and what lies with the host, against counts by hand."""

from itertools import product

import pytest

from fastflow.performance import results
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
MICROBATCHES = 4


@pytest.fixture(scope="module")
def cases(compose):
    base = compose(
        "model=llama3_8b", "precision=mixed", "chip=h100_sxm", "system=dgx_h100", "system.package.devices=1",
        f"model.batch={BATCH}", f"model.sequence={SEQUENCE}", f"model.vocabulary={MODEL.vocabulary}",
        f"model.layers={MODEL.layers}", f"model.hidden={MODEL.hidden}", f"model.heads={MODEL.heads}",
        f"model.kv_heads={MODEL.kv_heads}", f"model.ffn={MODEL.ffn}",
    )  # fmt: skip
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
        found.append((base | point, plan))
    return found


def test_each_part_of_the_memory_is_counted_by_hand(cases, predict):
    got = results.summary(predict([point for point, _ in cases]))
    stages = set()
    for i, (_, plan) in enumerate(cases):
        assert got["reason"][i] == "", plan
        stage, expected = naive.fullest(MODEL, plan)
        stages.add((plan.stages, stage))
        assert got["peak_memory_stage"][i] == stage, plan
        for part, column in COLUMNS.items():
            assert got[column][i] == pytest.approx(getattr(expected, part), rel=1e-12, abs=1e-6), (part, plan)
        assert got["footprint_B"][i] == pytest.approx(expected.device, rel=1e-12)
    assert len(stages) > len({count for count, _ in stages})  # of some pipelines, several stages decide
