"""Leakage: the definition, and what a hot die costs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.physics.hardware.leakage import excess, of_supply

TEMPERATURES = st.floats(0.0, 150.0)
MODEL = ("model=gemm", "model.m=8192", "model.n=8192", "model.k=8192", "model.dtype=bf16")
DEGREES = (25, 65, 90, 110)


def at(*overrides, degrees=DEGREES):
    return fastflow.evaluate(*MODEL, "chip.temperature=" + ",".join(map(str, degrees)), *overrides)


@given(TEMPERATURES, st.floats(0.0, 1.0), st.floats(5.0, 100.0))
def test_it_doubles_with_every_rise(degrees, share, doubling):
    def more(temperature):
        column = {
            "chip.temperature": temperature, "tech.core.leakage_fraction": share,
            "tech.core.leakage_doubling": doubling,
        }  # fmt: skip
        return excess({key: np.array([value]) for key, value in column.items()})[0]

    leaks = share + more(degrees)  # over the power at rest at the reference
    assert leaks == pytest.approx(share * 2 ** ((degrees - 65) / doubling))
    assert share + more(degrees + doubling) == pytest.approx(2 * leaks)


@given(st.floats(0.1, 1.0))
def test_it_falls_with_the_cube_of_the_supply(supply):
    assert of_supply(np.array([supply**2]))[0] == pytest.approx(supply**3)


@pytest.mark.parametrize("chip", ["h100_sxm", "b200_sxm", "mi300x"])
def test_a_real_chip_rests_at_its_share_and_what_leaks(chip):
    frame = at(f"chip={chip}").set_index("chip.temperature")
    rest = frame.idle_W[65]
    for degrees in DEGREES:
        expected = rest * (1 + 0.5 * (2 ** ((degrees - 65) / 35) - 1))
        assert frame.idle_W[degrees] == pytest.approx(expected)


@pytest.mark.parametrize("chip", ["h100_sxm", "pathfinding"])
def test_a_hotter_die_is_not_faster_and_draws_more_at_rest(chip):
    frame = at(f"chip={chip}")
    assert (np.diff(frame.idle_W) > 0.0).all()
    assert (np.diff(frame.time_s) >= 0.0).all()
    assert frame.time_s.iloc[-1] > 1.01 * frame.time_s.iloc[0]


def test_at_a_limit_a_hot_die_draws_the_limit_and_takes_longer():
    frame = at("chip=h100_sxm", "chip.power_limit='400 W'")
    assert (frame.energy_J / frame.time_s).to_numpy() == pytest.approx(400.0, rel=0.01)
    assert (np.diff(frame.time_s) > 0.0).all()


def test_cores_from_budgets_leave_what_leaks():
    """Leakage beyond the reference is power that cores do not have for switching."""
    cool, hot = at("chip=pathfinding", degrees=(65, 100)).to_dict("records")
    assert hot["core_V"] < cool["core_V"]
    assert hot["full_W"] < 1.05 * cool["full_W"]


@pytest.mark.parametrize("value", ["-1", "151", "warm"])
def test_wrong_temperatures_are_refused(value):
    with pytest.raises(fastflow.InputError, match=r"chip\.temperature"):
        fastflow.evaluate("model=gemm", "chip=h100_sxm", f"chip.temperature={value}")
