"""Sets of tiles that the search tries, against the oracle (6.2)."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastflow.physics.timing.tiling.tile_sets import MAX_DOUBLINGS, make_tile_sets, set_direction
from tests.naive import tiling
from tests.support.checks import cases, near


def tile_sets(rows, thinned):
    """Return the tiles of every row (capacity, element, level, private level, samples, seed), in order."""
    columns = list(zip(*rows, strict=True))
    whole = [np.array(columns[place], dtype=np.int64) for place in (2, 3, 4, 5)]
    real = [np.array(columns[place], dtype=np.float64) for place in (0, 1)]
    sets = make_tile_sets(*real, *whole, thinned)
    sides = [tuple(2 ** int(e) for e in tile) for tile in zip(sets.m, sets.k, sets.n, strict=True)]
    return [sides[start:end] for start, end in zip(sets.offset[:-1], sets.offset[1:], strict=True)]


def contains(larger, tile):
    return all(one >= other for one, other in zip(larger, tile, strict=True))


levels, seeds, elements = st.integers(0, 5), st.integers(0, 30), st.sampled_from([2, 4])
capacities = st.sampled_from([0.0, 7.0, 8.0, 11.9, 12.0]) | st.floats(1.0, 1e17)
random_rows = st.tuples(capacities, elements, levels, st.integers(-1, 5), st.integers(1, 12), seeds)


@given(st.lists(random_rows, min_size=1, max_size=4))
@example([(8.0, 2, 0, -1, 1, 0), (7.0, 2, 0, 0, 2, 0), (16.0, 4, 3, 3, 5, 0)])
@cases(300)
def test_random_tiles_are_those_of_the_sequence(rows):
    for row, tiles in zip(rows, tile_sets(rows, thinned=False), strict=True):
        capacity, element, level, private_level, samples, seed = row
        assert tiles == tiling.random_tiles(level, samples, seed, capacity, element, level == private_level)
        for tile in tiles:
            assert tile == (1, 1, 1) or tiling.footprint(tile, element) <= capacity


@given(levels, st.integers(0, 300), seeds)
@cases(100)
def test_directions_are_shares(level, sample, seed):
    shares = np.empty(3)
    size = set_direction(level, sample, seed, shares)
    assert near(shares.sum(), 1.0)
    assert (shares >= 0.0).all()
    assert 0.0 <= size < 1.0
    assert near(size, tiling.direction_and_size(level, sample, seed)[2], 1e-9)


@given(random_rows, st.floats(1.0, 100.0))
@cases(200)
def test_a_larger_memorys_tiles_hold_the_smaller_ones(row, factor):
    smaller, larger = tile_sets([row, (row[0] * factor, *row[1:])], thinned=False)
    assert all(contains(large, small) for large, small in zip(larger, smaller, strict=True))


small_capacities = st.sampled_from([0.0, 7.9, 8.0, 12.0, 16.0, 96.0, 4096.0]) | st.floats(0.0, 5000.0)
full_rows = st.tuples(small_capacities, elements, levels, st.integers(-1, 5), st.just(0), seeds)


@given(st.lists(full_rows | random_rows, min_size=1, max_size=3), full_rows)
@cases(100)
def test_divisors_are_all_tiles_that_fit(others, row):
    *_, tiles = tile_sets([*others, row], thinned=False)
    expected = tiling.power_of_two_tiles(row[0], row[1], 12)
    assert sorted(tiles) == expected


@given(full_rows | random_rows)
@cases(200)
def test_thinning_drops_what_another_tile_beats(row):
    """Which tiles win is known where tiles are combined: test_search.py."""
    everything, kept = tile_sets([row], thinned=False)[0], tile_sets([row], thinned=True)[0]
    assert len(set(kept)) == len(kept)
    assert set(kept) <= set(everything)
    _, _, level, private_level, samples, _ = row
    for tile in set(everything) - set(kept):
        beaten = [larger for larger in kept if contains(larger, tile)]
        if level == private_level:
            assert any((larger[0], larger[2]) == (tile[0], tile[2]) for larger in beaten)
        else:
            assert beaten
            assert level < private_level or private_level < 0 or samples == 0
    for tile in kept:
        beaten = [larger for larger in kept if larger != tile and contains(larger, tile)]
        if level == private_level:
            assert all((larger[0], larger[2]) != (tile[0], tile[2]) for larger in beaten)
        elif level < private_level or private_level < 0 or samples == 0:
            assert not beaten


@pytest.mark.parametrize("level", [0, 1, 2])
def test_sides_end_somewhere(level):
    """In a memory that everything fits into, one side of 2^40 is larger than every GEMM's."""
    most = 2.0**MAX_DOUBLINGS
    tiles = tile_sets([(1e30, 2, level, 1, 0, 0)], thinned=True)[0]
    assert (most, most, most) in tiles
    assert all(side <= most for tile in tiles for side in tile)


def test_a_side_of_the_longest_is_kept_where_it_just_fits():
    """2^40 rows of 2 bytes along k, and their partial sums: no tile of 2^41 rows takes its place."""
    most = 2.0**MAX_DOUBLINGS
    capacity = tiling.footprint((most, 2, 1), 2)
    tiles = tile_sets([(capacity, 2, 0, -1, 0, 0)], thinned=True)[0]
    assert {tile for tile in tiles if most in (tile[0], tile[2])} == {(most, 2, 1), (1, 2, most)}


def test_no_sets():
    empty = np.empty(0, dtype=np.int64)
    assert make_tile_sets(np.empty(0), np.empty(0), empty, empty, empty, empty, True).offset.tolist() == [0]
