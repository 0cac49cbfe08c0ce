"""GEMMs that were solved before are recalled to the bit, in whatever batch, in a bounded room."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.core.dedupe import hashes
from fastflow.engine.grid.plan import plan
from fastflow.engine.run.chunks import rows as rows_of
from fastflow.physics.timing import roofline
from fastflow.physics.timing.device import Boost, Device, Library, Memories
from fastflow.physics.timing.roofline import KernelWork, TilingOptions
from fastflow.physics.timing.tiling import cache
from fastflow.physics.timing.tiling.cache import TilingCache, search_cached
from fastflow.physics.timing.tiling.dataflow import DATAFLOW_CODES, Units
from fastflow.physics.timing.tiling.search_space import Tilings
from tests.support.tilings import UNITS, Design, random_batch, solve_all

GEMMS = [(4096, 4096, 4096), (300, 70_000, 300), (1000, 64, 5000), (7, 4096, 129), (30_000, 30_000, 64)]
ORDERS = (
    (
        "net=ndr_x8,gdr_x8",
        "tech=n7,n5",
        "model.batch=range(4096,12289,1024)",
        "parallel.strategy=d512,CR-8-d64",
    ),
    (
        "tech=n7,n5",
        "model.batch=range(4096,12289,1024)",
        "parallel.strategy=d512,CR-8-d64",
        "net=ndr_x8,gdr_x8",
    ),
)


@pytest.fixture(autouse=True)
def nothing_kept():
    cache._caches.clear()
    yield
    cache._caches.clear()


@pytest.fixture
def searched(monkeypatch):
    """Count the GEMMs that are newly solved."""
    counts = []
    keep = TilingCache.keep

    def counting(self, tag, other, found):
        counts.append(tag.size)
        keep(self, tag, other, found)

    monkeypatch.setattr(TilingCache, "keep", counting)
    return counts


def recalling(name):
    """Return a search that keeps what it solves; hierarchies are known by a name and their place."""

    def search(gemms, hierarchies, sets, levels):
        place = np.arange(hierarchies.instances.size)
        return search_cached(gemms, hierarchies, sets, hashes([np.full(place.size, name), place]), levels)

    return search


def check_same(one, other):
    for name in Tilings._fields:
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name


def device_and_work(design):
    """Return one point with some GEMMs."""
    m, k, n = np.ascontiguousarray(np.array(GEMMS, dtype=np.int64).T)

    def same(value, dtype=np.int64):
        return np.full(len(GEMMS), value, dtype=dtype)

    def first(value, dtype=np.float64):
        return np.array([value], dtype=dtype)

    device = Device(
        matrix_flops=first(design.flops),
        vector_flops=first(3e12),
        vector_peak=first(3e12),
        special_functions=first(3e12),
        issue=first(3e12),
        memories=Memories(
            capacity=first(design.capacities),
            bandwidth=first(design.bandwidths),
            driven=first(design.driven()),
            private=first(design.private, np.int64),
        ),
        launch=first(1e-6),
        units=Units(
            *(first(side, np.int64) for side in design.unit), first(DATAFLOW_CODES[design.flow], np.int64)
        ),
        instances=first(design.instances),
        boost=Boost(
            first(design.threshold()), first(design.headroom()), first(design.headroom() > 1.0, np.bool_)
        ),
        library=Library(*[first(0.0)] * len(Library._fields)),
        blocks=first("1x1", np.str_),
        batched_blocks=first("1x1", np.str_),
        grouped_blocks=first("", np.str_),
    )
    work = KernelWork(
        point=same(0), m=m, k=k, n=n, batch=same(2), strided=same(False, np.bool_), copies=same(0),
        pass_bytes=same(0.0, float), pass_flop=same(0.0, float),
        options=TilingOptions(
            element_bytes=first(design.element), weight_bytes=first(design.element), conversion=first(0.0),
            output_bytes=first(design.element),
            samples=first(design.samples, np.int64), seed=first(design.seed, np.int64),
            brute=first(False, np.bool_), blocks=first(False, np.bool_), overlap=first(0.0),
            parts=first(1, np.int64),
        ),
    )  # fmt: skip
    return device, work


def every_tile(found, row):
    """Let one design in three try all powers of two, which takes long where there are many levels."""
    return found._replace(samples=0) if row % 3 == 0 and len(found.capacities) < 4 else found


@pytest.mark.parametrize("levels", [1, 2, 3, 4, 5])
def test_a_gemm_that_was_solved_is_recalled_to_the_bit(levels, searched):
    rng = np.random.default_rng(levels)
    for name in range(6):
        found, rows = random_batch(rng, levels, 120, 12)
        found = [every_tile(design, row) for row, design in enumerate(found)]
        rows = list(dict.fromkeys(rows))
        expected = solve_all(found, rows)
        for is_repeated in (False, True):
            searched.clear()
            check_same(solve_all(found, rows, how=recalling(name)), expected)
            timed = int(np.isfinite(expected.time).sum())
            assert searched == [0 if is_repeated else timed]
        assert timed > 0.9 * len(rows)


def test_some_are_recalled_and_others_are_not(searched):
    found, rows = random_batch(np.random.default_rng(7), 3, 300, 20)
    rows = list(dict.fromkeys(rows))
    expected = solve_all(found, rows)
    solve_all(found, rows[::3], how=recalling(0))
    order = np.random.default_rng(8).permutation(len(rows))
    mixed = [rows[i] for i in order]
    check_same(solve_all(found, mixed, how=recalling(0)), solve_all(found, mixed))
    assert sum(searched) == np.isfinite(expected.time).sum()


def test_another_hierarchy_is_not_the_same():
    """Whatever a search depends on: two chips that differ in it alone have tilings of their own."""
    base = Design((2e3, 1e5, 4e7), (1e13, 5e12, 3e12, 1e12), private=1, instances=108, samples=6, seed=1)
    changes = [
        {"capacities": (4e3, 1e5, 4e7)}, {"capacities": (2e3, 4e5, 4e7)}, {"capacities": (2e3, 1e5, 1e6)},
        *({"bandwidths": tuple(rate * (1e-3 if i == level else 1) for i, rate in enumerate(base.bandwidths))}
          for level in range(4)),
        {"private": 0}, {"private": -1}, {"instances": 7}, {"samples": 9}, {"samples": 0}, {"seed": 2},
        {"element": 4}, {"flow": "weight"}, {"flops": 1e12}, *({"unit": unit} for unit in UNITS[1:]),
        *({"unit": tuple(4 if i != axis else 96 for i in range(3))} for axis in range(3)),
    ]  # fmt: skip
    designs = [base, *(base._replace(**change) for change in changes)]
    machines = [device_and_work(design) for design in designs]
    together = [roofline.time_kernels(*machine) for machine in machines]
    different = 0
    for machine, got in zip(machines, together, strict=True):
        cache._caches.clear()
        alone = roofline.time_kernels(*machine)
        for name in alone._fields:
            assert getattr(alone, name).tobytes() == getattr(got, name).tobytes(), name
        different += any((getattr(got, name) != getattr(together[0], name)).any() for name in alone._fields)
    assert different == len(changes)


def test_the_room_is_bounded_and_holds_what_was_kept_last():
    """As a dictionary: what is recalled is right, and nothing is lost but where there is no room."""
    rng = np.random.default_rng(3)
    room = 24 * 16 * 50  # of 800 GEMMs at three levels
    small, large = TilingCache(3, room), TilingCache(3, 100 * room)
    assert small._tag.nbytes + small._words.nbytes == room
    known, recalled = {}, 0
    for _ in range(100):
        tag = rng.choice(4000, 100, replace=False).astype(np.uint64) + np.uint64(1)
        other = tag * np.uint64(0x9E3779B97F4A7C15)
        for kept in (small, large):
            rows, found = kept.recall(tag, other)
            assert all(known[int(tag[row])] == words.tolist() for row, words in zip(rows, found, strict=True))
            assert kept is small or set(rows) == {row for row in range(100) if int(tag[row]) in known}
            recalled += rows.size * (kept is small)
        found = rng.integers(0, 2**32, (100, 4)).astype(np.uint32)
        known |= {int(one): words.tolist() for one, words in zip(tag, found, strict=True)}
        small.keep(tag, other, found)
        large.keep(tag, other, found)
    assert 600 < np.count_nonzero(small._tag) <= 800
    assert recalled > 1000  # of 10,000: a fifth of what was kept is there


def test_gemms_of_one_place_are_all_kept():
    kept = TilingCache(2, 20 * 16)  # one set of places
    tag = np.arange(1, 17, dtype=np.uint64)
    found = np.arange(48, dtype=np.uint32).reshape(16, 3)
    kept.keep(tag, tag, found)
    rows, there = kept.recall(tag, tag)
    assert rows.tolist() == list(range(16))
    assert (there == found).all()


def test_threads_share_what_is_solved():
    found, rows = random_batch(np.random.default_rng(5), 3, 400, 8)
    expected = {start: solve_all(found, rows[start : start + 100]) for start in range(0, 300, 25)}
    starts = [*expected] * 8
    with ThreadPoolExecutor(4) as threads:
        for start, got in zip(
            starts,
            threads.map(lambda at: solve_all(found, rows[at : at + 100], how=recalling(0)), starts),
            strict=True,
        ):
            check_same(got, expected[start])


def test_the_order_of_axes_does_not_matter(searched):
    """As many GEMMs are solved with networks first, chunk after chunk, as with networks last."""
    counts, times = [], []
    for order in ORDERS:
        cache._caches.clear()
        searched.clear()
        with hydra_rules():
            grid = plan(Composer.of_library(), order).grid
        chunks = [rows_of(grid, start, start + 9) for start in range(0, grid.points, 9)]
        counts.append(sum(searched))
        times.append(sorted(np.concatenate([chunk["time_s"] for chunk in chunks]).tolist()))
    assert counts[0] == counts[1] > 0
    assert times[0] == times[1]
