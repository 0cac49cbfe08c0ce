"""Pools of servers with caches of prefixes behind a router, event by event. Plain lists, from definitions.

Tables are dictionaries of lists, or lists of dictionaries, with the names of the package's.
"""

from tests.naive import serving
from tests.naive.autoscaling import OPEN, STARTING, Member, ServerPool
from tests.naive.encoders import Encoders
from tests.naive.prefix_cache import Caches, adapters_of, path_of, tokens_of
from tests.naive.routing import Router
from tests.naive.serving import compose, most_at_once, parts_of, preempt, swap_s_of

ENDS, OPENS, TICKS, ARRIVES, STARTS = range(5)
"""Kinds of events, in their order at the same time."""


class Request(serving.Request):
    """A request of the trace; it is in a queue with the time `sent` at which the data it reads are there."""

    def __init__(self, number, trace):
        super().__init__(number, None, trace["isl"][number], trace["osl"][number], None, 0.0)
        self.text, self.answer = trace["text"][number], trace["answer"][number]
        self.priority, self.client = trace["priority"][number], trace["client"][number]
        self.limit_s = trace["deadline"][number]
        self.prefill_s = 0.0  # of the request that it follows
        self.session, self.follower = trace["session"][number], trace["follower"][number]
        self.pool, self.handover = trace["pool"][number], trace["handover"][number]
        self.shared = 0  # tokens that others used at the last look
        self.uses = False  # its nodes
        self.rank = self.arrived = self.routed = None
        self.hit = self.read = self.handed = self.preempted = 0
        self.encode_wait_s = 0.0

    def cached(self, hit, block):
        """Return the tokens that need not be computed; hit: those in memory."""
        if self.handover and not self.preempted:
            return self.isl - 1
        return min(hit, self.isl - 1) // block * block


class Rank(serving.Rank):
    """A rank whose requests share what their prompts have in common."""

    def __init__(self, number, caches):
        super().__init__()
        self.number, self.caches = number, caches

    def saved(self):
        """Return the tokens of prompts that are in memory once for several requests.

        A request that starts in the iteration being composed saves what others used at its look.
        """
        texts, using = self.caches.texts, [request for request in self.running if request.uses]
        nodes = {node for request in using for node in path_of(texts, request.text)}
        once = tokens_of(texts, nodes, "weight") + tokens_of(texts, adapters_of(texts, nodes), "room")
        starting = sum(request.shared for request in self.running if not request.uses)
        paths = [path_of(texts, request.text) for request in using]
        return sum(tokens_of(texts, path, "weight") for path in paths) - once + starting

    def adapters(self):
        """Return the number of adapters of the requests that run."""
        roots = {path_of(self.caches.texts, request.text)[0] for request in self.running}
        return len(adapters_of(self.caches.texts, roots))

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
            request.found = request.cached(hit, block)
            request.shared = self.caches.shared(self.number, request.text)
            rest += request.rest
            needed += request.prompt - request.shared


class Server(Member):
    """A server of the fleet: idle, about to start an iteration, or in one."""

    def __init__(self, number, options, member, ranks, router):
        super().__init__(member["start_s"])
        self.number, self.options, self.member = number, options, member
        self.ranks, self.router = ranks, router
        self.intake = serving.Intake()
        self.start, self.end = None, None  # of the next iteration, of the one under way [s]
        self.batches = []
        self.totals = {"cache": 0.0, "iterations": 0, "with_prefill": 0, "preemptions": 0}

    def in_flight(self):
        """Return the requests that it has."""
        return sum(self.router.in_flight[rank.number] for rank in self.ranks)

    def turn_off(self, now):
        super().turn_off(now)
        for rank in self.ranks:
            rank.caches.lose(rank.number)


class Fleet:
    """Servers, their caches, the router and the requests; what happens at each event."""

    def __init__(
        self, times_by_row, servers, members, scaling, trace, texts, tiers, router, block, policy, source
    ):
        count = servers[0]["ranks"]
        self.times_by_row, self.block, self.policy = times_by_row, block, policy
        self.caches = Caches(texts, tiers, [server["capacity"] for server in servers], count, source)
        self.ranks = [Rank(number, self.caches) for number in range(len(servers) * count)]
        self.router = Router(router, self.caches, len(self.ranks))
        self.servers = [
            Server(number, options, member, self.ranks[number * count : (number + 1) * count], self.router)
            for number, (options, member) in enumerate(zip(servers, members, strict=True))
        ]
        self.pools = [
            ServerPool(scaler, [server for server in self.servers if server.member["pool"] == number])
            for number, scaler in enumerate(scaling)
        ]
        self.inbound_s = [0.0] * len(self.ranks)  # when the link for handovers to each rank is free
        self.requests = [Request(number, trace) for number in range(len(trace["isl"]))]
        self.think_s = trace["sent"]
        self.followers = {request.follower for request in self.requests}
        self.encoders, self.encoded = Encoders(servers[0]), set()
        self.to_arrive = {  # when, by request
            request.number: trace["sent"][request.number]
            for request in self.requests
            if request.number not in self.followers
        }

    def events(self):
        """Return all events that are known: (when, kind, whether it is a follower's, number)."""
        later = self.followers | self.encoded
        events = [(when, ARRIVES, i in later, i) for i, when in self.to_arrive.items()]
        for server in self.servers:
            if server.state == STARTING:
                events.append((server.opens_at, OPENS, False, server.number))
            if server.end is not None:
                events.append((server.end, ENDS, False, server.number))
            elif server.start is not None:
                events.append((server.start, STARTS, False, server.number))
        if any(request.end is None for request in self.requests):
            assert events, "requests wait for a server that nobody starts"
            ticks = [(pool.next_tick(), number) for number, pool in enumerate(self.pools)]
            events += [(when, TICKS, False, number) for when, number in ticks if when is not None]
        return events

    def come(self, request, now):
        """Let a request have its images encoded before it comes to the router, if other devices do that."""
        if request.arrived is None:
            request.arrived = now
            if request.pool == 0 and self.encoders.free:
                arrival, encoders = self.encoders.arrival(now), self.encoders
                request.encode_wait_s = arrival - now - encoders.encode_s - encoders.send_s
                self.to_arrive[request.number] = arrival
                self.encoded.add(request.number)
                return
        self.arrive(request, now)

    def arrive(self, request, now):
        """Route a request that comes to the router, or let it wait for a server of its pool to open."""
        pool = self.pools[request.pool]
        pool.arrivals += 1
        before = len(pool.waiting)
        if self.router.options["priority"]:
            before = sum(other.priority <= request.priority for other in pool.waiting)
        pool.waiting.insert(before, request)
        if not pool.of(OPEN, STARTING):
            pool.add_one(now)
        self.route_waiting(pool, now)

    def route_waiting(self, pool, now):
        """Route the requests of a pool that wait at the router, where a server is open."""
        while pool.waiting:
            choices = [rank.number for server in pool.of(OPEN) for rank in server.ranks]
            if most := self.router.options["max_in_flight"]:
                choices = [rank for rank in choices if self.router.in_flight[rank] < most]
            if not choices:
                return
            request = pool.waiting.pop(0)
            self.router.route(request, choices)
            self.bring(request, self.ranks[request.rank], now)

    def bring(self, request, rank, now):
        """Bring what there is of a prompt to the rank of a request, and queue the request."""
        server = self.servers[rank.number // len(self.servers[0].ranks)]
        request.routed = now
        request.deadline = request.arrived + request.limit_s
        request.sent, request.read = self.caches.read(rank.number, request.text, now)
        known = self.caches.hit_anywhere(rank.number, request.text)
        if request.handover and known < request.isl - 1:
            request.handed = request.isl - 1 - known
            latency_s, layers = server.member["handover_latency_s"], server.member["handover_layers"]
            took = request.handed * server.member["handover_token_s"]
            first_layers_s = request.prefill_s * (layers - 1) / layers
            begin = max(now - first_layers_s, self.inbound_s[rank.number])
            last = now + latency_s + took / layers
            self.inbound_s[rank.number] = max(begin + latency_s + took, last)
            request.sent = max(request.sent, self.inbound_s[rank.number])
        rank.trim()
        rank.waiting.insert(sum(other.sent <= request.sent for other in rank.waiting), request)
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
        took += swap_s_of(ranks)
        if most := max(rank.adapters() for rank in ranks):
            took += most * options["adapter_s"] + options["any_adapter_s"]
        server.batches, server.end = batches, now + took
        server.totals["cache"] += took * sum(rank.held() for rank in ranks)
        server.totals["iterations"] += 1
        server.totals["with_prefill"] += has_prompts

    def use_started(self, rank, now):
        """Let the requests that start in this iteration use their nodes; returns whether any does."""
        starting = [request for request in rank.running if not request.uses]
        for request in starting:
            rank.swap_s += self.caches.read_adapter(rank.number, request.text, now)
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
                    self.note_first(request, now)
            ended = [r for r in rank.running if r.decodes and r.made >= r.osl - 1e-9]
            for request in ended:
                self.end(rank, request, now)
            if ended:
                rank.trim()
        self.pools[server.member["pool"]].turn_off_drained(now)

    def note_first(self, request, now):
        """Note when the first token of a request came; it may come once more where it was preempted."""
        if request.first is None:
            request.first = now
            self.pools[request.pool].waits_s.append(now - request.arrived)

    def end(self, rank, request, now):
        """End a request: its nodes are free, and its follower comes after the time to think."""
        rank.running.remove(request)
        rank.note_end(request)
        request.end = now
        self.caches.release(rank.number, request.text, request.answer)
        self.router.in_flight[rank.number] -= 1
        if request.follower >= 0:
            self.requests[request.follower].prefill_s = now - request.admitted
            self.to_arrive[request.follower] = now + self.think_s[request.follower]

    def run(self):
        """Take one event after the other until there is none."""
        while events := self.events():
            now, kind, _, number = min(events)
            if kind == ENDS:
                self.finish(self.servers[number], now)
                if self.router.options["max_in_flight"]:
                    self.route_waiting(self.pools[self.servers[number].member["pool"]], now)
            elif kind == OPENS:
                self.servers[number].open(now)
                self.route_waiting(self.pools[self.servers[number].member["pool"]], now)
            elif kind == TICKS:
                self.pools[number].tick(now)
                self.route_waiting(self.pools[number], now)
            elif kind == ARRIVES:
                del self.to_arrive[number]
                self.come(self.requests[number], now)
            else:
                self.begin(self.servers[number], now)


def simulate(
    times_by_row, servers, members, scaling, trace, texts, tiers, router, block, source, policy=compose
):
    """Return (requests, servers) of a fleet; each server knows its totals, its starts and its states.

    times_by_row: tables of passes, which servers name by `times`; members: what each server is in its pool;
    scaling: the scaler of each pool; source: of adapters; policy: as `compose`.
    """
    parts = times_by_row, servers, members, scaling, trace, texts, tiers, router, block, policy, source
    fleet = Fleet(*parts)
    fleet.run()
    return fleet.requests, fleet.servers
