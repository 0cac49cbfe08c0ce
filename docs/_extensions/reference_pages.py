"""The pages of the reference that are made of the program: all keys, and what `--help` prints."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from unittest.mock import patch

from markdown_text import code, escaped, table

from fastflow import __main__
from fastflow.cli.commands import COMMANDS
from fastflow.config.cards import figures
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.schema import INPUTS, find_input

_OWN = ("list", "show")
"""Commands that only `fastflow` has, and that say what they are."""
_KEYS = """\
# Keys

Every key that a command line, a file or a Python call can set. `*` is a name that you choose, `l*` a level of
memory on the chip. The default is that of the usual choices (`tech=n12`, `mem=hbm2`, ...); other choices of
the [library](../../library.md) have their own. Keys without a default are of other choices, or optional.
"""
_OF_COMMANDS = """\
## Keys of the commands

These are no inputs of the model. They say what a command does; its `--help` explains them.
"""
_LINES = """\
# Command lines

What each command prints under `--help`. `fastflow NAME` is `python -m fastflow.NAME`.
"""


def page_of_keys() -> str:
    """Return the page of all keys: default, what is allowed, meaning."""
    with hydra_rules():
        found = {
            name: figures(Composer.of_library(config_name=command.config), [])
            for name, command in COMMANDS.items()
            if command.config
        }
    values = {figure.key: figure.value for figure in found["sweep"]}
    sections: dict[str, list[tuple[str, ...]]] = {}
    for column in INPUTS:
        default = values.get(column.name, "")
        if "*" in column.name:
            of_it = (value for key, value in values.items() if find_input(key) is column)
            default = ", ".join(dict.fromkeys(of_it))
        allowed = column.allowed() + (f"; or missing: {column.absent}" if column.absent else "")
        row = (code(column.name), escaped(default), escaped(allowed), escaped(column.meaning))
        sections.setdefault(column.name.partition(".")[0], []).append(row)
    lines = [_KEYS]
    for section, rows in sections.items():
        lines += [f"## {section}", "", *table(("key", "default", "allowed", "meaning"), rows)]
    lines.append(_OF_COMMANDS)
    shown: set[str] = set()
    for name, of_it in found.items():
        own = {one.key: one.value for one in of_it if one.key not in shown and find_input(one.key) is None}
        shown |= own.keys()
        title = f"{name}, and all others" if name == "sweep" else name
        rows = [(code(key), escaped(value)) for key, value in own.items()]
        lines += [f"### {title}", "", *table(("key", "default"), rows)]
    return "\n".join(lines)


def page_of_command_lines() -> str:
    """Return the page of what every command says of itself."""
    lines = [_LINES]
    for name, text in _help_texts().items():
        lines += [f"## {name}", "", "```text", text.strip("\n"), "```", ""]
    return "\n".join(lines)


def _help_texts() -> dict[str, str]:
    """Return what commands print under `--help`, by command."""
    asked: dict[str, Callable[[], object]] = {
        "": partial(__main__.main, ["--help"]),
        **{name: command.main for name, command in COMMANDS.items()},
        **{name: partial(__main__.main, [name, "--help"]) for name in _OWN},
    }
    texts = {}
    for name, run in asked.items():
        with patch.object(sys, "argv", [f"python -m fastflow.{name}", "--help"]):
            texts[f"fastflow {name}".strip()] = _printed(run)
    return texts


def _printed(run: Callable[[], object]) -> str:
    """Return what a command prints before it ends."""
    out = io.StringIO()
    with redirect_stdout(out):
        try:
            code_ = run()
        except SystemExit as end:
            code_ = end.code
    if code_:
        raise RuntimeError(f"a command's --help ended with {code_}")
    return out.getvalue()
