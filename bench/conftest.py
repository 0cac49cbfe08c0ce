from __future__ import annotations

from collections.abc import Callable

import pytest

from fastflow.config.composer import Composer
from fastflow.core.tables import Inputs
from fastflow.engine.grid.plan import plan

TECHNOLOGY = ("tech=n12,n7,n5,n3,n2,n1_4,n1", "mem=hbm2,hbm2e,hbm3,hbm4", "net=ndr_x8,xdr_x8,gdr_x8")


@pytest.fixture
def points() -> Callable[..., Inputs]:
    """Compose overrides and return the inputs of all points that they span."""

    def compose(*overrides: str) -> Inputs:
        grid = plan(Composer.of_library(), overrides).grid
        (share,) = grid.shares(0, grid.points)
        return grid.inputs(share)

    return compose


def pytest_xdist_auto_num_workers() -> int:
    """Return that benchmarks run one after the other, in one process."""
    return 0
