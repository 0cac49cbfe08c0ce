"""A network walked hop by hop (paper, 4.2.3 and 5.2).

A system is a list of dimensions, innermost first: dictionaries with `kind`, `size`, `level`, `leaf`,
`taper`. A link is a tuple of its dimension and its two ends; an end is a device's coordinates or the
name of a switch.
"""

from collections import defaultdict
from itertools import permutations


def ports(dimension):
    """Links that a device has in one dimension."""
    if dimension["kind"] in ("line", "ring"):
        return min(dimension["size"] - 1, 2)
    return dimension["size"] - 1 if dimension["kind"] == "full" else 1


def coordinates(system, device):
    place = []
    for dimension in system:
        place.append(device % dimension["size"])
        device //= dimension["size"]
    return tuple(place)


def number(system, place):
    device, stride = 0, 1
    for dimension, coordinate in zip(system, place, strict=True):
        device += coordinate * stride
        stride *= dimension["size"]
    return device


def route(system, source, target):
    """Yield (link, hops of its own) of the way from one device to another: X first, then Y, and so on."""
    here, there = coordinates(system, source), coordinates(system, target)
    for j, dimension in enumerate(system):

        def moved(to, here=here, j=j):
            return (*here[:j], to, *here[j + 1 :])

        size, a, b = dimension["size"], here[j], there[j]
        if a == b:
            continue
        if dimension["kind"] == "full":
            yield (j, here, moved(b)), 1
        elif dimension["kind"] in ("switch", "tree"):
            line = (*here[:j], "switch", *here[j + 1 :])
            leaf = dimension["leaf"] if dimension["kind"] == "tree" else size
            up, down = (*line, a // leaf), (*line, b // leaf)
            yield (j, here, up), 1
            if up != down:
                yield (j, up, (*line, "spine")), 1
                yield (j, (*line, "spine"), down), 1
            yield (j, down, moved(b)), 0  # a switch is one hop, not each of its links
        else:
            step = 1 if b > a else -1
            if dimension["kind"] == "ring":
                step = 1 if (b - a) % size <= (a - b) % size else -1
            while here[j] != b:
                following = moved((here[j] + step) % size)
                yield (j, here, following), 1
                here = following
        here = moved(b)


def capacity(system, link):
    """Bandwidth of a directed link as a share of its level's bandwidth of one device."""
    dimension = system[link[0]]
    of_one = 1.0 / sum(ports(other) for other in system if other["level"] == dimension["level"])
    if "spine" in link[1] or "spine" in link[2]:
        return of_one * dimension["leaf"] / dimension["taper"]
    return of_one


def walk(system, edges):
    """Return what every used link carries: link to the sum of weights; and the most hops on each level."""
    carried, hops = defaultdict(float), [0, 0]
    for source, target, weight in edges:
        own = [0, 0]
        for link, count in route(system, source, target):
            carried[link] += weight
            own[system[link[0]]["level"]] += count
        hops = [max(pair) for pair in zip(hops, own, strict=True)]
    return carried, hops


def loads(system, edges):
    """Return (load, load, hops, hops), the two levels of each."""
    carried, hops = walk(system, edges)
    load = [0.0, 0.0]
    for link, weight in carried.items():
        level = system[link[0]]["level"]
        load[level] = max(load[level], weight / capacity(system, link))
    return (*load, *hops)


def in_order(low, high):
    """Yield (parent, child) of the in-order tree over low..high, both included; also return its root.

    Leaves are every other rank, beginning with the first (Sanders, Speck and Traeff 2009).
    """
    count = high - low + 1
    top = 1
    while 2 * top <= count:
        top *= 2
    root = low + top - 1
    edges = []
    for first, last in ((low, root - 1), (root + 1, high)):
        if first <= last:
            child, below = in_order(first, last)
            edges += [(root, child), *below]
    return root, edges


def two_trees(ranks):
    """Return the (parent, child) lists of both trees: the second mirrored, or shifted where ranks are odd."""
    _, first = in_order(0, ranks - 1)
    if ranks % 2:
        second = [((a + 1) % ranks, (b + 1) % ranks) for a, b in first]
    else:
        second = [(ranks - 1 - a, ranks - 1 - b) for a, b in first]
    return first, second


def messages(pattern, ranks, step):
    """Return (from rank, to rank, weight) of all that moves at the same time."""
    everyone, power = range(ranks), 1
    while 2 * power <= ranks:
        power *= 2
    if ranks == 1:
        return []
    if pattern == "neighbours":
        return [(r, (r + way) % ranks, 0.5) for r in everyone for way in (1, -1)]
    if pattern == "forward":
        return [(r, r + 1, 1.0) for r in range(ranks - 1)]
    if pattern == "backward":
        return [(r + 1, r, 1.0) for r in range(ranks - 1)]
    if pattern == "exchange":
        return [(r, r ^ 2**step, 1.0) for r in range(power)]
    if pattern == "fold":
        return [edge for r in range(power, ranks) for edge in ((r, r - power, 1.0), (r - power, r, 1.0))]
    if pattern == "trees":
        first, second = two_trees(ranks)
        return [edge for a, b in first + second for edge in ((a, b, 1.0), (b, a, 1.0))]
    return [(a, b, 1.0) for a, b in permutations(everyone, 2)]


def members(group):
    """Return the devices of the group that begins at device 0; group: (degree, stride) of its rows."""
    place = [0]
    for degree, stride in group:  # the first row's rank changes fastest
        place = [device + rank * stride for rank in range(degree) for device in place]
    return place


def edges(devices, group, pattern, step=0):
    """Return (from device, to device, weight) of every group that is laid out like `group`."""
    place, taken, found = members(group), set(), []
    for base in range(devices):
        if base not in taken:
            taken |= {base + device for device in place}
            found += [
                (base + place[a], base + place[b], w) for a, b, w in messages(pattern, len(place), step)
            ]
    return found


AXES = ("kp1", "kp2", "dp", "pp")


def orders(axes=AXES):
    return ["-".join(order) for order in permutations(axes)]


def first_orders(axes, above, stages_at_an_end):
    """Return the first of all orders that have the axes `above` in the same order, of each kind.

    stages_at_an_end: of those with pp at either end, if pp is one of several in `above`.
    """
    first = {}
    for order in orders(axes):
        words = order.split("-")
        is_free = not stages_at_an_end or "pp" not in above or len(above) == 1
        if is_free or "pp" in (words[0], words[-1]):
            first.setdefault(tuple(word for word in words if word in above), order)
    return list(first.values())


def fill(order, degrees):
    """Return the device of every shard: shards in the order's own counting, one device after the other.

    degrees: by name. A shard is a tuple of its ranks along kp1, kp2, dp and pp.
    """
    names, shards = order.split("-"), [{}]
    for name in reversed(names):  # the first name's rank changes fastest
        shards = [{**shard, name: rank} for shard in shards for rank in range(degrees[name])]
    return {tuple(shard[name] for name in degrees): device for device, shard in enumerate(shards)}
