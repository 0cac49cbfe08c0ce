"""The study of technology under servers: what is claimed, read off and drawn."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from fastflow.config.composer import Composer
from fastflow.engine.grid.plan import plan
from fastflow.reporting.charts.style import render
from fastflow.reporting.studies import report_of
from fastflow.reporting.studies import serving_technology as study
from fastflow.reporting.studies.fig09 import MEMORIES, NETWORKS, NODES

MEMORY, BEYOND, SATURATES, KEEP, NETWORK, TIMES, ROOM, LIMITED = range(8)
TOKENS_OF_MEMORY = {"hbm2": 1.0, "hbm2e": 2.5, "hbm3": 3.0, "hbm4": 4.0}


def tokens(model, load, i, memory, k):
    """Tokens of a device under which every claim holds."""
    if load == study.PROMPTS:
        return 10.0 * 1.1**i
    network = 1.0 + (0.3 if model == study.MIXTURE else 0.1) * k
    return 100.0 * TOKENS_OF_MEMORY[memory] * network * (1.0 if i == 0 else 1.5 * 1.01 ** (i - 1))


def servers(change=lambda row, i: None):
    """Points of the study, one layout of a few requests each; `change` may set what it likes in a row."""
    rows = []
    for model, load in product((study.DENSE, study.MIXTURE), (study.ANSWERS, study.PROMPTS)):
        devices = 16 if model == study.DENSE else 64
        for (i, node), memory, (k, network) in product(enumerate(NODES), MEMORIES, enumerate(NETWORKS)):
            row = {
                "tech": node, "mem": memory, "net": network, "model": model, "strategy": "any",
                "devices": devices, "serve.isl": load[0], "serve.concurrency": study.FEW * devices,
                "feasible": True,
                "tokens_per_s_per_device": tokens(model, load, i, memory, k),
                "ttft_s": 1.0 / (1.0 + i), "tpot_s": 0.03 / TOKENS_OF_MEMORY[memory],
                "decode_bound_by": "dram" if model == study.DENSE else "network",
                "prefill_bound_by": "compute",
            }  # fmt: skip
            change(row, i)
            rows.append(row)
    return pd.DataFrame(rows)


def verdicts(frame):
    return [claim.holds for claim in study.claims(frame)]


def test_everything_that_is_claimed_can_hold():
    claims = study.claims(servers())
    assert all(claim.holds for claim in claims), "\n".join(claim.line for claim in claims)


def scaled(where, factor):
    def change(row, i):
        if where(row, i):
            row["tokens_per_s_per_device"] *= factor

    return change


def set_to(where, **values):
    return lambda row, i: row.update(values) if where(row, i) else None


def is_answer(row, model=study.DENSE):
    return row["serve.isl"] == study.ANSWERS[0] and row["model"] == model


@pytest.mark.parametrize(
    ("which", "change"),
    [
        (MEMORY, scaled(lambda row, i: is_answer(row) and i == 1 and row["mem"] == "hbm2", 9.0)),
        (BEYOND, scaled(lambda row, i: is_answer(row) and i == 6 and row["mem"] == "hbm3", 2.0)),
        (SATURATES, scaled(lambda row, i: is_answer(row) and i > 4, 1.05)),
        (KEEP, scaled(lambda row, i: row["serve.isl"] == study.PROMPTS[0] and i > 4, 0.95)),
        (NETWORK, scaled(lambda row, i: is_answer(row) and row["net"] == "gdr_x8" and i == 2, 1.2)),
        (TIMES, set_to(lambda row, i: i == 6, tpot_s=0.001)),
        (ROOM, scaled(lambda row, i: is_answer(row) and row["mem"] == "hbm2", 1.3)),
        (LIMITED, set_to(lambda row, i: i == 6, decode_bound_by="launch")),
    ],
)
def test_each_claim_can_fail(which, change):
    claims = study.claims(servers(change))
    assert not claims[which].holds
    assert claims[which].line.endswith("; no")


def test_what_has_no_server_within_the_limit_is_not_judged():
    late = set_to(lambda row, i: is_answer(row, study.MIXTURE) and i == 6, tpot_s=0.041)
    claims = study.claims(servers(late))
    assert [claim.holds for claim in claims] == [True] * LIMITED + [False]
    assert "not judged, no time for qwen3_235b on N1 HBM3 NDR-x8 and 2 more" in claims[LIMITED].line
    assert verdicts(servers().head(0)) == [False] * 8


def test_the_limit_is_met_between_two_numbers_of_requests():
    one = servers()
    more = one.assign(**{
        "serve.concurrency": 2 * one["serve.concurrency"], "tpot_s": 0.05,
        "tokens_per_s_per_device": 2.0 * one["tokens_per_s_per_device"],
    })  # fmt: skip
    case, place = study.Servers(pd.concat([one, more])), ("n12", "hbm2", "ndr_x8")
    # 30 ms to 50 ms: 40 ms is half of the way from 100 to 200 tokens
    best = case.best(study.DENSE, study.ANSWERS, place)
    assert best is not None
    assert best.tokens == pytest.approx(150.0)
    assert case.unlimited(study.DENSE, place) == 200.0
    assert case.tokens(study.DENSE, study.PROMPTS, place) == 20.0
    # of another layout, the row above the limit is no neighbour
    apart = study.Servers(pd.concat([one, more.assign(strategy="other")]))
    assert apart.tokens(study.DENSE, study.ANSWERS, place) == 100.0


def test_points_without_results_are_left_out():
    frame = servers()
    lost = frame.assign(feasible=False, tpot_s=np.nan, tokens_per_s_per_device=np.nan)
    assert study.claims(pd.concat([lost, frame])) == study.claims(frame)


@pytest.mark.parametrize("rows", [0, 5, None])
def test_it_is_drawn(rows):
    how = report_of("serving_technology")
    frame = servers()[list(how.columns)]
    drawn = render(lambda: how.draw(frame.head(len(frame) if rows is None else rows)))
    assert drawn.startswith(b"<?xml")
    assert b"235B mixture, prompts, GDR-x8" in drawn


def test_its_grid():
    grid = plan(Composer.of_library(), ["+sweeps=serving_technology"]).grid
    assert grid.points == 7 * 4 * 3 * 2 * 14 * (5 + 4)
