"""Serving: what a server's iterations take, and what requests see of them: simulated, or in a fast form."""

from fastflow.core.tables import Inputs
from fastflow.physics.workload.request_lengths import SERVES


def is_serving(inputs: Inputs) -> bool:
    """Say whether points serve. All points of a call do, or none, since they have the same keys."""
    return SERVES in inputs
