"""Tilings of GEMMs that were solved before, so that the order of a grid's axes matters little.

A chunk solves each of its GEMMs once. Where an axis that no GEMM depends on varies slowly, later chunks
have the same ones. So what the search found is kept, in 24 bytes a GEMM at three levels: the exponents of the
tiles' sides, and how many tiles were looked at. A GEMM that was solved before is searched among its own tiles
alone, which takes a tenth of the time and gives the same tiling to the bit. Its tiles may be cut into other
parts of the inner dimension there, but none of these can win: the first search had them with tiles that are
as large or larger.

A GEMM is known by 80 bits of two hashes of all that its tiling depends on, so two are not taken for each
other in practice: in a thousand million GEMMs with a chance of 1e-9.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from fastflow.core.dedupe import Words, update_hashes, unique_rows
from fastflow.core.tables import Ints, take
from fastflow.physics.timing.tiling.search import search_tilings
from fastflow.physics.timing.tiling.search_space import Gemms, Hierarchies, Tilings
from fastflow.physics.timing.tiling.tile_sets import TileSets

MOST_BYTES = 32_000_000
"""Of memory for what is kept: 1.3 million GEMMs at three levels, 988,000 are in `sweeps/million`."""
_WAYS = 16  # places that a GEMM may be kept at
_BITS = 6  # of an exponent


class TilingCache:
    """What was found for GEMMs on hierarchies of so many levels, in a room of fixed size; for any threads."""

    def __init__(self, levels: int, most_bytes: int = MOST_BYTES) -> None:
        """Take how many levels there are; the system gives the memory as it is written."""
        sets = most_bytes // (_WAYS * (8 + 4 * (levels + 1)))
        self._tag: Words = np.zeros((sets, _WAYS), dtype=np.uint64)  # 0: empty
        self._found = np.zeros((sets, _WAYS, levels + 1), dtype=np.uint32)
        self._lock = threading.Lock()

    def recall(self, tag: Words, other: Words) -> tuple[Ints, NDArray[np.uint32]]:
        """Return which GEMMs are kept, and what was found for these, (kept, levels + 1).

        tag, other: two hashes of each, (gemms,).
        """
        place = self._place(other)
        with self._lock:
            alike = self._tag[place] == tag[:, None]
            kept = np.flatnonzero(alike.any(axis=1))
            return kept, self._found[place[kept], alike[kept].argmax(axis=1)]

    def keep(self, tag: Words, other: Words, found: NDArray[np.uint32]) -> None:
        """Keep what was found for GEMMs; where there is no room, in place of something else."""
        place, rest = self._place(other), np.arange(tag.size)
        with self._lock:
            while rest.size:
                apart, _ = unique_rows([place[rest]], rest.size)  # one GEMM for each set of places
                one, rest = rest[apart], np.delete(rest, apart)
                there = self._tag[place[one]]
                free = (there == 0) | (there == tag[one, None])
                otherwise = (tag[one] % np.uint64(_WAYS)).astype(np.int64)
                way = np.where(free.any(axis=1), free.argmax(axis=1), otherwise)
                self._tag[place[one], way] = 0  # so that an interrupt leaves no tag with another's tiles
                self._found[place[one], way] = found[one]
                self._tag[place[one], way] = tag[one]

    def _place(self, other: Words) -> Ints:
        """Return the set of places of GEMMs."""
        return (other % np.uint64(len(self._tag))).astype(np.int64)


_caches: dict[int, TilingCache] = {}


def search_cached(gemms: Gemms, hierarchies: Hierarchies, sets: TileSets, key: Words, levels: int) -> Tilings:
    """Return the best tiling of every GEMM, of which those solved before take little time.

    key: two hashes of everything that tilings on a hierarchy depend on, (2, hierarchies).
    """
    kept = _caches.get(levels) or _caches.setdefault(levels, TilingCache(levels))
    tag, other = update_hashes(key[:, gemms.hierarchy], [gemms.m, gemms.k, gemms.n, gemms.batch])
    rows, known = kept.recall(tag, other)
    narrowed = _narrow(gemms, hierarchies, sets, levels, rows, known) if rows.size else None
    found: Tilings = search_tilings(*(narrowed or (gemms, hierarchies, sets)), levels)
    found.candidates[rows] = known[:, levels]
    is_new = np.isfinite(found.time) & (found.candidates < 2**32)  # a search that finds no time finds no tile
    is_new[rows] = False
    kept.keep(tag[is_new], other[is_new], _written(found, np.flatnonzero(is_new), levels))
    return found


def _written(found: Tilings, rows: Ints, levels: int) -> NDArray[np.uint32]:
    """Return what is kept of some tilings: the exponents of each level in a word, and the tiles looked at."""
    words = np.empty((rows.size, levels + 1), dtype=np.uint32)
    sides = found.tile.reshape(-1, levels, 3)[rows]
    exponent = np.frexp(sides - 0.5)[1].astype(np.uint32)  # of the smallest power of two that holds a side
    words[:, :levels] = (exponent << np.array([0, _BITS, 2 * _BITS], dtype=np.uint32)).sum(axis=2)
    words[:, levels] = found.candidates[rows]
    return words


def _narrow(
    gemms: Gemms, hierarchies: Hierarchies, sets: TileSets, levels: int, rows: Ints, known: NDArray[np.uint32]
) -> tuple[Gemms, Hierarchies, TileSets]:
    """Give some GEMMs a hierarchy each, with the tile that was found as the only one of each level."""
    count, tiles, total = hierarchies.instances.size, rows.size * levels, sets.closed.size
    everyone = np.concatenate([np.arange(count), gemms.hierarchy[rows]])
    of_levels = hierarchies._replace(
        bandwidth=hierarchies.bandwidth.reshape(count, -1),
        driven=hierarchies.driven.reshape(count, -1),
        tiles=hierarchies.tiles.reshape(count, -1),
    )
    wider = take(of_levels, everyone)
    wider.tiles[count:] = total + np.arange(tiles).reshape(-1, levels)
    hierarchy = gemms.hierarchy.copy()
    hierarchy[rows] = count + np.arange(rows.size)
    words = known[:, :levels].astype(np.int64).reshape(-1)
    m, k, n = (words >> shift & (1 << _BITS) - 1 for shift in (0, _BITS, 2 * _BITS))
    return (
        gemms._replace(hierarchy=hierarchy),
        wider._replace(
            bandwidth=wider.bandwidth.reshape(-1),
            driven=wider.driven.reshape(-1),
            tiles=wider.tiles.reshape(-1),
        ),
        TileSets(
            offset=np.concatenate([sets.offset, sets.offset[-1] + np.arange(1, tiles + 1)]),
            closed=np.concatenate([sets.closed, np.zeros(tiles, dtype=np.bool_)]),
            m=np.concatenate([sets.m, m]),
            k=np.concatenate([sets.k, k]),
            n=np.concatenate([sets.n, n]),
        ),
    )
