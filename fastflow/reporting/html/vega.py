"""The library that draws the charts of a page: Vega, which is written into the page itself.

Vega is made for linked charts, is free (BSD-3), takes 0.3 MB compressed, and draws thousands of points in a
third of the time that others need. It comes with the package vl-convert-python, so that nothing is fetched.
"""

from __future__ import annotations

import gzip
from importlib import metadata
from pathlib import Path

from fastflow.core.jit.cache import FOLDERS

_EXPORT = "window.vegaEmbed = vegaEmbed;"
_PACKAGE = "vl-convert-python"
NOTICE = (
    "Charts: Vega, Vega-Embed (c) University of Washington Interactive Data Lab, BSD-3-Clause; "
    "D3 (c) Mike Bostock, ISC."
)
"""What has to be said of it."""


def vega() -> bytes:
    """Return the script that defines `vegaEmbed`, compressed with gzip.

    Putting it together takes a second or two, so it is kept in the folder of this user's cache.
    """
    kept = FOLDERS[0].parent / f"vega-{metadata.version(_PACKAGE)}.js.gz"
    try:
        return kept.read_bytes()
    except OSError:
        pass
    import vl_convert

    script = gzip.compress(vl_convert.javascript_bundle(_EXPORT).encode(), 9, mtime=0)
    _keep(kept, script)
    return script


def _keep(path: Path, content: bytes) -> None:
    """Write a file as a whole, where that is possible."""
    beside = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(content)
        beside.replace(path)
    except OSError:  # a user without a home makes it anew each time
        beside.unlink(missing_ok=True)
