"""What a process occupies beside tensors: part by part, and that a layout has to fit what is offered."""

import numpy as np
import pytest

import fastflow
from fastflow.physics.parallelism.memory.process import count_communicators, offered, process_of

GB, GIB = 1e9, 2.0**30
POINT = ("model=llama3_8b", "system=dgx_h100", "system.devices=8", "model.batch=8")


def run(*overrides):
    return fastflow.evaluate(*POINT, *overrides).iloc[0]


def inputs(**columns):
    return {name.replace("__", "."): np.array([value]) for name, value in columns.items()}


def test_a_device_is_in_a_group_for_each_dimension_of_several_devices():
    degrees = np.array([
        [[1, 1, 2, 1, 1, 4, 1], [1, 1, 2, 1, 1, 4, 1]],
        [[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]],
        [[2, 1, 1, 1, 1, 4, 2], [1, 4, 1, 1, 1, 2, 2]],  # embedding and hidden layers differ
    ])  # fmt: skip
    assert count_communicators(degrees).tolist() == [2, 0, 4]
    assert count_communicators(degrees[:0]).tolist() == []


@pytest.mark.parametrize(("library", "buffers"), [("nccl", 3 * 7.0), ("none", 0.0)])
def test_only_nccl_has_buffers(library, buffers):
    given = inputs(
        memory__context=1.0, memory__communicator=3.5, memory__groups=2, memory__workspace=2.0,
        memory__fragmentation=0.5, system__library=library,
    )  # fmt: skip
    process = process_of(given, np.array([3]))
    assert [float(column[0]) for column in process] == [1.0, buffers, 2.0, 0.5]


def test_a_reserve_and_what_a_driver_keeps_are_not_offered():
    given = inputs(memory__reserve=0.1, chip__dram_offered=0.99)
    assert offered(given, np.array([100.0]))[0] == pytest.approx(100.0 * 0.99 * 0.9)
    assert offered(inputs(memory__reserve=0.0), np.array([100.0]))[0] == 100.0


@pytest.mark.parametrize("strategy", ["d8", "TP-2-d4", "TP-2-d2-p2", "TP-8"])
def test_the_parts_of_a_device_are_all_of_it(strategy):
    row = run(f"parallel.strategy={strategy}")
    tensors = sum(row[f"{name}_B"] for name in ("weight", "gradient", "optimizer", "activation", "buffer"))
    assert row["allocated_B"] == pytest.approx(tensors + row["workspace_B"])
    assert row["reserved_B"] == pytest.approx(row["allocated_B"] + row["fragment_B"])
    assert row["footprint_B"] == pytest.approx(row["reserved_B"] + row["context_B"] + row["communicator_B"])
    assert row["fragment_B"] == pytest.approx(0.044 * row["allocated_B"])
    assert row["communicator_B"] > 0.0
    bare = run(f"parallel.strategy={strategy}", "memory=tensors")
    assert bare["footprint_B"] == bare["allocated_B"] == pytest.approx(tensors)
    assert bare["context_B"] == bare["communicator_B"] == bare["workspace_B"] == bare["fragment_B"] == 0.0
    assert bare["time_s"] == row["time_s"]


@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize(("strategy", "devices"), [("d8", 1), ("TP-2-d4", 2)])
def test_an_allocator_keeps_the_memory_of_weights_that_are_sharded_later(zero, strategy, devices):
    """Unless tensors of the iteration take it. ZeRO 1 and 2 have all weights of a stage in any case."""
    frame = fastflow.evaluate(
        *POINT, f"parallel.strategy={strategy}", f"parallel.zero_stage={zero}", "parallel.recompute=full",
        "parallel.zero_init=true,false", "model.vocabulary=1000", "memory.fragmentation=0",
        "parallel.offload=optimizer",
    )  # fmt: skip
    sharded, whole = frame.to_dict("records")
    weights = 2 * sharded["parameters"] / devices  # in 16 bits; devices: with the same ones
    assert whole["allocated_B"] == sharded["allocated_B"] == sharded["reserved_B"]
    assert whole["reserved_B"] == pytest.approx(max(whole["allocated_B"], weights), rel=0.02)
    assert (whole["reserved_B"] > whole["allocated_B"]) == (zero == 3)


def test_a_layout_fits_what_is_offered_and_no_more():
    row = run("parallel.strategy=d8")
    just = f"chip.pinned.dram_capacity_B='{row['footprint_B'] / 0.9898 * (1 + 1e-9)} B'"
    short = f"chip.pinned.dram_capacity_B='{row['footprint_B'] / 0.9898 * (1 - 1e-6)} B'"
    assert run("parallel.strategy=d8", just)["feasible"]
    without = run("parallel.strategy=d8", short)
    assert not without["feasible"]
    assert without["footprint_B"] < without["dram_capacity_B"]  # the rest is the driver's
    assert "of memory a device" in without["reason"]
    assert not run("parallel.strategy=d8", just, "memory.reserve=0.01")["feasible"]


@pytest.mark.parametrize(
    ("devices", "batch"),
    [(8, 64), *(pytest.param(*one, marks=pytest.mark.long) for one in ((32, 256), (64, 64)))],
)
def test_no_recommended_layout_is_above_what_a_device_offers(devices, batch):
    rows = fastflow.evaluate(
        "model=llama3_8b,llama2_13b,qwen3_14b", "system=superpod_h100", f"system.devices={devices}",
        f"model.batch={batch}", "framework=megatron_core,fsdp", "parallel.strategy=auto",
    )  # fmt: skip
    fits = rows[rows["feasible"]]
    assert len(fits) >= 4
    assert (fits["footprint_B"] <= fits["dram_offered_B"]).all()
    assert (fits["dram_offered_B"] < fits["dram_capacity_B"]).all()
    for _, row in rows[~rows["feasible"]].iterrows():
        assert row["footprint_B"] > row["dram_offered_B"]
