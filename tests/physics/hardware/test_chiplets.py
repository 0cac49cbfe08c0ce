"""Packages of several dies: what they hold, what crosses, what they cost."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.core.errors import InputError
from fastflow.engine.grid.plan import plan
from fastflow.physics.hardware.chip import generate, level_numbers
from fastflow.physics.hardware.chiplets import areas, crossing_shares, inner_edge
from tests.naive import chiplets as naive
from tests.support.checks import cases

POINT = ("mem=hbm3", "parallel.strategy=RC-1-16-d32")
HOLDS = ("dram", "intra inter", "dram intra inter", "l2", "l2 dram", "l2 dram intra inter")
FREE = (
    "chip.link.nominal_energy=0 pJ/bit", "chip.link.latency=0 ns", "chip.link.nominal_area=0.000001 mm2",
    "chip.link.links_per_length=1000000000 1/mm", "chip.link.maximum_links=1000000000000",
    "chip.area.link=0.001", "chip.power.link=0.001",
)  # fmt: skip


def inputs_of(*overrides):
    with hydra_rules():
        return plan(Composer.of_library(), overrides).grid.first_inputs()


BASE = inputs_of("chip=chiplets", "tech=n3", *POINT)


def with_(changes):
    inputs = dict(BASE)
    for key, value in changes.items():
        inputs[key] = np.array([value], dtype=BASE[key].dtype if not isinstance(value, str) else np.str_)
    return inputs


packages = st.fixed_dictionaries(
    {
        "chip.dies": st.integers(1, 9), "chip.chiplets.base.dies": st.integers(1, 9),
        "chip.chiplets.base.holds": st.sampled_from(HOLDS), "chip.area.link": st.floats(0.0, 0.2),
        "chip.area.l2": st.floats(0.0, 0.2), "chip.area.dram": st.floats(0.0, 0.2),
        "chip.die_area": st.floats(1e-5, 5e-3),
    }
)  # fmt: skip


@given(packages)
@cases(200)
def test_dies_edges_and_crossings_are_those_of_the_book(changes):
    inputs = with_(changes)
    point = {key: column[0].item() for key, column in inputs.items()}
    expected = naive.dies_of(point)
    for kind, number, area in areas(inputs):
        assert (number[0], area[0]) == pytest.approx(expected[kind])
    total = sum(number[0] * area[0] for _, number, area in areas(inputs))
    assert total == pytest.approx(point["chip.die_area"])
    assert inner_edge(inputs)[0] == pytest.approx(naive.inner_edge(point), abs=1e-12)
    scopes = [point[f"chip.memory.l{number}.scope"] for number in level_numbers(inputs)]
    found = [share[0] for share in crossing_shares(inputs, len(scopes))]
    assert found == pytest.approx(naive.crossing_shares(point, scopes))


def test_one_kind_of_die_is_as_it_was():
    """A link that nothing crosses, of a share of 0, changes no bit."""
    plain = fastflow.evaluate("chip=pathfinding", "tech=n5", *POINT)
    keys = [key for key in BASE if key.startswith("chip.link.")]
    links = [f"+{key}={_written(key)}" for key in keys] + ["+chip.area.link=0", "+chip.power.link=0"]
    one = fastflow.evaluate("chip=pathfinding", "tech=n5", *POINT, *links)
    assert one["no_effect"][0].startswith("chip.area.link: as without it")
    pd.testing.assert_frame_equal(
        one.drop(columns="no_effect"), plain.drop(columns="no_effect"), check_exact=True
    )


def _written(key):
    from fastflow.schema import find_input

    value, unit = BASE[key][0].item(), find_input(key).unit
    return f"'{value!r} {unit}'" if unit else repr(value)


def test_two_halves_with_free_links_cost_less_and_run_the_same():
    common = ("chip=chiplets", "tech=n3", *POINT, "chip.chiplets.base.holds=intra", *FREE)
    cost = "cost.interposer.bond_yield=1"
    one = fastflow.evaluate(*common, cost).iloc[0]
    two = fastflow.evaluate(*common, cost, "chip.dies=2").iloc[0]
    assert two["time_s"] == one["time_s"]
    assert two["energy_J"] == one["energy_J"]
    assert two["die_usd"] < 0.9 * one["die_usd"]
    bonded = fastflow.evaluate(*common, "chip.dies=2").iloc[0]
    assert bonded["package_usd"] > two["package_usd"]


@given(st.floats(0.0, 0.1), st.floats(0.0, 0.1), st.sampled_from(HOLDS), st.integers(1, 4))
@cases(100)
def test_more_area_for_links_at_no_cost_is_never_worse(one, more, holds, number):
    changes = {"chip.chiplets.base.holds": holds, "chip.dies": number}
    less, much = (generate(with_(changes | {"chip.area.link": area})) for area in (one, one + more))
    assert much.dram.bandwidth[0] >= less.dram.bandwidth[0]
    assert much.levels[-1].design.bandwidth[0] >= less.levels[-1].design.bandwidth[0]


def test_what_lies_on_another_die_is_of_its_node():
    base = inputs_of("chip=chiplets", "tech=n3", *POINT, "chip.chiplets.base.holds=l2 dram")
    chip, of_n7 = generate(base), generate(inputs_of("chip=pathfinding", "tech=n7", *POINT))
    assert chip.levels[2].design.capacity == of_n7.levels[2].design.capacity
    own = generate(inputs_of("chip=pathfinding", "tech=n3", *POINT))
    assert chip.cores.mcus == own.cores.mcus
    assert chip.levels[1].design.capacity == own.levels[1].design.capacity


def test_what_crosses_takes_time_and_energy_and_is_no_faster_than_the_links():
    chip = generate(BASE)
    lanes = chip.die_links[0]
    assert chip.dram.bandwidth[0] <= lanes.bandwidth[0]
    assert chip.dram_latency[0] == pytest.approx(BASE["mem.latency"][0] + BASE["chip.link.latency"][0])
    alone = generate(with_({"chip.link.nominal_energy": 0.0}))
    assert chip.dram.energy[0] - alone.dram.energy[0] == pytest.approx(lanes.energy[0])


def test_a_die_of_an_older_node_costs_what_its_node_costs():
    old, new = (
        fastflow.evaluate("chip=chiplets", "tech=n3", *POINT, f"chip.chiplets.base.tech={tech}").iloc[0]
        for tech in ("n7", "n3")
    )
    assert old["die_usd"] < new["die_usd"]
    price = "+chip.chiplets.base.wafer_price=1 USD"
    given = fastflow.evaluate("chip=chiplets", "tech=n3", *POINT, price).iloc[0]
    assert given["die_usd"] < old["die_usd"]


def test_a_known_die_is_as_large_as_it_is():
    known = "+chip.chiplets.base.die_area=100 mm2"
    frame = fastflow.evaluate("chip=chiplets", "tech=n3", *POINT, known)
    inputs = inputs_of("chip=chiplets", "tech=n3", *POINT, known)
    sizes = {kind: (number[0], area[0] * 1e6) for kind, number, area in areas(inputs)}
    assert sizes == {"base": (2, pytest.approx(100.0)), "": (1, pytest.approx(650.0))}
    assert frame["reason"][0] == ""
    assert frame["die_usd"][0] != fastflow.evaluate("chip=chiplets", "tech=n3", *POINT)["die_usd"][0]


@pytest.mark.parametrize(
    ("area", "words"),
    [
        ("5 mm2", "at least the 55.82 mm2 of what such a die"),
        ("400 mm2", "leaves 50 mm2 for a die of the cores, which needs 354.2 mm2"),
    ],
)
def test_a_known_die_that_cannot_be_is_a_reason(area, words):
    row = fastflow.evaluate("chip=chiplets", *POINT, f"+chip.chiplets.base.die_area={area}").iloc[0]
    assert words in row["reason"]
    assert np.isnan(row["time_s"])


def test_grids_sweep_kinds_of_dies():
    frame = fastflow.evaluate(
        "chip=chiplets", "tech=n5,n3", *POINT, "chip.chiplets.base.tech=n7,n5", "chip.chiplets.base.dies=1,2"
    )
    assert len(frame) == 8
    assert (frame["reason"] == "").all()
    assert frame["die_usd"].nunique() == 8
    served = fastflow.evaluate(
        "chip=chiplets", "tech=n3", "mem=hbm4", "model=llama3_8b", "serve=decode", "serve.batch=4",
        "system.devices=4", "parallel.strategy=TP-4",
    )  # fmt: skip
    assert served["reason"][0] == ""


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("chip.chiplets.base.tech=n9", "chip.chiplets.base.tech=n9"),
        ("chip.chiplets.base.holds=core", "any of l2 l3 l4 dram intra inter"),
        ("chip.chiplets.base.dies=0", "at least 1"),
        ("+chip.chiplets.more.dies=1", "chip.chiplets.more.tech=nothing"),
        ("chip.link.latency=-1 ns", "at least 0"),
        ("+chip.chiplets.base.colour=red", "chip.chiplets.base.colour=red"),
    ],
)
def test_a_mistake_is_one_line(override, message):
    with pytest.raises(InputError) as error:
        fastflow.evaluate("chip=chiplets", *POINT, override)
    said = str(error.value).replace(" (from the overrides) is invalid", "")
    assert message in said
    assert "\n" not in said


def test_dies_without_links_are_a_point_with_a_reason():
    row = fastflow.evaluate("chip=chiplets", "tech=n3", *POINT, "chip.area.link=0").iloc[0]
    assert "link has no room" in row["reason"]
