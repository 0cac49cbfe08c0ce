"""Points of a grid in a notebook: a single point as a card, several as a table, and their figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import pandas as pd
from pandas.plotting import PlotAccessor

from fastflow.api.notebook.schema import draw, has_all_columns

_MAX_SHOWN = 20  # rows and columns of chances


class _AnyFrame(type):
    """Every DataFrame counts as an instance: `assert_frame_equal` compares types."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, pd.DataFrame)


class _Frame(pd.DataFrame, metaclass=_AnyFrame):
    """A DataFrame with its own display in a notebook."""

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Self:
        """Return a frame as this class, with its values and attrs."""
        typed = cls(frame)
        typed.attrs = frame.attrs
        return typed

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return type(self)


class Points(_Frame):
    """A DataFrame of points, as `fastflow.evaluate` returns them; a notebook shows a summary.

    It is an ordinary DataFrame otherwise. Without all result columns a notebook shows an ordinary table.
    """

    @property
    def plot(self) -> Any:
        """Draw the figure of the points: `plot()`; with arguments, and as `plot.scatter`, pandas' plot."""
        return _PointsPlot(self)

    def _repr_html_(self) -> str | None:
        """Return a card of one point, or the best of several; pandas' table of other frames."""
        if not has_all_columns(self) or not pd.get_option("display.notebook_repr_html"):
            return _pandas_html(self)
        from fastflow.api.notebook.cards import grid_card, point_card

        return point_card(self) if len(self) == 1 else grid_card(self)


class Chances(_Frame):
    """A DataFrame of chances, as `fastflow.probability_better` returns them; notebooks show percent."""

    def _repr_html_(self) -> str | None:
        """Return the chances in percent, under the name of the objective; pandas' table of other frames."""
        is_square = "objective" in self.attrs and self.index.equals(self.columns)
        if not is_square or not pd.get_option("display.notebook_repr_html"):
            return _pandas_html(self)
        from fastflow.api.notebook.markup import card

        shown = pd.DataFrame(self).map(lambda share: "" if share != share else f"{share:.0%}")
        line = f"Chance that the row is better than the column, in {self.attrs['objective']}"
        return card(line, []) + str(shown.to_html(max_rows=_MAX_SHOWN, max_cols=_MAX_SHOWN, border=0))


class _PointsPlot(PlotAccessor):
    """pandas' plots of a frame; without arguments, the figure of its points."""

    def __init__(self, frame: pd.DataFrame) -> None:
        """Take the frame."""
        super().__init__(frame)
        self._frame = frame

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the figure of the points, a matplotlib Figure; with arguments pandas' plot."""
        if args or kwargs or not has_all_columns(self._frame):
            return super().__call__(*args, **kwargs)
        return draw(self._frame)


def _pandas_html(frame: pd.DataFrame) -> str | None:
    """Return pandas' HTML table of a frame."""
    return pd.DataFrame(frame)._repr_html_()  # type: ignore[operator,no-any-return]
