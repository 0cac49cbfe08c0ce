"""Tables on the screen: quantities with units, in columns as wide as the terminal allows."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Sheet
from rich.text import Text

from fastflow.core import units
from fastflow.performance.accuracy.table import UNMEASURED
from fastflow.physics.parallelism.strategy import parse
from fastflow.reporting.terminal.wide_tables import WideTable
from fastflow.schema import find_input, find_result
from fastflow.schema.results import ASSUMPTIONS, BETWEEN, NO_EFFECT, TYPICAL

if TYPE_CHECKING:
    import pandas as pd

    from fastflow.engine.dataset.reader import Dataset

LABEL = 13
"""Columns of a label of a line, such as "Validation"."""
_LABEL = re.compile(r"(?:[A-Z][a-z]+(?: [a-z]+)? {2,}|Not feasible | +)(?=\S)", re.ASCII)
Part = Sheet | Text | str
"""A part of an answer: a table or a line; a str may hold Rich's markup, such as [bold]."""


def print_parts(parts: Iterable[Part]) -> None:
    """Print the parts of an answer, one below the other."""
    out = console()
    for part in parts:
        out.print(_indented(part, out) if isinstance(part, str) else part)


def _indented(line: str, out: Console) -> Part:
    """Return a line with a label, whose further lines on a narrow screen begin where its text does."""
    text = Text.from_markup(line)
    label = _LABEL.match(text.plain)
    if label is None or label.end() != LABEL or len(text) <= out.width or out.width < 3 * LABEL:
        return line
    lines = text[LABEL:].wrap(out, out.width - LABEL)
    for wrapped in lines:
        wrapped.rstrip()
    return text[:LABEL] + Text("\n" + " " * LABEL).join(lines)


def console() -> Console:
    """Return a console on standard output, as wide as the terminal; piped text is 120 columns wide."""
    width = None if sys.stdout.isatty() else shutil.get_terminal_size((120, 24)).columns
    return Console(highlight=False, width=width)


def has_value(row: Mapping[str, Any], name: str) -> bool:
    """Return whether a point has a value in a column."""
    value = row.get(name)
    return value is not None and value is not np.ma.masked and value == value


def quantity(name: str, value: Any) -> str:
    """Write the value of a column with its unit."""
    if value is None or value is np.ma.masked or value != value:
        return "-"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    column = find_result(name) or find_input(name)
    if isinstance(value, float | np.floating):
        return units.show(float(value), column.unit if column is not None else "")
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    return str(value)


VALIDATION_CLASS = TYPICAL[-1].name
"""The column with the validation class of a point."""
_MAX_CLASSES = 3
_MAX_ASSUMPTIONS = 6


def validation_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return lines on the accuracy of the validation classes of some points, the first few classes."""
    classes = list(dict.fromkeys(str(row[VALIDATION_CLASS]) for row in rows if row.get(VALIDATION_CLASS)))
    num_others = len(classes) - _MAX_CLASSES
    lines = [f"Validation   {_class_text(name)}" for name in classes[:_MAX_CLASSES]]
    others = f"{num_others:,} other class{'' if num_others == 1 else 'es'}"
    return [*lines, f"             and {others} (column {VALIDATION_CLASS})"] if num_others > 0 else lines


def _class_text(name: str) -> str:
    """Return the text of a class; an unmeasured class has no measurements on this chip."""
    return name.replace(f"({UNMEASURED})", "(no measurements on this chip)")


def assumption_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return lines on the assumptions of some points, each once; older datasets have none."""
    name = ASSUMPTIONS.name
    texts = dict.fromkeys(str(row[name]) for row in rows if row.get(name))
    assumptions = list(dict.fromkeys(assumption for text in texts for assumption in text.split(BETWEEN)))
    num_others = len(assumptions) - _MAX_ASSUMPTIONS
    lines = [
        f"{'' if index else 'Assumed':13}{assumption}"
        for index, assumption in enumerate(assumptions[:_MAX_ASSUMPTIONS])
    ]
    return [*lines, f"{'':13}and {num_others:,} more (column {name})"] if num_others > 0 else lines


def assumptions_of(dataset: Dataset) -> list[str]:
    """Return lines on the assumptions of the points of a dataset."""
    name = ASSUMPTIONS.name
    if name not in dataset.schema.names:
        return []
    return assumption_lines({name: text} for text in dataset.read([name])[name].unique())


def point_title(row: Mapping[str, Any]) -> str:
    """Return the model, the hardware and the strategy of a point."""
    hardware = f"{row['devices']:,} x {row['chip']} ({row['tech']}, {row['mem']}, {row['net']})"
    return f"[bold]{row['model']}[/] on {hardware}, strategy {row['strategy']}"


def new_sheet(title: str, columns: Sequence[tuple[str, bool]]) -> Sheet:
    """Return an empty table; columns: names, and whether they hold numbers."""
    sheet = WideTable(
        title=f"\n{title}",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for name, is_number in columns:
        sheet.add_column(name, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    return sheet


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame."""
    return [dict(zip(frame.columns, row, strict=True)) for row in frame.itertuples(index=False, name=None)]


def bottleneck_stage_text(row: Mapping[str, Any]) -> str:
    """Return the name of the pipeline stage that limits a point; "" without a pipeline."""
    stage = row.get("bottleneck_stage")
    if stage is None or stage is np.ma.masked or stage != stage:
        return ""
    return f"stage {stage} of 0 to {parse(row['strategy']).pp - 1}"


_SHORT = {"kv_cache_capacity_B": "kv_cache"}
"""Headings of columns whose names would split a table of 110 characters."""


def listing(title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Sheet:
    """Return a table of some columns of points, after their numbers."""
    numbers = {
        name: bool(rows) and not isinstance(rows[0].get(name), str | bool | np.bool_) for name in columns
    }
    short = {name: name if name.endswith("_per_s") else name.removesuffix("_s") for name in columns}
    short |= {name: _SHORT[name] for name in columns if name in _SHORT}
    sheet = new_sheet(title, [("point", True), *((short[name], numbers[name]) for name in columns)])
    for row in rows:
        sheet.add_row(quantity("point", row["point"]), *(quantity(name, row.get(name)) for name in columns))
    return sheet


def column_sheet(columns: Sequence[str], row: Mapping[str, Any]) -> Sheet:
    """Return a table of some columns of one point, each with its meaning."""
    sheet = new_sheet("Columns", [("column", False), ("value", True), ("what it is", False)])
    for name in columns:
        column = find_result(name) or find_input(name)
        sheet.add_row(name, quantity(name, row.get(name)), Text(column.meaning if column else ""))
    return sheet


def no_effect_lines(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line on each key of the user that does not change a point."""
    for key, equality in ineffective_keys(row[NO_EFFECT.name]):
        yield f"No effect    {key}: every result is {equality}"


def ineffective_keys(text: str | None) -> Iterator[tuple[str, str]]:
    """Yield the keys of the user that do not change a point, each with the value that gives equal results.

    text: of the point's result column `no_effect`.
    """
    for note in filter(None, (text or "").split(BETWEEN)):
        key, _, equality = note.partition(": ")
        yield key, equality
