"""The task of a server's calibration: the loads, the server that is measured, and the figures to fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastflow.analysis.benchmarks.read import KEY, read_runs
from fastflow.analysis.calibration.base_choice import BaseChoice, base_choice
from fastflow.analysis.calibration.robust_fit import Bounds
from fastflow.analysis.calibration.servers.replay import (
    ARRIVALS,
    Load,
    inputs_of,
    load_of,
    overrides_of,
    request_files,
)
from fastflow.analysis.calibration.task import LISTS, paths_of
from fastflow.analysis.measurements.plan import section_of
from fastflow.config.composer import Composer
from fastflow.config.hydra_composer import related
from fastflow.config.messages import one_of, suggestion
from fastflow.config.model_inputs import is_documentation
from fastflow.core.errors import InputError
from fastflow.core.tables import Columns, Floats
from fastflow.engine.grid.plan import plan
from fastflow.engine.grid.run import Run, refuse_auto_devices, refuse_others
from fastflow.physics.hardware.packages import DEVICES
from fastflow.physics.parallelism.strategy import AUTO

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

SERVER, CHIP_ONLY = "server", ("timed", "device")
STEP, STEP_REQUEST, REQUEST = "step_overhead", "step_overhead_per_request", "request_overhead"
_BOUNDS = {STEP: (1e-5, 0.1), STEP_REQUEST: (1e-7, 0.01), REQUEST: (1e-4, 10.0)}  # [s]
_STARTS = {STEP: 1e-3, STEP_REQUEST: 1e-4, REQUEST: 2e-2}  # [s], where the server's is 0
FIGURES = tuple(_BOUNDS)
"""Figures of a server's host that are fitted, as keys of the `server` section."""
_OF_LOADS = (
    "serve.isl", "serve.osl", "serve.length_range_ratio", "serve.lengths", "serve.concurrency",
    "serve.request_rate", "serve.num_requests", "serve.simulate", "serve.mode",
)  # fmt: skip
_STRATEGY, _KEYS = "parallel.strategy", (*LISTS, "arrivals")


class ServerTask(NamedTuple):
    """A server, its measured loads, and the figures to fit."""

    loads: list[Load]
    run: Run
    server: str  # the choice
    base: BaseChoice  # of the server's file
    overrides: dict[str, Any]  # other keys of the server that the overrides set, as written
    names: list[str]  # the figures to fit
    inputs: Columns  # of the model, (loads,)

    @property
    def where(self) -> str:
        """What was measured: the model, the chips, and the layout."""
        choices, devices = self.run.first.choices, int(self.inputs[DEVICES][0])
        strategy = str(self.inputs[_STRATEGY][0])
        layout = "" if strategy == AUTO else f", {strategy}"
        chips = f"{devices} x {choices['chip']}" if devices > 1 else choices["chip"]
        return f"{choices['model']} on {chips}{layout}"


def is_of_server(composer: Composer, overrides: Sequence[str]) -> bool:
    """Say whether overrides ask for the calibration of a server; raises InputError where for both kinds."""
    parsed = composer.parse(overrides)
    keys = {override.key_or_group: override for override in parsed if not override.is_delete()}
    if KEY not in keys or keys[KEY].value() is None:
        return False
    if "measurements" in keys and keys["measurements"].value() is not None:
        allowed = "null beside measurements=FILE.csv: a calibration is of a chip or of a server"
        raise InputError(KEY, _text(keys[KEY]), allowed, composer.origin_of_overrides)
    return True


@contextmanager
def planned_server(composer: Composer, overrides: Sequence[str]) -> Iterator[ServerTask]:
    """Read the files, and yield the plan of their loads; files of requests are removed at the end.

    Raises InputError.
    """
    parsed, origin = composer.parse(overrides), composer.origin_of_overrides
    _refuse_keys(parsed, origin)
    keys = [override.key_or_group for override in parsed]
    of_task = [text for text, key in zip(overrides, keys, strict=True) if key in _KEYS]
    others = [text for text, key in zip(overrides, keys, strict=True) if key not in _KEYS]
    leaves = composer.compose(of_task).leaves
    paths = paths_of(leaves, KEY, "one or more files of benchmarks, RESULT.json", origin)
    arrivals = leaves.get("arrivals")
    if arrivals is not None and arrivals not in ARRIVALS:
        raise InputError("arrivals", arrivals, f"null, or {one_of(ARRIVALS)}", origin)
    try:
        loads = [load_of(run, arrivals) for run in read_runs(paths, origin)]
    except InputError as error:
        raise error.replaced(origin=origin) if error.key and not error.origin else error from None
    names = _names(section_of(leaves, "fit"), origin)
    with request_files(loads) as files:
        run = plan(composer, [*others, *overrides_of(loads[0], files[0])])
        if run.grid.points != 1:
            raise InputError(run.grid.first_key, "several values", "one: this is of one server", origin)
        refuse_others(run, "calibrate")
        refuse_auto_devices(run, "a measured server")
        inputs = inputs_of(loads, files, run.grid.first_inputs())
        _refuse_auto(inputs, composer, run)
        server = run.first.choices[SERVER]
        yield ServerTask(
            loads,
            run,
            server,
            base_choice(SERVER, server),
            _server_overrides(parsed, run, origin),
            names,
            inputs,
        )


def bounds_of(names: Sequence[str]) -> Bounds:
    """Return the bounds of some figures [s]; a figure at its low bound is 0."""
    low, high = np.array([_BOUNDS[name] for name in names]).T
    return Bounds(low, high, np.zeros(low.size, dtype=np.bool_), np.zeros(low.size))


def starts_of(names: Sequence[str]) -> Floats:
    """Return what to begin with where a server's figure is 0 [s], (names,)."""
    return np.array([_STARTS[name] for name in names])


def _refuse_keys(parsed: Sequence[Override], origin: str) -> None:
    """Refuse keys that the runs say themselves, and those of a chip's calibration."""
    for override in parsed:
        key = override.key_or_group
        if key in _OF_LOADS or (key == "serve" and _text(override) != "continuous"):
            allowed = "no override: the files of requests= have the load, of servers with serve=continuous"
            raise InputError(key, _text(override), allowed, origin)
        if key in CHIP_ONLY and not override.is_delete() and override.value() is not None:
            raise InputError(key, _text(override), "null with requests=, which has no such rows", origin)


def _text(override: Override) -> str:
    """Return the value of an override as it was written."""
    return (override.input_line or "").partition("=")[2]


def _names(fit: Any, origin: str) -> list[str]:
    """Return the figures to fit, in order; raises InputError."""
    if fit is None:
        return list(FIGURES)
    named = [part.strip() for part in fit.split(",")] if isinstance(fit, str) else fit
    if not isinstance(named, list) or not named:
        raise InputError("fit", fit, f"null, or one or more of {', '.join(FIGURES)}", origin)
    names = [str(name).removeprefix(f"{SERVER}.") for name in named]
    for number, name in enumerate(names):
        if name not in FIGURES:
            raise InputError("fit", name, f"{one_of(FIGURES)}{suggestion(name, FIGURES)}", origin)
        if name in names[:number]:
            raise InputError("fit", name, "each figure once", origin)
    return [name for name in FIGURES if name in names]


def _refuse_auto(inputs: Columns, composer: Composer, run: Run) -> None:
    """Refuse `auto` for the layout of several devices: it is as measured."""
    if (inputs[_STRATEGY] == AUTO).any() and (inputs[DEVICES] > 1).any():
        allowed = "the layout of the measured server, such as TP-8"
        raise InputError(_STRATEGY, AUTO, allowed, composer.origin(_STRATEGY, run.first))


def _server_overrides(parsed: Sequence[Override], run: Run, origin: str) -> dict[str, Any]:
    """Return the keys of the server that overrides set, as written; raises InputError."""
    prefix = f"{SERVER}."
    overrides = [override for override in parsed if override.key_or_group.startswith(prefix)]
    for override in overrides:
        if override.is_delete():
            allowed = "a value, since a server's file cannot remove a key"
            raise InputError(f"~{override.key_or_group}", "removed", allowed, origin)
    return {
        key.removeprefix(prefix): value
        for key, value in run.first.leaves.items()
        if any(related(key, override.key_or_group) for override in overrides) and not is_documentation(key)
    }
