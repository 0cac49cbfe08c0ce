"""What a page holds: what was asked, headline figures, points for its charts, and their details."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from fastflow.core.tables import Floats, Ints
from fastflow.reporting.studies.claims import Claim
from fastflow.schema.results import ASSUMPTIONS, TYPICAL


class Quantity(NamedTuple):
    """One column of the points of a page."""

    name: str
    unit: str
    meaning: str
    values: NDArray[Any]
    """Numbers, NaN where there is none, or texts; shape (points,)."""
    better: str = ""
    """Which values are better: "less", "more", or "" where neither is."""


class Headline(NamedTuple):
    """A figure that is read first."""

    label: str
    value: str
    note: str


class Said(NamedTuple):
    """A result that stands below the name of a point."""

    label: str
    column: str


LIMITER = Said("limited by", "bound_by")
VALIDATION = Said("validation:", TYPICAL[-1].name)
ASSUMED = Said("assumed:", ASSUMPTIONS.name)
SAID = (Said("time", "time_s"), LIMITER, VALIDATION, ASSUMED)


class Parts(NamedTuple):
    """Quantities of a point that are drawn as one bar, one after the other."""

    title: str
    columns: dict[str, str]
    """Label of each part to its column."""
    limit: str = ""
    """The column that says how much there may be."""
    total: str = ""
    """The column of their sum and of what no column has, if there is any of that."""
    rest: str = ""
    """What that is."""
    overlap: bool = False
    """Whether they are not to be added up: times of what works at the same time."""


class Listing(NamedTuple):
    """A small table of texts, the first column of which names the rows."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class View(NamedTuple):
    """What the charts show first; names of columns."""

    x: str
    y: str
    colour: str
    bars: str
    histogram: str
    rows: str = ""
    """Of the map of best values; "" where fewer than two columns vary."""
    across: str = ""
    listed: tuple[str, ...] = ()
    """Columns of the table."""
    sort: str = ""
    """The column that it is sorted by, the best point first; "": in the order of the dataset."""
    worst_first: bool = False
    """Or the worst one."""
    named: tuple[str, ...] = ()
    """Those that tell points apart."""
    diagonal: bool = False
    """Whether x and y are the same quantity, so that points on the diagonal are right."""
    log: bool | None = None
    """Whether both axes are logarithmic; None: where values span much."""
    parts: tuple[Parts, ...] = ()
    said: tuple[Said, ...] = SAID
    opened: int = -1
    """The point that is opened first, by its place; -1 for none."""


class Kernels(NamedTuple):
    """Kernels of the points, those alike merged; flat columns of all points, one after the other."""

    offset: Ints
    """Where the kernels of each point begin, (points + 1,); none for a point that was not predicted again."""
    name: NDArray[Any]
    phase: NDArray[Any]
    bound_by: NDArray[Any]
    numbers: dict[str, Floats]
    """By name: launches, seconds, flop, bytes of each level; of all launches."""
    levels: tuple[str, ...]
    """Memory levels, from the registers outwards, main memory last."""


class Details(NamedTuple):
    """What is known of the points beside their columns."""

    kernels: Kernels
    areas: dict[str, Floats]
    """Area of every component of the die [m^2], (points,); of "" what none has, NaN where it is not known."""
    pictures: tuple[bytes, ...]
    """Drawings of placements, as SVG."""
    picture: Ints
    """The drawing of each point, -1 for none; (points,)."""


class Page(NamedTuple):
    """All that a page holds."""

    title: str
    what: str
    """One sentence on what the dataset is."""
    asked: list[tuple[str, str]]
    headlines: list[Headline]
    claims: list[Claim]
    figure: bytes
    """The figure that the command draws of the dataset, as SVG; empty for none."""
    points: list[Quantity]
    total: int
    """Points of the dataset, those that are not drawn among them."""
    drawn: str
    """Which of them are drawn, in words; "" where all are."""
    weight: Floats | None
    """How many points of the dataset each drawn one stands for, None where all are drawn; (points,)."""
    fronts: tuple[str, ...]
    """Columns, of any two of which all points of the front are drawn."""
    view: View
    details: Details | None
    lacks: str
    """Why there are no kernels, "" where there are."""
    listings: tuple[Listing, ...] = ()
