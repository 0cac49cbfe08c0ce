"""How the kernels of one point are laid out over its devices, and what they exchange: the main lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from fastflow.core import units
from fastflow.performance.sharding_report import STATISTICS_SUFFIX, Along, Exchanged, Explained
from fastflow.physics.workload.graph import FORWARD, PHASES, UPDATE
from fastflow.physics.workload.sharding_rules import ROWS
from fastflow.reporting.terminal.tables import new_sheet

_MOST_LINES = 20
_WIDE = 100
_COLUMNS = ("kernel", "along", "reads", "weights", "makes", "then exchanges")


def show_layout(out: Console, kernels: Sequence[Explained]) -> None:
    """Print a point's exchanges, and how weights are cut; nothing where neither is.

    Of kernels that are alike one is shown, with how often it is followed by its exchange.
    """
    counts: dict[tuple[str, ...], int] = {}
    for kernel in kernels:
        for line in _lines(kernel):
            once = any(one.role == "gradient" for one in kernel.exchanges)
            counts[line] = counts.get(line, 0) + (1 if once else kernel.repeat)
    if not counts:
        return
    # what a kernel reads follows from what was made and exchanged before
    shown = [name for name in _COLUMNS if name != "reads" or out.width >= _WIDE]
    sheet = new_sheet("Layouts: S split, B broadcast, P partial sum", [(name, False) for name in shown])
    for line, count in list(counts.items())[:_MOST_LINES]:
        cells = dict(zip(_COLUMNS, line, strict=True))
        cells["kernel"] += f" x {count:,}" if count > 1 else ""
        sheet.add_row(*(cells[name] for name in shown))
    out.print(sheet)
    others = f"{len(counts) - _MOST_LINES} more lines; all" if len(counts) > _MOST_LINES else "All"
    out.print(f"{others} kernels: fastflow.explain_layout(...) in Python")


def _lines(kernel: Explained) -> Iterator[tuple[str, ...]]:
    """Yield a kernel's lines: axes with the same layouts together, then exchanges along other ones."""
    alike: dict[Along, list[str]] = {}
    for one in kernel.along:
        alike.setdefault(one._replace(axis=""), []).append(one.axis)
    update = kernel.phase == PHASES[UPDATE]  # the norm of a gradient is a few bytes
    rest = [one for one in kernel.exchanges if not (update and one.what.endswith(STATISTICS_SUFFIX))]
    for layouts, axes in alike.items():
        along = tuple(axes)
        here = [one for one in rest if one.axes == along]
        rest = [one for one in rest if one.axes != along]
        cut = layouts.weights and layouts.cut != ROWS and kernel.phase == PHASES[FORWARD]
        if here or cut:
            yield (
                kernel.kernel,
                " x ".join(along),
                layouts.reads,
                layouts.weights,
                layouts.makes,
                ", ".join(map(_written, here)),
            )
    for exchange in rest:
        yield kernel.kernel, " x ".join(exchange.axes), "", "", "", _written(exchange)


def _written(one: Exchanged) -> str:
    return f"{one.what} {units.show(one.bytes, 'B')}"
