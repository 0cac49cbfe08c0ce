"""Elements of pages, and the file that has them: HTML with its style, its scripts and its data inside."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files

from fastflow.reporting.html.content import Headline, Listing
from fastflow.reporting.html.vega import NOTICE, vega

_MARK = re.compile(r"<!--(\w+)-->")
_SCRIPTS = ("format.js", "specs.js", "charts.js")
"""What the scripts of all pages use."""


def filled(template: str, values: Mapping[str, str], data: bytes, scripts: Iterable[str]) -> bytes:
    """Return the file of a page, UTF-8; values: HTML by mark of the template.

    data: of the scripts, compressed; scripts: of this kind of page, in their order.
    """
    assets = files("fastflow.reporting.html") / "assets"
    common = {
        **values,
        "notice": escape(NOTICE),
        "style": (assets / "page.css").read_text("utf-8"),
        "vega": b64encode(vega()).decode(),
        "data": b64encode(data).decode(),
        "script": "\n".join((assets / name).read_text("utf-8") for name in (*_SCRIPTS, *scripts)),
    }
    text = (assets / template).read_text("utf-8")
    return _MARK.sub(lambda mark: common[mark[1]], text).encode()


def pairs(named: list[tuple[str, str]]) -> str:
    """Return names and what they stand for."""
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in named)


def headline(shown: Headline) -> str:
    """Return a figure at the top of a page."""
    label, value, note = map(escape, shown)
    return f"<li><span>{label}</span><b>{value}</b><span>{note}</span></li>"


def listing(table: Listing) -> str:
    """Return a small table."""

    def row(cells: Iterable[str], kind: str) -> str:
        texts = (
            f"<{kind}{'' if i else ' class=text'}>{escape(cell)}</{kind}>" for i, cell in enumerate(cells)
        )
        return f"<tr>{''.join(texts)}</tr>"

    body = "".join(row(cells, "td") for cells in table.rows)
    return (
        f'<section class="listing"><h2>{escape(table.title)}</h2><p class="note">{escape(table.note)}</p>'
        f'<div class="table"><table><thead>{row(table.columns, "th")}</thead>'
        f"<tbody>{body}</tbody></table></div>"
        "</section>"
    )
