"""The file of a page: HTML with its style, its scripts and its data inside."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastflow.core.units import scales
from fastflow.reporting.html.content import MemoryBoxes, Page, Quantity, View
from fastflow.reporting.html.elements import filled, headline, listing, pairs

_CHART_UNITS = ("s", "B", "B/s", "flop/s", "m^2")
"""Units of charts besides those of columns."""
_SCRIPTS = ("points.js", "explore.js", "table.js", "details.js", "page.js")


def document(page: Page) -> bytes:
    """Return the file of a page, UTF-8."""
    values = {
        "title": escape(page.title),
        "summary": escape(page.summary),
        "provenance": pairs(page.provenance),
        "headlines": "".join(map(headline, page.headlines)),
        "claims": _claims(page),
        "listings": "".join(map(listing, page.listings)),
        "figure": _figure(page),
        "sample_note": escape(page.sample_note),
        "missing_note": escape(page.missing_note),
    }
    return filled("page.html", values, pack(page), _SCRIPTS)


def _claims(page: Page) -> str:
    """Return the claims of a study as a list, "" for none."""
    if not page.claims:
        return ""
    items = "".join(
        f'<li class="{"yes" if claim.holds else "no"}"><b>{"holds" if claim.holds else "does not hold"}</b> '
        f"{escape(claim.text)}: {escape(claim.figure)}</li>"
        for claim in page.claims
    )
    holds = sum(claim.holds for claim in page.claims)
    return (
        f"<section><h2>Claims</h2><p>{holds} of {len(page.claims)} hold.</p>"
        f'<ul class="claims">{items}</ul></section>'
    )


def _figure(page: Page) -> str:
    """Return the figure of the dataset as a picture, "" for none."""
    if not page.figure:
        return ""
    picture = b64encode(page.figure).decode()
    opened = " open" if page.claims else ""
    return (
        f"<section><details{opened}><summary><h2>Figure</h2></summary>"
        f'<img alt="Figure of {escape(page.title)}" src="data:image/svg+xml;base64,{picture}">'
        "</details></section>"
    )


def pack(page: Page) -> bytes:
    """Return the data of the scripts: a header as JSON and arrays after it, compressed.

    The file begins with the length of the header in four bytes. Each array begins at a multiple of four;
    the header has its offset and type.
    """
    arrays = _Arrays()
    points = page.points[0].values.size if page.points else 0
    header: dict[str, Any] = {
        "rows": points,
        "total": page.total,
        "columns": [_column(quantity, arrays) for quantity in page.points],
        "units": {
            unit: scales(unit)
            for unit in dict.fromkeys((*(quantity.unit for quantity in page.points), *_CHART_UNITS))
        },
        "fronts": page.fronts,
        "weight": None if page.weight is None else arrays.add(page.weight, "f4"),
        "view": _view(page.view),
        "details": _details(page, arrays),
    }
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    text += b" " * (-len(text) % 4)
    size = len(text).to_bytes(4, "little")
    return gzip.compress(b"".join([size, text, *arrays.parts]), 9, mtime=0)


def _view(view: View) -> dict[str, Any]:
    """Return the initial state of a page for the header; the fields of its table are among its own."""
    state: dict[str, Any] = {}
    for name, value in view._asdict().items():
        state |= value._asdict() if name == "table" else {name: value}
    return state | {name: [entry._asdict() for entry in state[name]] for name in ("parts", "said")}


class _Arrays:
    """Concatenated arrays."""

    def __init__(self) -> None:
        """Start empty."""
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, values: NDArray[Any], kind: str) -> dict[str, Any]:
        """Add an array of a kind ("f4", "i4", "u2", "u1"); returns its location."""
        content = np.ascontiguousarray(values).astype(f"<{kind}").tobytes()
        location = {"at": self.size, "size": int(values.size), "kind": kind}
        self.parts.append(content + b"\0" * (-len(content) % 4))
        self.size += len(self.parts[-1])
        return location

    def add_texts(self, values: NDArray[Any]) -> dict[str, Any]:
        """Add texts as codes; returns their location, and the texts."""
        names, codes = _factorize(values)
        kind = "u1" if len(names) < 256 else "u2"
        return {"names": names, "codes": self.add(codes, kind)}


def _factorize(values: NDArray[Any]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the unique texts in their order of appearance, and the code of each value."""
    names: dict[str, int] = {}
    codes = np.array([names.setdefault(value, len(names)) for value in values.astype(str).tolist()], np.int64)
    return list(names), codes


def _column(quantity: Quantity, arrays: _Arrays) -> dict[str, Any]:
    """Return a column for the header: a constant if all values are equal."""
    entry: dict[str, Any] = {
        "name": quantity.name,
        "unit": quantity.unit,
        "meaning": quantity.meaning,
        "better": quantity.better,
    }
    if quantity.values.dtype.kind in "fiu":
        values = quantity.values.astype(np.float64)
        constant = values.size > 0 and (np.all(values == values[0]) or bool(np.isnan(values).all()))
        if constant:
            return entry | {"constant": float(values[0]) if np.isfinite(values[0]) else None}
        return entry | {"numbers": arrays.add(values, "f4")}
    return entry | {"texts": arrays.add_texts(quantity.values)}


def _details(page: Page, arrays: _Arrays) -> dict[str, Any] | None:
    if page.details is None:
        return None
    kernels, areas, pictures, picture, memory = page.details
    return {
        "offset": arrays.add(kernels.offset, "i4"),
        "name": arrays.add_texts(kernels.name),
        "phase": arrays.add_texts(kernels.phase),
        "bound_by": arrays.add_texts(kernels.bound_by),
        "numbers": {name: arrays.add(values, "f4") for name, values in kernels.numbers.items()},
        "levels": kernels.levels,
        "areas": {name: arrays.add(values, "f4") for name, values in areas.items()},
        "pictures": [b64encode(drawing).decode() for drawing in pictures],
        "picture": arrays.add(picture, "i4"),
        "memory": None if memory is None else _memory(memory, arrays),
    }


def _memory(memory: MemoryBoxes, arrays: _Arrays) -> dict[str, Any]:
    """Return the boxes of memory for the header."""
    return {
        "offset": arrays.add(memory.offset, "i4"),
        "kind": arrays.add_texts(memory.kind),
        "peak": arrays.add_texts(memory.peak),
        "numbers": {name: arrays.add(values, "f4") for name, values in memory.numbers.items()},
    }
