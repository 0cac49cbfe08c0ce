"""What a host and its library add to recurrent layers that were measured: the `recurrent` section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fastflow.columns import Column
from fastflow.configuration.inputs import convert_to, is_documentation
from fastflow.configuration.wording import one_of, suggestion
from fastflow.errors import InputError
from fastflow.tables import Bools, Floats, Ints, Texts


class Recurrent(NamedTuple):
    """A host and its library. A *gap* is the time that the device waits within a step."""

    call: float = 0.0  # of a layer's call [s]
    gap: float = 0.0  # [s]
    gap_steps: int = 0  # first steps of a pass that have one
    forward_only_above: int = 0  # batch above which a forward pass alone runs otherwise
    forward_only_blocks: str = ""  # block tiles that it then runs on; "": those of the chip

    def host_time(self, part: Texts, steps: Ints, alone: Bools) -> Floats:
        """Return what the host adds to parts of layers [s]; all of shape (rows,).

        steps: of the sequence; alone: a forward pass that runs otherwise, and has a gap in every step.
        """
        gaps = np.where(part == "backward_weights", 0, np.minimum(steps, self.gap_steps))
        return self.call + self.gap * (gaps + np.where(alone, steps, 0))


_COLUMNS = (
    Column("call", "float", "s", "", low=0.0),
    Column("gap", "float", "s", "", low=0.0),
    Column("gap_steps", "int", "", "", low=0.0, high=1e12),
    Column("forward_only_above", "int", "", "", low=0.0, high=1e12),
    Column("forward_only_blocks", "str", "", ""),
)
_SECTION = "recurrent."


def read_recurrent(leaves: Mapping[str, Any]) -> Recurrent:
    """Read the `recurrent` section among the leaves of a configuration; raises InputError."""
    columns = {column.name: column for column in _COLUMNS}
    found: dict[str, Any] = {}
    for key, value in leaves.items():
        name = key.removeprefix(_SECTION)
        if not key.startswith(_SECTION) or is_documentation(key):
            continue
        if name not in columns:
            raise InputError(key, value, f"{one_of(columns)}{suggestion(name, columns)}")
        found[name] = convert_to(columns[name], key, value)
    recurrent = Recurrent(**found)
    _check_blocks(recurrent.forward_only_blocks)
    return recurrent


def _check_blocks(blocks: str) -> None:
    """Refuse what is no list of block tiles; raises InputError."""
    from fastflow.timing.blocks import read_catalogue

    if not blocks:
        return
    try:
        read_catalogue(np.array([blocks]))
    except InputError as error:
        raise InputError(f"{_SECTION}forward_only_blocks", blocks, error.allowed) from None
