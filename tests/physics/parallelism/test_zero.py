"""ZeRO (Rajbhandari et al., arXiv:1910.02054): what devices with the same weights share, and its cost."""

import numpy as np
import pytest

import fastflow
from fastflow.performance.results import explain
from tests.support.checks import near
from tests.support.networks import MLP, MLP_WEIGHTS

DEVICES = 8


@pytest.fixture(scope="module")
def overrides(tmp_path_factory):
    path = tmp_path_factory.mktemp("zero") / "mlp.yaml"
    path.write_text(MLP, encoding="utf-8")
    return "model=graph", f"model.file={path}", f"system.devices={DEVICES}", "model.optimizer=adam"


@pytest.fixture(scope="module")
def stages(overrides):
    return fastflow.evaluate(*overrides, f"parallel.strategy=d{DEVICES}", "parallel.zero_stage=0,1,2,3")


def test_memory_is_that_of_the_paper(stages):
    """Section 3 and figure 1: 2 + 2 + 12 bytes a weight, of which more and more are shared out."""
    whole, part = np.array([16, 4, 2, 0]), np.array([0, 12, 14, 16])
    expected = MLP_WEIGHTS * (whole + part / DEVICES)
    got = stages["weight_B"] + stages["gradient_B"] + stages["optimizer_B"]
    assert np.allclose(got, expected, rtol=1e-12)
    assert stages["activation_B"].nunique() == 1


def test_a_part_is_made_of_a_whole(stages):
    """Of 512 x 2048 weights there is a gathered copy in stage 3, and a gradient before it is dealt out."""
    assert stages["buffer_B"].tolist() == [0, 0, 2 * 512 * 2048, 4 * 512 * 2048]
    parts = ("weight_B", "gradient_B", "optimizer_B", "activation_B", "buffer_B")
    assert np.allclose(stages["allocated_B"] - stages["workspace_B"], sum(stages[part] for part in parts))


@pytest.mark.parametrize(("stage", "volume"), [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_volume_is_that_of_the_paper(overrides, stage, volume):
    """Section 7: as much as data parallelism up to stage 2, half as much again in stage 3."""
    table = fastflow.explain_sharding(
        *overrides, f"parallel.strategy=d{DEVICES}", f"parallel.zero_stage={stage}"
    )
    moved = 2 if stage == 0 else 1  # an all-reduce is a scatter and a gather
    sums, gathers = table["gradient_B"].sum() * moved, (table["fetch_B"] * table["repeat"]).sum()
    first = 512 * 2048 * 2  # nothing asks for the gradient of the input of the first product
    assert sums + gathers == 2 * MLP_WEIGHTS * volume - (first if stage == 3 else 0)
    said = " ".join(table["exchange"])
    assert ("reduce-scatter" in said) == (stage > 0)
    assert ("all-gather of weights" in said) == (stage > 0)


def test_each_device_updates_its_part(stages):
    """Of the weights that it owns: so the update takes less, but for what gathers them then."""
    assert stages["update_s"][3] < stages["update_s"][0]
    assert stages["time_s"][1] == stages["time_s"][2]


def test_the_breakdown_names_the_gather(overrides, compose, predict):
    point = compose(*overrides, f"parallel.strategy=d{DEVICES}", "parallel.zero_stage=1")
    kernels = explain(predict([point]), 0)
    named = dict(zip(kernels["kernel"], kernels["comm"], strict=True))
    assert named["up update"] == "all-gather"
    assert named["up weight gradient"] == "reduce-scatter"


def test_one_device_shares_nothing(overrides):
    alone = fastflow.evaluate(
        *overrides[:2], "system.devices=1", "parallel.strategy=d1", "parallel.zero_stage=0,1,2,3"
    )
    for name in alone.columns.difference(["point", "parallel.zero_stage"]):
        assert alone[name].nunique(dropna=False) == 1, name


def test_parts_of_what_other_axes_leave(overrides):
    """Devices share the weights that their columns have: RC cuts them too."""
    cut = fastflow.evaluate(*overrides, "parallel.strategy=RC-1-2-d4", "parallel.zero_stage=3").iloc[0]
    assert near(cut["weight_B"] + cut["gradient_B"] + cut["optimizer_B"], 16 * MLP_WEIGHTS / DEVICES)


@pytest.mark.parametrize("value", ["4", "-1", "1.5", "yes"])
def test_what_is_no_stage_is_one_line(overrides, value):
    with pytest.raises(fastflow.InputError, match=r"parallel\.zero_stage=") as error:
        fastflow.evaluate(*overrides, f"parallel.zero_stage={value}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_replicas_have_all_weights_each(overrides, stage):
    """Of 8 devices two and two share: parts are halves, and four devices sum up the same half."""
    given = (*overrides, f"parallel.strategy=d{DEVICES}", f"parallel.zero_stage={stage}")
    (point,) = fastflow.evaluate(*given, "parallel.hybrid_shard_size=2").itertuples()
    whole, part = [(16, 0), (4, 12), (2, 14), (0, 16)][stage]
    assert point.weight_B + point.gradient_B + point.optimizer_B == MLP_WEIGHTS * (whole + part / 2)
    table = fastflow.explain_sharding(*given, "parallel.hybrid_shard_size=2")
    every = fastflow.explain_sharding(*given)
    for name in ("fetch", "gradient"):
        there = table[f"{name}_B"] > 0
        assert (table[f"{name}_B"] == every[f"{name}_B"]).all()
        assert set(table[f"{name}_ranks"][there]) == {2}
    summed = table["replicas_B"] > 0
    assert (summed == (table["gradient_B"] > 0)).all()
    assert set(table["replicas_ranks"][summed]) == {DEVICES // 2}
    assert table["replicas_B"].sum() == 2 * MLP_WEIGHTS / 2
    assert set(table["replicas_group"][summed]) == {"dp"}


def test_a_replica_is_of_neighbours(overrides, compose, predict):
    """In machines of two, gathers and scatters within a replica of two leave none; its sums do."""
    given = (
        *overrides, f"parallel.strategy=d{DEVICES}", "parallel.zero_stage=3", "system=cluster",
        "system.package.devices=2", "system.collective=ring", "parallel.hybrid_shard_size=2",
    )  # fmt: skip
    table = fastflow.explain_sharding(*given)
    inside = (table["fetch_B"] * table["repeat"]).sum() + table["gradient_B"].sum()
    sent = predict([compose(*given)]).communication.sent
    assert near(sent[0][0], inside / 2)
    assert near(sent[1][0], 2 * 3 / 4 * table["gradient_B"].sum() / 2)


def test_replicas_of_one_device_are_data_parallelism(overrides):
    given = (*overrides, f"parallel.strategy=d{DEVICES}", "system=cluster", "system.package.devices=2")
    alone, summed = (
        fastflow.evaluate(*given, *rest).iloc[0]
        for rest in (("parallel.zero_stage=2", "parallel.hybrid_shard_size=1"), ("parallel.zero_stage=0",))
    )
    for name in ("time_s", "comm_s", "weight_B", "gradient_B", "optimizer_B", "activation_B"):
        assert alone[name] == summed[name]


@pytest.mark.parametrize(
    ("strategy", "shards", "reason"),
    [
        ("d8", 3, "0, or a divisor of the 8 devices along dp, cp and ep that cp and ep divide"),
        ("RC-1-2-d4 parallel.embedding=CR-8", 2, "0, where layers have cuts of their own"),
    ],
)
def test_replicas_share_devices_out(overrides, strategy, shards, reason):
    given = (f"parallel.strategy={strategy}").split()
    found = fastflow.evaluate(
        *overrides, *given, "parallel.zero_stage=1", f"parallel.hybrid_shard_size={shards}"
    ).iloc[0]
    assert reason in found["reason"]
    assert not found["feasible"]


def test_more_shards_than_devices_are_all(overrides):
    given = (*overrides, f"parallel.strategy=d{DEVICES}", "parallel.zero_stage=3")
    assert fastflow.evaluate(*given, "parallel.hybrid_shard_size=0,8,64")["time_s"].nunique() == 1
