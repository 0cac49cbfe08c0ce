"""Expert layers: loads against tokens assigned one by one, products against blocks handed out one by one."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.physics.timing.device import PAST_L1
from fastflow.physics.timing.moe.expert_load import (
    DRAWS,
    REPEATED_DRAWS,
    Loads,
    Routings,
    expert_loads,
    mean_rows,
)
from fastflow.physics.timing.moe.expert_tiles import (
    COMPARED,
    CUTLASS,
    DEEPGEMM,
    OF_CACHE,
    OF_MARLIN,
    RULES,
    TRTLLM,
    TUNED,
    rows_of_trtllm,
    rows_of_tuned,
)
from fastflow.physics.timing.moe.grouped_gemm import (
    FIRST,
    OF_CONVERTED,
    OF_SINGLE,
    ORDER,
    SECOND,
    SEPARATE,
    VISIT,
    GroupedProducts,
    rows_of_triton,
    run_grouped,
    time_grouped,
)
from fastflow.physics.timing.moe.layer import (
    PASSES,
    TRITON_LAUNCHES,
    TRITON_TRIPS,
    ExpertLayers,
    expert_pass,
    time_passes,
)
from tests.naive import expert_tiles
from tests.naive import experts as naive
from tests.naive.blocks import of_b
from tests.physics.timing.library.test_thread_blocks import chips
from tests.support.checks import cases, near
from tests.support.devices import column, device_of, devices
from tests.support.measured import SAMPLE, whole


def whole_numbers(*values):
    return np.array(values, dtype=np.int64)


def routing_of(tokens, topk, experts, local, exponent=0.0, least=0, *flags, most=0):
    """Return a routing; flags: random, scattered, grouped."""
    sizes = map(whole_numbers, (tokens, topk, experts, local))
    flags = (column([flag], np.bool_) for flag in (*flags, False, False, False)[:3])
    return Routings(*sizes, column([exponent]), whole_numbers(least), *flags, whole_numbers(most))


def loads_of(*routing, most=0):
    """Return how many experts of the busiest device have a load, for each load there is."""
    loads, place = expert_loads(routing_of(*routing, most=most))
    (own,) = (slice(*loads.group[place[0] : place[0] + 2]) for _ in place)
    each = Counter()
    for load, many in zip(loads.tokens[own], loads.experts[own], strict=True):
        each[int(load)] += many
    return each


@st.composite
def routings(draw):
    local, devices = draw(st.sampled_from([1, 2, 3, 8, 20])), draw(st.sampled_from([1, 2, 5]))
    topk = draw(st.integers(1, min(9, local * devices)))
    tokens = draw(st.one_of(st.integers(1, 12), st.integers(1, 400)))
    exponent = draw(st.sampled_from([0.0, 0.5, 1.0, 1.01, 1.2, 2.5]))
    least = draw(st.sampled_from([0, 0, 1, 7, 128]))
    return tokens, topk, local * devices, local, exponent, least, draw(st.booleans()), draw(st.booleans())


@given(routings())
@cases(180)
def test_loads_are_those_of_tokens_dealt_one_by_one(routing):
    tokens, topk, experts, local, exponent, least, at_random, scattered = routing
    draws = DRAWS if (exponent or at_random) and experts > local else 1
    expected = Counter()
    for draw in range(draws):
        place = np.random.default_rng([experts, draw]).permutation(experts).tolist()
        for load in naive.loads(tokens, topk, experts, local, exponent, place, least, at_random, scattered):
            expected[load] += 1 / draws
    del expected[0]
    got = loads_of(*routing)
    assert set(got) == set(expected)
    assert all(near(got[load], expected[load]) for load in got)


@given(st.integers(1, 300), st.sampled_from([1, 2, 5, 20]), st.sampled_from([1, 2, 8]))
@cases(60)
def test_a_gate_of_groups_leaves_half_of_the_experts_idle(tokens, size, devices):
    experts, local = 8 * size, 8 * size // devices
    expected = Counter(naive.in_groups(tokens, 8, experts, local))
    del expected[0]
    assert loads_of(tokens, 8, experts, local, 0.0, 0, False, False, True) == expected


@given(
    st.integers(1, 300), st.integers(1, 8), st.sampled_from([1, 2, 5, 20]), st.sampled_from([1, 2, 8]),
    st.sampled_from([1.01, 1.2]), st.booleans(),
)  # fmt: skip
@cases(90)
def test_a_gate_of_groups_moves_uneven_loads_to_the_first_experts(
    tokens, topk, size, devices, exponent, scattered
):
    experts, local = 8 * size, 8 * size // devices
    expected = Counter()
    for draw in range(DRAWS):
        place = np.random.default_rng([experts, draw]).permutation(experts).tolist()
        own = naive.in_groups_by_power_law(tokens, topk, experts, local, exponent, place, scattered)
        for load in own:
            expected[load] += 1 / DRAWS
    del expected[0]
    got = loads_of(tokens, topk, experts, local, exponent, 0, False, scattered, True)
    assert set(got) == set(expected)
    assert all(near(got[load], expected[load]) for load in got)


def test_one_expert_in_each_group_gives_the_first_experts_all_tokens():
    assert loads_of(100, 2, 8, 4, 0.0, 0, False, False, True) == {100: 2}
    assert loads_of(100, 2, 8, 1, 1.2, 0, False, True, True) == {100: 1}


@given(routings(), st.integers(1, 60))
@cases(90)
def test_an_expert_drops_what_exceeds_its_capacity(routing, most):
    """Of the busiest device: its experts have the tokens that chose them, up to the limit."""
    *sizes, exponent, _, at_random, scattered = routing
    free = loads_of(*sizes, exponent, 0, at_random, scattered)
    limited = Counter()
    for load, many in free.items():
        limited[min(load, most)] += many
    got = loads_of(*sizes, exponent, 0, at_random, scattered, most=most)
    assert got.keys() == limited.keys()
    assert all(near(got[load], limited[load]) for load in got)


@given(st.lists(routings(), min_size=1, max_size=6))
@cases(30)
def test_every_routing_has_its_own_loads(several):
    *sizes, exponents, least, at_random, scattered = zip(*several, strict=True)
    columns = [column(values, np.int64) for values in (*sizes, least)]
    flags = (column(flag, np.bool_) for flag in (at_random, scattered, [False] * len(several)))
    unlimited = np.zeros(len(several), dtype=np.int64)
    loads, place = expert_loads(Routings(*columns[:4], column(exponents), columns[4], *flags, unlimited))
    rows = mean_rows(loads)[place]
    for i, (tokens, topk, experts, local, exponent, least, *flags) in enumerate(several):
        own = loads_of(tokens, topk, experts, local, exponent, least, *flags)
        assert near(rows[i], sum(load * many for load, many in own.items()))
        assert max(own) <= max(tokens, least) or not (exponent or flags[0])
        assert min(own) >= least
        most = tokens * topk + least * local
        assert tokens * topk * local / experts <= rows[i] * (1 + 1e-12) <= most * (1 + 1e-9)


@pytest.mark.parametrize(
    ("tokens", "topk", "experts", "local", "exponent", "near_by"),
    [
        (400, 4, 32, 32, 1.2, 0.1), (400, 4, 32, 4, 1.01, 0.15), (64, 8, 64, 16, 1.2, 0.15),
        (600, 2, 16, 8, 1.2, 0.2),
    ],
)  # fmt: skip
def test_loads_are_near_those_of_tokens_that_choose_by_themselves(
    tokens, topk, experts, local, exponent, near_by
):
    """Rows of the busiest device and its experts with tokens, over 40 draws of everything.

    Where experts are few, a second choice that has to be another one evens them out.
    """
    drawn = [naive.drawn(tokens, topk, experts, local, exponent, seed) for seed in range(40)]
    got = loads_of(tokens, topk, experts, local, exponent)
    rows = sum(load * many for load, many in got.items())
    assert rows == pytest.approx(np.mean([sum(loads) for loads in drawn]), rel=near_by)
    with_tokens = np.mean([sum(load > 0 for load in loads) for loads in drawn])
    assert sum(got.values()) == pytest.approx(with_tokens, rel=near_by)


def grouped_run(
    chip, groups, inner, cols, stored, of_weights, local, tiles, place=SEPARATE, own="", library=COMPARED,
    repeated=0.0, routing=None,
):  # fmt: skip
    """Return how a grouped product of some (tokens, experts) runs with a library of some tiles.

    own: tiles of grouped products alone.
    """
    none = whole_numbers(0)
    grouped = GroupedProducts(
        none, routing or routing_of(0, 0, 0, local),
        *map(whole_numbers, (inner, cols, stored)), column([of_weights], np.bool_),
        *map(column, ([chip.size], [of_b(chip)], [chip.instructions], [chip.output], [0.0])),
        whole_numbers(place), whole_numbers(library), column([repeated]),
    )  # fmt: skip
    tokens, many = (column([g[i] for g in groups]) for i in (0, 1))
    loads = Loads(whole_numbers(0, len(groups)), tokens, many)
    return run_grouped(devices([chip], [tiles], grouped_blocks=[own]), grouped, loads, none)


sides = st.one_of(st.integers(1, 40), st.integers(1, 700))
CALIBRATED = OF_SINGLE, OF_CONVERTED, VISIT, PAST_L1


@given(
    st.integers(1, 4).flatmap(chips),
    st.lists(st.tuples(sides, st.integers(1, 4)), min_size=1, max_size=4),
    sides, sides, st.integers(1, 2), st.booleans(),
    st.sampled_from([(64, 128), (128, 128), (32, 128), (48, 80)]),
)  # fmt: skip
@cases(240)
def test_grouped_products_are_the_oracle(chip, groups, inner, half, halves, of_weights, tile):
    chip = chip._replace(order=ORDER)
    cols, local = half * halves, sum(many for _, many in groups) + 3
    got = grouped_run(chip, groups, inner, cols, half, of_weights, local, f"{tile[0]}x{tile[1]}")
    expected = naive.one(chip, groups, inner, cols, half, of_weights, local, *tile, *CALIBRATED)
    assert near(got.time[0], expected.time, 1e-9)
    assert all(near(g, e, 1e-9) for g, e in zip(got.times[0], expected.times, strict=True))
    assert all(near(g, e, 1e-9) for g, e in zip(got.bytes[0], expected.moved, strict=True))
    assert (got.waves[0], got.candidates[0]) == (expected.waves, 1)
    assert near(got.busy[0], expected.busy)


@given(
    st.integers(1, 4).flatmap(chips),
    st.lists(st.tuples(sides, st.integers(1, 4)), min_size=1, max_size=4),
    sides, sides, st.sampled_from([FIRST, SECOND]),
)  # fmt: skip
@cases(90)
def test_both_products_of_a_kernel_are_the_oracle(chip, groups, inner, cols, place):
    chip = chip._replace(order=ORDER)
    got = grouped_run(chip, groups, inner, cols, 2 * cols, False, 9, "64x64", place)
    is_second = place == SECOND
    tiles = [(16, 128), (32, 256), (64, 256)] if is_second else [(16, 256), (32, 512), (64, 512)]
    runs = [
        naive.one(
            chip._replace(splits=True), groups, inner, cols, 2 * cols, False, 9, *tile, *CALIBRATED, is_second
        )
        for tile in tiles
    ]
    best = min(runs, key=lambda run: run.time)
    assert near(got.time[0], best.time, 1e-9)
    chosen = [run for run in runs if run.waves == got.waves[0] and near(run.time, best.time, 1e-9)]
    assert any(near(got.bytes[0, -1], run.moved[-1], 1e-9) for run in chosen)


@given(
    st.integers(2, 4).flatmap(chips),
    st.lists(st.tuples(sides, st.integers(1, 4)), min_size=1, max_size=4),
    sides, sides,
)  # fmt: skip
@cases(60)
def test_a_library_may_have_tiles_of_grouped_products_alone(chip, groups, inner, cols):
    """They are compared for the loads themselves, and no expert is searched."""
    chip = chip._replace(order=ORDER)
    tiles = [(32, 64), (64, 128), (128, 256)]
    text = " ".join(f"{a}x{b}" for a, b in tiles)
    got = grouped_run(chip, groups, inner, cols, cols, False, 9, "64x64", own=text)
    runs = [
        naive.one(chip._replace(splits=True), groups, inner, cols, cols, False, 9, *tile, *CALIBRATED)
        for tile in tiles
    ]
    assert near(got.time[0], min(run.time for run in runs), 1e-9)
    assert got.candidates[0] == len(tiles)


@given(
    st.integers(2, 4).flatmap(chips),
    st.lists(st.tuples(sides, st.integers(1, 4)), min_size=1, max_size=4),
    sides, sides, st.booleans(), st.booleans(),
)  # fmt: skip
@cases(120)
def test_tiles_are_chosen_for_mean_loads_or_where_idle_bundles_leave_power_for_these(
    chip, groups, inner, cols, of_weights, boosts
):
    chip = chip._replace(order=ORDER, boosts=boosts)
    local = many = sum(number for _, number in groups)
    mean = -(-sum(tokens * number for tokens, number in groups) // many)
    tiles = [(32, 128), (64, 128), (128, 128)]

    def time(of, tile):
        return naive.one(chip, of, inner, cols, cols, of_weights, local, *tile, *CALIBRATED).time

    got = grouped_run(
        chip, groups, inner, cols, cols, of_weights, local, " ".join(f"{a}x{b}" for a, b in tiles)
    )
    compared = [time(groups if boosts else [(mean, many)], tile) for tile in tiles]
    quickest = [tile for tile, each in zip(tiles, compared, strict=True) if near(each, min(compared), 1e-9)]
    assert any(near(got.time[0], time(groups, tile), 1e-9) for tile in quickest)
    assert got.candidates[0] == len(tiles)


@given(
    st.integers(2, 3).flatmap(chips), st.lists(st.tuples(sides, st.integers(1, 4)), min_size=1, max_size=3)
)
@cases(60)
def test_one_tile_is_chosen_for_the_mean_expert(chip, groups):
    chip = chip._replace(order=ORDER)
    tiles = [(8, 128), (32, 128), (64, 128), (128, 128), (128, 256), (64, 64), (8, 1)]
    got = grouped_run(chip, groups, 512, 300, 300, False, 9, " ".join(f"{a}x{b}" for a, b in tiles))
    some = sum(many for _, many in groups)
    mean = [(int(np.ceil(sum(tokens * many for tokens, many in groups) / some)), some)]
    able = [(a, b) for a, b in tiles if b >= 128 and (chip.shared or (b == 128 and a <= 128)) and a >= 16]

    def takes(tile, experts):
        return naive.one(chip, experts, 512, 300, 300, False, 9, *tile, *CALIBRATED).time

    best = min(able, key=lambda tile: takes(tile, mean))
    assert got.candidates[0] == len(able)
    ties = [tile for tile in able if near(takes(tile, mean), takes(best, mean), 1e-9)]
    assert any(near(got.time[0], takes(tile, groups), 1e-9) for tile in ties)


def layer(dtype, tokens, topk, experts, hidden=2048, ffn=768, recent=False):
    """Return a layer all of whose experts are on one device."""
    routing = routing_of(tokens, topk, experts, experts)
    sizes = column([1.0 if dtype.startswith("fp8") else 2.0]), column([2.0]), column([2.0])
    sizes = *sizes, column([dtype not in ("bf16", "fp8", "fp8_block")], np.bool_), column([recent], np.bool_)
    return ExpertLayers(whole_numbers(0), routing, whole_numbers(hidden), whole_numbers(ffn), *sizes)


def grouped(tokens, inner, cols, stored, of_weights=False):
    """Return a product of all 128 experts, of which a token chooses eight, in 16 bits."""
    routing = routing_of(tokens, 8, 128, 128)
    return GroupedProducts(
        whole_numbers(0), routing, *map(whole_numbers, (inner, cols, stored)), column([of_weights], np.bool_),
        *map(column, ([2.0], [2.0], [0.0], [2.0], [0.0])), whole_numbers(SEPARATE), whole_numbers(COMPARED),
        column([0.0]),
    )  # fmt: skip


@pytest.mark.parametrize(("dtype", "launches"), [("bf16", 0), ("w4a16", 0), ("fp8", 1), ("fp8_block", 1)])
def test_libraries_whose_products_gather_rows_quantise_tokens(dtype, launches):
    """Each token once, whatever the number of experts that it chooses: 2 bytes in, 1 out."""
    of = layer(dtype, 300, 8, 128)
    machine = device_of("h100_sxm", "bf16" if of.converted.any() else dtype)
    got = expert_pass(machine, of, "quantise_tokens")
    assert float(np.max(got.launches)) == launches
    assert float(np.max(got.bytes)) == launches * 300 * 2048 * (2 + 1)
    assert not np.any(expert_pass(machine, of, "fused").launches)


@pytest.mark.parametrize(
    ("chip", "dtype", "topk", "experts", "tokens", "launches"),
    [
        ("a100_sxm_80", "bf16", 8, 128, 256, {"route": 1, "sort": 1, "gather": 1, "combine": 1}),
        ("a100_sxm_80", "bf16", 8, 160, 257, {"route": 5, "sort": 3, "gather": 1, "combine": 1}),
        ("h100_sxm", "bf16", 10, 128, 1, {"route": 5, "sort": 1, "gather": 2, "activate": 1, "combine": 1}),
        ("h100_sxm", "w4a16", 8, 128, 1, {"route": 1, "sort": 1, "combine": 1}),  # fused into products
        (
            "h100_sxm", "fp8", 8, 8, 1,
            {"route": 1, "sort": 1, "quantise": 1, "gather": 2, "activate": 1, "combine": 1},
        ),
        (
            "h100_sxm", "fp8_block", 8, 8, 1,
            {"route": 1, "sort": 1, "gather": 1, "scale": 1, "activate": 1, "scale_gated": 1, "combine": 1},
        ),
    ],
)  # fmt: skip
def test_kernels_of_a_layer(chip, dtype, topk, experts, tokens, launches):
    of = layer(dtype, tokens, topk, experts)
    machine = device_of(chip, "bf16" if of.converted.any() else dtype)
    others = ("triton", "masked", "trtllm", "quantise_tokens", "fused")  # of other libraries
    names = [name for name in PASSES if not name.startswith(others)]
    got = {name: float(np.max(expert_pass(machine, of, name).launches)) for name in names}
    assert {name: n for name, n in got.items() if n} == launches
    each = {name: time_passes(machine, of, [name])[0].time[0] for name in names}
    assert {name for name, time in each.items() if time} == set(launches)
    assert time_passes(machine, of, names)[0].time[0] == pytest.approx(sum(each.values()))


def test_weights_of_experts_without_tokens_stay_where_they_are():
    """One token of eight choices reads eight experts; 128 times as many read all."""
    machine = device_of("h100_sxm", "bf16")
    few, many = (time_grouped(machine, grouped(tokens, 2048, 1536, 1536)).bytes[0, -1] for tokens in (1, 128))
    assert few == pytest.approx(8 * 2 * (2048 * 1536 + 2048 + 1536))
    assert many == pytest.approx(128 * 2 * (2048 * 1536 + 8 * (2048 + 1536)))


@pytest.mark.parametrize("chip", ["a100_sxm_80", "h100_sxm"])
def test_a_longer_tail_takes_longer(chip):
    """The same tokens on the busiest of eight devices."""
    times = fastflow.predict_experts(
        4096, 2048, 768, 128, 8, ep=8, power_law=[0.0, 1.01, 1.2], chip=chip, dtype="bf16"
    ).tolist()
    assert times == sorted(times)
    assert times[2] > 1.5 * times[0]


def test_gradients_have_the_operations_of_the_product():
    """Rows' gradient is the product with two sides swapped, weights' is summed over tokens."""
    forward, rows, weights = (
        time_grouped(device_of("h100_sxm", "bf16"), grouped(4096, k, n, n, by))
        for k, n, by in ((2048, 1536, False), (1536, 2048, False), (2048, 1536, True))
    )
    assert rows.time[0] == pytest.approx(forward.time[0], rel=0.25)
    assert weights.time[0] == pytest.approx(forward.time[0], rel=0.6)
    of_weights, tokens = 128 * 2 * 2048 * 1536, 4096 * 8
    assert weights.bytes[0, -1] == pytest.approx(of_weights + 2 * tokens * (2048 + 1536))


def ratios(path, chip, dtype):
    """Return predicted over measured times of layers in a data type."""
    rows = pd.read_csv(path)
    rows = rows[rows["dtype"] == dtype]
    exponent = rows["balance"].str.removeprefix("power_law_").replace({"balanced": "0", "equal": "0"})
    sizes = (rows[name] for name in ("tokens", "hidden", "ffn", "experts", "topk", "tp", "ep"))
    return fastflow.predict_experts(*sizes, exponent.astype(float), chip=chip, dtype=dtype) / rows["time_s"]


@pytest.mark.parametrize("is_whole", [False, True], ids=["sample", "whole"])
@pytest.mark.parametrize(
    ("name", "chip", "dtype", "sample", "every"),
    [
        ("moe_a100", "a100_sxm_80", "bf16", 0.161, 0.130),
        ("moe_h100", "h100_sxm", "bf16", 0.160, 0.150),
        ("moe_h100", "h100_sxm", "fp8", 0.149, 0.120),
        ("moe_h100", "h100_sxm", "fp8_block", 0.101, 0.098),
    ],
)
def test_layers_of_language_models(name, chip, dtype, sample, every, is_whole):
    ratio = ratios(whole(name) if is_whole else SAMPLE / f"{name}.csv", chip, dtype)
    assert abs(ratio - 1).mean() <= (every if is_whole else sample)


@pytest.mark.parametrize(
    ("tokens", "local", "rows"), [(1, 32, 16), (160, 32, 32), (320, 2, 128), (80, 4, 128)]
)
def test_tiles_of_triton_have_rows_for_the_choices_of_all_devices(tokens, local, rows):
    """Four choices a token, of 32 experts on all devices: a power of two, from 16 to 128 rows."""
    assert rows_of_triton(routing_of(tokens, 4, 32, local)) == rows


def test_the_module_of_triton_has_its_own_routing_and_fuses_the_gate():
    """The same products as a layer of another library, which has launches of its own around them."""
    layer_of = ("model=experts", "chip=h100_sxm", "model.hidden=2880", "model.ffn=2880", "model.experts=32",
                "model.topk=4", "model.ep=1", "model.dtype=mxfp4_w4a16", "model.tokens=1")  # fmt: skip
    frame = fastflow.evaluate(*layer_of, "model.moe_backend=cutlass,triton").set_index("model.moe_backend")
    launches = TRITON_LAUNCHES * (2.39e-6 + 0.3e-6 * TRITON_TRIPS)
    assert frame.time_s["triton"] - frame.time_s["cutlass"] == pytest.approx(launches, rel=0.5)
    kernels = fastflow.explain_sharding(*layer_of, "model.moe_backend=triton")["kernel"].tolist()
    assert kernels == ["route", "gate and up", "down", "combine"]


def test_experts_without_a_gate_have_two_matrices():
    frame = fastflow.evaluate("model=experts", "chip=h100_sxm", "model.tokens=4096", "model.gated=true,false")
    gated, plain = frame.flop
    assert plain < 0.7 * gated
    assert frame.time_s[1] < 0.8 * frame.time_s[0]


@given(
    st.integers(2, 4).flatmap(chips),
    st.lists(st.tuples(sides, st.integers(1, 4)), min_size=1, max_size=4, unique_by=lambda group: group[0]),
    sides, sides, st.sampled_from([CUTLASS, DEEPGEMM, TRTLLM, TUNED]),
    st.sampled_from([0.0, 1.0, 1e3, 1e6]),
    st.sampled_from([0.0, 1.2]), st.integers(1, 500),
)  # fmt: skip
@cases(240)
def test_products_with_tiles_of_a_rule_are_the_oracle(
    chip, groups, inner, cols, library, repeated, exponent, tokens
):
    experts = [tokens for tokens, many in groups for _ in range(many)]
    local = len(experts) + 3
    routing = routing_of(tokens, 2, 4 * local, local, exponent)
    got = grouped_run(
        chip,
        groups,
        inner,
        cols,
        cols,
        False,
        local,
        "64x64",
        library=library,
        repeated=repeated,
        routing=routing,
    )
    rows = 128
    if library == TRTLLM:
        rows = min(r for r in (8, 16, 32, 64, 128, 256) if r >= tokens * 2 / local or r == 256)
        rows = min(rows, 64 if chip.instructions else 256)
    if library == TUNED:
        rows = min(r for r in (16, 32, 64, 128) if r >= tokens / (2 * local) or r == 128)
        assert rows_of_tuned(routing) == rows
    assert (
        library != TRTLLM or rows_of_trtllm(routing, column([64.0 if chip.instructions else 256.0])) == rows
    )
    read = min(local, len(experts) * (REPEATED_DRAWS if exponent else 1)) * repeated * of_b(chip)
    held = 1.0 if repeated and read <= OF_CACHE * chip.capacities[-1] else 0.0
    expected = expert_tiles.one(
        chip, experts, inner, cols, cols, local, rows, RULES[library], OF_MARLIN, held
    )
    assert near(got.time[0], expected.time, 1e-9)
    assert all(near(g, e, 1e-9) for g, e in zip(got.times[0], expected.times, strict=True))
    assert all(near(g, e, 1e-9) for g, e in zip(got.bytes[0], expected.moved, strict=True))
    assert got.waves[0] == expected.waves
    assert near(got.busy[0], expected.busy)


LAYER = ("model=experts", "model.hidden=4096", "model.ffn=1536", "model.experts=128", "model.topk=8",
         "model.ep=1", "model.tokens=16")  # fmt: skip


def test_backends_of_blackwell_have_their_own_kernels():
    kernels = {
        backend: fastflow.explain_sharding(
            *LAYER, "chip=b200_sxm", "model.dtype=fp8_block", f"model.moe_backend={backend}"
        )["kernel"].tolist()
        for backend in ("deepgemm", "trtllm")
    }
    assert kernels["deepgemm"] == ["route", "dispatch", "gate and up", "gate", "down", "combine"]
    assert kernels["trtllm"] == ["route", "dispatch", "gate and up", "down", "combine"]


def test_rows_that_are_not_summed_need_no_last_kernel():
    kernels = fastflow.explain_sharding(
        *LAYER, "chip=b200_sxm", "model.moe_backend=trtllm", "model.summed=false"
    )
    assert kernels["kernel"].tolist() == ["route", "dispatch", "gate and up", "down"]


def test_tuned_kernels_of_experts_are_faster_where_tokens_are_few():
    time = fastflow.evaluate(*LAYER, "chip=b200_sxm", "model.dtype=nvfp4", "model.tuned=false,true").time_s
    assert time[1] < time[0]


def test_recent_releases_route_more_experts_in_one_kernel():
    machine, names = device_of("h100_sxm", "bf16"), ["route"]
    old, new, many = (
        time_passes(machine, layer("bf16", 8, topk, 512, recent=recent), names)[0].time[0]
        for topk, recent in ((10, False), (10, True), (22, True))
    )
    assert new < old / 4
    assert many == pytest.approx(old, rel=0.1)


def test_a_layer_that_runs_again_reads_its_weights_from_the_cache():
    """Where they fit: 16 experts of 6 MB are in L40S's 96 MiB, 128 are not."""
    for experts, is_faster in ((16, True), (128, False)):
        time = fastflow.evaluate(
            *LAYER, "chip=l40s", "model.ffn=512", f"model.experts={experts}", "model.dtype=fp8",
            "model.repeated=false,true",
        ).time_s  # fmt: skip
        assert (time[1] < 0.7 * time[0]) == is_faster
