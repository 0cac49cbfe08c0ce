"""What the kernels of small networks compute, on NumPy arrays, and a whole network with its gradients.

A tensor is rows x columns. Rows are (batch, sequence), or one of these for every expert; columns are the
named dimensions of a side, in their order: `((name, size), ...)`, without a name where nothing is dealt out
along it. The loss sums every output that nothing reads, times a fixed array of `seeds`; of a row-wise output,
the roots of its rows.
"""

from math import prod
from typing import NamedTuple

import numpy as np

INPUT = "input"


def size(side):
    return prod(count for _, count in side)


class Op(NamedTuple):
    """One forward kernel; it reads other ops by name, or INPUT."""

    name: str
    type: str
    cols: tuple  # side of its output
    reads: tuple = ()
    vocabulary: tuple = ()  # side of a lookup's table, whose rows it reads
    layer: int = 0
    spread: bool = False  # whether it has a row for every expert
    grouped: bool = False  # whether those are dealt to the experts

    @property
    def deals(self):
        """Whether it deals copies of rows out to experts, or sums them up; linear, unlike other passes."""
        return self.type in ("dispatch", "combine")


class Net(NamedTuple):
    """A network, and numbers for it."""

    batch: int
    sequence: int
    experts: int
    input_cols: tuple  # side
    ops: tuple  # in forward order
    values: np.ndarray  # of the input
    weights: dict  # by op
    ids: np.ndarray  # (rows,) looked up
    seeds: dict  # by op without a reader: the gradient of its output

    def __repr__(self):
        return "\n".join(map(str, self.ops))

    def op(self, name):
        return next(op for op in self.ops if op.name == name)

    def rows(self, name):
        """Return the side of a tensor's rows."""
        rows = (("batch", self.batch), ("sequence", self.sequence))
        return (*rows, ("experts", self.experts)) if name != INPUT and self.op(name).spread else rows

    def cols(self, name):
        return self.input_cols if name == INPUT else self.op(name).cols

    def readers(self, name):
        return [op for op in self.ops if name in op.reads]

    def inner(self, op):
        """Return the sides of the rows of an op's weights, one an operand."""
        return [op.vocabulary] if op.type == "lookup" else [self.cols(name) for name in op.reads]

    def trained(self, name, needs_input_gradient):
        """Say whether the gradient of a tensor is wanted: whether weights lie at or below it."""
        if name == INPUT:
            return needs_input_gradient
        op = self.op(name)
        return op.type in ("gemm", "lookup") or any(
            self.trained(read, needs_input_gradient) for read in op.reads
        )


def folded(net, op, read, x):
    """Return an operand of a pass as (rows, parts of a wider tensor, columns), and each part's factor."""
    parts = size(net.cols(read)) // size(op.cols)
    return x.reshape(x.shape[0], parts, -1), 1.0 + np.arange(parts)[None, :, None] / parts


def heads(net, read, x, sequences):
    """Return a tensor as (sequences, rows of each, heads, columns of each)."""
    side = dict(net.cols(read))
    each = size(net.cols(read)) // side["heads"]
    return x.reshape(sequences, -1, x.shape[1] // each, each)


def operands(net, op, xs):
    """Return both operands of products by heads: halves of one tensor, or a tensor each.

    The right one has all rows of its sequences, the left one perhaps some.
    """
    sequences = xs[1].shape[0] // net.sequence
    left, right = (heads(net, read, x, sequences) for read, x in zip(both(op), xs, strict=True))
    if len(op.reads) == 1:
        half = left.shape[3] // 2
        return left[..., :half], right[..., half:]
    return left, right


def both(op):
    """Return what a kernel reads as each of its operands."""
    return op.reads * 2 if op.type == "batched_gemm" and len(op.reads) == 1 else op.reads


def per_expert(net, experts=None):
    """Return a factor for each of some experts, or of all."""
    return (1.0 + (np.arange(net.experts) if experts is None else experts) / net.experts)[None, :, None]


def dealt(x, factor):
    """Return a row for each of the factor's experts."""
    return (x[:, None, :] * factor).reshape(-1, x.shape[1])


def summed(x, factor):
    """Return the sum of the rows of the factor's experts."""
    return (x.reshape(-1, factor.size, x.shape[1]) * factor).sum(axis=1)


def spread(net, op, read, x, experts=None):
    """Return what a pass reads with the rows that it makes: one for every expert, or their sum.

    experts: those that there are on a device; None: all.
    """
    there = read != INPUT and net.op(read).spread
    if op.spread and not there:
        return dealt(x, per_expert(net, experts))
    return summed(x, per_expert(net, experts)) if there and not op.spread else x


def unspread(net, op, read, dx, experts=None):
    """Return the gradient of what a pass reads, of that with the rows that it makes."""
    there = read != INPUT and net.op(read).spread
    if op.spread and not there:
        return summed(dx, per_expert(net, experts))
    return dealt(dx, per_expert(net, experts)) if there and not op.spread else dx


def is_scores(op):
    """Say whether products by heads are q k^T; else scores times v."""
    return op.name.startswith("scores")


def root(net, op, total, x):
    return np.sqrt(1.0 + total((x * x).sum(axis=1, keepdims=True)) / size(op.cols))


def forward(net, op, xs, weights=None, first=None, total=lambda rows: rows, experts=None):
    """Return what a kernel makes of its operands, or of parts of them.

    first: of a lookup, the ids of the table's rows. total: sums numbers a row over parts of the columns.
    experts: those to whom it deals rows out, or whose rows it sums up.
    """
    if op.deals:
        return spread(net, op, op.reads[0], xs[0], experts)
    if op.type == "gemm":
        x = np.concatenate(xs, axis=1)
        return np.einsum("tei,eio->teo", x.reshape(-1, *weights.shape[:2]), weights).reshape(x.shape[0], -1)
    if op.type == "lookup":
        return (net.ids[xs[0]][:, None] == first[None, :]) @ weights  # xs: numbers of the rows
    if op.type == "elementwise":
        xs = [spread(net, op, read, x) for read, x in zip(op.reads, xs, strict=True)]
        parts = [folded(net, op, read, x) for read, x in zip(op.reads, xs, strict=True)]
        return np.tanh(sum((x * factor).sum(axis=1) for x, factor in parts))
    if op.type == "rowwise":
        return xs[0] / root(net, op, total, xs[0])
    left, right = operands(net, op, xs)
    form = "bqhd,bkhd->bqhk" if is_scores(op) else "bqhk,bkhd->bqhd"
    return np.einsum(form, left, right).reshape(xs[0].shape[0], -1)


def backward(
    net, op, xs, y, dy, weights=None, first=None, roots=None, total=lambda rows: rows, experts=None
):  # fmt: skip
    """Return the gradients of the operands, and of the weights or None; roots: of a row-wise kernel."""
    if op.deals:
        return [unspread(net, op, op.reads[0], dy, experts)], None
    if op.type == "gemm":
        borders = np.cumsum([x.shape[1] for x in xs])[:-1]
        x = np.concatenate(xs, axis=1).reshape(-1, *weights.shape[:2])
        out = dy.reshape(*x.shape[:2], -1)
        dx = np.einsum("teo,eio->tei", out, weights).reshape(xs[0].shape[0], -1)
        return np.split(dx, borders, axis=1), np.einsum("tei,teo->eio", x, out)
    if op.type == "lookup":
        return [], (net.ids[xs[0]][:, None] == first[None, :]).T @ dy
    if op.type == "elementwise":
        inner = ((1.0 - y * y) * dy)[:, None, :]
        xs = [spread(net, op, read, x) for read, x in zip(op.reads, xs, strict=True)]
        parts = [folded(net, op, read, x) for read, x in zip(op.reads, xs, strict=True)]
        found = [(np.ones_like(x) * factor * inner).reshape(x.shape[0], -1) for x, factor in parts]
        return [unspread(net, op, read, dx) for read, dx in zip(op.reads, found, strict=True)], None
    if op.type == "rowwise":
        n = size(op.cols)
        if dy is None:  # the sum of the roots: nothing that the forward pass has not summed
            return [y / n], None
        return [(dy - y * total((dy * y).sum(axis=1, keepdims=True)) / n) / roots], None
    left, right = operands(net, op, xs)
    out = dy.reshape(*left.shape[:3], -1)
    if is_scores(op):
        found = np.einsum("bqhk,bkhd->bqhd", out, right), np.einsum("bqhk,bqhd->bkhd", out, left)
    else:
        found = np.einsum("bqhd,bkhd->bqhk", out, right), np.einsum("bqhk,bqhd->bkhd", left, out)
    if len(op.reads) == 1:  # halves of it
        nothing = [np.zeros_like(part) for part in found]
        pairs = ((found[0], nothing[0]), (nothing[1], found[1]))
        found = [np.concatenate(pair, axis=3) for pair in pairs]
    return [part.reshape(x.shape) for part, x in zip(found, xs, strict=True)], None


def unsplit(net, needs_input_gradient):
    """Return all tensors by name, and the loss's gradients of the weights by op and of the input."""
    rows = np.arange(net.batch * net.sequence)
    made, first = {INPUT: net.values}, {}
    for op in net.ops:
        xs = [made[read] for read in both(op)] or [rows]
        first[op.name] = np.arange(size(op.vocabulary))
        made[op.name] = forward(net, op, xs, net.weights.get(op.name), first[op.name])
    gradients = {name: np.zeros_like(value) for name, value in made.items()}
    of_weights = {}
    for op in reversed(net.ops):
        dy = gradients[op.name]
        if not net.readers(op.name):
            dy = None if op.type == "rowwise" else net.seeds[op.name]
        xs = [made[read] for read in both(op)] or [rows]
        roots = root(net, op, lambda rows: rows, xs[0]) if op.type == "rowwise" else None
        found, of = backward(net, op, xs, made[op.name], dy, net.weights.get(op.name), first[op.name], roots)
        for read, part in zip(both(op), found, strict=True):
            gradients[read] += part
        if of is not None:
            of_weights[op.name] = of
    return made, of_weights, gradients[INPUT] if needs_input_gradient else None


def loss(net):
    """Return the loss of a whole network."""
    made, _, _ = unsplit(net, True)
    ends = [op for op in net.ops if not net.readers(op.name)]
    return sum(
        root(net, op, lambda rows: rows, made[op.reads[0]]).sum()
        if op.type == "rowwise"
        else (made[op.name] * net.seeds[op.name]).sum()
        for op in ends
    )
