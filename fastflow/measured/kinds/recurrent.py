"""Recurrent layers: up to three times a row of the file, forward and of either gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fastflow.columns import Column
from fastflow.configuration.inputs import convert_to, is_documentation
from fastflow.configuration.wording import one_of, suggestion
from fastflow.errors import InputError
from fastflow.measured.csv_file import Given
from fastflow.measured.kind import Measurements, Options, TimedRows, register
from fastflow.tables import Bools, Columns, Floats, Ints
from fastflow.timing.host import LayerHost, layer_call
from fastflow.units import show

_BLOCKS = "chip.blocks.vector"
_KEYS = {
    "call": Column("call", "float", "s", "", low=0.0, high=1.0),
    "gap": Column("gap", "float", "s", "", low=0.0, high=1.0),
    "gap_steps": Column("gap_steps", "int", "", "", low=0.0, high=1e12),
    "forward_only_above": Column("forward_only_above", "int", "", "", low=0.0, high=1e12),
    "forward_only_blocks": Column("forward_only_blocks", "str", "", ""),
}
"""Of the section `recurrent`, which docs/validation.md explains."""


@register
class RecurrentLayers(Measurements):
    """Recurrent layers, each one call of a library, however it was timed."""

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
    named_by = ("cell", "hidden", "timesteps", "batch", "dtype", "part")
    section = "recurrent"

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read which passes ran alone too; raises InputError."""
        super().__init__(rows, options)
        settings = _settings(options.leaves)
        self.settings = list(settings.values())
        self.host = LayerHost(settings["call"], settings["gap"], settings["gap_steps"])
        self.forward_only_above: int = settings["forward_only_above"]
        self.forward_only = self._forward_only()
        """Forward passes that run alone: on other blocks, and with a gap more in every step."""
        self.inputs["model.part"] = Given(self.part, np.ones(self.rows, dtype=np.bool_))
        blocks = settings["forward_only_blocks"]
        if self.forward_only.any() and blocks:
            self.inputs[_BLOCKS] = Given(np.full(self.rows, blocks), self.forward_only)

    def _forward_only(self) -> Bools:
        """Return which rows are forward passes without backward times in a file that has such columns.

        Only those of a larger batch than `recurrent.forward_only_above`. A file without the columns does not
        say how its forward passes ran.
        """
        file = self.file
        backward = [name for name, part in self.times.items() if part.startswith("backward")]
        if not any(name in file.frame for name in backward):
            return np.zeros(self.rows, dtype=np.bool_)
        with_backward = np.logical_or.reduce([file.filled(name) for name in backward])
        large = self.inputs["model.batch"].values > self.forward_only_above
        return np.asarray(~with_backward & large, dtype=np.bool_)

    @classmethod
    def check_section(cls, leaves: Mapping[str, Any]) -> None:
        """Check the section `recurrent`; raises InputError."""
        _settings(leaves)

    def with_host(self, rows: Ints, inputs: Columns, time: Floats) -> Floats:
        """Return the time that the host saw [s]."""
        steps = inputs["model.sequence"].astype(np.int64)
        return layer_call(self.host, time, self.part[rows], steps, self.forward_only[rows])

    def called(self, rows: Ints) -> Bools:
        """The call is the library's: `recurrent.call`."""
        return np.zeros(rows.size, dtype=np.bool_)

    def notes_of_times(self) -> list[str]:
        """Say what the host adds, and which passes run alone."""
        host, alone = self.host, int(self.forward_only.sum())
        call, gap = show(host.call, "s"), show(host.gap, "s")
        lines = [f"host: {call} a call, {gap} in each of the first {host.gap_steps:,} steps (recurrent.*)"]
        if alone:
            lines.append(
                f"of batches above {self.forward_only_above:,}, {alone:,} forward without backward: "
                f"recurrent.forward_only_blocks, {gap} more a step"
            )
        return lines

    def read_with(self) -> list[object]:
        """Return what results depend on beside the file and the configuration's inputs."""
        return [*super().read_with(), *self.settings]


def _settings(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Read the section `recurrent` among the leaves of a configuration; raises InputError.

    A key that is not there adds nothing.
    """
    found: dict[str, Any] = dict.fromkeys(_KEYS, 0) | {"call": 0.0, "gap": 0.0, "forward_only_blocks": ""}
    prefix = f"{RecurrentLayers.section}."
    for key, value in leaves.items():
        name = key.removeprefix(prefix)
        if not key.startswith(prefix) or is_documentation(key):
            continue
        if name not in _KEYS:
            raise InputError(key, value, f"{one_of(_KEYS)}{suggestion(name, _KEYS)}")
        found[name] = convert_to(_KEYS[name], key, value)
    _check_blocks(f"{prefix}forward_only_blocks", found["forward_only_blocks"])
    return found


def _check_blocks(key: str, blocks: str) -> None:
    """Refuse what is no list of block tiles; raises InputError."""
    from fastflow.timing.blocks import read_catalogue

    if not blocks:
        return
    try:
        read_catalogue(np.array([blocks]))
    except InputError as error:
        raise InputError(key, blocks, error.allowed) from None
