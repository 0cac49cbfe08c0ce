"""Limits of racks and of the site against the oracle: what exceeds them, and the advised power limit."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.core.reasons.forms import rack_above_limit
from fastflow.physics.site.limits import (
    DRAWN,
    has_site_limits,
    is_within_limits,
    power_excess,
    site_limit_columns,
)
from tests.naive.site_limits import power_with_devices_at, site_limits
from tests.support.checks import near

AIR = {"fans": 0.1, "conversion": 0.978, "pue": 1.1, "rack_devices": 32}
WORK = {
    "training": ("model=llama3_8b", "system=superpod_h100", "system.devices=64", "parallel.strategy=TP-8-d8"),
    "budgets": ("model=gemm", "model.m=4096", "model.k=4096", "model.n=4096"),
    "pools": (
        "model=llama3_8b", "system=dgx_h100", "parallel.strategy=TP-2-d2", "serve=disaggregated",
        "serve.isl=512", "serve.osl=64", "serve.concurrency=16", "serve.simulate=false",
        "serve.prefill.devices=4", "serve.prefill.strategy=TP-2-d2",
    ),
}  # fmt: skip
POWERS = st.floats(1e-3, 1e9)


@given(POWERS, st.none() | POWERS, st.none() | POWERS, st.integers(1, 4096))
def test_what_exceeds_limits_is_the_oracles(device, rack_limit, site_limit, devices):
    row = {
        "gpu_J": 1.0, "machine_J": 1.5, "site_J": 2.0, "gpu_W": device, "rack_devices": 4, "devices": devices,
    }  # fmt: skip
    columns = {"rack_W": np.array([6.0 * device]), "system_W": np.array([2.0 * device * devices])}
    limits = dict(zip(DRAWN, (rack_limit, site_limit), strict=True))
    inputs = {key: np.array([limit]) for key, limit in limits.items() if limit is not None}
    exceeded, excess = site_limits(row, rack_limit, site_limit)
    if not any(near(columns[DRAWN[key]][0], limit, 1e-12) for key, limit in limits.items() if limit):
        assert is_within_limits(inputs, columns)[0] == (not exceeded)
    assert power_excess(inputs, columns)[0] == pytest.approx(excess, rel=1e-9, abs=1e-9)
    assert has_site_limits(inputs) == bool(inputs)
    shown = site_limit_columns(inputs | {"chip.tdp": np.ones(1)})
    assert [*shown] == ["rack_limit_W", "site_limit_W"]
    for column, limit in zip(shown.values(), limits.values(), strict=True):
        assert column[0] == limit if limit is not None else np.isnan(column[0])


def test_no_power_exceeds_nothing():
    columns = {name: np.array([np.nan]) for name in DRAWN.values()}
    inputs = dict.fromkeys(DRAWN, np.array([1.0]))
    assert is_within_limits(inputs, columns).tolist() == [True]
    assert power_excess(inputs, columns).tolist() == [0.0]


@pytest.mark.parametrize("share", [0.95, 0.8])
@pytest.mark.parametrize("key", DRAWN)
@pytest.mark.parametrize("work", WORK)
def test_the_advised_power_limit_is_the_oracles(work, key, share):
    """With all devices at it the limit is drawn, but for the digits that are left out."""
    row = fastflow.evaluate(*WORK[work]).iloc[0]
    limit = share * float(row[DRAWN[key]])
    (reason,) = fastflow.evaluate(*WORK[work], f"{key}='{limit!r} W'")["reason"]
    advised = float(re.search(r"chip\.power_limit='(.*?) W'", reason)[1])
    rack, system = power_with_devices_at(row, advised, **AIR)
    drawn = rack if key == "power.rack_limit" else system
    assert 0.985 * limit < drawn <= limit


def test_powers_have_as_many_digits_as_tell_them_apart():
    text = str(rack_above_limit(drawn=40000.004, limit=4e4, devices=31, of_device=300.0))
    assert "draws 40.000004 kW, above power.rack_limit=40 kW" in text
