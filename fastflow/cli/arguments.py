"""A command line before Hydra has it: read as Hydra will, and refused where Hydra would pass over it."""

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
from fastflow.config.composer import Composer
from fastflow.config.list_keys import as_lists, as_one_value
from fastflow.config.messages import COMMAND_LINE, key_of
from fastflow.core.errors import CompositionError, InputError
from fastflow.engine.grid.overrides import STUDIES

if TYPE_CHECKING:
    from collections.abc import Sequence

_SPLIT = re.compile(r"unrecognized arguments: (?!-)(.*)")
_NOWHERE = re.compile(
    r"""~output(=.*)?|\+{0,2}(output|hydra\.(?:run|sweep)\.dir)=\s*(?:null|''|"")?\s*""", re.DOTALL
)
_LOG = re.compile(r"\+{0,2}hydra/job_logging=(.*)")
_SWEEPER = re.compile(r"\+{0,2}hydra/sweeper=(.*)")
_QUIET = ("none", "disabled", "stdout")  # of Hydra's choices those that write no file
_MULTIRUN = ("-m", "--multirun")
_OWN_WORDS = ("hydra", ".yaml")
"""Of overrides that choose what may speak to Hydra itself."""
_HYDRA_ANSWERS = ("cfg", "info", "help", "hydra_help", "shell_completion", "resolve", "multirun")
"""Switches after which nothing of ours runs, and that of a grid, which has no rows of a file."""
_SECTION = "output"
"""What every primary configuration that is made of ours has."""


def read_arguments(command: Command) -> Namespace:
    """Read the command line of a command as Hydra will; raises InputError."""
    complaint = io.StringIO()
    sys.argv[1:] = as_lists(as_one_value(sys.argv[1:]), command.lists)
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
            f"{split.group(1)}: stands after a switch, with overrides before it; {_order(command.name)}"
        )
    raise CompositionError(f"{reason}; see {spoken(command.name)} --help")


def spoken(name: str) -> str:
    """Return how a command was called: `fastflow sweep`, or `python -m fastflow.sweep`."""
    by_one_name = f"fastflow {name}"
    return by_one_name if sys.argv[0] == by_one_name else f"python -m fastflow.{name}"


def _order(name: str) -> str:
    """Say where switches stand: the line as it should be, where -m is the only one."""
    given = [text for text in sys.argv[1:] if text not in _MULTIRUN]
    if any(text.startswith("-") for text in given):
        return f"all switches come first: {spoken(name)} -m --config-dir mine tech=n7 ..."
    return f"-m comes first: {spoken(name)} -m {shlex.join(given)}"


def check_arguments(arguments: Namespace, command: Command) -> None:
    """Refuse what Hydra would pass over, or leave files for, before it does; raises InputError."""
    if arguments.config_dir == "":
        raise InputError("--config-dir", "", "a folder that exists", COMMAND_LINE)
    if arguments.package is not None and not arguments.cfg:
        raise InputError("--package", arguments.package, "given with --cfg, which it narrows", COMMAND_LINE)
    # Hydra's own folder follows `output`, and cannot be nothing
    for text in arguments.overrides:
        nowhere = _NOWHERE.fullmatch(text)
        if nowhere is not None:
            what = "a file, NAME.yaml" if command.name == "calibrate" else "a folder"
            raise InputError(nowhere.group(2) or "output", "null", what, COMMAND_LINE)
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
    """Say whether a command line holds but -m, choices of the library and leaves: nothing of Hydra's own.

    A study says to Hydra that it is a grid; with -m the command line says so itself.
    """
    if STUDIES in map(key_of, arguments.overrides) and not arguments.multirun:
        return False
    given = vars(arguments)
    switches = any(given[name] for name in given if name not in ("overrides", "multirun"))
    return not switches and not any(word in text for text in given["overrides"] for word in _OWN_WORDS)


def without_rows(arguments: Namespace, primary: str) -> Namespace:
    """Return a command line that Hydra composes without the file whose rows choose models and systems.

    A leaf may be there with the choice of a row alone, so each is added where Hydra has none; whether there
    is one, and one value, is checked with the rows' choices. All stays as it is where only Hydra answers.
    """
    if any(value for name, value in vars(arguments).items() if name in _HYDRA_ANSWERS):
        return arguments
    try:
        composer = Composer.of_library(arguments.config_dir or None, COMMAND_LINE, primary)
        parsed = composer.parse(arguments.overrides)
    except InputError:  # which Hydra comes upon too
        return arguments
    kept: list[str] = []
    for override, text in zip(parsed, arguments.overrides, strict=True):
        is_group = composer.is_group(override.key_or_group)
        several = override.is_sweep_override()
        if override.is_hydra_override() or (is_group and not several and isinstance(override.value(), str)):
            kept.append(text)
        elif not is_group and not several and not override.is_delete():
            kept.append(f"++{text.lstrip('+')}")
    return Namespace(**{**vars(arguments), "overrides": kept})


@contextmanager
def reading(given: Namespace, kept: Namespace) -> Iterator[None]:
    """Have Hydra read other overrides than a command line has."""
    before = list(sys.argv)
    if kept is not given:
        sys.argv[:] = [*(text for text in before if text not in given.overrides), *kept.overrides]
    try:
        yield
    finally:
        sys.argv[:] = before


def _check_primary(arguments: Namespace) -> None:
    """Refuse a primary configuration that says nothing of what a run needs, as a choice of a group does."""
    composer = Composer.of_library(arguments.config_dir or None, COMMAND_LINE, arguments.config_name)
    leaves = composer.compose([]).leaves
    if _SECTION not in leaves:
        allowed = "config, or a file of yours whose defaults begin with it"
        raise InputError("--config-name", arguments.config_name, allowed, COMMAND_LINE)


def check_folders(own: Sequence[str], overrides: Sequence[str], is_grid: bool) -> None:
    """Refuse a folder of Hydra's that goes round `output`, or that nothing goes to; raises InputError.

    own: the overrides of Hydra's section; overrides: the others.
    """
    given = {key_of(text): text.partition("=")[2] for text in own}
    followed, other = ("sweep", "run") if is_grid else ("run", "sweep")
    if f"hydra.{other}.dir" in given:
        allowed = f"output=DIR, or hydra.{followed}.dir: this run does not follow hydra.{other}.dir"
        raise InputError(f"hydra.{other}.dir", given[f"hydra.{other}.dir"], allowed, COMMAND_LINE)
    outputs = [text for text in overrides if key_of(text) == "output"]
    if f"hydra.{followed}.dir" in given and outputs:
        allowed = f"only one of it and {outputs[-1]}, which both say where the dataset goes"
        raise InputError(f"hydra.{followed}.dir", given[f"hydra.{followed}.dir"], allowed, COMMAND_LINE)
