"""Tables wider than the screen: further columns follow below, in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import measure_renderables
from rich.table import Column, Table
from rich.text import Text

_GAP = 2  # blanks between columns
_WRAP_WIDTH = 32  # most characters of a wrapped text in a block


class _Width(NamedTuple):
    """Characters of a column."""

    column: Column
    min_width: int  # no word breaks
    max_width: int  # every cell is one line

    @property
    def preferred(self) -> int:
        """Width in a block, where not all columns fit."""
        return max(self.min_width, min(self.max_width, _WRAP_WIDTH))


class WideTable(Table):
    """A table with further blocks for columns that do not fit; each block repeats the first column."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the table, or its blocks one below the other."""
        widths = [_width(column, console, options) for column in self.columns]
        if _total_width([width.max_width for width in widths]) <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        for number, block in enumerate(_blocks(widths, options.max_width)):
            if number:
                yield Text()
            table = self._block(block, options.max_width, number == 0)
            yield from table.__rich_console__(console, options)

    def _block(self, block: Sequence[_Width], room: int, is_first: bool) -> Table:
        """Return some columns as a table of at most `room` characters."""
        table = Table(
            title=self.title if is_first else None,
            title_justify=self.title_justify,
            title_style=self.title_style,
            box=self.box,
            show_edge=self.show_edge,
            pad_edge=self.pad_edge,
            padding=self.padding,
        )
        for (column, _, _), width in zip(block, _fit_widths(block, room), strict=True):
            table.add_column(
                column.header, justify=column.justify, no_wrap=column.no_wrap, overflow=column.overflow,
                width=width,
            )  # fmt: skip
        cells = zip(*(width.column.cells for width in block), strict=True)
        for row, of_row in zip(self.rows, cells, strict=True):
            table.add_row(*of_row, end_section=row.end_section)
        return table


def _total_width(widths: Sequence[int]) -> int:
    """Return how many characters columns of some widths take."""
    return sum(widths) + _GAP * (len(widths) - 1)


def _width(column: Column, console: Console, options: ConsoleOptions) -> _Width:
    measured = measure_renderables(console, options, [column.header, *column.cells])
    low, high = column.min_width or 0, column.max_width or options.max_width
    max_width = min(max(measured.maximum, low), high)
    return _Width(column, max_width if column.no_wrap else min(max(measured.minimum, low), high), max_width)


def _blocks(widths: Sequence[_Width], room: int) -> list[list[_Width]]:
    """Return the columns of each block: all if no word breaks, else as many as fit."""
    if _total_width([width.min_width for width in widths]) <= room:
        return [list(widths)]
    first, *rest = widths
    blocks: list[list[_Width]] = []
    for width in rest:
        if not blocks or _total_width([member.preferred for member in (*blocks[-1], width)]) > room:
            blocks.append([first])
        blocks[-1].append(width)
    return blocks or [[first]]


def _fit_widths(block: Sequence[_Width], room: int) -> list[int]:
    """Return the widths of a block's columns; spare characters go to columns with wrapped texts.

    A word wider than the screen breaks into lines, in the last column.
    """
    left = room - _total_width([width.min_width for width in block])
    wanted = sum(width.max_width - width.min_width for width in block)
    if left < 0:
        return [*(width.min_width for width in block[:-1]), max(block[-1].min_width + left, 1)]
    share = min(left / wanted, 1.0) if wanted else 0.0
    return [width.min_width + int(share * (width.max_width - width.min_width)) for width in block]
