"""The tiling search (6.1, 6.2).

For each level there is a fixed, seeded sequence of random tiles that meet the level's capacity per scope; the
first N of it are tried, every combination across L levels, every choice of the stationary operand
at each level. Or else every tile of power-of-two sides that fits. The work inside the tiles of the level
that bundles have to themselves goes to the bundles in waves, and the inner dimension may be split into
parts where bundles would be idle. Idle bundles leave their power to those at work: cores take it at a
higher supply, memories as far as their banks can. Time is the maximum over compute and all levels. Ties
go to the fewest DRAM bytes, then L2 bytes, and so on; then to the largest tiles from the outermost level
inwards, then to the fewest parts.

Levels count from the registers outwards; tiles and sides are (m, k, n).
"""

from itertools import count, product
from math import floor
from typing import NamedTuple

from tests.naive.dataflow import register_accesses
from tests.naive.voltage import highest_voltage, speed

PARTIAL_SUM = 4  # bytes
GROWTH = 1.2207440846057596  # x^4 = x + 1
OPERANDS = "ABC"


class Machine(NamedTuple):
    element: int  # bytes of an element of A, B and C
    unit: tuple  # m, k, n of the matrix unit
    dataflow: str
    flops: float
    bandwidths: list  # registers outwards, main memory last
    private_level: int = -1  # its tiles are distributed over its instances; -1 for none
    instances: float = 1.0  # of that level
    banks: list = ()  # what those of on-chip levels could move if power allowed; empty: what they do
    supply: tuple = (1.0, 0.3, 1.0)  # of the cores with all at work, threshold, highest [V]
    stored: float = 0.0  # bytes of an element of B in memory; 0: as of A


class Tiling(NamedTuple):
    time: float
    moved: list  # bytes that registers, then each level outwards, then main memory serve
    compute: float
    tiles: list
    stationary: list
    parts: int
    waves: int
    idle: float


def over(sides, tile):
    """Return how many tiles lie along each side, the last one perhaps partial."""
    return tuple(-(-side // extent) for side, extent in zip(sides, tile, strict=True))


def no_larger(tile, outer):
    """Return a tile cut down to the tile outside it."""
    return tuple(min(t, o) for t, o in zip(tile, outer, strict=True))


# --- the tiles that are tried


def direction_and_size(level, sample, seed):
    """Return a point of the R3 sequence in the unit cube."""
    index = 1 + sample + 1000 * level + 7919 * seed
    points = []
    for power in (1, 2, 3):
        x = 0.5 + index / GROWTH**power
        points.append(x - floor(x))
    return points


def direction(level, sample, seed):
    """Return shares of m, k, n that sum to 1: two coordinates cut [0, 1] into three."""
    low, high = sorted(direction_and_size(level, sample, seed)[:2])
    return low, high - low, 1 - high


def room(capacity, level, sample, seed, private):
    """Return the bytes that a tile may fill: at the private level all, a half, ... or a 32nd."""
    return capacity / 2 ** floor(6 * direction_and_size(level, sample, seed)[2]) if private else capacity


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


def random_tiles(level, samples, seed, capacity, element, private):
    """Return the first tiles of a level's random sequence."""
    return [
        grow(direction(level, sample, seed), room(capacity, level, sample, seed, private), element)
        for sample in range(samples)
    ]


def power_of_two_tiles(capacity, element, most):
    """Return every tile that fits of power-of-two sides up to 2**most; one element always."""
    sides = [2**exponent for exponent in range(most + 1)]
    tiles = product(sides, repeat=3)
    return [tile for tile in tiles if tile == (1, 1, 1) or footprint(tile, element) <= capacity]


def candidates(samples, seed, capacities, element, private_level=-1, most=0):
    """Return the tried tiles of each level; samples = 0: all powers of two up to 2**most."""
    if samples == 0:
        return [power_of_two_tiles(capacity, element, most) for capacity in capacities]
    return [
        random_tiles(level, samples, seed, capacity, element, level == private_level)
        for level, capacity in enumerate(capacities)
    ]


# --- what a tiling costs


def level_bytes(gemm, outer_visits, visits, parts, stationary, element, stored=0):
    """Return the bytes loaded to and stored from a level over the whole GEMM.

    outer_visits, visits: how many tiles of the level outside, and of this level, lie along m, k, n;
    parts: of the inner dimension, here at the latest; stationary: the stationary operand.
    """
    m, k, n = gemm
    a = m * k * (outer_visits[2] if stationary == "A" else visits[2])
    b = k * n * (outer_visits[0] if stationary == "B" else visits[0])
    passes = max(outer_visits[1], parts) if stationary == "C" else visits[1]
    # all passes but the first read partial sums back, all but the last write them; the last writes C
    c = m * n * (passes - 1) * 2 * PARTIAL_SUM + m * n * element
    return a * element + b * (stored or element) + c


def choices(gemm, batch, machine, tiles, parts):
    """Return for each level the bytes that its three choices of the operand that stays would move."""
    each = []
    for level, tile in enumerate(tiles):
        outside = tiles[level + 1] if level + 1 < len(tiles) else gemm
        split = parts if level == machine.private_level else 1
        visits = over(gemm, outside), over(gemm, tile)
        sizes = machine.element, machine.stored
        each.append({x: batch * level_bytes(gemm, *visits, split, x, *sizes) for x in OPERANDS})
    return each


def served(gemm, batch, machine, tiles, stationary, parts):
    """Return the bytes that each level serves: registers (Equation 5), then outwards, main memory last."""
    m, k, n = gemm
    accesses = register_accesses(machine.dataflow, 2 * m * k * n * batch, machine.unit, tiles[0])
    each = choices(gemm, batch, machine, tiles, parts)
    return [accesses * machine.element, *(moved[x] for moved, x in zip(each, stationary, strict=True))]


def part_lengths(k):
    """Return how long parts of the inner dimension may be: all of it, and all powers of two below."""
    lengths = [k]
    for exponent in range(k.bit_length() - 1, -1, -1):
        if 2**exponent < k:
            lengths.append(2**exponent)
    return lengths


def padded_flop(sides, unit):
    """Return the operations on whole m x k x n blocks of the matrix unit."""
    flop = 2
    for blocks, extent in zip(over(sides, unit), unit, strict=True):
        flop *= blocks * extent
    return flop


def bundles_work(gemm, batch, machine, tiles, length):
    """Return the compute time, the waves, and the bundles' time over that without idle ones."""
    least = padded_flop(gemm, machine.unit) * batch / machine.flops
    if machine.private_level < 0:
        return least, 1, 1.0
    tile = tiles[machine.private_level]
    along_m, _, along_n = over(gemm, tile)
    units = along_m * along_n * batch * -(-gemm[1] // length)
    waves = -(-units // int(machine.instances))
    turns = waves * machine.instances
    work = padded_flop((tile[0], min(length, gemm[1]), tile[2]), machine.unit)
    voltage, threshold, highest = machine.supply
    lifted = highest_voltage(turns / units, voltage, threshold, voltage, highest)
    flops = machine.flops * speed(lifted, voltage, threshold)
    return max(least, turns * work / flops), waves, turns / units


def level_time(bytes_, machine, level, idle):
    """Return the time of what a level serves; idle: bundles there for each that works."""
    rate = machine.bandwidths[level]
    if level <= machine.private_level:
        rate = min(rate, (machine.banks or machine.bandwidths)[level] / idle)
    return bytes_ / rate


def cost(gemm, batch, machine, tiles, stationary, parts):
    """Return the time and everything else of one tiling."""
    length = next(length for length in part_lengths(gemm[1]) if -(-gemm[1] // length) == parts)
    compute, waves, idle = bundles_work(gemm, batch, machine, tiles, length)
    moved = served(gemm, batch, machine, tiles, stationary, parts)
    serving = [level_time(bytes_, machine, level, idle) for level, bytes_ in enumerate(moved)]
    return Tiling(max(compute, *serving), moved, compute, tiles, stationary, parts, waves, idle)


# --- the search


def tilings(gemm, batch, machine, tried, level, outer):
    """Yield the tiles of the levels from the registers to `level`, inside a tile, and the parts."""
    if level < 0:
        yield [], 1
        return
    private = level == machine.private_level
    for tile in sorted({no_larger(candidate, outer) for candidate in tried[level]}):
        for length in part_lengths(gemm[1]) if private else [gemm[1]]:
            cut = no_larger(tile, (tile[0], length, tile[2]))
            parts = -(-gemm[1] // length)
            for inner, inner_parts in tilings(gemm, batch, machine, tried, level - 1, cut):
                yield [*inner, cut], parts if private else inner_parts
            along_m, _, along_n = over(gemm, tile)
            if along_m * along_n * batch * parts >= machine.instances:
                break  # no bundle is idle


def rank(gemm, tiling):
    """Return what is compared: the smallest is the best."""
    visits = [over(gemm, tile) for tile in reversed(tiling.tiles)]
    return (tiling.time, *reversed(tiling.moved), *visits, tiling.parts, tiling.stationary)


def search(gemm, batch, machine, tried, every_operand=False):
    """Try everything; return the best tiling.

    tried: the tiles of each level. A level's bytes depend on the operand that stays there and on no
    other level's, so the one of the fewest bytes is taken level by level; `every_operand` tries all
    3**L choices instead.
    """
    best = None
    for tiles, parts in tilings(gemm, batch, machine, tried, len(tried) - 1, gemm):
        each = choices(gemm, batch, machine, tiles, parts)
        operands = [OPERANDS if every_operand else min(moved, key=moved.get) for moved in each]
        for stationary in product(*operands):
            tiling = cost(gemm, batch, machine, tiles, list(stationary), parts)
            if best is None or rank(gemm, tiling) < rank(gemm, best):
                best = tiling
    return best


# --- the loops


def cut(intervals, length):
    """Cut every interval from its start on into pieces of a length, the last one perhaps shorter."""
    return [(at, min(at + length, end)) for start, end in intervals for at in range(start, end, length)]


def overlaps(intervals, others):
    """Return the intervals in which those of both lists overlap."""
    both = [(max(a, c), min(b, d)) for (a, b), (c, d) in product(intervals, others)]
    return [(start, end) for start, end in both if start < end]


def walk(gemm, tiles, level, stationary, element, private_level=-1, parts=1, keeps=False, weight=0):
    """Count a level's loads and stores by walking its loops, element by element.

    Every visit of a tile of the next level out starts with nothing loaded, and so does every part; in
    it, the loop that the operand which stays does not depend on runs innermost, and the other operands
    stream by: a piece of them is loaded for every tile. keeps: a piece that happens to be the last
    one's as well is not loaded again. weight: bytes of an element of B; 0: as of A.
    """
    length = next(length for length in part_lengths(gemm[1]) if -(-gemm[1] // length) == parts)
    outside = {axis: [(0, side)] for axis, side in zip("mkn", gemm, strict=True)}
    for outer in range(len(tiles) - 1, level - 1, -1):
        if outer == private_level:
            outside["k"] = overlaps(outside["k"], cut([(0, gemm[1])], length))
        if outer > level:
            outside = {x: cut(outside[x], side) for x, side in zip("mkn", tiles[outer], strict=True)}
    order = {"A": "mkn", "B": "knm", "C": "mnk"}[stationary]
    of = {"A": "mk", "B": "kn", "C": "mn"}
    loaded, passes = 0, {}
    for visit in product(*(outside[axis] for axis in order)):
        held = {"A": None, "B": None, "C": None}
        sides = [tiles[level]["mkn".index(axis)] for axis in order]
        inside = [cut([piece], side) for piece, side in zip(visit, sides, strict=True)]
        for place in product(*inside):
            at = dict(zip(order, place, strict=True))
            for operand in OPERANDS:
                rows, columns = (at[axis] for axis in of[operand])
                if held[operand] == (rows, columns) and (keeps or operand == stationary):
                    continue
                held[operand] = rows, columns
                for element_at in product(range(*rows), range(*columns)):
                    if operand == "C":
                        passes[element_at] = passes.get(element_at, 0) + 1
                    else:
                        loaded += (weight or element) if operand == "B" else element
    stored = sum((times - 1) * 2 * PARTIAL_SUM + element for times in passes.values())
    return loaded + stored
