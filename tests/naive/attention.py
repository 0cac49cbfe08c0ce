"""Fused attention of many queries, tile by tile and score by score (docs/model_layers.md, "Attention").

Every score of every tile is looked at: a tile that shows none is left out, one that shows any is computed.
What tiles cost is added up in plain Python. The backward pass looks at the same scores with keys for rows.
"""

from math import ceil, floor, hypot, inf, log2
from typing import NamedTuple

from tests.naive.blocks import gain, soft, waiting
from tests.naive.dataflow import register_accesses


class Chip(NamedTuple):
    """What attention of many and of few queries reads of a chip."""

    unit: tuple  # m, k, n
    dataflow: str
    peak: float
    flops: float  # achievable
    vector: float  # achievable by vector lanes [flop/s]
    vector_peak: float
    exponentials: float  # [1/s]
    bandwidths: list  # registers outwards, main memory last
    capacities: list  # of one instance of each level
    private: int
    bundles: int
    registers: float  # of a bundle
    warp: tuple  # rows that an instruction multiplies by so many columns in L1
    latency: float
    step: float  # least time of a block for a line of every row
    shared: bool  # whether units read operands in L1
    persistent: bool  # whether they keep sums of their own
    launch: float
    drive: float
    spare: tuple = ()  # as blocks' chip has them
    supply: tuple = (1.0, 0.3, 1.0)
    boosts: bool = False  # whether idle bundles leave what they have
    issue: float = 1e13  # instructions of a lane, of all bundles [1/s]
    pair: int = 1  # bundles that multiply a tile together


class Task(NamedTuple):
    sequences: int
    q_len: int
    kv_len: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    window: int
    causal: bool
    size: int
    cache: int
    output: int
    flash: int = 0  # version of FlashAttention; 0: the library's kernel
    hits: float = 0.0  # share of main memory's bytes that the last cache has


class Run(NamedTuple):
    time: float
    times: list
    moved: list
    blocks: int
    pairs: int
    executed: float  # operations of whole tiles


def is_seen(task, query, key):
    """Return whether a query sees a key; the last query is the last key's."""
    place = query + task.kv_len - task.q_len
    window = task.window or inf
    return place - window < key and (key <= place if task.causal else key < place + window)


def walk(seen, rows, columns, a, b):
    """Return for each tile of a rows the tiles of b columns that show a score, and those cut at their left.

    Rows see columns that lie the further on, the further on they lie: the last row sees the first column of a
    shown tile, unless that is behind what it sees.
    """
    blocks = []
    for top in range(0, rows, a):
        bottom = min(top + a, rows)
        shown = cut = 0
        for left in range(0, columns, b):
            right = min(left + b, columns)
            if any(seen(r, c) for r in range(top, bottom) for c in range(left, right)):
                shown += 1
                cut += not seen(bottom - 1, left)
        blocks.append((shown, cut))
    return blocks


def old(chip):
    """Return a chip as kernels of A100's instructions see it."""
    return chip._replace(shared=False, persistent=False, flops=chip.flops * (0.629 if chip.shared else 1))


def walked(task, a, b, least=32):
    """Return the keys of a tile, the pairs of every block, and the heads of all sequences."""
    b = max(least, min(b, 2 ** ceil(log2(task.kv_len))))
    blocks = walk(lambda q, k: is_seen(task, q, k), task.q_len, task.kv_len, a, b)
    return b, blocks, task.sequences * task.heads


def forward(chip, task):
    """Return the run of an attention."""
    d, dv, size = task.head_dim, task.value_dim, task.size
    trips = 12 if chip.shared else 8
    if task.flash:
        chip = old(chip)
    if task.flash == 1:
        return first(chip, task, trips)
    if task.flash == 2:  # four warps of 32 queries each
        a, b = 128, 128 if d * size <= 128 else 64
    else:
        a = 128 if task.q_len > 64 and (chip.shared or d * size <= 128) else 64
        b = 2 ** floor(log2(32768 / (d * size)))
        b = max(64, min(b, 256 if chip.shared else 128))
    loads = not chip.shared and not task.flash  # each warp, all keys
    width = 2 ** ceil(log2(d)) / d if loads and size > 1 and d == dv else 1
    little = chip.capacities[chip.private] < 160 * 1024
    whole = loads and not chip.persistent and (size == 1 or (little and d < 256))  # tiles in registers
    least = 32
    if whole and size == 1 and d > 64:
        a, b = 64, 32
    if whole and size > 1:
        a, b = 64, 32 if d <= 128 else 16
        least = b
    twice = False
    if chip.persistent:  # tiles of an instruction: a block has two of them if it has queries and room
        twice = task.q_len > 128 and 2 * 4 * 128 * (128 + dv) <= chip.registers
        a, b = 256 if twice else 128, 128
    b, blocks, tensor = walked(task, a, b, least)
    executed = None
    if chip.persistent:  # by instructions of 128 queries and 128 keys
        tiles = walk(lambda q, k: is_seen(task, q, k), task.q_len, task.kv_len, 128, 128)
        executed = 2 * 128 * 128 * (d + dv) * tensor * sum(shown for shown, _ in tiles)
    rows_of_warp = min(chip.warp[0], a) if chip.shared else a / 4
    keys_and_values = b * (d + dv)
    flop = (2 * a * b * d + 2 * a * b * dv) * width
    of_thread = 4 * (a * b + a * dv) / 128 + a * d / 128 + keys_and_values / 32
    spilled = 128 * max(0, of_thread - 215 * 4) if whole and size == 1 else 0
    return _run(
        chip,
        blocks * tensor,
        blocks_per_head=len(blocks) * task.heads / task.kv_heads,
        scores=a * b,
        sums=4 * a * b + 4 * a * dv,
        tiles=size * (a * d + (2 if chip.shared else 1) * keys_and_values),
        flop=flop,
        inner=keys_and_values * task.cache + a / rows_of_warp * keys_and_values * size * width + 22 * spilled,
        operations=(1.75 if chip.persistent else 3.5) * a * b
        + (keys_and_values if task.cache < size else 0)
        + (3 * a * dv if whole else 0),
        cut=0 if chip.persistent else (60 if size == 1 else 19) * a * b,
        outer=keys_and_values * task.cache,
        added=0,
        once=tensor * task.q_len * (d * size + dv * task.output),
        streamed=task.sequences * task.kv_heads * task.kv_len * (d + dv) * task.cache,
        size=size,
        launches=2 if chip.shared else 1,  # clears the counter of tiles
        trips=trips,
        overlapped=twice,
        ends=int(chip.persistent),
        hits=task.hits,
        heat=1.6 if loads else 1.0,
        whole=executed,
    )


def first(chip, task, trips):
    """Return the run by FlashAttention 1: four warps, each with a quarter of the keys of a tile."""
    d, dv, size = task.head_dim, task.value_dim, task.size
    a, b = 64, 256 if d * size <= 128 else 128
    b, blocks, tensor = walked(task, a, b)
    outputs = 4 * a * dv  # in fp32
    return _run(
        chip,
        blocks * tensor,
        blocks_per_head=len(blocks),
        scores=a * b,
        sums=4 * a * (b + dv),
        tiles=size * (a * d + b * (d + dv)),
        flop=2 * a * b * (d + dv),
        inner=4 * a * d * size + b * (d + dv) * size + 4 * 2 * outputs,
        operations=3.5 * a * b + 3 * a * dv,
        cut=19 * a * b,
        outer=b * (d + dv) * size,
        added=2 * outputs if task.kv_len > b else 0,
        once=tensor * task.q_len * (d * size + dv * task.output),
        streamed=tensor * task.kv_len * (d + dv) * size,
        size=size,
        trips=trips,
        hits=task.hits,
    )


def backward(chip, task):
    """Return the run of its backward pass: blocks of 128 keys, in tiles of 64 queries."""
    d, dv, size = task.head_dim, task.value_dim, task.size
    a, b = 128, 64
    blocks = walk(lambda k, q: is_seen(task, q, k), task.kv_len, task.q_len, a, b)
    blocks = [(shown, 0) for shown, _ in blocks]
    tensor = task.sequences * task.heads
    products = [(b, a, d), (b, a, dv), (a, dv, b), (a, d, b), (b, d, a)]  # scores, dP, dV, dK, dQ
    flop = sum(2 * m * n * k for m, n, k in products)
    trips, chip = 12 if chip.shared else 8, old(chip) if task.flash else chip
    if chip.shared:
        rows = min(chip.warp[0], b)
        inner = size * sum(k * (m + n * m / rows) for m, n, k in products) + 2 * 4 * b * d
    else:
        inner = sum(m * n * k * size * (1 / 16 + 1 / 64) for m, n, k in products)
    if task.flash == 1:  # eight warps have a sum of dQ each
        inner += 2 * 8 * 4 * b * d
    return _run(
        chip,
        blocks * tensor,
        blocks_per_head=len(blocks),
        scores=a * b,
        sums=4 * a * (b + d + dv),
        tiles=size * (a + b) * (d + dv),
        flop=flop,
        inner=inner + 2 * a * b * size + b * (d + dv) * size,
        operations=7 * a * b,
        cut=0,
        outer=b * (d + dv) * size,
        added=2 * 4 * b * d,
        once=2 * tensor * task.kv_len * (d + dv) * size,
        streamed=tensor * task.q_len * ((d + dv) * size + 4 * d),
        size=size,
        trips=trips,
        overlapped=chip.persistent,
        hits=task.hits,
    )


def _run(
    chip,
    blocks,
    blocks_per_head,
    scores,
    sums,
    tiles,
    flop,
    inner,
    operations,
    cut,
    outer,
    added,
    once,
    streamed,
    size,
    trips,
    launches=1,
    overlapped=False,
    ends=0,
    hits=0.0,
    heat=1.0,
    whole=None,
):
    """Add up the work of all blocks, (pairs of tiles, those cut) each.

    overlapped: softmax runs beside products; ends: pairs of each block beside which nothing runs;
    whole: operations of whole tiles, None: of all pairs.
    """
    each = chip.bundles
    level = len(chip.bandwidths) - 1
    endless = (1e300, 1e300, 1e300)
    accesses = register_accesses(chip.dataflow, 1, chip.unit, endless)
    registers = 4 * scores if chip.shared else flop * size * accesses
    pairs, cuts = sum(shown for shown, _ in blocks), sum(n for _, n in blocks)
    most = max(shown for shown, _ in blocks)
    waves = ceil(len(blocks) / each)
    together = max(
        1, min(floor(0.5 * chip.registers / sums), floor(chip.capacities[chip.private] / tiles), waves)
    )

    def on_bundles(power):
        """Return what bundles take, their mean work, and compute of a pair; power: of how many bundles."""
        own = gain(chip, power) / each  # share of the chip's rates that a bundle has
        product = [flop / (chip.flops * own)]
        for k, bytes_ in enumerate([registers] + [inner] * chip.private):
            product.append(bytes_ / (chip.bandwidths[k] / each * power / waiting(chip, k, power)))
        lane = chip.vector_peak / 2 * own
        softmax = scores / (chip.exponentials * own) + operations / lane
        pair = hypot(soft(product, 4), softmax) if overlapped else soft(product, 4) + softmax
        begin = trips * chip.latency + ends * pair
        work = sum(shown * pair + n * cut / lane + begin for shown, n in blocks) / each
        longest = most * pair + min(cuts, 1) * cut / lane + begin
        if all(shown == most for shown, _ in blocks):
            inside = max(work, waves * longest)
        else:
            inside = max(longest, work + 0.5 * together * longest)
        return inside, work, product[0] + softmax

    left = 1.0
    inside, work, compute = on_bundles(left)
    lends = chip.supply[2] > chip.supply[0] or any(x > 1 for x in chip.spare[: chip.private + 1])
    if work and inside > work and lends:  # once: how many are idle hardly changes
        left = inside / work
        inside, work, compute = on_bundles(left)
    idle = inside / work if work else 1

    running = min(len(blocks), each * together)
    again = min(pairs * outer, streamed * blocks_per_head) / min(blocks_per_head, running)
    held = streamed * ceil(running / blocks_per_head) * blocks_per_head / len(blocks)
    moved = [pairs * registers, *(pairs * inner for _ in range(chip.private))]
    moved.append(once + pairs * (outer + added))
    while len(moved) <= level:
        fits = held <= chip.capacities[len(moved) - 1]
        moved.append(once + (streamed if fits else max(streamed, again)))
    moved[-1] *= 1 - hits
    serving = [
        b / w * (idle * waiting(chip, k, left) / left if k <= chip.private else 1)
        for k, (b, w) in enumerate(zip(moved, chip.bandwidths, strict=True))
    ]
    times = [pairs * compute / each * idle, *serving]
    outside = serving[chip.private + 1 :]
    launch = launches * chip.launch
    time = soft([inside, *outside], 4) + launch
    power = chip.drive * heat * flop * pairs / (chip.peak * time)
    if power > 1:
        slower = power ** (1 / 3)
        times = [*(t * slower for t in times[:-1]), times[-1]]
        time = (
            soft([inside * slower, *(t * slower for t in outside[:-1]), outside[-1]], 4)
            + launches * chip.launch
        )
    executed = pairs * flop if whole is None else whole
    return Run(time, [*times, launches * chip.launch], moved, len(blocks), pairs, executed)
