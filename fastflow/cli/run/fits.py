"""`python -m fastflow.fits`: says on how few devices a model fits, as given and in ways that save memory."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fastflow.config.composer import Composer


def run(composer: Composer, overrides: Sequence[str], sweeper: Mapping[str, Any] | None, folder: str) -> None:
    """Answer what Hydra composed; raises InputError."""
    answer(composer, overrides)


def plan(composer: Composer, arguments: Namespace) -> Callable[[], None] | None:
    """Plan a command line; returns what answers it. Raises InputError."""
    return partial(answer, composer, arguments.overrides)


def answer(composer: Composer, overrides: Sequence[str]) -> None:
    """Print the ways of a point; raises InputError."""
    from fastflow.analysis.fits.study import fits
    from fastflow.reporting.terminal.fits import show
    from fastflow.reporting.terminal.progress import Progress

    with Progress() as progress:
        result = fits(composer, overrides, progress)
    show(result)
    sys.stdout.flush()
