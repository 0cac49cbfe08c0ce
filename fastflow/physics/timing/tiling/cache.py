"""A cache of the tilings of GEMMs, so that the order of a grid's axes matters little.

A chunk solves each of its GEMMs once. Where an axis that no GEMM depends on varies slowly, later chunks have
the same GEMMs. So the results of the search are cached, in 24 bytes per GEMM at three levels: the exponents
of the tiles' sides, and the number of tiles that were evaluated. A cached GEMM is searched among its best
tiles alone, which takes a tenth of the time and gives the same tiling to the bit. The search may split the
inner dimension of these tiles otherwise, but that split cannot win: the first search had it with tiles that
are as large or larger.

The key of a GEMM is 80 bits of two hashes of all inputs of its tiling, so that collisions do not occur in
practice: with a probability of 1e-9 in a thousand million GEMMs.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from fastflow.core.dedupe import Words, unique_rows, update_hashes
from fastflow.core.tables import Ints, take
from fastflow.physics.timing.tiling.search import search_tilings
from fastflow.physics.timing.tiling.search_space import Gemms, Hierarchies, Tilings
from fastflow.physics.timing.tiling.tile_sets import TileSets

MAX_BYTES = 32_000_000
"""Of memory for the cache: 1.3 million GEMMs at three levels, 988,000 are in `sweeps/million`."""
_WAYS = 16  # of a set: the cache is set-associative
_BITS = 6  # of an exponent


class TilingCache:
    """A set-associative cache of fixed size of tilings on hierarchies of `levels` levels; thread-safe."""

    def __init__(self, levels: int, most_bytes: int = MAX_BYTES) -> None:
        """Allocate the cache; the system commits its memory as it is written."""
        sets = most_bytes // (_WAYS * (8 + 4 * (levels + 1)))
        self._tag: Words = np.zeros((sets, _WAYS), dtype=np.uint64)  # 0: empty
        self._words = np.zeros((sets, _WAYS, levels + 1), dtype=np.uint32)
        self._lock = threading.Lock()

    def recall(self, tag: Words, other: Words) -> tuple[Ints, NDArray[np.uint32]]:
        """Return the indices of the cached GEMMs, and their tilings as words, (cached, levels + 1).

        tag, other: two hashes of each, (gemms,).
        """
        set_index = self._set_of(other)
        with self._lock:
            matches = self._tag[set_index] == tag[:, None]
            known = np.flatnonzero(matches.any(axis=1))
            return known, self._words[set_index[known], matches[known].argmax(axis=1)]

    def keep(self, tag: Words, other: Words, words: NDArray[np.uint32]) -> None:
        """Add the tilings of GEMMs; a full set evicts an entry."""
        set_index, remaining = self._set_of(other), np.arange(tag.size)
        with self._lock:
            while remaining.size:
                first, _ = unique_rows([set_index[remaining]], remaining.size)  # one GEMM per set
                rows, remaining = remaining[first], np.delete(remaining, first)
                tags = self._tag[set_index[rows]]
                is_free = (tags == 0) | (tags == tag[rows, None])
                victim = (tag[rows] % np.uint64(_WAYS)).astype(np.int64)
                way = np.where(is_free.any(axis=1), is_free.argmax(axis=1), victim)
                self._tag[set_index[rows], way] = 0  # so that an interrupt leaves no tag with another's tiles
                self._words[set_index[rows], way] = words[rows]
                self._tag[set_index[rows], way] = tag[rows]

    def _set_of(self, other: Words) -> Ints:
        """Return the index of each GEMM's set."""
        return (other % np.uint64(len(self._tag))).astype(np.int64)


_caches: dict[int, TilingCache] = {}


def search_cached(gemms: Gemms, hierarchies: Hierarchies, sets: TileSets, key: Words, levels: int) -> Tilings:
    """Return the best tiling of every GEMM, with a short search for cached ones.

    key: two hashes of the inputs of tilings on each hierarchy, (2, hierarchies).
    """
    cache = _caches.get(levels) or _caches.setdefault(levels, TilingCache(levels))
    tag, other = update_hashes(key[:, gemms.hierarchy], [gemms.m, gemms.k, gemms.n, gemms.batch])
    rows, words = cache.recall(tag, other)
    search_space = _restrict_to_known(gemms, hierarchies, sets, levels, rows, words) if rows.size else None
    tilings: Tilings = search_tilings(*(search_space or (gemms, hierarchies, sets)), levels)
    tilings.candidates[rows] = words[:, levels]
    is_new = np.isfinite(tilings.time) & (tilings.candidates < 2**32)  # without a time there is no tile
    is_new[rows] = False
    cache.keep(tag[is_new], other[is_new], _pack_tilings(tilings, np.flatnonzero(is_new), levels))
    return tilings


def _pack_tilings(tilings: Tilings, rows: Ints, levels: int) -> NDArray[np.uint32]:
    """Return tilings as words: the exponents of each level in a word, and the number of evaluated tiles."""
    words = np.empty((rows.size, levels + 1), dtype=np.uint32)
    sides = tilings.tile.reshape(-1, levels, 3)[rows]
    exponent = np.frexp(sides - 0.5)[1].astype(np.uint32)  # of the smallest power of two that holds a side
    words[:, :levels] = (exponent << np.array([0, _BITS, 2 * _BITS], dtype=np.uint32)).sum(axis=2)
    words[:, levels] = tilings.candidates[rows]
    return words


def _restrict_to_known(
    gemms: Gemms, hierarchies: Hierarchies, sets: TileSets, levels: int, rows: Ints, words: NDArray[np.uint32]
) -> tuple[Gemms, Hierarchies, TileSets]:
    """Return a search space in which each cached GEMM has a hierarchy with its best tile alone per level."""
    count, tiles, total = hierarchies.instances.size, rows.size * levels, sets.closed.size
    rows_of_all = np.concatenate([np.arange(count), gemms.hierarchy[rows]])
    of_levels = hierarchies._replace(
        bandwidth=hierarchies.bandwidth.reshape(count, -1),
        driven=hierarchies.driven.reshape(count, -1),
        tiles=hierarchies.tiles.reshape(count, -1),
    )
    extended = take(of_levels, rows_of_all)
    extended.tiles[count:] = total + np.arange(tiles).reshape(-1, levels)
    hierarchy = gemms.hierarchy.copy()
    hierarchy[rows] = count + np.arange(rows.size)
    exponents = words[:, :levels].astype(np.int64).reshape(-1)
    m, k, n = (exponents >> shift & (1 << _BITS) - 1 for shift in (0, _BITS, 2 * _BITS))
    return (
        gemms._replace(hierarchy=hierarchy),
        extended._replace(
            bandwidth=extended.bandwidth.reshape(-1),
            driven=extended.driven.reshape(-1),
            tiles=extended.tiles.reshape(-1),
        ),
        TileSets(
            offset=np.concatenate([sets.offset, sets.offset[-1] + np.arange(1, tiles + 1)]),
            closed=np.concatenate([sets.closed, np.zeros(tiles, dtype=np.bool_)]),
            m=np.concatenate([sets.m, m]),
            k=np.concatenate([sets.k, k]),
            n=np.concatenate([sets.n, n]),
        ),
    )
