"""The paper's case study: 7 logic nodes x 4 memories x 3 networks (9, 9.1)."""

from itertools import product

import numpy as np
import pytest

TECHS = ("n12", "n7", "n5", "n3", "n2", "n1_4", "n1")
MEMORIES = ("hbm2", "hbm2e", "hbm3", "hbm4")
NETWORKS = ("ndr_x8", "xdr_x8", "gdr_x8")
NOISE = 1.005  # the random tilings' own


@pytest.fixture(scope="module")
def study(compose, summary):
    """Result columns of the 84 points, each of shape (7, 4, 3)."""
    points = [
        compose(f"tech={tech}", f"mem={mem}", f"net={net}", "chip=pathfinding", "model=lstm_lm")
        for tech, mem, net in product(TECHS, MEMORIES, NETWORKS)
    ]
    shape = len(TECHS), len(MEMORIES), len(NETWORKS)
    return {name: column.reshape(shape) for name, column in summary(points).items()}


def test_every_point_has_a_time(study):
    assert np.isfinite(study["time_s"]).all()
    assert (study["time_s"] > 0.0).all()
    assert np.isfinite(study["energy_J"]).all()


@pytest.mark.parametrize(("axis", "what"), [(0, "logic"), (1, "memory"), (2, "network")])
def test_time_never_rises_with_a_better_part(study, axis, what):
    time = np.moveaxis(study["time_s"], axis, 0)
    worst = (time[1:] / time[:-1]).max()
    assert worst <= NOISE, f"{what}: a better one is {worst - 1:.2%} slower"


def test_n12_to_n7_is_the_largest_step_with_every_memory(study):
    time = study["time_s"]
    step = time[:-1] / time[1:]
    for m, memory in enumerate(MEMORIES):
        for n, network in enumerate(NETWORKS):
            assert step[:, m, n].argmax() == 0, f"{memory}, {network}: {step[:, m, n].round(3)}"


def test_at_n12_l2_bandwidth_bounds_a_significant_share(study):
    assert (study["l2_bound_frac"][0] > 0.2).all(), study["l2_bound_frac"][0].round(3)


def test_data_parallel_study_overflows_hbm2(study):
    """Predicted all the same, with a reason that gives both figures: what is needed, and what is there."""
    assert not study["feasible"][:, 0].any()
    names = "reason", "footprint_B", "dram_capacity_B"
    for reason, need, have in zip(*(study[name][:, 0].ravel() for name in names), strict=True):
        assert f"{need / 1e9:.4g}" in reason
        assert f"{have / 1e9:.4g}" in reason
