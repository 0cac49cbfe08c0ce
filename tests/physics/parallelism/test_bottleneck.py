"""Parts of a pipelined iteration are those of the stage that sets the pace, kernel by kernel."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fastflow
from fastflow.core import units
from fastflow.engine.run.stage_imbalance import uneven_stages
from fastflow.performance import results
from fastflow.physics.parallelism.defaults import copies_embedding
from fastflow.physics.parallelism.options import SCHEDULES
from fastflow.physics.parallelism.virtual_stages import layer_kinds, recomputed
from fastflow.physics.schedule.layer_times import GRADIENTS, WAITS, WEIGHTS
from fastflow.physics.schedule.overlap import MAX_TAKEN
from fastflow.physics.workload import layer_order
from fastflow.physics.workload.graph import COLLECTIVES, EMBEDDING, HIDDEN, PARTS, PRODUCTS
from fastflow.schema.results import EXPOSED
from tests.naive import stage_walk
from tests.naive.stacks import deal
from tests.support.checks import cases

ORDERS = ("gpipe", "1f1b", "interleaved", "zero_bubble", "zb_2p", "zb_v", "dualpipe_v")
SMALL = ("model.hidden=1024", "model.heads=16", "model.ffn=2048", "model.sequence=1024", "model.batch=32")
MODELS = {
    "dense": ("model=transformer", *SMALL),
    "mixture": ("model=mixtral_8x7b", *SMALL, "model.kv_heads=4", "model.expert_ffn=2048"),
    "latent": ("model=deepseek_v3", *SMALL, "model.pattern='dense, 7*experts'", "model.experts=16"),
    "tied": ("model=transformer", "model.tied=true", *SMALL),
}
STRATEGIES = (
    "TP-1-d4-p2", "TP-2-d2-p2", "TP-1-p8", "TP-1-d2-p4", "TP-2-p4", "TP-1-c2-p4", "TP-1-d2-p2x2",
    "TP-1-d4-p2x4", "TP-2-p4x2", "TP-2-c2-p2", "TP-1-e2-d2-p4", "TP-2-e2-d2-p2x2", "TP-2-d4", "TP-1-d1-p8",
)  # fmt: skip
CHOICES = {
    "model.vocabulary": ("1000", "32000", "256000"),
    "model.layers": ("6", "8", "14"),
    "parallel.schedule": SCHEDULES,
    "parallel.pipeline_partition": ("even", "balanced"),
    "parallel.recompute": ("none", "selective", "full", "1", "mlp+layernorm", "moe", "mla_up_proj+moe_act"),
    "parallel.zero_stage": ("0", "1", "2", "3"),
    "model.fused_attention": ("true", "false"),
    "parallel.host_launch_time": ("'0 s'", "'10 us'", "'1 ms'"),
    **{
        f"parallel.overlap.{name}": ("true", "false")
        for name in ("tensor", "context", "expert", "data", "pipeline")
    },
}


@st.composite
def points(draw):
    """Arguments of one point, of a pipeline in most cases."""
    chosen = [f"{key}={draw(st.sampled_from(some))}" for key, some in CHOICES.items()]
    return (
        *MODELS[draw(st.sampled_from(list(MODELS)))], "chip=h100_sxm", "system=dgx_h100", "system.devices=8",
        f"parallel.strategy={draw(st.sampled_from(STRATEGIES))}", *chosen,
    )  # fmt: skip


def walked(prediction):
    """Return what the oracle needs of one point."""
    graph, inputs, chunks = prediction.graph, prediction.inputs, prediction.pipeline.chunks
    waits, took = prediction.communication.waits, prediction.communication.exchanges
    hides = {
        name: bool(inputs[f"parallel.overlap.{name}"][0]) for name in ("tensor", "context", "expert", "data")
    }
    rows = []
    for i in range(graph.point.size):
        rows.append({
            "time": float(prediction.timing.time[i]), "repeat": int(graph.launches.repeat[i]),
            "part": PARTS[graph.layer.part[i]], "side": bool(graph.comm.side[i]),
            "waits": waits.time[:, i].tolist(), "level": int(waits.level[i]),
            "reader": int(graph.comm.wait[i]),
            "collective": COLLECTIVES[waits.collective[i]], "ranks": int(waits.ranks[i]),
            "product": graph.kind[i] in PRODUCTS, "modules": max(int(graph.memory.modules[i]), 0),
            "sum": 0.0 if waits.time[GRADIENTS, i] > 0.0 else float(took.gradient_s[i]),
            "sends": graph.comm.sent_cols[i] > 0, "send": float(took.send_s[i]),
        })  # fmt: skip
    kind, _ = layer_kinds(graph)
    layers = [
        {phase: [] for phase in range(3)} | {"hidden": one == HIDDEN, "table": one == EMBEDDING}
        for one in kind
    ]
    before = None
    for i, row in enumerate(rows):
        row["nexts"] = rows[i:]
        here = int(graph.layer.number[i]), int(graph.phase[i])
        runs = layers[here[0]][here[1]]
        if here != before:
            runs.append([])
        runs[-1].append(row)
        before = here
    order, stages = layer_order(inputs).layer.tolist(), int(prediction.pipeline.stages[0])
    virtual = chunks.offset[1] - chunks.offset[0]
    if inputs["parallel.pipeline_partition"][0] == "balanced" and stages > 1:
        ends = np.cumsum(chunks.layer_counts.reshape(virtual, -1).sum(axis=1))
        places = [range(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    else:
        hidden = [kind[layer] == HIDDEN for layer in order]
        before, count = hidden.index(True), sum(hidden)
        places = deal(before, count, len(order) - before - count, stages, int(virtual) // stages)
    again, modules = recomputed(inputs["parallel.recompute"])
    return {
        "virtual": [[layers[order[place]] for place in some] for some in places], "again": int(again[0]),
        "modules": int(modules[0]), "launch": float(inputs["parallel.host_launch_time"][0]),
        "copied": bool(copies_embedding(inputs)[0]), "stages": stages,
        "chunks": int(virtual) // stages, "microbatches": int(prediction.pipeline.microbatches[0]),
        "order": ORDERS[prediction.pipeline.order[0]], "hides": hides,
        "taken": min(float(inputs["parallel.overlap.bundles"][0] / prediction.chip.bundles[0]), MAX_TAKEN),
        "overlaps_sends": bool(inputs["parallel.overlap.pipeline"][0]), "overlaps_gradients": hides["data"],
        "overlaps_gathers": hides["data"],
    }  # fmt: skip


def check(prediction):
    """Compare the columns of a point with a walk kernel by kernel."""
    assume(prediction.reason.at(0) is None)
    got = {name: column[0] for name, column in results.summary(prediction).items()}
    total, stages, slowest, idle = stage_walk.run(walked(prediction))
    assert got["time_s"] == pytest.approx(total, rel=1e-9)
    assert (got["bottleneck_stage"] is np.ma.masked) == (len(stages) == 1)
    if len(stages) > 1:
        found = int(got["bottleneck_stage"])
        assert found == slowest or stages[found].work == pytest.approx(stages[slowest].work, rel=1e-12)
    own = stages[slowest]
    for name in (*PARTS, "optimizer"):
        assert got[f"{name}_s"] == pytest.approx(own.parts[name], rel=1e-9, abs=1e-12 * total), name
    assert got["compute_s"] == pytest.approx(sum(own.parts.values()), rel=1e-9)
    assert got["host_exposed_s"] == pytest.approx(own.host, rel=1e-9, abs=1e-9 * total)
    assert got["recompute_s"] == pytest.approx(own.again, rel=1e-9, abs=1e-12 * total)
    for kind, name in enumerate(WAITS[:WEIGHTS]):
        assert got[EXPOSED[name]] == pytest.approx(own.waits[kind], rel=1e-9, abs=1e-12 * total), name
    assert got["bubble_s"] == pytest.approx(idle, rel=1e-9, abs=1e-9 * total)
    assert got["compute_s"] + got["exposed_comm_s"] + got["bubble_s"] == pytest.approx(total, rel=1e-9)
    named = sum(value for name, value in got.items() if name in EXPOSED.values())
    assert named == pytest.approx(got["exposed_comm_s"], abs=1e-9 * total)
    assert abs(got["joint_exposed_s"]) < 0.01 * total  # sends may hide sums, and gathers sends


@given(points())
@cases(6)
def test_parts_are_those_of_a_walk_kernel_by_kernel(compose, predict, arguments):
    check(predict([compose(*arguments)]))


@pytest.mark.long
@given(points())
@cases(400)
def test_parts_are_those_of_a_walk_kernel_by_kernel_at_many_points(compose, predict, arguments):
    check(predict([compose(*arguments)]))


EXAMPLES = {
    "llama3_8b": (("system.devices=64", "parallel.strategy=TP-1-d8-p8"), (128256, 16032), 0.3),
    "deepseek_v3": (
        ("system.devices=1344", "parallel.strategy=TP-1-e64-d64-p21", "model.batch=8192"),
        (129280, 64640), 0.1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("model", EXAMPLES)
def test_a_part_that_gets_smaller_saves_what_it_took(compose, summary, model):
    """A smaller vocabulary, where the stage with the head sets the pace before and after."""
    given, vocabularies, least = EXAMPLES[model]
    every = [
        compose(f"model={model}", "system=superpod_h100", *given, f"model.vocabulary={one}")
        for one in vocabularies
    ]
    got = summary(every)
    last = int(given[1].rpartition("p")[2]) - 1
    assert got["bottleneck_stage"].tolist() == [last, last]
    saved, took = -np.diff(got["time_s"])[0], -np.diff(got["lm_head_s"])[0]
    assert saved == pytest.approx(took, rel=0.03)
    assert saved > least * got["time_s"][0]


def test_a_stage_that_is_not_the_last_has_no_head(compose, summary):
    """Balanced stages: the one that sets the pace has layers alone."""
    asked = ("model=llama3_8b", "system=superpod_h100", *EXAMPLES["llama3_8b"][0])
    even, balanced = (
        summary([compose(*asked, f"parallel.pipeline_partition={split}")]) for split in ("even", "balanced")
    )
    assert 0 < balanced["bottleneck_stage"][0] < 7
    assert balanced["lm_head_s"][0] == 0.0 < even["lm_head_s"][0]
    assert balanced["time_s"][0] < 0.8 * even["time_s"][0]


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_networks_kernel_by_kernel(compose, predict, schedule):
    """An LSTM has a row for each kernel of each layer: the longest stage's are its parts."""
    point = compose(
        "system.devices=16", "parallel.strategy=d4-p4", f"parallel.schedule={schedule}", "model.hidden=1024"
    )
    prediction = predict([point])
    got = {name: column[0] for name, column in results.summary(prediction).items()}
    every, own = results.explain(prediction, 0), results.explain(prediction, 0, of_stage=True)
    of_stage = np.bincount(every["stage"], every["time_s"])
    assert got["bottleneck_stage"] == of_stage.argmax()
    assert set(own["stage"]) == {of_stage.argmax()}
    assert own["time_s"].sum() == pytest.approx(of_stage.max())
    assert got["compute_s"] == pytest.approx(of_stage.max())
    for name in ("compute", "dram"):
        assert got[f"{name}_bound_frac"] == pytest.approx(
            own["time_s"][own["bound_by"] == name].sum() / of_stage.max()
        )
    assert got["compute_s"] + got["exposed_comm_s"] + got["bubble_s"] == pytest.approx(got["time_s"])


def test_kernels_of_the_stage_are_its_parts(compose, predict):
    prediction = predict([compose("model=llama3_8b", "system=superpod_h100", *EXAMPLES["llama3_8b"][0])])
    got, own = results.summary(prediction), results.explain(prediction, 0, of_stage=True)
    assert own["time_s"].sum() == pytest.approx(got["compute_s"][0])
    head = np.isin(
        own["kernel"], [name for name in own["kernel"] if name.startswith(("logits", "loss", "head norm"))]
    )
    in_update = own["phase"] == "update"
    assert own["time_s"][head & ~in_update].sum() == pytest.approx(got["lm_head_s"][0])
    assert own["time_s"][in_update].sum() == pytest.approx(got["optimizer_s"][0])
    assert not any(name.startswith("embedding") for name in own["kernel"])


UNEVEN = ("model=llama3_8b", "system=superpod_h100", "system.devices=64")


@pytest.mark.parametrize("strategy", ["TP-1-d8-p8", "TP-2-d8-p4x2"])
def test_what_is_said_of_unequal_stages_is_right_when_followed(compose, predict, strategy):
    asked = (*UNEVEN, f"parallel.strategy={strategy}")
    prediction = predict([compose("model=llama3_8b", "system=superpod_h100"), compose(*asked)])
    said = uneven_stages(prediction, 1)
    even, balanced = fastflow.evaluate(*asked, "parallel.pipeline_partition=even,balanced")["time_s"]
    assert said.startswith(f"stage {prediction.bottleneck.stage[1]} takes 1.")
    gain = f"{units.show(balanced, 's')}, {1 - balanced / even:.0%} less"
    assert said.endswith(f";\nparallel.pipeline_partition=balanced takes {gain}")
    works = stage_walk.run(walked(predict([compose(*asked)])))[1]
    most, *others = sorted((stage.work for stage in works), reverse=True)
    assert f"takes {most / np.mean(others):.1f} times" in said


@pytest.mark.parametrize(
    "more",
    [
        ("parallel.strategy=TP-1-d64",),
        ("parallel.strategy=TP-1-d8-p8", "parallel.pipeline_partition=balanced"),
        ("parallel.strategy=TP-1-d8-p8", "model.vocabulary=1000"),  # even as it is
        ("parallel.strategy=TP-1-d2-p32", "model.vocabulary=4000000"),  # the head alone takes longest
    ],
)
def test_nothing_is_said_where_nothing_helps(compose, predict, more):
    assert uneven_stages(predict([compose(*UNEVEN, *more)]), 0) == ""
