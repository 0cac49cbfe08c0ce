"""Register accesses of a matrix unit (6.3, Equation 5)."""


def accesses(flop, nx, ny, reuse):
    """Equation 5; an element is used at least once before it is read again."""
    reuse = max(1.0, reuse)
    return flop * (nx * ny + reuse * nx + reuse * ny) / (2 * reuse * nx * ny)


def register_accesses(dataflow, flop, unit, tile):
    """Return register accesses for a tile (m, k, n) on a unit (m, k, n).

    The operand that stays spans two dimensions of the unit; along the third, reuse is the tile's
    extent over the unit's: "T0_x/N_x or T0_y/N_y or T0_z/N_z, depending on which matrix is
    stationary".
    """
    (unit_m, unit_k, unit_n), (tile_m, tile_k, tile_n) = unit, tile
    each = {
        "weight": accesses(flop, unit_k, unit_n, tile_m / unit_m),  # B[k, n] stays, m streams by
        "activation": accesses(flop, unit_m, unit_k, tile_n / unit_n),  # A[m, k] stays, n streams by
        "output": accesses(flop, unit_m, unit_n, tile_k / unit_k),  # C[m, n] stays, k streams by
    }
    return min(each.values()) if dataflow == "best" else each[dataflow]
