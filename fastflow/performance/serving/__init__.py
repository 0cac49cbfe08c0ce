"""Serving: times of a server's iterations, and latencies of its requests: simulated, or analytic."""

from fastflow.core.tables import Inputs
from fastflow.physics.workload.request_lengths import SERVES


def serves(inputs: Inputs) -> bool:
    """Say whether points serve. All points of a call do, or none, since they have the same keys."""
    return SERVES in inputs
