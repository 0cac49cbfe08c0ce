"""Pipeline stages that take unequal times, and what another cut would gain: predicted, not guessed."""

from __future__ import annotations

import numpy as np

from fastflow.core import units
from fastflow.core.tables import Floats, take
from fastflow.performance import crossflow
from fastflow.performance.prediction import Prediction
from fastflow.physics.parallelism.virtual_stages import BALANCED

SPLIT = "parallel.split"
_UNEVEN = 1.1  # times as long as the mean of the others: less than that is as even as layers come
_WORTH = 0.03  # of an iteration, which is worth a line


def uneven_stages(prediction: Prediction, point: int) -> str:
    """Return what to do where one stage of a point takes much longer than the others, in two lines.

    "" where nothing helps. The other cut is predicted with all else as it is, and named where it is faster
    and fits as well.
    """
    place = int(np.flatnonzero(prediction.timed == point)[0])
    stacks, total = prediction.stacks, float(prediction.timeline.total[place])
    if stacks is None or stacks.plan.stages[place] == 1:
        return ""
    slowest, work = int(prediction.bottleneck.stage[place]), _work(prediction, place)
    ratio = work[slowest] / np.delete(work, slowest).mean()
    inputs = dict(take(dict(prediction.inputs), np.array([point])))
    if ratio < _UNEVEN or inputs[SPLIT][0] == BALANCED:
        return ""
    other = crossflow.predict(inputs | {SPLIT: np.array([BALANCED])})
    if not other.timed.size:
        return ""
    took = float(other.timeline.total[0])
    fits = prediction.footprint.total[place] <= prediction.chip.dram.capacity[point]
    if took > (1.0 - _WORTH) * total or (fits and other.footprint.total[0] > other.chip.dram.capacity[0]):
        return ""
    less = f"{SPLIT}={BALANCED} takes {units.show(took, 's')}, {1.0 - took / total:.0%} less"
    return f"stage {slowest} takes {ratio:.1f} times as long as the mean of the others;\n{less}"


def _work(prediction: Prediction, place: int) -> Floats:
    """Return what a micro-batch takes on each stage of a timed point [s], (stages,)."""
    assert prediction.stacks is not None
    blocks, stages = prediction.stacks.blocks, int(prediction.stacks.plan.stages[place])
    rows = slice(blocks.offset[place], blocks.offset[place + 1])
    each = blocks.forward_s[rows] + blocks.input_s[rows] + blocks.weight_s[rows]
    work: Floats = each.reshape(-1, stages).sum(axis=0)
    return work
