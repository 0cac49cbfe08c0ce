"""The tiling search (6.1, 6.2; DESIGN.md, "Tiling").

"For each level a fixed, seeded sequence of random tiles that meet the level's capacity per scope; the
first N of it are tried, every combination across L levels, every choice of the operand that stays put
at each level. Bytes moved between two levels depend on that pair of tiles and on how often the outer
tile is visited. Time is the maximum over compute and all levels. Ties go to the fewest DRAM bytes,
then L2 bytes, and so on."
"""

from itertools import count, product
from math import ceil, floor

from tests.naive.dataflow import register_accesses

PARTIAL_SUM = 4  # bytes
PLASTIC = 1.3247179572447460  # x^3 = x + 1


def direction(level, sample, seed):
    """Return shares of m, k, n that sum to 1: a point of the R2 sequence cuts [0, 1] into three."""
    index = 1 + sample + 1000 * level + 7919 * seed
    points = []
    for power in (1, 2):
        x = 0.5 + index / PLASTIC**power
        points.append(x - floor(x))
    points.sort()
    return points[0], points[1] - points[0], 1 - points[1]


def footprint(tile, element):
    """Return the bytes of a tile's parts of A and B in the operands' type, and of C as partial sums."""
    m, k, n = tile
    return m * k * element + k * n * element + m * n * PARTIAL_SUM


def grow(direction, capacity, element):
    """Double the dimension that lags most behind its share until the next doubling would not fit."""
    tile, doublings = [1, 1, 1], [0, 0, 0]
    for turn in count(1):
        lags = [share * turn - done for share, done in zip(direction, doublings, strict=True)]
        axis = lags.index(max(lags))
        larger = list(tile)
        larger[axis] *= 2
        if footprint(larger, element) > capacity:
            return tuple(tile)
        tile = larger
        doublings[axis] += 1
    raise AssertionError("a capacity has an end")


def candidates(levels, samples, seed, capacities, element):
    """Return the tried tiles of each level, from the registers outwards."""
    return [
        [grow(direction(level, sample, seed), capacities[level], element) for sample in range(samples)]
        for level in range(levels)
    ]


def level_bytes(gemm, outer, tile, visits, stays, element):
    """Return the bytes loaded to and stored from a level over the whole GEMM.

    outer, tile: m, k, n of the tile outside and of this level's; visits: how many outer tiles lie
    along m, k, n of the GEMM; stays: the operand that stays put.
    """
    m, k, n = gemm
    along_m, along_k, along_n = (ceil(o / t) for o, t in zip(outer, tile, strict=True))
    visits_m, visits_k, visits_n = visits
    a = m * k * visits_n * (1 if stays == "A" else along_n)
    b = k * n * visits_m * (1 if stays == "B" else along_m)
    passes = visits_k * (1 if stays == "C" else along_k)
    # all passes but the first read partial sums back, all but the last write them; the last writes C
    c = m * n * (passes - 1) * 2 * PARTIAL_SUM + m * n * element
    return (a + b) * element + c


def served(gemm, batch, element, unit, dataflow, tiles, stays):
    """Return the bytes that each level serves: registers (Equation 5), then outwards, main memory last."""
    m, k, n = gemm
    moved = []
    outer, visits = gemm, (1, 1, 1)
    for tile, operand in zip(reversed(tiles), reversed(stays), strict=True):
        moved.insert(0, batch * level_bytes(gemm, outer, tile, visits, operand, element))
        visits = tuple(v * ceil(o / t) for v, o, t in zip(visits, outer, tile, strict=True))
        outer = tile
    flop = 2 * m * k * n * batch
    moved.insert(0, register_accesses(dataflow, flop, unit, tiles[0]) * element)
    return moved


def compute_time(gemm, batch, unit, flops):
    """Return the time of the operations; a matrix unit works on whole m x k x n blocks."""
    blocks = 1
    for side, extent in zip(gemm, unit, strict=True):
        blocks *= ceil(side / extent) * extent
    return 2 * blocks * batch / flops


def search(gemm, batch, element, unit, dataflow, flops, tried, bandwidths):
    """Try everything; return (time, bytes of each level) of the best tiling.

    tried: tiles of each level from the registers outwards; bandwidths: the same, main memory last.
    """
    best = None
    for choice in product(*tried):
        tiles, outer = [], gemm
        for tile in reversed(choice):  # no tile is larger than the one outside it
            outer = tuple(min(t, o) for t, o in zip(tile, outer, strict=True))
            tiles.insert(0, outer)
        for stays in product("ABC", repeat=len(tiles)):
            moved = served(gemm, batch, element, unit, dataflow, tiles, stays)
            times = [bytes_ / bandwidth for bytes_, bandwidth in zip(moved, bandwidths, strict=True)]
            time = max(compute_time(gemm, batch, unit, flops), *times)
            key = (time, *reversed(moved))
            if best is None or key < best:
                best = key
    return best[0], list(reversed(best[1:]))


def walk(gemm, outer_tiles, tile, stays, element):
    """Count a level's loads and stores by walking its loops; all sides powers of two.

    outer_tiles: tiles of the levels outside, outermost first. Every visit of a tile of the next level
    out starts with nothing loaded; in it, the loop that the operand which stays does not depend on
    runs innermost.
    """
    outer = outer_tiles[-1] if outer_tiles else gemm
    order = {"A": "mkn", "B": "knm", "C": "mnk"}[stays]
    visits = product(*(range(side // part) for side, part in zip(gemm, outer, strict=True)))
    elements = {"A": tile[0] * tile[1], "B": tile[1] * tile[2], "C": tile[0] * tile[2]}
    of = {"A": "mk", "B": "kn", "C": "mn"}
    moved, begun, last = 0, {}, 0
    for visit in visits:
        held = {"A": None, "B": None, "C": None}
        extent = dict(zip("mkn", (o // t for o, t in zip(outer, tile, strict=True)), strict=True))
        for indices in product(*(range(extent[axis]) for axis in order)):
            place = dict(zip(order, indices, strict=True))
            place = {axis: visit["mkn".index(axis)] * extent[axis] + place[axis] for axis in "mkn"}
            for operand in "ABC":
                name = tuple(place[axis] for axis in of[operand])
                if held[operand] == name:
                    continue
                held[operand] = name
                if operand != "C":
                    moved += elements[operand] * element
                elif begun.setdefault(name, 0):
                    moved += elements["C"] * 2 * PARTIAL_SUM  # stored as partial sums before, read back now
                if operand == "C":
                    begun[name] += 1
    last = sum(elements["C"] * element for _ in begun)
    return moved + last
