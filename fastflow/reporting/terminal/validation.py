"""Output of a validation: errors by group, and the worst rows explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from fastflow.analysis.measurements.read import has_errors_by_part, naming_columns
from fastflow.analysis.validation.error_metrics import ALL
from fastflow.config.messages import pluralize
from fastflow.core import units
from fastflow.reporting.terminal.tables import console, new_sheet, records
from fastflow.reporting.terminal.training import time_parts
from fastflow.schema.results import ROOFLINE

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table as Sheet

    from fastflow.engine.dataset.reader import Dataset

_MAX_WORST = 8
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
    out.print(error_sheet(errors))
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
    naming = naming_columns(dataset.about("measured"), file_columns_of(dataset))
    out.print(f"\n[bold]Worst rows[/]: {explanation_title(rows)}")
    for head, *more in worst_rows(rows, naming):
        for text, indent in ((head, "  "), *((text, "    ") for text in more)):
            for line in wrap(text, out.width, initial_indent=indent, subsequent_indent="    "):
                out.print(line, markup=False)
    out.print()
    by = "part" if has_errors_by_part(dataset.about("measured")) else ALL
    for row in records(errors[errors["by"] == by]):
        print(f"{'' if by == ALL else row['value'] + ' '}mean relative error {row['mean_error']:.1%}")


def _device_note(rows: pd.DataFrame) -> str:
    """Return a note on the devices that the file names, if they are few."""
    names = list(map(str, rows["device"].unique())) if "device" in rows else []
    return f"; measured on {', '.join(names)}" if 0 < len(names) <= 3 else ""


def explanation_title(rows: pd.DataFrame) -> str:
    """Return the title of the explanation of the worst rows."""
    detailed = "time of each resource alone, and how the GEMM was tiled (m x k x n)"
    return "where the time goes" if "attention_s" in rows else detailed


def worst_rows(rows: pd.DataFrame, naming: Sequence[str], limit: int = _MAX_WORST) -> Iterator[list[str]]:
    """Yield the lines on each of the rows with the largest errors; naming: columns that name a row."""
    for row in records(rows.sort_values("error", ascending=False, kind="stable").head(limit)):
        if row["predicted_s"] == row["predicted_s"]:
            yield list(_explanation_lines(row, naming))


def error_sheet(errors: pd.DataFrame) -> Sheet:
    """Return the errors as a table, a section for each grouping."""
    columns = [("", False), ("rows", True), *((head, True) for head in _HEADS)]
    sheet = new_sheet("Error, relative; bias: predicted / measured", columns)
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
    time, measured = (units.show(float(row[name]), "s") for name in ("predicted_s", "measured_s"))
    yield (
        f"line {row['line']}: {_row_name(row, naming)}: measured {measured}, predicted {time} "
        f"({row['ratio']:.2f}x), bound by {row['bound_by']}"
    )
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
