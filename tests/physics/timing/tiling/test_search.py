"""The search for tilings against the brute force, and both against the oracle (6.1, 6.2).

How many GEMMs: `BATCHES` through the pruned search and the brute force, and some two thousand through
the oracle too.
"""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastflow.core.jit import kernel
from fastflow.physics.timing.tiling.brute_force import search_all
from fastflow.physics.timing.tiling.candidates import list_candidates
from fastflow.physics.timing.tiling.dataflow import DATAFLOW_CODES
from fastflow.physics.timing.tiling.search_space import make_problem, new_layout
from tests.naive import tiling
from tests.support.checks import cases, near
from tests.support.tilings import (
    Design,
    alike,
    batches,
    designs,
    gemms,
    random_batch,
    small_gemms,
    solve,
    solve_all,
)

# by on-chip levels: GEMMs that the two kernels compare, and the most samples a level
BATCHES = {1: (4000, 60), 2: (6000, 20), 3: (6000, 8), 4: (4000, 5), 5: (2000, 3)}
A100 = Design((1e4, 1e5, 1e7), (1e14, 2e13, 4e12, 1e12), private=1, instances=108, samples=3)
EQUAL = Design((1e4, 1e5, 1e7), (1e12, 1e12, 1e12, 1e12))


# --- the pruned search, the brute force and the oracle agree


@pytest.mark.long
@given(gemms, batches, designs())
@example((1, 1, 1), 1, EQUAL)
@example((1, 16384, 16384), 1, A100)
@example((4096, 1, 4096), 1, A100)
@example((4096, 4096, 1), 3, A100)
@example((64, 65536, 64), 1, A100)  # hardly a bundle busy without parts of the inner dimension
@example((4096, 4096, 4096), 1, EQUAL)
@example((4096, 4096, 4096), 1, EQUAL._replace(capacities=(1e17, 1e17, 1e17)))  # all fits everywhere
@example(
    (512, 512, 512), 1, EQUAL._replace(capacities=(1.0, 7.0, 8.0), private=2, instances=5)
)  # nothing fits
@example(
    (64, 64, 64), 1, EQUAL._replace(capacities=(1e9, 1e4, 1e2), private=1, instances=9)
)  # shrink outwards
@example((1024, 1024, 1024), 1, A100._replace(bandwidths=(1e18,) * 4, flops=1.0))  # all tie in time
@example((512, 512, 512), 1, A100._replace(flops=1e-320))  # all take infinite time: the fewest bytes
@example((512, 512, 512), 3, EQUAL._replace(flops=1e-320))
@example((512, 512, 512), 1, A100._replace(bandwidths=(1e-320, 1e12, 1e12, 1e12)))
@example((512, 512, 512), 1, A100._replace(bandwidths=(1e12, 1e12, 1e12, 1e-320)))
@example((5000, 3, 5000), 1, Design((1e5,), (1e12, 1e12), private=0, instances=7, samples=20))
@cases(750)
def test_random_search_is_the_exact_optimum(gemm, batch, design):
    """Exact minimum of the stated space and all that is told of it, by the whole rule for ties."""
    expected = tiling.search(gemm, batch, design.machine(), design.candidates(0))
    assert alike(solve(gemm, batch, design), expected)
    assert alike(solve(gemm, batch, design, how=search_all), expected)


@pytest.mark.long
@given(small_gemms, st.sampled_from([1, 1, 3]), designs(st.integers(1, 3), st.integers(0, 90), st.just(0)))
@example((12, 11, 9), 1, Design((0, 0), (1e12, 1e12, 1e12), 1, 50, 0))
@cases(300)
def test_divisor_search_is_the_exact_optimum(gemm, batch, design):
    expected = tiling.search(gemm, batch, design.machine(), design.candidates(4))
    assert alike(solve(gemm, batch, design), expected)
    if len(design.capacities) < 3:
        assert alike(solve(gemm, batch, design, thinned=False, how=search_all), expected)


@given(gemms, batches, designs(st.integers(1, 3), samples=st.integers(1, 2)))
@cases(50)
def test_operands_are_best_chosen_level_by_level(gemm, batch, design):
    """What the oracle saves elsewhere: all 3^L choices give no other tiling."""
    problem = gemm, batch, design.machine(), design.candidates(0)
    assert tiling.search(*problem, every_operand=True) == tiling.search(*problem)


def same(one, other):
    """Say whether two searches found the same tilings, bit for bit."""
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in one._fields
        if name != "candidates"  # how many were looked at: that is what a search saves
    )


@pytest.mark.parametrize("levels", [n if n < 4 else pytest.param(n, marks=pytest.mark.long) for n in BATCHES])
def test_pruned_search_is_the_brute_force(levels):
    """10,000 random GEMMs and more: the same bits, whether tiles that cannot win are tried or not."""
    count, most = BATCHES[levels]
    batch = random_batch(np.random.default_rng(levels), levels, count, most)
    every = solve_all(*batch, thinned=False, how=search_all)
    assert same(solve_all(*batch, thinned=False), every)
    pruned = solve_all(*batch)
    assert same(pruned, every)
    assert levels == 1 or pruned.candidates.sum() < every.candidates.sum() / 3
    # the brute force is one, and the batch is bound by everything in turn, in several waves, with parts
    place = [place for place, *_ in batch[1]]
    rates = np.array([design.bandwidths for design in batch[0]])[place]
    private = np.array([design.private for design in batch[0]])[place]
    samples = np.array([design.samples for design in batch[0]])[place]
    assert np.array_equal(every.candidates[private < 0], (3 * samples[private < 0]) ** levels)
    assert (every.candidates >= (3 * samples) ** levels).all()
    driven = np.array([design.driven() for design in batch[0]])[place]
    idle = np.maximum(1.0, driven * every.idle[:, None])
    times = np.column_stack([every.compute_time, every.bytes.reshape(rates.shape) / rates * idle])
    assert np.array_equal(every.time, times.max(axis=1))
    assert (np.bincount(times.argmax(axis=1), minlength=levels + 2) > count / 50).all()
    assert (every.parts > 1).mean() > 0.05
    assert (every.waves > 1).mean() > 0.1
    assert (every.idle > 1.0).mean() > 0.2


@pytest.mark.long
@pytest.mark.parametrize("most", [2, 4])
def test_pruned_search_is_the_brute_force_far_outside_of_what_is_dealt_out(most):
    """What the search knows of the tiles inside has to hold under every tile of two levels outside."""
    rng = np.random.default_rng(100 + most)
    found, rows = random_batch(rng, 4, 12000, most)
    found = [
        design._replace(private=1, capacities=(*design.capacities[:2], *(10.0 ** rng.uniform(2.0, 8.0, 2))))
        for design in found
    ]
    assert same(solve_all(found, rows), solve_all(found, rows, how=search_all))


@pytest.mark.parametrize(
    ("levels", "count", "largest", "thinned"),
    [
        (1, 800, 9e4, False),
        pytest.param(2, 800, 1000.0, False, marks=pytest.mark.long),
        pytest.param(3, 1000, 60.0, False, marks=pytest.mark.long),
        pytest.param(4, 600, 25.0, False, marks=pytest.mark.long),
        (2, 1000, 2e4, True),  # more capacity than the brute force can fill with tiles that cannot win
        pytest.param(3, 1500, 500.0, True, marks=pytest.mark.long),
        pytest.param(4, 600, 90.0, True, marks=pytest.mark.long),
        (5, 200, 40.0, True),
    ],
)
def test_pruned_search_is_the_brute_force_over_divisors(levels, count, largest, thinned):
    rng = np.random.default_rng(levels)
    found, rows = random_batch(rng, levels, count, 1)
    found = [
        design._replace(capacities=tuple(rng.uniform(0.0, largest, levels)), samples=0) for design in found
    ]
    every = solve_all(found, rows, thinned=thinned, how=search_all)
    assert same(solve_all(found, rows), every)
    assert same(solve_all(found, rows, thinned=False), every)


def test_how_many_tiles_are_looked_at_does_not_depend_on_the_other_gemms():
    found, rows = random_batch(np.random.default_rng(7), 3, 60, 1)
    found = [design._replace(samples=0) for design in found]
    together = solve_all(found, rows)
    assert np.array_equal(solve_all(found, rows[::-1]).candidates, together.candidates[::-1])
    alone = [solve_all(found, [row]).candidates[0] for row in rows[:20]]
    assert np.array_equal(alone, together.candidates[:20])


@pytest.mark.parametrize("samples", [0, 6])
def test_gemms_that_share_lists_of_tiles_are_searched_as_if_alone(samples):
    """On two hierarchies, in mixed order: sides of three lots of exponents, powers of two among them."""
    rng = np.random.default_rng(11)
    found = [
        Design(
            (20.0, 150.0, 900.0), (1e13, 3e11, 2e11, 1e11), private, 40, samples, unit=(2, 2, 2), flops=1e13
        )
        for private in (1, 0)
    ]
    rows = [
        (int(rng.integers(2)), tuple(int(rng.integers(top // 2 + 1, top + 1)) for top in tops), 1)
        for tops in [(8, 64, 16), (16, 8, 4), (64, 64, 2)] * 60
    ]
    together = solve_all(found, rows)
    assert same(together, solve_all(found, rows, how=search_all))
    assert np.array_equal(together.candidates, [solve_all(found, [row]).candidates[0] for row in rows])


@kernel
def list_first(gemms, hierarchies, sets, levels, layout):
    """List the first GEMM's tiles as the search does."""
    problem = make_problem(gemms, hierarchies, sets, levels, 0, layout)
    for level in range(levels):
        list_candidates(problem, sets, hierarchies.tiles[level], 1 + level, level, False, layout)


@given(gemms, designs(st.just(2), st.integers(0, 2000), st.just(0)))
@cases(50)
def test_tiles_that_another_one_contains_are_not_tried(gemm, design):
    """At a level whose tiles are not distributed; both kinds of levels among all powers of two."""

    def list_tiles(gemms, hierarchies, sets, levels):
        layout = new_layout(gemms, hierarchies, sets, levels)
        list_first(gemms, hierarchies, sets, levels, layout)
        exponent, count = layout.candidates.exponent, layout.candidates.counts
        return [2 ** exponent[level, :3, : count[level]].T for level in range(levels)]

    design = design._replace(private=max(design.private, 0))
    listed = solve_all([design], [(0, gemm, 1)], how=list_tiles)
    tops = [1 << (side - 1).bit_length() for side in gemm]
    for level, capacity in enumerate(design.capacities):
        every = tiling.power_of_two_tiles(capacity, design.element, 11)
        clipped = {tuple(map(min, tile, tops)) for tile in every}
        if level != design.private:
            largest = [
                (m, k, n)
                for m, k, n in clipped
                if not clipped & {(2 * m, k, n), (m, 2 * k, n), (m, k, 2 * n)}
            ]
            assert sorted(map(tuple, listed[level])) == sorted(largest)
        else:
            assert {(m, n) for m, _, n in listed[level]} == {(m, n) for m, _, n in clipped}


# --- what a tiling costs


@given(gemms, batches, designs() | designs(samples=st.just(0)))
@cases(150)
def test_a_tiling_explains_its_own_bytes_and_time(gemm, batch, design):
    found = solve(gemm, batch, design)
    assert alike(
        found, tiling.cost(gemm, batch, design.machine(), found.tiles, found.stationary, found.parts)
    )
    outwards = [*found.tiles, gemm]
    for inner, outer, capacity in zip(found.tiles, outwards[1:], design.capacities, strict=True):
        assert all(1 <= one <= other for one, other in zip(inner, outer, strict=True))
        smallest = tiling.footprint((1, 1, 1), design.element)
        # a side that a tile covers whole may be shorter than the tile
        assert tiling.footprint(inner, design.element) <= max(capacity, smallest)


few = designs(st.integers(1, 3), st.integers(0, 400), st.integers(0, 5))


@given(st.tuples(*[st.integers(1, 9)] * 3), few)
@cases(125)
def test_bytes_are_those_of_walking_the_loops(gemm, design):
    found = solve(gemm, 1, design)
    for level, operand in enumerate(found.stationary):
        loops = gemm, found.tiles, level, operand, design.element, design.private, found.parts
        assert near(tiling.walk(*loops, weight=design.stored), found.moved[level + 1])
        # what else a partial tile keeps in the memory is not counted on
        kept = tiling.walk(*loops, keeps=True, weight=design.stored)
        assert kept <= found.moved[level + 1] * (1 + 1e-12)


@pytest.mark.parametrize(
    ("gemm", "batch", "instances", "waves", "parts", "depth"),
    [
        ((8, 32, 8), 1, 1, 64, 1, 32),
        ((8, 32, 8), 1, 64, 1, 1, 32),
        ((8, 32, 8), 1, 63, 2, 1, 32),  # the second wave is one tile
        ((8, 32, 8), 3, 64, 3, 1, 32),
        ((8, 32, 8), 1, 65, 1, 1, 32),  # halves of k would take two waves: no gain, and more bytes
        ((8, 32, 8), 1, 128, 1, 2, 16),
        ((8, 32, 8), 1, 1000, 1, 8, 4),  # shorter parts still fill the unit's 4
        ((8, 33, 8), 1, 100, 1, 1, 36),
        ((7, 33, 9), 1, 63, 1, 1, 36),
        ((1, 33, 1), 1, 2, 1, 2, 32),  # 32 and 1 long
        ((1, 33, 1), 1, 3, 1, 3, 16),  # 16, 16 and 1
        ((1, 1, 1), 1, 1, 1, 1, 4),
        ((1, 1, 1), 1, 108, 1, 1, 4),
    ],
)
def test_waves_by_hand(gemm, batch, instances, waves, parts, depth):
    """One level that holds nothing, so that a tile is one element of C; its unit fills it up to 4 x 4."""
    design = Design((0.0,), (1e30, 1e30), private=0, instances=instances, flops=1e12)
    found = solve(gemm, batch, design)
    assert (found.waves, found.parts) == (waves, parts)
    assert near(found.time, 2 * waves * instances * 4 * depth * 4 / 1e12)
    assert near(found.idle, waves * instances / (gemm[0] * gemm[2] * batch * parts))


@pytest.mark.parametrize(("instances", "lengths"), [(63, 1), (64, 1), (65, 2), (128, 2), (129, 3), (9999, 6)])
def test_k_is_split_while_instances_are_idle(instances, lengths):
    """The brute force tries every length of the parts, and each stationary operand."""
    design = Design((0.0,), (1e30, 1e30), private=0, instances=instances, samples=1)
    assert solve_all([design], [(0, (8, 32, 8), 1)], how=search_all).candidates == 3 * lengths


@given(gemms, batches, designs(samples=st.integers(0, 4)))
@cases(100)
def test_no_design_has_less_than_its_whole_operations_to_do(gemm, batch, design):
    found = solve(gemm, batch, design)
    assert found.compute >= 2 * np.prod(gemm, dtype=float) * batch / design.flops * (1 - 1e-12)
    assert found.idle >= 1.0
    assert design.private >= 0 or (found.idle, found.waves, found.parts) == (1.0, 1, 1)


# --- a better design is never slower


def both(gemm, batch, one, other, **options):
    found = solve_all([one, other], [(0, gemm, batch), (1, gemm, batch)], **options)
    return found.time


@given(gemms, batches, designs(), st.integers(1, 30))
@cases(150)
def test_more_samples_are_never_slower(gemm, batch, design, more):
    fewer, most = both(gemm, batch, design, design._replace(samples=design.samples + more))
    assert most <= fewer


any_design = designs(samples=st.integers(0, 6))


@given(gemms, batches, any_design, st.integers(0, 5), st.floats(1.0, 100.0))
@cases(150)
def test_more_bandwidth_is_never_slower(gemm, batch, design, which, factor):
    rates = list(design.bandwidths)
    rates[which % len(rates)] *= factor
    slower, faster = both(gemm, batch, design, design._replace(bandwidths=tuple(rates)))
    assert faster <= slower


def larger(design, which, factor):
    capacities = list(design.capacities)
    capacities[which % len(capacities)] *= factor
    return design._replace(capacities=tuple(capacities))


@pytest.mark.long
@given(gemms, batches, designs(samples=st.just(0)), st.integers(0, 4), st.floats(1.0, 100.0))
@cases(200)
def test_more_capacity_is_never_slower(gemm, batch, design, which, factor):
    """Over all tiles, for every GEMM and every level."""
    slower, faster = both(gemm, batch, design, larger(design, which, factor))
    assert faster <= slower


@given(gemms, batches, designs(), st.integers(0, 4), st.floats(1.0, 100.0))
@cases(150)
def test_more_capacity_is_never_slower_where_nothing_idles(gemm, batch, design, which, factor):
    """Over random tiles; where tiles are distributed, a larger one can leave bundles without work."""
    design = design._replace(private=-1)
    slower, faster = both(gemm, batch, design, larger(design, which, factor))
    assert faster <= slower


@given(gemms, batches, any_design, st.integers(1, 300))
@cases(150)
def test_more_instances_are_never_slower(gemm, batch, design, more):
    """Each as fast as before, with its own levels' bandwidth."""
    factor = (design.instances + more) / design.instances
    rates = [rate * factor if i <= design.private else rate for i, rate in enumerate(design.bandwidths)]
    wider = design._replace(
        instances=design.instances + more, flops=design.flops * factor, bandwidths=tuple(rates)
    )
    slower, faster = both(gemm, batch, design, wider)
    assert faster <= slower * (1 + 1e-12)


@given(gemms, batches, any_design)
@cases(50)
def test_best_dataflow_is_the_best(gemm, batch, design):
    times = {flow: solve(gemm, batch, design._replace(flow=flow)).time for flow in DATAFLOW_CODES}
    assert near(times["best"], min(times.values()))
