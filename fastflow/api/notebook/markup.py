"""Answers as HTML: the tables and lines of the screen, with no script and nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from rich.console import Console
from rich.errors import MarkupError
from rich.table import Table as Sheet
from rich.text import Text

from fastflow.reporting.terminal.tables import Part

_LINE = "1px solid rgba(128,128,128,0.4)"
"""Of a colour that shows on light and on dark."""
_WHOLE = 40  # letters of a text that no line break may part, such as a strategy
_CELL = "padding:1px 12px 1px 0"
_RED = "#d0453e"
_LABELLED = re.compile(r"(\S.*?)? {2,}(.+)")
"""A line of the screen that begins with a label: `Memory       8 GB of 16 GB`."""


def card(headline: str, parts: Iterable[Part], more: Iterable[tuple[str, Iterable[Part]]] = ()) -> str:
    """Return an answer as HTML: a headline, its parts, and what opens on a click.

    headline, and lines among the parts: with Rich's marks, such as [bold]. more: titles, each with its parts.
    """
    folded = (
        f'<details style="margin-top:6px"><summary style="cursor:pointer">{html_of(title)}</summary>'
        f"{body(inner)}</details>"
        for title, inner in more
    )
    return (
        f'<div style="line-height:1.35"><div style="font-size:1.15em;margin:2px 0 6px">{html_of(headline)}'
        f"</div>{body(parts)}{''.join(folded)}</div>"
    )


def body(parts: Iterable[Part]) -> str:
    """Return tables, and lines between them, as HTML; lines with labels as rows of one table."""
    found, labelled = [], []
    for part in [*parts, ""]:
        match = _LABELLED.fullmatch(part) if isinstance(part, str) else None
        if match:
            labelled.append(f"<tr>{_cell(match[1] or '', False)}{_cell(match[2], False)}</tr>")
            continue
        if labelled:
            found.append(_table("", "".join(labelled)))
            labelled = []
        if isinstance(part, Sheet):
            found.append(_sheet(part))
        elif part:
            found.append(f"<div>{html_of(part)}</div>")
    return "".join(found)


def html_of(text: str | Text) -> str:
    """Return a text as HTML: bold, italic and red as such, all else as letters; a str may hold marks."""
    try:
        whole = Text.from_markup(text, emoji=False) if isinstance(text, str) else text
    except MarkupError:  # the name of a file, such as [/a]
        whole = Text(str(text))
    found = []
    for letters, style, _ in whole.render(Console(), end=""):
        one = escape(letters)
        if style is not None and style.italic:
            one = f"<i>{one}</i>"
        if style is not None and style.bold:
            one = f"<b>{one}</b>"
        if style is not None and style.color is not None and style.color.name == "red":
            one = f'<span style="color:{_RED}">{one}</span>'
        found.append(one)
    return "".join(found)


def _sheet(sheet: Sheet) -> str:
    """Return a table of the screen as HTML."""
    right = [column.justify == "right" for column in sheet.columns]
    cells = [
        [cell if isinstance(cell, str | Text) else str(cell) for cell in one.cells] for one in sheet.columns
    ]
    heads = [column.header if isinstance(column.header, str | Text) else "" for column in sheet.columns]
    rows = []
    if any(map(str, heads)):
        names = "".join(_cell(head, is_right, "th") for head, is_right in zip(heads, right, strict=True))
        rows.append(f'<tr style="border-bottom:{_LINE}">{names}</tr>')
    for place, row in enumerate(sheet.rows):
        line = "".join(_cell(column[place], side) for column, side in zip(cells, right, strict=True))
        ends = row.end_section and place + 1 < sheet.row_count
        rows.append(f'<tr style="border-bottom:{_LINE}">{line}</tr>' if ends else f"<tr>{line}</tr>")
    title = sheet.title.strip() if isinstance(sheet.title, str) else ""
    return _table(title, "".join(rows))


def _table(title: str, rows: str) -> str:
    """Return a table as HTML; rows: its HTML."""
    above = f'<div style="margin-top:8px"><b>{html_of(title)}</b></div>' if title else ""
    table = f'<table style="border-collapse:collapse;margin:2px 0 4px">{rows}</table>'
    return f'{above}<div style="overflow-x:auto">{table}</div>'


def _cell(text: str | Text, right: bool, tag: str = "td") -> str:
    whole = ";white-space:nowrap" if right or len(str(text)) <= _WHOLE else ""
    aligned = f"text-align:{'right' if right else 'left'}{whole}"
    return f'<{tag} style="{aligned};{_CELL}">{html_of(text)}</{tag}>'
