"""Where a calibrated chip may be written: a new file, or in place of an earlier calibration."""

from __future__ import annotations

from pathlib import Path

from fastflow.config.composer import Composer
from fastflow.config.library import is_user_file
from fastflow.core.errors import InputError
from fastflow.engine.dataset.folder import is_url
from fastflow.engine.grid.run import Run

FIRST_LINE = "# A calibration by python -m fastflow.calibrate."
"""Of every chip file that a calibration writes, which tells one from what else there may be."""


def default_output(chip: str) -> str:
    """Return the file that a calibration of a chip goes to."""
    stem = Path(chip).stem if is_user_file(chip) else chip
    return f"{stem}-calibrated.yaml"


def check_chip_output(composer: Composer, run: Run, where: str) -> None:
    """Refuse a file that is no chip's, that the chip is made of, or that something else is in; InputError.

    run: the plan of the chip's measurements.
    """
    path = Path(where)
    if is_url(where) or not is_user_file(where):
        raise InputError("output", where, "a file on this machine, NAME.yaml")
    made_of = [composer.file_of(default.config_path or "") for default in run.first.defaults]
    if path.resolve() in [Path(name).resolve() for name in made_of]:
        chip = run.first.choices["chip"]
        raise InputError("output", where, f"a file that chip {chip} does not use itself")
    if path.is_dir():
        raise InputError("output", where, "a file, and this is a folder")
    if path.exists():
        try:
            ours = path.read_bytes().startswith(FIRST_LINE.encode())
        except OSError:
            ours = False
        if not ours:
            raise InputError("output", where, "a new file or an earlier calibration; this file is neither")
