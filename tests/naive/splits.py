"""A plan of `parallelism.splits`, executed: every device of a mesh works on its own parts alone.

How a kernel is cut, what it reads and makes, and where tensors lie, is said here once more, by dimension.
Without an exchange a device can only take a part of what it has; all else comes from the exchanges that the
plan lists after each kernel. What these do not bring, or bring for nobody, is a `PlanError`.
"""

from math import prod

import numpy as np

from fastflow.parallelism.mesh import AXES, members
from fastflow.parallelism.splits import READ, STATISTICS, SUMMED
from fastflow.workload.graph import BACKWARD, COLLECTIVES, FORWARD, UPDATE
from tests.naive import maths
from tests.naive.maths import INPUT, size
from tests.naive.mesh import BROADCAST, PARTIAL, PlanError, Tensor, collective, joined, splits


def names(mask):
    """Return the axes of a set."""
    return {AXES[axis] for axis in members(mask)}


def last(side):
    """Return the last dimension of a side that can be cut."""
    return [dim for dim, _ in side if dim][-1]


class Machine:
    """The devices of a mesh, and what each has, while they work on one iteration of a network.

    assignment: the dimensions that every axis cuts, as `splits` has it. named: whether the kernels name
    theirs; else they can be cut in their sides alone.
    """

    def __init__(self, net, mesh, assignment, named, asks_input_gradient):
        self.net, self.mesh, self.assignment, self.named = net, mesh, dict(assignment), named
        self.asks = asks_input_gradient
        self.rows = (("batch", net.batch), ("sequence", net.sequence))
        self.copies = {INPUT: [self._whole(net.values, net.input_cols)]}  # of every tensor
        self.sums = {}  # what was added to the gradient of every tensor; products' by layer first
        self.gradients = {}  # copies of those that are complete
        self.of_weights, self.roots = {}, {}
        self.early = {}  # exchanges that take further tensors
        self.own_weights = {op.name: self._cut_weights(op) for op in net.ops if op.name in net.weights}

    def _whole(self, values, cols):
        layout = dict.fromkeys(self.mesh.degrees, BROADCAST)
        return Tensor(self.mesh, (self.rows, cols), layout, dict.fromkeys(self.mesh.devices, values))

    def dims(self, op):
        """Return the names of what a kernel's rows, inner dimension and columns can be cut in."""
        rows = [name for name, _ in self.rows][: 1 if op.type == "batched_gemm" else 2]
        sides = self.net.inner(op) if op.type in ("gemm", "lookup") else []
        inner = {tuple(name for name, _ in side if name) for side in sides}
        return rows, list(inner.pop()) if len(inner) == 1 else [], [name for name, _ in op.cols if name]

    def cut(self, op, axis, contracted=True):
        """Return (side, dimension) that an axis cuts of a kernel, or BROADCAST: the first that it has.

        A side for a dimension: the first of the rows, the last of the others. The dimension of an inner
        side is None where that is each operand's last. contracted: whether it may be an inner one.
        """
        rows, inner, cols = self.dims(op)
        for name in self.assignment[axis]:
            if name == "inner" and op.type == "gemm" and contracted:
                return "inner", None
            if name == "rows":
                return "rows", rows[0]
            if name == "cols" or (name == "inner" and op.type == "batched_gemm"):
                return "cols", cols[-1]
            if self.named:
                sides = {"rows": rows, "inner": inner if contracted else [], "cols": cols}
                for side, found in sides.items():
                    if name in found:
                        return side, name
        return BROADCAST

    def cuts(self, op):
        return {axis: self.cut(op, axis) for axis in self.assignment}

    def lies(self, name):
        """Return the layout in which a tensor lies."""
        if name == INPUT:
            return dict.fromkeys(self.assignment, BROADCAST)
        op, cuts = self.net.op(name), self.cuts(self.net.op(name))
        return {
            axis: self.cut(op, axis, contracted=False) if found[0] == "inner" else found
            for axis, found in cuts.items()
        }

    def made(self, op):
        """Return the layout of what a kernel makes."""
        return {axis: PARTIAL if found[0] == "inner" else found for axis, found in self.cuts(op).items()}

    def read(self, op, name):
        """Return the layout in which a kernel reads a tensor."""
        if op.type != "gemm":
            return self.cuts(op)
        found = {}
        for axis, (side, *dim) in self.cuts(op).items():
            found[axis] = {"rows": ("rows", *dim), "inner": ("cols", *dim)}.get(side, BROADCAST)
            if found[axis] == ("cols", None):
                found[axis] = ("cols", last(self.net.cols(name)))
        return found

    def differentiated(self, op):
        """Return the layout in which a kernel's backward pass reads its output's gradient."""
        return {axis: BROADCAST if found[0] == "inner" else found for axis, found in self.cuts(op).items()}

    def added(self, op, name):
        """Return the layout of what a kernel adds to a tensor's gradient."""
        if op.type != "gemm":
            return self.cuts(op)
        partial = {axis for axis, found in self.cuts(op).items() if found[0] == "cols"}
        return self.read(op, name) | dict.fromkeys(partial, PARTIAL)

    def _cut_weights(self, op):
        """Return every device's part of an op's weights."""
        return {
            device: self.net.weights[op.name][np.ix_(*self.weight_numbers(op, device))]
            for device in self.mesh.devices
        }

    def weight_numbers(self, op, device):
        """Return which rows and columns of an op's weights a device has."""
        inner, before, cuts = [], 0, self.cuts(op)
        for side in self.net.inner(op):
            cut = {axis: found[1] or last(side) for axis, found in cuts.items() if found[0] == "inner"}
            inner.append(before + self.mesh.numbers(device, side, cut))
            before += size(side)
        return np.concatenate(inner), self.mesh.numbers(device, op.cols, splits(cuts, "cols"))

    def run(self, kernels, plan):
        """Do what a plan says; kernels: of the network, plan: the splits of each."""
        for kernel, split in zip(kernels, plan, strict=True):
            op = self.of(kernel)
            self.check_cut(kernel, split, op)
            if kernel.phase == FORWARD:
                self.forward(op, kernel, split)
            elif kernel.phase == BACKWARD:
                self.backward(op, kernel, split)
            elif kernel.phase == UPDATE and kernel.statistics:
                axes = names(split.inner | split.cols)
                if self.statistics(split) != axes:
                    raise PlanError(f"{kernel.label}: its statistics along {axes}")

    def of(self, kernel):
        return self.net.op(kernel.label.partition(" ")[0])

    def check_cut(self, kernel, split, op):
        """Check the sides that a plan cuts: each axis the one of the first dimension that the kernel has."""
        found = {"rows": split.rows, "inner": split.inner, "cols": split.cols}
        for side, mask in found.items():
            if kernel.phase == UPDATE and side == "rows":
                continue
            expected = {axis for axis, cut in self.cuts(op).items() if cut[0] == side}
            if names(mask) != expected:
                raise PlanError(f"{kernel.label} is cut in {side} along {names(mask)}, not {expected}")

    def statistics(self, split):
        """Return the axes along which statistics of rows are summed."""
        return {
            axis for one in split.exchanges if one.of == STATISTICS or one.cols for axis in names(one.axes)
        }

    def operand(self, op, name):
        """Return a tensor as a kernel reads it, from what a device has."""
        return self.pick(self.copies[name], self.read(op, name), f"{op.name} reads {name}")

    def pick(self, copies, want, what):
        for one in copies:
            found = one.taken(want)
            if found is not None:
                return found
        raise PlanError(f"{what} as {want}, which is {[one.layout for one in copies]}")

    def totals(self, op, split, work):
        """Call work(device, total) on every device; total sums numbers of rows over the columns' devices."""
        axes = {axis for axis, found in self.cuts(op).items() if found[0] == "cols"}
        sent = {device: [] for device in self.mesh.devices}
        for device, own in sent.items():
            work(device, lambda rows, own=own: own.append(rows) or rows)
        if any(sent.values()) and self.statistics(split) != axes:
            raise PlanError(f"{op.name}: statistics along {self.statistics(split)}, not {axes}")
        if not any(sent.values()) and self.statistics(split):
            raise PlanError(f"{op.name}: statistics of nothing")
        found = {}
        for device in self.mesh.devices:
            whole = [
                sum(parts) for parts in zip(*(sent[at] for at in self.mesh.group(device, axes)), strict=True)
            ]
            found[device] = work(device, lambda rows, whole=whole: whole[0])
        return found

    def on(self, op, device):
        """Return the weights of a device, and of a table the ids of its rows."""
        if op.name not in self.own_weights:
            return {}
        return {"weights": self.own_weights[op.name][device], "first": self.weight_numbers(op, device)[0]}

    def row_numbers(self, op, device):
        return self.mesh.numbers(device, self.rows, splits(self.cuts(op), "rows"))

    def forward(self, op, kernel, split):
        xs = [self.operand(op, name) for name in op.reads]

        def work(device, total):
            parts = [x.parts[device] for x in xs] or [self.row_numbers(op, device)]
            if op.type == "rowwise":
                self.roots[op.name, device] = maths.root(self.net, op, total, parts[0])
            return maths.forward(self.net, op, parts, total=total, **self.on(op, device))

        parts = self.totals(op, split, work)
        tensor = Tensor(self.mesh, (self.rows, op.cols), self.made(op), parts)
        (tensor,) = self.exchange(kernel, split, SUMMED, [(tensor, self.lies(op.name))])
        readers = self.net.readers(op.name)
        want = [self.read(one, op.name) for one in readers] or [self.read_outside(op)]
        self.copies[op.name] = self.read_too(kernel, split, [(tensor, want)])[0]

    def read_outside(self, op):
        """Return how an output is wanted: a product's as one more product, of its own cut, reads it."""
        if op.type != "gemm":
            return self.lies(op.name)
        turned = {"rows": lambda cut: cut, "inner": lambda cut: ("cols", last(op.cols))}
        return {axis: turned.get(cut[0], lambda cut: BROADCAST)(cut) for axis, cut in self.cuts(op).items()}

    def read_too(self, kernel, split, tensors, more=False):
        """Return the copies of tensors, each with the layouts wanted of it, once they are exchanged."""
        turned = []
        for tensor, want in tensors:
            others = [one for one in want if tensor.taken(one) is None]  # these share a copy
            wanted = dict(tensor.layout)
            for axis in wanted if others else ():
                found = {one[axis] for one in others}
                wanted[axis] = found.pop() if len(found) == 1 else BROADCAST
            turned.append((tensor, wanted))
        found = self.exchange(kernel, split, READ, turned, more)
        return [[one] if new is one else [one, new] for (one, _), new in zip(tensors, found, strict=True)]

    def exchange(self, kernel, split, of, tensors, more=False):
        """Do a kernel's exchanges of some columns on tensors, each with the layout that it goes to.

        more: whether the same exchanges take further tensors afterwards.
        """
        tensors = list(tensors)
        for one in split.exchanges:
            if one.of != of:
                continue
            done, elements, count = self.early.pop(one, (set(), 0, 0))
            count += len(tensors)
            for place, (tensor, want) in enumerate(tensors):
                name = COLLECTIVES[one.collective]
                turns = {axis for axis in want if collective(tensor.layout[axis], want[axis]) == name}
                sides = [names(one.rows_by), names(one.cols_by)]
                if turns == names(one.axes) and self.sides(tensor, name, turns) == sides:
                    layout = tensor.layout | {axis: want[axis] for axis in turns}
                    new = tensor.moved(turns, layout)
                    elements += max(tensor.elements, new.elements)
                    count -= 1
                    tensors[place] = new, want
                    done |= turns
            if more:
                self.early[one] = done, elements, count
                continue
            if done != names(one.axes):
                raise PlanError(f"{kernel.label}: {one} for nobody; {[(t.layout, w) for t, w in tensors]}")
            self.check_bytes(kernel, one, elements, count)
        return [tensor for tensor, _ in tensors]

    def sides(self, tensor, collective, turns):
        """Return the axes that split the rows, and the columns, of a tensor as an exchange counts it."""
        gone = turns if collective == "all-gather" else set()
        return [set(splits(tensor.layout, side)) - gone for side in ("rows", "cols")]

    def check_bytes(self, kernel, one, elements, others):
        """Check the elements of an exchange, which are those of parts before or after it.

        Of several tensors that a kernel completes a plan counts all, also those that go to another layout.
        """

        def ways(mask):
            return prod(self.mesh.degrees[axis] for axis in names(mask))

        cols = kernel.summed_cols if one.of == SUMMED else kernel.read_cols
        said = kernel.rows / ways(one.rows_by) * cols / ways(one.cols_by)
        if said < elements or (said > elements and not others):
            raise PlanError(f"{kernel.label}: {one} of {said} elements, which are {elements}")

    def wanted(self, op):
        return [name for name in op.reads if self.net.trained(name, self.asks)]

    def gradient(self, op):
        """Return the gradient of an op's output as its backward pass reads it; None: of a loss."""
        if not self.net.readers(op.name) and op.type == "rowwise":
            return None
        return self.pick(self.completed(op), self.differentiated(op), f"{op.name} reads its gradient")

    def gradient_lies(self, name):
        """Return the layout in which a tensor's gradient is summed: of a table, as the table reads it."""
        if name != INPUT and self.net.op(name).type == "lookup":
            return self.differentiated(self.net.op(name))
        return self.lies(name)

    def completed(self, op):
        """Return the copies of the gradient of an op's output, in the layout in which that lies first."""
        if op.name not in self.gradients:
            if self.net.readers(op.name):
                total = joined(self.sums[op.name])
            else:
                total = self._whole(self.net.seeds[op.name], op.cols).moved((), self.gradient_lies(op.name))
            self.gradients[op.name] = [total]
        return self.gradients[op.name]

    def completes(self, op):
        """Return products whose output's gradient is complete after an op's kernels."""
        return [
            one
            for one in self.net.ops
            if one.type == "gemm" and (self.net.readers(one.name) or [one])[0] is op
        ]

    def backward(self, op, kernel, split):
        completes = self.completes(op)
        ends = [one for one in completes if not self.net.readers(one.name)]
        to_weights, left = (kernel.label.endswith(f"{end} gradient") for end in ("weight", "left"))
        completing = not left and not (to_weights and self.wanted(op))
        if completing:  # its own output's first, which it reads itself
            self.complete(kernel, split, ends, more=True)
        dy = self.gradient(op)
        xs = [self.operand(op, name) for name in op.reads]
        y = None if op.name in self.own_weights else self.pick(self.copies[op.name], self.cuts(op), op.name)

        def work(device, total):
            parts = [x.parts[device] for x in xs] or [self.row_numbers(op, device)]
            return maths.backward(
                self.net, op, parts, y and y.parts[device], dy and dy.parts[device],
                roots=self.roots.get((op.name, device)), total=total, **self.on(op, device),
            )  # fmt: skip

        found = self.totals(op, split, work)
        if kernel.gradient:
            self.sum_weights(op, split, {device: part for device, (_, part) in found.items()})
        reads = self.wanted(op)
        if op.type == "batched_gemm":  # a kernel each for the gradients of two tensors
            reads = [
                name for name in reads if name == op.reads[0 if left else -1] and (not left or op.reads[1:])
            ]
        if not to_weights:
            self.add(op, kernel, split, reads, {device: parts for device, (parts, _) in found.items()})
        if completing:
            self.complete(kernel, split, [one for one in completes if one not in ends])

    def sum_weights(self, op, split, parts):
        """Sum the gradients of weights where they are partial."""
        rows = {axis for axis, found in self.cuts(op).items() if found[0] == "rows"}
        if names(split.sharing) != rows:
            raise PlanError(
                f"{op.name}: weights' gradients are summed along {names(split.sharing)}, not {rows}"
            )
        self.of_weights[op.name] = {
            device: sum(parts[at] for at in self.mesh.group(device, rows)) for device in self.mesh.devices
        }

    def add(self, op, kernel, split, reads, parts):
        """Add what a kernel's backward pass makes to the gradients of what it reads."""
        ready = []
        for name in reads:
            own = {device: part[op.reads.index(name)] for device, part in parts.items()}
            tensor = Tensor(self.mesh, (self.rows, self.net.cols(name)), self.added(op, name), own)
            if op.type == "gemm" and name != INPUT:
                key = name, op.layer
                self.sums.setdefault(key, []).append(tensor)
                adders = [
                    one for one in self.net.readers(name) if one.type == "gemm" and one.layer == op.layer
                ]
                if adders[0] is not op:
                    continue
                tensor = joined(self.sums.pop(key))
            want = self.gradient_lies(name)
            if name == INPUT:  # whoever made it has not dealt it out
                want = {axis: BROADCAST if here == PARTIAL else here for axis, here in tensor.layout.items()}
            ready.append((name, tensor, want))
        found = self.exchange(kernel, split, SUMMED, [(tensor, want) for _, tensor, want in ready])
        for (name, _, want), tensor in zip(ready, found, strict=True):
            self.sums.setdefault(name, []).append(
                self.pick([tensor], want, f"gradient of {name} by {op.name}")
            )

    def complete(self, kernel, split, ops, more=False):
        """Exchange the gradients of some ops' outputs as their backward passes read them."""
        tensors = [(self.completed(one)[0], [self.differentiated(one)]) for one in ops]
        for one, copies in zip(ops, self.read_too(kernel, split, tensors, more), strict=True):
            self.gradients[one.name] = copies

    def gradient_of_input(self):
        """Return the gradient of the network's input, from what the devices have of it."""
        for one in self.sums[INPUT]:
            if PARTIAL in one.layout.values():
                raise PlanError(f"the gradient of the input is left as {one.layout}")
        return sum(
            part for one in self.sums[INPUT] for part in one.spread(set(self.assignment)).parts.values()
        )
