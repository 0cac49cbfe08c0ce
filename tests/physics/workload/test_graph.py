"""The kernels that follow from a network's layers: known graphs by hand, and what holds for all of them."""

import numpy as np
import pytest

from fastflow.physics.workload import build_graph, count_kernels
from fastflow.physics.workload.graph import LAYER_KINDS, PHASES, model_flop
from fastflow.physics.workload.optimizers import OPTIMIZERS
from fastflow.physics.workload.precision import precision
from tests.naive import optimizers
from tests.support.checks import mixed, near
from tests.support.exchanges import columns_of, exchanges


def inputs(**given):
    """Return the columns of some points of one model."""
    size = max(np.size(value) for value in given.values())
    every = {"dtype": "fp16", "training": True, "optimizer": "sgd"} | given
    return {f"model.{key}": np.array(np.broadcast_to(value, size)) for key, value in every.items()}


def graph_of(roles=(), **given):
    columns = inputs(**given)
    columns |= mixed(columns["model.name"].size, **dict(roles))
    return build_graph(columns, precision(columns))


def rows_of(graph, point=0):
    """Return the rows of a point's graph as tuples of what tests look at."""
    return [
        (str(graph.names[graph.label[row]]), PHASES[graph.phase[row]], int(graph.layer.number[row]))
        for row in range(graph.offset[point], graph.offset[point + 1])
    ]


LSTM = {"name": "lstm_lm", "hidden": 8, "batch": 6, "vocabulary": 50, "layers": 2, "sequence": 4}


def test_order_and_layers_of_the_language_model():
    """Backward in reverse order; all norms before all updates, one for every instance of a layer."""
    assert rows_of(graph_of(**LSTM)) == [
        ("embedding", "forward", 0),
        ("lstm cell", "forward", 1), ("lstm gates", "forward", 1),
        ("lstm cell", "forward", 2), ("lstm gates", "forward", 2),
        ("softmax", "forward", 3), ("loss", "forward", 3),
        ("loss gradient", "backward", 3),
        ("softmax input gradient", "backward", 3), ("softmax weight gradient", "backward", 3),
        ("lstm gates gradient", "backward", 2),
        ("lstm cell input gradient", "backward", 2), ("lstm cell weight gradient", "backward", 2),
        ("lstm gates gradient", "backward", 1),
        ("lstm cell input gradient", "backward", 1), ("lstm cell weight gradient", "backward", 1),
        ("embedding gradient", "backward", 0),
        ("embedding gradient norm", "update", 0), ("lstm cell gradient norm", "update", 1),
        ("lstm cell gradient norm", "update", 2), ("softmax gradient norm", "update", 3),
        ("embedding update", "update", 0), ("lstm cell update", "update", 1),
        ("lstm cell update", "update", 2), ("softmax update", "update", 3),
    ]  # fmt: skip


def test_what_the_language_model_exchanges():
    """Row-Column gathers h, not gates; Column-Row gathers the gates' gradient where it is made."""
    graph = graph_of(**LSTM)
    rc, cr = exchanges(graph, "RC"), exchanges(graph, "CR")
    result = {
        (name, layer): (
            *rc[row], *cr[row],
            LAYER_KINDS[graph.layer.kind[row]], LAYER_KINDS[graph.comm.peer_kind[row]], graph.comm.wait[row],
        )
        for row, (name, phase, layer) in enumerate(rows_of(graph))
        if phase != "update"
    }  # fmt: skip
    nothing = ("", 0)
    expected = {
        ("embedding", 0): ("all-gather", 8, *nothing, "embedding", "hidden", 1),
        ("lstm cell", 1): (*nothing, "reduce-scatter", 32, "hidden", "hidden", 1),
        ("lstm gates", 1): ("all-gather", 8, *nothing, "hidden", "hidden", 1),
        ("lstm cell", 2): (*nothing, "reduce-scatter", 32, "hidden", "hidden", 1),
        ("lstm gates", 2): ("all-gather", 8, *nothing, "hidden", "softmax", 1),
        ("softmax", 3): (*nothing, "reduce-scatter", 50, "softmax", "softmax", 1),
        ("loss", 3): ("all-reduce", 4, "all-reduce", 4, "softmax", "softmax", 1),
        ("loss gradient", 3): (*nothing, "all-gather", 50, "softmax", "softmax", 1),
        ("softmax input gradient", 3): ("reduce-scatter", 8, *nothing, "softmax", "hidden", 2),
        ("softmax weight gradient", 3): (*nothing, *nothing, "softmax", "softmax", 1),
        ("lstm gates gradient", 2): (*nothing, "all-gather", 32, "hidden", "hidden", 1),
        ("lstm cell input gradient", 2): ("reduce-scatter", 16, *nothing, "hidden", "hidden", 1),
        ("lstm cell weight gradient", 2): (*nothing, *nothing, "hidden", "hidden", 1),
        ("lstm gates gradient", 1): (*nothing, "all-gather", 32, "hidden", "hidden", 1),
        ("lstm cell input gradient", 1): ("reduce-scatter", 16, *nothing, "hidden", "embedding", 1),
        ("lstm cell weight gradient", 1): (*nothing, *nothing, "hidden", "hidden", 1),
        ("embedding gradient", 0): (*nothing, *nothing, "embedding", "embedding", 1),
    }
    assert result == expected


def test_what_crosses_the_borders_of_the_language_model():
    """h of every token between any two layers, and its gradient; nothing beyond the ends."""
    graph = graph_of(**LSTM)
    sent = {
        (name, layer): graph.rows[row] * graph.launches.repeat[row] * graph.comm.sent_cols[row]
        for row, (name, _, layer) in enumerate(rows_of(graph))
        if graph.comm.sent_cols[row]
    }
    places = [
        ("embedding", 0), ("lstm gates", 1), ("lstm gates", 2),
        ("softmax input gradient", 3), ("lstm cell input gradient", 2), ("lstm cell input gradient", 1),
    ]  # fmt: skip
    assert sent == dict.fromkeys(places, 6 * 4 * 8)


def test_only_the_update_reads_weight_gradients():
    graph = graph_of(**LSTM)
    side = {name for row, (name, *_) in enumerate(rows_of(graph)) if graph.comm.side[row]}
    assert side == {"softmax weight gradient", "lstm cell weight gradient", "embedding gradient"}


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
@pytest.mark.parametrize(("dtype", "element"), [("fp32", 4), ("fp16", 2), ("bf16", 2)])
def test_an_update_does_and_moves_what_its_rule_says(optimizer, dtype, element):
    of = {"gradient": element, "weight": element, "master": 4 if element < 4 else 0, "state": 4}
    check_update(graph_of(**LSTM | {"optimizer": optimizer, "dtype": dtype}), optimizer, of)


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
@pytest.mark.parametrize(
    ("roles", "bytes_of"),
    [
        ({"gradient": "fp32"}, {"gradient": 4, "weight": 2, "master": 4, "state": 4}),
        ({"state": "bf16"}, {"gradient": 2, "weight": 2, "master": 4, "state": 2}),
        ({"state": "int8"}, {"gradient": 2, "weight": 2, "master": 4, "state": 1 + 4 / 256}),
        ({"state": "fp8"}, {"gradient": 2, "weight": 2, "master": 4, "state": 1 + 4 / 256}),
        ({"master": "none"}, {"gradient": 2, "weight": 2, "master": 0, "state": 4}),
        ({"master": "operand"}, {"gradient": 2, "weight": 2, "master": 2, "state": 4}),
        ({"weight": "fp32"}, {"gradient": 2, "weight": 4, "master": 0, "state": 4}),
        ({"weight": "fp32", "master": "fp32"}, {"gradient": 2, "weight": 4, "master": 4, "state": 4}),
        ({"activation": "fp32"}, {"gradient": 2, "weight": 2, "master": 4, "state": 4}),
    ],
)
def test_an_update_moves_every_role_in_its_type(optimizer, roles, bytes_of):
    check_update(graph_of(roles, **LSTM | {"optimizer": optimizer}), optimizer, bytes_of)


def check_update(graph, optimizer, bytes_of):
    """Check what the update and the norm before it do and move a weight, all kernels of them."""
    update, norm = (
        [row for row, (name, *_) in enumerate(rows_of(graph)) if name.endswith(end)]
        for end in (" update", " gradient norm")
    )
    assert len(update) == len(norm) == 4
    for row in update:
        is_matrix = not str(graph.names[graph.label[row]]).startswith("embedding")
        flop = optimizers.operations(optimizer, is_matrix, bytes_of["state"])
        assert graph.per_element.flop[row] == flop
        assert graph.per_element.bytes[row] == optimizers.moved(optimizer, **bytes_of, is_matrix=is_matrix)
    assert (graph.per_element.bytes[norm] == bytes_of["gradient"]).all()


def test_passes_move_activations():
    """In their type, forward and backward; points that differ only in types have different bytes."""
    columns = inputs(**LSTM | {"batch": np.full(2, 6)})
    wide = mixed(2) | {"precision.activation": np.array(["operand", "fp32"])}
    graph = build_graph(columns, precision(columns | wide))
    fp16, fp32 = graph.per_element.bytes.reshape(2, -1)
    passes = (fp16 > 0) & (graph.phase.reshape(2, -1)[0] != PHASES.index("update"))
    assert passes.sum() > 4
    assert (fp32[passes] == 2 * fp16[passes]).all()
    assert (fp32[~passes] == fp16[~passes]).all()


@pytest.mark.parametrize("training", [True, False])
def test_a_product_alone(training):
    """Its input's gradient is needed, and has no producer that shards it."""
    graph = graph_of(name="gemm", m=3, k=5, n=7, batch=2, training=training)
    assert [name for name, *_ in rows_of(graph)] == ["gemm", "gemm input gradient", "gemm weight gradient"][
        : 3 if training else 1
    ]
    assert graph.memory.saved_cols[0] == 7
    assert graph.memory.saved_whole_cols[0] == 5
    assert (graph.launches.batch == 2).all()
    assert not graph.comm.sent_cols.any()
    if training:
        assert exchanges(graph, "RC") == [("all-gather", 7), ("all-reduce", 5), ("", 0)]
        assert exchanges(graph, "CR") == [("reduce-scatter", 7), ("all-gather", 7), ("", 0)]
        assert graph.comm.wait.tolist() == [1, 1, 1]
        assert graph.comm.side.tolist() == [0, 0, 1]


def test_points_built_together_are_as_points_built_alone():
    """Structures that differ in layers and training, and values that differ within them."""
    varied = {
        "hidden": [8, 16, 8, 4], "batch": [6, 2, 6, 3], "layers": [2, 1, 2, 3],
        "training": [True, False, True, True], "optimizer": ["sgd", "adam", "adam", "sgd"],
    }  # fmt: skip
    together = graph_of(**LSTM | varied)
    counts = count_kernels(inputs(**LSTM | varied))
    assert counts.tolist() == np.diff(together.offset).tolist()
    for point in range(4):
        alone = graph_of(**LSTM | {key: values[point] for key, values in varied.items()})
        rows = slice(together.offset[point], together.offset[point + 1])
        assert rows_of(alone) == rows_of(together, point)
        assert alone.structures == (together.structures[together.structure[point]],)
        of_points = {"offset", "names", "point", "label", "structures", "structure"}
        assert alone.attributes == together.attributes == {}
        columns, expected = columns_of(alone), columns_of(together)
        for field in columns.keys() - of_points - {"attributes"}:
            assert columns[field].tolist() == expected[field][rows].tolist(), field
        assert near(model_flop(alone)[0], model_flop(together)[point])
