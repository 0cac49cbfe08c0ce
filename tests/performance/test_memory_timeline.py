"""The memory of a device over an iteration, against a walk of its schedule and against its footprint."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fastflow
from fastflow.cli.commands.sweep import main
from fastflow.core.errors import InputError
from fastflow.performance.memory_timeline import memory_timeline
from fastflow.physics.parallelism.memory import timeline
from fastflow.physics.parallelism.options import SCHEDULES
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
    workspace = steps[0].bytes.workspace
    for one, (_, _, size) in zip(steps, expected, strict=True):
        assert one.bytes.allocated - workspace == pytest.approx(size, **EXACT)


def check(predict, point):
    """Check that the largest step is what the footprint says, and that steps follow one another."""
    prediction = predict([point])
    assert not prediction.reason.exists.any(), prediction.reason.first()
    found, untimed = (memory_timeline(prediction, 0, with_times) for with_times in (True, False))
    sizes = [one.bytes.allocated for one in found.steps]
    assert max(sizes) == pytest.approx(prediction.footprint.allocated[0], rel=1e-12)
    assert sizes[found.peak] == pytest.approx(max(sizes), rel=1e-12)
    assert found.stage == prediction.footprint.stage[0]
    assert min(one.bytes.activations for one in found.steps) >= 0.0
    is_trained = found.steps[-1].phase == timeline.UPDATE_STEP
    assert found.steps[0].bytes.activations == 0.0
    assert found.steps[-1].bytes.activations == 0.0 or not is_trained
    assert untimed.peak_name == found.peak_name
    if prediction.pipeline_blocks is not None:
        starts, ends = np.array([(one.start, one.end) for one in found.steps]).T
        assert (starts <= ends + 1e-12).all()
        assert (ends[:-1] <= starts[1:] * (1.0 + 1e-9) + 1e-12).all()
        # a stage that updates alone begins later than the first one, and ends later
        late = 0.0 if point["parallel.schedule"] not in ("zb-2p", "zb-v") else starts[1]
        assert ends[-1] / prediction.timeline.total[0] - 1.0 + 1e-6 >= 0.0
        assert ends[-1] - late <= prediction.timeline.total[0] * (1.0 + 1e-6)
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
    "zero bubble, more memory": (*SMALL, "parallel.strategy=TP-1-d2-p4", "parallel.schedule=zb-2p"),
    "folded": (*SMALL, "parallel.strategy=TP-1-d2-p4x2", "parallel.schedule=zb-v"),
    "folded, tied": (*SMALL, "parallel.strategy=TP-1-d2-p4x2", "parallel.schedule=zb-v", "model.tied=true"),
    "both directions": (*SMALL, "parallel.strategy=TP-1-d2-p4", "parallel.schedule=dualpipe"),
    "both directions of two": (*SMALL, "parallel.strategy=TP-1-d4-p2", "parallel.schedule=dualpipe"),
    "larger groups": (*SMALL, "parallel.strategy=TP-1-d2-p4x2", "model.batch=20"),
    "zero bubble, few": (
        *SMALL,
        "parallel.strategy=TP-1-d2-p4",
        "parallel.schedule=zero-bubble",
        "parallel.microbatches=2",
    ),
    "selective": (*SMALL, "parallel.strategy=TP-2-d2-p2", "parallel.recompute=selective"),
    "some layers": (*SMALL, "parallel.strategy=TP-2-d2-p2", "parallel.recompute=2", "parallel.offload=all"),
    "balanced": (*SMALL, "parallel.strategy=TP-1-d2-p4", "parallel.pipeline_partition=balanced"),
    "zero 3": (*SMALL, "parallel.strategy=d8", "parallel.zero_stage=3", "model.loss=chunked"),
    "zero 3, kept": (
        *SMALL,
        "parallel.strategy=d8",
        "parallel.zero_stage=3",
        "parallel.reshard_after_forward=false",
    ),
    "zero 2": (*SMALL, "parallel.strategy=TP-1-d2-p4", "parallel.zero_stage=2", "model.loss=eager"),
    "offload": (*SMALL, "parallel.strategy=d8", "parallel.offload=activations", "parallel.recompute=full"),
    "tied": (*SMALL, "parallel.strategy=TP-1-d2-p4", "model.tied=true"),
    "experts": (*EXPERTS, "parallel.strategy=TP-1-e4-d4-p2"),
    "experts, chunks": (*EXPERTS, "parallel.strategy=TP-1-e2-d4-p2x2", "parallel.pipeline_partition=even"),
    "adapters": (*SMALL, "parallel.strategy=d8", "model.lora.rank=16"),
    "adapters, quantised": (
        *SMALL,
        "parallel.strategy=d8",
        "model.lora.rank=16",
        "model.lora.base_dtype=nf4",
        "parallel.zero_stage=3",
    ),
    "no training": (*SMALL, "parallel.strategy=d8", "model.training=false", "parallel.zero_stage=3"),
    "encoder and decoder": ("model=t5_base", "model.batch=32", *H100, "parallel.strategy=TP-1-d2-p4"),
    "product": ("model=gemm", "chip=a100"),
    "no layer runs, no training": (
        "tech=n7",
        "parallel.strategy=RC-1-16-d16-p2",
        "model.training=false",
        "parallel.microbatches=4",
    ),
    "no layer runs": ("tech=n7", "parallel.strategy=RC-1-16-d32"),
    "no layer runs, stages": ("tech=n7", "parallel.strategy=RC-1-16-d16-p2", "parallel.schedule=gpipe"),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_largest_step_is_the_footprint(compose, predict, case):
    check(predict, compose(*CASES[case]))


@settings(max_examples=60, deadline=None)
@given(
    family=st.sampled_from([SMALL, EXPERTS]),
    layout=st.sampled_from(["d8", "TP-2-d4", "TP-1-d4-p2", "TP-2-c2-d2", "TP-1-d2-p4", "TP-1-d4-p2x2"]),
    zero=st.integers(0, 3),
    recompute=st.sampled_from(["none", "selective", "full", "1", "3", "moe_act+mla_up_proj+mlp"]),
    schedule=st.sampled_from(SCHEDULES),
    loss=st.sampled_from(sorted(footprint.LOGITS)), offload=st.sampled_from(OFFLOADS),
    microbatches=st.sampled_from([0, 2, 4]),
)  # fmt: skip
def test_the_largest_step_of_many_layouts_is_the_footprint(
    compose, predict, family, layout, zero, recompute, schedule, loss, offload, microbatches
):
    point = compose(*family) | {
        "parallel.strategy": layout, "parallel.zero_stage": zero, "parallel.recompute": recompute,
        "parallel.schedule": schedule, "model.loss": loss, "parallel.offload": offload,
        "parallel.microbatches": microbatches,
    }  # fmt: skip
    assume(not predict([point]).reason.exists.any())
    check(predict, point)


ASKED = (*SMALL, "parallel.strategy=TP-2-d2-p2", "parallel.microbatches=4", "parallel.recompute=full")


def test_the_call_returns_a_row_a_step():
    frame, row = fastflow.explain_memory(*ASKED), fastflow.evaluate(*ASKED).iloc[0]
    (peak,) = frame[frame["is_peak"]].itertuples()
    assert peak.allocated_B == frame["allocated_B"].max() == pytest.approx(row["allocated_B"], rel=1e-12)
    assert frame.attrs["peak"] == peak.step
    assert frame.attrs["stage"] == row["peak_memory_stage"]
    for name in ("weight_B", "gradient_B", "optimizer_B", "workspace_B"):
        assert (frame[name] == row[name]).all()
    assert peak.activation_B == pytest.approx(row["activation_B"], rel=1e-12)
    assert peak.recomputed_B + peak.loss_B + peak.buffer_B == pytest.approx(row["buffer_B"], rel=1e-12)
    assert frame.attrs["units"]["start_s"] == "s"
    assert frame.attrs["units"]["loss_B"] == "B"
    assert frame["start_s"].is_monotonic_increasing
    assert frame["end_s"].iloc[-1] == pytest.approx(row["time_s"], rel=1e-6)
    assert (frame["microbatch"] >= -1).all()


@pytest.mark.parametrize(
    ("overrides", "peak"),
    [
        # without buffers, the end of a forward pass has most first
        (("parallel.strategy=TP-1-d8", "parallel.microbatches=1"),
         "forward pass of micro-batch 0, layers 0 to 7"),
        (("parallel.strategy=TP-2-d2-p2", "parallel.recompute=full"),
         "backward pass of micro-batch 0, layers 7 to 4, recomputed"),
        (("parallel.strategy=d8", "model.loss=eager", "model.vocabulary=300000", "parallel.microbatches=1"),
         "loss of micro-batch 0"),
    ],
)  # fmt: skip
def test_the_peak_has_a_name(overrides, peak):
    assert fastflow.explain_memory(*SMALL, *overrides).attrs["peak"] == peak


def test_models_without_layer_runs_have_steps_without_times():
    frame = fastflow.explain_memory("tech=n7", "parallel.strategy=RC-1-16-d32")
    assert frame["start_s"].isna().all()
    row = fastflow.evaluate("tech=n7", "parallel.strategy=RC-1-16-d32").iloc[0]
    assert frame["allocated_B"].max() == pytest.approx(row["allocated_B"], rel=1e-12)


@pytest.mark.parametrize("serve", ["continuous", "decode", "prefill", "disaggregated"])
def test_servers_have_parts_and_caches(serve):
    asked = (f"serve={serve}", "server=vllm", "model=llama3_8b", "system=dgx_h100")
    frame, row = fastflow.explain_memory(*asked), fastflow.evaluate(*asked).iloc[0]
    assert frame["kv_B"].tolist()[:2] == [0.0, row["kv_B"]]
    assert frame["kv_B"].iloc[2] == pytest.approx(row["kv_cache_capacity_B"])
    assert frame["footprint_B"].iloc[1] == pytest.approx(row["footprint_B"])
    parts = [name for name in frame if name.endswith("_B") and name != "footprint_B"]
    assert frame["footprint_B"].tolist() == pytest.approx(frame[parts].sum(axis=1).tolist(), rel=1e-9)
    assert frame["is_peak"].tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["tech=n7,n5"], r"^tech=several values .*expected one: this is of one point"),
        (["chip.area.core=0"], r"^no time can be predicted: core has no room"),
        (["trace=x.json"], r"^trace=x\.json"),
        (
            ["serve=continuous", "server=vllm", "model=llama3_405b", "parallel.strategy=TP-1"],
            r"^no time can be predicted: caches need",
        ),
    ],
)
def test_what_is_no_point_is_refused(overrides, says):
    with pytest.raises(InputError, match=says) as error:
        fastflow.explain_memory(*overrides)
    assert "\n" not in str(error.value)


def test_a_trace_has_counters_of_the_fullest_stage(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    file = tmp_path / "trace.json"
    code, out, err = cli(main, *ASKED, f"trace={file}")
    assert code == 0, err
    events = [event for event in json.loads(file.read_text())["traceEvents"] if event["ph"] == "C"]
    frame = fastflow.explain_memory(*ASKED)
    assert {event["pid"] for event in events} == {frame.attrs["stage"] + 1}
    sizes = pd.Series({event["ts"]: sum(event["args"].values()) for event in events})
    assert sizes.index.is_monotonic_increasing
    assert sizes.max() == pytest.approx(frame["allocated_B"].max(), rel=1e-12)
    assert sizes.iloc[-1] == pytest.approx(frame["allocated_B"].iloc[0], rel=1e-12)
    starts = (1e6 * frame["start_s"]).to_numpy()
    assert np.abs(sizes.index.to_numpy()[:, None] - starts).min(axis=0).max() < 2e-3
    title = next(line for line in out if line.startswith("Memory over an iteration"))
    assert title.rstrip() == f"Memory over an iteration, most in the {frame.attrs['peak']}"
    (peak,) = [line for line in out if "█" in line and line.rstrip().endswith(" peak")]
    assert "▒" in peak


def test_points_without_blocks_draw_no_memory(cli):
    code, out, _ = cli(main, "tech=n7", "parallel.strategy=RC-1-16-d32")
    assert code == 0
    assert not any("over an iteration" in line for line in out)
