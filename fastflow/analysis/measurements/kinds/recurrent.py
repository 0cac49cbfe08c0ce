"""Recurrent layers: up to three times in a row of the file, forward and of both gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fastflow.analysis.measurements.csv_file import InputColumn
from fastflow.analysis.measurements.host_overhead import LayerHost, layer_call
from fastflow.analysis.measurements.kind import Measurements, Options, QuantityColumn, TimedRows, register
from fastflow.config.messages import one_of, suggestion
from fastflow.config.model_inputs import convert_to, is_documentation
from fastflow.core.errors import InputError
from fastflow.core.tables import Bools, Columns, Floats, Ints
from fastflow.core.units import show
from fastflow.schema import Column

_KEYS = {
    "call": Column("call", "float", "s", "", low=0.0, high=1.0),
    "gap": Column("gap", "float", "s", "", low=0.0, high=1.0),
    "gap_steps": Column("gap_steps", "int", "", "", low=0.0, high=1e12),
}
"""Keys of the section `recurrent` (docs/validation.md)."""


@register
class RecurrentLayers(Measurements):
    """Recurrent layers, each a single call of a library, however it was timed."""

    name = "recurrent layers"
    model = "rnn"
    needed = ("cell", "hidden", "batch", "timesteps")
    inputs_of_columns: ClassVar[Mapping[str, str]] = {
        "cell": "model.cell", "hidden": "model.hidden", "batch": "model.batch",
        "timesteps": "model.sequence", "dtype": "model.dtype",
    }  # fmt: skip
    times: ClassVar[Mapping[str, str]] = {
        "fwd_s": "forward", "bwd_inputs_s": "backward_inputs", "bwd_weights_s": "backward_weights",
    }  # fmt: skip
    quantities: ClassVar[Mapping[str, QuantityColumn]] = {}  # which pass draws the power is not said
    naming_keys = ("cell", "hidden", "timesteps", "batch", "dtype", "part")
    section = "recurrent"

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read the overheads of the host, too; raises InputError."""
        super().__init__(rows, options)
        settings = _settings(options.leaves)
        self.settings = list(settings.values())
        self.host = LayerHost(settings["call"], settings["gap"], settings["gap_steps"])
        self.inputs["model.part"] = InputColumn(self.part, np.ones(self.rows, dtype=np.bool_))

    @classmethod
    def check_section(cls, leaves: Mapping[str, Any]) -> None:
        """Check the section `recurrent`; raises InputError."""
        _settings(leaves)

    def add_host_time(self, rows: Ints, inputs: Columns, time: Floats) -> Floats:
        """Return times as measured on the host [s]."""
        steps = inputs["model.sequence"].astype(np.int64)
        return layer_call(self.host, time, self.part[rows], steps)

    def includes_call(self, rows: Ints) -> Bools:
        """Return False: the call is the library's, `recurrent.call`."""
        return np.zeros(rows.size, dtype=np.bool_)

    def notes_of_times(self) -> list[str]:
        """Return a note on the overheads of the host."""
        call, gap = show(self.host.call, "s"), show(self.host.gap, "s")
        steps = f"{self.host.gap_steps:,} steps (recurrent.*)"
        return [f"host: {call} a call, {gap} in each of the first {steps}"]

    def read_with(self) -> list[object]:
        """Return further values that results depend on, besides the file and the configuration's inputs."""
        return [*super().read_with(), *self.settings]


def _settings(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Read the section `recurrent` among the leaves of a configuration; raises InputError.

    Missing keys are 0.
    """
    settings: dict[str, Any] = dict.fromkeys(_KEYS, 0) | {"call": 0.0, "gap": 0.0}
    prefix = f"{RecurrentLayers.section}."
    for key, value in leaves.items():
        name = key.removeprefix(prefix)
        if not key.startswith(prefix) or is_documentation(key):
            continue
        if name not in _KEYS:
            raise InputError(key, value, f"{one_of(_KEYS)}{suggestion(name, _KEYS)}")
        settings[name] = convert_to(_KEYS[name], key, value)
    return settings
