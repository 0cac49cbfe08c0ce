"""The functions of `import fastflow` whose answers a notebook shows, and whose progress it follows."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastflow.engine.run.progress import SILENT, Listener

if TYPE_CHECKING:
    import pandas as pd

    from fastflow.api.notebook.results import Backtest, Calibration, Search, Sensitivity, Validation

Where = str | os.PathLike[str] | None


def shell() -> Any:
    """Return the IPython that this code runs in, None where it does not."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


@contextmanager
def _listening() -> Iterator[Listener]:
    """Yield who hears of the progress of a call: a bar in a notebook, nobody elsewhere."""
    if not hasattr(shell(), "kernel"):
        yield SILENT
        return
    from fastflow.performance import precompile
    from fastflow.reporting.terminal.progress import Compiling, InNotebook

    precompile.tell(Compiling())
    with InNotebook() as progress:
        yield progress


def evaluate(*overrides: str, config_dir: Where = None) -> pd.DataFrame:
    """Predict the points that overrides span; see `fastflow.evaluate`."""
    from fastflow.api.functions import evaluate
    from fastflow.api.notebook.frames import Points

    with _listening() as listener:
        return Points.of(evaluate(*overrides, config_dir=config_dir, listener=listener))


def rank_strategies(*overrides: str, config_dir: Where = None) -> pd.DataFrame:
    """Predict a point under every strategy; see `fastflow.rank_strategies`."""
    from fastflow.api.functions import rank_strategies
    from fastflow.api.notebook.frames import Points

    with _listening():
        return Points.of(rank_strategies(*overrides, config_dir=config_dir))


def chances(*overrides: str, objective: str = "time_s", config_dir: Where = None) -> pd.DataFrame:
    """Say how likely each point is better than each other; see `fastflow.chances`."""
    from fastflow.analysis.pairwise import chances
    from fastflow.api.notebook.frames import Chances

    with _listening():
        return Chances.of(chances(*overrides, objective=objective, config_dir=config_dir))


def sweep(*overrides: str, output: Where = None, config_dir: Where = None) -> Path | str:
    """Predict the points that overrides span into a dataset; see `fastflow.sweep`."""
    from fastflow.api.functions import sweep

    with _listening() as listener:
        return sweep(*overrides, output=output, config_dir=config_dir, listener=listener)


def search(*overrides: str, output: Where = None, config_dir: Where = None) -> Search:
    """Search the best designs; see `fastflow.search`."""
    from fastflow.analysis.search.study import search
    from fastflow.api.notebook.results import Search

    with _listening() as listener:
        return Search(*search(*overrides, output=output, config_dir=config_dir, listener=listener))


def validate(*overrides: str, output: Where = None, config_dir: Where = None) -> Validation:
    """Predict the rows of a file of measurements; see `fastflow.validate`."""
    from fastflow.analysis.validation.study import validate
    from fastflow.api.notebook.results import Validation

    with _listening() as listener:
        return Validation(*validate(*overrides, output=output, config_dir=config_dir, listener=listener))


def calibrate(*overrides: str, output: Where = None, config_dir: Where = None) -> Calibration:
    """Fit the scalars of a chip to measurements; see `fastflow.calibrate`."""
    from fastflow.analysis.calibration.study import calibrate
    from fastflow.api.notebook.results import Calibration

    with _listening() as listener:
        return Calibration(*calibrate(*overrides, output=output, config_dir=config_dir, listener=listener))


def sensitivity(*overrides: str, output: Where = None, config_dir: Where = None) -> Sensitivity:
    """Say which figures a result hangs on; see `fastflow.sensitivity`."""
    from fastflow.analysis.sensitivity.study import sensitivity
    from fastflow.api.notebook.results import Sensitivity

    with _listening() as listener:
        return Sensitivity(*sensitivity(*overrides, output=output, config_dir=config_dir, listener=listener))


def backtest(*overrides: str, output: Where = None, config_dir: Where = None) -> Backtest:
    """Try the generator on chips that exist; see `fastflow.backtest`."""
    from fastflow.analysis.backtest.study import backtest
    from fastflow.api.notebook.results import Backtest

    with _listening() as listener:
        return Backtest(*backtest(*overrides, output=output, config_dir=config_dir, listener=listener))
