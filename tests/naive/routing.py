"""Which rank of a fleet takes a request, of those that may. Plain lists, from the definitions."""

from tests.naive.prefix_cache import path_of

ROUTES = 5
"""The stream of random numbers of routers."""
TWO_64 = 1 << 64


def random_bits(stream, index):
    """Return 64 random bits (SplitMix64)."""
    bits = (index + (stream << 40) + 1) * 0x9E3779B97F4A7C15 % TWO_64
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 % TWO_64
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB % TWO_64
    return bits ^ (bits >> 31)


class Router:
    """Chooses a rank for each request, among the ranks of servers of its pool that are open."""

    def __init__(self, options, caches, ranks):
        self.options, self.caches = options, caches
        self.in_flight = [0] * ranks  # requests of each rank that have not ended
        self.routed = {}  # requests so far, by pool
        self.home = {}  # rank of each session in a pool, by (pool, session)

    def least_loaded(self, choices):
        """Return the rank with the fewest requests, the first such one."""
        return min(choices, key=lambda rank: (self.in_flight[rank], rank))

    def prefix_aware(self, request, choices):
        """Return the rank that has most of a prompt, or the least loaded one."""
        loads = [self.in_flight[rank] for rank in choices]
        most, fewest = max(loads), min(loads)
        is_uneven = most - fewest > self.options["balance_abs_threshold"]
        if is_uneven and most > self.options["balance_rel_threshold"] * fewest:
            return self.least_loaded(choices)
        hits = {rank: self.caches.hit_anywhere(rank, request.text) for rank in choices}
        longest = max(hits.values())
        if longest > self.options["cache_threshold"] * request.isl:
            return self.least_loaded([rank for rank in choices if hits[rank] == longest])
        return self.least_loaded(choices)

    def session_sticky(self, request, choices):
        """Return the rank of a session where it may still be chosen; else the session moves."""
        if request.session < 0:
            return self.least_loaded(choices)
        key = request.pool, request.session
        if self.home.get(key) not in choices:
            self.home[key] = self.least_loaded(choices)
        return self.home[key]

    def choose(self, request, choices):
        """Return the rank of a request by the rule of the router."""
        name, count, number = self.options["name"], len(choices), request.number
        if name == "round_robin":
            return choices[self.routed.get(request.pool, 0) % count]
        if name == "random":
            return choices[random_bits(ROUTES, number) % count]
        if name == "power_of_two":
            two = [choices[random_bits(ROUTES, 2 * number + i) % count] for i in range(2)]
            return min(two, key=lambda rank: self.in_flight[rank])
        if name == "hashing":
            root = path_of(self.caches.texts, request.text)[0]
            return choices[random_bits(ROUTES, request.session if request.session >= 0 else root) % count]
        if name == "session_sticky":
            return self.session_sticky(request, choices)
        if name == "prefix_aware":
            return self.prefix_aware(request, choices)
        assert name == "least_loaded"
        return self.least_loaded(choices)

    def route(self, request, choices):
        """Give a request its rank; choices: the ranks that may take it, in order."""
        request.rank = self.choose(request, choices)
        self.in_flight[request.rank] += 1
        self.routed[request.pool] = self.routed.get(request.pool, 0) + 1
