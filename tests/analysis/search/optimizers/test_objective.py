"""The score of a design: its objective, or how far it is from memory enough, or from a chip (9.2)."""

from math import ceil, log

import numpy as np
import pytest

from fastflow.analysis.search.optimizers.objective import LACKS_MEMORY, NO_CHIP, devices_short, measure, score
from fastflow.physics.hardware.chip import dram_parameters
from fastflow.physics.hardware.dram import devices_by_budget
from tests.conftest import columns_of
from tests.support.checks import near

SMALL = {"model.hidden": 512, "model.batch": 64, "model.vocabulary": 4000, "model.sequence": 4}


@pytest.fixture(scope="module")
def point(compose):
    return compose("parallel.strategy=d8", "system.devices=8") | SMALL


def test_the_score_of_two_objectives_is_the_logarithm_of_their_weighted_product(point, predict):
    found = predict([point] * 3)
    got = score(found, "time", "energy", np.array([0.0, 0.25, 1.0]), np.full(3, True))
    time, energy = measure(found, "time")[0], measure(found, "energy")[0]
    assert near(got[0], log(time))
    assert near(got[1], 0.75 * log(time) + 0.25 * log(energy))
    assert near(got[2], log(energy))


def test_what_lacks_memory_scores_by_the_devices_it_is_short_of(point, predict):
    """Where a breakdown could hold it, else by its time; in what has memory to the byte, nothing lacks."""
    small = point | {"mem.device_capacity": 1e5}
    exact = point | {"chip.pinned.dram_capacity_B": predict([point]).footprint.total[0]}
    points = [small, small, exact]
    found = [predict([one]) for one in points]
    rows = zip(found, (True, False, True), strict=True)
    got = [score(one, "time", None, np.zeros(1), np.array([held]))[0] for one, held in rows]
    short = devices_short(columns_of([small]), found[0].footprint.total)[0]
    assert short > 0.0
    assert got[0] == LACKS_MEMORY + short
    assert got[1:] == [log(one.timeline.total[0]) for one in found[1:]]


def test_a_shortage_of_devices_sums_over_the_budgets_that_limit_them(point):
    inputs = columns_of([point])
    dram, _ = dram_parameters(inputs)
    size = point["mem.device_capacity"]
    rooms = [float(room[0]) for room in devices_by_budget(dram)]
    for devices in (0.5, 1.5, max(rooms) + 0.5, 100.0):
        needed = ceil(devices)
        expected = sum(log(needed / room) for room in rooms if needed > room)
        assert near(devices_short(inputs, np.array([devices * size]))[0], expected, 1e-9)


def test_what_is_no_chip_scores_by_its_shortage(point, predict):
    """Above all that lacks memory, and less with more of what it is short of."""
    less, more = (point | {"chip.area.core": share} for share in (0.0, 1e-5))
    got = score(predict([less, more]), "time", None, np.zeros(2), np.full(2, True))
    assert NO_CHIP < got[1] < got[0]
    assert got[0] == NO_CHIP + 1.0
