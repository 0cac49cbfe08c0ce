"""Output of a back-test: chips beside what their budgets make, gains, and errors on measurements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fastflow.analysis.backtest.generated_chips import LINK, RATE, SCALINGS
from fastflow.analysis.backtest.generation_speedups import FORESIGHT, REAL
from fastflow.analysis.backtest.options import BacktestOptions
from fastflow.config.messages import counted
from fastflow.core import units
from fastflow.reporting.terminal.tables import Part, new_sheet, tell
from fastflow.schema import find_result

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table as Sheet

    from fastflow.analysis.backtest.study import Backtest

_NAMES = {
    "mcus": "MCUs", "core_Hz": "clock", "l2_B": "L2", "l2_Bps": "L2 rate", "l1_B": "L1", "l1_Bps": "L1 rate",
    "l0_B": "registers", "l0_Bps": "their rate", "dram_capacity_B": "memory", "dram_Bps": "memory rate",
    LINK: "links",
}  # fmt: skip
_TYPE = f"{RATE}.fp16"
_NEAR = 0.2  # what the field takes for a good prediction


def show(found: Backtest, asked: BacktestOptions) -> None:
    """Print what a back-test found."""
    tell(parts(found, asked.generations, asked.known))
    if not len(found.files) and asked.measurements is not None:
        print(f"No file of {asked.measurements} has products, attention or experts of backtest.devices")
    print()
    for line in said(found, asked.generations):
        print(line)


def parts(found: Backtest, generations: Sequence[str], known: Sequence[str]) -> Iterator[Part]:
    """Yield what a back-test found: chips beside what their budgets make, gains, errors.

    generations: chips shown side by side; known: those that foresight knows.
    """
    for scaling in reversed(SCALINGS):
        yield _differences(found.chips, scaling)
    yield _values(found.chips, generations)
    yield _rates(found.chips, generations)
    yield _gains(found.gains, known)
    if len(found.files):
        yield _errors(found.files)
    if len(found.measured):
        yield _measured(found.measured)


def _percent(value: float | None) -> str:
    """Write a difference in percent; "-" where there is none."""
    return "-" if value is None or value != value else f"{value:+.0%}"


def _differences(chips: pd.DataFrame, scaling: str) -> Sheet:
    """Return every chip's differences under a scaling as a table."""
    rows = chips[chips["scaling"] == scaling]
    names = {_TYPE: "tensor rate", **_NAMES}
    title = f"Generated from budgets alone, over the real chip (scaling={scaling})"
    sheet = new_sheet(title, [("chip", False), *((name, True) for name in names.values())])
    for chip, of_chip in rows.groupby("chip", sort=False):
        by = dict(zip(of_chip["quantity"], of_chip["difference"], strict=True))
        sheet.add_row(str(chip), *(_percent(by.get(name)) for name in names))
    return sheet


def _written(quantity: str, value: float) -> str:
    """Write a quantity with its unit, in three digits."""
    if quantity == "mcus":
        return f"{value:,.0f}"
    name = "compute_flops" if quantity.startswith(RATE) else "intra_Bps" if quantity == LINK else quantity
    column = find_result(name)
    return units.show(value, column.unit if column is not None else "")


def _beside(title: str, names: dict[str, str], chips: pd.DataFrame, shown: Sequence[str]) -> Sheet:
    """Return quantities of some chips as a table: real ones, and generated ones by foundries' figures."""
    sheet = new_sheet(title, [("", False), *((chip, True) for chip in shown)])
    rows = chips[chips["scaling"] == SCALINGS[-1]]
    names_of = zip(rows["chip"], rows["quantity"], strict=True)
    by = dict(zip(names_of, zip(rows["real"], rows["generated"], strict=True), strict=True))
    for quantity, name in names.items():
        pairs = (by.get((chip, quantity)) for chip in shown)
        sheet.add_row(name, *("-" if pair is None else _pair(quantity, *pair) for pair in pairs))
    return sheet


def _pair(quantity: str, real: float, made: float) -> str:
    """Write a real quantity and a generated one, with their unit once where it is one."""
    first, second = _written(quantity, real), _written(quantity, made)
    if first.partition(" ")[2] == second.partition(" ")[2]:
        first = first.partition(" ")[0]
    return f"{first} → {second}"


def _values(chips: pd.DataFrame, shown: Sequence[str]) -> Sheet:
    return _beside(f"Real chips → what their budgets make (scaling={SCALINGS[-1]})", _NAMES, chips, shown)


def _rates(chips: pd.DataFrame, shown: Sequence[str]) -> Sheet:
    of_shown = chips[chips["chip"].isin(shown) & chips["quantity"].str.startswith(f"{RATE}.")]
    types = {name: name.removeprefix(f"{RATE}.") for name in dict.fromkeys(of_shown["quantity"])}
    return _beside("Rates by data type, real → made", types, chips, shown)


def _gains(gains: pd.DataFrame, known: Sequence[str]) -> Sheet:
    """Return the gains of generations as a table."""
    alone = f"from {' and '.join(known)} alone"
    title = f"Gains of a generation; foresight: {alone}, with the next die, power, memory and links"
    ways = (REAL, *reversed(SCALINGS), FORESIGHT)
    sheet = new_sheet(
        title, [("workload", False), ("from", False), ("to", False), *((way, True) for way in ways)]
    )
    for row in gains.to_dict("records"):
        cells = []
        for way in ways:
            gain = row[f"{way}_gain"]
            beside = "" if way == REAL else f" ({_percent(gain / row[f'{REAL}_gain'] - 1.0)})"
            cells.append("-" if gain != gain else f"{gain:.2f}x{beside}")
        sheet.add_row(str(row["workload"]), str(row["before"]), str(row["after"]), *cells)
    return sheet


def _errors(files: pd.DataFrame) -> Sheet:
    """Return the errors on files of measurements as a table."""
    ways = (REAL, *reversed(SCALINGS))
    heads = [("file", False), ("chip", False), ("rows", True), *((way, True) for way in ways)]
    sheet = new_sheet("Mean relative error of times, with real and with generated chips", heads)
    for row in files.to_dict("records"):
        errors = (f"{row[f'{way}_error']:.1%}" for way in ways)
        sheet.add_row(str(row["file"]), str(row["chip"]), f"{row['rows']:,}", *errors)
    return sheet


def _measured(gains: pd.DataFrame) -> Sheet:
    """Return the gains that were measured as a table."""
    ways = (REAL, *reversed(SCALINGS))
    heads = [("rows alike", False), ("from", False), ("to", False), ("rows", True), ("measured", True)]
    sheet = new_sheet("Gains that were measured", [*heads, *((way, True) for way in ways)])
    for row in gains.to_dict("records"):
        measured = row["measured_gain"]
        predicted = (
            f"{row[f'{way}_gain']:.2f}x ({_percent(row[f'{way}_gain'] / measured - 1.0)})" for way in ways
        )
        sheet.add_row(
            str(row["workload"]), str(row["before"]), str(row["after"]), f"{row['rows']:,}",
            f"{measured:.2f}x", *predicted,
        )  # fmt: skip
    return sheet


def said(found: Backtest, generations: Sequence[str]) -> list[str]:
    """Return in words how many quantities of the generations come out."""
    lines = []
    judged = (_TYPE, "dram_capacity_B", "dram_Bps", "l2_B", "l2_Bps")
    rows = found.chips[found.chips["chip"].isin(generations) & found.chips["quantity"].isin(judged)]
    for scaling in reversed(SCALINGS):
        of_scaling = rows[rows["scaling"] == scaling]
        far = of_scaling[~(of_scaling["difference"].abs() <= _NEAR)]
        names = ", ".join(
            f"{row['chip']} {_NAMES.get(row['quantity'], 'tensor rate')} {_percent(row['difference'])}"
            for row in far.to_dict("records")
        )
        many = (
            counted(len(of_scaling), "quantity") if len(of_scaling) == 1 else f"{len(of_scaling)} quantities"
        )
        lines.append(
            f"scaling={scaling}: {len(of_scaling) - len(far)} of {many} (tensor rate, memory, L2) within "
            f"{_NEAR:.0%}{': not ' + names if names else ''}"
        )
    return lines
