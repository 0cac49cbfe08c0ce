"""What the library has, on the screen: its groups, the choices of one, and cards of figures with sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table as Sheet
from rich.text import Text

from fastflow.reporting.terminal.tables import console, new_sheet, quantity, records

if TYPE_CHECKING:
    import pandas as pd

    from fastflow.config.cards import Figure

_FOUND = {"compute_flops": "fp16", "dram_capacity_B": "capacity", "dram_Bps": "rate", "l2_B": "L2"}
"""Result columns of the table of chips, and their titles."""
_MADE = {
    "dram_capacity_B": "Memory", "dram_Bps": "at", "l2_B": "L2", "intra_Bps": "links in a package",
    "inter_Bps": "links",
}  # fmt: skip
_SAME = "〃"
_GAP = 2  # between columns of a table
_LEAST = 10  # characters of a column


def show_groups(rows: Iterable[tuple[str, int, str, str]]) -> None:
    """Print a line for each group: its choices, how many, the usual one, and some of them."""
    lines = [(group, str(count), usual, some) for group, count, usual, some in rows]
    sheet, out = new_sheet("Groups: choose with GROUP=NAME", []), console()
    room = out.width
    for i, title in enumerate(("group", "choices", "usual")):
        width = max(len(title), *(len(line[i]) for line in lines))
        sheet.add_column(title, justify="right" if title == "choices" else "left", min_width=width)
        room -= width + _GAP
    sheet.add_column("such as", overflow="ellipsis", no_wrap=True, max_width=max(room - _GAP, _LEAST))
    for line in lines:
        sheet.add_row(*line)
    out.print(sheet)
    out.print("\nfastflow list GROUP says what each choice is, fastflow show GROUP=NAME has its figures.")


def show_choices(group: str, usual: str, rows: Iterable[tuple[str, str]]) -> None:
    """Print a line for each choice of a group: its name, and what its file says of itself."""
    sheet = new_sheet(f"{group}: choose with {group}=NAME, usually {usual}" if usual else group, [])
    sheet.add_column(group, no_wrap=True)
    sheet.add_column("what it is")
    for name, words in rows:
        sheet.add_row(name, Text(words))
    console().print(sheet)


def show_chips(frame: pd.DataFrame, said: Mapping[str, Sequence[str]], usual: str) -> None:
    """Print a line for each chip, with what it has.

    frame: a row for each; said: titles, and for each chip what its files say under them.
    """
    sheet = new_sheet(f"chip: choose with chip=NAME, usually {usual}", [])
    sheet.add_column("chip", no_wrap=True, min_width=max(map(len, frame["chip"])))
    for title in said:
        sheet.add_column(title, overflow="fold")
    for title in _FOUND.values():
        sheet.add_column(title, justify="right", overflow="fold")
    for i, row in enumerate(records(frame)):
        texts = [texts[i] for texts in said.values()]
        sheet.add_row(str(row["chip"]), *texts, *(quantity(name, row[name]) for name in _FOUND))
    console().print(sheet)


def show_card(title: str, words: Sequence[str], figures: Sequence[Figure]) -> None:
    """Print the figures of a choice, each with its source; words: lines on what it is."""
    out = console()
    out.print(f"\n[bold]{title}[/]")
    for line in words:
        out.print(Text(line))
    uncertain = any(figure.spread for figure in figures)
    sheet = Sheet(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=True, header_style="bold")
    for name in ("key", "value", *(["uncertainty"] if uncertain else []), "source"):
        sheet.add_column(name, overflow="fold")
    before = ""
    for figure in figures:
        source = _SAME if figure.source and figure.source == before else figure.source
        spread = [figure.spread] if uncertain else []
        sheet.add_row(figure.key, Text(figure.value), *spread, Text(source))
        before = figure.source
    out.print()
    out.print(sheet)


def made_of(frame: pd.DataFrame) -> list[str]:
    """Return what a chip comes to, in lines; frame: a row for each data type, the first one the usual."""
    rows = [row for row in records(frame) if row["compute_flops"] == row["compute_flops"]]
    has = [f"{what} {quantity(name, rows[0][name])}" for name, what in _MADE.items() if rows[0][name] > 0.0]
    each = [f"{row['model.dtype']} {quantity('compute_flops', row['compute_flops'])}" for row in rows]
    return [f"{', '.join(has)}.", f"{', '.join(each)}."]
