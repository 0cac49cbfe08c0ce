"""Output of one point: its chip, the breakdown of its time, its limiter and its memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table as Sheet

from fastflow.config.messages import pluralize
from fastflow.core import units
from fastflow.physics.hardware.packages import PACKAGE
from fastflow.physics.workload.models.transformer.layer_pattern import KEY as PATTERN
from fastflow.physics.workload.models.transformer.layer_pattern import keys_of_attention
from fastflow.reporting.terminal.carbon import CARBON_PREFIX, carbon_lines
from fastflow.reporting.terminal.cost import COST_PREFIX, TOKENS_PER_PARAMETER, cost_sheet
from fastflow.reporting.terminal.layout import show_layout
from fastflow.reporting.terminal.memory_steps import memory_sheet
from fastflow.reporting.terminal.percentiles import band_sheet, has_bands
from fastflow.reporting.terminal.power_limits import site_limit_lines
from fastflow.reporting.terminal.tables import (
    Part,
    assumption_lines,
    bottleneck_stage_text,
    console,
    new_sheet,
    no_effect_lines,
    point_title,
    print_parts,
    quantity,
    validation_lines,
)
from fastflow.reporting.terminal.training import training_sheets

if TYPE_CHECKING:
    from fastflow.performance.memory_timeline import MemoryTimeline
    from fastflow.performance.sharding_report import KernelSharding

_FUSED, _FLASH = "model.fused_attention", "chip.flash_attention"
_MASKS = ("model.window", "model.density")
SHOWN_PREFIXES = (
    PACKAGE, _FUSED, _FLASH, "chip.name", TOKENS_PER_PARAMETER, COST_PREFIX, CARBON_PREFIX, PATTERN,
    *_MASKS,
)  # fmt: skip
"""Prefixes of the inputs that are shown with results."""
_MAX_KERNELS = 16
_MAX_LEVELS = 9
_IDENTITY = ("kernel", "phase", "m", "k", "n", "bound_by", "comm")
_DIMENSIONS = {"kp1": "kernel", "kp2": "kernel", "tp": "tensor", "dp": "data", "pp": "pipeline"}
_SHARES = ("compute", "l0", "l1", "l2", "l3", "l4", "dram", "launch")


def breakdown(
    row: Mapping[str, Any],
    kernels: Mapping[str, Any],
    layouts: Sequence[KernelSharding],
    levels: int,
    advice: str,
    memory: MemoryTimeline | None = None,
) -> None:
    """Print one point: its chip and layouts, the breakdown of its time, its limiter, and its memory.

    advice: on its pipeline stages, "" for none; memory: over an iteration, of a transformer.
    """
    out = console()
    print_parts(title_parts(row))
    if is_transformer(row):
        print_parts(training_sheets(row, row))
        print_parts([] if memory is None else [memory_sheet(memory)])
    out.print(chip_sheet(row, levels))
    out.print(cost_sheet(row, row))
    if has_bands(row):
        out.print(band_sheet(row))
    if row["devices"] > 1:
        out.print(placement_sheet(row))
        show_layout(out, layouts)
    if not is_transformer(row):
        out.print(phase_sheet(row))
    unique = merge_identical(kernels)
    out.print(_kernels(unique, bottleneck_stage_text(row), wide=out.width >= 110))
    out.print(_launches(unique, levels))
    out.print(_bytes(unique, levels))
    out.print(_tiles(unique, levels))
    out.print()
    if advice:
        out.print("Stages       " + advice.replace("\n", "\n" + 13 * " "))
    print_parts(conclusion(row))
    out.print()


def is_transformer(row: Mapping[str, Any]) -> bool:
    """Return whether a point trains a transformer: it has tokens."""
    return "tokens_per_s" in row and row["tokens_per_s"] == row["tokens_per_s"]


def title_parts(row: Mapping[str, Any]) -> Iterator[Part]:
    """Yield a line that names a point, and for a transformer a line on its training."""
    yield f"{point_title(row)}{', ' if row['layer_strategies'] else ''}{row['layer_strategies']}"
    used, package = row.get("devices_per_package", 0), row.get(PACKAGE, 0)
    if 0 < used < package:
        where = (
            "a scale-up domain"
            if row["devices"] == used
            else f"each of {row['devices'] // used} scale-up domains"
        )
        yield f"uses {used} of the {package} devices of {where}"
    if is_transformer(row):
        sequences = pluralize(row["microbatch"], "sequence")
        dtype = f"{row['dtype']}, " if row.get("dtype") else ""
        options = f"{dtype}micro-batches of {sequences}, {row['schedule']}, recompute {row['recompute']}"
        yield f"{options}, ZeRO {row['zero']}{_attention_text(row)}"


def _attention_text(row: Mapping[str, Any]) -> str:
    """Return whether attention is fused, if known, and whether the chip lacks FlashAttention 2."""
    if _FUSED not in row:
        return ""
    if not row[_FUSED]:
        used = keys_of_attention(str(row[PATTERN])) if PATTERN in row else ()
        masks = [key for key in _MASKS if key in used and row.get(key, 0) > 0]
        return ", unfused attention" + (f" to all keys, whatever {' and '.join(masks)}" if masks else "")
    others = " of xFormers or PyTorch: FlashAttention 2 does not support the chip"
    return f", fused attention{'' if row.get(_FLASH, True) else others}"


def _count(count: str, noun: str) -> str:
    """Write a number of units, as `pluralize` does, from the formatted number."""
    return f"{count} {noun}{'' if count == '1' else 's'}"


def num_levels(row: Mapping[str, Any]) -> int:
    """Return how many on-chip levels the chip of a point has."""
    rates = (row.get(f"l{level}_Bps") for level in range(_MAX_LEVELS))
    return sum(1 for rate in rates if rate is not None and rate > 0.0)


def chip_sheet(row: Mapping[str, Any], levels: int, title: str = "Chip") -> Sheet:
    """Return the generated chip as a table: capacities and rates of all levels."""
    q = {name: quantity(name, value) for name, value in row.items()}
    sheet = new_sheet(title, [("", False), ("capacity", True), ("rate", True), ("", False)])
    units = f"{_count(q['mcus'], 'matrix unit')} in {_count(q['bundles'], 'bundle')} (SMs)"
    sheet.add_row("core", "", q["compute_flops"], f"{units}, {q['core_V']}, {q['core_Hz']}")
    for level in range(levels):
        banks = _count(q[f"l{level}_banks"], "bank")
        note = banks if level else f"registers, {banks}"
        sheet.add_row(f"l{level}", q[f"l{level}_B"], q[f"l{level}_Bps"], note)
    devices = _count(q["dram_devices"], "DRAM device")
    sheet.add_row("dram", q["dram_capacity_B"], q["dram_Bps"], f"main memory, {devices}")
    sheet.add_row("network", "", q["inter_Bps"], "between scale-up domains, one direction")
    if row["intra_Bps"] > 0:
        sheet.add_row("", "", q["intra_Bps"], "in the scale-up domain, one direction")
    return sheet


def placement_sheet(row: Mapping[str, Any]) -> Sheet:
    """Return the hops and the bandwidth to neighbours along every parallel dimension as a table."""
    sheet = new_sheet(
        f"Placement {row['placement']}",
        [("neighbours along", False), ("hops", True), ("bandwidth", True)],
    )
    for name, kind in _DIMENSIONS.items():
        if row[f"{name}_hops"] > 0:
            bandwidth = quantity(f"{name}_Bps", row[f"{name}_Bps"])
            sheet.add_row(f"{name} ({kind})", str(row[f"{name}_hops"]), bandwidth)
    return sheet


def phase_sheet(row: Mapping[str, Any]) -> Sheet:
    """Return the parts of the time of an iteration as a table."""
    sheet = new_sheet("Time of one iteration", [("", False), ("time", True), ("share", True), ("", False)])
    total, stage = row["time_s"], bottleneck_stage_text(row)
    notes = {
        "compute_s": f"of {stage}, which sets the pace" if stage else "",
        "exposed_comm_s": f"exposed, of {quantity('comm_s', row['comm_s'])} in total",
        "bubble_s": f"of the pipeline, {row['microbatches']} micro-batches",
    }
    for name in ("forward_s", "backward_s", "update_s"):
        if row[name] > 0:
            sheet.add_row(name.removesuffix("_s"), quantity(name, row[name]), f"{row[name] / total:.1%}", "")
    sheet.add_section()
    for name, label in (
        ("compute_s", "kernels"),
        ("exposed_comm_s", "communication"),
        ("bubble_s", "bubble"),
    ):
        if row[name] > 0 or name != "bubble_s":
            sheet.add_row(label, quantity(name, row[name]), f"{row[name] / total:.1%}", notes.get(name, ""))
    sheet.add_section()
    sheet.add_row("total", quantity("time_s", total), "", "")
    return sheet


def merge_identical(kernels: Mapping[str, Any]) -> dict[str, Any]:
    """Merge identical kernels (the layers of a stack) into one row, the longest first."""
    keys = [str(key) for key in zip(*(kernels[name] for name in _IDENTITY), strict=True)]
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    unique = {name: values[first] for name, values in kernels.items()}
    for name in ("repeat", "time_s", "comm_s"):
        unique[name] = np.bincount(group, kernels[name])
    order = np.argsort(-(unique["time_s"] + unique["comm_s"]), kind="stable")
    return {name: values[order] for name, values in unique.items()}


def _kernels(kernels: Mapping[str, Any], stage: str, wide: bool) -> Sheet:
    """Return the largest kernels of each phase as a table; stage: of the pipeline that runs them."""
    launches = [("count", True)] if wide else []
    names = [("kernel", False), *launches, ("time", True), ("share", True), ("bound by", False)]
    size = [("m x k x n", True)] if wide else []
    sheet = new_sheet(
        f"Kernels{' of ' if stage else ''}{stage}, all launches", [*names, *size, ("communication", False)]
    )
    total = kernels["time_s"].sum()
    shown = np.arange(kernels["time_s"].size) < _MAX_KERNELS
    for phase in dict.fromkeys(("forward", "backward", "update", *kernels["phase"])):
        rows = np.flatnonzero(shown & (kernels["phase"] == phase))
        if rows.size:
            sheet.add_row(f"[italic]{phase}[/]")
        for i in rows.tolist():
            time, comm = (units.show(float(kernels[name][i]), "s") for name in ("time_s", "comm_s"))
            sheet.add_row(
                f" {kernels['kernel'][i]}",
                *([f"{kernels['repeat'][i]:,.0f}"] if wide else []),
                time,
                f"{kernels['time_s'][i] / total:.1%}",
                str(kernels["bound_by"][i]),
                *([_size(kernels, i)] if wide else []),
                f"{kernels['comm'][i]} {comm}, {kernels['algorithm'][i]}" if kernels["comm"][i] else "",
            )
    if not shown.all():
        time = kernels["time_s"][~shown].sum()
        sheet.add_row(
            f"{(~shown).sum()} others",
            *([""] if wide else []),
            units.show(float(time), "s"),
            f"{time / total:.1%}",
        )
    return sheet


def _size(kernels: Mapping[str, Any], i: int) -> str:
    sizes = [kernels[name][i] for name in ("m", "k", "n")]
    return " x ".join(f"{size:.0f}" for size in sizes) if all(sizes) else ""


def _launches(kernels: Mapping[str, Any], levels: int) -> Sheet:
    """Return the time of one launch on each level as a table; the longest limits it."""
    names = ["compute", *(f"l{level}" for level in range(levels)), "dram"]
    sheet = new_sheet(
        "Time of one launch on each level", [("kernel", False), *((name, True) for name in names)]
    )
    for i in np.argsort(-kernels["time_s"], kind="stable")[: _MAX_KERNELS // 2]:
        times = [units.show(float(kernels[f"{name}_s"][i]), "s") for name in names]
        sheet.add_row(str(kernels["kernel"][i]), *times)
    return sheet


def _bytes(kernels: Mapping[str, Any], levels: int) -> Sheet:
    """Return the bytes that each level serves in one launch of a GEMM as a table."""
    names = [*(f"l{level}" for level in range(levels)), "dram"]
    sheet = new_sheet(
        "Bytes of one launch served by each level", [("kernel", False), *((name, True) for name in names)]
    )
    for i in np.argsort(-kernels["time_s"], kind="stable")[: _MAX_KERNELS // 2]:
        if kernels["l0_tile"][i]:
            moved = [units.show(float(kernels[f"{name}_B"][i]), "B") for name in names]
            sheet.add_row(str(kernels["kernel"][i]), *moved)
    return sheet


def _tiles(kernels: Mapping[str, Any], levels: int) -> Sheet:
    """Return the tile of each level of a GEMM as a table, with the stationary operand and the waves."""
    names = [f"l{level}" for level in reversed(range(levels))]
    title = "Tiles of the GEMMs: m x k x n and the stationary operand; waves over the bundles, parts of k"
    columns = [("kernel", False), *((name, True) for name in (*names, "waves", "busy", "parts"))]
    sheet = new_sheet(title, columns)
    for i in np.argsort(-kernels["time_s"], kind="stable")[: _MAX_KERNELS // 2]:
        if kernels["l0_tile"][i]:
            tiles = [f"{kernels[f'{name}_tile'][i]} {kernels[f'{name}_stationary'][i]}" for name in names]
            occupancy = (
                f"{kernels['waves'][i]:,}",
                f"{kernels['busy_frac'][i]:.0%}",
                f"{kernels['parts'][i]:,}",
            )
            sheet.add_row(str(kernels["kernel"][i]), *tiles, *occupancy)
    return sheet


def conclusion(row: Mapping[str, Any]) -> Iterator[Part]:
    """Yield the limiter of a point, its use of resources, its accuracy, and whether it is feasible."""
    q = {name: quantity(name, value) for name, value in row.items()}
    shares = [(row.get(f"{name}_bound_frac"), name) for name in _SHARES]
    limits = sorted(
        ((share, name) for share, name in shares if share is not None and share >= 0.005), reverse=True
    )
    by = ", ".join(f"{name} {share:.0%}" for share, name in limits)
    yield f"Bound by     {row['bound_by']} (share of kernel time: {by})"
    site = f", {q['site_J']} at the site" if "site_J" in q else ""
    yield f"Utilisation  {row['mfu']:.1%} of peak, {q['flop']} in total; {q['energy_J']} per iteration{site}"
    yield from carbon_lines(row, row)
    parts = ", ".join(
        f"{name} {quantity(f'{name}_B', row[f'{name}_B'])}"
        for name in ("weight", "gradient", "optimizer", "activation")
    )
    fullest = f", in pipeline stage {row['peak_memory_stage']} (the fullest)" if row["pp_hops"] > 0 else ""
    yield f"Memory       {q['footprint_B']} of {q['dram_offered_B']} per device{fullest}"
    yield f"             {parts}"
    if row.get("throttled_frac", 0.0) > 0.0:
        yield (
            f"Power        a limit of {q['power_limit_W']} per device slows down"
            f" {row['throttled_frac']:.0%} of kernel time"
        )
    yield from site_limit_lines(row)
    yield from assumption_lines([row])
    yield from no_effect_lines(row)
    yield from validation_lines([row])
    if not row["feasible"]:
        yield f"[bold red]Not feasible[/] {row['reason']}"
