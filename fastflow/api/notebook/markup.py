"""Answers as HTML: the tables and lines of the screen, without scripts or external resources."""

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
"""In a colour that is visible on light and dark backgrounds."""
_NO_BREAK_LENGTH = 40  # characters of a text without a line break, such as a strategy
_CELL = "padding:1px 12px 1px 0"
_RED = "#d0453e"
_LABELLED = re.compile(r"(\S.*?)? {2,}(.+)")
"""A line of the screen that begins with a label: `Memory       8 GB of 16 GB`."""


def card(headline: str, parts: Iterable[Part], more: Iterable[tuple[str, Iterable[Part]]] = ()) -> str:
    """Return an answer as HTML: a headline, its parts, and folded sections.

    headline, and lines among the parts: with Rich's markup, such as [bold]. more: titles with their parts.
    """
    folded = (
        f'<details style="margin-top:6px"><summary style="cursor:pointer">{to_html(title)}</summary>'
        f"{body(inner)}</details>"
        for title, inner in more
    )
    return (
        f'<div style="line-height:1.35"><div style="font-size:1.15em;margin:2px 0 6px">{to_html(headline)}'
        f"</div>{body(parts)}{''.join(folded)}</div>"
    )


def body(parts: Iterable[Part]) -> str:
    """Return tables, and lines between them, as HTML; lines with labels as rows of a table."""
    blocks, labelled_rows = [], []
    for part in [*parts, ""]:
        match = _LABELLED.fullmatch(part) if isinstance(part, str) else None
        if match:
            labelled_rows.append(f"<tr>{_cell(match[1] or '', False)}{_cell(match[2], False)}</tr>")
            continue
        if labelled_rows:
            blocks.append(_table("", "".join(labelled_rows)))
            labelled_rows = []
        if isinstance(part, Sheet):
            blocks.append(_sheet(part))
        elif part:
            blocks.append(f"<div>{to_html(part)}</div>")
    return "".join(blocks)


def to_html(text: str | Text) -> str:
    """Return a text as HTML with bold, italic and red; a str may hold Rich's markup."""
    try:
        whole = Text.from_markup(text, emoji=False) if isinstance(text, str) else text
    except MarkupError:  # the name of a file, such as [/a]
        whole = Text(str(text))
    spans = []
    for letters, style, _ in whole.render(Console(), end=""):
        html = escape(letters)
        if style is not None and style.italic:
            html = f"<i>{html}</i>"
        if style is not None and style.bold:
            html = f"<b>{html}</b>"
        if style is not None and style.color is not None and style.color.name == "red":
            html = f'<span style="color:{_RED}">{html}</span>'
        spans.append(html)
    return "".join(spans)


def _sheet(sheet: Sheet) -> str:
    """Return a table of the screen as HTML."""
    right = [column.justify == "right" for column in sheet.columns]
    cells = [
        [cell if isinstance(cell, str | Text) else str(cell) for cell in column.cells]
        for column in sheet.columns
    ]
    heads = [column.header if isinstance(column.header, str | Text) else "" for column in sheet.columns]
    rows = []
    if any(map(str, heads)):
        names = "".join(_cell(head, is_right, "th") for head, is_right in zip(heads, right, strict=True))
        rows.append(f'<tr style="border-bottom:{_LINE}">{names}</tr>')
    for index, row in enumerate(sheet.rows):
        line = "".join(_cell(column[index], side) for column, side in zip(cells, right, strict=True))
        style = f' style="border-bottom:{_LINE}"' if row.end_section else ""
        rows.append(f"<tr{style}>{line}</tr>")
    title = sheet.title.strip() if isinstance(sheet.title, str) else ""
    return _table(title, "".join(rows))


def _table(title: str, rows: str) -> str:
    """Return a table as HTML; rows: its HTML."""
    above = f'<div style="margin-top:8px"><b>{to_html(title)}</b></div>' if title else ""
    table = f'<table style="border-collapse:collapse;margin:2px 0 4px">{rows}</table>'
    return f'{above}<div style="overflow-x:auto">{table}</div>'


def _cell(text: str | Text, right: bool, tag: str = "td") -> str:
    whole = ";white-space:nowrap" if right or len(str(text)) <= _NO_BREAK_LENGTH else ""
    aligned = f"text-align:{'right' if right else 'left'}{whole}"
    return f'<{tag} style="{aligned};{_CELL}">{to_html(text)}</{tag}>'
