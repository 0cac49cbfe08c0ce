"""Compute graphs: the kernels of one training iteration, before any parallelism."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fastflow.distinct import kinds, vocabulary
from fastflow.errors import InputError
from fastflow.tables import Bools, Inputs, Ints, Texts, table, take
from fastflow.workload import file, gemm, lstm, operator, rnn
from fastflow.workload.graph import Graph, join, spread
from fastflow.workload.precision import Precision, precision

MOST_IN_ALL = 1e18  # of a product of sizes: int64 counts nine times as many
# the sizes that are multiplied as integers, by workload
_MULTIPLIED = {
    "operator": ("model.tensors", "model.cols"),
    "rnn": ("model.batch", "model.sequence"),
    "lstm_lm": ("model.batch", "model.sequence"),
}
# the dimension that data parallelism cuts, by workload
_ROWS = {"gemm": "model.m", "operator": "model.rows", "rnn": "model.batch", "lstm_lm": "model.batch"}


def build_graph(inputs: Inputs, numbers: Precision) -> Graph:
    """Return the compute graph of every point's model; points of one model share its graph's making."""
    model = {key: column for key, column in inputs.items() if key.startswith("model.")}
    points = inputs["model.training"].size
    if points == 1:
        return _build(model, numbers)
    first, place = kinds(model.values(), points)
    return spread(_build(take(model, first), take(numbers, first)), place)


def _build(inputs: Inputs, numbers: Precision) -> Graph:
    """Return the compute graph of every point's model.

    Points that share the structure of their graph (workload, training or not, layers, file, operator,
    part) are built together, and the graphs joined in the order of the points.
    """
    graphs, members = [], []
    for rows in _structures(inputs):
        graphs.append(_build_structure(take(dict(inputs), rows), take(numbers, rows)))
        members.append(rows)
    return join(graphs, members)


def _build_structure(points: Inputs, numbers: Precision) -> Graph:
    """Return the compute graph of points that share its structure."""
    name, training = points["model.name"][0], bool(points["model.training"][0])
    if name == "gemm":
        return gemm.build(table(gemm.Gemm, points, "model"), training)
    if name == "operator":
        op = str(points["model.op"][0])
        return operator.build(table(operator.Sizes, points, "model"), op, training, numbers.operand)
    if name == "rnn":
        part = str(points["model.part"][0])
        return rnn.build(table(rnn.Rnn, points, "model"), part, training, numbers)
    if name == "graph":
        return file.build(str(points["model.file"][0]), training, numbers)
    layers = int(points["model.layers"][0])
    return lstm.build(table(lstm.LstmLm, points, "model"), layers, training, numbers)


def count_kernels(inputs: Inputs) -> Ints:
    """Return how many kernels each point's graph has, shape (points,); one graph a structure is built.

    inputs: the columns of `model`.
    """
    count = np.zeros(inputs["model.training"].size, dtype=np.int64)
    for rows in _structures(inputs):
        one = take(dict(inputs), rows[:1])
        if one["model.name"][0] == "graph":
            count[rows] = file.count(str(one["model.file"][0]), bool(one["model.training"][0]))
        else:
            count[rows] = _build_structure(one, precision(one)).point.size
    return count


def count_layers(inputs: Inputs) -> Ints:
    """Return how many layers each point's model has, that a pipeline can cut between; shape (points,).

    inputs: at least `model.name`, `model.layers` and `model.file`, as far as there are such.
    """
    name = inputs["model.name"]
    if name[0] == "lstm_lm":
        return inputs["model.layers"] + lstm.OTHER_LAYERS
    if name[0] == "graph":
        return _of_files(inputs)[:, 0]
    return np.ones(name.size, dtype=np.int64)


def fewest_rows(inputs: Inputs) -> tuple[Ints, Bools]:
    """Return into how many parts the rows of each point's model can be cut, and whether into no more at all.

    That is the rows of the forward kernel that has fewest, of which more devices than that share one; or
    the sequences whose rows belong together. Both of shape (points,). inputs: the columns of `model`.
    """
    name = inputs["model.name"]
    if name[0] == "graph":
        _, rows, sequences = _of_files(inputs).T
        return np.where(sequences > 0, np.minimum(rows, sequences), rows), sequences > 0
    rows = inputs[_ROWS[name[0]]]
    return rows, np.zeros(name.size, dtype=np.bool_)


def oversized(inputs: Inputs) -> Texts:
    """Say for every point which sizes of its model multiply to more than integers count; or "", (points,).

    inputs: the columns of `model`. A file is held to the same when it is read.
    """
    name = inputs["model.name"]
    reason = np.full(name.size, "", dtype=object)
    one, other = _MULTIPLIED.get(str(name[0]) if name.size else "", ("", ""))
    if one:
        amount = 1.0 * inputs[one] * inputs[other]
        for i in np.flatnonzero(amount > MOST_IN_ALL):
            allowed = f"at most {MOST_IN_ALL:.0e} {one} x {other}, these are {amount[i]:.3g}"
            reason[i] = str(InputError(one, int(inputs[one][i]), allowed))
    return reason.astype(str)


def _of_files(inputs: Inputs) -> Ints:
    """Return the outline of every point's file, shape (points, 3)."""
    files, place = vocabulary(inputs["model.file"])
    return np.array([file.outline(one) for one in files], dtype=np.int64)[place]


def _structures(inputs: Inputs) -> Iterator[Ints]:
    """Yield the points of every structure."""
    keys = ("model.training", "model.layers", "model.file", "model.op", "model.part")
    first, place = kinds([inputs[key] for key in keys if key in inputs], inputs["model.training"].size)
    for structure in range(first.size):
        yield np.flatnonzero(place == structure)
