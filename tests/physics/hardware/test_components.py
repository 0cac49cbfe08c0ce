"""The generator's components against the oracles, one at a time (4.4)."""

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fastflow.physics.hardware.core import Core, generate_cores
from fastflow.physics.hardware.dram import Dram, generate_dram
from fastflow.physics.hardware.link import Link, generate_links
from fastflow.physics.hardware.sram import Sram, SramComponent, generate_sram, moved_energy
from fastflow.physics.hardware.voltage import (
    Supply,
    highest_voltage,
    operate,
    power_ratio,
    speed_ratio,
    voltage_at,
)
from tests.naive import core, dram, link, sram, voltage
from tests.support.checks import Deciding, cases, hair, near, row


@st.composite
def supplies(draw):
    """Nominal, threshold, minimum and maximum voltage."""
    threshold = draw(st.floats(0.05, 0.6))
    minimum = threshold + draw(st.floats(0.02, 0.8))
    maximum = minimum + draw(st.sampled_from([0.0, 0.01]) | st.floats(0.0, 1.0))
    return threshold + draw(st.floats(0.05, 1.2)), threshold, minimum, maximum


def table_of(supply):
    return row(Supply, **dict(zip(Supply._fields, supply, strict=True)))


budget_factors = st.floats(1e-3, 1e3)


@given(supplies(), budget_factors)
@cases(500)
def test_operating_voltage_is_the_highest_that_fits(supply, budget):
    nominal, threshold, minimum, maximum = supply
    got = highest_voltage(budget, *supply)
    assert near(got, voltage.highest_voltage(budget, *supply))
    assert minimum <= got <= maximum
    if voltage.power(minimum, nominal, threshold) <= budget * (1 - 1e-12):
        assert voltage.power(got, nominal, threshold) <= budget * (1 + 1e-12)
        higher = got * (1 + 1e-9)
        assert got == maximum or voltage.power(higher, nominal, threshold) > budget * (1 - 1e-12)
    else:
        assert near(got, minimum)


@given(supplies(), st.floats(0.0, 1.0))
@cases(200)
def test_alpha_power_law(supply, share):
    nominal, threshold, minimum, maximum = supply
    volts = minimum + share * (maximum - minimum)
    assert near(speed_ratio(volts, nominal, threshold), voltage.speed(volts, nominal, threshold))
    assert near(power_ratio(volts, nominal, threshold), voltage.power(volts, nominal, threshold))
    assert near(speed_ratio(nominal, nominal, threshold), 1.0)
    found = voltage_at(np.array([voltage.speed(volts, nominal, threshold)]), table_of(supply))[0]
    assert near(found, volts, rel=1e-6)  # the square root loses half of the digits near the threshold


@given(supplies(), st.integers(0, 2000), st.integers(1, 24), st.floats(1e-3, 10.0), budget_factors)
@example((0.8, 0.2, 0.55, 1.09), 640, 8, 0.13, 1.0)
@example((0.8, 0.2, 0.55, 1.09), 7, 8, 0.13, 1.0)  # not one whole bundle
@example((0.8, 0.2, 0.55, 0.55), 640, 8, 0.13, 0.01)  # one voltage only
@cases(400)
def test_operate(supply, units, group, unit_power, factor):
    # a budget about what the units take at their lowest supply, so that both regimes are met
    budget = factor * unit_power * max(units, 1) * voltage.power(supply[2], supply[0], supply[1])
    got = operate(
        np.array([float(units)]), np.array([unit_power]), np.array([budget]), np.array([float(group)]),
        table_of(supply),
    )  # fmt: skip
    fewest, _ = voltage.operate(units, unit_power, hair(budget)[0], group, *supply)
    most, _ = voltage.operate(units, unit_power, hair(budget)[1], group, *supply)
    assert fewest <= got.units[0] <= most
    assert got.units[0] % group == 0
    _, volts = voltage.operate(int(got.units[0]), unit_power, hair(budget)[1], group, *supply)
    assert near(got.voltage[0], volts, rel=1e-11)
    assert near(got.speed[0], voltage.speed(got.voltage[0], supply[0], supply[1]))
    used = got.units[0] * unit_power * voltage.power(got.voltage[0], supply[0], supply[1])
    assert used <= budget * (1 + 1e-12)
    if 0 < got.units[0] < units - units % group:  # units were given up: one more group does not fit at V_min
        lowest = unit_power * voltage.power(supply[2], supply[0], supply[1])
        assert lowest * (got.units[0] + group) > budget * (1 - 1e-12)


def test_no_power_and_no_room_leave_no_units():
    supply = table_of((0.8, 0.2, 0.55, 1.09))
    for units, budget in ((640.0, 0.0), (640.0, -5.0), (0.0, 100.0), (0.0, 0.0)):
        got = operate(np.array([units]), np.array([0.13]), np.array([budget]), np.array([8.0]), supply)
        assert got.units[0] == 0.0
        assert got.voltage[0] == 0.55


def test_cores():
    deciding = Deciding(core.generate, ("mcus", "voltage"))

    @given(
        supplies(), st.floats(0.01, 600.0), st.floats(0.2, 5.0), st.integers(1, 16), budget_factors,
        st.just(np.inf) | st.integers(1, 100).map(float),
    )  # fmt: skip
    @cases(300)
    def check(supply, area, mcu_area, per_bundle, factor, served):
        power = factor * max(area / mcu_area, 1.0) * 0.13
        got = generate_cores(
            row(
                Core, area=area, power=power, bundles=served, mcus_per_bundle=per_bundle, nominal_power=0.13,
                nominal_area=mcu_area, nominal_frequency=1.33e9,
            ),
            table_of(supply),
        )  # fmt: skip
        rest = (per_bundle, mcu_area, 0.13, 1.33e9, supply)
        fewest = core.generate(hair(area)[0], hair(power)[0], served, *rest)
        most = core.generate(hair(area)[1], hair(power)[1], served, *rest)
        assert fewest[0] <= got.mcus[0] <= most[0]
        if fewest[0] == most[0]:
            assert near(got.voltage[0], most[1], rel=1e-11)
            assert near(got.frequency[0], most[2], rel=1e-10)
        deciding.oracle = lambda area, power, served: core.generate(area, power, served, *rest)
        deciding.count(area=area, power=power, served=served)

    check()
    deciding.check(
        {("area", "mcus"), ("served", "mcus"), ("power", "mcus"), ("power", "voltage"), ("nothing", "")}
    )


@st.composite
def srams(draw):
    """An on-chip level small enough to count its banks up."""
    level = {
        "instances": float(draw(st.integers(1, 200))),
        "ports": draw(st.integers(1, 300).map(float) | st.floats(1.0, 300.0)),
        "latency": 1e-9,
        "dynamic_energy": draw(st.floats(1e-15, 1e-12)),
        "static_power": draw(st.sampled_from([0.0, 1e-12, 1e-11]) | st.floats(1e-13, 1e-10)),
        "cell_area": draw(st.floats(1e-14, 1e-13)),
        "overhead": draw(st.sampled_from([0.0, 0.2, 0.9]) | st.floats(0.0, 0.9)),
        "bank_capacity": draw(st.sampled_from([1.0, 4.0, 1024.0, 16384.0, 131072.0])),
        "bank_width": draw(st.sampled_from([1.0, 32.0, 64.0])),
        "bank_frequency": draw(st.floats(1e8, 3e9)),
        "controller_power": draw(st.sampled_from([0.0, 0.04]) | st.floats(1e-4, 0.1)),
        "controller_area": draw(st.sampled_from([0.0]) | st.floats(1e-12, 1e-8)),
        "link_area": draw(st.sampled_from([0.0]) | st.floats(1e-12, 1e-8)),
    }
    bank = level["bank_capacity"] * 8 * level["cell_area"] / (1 - level["overhead"])
    bank += level["controller_area"] + level["ports"] * level["link_area"]
    leakage = level["bank_capacity"] * 8 * level["static_power"]
    banks = draw(st.floats(0.0, 120.0) | st.integers(1, 120).map(lambda count: count + 0.5))
    level["area"] = banks * bank
    # about what leaks as much as it may, and about what instances share, so that each decides
    fed = draw(st.floats(0.0, 5.0) | st.sampled_from([0.0, 0.05, 0.2, 1.0]))
    level["power"] = fed * max(leakage * 2000, 1e-3)
    share = draw(st.sampled_from([0.1, 0.5, 0.9, 1.1, np.inf]) | st.floats(0.01, 3.0))
    level["target_capacity"] = max(share * banks * level["bank_capacity"] / level["instances"], 1.0)
    assume(level["power"] > 0 or leakage > 0)  # the next test has a level without either
    return level


def naive_sram(level, hair=1.0, **changed):
    level = level | {"leakage_share": 0.01} | changed
    return sram.generate(
        level["area"] * hair, level["power"] * hair, level["instances"], level["target_capacity"],
        level["dynamic_energy"], level["static_power"],
        level["cell_area"], level["overhead"], level["bank_capacity"], level["bank_width"],
        level["bank_frequency"], level["controller_power"], level["controller_area"], level["ports"],
        level["link_area"], level["leakage_share"],
    )  # fmt: skip


def sram_row(level):
    """Return the generator's inputs for a level of one point."""
    component = row(SramComponent, **{name: level[name] for name in SramComponent._fields})
    budgets = {name: level[name] for name in ("area", "power", "instances", "target_capacity")}
    return Sram(**{name: np.array([value]) for name, value in budgets.items()}, component=component)


def test_sram():
    deciding = Deciding(None, ("banks", "capacity", "bandwidth"), every=4)

    @given(srams())
    @cases(400)
    def check(level):
        got = generate_sram(sram_row(level))
        fewest, most = (naive_sram(level, hair=h) for h in hair(1.0))
        assert fewest[0] <= got.banks[0] <= most[0]
        if fewest[0] == most[0]:
            for name, place in (("banks", 0), ("capacity", 1), ("static_power", 3)):
                assert near(getattr(got, name)[0], most[place]), name
            assert fewest[2] * (1 - 1e-12) <= got.bandwidth[0] <= most[2] * (1 + 1e-12)
        # the level lives within its power
        moving = got.bandwidth[0] * 8 * moved_energy(sram_row(level).component)[0]
        assert moving + got.static_power[0] <= level["power"] * (1 + 1e-9) or got.bandwidth[0] == 0.0
        deciding.oracle = lambda **budgets: naive_sram(level, **budgets)
        budgets = ("area", "power", "target_capacity", "bank_frequency")
        deciding.count(leakage_share=0.01, **{name: level[name] for name in budgets})

    check()
    deciding.check(
        {
            ("area", "banks"), ("leakage_share", "banks"), ("target_capacity", "banks"),
            ("target_capacity", "capacity"),
            ("power", "bandwidth"), ("bank_frequency", "bandwidth"),
        }
    )  # fmt: skip


def test_sram_without_power_has_no_banks():
    level = {
        "area": 1e-4, "power": 0.0, "instances": 1.0, "target_capacity": np.inf,
        "ports": 1.0, "latency": 0.0,
        "dynamic_energy": 1e-13, "static_power": 0.0, "cell_area": 1e-13, "overhead": 0.2,
        "bank_capacity": 1024.0, "bank_width": 32.0, "bank_frequency": 1e9, "controller_power": 0.0,
        "controller_area": 0.0, "link_area": 0.0,
    }  # fmt: skip
    got = generate_sram(sram_row(level))
    assert (got.banks[0], got.capacity[0], got.bandwidth[0], got.static_power[0]) == (0.0, 0.0, 0.0, 0.0)


def naive_dram(supply, links_per_device, static, **budgets):
    return dram.generate(
        budgets["package"] * 92e-6, budgets["controllers"] * 18e-6,
        budgets["edge"] * links_per_device / 169e3, budgets["power"], links_per_device, 169e3, 4.2e-12,
        static, 4e9, 92e-6, 18e-6, 1.953e9, supply, budgets.get("standby_share", 0.4),
    )  # fmt: skip


rooms = st.floats(0.0, 12.0) | st.integers(1, 11).map(lambda count: count + 0.5)


def test_dram():
    deciding = Deciding(None, ("devices", "", "bandwidth"))

    @given(
        supplies(), rooms, rooms, rooms, st.sampled_from([1, 64, 1024]),
        budget_factors | st.sampled_from([1.1, 2.7, 5.3, 9.1]),
        st.floats(0.0, 1.0) | st.sampled_from([0.2, 0.6, 0.9]),
    )  # fmt: skip
    @example((1.2, 0.4, 1.0, 1.2), 4.9, 4.2, 5.1, 1024, 5.0, 0.1)
    @example((1.2, 0.4, 1.0, 1.2), 0.9, 4.2, 5.1, 1024, 5.0, 0.1)  # no room for one device
    @cases(300)
    def check(supply, by_package, by_controller, by_edge, links_per_device, factor, standby):
        device_power = links_per_device * 1.953e9 * 4.2e-12
        static = standby * device_power / (8 * 4e9)
        budgets = {
            "package": by_package, "controllers": by_controller, "edge": by_edge,
            "power": factor * device_power,
        }  # fmt: skip
        given_ = {
            "package_area": by_package * 92e-6, "controller_budget": by_controller * 18e-6,
            "perimeter": by_edge * links_per_device / 169e3, "power": budgets["power"],
            "links_per_device": links_per_device, "links_per_length": 169e3, "dynamic_energy": 4.2e-12,
            "static_power": static, "device_capacity": 4e9, "device_area": 92e-6, "controller_area": 18e-6,
            "nominal_frequency": 1.953e9,
        }  # fmt: skip
        got = generate_dram(row(Dram, **given_), table_of(supply))

        def oracle(**budgets):
            return naive_dram(supply, links_per_device, static, **budgets)

        fewest, most = (oracle(**{key: value * h for key, value in budgets.items()}) for h in hair(1.0))
        assert fewest[0] <= got.devices[0] <= most[0]
        assert got.capacity[0] == got.devices[0] * 4e9
        if fewest[0] == most[0]:
            assert fewest[2] * (1 - 1e-9) <= got.bandwidth[0] <= most[2] * (1 + 1e-9)
            assert fewest[3] * (1 - 1e-9) <= got.energy[0] <= most[3] * (1 + 1e-9)
            assert near(got.static_power[0], most[4])
        deciding.oracle = oracle
        deciding.count(standby_share=0.4, **budgets)

    check()
    of_devices = {(name, "devices") for name in ("package", "controllers", "edge", "power", "standby_share")}
    deciding.check(of_devices | {("power", "bandwidth"), ("nothing", "")})


def test_links():
    deciding = Deciding(None, ("links", "bandwidth"))

    @given(
        supplies(), st.floats(0.0, 300.0), st.floats(0.0, 300.0), st.integers(1, 200), budget_factors,
    )  # fmt: skip
    @cases(250)
    def check(supply, by_area, by_edge, port, factor):
        area, perimeter = by_area * 0.66e-6, by_edge / 3e3
        power = factor * 100e9 * 6e-12 * min(by_area + 1, by_edge + 1, port)
        got = generate_links(
            row(
                Link, area=area, power=power, perimeter=perimeter, nominal_frequency=100e9,
                nominal_energy=6e-12, nominal_area=0.66e-6, links_per_length=3e3, maximum_links=port,
            ),
            table_of(supply),
        )  # fmt: skip

        def oracle(area, power, perimeter, port):
            return link.generate(area, power, perimeter, 100e9, 6e-12, 0.66e-6, 3e3, port, supply)

        (few, slow, low), (many, fast, high) = (
            oracle(area * h, power * h, perimeter * h, port) for h in hair(1.0)
        )
        assert few <= got.links[0] <= many <= port
        assert slow * (1 - 1e-9) <= got.bandwidth[0] <= fast * (1 + 1e-9) or few < many
        assert low * (1 - 1e-9) <= got.energy[0] <= high * (1 + 1e-9) or few < many
        deciding.oracle = oracle
        deciding.count(area=area, power=power, perimeter=perimeter, port=port)

    check()
    of_links = {(name, "links") for name in ("area", "perimeter", "port", "power")}
    deciding.check(of_links | {("power", "bandwidth"), ("nothing", "")})


def test_a_link_without_energy_runs_at_its_highest_rate():
    got = generate_links(
        row(
            Link, area=1e-4, power=0.001, perimeter=0.1, nominal_frequency=1e9, nominal_energy=0.0,
            nominal_area=1e-6, links_per_length=1e3, maximum_links=8,
        ),
        table_of((1.0, 0.3, 0.6, 1.2)),
    )  # fmt: skip
    assert got.links[0] == 8
    assert near(got.bandwidth[0], 8 * 1e9 / 8 * voltage.speed(1.2, 1.0, 0.3))


@pytest.mark.parametrize("points", [1, 7])
def test_rows_do_not_depend_on_each_other(points):
    rng = np.random.default_rng(points)
    units, budget = rng.integers(0, 500, points).astype(float), rng.uniform(0.0, 50.0, points)
    supply = Supply(*(np.full(points, volts) for volts in (0.8, 0.2, 0.55, 1.09)))
    whole = operate(units, np.full(points, 0.13), budget, np.full(points, 8.0), supply)
    for i in range(points):
        one = operate(
            units[i : i + 1], np.array([0.13]), budget[i : i + 1], np.array([8.0]),
            Supply(*(column[:1] for column in supply)),
        )  # fmt: skip
        assert [column[0] for column in one] == [column[i] for column in whole]
