"""The command line of `python -m fastflow.requests`."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import yaml

from fastflow.cli.argparse_commands import Parser, exit_code
from fastflow.cli.command import Command
from fastflow.config.messages import COMMAND_LINE, one_of, suggestion
from fastflow.config.model_inputs import Scalar, convert_to
from fastflow.config.request_presets import NO_PRESET, PRESET, presets, read_preset
from fastflow.core.errors import InputError
from fastflow.core.version import version
from fastflow.schema.requests import DEFAULTS, GENERATED

OUTPUT = "output"
ENDINGS = (".csv", ".jsonl")
_COLUMNS = {column.name: column for column in GENERATED}
_ABOUT = """\
Generate a trace of requests, which serve.trace=FILE reads: sessions that arrive at random, their turns, and
the lengths of prompts and answers.
"""
_EXAMPLES = """\
examples:
  python -m fastflow.requests output=chats.csv sessions=1000 rate='2 1/s' turns=5 shared_prefix=1000
  python -m fastflow.requests output=day.csv sessions=100000 rate='1.2 1/s' peak_to_mean=1.8
  python -m fastflow.requests output=agents.csv turns=20 tool_share=0.9 tool_time='3 s' isl=300 osl=150
  python -m fastflow.requests output=azure.csv preset=azure_code rate='20 1/s'
"""


def _parser() -> argparse.ArgumentParser:
    keys = [f"  {column.name}={DEFAULTS[column.name]}".ljust(24) + column.meaning for column in GENERATED]
    names = [f"  {PRESET}={name}".ljust(28) + about for name, about in presets().items()]
    parser = Parser(
        prog="python -m fastflow.requests",
        description=_ABOUT,
        epilog="\n".join(
            ["keys and their defaults:", *keys, "", "presets, which set keys:", *names, "", _EXAMPLES]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "keys", metavar="KEY=VALUE", nargs="+", help="output=FILE.csv or FILE.jsonl, and the keys below"
    )
    parser.add_argument(
        "--version", action="version", version=f"fastflow {version()}", help="which fastflow this is"
    )
    return parser


def main(command: Command, arguments: Sequence[str] | None = None) -> int:
    """Generate the requests that a command line describes; returns the exit code: 0, or 2 after a mistake."""
    return exit_code(partial(_run, command, arguments))


def _run(command: Command, arguments: Sequence[str] | None) -> int:
    """Generate requests; returns 0. Raises InputError."""
    texts = _values(_parser().parse_args(arguments).keys)
    path = texts.pop(OUTPUT, "")
    if Path(path).suffix not in ENDINGS:
        raise InputError(
            OUTPUT, path or "nothing", f"a file whose name ends in {' or '.join(ENDINGS)}", COMMAND_LINE
        )
    preset = read_preset(texts.pop(PRESET)) if PRESET in texts else NO_PRESET
    given = {**DEFAULTS, **preset.values, **texts}
    values = {name: _convert(name, given[name]) for name in _COLUMNS}
    command.module().run(path, values, preset.published)
    return 0


def _values(keys: Sequence[str]) -> dict[str, str]:
    """Return the texts of keys; raises InputError."""
    values: dict[str, str] = {}
    for text in keys:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(text, "", "KEY=VALUE", COMMAND_LINE)
        known = (OUTPUT, PRESET, *_COLUMNS)
        if key not in known:
            raise InputError(key, value, one_of(known) + suggestion(key, known), COMMAND_LINE)
        if key in values:
            raise InputError(key, value, f"one value; {values[key]} is given too", COMMAND_LINE)
        values[key] = value
    return values


def _convert(name: str, value: str | int | float) -> Scalar:
    """Return the value of a key in its unit; raises InputError."""
    with contextlib.suppress(yaml.YAMLError):
        value = yaml.safe_load(value) if isinstance(value, str) else value
    return convert_to(_COLUMNS[name], name, value)
