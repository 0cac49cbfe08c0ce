"""Fused attention of few queries, block by block and step by step (docs/model_layers.md, "Attention").

Keys that some query sees are counted one by one, blocks are handed to the bundles round by round, and what a
round takes is added up in the order of what the fullest bundle does. What the kernels are like is written
from TensorRT-LLM's (XQA, masked multi-head attention) and FlashMLA.
"""

from math import ceil, floor, log2, sqrt
from typing import NamedTuple

from tests.naive.blocks import gain, soft

SUM = 4  # bytes of a partial sum
LINE = 128  # bytes along a row that a step of the pipeline takes
SLOW, FAST = 12.5, 22.0  # dependent trips of a block on matrix units, on vector lanes
MERGE_SLOW, MERGE_FAST = 7.0, 20.0  # and of merging
READING = 1.12  # of main memory's bandwidth
BLOCK_THREADS = (256, 512, 1024)  # on vector lanes


class Task(NamedTuple):
    sequences: int
    q_len: int
    kv_len: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    window: int
    shared: bool
    size: int
    cache: int
    output: int
    hits: float = 0.0  # share of main memory's bytes that the last cache has


class Block(NamedTuple):
    tokens: int  # of a step
    steps: int
    read: float  # bytes of a step
    least: float  # seconds of a step
    work: float  # seconds of a step
    overlaps: bool
    queries: float  # bytes
    outputs: float
    columns: float  # blocks that share queries, and have columns of the outputs
    parts: float  # blocks that share queries and outputs
    begin: float
    even: bool = False  # steps are handed to bundles evenly
    before: float = 0.0  # seconds before the kernel's first blocks
    launches: int = 1
    reading: float = READING
    misses: float = 1.0  # share of main memory's bytes


class Run(NamedTuple):
    time: float
    times: list
    moved: list
    blocks: float
    parts: float
    waves: float


def seen(task):
    """Return how many keys some query sees."""
    first = task.kv_len - task.q_len  # query 0's own key
    low = max(0, first - task.window + 1) if task.window else 0
    return sum(1 for key in range(task.kv_len) if key >= low)


def is_latent(task):
    return task.head_dim > 256


def is_slow(chip, task):
    """Say whether a kernel of A100's instructions converts the cache."""
    return task.cache < task.size and not chip.shared and not chip.boosts


def takes_tiles(chip, task):
    if is_latent(task) or task.q_len > 1:
        return True
    group = task.heads // task.kv_heads
    if chip.persistent:
        return group <= 32
    if not 1 < group <= 32:
        return False
    if chip.boosts or task.cache < task.size:
        return True
    return 4 * task.sequences * task.kv_heads * max(1, task.kv_len // 128) >= chip.bundles


def threads_of(chip, task):
    share = ceil(4 * chip.bundles / (task.sequences * task.heads))  # of a bundle's 1024 threads, in 256
    return 1024 if share >= 4 else 512 if share >= 2 else 256


def parts_on_lanes(chip, task, threads):
    at_once = threads / max(1, task.head_dim * task.size / 16) * 8  # keys that a block loads at once
    most = ceil(chip.bundles * (1024 // threads) / (task.sequences * task.heads))
    return max(1, min(most, ceil((task.kv_len + 1) / at_once)))


def on_lanes(chip, task, threads, parts):
    """Return one of the blocks, how many there are, parts, blocks on a bundle, merging."""
    d, dv = task.head_dim, task.value_dim
    steps = ceil(seen(task) / parts)
    converting = 0 if task.cache == task.size else 75 if is_slow(chip, task) else 2
    operations = (2 + converting) * (d + dv)
    trips = FAST + (34 if is_slow(chip, task) else 0)
    block = Block(
        1, steps, (d + dv) * task.cache, 0.0, operations * chip.bundles / chip.vector, False, d * task.size,
        dv * task.output, 1, parts, trips * chip.latency,
    )  # fmt: skip
    blocks = task.sequences * task.heads * parts
    return block, blocks, parts, 1024 // threads, (MERGE_FAST * chip.latency, parts * SUM * dv)


def units_of(chip, task):
    """Return the rows of a tile, a sequence's tiles, blocks that share one, and blocks without parts."""
    packed = task.q_len * task.heads / task.kv_heads
    rows = 64 if is_latent(task) else 16 * ceil(min(packed, 64) / 16)
    sums = chip.registers * (0.5 if chip.shared else 0.25)
    tiles, columns = ceil(packed / 64), ceil(SUM * rows * task.value_dim / sums)
    return rows, tiles, columns, task.sequences * task.kv_heads * tiles * columns


def latent_rows(chip, task):
    """Return the rows of a tile of latent attention, of units that keep sums of their own.

    64 queries by keys; keys by 16 queries (or 8) where queries are few, or where each block has few keys.
    """
    packed = task.q_len * task.heads // task.kv_heads
    if packed <= 8:
        return 8
    blocks = task.sequences * task.kv_heads * ceil(packed / 16)
    parts = min(ceil(task.kv_len / 256), max(1, chip.bundles // blocks))
    few_keys = blocks <= chip.bundles and ceil(task.kv_len / parts) <= 1024
    return 16 if packed <= 32 or few_keys else 64


def rows_of_keys(chip, task):
    """Return the rows of such a tile, a power of two, and how many tiles a sequence's heads take."""
    packed = task.q_len * task.heads // task.kv_heads
    if is_latent(task):
        rows = latent_rows(chip, task)
        return rows, ceil(packed / rows)
    rows = 8
    while rows < min(packed, 128):
        rows *= 2
    return rows, ceil(packed / 128)


def on_own_sums(chip, task, parts):
    """Return the same of matrix units that keep the sums: keys by queries, in rounds of all bundles."""
    latent, d, dv = is_latent(task), task.head_dim, task.value_dim
    packed = task.q_len * task.heads / task.kv_heads
    rows, tiles = rows_of_keys(chip, task)
    units = task.sequences * task.kv_heads * tiles
    whole = latent and rows == 64  # tiles of queries by keys
    together = min(chip.pair, tiles) if whole else 1  # bundles that share keys, each with half of them
    width = d if whole and task.shared else d + dv
    scores, lane = rows * 128, chip.issue / chip.bundles
    flop = 2 * (d + dv) * min(1, task.cache / task.size)
    exchanged = rows < 64
    products, exponentials = (
        chip.bundles * scores * flop / chip.flops,
        chip.bundles * scores / chip.exponentials,
    )
    at_once = max(products * chip.pair / together, exponentials)
    work = at_once if whole else products + exponentials
    work += 34 * scores / lane if exchanged else 0
    write = 66 * rows * min(dv, 256) / lane if exchanged else 0
    first = 11.0 if latent else SLOW
    trips = 8.0 if latent and not whole else 3.0
    block = Block(
        128, ceil(ceil(seen(task) / 128) / parts), 128 * width * task.cache / together,
        chip.step * width * task.cache / together / LINE, work, True, packed / tiles * d * task.size,
        packed / tiles * dv * task.output, 1, parts,
        trips * chip.latency + write, before=(first - trips) * chip.latency, reading=1.0,
    )  # fmt: skip
    merge = (MERGE_SLOW * chip.latency, parts * SUM * ceil(units * packed / tiles / chip.bundles) * dv)
    return block, units * parts, parts, 1, merge


def parts_on_tiles(chip, task):
    if chip.persistent:
        _, tiles = rows_of_keys(chip, task)
        shown = ceil(seen(task) / (256 if is_latent(task) else 128))
        parts = max(1, min(chip.bundles // (task.sequences * task.kv_heads * tiles), shown))
        return ceil(shown / ceil(shown / parts))
    *_, units = units_of(chip, task)
    if is_latent(task):
        return max(1, min(chip.bundles / units, ceil(task.kv_len / 64))) if chip.shared else 1
    if is_slow(chip, task):
        return 1
    possible = task.kv_len // 128
    wanted = max(1, min(possible, round(sqrt(8 * possible))))
    return max(1, floor(min(wanted, 8 * chip.bundles / units)))


def on_tiles(chip, task, parts):
    """Return the same of matrix units."""
    if chip.persistent:
        return on_own_sums(chip, task, parts)
    latent, d, dv = is_latent(task), task.head_dim, task.value_dim
    own = chip.shared and (latent or task.cache < task.size)
    packed = task.q_len * task.heads / task.kv_heads
    rows, tiles, columns, units = units_of(chip, task)
    tokens = 64 if latent or own else 128
    busy = min(parts, ceil(seen(task) / tokens))
    steps = ceil(seen(task) / busy / tokens)
    parts = busy if own else parts
    width = d + dv / columns
    work = 2 * rows * tokens * width / chip.flops + rows * tokens / chip.exponentials
    if task.cache < task.size and not latent:
        width_of_head = 2 ** ceil(log2(d)) / d
        work += (14 * width_of_head if is_slow(chip, task) else 2) * tokens * (d + dv) / chip.vector
    if latent and own and task.shared:
        width = d
    room, held = chip.capacities[chip.private], 64 * d * task.size
    if own and not latent:
        together = max(1, min(4, floor(room / (held + 4 * tokens * width * task.cache))))
    else:
        together = max(1, floor(room / held)) if latent and not own else 1
    block = Block(
        tokens, steps, tokens * width * task.cache, chip.step * width * task.cache / LINE,
        work * chip.bundles, latent and own, packed / tiles * d * task.size,
        packed / tiles * dv / columns * task.output, columns, parts,
        (8 if latent and not own else SLOW) * chip.latency,  # of prefill's tile loop
        even=latent and own, launches=2 if latent and own else 1,
    )  # fmt: skip
    rows_merged = packed / tiles
    if latent and own:  # by a kernel of its own, on all bundles
        rows_merged = ceil(task.sequences * task.kv_heads * packed / chip.bundles)
    merge = (MERGE_SLOW * chip.latency, parts * SUM * rows_merged * dv / columns)
    return block, round(units * parts), parts, together, merge


def time_round(chip, block, blocks, streamed, bandwidth):
    """Return how long blocks take that run at once.

    streamed: a block's bytes of main memory; bandwidth: that the fullest bundle has of the next level.
    """
    is_cached = len(chip.capacities) > chip.private + 1
    memory = block.reading * chip.bandwidths[-1]
    fullest = ceil(blocks / chip.bundles)
    time = block.begin + fullest * (block.queries + block.outputs) / bandwidth
    if is_cached:
        time += blocks * (block.queries / block.columns + block.outputs) / block.parts * block.misses / memory
    for _ in range(block.steps):
        read, work = max(fullest * block.read / bandwidth, block.least), fullest * block.work
        time += soft([read, work], 2) if block.overlaps else read + work
    return soft([time, blocks * streamed / memory if is_cached else 0.0], 4)


def streamed_bytes(chip, task, block, blocks, together, on_matrix):
    """Return the cache's bytes that main memory serves."""
    of_a_key = task.head_dim + (0 if task.shared else task.value_dim)
    keys = seen(task)
    if on_matrix and chip.persistent:  # whole pages
        page = 32 if task.head_dim > 256 else 64
        keys += -keys % page
    once = task.sequences * task.kv_heads * keys * of_a_key * task.cache
    cached = chip.capacities[-1] if len(chip.capacities) > chip.private + 1 else 0
    keys = block.steps * task.head_dim * task.cache  # before a block on lanes comes to values
    running = min(blocks, chip.bundles * together) * task.kv_heads / task.heads
    return 2 * once if task.shared and not on_matrix and running * keys > cached else once


def time_rounds(chip, block, blocks, at_once, streamed):
    """Return the time of all blocks, the rounds that they begin, and the waves."""
    part = chip.bandwidths[chip.private + 1] / chip.bundles
    total, left, rounds = 0.0, blocks, 0
    while left >= at_once:
        total += time_round(chip, block, at_once, streamed, part)
        left, rounds = left - at_once, rounds + 1
    if left and block.even and rounds:  # distributed evenly
        total += left / at_once * time_round(chip, block, at_once, streamed, part)
    elif left:
        total += time_round(chip, block, left, streamed, part)
        rounds += 1
    return total, rounds, ceil(blocks / chip.bundles)


def time_even(chip, block, blocks, at_once, streamed):
    """Return the same in rounds of equal length, whose blocks have all of the next level's bandwidth."""
    if block.even:
        rounds = max(1, blocks / at_once)
        each = min(blocks, at_once)
    else:
        rounds = ceil(blocks / at_once)
        each = blocks / rounds
    of_fullest = ceil(each / chip.bundles) / each  # of what a round's blocks read
    bandwidth = chip.bandwidths[chip.private + 1] * of_fullest
    waves = max(1, blocks / chip.bundles) if block.even else rounds * ceil(each / chip.bundles)
    idle = waves * chip.bundles / blocks
    block = block._replace(work=block.work / gain(chip, idle))
    return rounds * time_round(chip, block, each, streamed, bandwidth), rounds, waves


def numbers_of_parts(most):
    """Return which are compared: 1 to 8, a quarter more of these, and the most."""
    found = [min(1, most)]
    while found[-1] < most:
        found.append(min(found[-1] + max(1, floor(found[-1] / 4)), most))
    return found


def run(chip, task):
    """Time one attention as the library runs it: of what it compares the quickest, and of these the first."""
    return min(runs(chip, task), key=lambda run: run.time)


def runs(chip, task):
    """Return what a library compares: one run, or several where idle bundles leave what they have."""
    if takes_tiles(chip, task):
        most = parts_on_tiles(chip, task)
        numbers = numbers_of_parts(most) if chip.boosts else [most]
        laid = [on_tiles(chip, task, parts) for parts in numbers]
        return [one(chip, task, True, *split) for split in laid]
    threads = threads_of(chip, task)
    found = []
    for number in [n for n in BLOCK_THREADS if n <= threads] if chip.boosts else [threads]:
        most = parts_on_lanes(chip, task, number)
        for parts in numbers_of_parts(most) if chip.boosts else [most]:
            found.append(one(chip, task, False, *on_lanes(chip, task, number, parts)))
    return found


def one(chip, task, on_matrix, block, blocks, parts, together, merge):
    """Time these blocks."""
    trips, merged = merge
    streamed = streamed_bytes(chip, task, block, blocks, together, on_matrix)
    every = SUM * task.sequences * task.q_len * task.heads * task.value_dim * parts  # bytes of parts
    merging = 0.0
    misses, plain = 1 - task.hits, chip
    port = chip.bandwidths[chip.private + 1] * (1 + (block.reading - 1) * task.hits)
    served = [*chip.bandwidths[: chip.private + 1], port, *chip.bandwidths[chip.private + 2 :]]
    chip = chip._replace(bandwidths=served)
    if parts > 1:
        shares = every if chip.boosts else merged * chip.bundles
        merging = trips + shares / chip.bandwidths[chip.private + 1]
    launches = block.launches
    time = time_even if chip.boosts else time_rounds
    total, rounds, waves = time(
        chip, block._replace(misses=misses), blocks, chip.bundles * together, streamed * misses / blocks
    )
    total += launches * chip.launch + block.before + merging
    idle = waves * chip.bundles / blocks
    block = block._replace(work=block.work / gain(chip, idle))

    inside = blocks * (block.steps * block.read + block.queries + block.outputs)
    inside += 2 * every if parts > 1 else 0
    outside = streamed + blocks * (block.queries / block.columns + block.outputs) / block.parts
    levels = len(chip.capacities)
    moved = [inside if level <= chip.private + 1 else outside for level in range(levels + 1)]
    moved[-1] *= misses
    times = [m / b for m, b in zip(moved, plain.bandwidths, strict=True)]
    if levels > chip.private + 1:
        times[-1] /= block.reading
    compute = blocks * block.steps * block.work / chip.bundles
    return Run(
        total,
        [compute, *times, launches * chip.launch + block.before + merging + rounds * block.begin],
        moved,
        blocks,
        parts,
        waves,
    )
