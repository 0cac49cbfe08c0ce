"""A table that is never cut: where it is wider than the screen, it goes on below, in blocks of columns."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import measure_renderables
from rich.table import Column, Table
from rich.text import Text

_GAP = 2  # blanks between columns
_WRAPPED = 32  # characters that a text of several lines has in a block, where it has as many


class Blocks(Table):
    """A table whose columns that have no room stand in further blocks, after its first column again."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the table, or its blocks one below the other."""
        for number, columns in enumerate(self._parts(console, options)):
            if columns is self.columns:
                yield from super().__rich_console__(console, options)
                return
            if number:
                yield Text()
            yield from self._block(columns, number == 0).__rich_console__(console, options)

    def _parts(self, console: Console, options: ConsoleOptions) -> list[list[Column]]:
        """Return the columns of each block: as many as have room, the first column before them."""
        widths = [_widths(column, console, options) for column in self.columns]
        if sum(least + _GAP for least, _ in widths) - _GAP <= options.max_width:
            return [self.columns]
        first, *rest = self.columns
        whole = options.max_width - widths[0][0]
        parts: list[list[Column]] = []
        left = 0
        for column, (_, wished) in zip(rest, widths[1:], strict=True):
            if not parts or wished + _GAP > left:
                parts.append([first])
                left = whole
            parts[-1].append(column)
            left -= wished + _GAP
        return parts or [self.columns]

    def _block(self, columns: list[Column], is_first: bool) -> Table:
        """Return some columns as a table."""
        table = Table(
            title=self.title if is_first else None,
            title_justify=self.title_justify,
            title_style=self.title_style,
            box=self.box,
            show_edge=self.show_edge,
            pad_edge=self.pad_edge,
            padding=self.padding,
        )
        for column in columns:
            table.add_column(
                column.header, justify=column.justify, no_wrap=column.no_wrap, overflow=column.overflow
            )
        cells = zip(*(column.cells for column in columns), strict=True)
        for row, of_row in zip(self.rows, cells, strict=True):
            table.add_row(*of_row, end_section=row.end_section)
        return table


def _widths(column: Column, console: Console, options: ConsoleOptions) -> tuple[int, int]:
    """Return how many characters a column needs so that no word is cut, and how many it has in a block."""
    measured = measure_renderables(console, options, [column.header, *column.cells])
    least = max(measured.maximum if column.no_wrap else measured.minimum, column.min_width or 0)
    return least, max(least, min(measured.maximum, _WRAPPED))
