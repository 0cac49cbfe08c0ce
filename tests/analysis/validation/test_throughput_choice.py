"""Choice of layouts and servers at the same load, against going through all rows one by one."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.analysis.measurements.choices import SERVED_CHOICES
from fastflow.analysis.validation.throughput_choice import throughput_choice, throughput_regret
from tests.support.checks import cases, near

LAYOUTS, SERVERS = SERVED_CHOICES
MEASURED, PREDICTED = "measured_tokens_per_s_per_device", "predicted_tokens_per_s_per_device"
POINTS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),  # model
        st.sampled_from([(8, 4), (16, 4), (16, 8), (32, 8)]),  # concurrency, devices: loads of 2 and 4
        st.sampled_from(["TP-4", "TP-8", "TP-4-d2"]),
        st.sampled_from(["vllm", "sglang"]),
        st.integers(1, 5),  # measured
        st.integers(1, 5),  # predicted
    ),
    min_size=1,
    max_size=24,
)


def frame_of(points):
    """Return the rows of a validation; the last row of a line alone has a throughput."""
    rows = []
    for line, (model, (concurrency, devices), layout, server, measured, predicted) in enumerate(points, 2):
        common = {
            "line": line, "system": "h100", "model": model, "isl": 8, "osl": 8, "concurrency": concurrency,
            "devices": devices, "strategy": layout, "backend": server, "attention_dp": np.nan,
        }  # fmt: skip
        rows += [common | {"part": "ttft", MEASURED: np.nan, PREDICTED: float(predicted)}]
        rows += [common | {"part": "tpot", MEASURED: float(measured), PREDICTED: float(predicted)}]
    return pd.DataFrame(rows)


def counted(points, of_job, candidate_of):
    """Return jobs, candidates, and the regret and tau of each job."""
    jobs = {}
    for point in dict.fromkeys(points):  # equal rows once
        jobs.setdefault(of_job(point), {}).setdefault(candidate_of(point), []).append(point[-2:])
    count, regrets, taus = 0, [], []
    for candidates in jobs.values():
        if len(candidates) < 2:
            continue
        count += len(candidates)
        pairs = [
            tuple(sum(part) / len(part) for part in zip(*rows, strict=True)) for rows in candidates.values()
        ]
        highest = max(predicted for _, predicted in pairs)
        chosen = [measured for measured, predicted in pairs if near(predicted, highest)]
        best = max(measured for measured, _ in pairs)
        regrets.append(1.0 - sum(chosen) / len(chosen) / best)
        signs = [np.sign(round((a[0] - b[0]) * (a[1] - b[1]), 9)) for a, b in combinations(pairs, 2)]
        signs = [sign for sign in signs if sign]
        taus += [sum(signs) / len(signs)] if signs else []
    return len(regrets), count, regrets, taus


@given(POINTS)
@cases(150)
def test_a_choice_is_what_going_through_the_rows_gives(points):
    rows = frame_of(points)
    for choice, of_job, candidate_of in (
        (LAYOUTS, lambda p: (p[0], p[1][0] / p[1][1], p[3]), lambda p: p[2]),
        (SERVERS, lambda p: (p[0], p[1][0] / p[1][1], p[2]), lambda p: p[3]),
    ):
        jobs, count, regrets, taus = counted(points, of_job, candidate_of)
        got = throughput_choice(rows, choice)
        if not jobs:
            assert got is None
            continue
        assert (got.jobs, got.candidates) == (jobs, count)
        assert near(got.mean_regret, np.mean(regrets), 1e-9)
        assert near(got.median_regret, np.median(regrets), 1e-9)
        assert near(got.max_regret, max(regrets), 1e-9)
        assert got.tau == pytest.approx(np.mean(taus) if taus else np.nan, nan_ok=True)


A, B = ("a", (16, 8), "TP-8", "vllm", 4, 3), ("a", (8, 4), "TP-4", "vllm", 3, 4)


def test_jobs_have_the_same_load_per_device_and_equal_rows_count_once():
    ranking = throughput_choice(frame_of([A, B, B, B]), LAYOUTS)
    assert (ranking.jobs, ranking.candidates) == (1, 2)
    assert ranking.mean_regret == pytest.approx(0.25)
    assert ranking.tau == -1.0
    better = (*B[:4], 5, 4)  # the same layout measured better: the mean of two, of three rows
    assert throughput_choice(frame_of([A, B, B, better]), LAYOUTS).mean_regret == 0.0
    assert throughput_choice(frame_of([A, ("a", (16, 4), *B[2:])]), LAYOUTS) is None
    assert throughput_choice(frame_of([A, B]), SERVERS) is None


def test_rows_without_a_throughput_are_left_out():
    rows = frame_of([A, B])
    assert throughput_choice(rows.assign(**{PREDICTED: np.nan}), LAYOUTS) is None
    assert throughput_choice(rows.drop(columns=MEASURED), LAYOUTS) is None
    assert throughput_choice(rows.assign(osl=rows["line"]), LAYOUTS) is None
    assert throughput_choice(rows.drop(columns="osl"), LAYOUTS).jobs == 1


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=9))
@cases(80)
def test_regret_is_what_the_choice_costs(rates):
    measured, predicted = np.array(rates, dtype=float).T
    chosen = [rate for rate, guess in rates if guess == predicted.max()]
    assert near(throughput_regret(measured, predicted), 1.0 - np.mean(chosen) / measured.max(), 1e-12)
    assert throughput_regret(measured, measured) == 0.0
