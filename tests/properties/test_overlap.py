"""What hides takes no longer than what is waited for: every switch of `parallel.overlap`, of all models."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.physics.parallelism.options import SCHEDULES
from fastflow.physics.parallelism.plans import NAMES
from fastflow.schema import INPUTS
from tests.physics.parallelism.test_virtual_stages import TOWER
from tests.support.checks import cases

SWITCHES = [
    column.name for column in INPUTS if column.name.startswith("parallel.overlap.") and column.kind == "bool"
]
ROUNDING = 1 + 1e-9
SMALL = ("model.layers=8", "model.hidden=1024", "model.heads=16", "model.vocabulary=32000", "model.ffn=2048")
LM = ("model=lstm_lm", "model.hidden=1024", "model.vocabulary=5000", "model.sequence=4", "model.layers=4")
STACKED = {
    "dense": ("model=transformer", *SMALL),
    "mixture": ("model=mixtral_8x7b", *SMALL, "model.kv_heads=4", "model.expert_ffn=2048"),
    "latent": ("model=deepseek_v3", "model.layers=8", "model.pattern='dense, 7*experts'"),
}
STRATEGIES = {
    "": ("d8", "d2-p4", "d4-p2"),
    "RC": ("RC-2-2-d2", "RC-1-2-d2-p2"),
    "CR": ("CR-4-d2", "CR-2-p4"),
    "TP": (
        "TP-8", "TP-4-d2", "TP-2-c2-d2", "TP-1-c8", "TP-1-p8", "TP-2-d2-p2x2", "TP-1-c2-d2-p2x4",
        "TP-1-c2-p4", "TP-2-d1-p4x2", "TP-1-e8-d8", "TP-2-e2-d2-p2x2", "TP-1-c2-e4-d4",
    ),
    "2D": ("2D-2-4", "2D-2-2-d2"),
    "3D": ("3D-2-2-2",),
}  # fmt: skip
MACHINES = (
    ("chip=h100_sxm", "system=dgx_h100"), ("chip=a100", "system=cluster"),
    ("chip=v100", "system=dgx_v100", "model.dtype=fp16"), ("chip=pathfinding", "system=torus"),
)  # fmt: skip
CHOICES = {
    "model.sequence": ("256", "4096", "32768"),
    "parallel.microbatches": ("0", "1", "4", "16"),
    "parallel.zero_stage": ("0", "1", "2", "3"),
    "parallel.grad_reduce": ("auto", "microbatch", "step"),
    "parallel.reshard_after_forward": ("true", "false"),
    "parallel.recompute": ("none", "selective", "full", "1"),
    "parallel.schedule": SCHEDULES,
    "parallel.pipeline_partition": ("even", "balanced"),
    "parallel.offload": ("none", "optimizer", "activations"),
    "parallel.cp_comm_type": ("p2p", "a2a"),
    "parallel.sequence_parallel": ("auto", "false"),
    "parallel.expert_tensor_parallel": ("true", "false"),
    "model.fused_attention": ("true", "false"),
}


def test_every_notation_is_tried():
    assert set(STRATEGIES) == set(NAMES)


@st.composite
def points(draw):
    """Arguments of a transformer's points, which differ in their strategies."""
    model, machine = draw(st.sampled_from(list(STACKED))), draw(st.sampled_from(MACHINES))
    strategies = [draw(st.sampled_from(some)) for some in STRATEGIES.values()]
    strategies += draw(st.lists(st.sampled_from(STRATEGIES["TP"]), min_size=3, max_size=3))
    chosen = [f"{key}={draw(st.sampled_from(some))}" for key, some in CHOICES.items()]
    joined = ",".join(dict.fromkeys(strategies))
    return (
        *STACKED[model],
        *machine,
        "system.devices=8",
        "model.batch=64",
        f"parallel.strategy={joined}",
        *chosen,
    )


def times(arguments, **axes):
    """Return the times of points that have one, (strategies, values of the first axis, of the second...)."""
    grid = [f"{key.replace('__', '.')}={','.join(values)}" for key, values in axes.items()]
    found = fastflow.evaluate(*arguments, *grid)["time_s"].to_numpy()
    found = found.reshape(-1, *map(len, axes.values()))
    return found[~np.isnan(found).reshape(len(found), -1).any(axis=1)]


def check_switches(arguments, bundles):
    """Compare points that differ in one switch; returns how many there were."""
    axes = dict.fromkeys(SWITCHES, ("true", "false"))
    found = times((*arguments, f"parallel.overlap.bundles={bundles}"), **axes)
    for axis in range(1, found.ndim):
        hidden, shown = np.moveaxis(found, axis, 0)
        assert (hidden <= shown * ROUNDING).all(), SWITCHES[axis - 1]
    return found.size


def check_bundles(arguments, switch):
    taken = ("0", "1", "8", "16", "60", "1000")
    axes = {switch: ("true", "false"), "parallel.overlap.bundles": taken}
    found = times((*arguments, *(f"{one}=true" for one in SWITCHES if one != switch)), **axes)
    assert (found[..., :-1] <= found[..., 1:] * ROUNDING).all()


some_bundles = st.sampled_from(("0", "4", "16", "40", "1000"))


@pytest.mark.long
@given(points(), some_bundles, st.sampled_from(SWITCHES))
@cases(3)
def test_hiding_is_never_slower_than_showing(arguments, bundles, switch):
    check_switches(arguments, bundles)
    check_bundles(arguments, switch)


@pytest.mark.long
@given(points(), some_bundles, st.sampled_from(SWITCHES))
@cases(150)
def test_hiding_is_never_slower_than_showing_at_many_points(arguments, bundles, switch):
    check_switches(arguments, bundles)
    check_bundles(arguments, switch)


@pytest.mark.parametrize("name", STACKED)
def test_points_have_times(name):
    """So that the property above is of something."""
    strategies = ",".join(STRATEGIES["TP"])
    arguments = (
        *STACKED[name],
        *MACHINES[0],
        "system.devices=8",
        "model.batch=64",
        f"parallel.strategy={strategies}",
    )
    assert check_switches(arguments, "16") >= 8 * 2 ** len(SWITCHES)


@pytest.mark.parametrize("attention", ["true", "false"])
def test_keys_and_values_hide_behind_long_sequences(attention):
    """Of Llama 3 70B on 64 GPUs: only the part of attention beside an exchange has fewer bundles."""
    hidden, shown = fastflow.evaluate(
        "model=llama3_70b", "system=superpod_h100", "system.devices=64", "model.sequence=131072",
        "model.batch=16", "parallel.strategy=TP-4-c8-d2", f"model.fused_attention={attention}",
        "parallel.overlap.context=true,false",
    )["time_s"]  # fmt: skip
    assert hidden < shown


@pytest.mark.parametrize("strategy", ["d8", "RC-2-2-d2", "CR-4-d2", "CR-2-d2-p2", "CR-2-p4", "d2-p4"])
@pytest.mark.parametrize("model", ["lstm", "graph"])
def test_models_of_kernels_overlap_in_their_schedule(tmp_path, model, strategy):
    """The switches are of transformers; here a device may run several kernels at once, or in turn."""
    path = tmp_path / "tower.yaml"
    path.write_text(TOWER)
    own = ("model=graph", f"model.file={path}") if model == "graph" else (*LM, "model.batch=256")
    arguments = (*own, "chip=a100", "system=cluster", "system.devices=8", f"parallel.strategy={strategy}")
    if strategy == "d8":
        check_switches(arguments, "16")
    for schedule in ("gpipe", "1f1b"):
        table = (*arguments, f"parallel.schedule={schedule}", "parallel.microbatches=4")
        serial, *others = times(table, parallel__concurrent_kernels=("1", "2", "3", "8"))[0]
        assert max(others) <= serial * ROUNDING


def test_kernels_that_delay_others_run_one_after_the_other():
    """Graham's anomaly: with more slots a kernel starts sooner that the next stage does not wait for."""
    arguments = (
        "model=lstm_lm", "model.hidden=4096", "model.batch=1024", "model.vocabulary=5000", "model.sequence=3",
        "model.layers=4", "chip=pathfinding", "system=torus", "system.devices=8", "parallel.strategy=d2-p4",
        "parallel.schedule=gpipe", "parallel.microbatches=4", "parallel.zero_stage=3",
    )  # fmt: skip
    serial, several = times(arguments, parallel__concurrent_kernels=("1", "4"))[0]
    assert several == serial
