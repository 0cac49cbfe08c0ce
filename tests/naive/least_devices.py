"""The least number of devices, by trying every number with every layout, each predicted in full."""

import numpy as np

from fastflow.core.errors import InputError
from fastflow.core.tables import take
from fastflow.performance.auto.rank import strategy_spaces
from fastflow.performance.auto.serving import all_servers
from fastflow.performance.crossflow import predict
from fastflow.performance.serving import is_serving
from fastflow.performance.serving.predict import serve
from fastflow.physics.parallelism.candidates import every_layout
from fastflow.physics.workload import has_layer_runs


def counts(package, most):
    """Return numbers of devices to try, up to `most`: some of one package, or 2**n or 3 * 2**n packages."""
    powers = {2**n for n in range(20)}
    packages = powers | {3 * power for power in powers}
    found = {count for count in powers if count < package} | {package * count for count in packages}
    return sorted(count for count in found if count <= most)


def layouts_on(inputs, devices):
    """Return the inputs of a point under every layout on so many devices; None where there is none."""
    point = dict(inputs) | {"system.devices": np.array([devices])}
    if is_serving(inputs):
        chosen = {"parallel.strategy": np.array(all_servers(point))}
    elif has_layer_runs(inputs):
        try:
            chosen = every_layout(point)
        except InputError:
            return None
    else:
        (space,) = strategy_spaces(point)
        chosen = {"parallel.strategy": np.array([str(strategy) for strategy in space])}
    size = chosen["parallel.strategy"].size
    return take(point, np.zeros(size, dtype=np.int64)) | chosen


def fits(inputs, devices, resident):
    """Say whether any layout fits on so many devices; resident: requests that servers hold at once."""
    points = layouts_on(inputs, devices)
    if points is None:
        return False
    if is_serving(inputs):
        served = serve(points | {"serve.simulate": np.zeros(points["parallel.strategy"].size, np.bool_)})
        held = served.columns.get("max_concurrent_requests", np.full(served.reason.size, np.inf))
        return any(
            reason is None and (not resident or held[i] >= resident)
            for i, reason in enumerate(served.reason.reason)
        )
    prediction = predict(points)
    offered = prediction.offered[prediction.timed]
    return bool((prediction.footprint.total <= offered).any())


def least(inputs, most, resident=0):
    """Return the least number of devices up to `most` on which any layout fits; 0 where there is none."""
    package = int(inputs["system.package.devices"][0])
    return next((count for count in counts(package, most) if fits(inputs, count, resident)), 0)
