"""The block tiles of kernel libraries, as written in chips' files."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize
from fastflow.core.errors import InputError
from fastflow.core.tables import Floats, Ints, Texts

MAX_SIDE = 65_536  # of a tile that a chip's file may name


class Catalogue(NamedTuple):
    """Block tiles of libraries: library i has the rows offset[i] to offset[i + 1]."""

    offset: Ints
    m: Floats
    n: Floats


def read_catalogue(texts: Texts, key: str = "chip.blocks") -> tuple[Catalogue, Ints]:
    """Return the block tiles of texts such as "128x64 64x64", and the index of each text's library.

    A tile with a side of 1 is for products with a vector. key: of the texts. Raises InputError where a tile
    is not two positive whole numbers, or the first tile is for vectors.
    """
    names, inverse = factorize(texts)
    tile_lists = [_read_tiles(str(name), key) for name in names]
    offset = np.cumsum([0, *map(len, tile_lists)])
    table = np.array([tile for tiles in tile_lists for tile in tiles], dtype=np.float64).reshape(-1, 2)
    return Catalogue(offset, table[:, 0].copy(), table[:, 1].copy()), inverse


@lru_cache(maxsize=256)
def _read_tiles(name: str, key: str) -> tuple[tuple[float, float], ...]:
    tiles = []
    for tile in name.split():
        parts = tile.split("x")
        if len(parts) != 2 or not all(map(_is_side, parts)):
            allowed = f"tiles such as 128x64, with spaces between them, and no side above {MAX_SIDE:,}"
            raise InputError(key, name, allowed)
        tiles.append((float(parts[0]), float(parts[1])))
    if not tiles or 1.0 in tiles[0]:
        raise InputError(key, name, "at least one tile, such as 128x64, the first of no vector")
    return tuple(tiles)


def _is_side(text: str) -> bool:
    """Return whether a text is the side of a tile."""
    return text.isascii() and text.isdigit() and len(text) <= 9 and 0 < int(text) <= MAX_SIDE
