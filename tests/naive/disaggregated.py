"""Prefill and decoding on servers of their own, event by event. Plain lists, from the definitions."""

from math import floor

from tests.naive.encoders import Encoders
from tests.naive.served_stages import pass_s
from tests.naive.serving import graph_size, line, plane, shared_s


class Request:
    def __init__(self, number, sent, isl, osl, prefix):
        self.number, self.sent, self.isl, self.osl = number, sent, isl, osl
        self.found = min(floor(prefix * isl), isl - 1)
        self.computed, self.made = 0, 0.0
        self.admitted = self.first = self.placed = self.arrive = self.end = None

    @property
    def rest(self):
        return self.isl - self.found - self.computed


class Unit:
    """A batch of a server that goes on by itself."""

    def __init__(self, number, server, ranks):
        self.number, self.server, self.until = number, server, None
        self.waiting = [[] for _ in range(ranks)]  # of a prefill rank
        self.running = [[] for _ in range(ranks)]
        self.batch = []  # of the iteration under way


def compose(unit, server, now):
    """Return [(request, tokens)] of each rank of a prefill unit, and take requests from its queues."""
    batch = []
    for waiting, running in zip(unit.waiting, unit.running, strict=True):
        left, prompts = server["budget"], []
        going = [request for request in running if request.first is None]
        while left > 0:
            if going:
                request = going[0]
            elif waiting and waiting[0].sent <= now and fits(waiting[0], running, server, now):
                request = waiting[0]
            else:
                break
            tokens = request.rest
            if tokens > left:
                if server["chunks"]:
                    tokens = left
                elif prompts:
                    break
            if going:
                going.pop(0)
            else:
                running.append(waiting.pop(0))
                request.admitted = now
            prompts.append((request, tokens))
            left -= tokens
        batch.append(prompts)
    return batch


def fits(request, running, server, now):
    """A prefill rank holds a cache until it has been sent."""
    running[:] = [
        other for other in running if other.end is None and (other.arrive is None or other.arrive > now)
    ]
    return sum(other.isl for other in running) + request.isl <= server["capacity"]


def prefill_time(times, server, batch):
    attention = 0.0
    for prompts in batch:
        of_rank = 0.0
        for i, (request, tokens) in enumerate(prompts):
            table = times["prefill_more" if i else "prefill"]
            of_rank += plane(times["chunk"], times["before"], table, tokens, request.found + request.computed)
        attention = max(attention, of_rank)
    rows = max(len(prompts) for prompts in batch)
    layers = shared_s(times, [sum(tokens for _, tokens in prompts) for prompts in batch]) + attention
    head = line(times["tokens"], times["head"], rows)
    return (
        max(layers + head, server["eager_s"])
        + (pass_s(server, layers, head) - (layers + head))
        + server["iteration_s"]
        + server["row_s"] * rows
    )


def decode_time(times, server, batch):
    attention, most = 0.0, max(len(requests) for requests in batch)
    for requests in batch:
        if requests:
            mean = sum(request.isl + request.made for request in requests) / len(requests)
            took = plane(times["requests"], times["context"], times["decode"], len(requests), mean)
            attention = max(attention, took)
    size = graph_size(server, most)
    tokens = [len(requests) * server["queries"] for requests in batch]
    rows = (size or most) * server["queries"]
    mean = rows if len(batch) == 1 else sum(tokens) / len(tokens)
    layers, head = shared_s(times, [rows], mean) + attention, line(times["tokens"], times["head"], rows)
    late = 0.0 if size else max(0.0, server["launch_s"] - layers - head)
    return (
        pass_s(server, layers, head)
        + late
        + server["iteration_s"]
        + server["row_s"] * most
        + server["draft_s"]
    )


def simulate(times, servers, counts, way, lengths, arrivals, concurrency, prefix, trip_share, streams, nudge):
    """Return (requests, iterations).

    times, servers, counts: of prefill and of decode; way: what sending takes, and more for each token [s].
    trip_share: of a request's number, its round trip over the mean one; streams: the client has the first
    token when decode has the cache. nudge: share by which iterations of prefill take longer, and those of
    decode less.
    """
    pools = [
        [Unit(i, i % count, server["ranks"]) for i in range(count * server["slots"])]
        for count, server in zip(counts, servers, strict=True)
    ]
    for server in servers:
        server["most"] = max(1, server["most"] // server["slots"])
        server["capacity"] //= server["slots"]
    if servers[1]["mixes"]:  # all that decodes is in every iteration, which its budget bounds
        servers[1]["most"] = min(servers[1]["most"], max(1, servers[1]["budget"] // servers[1]["queries"]))
    prefills, decodes = pools
    links = {}  # when a rank of a server has sent all
    every, ready, now = [], [], 0.0
    encoders, clients_s = Encoders(servers[0]), []
    log = []  # (when it starts, of which pool, what it takes [s]) of each iteration

    def send(when, round_trip_s):
        number = len(every)
        if number < len(lengths):
            when += trip_share(number) * round_trip_s
            clients_s.append(when)
            request = Request(number, encoders.arrival(when), *lengths[number], prefix)
            every.append(request)
            unit = prefills[number % len(prefills)]
            request.unit = unit
            request.rank = number // len(prefills) % servers[0]["ranks"]
            waiting = unit.waiting[request.rank]
            waiting.insert(sum(other.sent <= request.sent for other in waiting), request)

    for i in range(len(lengths) if arrivals is not None else concurrency):
        send(arrivals[i] if arrivals is not None else 0.0, 0.0)
    while any(request.end is None for request in every):
        for unit in prefills:
            if unit.until != now:
                continue
            unit.until = None
            for prompts in unit.batch:
                for request, tokens in prompts:
                    request.computed += tokens
                    if request.rest:
                        continue
                    request.made, request.first = 1.0, now
                    if request.osl == 1:
                        request.end = now
                    else:
                        ready.append(request)
        for unit in decodes:
            if unit.until != now:
                continue
            unit.until = None
            for rank, requests in enumerate(unit.batch):
                for request in requests:
                    request.made += servers[1]["per_pass"]
                    if request.made >= request.osl - 1e-9:
                        request.end = now
                        unit.running[rank].remove(request)
        if arrivals is None:
            for _ in [request for request in every if request.end == now and now > 0.0]:
                send(now, servers[0]["round_trip_s"])
        while ready:
            request = ready[0]
            places = [
                (len(running), rank, unit.number)
                for unit in decodes
                for rank, running in enumerate(unit.running)
                if len(running) < servers[1]["most"]
                and sum(r.isl + r.osl for r in running) + request.isl + request.osl <= servers[1]["capacity"]
            ]
            if not places:
                break
            _, rank, number = min(places)
            ready.pop(0)
            decodes[number].running[rank].append(request)
            link = request.unit.server, request.rank
            request.placed = now
            latency_s, sends_s, layers = way[0], way[1] * request.isl, way[2]
            computing_s = (request.first - request.admitted) * (layers - 1) / layers
            waited_s = now - request.first
            begin = max(now - max(0.0, computing_s - waited_s), links.get(link, 0.0))
            request.arrive = max(begin + latency_s + sends_s, now + latency_s + sends_s / layers)
            links[link] = request.arrive
        for unit in prefills:
            if unit.until is None:
                unit.batch = compose(unit, servers[0], now)
                if any(unit.batch):
                    took = prefill_time(times[0], servers[0], unit.batch) * (1.0 + nudge)
                    log.append((now, "prefill", took))
                    unit.until = now + took
        for unit in decodes:
            if unit.until is None:
                unit.batch = [[r for r in running if r.arrive <= now] for running in unit.running]
                if any(unit.batch):
                    took = decode_time(times[1], servers[1], unit.batch) * (1.0 - nudge)
                    log.append((now, "decode", took))
                    unit.until = now + took
        following = [unit.until for unit in prefills + decodes if unit.until is not None]
        following += [r.arrive for r in every if r.arrive is not None and r.arrive > now]
        following += [r.sent for r in every if r.sent > now]
        if following:
            now = min(following)
    for request in every:
        waited = request.placed - request.first if request.osl > 1 else 0.0
        request.service = request.end - request.admitted - waited
        if streams and request.osl > 1:
            request.first = request.arrive
        request.arrived, request.sent = request.sent, clients_s[request.number]
    return every, log
