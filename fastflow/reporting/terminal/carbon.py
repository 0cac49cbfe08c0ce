"""Carbon of a point in one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fastflow.core.units import percent
from fastflow.physics.carbon.profile import PROFILE
from fastflow.reporting.terminal.tables import quantity

_WORLD = "world"
CARBON_PREFIX = "carbon."
"""Prefix of the keys of the inputs that describe electricity's and hardware's emissions."""


def electricity_of(overrides: Iterable[str]) -> str:
    """Return the key among overrides that sets the emissions of electricity, with its value."""
    keys = ("carbon=", "carbon.intensity=", f"{PROFILE}=")
    return [f"carbon={_WORLD}", *(text for text in overrides if text.startswith(keys))][-1]


def carbon_lines(row: Mapping[str, Any], inputs: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line on the carbon of a point with a time: of its work, and of making its devices.

    inputs: of `carbon`, by dotted key, as far as they are known.
    """
    total, device = row.get("carbon_g"), row.get("device_carbon_kg")
    if total is None or device is None or not (total == total and total > 0.0):
        return
    per_token = row.get("carbon_g_per_token")
    has_tokens = per_token is not None and per_token == per_token
    work = "" if "ttft_s" in row or "tpot_s" in row else f"{quantity('carbon_g', total)} per iteration"
    token = quantity("carbon_g_per_token", per_token) if has_tokens else ""
    share = percent(row["operational_g"] / total)
    source = inputs.get(PROFILE) or inputs.get(f"{CARBON_PREFIX}name")
    key = "carbon.profile" if PROFILE in inputs else "carbon"
    where = f" ({key}={source})" if source else ""
    parts = f"{', '.join(filter(None, (work, token)))}, {share} from electricity{where}"
    yield f"Carbon       {parts}; a device: {quantity('device_carbon_kg', device)}"
