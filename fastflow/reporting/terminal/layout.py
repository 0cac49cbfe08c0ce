"""Sharding of the kernels of one point over its devices, and their communication: the main lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from fastflow.core import units
from fastflow.performance.sharding_report import (
    STATISTICS_SUFFIX,
    AxisPlacements,
    ExchangeReport,
    KernelSharding,
)
from fastflow.physics.workload.graph import FORWARD, PHASES, UPDATE
from fastflow.physics.workload.sharding_rules import ROWS
from fastflow.reporting.terminal.tables import new_sheet

_MAX_LINES = 20
_WIDE = 100
_COLUMNS = ("kernel", "along", "reads", "weights", "makes", "communication")


def show_layout(out: Console, kernels: Sequence[KernelSharding]) -> None:
    """Print a point's exchanges, and how weights are sharded; nothing if there are neither.

    Identical kernels are shown once, with the number of their exchanges.
    """
    counts: dict[tuple[str, ...], int] = {}
    for kernel in kernels:
        for line in _lines(kernel):
            is_single = any(exchange.role == "gradient" for exchange in kernel.exchanges)
            counts[line] = counts.get(line, 0) + (1 if is_single else kernel.repeat)
    if not counts:
        return
    # the layout that a kernel reads follows from the producer and its exchange
    shown = [name for name in _COLUMNS if name != "reads" or out.width >= _WIDE]
    sheet = new_sheet("Layouts: S split, B replicated, P partial sum", [(name, False) for name in shown])
    for line, count in list(counts.items())[:_MAX_LINES]:
        cells = dict(zip(_COLUMNS, line, strict=True))
        cells["kernel"] += f" x {count:,}" if count > 1 else ""
        sheet.add_row(*(cells[name] for name in shown))
    out.print(sheet)
    others = f"{len(counts) - _MAX_LINES} more lines; all" if len(counts) > _MAX_LINES else "All"
    out.print(f"{others} kernels: fastflow.explain_sharding(...) in Python")


def _lines(kernel: KernelSharding) -> Iterator[tuple[str, ...]]:
    """Yield a kernel's lines: axes with the same layouts together, then exchanges along other axes."""
    axes_by_layout: dict[AxisPlacements, list[str]] = {}
    for sharding in kernel.along:
        axes_by_layout.setdefault(sharding._replace(axis=""), []).append(sharding.axis)
    is_update = kernel.phase == PHASES[UPDATE]  # the norm of a gradient is a few bytes
    exchanges = [
        exchange
        for exchange in kernel.exchanges
        if not (is_update and exchange.what.endswith(STATISTICS_SUFFIX))
    ]
    for layouts, axes in axes_by_layout.items():
        along = tuple(axes)
        on_axes = [exchange for exchange in exchanges if exchange.axes == along]
        exchanges = [exchange for exchange in exchanges if exchange.axes != along]
        shows_weights = layouts.weights and layouts.cut != ROWS and kernel.phase == PHASES[FORWARD]
        if on_axes or shows_weights:
            yield (
                kernel.kernel,
                " x ".join(along),
                layouts.reads,
                layouts.weights,
                layouts.makes,
                ", ".join(map(_format_exchange, on_axes)),
            )
    for exchange in exchanges:
        yield kernel.kernel, " x ".join(exchange.axes), "", "", "", _format_exchange(exchange)


def _format_exchange(exchange: ExchangeReport) -> str:
    return f"{exchange.what} {units.show(exchange.bytes, 'B')}"
