"""Output of a validation: errors by group, and the worst rows explained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from fastflow.analysis.measurements.read import has_errors_by_part, naming_columns
from fastflow.analysis.validation.error_metrics import (
    ALL,
    ERROR_OF_TIME,
    errors_of,
    is_compared,
    measured_quantities,
)
from fastflow.config.messages import pluralize
from fastflow.core import units
from fastflow.reporting.terminal.choices import choice_lines, choice_sheet
from fastflow.reporting.terminal.errors_by_part import group_sheet, parts_of, without_categories
from fastflow.reporting.terminal.tables import console, new_sheet, records
from fastflow.reporting.terminal.training import time_parts
from fastflow.schema.quantities import TIME, Quantity
from fastflow.schema.validation import ROOFLINE

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table as Sheet

    from fastflow.engine.dataset.reader import Dataset

_MAX_WORST, _MAX_WORST_FURTHER = 8, 4  # of times; of each further quantity
_ERROR_COLUMNS = ("mean_error", "median_error", "p90_error", "bias", "log_correlation")
_HEADS = ("mean", "median", "90%", "bias", "log corr.")


def title(dataset: Dataset) -> str:
    """Return the title after the number of rows: the file and the chip or system."""
    return title_of(*(dataset.about(name) for name in ("measurements", "measured", "where")))


def title_of(path: str, kind: str, where: str) -> str:
    """Return the title after the number of rows: of a file of a kind, and the chip or system."""
    return f"of {Path(path).name} ({kind}) on {where}"


def file_columns_of(dataset: Dataset) -> list[str]:
    """Return the columns that a validation has from its file of measurements."""
    return [field.name for field in dataset.schema if b"own" in (field.metadata or {})]


def show(dataset: Dataset, rows: pd.DataFrame, errors: pd.DataFrame) -> None:
    """Print the errors of a validation, and its worst rows explained.

    rows, errors: the frames of its two datasets.
    """
    out = console()
    out.print(f"[bold]{pluralize(len(rows), 'row')} {title(dataset)}[/]{_device_note(rows)}")
    for line in dataset.texts("said"):
        out.print(line, markup=False)
    quantities = measured_quantities(rows)
    for sheet in error_sheets(errors, quantities):
        out.print(sheet)
    failed = rows[rows["predicted_s"].isna()]
    if len(failed):
        first = failed.iloc[0]
        lines = ", ".join(map(str, failed["line"].head(_MAX_WORST))) + (
            ", ..." if len(failed) > _MAX_WORST else ""
        )
        out.print(
            f"\n{len(failed):,} of {pluralize(len(rows), 'row')} cannot be predicted "
            f"({'line' if len(failed) == 1 else 'lines'} {lines}); "
            f"the first one: {first['reason']}",
            markup=False,
        )
    kind = dataset.about("measured")
    for chosen, line in choice_lines(rows, kind).items():
        out.print(f"\n[bold]Choice of {chosen}[/]: {line}")
    if choices := choice_sheet(rows, kind):
        out.print(choices)
    naming = naming_columns(kind, file_columns_of(dataset))
    out.print(f"\n[bold]Worst rows[/]: {explanation_title(rows)}")
    _print_rows(out, worst_rows(rows, naming))
    for quantity in quantities[1:]:
        if len(errors_of(errors, quantity)):
            out.print(f"\n[bold]Worst rows of {quantity.name}[/], with their times")
            _print_rows(out, worst_rows(rows, naming, _MAX_WORST_FURTHER, quantity))
    out.print()
    for line in mean_error_lines(rows, errors, kind):
        print(line)


def _print_rows(out: Console, explained: Iterable[list[str]]) -> None:
    """Print rows, the lines after the first of each further in."""
    for head, *more in explained:
        for text, indent in ((head, "  "), *((text, "    ") for text in more)):
            for line in wrap(text, out.width, initial_indent=indent, subsequent_indent="    "):
                out.print(line, markup=False)


def error_sheets(errors: pd.DataFrame, quantities: Sequence[Quantity]) -> Iterator[Sheet]:
    """Yield the errors of a validation as tables; quantities: those of its rows, the time first."""
    tables = [(errors_of(errors, quantity), quantity, "") for quantity in quantities]
    parts = parts_of(errors)
    if parts:
        tables[:1] = [(errors_of(errors, TIME, part), TIME, part) for part in parts]
    for table, quantity, part in tables:
        if len(table):
            yield error_sheet(without_categories(table) if parts else table, quantity, part)
    if parts:
        yield group_sheet(errors, quantities)


def mean_error_lines(rows: pd.DataFrame, errors: pd.DataFrame, kind: str) -> Iterator[str]:
    """Yield a line on the mean error of each quantity: throughput, then times, then what a meter shows.

    rows, errors: of a validation of a kind of file.
    """
    further = measured_quantities(rows)[1:]
    for quantity in further:
        if not quantity.is_metered:
            yield mean_error_line(rows, errors, quantity)
    of_times = errors_of(errors, TIME)
    by = "part" if has_errors_by_part(kind) else ALL
    of_part = {row["value"]: row["mean_error"] for row in records(of_times[of_times["by"] == by])}
    for part in parts_of(errors) or of_part:
        yield f"{part} mean relative error {of_part[part]:.1%}".lstrip()
    for quantity in further:
        if quantity.is_metered:
            yield mean_error_line(rows, errors, quantity)


def mean_error_line(rows: pd.DataFrame, errors: pd.DataFrame, quantity: Quantity) -> str:
    """Return the mean error of a quantity besides the time, and of the rows whose time is right.

    Of what no meter shows, the mean and the median.
    """
    is_short = rows[TIME.measured] <= quantity.shortest
    longer = f" longer than {units.show(quantity.shortest, 's')}" if is_short.any() else ""
    of_quantity = errors_of(errors, quantity)
    of_all, near = (records(of_quantity[of_quantity["by"] == by]) for by in (ALL, ERROR_OF_TIME))
    if not of_all:
        return f"{quantity.name}: no row{longer} has a measured and a predicted one"
    median = "" if quantity.is_metered else f", median {of_all[0]['median_error']:.1%}"
    parts = [
        f"{quantity.name} mean relative error {of_all[0]['mean_error']:.1%}{median}",
        f"{pluralize(of_all[0]['rows'], 'row')}{longer}",
    ]
    parts += [f"{row['mean_error']:.1%} of the {row['rows']:,} whose time is {row['value']}" for row in near]
    return f"{parts[0]} ({'; '.join(parts[1:])})"


def _device_note(rows: pd.DataFrame) -> str:
    """Return a note on the devices that the file names, if they are few."""
    names = list(map(str, rows["device"].unique())) if "device" in rows else []
    return f"; measured on {', '.join(names)}" if 0 < len(names) <= 3 else ""


def explanation_title(rows: pd.DataFrame) -> str:
    """Return the title of the explanation of the worst rows."""
    detailed = "time of each resource alone, and how the GEMM was tiled (m x k x n)"
    return "where the time goes" if "attention_s" in rows else detailed


def worst_rows(
    rows: pd.DataFrame, naming: Sequence[str], limit: int = _MAX_WORST, quantity: Quantity = TIME
) -> Iterator[list[str]]:
    """Yield the lines on each of the rows with the largest errors; naming: columns that name a row."""
    compared = rows[is_compared(rows, quantity)]
    for row in records(compared.sort_values(quantity.error, ascending=False, kind="stable").head(limit)):
        lines = _explanation_lines(row, naming)
        yield [*lines] if quantity == TIME else [_quantity_line(row, naming, quantity), _time_line(row)]


def error_sheet(errors: pd.DataFrame, quantity: Quantity = TIME, part: str = "") -> Sheet:
    """Return the errors of a quantity as a table, a section for each grouping.

    part: of the workload, whose times they are of; "" for all.
    """
    columns = [("", False), ("rows", True), *((head, True) for head in _HEADS)]
    name = part if quantity == TIME else quantity.name
    title_line = f"Error of {name}" if name else "Error"
    sheet = new_sheet(f"{title_line}, relative; bias: predicted / measured", columns)
    errors = errors.astype({"by": str, "value": str})
    for by in errors["by"].unique().tolist():
        group = errors[errors["by"] == by]
        if by != ALL:
            sheet.add_section()
            sheet.add_row(f"[italic]by {'limiter' if by == 'bound_by' else by}[/]")
        for row in records(group):
            figures = [_format_error(name, row[name]) for name in _ERROR_COLUMNS]
            sheet.add_row(ALL if by == ALL else f" {row['value']}", f"{row['rows']:,}", *figures)
    return sheet


def _format_error(name: str, value: float) -> str:
    if value != value:
        return "-"
    if name == "log_correlation":
        return f"{value:.4f}"
    return f"{value:.2f}" if name == "bias" else f"{value:.1%}"


def _explanation_lines(row: Mapping[str, Any], naming: Sequence[str]) -> Iterator[str]:
    """Yield a row with its times, the time of each resource alone, and the tiling of its longest GEMM.

    naming: columns that name a row, in their order.
    """
    yield _quantity_line(row, naming, TIME) + f", bound by {row['bound_by']}"
    if _has_value(row.get("attention_s")):
        every, least = [*time_parts(row), ("host", float(row.get("host_s", 0.0)))], 0.001 * row["predicted_s"]
        parts = [(label, seconds) for label, seconds in every if abs(seconds) > least]
        smaller = sum(seconds for _, seconds in every if abs(seconds) <= least)
        parts += [("smaller parts", smaller)] if smaller else []
        yield ", ".join(f"{label} {units.show(seconds, 's')}" for label, seconds in parts)
        return
    names = [name for name in row if name.startswith(ROOFLINE)]
    names += [name for name in ("latency_s", "exposed_comm_s", "bubble_s") if name in row]
    resource_times = [(name.removeprefix(ROOFLINE).removesuffix("_s"), row[name]) for name in names]
    texts = [
        f"{_RESOURCE_NAMES.get(name, name)} {units.show(float(value), 's')}"
        for name, value in resource_times
        if value > 0.0
    ]
    yield ", ".join(texts)
    if row.get("gemm") and _has_value(row.get("gemm_waves")) and row["gemm_waves"] > 0:
        yield _tiling_text(row)


def _quantity_line(row: Mapping[str, Any], naming: Sequence[str], quantity: Quantity) -> str:
    """Return a row's name, and a quantity of it."""
    return f"line {row['line']}: {_row_name(row, naming)}: {_compared(row, quantity)}"


def _time_line(row: Mapping[str, Any]) -> str:
    """Return the times of a row, for the errors of its further quantities."""
    return f"time: {_compared(row, TIME)}, bound by {row['bound_by']}"


def _compared(row: Mapping[str, Any], quantity: Quantity) -> str:
    """Return the measured and the predicted value of a quantity."""
    names = (quantity.measured, quantity.predicted)
    measured, predicted = (units.show(float(row[name]), quantity.unit) for name in names)
    return f"measured {measured}, predicted {predicted} ({row[quantity.ratio]:.2f}x)"


_RESOURCE_NAMES = {"exposed_comm": "communication", "latency": "empty message"}


def _row_name(row: Mapping[str, Any], naming: Sequence[str]) -> str:
    """Return the name of a row: the sizes of a GEMM together, other columns by name."""
    names = [name for name in naming if name in row]
    if "m" in row and "k" in row and "n" in row:
        names = [name for name in names if name not in ("m", "k", "n")]
        texts = ["m {m}, n {n}, k {k}".format_map(row)]
        names = [name for name in names if name != "batch" or row[name] != 1]
    else:
        texts = []
    return ", ".join(texts + [_format_cell(name, row[name]) for name in names if _has_value(row[name])])


def _format_cell(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    text = f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"
    return f"{name} {text}"


def _has_value(value: Any) -> bool:
    return value is not None and value == value


def _tiling_text(row: Mapping[str, Any]) -> str:
    """Return the tiling of the longest GEMM, and its distribution over the bundles."""
    levels = sorted(
        (name for name in row if name.startswith("gemm_l") and name.endswith("_tile")), reverse=True
    )
    tiles = [f"{name[5:7]} {row[name]}" for name in levels if row[name]]
    parts = [
        f"{'' if row['gemm'] == 'gemm' else row['gemm'] + ': '}tiles {', '.join(tiles)}",
        f"{row['gemm_waves']:,.0f} wave{'' if row['gemm_waves'] == 1 else 's'}",
        f"{row['gemm_busy_frac']:.0%} of bundles busy",
    ]
    if row["gemm_split_k"] > 1:
        parts.append(f"k in {row['gemm_split_k']:,.0f} parts")
    return "; ".join(parts)
