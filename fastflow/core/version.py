"""Which fastflow this is: what datasets and workers of a cluster say of themselves."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """Return the version that is installed; "0+unknown" for a checkout on the path, not installed."""
    try:
        return metadata.version("fastflow")
    except metadata.PackageNotFoundError:
        return "0+unknown"
