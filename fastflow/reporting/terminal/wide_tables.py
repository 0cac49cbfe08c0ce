"""A table that is never cut: where it is wider than the screen, it goes on below, in blocks of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import measure_renderables
from rich.table import Column, Table
from rich.text import Text

_GAP = 2  # blanks between columns
_WRAPPED = 32  # characters that a text of several lines has in a block, where it has as many


class _Width(NamedTuple):
    """Characters of a column."""

    column: Column
    least: int  # so that no word is cut
    most: int  # so that every cell is one line

    @property
    def wished(self) -> int:
        """What it has among others where there is no room for all."""
        return max(self.least, min(self.most, _WRAPPED))


class Blocks(Table):
    """A table whose columns that have no room stand in further blocks, after its first column again."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the table, or its blocks one below the other."""
        widths = [_width(column, console, options) for column in self.columns]
        if _room([one.most for one in widths]) <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        for number, block in enumerate(_blocks(widths, options.max_width)):
            if number:
                yield Text()
            table = self._block(block, options.max_width, number == 0)
            yield from table.__rich_console__(console, options)

    def _block(self, block: Sequence[_Width], room: int, is_first: bool) -> Table:
        """Return some columns as a table that has room."""
        table = Table(
            title=self.title if is_first else None,
            title_justify=self.title_justify,
            title_style=self.title_style,
            box=self.box,
            show_edge=self.show_edge,
            pad_edge=self.pad_edge,
            padding=self.padding,
        )
        for (column, _, _), width in zip(block, _fitted(block, room), strict=True):
            table.add_column(
                column.header, justify=column.justify, no_wrap=column.no_wrap, overflow=column.overflow,
                width=width,
            )  # fmt: skip
        cells = zip(*(one.column.cells for one in block), strict=True)
        for row, of_row in zip(self.rows, cells, strict=True):
            table.add_row(*of_row, end_section=row.end_section)
        return table


def _room(widths: Sequence[int]) -> int:
    """Return how many characters columns of some widths take."""
    return sum(widths) + _GAP * (len(widths) - 1)


def _width(column: Column, console: Console, options: ConsoleOptions) -> _Width:
    measured = measure_renderables(console, options, [column.header, *column.cells])
    low, high = column.min_width or 0, column.max_width or options.max_width
    most = min(max(measured.maximum, low), high)
    return _Width(column, most if column.no_wrap else min(max(measured.minimum, low), high), most)


def _blocks(widths: Sequence[_Width], room: int) -> list[list[_Width]]:
    """Return the columns of each block: all where no word of theirs is cut, else as many as have room."""
    if _room([one.least for one in widths]) <= room:
        return [list(widths)]
    first, *rest = widths
    found: list[list[_Width]] = []
    for one in rest:
        if not found or _room([each.wished for each in (*found[-1], one)]) > room:
            found.append([first])
        found[-1].append(one)
    return found or [[first]]


def _fitted(block: Sequence[_Width], room: int) -> list[int]:
    """Return the widths of a block's columns: what is left over goes to those whose texts take several lines.

    A word that is wider than the screen alone is cut into lines, in the last column.
    """
    left = room - _room([one.least for one in block])
    wanted = sum(one.most - one.least for one in block)
    if left < 0:
        return [*(one.least for one in block[:-1]), max(block[-1].least + left, 1)]
    share = min(left / wanted, 1.0) if wanted else 0.0
    return [one.least + int(share * (one.most - one.least)) for one in block]
