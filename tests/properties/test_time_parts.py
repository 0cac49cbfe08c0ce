"""The parts of a point's time add up to it: phases; kernels, waits and bubble; and the kinds of each.

Of every family of models, over strategies and options of pipelines, ZeRO, recomputation and offloading. A
device that runs several kernels at the same time is another matter: there kernels take longer than the time.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.physics.parallelism.options import SCHEDULES
from fastflow.reporting.terminal.training import time_parts, training_sheets
from fastflow.schema.results import EXPOSED
from tests.support.checks import cases

ROUNDING = 1e-9
NETWORKS = {
    "lstm": ("model=lstm_lm", "model.hidden=1024", "model.vocabulary=5000", "model.sequence=4"),
    "dense": ("model=llama3_8b", "model.layers=8"),
    "mixture": ("model=mixtral_8x7b", "model.layers=8"),
    "latent": ("model=deepseek_v3", "model.layers=8", "model.pattern='dense, 7*experts'"),
    "gemm": ("model=gemm", "model.m=4096", "model.k=4096", "model.n=4096"),
}
STRATEGIES = {
    "lstm": ("d8", "d2-p4", "RC-2-2-d2", "CR-2-p4", "RC-1-2-d2-p2"),
    "dense": ("d8", "TP-8", "TP-2-c2-d2", "TP-1-c8", "TP-2-d2-p2x2", "TP-1-c2-p4", "TP-2-p4", "d2-p4"),
    "mixture": ("d8", "TP-8", "TP-1-e4-d8", "TP-2-e2-d2-p2x2", "TP-1-c2-e4-d4", "d2-p4"),
    "latent": ("d8", "TP-4-e8-d2", "TP-2-e2-d2-p2x2", "TP-2-p4", "d2-p4"),
    "gemm": ("d1",),
}
SYSTEMS = ("chip=h100_sxm system=dgx_h100", "tech=n7 mem=hbm3 net=ndr_x8")
OPTIONS = {
    "parallel.microbatches": ("0", "4", "16"),
    "parallel.zero_stage": ("0", "1", "2", "3"),
    "parallel.recompute": ("none", "selective", "full", "mlp+moe", "layernorm+moe_act"),
    "parallel.schedule": SCHEDULES,
    "parallel.pipeline_partition": ("even", "balanced"),
    "parallel.offload": ("none", "optimizer", "activations", "all"),
    "parallel.overlap.data": ("true", "false"),
    "parallel.overlap.pipeline": ("true", "false"),
    "parallel.overlap.tensor": ("true", "false"),
}
KINDS = ("attention", "feed_forward", "experts", "lm_head", "other", "optimizer")
# sums of gradients hide messages between uneven stages here
HIDING = (
    "model=deepseek_v3", "system=superpod_h100", "system.devices=64", "model.batch=128",
    "parallel.strategy=TP-4-d4-p4x2", "parallel.zero_stage=2", "parallel.schedule=gpipe",
        "parallel.pipeline_partition=balanced",
    "parallel.overlap.data=false",
)  # fmt: skip


@st.composite
def points(draw, networks=tuple(NETWORKS)):
    """Arguments of the points of a network, one for each of some strategies."""
    network = draw(st.sampled_from(networks))
    strategies = draw(st.lists(st.sampled_from(STRATEGIES[network]), min_size=1, max_size=4, unique=True))
    options = OPTIONS if network not in ("lstm", "gemm") else {"parallel.microbatches": ("0", "4")}
    chosen = [f"{key}={draw(st.sampled_from(values))}" for key, values in options.items()]
    devices = ("system.devices=8", "model.batch=64") if network != "gemm" else ("system.devices=1",)
    system = draw(st.sampled_from(SYSTEMS)).split()
    return *NETWORKS[network], *system, *devices, f"parallel.strategy={','.join(strategies)}", *chosen


def check(arguments):
    """Compare sums of parts with what they are parts of; returns how many points have a time."""
    frame = fastflow.evaluate(*arguments)
    frame = frame[frame["time_s"].notna()]
    total = frame["time_s"].to_numpy()

    def adds_up(names, whole):
        parts = frame[list(names)].to_numpy(dtype=np.float64)
        np.testing.assert_allclose(
            parts.sum(axis=1), whole, rtol=ROUNDING, atol=ROUNDING * total.max(initial=0.0)
        )

    adds_up(("forward_s", "backward_s", "update_s"), total)
    adds_up(("compute_s", "exposed_comm_s", "bubble_s"), total)
    if "joint_exposed_s" in frame:
        adds_up([f"{kind}_s" for kind in KINDS], frame["compute_s"])
        adds_up(list(EXPOSED.values()), frame["exposed_comm_s"])
        for _, row in frame.iterrows():
            assert sum(dict(time_parts(row)).values()) == pytest.approx(row["time_s"], rel=ROUNDING)
    return len(frame)


@given(points())
@cases(2)
def test_parts_add_up_to_the_time(arguments):
    check(arguments)


@pytest.mark.long
@given(points())
@cases(300)
def test_parts_add_up_to_the_time_of_many_points(arguments):
    check(arguments)


@pytest.mark.parametrize("network", NETWORKS)
def test_every_network_has_points_with_parts(network):
    strategies = ",".join(STRATEGIES[network])
    devices = ("system.devices=8", "model.batch=64") if network != "gemm" else ("system.devices=1",)
    assert check((*NETWORKS[network], *devices, f"parallel.strategy={strategies}")) > 0


def test_waits_that_hide_one_another_are_a_part():
    assert check(HIDING) == 1
    (row,) = fastflow.evaluate(*HIDING).to_dict("records")
    assert row["joint_exposed_s"] > 1e-6 * row["time_s"]


def test_lines_on_the_screen_add_up():
    # the optimizer of this point takes less than a line shows
    point = ("model=llama3_8b", "system=dgx_h100", "system.devices=8", "parallel.strategy=d8")
    (row,) = fastflow.evaluate(*point, "model.batch=512").to_dict("records")
    assert 0 < row["optimizer_s"] < 0.0005 * row["time_s"]
    _, time, _ = training_sheets(row, {})
    first, share = ([str(cell) for cell in time.columns[number].cells] for number in (0, 2))
    shares = [float(text.rstrip("%")) for text in share if text]
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares))
    assert "smaller parts" in first
