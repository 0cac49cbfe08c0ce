"""Points of a grid in a notebook: one as a card, several as a table, and their figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import pandas as pd
from pandas.plotting import PlotAccessor

from fastflow.api.notebook.schema import draw, is_whole

_MOST = 20  # rows and columns of chances


class _Plain(type):
    """What is an instance of any DataFrame is one of these: `assert_frame_equal` compares types."""

    def __instancecheck__(cls, one: object) -> bool:
        return isinstance(one, pd.DataFrame)


class _Frame(pd.DataFrame, metaclass=_Plain):
    """A DataFrame that a notebook shows in a way of its own."""

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Self:
        """Return a frame as one of this kind, with its values and what is known of them."""
        found = cls(frame)
        found.attrs = frame.attrs
        return found

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return type(self)


class Points(_Frame):
    """A DataFrame of points, as `fastflow.evaluate` returns them; a notebook shows the essential of it.

    It is an ordinary DataFrame in all else. Once columns of results are cut away it is shown as one, too.
    """

    @property
    def plot(self) -> Any:
        """Draw the figure of the points: `plot()`; with arguments, and as `plot.scatter`, pandas' own."""
        return _Plot(self)

    def _repr_html_(self) -> str | None:
        """Return a card of one point, or the best of several; pandas' own table of anything else."""
        if not is_whole(self) or not pd.get_option("display.notebook_repr_html"):
            return _plain_html(self)
        from fastflow.api.notebook.cards import one, several

        return one(self) if len(self) == 1 else several(self)


class Chances(_Frame):
    """A DataFrame of chances, as `fastflow.chances` returns them; a notebook shows them in percent."""

    def _repr_html_(self) -> str | None:
        """Return the chances in percent, under what they are of; pandas' own table of anything else."""
        is_square = "objective" in self.attrs and self.index.equals(self.columns)
        if not is_square or not pd.get_option("display.notebook_repr_html"):
            return _plain_html(self)
        from fastflow.api.notebook.markup import card

        shown = pd.DataFrame(self).map(lambda share: "" if share != share else f"{share:.0%}")
        line = f"Chance that the row is better than the column, in {self.attrs['objective']}"
        return card(line, []) + str(shown.to_html(max_rows=_MOST, max_cols=_MOST, border=0))


class _Plot(PlotAccessor):
    """pandas' plots of a frame, with the figure of its points where nothing else is asked for."""

    def __init__(self, frame: pd.DataFrame) -> None:
        """Take the frame."""
        super().__init__(frame)
        self._frame = frame

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the figure of the points, a matplotlib Figure; with arguments what pandas draws."""
        if args or kwargs or not is_whole(self._frame):
            return super().__call__(*args, **kwargs)
        return draw(self._frame)


def _plain_html(frame: pd.DataFrame) -> str | None:
    """Return the table that pandas makes of a frame."""
    return pd.DataFrame(frame)._repr_html_()  # type: ignore[operator,no-any-return]
