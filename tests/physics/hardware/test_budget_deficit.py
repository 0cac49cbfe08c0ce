"""How far budgets are from a chip, against the oracle and against the reasons that points carry (4.3, 7)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.core.reasons.codes import Code
from fastflow.physics.hardware.budget_deficit import shortage
from fastflow.physics.hardware.chip import generate
from fastflow.physics.hardware.infeasible import chip_faults
from tests.conftest import columns_of
from tests.naive import shortage as naive
from tests.support.checks import BUDGETS, cases

# no room at all, about one unit of something, and as much as the chip of the library has
FACTORS = st.sampled_from([0.0, 1.0]) | st.floats(0.0, 0.03) | st.floats(0.0, 1.0)
MANY = st.lists(FACTORS, min_size=len(BUDGETS), max_size=len(BUDGETS))


@pytest.fixture(scope="module")
def bases(compose):
    """Chips with nothing pinned; the last has packages of four and a level of each scope."""
    mixed = {"chip.memory.l0.scope": "bundle", "chip.memory.l1.scope": "global"}
    return [
        compose(),
        compose("tech=n3", "mem=hbm4", "net=gdr_x8", "chip.tdp='30 W'"),
        compose("tech=n7", "system.devices=1", "parallel.strategy=d1"),
        compose("system.package.devices=4") | mixed,
    ]


@pytest.fixture(scope="module")
def pinned(compose):
    """Chips of which nothing, everything or a part is known."""
    return [
        compose("chip=v100", "model=gemm"),
        compose("chip=v100", "~chip.pinned.l2_Bps", "~chip.pinned.dram_capacity_B", "model=gemm"),
        compose("chip=a100", "~chip.pinned.mcus", "~chip.pinned.dram_Bps", "model=gemm"),
        compose("chip.mcus_per_bundle=24", "+chip.pinned.mcus=5"),
        compose("+chip.pinned.inter_Bps=1 GB/s", "+chip.pinned.core_Hz=1 GHz"),
    ]


def scaled(point, factors):
    # an odd factor keeps counts off the borders that rounding decides
    return point | {key: point[key] * f * 0.99731 for key, f in zip(BUDGETS, factors, strict=True)}


def shortage_of(*points):
    return shortage(columns_of(list(points)))


def is_a_chip(point):
    columns = columns_of([point])
    code = chip_faults(columns, generate(columns)).code[0]
    assert code in (Code.NONE, Code.COMPONENT_BUDGET, Code.POWER_BUDGET)
    return code == Code.NONE


@given(st.integers(0, 3), MANY)
@cases(100)
def test_shortage(bases, base, factors):
    point = scaled(bases[base], factors)
    assert shortage_of(point)[0] == pytest.approx(naive.shortage(point), rel=1e-9, abs=1e-12)


@pytest.mark.long
@given(st.integers(0, 8), MANY)
@cases(250)
def test_it_is_zero_exactly_where_no_component_is_empty(bases, pinned, base, factors):
    point = scaled([*bases, *pinned][base], factors)
    got = shortage_of(point)[0]
    assert np.isfinite(got)
    assert got >= 0.0
    assert (got == 0.0) == is_a_chip(point)


@given(st.integers(0, 3), MANY, st.sampled_from(BUDGETS), st.floats(0.0, 0.1))
@cases(200)
def test_more_of_a_budget_is_never_a_larger_shortage(bases, base, factors, key, more):
    point = scaled(bases[base], factors)
    columns = columns_of([point, point | {key: point[key] + more}])
    made, got = generate(columns), shortage(columns)
    # but where it buys cores or memory devices, which take more of the other budgets
    for count in (made.cores.mcus, made.dram.devices):
        if max(count) > min(count) and max(count) > 1:
            return
    assert got[1] <= got[0] * (1 + 1e-12)


@pytest.mark.parametrize("key", BUDGETS)
def test_it_falls_to_zero_in_small_steps(compose, key):
    """From nothing of one budget to enough of it, on a chip that is whole otherwise."""
    point = compose("mem=hbm3", "net=gdr_x8", "system.package.devices=4")
    enough = point[key]
    while not shortage_of(point | {key: enough / 2})[0]:
        enough /= 2
    got = shortage_of(*(point | {key: enough * step / 400} for step in range(401)))
    zero = int(np.argmax(got == 0.0))
    assert 200 < zero <= 400
    assert got[0] == 1.0
    assert not got[zero:].any()
    falls = -np.diff(got[:zero])
    assert falls.min() > 0.99 / zero
    assert falls.max() < 1.01 / (zero - 1)


def test_more_cores_take_nothing_of_the_caches(compose):
    """A level lacks the same of its budget whatever it serves, and a larger budget mends it."""
    bank = 2**14 * 8 * 0.08e-12 / 0.75 / 850e-6  # of the registers, as a share of the die
    point = compose() | {"chip.area.l0": 0.4 * bank}
    more, larger = {"chip.area.core": 0.35}, {"chip.area.l0": 0.7 * bank}
    few, many, mended = shortage_of(point, point | more, point | more | larger)
    assert few == many == pytest.approx(0.6)
    assert mended == pytest.approx(0.3)


def test_without_cores_the_caches_are_those_of_one_bundle(compose):
    point = compose() | {"chip.area.core": 0.0}
    bare, no_l1 = shortage_of(point, point | {"chip.area.l1": 0.0})
    assert bare == 1.0
    assert no_l1 == 2.0


def test_a_package_too_small_for_memory_is_always_short(compose):
    small = compose() | {"chip.node_area": 900e-6}
    rooms = [shortage_of(small | {"chip.area.dram": share})[0] for share in (0.0, 0.05, 0.5)]
    lacking = 1.0 - 50.0 / 92.0  # of one HBM2 device's area beside the die of 850 mm2
    assert rooms == pytest.approx([1.0 + lacking, lacking, lacking])
    none = compose() | {"chip.node_area": 800e-6}
    assert 1.0 < shortage_of(none)[0] < np.inf


def test_budgets_a_hair_below_what_one_unit_takes(compose):
    """At every border the shortage and the reason change together."""
    point = compose()
    bundle = 8 * point["tech.core.nominal_area"] / point["chip.die_area"]
    stack = point["mem.controller_area"] / point["chip.die_area"]
    lane = point["net.inter.nominal_area"] / point["chip.die_area"]
    borders = [("chip.area.core", bundle, {}), ("chip.area.dram", stack, {}), ("chip.area.inter", lane, {})]
    for capacity in (1e9, 2e9, 3e9, 4e9):  # their sums with a link's power round either way
        standby = 8 * capacity * point["mem.static_power"]
        share = (standby + link_power(point)) / point["chip.tdp"]
        borders.append(("chip.power.dram", share, {"mem.device_capacity": capacity, "chip.area.dram": 0.03}))
    for key, border, rest in borders:
        share = border * (1 - 1e-15)
        for _ in range(30):
            share = float(np.nextafter(share, 1.0))
            tried = point | rest | {key: share}
            assert (shortage_of(tried)[0] == 0.0) == is_a_chip(tried), (key, share)
        assert is_a_chip(tried)
        assert shortage_of(tried | {key: border * (1 - 1e-6)})[0] == pytest.approx(1e-6, rel=1e-3)


def link_power(point):
    nominal, threshold, minimum = (
        point[f"mem.{name}_voltage"] for name in ("nominal", "threshold", "minimum")
    )
    speed = ((minimum - threshold) ** 2 / minimum) / ((nominal - threshold) ** 2 / nominal)
    return point["mem.nominal_frequency"] * point["mem.dynamic_energy"] * speed * (minimum / nominal) ** 2
