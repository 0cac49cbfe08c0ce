"""A pipelined iteration kernel by kernel: every stage launches every kernel of every micro-batch.

Each launch is added to its part. The stage with most work sets the pace; the rest of the time is its bubble.

A model is a list of layers. A layer has its forward and backward pass and its update, each as runs of
neighbouring rows: what one exchanges is there before the next one begins. Rows are dictionaries of `time`
(one launch), `repeat`, `part`, `waits` (by kind), `level`, `reader` (rows later), `collective`, `ranks`,
`product`, `modules` (bits), `side`, `sum` (of gradients, once an iteration), `sends` and `send`; `nexts` are
the rows of the whole model from itself on.
"""

from collections import Counter
from itertools import pairwise

from tests.naive import block_schedule
from tests.naive.stacks import both, in_parts, laid_out, walk

FORWARD, BACKWARD, UPDATE = range(3)
TENSOR, CONTEXT, EXPERT, WEIGHTS, GRADIENTS = range(5)
TIMES = ("forward", "input", "weight", "send", "reduce", "gather", "tail")


def rows_of(layer, phase):
    return [row for run in layer[phase] for row in run]


def busy_of(rows):
    return sum(row["time"] * row["repeat"] for row in rows)


def behind(busy, exchanged, taken):
    """Return which share of exchanges is waited for, where these hide behind kernels."""
    return (both(busy, exchanged, taken) - busy) / exchanged if exchanged > 0.0 else 1.0


def waits_of(rows, phase, point):
    """Return what each row waits for, by kind, where some of it hides; and what the rows' end waits for."""
    found = [[row["repeat"] * wait for wait in row["waits"]] for row in rows]
    if phase == UPDATE:  # gathers are those of the next iteration
        return [
            [0.0 if kind in (WEIGHTS, GRADIENTS) else wait[kind] for kind in range(5)] for wait in found
        ], 0.0
    for kind, hides in ((TENSOR, point["hides"]["tensor"]), (CONTEXT, point["hides"]["context"])):
        for row, wait in zip(rows, found, strict=True):
            if not hides or wait[kind] == 0.0 or row["collective"] not in ("reduce-scatter", "all-gather"):
                continue
            place = 0 if row["collective"] == "reduce-scatter" else row["reader"]
            if place < len(row["nexts"]) and row["nexts"][place]["product"]:
                product = busy_of([row["nexts"][place]])
                both_take = laid_out if kind == TENSOR else in_parts
                wait[kind] = both_take(wait[kind], product, row["ranks"], point["taken"]) - product
    sums = [sum(wait[kind] for wait in found) for kind in range(5)]
    busy, shares = busy_of(rows), [1.0] * 5
    if point["hides"]["expert"]:
        shares[EXPERT] = behind(busy, sums[EXPERT], point["taken"])
    if point["hides"]["data"]:
        shares[WEIGHTS] = shares[GRADIENTS] = behind(busy, sums[WEIGHTS] + sums[GRADIENTS], point["taken"])
    at_end = shares[GRADIENTS] * sums[GRADIENTS]
    return [[shares[k] * wait[k] if k != GRADIENTS else 0.0 for k in range(5)] for wait in found], at_end


def layer_s(layer, phase, point):
    """Return how long a layer takes, and how much longer it is for each kind of wait."""
    runs = [run_s(rows, phase, point) for rows in layer[phase]]
    return sum(took for took, _ in runs), [sum(waits[kind] for _, waits in runs) for kind in range(5)]


def again_s(layer, point):
    """Return what `layer_s` does of the forward pass, of the rows of modules that are computed again."""
    return layer_s(layer, FORWARD, point | {"only": point["modules"]})


def run_s(rows, phase, point):
    """Return how long neighbouring rows take, and how much longer they are for each kind of wait."""
    waits, at_end = waits_of(rows, phase, point)
    if "only" in point:  # all else takes no time; weights are gathered once, in the backward pass
        is_again = [row["modules"] & point["only"] > 0 for row in rows]
        kept = [[*wait[:WEIGHTS], 0.0, 0.0] for wait in waits]
        waits = [wait if of else [0.0] * 5 for wait, of in zip(kept, is_again, strict=True)]
        rows = [row if of else row | {"time": 0.0} for row, of in zip(rows, is_again, strict=True)]
        at_end = 0.0

    def took(kinds):
        table = [
            (busy_of([row]), sum(wait[kind] for kind in kinds), row["level"], row["reader"])
            for row, wait in zip(rows, waits, strict=True)
        ]
        return walk(table)

    every = [took(range(first, 5)) for first in range(5)]  # kinds are left out one after the other
    return every[0] + at_end, [*(a - b for a, b in pairwise(every)), at_end]


class Stage:
    """What one stage has done."""

    def __init__(self):
        self.parts = Counter()  # what its kernels take, by part
        self.again = 0.0  # of that, what is computed again
        self.waits = [0.0] * 5
        self.host = 0.0  # how long it waits for the host
        self.work = 0.0  # kernels and waits of all micro-batches
        self.update = 0.0

    def launch(self, rows, part=None):
        """Launch kernels one by one; part: the name of all of them."""
        for row in rows:
            for _ in range(row["repeat"]):
                self.parts[part or row["part"]] += row["time"]


def run(point):
    """Run an iteration; returns its time, the stages, which one sets the pace, and how long that idles.

    point: `virtual` (the layers of every virtual stage), `again` (how many hidden ones of each are computed
    again), `modules` (of the other ones; bits), and what `block_schedule` takes.
    """
    stages = point["stages"]
    done, blocks = [Stage() for _ in range(stages)], {name: [] for name in (*TIMES, "layers")}
    for v, layers in enumerate(point["virtual"]):
        stage, left = done[block_schedule.stage_of(point, v)], point["again"]
        block = dict.fromkeys(TIMES, 0.0) | {"layers": 0}
        launches = [0, 0]
        for layer in layers:
            again = layer["hidden"] and left > 0
            left -= again
            _microbatch(stage, layer, again, point, block)
            _count(layer, again, point, launches)
            _update(stage, layer, point, block)
        waited = [launches[0] * point["launch"] - block["forward"]]
        waited.append(launches[1] * point["launch"] - block["input"] - block["weight"])
        waited = [max(wait, 0.0) for wait in waited]  # the host runs ahead, until a block takes it longer
        block["forward"] += waited[0]
        block["input"] += waited[1]
        stage.host += point["microbatches"] * sum(waited)
        stage.work += point["microbatches"] * sum(waited)
        last = [row for row in rows_of(layers[-1], FORWARD) if row["sends"]]
        block["send"] = last[-1]["repeat"] * last[-1]["send"] if last else 0.0
        block["layers"] = max(block["layers"], 1)
        for name, value in block.items():
            blocks[name].append(value)
    if point["copied"] and stages > 1:
        table, lasts = point["virtual"][0][0], dict.fromkeys(TIMES, 0.0)
        _update(done[-1], table, point, lasts)
        blocks["gather"][-1] += lasts["gather"]
        blocks["reduce"][-1] += lasts["tail"] + lasts["reduce"]
    point = point | blocks
    total, update = block_schedule.total(point), max(stage.update for stage in done)
    bare = block_schedule.total(block_schedule.without(point, "send", "reduce", "tail", "gather"))
    slowest = max(range(stages), key=lambda stage: done[stage].work)
    # the rest of the iteration, once sends, sums and gathers are taken off
    idle = total + update - done[slowest].work - done[slowest].update - (total - bare)
    return total + update, done, slowest, idle


def _count(layer, again, point, launches):
    """Count what the host launches for a layer forward and backward."""
    every, back = rows_of(layer, FORWARD), rows_of(layer, BACKWARD)
    parts = every if again else [row for row in every if row["modules"] & point["modules"]]
    launches[0] += sum(row["repeat"] for row in every)
    launches[1] += sum(row["repeat"] for row in (*parts, *back))


def _microbatch(stage, layer, again, point, block):
    """Work through a layer with every micro-batch."""
    forward, waited = layer_s(layer, FORWARD, point)
    backward, waited_back = layer_s(layer, BACKWARD, point)
    every, back = rows_of(layer, FORWARD), rows_of(layer, BACKWARD)
    parts = [] if again else [row for row in every if row["modules"] & point["modules"]]
    parts_s, waited_parts = again_s(layer, point) if parts else (0.0, [0.0] * 5)
    for _ in range(point["microbatches"]):
        before = sum(stage.parts.values())
        stage.launch(parts)
        if again:
            stage.launch(every)
        stage.again += sum(stage.parts.values()) - before
        stage.launch(every)
        stage.launch(back)
        for kind in range(5):  # weights are gathered once for what is computed again and the backward pass
            stage.waits[kind] += waited[kind] * (2 if again and kind != WEIGHTS else 1) + waited_back[kind]
            stage.waits[kind] += waited_parts[kind]
        stage.work += forward + backward + parts_s + again * (forward - waited[WEIGHTS])
    of_weights = busy_of([row for row in back if row["side"]])
    block["forward"] += forward
    block["input"] += backward - of_weights + parts_s + again * (forward - waited[WEIGHTS])
    block["weight"] += of_weights
    block["layers"] += layer["hidden"]


def _update(stage, layer, point, block):
    """Update a layer, sum its gradients, gather its weights."""
    rows = rows_of(layer, UPDATE)
    stage.launch(rows, "optimizer")
    took, waited = layer_s(layer, UPDATE, point)
    stage.update += took
    stage.waits = [a + b for a, b in zip(stage.waits, waited, strict=True)]
    block["gather"] += sum(row["repeat"] * row["waits"][WEIGHTS] for row in rows)
    block["tail" if layer["table"] else "reduce"] += sum(
        row["sum"] for phase in (FORWARD, BACKWARD, UPDATE) for row in rows_of(layer, phase)
    )
