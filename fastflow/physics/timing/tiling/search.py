"""The tiling search: the tiles of a GEMM that take the least time, then move the fewest bytes (6.1, 6.2).

A tiling has a tile of each level's set and a stationary operand at each level. Its time is the
largest of compute and the times of all levels to serve their bytes (`traffic`). Ties go to
the fewest main-memory bytes, then to the fewest of each level inwards, then to the larger tiles.

The search is an exact branch and bound that evaluates few tilings. The stationary operand is chosen level by
level, since a level's bytes depend on no other level's choice. Tiles are then fixed from the outside in.
Given a level's tile, every level inside moves at least the bytes of the least visits of any of its tiles:
this is a lower bound of the time. Tiles are expanded in the order of that bound, of equal bounds in the order
of their bytes, until the next tile cannot win any more.

The first tiling follows from the fastest tile of the private level. Nearly all other tiles of that level take
longer and are dropped at once. GEMMs on a hierarchy whose sides have the same exponents are searched in
succession, so that their tiles are listed once.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.timing.tiling.boost import level_time
from fastflow.physics.timing.tiling.bounds import (
    ACCESSES,
    BOUND,
    BYTES,
    LEAST,
    SHARE,
    WITHIN,
    Frontier,
    bound_level,
    least_accesses,
    least_times,
    new_frontier,
    start_distributed,
    start_other,
)
from fastflow.physics.timing.tiling.candidates import list_candidates, step
from fastflow.physics.timing.tiling.dataflow import register_accesses_per_flop
from fastflow.physics.timing.tiling.search_space import (
    ACCESSED,
    COMPUTE,
    IDLE,
    MOVED,
    PARTS,
    PER_K,
    PER_M,
    PER_N,
    TIME,
    Candidates,
    Gemms,
    Hierarchies,
    K,
    Layout,
    M,
    N,
    Path,
    Problem,
    Rates,
    Tilings,
    copy_path,
    is_better,
    make_problem,
    moves_more,
    new_layout,
    new_tilings,
    write_tiling,
)
from fastflow.physics.timing.tiling.tile_sets import TileSets
from fastflow.physics.timing.tiling.traffic import fewest_served


@lean_kernel
def _fastest(level: int, count: int, node: Floats) -> tuple[int, float]:
    """Return a level's candidate of least bound after any path, -1 for none, and the bound [s]."""
    chosen, least = -1, np.inf
    for i in range(count):
        if node[level, LEAST, i] < least:
            chosen, least = i, node[level, LEAST, i]
    return chosen, least


@lean_kernel
def _list_fastest(problem: Problem, i: int, candidates: Candidates, frontier: Frontier, path: Floats) -> None:
    """List one tile of the private level, unless the tile outside clips it.

    Its tiling is fast enough that most of the other tiles are dropped before their bounds are computed.
    """
    level, tile, node = problem.private, candidates.column, frontier.node
    m, k, n, parts = tile[level, M, i], tile[level, K, i], tile[level, N, i], tile[level, PARTS, i]
    out_m, out_k, out_n = path[level + 1, M], path[level + 1, K], path[level + 1, N]
    is_whole = m >= out_m and n >= out_n
    node[level, BOUND, i] = max(path[level + 1, TIME], node[level, LEAST, i]) if is_whole else np.nan
    node[level, BYTES, i] = fewest_served(
        problem.whole, out_m, max(out_k, parts), out_n, max(m, out_m), max(k, out_k), max(n, out_n)
    )
    frontier.listed[level, 0], frontier.left[level] = i, 1


@lean_kernel
def _time_innermost(
    problem: Problem, rates: Rates, candidates: Candidates, node: Floats, path: Floats
) -> None:
    """Time every innermost tile on the path outside: its BOUND is exact."""
    out_m, out_k, out_n, idle_outside = path[1, M], path[1, K], path[1, N], path[1, IDLE]
    per_m, per_k, per_n = path[1, PER_M], path[1, PER_K], path[1, PER_N]
    registers, serving = rates.bandwidth[0], rates.bandwidth[1]
    of_registers, of_serving = rates.driven[0], rates.driven[1]
    tile = candidates.column
    for i in range(candidates.counts[0]):
        m, k, n = max(tile[0, M, i], out_m), max(tile[0, K, i], out_k), max(tile[0, N, i], out_n)
        moved = fewest_served(problem.whole, out_m, max(out_k, tile[0, PARTS, i]), out_n, m, k, n)
        accessed = problem.access * register_accesses_per_flop(
            problem.unit,
            max(tile[0, PER_M, i], per_m), max(tile[0, PER_K, i], per_k), max(tile[0, PER_N, i], per_n),
        )  # fmt: skip
        within = max(
            level_time(moved, serving, of_serving, idle_outside),
            level_time(accessed, registers, of_registers, node[0, SHARE, i]),
        )
        node[0, WITHIN, i] = within
        node[0, BOUND, i] = max(node[0, BOUND, i], within)
        node[0, BYTES, i] = moved
        node[0, ACCESSES, i] = accessed


@lean_kernel
def _choose_innermost(
    shortest: float, candidates: Candidates, node: Floats, path: Floats
) -> tuple[int, float]:
    """Choose the best innermost tile and write its TIME, MOVED and ACCESSED to the path.

    Returns the tile, -1 for none within the shortest time, and the least WITHIN of all tiles.
    """
    tile, out_m, out_k, out_n = candidates.column, path[1, M], path[1, K], path[1, N]
    chosen, least_within = -1, np.inf
    best_time, best_moved, best_accessed = shortest, np.inf, np.inf
    best_m, best_k, best_n = np.inf, np.inf, np.inf
    for i in range(candidates.counts[0]):
        least_within = min(least_within, node[0, WITHIN, i])
        time, moved, accessed = node[0, BOUND, i], node[0, BYTES, i], node[0, ACCESSES, i]
        if not time <= best_time:
            continue
        m, k, n = max(tile[0, M, i], out_m), max(tile[0, K, i], out_k), max(tile[0, N, i], out_n)
        if (
            time < best_time or chosen < 0 or moved < best_moved or (moved == best_moved and (
                accessed < best_accessed or (accessed == best_accessed and (
                    m < best_m or (m == best_m and (k < best_k or (k == best_k and n < best_n)))
                ))
            ))
        ):  # fmt: skip
            chosen, best_time, best_moved, best_accessed = i, time, moved, accessed
            best_m, best_k, best_n = m, k, n
    path[0, TIME], path[0, MOVED], path[0, ACCESSED] = best_time, best_moved, best_accessed
    return chosen, least_within


@lean_kernel
def _complete(
    problem: Problem, rates: Rates, sides: Floats, candidates: Candidates, node: Floats, path: Path,
    best: Path, expanded: int,
) -> None:  # fmt: skip
    """Complete the path with the best innermost tile, and adopt it where it comes before the best so far.

    expanded: the path's candidate of the private level, whose bound is raised.
    """
    tile, row = candidates.column, path.column
    _time_innermost(problem, rates, candidates, node, row)
    chosen, within = _choose_innermost(best.column[0, TIME], candidates, node, row)
    if problem.closed and problem.private == 1 and row[1, K] == tile[1, K, expanded]:
        node[1, LEAST, expanded] = max(node[1, LEAST, expanded], within)
    if chosen >= 0:
        step(problem, sides, 0, chosen, candidates.exponent, path)
        if is_better(problem.levels, row, best.column):
            copy_path(problem.levels, path, best)


@lean_kernel
def _drop_slower(level: int, time: float, candidates: Candidates, node: Floats, expanded: int) -> int:
    """Drop a level's candidates whose bound after any path exceeds `time`.

    Returns the new index of the candidate `expanded`.
    """
    exponent, tile = candidates.exponent, candidates.column
    count, index = 0, expanded
    for i in range(candidates.counts[level]):
        if node[level, LEAST, i] <= time:
            if count < i:
                for column in range(exponent.shape[1]):
                    exponent[level, column, count] = exponent[level, column, i]
                for column in range(tile.shape[1]):
                    tile[level, column, count] = tile[level, column, i]
                node[level, LEAST, count] = node[level, LEAST, i]
            if i == expanded:
                index = count
            count += 1
    candidates.counts[level] = count
    return index


@lean_kernel
def _next_tile(level: int, is_new: bool, levels: int, layout: Layout, frontier: Frontier) -> int:
    """Return the listed candidate with the least bound, then the fewest bytes; -1 for none that can win.

    Removes it from the list, with all candidates that cannot win, and writes MOVED to the path. is_new: all
    of the level's candidates are on the list.
    """
    node, listed, left, best = frontier.node, frontier.listed, frontier.left, layout.best.column
    shortest, remaining, chosen, bound, moved = best[0, TIME], 0, -1, np.inf, np.inf
    for row in range(layout.candidates.counts[level] if is_new else left[level]):
        i = row if is_new else listed[level, row]
        node_bound = node[level, BOUND, i]
        if not node_bound <= shortest:
            continue
        if chosen < 0 or node_bound < bound or (node_bound == bound and node[level, BYTES, i] < moved):
            chosen, bound, moved = i, node_bound, node[level, BYTES, i]
        listed[level, remaining] = i
        remaining += 1
    left[level] = remaining
    if chosen < 0:
        return -1
    layout.path.column[level, MOVED] = moved
    node[level, BOUND, chosen] = np.nan
    return -1 if bound == shortest and moves_more(levels, level, layout.path.column, best) else chosen


@lean_kernel
def _search_gemm(problem: Problem, rates: Rates, layout: Layout, frontier: Frontier) -> int:
    """Find the best tiling of a GEMM; returns how many tiles were evaluated.

    Goes from a level's candidate to the level inside, whose bounds are then computed, and back to the level
    outside when none of a level's candidates can win. fastest: the tile of the private level that is
    expanded first, -1 once all are listed; expanded: the last expanded tile of that level.
    """
    candidates, node, path, best = layout.candidates, frontier.node, layout.path.column, layout.best.column
    levels, private, count = problem.levels, problem.private, candidates.counts
    least_accessed = least_accesses(problem, layout.sides, candidates.longest)
    evaluated, fastest, least_distributed = 0, -1, 0.0  # least_distributed: time of any distributed tile [s]
    if private >= 0:
        evaluated = count[private] if problem.closed else 0
        least_times(problem, rates, candidates, node, path, least_accessed)
        fastest, least_distributed = _fastest(private, count[private], node)
    if not problem.closed or private == 0:
        fastest = -1
    level, expanded, is_new = levels - 1, -1, True
    while level < levels:
        if is_new and level == private and fastest >= 0 and expanded < 0:
            _list_fastest(problem, fastest, candidates, frontier, path)
            is_new = False
        elif is_new:
            if level == private and problem.closed:
                expanded = _drop_slower(level, best[0, TIME], candidates, node, expanded)
            if level == private:
                start_distributed(problem, layout.sides, candidates, node, layout.path)
                if fastest >= 0:
                    node[level, BOUND, expanded], fastest = np.nan, -1
            else:
                start_other(problem, level, candidates, node, path, least_distributed)
            evaluated += count[level]
            if level > 0:
                bound_level(problem, rates, level, level + 1, candidates, node, path, least_accessed)
        if level == 0:
            _complete(problem, rates, layout.sides, candidates, node, layout.path, layout.best, expanded)
            level, is_new = 1, False
            continue
        chosen = _next_tile(level, is_new, levels, layout, frontier)
        is_new = chosen < 0 and level == private and fastest >= 0  # now all of the level's candidates
        if is_new:
            fastest = fastest if expanded >= 0 else -1
        elif chosen < 0:
            if level == private:
                _, least_distributed = _fastest(private, count[private], node)
            level += 1
        elif problem.closed and level > private and least_distributed > best[0, TIME]:
            level += 1  # bounds of the levels inside have been raised
        elif not (
            problem.closed and level > private and least_distributed == best[0, TIME]
            and moves_more(levels, level, path, best)
        ):  # fmt: skip
            expanded = chosen if level == private else expanded
            step(problem, layout.sides, level, chosen, candidates.exponent, layout.path)
            outside = max(path[level + 1, TIME], path[level, COMPUTE])
            path[level, TIME] = max(outside, level_time(
                path[level, MOVED], rates.bandwidth[level + 1], rates.driven[level + 1], path[level + 1, IDLE]
            ))  # fmt: skip
            level, is_new = level - 1, True
    return evaluated


@lean_kernel
def _search_in_order(
    gemms: Gemms, hierarchies: Hierarchies, sets: TileSets, keys: Ints, order: Ints, layout: Layout,
    frontier: Frontier, out: Tilings,
) -> None:  # fmt: skip
    """Find the best tiling of every GEMM in order, in the same workspace; write it to `out`."""
    previous, levels = -1, frontier.left.size
    for g in order:
        is_listed, previous = keys[g] == previous, keys[g]
        problem = make_problem(gemms, hierarchies, sets, levels, g, layout)
        for level in range(levels):
            tiles = hierarchies.tiles[gemms.hierarchy[g] * levels + level]
            list_candidates(problem, sets, tiles, 1 + g * levels + level, level, is_listed, layout)
        offset = gemms.hierarchy[g] * (levels + 1)
        rates = Rates(
            hierarchies.bandwidth[offset : offset + levels + 1],
            hierarchies.driven[offset : offset + levels + 1],
        )
        evaluated = _search_gemm(problem, rates, layout, frontier)
        write_tiling(problem, layout, evaluated, g, out)


@kernel
def _search_each(
    gemms: Gemms, hierarchies: Hierarchies, sets: TileSets, keys: Ints, order: Ints, layout: Layout,
    frontier: Frontier, out: Tilings,
) -> None:  # fmt: skip
    """Find the best tilings. The loop is a function without reference counts, which took long there."""
    _search_in_order(gemms, hierarchies, sets, keys, order, layout, frontier, out)


def _list_keys(gemms: Gemms) -> Ints:
    """Return a key of each GEMM, equal for GEMMs on a hierarchy that have the same list of tiles."""
    key = gemms.hierarchy
    for side in (gemms.m, gemms.k, gemms.n):
        key = (
            key << 6 | np.frexp(side - 0.5)[1]
        )  # exponent of the smallest power of two that is not below the side
    return key


def search_tilings(gemms: Gemms, hierarchies: Hierarchies, sets: TileSets, levels: int) -> Tilings:
    """Return the best tiling of every GEMM, each on `levels` on-chip levels."""
    out = new_tilings(gemms.m.size, levels)
    layout = new_layout(gemms, hierarchies, sets, levels)
    frontier = new_frontier(levels, layout.candidates.column.shape[2])
    keys = _list_keys(gemms)
    _search_each(gemms, hierarchies, sets, keys, np.argsort(keys), layout, frontier, out)
    return out
