"""Inputs of further kinds of dies: what `chip.chiplets.NAME.tech` chooses."""

from __future__ import annotations

from collections.abc import Mapping

from fastflow.config.composer import Composer
from fastflow.config.model_inputs import Scalar, convert
from fastflow.core.errors import InputError
from fastflow.physics.hardware.chiplets import CHIPLETS, OF_NODE, die_kinds


def is_choice(key: str) -> bool:
    """Say whether a key chooses the node of a kind of die."""
    return key.startswith(CHIPLETS) and key.endswith(".tech")


def with_chiplets(composer: Composer, inputs: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the inputs of a point with those of its kinds of dies that their nodes give; raises InputError.

    A node is as the library has it: overrides of `tech` are of the cores' dies. What the configuration gives
    of a kind itself stands.
    """
    extended = dict(inputs)
    for kind in die_kinds(inputs):  # type: ignore[arg-type]  # keys alone are read
        key = f"{CHIPLETS}{kind}.tech"
        name = inputs.get(key)
        if name is None:
            raise InputError(key, "nothing", "a choice of the group tech: the node of these dies")
        try:
            leaves = composer.compose([f"tech={name}"]).leaves
        except InputError as error:
            raise InputError(key, name, error.allowed) if error.key == "tech" else error from None
        for attribute, of_node in OF_NODE.items():
            extended.setdefault(f"{CHIPLETS}{kind}.{attribute}", convert(of_node, leaves[of_node]))
    return extended
