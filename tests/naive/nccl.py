"""Collectives as NCCL runs them, each way written out by hand and the fastest taken (slow, obvious)."""

from itertools import permutations
from math import ceil, inf, log2

WORD = {"ll": 2.0, "ll128": 128.0 / 120.0, "simple": 1.0}  # bytes sent for one of payload


def ways(collective, size, machines, inside, link, network, memory, library, reduces=False):
    """Return the time of every way, name to seconds; of the narrow and the full form of one the smaller.

    inside: ranks of each of `machines`; link, network: (bandwidth [B/s], {protocol: latency of a step [s]});
    both have no contention, but every rank of a machine its own network link.
    """
    n = machines * inside
    speed0, step0 = link
    speed1, step1 = network
    own = 0.0 if collective in ("broadcast", "point-to-point") else 3.0 * size / n / memory

    def wire(bytes0, bytes1):
        """Seconds to move so much over a device's links within the machine and over its network link."""
        return max(bytes0 / speed0 if inside > 1 else 0.0, bytes1 / speed1 if machines > 1 else 0.0)

    found = {}
    if collective in ("all-to-all", "point-to-point"):
        piece = size / n if collective == "all-to-all" else size
        near = inside - 1 if collective == "all-to-all" else int(machines == 1)
        far = n - inside if collective == "all-to-all" else int(machines > 1)
        for protocol in ("ll", "simple"):
            step = step1[protocol] if machines > 1 else step0[protocol]
            every = library["peer"] * (near * step0["ll"] + far * step1["ll"])
            called = library["launch"] * library["send"][protocol]
            filling = library["fill"] * min(1.0, piece / 65536.0) if protocol == "ll" else 0.0
            moved = wire(near * piece, far * piece) * WORD[protocol]
            found[f"direct {protocol}"] = called + step + every + filling + moved + own
        return found

    passes = 2 if collective == "all-reduce" else 1
    steps0, steps1 = passes * (n - machines), passes * (machines - 1)
    piece = size if collective == "broadcast" else size / n
    times = 1 if collective == "broadcast" else steps0 + steps1
    for protocol in WORD:
        called = library["launch"] * library["launches"][protocol]
        waited = called + steps0 * step0[protocol] + steps1 * step1[protocol]
        moved = times * piece
        if protocol == "ll":
            waited *= 1.0 + library["block"] * min(1.0, size / n / 4096.0)
            if inside > 1:  # behind a network or a host alone it costs nothing
                moved += piece  # a rank's own piece takes its turn among the stores
        carried = wire(moved, moved / inside) * WORD[protocol]
        found[f"ring {protocol}"] = waited + carried + (own if protocol != "ll" else 0.0)

    height = ceil(log2(machines))
    if collective == "all-reduce" and machines > 1:
        for protocol in WORD:
            called = library["launch"] * library["launches"][protocol]
            up = (inside - 1) * step0[protocol] + height * library["tree"] * step1[protocol]
            carried = wire(2.0 * size, 2.0 * size / inside) * WORD[protocol]
            found[f"tree {protocol}"] = called + 2 * up + carried
    if collective == "all-reduce" and reduces and inside > 2:
        called = library["launch"] * library["launches"]["simple"]
        across = 2 * height * library["tree"] * step1["simple"]
        sent = (size + size / inside) / library["reduce"]
        chunks = min(size, 1.5 * 1024 * 1024 * inside)  # what is on the way before the stages overlap
        in_turns = (chunks + chunks / inside) / library["reduce"] / speed0
        found["nvls"] = called + across + in_turns + wire(sent, 2.0 * size / inside)
    return found


def time(*given, **also):
    """Return the time of the fastest way [s]."""
    return min(ways(*given, **also).values(), default=inf)


def channels_take(collective, size, n):
    """Return how long the channels of the sends among n ranks of a machine take at least."""
    if n == 1 or collective not in ("all-to-all", "point-to-point"):
        return 0.0
    sends = n if collective == "all-to-all" else 1
    message = size / n if collective == "all-to-all" else size
    each = max(2 ** int(log2(32 / n)), 1) if n <= 32 else 1  # a power of two
    while each < 32 and message / each > 16 * 1024 * 1024:
        each *= 2
    work = [0.0] * 32
    for number in range(sends * each):  # dealt to the channels in turn
        work[number % 32] += message / each / 24e9
    return max(work)


def rings(links):
    """Return the most rings that the links hold, of all ways to take some of each; links[a][b]: a to b."""
    n = len(links)
    found = [(0, *rest) for rest in permutations(range(1, n))]
    left = {(a, b): int(links[a][b]) for a in range(n) for b in range(n)}

    def most(number):
        if number == len(found):
            return 0
        ring = found[number]
        hops = list(zip(ring, ring[1:] + ring[:1], strict=True))
        best = most(number + 1)
        if all(left[hop] > 0 for hop in hops):
            for hop in hops:
                left[hop] -= 1
            best = max(best, 1 + most(number))
            for hop in hops:
                left[hop] += 1
        return best

    return most(0)


def busiest_link(links, messages):
    """Return the most messages for a link between two devices; by a third where they have none."""
    n = len(links)
    carried = {}
    for a, b in messages:
        ways = [[(a, c), (c, b)] for c in range(n) if links[a][c] and links[c][b]]
        if links[a][b]:
            ways = [[(a, b)]]
        widths = [[links[x][y] for x, y in way] for way in ways]
        if ways:
            widest = max(range(len(ways)), key=lambda i: (min(widths[i]), sum(widths[i])))
            for hop in ways[widest]:
                carried[hop] = carried.get(hop, 0) + 1
    return max((count / links[a][b] for (a, b), count in carried.items()), default=0.0)
