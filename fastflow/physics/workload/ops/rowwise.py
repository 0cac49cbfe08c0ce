"""A pass that needs statistics of each row: softmax, normalisation, a loss."""

from __future__ import annotations

from dataclasses import replace

from fastflow.physics.workload.graph import Kernel
from fastflow.physics.workload.network import Network
from fastflow.physics.workload.ops.elementwise import TYPE as PASS
from fastflow.physics.workload.precision import Precision


def _forward(network: Network, i: int, kernel: Kernel, precision: Precision) -> Kernel:
    return PASS.forward(network, i, kernel, precision)._replace(statistics=True)


def _backward(network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    # the gradient of a loss needs only the statistics that the forward pass communicated
    statistics = bool(network.readers[i])
    return [
        gradient._replace(statistics=statistics) for gradient in PASS.backward(network, i, kernel, precision)
    ]


TYPE = replace(PASS, name="rowwise", title="rowwise", forward=_forward, backward=_backward)
