"""Pipelines in blocks: 1F1B, interleaved, zero-bubble (Narayanan et al., 2021; Qi et al., 2024)."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.physics.schedule.pipeline_order import (
    DUALPIPE_V,
    GPIPE,
    INTERLEAVED,
    ONE_F_ONE_B,
    ZERO_BUBBLE,
    ZERO_BUBBLE_2P,
    ZERO_BUBBLE_V,
)
from fastflow.physics.schedule.stage_blocks import BlockPlan, Blocks, schedule_blocks
from fastflow.physics.schedule.stage_order import in_flight, waiting
from fastflow.physics.schedule.stage_programs import WEIGHT, block_sequence, most_kept
from fastflow.physics.schedule.stage_spans import block_spans
from fastflow.physics.schedule.timeline import schedule
from fastflow.physics.workload.graph import BACKWARD, FORWARD
from tests.naive import block_schedule as naive
from tests.physics.schedule.test_event_simulator import kernel_row
from tests.physics.schedule.test_event_simulator import tables as kernel_tables
from tests.support.checks import cases

ORDERS = {
    "gpipe": GPIPE, "1f1b": ONE_F_ONE_B, "interleaved": INTERLEAVED, "zero_bubble": ZERO_BUBBLE,
    "zb_2p": ZERO_BUBBLE_2P, "zb_v": ZERO_BUBBLE_V, "dualpipe_v": DUALPIPE_V,
}  # fmt: skip
NONE = {"none": 7}
TIMES = ("forward", "input", "weight", "send", "reduce", "gather", "tail")
OVERLAPS = ("overlaps_sends", "overlaps_gradients", "overlaps_gathers")


def pipeline(order, stages, microbatches, chunks=1, layers=4, overlaps=True, taken=0.0, **times):
    """A point; a time is that of every virtual stage, or a list."""
    point = {"order": order, "stages": stages, "chunks": chunks, "microbatches": microbatches}
    point |= {"layers": [layers] * (stages * chunks), "taken": taken} | dict.fromkeys(OVERLAPS, overlaps)
    for name in TIMES:
        time = times.get(name, 0.0)
        point[name] = time if isinstance(time, list) else [time] * (stages * chunks)
    return point


def tables(*points):
    def column(name, of):
        return np.array([value for point in points for value in point[name]], dtype=of)

    blocks = Blocks(
        np.cumsum([0, *(len(point["send"]) for point in points)]),
        *(column(name, np.float64) for name in TIMES[:-2]),
        column("layers", np.int64),
        column("gather", np.float64),
        column("tail", np.float64),
    )
    plan = [[(ORDERS | NONE)[point["order"]] for point in points]]
    names = ("stages", "chunks", "microbatches", *OVERLAPS, "taken")
    plan += [[point[name] for point in points] for name in names]
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
def shapes(draw, orders=tuple(ORDERS), max_stages=5, max_chunks=3, max_microbatches=9):
    """Draw an order, and stages, chunks and micro-batches that it is defined for."""
    order, stages = draw(st.sampled_from(orders)), draw(st.integers(1, max_stages))
    chunks = draw(st.integers(1, max_chunks)) if order in ("gpipe", "interleaved") else 1
    chunks = 2 if order in naive.FOLDED else chunks
    microbatches = draw(st.integers(1, max_microbatches))
    if order == "interleaved" and chunks > 1:
        microbatches += stages - 1
    return order, stages, chunks, microbatches + (2 * stages - 1 if order == "dualpipe_v" else 0)


@st.composite
def points(draw, orders=tuple(ORDERS)):
    order, stages, chunks, microbatches = draw(shapes(orders))
    rng = Random(draw(st.integers(0, 2**32)))
    virtual = range(stages * chunks)

    def some(names):
        zero = rng.random() < 0.3
        choices = [0.0] if zero else [0.0, 0.1, 1.0, 1.0, 2.0, 5.0 * rng.random()]
        return {name: [rng.choice(choices) for _ in virtual] for name in names}

    point = {"order": order, "stages": stages, "chunks": chunks, "microbatches": microbatches}
    point |= {"layers": [rng.randint(1, 4) for _ in virtual]}
    point |= {name: rng.random() < 0.6 for name in OVERLAPS} | {"taken": rng.choice([0.0, 0.15, 0.5])}
    for names in (TIMES[:2], *((name,) for name in TIMES[2:])):
        point |= some(names)
    return point


@pytest.mark.long
@given(st.lists(points(), min_size=1, max_size=3))
@cases(60)
def test_against_starts_that_only_grow(many):
    got = np.array(schedule_blocks(*tables(*many)))
    for i, point in enumerate(many):
        expected = naive.times(point)
        assert got[:, i] == pytest.approx(expected, rel=1e-12, abs=1e-12 * expected[0])
        assert (got[:, i] >= 0.0).all()  # an order that does not depend on times has no anomalies


@given(points(), st.sampled_from(OVERLAPS), st.floats(0.0, 0.5))
@cases(90)
def test_what_overlaps_takes_no_longer(point, name, taken):
    """Nor does it with fewer bundles taken."""
    point |= {name: True}
    shown, more = point | {name: False}, point | {"taken": max(taken, point["taken"])}
    hidden, shown, more = schedule_blocks(*tables(point, shown, more)).total
    assert hidden <= shown * (1 + 1e-12)
    assert hidden <= more * (1 + 1e-12)


STEPS = ("gpipe", "1f1b", "interleaved", "zero_bubble", "zb_2p")


@given(points(STEPS), st.integers(8, 20))
@cases(24)
def test_many_micro_batches_are_as_if_all_were_walked_through(point, turns):
    """Most of them only in thought; gradients' buckets follow the last blocks as they are."""
    point |= {"microbatches": point["stages"] * turns + point["microbatches"] % point["stages"]}
    expected = naive.times(point)
    got = np.array(schedule_blocks(*tables(point)))[:, 0]
    assert got == pytest.approx(expected, rel=1e-9, abs=1e-9 * expected[0])


@given(points(), st.integers(10, 120))
@cases(90)
def test_rounds_that_repeat_are_as_if_they_were_run(point, rounds):
    """`block_spans` runs every block; times too close to each other take many rounds to settle."""
    point["microbatches"] = point["stages"] * rounds + point["microbatches"] % point["stages"]
    blocks, plan = tables(point)
    times, spans = schedule_blocks(blocks, plan), block_spans(blocks, plan, 0)
    if point["order"] not in ("zb_2p", "zb_v"):
        assert times.total[0] - times.reduces[0] == pytest.approx(spans.end.max(), rel=1e-9)
    assert times.backward_start[0] == spans.start[spans.kind == BACKWARD].min()


@given(points())
@cases(36)
def test_spans(point):
    start, _ = naive.starts(point)
    got = spans_of(point)
    for key, (begin, end) in got.items():
        assert begin == pytest.approx(start[key], rel=1e-12, abs=1e-12)
        expected = naive.end_of(point, key, start[key], naive.works(point)[key])
        assert end == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert got.keys() == start.keys()


@given(shapes(max_stages=6, max_chunks=4, max_microbatches=12))
@cases(180)
def test_blocks_in_flight(shape):
    order, stages, chunks, microbatches = shape
    for stage in range(stages):
        expected = naive.most_kept(order, stages, stage, chunks, microbatches)
        assert most_kept(ORDERS[order], stages, stage, chunks, microbatches) == expected
        if order in naive.FOLDED:
            continue
        most = in_flight(ORDERS[order], stages, stage, chunks, microbatches)
        waits = waiting(ORDERS[order], stages, stage, microbatches)
        assert (most, waits) == naive.most_in_flight(order, stages, stage, chunks, microbatches)


@given(shapes(max_stages=6, max_chunks=4, max_microbatches=20))
@cases(180)
def test_sequences(shape):
    order, stages, chunks, microbatches = shape
    for stage in range(stages):
        blocks = naive.program(order, stages, stage, chunks, microbatches)
        got = block_sequence(ORDERS[order], stages, stage, chunks, microbatches)
        assert list(map(tuple, got[:3].T.tolist())) == blocks
        point = {"order": order, "stages": stages, "microbatches": microbatches}
        together = naive.joint_places(point, stage)
        for i, (kind, chunk, microbatch) in enumerate(blocks):
            splits = (WEIGHT, chunk, microbatch) in blocks
            mark = i in together if kind == FORWARD else not (kind == BACKWARD and splits)
            assert got[3, i] == mark


def test_activations_as_published():
    """ZB-H1 p, ZB-H2 2 p - 1; of half as large chunks ZB-V 2 p, DualPipe of half the devices 2 p + 1."""
    kept = {
        name: [most_kept(ORDERS[name], 8, s, 1, 32) for s in range(8)] for name in ("zero_bubble", "zb_2p")
    }
    assert kept == {"zero_bubble": [8] * 8, "zb_2p": [15] * 8}
    assert [most_kept(ZERO_BUBBLE_V, 8, stage, 2, 32) for stage in range(8)] == [16] * 8
    assert [most_kept(DUALPIPE_V, 8, stage, 2, 32) for stage in range(8)] == [17] * 8


def test_interleaved_stages_keep_more():
    """1 + (p - 1) / (p m) times as much: Korthikanti et al., arXiv:2205.05198, section 4.2.3."""
    assert [in_flight(INTERLEAVED, 4, stage, 2, 16) for stage in range(4)] == [11, 9, 7, 5]
    assert in_flight(INTERLEAVED, 4, 0, 2, 16) == in_flight(ONE_F_ONE_B, 4, 0, 1, 16) * 2 * (1 + 3 / 8)


@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 4))
@cases(36)
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
@cases(36)
def test_bubble_without_waits_for_weights(stages, more, times):
    """(p - 1)(f + b - w), a third of 1F1B's if all are equal (Qi et al., table 2)."""
    forward, back, weight = map(float, times)
    point = pipeline("zero_bubble", stages, stages + more, forward=forward, input=back, weight=weight)
    assert only(point)["bubble"] == (stages - 1) * (forward + back - weight)
    assert only(point | {"order": "1f1b"})["bubble"] == (stages - 1) * (forward + back + weight)
    whole = pipeline("zero_bubble", stages, stages + more, forward=forward, input=back)
    assert only(whole) == only(whole | {"order": "1f1b"})  # nothing split off


def drawn(point):
    """Return a line for each stage: letters go forward, capitals in chunk 0; digits back; w: weights."""
    spans, stages = spans_of(point), point["stages"]
    length = round(max(end for _, end in spans.values()))
    lines = [["."] * length for _ in range(stages)]
    for (kind, virtual, microbatch), (start, end) in spans.items():
        forward = "abcdefgh" if virtual >= stages else "ABCDEFGH"
        signs = {FORWARD: forward, BACKWARD: "12345678", WEIGHT: "wwwwwwww"}
        line = lines[naive.stage_of(point, virtual)]
        for tick in range(round(start), round(end)):
            assert line[tick] == "."
            line[tick] = signs[kind][microbatch]
    return ["".join(line) for line in lines]


def test_figures_as_drawn():
    """Huang et al., figure 2; Narayanan et al., figure 4, both halves; Qi et al., figure 3, both halves."""
    assert drawn(pipeline("gpipe", 4, 4, forward=1.0, input=1.0)) == [
        "ABCD......4321",
        ".ABCD....4321.",
        "..ABCD..4321..",
        "...ABCD4321...",
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
    assert drawn(pipeline("zb_2p", 4, 8, forward=1.0, input=1.0, weight=1.0)) == [
        "ABCDEFG1wH2w3w4w5w6w7w8w...",
        ".ABCDE1F2G3wH4w5w6w7w8www..",
        "..ABC1D2E3F4G5wH6w7w8wwwww.",
        "...A1B2C3D4E5F6G7wH8wwwwwww",
    ]


def test_folded_figures_as_drawn():
    """ZB-V; and DualPipe, the left half of its devices (DeepSeek-V3, figure 5), with 4 stages less.

    In DualPipe a pair of blocks that runs together takes as long as both.
    """
    assert drawn(pipeline("zb_v", 4, 8, 2, forward=1.0, input=1.0, weight=1.0)) == [
        "ABCDEFGa1wb2wc3wd4wH1we5w2wf6w3wg7w4wh8w5w6w7w8w...",
        ".ABCDEaFb1wc2wd3wG1we4wH2wf5w3wg6w4wh7w586w7w8www..",
        "..ABCaDbEc1wd2wF1we3wG2wf4wH3wg5w4wh6w57687w8wwwww.",
        "...AaBbCcDd1wE1we2wF2wf3wG3wg4wH4wh5w5667788wwwwwww",
    ]
    assert drawn(pipeline("dualpipe_v", 4, 8, 2, forward=1.0, input=1.0, weight=1.0)) == [
        "ABCDEFGa1wb2wc3wdH44...e1155.f2266.g3377.h44885w6w7w8w",
        ".ABCDEaFb1wc2wdG33..e11H44f2255.g3366.h447755.86w7w8ww",
        "..ABCaDbEc1wdF22.e11G33f22H44g3355.h446655.776.87w8www",
        "...AaBbCcDdE11e11F22f22G33g33H44h445555.6666.77.88wwww",
    ]


def test_groups_that_are_larger_than_the_stages():
    """5 micro-batches of 2 stages go in groups of 3 and 2 (Megatron-LM's get_schedule_table)."""
    assert drawn(pipeline("interleaved", 2, 5, 2, forward=1.0, input=2.0)) == [
        "ABCabc.11D22E33d11e22.33.44554455",
        ".ABCa11b22c33D11E22d33e44554455..",
    ]


@given(st.integers(1, 8), st.integers(0, 9))
@cases(36)
def test_bubbles_as_published(stages, more):
    """None with enough micro-batches (Qi et al.); (p / 2 - 1)(F&B + B - 3 W) of DualPipe (its README)."""
    many, equal = 2 * stages - 1 + more, {"forward": 1.0, "input": 1.0, "weight": 1.0}
    assert only(pipeline("zb_2p", stages, many, **equal))["bubble"] == 0.0
    assert only(pipeline("zb_v", stages, many, 2, **equal))["bubble"] == 0.0
    dual = pipeline("dualpipe_v", stages, 2 * stages + more, 2, **equal)
    assert only(dual)["bubble"] == (stages - 1) * (3.0 + 2.0 - 3.0)


HAND_LAID = pipeline("1f1b", 3, 2, forward=[1.0, 2.0, 1.0], input=[2.0, 3.0, 2.0], send=[1.0, 2.0, 0.0])


def by_stage(point, kind):
    """Return (start, end) of the blocks of a kind: a list for each virtual stage."""
    spans = spans_of(point)
    virtual, every = range(len(point["send"])), range(point["microbatches"])
    return [[spans[kind, stage, microbatch] for microbatch in every] for stage in virtual]


def test_a_hand_laid_pipeline():
    """A wire carries a message at a time: to stage 2 4-6 and 6-8, to stage 1 9-11 and 12-14."""
    assert by_stage(HAND_LAID, FORWARD) == [[(0, 1), (1, 2)], [(2, 4), (4, 6)], [(6, 7), (9, 10)]]
    assert by_stage(HAND_LAID, BACKWARD) == [[(15, 17), (18, 20)], [(11, 14), (14, 17)], [(7, 9), (10, 12)]]
    # without sends, stage 1 works 1-5 and 6-12, and stage 0 goes back 9-11 and 12-14
    expected = {
        "total": 20,
        "backward_start": 7,
        "busiest": 10,
        "bubble": 4,
        "sends": 6,
        "reduces": 0,
        "gathers": 0,
    }
    assert only(HAND_LAID) == expected


def test_a_wire_is_busy():
    """Stage 0 is done with three micro-batches at 3; they are on stage 1 at 5, 9 and 13."""
    point = pipeline("gpipe", 2, 3, forward=1.0, input=1.0, send=4.0)
    assert by_stage(point, FORWARD)[1] == [(5, 6), (9, 10), (13, 14)]
    assert by_stage(point, BACKWARD)[0] == [(27, 28), (23, 24), (19, 20)]  # stage 1 goes back 14-17


def test_sends_that_devices_wait_for():
    """Stage 1 sends 4-6 and receives 4-5 meanwhile; stage 2 sends and receives 9-11."""
    point = HAND_LAID | {"overlaps_sends": False}
    assert by_stage(point, FORWARD) == [[(0, 1), (2, 3)], [(2, 4), (6, 8)], [(6, 7), (11, 12)]]
    assert by_stage(point, BACKWARD) == [[(15, 17), (20, 22)], [(11, 14), (16, 19)], [(7, 9), (12, 14)]]
    assert only(point)["sends"] == 8


def test_sums_of_gradients():
    """Stage 0: buckets ready at 19 and 20 move 19-23. Stage 1: 17-22. Stage 2: from 10.5 on, hidden."""
    point = HAND_LAID | {"reduce": [4.0, 5.0, 9.0], "layers": [2, 1, 4]}
    assert (only(point)["total"], only(point)["reduces"]) == (23, 3)
    behind = only(point | {"overlaps_gradients": False})
    assert (behind["total"], behind["reduces"]) == (24, 4)  # stages 20-24, 17-22, 12-21
    # one chunk's sum after the other: ready at 4 and 7; and the last bucket of 2 is ready when all is done
    chunks = pipeline("gpipe", 1, 1, 2, layers=3, forward=1.0, input=3.0, reduce=[6.0, 6.0])
    assert only(chunks)["total"] == 3 + 12
    assert only(chunks | {"reduce": [6.0, 0.0]})["total"] == 8 + 4


def test_gathers_of_weights():
    """Chunk 0 of the only stage waits until 1, chunk 1 until 6; all of it until 6 where nothing overlaps."""
    point = pipeline("gpipe", 1, 2, 2, forward=1.0, input=1.0, gather=[1.0, 5.0])
    first = {block: start for block, (start, _) in spans_of(point).items() if block[0] == FORWARD}
    assert first == {(FORWARD, 0, 0): 1, (FORWARD, 0, 1): 2, (FORWARD, 1, 0): 6, (FORWARD, 1, 1): 7}
    assert only(point)["gathers"] == 12 - 8
    assert only(point | {"overlaps_gathers": False})["gathers"] == 6


def test_sums_and_gathers_take_bundles_from_blocks():
    """Half of them: the buckets of 1 move 1-2, 2.5-3.5, 4-5 and 5.5-6.5 beside a block of 4, done at 5.5."""
    point = pipeline("gpipe", 1, 1, input=4.0, reduce=4.0, taken=0.5)
    assert (only(point)["total"], only(point)["reduces"]) == (6.5, 2.5)
    # longer than the block: from 1 on, whatever the block loses
    assert only(point | {"reduce": [9.0]})["total"] == 10
    # chunk 1's weights are there at 4: of chunk 0's blocks 1-3 and 3-4.5 the last half is at full pace
    chunks = pipeline("gpipe", 1, 2, 2, forward=1.0, input=1.0, gather=[1.0, 3.0], taken=0.5)
    first = {block: span for block, span in spans_of(chunks).items() if block[0] == FORWARD}
    assert [first[FORWARD, v, m] for v in (0, 1) for m in (0, 1)] == [
        (1, 3),
        (3, 4.5),
        (4.5, 5.5),
        (5.5, 6.5),
    ]
    assert only(chunks)["gathers"] == 10.5 - 8


@given(points())
@cases(36)
def test_as_a_graph_of_kernels(point):
    """One kernel a block, without communication: the schedule of kernels takes as long."""
    stages, order = point["stages"], "gpipe" if point["order"] == "gpipe" else "1f1b"
    point = naive.without(point, "send", "reduce", "tail", "gather") | {"order": order}
    if point["chunks"] > 1:
        return
    back = [sum(times) for times in zip(point["input"], point["weight"], strict=True)]
    rows = [kernel_row("forward", stage, point["forward"][stage]) for stage in range(stages)]
    rows += [kernel_row("backward", stage, back[stage]) for stage in range(stages)[::-1]]
    # kernels know from sends alone what comes from where
    rows = [row | {"send": 1e-300} for row in rows]
    expected = schedule(*kernel_tables((rows, stages, point["microbatches"], order, 1)))
    got = schedule_blocks(*tables(point))
    assert got.total == pytest.approx(expected.total, rel=1e-12)
    assert got.backward_start == pytest.approx(expected.forward, rel=1e-12)
    assert got.bubble == pytest.approx(expected.bubble, rel=1e-9, abs=1e-12 * got.total[0])


@pytest.mark.parametrize(
    ("point", "said"),
    [
        (pipeline("interleaved", 4, 3, 2), "as many micro-batches"),
        (pipeline("zb_v", 4, 6, 1), "two chunks"),
        (pipeline("dualpipe_v", 4, 7, 2), "two micro-batches"),
        (pipeline("zb_2p", 2, 4, 2), "one chunk"),
        (pipeline("zero_bubble", 2, 4, 2), "one chunk"),
        (pipeline("1f1b", 2, 4, 2), "one chunk"),
        (pipeline("1f1b", 2, 0), "at least"),
        (pipeline("none", 2, 4), "no such order"),
        (pipeline("gpipe", 2, 4, 2) | {"send": [0.0] * 3}, "virtual stage"),
    ],
)
def test_what_is_no_pipeline(point, said):
    for function in (schedule_blocks, lambda *table: block_spans(*table, 0)):
        with pytest.raises(ValueError, match=said):
            function(*tables(point))


def busy_wire(rng):
    """A point of many rounds, one of whose links is busy for about as long as a stage."""
    order, stages = rng.choice(["1f1b", "interleaved", "zero_bubble"]), rng.randint(2, 6)
    chunks = rng.randint(2, 4) if order == "interleaved" else 1
    times = {name: [rng.random() for _ in range(stages * chunks)] for name in TIMES[:3]}
    slow = rng.randrange(stages)
    for name in TIMES[:2]:
        times[name][slow::stages] = [time + rng.random() for time in times[name][slow::stages]]
    busy = max(sum(sum(times[name][stage::stages]) for name in TIMES[:3]) for stage in range(stages))
    shares = [rng.random() * (rng.random() < 0.7) + 1e-9 for _ in range(chunks)]
    send, link = [0.2 * rng.random() for _ in range(stages * chunks)], rng.randrange(stages)
    most = rng.choice([0.5, 0.66, 0.9, 1.0, 1.001, 1.01, 1.05, 1.2])
    send[link::stages] = [busy * most * part / sum(shares) for part in shares]
    gather = [rng.choice([0.0, 30.0]) * rng.random() for _ in range(stages * chunks)]
    many = stages * rng.randint(25, 40)
    return pipeline(
        order, stages, many, chunks, taken=rng.choice([0.0, 0.3]), send=send, gather=gather, **times
    )


# forward, input and weight blocks, sends and gathers of interleaved stages of two chunks, whose messages wait
# for a link: of a round or two most steps are as much later, and of those that follow they are not
SLOW_TO_SHOW = (
    (
        2,
        70,
        [0.367, 0.247, 0.367, 0.247],
        [0.745, 0.056, 0.745, 0.056],
        0.0,
        [1.156, 0.044, 1.156, 0.044],
        0.0,
    ),
    (2, 78, [0.784, 0.41, 0.439, 0.138], 0.327, 0.179, [0.954, 0.087, 1.26, 0.0], 19.355),
    (
        2,
        60,
        [0.0, 0.542, 0.143, 0.531],
        [0.0, 0.457, 0.0, 0.457],
        0.525,
        [1.533, 0.0, 1.533, 0.0],
        [0.0, 0.0, 24.19, 0.0],
    ),
    (
        2,
        56,
        [0.339, 1.108, 0.35, 0.322],
        [0.824, 0.859, 0.524, 2.329],
        [0.876, 0.331, 0.933, 0.542],
        [2.939, 0.0, 2.551, 0.0],
        0.0,
    ),
    (
        4,
        148,
        [0.784, 0.022, 0.94, 0.829, 0.719, 0.199, 0.102, 0.607],
        0.0,
        0.528,
        [1.327, 0.0, 0.0, 0.0, 1.258, 0.0, 0.0, 0.0],
        0.0,
    ),
)


def test_messages_do_not_pile_up_unseen():
    """Rounds that are counted, not run, end when the last block does of all that are run."""
    rng = Random(40)
    many = [busy_wire(rng) for _ in range(400)]
    for stages, microbatches, *times in SLOW_TO_SHOW:
        named = dict(zip(("forward", "input", "weight", "send", "gather"), times, strict=True))
        many.append(pipeline("interleaved", stages, microbatches, 2, **named))
    blocks, plan = tables(*many)
    found = schedule_blocks(blocks, plan).total
    for i in range(len(many)):
        last = block_spans(blocks, plan, i).end.max()
        assert found[i] == pytest.approx(last, rel=1e-9)
