"""Splits of random small networks, executed shard by shard: they give what the unsplit network gives."""

from math import prod

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fastflow.physics.parallelism.mesh import AXES
from fastflow.physics.parallelism.plans import PLANS, SEQUENCE, ULYSSES, assignment_of
from fastflow.physics.parallelism.sharding.layout import tensor_parallel
from fastflow.physics.parallelism.sharding.placements import ambiguous_dims
from fastflow.physics.parallelism.sharding.propagation import shardings_of
from fastflow.physics.parallelism.strategy import parse
from fastflow.physics.workload import network as layers
from fastflow.physics.workload.autodiff import kernels
from fastflow.physics.workload.graph import HIDDEN, Dims, stack
from fastflow.physics.workload.ops import TYPES
from fastflow.physics.workload.precision import UNSIZED
from tests.naive import maths
from tests.naive.maths import INPUT, Net, Op, size
from tests.naive.mesh import Mesh
from tests.naive.splits import Machine
from tests.support.checks import cases

NAMES = (
    "batch", "sequence", "hidden", "heads", "feed_forward", "vocabulary", "gates", "rows", "inner", "cols",
    "experts", "groups.experts", "activations.heads", "inner.experts", "dense.feed_forward",
)  # fmt: skip


def node(net, op, named):
    """Return an op as a user's network has it."""
    of = (lambda side: tuple(name for name, _ in side if name)) if named else (lambda side: ())
    inner = {of(side) for side in net.inner(op)} if op.type in ("gemm", "lookup") else set()
    rows, groups = ("batch", "sequence"), ("experts",) if op.grouped else ()
    if op.type == "batched_gemm":
        rows, groups = ("sequence",), ("batch",)
    if op.deals:
        inner = {("experts",)}
    dims = Dims(rows, inner.pop() if len(inner) == 1 else (), of(op.cols), groups) if named else Dims()
    reads = tuple(
        f"l{net.op(name).layer}.{name}" if name != INPUT and net.op(name).layer < op.layer else name
        for name in op.reads
    )
    one = layers.Node(op.name, TYPES[op.type], size(net.rows(op.name)), size(op.cols), reads=reads, dims=dims)
    if op.type in ("gemm", "lookup"):
        groups = net.experts if op.grouped else 1
        return one._replace(inner=sum(map(size, net.inner(op))), groups=groups)
    if op.type != "batched_gemm":
        return one
    heads = dict(op.cols)["heads"]
    each = size(net.cols(op.reads[0])) // heads // (2 if len(op.reads) == 1 else 1)
    return one._replace(
        batch=net.batch * heads,
        rows=net.sequence,
        inner=each,
        cols=size(op.cols) // heads,
        width=size(op.cols),
    )


def network(net, named, needs_input_gradient):
    """Return a network as the package has it."""
    found = [
        layers.Layer(
            f"l{number}", HIDDEN, tuple(node(net, op, named) for op in net.ops if op.layer == number)
        )
        for number in sorted({op.layer for op in net.ops})
    ]
    return layers.connect(found, needs_input_gradient)


def filled(ops, batch, sequence, input_cols, seed):
    """Return a network with random numbers."""
    rng = np.random.default_rng(seed)
    rows = batch * sequence
    values = rng.normal(size=(rows, size(input_cols)))
    net = Net(batch, sequence, batch, input_cols, tuple(ops), values, weights={}, ids=np.zeros(0), seeds={})
    vocabulary = max((size(op.vocabulary) for op in ops), default=1)
    weights = {
        op.name: rng.normal(
            size=(
                *((net.experts if op.grouped else 1,) if op.type == "gemm" else ()),
                sum(map(size, net.inner(op))),
                size(op.cols),
            )
        )
        / np.sqrt(size(op.cols))
        for op in ops
        if op.type in ("gemm", "lookup")
    }
    seeds = {op.name: rng.normal(size=(size(net.rows(op.name)), size(op.cols))) for op in ops}
    return net._replace(weights=weights, ids=rng.integers(0, vocabulary, rows), seeds=seeds)


def execute(net, mesh, assignment, named, needs_input_gradient):
    """Run the plan of a network, and compare with the network as a whole; False where there is no plan."""
    found = kernels(network(net, named, needs_input_gradient), True, UNSIZED)
    (structure,) = stack(found, 1).structures
    if any(ambiguous_dims(structure, cuts)[0] for _, cuts in assignment):
        return False
    machine = Machine(net, mesh, assignment, named, needs_input_gradient)
    machine.run(found, shardings_of(structure, assignment))
    made, of_weights, of_input = maths.unsplit(net, needs_input_gradient)
    for op in net.ops:
        for tensor in machine.copies[op.name]:
            for device, part in tensor.parts.items():
                near(part, made[op.name][np.ix_(*tensor.numbers(device))])
    for name, parts in machine.of_weights.items():
        for device, part in parts.items():
            own = machine.weight_numbers(net.op(name), device)[-part.ndim :]
            near(part, of_weights[name][np.ix_(*own)])
    assert machine.of_weights.keys() == of_weights.keys()
    if of_input is not None and net.readers(INPUT):
        near(machine.gradient_of_input(), of_input)
    return True


def near(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


def sides(times):
    """Return the sides that columns have; every dimension can be dealt out along all axes."""
    return {
        "hidden": (("hidden", 2 * times),), "feed_forward": (("feed_forward", times),),
        "heads": (("heads", times), ("", 2 * times)), "vocabulary": (("vocabulary", times),),
        "gates": (("gates", times), ("hidden", 2 * times)), "keys": (("heads", times), ("", times)),
    }  # fmt: skip


@st.composite
def nets(draw, times):
    """Draw a network of all types of kernel, with branches, skips and several operands."""
    known = sides(times)
    tensors, dealt = {INPUT: known["hidden"]}, {}
    ops, layer = [], 0
    for number in range(draw(st.integers(1, 7))):
        op = draw(_op_of_experts(number, tensors, dealt, known) if tensors and draw(st.integers(0, 3)) == 0
                  else _op(number, tensors, known))  # fmt: skip
        ops.append(op._replace(layer=layer))
        (dealt if op.spread else tensors)[op.name] = op.cols
        if draw(st.integers(0, 2)) == 0:
            layer += 1
            tensors.pop(INPUT, None)
    return filled(ops, times, times, known["hidden"], draw(st.integers(0, 99)))


@st.composite
def _op_of_experts(draw, number, tensors, dealt, known):
    """Draw a kernel with a row for every expert, or one that adds these up."""
    if not dealt:
        read = draw(st.sampled_from(list(tensors)))
        # rows of the network's input are as many as its reader's
        kind = draw(st.sampled_from(["elementwise", "dispatch"])) if read != INPUT else "elementwise"
        return Op(f"dispatch{number}", kind, tensors[read], (read,), spread=True)
    read = draw(st.sampled_from(list(dealt)))
    kind = draw(st.sampled_from(["gemm", "gemm", "elementwise", "rowwise", "combine", "sum"]))
    if kind == "combine":
        return Op(f"combine{number}", kind, dealt[read], (read,))
    if kind == "sum":
        others = [name for name in tensors if tensors[name] == dealt[read]]
        reads = (read, *draw(st.lists(st.sampled_from(others), max_size=1))) if others else (read,)
        return Op(f"sum{number}", "elementwise", dealt[read], reads)
    cols = known[draw(st.sampled_from(["hidden", "feed_forward"]))] if kind == "gemm" else dealt[read]
    return Op(f"expert{number}", kind, cols, (read,), spread=True, grouped=True)


@st.composite
def _op(draw, number, tensors, known):
    def reads(of, count):
        return tuple(draw(st.lists(st.sampled_from(of), min_size=1, max_size=count, unique=True)))

    of = {kind: [name for name, side in tensors.items() if side == known[kind]] for kind in known}
    kind = draw(st.sampled_from(["gemm", "gemm", "gemm", "elementwise", "rowwise", "heads", "lookup"]))
    outer = draw(st.sampled_from(["hidden", "hidden", "heads", "feed_forward", "vocabulary", "gates"]))
    if kind == "lookup" or not tensors:
        return Op(f"table{number}", "lookup", known[outer], (), known["vocabulary"])
    if kind == "heads" and of["heads"]:
        if of["keys"] and draw(st.booleans()):
            both = (*reads(of["keys"], 1), *reads(of["heads"], 1))
            return Op(f"context{number}", "batched_gemm", known["heads"], both)
        return Op(f"scores{number}", "batched_gemm", known["keys"], reads(of["heads"], 2))
    if kind == "elementwise" and of["gates"] and of["hidden"] and draw(st.booleans()):
        return Op(f"pass{number}", kind, known["hidden"], (*reads(of["gates"], 1), *reads(of["hidden"], 1)))
    if kind in ("elementwise", "rowwise"):
        first = draw(st.sampled_from(list(tensors)))
        alike = [name for name in tensors if tensors[name] == tensors[first]]
        return Op(f"pass{number}", kind, tensors[first], reads(alike, 1 if kind == "rowwise" else 3))
    return Op(f"product{number}", "gemm", known[outer], reads(list(tensors), 3))


# Two dimensions of one side, one of them not by its name: which that is depends on the kernel.
ASIDE = ({"gates", "cols"}, {"gates", "inner"})
DEGREES = {
    1: [(2,), (3,), (4,)], 2: [(2, 2), (1, 2), (3, 1), (3, 2), (2, 4)],
    3: [(2, 2, 2), (1, 2, 2), (1, 3, 2), (2, 1, 3), (4, 1, 1)],
    4: [(2, 2, 1, 1), (1, 2, 2, 1), (2, 1, 2, 1), (1, 1, 2, 2), (1, 3, 1, 2), (2, 2, 2, 1)],
}  # fmt: skip
KNOWN = {name: assignment_of(name) for name in PLANS} | {
    "sequence": assignment_of("TP", SEQUENCE), "all-to-all": assignment_of("TP", SEQUENCE, ULYSSES),
}  # fmt: skip


@st.composite
def assignments(draw):
    """Draw which dimensions every axis cuts."""
    cuts = st.lists(st.sampled_from(NAMES), max_size=4, unique=True).filter(
        lambda cut: not any(aside <= set(cut) for aside in ASIDE)
    )
    return tuple((axis, tuple(draw(cuts))) for axis in AXES[: draw(st.integers(1, 3))])


def check(data, assignment, named):
    """Draw a mesh, and a network whose dimensions its devices share evenly, and execute the plan."""
    degrees = data.draw(st.sampled_from(DEGREES[len(assignment)]))
    net = data.draw(nets(max(2, prod(degrees))))
    mesh = Mesh({axis: degree for (axis, _), degree in zip(assignment, degrees, strict=True)})
    return execute(net, mesh, assignment, named, data.draw(st.booleans()))


SIDES = sides(4)
TABLE = Op("table0", "lookup", SIDES["heads"], (), SIDES["vocabulary"])
WIDE = Op("table1", "lookup", SIDES["feed_forward"], (), SIDES["vocabulary"])
PICKED = {
    "sums of a part and of a whole": (
        (("kp1", ("heads",)),),
        (TABLE, WIDE, Op("product2", "gemm", SIDES["hidden"], ("table0",)),
         Op("product3", "gemm", SIDES["hidden"], ("table0", "table1"))),
    ),
    "readers that share a copy": (
        (("kp1", ("sequence", "cols")), ("kp2", ("cols",))),
        (TABLE, Op("product1", "gemm", SIDES["heads"], ("table0",)),
         Op("scores2", "batched_gemm", SIDES["keys"], ("table0", "product1"))),
    ),
    "a tensor beside the input": (
        assignment_of("RC"),
        (Op("product0", "gemm", SIDES["hidden"], (INPUT,)),
         Op("product1", "gemm", SIDES["hidden"], (INPUT, "product0"))),
    ),
    "halves of a tensor": (
        (("kp1", ("batch",)), ("kp2", ("sequence",))),
        (Op("product0", "gemm", SIDES["heads"], (INPUT,)),
         Op("scores1", "batched_gemm", SIDES["keys"], ("product0",))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PICKED)
def test_picked_networks(case):
    assignment, ops = PICKED[case]
    net = filled(ops, 4, 4, SIDES["hidden"], seed=1)
    mesh = Mesh({axis: 2 if place < 2 else 1 for place, (axis, _) in enumerate(assignment)})
    assert execute(net, mesh, assignment, named=True, needs_input_gradient=True)


@pytest.mark.long
@pytest.mark.parametrize("name", KNOWN)
@given(st.data(), st.booleans())
@cases(10)
def test_known_ways(name, data, named):
    assert check(data, KNOWN[name], named)


@pytest.mark.long
@given(st.data(), st.booleans())
@cases(60)
def test_random_assignments(data, named):
    assume(check(data, data.draw(assignments()), named))


EXPERTS = (
    "TP-2-e2", "TP-4-e4", "TP-2-e2-d2", "TP-2-e4-d2", "TP-4-e2-d2", "TP-3-e2-d2", "TP-1-c2-e2",
    "TP-1-c2-e4-d2", "TP-2-c2-e2", "TP-2-c2-e4", "TP-2-c2-e4-d2", "TP-2-c2-e8-d2", "TP-1-e3-d3",
    "TP-3-e3", "TP-2-c3-e6", "TP-2-c3-e2-d2",
)  # fmt: skip


@st.composite
def mixtures(draw, times):
    """Draw a layer of experts as a transformer has it, with or without a dense layer on the same input."""
    known, kind = sides(times), st.sampled_from(["elementwise", "rowwise"])
    hidden, wide = known["hidden"], known["feed_forward"]
    ops = [
        Op("norm", draw(kind), hidden, (INPUT,)),
        Op("dispatch", "dispatch", hidden, ("norm",), spread=True),
        Op("up", "gemm", wide, ("dispatch",), spread=True, grouped=True),
        Op("gate", draw(kind), wide, ("up",), spread=True, grouped=True),
        Op("down", "gemm", hidden, ("gate",), spread=True, grouped=True),
        Op("combine", "combine", hidden, ("down",)),
    ]
    if draw(st.booleans()):
        ops += [
            Op("shared_up", "gemm", wide, ("norm",)), Op("shared_gate", draw(kind), wide, ("shared_up",)),
            Op("shared_down", "gemm", hidden, ("shared_gate",)),
            Op("add", "elementwise", hidden, ("combine", "shared_down")),
        ]  # fmt: skip
    if draw(st.booleans()):
        ops.append(Op("head", "gemm", known["vocabulary"], (ops[-1].name,), layer=1))
    return filled(ops, times, times, hidden, draw(st.integers(0, 99)))


@pytest.mark.long
@given(st.data(), st.sampled_from(EXPERTS), st.booleans(), st.booleans(), st.booleans())
@cases(25)
def test_strategies_of_experts(data, text, whole, sequence, ulysses):
    """Experts are dealt along the axes that a strategy gives them, whole or cut by tensor parallelism."""
    degrees, dealing = parse(text).on_mesh(whole)
    assignment = tensor_parallel(sequence, ulysses, dealing, whole)
    mesh = Mesh({axis: degrees[AXES.index(axis)] for axis, _ in assignment})
    net = data.draw(mixtures(prod(degrees)) | nets(prod(degrees)))
    assert execute(net, mesh, assignment, named=True, needs_input_gradient=data.draw(st.booleans()))


@pytest.mark.long
@given(st.data(), st.booleans())
@cases(1000)
def test_many_random_assignments(data, named):
    assume(check(data, data.draw(assignments()), named))


@given(nets(2), st.integers(0, 2**32 - 1))
@cases(20)
def test_gradients_of_the_whole_network(net, seed):
    """They are the slopes of its loss."""
    _, of_weights, of_input = maths.unsplit(net, True)
    rng = np.random.default_rng(seed)
    steps = {name: rng.normal(size=value.shape) for name, value in net.weights.items()}
    step = rng.normal(size=net.values.shape)
    expected = sum((of_weights[name] * one).sum() for name, one in steps.items()) + (of_input * step).sum()

    def at(far):
        weights = {name: value + far * steps[name] for name, value in net.weights.items()}
        return maths.loss(net._replace(weights=weights, values=net.values + far * step))

    slope = (at(1e-5) - at(-1e-5)) / 2e-5
    assert slope == pytest.approx(expected, rel=1e-5, abs=1e-6)
