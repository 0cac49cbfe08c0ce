"""The least number of devices on which a model trains or serves: `system.devices=auto`.

Numbers are tried from few to many (`no_fit.device_counts`): parts of a package, then 1, 2, 3, 4, 6, 8, ...
packages. The first that has a layout which fits the memory of its devices is the least. Memory of layouts is
computed without their collectives. Numbers whose devices together have less memory than weights and
optimizer state take are not tried.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.errors import InputError
from fastflow.core.tables import Bools, Columns, Inputs, take
from fastflow.performance.auto import rank, serving
from fastflow.performance.auto.no_fit import device_counts
from fastflow.performance.crossflow import predict
from fastflow.performance.serving import is_serving
from fastflow.performance.serving.disaggregated.predict import is_disaggregated
from fastflow.performance.serving.predict import serve
from fastflow.physics.hardware.packages import DEVICES, PACKAGE
from fastflow.physics.parallelism.bounds import KEY as BOUNDS
from fastflow.physics.parallelism.candidates import STRATEGY
from fastflow.physics.parallelism.strategy import AUTO

AUTO_DEVICES = 0
"""The number that `system.devices=auto` is read as."""
_ROUNDING = 1e-6  # of sums of sizes
_CLOSER = 0.99  # of the memory that fewer devices need: more devices that need less are shown


class LeastDevices(NamedTuple):
    """The least number of devices of a point."""

    devices: int  # where none fits, the number whose layouts need least of a device's memory
    fits: bool


def resolve_devices(inputs: Inputs, rehearsed: bool = False) -> tuple[Inputs, Bools]:
    """Return inputs with the least number of devices for `auto`, and where no number fits; (points,).

    rehearsed: any number will do. Raises InputError as the model does, and where a strategy is not `auto`.
    """
    is_auto = inputs[DEVICES] == AUTO_DEVICES
    none_fits = np.zeros(is_auto.size, dtype=np.bool_)
    if not is_auto.any():
        return inputs, none_fits
    rows = np.flatnonzero(is_auto)
    auto = take(dict(inputs), rows)
    for strategy in auto[STRATEGY][auto[STRATEGY] != AUTO][:1].tolist():
        allowed = f"{AUTO} where {DEVICES}={AUTO}; or a number of devices beside it"
        raise InputError(STRATEGY, strategy, allowed, conflicts=[(DEVICES, AUTO)])
    first, inverse = unique_rows(auto.values(), rows.size)
    points = [take(auto, np.array([row])) for row in first.tolist()]
    if rehearsed:
        least_of_points = [LeastDevices(max(2, int(point[PACKAGE][0])), True) for point in points]
    else:
        least_of_points = [least_devices(point) for point in points]
    devices = np.array(inputs[DEVICES])
    devices[rows] = np.array([least.devices for least in least_of_points])[inverse]
    none_fits[rows] = np.array([not least.fits for least in least_of_points])[inverse]
    return dict(inputs) | {DEVICES: devices}, none_fits


def least_devices(inputs: Inputs) -> LeastDevices:
    """Return the least number of devices with a layout that fits; inputs: of one point, (1,).

    Raises InputError as the model does.
    """
    counts, lowest = list(device_counts(0, int(inputs[PACKAGE][0]))), fewest_for_state(inputs)
    share_of_memory = serving.share_of_memory if is_serving(inputs) else rank.share_of_memory
    possible = [devices for devices in counts if devices >= lowest] or counts[-1:]
    closest, least_share, outside = possible[0], np.inf, None
    for devices in possible:
        try:
            share = share_of_memory(_on(inputs, devices))
        except InputError as error:
            if error.key != BOUNDS:
                raise
            outside = outside or error
            continue
        if share <= 1.0:
            return LeastDevices(devices, True)
        if share < _CLOSER * least_share:
            closest, least_share = devices, share
    if outside is not None and least_share == np.inf:
        raise outside
    return LeastDevices(closest, False)


def fewest_for_state(inputs: Inputs) -> float:
    """Return a number of devices below which no layout fits; inputs: of one point, (1,).

    It is the memory of weights, and of optimizer state in training, over that of a device. Whatever shards
    them, some device has its share at least. 0 where it is not known: where anything is offloaded, and where
    prefill has separate devices.
    """
    if is_serving(inputs):
        if is_disaggregated(inputs)[0]:
            return 0.0
        served = serve(_on(inputs, 1) | {STRATEGY: np.array(["TP-1"]), "serve.simulate": np.array([False])})
        fewest = float(served.need.weights[0] / served.need.available[0])
    else:
        if inputs["parallel.offload"][0] != "none":
            return 0.0
        alone = _on(inputs, 1) | {STRATEGY: np.array(["d1"]), "parallel.per_layer": np.array([False])}
        prediction = predict(alone)
        if not prediction.timed.size:
            return 0.0
        kept = prediction.footprint.weights[0] + prediction.footprint.optimizer[0]
        fewest = float(kept / prediction.offered[0])
    return fewest * (1.0 - _ROUNDING) if np.isfinite(fewest) else 0.0


def _on(inputs: Inputs, devices: int) -> Columns:
    """Return the inputs of one point on some devices."""
    return dict(inputs) | {DEVICES: np.array([devices])}
