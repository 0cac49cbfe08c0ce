"""Results of training a transformer: tokens, rates, the breakdown of time, the use of memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table as Sheet

from fastflow.reporting.terminal.cost import train_tokens_key
from fastflow.reporting.terminal.tables import bottleneck_stage_text, new_sheet, quantity
from fastflow.schema.results import EXPOSED

_KERNELS = ("attention", "feed_forward", "experts", "lm_head", "other", "optimizer")
_MIN_SHARE = 0.0005  # of an iteration: a smaller part has no line of its own
_NOTES = {
    "tensor": "communication of tensor parallelism",
    "context": "communication of context parallelism",
    "expert": "tokens to and from their experts",
    "weight": "all-gathers of weights",
    "gradient": "reductions of weight gradients",
    "send": "messages between pipeline stages",
    "offload": "what moves between device and host",
    "host": "kernels that the host launches",
    "joint": "messages, gathers and reductions that overlap one another",
    "lm_head": "embedding, head and loss",
    "other": "norms and sums between layers",
    "optimizer": "gradient clipping and weight update",
}
_MEMORY = (
    "weight", "gradient", "optimizer", "activation", "buffer", "workspace", "fragment", "communicator",
    "context",
)  # fmt: skip


def time_parts(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the parts of an iteration's time [s]: kernels by kind, exposed communication, and the bubble.

    They add up to `time_s`, but in datasets of before 0.2.0, which lack `joint_exposed_s`.
    """
    for name in _KERNELS:
        yield name.replace("_", " "), float(row[f"{name}_s"])
    for name, column in EXPOSED.items():
        yield f"exposed: {name}", float(row.get(column, 0.0))
    yield "bubble", float(row["bubble_s"])


def training_sheets(row: Mapping[str, Any], inputs: Mapping[str, Any]) -> tuple[Sheet, ...]:
    """Return the rates of training, where an iteration's time goes by kind, and the memory by part.

    inputs: as of `train_tokens_key`.
    """
    return _rates(row, inputs), _time(row), _memory(row)


def _time(row: Mapping[str, Any]) -> Sheet:
    stage = bottleneck_stage_text(row)
    title = f"Where the time goes{f', in {stage}, which sets the pace' if stage else ''}"
    sheet = new_sheet(title, [("", False), ("time", True), ("share", True), ("", False)])
    total, smaller = row["time_s"], 0.0

    def add(label: str, name: str, note: str = "") -> None:
        nonlocal smaller
        if abs(row.get(name, 0.0)) <= _MIN_SHARE * total:
            smaller += row.get(name, 0.0)
        else:
            sheet.add_row(label, quantity(name, row[name]), f"{row[name] / total:.1%}", note)

    for name in _KERNELS:
        add(name.replace("_", " "), f"{name}_s", _NOTES.get(name, ""))
    if row["recompute_s"] > 0:
        note = f"of these {quantity('recompute_s', row['recompute_s'])} computed again for the backward pass"
        sheet.add_row("", "", "", note)
    sheet.add_section()
    for name, column in EXPOSED.items():
        add(f"exposed: {name}", column, _NOTES[name])
    add("bubble", "bubble_s", f"of the pipeline, {row['microbatches']} micro-batches")
    if smaller:
        note = f"of less than {_MIN_SHARE:.2%} each"
        sheet.add_row("smaller parts", quantity("time_s", smaller), f"{smaller / total:.2%}", note)
    sheet.add_section()
    sheet.add_row("total", quantity("time_s", total), "", "")
    return sheet


def _memory(row: Mapping[str, Any]) -> Sheet:
    stage = f" of pipeline stage {row['peak_memory_stage']}" if row["pp_hops"] > 0 else ""
    sheet = new_sheet(f"Memory of a device{stage}", [("", False), ("memory", True), ("share", True)])
    for name in _MEMORY:
        size = row[f"{name}_B"]
        if size > 0:
            share = f"{size / row['dram_offered_B']:.1%}"
            sheet.add_row(name, quantity(f"{name}_B", size), share)
    sheet.add_section()
    if row["host_B"] > 0:
        sheet.add_row("with the host", quantity("host_B", row["host_B"]), "")
        sheet.add_section()
    offered, footprint = (quantity(name, row[name]) for name in ("dram_offered_B", "footprint_B"))
    share = f"{row['footprint_B'] / row['dram_offered_B']:.1%}"
    sheet.add_row(f"total of {offered} that programs are offered", footprint, share)
    return sheet


def _rates(row: Mapping[str, Any], inputs: Mapping[str, Any]) -> Sheet:
    sheet = new_sheet("Training", [("", False), ("", True), ("", False)])
    q = {name: quantity(name, value) for name, value in row.items()}
    iteration = (
        f"of {row['tokens_per_s'] * row['time_s']:,.0f} tokens, in {row['microbatches']} micro-batches"
    )
    sheet.add_row("iteration", q["time_s"], iteration)
    per_device = f"{row['tokens_per_s_per_device']:,.0f} per device"
    sheet.add_row("tokens per second", f"{row['tokens_per_s']:,.0f}", per_device)
    sheet.add_row(
        "model operations", q["model_flops_per_device"], f"per device, {row['mfu']:.1%} of its peak"
    )
    if row["recompute_s"] > 0:
        sheet.add_row("with recomputation", q["hardware_flops_per_device"], "per device")
    if row["train_s"] > 0:
        sheet.add_row("to train", q["train_s"], f"{q['train_energy_J']}, on {train_tokens_key(inputs)}")
    return sheet
