"""Runs the commands that Hydra composes, all but `report`."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fastflow.cli.argparse_commands import reader_gone
from fastflow.cli.arguments import (
    check_arguments,
    check_folders,
    is_plain,
    read_arguments,
    reading,
    without_rows,
)
from fastflow.cli.command import Command
from fastflow.cli.commands import COMMANDS
from fastflow.cli.run.grid import check_single
from fastflow.config.composer import Composer
from fastflow.config.file_cache import renaming_user_folders
from fastflow.config.hydra_errors import translated
from fastflow.config.library import PACKAGE, hydra_rules, library_root, use_plugins
from fastflow.config.messages import COMMAND_LINE, first_line, path_of, unwritable
from fastflow.core.errors import CompositionError, InputError
from fastflow.core.version import version
from fastflow.engine.grid.plan import check_path
from fastflow.performance import precompile
from fastflow.reporting.terminal.progress import Compiling

if TYPE_CHECKING:
    from argparse import Namespace

    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.config_loader import ConfigLoader
    from omegaconf import DictConfig, ListConfig


_MAX_SHOWN = 1000  # characters at either end of a line on a mistake


def main(command: Command) -> int:
    """Run `python -m fastflow.NAME`; returns the exit code: 0, or 2 after a mistake.

    A mistake is one line on standard error. Anything else that goes wrong keeps its traceback.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"  # or Hydra prints exceptions itself, and exits with 1
    if sys.modules["__main__"].__package__ == PACKAGE.name:  # this process runs fastflow alone
        atexit.register(gc.freeze)  # or the last garbage collection takes 0.2 s
    if "--version" in sys.argv[1:]:  # Hydra would print its version
        print(f"fastflow {version()}")
        return 0
    use_plugins()
    precompile.on_compile(Compiling())
    mistakes: list[InputError] = []
    try:
        arguments = read_arguments(command)
        check_arguments(arguments, command)
    except InputError as error:
        print(_shortened(str(error)), file=sys.stderr)
        return 2
    for_hydra = without_rows(arguments, command.config) if command.reads_rows else arguments
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", module=r"hydra\.")  # a warning of Hydra is a mistake
            planned = _planned(command, arguments) if is_plain(arguments) else None
            if planned is None:
                with reading(arguments, for_hydra), renaming_user_folders():
                    _run_by_hydra(command, arguments, mistakes)
        if planned is not None:
            try:
                planned()
            except InputError as error:
                mistakes.append(error)
    except KeyboardInterrupt as interrupt:
        print(f"interrupted; {str(interrupt) or 'no file is left'}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return reader_gone()
    except Exception as error:
        if not _is_mistake(error):
            raise
        mistakes.append(_explained(error, for_hydra, command.config))
    if not mistakes:
        return 0
    print(_shortened(str(mistakes[0])), file=sys.stderr)
    return 2


def _run_by_hydra(command: Command, arguments: Namespace, mistakes: list[InputError]) -> None:
    """Let Hydra compose a command line and run it; adds the mistakes of a point to the list."""

    def task(_: DictConfig) -> None:
        # raised from here, a mistake would make Hydra print lines of its own
        config = cast("DictConfig", HydraConfig.instance().cfg)
        try:
            if config.hydra.mode == RunMode.MULTIRUN:  # a job of a grid: ours has none
                choice = config.hydra.runtime.choices.get("hydra/sweeper")
                raise InputError("hydra/sweeper", choice, "fastflow, which makes one table of a grid")
            loader = GlobalHydra.instance().config_loader()
            run_from_hydra(loader, config, _model_overrides(arguments), None)
        except InputError as error:
            mistakes.append(error)

    start = hydra.main(
        config_path=str(library_root() / "conf"), config_name=command.config, version_base="1.3"
    )
    start(task)()


def _shortened(line: str) -> str:
    """Return a line for the screen; a long line is reduced to its beginning and its end."""
    return line if len(line) <= 2 * _MAX_SHOWN else f"{line[:_MAX_SHOWN]} ... {line[-_MAX_SHOWN:]}"


def _is_mistake(error: Exception) -> bool:
    """Say whether an exception is a user's mistake: an InputError, or any that Hydra raised alone.

    Where no code of fastflow ran after Hydra was called, only the user's input can be wrong.
    """
    if isinstance(error, HydraException | OmegaConfBaseException | YAMLError | InputError):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    frames_of_fastflow = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)]
    return frames_of_fastflow[-1].name == _run_by_hydra.__name__


def _explained(error: Exception, arguments: Namespace, primary: str) -> InputError:
    """Return the error to print for an exception that Hydra raised before fastflow's code ran."""
    try:
        composer = Composer.of_library(arguments.config_dir, COMMAND_LINE, arguments.config_name or primary)
        # most mistakes recur here, with messages of fastflow
        composition = composer.compose(_model_overrides(arguments))
        composer.resolved(composition)
        check_path("output", composition)
    except InputError as explained:
        return explained
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        return unwritable(path_of(Path(str(error.filename or "."))), error)
    if isinstance(error, HydraException | OmegaConfBaseException | YAMLError | ValueError | Warning):
        return translated(error, composer, arguments.overrides)
    reason = f"{type(error).__name__}: {first_line(error)}"
    return CompositionError(f"{' '.join(arguments.overrides)}: cannot be composed ({reason})")


def _model_overrides(arguments: Namespace) -> list[str]:
    """Return the overrides of a command line without those of Hydra's section."""
    return [text for text in arguments.overrides if not text.lstrip("+~").startswith("hydra")]


def _as_written(overrides: ListConfig) -> list[str]:
    """Return Hydra's list of overrides as written: interpolations in overrides are unresolved."""
    return cast("list[str]", OmegaConf.to_container(overrides, resolve=False))


def run_from_hydra(
    loader: ConfigLoader, config: DictConfig, overrides: Sequence[str], sweeper: Mapping[str, Any] | None
) -> None:
    """Run the command that Hydra composed, and print the results; raises InputError.

    config: as Hydra composed it, its node `hydra` included. sweeper: the section `hydra.sweeper`;
    None for one point.
    """
    hydra = config.hydra
    hydra_overrides = _as_written(config.hydra.overrides.hydra)
    check_folders(hydra_overrides, overrides, sweeper is not None)
    composer = Composer(cast("ConfigLoaderImpl", loader), hydra.job.config_name, hydra_overrides)
    if sweeper is None:
        check_single(composer, overrides)
    folder = path_of(Path(hydra.runtime.output_dir)) if sweeper is None else str(hydra.sweep.dir)
    # a user's primary configuration is for a sweep
    by_config = {command.config: command for command in COMMANDS.built_ins() if command.config}
    command = by_config.get(composer.config_name or "", COMMANDS["sweep"])
    if command.grid_refusal and sweeper is not None:
        raise CompositionError(command.grid_refusal)
    command.module().run(composer, overrides, sweeper, folder)


def _planned(command: Command, arguments: Namespace) -> Callable[[], None] | None:
    """Plan a plain command line without Hydra; None for others, and for mistakes, which Hydra meets too.

    Returns the function that runs it. Hydra would compose it three times more, with the same result.
    """
    if command.grid_refusal and arguments.multirun:
        return None
    try:
        with hydra_rules():
            composer = Composer.of_library(None, COMMAND_LINE, command.config)
            planned: Callable[[], None] | None = command.module().plan(composer, arguments)
    except InputError:
        return None
    return planned
