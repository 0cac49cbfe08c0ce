"""A file of measurements that was read, and the points that predict its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fastflow.analysis.measurements.kind import KINDS, TIMED, Measurements, each_once
from fastflow.analysis.measurements.read import read_measurements
from fastflow.config.composer import Composer
from fastflow.config.messages import one_of
from fastflow.core.errors import InputError
from fastflow.engine.grid.run import Run, refuse_auto_devices, refuse_others

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override


class PlannedFile(NamedTuple):
    """A file that was read, and the points that predict it."""

    measurements: Measurements
    run: Run

    @property
    def where(self) -> str:
        """The chip, or the system of chips, that predicts the measurements."""
        chips, systems = (", ".join(each_once(self.run.grid.labels[group])) for group in ("chip", "system"))
        return f"{systems} of {chips}" if self.measurements.is_of_a_system else chips


def plan_file(composer: Composer, overrides: Sequence[str]) -> PlannedFile:
    """Read the file that a configuration names, and plan the points of its rows; raises InputError."""
    parsed = composer.parse(overrides)
    composition = composer.compose(_overrides_of_measurements(parsed))
    leaves = composition.leaves
    path, timed, device = (section_of(leaves, name) for name in ("measurements", "timed", "device"))
    origin = composer.origin_of_overrides
    if not isinstance(path, str) or not path:
        raise InputError("measurements", "null" if path is None else path, "a CSV file", origin)
    if timed is not None and timed not in TIMED:
        raise InputError("timed", timed, f"{one_of(TIMED)}, or null", origin)
    with composer.naming_origins(composition):
        for kind in KINDS.built_ins():
            kind.check_section(leaves)
    device = None if device is None else str(device)
    measurements = read_measurements(path, composer.is_group, leaves, timed, device, _command_line(parsed))
    run = measurements.plan(composer, overrides, parsed)
    refuse_others(run, "validate")
    refuse_auto_devices(run, "a row of measurements")
    return PlannedFile(measurements, run)


def section_of(leaves: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key in a configuration, None if it is not set; a section as a mapping."""
    section = {name[len(key) + 1 :]: value for name, value in leaves.items() if name.startswith(f"{key}.")}
    return section or leaves.get(key)


def _command_line(parsed: Sequence[Override]) -> dict[str, Any]:
    """Return groups and keys that overrides set, with their values; a mapping sets each of its keys."""
    settings: dict[str, Any] = {}
    for override in parsed:
        if not override.is_delete():
            value = None if override.is_sweep_override() else override.value()
            settings |= dict(_leaves(override.key_or_group, value))
    return settings


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keys that a value sets; none for a mapping without keys."""
    if not isinstance(value, dict):
        yield key, value
        return
    for name, part in value.items():
        yield from _leaves(f"{key}.{name}", part)


def _overrides_of_measurements(parsed: Sequence[Override]) -> list[str]:
    """Return the overrides of keys that concern measurements alone."""
    keys = {"measurements", "timed", "device", *(kind.section for kind in KINDS.built_ins() if kind.section)}
    return [override.input_line or "" for override in parsed if override.key_or_group.split(".")[0] in keys]
