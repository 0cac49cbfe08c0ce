"""Why a point has no time though its chip, strategy and network are there: numbers past what can be computed.

Inputs within their own bounds can still ask for more launches than an integer counts, for a schedule that no
memory holds, or for a time that is no number. Such a point gets a reason, so that whatever is predicted is a
number that means something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import TypeVar

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Inputs, Ints, Reasons, Texts, first_of
from fastflow.physics.network.communication import Communication, Exchanges
from fastflow.physics.parallelism.memory import Footprint
from fastflow.physics.parallelism.pipeline import Pipeline
from fastflow.physics.parallelism.sharding.local_graph import FusedShares
from fastflow.physics.parallelism.strategy import Strategies
from fastflow.physics.schedule.timeline import Timeline
from fastflow.physics.timing.roofline import Timing
from fastflow.physics.workload import has_layer_runs
from fastflow.physics.workload.graph import Graph, max_by_point, model_flop

MOST_LAUNCHES = 2.0**62  # what int64 counts
MOST_TASKS = 4_000_000  # kernels times micro-batches of a schedule that is simulated: about 2 GB
MOST_BLOCKS = 100_000_000  # of a schedule in blocks: about 1 GB
MOST_CUTS = 10_000_000  # layers times pipeline stages, of which the best cut is looked for
MOST = 1e100  # of a time, an energy or an amount: products of two are far from the end of floats
_MOST_BITS = np.array(MOST).view(np.uint64)


Predicted = TypeVar("Predicted")


class RefusedError(Exception):
    """Some points turn out to have no time that is a number: the others are predicted without them."""

    def __init__(self, rows: Ints, reason: Texts) -> None:
        """Take points that were to be timed, and why one has no time, "" where it has."""
        super().__init__()
        self.rows, self.reason = rows, reason


def refuse(rows: Ints, reason: Texts) -> None:
    """Raise RefusedError where there is a reason for any of these points."""
    if (reason != "").any():
        raise RefusedError(rows, reason)


def without_refused(predict: Callable[[Inputs, Texts], Predicted]) -> Callable[[Inputs], Predicted]:
    """Predict points as a function does, again without those that it refuses on the way.

    Only inputs that are far apart come that far: what is usual is predicted once.
    """

    @wraps(predict)
    def predicted(inputs: Inputs) -> Predicted:
        refused = np.full(next(iter(inputs.values())).size, "")
        while True:
            try:
                return predict(inputs, refused)
            except RefusedError as found:
                more = np.full(refused.size, "", dtype=found.reason.dtype)
                more[found.rows] = found.reason
                refused = first_of(refused, more)

    return predicted


def too_large_to_schedule(inputs: Inputs, graph: Graph, strategies: Strategies, microbatches: Ints) -> Texts:
    """Say for every point why its iteration is too much to schedule; empty where it is not, shape (points,).

    inputs: `parallel.concurrent_kernels`, and a workload; strategies, microbatches: (points,).
    """
    stages = strategies.lp
    launches = max_by_point(graph, graph.repeat.astype(np.float64)) * microbatches
    layers = max_by_point(graph, graph.layer.astype(np.float64)) + 1.0
    if has_layer_runs(inputs):
        scheduled, most_scheduled = "blocks of a micro-batch and a virtual stage", MOST_BLOCKS
        tasks = 2.0 * strategies.chunks * stages * microbatches
    else:
        scheduled, most_scheduled = "kernels over all micro-batches to schedule", MOST_TASKS
        simulated = (stages > 1) | (microbatches > 1) | (inputs["parallel.concurrent_kernels"] > 1)
        tasks = np.where(simulated, 1.0 * np.diff(graph.offset) * microbatches, 0.0)
    reason = Reasons(stages.size)
    for what, amount, most in (
        ("launches of one kernel", launches, MOST_LAUNCHES),
        (scheduled, tasks, most_scheduled),
        ("layers times pipeline stages", layers * stages, MOST_CUTS),
    ):
        for i in reason.without(amount > most):
            reason.add(i, f"asks for {amount[i]:.3g} {what}, more than {most:.3g}")
    return reason.texts()


def invalid_kernel_times(
    inputs: Inputs, graph: Graph, rate: Floats, timing: Timing, fused: Sequence[FusedShares]
) -> Texts:
    """Say for every point why a kernel of it has no time that is a number; or "", shape (points,).

    rate: of the units that a kernel computes on [flop/s], (kernels,); fused: kernels that their types time.
    """
    wrong = _unsound(graph.offset, timing.times, timing.bytes, timing.time, timing.flop)
    reason = Reasons(wrong.size)
    if wrong.any():
        _name_types(inputs, wrong, fused, reason)
    for i in reason.without(wrong):
        idle = (rate[graph.offset[i] : graph.offset[i + 1]] == 0.0).any()
        reason.add(
            i,
            "a kernel has no time: the chip has a rate of 0 (chip.rate) in the data type that it computes in"
            if idle
            else f"a kernel's time or bytes are no number up to {MOST:g}: inputs are too far apart",
        )
    return reason.texts()


def _name_types(inputs: Inputs, wrong: Bools, fused: Sequence[FusedShares], reason: Reasons) -> None:
    """Name data types, other than their model's, that kernels of points compute in and chips do not."""
    for one in fused:
        if one.type.dtype is None:
            continue
        types = one.type.dtype(inputs)
        for i in reason.without(wrong & np.isin(np.arange(wrong.size), one.share.device)):
            if inputs.get(f"chip.rate.{types[i]}", np.zeros(wrong.size))[i] == 0.0:
                chip, products = inputs["chip.name"][i], inputs["model.dtype"][i]
                what = f"a kernel ({one.type.title}) computes in {types[i]} where products are {products}"
                reason.add(i, f"{what}, and chip {chip} has no {types[i]}")


def invalid_comm_times(graph: Graph, took: Exchanges) -> Texts:
    """Say for every point why what it sends has no time that is a number; or "", shape (points,)."""
    wrong = _unsound(graph.offset, took.sync_s, took.gradient_s, took.send_s)
    return np.where(wrong, f"an exchange's time is no number up to {MOST:g} s: inputs are too far apart", "")


def nonfinite_results(
    graph: Graph,
    rate: Floats,
    pipe: Pipeline,
    memory: Footprint,
    communication: Communication,
    timeline: Timeline,
    energy: Floats,
) -> Texts:
    """Say for every point which of its results is no number that means something; or "", shape (points,).

    Nothing may be negative, infinite or no number at all, and an iteration takes some time.
    """
    reason = Reasons(energy.size)
    for what, column in _results(graph, rate, pipe, memory, communication, timeline, energy):
        for i in reason.without(~((column >= 0.0) & (column <= MOST))):
            reason.add(i, f"{what} would be {column[i]:.3g}, outside 0 to {MOST:g}")
    for i in reason.without(~(timeline.total > 0.0)):
        reason.add(i, "an iteration takes no time: there is nothing to compute, to move or to launch")
    return reason.texts()


def _unsound(offset: Ints, *tables: Floats) -> Bools:
    """Return whether any kernel of a point has a value that is no number up to MOST, (points,).

    tables: (kernels,) or (kernels, columns).
    """
    wrong = np.zeros(offset.size - 1, dtype=np.bool_)
    for table in tables:
        # as bits, what is no number or negative is more than any number
        if table.view(np.uint64).max(initial=0) > _MOST_BITS:
            wrong |= _unsound_rows(offset, table.reshape(len(table), -1))
    return wrong


@kernel
def _unsound_rows(offset: Ints, table: Floats) -> Bools:
    """Return whether any kernel of a point has a value that is no number up to MOST, (points,)."""
    wrong = np.zeros(offset.size - 1, dtype=np.bool_)
    for p in range(wrong.size):
        for row in range(offset[p], offset[p + 1]):
            for column in range(table.shape[1]):
                wrong[p] |= not 0.0 <= table[row, column] <= MOST
    return wrong


def _results(
    graph: Graph,
    rate: Floats,
    pipe: Pipeline,
    memory: Footprint,
    communication: Communication,
    timeline: Timeline,
    energy: Floats,
) -> Iterator[tuple[str, Floats]]:
    """Yield what is predicted of every point, (points,)."""
    yield "the peak of a device [flop/s]", max_by_point(graph, rate)
    yield "the operations of the model", model_flop(graph)
    yield "the time of the busiest stage [s]", pipe.busiest
    yield "the communication [s]", communication.total
    for level, sent in zip(("within packages", "between packages"), communication.sent, strict=True):
        yield f"what is sent {level} [B]", sent
    for name, column in zip(timeline._fields, timeline, strict=True):
        yield f"the time of {name} [s]", column
    yield "the memory of a device [B]", memory.total
    yield "the energy [J]", energy
