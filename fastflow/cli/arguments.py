"""A command line before Hydra runs: parsed as Hydra does, and refused where Hydra would ignore a mistake."""

from __future__ import annotations

import io
import re
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING

from hydra._internal.utils import get_args_parser

from fastflow.cli.command import Command
from fastflow.config.catalog import SWEEPS
from fastflow.config.composer import Composer
from fastflow.config.list_keys import as_lists, quote_columns
from fastflow.config.messages import COMMAND_LINE, key_of
from fastflow.config.renamed_keys import renamed_overrides
from fastflow.core.errors import CompositionError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SPLIT = re.compile(r"unrecognized arguments: (?!-)(.*)")
_EMPTY_OUTPUT = re.compile(
    r"""~output(=.*)?|\+{0,2}(output|hydra\.(?:run|sweep)\.dir)=\s*(?:null|''|"")?\s*""", re.DOTALL
)
_LOG = re.compile(r"\+{0,2}hydra/job_logging=(.*)")
_SWEEPER = re.compile(r"\+{0,2}hydra/sweeper=(.*)")
_QUIET = ("none", "disabled", "stdout")  # of Hydra's choices those that write no file
_MULTIRUN = ("-m", "--multirun")
_HYDRA_WORDS = ("hydra", ".yaml")
"""Parts of overrides that may concern Hydra itself."""
_HYDRA_ANSWERS = ("cfg", "info", "help", "hydra_help", "shell_completion", "resolve", "multirun")
"""Switches that Hydra answers alone, and that of a grid, which has no file of rows."""
_SECTION = "output"
"""A section that every primary configuration of fastflow has."""


def read_arguments(command: Command) -> Namespace:
    """Read the command line of a command as Hydra will; raises InputError."""
    complaint = io.StringIO()
    sys.argv[1:] = as_lists(quote_columns(renamed_overrides(sys.argv[1:])), command.lists)
    try:
        with redirect_stderr(complaint):
            return get_args_parser().parse_args()
    except SystemExit as stop:
        if not stop.code:
            raise
    reason = complaint.getvalue().strip().rpartition("error: ")[2]
    split = _SPLIT.fullmatch(reason)
    if split is not None:
        raise CompositionError(
            f"{split.group(1)}: stands after a switch, with overrides before it; "
            f"{_switch_order(command.name)}"
        )
    raise CompositionError(f"{reason}; see {typed_command(command.name)} --help")


def typed_command(name: str) -> str:
    """Return how a command was called: `fastflow sweep`, or `python -m fastflow.sweep`."""
    short = f"fastflow {name}"
    return short if sys.argv[0] == short else f"python -m fastflow.{name}"


def _switch_order(name: str) -> str:
    """Return where switches belong; the corrected line where -m is the only switch."""
    arguments = [text for text in sys.argv[1:] if text not in _MULTIRUN]
    if any(text.startswith("-") for text in arguments):
        return f"all switches come first: {typed_command(name)} -m --config-dir mine tech=n7 ..."
    return f"-m comes first: {typed_command(name)} -m {shlex.join(arguments)}"


def check_arguments(arguments: Namespace, command: Command) -> None:
    """Refuse mistakes that Hydra would ignore, or write files for; raises InputError."""
    if arguments.config_dir == "":
        raise InputError("--config-dir", "", "a folder that exists", COMMAND_LINE)
    if arguments.package is not None and not arguments.cfg:
        raise InputError("--package", arguments.package, "given with --cfg, which it narrows", COMMAND_LINE)
    # Hydra's own folder follows `output`, and cannot be nothing
    for text in arguments.overrides:
        empty_output = _EMPTY_OUTPUT.fullmatch(text)
        if empty_output is not None:
            allowed_output = "a file, NAME.yaml" if command.name == "calibrate" else "a folder"
            raise InputError(empty_output.group(2) or "output", "null", allowed_output, COMMAND_LINE)
        sweeper = _SWEEPER.fullmatch(text)
        if sweeper is not None and sweeper.group(1) != "fastflow":
            allowed = "fastflow, which makes one table of a grid"
            raise InputError("hydra/sweeper", sweeper.group(1), allowed, COMMAND_LINE)
        log = _LOG.fullmatch(text)
        if log is not None and log.group(1) not in _QUIET:
            allowed = f"one of {', '.join(_QUIET)}: a log file beside Parquet parts is no part of the dataset"
            raise InputError("hydra/job_logging", log.group(1), allowed, COMMAND_LINE)
    if arguments.config_name not in (None, command.config):
        _check_primary(arguments)


def is_plain(arguments: Namespace) -> bool:
    """Say whether a command line has only -m, choices of the library and leaves, and nothing for Hydra.

    A study says to Hydra that it is a grid; with -m the command line says so itself.
    """
    if SWEEPS in map(key_of, arguments.overrides) and not arguments.multirun:
        return False
    values = vars(arguments)
    switches = any(values[name] for name in values if name not in ("overrides", "multirun"))
    return not switches and not any(word in text for text in values["overrides"] for word in _HYDRA_WORDS)


def without_rows(arguments: Namespace, primary: str) -> Namespace:
    """Return a command line that Hydra composes without the file whose rows choose models and systems.

    A leaf may exist with the choice of a row alone, so each is added where Hydra has none. Leaves and their
    values are checked with the rows' choices. The command line is unchanged where only Hydra answers.
    """
    if any(value for name, value in vars(arguments).items() if name in _HYDRA_ANSWERS):
        return arguments
    try:
        composer = Composer.of_library(arguments.config_dir or None, COMMAND_LINE, primary)
        parsed = composer.parse(arguments.overrides)
    except InputError:  # which Hydra raises too
        return arguments
    kept: list[str] = []
    for override, text in zip(parsed, arguments.overrides, strict=True):
        is_group = composer.is_group(override.key_or_group)
        is_sweep = override.is_sweep_override()
        if override.is_hydra_override() or (is_group and not is_sweep and isinstance(override.value(), str)):
            kept.append(text)
        elif not is_group and not is_sweep and not override.is_delete():
            kept.append(f"++{text.lstrip('+')}")
    return Namespace(**{**vars(arguments), "overrides": kept})


@contextmanager
def reading(typed: Namespace, replaced: Namespace) -> Iterator[None]:
    """Replace the overrides of the command line inside."""
    before = list(sys.argv)
    if replaced is not typed:
        sys.argv[:] = [*(text for text in before if text not in typed.overrides), *replaced.overrides]
    try:
        yield
    finally:
        sys.argv[:] = before


def _check_primary(arguments: Namespace) -> None:
    """Refuse a primary configuration without the section of a run, such as a choice of a group."""
    composer = Composer.of_library(arguments.config_dir or None, COMMAND_LINE, arguments.config_name)
    leaves = composer.compose([]).leaves
    if _SECTION not in leaves:
        allowed = "config, or a file of yours whose defaults begin with it"
        raise InputError("--config-name", arguments.config_name, allowed, COMMAND_LINE)


def check_folders(hydra_overrides: Sequence[str], overrides: Sequence[str], is_grid: bool) -> None:
    """Refuse a folder of Hydra that bypasses `output`, or that has no effect; raises InputError.

    hydra_overrides: the overrides of Hydra's section; overrides: the others.
    """
    hydra_values = {key_of(text): text.partition("=")[2] for text in hydra_overrides}
    followed, other = ("sweep", "run") if is_grid else ("run", "sweep")
    if f"hydra.{other}.dir" in hydra_values:
        allowed = f"output=DIR, or hydra.{followed}.dir: this run does not follow hydra.{other}.dir"
        raise InputError(f"hydra.{other}.dir", hydra_values[f"hydra.{other}.dir"], allowed, COMMAND_LINE)
    outputs = [text for text in overrides if key_of(text) == "output"]
    if f"hydra.{followed}.dir" in hydra_values and outputs:
        allowed = f"only one of it and {outputs[-1]}, which both say where the dataset goes"
        raise InputError(
            f"hydra.{followed}.dir", hydra_values[f"hydra.{followed}.dir"], allowed, COMMAND_LINE
        )
