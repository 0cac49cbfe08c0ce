"""Pipelines in blocks: 1F1B, interleaved, zero-bubble (Narayanan et al., 2021; Qi et al., 2024)."""

from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastflow.iteration import pipeline_order
from fastflow.iteration.block_order import in_flight, waiting
from fastflow.iteration.blocks import WEIGHT, BlockPlan, Blocks, block_spans, schedule_blocks
from fastflow.iteration.pipeline_order import GPIPE, INTERLEAVED, ONE_F_ONE_B, ZERO_BUBBLE
from fastflow.workload.graph import BACKWARD, FORWARD
from tests.checks import cases
from tests.naive import block_schedule as naive

ORDERS = {"gpipe": GPIPE, "1f1b": ONE_F_ONE_B, "interleaved": INTERLEAVED, "zero_bubble": ZERO_BUBBLE}
TIMES = ("forward", "input", "weight", "send", "reduce", "gather")
OVERLAPS = ("overlaps_sends", "overlaps_gradients", "overlaps_gathers")


def pipeline(order, stages, microbatches, chunks=1, layers=4, overlaps=True, **times):
    """A point; a time is that of every virtual stage, or a list."""
    point = {"order": order, "stages": stages, "chunks": chunks, "microbatches": microbatches}
    point |= {"layers": [layers] * (stages * chunks)} | dict.fromkeys(OVERLAPS, overlaps)
    for name in TIMES:
        time = times.get(name, 0.0)
        point[name] = time if isinstance(time, list) else [time] * (stages * chunks)
    return point


def tables(*points):
    def column(name, of):
        return np.array([value for point in points for value in point[name]], dtype=of)

    blocks = Blocks(
        np.cumsum([0, *(len(point["send"]) for point in points)]),
        *(column(name, np.float64) for name in TIMES[:-1]),
        column("layers", np.int64),
        column("gather", np.float64),
    )
    plan = [[ORDERS[point["order"]] for point in points]]
    plan += [[point[name] for point in points] for name in ("stages", "chunks", "microbatches", *OVERLAPS)]
    return blocks, BlockPlan(*map(np.array, plan))


def spans_of(point):
    """Return (start, end) of every block by (kind, virtual stage, micro-batch)."""
    spans = block_spans(*tables(pipeline("gpipe", 2, 3, forward=1.0), point), 1)
    keys = zip(spans.kind.tolist(), spans.virtual.tolist(), spans.microbatch.tolist(), strict=True)
    found = dict(zip(keys, zip(spans.start.tolist(), spans.end.tolist(), strict=True), strict=True))
    assert len(found) == spans.start.size
    return found


def only(point):
    return {name: column[0] for name, column in schedule_blocks(*tables(point))._asdict().items()}


@st.composite
def points(draw):
    order, stages = draw(st.sampled_from(list(ORDERS))), draw(st.integers(1, 5))
    chunks = draw(st.integers(1, 3)) if order in ("gpipe", "interleaved") else 1
    microbatches = draw(st.integers(1, 9))
    if order == "interleaved" and chunks > 1:
        microbatches = stages * draw(st.integers(1, 3))
    rng = Random(draw(st.integers(0, 2**32)))
    virtual = range(stages * chunks)

    def some(names):
        zero = rng.random() < 0.3
        return {
            name: [0.0 if zero else rng.choice([0.0, 0.1, 1.0, 1.0, 2.0, rng.uniform(0.0, 5.0)]) for _ in virtual]
            for name in names
        }

    point = {"order": order, "stages": stages, "chunks": chunks, "microbatches": microbatches}
    point |= {"layers": [rng.randint(1, 4) for _ in virtual]} | {name: rng.random() < 0.6 for name in OVERLAPS}
    for names in (TIMES[:2], *((name,) for name in TIMES[2:])):
        point |= some(names)
    return point


@given(st.lists(points(), min_size=1, max_size=3))
@cases(300)
def test_against_starts_that_only_grow(many):
    got = np.array(schedule_blocks(*tables(*many)))
    for i, point in enumerate(many):
        expected = naive.times(point)
        assert got[:, i] == pytest.approx(expected, rel=1e-12, abs=1e-12 * expected[0])
        assert (got[:, i] >= 0.0).all()  # an order that does not depend on times has no anomalies


@given(points())
@cases(150)
def test_spans(point):
    start, _ = naive.starts(point)
    work, got = naive.works(point), spans_of(point)
    for key, (begin, end) in got.items():
        assert begin == pytest.approx(start[key], rel=1e-12, abs=1e-12)
        assert end == pytest.approx(start[key] + work[key[0]][key[1]], rel=1e-12, abs=1e-12)
    assert got.keys() == start.keys()


@given(st.sampled_from(list(ORDERS)), st.integers(1, 6), st.integers(1, 4), st.integers(1, 12))
@cases(300)
def test_blocks_in_flight(order, stages, chunks, microbatches):
    chunks = chunks if order in ("gpipe", "interleaved") else 1
    if order == "interleaved" and chunks > 1:
        microbatches *= stages
    for stage in range(stages):
        most = in_flight(ORDERS[order], stages, stage, chunks, microbatches)
        waits = waiting(ORDERS[order], stages, stage, microbatches)
        assert (most, waits) == naive.most_in_flight(order, stages, stage, chunks, microbatches)
        if order == "zero_bubble":  # as much as the first stage of 1F1B keeps
            assert most + waits == min(stages, microbatches)
        if order in ("gpipe", "1f1b") and chunks == 1:
            assert most == pipeline_order.in_flight(ORDERS[order], stages, stage, microbatches)


def test_interleaved_stages_keep_more():
    """Korthikanti et al. (arXiv:2205.05198, section 4.2.3): 1 + (p - 1) / (p m) times as much, here 1 + 3/8."""
    assert [in_flight(INTERLEAVED, 4, stage, 2, 16) for stage in range(4)] == [11, 9, 7, 5]
    assert in_flight(INTERLEAVED, 4, 0, 2, 16) == in_flight(ONE_F_ONE_B, 4, 0, 1, 16) * 2 * (1 + 3 / 8)


@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 4))
@cases(60)
def test_bubble_of_equal_blocks(stages, groups, chunks):
    """(p - 1) / m of the work; interleaved (p - 1) / (m v) (Narayanan et al., section 2.2)."""
    microbatches = stages * groups
    work = (stages - 1) * 3.0
    for order in ("gpipe", "1f1b", "interleaved"):
        assert only(pipeline(order, stages, microbatches, forward=1.0, input=2.0))["bubble"] == work
    got = only(pipeline("interleaved", stages, microbatches, chunks, forward=1.0, input=2.0))
    assert got["bubble"] == work  # of a chunk, of which a stage has more
    assert got["bubble"] / got["busiest"] == pytest.approx((stages - 1) / (microbatches * chunks))


@given(st.integers(1, 8), st.integers(0, 9), st.sampled_from([(1, 1, 1), (2, 2, 2), (3, 4, 2), (2, 2, 1)]))
@cases(60)
def test_bubble_without_waits_for_weights(stages, more, times):
    """(p - 1)(f + b - w), a third of 1F1B's if all are equal (Qi et al., table 2)."""
    forward, back, weight = map(float, times)
    point = pipeline("zero_bubble", stages, stages + more, forward=forward, input=back, weight=weight)
    assert only(point)["bubble"] == (stages - 1) * (forward + back - weight)
    assert only(point | {"order": "1f1b"})["bubble"] == (stages - 1) * (forward + back + weight)
    whole = pipeline("zero_bubble", stages, stages + more, forward=forward, input=back)
    assert only(whole) == only(whole | {"order": "1f1b"})  # nothing split off


def drawn(point):
    """A line for each stage; capitals and letters of chunks go forward, digits back, w are weight gradients."""
    spans, stages = spans_of(point), point["stages"]
    length = round(max(end for _, end in spans.values()))
    lines = [["."] * length for _ in range(stages)]
    for (kind, virtual, microbatch), (start, end) in spans.items():
        forward = "abcdefgh" if virtual >= stages else "ABCDEFGH"
        signs = {FORWARD: forward, BACKWARD: "12345678", WEIGHT: "wwwwwwww"}
        for tick in range(round(start), round(end)):
            assert lines[virtual % stages][tick] == "."
            lines[virtual % stages][tick] = signs[kind][microbatch]
    return ["".join(line) for line in lines]


def test_figures_as_drawn():
    """Four stages, eight micro-batches: Narayanan et al., figures 3 and 4; Qi et al., figure 3 (ZB-H1)."""
    assert drawn(pipeline("gpipe", 4, 8, forward=1.0, input=2.0)) == [
        "ABCDEFGH.........8877665544332211",
        ".ABCDEFGH......8877665544332211..",
        "..ABCDEFGH...8877665544332211....",
        "...ABCDEFGH8877665544332211......",
    ]
    assert drawn(pipeline("1f1b", 4, 8, forward=1.0, input=2.0)) == [
        "ABCD......11E22F33G44H55.66.77.88",
        ".ABC....11D22E33F44G55H66.77.88..",
        "..AB..11C22D33E44F55G66H77.88....",
        "...A11B22C33D44E55F66G77H88......",
    ]
    assert drawn(pipeline("interleaved", 4, 8, 2, forward=1.0, input=2.0)) == [
        "ABCDabcdEFG...11H22.e33f44g11h2233.44.55.66.77.8855667788",
        ".ABCDabcdE..11F22G33H44e11f22g33h44.55.66.77.8855667788..",
        "..ABCDabc.11d22E33F44G11H22e33f44g55h66.77.8855667788....",
        "...ABCDa11b22c33d44E11F22G33H44e55f66g77h8855667788......",
    ]
    assert drawn(pipeline("zero_bubble", 4, 8, forward=1.0, input=1.0, weight=1.0)) == [
        "ABCD...1wE2wF3wG4wH5w6w7w8w",
        ".ABC..1D2wE3wF4wG5wH6w7w8ww",
        "..AB.1C2D3wE4wF5wG6wH7w8www",
        "...A1B2C3D4wE5wF6wG7wH8wwww",
    ]
