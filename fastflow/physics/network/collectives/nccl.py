"""Collectives as NCCL runs them: its protocols, rings, trees, switches that reduce, and direct sends.

A message goes by one of three protocols. LL stores 4 bytes with a flag of 4, which the receiver polls: the
least latency, half of the bandwidth. LL128 keeps 8 of 128 bytes for flags. Simple sends bytes alone behind a
fence: all of the bandwidth, the most latency. A collective costs the launch of its kernel, which is longer
with a protocol that has larger buffers to fill, a latency for each step, and its bytes over the links.

- Ring: n - 1 steps of S / n for a reduce-scatter, an all-gather, or a broadcast (there of S, in pieces that
  follow each other); twice as many for an all-reduce. NCCL has as many rings as a machine has links, and
  between machines as it has network cards: bytes are distributed over the cards of all of a machine's ranks.
  Where pairs of devices have an uneven number of links, it has the rings that these hold (`link_table`).
- Tree: up and down a chain within every machine and a double binary tree across them; all-reduce alone, as
  the next. Within one machine it is never faster than the ring, and is not offered.
- Switch: one that reduces (NVLS). A rank sends all of S for others to reduce, and 1 / n of the sums to all.
  NCCL does not use it among two ranks. Across machines the parts of S are summed over trees. Its stages
  overlap from CHUNKS of every rank on: up to there they take their turns.
- Direct: one send to each peer, for all-to-all and send. Within a machine a channel carries no more than
  CHANNEL_RATE, and sends that are not as many as channels leave some idle (`channel_time`).

The part that a rank keeps (S / n) moves three times through its memory, out of place. LL, whose stores carry
that part with all other bytes, has no copy. Additions are hidden by the links.

Two latencies grow with the message until its threads are in use, and then no more: launch and steps of LL by
`block` up to 4 KiB a rank, which is 8 B of each of a block's 512 threads, and a direct LL send by `fill` up
to 64 KiB a peer, which is what one channel takes. Each is the smaller of two lines, which count as two
algorithms. So the time of every algorithm is affine in S, and the fastest is taken: NCCL's tuner chooses by
the times of a model too, here by the times of this model.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np

from fastflow.core.errors import InputError
from fastflow.core.jit import kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.network.collectives.algorithms import NUM_ALGORITHMS, Patterns
from fastflow.physics.network.collectives.cost import DeviceLinks, slower_link
from fastflow.physics.network.routing.contention import reach, split
from fastflow.physics.network.routing.link_table import busiest, count_rings
from fastflow.physics.network.routing.patterns import NEIGHBOURS, Group
from fastflow.physics.network.routing.topology import FULL, SWITCH, Topology
from fastflow.physics.workload.graph import (
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    COLLECTIVES,
    NO_EXCHANGE,
    POINT_TO_POINT,
)

NAMES = (
    "ring LL", "ring LL", "ring LL128", "ring Simple", "tree LL", "tree LL128", "tree Simple",
    "NVLS", "NVLS", "direct LL", "direct LL", "direct Simple",
)  # fmt: skip
"""Of the algorithms, as results name them; numbered from NUM_ALGORITHMS on. Of a name that is there twice,
the second is for messages that keep all threads in use."""
RING, TREE, NVLS, DIRECT = (
    NUM_ALGORITHMS,
    NUM_ALGORITHMS + 4,
    NUM_ALGORITHMS + 7,
    NUM_ALGORITHMS + 9,
)  # the first of each
TOTAL_ALGORITHMS = NUM_ALGORITHMS + len(NAMES)

BLOCK_BYTES = 4096.0  # 512 threads of a block store 8 B each
CHANNEL_BYTES = 65536.0  # the smallest part of a send that gets a channel
LL, LL128 = 2.0, 128.0 / 120.0  # bytes sent for a byte of payload
CHUNKS = 1.5 * 1024 * 1024  # bytes of a rank that NVLS has on the way before its stages overlap; calibrated:
# all-reduces of collectives_h100, collectives_b200, collectives_gb200 (ROCm/xla@183fa00)
CHANNELS = 32  # that sends share
CHANNEL_RATE = 24e9  # of one, by Simple [B/s]; calibrated: permutations and all-to-all of collectives_gb200
PART_BYTES = 16.0 * 1024 * 1024  # of a send in one channel, before it gets more
"""NVIDIA/nccl src/enqueue.cc: channels of a send are CHANNELS over the ranks, at least one, and are doubled
while each has more than 32 steps of 512 KiB."""
COPY_TRAFFIC = (
    3.0  # bytes of memory traffic for each byte that a rank keeps; calibrated with the scalars of conf/net
)

_STEPS = ("ll", "ll128", "simple")
KEYS = (
    "net.library.launch", "net.library.ll128", "net.library.simple", "net.library.send",
    "net.library.send_simple", "net.library.fill", "net.library.peer", "net.library.block",
    "net.library.tree", "net.library.reduce",
    *(f"net.{level}.{step}_step" for level in ("intra", "inter") for step in _STEPS),
)  # fmt: skip
"""Inputs of the library's scalars, in the order of a row of them."""
(
    LAUNCH, LAUNCH_LL128, LAUNCH_SIMPLE, SEND, SEND_SIMPLE, FILL, PEER, BLOCK, TREE_STEP, REDUCE,
    LL0, LL128_0, SIMPLE0, LL1, LL128_1, SIMPLE1,
) = range(len(KEYS))  # fmt: skip


class NcclTopology(NamedTuple):
    """Placement of a group on machines; loads as `contention.reach` returns them."""

    ranks: float
    inside: float  # ranks of the group in each machine
    machines: float
    ring0: float  # of as many rings as a machine has links or network cards
    ring1: float
    pairs0: float
    pairs1: float
    send0: float
    send1: float
    has_switch: float  # 1 where a machine's ranks sit on one switch
    all_adjacent: float  # 1 where each of them has all others a hop away, by a switch or a direct link


(
    RANKS, INSIDE, MACHINES, RING0, RING1, PAIRS0, PAIRS1, SEND0, SEND1, HAS_SWITCH, ALL_ADJACENT,
) = range(len(NcclTopology._fields))  # fmt: skip


def _ports(kind: int, ranks: int) -> int:
    """Return how many ports of a device lead to the other ranks along a dimension of a machine."""
    return ranks - 1 if kind == FULL else 1 if kind == SWITCH else min(ranks - 1, 2)


def nccl_topology(topology: Topology, devices: int, group: Group, patterns: Patterns) -> NcclTopology:
    """Return the placement of a group on machines, which are the packages of a network."""
    inner = topology.level == 0
    package = int(topology.size[inner].prod())
    members = np.zeros(1, dtype=np.int64)
    for degree, stride in zip(*group, strict=True):
        members = (members[:, None] + np.arange(degree) * stride).ravel()
    packages = np.unique(members // package)
    machines = packages.size
    inside = -(-group.ranks // machines)
    factors, aligned = split(topology.size, devices, *group.arrays())
    inner_dims = (
        [(topology.kind[j], ranks) for j, ranks, _ in factors.tolist() if inner[j]] if aligned else []
    )
    ring0 = patterns.neighbours[0]
    if inner_dims:  # rings over all ports that lead to ranks of the group
        ring0 = float(topology.share[inner][0]) / sum(_ports(kind, ranks) for kind, ranks in inner_dims)
    pairs0, send0 = patterns.all_pairs[0], patterns.pipeline[0]
    if topology.links.size and inside > 1:
        ranks = members[members // package == packages[0]] % package
        ring0, pairs0, send0 = _uneven_loads(topology.links, ranks, min(devices, package))
        pairs0 *= machines  # a message to another machine goes first to the card of its target's place
    ring1 = 0.0
    if machines > 1:
        across = Group((machines,), (int(packages[1] - packages[0]) * package,))
        ring1 = reach(topology, devices, *across.arrays(), NEIGHBOURS, 0)[1] / inside
    return NcclTopology(
        ranks=group.ranks,
        inside=inside,
        machines=machines,
        ring0=ring0 if inside > 1 else 0.0,
        ring1=ring1,
        pairs0=pairs0,
        pairs1=patterns.all_pairs[1],
        send0=send0,
        send1=patterns.pipeline[1],
        has_switch=float(topology.kind[inner].tolist() == [SWITCH]),
        all_adjacent=float(topology.kind[inner].tolist() in ([SWITCH], [FULL])),
    )


def _uneven_loads(links: Ints, ranks: Ints, devices: int) -> tuple[float, float, float]:
    """Return the loads of rings, of all pairs and of sends to the next rank, of all groups like one at once.

    links: between a machine's devices; ranks: those of the first group; devices: of the machine, in use.
    """
    groups: list[list[int]] = []
    free = set(range(devices))
    for first in range(devices):
        group = [first + int(rank - ranks[0]) for rank in ranks]
        if free.issuperset(group):
            groups.append(group)
            free.difference_update(group)
    groups = groups or [ranks.tolist()]
    rings = min(max(count_rings(links[np.ix_(group, group)]), 1) for group in groups)
    pairs = [pair for group in groups for pair in permutations(group, 2)]
    sends = [pair for group in groups for pair in pairwise(group)]
    of_device = float(links.sum(axis=1).max())
    return of_device / rings, of_device * busiest(links, pairs), of_device * busiest(links, sends)


def check_choice(library: str, collective: str) -> None:
    """Refuse an algorithm for a library that chooses itself; raises InputError."""
    if library == "nccl" and collective != "auto":
        allowed = "auto; system.library=nccl chooses by itself"
        raise InputError("system.collective", collective, allowed, conflicts=[("system.library", library)])


@kernel
def _write_price(
    latency: Floats, per_byte: Floats, collective: int, algorithm: int, latency_s: float, byte_s: float
) -> None:
    latency[collective, algorithm], per_byte[collective, algorithm] = latency_s, byte_s


@kernel
def _write_growing_price(
    latency: Floats, per_byte: Floats, collective: int, algorithm: int, latency_s: float, byte_s: float,
    growth_s: float, limit: float,
) -> None:  # fmt: skip
    """Write an algorithm that takes up to `growth_s` longer, in proportion to S up to `limit` bytes."""
    _write_price(latency, per_byte, collective, algorithm, latency_s, byte_s + growth_s / limit)
    _write_price(latency, per_byte, collective, algorithm + 1, latency_s + growth_s, byte_s)


@kernel
def price_library(
    group: Floats, library: Floats, links: DeviceLinks, latency: Floats, per_byte: Floats
) -> None:
    """Write the latency [s] and the time per byte of S [s/B] of every algorithm of NCCL, of every collective.

    group: an NcclTopology; library: scalars as KEYS. latency, per_byte: shape (collectives,
    TOTAL_ALGORITHMS), or more algorithms; infinite where not offered, zero where nothing is exchanged.
    """
    latency[:, :], per_byte[:, :] = np.inf, np.inf
    _write_price(latency, per_byte, NO_EXCHANGE, RING, 0.0, 0.0)
    ranks, machines = group[RANKS], group[MACHINES]
    step = library[LL0:] if machines == 1.0 else library[LL1:]  # the longest one
    for collective in range(1, len(COLLECTIVES)):
        if ranks == 1.0:
            _write_price(latency, per_byte, collective, RING, 0.0, 0.0)
        elif collective in (ALL_TO_ALL, POINT_TO_POINT):
            _price_direct(group, library, links, step, collective, latency, per_byte)
        else:
            _price_rings(group, library, links, collective, latency, per_byte)
    if ranks > 1.0:
        _price_trees(group, library, links, latency, per_byte)


@kernel
def _price_direct(
    group: Floats, library: Floats, links: DeviceLinks, step: Floats, collective: int, latency: Floats,
    per_byte: Floats,
) -> None:  # fmt: skip
    ranks, load0, load1 = group[RANKS], group[PAIRS0], group[PAIRS1]
    share, copy = 1.0 / ranks, COPY_TRAFFIC / ranks / links.memory
    local_peers = group[INSIDE] - 1.0
    remote_peers = ranks - group[INSIDE]
    if collective == POINT_TO_POINT:
        load0, load1 = group[SEND0], group[SEND1]
        share, copy = 1.0, 0.0
        local_peers = 1.0 if group[MACHINES] == 1.0 else 0.0
        remote_peers = 1.0 - local_peers
    moving = slower_link(load0 * share, load1 * share, links)
    peer_latency = library[PEER] * (local_peers * library[LL0] + remote_peers * library[LL1])
    fixed = library[LAUNCH] * library[SEND] + step[0] + peer_latency
    _write_growing_price(
        latency, per_byte, collective, DIRECT, fixed, LL * moving + copy, library[FILL], CHANNEL_BYTES / share
    )
    fixed = library[LAUNCH] * library[SEND_SIMPLE] + step[2] + peer_latency
    _write_price(latency, per_byte, collective, DIRECT + 2, fixed, moving + copy)


@kernel
def _price_rings(
    group: Floats, library: Floats, links: DeviceLinks, collective: int, latency: Floats, per_byte: Floats
) -> None:
    ranks, machines = group[RANKS], group[MACHINES]
    passes = 2.0 if collective == ALL_REDUCE else 1.0
    steps0, steps1 = passes * (ranks - machines), passes * (machines - 1.0)
    copy = COPY_TRAFFIC / ranks / links.memory
    piece, times = 1.0 / ranks, steps0 + steps1
    if collective == BROADCAST:  # pieces follow each other, all of S over every link
        piece, times, copy = 1.0, 1.0, 0.0
    link = slower_link(group[RING0], group[RING1], links)
    moving = times * piece * link
    kept = piece * link if group[INSIDE] > 1.0 else 0.0  # stored by the same threads, hidden by a slow host
    launch = library[LAUNCH]
    fixed = launch + steps0 * library[LL0] + steps1 * library[LL1]
    _write_growing_price(
        latency, per_byte, collective, RING, fixed, LL * (moving + kept),
        fixed * library[BLOCK], BLOCK_BYTES * ranks,
    )  # fmt: skip
    fixed = launch * library[LAUNCH_LL128] + steps0 * library[LL128_0] + steps1 * library[LL128_1]
    _write_price(latency, per_byte, collective, RING + 2, fixed, LL128 * moving + copy)
    fixed = launch * library[LAUNCH_SIMPLE] + steps0 * library[SIMPLE0] + steps1 * library[SIMPLE1]
    _write_price(latency, per_byte, collective, RING + 3, fixed, moving + copy)


@kernel
def _price_trees(
    group: Floats, library: Floats, links: DeviceLinks, latency: Floats, per_byte: Floats
) -> None:
    inside, machines, ring1 = group[INSIDE], group[MACHINES], group[RING1]
    launch = library[LAUNCH]
    height = np.ceil(np.log2(machines)) * library[TREE_STEP]
    if machines > 1.0:
        moving = 2.0 * slower_link(group[RING0], ring1, links)
        chain = inside - 1.0
        fixed = launch + 2.0 * (chain * library[LL0] + height * library[LL1])
        _write_price(latency, per_byte, ALL_REDUCE, TREE, fixed, LL * moving)
        fixed = launch * library[LAUNCH_LL128] + 2.0 * (chain * library[LL128_0] + height * library[LL128_1])
        _write_price(latency, per_byte, ALL_REDUCE, TREE + 1, fixed, LL128 * moving)
        fixed = launch * library[LAUNCH_SIMPLE] + 2.0 * (chain * library[SIMPLE0] + height * library[SIMPLE1])
        _write_price(latency, per_byte, ALL_REDUCE, TREE + 2, fixed, moving)
    if inside > 2.0 and group[HAS_SWITCH] > 0.0 and library[REDUCE] > 0.0:
        sending = (1.0 + 1.0 / inside) / library[REDUCE]
        moving = slower_link(sending, 2.0 * ring1, links)
        fixed = launch * library[LAUNCH_SIMPLE] + 2.0 * height * library[SIMPLE1]
        chunks = CHUNKS * inside  # of S, whose stages take their turns
        waiting = chunks * sending / links.intra
        _write_growing_price(latency, per_byte, ALL_REDUCE, NVLS, fixed, moving, waiting, chunks)


def channel_time(collective: int, ranks: int, size: float) -> float:
    """Return the time that the channels of sends within a machine take at least [s]; 0 for other collectives.

    size: S [B]. An all-to-all has a send for every rank, its own too; in a permutation every rank has one.
    """
    if collective not in (ALL_TO_ALL, POINT_TO_POINT) or ranks < 2:
        return 0.0
    sends, part = (ranks, size / ranks) if collective == ALL_TO_ALL else (1, size)
    channels = CHANNELS
    while channels * ranks > CHANNELS and channels > 1:
        channels //= 2
    while part / channels > PART_BYTES and channels < CHANNELS:
        channels *= 2
    turns = -(-sends * channels // CHANNELS)  # of the channel with most sends
    return turns * part / channels / CHANNEL_RATE


@lru_cache(maxsize=1024)
def sent(ranks: int, inside: int) -> Floats:
    """Return the bytes that a rank sends on average [share of S], shape (collectives, NAMES).

    inside: ranks of each machine.
    """
    fraction = (ranks - 1) / ranks
    of_collective = {ALL_REDUCE: 2.0 * fraction, POINT_TO_POINT: 1.0, NO_EXCHANGE: 0.0}
    shares = np.empty((len(COLLECTIVES), len(NAMES)))
    for collective in range(len(COLLECTIVES)):
        shares[collective] = of_collective.get(collective, fraction) if ranks > 1 else 0.0
    shares[ALL_REDUCE, NVLS - NUM_ALGORITHMS : DIRECT - NUM_ALGORITHMS] = (
        1.0 + 1.0 / inside if ranks > 1 else 0.0
    )
    return shares
