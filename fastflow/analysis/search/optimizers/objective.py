"""The objective of a search: an iteration's time, energy, cost, carbon, products of these, or time by area.

A design's *score* is the value that search methods minimize; it is always finite:
- the logarithm of the objective where the design is feasible, so that a step is a relative change;
- LACKS_MEMORY and more where the footprint exceeds the memory, though some breakdown could hold it, or where
  a rack or the system draws more than its limit, by how much;
- NO_CHIP and more where a component is empty, by how much the budgets fall short (4.3).
So any feasible design beats any other, and scores of infeasible designs still show the better direction.
"""

from __future__ import annotations

import numpy as np

from fastflow.analysis.search.optimizers.design_space import Space
from fastflow.core.tables import Bools, Floats, Inputs, Ints, take
from fastflow.performance.prediction import Prediction
from fastflow.performance.site_power import excess_of_power, site_of
from fastflow.physics.carbon.columns import carbon_columns
from fastflow.physics.cost.columns import iteration_columns
from fastflow.physics.hardware.budget_deficit import shortage
from fastflow.physics.hardware.chip import dram_parameters, generate
from fastflow.physics.hardware.dram import devices_by_budget
from fastflow.physics.parallelism.memory.process import offered
from fastflow.physics.workload import tokens_of
from fastflow.schema.carbon import CARBON_TOKEN
from fastflow.schema.cost import TOKEN
from fastflow.schema.power import TOKENS_PER_MW

PER_DEVICE, PER_JOULE, PER_SITE_JOULE = "device_time_per_token", "joules_per_token", "site_joules_per_token"
PER_TOKEN, TIME_COST, CARBON_PER_TOKEN = TOKEN.name, "time_cost", CARBON_TOKEN.name
OF_TOKENS = {PER_DEVICE: "tokens_per_s_per_device", PER_JOULE: "joules_per_token"}
"""Objectives of models that serve alone, and the result column that they are made of."""
INVERSES = {OF_TOKENS[PER_DEVICE]: PER_DEVICE, TOKENS_PER_MW.name: PER_SITE_JOULE}
"""Result columns of which more is better, and the objective that is smallest where each is largest."""
OBJECTIVES = {
    "time": "s",
    "energy": "J",
    "edp": "J s",
    "time_area": "s m^2",
    PER_DEVICE: "s",
    PER_JOULE: "J",
    PER_SITE_JOULE: "J",
    "device_usd": "USD",
    "system_usd": "USD",
    "iteration_usd": "USD",
    PER_TOKEN: TOKEN.unit,
    TIME_COST: "s USD",
    "device_carbon_kg": "kg",
    "carbon_g": "g",
    CARBON_PER_TOKEN: CARBON_TOKEN.unit,
}
"""Each objective's unit: iteration time, energy of all devices, energy-delay product (Gonzalez and Horowitz,
JSSC 31(9), 1996), time by the die area that the shares use (the inverse of performance per area), and, where
a model serves, a device's time for a token (the inverse of its tokens per second) and a token's energy; a
token's energy at the site (the inverse of tokens per second and watt); the costs of a device, its system, an
iteration and a token, and time by the cost of the system (the inverse of performance per dollar); the
embodied carbon of a device, and the carbon of an iteration and of a token."""

_OF_TIME = ("edp", "iteration_usd", PER_TOKEN, "carbon_g", CARBON_PER_TOKEN)
TIMES = {name: int("time" in name or name in _OF_TIME) for name in OBJECTIVES}
"""The power of a time's error in the error of each objective."""

LACKS_MEMORY, NO_CHIP = 100.0, 200.0  # above any logarithm of a time or an energy


def with_designs(inputs: Inputs, designs: Floats, space: Space) -> Inputs:
    """Return input columns with their shares replaced by those of designs (points, shares)."""
    return dict(inputs) | {key: designs[:, index].copy() for index, key in enumerate(space.keys)}


def measure(prediction: Prediction, objective: str) -> Floats:
    """Return an objective of every point, in its unit; NaN without a time, shape (points,)."""
    inputs, timed = prediction.inputs, prediction.timed
    time = np.full(prediction.reason.size, np.nan)
    time[timed] = prediction.timeline.total
    if objective == "time":
        return time
    if objective == "time_area":
        return time * area_of(inputs)
    energy = np.full_like(time, np.nan)
    energy[timed] = prediction.energy * prediction.parallelism.strategies.devices[timed]
    if objective in ("energy", "edp"):
        return energy if objective == "energy" else energy * time
    devices, power, _ = site_of(prediction)
    drawn = power.site
    if objective == PER_SITE_JOULE:
        joules: Floats = drawn * time / tokens_of(inputs)
        return joules
    if "carbon" in objective:
        emissions = carbon_columns([devices], drawn, time)
        if objective == CARBON_PER_TOKEN:
            return emissions["carbon_g"] / tokens_of(inputs)
        return np.where(np.isnan(time), np.nan, emissions[objective])
    costs = iteration_columns(devices, time, drawn)
    if objective == PER_TOKEN:
        return costs["iteration_usd"] / tokens_of(inputs)
    if objective == TIME_COST:
        return time * costs["system_usd"]
    return np.where(np.isnan(time), np.nan, costs[objective])


def area_of(inputs: Inputs) -> Floats:
    """Return the die area that shares use [m^2], shape (points,)."""
    shares = [share for key, share in inputs.items() if key.startswith("chip.area.")]
    area: Floats = np.sum(shares, axis=0) * inputs["chip.die_area"]
    return area


def largest_memory(inputs: Inputs, space: Space) -> Floats:
    """Return the most main memory that any breakdown gives a device [B], shape (points,)."""
    points = inputs["chip.tdp"].size
    all_to_dram = np.array([float(key.endswith(".dram")) for key in space.keys])
    chip = generate(with_designs(inputs, np.tile(all_to_dram, (points, 1)), space))
    return offered(inputs, chip.dram.capacity)


def score(
    prediction: Prediction, objective: str, second: str | None, weight: Floats, holdable: Bools
) -> Floats:
    """Return the score of every point, shape (points,).

    second: another objective; the score then is the weighted product of both, `weight` (points,) the second's
    exponent. holdable (points,): whether some breakdown has enough memory; otherwise memory does not count.
    Every point's strategy must suit its system: only its breakdown may be at fault.
    """
    value = np.log(measure(prediction, objective))
    if second is not None:
        value = (1.0 - weight) * value + weight * np.log(measure(prediction, second))
    timed = prediction.timed
    lacks = prediction.lacks_memory & holdable[timed]
    excess = excess_of_power(prediction)
    over = np.flatnonzero(excess > 0.0)
    value[over] = LACKS_MEMORY + excess[over]
    if lacks.any():
        short = take(dict(prediction.inputs), timed[lacks])
        value[timed[lacks]] = with_shortage(
            value[timed[lacks]], devices_short(short, prediction.footprint.total[lacks])
        )
    no_time: Ints = np.flatnonzero(np.isnan(value))
    if no_time.size:
        value[no_time] = NO_CHIP + shortage(take(dict(prediction.inputs), no_time))
    return value


def with_shortage(score: Floats, short: Floats) -> Floats:
    """Return scores of designs that lack memory devices; score: without regard to memory, short: as of
    `devices_short`, (points,).
    """
    total: Floats = np.maximum(score, LACKS_MEMORY) + short
    return total


def devices_short(inputs: Inputs, footprint: Floats) -> Floats:
    """Return how far budgets are from the memory devices that a footprint needs, shape (points,), above 0.

    Summed over the budgets that limit them (Equation 4): the logarithm of the devices needed over the room
    for them, which unlike the devices themselves does not come in whole numbers.
    """
    dram, _ = dram_parameters(inputs)
    needed = np.ceil(footprint / offered(inputs, dram.device_capacity))
    short = [np.maximum(np.log(needed / room), 0.0) for room in devices_by_budget(dram)]
    total: Floats = np.sum(short, axis=0)
    return total
