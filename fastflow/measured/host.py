"""What the host that measured adds to the time of a device: calls of a framework, and a library's launches.

It is a property of the measurement, not of the model: a training run queues its kernels ahead of the device.

A *call* on an idle device is timed between two events. A GEMM's event waits until its library has chosen a
kernel, so that the call's overhead C comes before it. A pointwise or normalisation operator is launched half
way, its launch included, and the second event is recorded while it runs: the longer of C, and C / 2 with
the operator.

A recurrent layer is one call of its library, which launches the kernels of every step: while it falls behind,
the device waits in each step (`engine.recurrent`). So it is however the layer was timed.
"""

from __future__ import annotations

import numpy as np

from fastflow.grid.grid import Columns
from fastflow.measured.measurements import LAYERS, OPERATORS, Measurements
from fastflow.tables import Floats, Ints
from fastflow.workload.operator import OPERATORS as TABLE

# What a framework does on the host for an operator, over what it does for one that reads two tensors.
# Calibrated: NeuSight's operators on the hosts of an A100 and a V100 (sitar-lab/NeuSight@6945927), which
# agree within 5%. An operator without a name may be any of those of one input.
_OF_ONE_INPUT = 1.17
_HOST_WORK = {"softmax": 1.25, "log_softmax": 1.25, "layernorm": 1.78}


def with_host(measurements: Measurements, rows: Ints, inputs: Columns, time: Floats) -> Floats:
    """Return the time that the host saw of rows whose device takes `time` [s], shape (rows,).

    inputs: of the model, of these rows.
    """
    if measurements.kind is LAYERS:
        alone, steps = measurements.forward_only[rows], inputs["model.sequence"].astype(np.int64)
        return time + measurements.recurrent.host_time(measurements.part[rows], steps, alone)
    called = measurements.timed[rows] == "call"
    overhead = inputs["chip.call_overhead"].astype(np.float64)
    if measurements.kind is not OPERATORS:
        return time + np.where(called, overhead, 0.0)
    work = np.where(inputs["model.tensors"].astype(np.int64) > 2, 1.0, _OF_ONE_INPUT)
    of_two = [op for op, operator in TABLE.items() if operator.reads > 1]
    for op, share in {**dict.fromkeys(of_two, 1.0), **_HOST_WORK}.items():
        work = np.where(inputs["model.op"] == op, share, work)
    overhead = overhead * work
    launched = time - inputs["chip.launch_overhead"].astype(np.float64)
    return np.where(called, np.maximum(overhead, 0.5 * overhead + launched), time)
