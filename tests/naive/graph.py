"""The kernels of one iteration of a network, tensor by tensor (issue 5, item 1; exchanges: section 3.3).

`document` is what a graph file says, as plain mappings and lists. Every kernel that comes out is a mapping;
bytes of passes are in elements. Rules:

  - forward in order; backward in reverse order; all gradient norms, then all updates.
  - a tensor is rows x columns; either kernel cut holds it dealt out by columns.
  - Row-Column: a weight product needs all columns of what it reads, so whoever makes that gathers it.
    Its input gradient is partial sums, which go back to the owners of the columns.
  - Column-Row: a weight product makes partial sums of all columns, which go to the columns' owners.
    Its backward products need the whole gradient of its output, so whoever completes that gathers it.
  - a row-wise pass needs every row's statistics (4 columns), backward too unless it is a loss. Where it also
    gathers, 8 more columns travel with the gather (an all-reduce moves twice what a gather does).
"""

from math import prod

KINDS = {"embedding": 0, "hidden": 1, "softmax": 2}
STATISTICS = 4


class Op:
    """One forward kernel of one instance of a layer."""

    def __init__(self, entry, layer, kind, rows):
        self.name, self.type, self.entry = entry["name"], entry["type"], entry
        self.layer, self.kind = layer, KINDS[kind]
        self.steps = entry.get("steps", 1)
        self.all_rows = entry.get("rows", rows) * entry.get("batch", 1)  # of its output, all steps
        self.rows = self.all_rows // self.steps
        self.cols = entry["cols"]
        self.inner = entry.get("vocabulary", entry.get("inner", 1))
        self.seen_cols = self.cols  # as others see the output: rows of the model
        if self.type == "batched_gemm":
            self.seen_cols = self.all_rows * self.cols // rows
        self.elements = self.all_rows * self.cols
        self.reads = []  # pairs: another op, or None for the network's input; whether it is a step old

    @property
    def weights(self):
        return self.type in ("gemm", "lookup")


def in_numbers(value, dimensions):
    """Write the names of dimensions as their sizes, and lists of them as products."""
    if isinstance(value, list):
        return prod(in_numbers(one, dimensions) for one in value)
    return dimensions.get(value, value)


SIZES = ("rows", "batch", "inner", "cols", "vocabulary")


def without_names(entry, dimensions):
    return {key: in_numbers(one, dimensions) if key in SIZES else one for key, one in entry.items()}


def expand(document):
    """Write repeated layers out, and find what every kernel reads."""
    dimensions = document.get("dimensions", {})
    rows = in_numbers(document["rows"], dimensions)
    ops, number, below, outputs = [], 0, None, {}
    for layer in document["layers"]:
        for _ in range(layer.get("repeat", 1)):
            here = [
                Op(without_names(entry, dimensions), number, layer.get("kind", "hidden"), rows)
                for entry in layer["kernels"]
            ]
            for place, op in enumerate(here):
                if op.type == "lookup":
                    continue
                before = here[place - 1].name if place else "input"
                for name in op.entry.get("reads", [before]):
                    mine = [i for i, other in enumerate(here) if other.name == name]
                    if name == "input":
                        op.reads.append((below, False))
                    elif mine:
                        op.reads.append((here[mine[0]], mine[0] >= place))
                    else:
                        op.reads.append((outputs[name], False))
            ops += here
            number, below = number + 1, here[-1]
        outputs |= {f"{layer['name']}.{op.name}": op for op in here}
    return ops


def depends_on_weights(op, seen=()):
    """Say whether a tensor's gradient is wanted: whether any weights lie at or below it."""
    if op is None or op in seen:
        return False
    return op.weights or any(depends_on_weights(other, (*seen, op)) for other, _ in op.reads)


def readers_of(op, ops):
    """Return pairs: an op that reads this one's output, and whether it reads that of a step ago."""
    return [(other, old) for other in ops for made, old in other.reads if made is op]


def neighbour(op, others):
    """Return the kind of the layer at the other end of a tensor: another layer before one's own."""
    return next((other.kind for other in others if other is not None and other.layer != op.layer), op.kind)


def row(label, phase, kind, op, **more):
    """Return one kernel with nothing exchanged."""
    return {
        "label": label, "phase": phase, "kind": kind, "rows": op.rows, "inner": 1, "cols": op.cols,
        "repeat": op.steps, "products": 1, "moved": 0.0, "flop": 0.0, "rc": ("", 0), "cr": ("", 0),
        "weights": 0, "gradient": 0, "kept": 0, "whole": 0, "layer": op.layer, "layer_kind": op.kind,
        "peer_kind": op.kind, "wait": 1, "side": 0, "sends": 0,
    } | more  # fmt: skip


def with_statistics(exchange):
    """Let the statistics of rows travel along."""
    collective, cols = exchange
    return (collective, cols + 2 * STATISTICS) if collective else ("all-reduce", STATISTICS)


def elements_moved(op, times):
    """Return what a pass reads, so many times, and its output, per element of the output."""
    return 1.0 + times * sum(1.0 if made is None else made.seen_cols / op.seen_cols for made, _ in op.reads)


def forward(op, ops, training):
    found = row(op.name, "forward", "pass", op)
    readers = readers_of(op, ops)
    products = [other for other, _ in readers if other.type == "gemm"]
    if products or (op.type == "gemm" and not readers):
        found |= {"rc": ("all-gather", op.cols), "peer_kind": neighbour(op, products)}
    if op.type == "gemm":
        found |= {"kind": "product", "inner": op.inner, "weights": 1, "cr": ("reduce-scatter", op.cols)}
    elif op.type == "batched_gemm":
        found |= {"kind": "batched", "inner": op.inner, "products": op.entry["batch"]}
    elif op.type == "lookup":
        found |= {"inner": op.inner, "weights": 1, "moved": 2.0}
    else:
        found |= {"moved": elements_moved(op, 1)}
        if op.type == "rowwise":
            found |= {"rc": with_statistics(found["rc"]), "cr": with_statistics(found["cr"])}
    found["moved"] = op.entry.get("moves", found["moved"])
    found["flop"] = op.entry.get("flop", 0.0)
    if training:
        found["kept"] = op.entry.get("keeps", op.cols if readers and not products else 0)
        found["whole"] = op.entry.get("keeps_whole", op.cols if products else 0)
    return found


def completes(op, ops):
    """Return the products whose output's gradient is complete once this op's backward pass is done."""
    found = []
    for product in ops:
        if product.type == "gemm":
            readers = readers_of(product, ops)
            order = (
                [other for other, old in readers if not old] or [other for other, _ in readers] or [product]
            )
            if min(order, key=ops.index) is op:
                found.append(product)
    return found


def backward(op, ops):
    gathered = completes(op, ops)
    gathers = {}
    if gathered:
        elements = sum(product.elements for product in gathered)
        gathers = {"peer_kind": neighbour(op, gathered)}
        exchange = lambda rows: ("all-gather", round(elements / rows))  # noqa: E731
    wanted = [(made, old) for made, old in op.reads if depends_on_weights(made)]
    if op.type == "lookup":
        one = row(f"{op.name} gradient", "backward", "pass", op, inner=op.inner, gradient=2, side=1)
        return [
            one | {"moved": op.entry.get("backward_moves", 3.0), "flop": op.entry.get("backward_flop", 1.0)}
        ]
    if op.type == "gemm":
        to_weights = row(
            f"{op.name} weight gradient", "backward", "weight gradient", op,
            rows=op.all_rows, repeat=1, inner=op.inner, gradient=1, side=1,
        )  # fmt: skip
        if not wanted:
            return [to_weights | gathers | ({"cr": exchange(op.all_rows)} if gathered else {})]
        inner = op.inner if len(wanted) == len(op.reads) else sum(made.seen_cols for made, _ in wanted)
        summed = 0
        for made, old in wanted:
            # the partial sums of one tensor are added up in a layer before they are exchanged
            others = [
                o
                for o, o_old in readers_of(made, ops)
                if o.type == "gemm" and not o_old and o.layer == op.layer
            ]
            if old or others[0] is op:
                summed += made.seen_cols
        to_input = row(
            f"{op.name} input gradient", "backward", "input gradient", op, inner=inner,
            wait=1 if op in gathered or any(old for _, old in op.reads) else 2,
            rc=("reduce-scatter", summed) if summed else ("", 0),
            peer_kind=neighbour(op, [made for made, _ in wanted]),
        )  # fmt: skip
        return [to_input | ({"cr": exchange(op.all_rows)} if gathered else {}), to_weights]
    if not wanted:
        return []
    if op.type == "batched_gemm":
        batch, rows, inner, cols = op.entry["batch"], op.entry["rows"], op.inner, op.cols
        left = row(
            f"{op.name} left gradient", "backward", "batched", op,
            rows=batch * rows, inner=cols, cols=inner, products=batch,
        )  # fmt: skip
        right = row(
            f"{op.name} right gradient", "backward", "batched", op,
            rows=batch * inner, inner=rows, cols=cols, products=batch,
        )  # fmt: skip
        return [left, right | gathers | ({"cr": exchange(batch * inner)} if gathered else {})]
    one = row(f"{op.name} gradient", "backward", "pass", op) | gathers
    if gathered:
        one["cr"] = exchange(op.all_rows)
    if op.type == "rowwise" and readers_of(op, ops):
        one |= {"rc": with_statistics(one["rc"]), "cr": with_statistics(one["cr"])}
    one["moved"] = op.entry.get("backward_moves", elements_moved(op, 2))
    one["flop"] = op.entry.get("backward_flop", op.entry.get("flop", 0.0))
    return [one]


def crossing(ops, border, gradients):
    """Return the elements of the tensors made at or below a layer and read above it."""
    return sum(
        op.elements
        for op in ops
        if op.layer <= border
        and any(other.layer > border for other, _ in readers_of(op, ops))
        and (not gradients or depends_on_weights(op))
    )


def kernels(document, training):
    """Return the kernels of one iteration in order."""
    ops = expand(document)
    found = []
    for op in ops:
        one = forward(op, ops, training)
        if op is [other for other in ops if other.layer == op.layer][-1]:
            one["sends"] = round(crossing(ops, op.layer, False) / op.all_rows)
            if one["rc"][0] != "all-gather":
                one["peer_kind"] = neighbour(op, [other for other, _ in readers_of(op, ops)])
        found.append(one)
    if not training:
        return found
    for layer in range(ops[-1].layer, -1, -1):
        rows = [one for op in reversed(ops) if op.layer == layer for one in backward(op, ops)]
        if layer and rows:
            main = [one for one in rows if not one["side"]] or rows
            main[-1]["sends"] = round(
                crossing(ops, layer - 1, True) / (main[-1]["rows"] * main[-1]["repeat"])
            )
            if main[-1]["kind"] != "input gradient":
                main[-1]["peer_kind"] = next(op.kind for op in ops if op.layer == layer - 1)
        found += rows
    owners = [op for op in ops if op.weights]
    for what in ("gradient norm", "update"):
        for place, op in enumerate(owners):
            inner = op.inner if op.type == "gemm" else min(op.inner, op.all_rows)
            statistics = ("all-reduce", STATISTICS) if what == "gradient norm" else ("", 0)
            found.append(
                row(
                    f"{op.name} {what}", "update", "weights", op,
                    rows=1, inner=inner, repeat=1, rc=statistics, cr=statistics,
                    wait=len(owners) - place if what == "gradient norm" else 1,
                )
            )  # fmt: skip
    return found
