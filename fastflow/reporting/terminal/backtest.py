"""Output of a back-test: real chips and generated chips, gains, and errors on measurements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fastflow.analysis.backtest.generated_chips import LINK, RATE, SCALINGS
from fastflow.analysis.backtest.generation_speedups import FORESIGHT, REAL
from fastflow.analysis.backtest.options import BacktestOptions
from fastflow.config.messages import pluralize
from fastflow.core import units
from fastflow.reporting.terminal.tables import Part, new_sheet, print_parts
from fastflow.schema import find_result

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table as Sheet

    from fastflow.analysis.backtest.study import Backtest

_LABELS = {
    "mcus": "MCUs", "core_Hz": "clock", "l2_B": "L2", "l2_Bps": "L2 rate", "l1_B": "L1", "l1_Bps": "L1 rate",
    "l0_B": "registers", "l0_Bps": "reg. rate", "dram_capacity_B": "memory", "dram_Bps": "memory rate",
    LINK: "links", "idle_W": "at rest", "full_W": "full load",
}  # fmt: skip
_TYPE = f"{RATE}.fp16"
_TOLERANCE = 0.2  # relative; a usual bound of a good prediction


def show(backtest: Backtest, options: BacktestOptions) -> None:
    """Print the tables and the summary of a back-test."""
    print_parts(parts(backtest, options.generations, options.known))
    if not len(backtest.files) and options.measurements is not None:
        print(f"No file of {options.measurements} has products, attention or experts of backtest.devices")
    print()
    for line in summary_lines(backtest, options.generations):
        print(line)


def parts(backtest: Backtest, generations: Sequence[str], known: Sequence[str]) -> Iterator[Part]:
    """Yield the tables of a back-test: real chips and generated chips, gains, errors.

    generations: chips shown side by side; known: the chips that foresight extrapolates from.
    """
    for scaling in reversed(SCALINGS):
        yield _differences(backtest.chips, scaling)
    yield _values(backtest.chips, generations)
    yield _rates(backtest.chips, generations)
    yield _gains(backtest.gains, known)
    if len(backtest.files):
        yield _errors(backtest.files)
    if len(backtest.measured):
        yield _measured(backtest.measured)


def _percent(value: float | None) -> str:
    """Write a difference in percent; "-" for NaN."""
    return "-" if value is None or value != value else f"{value:+.0%}"


def _differences(chips: pd.DataFrame, scaling: str) -> Sheet:
    """Return every chip's differences under a scaling as a table."""
    rows = chips[chips["scaling"] == scaling]
    names = {_TYPE: "tensor rate", **_LABELS}
    title = f"Generated from budgets alone, over the real chip (scaling={scaling})"
    sheet = new_sheet(title, [("chip", False), *((name, True) for name in names.values())])
    for chip, of_chip in rows.groupby("chip", sort=False):
        by = dict(zip(of_chip["quantity"], of_chip["difference"], strict=True))
        sheet.add_row(str(chip), *(_percent(by.get(name)) for name in names))
    return sheet


def _format_quantity(quantity: str, value: float) -> str:
    """Write a quantity with its unit, in three digits."""
    if quantity == "mcus":
        return f"{value:,.0f}"
    name = "compute_flops" if quantity.startswith(RATE) else "intra_Bps" if quantity == LINK else quantity
    column = find_result(name)
    return units.show(value, column.unit if column is not None else "")


def _side_by_side(title: str, names: dict[str, str], chips: pd.DataFrame, shown: Sequence[str]) -> Sheet:
    """Return quantities of some chips as a table: real, and generated with scaling=foundry."""
    sheet = new_sheet(title, [("", False), *((chip, True) for chip in shown)])
    rows = chips[chips["scaling"] == SCALINGS[-1]]
    names_of = zip(rows["chip"], rows["quantity"], strict=True)
    by = dict(zip(names_of, zip(rows["real"], rows["generated"], strict=True), strict=True))
    for quantity, name in names.items():
        pairs = (by.get((chip, quantity)) for chip in shown)
        sheet.add_row(name, *("-" if pair is None else _format_pair(quantity, *pair) for pair in pairs))
    return sheet


def _format_pair(quantity: str, real: float, generated: float) -> str:
    """Write a real and a generated quantity; a common unit once."""
    first, second = _format_quantity(quantity, real), _format_quantity(quantity, generated)
    if first.partition(" ")[2] == second.partition(" ")[2]:
        first = first.partition(" ")[0]
    return f"{first} → {second}"


def _values(chips: pd.DataFrame, shown: Sequence[str]) -> Sheet:
    return _side_by_side(
        f"Real chips → what their budgets make (scaling={SCALINGS[-1]})", _LABELS, chips, shown
    )


def _rates(chips: pd.DataFrame, shown: Sequence[str]) -> Sheet:
    of_shown = chips[chips["chip"].isin(shown) & chips["quantity"].str.startswith(f"{RATE}.")]
    types = {name: name.removeprefix(f"{RATE}.") for name in dict.fromkeys(of_shown["quantity"])}
    return _side_by_side("Rates by data type, real → made", types, chips, shown)


def _gains(gains: pd.DataFrame, known: Sequence[str]) -> Sheet:
    """Return the gains of generations as a table."""
    alone = f"extrapolated from {' and '.join(known)} alone"
    title = f"Gains of a generation; foresight: {alone}, with the next die, power, memory and links"
    variants = (REAL, *reversed(SCALINGS), FORESIGHT)
    sheet = new_sheet(
        title,
        [("workload", False), ("from", False), ("to", False), *((variant, True) for variant in variants)],
    )
    for row in gains.to_dict("records"):
        cells = []
        for variant in variants:
            gain = row[f"{variant}_gain"]
            difference = "" if variant == REAL else f" ({_percent(gain / row[f'{REAL}_gain'] - 1.0)})"
            cells.append("-" if gain != gain else f"{gain:.2f}x{difference}")
        sheet.add_row(str(row["workload"]), str(row["before"]), str(row["after"]), *cells)
    return sheet


def _errors(files: pd.DataFrame) -> Sheet:
    """Return the errors on files of measurements as a table."""
    variants = (REAL, *reversed(SCALINGS))
    heads = [("file", False), ("chip", False), ("rows", True), *((variant, True) for variant in variants)]
    sheet = new_sheet("Mean relative error of times, with real and with generated chips", heads)
    for row in files.to_dict("records"):
        errors = (f"{row[f'{variant}_error']:.1%}" for variant in variants)
        sheet.add_row(str(row["file"]), str(row["chip"]), f"{row['rows']:,}", *errors)
    return sheet


def _measured(gains: pd.DataFrame) -> Sheet:
    """Return the gains that were measured as a table."""
    variants = (REAL, *reversed(SCALINGS))
    heads = [("rows alike", False), ("from", False), ("to", False), ("rows", True), ("measured", True)]
    sheet = new_sheet("Gains that were measured", [*heads, *((variant, True) for variant in variants)])
    for row in gains.to_dict("records"):
        measured = row["measured_gain"]
        predicted = (
            f"{row[f'{variant}_gain']:.2f}x ({_percent(row[f'{variant}_gain'] / measured - 1.0)})"
            for variant in variants
        )
        sheet.add_row(
            str(row["workload"]), str(row["before"]), str(row["after"]), f"{row['rows']:,}",
            f"{measured:.2f}x", *predicted,
        )  # fmt: skip
    return sheet


def summary_lines(backtest: Backtest, generations: Sequence[str]) -> list[str]:
    """Return sentences: how many quantities of the generations are within the tolerance."""
    lines = []
    quantities = (_TYPE, "dram_capacity_B", "dram_Bps", "l2_B", "l2_Bps")
    rows = backtest.chips[
        backtest.chips["chip"].isin(generations) & backtest.chips["quantity"].isin(quantities)
    ]
    for scaling in reversed(SCALINGS):
        of_scaling = rows[rows["scaling"] == scaling]
        far = of_scaling[~(of_scaling["difference"].abs() <= _TOLERANCE)]
        names = ", ".join(
            f"{row['chip']} {_LABELS.get(row['quantity'], 'tensor rate')} {_percent(row['difference'])}"
            for row in far.to_dict("records")
        )
        total = (
            pluralize(len(of_scaling), "quantity")
            if len(of_scaling) == 1
            else f"{len(of_scaling)} quantities"
        )
        lines.append(
            f"scaling={scaling}: {len(of_scaling) - len(far)} of {total} (tensor rate, memory, L2) within "
            f"{_TOLERANCE:.0%}{': not ' + names if names else ''}"
        )
    return lines
