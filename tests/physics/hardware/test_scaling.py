"""From node to node: the paper's rule and foundries' figures, against the oracle; what a bundle has once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.physics.hardware.chip import generate
from fastflow.physics.hardware.scaling import KINDS, NODES, Scaling, node_scaling
from tests.conftest import columns_of
from tests.naive import scaling as naive
from tests.support.checks import cases, near

TECHS = ("n12", *NODES)


@pytest.fixture(scope="module")
def points(compose):
    return {
        (scaling, tech): compose(f"scaling={scaling}", f"tech={tech}")
        for scaling in ("paper", "foundry")
        for tech in (*TECHS, "n4p")
    }


def test_every_node_divides_as_the_oracle(points):
    for (scaling, tech), point in points.items():
        got = node_scaling(columns_of([point]))
        for kind, value in zip(KINDS, got, strict=True):
            assert near(value[0], naive.divisor(point, kind)), (scaling, tech, kind)


@given(
    st.lists(st.floats(0.5, 3.0), min_size=len(NODES) * len(KINDS), max_size=len(NODES) * len(KINDS)),
    st.integers(0, 6),
)
@cases(50)
def test_steps_multiply(points, steps, generation):
    point = dict(points["foundry", "n12"]) | {"tech.generation": generation}
    keys = [f"scaling.{node}.{kind}" for node in NODES for kind in KINDS]
    point |= dict(zip(keys, steps, strict=True))
    got = node_scaling(columns_of([point]))
    for kind, value in zip(KINDS, got, strict=True):
        assert near(value[0], naive.divisor(point, kind))


def test_nodes_share_one_call(points):
    """Points of several nodes, each with its own steps."""
    some = [points["foundry", tech] for tech in TECHS]
    alone = [node_scaling(columns_of([point])) for point in some]
    together = node_scaling(columns_of(some))
    for kind, column in enumerate(together):
        assert column.tolist() == [one[kind][0] for one in alone]


def test_by_the_paper_all_cells_shrink_alike_and_links_do_not(points):
    for number, tech in enumerate(TECHS):
        got = Scaling(*(float(value[0]) for value in node_scaling(columns_of([points["paper", tech]]))))
        assert near(got.logic_area, 1.8**number)
        assert near(got.sram_power, 1.3**number)
        assert (got.sram_area, got.logic_power, got.analog_area) == (got.logic_area, got.sram_power, 1.0)


def test_by_foundries_memory_stops_to_shrink(points):
    """After N5, SRAM gains less in three nodes than logic in one."""
    at = {tech: node_scaling(columns_of([points["foundry", tech]])) for tech in TECHS}
    assert at["n3"].sram_area[0] == at["n5"].sram_area[0]
    assert at["n1_4"].sram_area[0] / at["n5"].sram_area[0] < 1.5
    assert at["n3"].logic_area[0] / at["n5"].logic_area[0] == pytest.approx(1.6)
    for kind in KINDS:
        values = [getattr(at[tech], kind)[0] for tech in TECHS]
        assert values == sorted(values), kind


def test_no_step_leads_beyond_the_last_node(points, summary):
    beyond = points["foundry", "n1"] | {"tech.generation": 7}
    got = summary([beyond, points["foundry", "n1"]])
    assert got["reason"][0] == (
        "tech.generation=7 is invalid: expected at most 6: scaling foundry has no further node"
    )
    assert np.isnan(got["time_s"][0])
    assert got["time_s"][1] > 0.0


@given(st.integers(1, 64), st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.sampled_from(TECHS))
@cases(60)
def test_an_mcu_shares_what_its_bundle_has_once(points, per_bundle, shared_area, shared_power, tech):
    point = points["foundry", tech] | {
        "chip.mcus_per_bundle": per_bundle,
        "tech.core.shared_area": shared_area,
        "tech.core.shared_power": shared_power,
        "chip.power.core": 0.6,
        "chip.memory.l0.capacity": 1.0,  # whatever registers and L1 there are, they serve all bundles
        "chip.memory.l1.capacity": 1.0,
    }
    made = generate(columns_of([point]))
    budget = point["chip.area.core"] * point["chip.die_area"]
    bundle = naive.mcu(point, "area") * per_bundle
    assert made.bundles[0] in (np.floor(budget / bundle), np.floor(budget / bundle * (1 + 1e-12)))
    if per_bundle == point["tech.core.nominal_bundle"]:
        assert near(
            naive.mcu(point, "area"), point["tech.core.nominal_area"] / naive.divisor(point, "logic_area")
        )


def test_larger_bundles_hold_more_mcus(points):
    """Twice the tensor units in a bundle: fewer bundles, more MCUs."""
    point = points["foundry", "n5"] | {"chip.memory.l0.capacity": 1.0, "chip.memory.l1.capacity": 1.0}
    small, large = (
        generate(columns_of([point | {"chip.mcus_per_bundle": count}])).cores.mcus[0] for count in (16, 32)
    )
    assert 1.1 < large / small < 1.5
