"""Pipelines in the model: stages, micro-batches, memory, sends, what the time is made of (3.3, 5.1, 6.5)."""

import numpy as np
import pytest

from fastflow.performance import results
from tests.naive import chip as naive_chip
from tests.naive import energy
from tests.naive import pipelines as naive
from tests.support.checks import near

LM = {"hidden": 256, "batch": 128, "vocabulary": 4096, "sequence": 4, "layers": 4}
# strategies for 16 devices as (text, (kernel, row shards, ranks), stages)
STRATEGIES = [
    ("d16", ("", 16, 1), 1),
    ("d8-p2", ("", 8, 1), 2),
    ("d2-p8", ("", 2, 1), 8),
    ("d4-p4", ("", 4, 1), 4),
    ("RC-2-2-d2-p2", ("RC", 4, 2), 2),
    ("RC-1-4-p4", ("RC", 1, 4), 4),
    ("CR-2-d2-p4", ("CR", 2, 2), 4),
    ("CR-4-d2-p2", ("CR", 2, 4), 2),
]
LAYERS = LM["layers"] + 2


@pytest.fixture(scope="module")
def base(compose):
    return (
        compose("memory=tensors")
        | {f"model.{key}": value for key, value in LM.items()}
        | {"system.devices": 16}
    )


@pytest.fixture(scope="module")
def cases(base):
    """Points that have a time, with what the oracles need."""
    found = []
    for text, cut, stages in STRATEGIES:
        for schedule, asked, more in (
            ("1f1b", 0, {}),
            ("gpipe", 0, {"model.optimizer": "adam"}),
            ("1f1b", 4, {"net.inter.latency": 1e-4}),
            ("gpipe", 4, {}),
            ("1f1b", 1, {"model.vocabulary": 512}),
        ):
            if stages > LAYERS:
                continue
            point = base | {
                "parallel.strategy": text, "parallel.schedule": schedule, "parallel.microbatches": asked,
            }  # fmt: skip
            lm = LM | {"vocabulary": more.get("model.vocabulary", LM["vocabulary"])}
            found.append((point | more, lm, cut, stages))
    return found


@pytest.fixture(scope="module")
def prediction(predict, cases):
    return predict([point for point, *_ in cases])


@pytest.fixture(scope="module")
def got(prediction):
    return results.summary(prediction)


def kernels_of(prediction, place):
    return np.arange(*prediction.graph.offset[place : place + 2])


def first_layers(prediction, place):
    """Return the first layer of every stage of a point."""
    rows = kernels_of(prediction, place)
    layer, stage = prediction.graph.layer.number[rows], prediction.pipeline.stage[rows]
    of_layer = [set(stage[layer == number].tolist()) for number in range(LAYERS)]
    assert all(len(stages) == 1 for stages in of_layer)  # a layer is on one stage, with its update
    order = [stage for (stage,) in of_layer]
    assert order == sorted(order)
    assert sorted(set(order)) == list(range(prediction.pipeline.stages[place]))
    return [order.index(stage) for stage in range(prediction.pipeline.stages[place])]


def test_stages_are_the_best_cut(prediction, got, cases):
    assert (got["reason"] == "").all()
    cut_apart = 0
    for place, (_, _, _, stages) in enumerate(cases):
        first = first_layers(prediction, place)
        assert len(first) == stages
        rows = kernels_of(prediction, place)
        seconds = prediction.pipeline.launches[rows] * prediction.timing.time[rows]
        layer_s = [seconds[prediction.graph.layer.number[rows] == number].sum() for number in range(LAYERS)]
        least = naive.best_cut(layer_s, stages)
        assert near(got["compute_s"][place], least, 1e-12)
        of_stage = [sum(layer_s[a:b]) for a, b in zip(first, [*first[1:], LAYERS], strict=True)]
        assert near(max(of_stage), least, 1e-12)
        cut_apart += len({b - a for a, b in zip(first, [*first[1:], LAYERS], strict=True)}) > 1
    assert cut_apart > 0  # not all are cut into stages of as many layers


def test_microbatches(got, cases):
    for place, (point, lm, (_, row_shards, _), stages) in enumerate(cases):
        asked = point["parallel.microbatches"]
        assert got["microbatches"][place] == naive.microbatches(asked, stages, lm["batch"] // row_shards)


@pytest.mark.parametrize(
    ("strategy", "more", "count"),
    [
        ("d16-p4", {"system.devices": 64, "model.batch": 128}, 8),  # a device has no more rows
        ("d4-p4", {"model.batch": 6}, 2),  # 1 or 2 rows a device
        ("d16", {"parallel.microbatches": 8}, 8),
        ("RC-4-1-d2-p2", {"model.batch": 8}, 1),
        ("d16", {"parallel.microbatch": 2}, 4),
        ("d16", {"parallel.microbatch": 2, "parallel.microbatches": 4}, 4),
        ("RC-4-1-d2-p2", {"parallel.microbatch": 1}, 16),
    ],
)
def test_a_microbatch_has_a_row(base, summary, strategy, more, count):
    point = base | {"parallel.strategy": strategy} | more
    assert summary([point])["microbatches"][0] == count


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"parallel.strategy": "d2-p8"}, ["parallel.strategy=d2-p8 is invalid: ", "6 pipeline stages"]),
        (
            {"parallel.strategy": "d8-p2", "parallel.microbatches": 17},
            ["parallel.microbatches=17 is invalid: ", "16"],
        ),
        (
            {"parallel.strategy": "RC-8-1-p2", "parallel.microbatches": 17},
            ["microbatches=17 is invalid: ", "16"],
        ),
        (
            {"parallel.strategy": "d16", "parallel.microbatches": 9},
            ["parallel.microbatches=9 is invalid: ", "8"],
        ),
        (
            {"parallel.strategy": "d16", "parallel.microbatch": 3},
            ["parallel.microbatch=3 is invalid: ", "a divisor of the 8 rows of one device"],
        ),
        (
            {"parallel.strategy": "d16", "parallel.microbatch": 2, "parallel.microbatches": 8},
            ["parallel.microbatches=8 is invalid: ", "0, or the 4 of parallel.microbatch=2"],
        ),
    ],
)
def test_what_cannot_be_cut_so_has_a_reason(base, summary, more, words):
    got = summary([base | more, base | {"parallel.strategy": "d8-p2"}])
    assert np.isnan(got["time_s"][0])
    assert not got["feasible"][0]
    assert all(word in got["reason"][0] for word in words)
    assert "\n" not in got["reason"][0]
    assert got["reason"][1] == ""


def test_memory_of_the_fullest_stage(prediction, got, cases):
    names = ("weight_B", "gradient_B", "optimizer_B", "activation_B", "peak_memory_stage")
    fullest = set()
    for place, (point, lm, cut, _) in enumerate(cases):
        expected = naive.footprint(
            lm, cut, first_layers(prediction, place), int(got["microbatches"][place]),
            point["parallel.schedule"], point["model.optimizer"],
        )  # fmt: skip
        assert tuple(got[name][place] for name in names) == expected, point["parallel.strategy"]
        assert got["footprint_B"][place] == sum(expected[:4])
        fullest.add(expected[4])
    assert len(fullest) > 1


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_fullest_stage_is_another_one_from_some_batch_on(base, predict, optimizer):
    """Embedding and cell have more weights, and are fullest as long as the logits are few."""
    point = base | {
        "model.vocabulary": 8192, "model.layers": 1, "model.optimizer": optimizer,
        "parallel.strategy": "d8-p2", "parallel.microbatches": 4,
    }  # fmt: skip
    rows = range(20, 300, 20)  # of a micro-batch
    prediction = predict([point | {"model.batch": 8 * 4 * count} for count in rows])
    memory, offset = prediction.footprint, prediction.graph.offset
    fullest = set()
    for place, count in enumerate(rows):
        of_point = slice(*offset[place : place + 2])
        layer, stage = prediction.graph.layer.number[of_point], prediction.pipeline.stage[of_point]
        lm = LM | {"vocabulary": 8192, "layers": 1, "batch": 8 * 4 * count}
        first = [0, int(layer[stage == 1].min())]
        expected = naive.footprint(lm, ("", 8, 1), first, 4, "1f1b", optimizer)
        parts = (memory.weights, memory.gradients, memory.optimizer, memory.activations, memory.stage)
        assert tuple(column[place] for column in parts) == expected
        assert memory.buffers[place] == memory.host[place] == 0.0
        fullest.add(expected[4])
    assert fullest == {0, 1}


@pytest.mark.parametrize(("schedule", "share"), [("1f1b", 4), ("gpipe", 1)])
def test_gradient_accumulation(base, predict, schedule, share):
    """Micro-batches without a pipeline: as many operations, and with 1F1B the activations of one."""
    points = [
        base | {"parallel.strategy": "d16", "parallel.schedule": schedule, "parallel.microbatches": count}
        for count in (1, 4)
    ]
    prediction = predict(points)
    got = results.summary(prediction)
    assert got["activation_B"][0] == share * got["activation_B"][1]
    for name in ("flop", "weight_B", "gradient_B", "optimizer_B"):
        assert got[name][0] == got[name][1]
    flop = [results.explain(prediction, i) for i in (0, 1)]
    assert near(
        (flop[0]["flop"] * flop[0]["repeat"]).sum(), (flop[1]["flop"] * flop[1]["repeat"]).sum(), 1e-12
    )
    updates = [kernels["repeat"][kernels["phase"] == "update"] for kernels in flop]
    assert (updates[0] == updates[1]).all()
    sums = prediction.shards.gradient.bytes.reshape(2, -1)
    assert (sums[0] == sums[1]).all()  # once an iteration, of whole gradients


def test_what_crosses_a_border_of_stages(prediction, got, cases):
    graph, shards, work = prediction.graph, prediction.shards, prediction.kernel_schedule.kernels
    for place, (_, lm, cut, stages) in enumerate(cases):
        first, rows = first_layers(prediction, place), kernels_of(prediction, place)
        sends = rows[work.send_s[rows] > 0.0]
        borders = set(first[1:])
        forward = [(int(graph.layer.number[row]) + 1) for row in sends if graph.phase[row] == 0]
        backward = [int(graph.layer.number[row]) for row in sends if graph.phase[row] == 1]
        assert sorted(forward) == sorted(borders)
        assert sorted(backward) == sorted(borders)
        assert len(sends) == 2 * (stages - 1)
        for row in sends:
            sent = graph.launches.repeat[row] * shards.send.bytes[row]
            assert sent == naive.sent_over_a_border(lm, cut, int(got["microbatches"][place]))


def test_the_time_is_kernels_bubbles_and_what_nothing_hides(got, cases):
    total = got["compute_s"] + got["bubble_s"] + got["exposed_comm_s"]
    assert np.allclose(total, got["time_s"], rtol=1e-12)
    assert np.allclose(got["time_s"], got["forward_s"] + got["backward_s"] + got["update_s"], rtol=1e-12)
    stages = np.array([stages for *_, stages in cases])
    assert (got["bubble_s"][stages == 1] == 0.0).all()
    assert (got["bubble_s"][stages > 1] > 0.0).all()
    assert (got["pp_hops"] > 0).tolist() == (stages > 1).tolist()
    for name in ("time_s", "compute_s", "comm_s", "exposed_comm_s"):
        assert (got[name] > 0.0).all()


def test_inference_on_a_pipeline(base, summary):
    point = base | {"model.training": False, "parallel.strategy": "d4-p4"}
    got = summary([point, point | {"parallel.schedule": "gpipe"}])
    assert (got["backward_s"] == 0.0).all()
    assert (got["update_s"] == 0.0).all()
    assert (got["activation_B"] == 0.0).all()
    assert got["time_s"][0] == got["time_s"][1]
    assert np.allclose(got["compute_s"] + got["bubble_s"] + got["exposed_comm_s"], got["time_s"], rtol=1e-12)


def test_kernels_at_once_never_last_longer(base, summary):
    points = [base | {"parallel.strategy": text} for text, _, stages in STRATEGIES if stages <= LAYERS]
    one = summary(points)["time_s"]
    two = summary([point | {"parallel.concurrent_kernels": 2} for point in points])["time_s"]
    assert (two <= one * (1 + 1e-12)).all()
    assert (two < one).any()


def sent_by_hand(prediction, place):
    """Return what a device of every stage sends in an iteration, all stages together [B]."""
    shards, rows = prediction.shards, kernels_of(prediction, place)
    count = int(prediction.pipeline.microbatches[place])
    total = 0.0
    for row in rows:
        turns = int(prediction.graph.launches.repeat[row]) * (
            1 if prediction.graph.phase[row] == 2 else count
        )
        for edges, often in ((shards.sync, turns), (shards.gradient, 1)):
            n = int(edges.ranks[row])
            share = {0: 0.0, 1: 1.0, 2: 1.0, 3: 2.0}[int(edges.collective[row])] * (n - 1) / n
            total += often * share * edges.bytes[row]
        total += turns * shards.send.bytes[row] * (prediction.kernel_schedule.kernels.send_s[row] > 0.0)
    return total


def test_energy_and_utilisation(prediction, got, cases):
    """A stage has its own kernels; memories stand by on all of them."""
    assert np.allclose(got["mfu"], got["flop"] / (got["time_s"] * 16 * got["compute_flops"]), rtol=1e-12)
    assert ((got["mfu"] > 0.0) & (got["mfu"] < 1.0)).all()
    for place, (point, _, _, stages) in enumerate(cases):
        made = naive_chip.generate(point)
        sent = sent_by_hand(prediction, place)
        assert near(prediction.communication.sent[1][place], sent, 1e-9)
        joules = 0.0
        for stage in range(stages):
            kernels = [
                (
                    int(prediction.pipeline.launches[row]),
                    prediction.timing.flop[row],
                    energy.lift(made, point, prediction.timing.busy[row], prediction.timing.times[row])
                    * made["_flop_J" if prediction.shards.kernels.m[row] else "_pass_flop_J"],
                    prediction.timing.bytes[row],
                    prediction.timing.time[row],
                    prediction.timing.busy[row],
                )
                for row in kernels_of(prediction, place)
                if prediction.pipeline.stage[row] == stage
            ]
            joules += energy.iteration(
                kernels,
                [made[f"_{name}_bit_J"] for name in ("l0", "l1", "l2", "dram")],
                made["_standing_W"],
                made["_running_W"],
                got["time_s"][place],
            )
        assert near(got["energy_J"][place], joules * 16 / stages, 1e-9)
        assert got["energy_J"][place] < 16 * point["chip.tdp"] * got["time_s"][place]
