"""Contents of a page: provenance, headline figures, points for its charts, and their details."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from fastflow.core.tables import Floats, Ints
from fastflow.reporting.studies.claims import Claim
from fastflow.schema.results import ASSUMPTIONS, TYPICAL


class Quantity(NamedTuple):
    """A column of the points of a page."""

    name: str
    unit: str
    meaning: str
    values: NDArray[Any]
    """Numbers, NaN for missing, or texts; shape (points,)."""
    better: str = ""
    """Which values are better: "less", "more", or "" for neither."""


class Headline(NamedTuple):
    """A figure at the top of a page."""

    label: str
    value: str
    note: str


class ResultLine(NamedTuple):
    """A result below the name of a point."""

    label: str
    column: str


LIMITER = ResultLine("limited by", "bound_by")
VALIDATION = ResultLine("validation:", TYPICAL[-1].name)
ASSUMED = ResultLine("assumed:", ASSUMPTIONS.name)
RESULT_LINES = (ResultLine("time", "time_s"), LIMITER, VALIDATION, ASSUMED)


class Parts(NamedTuple):
    """Quantities of a point in a stacked bar."""

    title: str
    columns: dict[str, str]
    """Label to column of each part."""
    limit: str = ""
    """The column of the limit."""
    total: str = ""
    """The column of the total, if the columns do not cover all of it."""
    rest: str = ""
    """The label of the remainder."""
    overlap: bool = False
    """Whether the parts overlap in time and do not add up."""


class Listing(NamedTuple):
    """A small table of texts; the first column names the rows."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class PointTable(NamedTuple):
    """The initial state of the table of points."""

    listed: tuple[str, ...] = ()
    """Columns of the table."""
    sort: str = ""
    """The sort column, the best point first; "": in the order of the dataset."""
    worst_first: bool = False
    """Whether the worst point comes first."""


class View(NamedTuple):
    """The initial state of the charts and of the table; names of columns."""

    x: str
    y: str
    colour: str
    bars: str
    histogram: str
    rows: str = ""
    """Rows of the map of best values; "" if fewer than two columns vary."""
    across: str = ""
    table: PointTable = PointTable()
    named: tuple[str, ...] = ()
    """Columns that name points."""
    diagonal: bool = False
    """Whether x and y are the same quantity, so that the diagonal is exact."""
    log: bool | None = None
    """Whether both axes are logarithmic; None: by the range of values."""
    parts: tuple[Parts, ...] = ()
    said: tuple[ResultLine, ...] = RESULT_LINES
    opened: int = -1
    """Index of the point that is opened first; -1 for none."""


class Kernels(NamedTuple):
    """Kernels of the points, identical kernels merged; flat columns of all points."""

    offset: Ints
    """Row offsets of the kernels of each point, (points + 1,); a point without details has no rows."""
    name: NDArray[Any]
    phase: NDArray[Any]
    bound_by: NDArray[Any]
    numbers: dict[str, Floats]
    """By name: launches, seconds, flop, bytes of each level; totals of all launches."""
    levels: tuple[str, ...]
    """Memory levels, from the registers outwards, main memory last."""


class MemoryBoxes(NamedTuple):
    """The memory of one device over an iteration, as boxes of a stacked chart; flat, of all points."""

    offset: Ints
    """Row offsets of the boxes of each point, (points + 1,)."""
    kind: NDArray[Any]
    numbers: dict[str, Floats]
    """By name: start_s, end_s, bottom_B, size_B."""
    peak: NDArray[Any]
    """The name of the step with most memory of each point, "" for none, (points,)."""


class Details(NamedTuple):
    """Details of the points besides their columns."""

    kernels: Kernels
    areas: dict[str, Floats]
    """Area of every component of the die [m^2], (points,); "": unassigned area. NaN where unknown."""
    pictures: tuple[bytes, ...]
    """Drawings of placements, as SVG."""
    picture: Ints
    """The drawing of each point, -1 for none; (points,)."""
    memory: MemoryBoxes | None
    """None if no point has any."""


class Page(NamedTuple):
    """The contents of a page."""

    title: str
    summary: str
    """One sentence on the dataset."""
    provenance: list[tuple[str, str]]
    headlines: list[Headline]
    claims: list[Claim]
    figure: bytes
    """The figure of the dataset, as SVG; empty for none."""
    points: list[Quantity]
    total: int
    """Number of points of the dataset."""
    sample_note: str
    """A note on the sampling of the drawn points; "" if all are drawn."""
    weight: Floats | None
    """Points of the dataset per drawn point, (points,); None if all are drawn."""
    fronts: tuple[str, ...]
    """Columns with all points of the front of any two drawn."""
    view: View
    details: Details | None
    missing_note: str
    """Why there are no kernels, "" if there are."""
    listings: tuple[Listing, ...] = ()
