"""The `engine` section of a configuration: settings of the evaluation of a grid."""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fastflow.config.messages import one_of
from fastflow.config.model_inputs import INT64_MAX
from fastflow.core import units
from fastflow.core.errors import InputError

MAX_JOBS = 1024


class Settings(NamedTuple):
    """The `engine` section: how a grid is evaluated. It changes no result."""

    chunk: int
    """Points evaluated together, at most."""
    chunk_bytes: float
    """Memory that the points evaluated together may take, about [B]."""
    jobs: int = -1
    """Threads of this machine; -1 is one for each core."""
    address: str = ""
    """A Dask scheduler's; empty for this machine alone."""


def settings(section: Any) -> Settings:
    """Read the `engine` section; raises InputError."""
    values = {key: value for key, value in dict(section or {}).items() if key != "source"}
    for key, value in values.items():
        if key not in Settings._fields:
            raise InputError(f"engine.{key}", value, one_of(Settings._fields))
    for key, low, high, allowed in (
        ("jobs", -1, MAX_JOBS, f"-1 (all cores) or a whole number from 1 to {MAX_JOBS}"),
        ("chunk", 1, INT64_MAX, "a whole number from 1"),
    ):
        value = values.get(key, Settings._field_defaults.get(key))
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high or value == 0:
            raise InputError(f"engine.{key}", _as_typed(value), allowed)
    if "address" in values and not _is_address(values["address"]):
        allowed = "the address of a Dask scheduler, such as tcp://10.0.0.5:8786"
        raise InputError("engine.address", _as_typed(values["address"]), allowed)
    return Settings(**values | {"chunk_bytes": _memory("engine.chunk_bytes", values.get("chunk_bytes"))})


def _memory(key: str, text: Any) -> float:
    """Return an amount of memory [B]; raises InputError."""
    try:
        size = units.parse(str(text), "B")
    except ValueError as error:
        raise InputError(key, _as_typed(text), f"a size above 0, such as 64 MB ({error})") from None
    if not size > 0.0:
        raise InputError(key, text, "a size above 0, such as 64 MB")
    return size


def _is_address(text: Any) -> bool:
    """Say whether this is an address that Dask knows: scheme, host and port."""
    try:
        url = urlsplit(str(text))
        return url.scheme in ("tcp", "tls", "ws", "wss") and bool(url.hostname) and bool(url.port)
    except ValueError:  # an invalid port
        return False


def _as_typed(value: Any) -> Any:
    """Return null, true and false as YAML has them."""
    return json.dumps(value) if value is None or isinstance(value, bool) else value
