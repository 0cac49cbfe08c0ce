"""The library on the screen: its groups, the choices of a group, and cards of figures with sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table as Sheet
from rich.text import Text

from fastflow.reporting.terminal.tables import console, new_sheet, quantity, records
from fastflow.schema import find_input

if TYPE_CHECKING:
    import pandas as pd

    from fastflow.config.cards import Figure

_CHIP_COLUMNS = {"compute_flops": "fp16", "dram_capacity_B": "capacity", "dram_Bps": "rate", "l2_B": "L2"}
"""Result columns of the table of chips, and their titles."""
_CHIP_LABELS = {
    "dram_capacity_B": "Memory", "dram_Bps": "at", "l2_B": "L2", "intra_Bps": "links in a package",
    "inter_Bps": "links",
}  # fmt: skip
_DITTO = "〃"
_GAP = 2  # between columns of a table
_MIN_WIDTH = 10  # characters of a column
_MAX_VALUE_WIDTH = 20
_MAX_KEY_WIDTH = 32  # characters of a key in a narrow window, before it goes on in the next line


def show_groups(rows: Iterable[tuple[str, int, str, str]]) -> None:
    """Print a line for each group: the number of its choices, the default, and examples."""
    lines = [(group, str(count), default, examples) for group, count, default, examples in rows]
    sheet, out = new_sheet("Groups: choose with GROUP=NAME", []), console()
    width_left = out.width
    for i, title in enumerate(("group", "choices", "usual")):
        width = max(len(title), *(len(line[i]) for line in lines))
        sheet.add_column(title, justify="right" if title == "choices" else "left", min_width=width)
        width_left -= width + _GAP
    sheet.add_column(
        "such as", overflow="ellipsis", no_wrap=True, max_width=max(width_left - _GAP, _MIN_WIDTH)
    )
    for line in lines:
        sheet.add_row(*line)
    out.print(sheet)
    out.print("\nfastflow list GROUP says what each choice is, fastflow show GROUP=NAME has its figures.")


def show_choices(group: str, default: str, rows: Iterable[tuple[str, str]]) -> None:
    """Print a line for each choice of a group: its name, and the description in its file."""
    sheet = new_sheet(f"{group}: choose with {group}=NAME, usually {default}" if default else group, [])
    sheet.add_column(group, no_wrap=True)
    sheet.add_column("what it is")
    for name, words in rows:
        sheet.add_row(name, Text(words))
    console().print(sheet)


def show_chips(frame: pd.DataFrame, notes: Mapping[str, Sequence[str]], default: str) -> None:
    """Print a line for each chip, with its main quantities.

    frame: a row for each; notes: by title, a text for each chip.
    """
    sheet = new_sheet(f"chip: choose with chip=NAME, usually {default}", [])
    sheet.add_column("chip", no_wrap=True, min_width=max(map(len, frame["chip"])))
    for title in notes:
        sheet.add_column(title, overflow="fold")
    for title in _CHIP_COLUMNS.values():
        sheet.add_column(title, justify="right", overflow="fold")
    for i, row in enumerate(records(frame)):
        texts = [texts[i] for texts in notes.values()]
        sheet.add_row(str(row["chip"]), *texts, *(quantity(name, row[name]) for name in _CHIP_COLUMNS))
    console().print(sheet)


def show_card(title: str, words: Sequence[str], figures: Sequence[Figure]) -> None:
    """Print the figures of a choice, with meanings and sources; words: lines that describe the choice."""
    out = console()
    out.print(f"\n[bold]{title}[/]")
    for line in words:
        out.print(Text(line))
    uncertain = any(figure.uncertainty for figure in figures)
    sheet = Sheet(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=True, header_style="bold")
    longest = max((len(figure.key) for figure in figures), default=0)
    sheet.add_column("key", overflow="fold", min_width=min(longest, _MAX_KEY_WIDTH))
    sheet.add_column("value", overflow="fold", max_width=_MAX_VALUE_WIDTH)
    for name in (*(["uncertainty"] if uncertain else []), "meaning", "source"):
        sheet.add_column(name, overflow="fold")
    previous_source = ""
    for figure in figures:
        source = _DITTO if figure.source and figure.source == previous_source else figure.source
        uncertainty = [figure.uncertainty] if uncertain else []
        column = find_input(figure.key)
        meaning = column.meaning if column else ""
        sheet.add_row(figure.key, Text(figure.value), *uncertainty, Text(meaning), Text(source))
        previous_source = figure.source
    out.print()
    out.print(sheet)


def chip_lines(frame: pd.DataFrame) -> list[str]:
    """Return the quantities of a chip in lines; frame: a row for each data type, the default first."""
    rows = [row for row in records(frame) if row["compute_flops"] == row["compute_flops"]]
    amounts = [
        f"{label} {quantity(name, rows[0][name])}"
        for name, label in _CHIP_LABELS.items()
        if rows[0][name] > 0.0
    ]
    rates = [f"{row['model.dtype']} {quantity('compute_flops', row['compute_flops'])}" for row in rows]
    return [f"{', '.join(amounts)}.", f"{', '.join(rates)}."]
