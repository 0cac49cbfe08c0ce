"""The pages of the library: the choices of each group, and for each choice a card of figures with sources."""

from __future__ import annotations

from collections.abc import Sequence

from markdown_text import code, escaped, table

from fastflow import evaluate
from fastflow.config import catalog
from fastflow.config.cards import Figure, figures
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.reporting.terminal.library import chip_lines
from fastflow.reporting.terminal.tables import quantity, records

TITLES = {
    "tech": "Technologies", "scaling": "Scaling rules", "mem": "Memories", "net": "Networks",
    "links": "Links of real machines", "chip": "Chips", "calibration": "Calibration", "system": "Systems",
    "cost": "Costs", "power": "Machines and sites", "carbon": "Carbon", "model": "Models",
    "precision": "Precisions", "parallel": "Parallelism",
    "tiling": "Tilings", "framework": "Frameworks", "serve": "Loads of servers", "server": "Servers",
    "uncertainty": "Uncertainty", "engine": "Engines", catalog.SWEEPS: "Studies",
}  # fmt: skip
_CHIP = "chip"
_AS_FILES = (catalog.SWEEPS, "links")
"""Groups that are no section of a configuration: they set keys of others."""
_SAME = "as above"
_OF_PRODUCTS = ("model=gemm", "system.devices=1", "uncertainty=off")
_RATE = "chip.rate."
_SAID = {"node": "tech.name", "memory": "mem.name", "die": "chip.die_area", "power": "chip.tdp"}
_FOUND = {"fp16": "compute_flops", "capacity": "dram_capacity_B", "rate": "dram_Bps", "L2": "l2_B"}
"""Columns of the table of chips: keys that their files have, and results."""


def library_pages() -> dict[str, str]:
    """Return a page for each group, by the group's name."""
    return {group: _page(group) for group in catalog.groups()}


def _page(group: str) -> str:
    usual, names = catalog.default_choices().get(group, ""), catalog.choices(group)
    said = {name: catalog.about(path) if (path := catalog.path_of(group, name)) else "" for name in names}
    way = "-m +sweeps=NAME" if group == catalog.SWEEPS else f"{group}=NAME"
    lines = [f"# {TITLES.get(group, group)}", "", f"The group `{group}`: choose with `{way}`."]
    lines += [f"Without a choice it is {_link(usual)}." if usual else "", ""]
    if group == _CHIP:
        lines += _table_of_chips(names)
    else:
        sentences = ((_link(name), escaped(catalog.first_sentence(said[name]))) for name in names)
        lines += table((group, "what it is"), sentences)
    for name in names:
        lines += [f"## {name}", "", escaped(said[name]), "", *_card(group, name)]
    return "\n".join(lines)


def _link(name: str) -> str:
    return f"[`{name}`](#{name.lower()})"


def _card(group: str, name: str) -> list[str]:
    """Return the figures of a choice with their sources; of one that sets keys of others, its file."""
    found = _figures(group, name)
    if not found:
        path = catalog.path_of(group, name)
        assert path is not None, (group, name)
        return ["```yaml", path.read_text(encoding="utf-8").rstrip(), "```", ""]
    uncertain = any(figure.uncertainty for figure in found)
    rows, before = [], ""
    for figure in found:
        source = _SAME if figure.source and figure.source == before else escaped(figure.source)
        before = figure.source
        uncertainty = [escaped(figure.uncertainty)] if uncertain else []
        rows.append([code(figure.key), escaped(figure.value), *uncertainty, source])
    titles = ("key", "value", *(("uncertainty",) if uncertain else ()), "source")
    made = [f"- {escaped(line)}" for line in _made(name, found)] if group == _CHIP else []
    return [*(["It comes to:", "", *made, ""] if made else []), *table(titles, rows)]


def _figures(group: str, name: str) -> list[Figure]:
    """Return the figures that a choice has in its group's section, none where it sets keys of others."""
    if group in _AS_FILES:
        return []
    with hydra_rules():
        found = figures(Composer.of_library(), [f"{group}={name}"])
    return [one for one in found if one.key.startswith(f"{group}.")]


def _made(name: str, found: Sequence[Figure]) -> list[str]:
    """Return what a chip comes to: its memories, and its rate in each data type."""
    dtypes = [one.key.removeprefix(_RATE) for one in found if one.key.startswith(_RATE)]
    return chip_lines(evaluate(f"chip={name}", *_OF_PRODUCTS, f"model.dtype={','.join(dtypes)}"))


def _table_of_chips(names: Sequence[str]) -> list[str]:
    frame = evaluate(f"chip={','.join(names)}", *_OF_PRODUCTS, "model.dtype=fp16")
    rows = []
    for name, row in zip(names, records(frame), strict=True):
        with hydra_rules():
            said = Composer.of_library().compose([f"chip={name}"]).leaves
        texts = (escaped(str(said[key])) for key in _SAID.values())
        rows.append([_link(name), *texts, *(quantity(column, row[column]) for column in _FOUND.values())])
    return table((_CHIP, *_SAID, *_FOUND), rows)
