"""Serving: what a server's iterations take, and what requests see of them: simulated, or in a fast form."""

from fastflow.core.errors import InputError
from fastflow.core.tables import Inputs
from fastflow.physics.workload import family_of
from fastflow.physics.workload.request_lengths import SERVES


def is_serving(inputs: Inputs) -> bool:
    """Say whether points serve. All points of a call do, or none, since they have the same keys."""
    return SERVES in inputs


def check_served(inputs: Inputs) -> None:
    """Reject points of a family whose servers are not modelled; raises InputError."""
    family = family_of(inputs)
    if not family.serves:
        advice = f"; {family.instead_of_serving}" if family.instead_of_serving else ""
        raise InputError("model.name", family.name, f"transformer, where serve is not none{advice}")
