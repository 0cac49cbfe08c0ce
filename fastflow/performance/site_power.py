"""The power of iterations on its way from the site, and whether it is within limits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.reasons.columns import ReasonColumn, no_reasons
from fastflow.core.tables import Bools, Columns, Floats
from fastflow.performance.prediction import Prediction
from fastflow.physics.cost.columns import Devices, devices_of
from fastflow.physics.site.columns import power_of_site, site_columns
from fastflow.physics.site.limits import above_site_limits, has_site_limits, is_within_limits, power_excess
from fastflow.physics.site.power import SitePower


class Site(NamedTuple):
    """The devices of iterations, and what they and their surroundings draw; (points,), NaN without a time."""

    devices: Devices
    power: SitePower
    columns: Columns  # `schema.power.SITE`


def site_of(prediction: Prediction) -> Site:
    """Return the power of every point of a prediction."""
    number, timed = prediction.parallelism.strategies.devices, prediction.timed
    time, joules = np.full((2, prediction.reason.size), np.nan)
    time[timed] = prediction.timeline.total
    joules[timed] = prediction.energy * number[timed]
    devices = devices_of(prediction.inputs, prediction.chip, number)
    power = power_of_site([devices], joules / time)
    return Site(devices, power, site_columns([devices], power, joules))


def reasons_of_power(prediction: Prediction, site: Site | None = None) -> ReasonColumn:
    """Return which limit of a rack or of the site every point exceeds, if any; site: of the prediction."""
    if not has_site_limits(prediction.inputs):
        return no_reasons(prediction.reason.size)
    site = site or site_of(prediction)
    return above_site_limits(prediction.inputs, [site.devices], site.columns)


def keeps_to_limits(prediction: Prediction) -> Bools:
    """Say which points exceed no limit of a rack or of the site, (points,)."""
    if not has_site_limits(prediction.inputs):
        return np.ones(prediction.reason.size, dtype=np.bool_)
    return is_within_limits(prediction.inputs, site_of(prediction).columns)


def excess_of_power(prediction: Prediction) -> Floats:
    """Return how far every point is above its limits, as of `power_excess`, (points,)."""
    if not has_site_limits(prediction.inputs):
        return np.zeros(prediction.reason.size)
    return power_excess(prediction.inputs, site_of(prediction).columns)
