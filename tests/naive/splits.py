"""A plan of `sharding.propagation`, executed: every device of a mesh works on its own parts alone.

How a kernel is cut, what it reads and makes, and where tensors lie, is said here once more, by dimension.
Without an exchange a device can only take a part of what it has; all else comes from the exchanges that the
plan lists after each kernel. What these do not bring, or bring for nobody, is a `PlanError`.
"""

from math import prod

import numpy as np

from fastflow.physics.parallelism.mesh import AXES, members
from fastflow.physics.parallelism.sharding.propagation import READ, SHARED, STATISTICS, SUMMED
from fastflow.physics.workload.graph import BACKWARD, COLLECTIVES, FORWARD, UPDATE
from tests.naive import maths
from tests.naive.maths import INPUT, both, size
from tests.naive.mesh import BROADCAST, PARTIAL, PlanError, Tensor, collective, joined, splits

DEALT = "dealt"  # the side of passes that deal rows out to experts, or sum them up
OF_EXPERTS = ("rows", "experts")


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

    def __init__(self, net, mesh, assignment, named, needs_input_gradient):
        self.net, self.mesh, self.assignment, self.named = net, mesh, dict(assignment), named
        self.asks = needs_input_gradient
        self.copies = {INPUT: [self._whole(net.values, INPUT)]}  # of every tensor
        self.sums = {}  # what was added to the gradient of every tensor; products' by layer first
        self.gradients = {}  # copies of those that are complete
        self.of_weights, self.roots = {}, {}
        self.early = {}  # exchanges that take further tensors
        self.next_by_heads = None  # products whose shared operand comes again
        self.own_weights = {op.name: self._cut_weights(op) for op in net.ops if op.name in net.weights}

    def sides(self, name):
        return self.net.rows(name), self.net.cols(name)

    def _whole(self, values, name):
        layout = dict.fromkeys(self.mesh.degrees, BROADCAST)
        return Tensor(self.mesh, self.sides(name), layout, dict.fromkeys(self.mesh.devices, values))

    def dims(self, op):
        """Return the names of what a kernel's rows, inner dimension and columns can be cut in."""
        rows = ["batch", "sequence"]
        sides = self.net.inner(op) if op.type in ("gemm", "lookup") else []
        inner = {tuple(name for name, _ in side if name) for side in sides}
        return rows, list(inner.pop()) if len(inner) == 1 else [], [name for name, _ in op.cols if name]

    def cut(self, op, axis, contracted=True):
        """Return (side, dimension) that an axis cuts of a kernel, or BROADCAST: the first that it has.

        A side for a dimension: the first of the rows, the last of the others. The dimension of an inner
        side is None where that is each operand's last. Experts are rows of tensors. contracted: whether it
        may be an inner one.
        """
        rows, inner, cols = self.dims(op)
        for name in self.assignment[axis]:
            if name.startswith("activations."):
                if op.type in ("gemm", "lookup") and contracted:  # else it is cut as a pass over it would be
                    continue
                name = name.removeprefix("activations.")
            if name.startswith("groups."):
                if not op.grouped:
                    continue
                name = name.removeprefix("groups.")
            if name.startswith("dense."):
                if op.grouped:
                    continue
                name = name.removeprefix("dense.")
            if name in ("inner.experts", "experts") and op.deals and self.named and contracted:
                return DEALT, "experts"  # to whom rows are dealt out, or whose rows are summed up
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
                if op.grouped and name == "experts":
                    return "rows", name
        return BROADCAST

    def cuts(self, op):
        return {axis: self.cut(op, axis) for axis in self.assignment}

    def lies(self, name):
        """Return the layout in which a tensor lies."""
        if name == INPUT:
            return dict.fromkeys(self.assignment, BROADCAST)
        op, made = self.net.op(name), self.made(self.net.op(name))
        return {
            axis: self.cut(op, axis, contracted=False) if found == PARTIAL else found
            for axis, found in made.items()
        }

    def made(self, op):
        """Return the layout of what a kernel makes: partial sums of what it contracts, or of own experts."""
        turned = {"inner": lambda _: PARTIAL, DEALT: lambda _: OF_EXPERTS if op.spread else PARTIAL}
        return {axis: turned.get(cut[0], lambda one: one)(cut) for axis, cut in self.cuts(op).items()}

    def read(self, op, name, operand=0):
        """Return the layout in which a kernel reads a tensor: all keys, of the queries that it has."""
        if op.type != "gemm":
            cuts = self.cuts(op)
            cuts |= dict.fromkeys(self.dealing(op), BROADCAST if op.spread else OF_EXPERTS)
            return cuts | dict.fromkeys(self.by_queries(op) if operand else (), BROADCAST)
        found = {}
        for axis, (side, *dim) in self.cuts(op).items():
            found[axis] = {"rows": ("rows", *dim), "inner": ("cols", *dim)}.get(side, BROADCAST)
            if found[axis] == ("cols", None):
                found[axis] = ("cols", last(self.net.cols(name)))
        return found

    def differentiated(self, op):
        """Return the layout in which a kernel's backward pass reads its output's gradient."""
        return {axis: BROADCAST if found == PARTIAL else found for axis, found in self.made(op).items()}

    def dealing(self, op):
        """Return the axes along which a pass has other experts, to whom it deals rows or whose it sums."""
        return {axis for axis, cut in self.cuts(op).items() if cut[0] == DEALT}

    def by_queries(self, op):
        """Return the axes along which products by heads have other queries, and the same keys."""
        is_batched = op.type == "batched_gemm"
        return {axis for axis, cut in self.cuts(op).items() if is_batched and cut == ("rows", "sequence")}

    def added(self, op, name, operand=0):
        """Return the layout of what a kernel adds to a tensor's gradient."""
        if op.type != "gemm":
            whole = self.dealing(op) if op.spread else self.by_queries(op) if operand else ()
            return self.read(op, name, operand) | dict.fromkeys(whole, PARTIAL)
        partial = {axis for axis, found in self.cuts(op).items() if found[0] == "cols"}
        return self.read(op, name) | dict.fromkeys(partial, PARTIAL)

    def _cut_weights(self, op):
        """Return every device's part of an op's weights."""
        weights = self.net.weights[op.name]
        return {
            device: weights[np.ix_(*self.weight_numbers(op, device)[-weights.ndim :])]
            for device in self.mesh.devices
        }

    def weight_numbers(self, op, device):
        """Return which experts, rows and columns of an op's weights a device has."""
        inner, before, cuts = [], 0, self.cuts(op)
        for side in self.net.inner(op):
            cut = {axis: found[1] or last(side) for axis, found in cuts.items() if found[0] == "inner"}
            inner.append(before + self.mesh.numbers(device, side, cut))
            before += size(side)
        experts = (("experts", self.net.experts) if op.grouped else ("", 1),)
        own = {axis: name for axis, name in splits(cuts, "rows").items() if name == "experts"}
        return (
            self.mesh.numbers(device, experts, own),
            np.concatenate(inner),
            self.mesh.numbers(device, op.cols, splits(cuts, "cols")),
        )

    def run(self, kernels, plan):
        """Do what a plan says; kernels: of the network, plan: the splits of each."""
        for number, (kernel, split) in enumerate(zip(kernels, plan, strict=True)):
            op = self.of(kernel)
            self.check_cut(kernel, split, op)
            self.check_again(kernels, number)
            if kernel.regathered:
                self.next_by_heads = next(
                    self.of(one) for one in kernels[number:] if one.label.endswith("left gradient")
                )
            if kernel.phase == FORWARD:
                self.forward(op, kernel, split)
            elif kernel.phase == BACKWARD:
                self.backward(op, kernel, split)
            elif kernel.phase == UPDATE and kernel.statistics:
                axes = names(split.inner | split.cols | split.products)
                if self.statistics(split) != axes:
                    raise PlanError(f"{kernel.label}: its statistics along {axes}")

    def of(self, kernel):
        return self.net.op(kernel.label.partition(" ")[0])

    def check_cut(self, kernel, split, op):
        """Check the sides that a plan cuts: each axis the one of the first dimension that the kernel has."""
        found = {"rows": split.rows, "inner": split.inner, "cols": split.cols, "products": split.products}
        is_batched = op.type == "batched_gemm"
        expected = {side: set() for side in found}
        for axis, cut in self.cuts(op).items():
            side = cut[0]
            if side == BROADCAST:
                continue
            if cut == ("rows", "sequence") and kernel.label.endswith("right gradient"):
                side = "inner"
            elif (is_batched and cut[1] == "batch") or (op.type == "gemm" and cut[1] == "experts"):
                side = "products"
            elif is_batched and side == "cols":
                expected["products"].add(axis)
            if side == DEALT:  # it makes some of the rows, or reads some of the products
                expected["rows" if op.spread else "products"].add(axis)
                side = "inner"
            if kernel.phase != UPDATE or side != "rows":
                expected[side].add(axis)
        for side, mask in found.items():
            if names(mask) != expected[side]:
                raise PlanError(f"{kernel.label} is cut in {side} along {names(mask)}, not {expected[side]}")

    def check_again(self, kernels, number):
        """Check that shared operands come once more before products by heads, and nowhere else."""
        backward = [kernel for kernel in kernels if kernel.phase == BACKWARD]
        expected = set()
        for place, kernel in enumerate(backward):
            if kernel.label.endswith("left gradient"):
                before = [i for i in range(place) if not backward[i].comm.side] or list(range(place))[-1:]
                expected.add(backward[before[-1] if before else place].label)
        if bool(kernels[number].regathered) != (kernels[number].label in expected):
            raise PlanError(f"{kernels[number].label}: operands that are fetched again")

    def statistics(self, split):
        """Return the axes along which statistics of rows are summed."""
        return {
            axis for one in split.exchanges if one.of == STATISTICS or one.cols for axis in names(one.axes)
        }

    def operands(self, op):
        """Return what a kernel reads as it reads it, from what a device has."""
        return [
            self.pick(self.copies[name], self.read(op, name, at), f"{op.name} reads {name}")
            for at, name in enumerate(both(op))
        ]

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
        """Return the weights of a device, and of a table the ids of its rows; or the experts of its rows."""
        if op.deals:
            own = dict.fromkeys(self.dealing(op), "experts")
            return {"experts": self.mesh.numbers(device, (("experts", self.net.experts),), own)}
        if op.name not in self.own_weights:
            return {}
        return {"weights": self.own_weights[op.name][device], "first": self.weight_numbers(op, device)[1]}

    def row_numbers(self, op, device):
        return self.mesh.numbers(device, self.net.rows(op.name), splits(self.cuts(op), "rows"))

    def forward(self, op, kernel, split):
        xs = self.operands(op)

        def work(device, total):
            parts = [x.parts[device] for x in xs] or [self.row_numbers(op, device)]
            if op.type == "rowwise":
                self.roots[op.name, device] = maths.root(self.net, op, total, parts[0])
            return maths.forward(self.net, op, parts, total=total, **self.on(op, device))

        parts = self.totals(op, split, work)
        tensor = Tensor(self.mesh, self.sides(op.name), self.made(op), parts)
        (tensor,) = self.exchange(kernel, split, SUMMED, [(tensor, self.lies(op.name))])
        readers = [
            (one, at)
            for one in self.net.readers(op.name)
            for at, name in enumerate(both(one))
            if name == op.name
        ]
        want = [self.read(one, op.name, at) for one, at in readers] or [self.read_outside(op)]
        right = [at > 0 and one.type == "batched_gemm" for one, at in readers]
        lacking = [at for at, one in zip(right, want, strict=False) if tensor.taken(one) is None]
        of = SHARED if lacking and all(lacking) else READ
        if of == SHARED:
            shares = [self.share(one) for (one, _), at in zip(readers, right, strict=True) if at]
            tensor.share = min(1.0, sum(shares))
        self.copies[op.name] = self.read_too(kernel, split, [(tensor, want)], of)[0]

    def share(self, op):
        """Return the share of the columns of what products by heads read as an operand."""
        return 0.5 if len(op.reads) == 1 else 1.0

    def fetch_again(self, op, kernel, split):
        """Bring the keys, or values, of all queries to products by heads once more."""
        name, axes = both(op)[1], self.by_queries(op)
        want, lies = self.read(op, name, 1), self.lies(name)
        have = {axis: lies[axis] if axis in axes else here for axis, here in want.items()}
        tensor = self.pick(self.copies[name], have, f"{kernel.label}: {name} again")
        tensor.share = self.share(op)
        (found,) = self.exchange(kernel, split, SHARED, [(tensor, want)])
        self.pick([found], want, f"{op.name} reads {name} again")

    def read_outside(self, op):
        """Return how an output is wanted: a product's as one more product, of its own cut, reads it."""
        if op.type != "gemm":
            return self.lies(op.name)
        turned = {"rows": lambda cut: cut, "inner": lambda cut: ("cols", last(op.cols))}
        return {axis: turned.get(cut[0], lambda cut: BROADCAST)(cut) for axis, cut in self.cuts(op).items()}

    def read_too(self, kernel, split, tensors, of=READ, more=False):
        """Return the copies of tensors, each with the layouts wanted of it, once they are exchanged."""
        turned = []
        for tensor, want in tensors:
            others = [one for one in want if tensor.taken(one) is None]  # these share a copy
            wanted = dict(tensor.layout)
            for axis in wanted if others else ():
                found = {one[axis] for one in others}
                wanted[axis] = found.pop() if len(found) == 1 else BROADCAST
            turned.append((tensor, wanted))
        found = self.exchange(kernel, split, of, turned, more)
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
                if turns == names(one.axes) and self.split_sides(tensor, name, turns) == sides:
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

    def split_sides(self, tensor, collective, turns):
        """Return the axes that split the rows, and the columns, of a tensor as an exchange counts it."""
        gone = turns if collective == "all-gather" else set()
        return [set(splits(tensor.layout, side)) - gone for side in ("rows", "cols")]

    def check_bytes(self, kernel, one, elements, others):
        """Check the elements of an exchange, which are those of parts before or after it.

        Of several tensors that a kernel completes a plan counts all, also those that go to another layout.
        """

        def ways(mask):
            return prod(self.mesh.degrees[axis] for axis in names(mask))

        cols = {SUMMED: kernel.comm.summed_cols, SHARED: kernel.comm.shared_cols}.get(
            one.of, kernel.comm.read_cols
        )
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
        """Return the layout in which a tensor's gradient is summed: of a pass's, as the pass reads it."""
        if name != INPUT and self.net.op(name).type != "gemm":
            return self.differentiated(self.net.op(name))
        return self.lies(name)

    def completed(self, op):
        """Return the copies of the gradient of an op's output, in the layout in which that lies first."""
        if op.name not in self.gradients:
            if self.net.readers(op.name):
                total = joined(self.sums[op.name])
            else:
                total = self._whole(self.net.seeds[op.name], op.name).moved((), self.gradient_lies(op.name))
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
        xs = self.operands(op)
        own = op.name not in self.own_weights and not op.deals
        y = self.pick(self.copies[op.name], self.cuts(op), op.name) if own else None

        def work(device, total):
            parts = [x.parts[device] for x in xs] or [self.row_numbers(op, device)]
            return maths.backward(
                self.net, op, parts, y and y.parts[device], dy and dy.parts[device],
                roots=self.roots.get((op.name, device)), total=total, **self.on(op, device),
            )  # fmt: skip

        found = self.totals(op, split, work)
        if kernel.gradient:
            self.sum_weights(op, split, {device: part for device, (_, part) in found.items()})
        reads = [(at, name) for at, name in enumerate(both(op)) if name in self.wanted(op)]
        if op.type == "batched_gemm":  # a kernel each for the gradients of two operands
            reads = [one for one in reads if one[0] == (0 if left else 1)]
        if not to_weights:
            self.add(op, kernel, split, reads, {device: parts for device, (parts, _) in found.items()})
        if completing:
            self.complete(kernel, split, [one for one in completes if one not in ends])
        if kernel.regathered:
            self.fetch_again(self.next_by_heads, kernel, split)

    def sum_weights(self, op, split, parts):
        """Sum the gradients of weights where they are partial."""
        rows = {axis for axis, found in self.cuts(op).items() if found[0] == "rows" and found[1] != "experts"}
        if names(split.owners) != rows:
            raise PlanError(
                f"{op.name}: weights' gradients are summed along {names(split.owners)}, not {rows}"
            )
        self.of_weights[op.name] = {
            device: sum(parts[at] for at in self.mesh.group(device, rows)) for device in self.mesh.devices
        }

    def add(self, op, kernel, split, reads, parts):
        """Add what a kernel's backward pass makes to the gradients of what it reads."""
        ready = []
        for at, name in reads:
            own = {device: part[at] for device, part in parts.items()}
            tensor = Tensor(self.mesh, self.sides(name), self.added(op, name, at), own)
            tensor.share = self.share(op) if op.type == "batched_gemm" else 1.0
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
        for one, copies in zip(ops, self.read_too(kernel, split, tensors, READ, more), strict=True):
            self.gradients[one.name] = copies

    def gradient_of_input(self):
        """Return the gradient of the network's input, from what the devices have of it."""
        for one in self.sums[INPUT]:
            if PARTIAL in one.layout.values():
                raise PlanError(f"the gradient of the input is left as {one.layout}")
        return sum(
            part for one in self.sums[INPUT] for part in one.spread(set(self.assignment)).parts.values()
        )
