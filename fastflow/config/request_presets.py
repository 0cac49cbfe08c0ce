"""Presets of `fastflow requests`: published statistics of traces, a file each in conf/request_presets/."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from fastflow.config import catalog
from fastflow.config.messages import COMMAND_LINE, one_of, suggestion
from fastflow.core.errors import InputError

PRESET = "preset"
_PUBLISHED, _SOURCE = "published", "source"


class Preset(NamedTuple):
    """Keys of `schema.requests` with their values, and what is published of the trace.

    published: `isl_mean`, `isl_median`, `osl_mean` and `osl_median` of all requests [tokens], and `reuse`,
    the share of prompts that a cache of any size has; those that are known.
    """

    values: Mapping[str, str | int | float]
    published: Mapping[str, float]


NO_PRESET = Preset({}, {})


def presets() -> dict[str, str]:
    """Return the description of each preset."""
    names = catalog.choices(catalog.PRESETS)
    return {name: catalog.about(path) for name in names if (path := catalog.path_of(catalog.PRESETS, name))}


def read_preset(name: str) -> Preset:
    """Return a preset; raises InputError for an unknown name."""
    path = catalog.path_of(catalog.PRESETS, name)
    if path is None:
        known = presets()
        raise InputError(PRESET, name, one_of(known) + suggestion(name, known), COMMAND_LINE)
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    values = {key: value for key, value in content.items() if key not in (_PUBLISHED, _SOURCE)}
    return Preset(values, content[_PUBLISHED])
