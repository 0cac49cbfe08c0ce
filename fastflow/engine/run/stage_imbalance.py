"""Pipeline stages with unequal times, and the predicted gain of a balanced split."""

from __future__ import annotations

import numpy as np

from fastflow.core import units
from fastflow.core.tables import Floats, take
from fastflow.performance import crossflow
from fastflow.performance.prediction import Prediction
from fastflow.physics.parallelism.virtual_stages import BALANCED

SPLIT = "parallel.pipeline_partition"
_MIN_RATIO = 1.1  # of the mean of the others: whole layers allow no smaller ratio
_MIN_GAIN = 0.03  # of an iteration: smaller gains are not reported


def uneven_stages(prediction: Prediction, point: int) -> str:
    """Return advice where a stage of a point takes much longer than the others, in two lines.

    "" where nothing helps. The balanced split is predicted with all other inputs unchanged; the advice names
    it where it is faster and fits into memory as well.
    """
    index = int(np.flatnonzero(prediction.timed == point)[0])
    stacks, total = prediction.pipeline_blocks, float(prediction.timeline.total[index])
    if stacks is None or stacks.plan.stages[index] == 1:
        return ""
    slowest, times = int(prediction.bottleneck.stage[index]), _stage_times(prediction, index)
    ratio = times[slowest] / np.delete(times, slowest).mean()
    inputs = dict(take(dict(prediction.inputs), np.array([point])))
    if ratio < _MIN_RATIO or inputs[SPLIT][0] == BALANCED:
        return ""
    balanced = crossflow.predict(inputs | {SPLIT: np.array([BALANCED])})
    if not balanced.timed.size:
        return ""
    balanced_s = float(balanced.timeline.total[0])
    lacks = balanced.lacks_memory[0] and not prediction.lacks_memory[index]
    if balanced_s > (1.0 - _MIN_GAIN) * total or lacks:
        return ""
    gain = f"{SPLIT}={BALANCED} takes {units.show(balanced_s, 's')}, {1.0 - balanced_s / total:.0%} less"
    return f"stage {slowest} takes {ratio:.1f} times as long as the mean of the others;\n{gain}"


def _stage_times(prediction: Prediction, index: int) -> Floats:
    """Return the time of a micro-batch on each stage of a timed point [s], (stages,)."""
    assert prediction.pipeline_blocks is not None
    blocks, stages = prediction.pipeline_blocks.blocks, int(prediction.pipeline_blocks.plan.stages[index])
    rows = slice(blocks.offset[index], blocks.offset[index + 1])
    per_block = blocks.forward_s[rows] + blocks.input_s[rows] + blocks.weight_s[rows]
    times: Floats = per_block.reshape(-1, stages).sum(axis=0)
    return times
