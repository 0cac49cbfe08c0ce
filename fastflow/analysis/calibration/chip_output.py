"""Where a calibrated chip or server may be written: a new file, or in place of an earlier calibration."""

from __future__ import annotations

from pathlib import Path

from fastflow.config.composer import Composer
from fastflow.config.library import is_user_file
from fastflow.core.errors import InputError
from fastflow.engine.dataset.folder import is_url
from fastflow.engine.grid.run import Run

FIRST_LINE = "# A calibration by python -m fastflow.calibrate."
"""First line of every file that a calibration writes: it marks files that may be overwritten."""


def default_output(chip: str) -> str:
    """Return the default output file of the calibration of a chip, or of a server."""
    stem = Path(chip).stem if is_user_file(chip) else chip
    return f"{stem}-calibrated.yaml"


def check_output(composer: Composer, run: Run, where: str, group: str = "chip") -> None:
    """Refuse an output that is no YAML file, that the chip is composed of, or that holds something else.

    run: the plan of the chip's measurements; group: of what is calibrated. Raises InputError.
    """
    path = Path(where)
    if is_url(where) or not is_user_file(where):
        raise InputError("output", where, "a file on this machine, NAME.yaml")
    sources = [composer.file_of(default.config_path or "") for default in run.first.defaults]
    if path.resolve() in [Path(name).resolve() for name in sources]:
        choice = run.first.choices[group]
        raise InputError("output", where, f"a file that {group} {choice} does not use itself")
    if path.is_dir():
        raise InputError("output", where, "a file, and this is a folder")
    if path.exists():
        try:
            is_calibration = path.read_bytes().startswith(FIRST_LINE.encode())
        except OSError:
            is_calibration = False
        if not is_calibration:
            raise InputError("output", where, "a new file or an earlier calibration; this file is neither")
