"""Latencies of the classes of service of a trace, as one text a point."""

from __future__ import annotations

import json

import numpy as np

from fastflow.core.tables import Bools, Floats
from fastflow.performance.serving.scenario import ServingScenario
from fastflow.performance.serving.simulator.window import EndedRequests
from fastflow.physics.workload.request_trace import KEY as TRACE
from fastflow.physics.workload.request_trace import read_trace

PERCENTILES = (50, 99)


def by_class(
    scenario: ServingScenario, point: int, ended: EndedRequests, within: Bools, duration: float
) -> str:
    """Return the metrics of each class of a point's trace as JSON; "" where it has no classes.

    within: requests that are within all limits, (requests,); duration: of the run [s]. An object for each
    class has `requests`, their number; `ttft_p50_s` and so on [s]; and `goodput_per_s`, requests within the
    limits a second.
    """
    file = read_trace(str(scenario.inputs[TRACE][point]))
    if not file.class_names:
        return ""
    request_s = float(scenario.request_s[point])
    several = ended.osl > 1
    times = {
        "ttft": (ended.first - ended.sent + request_s, np.ones(ended.osl.size, dtype=np.bool_)),
        "tpot": ((ended.end - ended.first) / np.maximum(ended.osl - 1, 1), several),
        "e2e": (ended.end - ended.sent + request_s, np.ones(ended.osl.size, dtype=np.bool_)),
    }
    number = file.service_class[: ended.osl.size]
    classes = {}
    for i, name in enumerate(file.class_names):
        rows = number == i
        if rows.any():
            statistics: dict[str, float] = {"requests": int(rows.sum())}
            for time, (values, has_it) in times.items():
                statistics |= _percentiles(time, values[rows & has_it])
            classes[name] = statistics | {"goodput_per_s": float(within[rows].sum() / duration)}
    return json.dumps(classes)


def _percentiles(name: str, values: Floats) -> dict[str, float]:
    """Return the percentiles of a time by name; none without values."""
    if not values.size:
        return {}
    return {f"{name}_p{share}_s": float(np.percentile(values, share)) for share in PERCENTILES}
