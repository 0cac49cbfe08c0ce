"""Points of a grid in a notebook: a single point as a card, several as a table, and their figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import pandas as pd
from pandas.plotting import PlotAccessor

from fastflow.api.notebook.schema import draw, has_all_columns
from fastflow.engine.dataset.renamed import current_column
from fastflow.schema.renamed import new_column

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

    A row per point: the columns of `fastflow.schema.RESULTS` in SI units, and a column per swept key;
    `attrs["units"]` names the units. `plot()` draws the figure of the points. It is an ordinary DataFrame
    otherwise: without all result columns a notebook shows an ordinary table, and a column that is not there
    raises KeyError. An old name of a column gives the column of today, with a line that says so.

    >>> df = fastflow.evaluate(tech=["n7", "n5"], mem="hbm3")
    >>> isinstance(df, fastflow.Points), df.shape[0], df.attrs["units"]["energy_J"]
    (True, 2, 'J')
    """

    def __getitem__(self, key: Any) -> Any:
        """Return what pandas does; columns that are missing are looked for by their names of before 0.2.0."""
        try:
            return super().__getitem__(key)
        except KeyError:
            wanted = [key] if isinstance(key, str) else key
            is_names = isinstance(wanted, list) and all(isinstance(name, str) for name in wanted)
            if not is_names or not all(new_column(name) in self.columns for name in wanted):
                raise
        names = [current_column(name) for name in wanted]
        return super().__getitem__(names[0] if isinstance(key, str) else names)

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
    """A DataFrame of chances, as `fastflow.probability_better` returns them; notebooks show percent.

    Shape (points, points): the chance, 0 to 1, that the point of the row is better than the point of the
    column in `attrs["objective"]`; NaN on the diagonal. `attrs["reason"]` has a string per point: why it has
    no result, or "". Errors are raised by `fastflow.probability_better`.

    >>> likely = fastflow.probability_better(tech=["n7", "n5"], mem="hbm3")
    >>> isinstance(likely, fastflow.Chances), likely.shape, likely.attrs["objective"]
    (True, (2, 2), 'time_s')
    """

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
