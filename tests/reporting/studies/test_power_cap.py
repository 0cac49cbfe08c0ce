"""The study of power limits: what is claimed, read off and drawn."""

import numpy as np
import pandas as pd
import pytest

from fastflow.config.composer import Composer
from fastflow.engine.grid.plan import plan
from fastflow.reporting.charts.style import render
from fastflow.reporting.studies import power_cap as study
from fastflow.reporting.studies import report_of

TRAINING, MANY, FEW, SAVES, ORDER, FEWER, BEST, REST = range(8)
BUDGETS = {"h100_sxm": 700.0, "a100_sxm_80": 400.0}
SHARES = np.arange(40, 101, 5) / 100
SLOPES = {study.TRAINING: 0.2, study.MANY: 0.1, study.FEW: 0.05}
"""Speed that the whole range of limits costs, over the range; least energy is at half of the limit."""


def points(change=lambda row, work, share: None):
    """Points of the study under which every claim holds; `change` may set what it likes in a row."""
    rows = []
    for chip, model, work in study.CASES:
        for share in SHARES:
            speed = 1000.0 * (1.0 - SLOPES[work] * (1.0 - share))
            joules = 0.1 * (0.7 + 1.2 * (share - 0.5) ** 2)
            row = {
                "chip": chip, "model": model, "devices": 4, "feasible": True,
                "serve.concurrency": {study.TRAINING: np.nan, study.FEW: 32.0, study.MANY: 256.0}[work],
                "power_limit_W": share * BUDGETS[chip], "tokens_per_s": 4.0 * speed,
                "tokens_per_s_per_device": speed, "time_s": 2.0, "energy_J": 8.0 * speed * joules,
                "joules_per_token": np.nan if work == study.TRAINING else joules,
            }  # fmt: skip
            change(row, work, round(share, 2))
            rows.append(row)
    return pd.DataFrame(rows)


def verdicts(frame):
    return [claim.holds for claim in study.claims(frame)]


def test_everything_that_is_claimed_can_hold():
    claims = study.claims(points())
    assert all(claim.holds for claim in claims), "\n".join(claim.line for claim in claims)


def scaled(name, where, factor):
    def change(row, work, share):
        if where(row, work, share):
            row[name] *= factor

    return change


SPEED, JOULES = "tokens_per_s_per_device", "joules_per_token"


@pytest.mark.parametrize(
    ("which", "change"),
    [
        ({TRAINING}, scaled(SPEED, lambda row, work, share: work == study.TRAINING and share == 0.7, 0.9)),
        ({MANY, ORDER}, scaled(SPEED, lambda row, work, share: work == study.MANY and share == 0.7, 0.955)),
        ({FEW, ORDER}, scaled(SPEED, lambda row, work, share: work == study.FEW and share == 0.7, 0.94)),
        ({SAVES}, scaled(JOULES, lambda row, work, share: work == study.MANY and share == 1.0, 0.9)),
        ({ORDER}, scaled(SPEED, lambda row, work, share: work == study.TRAINING and share == 0.7, 1.05)),
        ({FEWER}, scaled(SPEED, lambda row, work, share: work == study.FEW and share == 0.5, 0.9)),
        ({BEST}, scaled(JOULES, lambda row, work, share: work == study.FEW and share == 0.8, 0.5)),
        ({REST}, scaled("energy_J", lambda row, work, share: share == 0.4, 0.5)),
    ],
)
def test_each_claim_can_fail(which, change):
    failed = {number for number, holds in enumerate(verdicts(points(change))) if not holds}
    assert failed == which


def test_numbers_are_over_those_at_the_budget():
    limits, case = study.Limits(points()), ("h100_sxm", study.DENSE, study.TRAINING)
    at = limits.at(case, 0.7)
    assert at.speed == pytest.approx(1.0 - 0.2 * 0.3)
    assert at.tokens == pytest.approx(940.0)
    assert at.joules_per_token == pytest.approx(0.1 * 0.748)
    assert at.joules == pytest.approx(0.748 / 1.0)
    assert limits.best(case) == 0.5
    assert limits.lost(case) == pytest.approx(0.06)


def test_claims_without_their_points_are_not_judged():
    frame = points()
    assert verdicts(frame.head(0)) == [False] * 8
    lost = frame.assign(feasible=frame["power_limit_W"] != 0.7 * 700.0)
    assert "not judged, no time for 8B dense on H100, training at 70%" in study.claims(lost)[TRAINING].line


@pytest.mark.parametrize("rows", [0, 5, None])
def test_it_is_drawn(rows):
    how = report_of("power_cap")
    frame = points()[list(how.columns)]
    drawn = render(lambda: how.draw(frame.head(len(frame) if rows is None else rows)))
    assert drawn.startswith(b"<?xml")
    assert b"47B mixture, A100" in drawn


def test_its_grid():
    grid = plan(Composer.of_library(), ["+sweeps=power_cap"]).grid
    assert grid.points == 2 * 13 * (1 + 1 + 2 + 2)
