"""The scheduling policies that points name."""

from __future__ import annotations

import numpy as np

from fastflow.core.dedupe import factorize
from fastflow.core.tables import Bools, Inputs, Texts
from fastflow.schema.scheduling import ANALYTIC, AUTO, KEY, POLICIES


def mixes_of(inputs: Inputs) -> Bools:
    """Say which points' prompts share iterations with decoding requests, (points,)."""
    mixes: Bools = inputs["server.mixed_batches"]
    names, number = factorize(_names(inputs))
    for i, name in enumerate(names):
        if name != AUTO:
            mixes = np.where(number == i, POLICIES.find(name).mixes, mixes)
    return mixes


def simulated_policies(inputs: Inputs) -> Texts:
    """Return the policy of every point where the analytic form does not know it, else ""; (points,)."""
    names = _names(inputs)
    return np.where(np.isin(names, ANALYTIC), "", names)


def _names(inputs: Inputs) -> Texts:
    names: Texts = inputs.get(KEY, np.full(inputs["server.mixed_batches"].size, AUTO))
    return names
