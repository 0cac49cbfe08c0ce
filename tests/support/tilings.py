"""Memory hierarchies for tests of the search: strategies, random batches, what the kernels find."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from fastflow.physics.timing.tiling.dataflow import DATAFLOW_CODES, Units
from fastflow.physics.timing.tiling.search import search_tilings
from fastflow.physics.timing.tiling.search_space import Gemms, Hierarchies
from fastflow.physics.timing.tiling.tile_sets import make_tile_sets
from tests.naive import tiling
from tests.naive.voltage import power
from tests.support.checks import near

SAMPLES = {1: 8, 2: 5, 3: 3, 4: 2, 5: 1}  # a level, few enough for the oracle
UNITS = [(4, 4, 4), (8, 4, 8), (16, 16, 16), (1, 1, 1), (3, 5, 128)]
INSTANCES = [1, 1, 7, 108, 108, 2048]
SPARE = [1.0, 1.0, 1.5, 40.0]
SUPPLIES = [(1.0, 0.3, 1.0), (0.6, 0.2, 1.0), (0.9, 0.2, 1.0), (1.0, 0.0, 2.0)]


class Design(NamedTuple):
    """A memory hierarchy, what computes on it and the tiles that are tried."""

    capacities: tuple
    bandwidths: tuple  # main memory last
    private: int = -1
    instances: int = 1
    samples: int = 2
    seed: int = 0
    element: int = 2
    unit: tuple = (4, 4, 4)
    flow: str = "best"
    flops: float = 1e14
    spare: tuple = ()  # what banks could move over what they do, of each level; empty: 1
    supply: tuple = (1.0, 0.3, 1.0)
    stored: float = 0.0  # of an element of B in memory; 0: as of A

    def machine(self):
        return tiling.Machine(
            self.element, self.unit, self.flow, self.flops, list(self.bandwidths), self.private,
            self.instances,
            [rate * more for rate, more in zip(self.bandwidths, self.spare, strict=False)], self.supply,
            self.stored,
        )  # fmt: skip

    def driven(self):
        """Return `Memories.driven`."""
        spare = self.spare or (1.0,) * len(self.capacities)
        return [1.0 / more if level <= self.private else 0.0 for level, more in enumerate(spare)] + [0.0]

    def threshold(self):
        voltage, threshold, _ = self.supply
        return threshold / voltage

    def headroom(self):
        voltage, threshold, highest = self.supply
        return power(highest, voltage, threshold)

    def candidates(self, most):
        return tiling.candidates(self.samples, self.seed, self.capacities, self.element, self.private, most)


def solve_all(designs, rows, thinned=True, how=search_tilings):
    """Return what the kernel finds for GEMMs (design's place, (m, k, n), batch); equal numbers of levels."""
    levels = len(designs[0].capacities)

    def column(values, dtype=np.float64):
        return np.array(values, dtype=dtype)

    def each(name):
        return [getattr(design, name) for design in designs for _ in range(levels)]

    # sets lie in another order than the levels they belong to
    sets = make_tile_sets(
        column([capacity for design in designs for capacity in design.capacities][::-1]),
        column(each("element")[::-1]),
        column(([*range(levels)] * len(designs))[::-1], np.int64),
        *(column(each(name)[::-1], np.int64) for name in ("private", "samples", "seed")),
        thinned,
    )
    hierarchies = Hierarchies(
        element_bytes=column([design.element for design in designs]),
        weight_bytes=column([design.stored or design.element for design in designs]),
        compute_flops=column([design.flops for design in designs]),
        units=Units(
            m=column([design.unit[0] for design in designs], np.int64),
            k=column([design.unit[1] for design in designs], np.int64),
            n=column([design.unit[2] for design in designs], np.int64),
            dataflow=column([DATAFLOW_CODES[design.flow] for design in designs], np.int64),
        ),
        private_level=column([design.private for design in designs], np.int64),
        instances=column([design.instances for design in designs]),
        threshold=column([design.threshold() for design in designs]),
        headroom=column([design.headroom() for design in designs]),
        bandwidth=column([rate for design in designs for rate in design.bandwidths]),
        driven=column([share for design in designs for share in design.driven()]),
        tiles=np.arange(levels * len(designs))[::-1].copy(),
    )
    sides = column([gemm for _, gemm, _ in rows], np.int64).reshape(-1, 3)
    places = column([place for place, *_ in rows], np.int64)
    batch = column([batch for *_, batch in rows], np.int64)
    gemms = Gemms(places, *(sides[:, axis].copy() for axis in range(3)), batch)
    return how(gemms, hierarchies, sets, levels)


def solve(gemm, batch, design, thinned=True, how=search_tilings):
    """Return what the kernel finds for one GEMM, as the oracle puts it."""
    levels = len(design.capacities)
    found = solve_all([design], [(0, gemm, batch)], thinned, how)
    tiles = [tuple(int(side) for side in tile) for tile in found.tile.reshape(levels, 3)]
    stationary = [tiling.OPERANDS[i] for i in found.stationary]
    return tiling.Tiling(
        found.time[0], list(found.bytes), found.compute_time[0], tiles, stationary,
        found.parts[0], found.waves[0], found.idle[0],
    )  # fmt: skip


def alike(got, expected):
    """Say whether two tilings are the same but for rounding."""
    numbers = zip(got.moved, expected.moved, strict=True)
    return (
        near(got.time, expected.time)
        and near(got.compute, expected.compute)
        and near(got.idle, expected.idle)
        and all(near(one, other) for one, other in numbers)
        and (got.tiles, got.stationary) == (expected.tiles, expected.stationary)
        and (got.parts, got.waves) == (expected.parts, expected.waves)
    )


sides = st.sampled_from([1, 1, 2, 3, 7, 8, 16, 37, 100, 129, 1000, 4096]) | st.integers(1, 5000)
gemms = st.tuples(sides, sides, sides)
small_gemms = st.tuples(*[st.integers(1, 12)] * 3)
batches = st.sampled_from([1, 1, 3, 64])
memories = st.just(0.0) | st.builds(
    lambda digit, decade: digit * 10.0**decade, st.integers(1, 9), st.integers(0, 9)
)
# few distinct bandwidths, so that levels often tie
rates = st.builds(
    lambda digit, decade: digit * 10.0**decade, st.sampled_from([1.0, 3.0]), st.integers(10, 13)
)

depths = st.integers(1, 5)


@st.composite
def designs(draw, levels=depths, capacities=memories, samples=None):
    count = draw(levels)
    return Design(
        tuple(draw(capacities) for _ in range(count)),
        tuple(draw(rates) for _ in range(count + 1)),
        private=draw(st.integers(-1, count - 1)),
        instances=draw(st.sampled_from(INSTANCES) | st.integers(1, 5000)),
        samples=draw(st.integers(1, SAMPLES[count]) if samples is None else samples),
        seed=draw(st.integers(0, 5)),
        element=draw(st.sampled_from([2, 4])),
        unit=draw(st.sampled_from(UNITS)),
        flow=draw(st.sampled_from(sorted(DATAFLOW_CODES))),
        flops=10.0 ** draw(st.integers(9, 15)),
        spare=tuple(draw(st.sampled_from(SPARE)) for _ in range(count)),
        supply=draw(st.sampled_from(SUPPLIES)),
        stored=draw(st.sampled_from([0.0, 0.5, 1.03])),
    )


def random_sides(rng):
    """Return m, k, n of a GEMM: small, thin, powers of two, huge, or anything."""
    kind = rng.integers(6)
    if kind == 0:
        return tuple(int(side) for side in rng.integers(1, 17, 3))
    if kind == 1:
        return tuple(2 ** int(exponent) for exponent in rng.integers(0, 15, 3))
    gemm = [int(2.0**exponent) for exponent in rng.uniform(0.0, 26.0 if kind == 5 else 14.0, 3)]
    if kind == 2:
        gemm[rng.integers(3)] = 1
    elif kind == 3:  # few tiles of C, so that the inner dimension is worth parts
        gemm = [min(gemm[0], 300), 16 * gemm[1], min(gemm[2], 300)]
    return tuple(gemm)


def random_batch(rng, levels, count, most):
    """Return designs of so many levels with samples up to `most`, and GEMMs on them in any order."""
    found = []
    for _ in range(-(-count // 8)):
        slow = rng.integers(3 * (levels + 1))  # some are bound by one level or main memory
        found.append(
            Design(
                tuple(
                    float(rng.integers(1, 10) * 10.0 ** rng.integers(0, 9)) * (rng.random() > 0.04)
                    for _ in range(levels)
                ),
                tuple(
                    float(rng.choice([1.0, 3.0]) * 10.0 ** (5 if level == slow else rng.integers(10, 14)))
                    for level in range(levels + 1)
                ),
                int(rng.integers(-1, levels)),
                int(rng.integers(1, 5000) if rng.random() < 0.3 else rng.choice(INSTANCES)),
                int(rng.integers(1, most + 1)),
                int(rng.integers(0, 100)),
                int(rng.choice([2, 4])),
                UNITS[rng.integers(len(UNITS))],
                sorted(DATAFLOW_CODES)[rng.integers(4)],
                10.0 ** rng.integers(9, 16),
                tuple(float(rng.choice(SPARE)) for _ in range(levels)),
                SUPPLIES[rng.integers(len(SUPPLIES))],
            )
        )
    rows = [
        (int(rng.integers(len(found))), random_sides(rng), int(rng.choice([1, 1, 1, 5, 64])))
        for _ in range(count)
    ]
    return found, rows
