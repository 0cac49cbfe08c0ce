"""`fastflow list` and `fastflow show`: what the library has, and what a choice of it comes to."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fastflow.cli.argparse_commands import Parser
from fastflow.config import catalog
from fastflow.config.messages import COMMAND_LINE, one_of, suggestion
from fastflow.core.errors import InputError

if TYPE_CHECKING:
    from fastflow.config.cards import Figure

PLURALS = {
    "chips": "chip", "technologies": "tech", "nodes": "tech", "memories": "mem", "networks": "net",
    "models": "model", "systems": "system", "servers": "server", "studies": catalog.STUDIES,
}  # fmt: skip
"""What groups are called where several of their choices are meant."""
_CHIP = "chip"
_SAID = {"node": "tech.name", "memory": "mem.name", "die": "chip.die_area", "power": "chip.tdp"}
"""Columns of the table of chips that their files have, and the keys."""
_RATE = "chip.rate."
_WIDTH = 200  # characters of choices that a list of groups names: more than any terminal has


def _parser(name: str, about: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=f"fastflow {name}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config-dir", metavar="DIR", default=None, help="a folder with your own files")
    return parser


def _own(folder: str | None) -> Path | None:
    """Return the user's folder; raises InputError."""
    if folder is None:
        return None
    if not Path(folder).is_dir():
        raise InputError("--config-dir", folder, "a folder that exists", COMMAND_LINE)
    return Path(folder)


def list_library(arguments: Sequence[str]) -> None:
    """Print the groups, or the choices of one; raises InputError."""
    parser = _parser("list", "List the groups of the library, or the choices of one: fastflow list chips")
    parser.add_argument("group", nargs="?", default="", help="such as chips, tech, mem, net, models, systems")
    given = parser.parse_intermixed_args(arguments)
    from fastflow.reporting.terminal import library as shown

    own = _own(given.config_dir)
    groups, usual = catalog.groups(own), catalog.usual(own)
    if not given.group:
        every = {group: catalog.choices(group, own) for group in groups}
        shown.show_groups(
            (group, len(names), usual.get(group, ""), ", ".join(names)[:_WIDTH])
            for group, names in every.items()
        )
        return
    group = PLURALS.get(given.group, given.group)
    if group not in groups:
        near = suggestion(given.group, [*groups, *PLURALS])
        raise InputError("group", given.group, one_of(groups) + near, COMMAND_LINE)
    if group == _CHIP:
        _list_chips(own, usual[_CHIP])
        return
    names = catalog.choices(group, own)
    paths = [(name, catalog.path_of(group, name, own)) for name in names]
    rows = [(name, catalog.first_sentence(catalog.about(path)) if path else "") for name, path in paths]
    shown.show_choices(group, usual.get(group, ""), rows)


def _list_chips(own: Path | None, usual: str) -> None:
    """Print the chips with what they have."""
    from fastflow.api.notebook.calls import evaluate
    from fastflow.config.composer import Composer
    from fastflow.config.library import hydra_rules
    from fastflow.reporting.terminal.library import show_chips

    names = catalog.choices(_CHIP, own)
    of_products = ("model=gemm", "model.dtype=fp16", "system.devices=1", "uncertainty=off")
    frame = evaluate(f"chip={','.join(names)}", *of_products, config_dir=own)
    with hydra_rules():
        composer = Composer.of_library(own)
        said = [composer.compose([f"chip={name}"]).leaves for name in names]
    show_chips(frame, {title: [str(one[key]) for one in said] for title, key in _SAID.items()}, usual)


def show_choice(arguments: Sequence[str]) -> None:
    """Print cards of choices: their figures with sources; raises InputError."""
    parser = _parser(
        "show",
        "Show the figures of a choice, each with its source and how far it may be off.\n\n"
        "  fastflow show chip=h100_sxm\n"
        "  fastflow show tech=n5 scaling=foundry\n"
        "  fastflow show chip=h100_sxm chip.pinned       the figures of one section\n"
        "  fastflow show mem                             the usual choice of a group\n"
        "  fastflow show chip.tdp='500 W'                a value of your own",
    )
    parser.add_argument(
        "overrides", nargs="+", metavar="GROUP=NAME", help="a choice, a section, or any override"
    )
    given = parser.parse_intermixed_args(arguments)
    own = _own(given.config_dir)
    from fastflow.config.assumptions import assumptions
    from fastflow.config.cards import figures
    from fastflow.config.composer import Composer
    from fastflow.config.library import hydra_rules
    from fastflow.reporting.terminal.library import show_card

    sections = [text for text in given.overrides if "=" not in text]
    overrides = [text for text in given.overrides if "=" in text]
    groups = [group for group in catalog.groups(own) if group != catalog.STUDIES]
    named = [text.lstrip("+").partition("=")[0].partition(".")[0] for text in overrides]
    asked = sections or list(dict.fromkeys(name for name in named if name in groups))
    with hydra_rules():
        composer = Composer.of_library(own, COMMAND_LINE)
        found = figures(composer, overrides)
        if not asked:
            raise InputError("show", " ".join(overrides), f"a choice in {one_of(groups)}", COMMAND_LINE)
        composition, cards = composer.compose(overrides), [_section(section, found) for section in asked]
        chosen, taken = composition.choices, assumptions(composer, composition)
        for section, card in zip(asked, cards, strict=True):
            group = section.partition(".")[0]
            choice = chosen.get(group, "")
            path = catalog.path_of(group, choice, own)
            words = [catalog.about(path)] if path else []
            words += [f"Assumed: {one}." for one in taken if f"{group}=" in one]
            if section == _CHIP:
                words += _made(overrides, found, own)
            show_card(f"{group}={choice}" + (f", {section}" if section != group else ""), words, card)


def _section(name: str, found: Sequence[Figure]) -> list[Figure]:
    """Return the figures of a group, a section of one, or a key; raises InputError where there are none."""
    of = [one for one in found if one.key == name or one.key.startswith(f"{name}.")]
    if of:
        return of
    known = {
        ".".join(names[:depth]) for one in found for names in [one.key.split(".")] for depth in range(1, 9)
    }
    allowed = f"a group, or a section or a key of one{suggestion(name, sorted(known))}"
    raise InputError("section", name, allowed, COMMAND_LINE)


def _made(overrides: Sequence[str], found: Sequence[Figure], own: Path | None) -> list[str]:
    """Return what a chip comes to, in lines: memory and links, and its rate in each data type."""
    from fastflow.api.notebook.calls import evaluate
    from fastflow.reporting.terminal.library import chip_lines

    dtypes = [one.key.removeprefix(_RATE) for one in found if one.key.startswith(_RATE)]
    of_products = ("model=gemm", "system.devices=1", "uncertainty=off")
    return chip_lines(evaluate(*overrides, *of_products, f"model.dtype={','.join(dtypes)}", config_dir=own))
