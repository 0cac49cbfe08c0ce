"""One recurrent layer, against cells written out from their equations."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fastflow
from fastflow.core.errors import InputError
from fastflow.physics.workload.models.rnn import CELLS
from tests.naive import rnn
from tests.support.checks import cases, near

ELEMENT = {"fp16": 2, "bf16": 2, "fp32": 4}
PARTS = ("forward", "backward_inputs", "backward_weights")

layers = st.fixed_dictionaries(
    {
        "model.cell": st.sampled_from(sorted(rnn.GATES)),
        "model.hidden": st.integers(1, 4096),
        "model.batch": st.integers(1, 512),
        "model.sequence": st.integers(1, 60),
        "model.part": st.sampled_from(("all", *PARTS)),
        "model.training": st.booleans(),
        "model.dtype": st.sampled_from(["fp16", "fp32"]),
    }
)


@pytest.fixture(scope="module")
def base(compose):
    return compose("model=rnn", "chip=v100")


def launches_of(point):
    keys = ("cell", "hidden", "batch", "sequence", "training", "part")
    return rnn.launches(*(point[f"model.{key}"] for key in keys))


@given(
    st.sampled_from(sorted(rnn.GATES)),
    st.lists(st.floats(-2, 2), min_size=14, max_size=14).filter(lambda v: abs(v[0] + v[4] + v[5]) > 1e-3),
)
@cases(200)
def test_the_gradients_that_are_counted_are_gradients(cell, values):
    """Of `above h + after h + gradient carried`, by central differences; relu has a kink at 0."""
    gates, carries, step = rnn.GATES[cell], rnn.CARRIES[cell], 1e-5
    p, x, b = values[:gates], values[4], values[5 : 5 + gates]
    carried, above, after, gradient = (
        values[9 : 9 + carries],
        values[10],
        values[11],
        values[12 : 12 + carries],
    )

    def loss(p, x, carried):
        h, on, *_ = rnn.run_forward(cell, p, x, carried, b)
        # a GRU's state is its h: what is carried back to it is a gradient of h
        through = on if on else [h] * carries
        return (above + after) * h + sum(g * v for g, v in zip(gradient, through, strict=True))

    h, _, kept, *_ = rnn.run_forward(cell, p, x, carried, b)
    dp, dx, dcarried, *_ = rnn.run_backward(cell, kept, carried, h, above, after, gradient)
    for got, position in [
        *((d, (0, i)) for i, d in enumerate(dp)),
        (dx, (1, 0)),
        *((d, (2, 0)) for d in dcarried),
    ]:
        ends = []
        for sign in (-1, 1):
            moved = [list(p), [x], list(carried)]
            moved[position[0]][position[1]] += sign * step
            ends.append(loss(moved[0], moved[1][0], moved[2]))
        assert abs((ends[1] - ends[0]) / (2 * step) - got) < 1e-6


@pytest.mark.parametrize("cell", sorted(rnn.GATES))
def test_what_a_cell_costs(cell):
    flop, moves, backward_flop, backward_moves, kept = rnn.per_element(cell)
    assert CELLS[cell] == (rnn.GATES[cell], moves, flop, backward_moves, backward_flop, kept)


@given(st.lists(layers, min_size=1, max_size=6))
@example(
    [
        {
            "model.cell": cell, "model.hidden": 2048, "model.batch": 32, "model.sequence": 187,
            "model.part": part, "model.training": training, "model.dtype": "fp32",
        }
        for cell in rnn.GATES for part in ("all", *PARTS) for training in (True, False)
    ]
)  # fmt: skip
@cases(40)
def test_kernels_operations_and_bytes(base, predict, summary, given_layers):
    """Many layers of all kinds in one batch, each launch by launch."""
    points = [base | layer for layer in given_layers]
    prediction, flop = predict(points), summary(points)["flop"]
    graph = prediction.graph
    for p, point in enumerate(points):
        expected = launches_of(point)
        rows = range(graph.offset[p], graph.offset[p + 1])
        assert graph.launches.repeat[rows].sum() == len(expected)
        assert near(flop[p], sum(launch[1] for launch in expected))
        element = ELEMENT[point["model.dtype"]]
        moved = sum(bytes_ or 0 for _, _, bytes_ in expected) * element
        passes = [row for row in rows if prediction.shards.kernels.m[row] == 0]
        assert near(
            sum(graph.launches.repeat[row] * prediction.timing.bytes[row, -1] for row in passes), moved
        )
        of_gemms = sum(
            graph.launches.repeat[row] * prediction.timing.flop[row] for row in rows if row not in passes
        )
        assert near(of_gemms, sum(launch[1] for launch in expected if launch[2] is None))


@given(layers)
@cases(60)
def test_memory(base, predict, layer):
    point = base | layer
    memory = predict([point]).footprint
    weights, kept = rnn.memory(*(point[f"model.{key}"] for key in ("cell", "hidden", "batch", "sequence")))
    element, training = ELEMENT[point["model.dtype"]], point["model.training"]
    assert memory.weights[0] == weights * (element + (4 if training and element == 2 else 0))
    assert memory.gradients[0] == (weights * element if training else 0)
    forward = point["model.part"] in ("all", "forward")
    assert memory.activations[0] == (kept * element if training and forward else 0)


@pytest.mark.parametrize("cell", sorted(rnn.GATES))
def test_the_parts_make_the_whole(base, summary, cell):
    points = [base | {"model.cell": cell, "model.part": part} for part in ("all", *PARTS)]
    got = summary(points)
    whole, forward, inputs, weights = got["time_s"]
    assert near(whole, forward + inputs + weights)
    assert near(got["forward_s"][0], forward)
    assert near(got["backward_s"][0], inputs + weights)
    assert got["forward_s"][2:].tolist() == [0, 0]
    assert got["backward_s"][1] == 0


def test_steps_wait_for_each_other(base, summary):
    """Twice the steps take twice as long; twice the sequences of a small layer do not."""
    point = base | {"model.part": "forward", "model.hidden": 1024, "model.batch": 4, "model.sequence": 100}
    changes = ({}, {"model.sequence": 200}, {"model.batch": 8})
    once, longer, wider = summary([point | change for change in changes])["time_s"]
    assert near(longer, 2 * once)
    assert wider < 1.2 * once


def test_a_layer_is_sharded_as_others_are(compose, predict):
    """h is gathered before the next step's product, and the product's gradient summed."""
    point = compose("model=rnn", "chip=a100", "system.devices=4", "parallel.strategy=RC-1-4")
    prediction = predict([point])
    names = prediction.graph.names[prediction.graph.label]
    moved = dict(zip(names, prediction.communication.exchanges.sync_s > 0, strict=True))
    assert moved == {
        "recurrent product": False, "gates": True, "gates gradient": False,
        "recurrent product input gradient": True, "recurrent product weight gradient": False,
    }  # fmt: skip


def test_from_python():
    frame = fastflow.evaluate("model=rnn", "chip=v100", "model.cell=gru,lstm", "model.part=forward")
    assert frame["model"].tolist() == ["rnn", "rnn"]
    assert frame["time_s"].is_monotonic_increasing
    assert np.isfinite(frame["time_s"]).all()


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [("model.cell", "elman", "rnn_tanh"), ("model.part", "backward", "backward_inputs")],
)
def test_a_wrong_name(key, value, allowed):
    with pytest.raises(InputError, match=allowed) as error:
        fastflow.evaluate("model=rnn", f"{key}={value}")
    assert key in str(error.value)
    assert value in str(error.value)
    assert "\n" not in str(error.value)
