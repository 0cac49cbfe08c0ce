"""Entry of `python -m fastflow.sweep`, `.search`, `.validate`, `.calibrate`, run by Hydra."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fastflow.cli.point import run_point
from fastflow.cli.sweep import check_single, run_grid
from fastflow.configuration.composer import Composer
from fastflow.configuration.hydra_composer import COMMAND_LINE
from fastflow.configuration.library import PACKAGE, library_root, use_plugins
from fastflow.configuration.refusals import translated
from fastflow.configuration.wording import path_of, unwritable
from fastflow.dataset.folder import is_url
from fastflow.errors import InputError
from fastflow.grid.plan import plan
from fastflow.grid.run import explaining

if TYPE_CHECKING:
    from argparse import Namespace

    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.config_loader import ConfigLoader
    from omegaconf import DictConfig, ListConfig


PRIMARY = {"sweep": "config", "search": "search", "validate": "validate", "calibrate": "calibrate"}
"""The primary configuration of each command."""


def run_application(name: str = "sweep") -> int:
    """Run `python -m fastflow.sweep`, or another command; returns the exit code: 0, or 2 after a mistake.

    A mistake is one line on standard error. Anything else that goes wrong keeps its traceback.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"  # or Hydra prints exceptions itself, and exits with 1
    use_plugins()
    arguments = _arguments(name)
    if arguments is None:
        return 2
    # Hydra's own folder follows `output`, and cannot be nothing
    if {"output=", "output=null"} & set(arguments.overrides):
        what = "a file, NAME.yaml" if name == "calibrate" else "a folder"
        print(InputError("output", "null", what, COMMAND_LINE), file=sys.stderr)
        return 2
    mistakes: list[InputError] = []

    def task(_: DictConfig) -> None:
        # raised from here, a mistake would make Hydra print lines of its own
        config = cast("DictConfig", HydraConfig.instance().cfg)
        try:
            loader = GlobalHydra.instance().config_loader()
            run_from_hydra(loader, config, _texts(config.hydra.overrides.task), None)
        except InputError as error:
            mistakes.append(error)

    try:
        hydra.main(config_path=str(library_root() / "conf"), config_name=PRIMARY[name], version_base="1.3")(
            task
        )()
    except KeyboardInterrupt as interrupt:
        print(f"interrupted; {str(interrupt) or 'no file is left'}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output, `head` say, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if not _is_mistake(error):
            raise
        mistakes.append(_mistake(error, arguments, PRIMARY[name]))
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    return 2 if mistakes else 0


def _arguments(name: str) -> Namespace | None:
    """Read the command line as Hydra will; None, after one line of complaint, where it cannot be read."""
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            return get_args_parser().parse_args()
    except SystemExit as stop:
        if not stop.code:
            raise
    reason = complaint.getvalue().strip().rpartition("error: ")[2]
    print(f"{reason}; see python -m fastflow.{name} --help", file=sys.stderr)
    return None


def _is_mistake(error: Exception) -> bool:
    """Say whether an exception is the user's: ours and Hydra's own, and of Python's those raised in Hydra."""
    if isinstance(error, HydraException | OmegaConfBaseException | YAMLError | InputError):
        return True
    # Hydra's own frames, or the standard library's that it calls
    last = traceback.extract_tb(error.__traceback__)[-3:]
    in_hydra = any(f"{os.sep}hydra{os.sep}" in frame.filename for frame in last)
    in_fastflow = any(Path(frame.filename).is_relative_to(PACKAGE) for frame in last)
    return isinstance(error, ValueError | OSError) and in_hydra and not in_fastflow


def _mistake(error: Exception, arguments: Namespace, primary: str) -> InputError:
    """Return what to say of an exception that Hydra raised before our own code had its turn."""
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        return unwritable(path_of(Path(error.filename or ".")), error)
    try:
        composer = Composer.of_library(arguments.config_dir, COMMAND_LINE, arguments.config_name or primary)
        # most mistakes show again here, where our own words are found for them
        composer.compose([text for text in arguments.overrides if not text.lstrip("+~").startswith("hydra")])
    except InputError as own:
        return own
    return translated(error, composer, arguments.overrides)


def _texts(overrides: ListConfig) -> list[str]:
    """Return Hydra's list of overrides as written: an interpolation in one of them is not its own."""
    return cast("list[str]", OmegaConf.to_container(overrides, resolve=False))


def run_from_hydra(
    loader: ConfigLoader, config: DictConfig, overrides: Sequence[str], sweeper: Mapping[str, Any] | None
) -> None:
    """Run what Hydra was asked for, and print the results; raises InputError.

    config: as Hydra composed it, its own node included. sweeper: what `hydra.sweeper` says;
    None for one point.
    """
    hydra = config.hydra
    own = _texts(config.hydra.overrides.hydra)
    composer = Composer(cast("ConfigLoaderImpl", loader), hydra.job.config_name, own)
    if sweeper is None:
        check_single(composer, overrides)
    folder = path_of(Path(hydra.runtime.output_dir)) if sweeper is None else str(hydra.sweep.dir)
    if hydra.job.config_name == PRIMARY["validate"]:
        from fastflow.cli.validate import run_validation

        run_validation(composer, overrides, sweeper, folder)
        return
    if hydra.job.config_name == PRIMARY["calibrate"]:
        from fastflow.cli.calibrate import run_calibration

        run_calibration(composer, overrides, sweeper)
        return
    planned = plan(composer, overrides, sweeper or {}, lambda line: print(line, file=sys.stderr, flush=True))
    output = planned.output if is_url(planned.output) else folder  # Hydra takes a URL for a path
    with explaining(composer, planned):
        if hydra.job.config_name == PRIMARY["search"]:
            from fastflow.cli.search import run_search

            run_search(composer, overrides, planned, sweeper, output)
        elif sweeper is None:
            if planned.grid.report:
                raise InputError(
                    "report", planned.grid.report, "null for one point; only a grid (-m) is a study"
                )
            run_point(composer, overrides, planned, output)
        else:
            run_grid(planned, output)
