"""Ring collectives, simulated step by step with the pieces that every rank holds (5.1, 6.4).

A piece is a chunk of the tensor with the set of ranks whose values are summed in it. In a step, every
rank sends one chunk to its right neighbour over a link of its own.
"""

from fractions import Fraction
from itertools import chain, product


def simulate(collective, ranks, size):
    """Return (steps, bytes that one rank sends) of a collective over a tensor of `size` bytes."""
    if collective == "":
        return 0, 0.0
    everyone = frozenset(range(ranks))
    steps, sent = 0, [0.0] * ranks
    chunk = size / ranks
    if collective == "all-gather":
        held = [{rank: everyone} for rank in range(ranks)]  # a rank's own chunk is complete
    else:
        held = [{part: frozenset([rank]) for part in range(ranks)} for rank in range(ranks)]
    if collective in ("reduce-scatter", "all-reduce"):
        for step in range(ranks - 1):
            outgoing = [(rank - step - 1) % ranks for rank in range(ranks)]
            moving = [held[rank][outgoing[rank]] for rank in range(ranks)]
            for rank in range(ranks):
                right = (rank + 1) % ranks
                assert not held[right][outgoing[rank]] & moving[rank], "a value must not be summed twice"
                held[right][outgoing[rank]] |= moving[rank]
                sent[rank] += chunk
            steps += 1
        held = [{rank: held[rank][rank]} for rank in range(ranks)]
        assert all(held[rank][rank] == everyone for rank in range(ranks))
    if collective in ("all-gather", "all-reduce"):
        for step in range(ranks - 1):
            moving = [((rank - step) % ranks, held[rank][(rank - step) % ranks]) for rank in range(ranks)]
            for rank, (part, value) in enumerate(moving):
                held[(rank + 1) % ranks][part] = value
                sent[rank] += chunk
            steps += 1
        assert all(set(pieces) == everyone for pieces in held)
    assert max(sent) == min(sent)
    return steps, sent[0]


def time(collective, ranks, size, bandwidth, latency):
    """Return the time of a ring: every step takes the latency and a chunk over the bandwidth."""
    steps, sent = simulate(collective, ranks, size)
    return sum(latency + sent / steps / bandwidth for _ in range(steps))


# --- every algorithm of a collective, message by message, on switches, rings, lines and full graphs
#
# A network is a list of dimensions (kind, size, level), innermost first; rank r is device r. A schedule is a
# list of phases; a phase a list of parts that work side by side; a part a list of steps; a step a list of
# messages (source, target, pieces, add). A piece's name carries its size as the last entry [share of S].


def coordinates(network, rank):
    """Return a rank's coordinate in every dimension."""
    found = []
    for _, size, _ in network:
        found.append(rank % size)
        rank //= size
    return found


def rank_at(network, coordinate):
    """Return the rank at a coordinate."""
    rank = 0
    for (_, size, _), place in reversed(list(zip(network, coordinate, strict=True))):
        rank = rank * size + place
    return rank


def ports(kind, size):
    """Return between how many links a device's bandwidth is divided in one dimension."""
    return {"switch": 1, "full": size - 1, "ring": min(size - 1, 2), "line": min(size - 1, 2)}[kind]


def route(network, source, target):
    """Return the directed links of a message and its hops, as (level, link, hops)."""
    links, here, goal = [], coordinates(network, source), coordinates(network, target)
    for dimension, (kind, size, level) in enumerate(network):
        a, b = here[dimension], goal[dimension]
        if a != b and kind == "switch":
            before = rank_at(network, here)
            here[dimension] = b
            links += [(level, (dimension, "up", before), 1)]
            links += [(level, (dimension, "down", rank_at(network, here)), 0)]
        elif a != b and kind == "full":
            before = rank_at(network, here)
            here[dimension] = b
            links += [(level, (dimension, before, b), 1)]
        while here[dimension] != b:
            up = (b - a) % size <= size // 2 if kind == "ring" else b > a
            before = rank_at(network, here)
            here[dimension] = (here[dimension] + (1 if up else -1)) % size
            links += [(level, (dimension, before, up), 1)]
    return links


def phase_cost(network, parts):
    """Return (load 0, load 1, hops 0, hops 1) of a phase: the busiest link's bytes, the longest part's."""
    share = [0, 0]
    for kind, size, level in network:
        share[level] += ports(kind, size)
    carried, hops = {}, [0, 0]
    for steps in parts:
        far = [0, 0]
        for step in steps:
            furthest = [0, 0]
            for source, target, pieces, _ in step:
                passed = [0, 0]
                for level, link, hop in route(network, source, target):
                    carried[level, link] = carried.get((level, link), 0) + sum(piece[-1] for piece in pieces)
                    passed[level] += hop
                furthest = [max(pair) for pair in zip(furthest, passed, strict=True)]
            far = [sum(pair) for pair in zip(far, furthest, strict=True)]
        hops = [max(pair) for pair in zip(hops, far, strict=True)]
    load = [0, 0]
    for (level, _), size in carried.items():
        load[level] = max(load[level], size * share[level])
    return (*load, *hops)


def run(schedule, held):
    """Send every message; `held` is a dict of piece to contributors for each rank, changed in place."""
    for parts in schedule:
        for moment in range(max(map(len, parts))):
            messages = [message for steps in parts for message in steps[moment : moment + 1]]
            messages = [message for step in messages for message in step]
            moving = [[(piece, held[source][piece]) for piece in pieces] for source, _, pieces, _ in messages]
            for (_, target, _, add), content in zip(messages, moving, strict=True):
                for piece, value in content:
                    if add:
                        assert not held[target][piece] & value, "a value must not be summed twice"
                        value = held[target][piece] | value
                    held[target][piece] = value


def pattern(network, n, name, step=0):
    """Return the messages of a pattern in which an edge carries one byte (half of one round a ring)."""
    power = 1 << (n.bit_length() - 1)
    whole, half = [(1,)], [(Fraction(1, 2),)]
    if name == "neighbours":
        edges = [(r, (r + d) % n, half, False) for r in range(n) for d in (1, -1)]
    elif name == "shift":
        edges = [(r, r + 1, whole, False) for r in range(n - 1)]
    elif name == "fold":
        edges = [(r, r - power, whole, False) for r in range(power, n)]
        edges += [(b, a, *rest) for a, b, *rest in edges]
    elif name == "exchange":
        edges = [(r, r ^ (1 << step), whole, False) for r in range(power)]
    elif name == "trees":
        edges = [(r, up, whole, False) for tree in trees(n) for r, up in tree.items()]
        edges += [(b, a, *rest) for a, b, *rest in edges]
    else:
        edges = [(r, s, whole, False) for r in range(n) for s in range(n) if r != s]
    return phase_cost(network, [[edges]])


def trees(n):
    """Return both trees of a double binary tree as {rank: parent}, in order and shifted or mirrored."""

    def in_order(low, high, parent, found):
        if low >= high:
            return
        middle = low + (1 << ((high - low).bit_length() - 1)) - 1  # the left part is a full tree
        if parent is not None:
            found[middle] = parent
        in_order(low, middle, middle, found)
        in_order(middle + 1, high, middle, found)

    first = {}
    in_order(0, n, None, first)
    if n % 2:
        second = {(r + 1) % n: (up + 1) % n for r, up in first.items()}
    else:
        second = {n - 1 - r: n - 1 - up for r, up in first.items()}
    return first, second


def ring_steps(ranks, pieces, add):
    """Return the steps of a reduce-scatter (add) or all-gather round `ranks`, half of each piece each way.

    pieces(i, way): what belongs to the i-th of `ranks` in one of the two halves.
    """
    n, steps = len(ranks), []
    for moment in range(n - 1):
        step = []
        for place in range(n):
            for way, turn in ((0, 1), (1, -1)):
                which = place - turn * (moment + (1 if add else 0))
                step.append((ranks[place], ranks[(place + turn) % n], pieces(which % n, way), add))
        steps.append(step)
    return steps


def direct_steps(ranks, pieces, add):
    """Return the one step in which every rank sends every other its own piece, or the other's."""
    step = []
    for a in range(len(ranks)):
        for b in range(len(ranks)):
            if a != b:
                for way in (0, 1):
                    step.append((ranks[a], ranks[b], pieces(b if add else a, way), add))
    return [step]


def whole_group(n, algorithm, collective):
    """Return the schedule of a ring, direct or halving-doubling collective and all its pieces, by owner."""
    part = Fraction(1, 2 * n)
    names = [[("", owner, way, part) for way in (0, 1)] for owner in range(n)]

    def pieces(owner, way):
        return [names[owner][way]]

    everyone = list(range(n))
    rounds = range(n.bit_length() - 1)

    def exchange(step, add):
        mask = (2 << step) - 1
        messages = []
        for r in range(n):
            other = r ^ (1 << step)
            mine = other if add else r  # what the partner is to have, or what I have
            chosen = [piece for owner in everyone if (owner ^ mine) & mask == 0 for piece in names[owner]]
            messages.append((r, other, chosen, add))
        return [[messages]]

    if algorithm == "ring":
        scatter, gather = ([[ring_steps(everyone, pieces, add)]] for add in (True, False))
    elif algorithm == "direct":
        scatter, gather = ([[direct_steps(everyone, pieces, add)]] for add in (True, False))
    else:
        scatter = [exchange(step, True) for step in rounds]
        gather = [exchange(step, False) for step in reversed(rounds)]
    if collective == "broadcast":
        if algorithm == "ring":
            passed = []
            for moment in range(2 * (n - 1)):
                step = []
                for place in range(n - 1):
                    if 0 <= moment - place < n:
                        step.append((place, place + 1, pieces(moment - place, 0), False))
                        step.append((-place % n, (-place - 1) % n, pieces(moment - place, 1), False))
                passed.append(step)
            return [[passed]], names
        if algorithm == "direct":
            scatter = [[[[(0, r, names[r], False) for r in range(1, n)]]]]
        else:
            scatter = []
            for step in rounds:
                mask = (2 << step) - 1
                messages = []
                for r in range(1 << step):
                    other = r + (1 << step)
                    chosen = [p for owner in everyone if (owner ^ other) & mask == 0 for p in names[owner]]
                    messages.append((r, other, chosen, False))
                scatter.append([[messages]])
        return scatter + gather, names
    chosen = {"reduce-scatter": scatter, "all-gather": gather, "all-reduce": scatter + gather}
    return chosen[collective], names


def folded(n):
    """Return halving-doubling's all-reduce among any number of ranks, and its pieces."""
    power = 1 << (n.bit_length() - 1)
    schedule, names = whole_group(power, "halving-doubling", "all-reduce")
    if power == n:
        return schedule, names
    everything = [piece for owner in names for piece in owner]
    there = [(r, r - power, everything, True) for r in range(power, n)]
    back = [(b, a, pieces, False) for a, b, pieces, _ in there]
    return [[[there]], *schedule, [[back]]], names


def exchanged(n, algorithm):
    """Return an all-to-all's schedule; a piece is named by (from, to, size)."""
    size = Fraction(1, n)
    if algorithm == "direct":
        return [[[[(r, s, [(r, s, size)], False) for r in range(n) for s in range(n) if r != s]]]]
    schedule = []
    held = [[(r, s, size) for s in range(n)] for r in range(n)]
    for step in range(n.bit_length() - 1):
        messages = []
        leaving = [[piece for piece in held[r] if (piece[1] ^ r) >> step & 1] for r in range(n)]
        for r in range(n):
            messages.append((r, r ^ (1 << step), leaving[r], False))
            held[r] = [piece for piece in held[r] if piece not in leaving[r]] + leaving[r ^ (1 << step)]
        schedule.append([[messages]])
    return schedule


def tree_schedule(n, pieces):
    """Return an all-reduce over both trees in `pieces` pieces each, and the pieces."""
    steps, names = {}, []
    for number, tree in enumerate(trees(n)):
        depth = {}
        for r in range(n):
            depth[r], at = 0, r
            while at in tree:
                depth[r], at = depth[r] + 1, tree[at]
        height = max(depth.values())
        for k in range(pieces):
            piece = (number, k, Fraction(1, 2 * pieces))
            names.append(piece)
            for r, up in tree.items():
                steps.setdefault(k + height - depth[r], []).append((r, up, [piece], True))
                steps.setdefault(k + height + depth[up], []).append((up, r, [piece], False))
    return [[[steps[moment] for moment in range(max(steps) + 1)]]], names


def by_dimension(network, collective, stages):
    """Return a schedule dimension by dimension; stages: lists of dimensions that rotate among themselves.

    Also all pieces, by owner.
    """
    n = rank_at(network, [size - 1 for _, size, _ in network]) + 1
    rotations = [[[*stage[part:], *stage[:part]] for part in range(len(stage))] for stage in stages]
    # one part of the tensor for every combination of the stages' rotations, of equal size
    orders = [list(chain(*choice)) for choice in product(*rotations)]
    names = [
        [
            (number, owner, way, Fraction(1, 2 * n * len(orders)))
            for number in range(len(orders))
            for way in (0, 1)
        ]
        for owner in range(n)
    ]
    at = [coordinates(network, r) for r in range(n)]

    def part(number, order, position, add):
        """The steps of one part in one of its dimensions, along all lines of ranks."""
        dimension, done = order[position], order[: position + 1]
        kind = network[dimension][0]
        steps = []
        for r in range(n):
            if at[r][dimension]:
                continue
            line = [
                rank_at(network, [*at[r][:dimension], i, *at[r][dimension + 1 :]])
                for i in range(network[dimension][1])
            ]

            def pieces(i, way, line=line):
                return [
                    names[owner][2 * number + way]
                    for owner in range(n)
                    if all(at[owner][d] == at[line[i]][d] for d in done)
                ]

            make = direct_steps if kind == "full" else ring_steps
            steps.append(make(line, pieces, add))
        return [list(chain(*together)) for together in zip(*steps, strict=True)]

    def phases(positions, add):
        return [[part(k, order, position, add) for k, order in enumerate(orders)] for position in positions]

    count = len(orders[0])
    scatter, gather = phases(range(count), True), phases(reversed(range(count)), False)
    chosen = {"reduce-scatter": scatter, "all-gather": gather, "all-reduce": scatter + gather}
    return chosen[collective], names


def check(n, collective, schedule, names):
    """Run a schedule and say that every rank ends with what the collective promises."""
    everyone = frozenset(range(n))
    everything = [piece for owner in names for piece in owner]
    if collective == "all-gather":
        held = [dict.fromkeys(names[r], everyone) for r in range(n)]
    elif collective == "broadcast":
        held = [dict.fromkeys(everything, everyone) if r == 0 else {} for r in range(n)]
    else:
        held = [dict.fromkeys(everything, frozenset([r])) for r in range(n)]
    run(schedule, held)
    for r in range(n):
        for piece in names[r] if collective == "reduce-scatter" else everything:
            assert held[r][piece] == everyone, f"rank {r} lacks a part of {piece}"


def sent_on_average(schedule, n):
    """Return what a rank sends, on average [share of S]."""
    total = 0
    for parts in schedule:
        for step in (step for steps in parts for step in steps):
            total += sum(piece[-1] for _, _, pieces, _ in step for piece in pieces)
    return total / n


def ring_memory(n):
    """Return what a rank of a one-way ring's all-reduce reads and writes of its memory [share of S].

    What is sent is read unless it was summed or arrived to be summed in this very step; adding reads both
    operands; a complete sum is written; what arrives complete has been written by its sender.
    """
    touched = 1  # the first piece, read to be sent
    for step in range(1, n):
        touched += 2  # the arrived and the own part
        if step == n - 1:
            touched += 1  # the complete sum
    for step in range(n - 1):
        touched += 1 if step > 0 else 0  # a complete piece that arrived before, read to be passed on
    return Fraction(touched, n)
