"""Tables on the screen: quantities with units, in columns as wide as the terminal allows."""

from __future__ import annotations

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
from fastflow.reporting.terminal.wide_tables import Blocks
from fastflow.schema import find_input, find_result
from fastflow.schema.results import ASSUMPTIONS, BETWEEN, NO_EFFECT, TYPICAL

if TYPE_CHECKING:
    import pandas as pd

    from fastflow.engine.dataset.reader import Dataset

Part = Sheet | Text | str
"""What an answer is told by: tables and lines; a text alone may hold Rich's marks, such as [bold]."""


def tell(parts: Iterable[Part]) -> None:
    """Print the parts of an answer, one below the other."""
    out = console()
    for part in parts:
        out.print(part)


def console() -> Console:
    """Return a console on standard output, as wide as the terminal; piped text is 120 columns wide."""
    width = None if sys.stdout.isatty() else shutil.get_terminal_size((120, 24)).columns
    return Console(highlight=False, width=width)


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


CLASS = TYPICAL[-1].name
"""The column of the class of validation that a point is in."""
_MOST_CLASSES = 3
_MOST_ASSUMPTIONS = 6


def validation_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return how far such answers as some points were off, a line for each class of the first few."""
    classes = list(dict.fromkeys(str(row[CLASS]) for row in rows if row.get(CLASS)))
    more = len(classes) - _MOST_CLASSES
    lines = [f"Validation   {_in_words(one)}" for one in classes[:_MOST_CLASSES]]
    others = f"{more:,} other class{'' if more == 1 else 'es'}"
    return [*lines, f"             and {others} (column {CLASS})"] if more > 0 else lines


def _in_words(one: str) -> str:
    """Return a class as a newcomer reads it: what is unmeasured is the chip, and the rows are of others."""
    return one.replace(f"({UNMEASURED})", "(no measurements on this chip)")


def assumption_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return lines on what some points take that was not asked for, each once; older datasets say nothing."""
    name = ASSUMPTIONS.name
    texts = dict.fromkeys(str(row[name]) for row in rows if row.get(name))
    taken = list(dict.fromkeys(one for text in texts for one in text.split(BETWEEN)))
    more = len(taken) - _MOST_ASSUMPTIONS
    lines = [f"{'' if place else 'Assumed':13}{one}" for place, one in enumerate(taken[:_MOST_ASSUMPTIONS])]
    return [*lines, f"{'':13}and {more:,} more (column {name})"] if more > 0 else lines


def assumptions_of(dataset: Dataset) -> list[str]:
    """Return lines on what the points of a dataset take that was not asked for."""
    name = ASSUMPTIONS.name
    if name not in dataset.schema.names:
        return []
    return assumption_lines({name: text} for text in dataset.read([name])[name].unique())


def new_sheet(title: str, columns: Sequence[tuple[str, bool]]) -> Sheet:
    """Return an empty table; columns are names, and whether they hold numbers."""
    sheet = Blocks(
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


def stage_of(row: Mapping[str, Any]) -> str:
    """Return words that name the pipeline stage which sets the pace of a point; "" without a pipeline."""
    stage = row.get("bottleneck_stage")
    if stage is None or stage is np.ma.masked or stage != stage:
        return ""
    return f"stage {stage} of 0 to {parse(row['strategy']).lp - 1}"


def listing(title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Sheet:
    """Return a table of some columns of points, after their numbers."""
    numbers = {
        name: bool(rows) and not isinstance(rows[0].get(name), str | bool | np.bool_) for name in columns
    }
    short = {name: name if name.endswith("_per_s") else name.removesuffix("_s") for name in columns}
    sheet = new_sheet(title, [("point", True), *((short[name], numbers[name]) for name in columns)])
    for row in rows:
        sheet.add_row(quantity("point", row["point"]), *(quantity(name, row.get(name)) for name in columns))
    return sheet


def column_sheet(columns: Sequence[str], row: Mapping[str, Any]) -> Sheet:
    """Return a table of some columns of one point, each with what it is."""
    sheet = new_sheet("Columns", [("column", False), ("value", True), ("what it is", False)])
    for name in columns:
        about = find_result(name) or find_input(name)
        sheet.add_row(name, quantity(name, row.get(name)), Text(about.meaning if about else ""))
    return sheet


def no_effect(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line on each of the user's keys that changes nothing of a point."""
    for key, same in without_effect(row[NO_EFFECT.name]):
        yield f"No effect    {key}: every result is {same}"


def without_effect(text: str | None) -> Iterator[tuple[str, str]]:
    """Yield the user's keys that change nothing of a point, and as with what its results are.

    text: what its result column has of them.
    """
    for said in filter(None, (text or "").split(BETWEEN)):
        key, _, same = said.partition(": ")
        yield key, same
