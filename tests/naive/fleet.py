"""Servers with caches of prefixes behind a router, event by event. Plain lists, from the definitions.

Tables are dictionaries of lists, or lists of dictionaries, with the names of the package's.
"""

from tests.naive import serving
from tests.naive.prefix_cache import Caches, path_of, tokens_of
from tests.naive.serving import compose, most_at_once, parts_of, preempt

ROUTES = 5
"""The stream of random numbers of routers."""
TWO_64 = 1 << 64
ENDS, ARRIVES, STARTS = range(3)
"""Kinds of events, in their order at the same time."""


def random_bits(stream, index):
    """Return 64 random bits (SplitMix64)."""
    bits = (index + (stream << 40) + 1) * 0x9E3779B97F4A7C15 % TWO_64
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 % TWO_64
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB % TWO_64
    return bits ^ (bits >> 31)


class Request(serving.Request):
    """A request of the trace; it is in a queue with the time `sent` at which the data it reads are there."""

    def __init__(self, number, trace):
        super().__init__(number, None, trace["isl"][number], trace["osl"][number], None, 0.0)
        self.text, self.answer = trace["text"][number], trace["answer"][number]
        self.session, self.follower = trace["session"][number], trace["follower"][number]
        self.shared = 0  # tokens that others used at the last look
        self.uses = False  # its nodes
        self.rank = self.arrived = None
        self.hit = self.read = self.preempted = 0


class Rank(serving.Rank):
    """A rank whose requests share what their prompts have in common."""

    def __init__(self, number, caches):
        super().__init__()
        self.number, self.caches = number, caches

    def saved(self):
        """Return the tokens of prompts that are in memory once for several requests.

        A request that starts in the iteration being composed saves what others used at its look.
        """
        using = [request for request in self.running if request.uses]
        nodes = {node for request in using for node in path_of(self.caches.texts, request.text)}
        once = tokens_of(self.caches.texts, nodes)
        starting = sum(request.shared for request in self.running if not request.uses)
        return sum(request.isl for request in using) - once + starting

    def held(self):
        return super().held() - self.saved()

    def fits(self, request, server):
        if server["reserves"]:
            reserved = sum(other.isl + other.osl for other in self.running) - self.saved()
            return reserved + request.isl + request.osl - request.shared <= server["capacity"]
        return self.held() + request.prompt - request.shared <= server["capacity"]

    def stop_last(self):
        request = super().stop_last()
        self.caches.release(self.number, request.text)
        request.uses = False
        request.preempted += 1
        return request

    def trim(self):
        """Drop what the memory has no room for."""
        self.caches.trim(self.number, self.held())

    def look(self, server, seen, block, in_order):
        """See which part of their prompts the next requests share and need not compute."""
        rest = needed = 0  # tokens of those before
        places = most_at_once(server) - len(self.running)
        known = [request for request in self.waiting if request.sent <= seen]
        for before, request in enumerate(known):
            can_start = before < places and rest < server["budget"]
            can_start = can_start and self.held() + needed <= server["capacity"]
            if in_order and not can_start:
                break
            hit = self.caches.hit(self.number, request.text)
            request.found = min(hit, request.isl - 1) // block * block
            request.shared = self.caches.shared(self.number, request.text)
            rest += request.prompt - request.found
            needed += request.prompt - request.shared


class Server:
    """A server of the fleet: idle, about to start an iteration, or in one."""

    def __init__(self, number, options, ranks):
        self.number, self.options, self.ranks = number, options, ranks
        self.intake = serving.Intake()
        self.start, self.end = None, None  # of the next iteration, of the one under way [s]
        self.batches = []
        self.totals = {"cache": 0.0, "iterations": 0, "with_prefill": 0, "preemptions": 0}


class Router:
    """Chooses a rank for each request that arrives."""

    def __init__(self, options, caches, ranks):
        self.options, self.caches = options, caches
        self.in_flight = [0] * ranks  # requests of each rank that have not ended
        self.arrivals = 0
        self.rank_of = {}  # of sessions

    def least_loaded(self, ranks=None):
        """Return the rank with the fewest requests, the first such one."""
        ranks = range(len(self.in_flight)) if ranks is None else ranks
        return min(ranks, key=lambda rank: (self.in_flight[rank], rank))

    def prefix_aware(self, request):
        """Return the rank that has most of a prompt, or the least loaded one."""
        most, fewest = max(self.in_flight), min(self.in_flight)
        is_uneven = most - fewest > self.options["balance_abs_threshold"]
        if is_uneven and most > self.options["balance_rel_threshold"] * fewest:
            return self.least_loaded()
        hits = [self.caches.hit_anywhere(rank, request.text) for rank in range(len(self.in_flight))]
        if max(hits) > self.options["cache_threshold"] * request.isl:
            return self.least_loaded([rank for rank, hit in enumerate(hits) if hit == max(hits)])
        return self.least_loaded()

    def choose(self, request):
        """Return the rank of a request by the rule of the router."""
        name, count, number = self.options["name"], len(self.in_flight), request.number
        if name == "round_robin":
            return self.arrivals % count
        if name == "random":
            return random_bits(ROUTES, number) % count
        if name == "power_of_two":
            two = [random_bits(ROUTES, 2 * number + i) % count for i in range(2)]
            return min(two, key=lambda rank: self.in_flight[rank])
        if name == "hashing":
            root = path_of(self.caches.texts, request.text)[0]
            return random_bits(ROUTES, request.session if request.session >= 0 else root) % count
        if name == "session_sticky" and request.session >= 0:
            return self.rank_of.get(request.session, self.least_loaded())
        if name == "prefix_aware":
            return self.prefix_aware(request)
        assert name in ("least_loaded", "session_sticky")
        return self.least_loaded()

    def route(self, request):
        """Give a request its rank."""
        request.rank = self.choose(request)
        self.rank_of.setdefault(request.session, request.rank)
        self.in_flight[request.rank] += 1
        self.arrivals += 1


class Fleet:
    """Servers, their caches, the router and the requests; what happens at each event."""

    def __init__(self, times_by_row, servers, trace, texts, tiers, router, block, policy):
        count = servers[0]["ranks"]
        self.times_by_row, self.block, self.policy = times_by_row, block, policy
        self.caches = Caches(texts, tiers, [server["capacity"] for server in servers], count)
        self.ranks = [Rank(number, self.caches) for number in range(len(servers) * count)]
        self.servers = [
            Server(number, options, self.ranks[number * count : (number + 1) * count])
            for number, options in enumerate(servers)
        ]
        self.router = Router(router, self.caches, len(self.ranks))
        self.requests = [Request(number, trace) for number in range(len(trace["isl"]))]
        self.think_s = trace["sent"]
        self.followers = {request.follower for request in self.requests}
        self.to_arrive = {  # when, by request
            request.number: trace["sent"][request.number]
            for request in self.requests
            if request.number not in self.followers
        }

    def events(self):
        """Return all events that are known: (when, kind, whether it is a follower's, number)."""
        events = [(when, ARRIVES, i in self.followers, i) for i, when in self.to_arrive.items()]
        for server in self.servers:
            if server.end is not None:
                events.append((server.end, ENDS, False, server.number))
            elif server.start is not None:
                events.append((server.start, STARTS, False, server.number))
        return events

    def arrive(self, request, now):
        """Route a request, bring what caches have of its prompt, and queue it."""
        request.arrived = now
        self.router.route(request)
        rank = self.ranks[request.rank]
        request.sent, request.read = self.caches.read(rank.number, request.text, now)
        rank.trim()
        rank.waiting.insert(sum(other.sent <= request.sent for other in rank.waiting), request)
        server = self.servers[request.rank // len(self.servers[0].ranks)]
        if server.end is None:
            server.start = request.sent if server.start is None else min(server.start, request.sent)

    def begin(self, server, now):
        """Compose the next iteration of a server and start it, or let the server be idle."""
        options, intake, ranks = server.options, server.intake, server.ranks
        server.start = None
        server.totals["preemptions"] += sum(preempt(rank, options) for rank in ranks)
        was_idle = intake.last is None
        intake.look(options, now)
        for rank in ranks:
            rank.look(options, intake.seen, self.block, self.policy is compose)
        is_held = intake.holds(options, ranks)
        if is_held:
            batches = [(rank.decoding(), []) for rank in ranks]
        else:
            batches = [self.policy(rank, options, intake.seen) for rank in ranks]
        has_prompts = any(prompts for _, prompts in batches)
        if not options["mixes"] and not has_prompts:
            batches = [(rank.decoding(), []) for rank in ranks]
        if not any(decoding or prompts for decoding, prompts in batches):
            waiting = [rank.waiting[0].sent for rank in ranks if rank.waiting]
            server.start = max(now, min(waiting)) if waiting else None
            assert not was_idle or server.start is None or server.start > now, "starts nothing"
            intake.last = None
            return
        intake.note(options, now, has_prompts, is_held)
        for rank in ranks:
            if self.use_started(rank, now):
                rank.trim()
        took = sum(parts_of(self.times_by_row[options["times"]], options, batches).values())
        server.batches, server.end = batches, now + took
        server.totals["cache"] += took * sum(rank.held() for rank in ranks)
        server.totals["iterations"] += 1
        server.totals["with_prefill"] += has_prompts

    def use_started(self, rank, now):
        """Let the requests that start in this iteration use their nodes; returns whether any does."""
        starting = [request for request in rank.running if not request.uses]
        for request in starting:
            self.caches.use(rank.number, request.text)
            request.uses = True
            if request.admitted is None:
                request.admitted, request.hit = now, request.found
        return bool(starting)

    def finish(self, server, now):
        """End the iteration of a server: tokens are there, and some requests end."""
        server.start, server.end = now, None
        for rank, (decoding, prompts) in zip(server.ranks, server.batches, strict=True):
            for request in decoding:
                request.made += server.options["per_pass"]
            for request, tokens in prompts:
                request.computed += tokens
                if request.rest == 0:
                    request.made, request.decodes = request.made + 1.0, True
                    request.first = now if request.first is None else request.first
            ended = [r for r in rank.running if r.decodes and r.made >= r.osl - 1e-9]
            for request in ended:
                self.end(rank, request, now)
            if ended:
                rank.trim()

    def end(self, rank, request, now):
        """End a request: its nodes are free, and its follower comes after the time to think."""
        rank.running.remove(request)
        request.end = now
        self.caches.release(rank.number, request.text, request.answer)
        self.router.in_flight[rank.number] -= 1
        if request.follower >= 0:
            self.to_arrive[request.follower] = now + self.think_s[request.follower]

    def run(self):
        """Take one event after the other until there is none."""
        while events := self.events():
            now, kind, _, number = min(events)
            if kind == ENDS:
                self.finish(self.servers[number], now)
            elif kind == ARRIVES:
                del self.to_arrive[number]
                self.arrive(self.requests[number], now)
            else:
                self.begin(self.servers[number], now)


def simulate(times_by_row, servers, trace, texts, tiers, router, block, policy=compose):
    """Return (requests, totals of every server) of a fleet.

    times_by_row: tables of passes, which servers name by `times`; policy: as `compose`.
    """
    fleet = Fleet(times_by_row, servers, trace, texts, tiers, router, block, policy)
    fleet.run()
    return fleet.requests, [server.totals for server in fleet.servers]
