"""Generated traces: their statistics, and that a file of one gives it back."""

from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.physics.workload import trace_file, trace_generators
from fastflow.physics.workload.prompt_texts import prompt_texts
from fastflow.physics.workload.request_trace import _parse_version, read_trace
from fastflow.physics.workload.trace_distributions import (
    DAY,
    Arrivals,
    FromFile,
    Independent,
    Lognormal,
    Uniform,
    sinusoidal,
)
from fastflow.physics.workload.trace_file import write_trace
from fastflow.physics.workload.trace_generators import MAX_TURNS, Sessions, generate_trace
from tests.support import traces
from tests.support.checks import cases

LENGTHS = Independent(Uniform(10, 90), Uniform(5, 15))
MANY = 20_000


def equal(one, other):
    def same(a, b):
        is_float = isinstance(a, np.ndarray) and a.dtype.kind == "f"  # a deadline may be NaN
        return np.array_equal(a, b, equal_nan=is_float)

    return all(same(a, b) for a, b in zip(one, other, strict=True))


def drawn(distribution, count=MANY):
    return distribution.draw(count, np.random.default_rng(7))


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_times_between_arrivals_have_the_mean_and_variation_of_a_gamma_distribution(burstiness):
    gaps = np.diff(drawn(Arrivals(5.0, burstiness)), prepend=0.0)
    assert gaps.mean() == pytest.approx(1 / 5.0, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.05)


def test_arrivals_follow_the_hours_of_the_day():
    weights = tuple(float(hour % 7) for hour in range(24))
    arrivals = drawn(Arrivals(MANY / DAY / 2, 50.0, weights))  # two days, almost evenly
    seen = np.histogram(arrivals % DAY, 24, (0.0, DAY))[0]
    assert seen == pytest.approx(np.array(weights) / sum(weights) * MANY, abs=0.02 * MANY / 24 + 20)
    assert (np.diff(arrivals) >= 0).all()
    assert arrivals[-1] == pytest.approx(2 * DAY, rel=0.02)


def test_a_sine_has_its_peak_at_the_hour_and_as_high_as_said():
    weights = np.array(sinusoidal(1.6, 9.5))
    assert weights.mean() == pytest.approx(1.0)
    assert weights.max() == pytest.approx(1.6, rel=1e-4)
    assert (weights.argmax() + 0.5) / 60 == pytest.approx(9.5, abs=0.01)
    assert weights.min() == pytest.approx(0.4, rel=1e-4)


def test_lengths_have_their_mean_and_limits():
    tokens = drawn(Lognormal(600, 0.8))
    assert tokens.mean() == pytest.approx(600, rel=0.03)
    assert np.log(tokens).std() == pytest.approx(0.8, rel=0.03)
    assert np.median(tokens) == pytest.approx(600 * exp(-(0.8**2) / 2), rel=0.03)
    cut = drawn(Lognormal(600, 0.8, 100, 1000))
    assert (cut.min(), cut.max()) == (100, 1000)
    assert set(drawn(Lognormal(600, 0.0), 5)) == {600}
    assert np.bincount(drawn(Uniform(3, 6)))[3:] == pytest.approx(np.full(4, MANY / 4), rel=0.05)


def test_lengths_of_a_file_stay_pairs(tmp_path):
    (tmp_path / "a.csv").write_text("isl,osl\n10,1\n20,2\n30,3\n")
    isl, osl = drawn(FromFile(str(tmp_path / "a.csv")))
    assert (isl == 10 * osl).all()
    assert np.bincount(osl)[1:] == pytest.approx(np.full(3, MANY / 3), rel=0.05)


def test_sessions_have_turns_that_wait_for_users_or_tools():
    sessions = Sessions(turns=3.0, think_time=20.0, tool_share=0.25, tool_time=0.5)
    trace = generate_trace(MANY // 3, Arrivals(2.0), LENGTHS, sessions, seed=3)
    turns = np.bincount(trace.session)
    assert turns.mean() == pytest.approx(3.0, rel=0.03)
    assert (turns == 1).mean() == pytest.approx(1 / 3, rel=0.05)
    assert (trace.waits == (trace.turn > 0)).all()
    waits = trace.sent[trace.waits]
    assert waits.mean() == pytest.approx(0.75 * 20.0 + 0.25 * 0.5, rel=0.04)
    assert (waits < 0.5).mean() == pytest.approx(0.25 * (1 - exp(-1)) + 0.75 * (1 - exp(-0.5 / 20)), rel=0.05)
    first = trace.sent[~trace.waits]
    assert np.diff(first).mean() == pytest.approx(0.5, rel=0.04)
    assert first[0] == 0.0


def test_prompts_have_the_prefix_and_all_turns_before_them():
    new, answer = 7, 3
    trace = generate_trace(
        50, Arrivals(2.0), Independent(Uniform(40, 40), Uniform(answer, answer)), Sessions(4.0, fixed=True),
        Independent(Uniform(new, new), Uniform(answer, answer)), shared_prefix=100,
    )  # fmt: skip
    assert (np.bincount(trace.session) == 4).all()
    assert (trace.isl == 140 + trace.turn * (answer + new)).all()
    texts = prompt_texts(trace, 100)
    assert (texts.parent == -1).sum() == 1
    assert sorted({*texts.tokens.tolist()}) == [answer, new, 40, 100]


def test_a_session_ends_before_its_context_is_too_long():
    sessions = Sessions(9.0, fixed=True, max_context=200)
    trace = generate_trace(500, Arrivals(2.0), LENGTHS, sessions)
    later = trace.turn > 0
    assert (trace.isl + trace.osl)[later].max() <= 200
    whole = generate_trace(500, Arrivals(2.0), LENGTHS, sessions._replace(max_context=0))
    expected = (whole.turn == 0) | (whole.isl + whole.osl <= 200)
    assert trace.isl.tolist() == whole.isl[expected].tolist()
    assert trace.turn.tolist() == whole.turn[expected].tolist()


def test_requests_of_one_turn_have_no_sessions():
    trace = generate_trace(9, Arrivals(2.0), LENGTHS)
    assert trace.session.tolist() == [-1] * 9
    assert not trace.waits.any()


def test_equal_seeds_give_equal_traces():
    same = [generate_trace(20, Arrivals(2.0), LENGTHS, Sessions(2.0), seed=seed) for seed in (1, 1, 2)]
    assert equal(*same[:2])
    assert not equal(*same[1:])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((0, Arrivals(1.0), LENGTHS), "1 to 5e.07 sessions, not 0"),
        ((1, Arrivals(0.0), LENGTHS), "a rate above 0, not 0.0"),
        ((1, Arrivals(1.0, 0.0), LENGTHS), "a burstiness above 0, not 0.0"),
        ((1, Arrivals(1.0, 1.0, (1.0, -1.0)), LENGTHS), "weights from 0, not all 0"),
        ((1, Arrivals(1.0, 1.0, (0.0, 0.0)), LENGTHS), "weights from 0, not all 0"),
        ((1, Arrivals(1.0), Independent(Uniform(5, 4), Uniform(1, 1))), "in order, from 1, not 5 and 4"),
        ((1, Arrivals(1.0), Independent(Lognormal(0.5, 1), Uniform(1, 1))), "a mean from 1 token, not 0.5"),
        ((1, Arrivals(1.0), Independent(Lognormal(5, -1), Uniform(1, 1))), "a sigma from 0, not -1"),
        ((1, Arrivals(1.0), LENGTHS, Sessions(0.5)), f"1 to {MAX_TURNS:,} turns on average, not 0.5"),
        ((1, Arrivals(1.0), LENGTHS, Sessions(tool_share=1.5)), "a share of tools from 0 to 1, not 1.5"),
        ((1, Arrivals(1.0), LENGTHS, Sessions(think_time=-1.0)), "a think time from 0 s, not -1.0"),
        ((1, Arrivals(1.0), LENGTHS, Sessions(tool_time=-1.0)), "a time of tools from 0 s, not -1.0"),
        ((1, Arrivals(1.0), LENGTHS, Sessions(max_context=-1)), "a limit of the context from 0 tokens"),
        ((1, Arrivals(1.0), LENGTHS, Sessions(), None, -1), "a shared prefix from 0 tokens, not -1"),
    ],
)
def test_parameters_out_of_range_are_refused(arguments, says):
    with pytest.raises(ValueError, match=f"^expected .*{says}"):
        generate_trace(*arguments)


def test_more_requests_than_memory_has_room_for_are_refused(monkeypatch):
    monkeypatch.setattr(trace_generators, "MAX_REQUESTS", 100)
    with pytest.raises(ValueError, match="expected at most 100 requests, not 150"):
        generate_trace(50, Arrivals(1.0), LENGTHS, Sessions(3.0, fixed=True))


def test_a_peak_of_more_than_twice_the_mean_is_no_sine():
    with pytest.raises(ValueError, match="a peak of 1 to 2 times the mean, not 3"):
        sinusoidal(3)


@pytest.mark.parametrize("name", ["b.csv", "b.jsonl", "b.NDJSON"])
@cases(25)
@given(lines=traces.requests(), part=st.sampled_from([1, 2, 65_536]))
def test_what_is_written_is_read_back(tmp_path, name, lines, part):
    traces.write(tmp_path / "a.csv", lines, 0)
    _parse_version.cache_clear()
    trace = read_trace(str(tmp_path / "a.csv"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_file, "_PART", part)
        write_trace(trace, tmp_path / name)
    assert equal(trace._replace(block_tokens=0), read_trace(str(tmp_path / name))._replace(block_tokens=0))
    if trace.hash_ids.size:
        assert read_trace(str(tmp_path / name)).block_tokens == trace.block_tokens


@pytest.mark.parametrize("name", ["b.csv", "b.jsonl"])
def test_a_generated_trace_is_read_back_to_the_bit(tmp_path, name):
    trace = generate_trace(200, Arrivals(0.3, 0.5, sinusoidal(1.9)), LENGTHS, Sessions(2.5, think_time=9.0))
    write_trace(trace, tmp_path / name)
    assert equal(trace, read_trace(str(tmp_path / name)))


def test_a_file_without_a_known_suffix_is_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"one of \.csv, \.jsonl, \.json, \.ndjson, not a\.parquet"):
        write_trace(generate_trace(1, Arrivals(1.0), LENGTHS), tmp_path / "a.parquet")


def test_each_session_names_one_adapter_and_popular_ones_come_more_often(tmp_path):
    sessions = Sessions(turns=3.0, adapters=10, adapter_skew=1.0)
    trace = generate_trace(4000, Arrivals(2.0), LENGTHS, sessions, seed=3)
    of_session = {}
    for session, adapter in zip(trace.session.tolist(), trace.adapter.tolist(), strict=True):
        assert of_session.setdefault(session, adapter) == adapter
    counts = np.sort(np.bincount(list(of_session.values())))[::-1]
    assert counts == pytest.approx(4000 / np.arange(1, 11) / (1 / np.arange(1, 11)).sum(), rel=0.25)
    write_trace(trace, tmp_path / "a.csv")
    assert np.array_equal(read_trace(str(tmp_path / "a.csv")).adapter, trace.adapter)
