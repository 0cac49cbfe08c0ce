"""Why a point with a valid chip, strategy and network has no time: numbers that are out of bounds.

Inputs within their bounds can still lead to more launches than an integer counts, to a schedule that exceeds
the memory, or to a time that is no finite number. Such a point gets a reason, so that all results are
meaningful numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import TypeVar

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.reasons.columns import ReasonColumn, Reasons, first_reasons, no_reasons, same_reason
from fastflow.core.reasons.forms import (
    exchange_out_of_range,
    idle_units,
    kernel_out_of_range,
    lacks_kernel_type,
    out_of_range,
    takes_no_time,
    too_large,
)
from fastflow.core.tables import Bools, Floats, Inputs, Ints
from fastflow.performance.prediction import Prediction
from fastflow.physics.network.communication import Exchanges
from fastflow.physics.parallelism.sharding.local_graph import FusedShares
from fastflow.physics.parallelism.strategy import Strategies
from fastflow.physics.timing.roofline import Timing
from fastflow.physics.workload import has_layer_runs
from fastflow.physics.workload.graph import Graph, max_by_point, model_flop

MAX_LAUNCHES = 2.0**62  # within int64
MAX_TASKS = 4_000_000  # kernels times micro-batches of a schedule that is simulated: about 2 GB
MAX_BLOCKS = 100_000_000  # of a schedule in blocks: about 1 GB
MAX_PARTITIONS = 10_000_000  # layers times pipeline stages: work of the partitioner
MAX_VALUE = 1e100  # of a time, an energy or an amount: products of two do not overflow
_MAX_BITS = np.array(MAX_VALUE).view(np.uint64)


Predicted = TypeVar("Predicted")


class RefusedError(Exception):
    """Some points have no valid time: the others are predicted without them."""

    def __init__(self, rows: Ints, reason: ReasonColumn) -> None:
        """Take the rows of points, and why each has no time, if any."""
        super().__init__()
        self.rows, self.reason = rows, reason


def refuse(rows: Ints, reason: ReasonColumn) -> None:
    """Raise RefusedError where there is a reason for any of these points."""
    if reason.exists.any():
        raise RefusedError(rows, reason)


def without_refused(predict: Callable[[Inputs, ReasonColumn], Predicted]) -> Callable[[Inputs], Predicted]:
    """Predict points with a function, and repeat without the points that it refuses.

    Only extreme inputs are refused: ordinary inputs are predicted once.
    """

    @wraps(predict)
    def predicted(inputs: Inputs) -> Predicted:
        none = refused = no_reasons(next(iter(inputs.values())).size)
        while True:
            try:
                return predict(inputs, refused)
            except RefusedError as error:
                refused = first_reasons(refused, none.replaced(error.rows, error.reason))

    return predicted


def too_large_to_schedule(
    inputs: Inputs, graph: Graph, strategies: Strategies, microbatches: Ints
) -> ReasonColumn:
    """Return for every point why its iteration is too large to schedule; shape (points,).

    inputs: `parallel.concurrent_kernels`, and a workload; strategies, microbatches: (points,).
    """
    stages = strategies.pp
    launches = max_by_point(graph, graph.launches.repeat.astype(np.float64)) * microbatches
    layers = max_by_point(graph, graph.layer.number.astype(np.float64)) + 1.0
    if has_layer_runs(inputs):
        scheduled, scheduled_limit = "blocks of a micro-batch and a virtual stage", MAX_BLOCKS
        tasks = 2.0 * strategies.chunks * stages * microbatches
    else:
        scheduled, scheduled_limit = "kernels over all micro-batches to schedule", MAX_TASKS
        simulated = (stages > 1) | (microbatches > 1) | (inputs["parallel.concurrent_kernels"] > 1)
        tasks = np.where(simulated, 1.0 * np.diff(graph.offset) * microbatches, 0.0)
    reason = Reasons(stages.size)
    for quantity, amount, limit in (
        ("launches of one kernel", launches, MAX_LAUNCHES),
        (scheduled, tasks, scheduled_limit),
        ("layers times pipeline stages", layers * stages, MAX_PARTITIONS),
    ):
        for i in reason.without(amount > limit):
            reason.add(i, too_large(quantity=quantity, amount=float(amount[i]), limit=limit))
    return reason.column()


def invalid_kernel_times(
    inputs: Inputs, graph: Graph, rate: Floats, timing: Timing, fused: Sequence[FusedShares]
) -> ReasonColumn:
    """Return for every point why a kernel has no valid time; shape (points,).

    rate: of the units that a kernel computes on [flop/s], (kernels,); fused: kernels with a timing function.
    """
    wrong = _has_invalid(graph.offset, timing.times, timing.bytes, timing.time, timing.flop)
    reason = Reasons(wrong.size)
    if wrong.any():
        _add_unsupported_types(inputs, wrong, fused, reason)
    for i in reason.without(wrong):
        idle = (rate[graph.offset[i] : graph.offset[i + 1]] == 0.0).any()
        reason.add(i, idle_units() if idle else kernel_out_of_range(most=MAX_VALUE))
    return reason.column()


def _add_unsupported_types(
    inputs: Inputs, wrong: Bools, fused: Sequence[FusedShares], reason: Reasons
) -> None:
    """Add a reason for data types of kernels, other than their model's, that the chip does not support."""
    for kernels in fused:
        if kernels.type.dtype is None:
            continue
        types = kernels.type.dtype(inputs)
        for i in reason.without(wrong & np.isin(np.arange(wrong.size), kernels.share.device)):
            if inputs.get(f"chip.rate.{types[i]}", np.zeros(wrong.size))[i] == 0.0:
                chip, products = str(inputs["chip.name"][i]), str(inputs["model.dtype"][i])
                title, dtype = kernels.type.title, str(types[i])
                reason.add(i, lacks_kernel_type(kernel=title, dtype=dtype, products=products, chip=chip))


def invalid_comm_times(graph: Graph, times: Exchanges) -> ReasonColumn:
    """Return for every point why its communication has no valid time; shape (points,)."""
    wrong = _has_invalid(graph.offset, times.sync_s, times.gradient_s, times.send_s)
    return same_reason(wrong, exchange_out_of_range(most=MAX_VALUE))


def nonfinite_results(prediction: Prediction) -> ReasonColumn:
    """Return for every timed point which of its results is invalid; shape (timed,).

    No result may be negative, infinite or NaN, and an iteration takes some time.
    """
    reason = Reasons(prediction.timed.size)
    for quantity, column in _results(prediction):
        for i in reason.without(~((column >= 0.0) & (column <= MAX_VALUE))):
            reason.add(i, out_of_range(quantity=quantity, value=float(column[i]), most=MAX_VALUE))
    for i in reason.without(~(prediction.timeline.total > 0.0)):
        reason.add(i, takes_no_time())
    return reason.column()


def _has_invalid(offset: Ints, *tables: Floats) -> Bools:
    """Return whether any kernel of a point has a value outside 0 to MAX_VALUE, (points,).

    tables: (kernels,) or (kernels, columns).
    """
    wrong = np.zeros(offset.size - 1, dtype=np.bool_)
    for table in tables:
        # as bits, NaN and negative numbers exceed all others
        if table.view(np.uint64).max(initial=0) > _MAX_BITS:
            wrong |= _has_invalid_rows(offset, table.reshape(len(table), -1))
    return wrong


@kernel
def _has_invalid_rows(offset: Ints, table: Floats) -> Bools:
    """Return whether any kernel of a point has a value outside 0 to MAX_VALUE, (points,)."""
    wrong = np.zeros(offset.size - 1, dtype=np.bool_)
    for p in range(wrong.size):
        for row in range(offset[p], offset[p + 1]):
            for column in range(table.shape[1]):
                wrong[p] |= not 0.0 <= table[row, column] <= MAX_VALUE
    return wrong


def _results(prediction: Prediction) -> Iterator[tuple[str, Floats]]:
    """Yield the results of every timed point, (timed,)."""
    graph, communication, timeline = prediction.graph, prediction.communication, prediction.timeline
    yield "the peak of a device [flop/s]", max_by_point(graph, prediction.peaks.kernels)
    yield "the operations of the model", model_flop(graph)
    yield "the time of the busiest stage [s]", prediction.pipeline.busiest
    yield "the communication [s]", communication.total
    for level, sent in zip(("within packages", "between packages"), communication.sent, strict=True):
        yield f"what is sent {level} [B]", sent
    for name, column in zip(timeline._fields, timeline, strict=True):
        yield f"the time of {name} [s]", column
    yield "the memory of a device [B]", prediction.footprint.total
    yield "the energy [J]", prediction.energy
