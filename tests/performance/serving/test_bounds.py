"""Bounds of fleets without a simulation: no result is beyond them."""

import numpy as np
import pytest

import fastflow
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.engine.grid.plan import plan
from fastflow.performance.serving.bounds import fleet_bounds
from tests.performance.serving.fleet.test_predict import FLEET, SERVER, sessions, singles

UPPER = {"tokens_per_s", "tokens_per_s_per_device", "tokens_per_s_per_MW"}
SPLIT = (
    *SERVER[:3],
    "serve=disaggregated",
    "system.devices=3",
    "parallel.strategy=TP-1",
    "serve.prefill.devices=1",
)


@pytest.mark.parametrize(
    "overrides",
    [
        (*FLEET[:3], "serve=continuous", "parallel.strategy=TP-1", "system.devices=1,3,16"),
        (*FLEET, "cost=rent", "serve.trace_speed=0.01,5"),
        (*FLEET, "serve.num_requests=20"),
        (*FLEET, "serve.autoscale.by=queue", "serve.autoscale.target=4"),
        SPLIT,
        (*SPLIT, "serve.prefill.chip=h200_sxm"),
    ],
)
@pytest.mark.parametrize("trace", [sessions, singles])
def test_results_are_within_bounds(tmp_path, overrides, trace):
    overrides = (*overrides, f"serve.trace={trace(tmp_path)}")
    with hydra_rules():
        grid = plan(Composer.of_library(), overrides).grid
    rows = fastflow.evaluate(*overrides)
    assert rows["requests_per_s"].notna().all()
    for share in grid.shares(0, grid.points):
        for name, bound in fleet_bounds(grid.inputs(share)).items():
            values = rows[name].to_numpy(dtype=float)[share.points]
            assert (values <= bound if name in UPPER else values >= bound).all(), name
            assert np.isfinite(bound).all()


def test_bounds_are_near_where_a_fleet_rests(tmp_path):
    """Far fewer requests than a fleet can serve: it draws little more than at rest, for little longer."""
    overrides = (*FLEET, f"serve.trace={singles(tmp_path)}", "serve.trace_speed=0.001")
    with hydra_rules():
        (share,) = (grid := plan(Composer.of_library(), overrides).grid).shares(0, 1)
    row, bounds = fastflow.evaluate(*overrides).iloc[0], fleet_bounds(grid.inputs(share))
    for name in ("usd_per_h", "token_usd", "joules_per_token", "system_W"):
        assert row[name] == pytest.approx(bounds[name][0], rel=0.1), name
