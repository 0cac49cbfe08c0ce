"""Passes of servers whose attention has devices of its own, against whole servers and the definition."""

import numpy as np
import pytest

import fastflow
from fastflow.performance.serving import scenario as scenarios
from fastflow.performance.serving.overlap.hidden import hidden_of
from fastflow.physics.workload.models.transformer.serving_pass import DECODE, HEAD_PART, TOKENS_PART
from tests.naive.attention_pool import pass_s

MODEL = (
    "serve=decode",
    "server=ideal",
    "model=llama3_8b",
    "model.dtype=bf16",
    "system=dgx_h100",
    "serve.context=2048",
)
APART = "serve.attention.devices=2", "serve.attention.strategy=TP-2", "serve.attention.bandwidth=1e30 B/s"
LAYERS = 32


def evaluate(*overrides):
    rows = fastflow.evaluate(*MODEL, *overrides)
    assert rows["reason"].tolist() == [""] * len(rows), rows["reason"].tolist()
    return rows


@pytest.fixture(scope="module")
def whole():
    return evaluate("system.devices=2", "parallel.strategy=TP-2", "serve.batch=256").iloc[0]


@pytest.mark.parametrize("part", ["attention", "operator"])
def test_two_sets_in_turn_take_as_long_as_one(whole, part):
    """Without micro-batches, devices of the same kind only add the latency of two transfers a layer."""
    row = evaluate(
        *APART, "system.devices=4", "parallel.strategy=TP-2", "serve.batch=256",
        f"serve.attention.part={part}", "serve.attention.microbatches=1",
    ).iloc[0]  # fmt: skip
    latency = (row["time_s"] - whole["time_s"]) / (2 * LAYERS)
    assert latency == pytest.approx(fastflow_latency(), rel=1e-6)
    assert row["attention_devices_s"] + row["other_devices_s"] + 2 * LAYERS * latency == pytest.approx(
        row["time_s"]
    )
    assert row["tokens_per_s_per_device"] == pytest.approx(row["tokens_per_s"] / 4)
    # the same kernels, and twice as many devices that wait for each other
    assert whole["energy_J"] < row["energy_J"] < 2.0 * whole["energy_J"]
    weights = row["weight_B"] + row["other_devices_weight_B"]
    assert weights == pytest.approx(whole["weight_B"])
    assert (row["weight_B"] == 0.0) == (part == "operator")


def fastflow_latency():
    """Return the latency inside a package of the system."""
    inputs = []
    kept = scenarios.with_attention_pool
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            scenarios,
            "with_attention_pool",
            lambda columns, *rest: inputs.append(columns) or kept(columns, *rest),
        )
        evaluate(*APART, "system.devices=4", "parallel.strategy=TP-2", "serve.batch=8")
    return float(inputs[0]["net.intra.latency"][0])


@pytest.fixture(scope="module")
def tables():
    """Return the tables that a server with devices of attention of another chip is made of, and its own."""
    taken, kept = [], scenarios.with_attention_pool

    def seen(inputs, layouts, passes, server, power, side):
        result = kept(inputs, layouts, passes, server, power, side)
        taken.append((inputs, layouts, passes, side.passes, result))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenarios, "with_attention_pool", seen)
        evaluate(
            "system.devices=6", "parallel.strategy=TP-2", "serve.batch=256", "serve.attention.devices=4",
            "serve.attention.strategy=TP-1", "serve.attention.chip=h20", "serve.attention.microbatches=3",
        )  # fmt: skip
    return taken[0]


@pytest.mark.parametrize(("requests", "context"), [(1, 64), (2, 4096), (6, 1024), (24, 4096), (96, 16384)])
def test_an_iteration_is_that_of_the_definition(tables, requests, context):
    inputs, _, others, own, result = tables
    axes, passes, row = result.passes.axes, result.passes, int(result.server[0])

    def along(column, sizes, size):
        return float(np.interp(size, sizes, column))

    layers, mine = others.parts[TOKENS_PART], own.parts[TOKENS_PART]
    of = {
        "microbatches": 3, "ranks": 4, "groups": 1, "layers": LAYERS, "bandwidth": 2 * 50e9,
        "latency": float(inputs["net.inter.latency"][0]), "sent": 4096 * 2, "returned": 4096 * 2,
        "attention": lambda n: along(
            (mine.attention + mine.sums + 0.5 * mine.exchange)[0], axes.tokens, n
        ),
        "others": lambda n: along(
            (layers.time - 0.5 * layers.exchange - layers.attention - layers.sums)[0]
            - layers.of_model[0, :, 0], axes.tokens, n,
        ),
        "outside": lambda n: along(mine.of_model[0, :, 0], axes.tokens, n),
        "core": lambda r, c: along(
            [along(line, axes.context, c) for line in own.parts[DECODE].time[0]], axes.requests, r
        ),
    }  # fmt: skip
    size = np.array([float(requests)])
    shared = along(passes.times.shared[row], axes.tokens, requests)
    core = along(
        [along(line, axes.context, context) for line in passes.times.decode[row]], axes.requests, requests
    )
    hidden = hidden_of(passes.times, np.array([row]), size, np.array([core]), np.zeros(1))[0]
    expected = pass_s(of, requests, requests, context)
    assert shared + core - hidden == pytest.approx(expected, rel=0.01)  # between the ratios of tables
    assert passes.parts[HEAD_PART].time[row] == pytest.approx(own.parts[HEAD_PART].time[0])


def test_times_by_limiter_are_all_of_the_time(tables):
    result = tables[-1]
    for name, part in result.passes.parts.items():
        assert part.by[-1].sum(axis=-1) == pytest.approx(part.time[-1]), name


def test_points_without_devices_of_attention_keep_their_times():
    rows = evaluate(
        "parallel.strategy=TP-2", "serve.batch=256", "system.devices=4", "serve.attention.devices=0,2",
        "serve.attention.strategy=TP-2",
    )  # fmt: skip
    alone = evaluate("parallel.strategy=TP-2", "serve.batch=256", "system.devices=4").iloc[0]
    for column in ("time_s", "energy_J", "kv_cache_capacity_B", "tokens_per_s"):
        assert rows.iloc[0][column] == alone[column], column
    assert rows["attention_devices"].tolist() == [0, 2]
