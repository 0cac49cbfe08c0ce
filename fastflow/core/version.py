"""The version of fastflow, for datasets and workers of a cluster."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """Return the installed version; "0+unknown" for a checkout on the path, not installed."""
    try:
        return metadata.version("fastflow")
    except metadata.PackageNotFoundError:
        return "0+unknown"
