"""The chart library of a page: Vega, which is embedded in the page.

Vega supports linked charts, is free (BSD-3), takes 0.3 MB compressed, and draws thousands of points in a
third of the time of other libraries. The package vl-convert-python contains it, so nothing is downloaded.
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
"""The licence notice of the charts."""


def vega() -> bytes:
    """Return the script that defines `vegaEmbed`, compressed with gzip.

    Bundling takes a second or two, so the script is cached in the user's cache folder.
    """
    cached = FOLDERS[0].parent / f"vega-{metadata.version(_PACKAGE)}.js.gz"
    try:
        return cached.read_bytes()
    except OSError:
        pass
    import vl_convert

    script = gzip.compress(vl_convert.javascript_bundle(_EXPORT).encode(), 9, mtime=0)
    _write_atomically(cached, script)
    return script


def _write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically, if its folder is writable."""
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        part.replace(path)
    except OSError:  # without a home there is no cache
        part.unlink(missing_ok=True)
