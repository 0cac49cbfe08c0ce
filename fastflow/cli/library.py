"""`fastflow list` and `fastflow show`: the choices of the library, and the figures of a choice."""

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
    "models": "model", "systems": "system", "servers": "server", "studies": catalog.SWEEPS,
}  # fmt: skip
"""Plural names of groups."""
_CHIP = "chip"
_CHIP_COLUMNS = {"node": "tech.name", "memory": "mem.name", "die": "chip.die_area", "power": "chip.tdp"}
"""Columns of the table of chips that are figures of their files, and the keys."""
_RATE = "chip.rate."
_WIDTH = 200  # characters of choices that a list of groups names: more than any terminal has


def _parser(name: str, about: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=f"fastflow {name}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config-dir", metavar="DIR", default=None, help="a folder with your own files")
    return parser


def _user_folder(folder: str | None) -> Path | None:
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
    options = parser.parse_intermixed_args(arguments)
    from fastflow.reporting.terminal import library as shown

    user_folder = _user_folder(options.config_dir)
    groups, defaults = catalog.groups(user_folder), catalog.default_choices(user_folder)
    if not options.group:
        choices = {group: catalog.choices(group, user_folder) for group in groups}
        shown.show_groups(
            (group, len(names), defaults.get(group, ""), ", ".join(names)[:_WIDTH])
            for group, names in choices.items()
        )
        return
    group = PLURALS.get(options.group, options.group)
    if group not in groups:
        from fastflow.config.renamed_keys import renamed_key

        group = renamed_key(group)
    if group not in groups:
        hint = suggestion(options.group, [*groups, *PLURALS])
        raise InputError("group", options.group, one_of(groups) + hint, COMMAND_LINE)
    if group == _CHIP:
        _list_chips(user_folder, defaults[_CHIP])
        return
    names = catalog.choices(group, user_folder)
    paths = [(name, catalog.path_of(group, name, user_folder)) for name in names]
    rows = [(name, catalog.first_sentence(catalog.about(path)) if path else "") for name, path in paths]
    shown.show_choices(group, defaults.get(group, ""), rows)


def _list_chips(user_folder: Path | None, default: str) -> None:
    """Print the chips with their main figures."""
    from fastflow.api.notebook.calls import evaluate
    from fastflow.config.composer import Composer
    from fastflow.config.library import hydra_rules
    from fastflow.reporting.terminal.library import show_chips

    names = catalog.choices(_CHIP, user_folder)
    of_products = ("model=gemm", "model.dtype=fp16", "system.devices=1", "uncertainty=off")
    frame = evaluate(f"chip={','.join(names)}", *of_products, config_dir=user_folder)
    with hydra_rules():
        composer = Composer.of_library(user_folder)
        leaves = [composer.compose([f"chip={name}"]).leaves for name in names]
    show_chips(
        frame, {title: [str(chip[key]) for chip in leaves] for title, key in _CHIP_COLUMNS.items()}, default
    )


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
    options = parser.parse_intermixed_args(arguments)
    user_folder = _user_folder(options.config_dir)
    from fastflow.config.assumptions import assumptions
    from fastflow.config.cards import figures
    from fastflow.config.composer import Composer
    from fastflow.config.library import hydra_rules
    from fastflow.config.renamed_keys import renamed_key, renamed_overrides
    from fastflow.reporting.terminal.library import show_card

    sections = [renamed_key(text) for text in options.overrides if "=" not in text]
    overrides = renamed_overrides(text for text in options.overrides if "=" in text)
    groups = [group for group in catalog.groups(user_folder) if group != catalog.SWEEPS]
    groups_of_overrides = [text.lstrip("+").partition("=")[0].partition(".")[0] for text in overrides]
    shown = sections or list(dict.fromkeys(name for name in groups_of_overrides if name in groups))
    with hydra_rules():
        composer = Composer.of_library(user_folder, COMMAND_LINE)
        all_figures = figures(composer, overrides)
        if not shown:
            raise InputError("show", " ".join(overrides), f"a choice in {one_of(groups)}", COMMAND_LINE)
        composition, cards = (
            composer.compose(overrides),
            [_section(section, all_figures) for section in shown],
        )
        choices, assumed = composition.choices, assumptions(composer, composition)
        for section, card in zip(shown, cards, strict=True):
            group = section.partition(".")[0]
            choice = choices.get(group, "")
            path = catalog.path_of(group, choice, user_folder)
            notes = [catalog.about(path)] if path else []
            notes += [f"Assumed: {assumption}." for assumption in assumed if f"{group}=" in assumption]
            if section == _CHIP:
                notes += _chip_lines(overrides, all_figures, user_folder)
            show_card(f"{group}={choice}" + (f", {section}" if section != group else ""), notes, card)


def _section(name: str, all_figures: Sequence[Figure]) -> list[Figure]:
    """Return the figures of a group, a section of one, or a key; raises InputError where there are none."""
    selected = [figure for figure in all_figures if figure.key == name or figure.key.startswith(f"{name}.")]
    if selected:
        return selected
    known = {
        ".".join(names[:depth])
        for figure in all_figures
        for names in [figure.key.split(".")]
        for depth in range(1, 9)
    }
    allowed = f"a group, or a section or a key of one{suggestion(name, sorted(known))}"
    raise InputError("section", name, allowed, COMMAND_LINE)


def _chip_lines(
    overrides: Sequence[str], all_figures: Sequence[Figure], user_folder: Path | None
) -> list[str]:
    """Return lines on a chip: memory and links, and its rate in each data type."""
    from fastflow.api.notebook.calls import evaluate
    from fastflow.reporting.terminal.library import chip_lines

    dtypes = [figure.key.removeprefix(_RATE) for figure in all_figures if figure.key.startswith(_RATE)]
    of_products = ("model=gemm", "system.devices=1", "uncertainty=off")
    return chip_lines(
        evaluate(*overrides, *of_products, f"model.dtype={','.join(dtypes)}", config_dir=user_folder)
    )
