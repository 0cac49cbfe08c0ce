"""Chip file of the best design of a search, for `chip=FILE`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterator, Mapping
from math import sqrt
from typing import Any

import yaml
from omegaconf import OmegaConf

from fastflow.core import units

_ORDER = (
    "name", "maker", "architecture", "machine", "node_area", "die_area", "dies", "chiplets", "link",
    "salvage", "tdp", "power_limit", "area", "power", "perimeter", "mcus_per_bundle", "mcu", "utilization",
    "vector_utilization", "dram_utilization", "launch_overhead", "call_overhead", "step_latency",
    "matrix_power", "sustained_power_fraction", "temperature",
    "idle_power_fraction", "active_power_fraction", "special_functions", "boost", "flash_attention", "rate",
    "matrix", "blocks",
    "strided", "memory", "made", "pinned",
)  # fmt: skip
_BUDGETS = {"area": "die_area", "power": "tdp", "perimeter": "the die's edge"}
_WIDTH = 100
# text that YAML reads as a string without quotes, unless it is a number or the like
_PLAIN = re.compile(r"[A-Za-z0-9](?:[\w .,;%/()+='@-]*[\w.%)'])?", re.ASCII)


def chip_text(
    section: Mapping[str, Any],
    shares: Mapping[str, float],
    about: str,
    source: str,
    changed: Collection[str] = (),
) -> str:
    """Return a chip file: a template with the area and power split of a search.

    section: the template, the `chip` section of a configuration as written and resolved; shares:
    "chip.area.core" and so on, written to the last bit; about: what the chip is best for, and source:
    how the search reached it, in a few words each; changed: keys of the template that the user of the
    search has set, as "chip.tdp"; the template's source no longer holds for them.
    """
    content: dict[str, Any] = {**section, "name": _design_name(section)}
    for key, share in shares.items():
        _, budget, part = key.split(".")
        content[budget] = {**content.get(budget, {}), part: float(share)}
    budgets = list(dict.fromkeys(key.split(".")[1] for key in shares))
    content["source"] = _source_block(section.get("source"), budgets, source, changed)
    others = [key for key in content if key not in (*_ORDER, "source")]
    lines = [f"{content['name']}: the best design found for {about}.", f"By {source}.", "Use: chip=THIS_FILE"]
    text = [f"# {part}" for line in lines for part in textwrap.wrap(line, _WIDTH, break_on_hyphens=False)]
    for key in [*(key for key in _ORDER if key in content), *others, "source"]:
        if key in budgets:
            text += _breakdown(key, content[key], content)
        else:
            text += _entry(key, content[key], "")
    return "\n".join(text) + "\n"


def _design_name(section: Mapping[str, Any]) -> str:
    """Return a name for a design made of a template."""
    return f"{str(section['name']).removesuffix('-best')}-best"


def _source_block(
    template_sources: Any, budgets: list[str], source: str, changed: Collection[str]
) -> dict[str, Any]:
    """Return the sources of all figures of the file."""
    sources = (
        dict(template_sources)
        if isinstance(template_sources, Mapping)
        else {"default": template_sources}
        if template_sources
        else {}
    )
    changed_sources = {budget: source if budget == budgets[0] else f"as {budgets[0]}" for budget in budgets}
    for key in (key.removeprefix("chip.") for key in changed):
        if key.partition(".")[0] not in budgets:
            changed_sources[key] = "set for the search"
    kept = {
        key: text
        for key, text in sources.items()
        if not any(f"{key}.".startswith(f"{budget_or_key}.") for budget_or_key in changed_sources)
    }
    return kept | changed_sources


def _breakdown(budget: str, shares: Mapping[str, Any], content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a budget's shares, each with its absolute value."""
    die = units.parse(str(content["die_area"]), "m^2")
    total, unit = {
        "area": (die * 1e6, "mm2"),
        "power": (units.parse(str(content["tdp"]), "W"), "W"),
        "perimeter": (4.0 * sqrt(die) * 1e3, "mm"),
    }[budget]
    yield f"{budget}:  # shares of {_BUDGETS[budget]}, {sum(shares.values()):.1%} in all"
    width = max(len(f"{part}: {_scalar(share)}") for part, share in shares.items())
    for part, share in shares.items():
        yield f"  {f'{part}: {_scalar(share)}':{width}}  # {share * total:.4g} {unit}"


def _entry(key: str, value: Any, indent: str) -> Iterator[str]:
    """Yield the lines of a key and its value; a short mapping is on the key's line."""
    begin = f"{indent}{_scalar(key)}:"
    if not isinstance(value, Mapping):
        yield f"{begin} {_scalar(value)}"
        return
    short = f"{begin} {{{', '.join(f'{_scalar(name)}: {_scalar(part)}' for name, part in value.items())}}}"
    nested = any(isinstance(part, Mapping) or "," in str(part) for part in value.values())
    if not value or (key != "source" and not nested and len(short) <= _WIDTH):
        yield short
        return
    yield begin
    for name, part in value.items():
        yield from _entry(name, part, f"{indent}  ")


def _scalar(value: Any) -> str:
    """Write a value so that it is read back as it is, to the last bit."""
    if isinstance(value, str):
        plain = (
            _PLAIN.fullmatch(value)
            and OmegaConf.select(OmegaConf.create(f"value: {value}"), "value") == value
        )
        escaped = value.replace("${", "\\${")  # no interpolation remains
        return value if plain else _dumped(escaped, '"')
    return _dumped(value, None)


def _dumped(value: Any, style: str | None) -> str:
    text = yaml.safe_dump(
        value, default_style=style, default_flow_style=True, allow_unicode=True, width=float("inf")
    )
    return text.removesuffix("\n").removesuffix("\n...")
