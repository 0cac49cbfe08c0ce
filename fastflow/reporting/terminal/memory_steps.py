"""The memory of a device over an iteration: its main steps as a table with bars, and the name of the peak."""

from __future__ import annotations

from rich.table import Table as Sheet

from fastflow.performance.memory_timeline import MemoryTimeline
from fastflow.physics.parallelism.memory.timeline import (
    BACKWARD_PASS,
    LOSS,
    LOSS_GRADIENT,
    PASS,
    UPDATE_STEP,
    StepBytes,
)
from fastflow.reporting.terminal.tables import new_sheet, quantity

_BAR = 20  # characters of the peak
_PARTS = ("█", "▒", "░")  # what stays, activations, what there is during some steps


def memory_sheet(timeline: MemoryTimeline) -> Sheet:
    """Return the main steps of an iteration as a table; its title names the peak."""
    at_rest, kept, passing = _PARTS
    sheet = new_sheet(
        f"Memory over an iteration, most in the {timeline.peak_name}",
        [
            ("", False), ("allocated", True), (f"{kept} activations", True), (f"{passing} buffers", True),
            (f"{at_rest} at rest", False),
        ],
    )  # fmt: skip
    most = timeline.steps[timeline.peak].bytes.allocated
    for index in _main_steps(timeline):
        there = timeline.steps[index].bytes
        sizes = (there.allocated, there.activations, there.passing)
        sheet.add_row(
            timeline.names[index],
            *(quantity("allocated_B", size) if size > 0.0 else "" for size in sizes),
            _bar(there, most) + (" peak" if index == timeline.peak else ""),
        )
    return sheet


def _bar(there: StepBytes, most: float) -> str:
    """Return a bar of a step's bytes; most: bytes of a bar of full length."""
    if most <= 0.0:
        return ""
    fixed = there.allocated - there.activations - there.passing
    ends = [round(_BAR * size / most) for size in (fixed, fixed + there.activations, there.allocated)]
    return "".join(part * (end - begin) for part, begin, end in zip(_PARTS, [0, *ends], ends, strict=False))


def _main_steps(timeline: MemoryTimeline) -> list[int]:
    """Return the indices of the main steps, in order.

    At rest, the first forward pass, the last one before a backward pass, the first loss, the first backward
    pass, the last one, the update, and the peak.
    """
    phases = [entry.phase for entry in timeline.steps]

    def where(phase: str) -> list[int]:
        return [index for index, other in enumerate(phases) if other == phase]

    backward = where(BACKWARD_PASS)
    before = [index for index in where(PASS) if not backward or index < backward[0]]
    chosen = {0, timeline.peak, *before[:1], *before[-1:], *backward[:1], *backward[-1:]}
    chosen |= {index for phase in (LOSS, LOSS_GRADIENT) for index in where(phase)[:1]}
    return sorted(chosen | {*where(UPDATE_STEP)})
