"""What `system.devices=auto` implies: the best layout, and servers that hold the requests of the load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastflow.config.hydra_composer import Composition
from fastflow.config.messages import sets
from fastflow.config.model_inputs import Scalar
from fastflow.physics.hardware.packages import DEVICES
from fastflow.physics.parallelism.strategy import AUTO

_STRATEGY, _OF_MODEL = "parallel.strategy", "model.strategy"
_RESIDENT, CONCURRENCY = "serve.resident_requests", "serve.concurrency"


def with_auto_devices(
    composition: Composition, overrides: Sequence[str], inputs: Mapping[str, Scalar]
) -> dict[str, Scalar]:
    """Return inputs with what a number of devices that is `auto` implies for keys that nobody has set.

    The strategy is `auto`. Servers hold `serve.concurrency` requests at once where the user sets it.
    """
    if inputs.get(DEVICES) != 0:
        return dict(inputs)
    implied: dict[str, Scalar] = {}
    is_default = composition.leaves.get(_STRATEGY) == f"${{{_OF_MODEL}}}"
    if is_default and not sets(overrides, _OF_MODEL):
        implied[_STRATEGY] = AUTO
    if inputs.get(_RESIDENT) == 0 and sets(overrides, CONCURRENCY):
        implied[_RESIDENT] = inputs[CONCURRENCY]
    return dict(inputs) | implied
