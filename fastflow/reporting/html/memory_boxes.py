"""The memory of a device over an iteration as boxes of a stacked chart, of the points of a page."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Floats
from fastflow.performance.memory_timeline import MemoryTimeline, memory_timeline
from fastflow.performance.prediction import Prediction
from fastflow.reporting.html.content import MemoryBoxes

_STACKED = (
    "weights", "gradients", "optimizer", "workspace", "activations", "recomputed", "loss", "buffers",
)  # fmt: skip
"""Fields of `StepBytes`, from the bottom up: what is there all the time first."""
_MAX_STEPS = 5_000  # of a point, of all stages
_MAX_STEPS_OF_PAGE = 40_000  # half a second
_COLUMNS = ("start_s", "end_s", "bottom_B", "size_B")


class MemoryBuilder:
    """Collects the boxes of the points of a page."""

    def __init__(self, points: int) -> None:
        """Take the number of points."""
        self.points, self.num_left = points, _MAX_STEPS_OF_PAGE
        self.kinds: dict[int, list[str]] = {}
        self.boxes: dict[int, Floats] = {}
        self.peaks = [""] * points

    def add(self, row: int, prediction: Prediction, point: int) -> None:
        """Add a predicted point, unless it has no blocks, or too many; row: its index on the page."""
        index = np.flatnonzero(prediction.timed == point)
        blocks = prediction.pipeline_blocks
        if blocks is None or not index.size:
            return
        plan, p = blocks.plan, int(index[0])
        steps = int(plan.stages[p] * plan.chunks[p] * plan.microbatches[p])
        if steps > min(_MAX_STEPS, self.num_left):
            return
        timeline = memory_timeline(prediction, point)
        if timeline is not None:
            self.num_left -= steps
            self.kinds[row], self.boxes[row] = boxes_of(timeline)
            self.peaks[row] = timeline.peak_name

    def result(self) -> MemoryBoxes | None:
        """Return the boxes of all points, None if there are none."""
        if not self.boxes:
            return None
        present = sorted(self.boxes)
        sizes = [len(self.kinds.get(row, ())) for row in range(self.points)]
        numbers = np.concatenate([self.boxes[row] for row in present], axis=1)
        return MemoryBoxes(
            offset=np.concatenate([[0], np.cumsum(sizes)]),
            kind=np.array([kind for row in present for kind in self.kinds[row]]),
            numbers=dict(zip(_COLUMNS, numbers, strict=True)),
            peak=np.array(self.peaks),
        )


def boxes_of(timeline: MemoryTimeline) -> tuple[list[str], Floats]:
    """Return the kind of each box, and its start, end [s], bottom and size [B], (4, boxes).

    Neighbouring steps with the same bytes make one box.
    """
    spans = list(timeline.spans())
    sizes = np.array([[getattr(there, kind) for kind in _STACKED] for _, _, there in spans])
    bottoms = np.cumsum(sizes, axis=1) - sizes
    start, end = np.array([span[:2] for span in spans]).T
    kinds, boxes = [], []
    for number, kind in enumerate(_STACKED):
        size, bottom = sizes[:, number], bottoms[:, number]
        begins = np.flatnonzero(np.diff(size, prepend=np.nan) != 0.0)
        begins = np.union1d(begins, np.flatnonzero(np.diff(bottom, prepend=np.nan) != 0.0))
        ends = np.append(begins[1:] - 1, size.size - 1)
        shown = (size[begins] > 0.0) & (end[ends] > start[begins])
        begins, ends = begins[shown], ends[shown]
        kinds += [kind] * begins.size
        boxes.append(np.array([start[begins], end[ends], bottom[begins], size[begins]]))
    return kinds, np.concatenate(boxes, axis=1)
