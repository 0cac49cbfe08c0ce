"""A server, iteration by iteration: what each request sees. Plain lists, from the definitions."""

from math import floor

from tests.naive.encoders import Encoders
from tests.naive.served_stages import pass_s


def line(axis, values, x):
    """Interpolate; beyond the last entry as between the last two."""
    if len(axis) == 1:
        return values[0]
    for i in range(len(axis) - 1):
        if x <= axis[i + 1] or i == len(axis) - 2:
            return values[i] + (values[i + 1] - values[i]) * (x - axis[i]) / (axis[i + 1] - axis[i])
    raise AssertionError


def plane(rows, columns, table, y, x):
    return line(rows, [line(columns, list(row), x) for row in table], y)


def shared_s(times, tokens, mean=None):
    """Return what all layers take but the core of attention [s]; tokens: of every rank; mean: of experts.

    The fullest rank sets the pace, but experts have the tokens of all ranks.
    """
    most, mean = max(tokens), sum(tokens) / len(tokens) if mean is None else mean
    without = [a - b for a, b in zip(times["shared"], times["experts"], strict=True)]
    return line(times["tokens"], without, most) + line(times["tokens"], times["experts"], mean)


class Request:
    def __init__(self, number, sent, isl, osl, server, prefix):
        self.number, self.sent, self.isl, self.osl = number, sent, isl, osl
        self.found = min(floor(prefix * isl), isl - 1)
        self.made = 0.0  # tokens of the answer
        self.priority = self.deadline = 0.0
        self.client = 0
        self.swapped = 0  # tokens in the host's memory
        self.prompt, self.computed = isl, 0  # to compute, `found` included, and computed of it
        self.decodes = False
        self.admitted = self.first = self.end = None

    @property
    def context(self):
        """Tokens in the cache in its next pass, the last one made among them; a prompt is held as a whole."""
        return self.isl + self.made if self.decodes else self.prompt

    @property
    def rest(self):
        return self.prompt - self.found - max(self.computed, self.swapped - self.found)


class Rank:
    def __init__(self):
        self.waiting, self.running = [], []
        self.swapped, self.swap_s = 0, 0.0  # tokens in the host's memory, time of the next iteration's swaps
        self.service, self.waited = {}, set()  # of clients: what they had, who waited at the last look

    def decoding(self):
        return [request for request in self.running if request.decodes]

    def held(self):
        return sum(request.context for request in self.running)

    def fits(self, request, server):
        if server["reserves"]:
            reserved = sum(other.isl + other.osl for other in self.running)
            return reserved + request.isl + request.osl <= server["capacity"]
        return self.held() + request.prompt <= server["capacity"]

    def start_next(self, server):
        """Start the next request of the queue; what is in the host's memory is read."""
        request = self.waiting.pop(0)
        self.running.append(request)
        had = self.service.get(request.client, 0.0)
        self.service[request.client] = had + request.rest
        if request.swapped:
            request.computed = max(0, request.swapped - request.found)
            self.swap_s += request.computed * server["swap_token_s"]
            self.swapped, request.swapped = self.swapped - request.swapped, 0

    def note_end(self, request):
        """Note what the client of a request that has ended had of it."""
        self.service[request.client] = self.service.get(request.client, 0.0) + 2 * request.osl

    def stop_last(self):
        """Take the request that started last out of the batch."""
        return self.running.pop()


def most_at_once(server):
    """Return how many requests run on a rank: all that decode are in every iteration of a mixed batch."""
    if server["mixes"]:
        return min(server["most"], max(1, server["budget"] // server["queries"]))
    return server["most"]


def compose(rank, server, seen):
    """Return (requests that decode, [(request, tokens of its prompt)]) of the next iteration.

    seen: requests that were sent until then may be in it [s].
    """
    most = most_at_once(server)
    decoding = rank.decoding() if server["mixes"] else []
    left = server["budget"] - len(decoding) * server["queries"]
    prompts, prefilling = [], [request for request in rank.running if not request.decodes]
    while left > 0:
        if prefilling:
            request = prefilling[0]
        elif (
            rank.waiting
            and rank.waiting[0].sent <= seen
            and len(rank.running) < most
            and rank.fits(rank.waiting[0], server)
        ):
            request = rank.waiting[0]
        else:
            break
        tokens = request.rest
        if tokens > left:
            if server["chunks"]:
                tokens = left
            elif tokens > server["budget"] and not prompts:
                decoding = []
            else:
                break
        if prefilling:
            prefilling.pop(0)
        else:
            rank.start_next(server)
        prompts.append((request, tokens))
        left -= tokens
    return decoding, prompts


def longest_first(rank, server, seen):
    """A policy: longest answers first, and none beside requests that decode before two wait."""
    arrived = sum(request.sent <= seen for request in rank.waiting)
    rank.waiting[:arrived] = sorted(rank.waiting[:arrived], key=lambda request: -request.osl)
    if rank.decoding() and arrived < 2:
        return rank.decoding() if server["mixes"] else [], []
    return compose(rank, server, seen)


def shortest_prompt(rank, server, seen):
    """A policy: shortest prompts first."""
    return sorted_by(lambda request: request.prompt, rank, server, seen)


def priority(rank, server, seen):
    """A policy: least priority values first."""
    return sorted_by(lambda request: request.priority, rank, server, seen)


def deadline(rank, server, seen):
    """A policy: the earliest deadline first."""
    return sorted_by(lambda request: request.deadline, rank, server, seen)


def fair_share(rank, server, seen):
    """A policy: a request of the client that had least, counting what those before it will compute."""
    is_asked = len(rank.decoding()) < len(rank.running) or len(rank.running) < most_at_once(server)
    arrived = [request for request in rank.waiting if request.sent <= seen]
    if not is_asked or (not arrived and len(rank.decoding()) == len(rank.running)):
        return compose(rank, server, seen)
    had = dict(rank.service)
    for request in rank.running:
        had[request.client] = had.get(request.client, 0.0) + 2 * request.made
    active = {request.client for request in rank.running} | rank.waited
    level = min((had.get(client, 0.0) for client in active), default=max(had.values(), default=0.0))
    for client in {request.client for request in arrived} - active:
        missing = max(0.0, level - had.get(client, 0.0))
        for counters in (rank.service, had):
            counters[client] = counters.get(client, 0.0) + missing
    left, ordered = list(arrived), []
    while left:
        least = min(left, key=lambda request: (had.get(request.client, 0.0), request.client))
        had[least.client] = had.get(least.client, 0.0) + least.rest
        left.remove(least)
        ordered.append(least)
    places = most_at_once(server) - len(rank.running)
    tokens = [sum(request.rest for request in ordered[:i]) for i in range(len(ordered))]
    front = [r for i, r in enumerate(ordered) if i < places and tokens[i] < server["budget"]]
    rank.waiting[: len(arrived)] = front + [request for request in arrived if request not in front]
    batch = compose(rank, server, seen)
    rank.waited = {request.client for request in rank.waiting if request.sent <= seen}
    return batch


def sorted_by(key, rank, server, seen):
    """Compose with the requests that have arrived in the order of a key; a full batch has no use for it."""
    arrived = sum(request.sent <= seen for request in rank.waiting)
    if len(rank.decoding()) < len(rank.running) or len(rank.running) < most_at_once(server):
        rank.waiting[:arrived] = sorted(rank.waiting[:arrived], key=key)
    return compose(rank, server, seen)


def decode_first(rank, server, seen):
    """A policy: no prompts where any request decodes."""
    if rank.decoding():
        return rank.decoding() if server["mixes"] else [], []
    return compose(rank, server, seen)


class Intake:
    """When a server looks for new requests, and for how long it has held prompts back."""

    def __init__(self):
        self.seen = 0.0  # requests sent until then are known to the server [s]
        self.last = None  # start of the last iteration [s]; None: the server was idle
        self.since = 0  # iterations since the server looked for requests
        self.held = 0  # iterations for which prompts waited, since any ran

    def look(self, server, now):
        """Look for requests where it is time; an iteration is composed while the one before runs, or not."""
        if self.last is None or self.since == server["interval"]:
            is_ahead = server["ahead"] and self.last is not None
            self.seen, self.since = self.last if is_ahead else now, 0

    def holds(self, server, ranks):
        """Say whether no prompt runs in the next iteration, though some could."""
        if not all(rank.decoding() for rank in ranks):
            return False
        if len(ranks) > 1:
            ready = [bool(self.prompts(server, rank)) for rank in ranks]
            return server["balances"] and any(ready) and not all(ready) and self.held < server["timeout"]
        tokens = sum(request.rest for request in self.prompts(server, ranks[0]))
        return 0 < tokens < server["wait_tokens"] and self.held < server["wait_iterations"]

    def prompts(self, server, rank):
        """Return the requests whose prompts are computed, or may be as far as the batch has places."""
        started = [request for request in rank.running if not request.decodes]
        places = most_at_once(server) - len(rank.running)
        known = [request for request in rank.waiting if request.sent <= self.seen]
        return started + known[: max(0, places)]

    def note(self, server, now, has_prompts, is_held):
        """Note an iteration that starts now."""
        self.last = now
        self.since = server["interval"] if has_prompts else self.since + 1
        self.held = 0 if has_prompts else self.held + is_held


def preempt(rank, server):
    count = 0
    while not server["reserves"] and rank.held() > server["capacity"] and len(rank.running) > 1:
        request = rank.stop_last()
        tokens = request.found + request.computed
        if request.decodes:
            request.made = float(floor(request.made + 1e-9))
            request.prompt = request.isl + int(request.made)
            tokens = request.prompt - 1
        request.computed, request.decodes = 0, False
        if tokens and rank.swapped + tokens <= server["swap_tokens"]:
            request.swapped = tokens
            rank.swapped += tokens
            rank.swap_s += tokens * server["swap_token_s"]
        rank.waiting.insert(0, request)
        count += 1
    return count


def graph_size(server, requests):
    """Return the requests of the graph that decodes some; None: the host launches the kernels."""
    if not server["step"] or requests > server["largest"]:
        return None
    sizes = {1, 2, 4} | set(range(server["step"], requests + server["step"], server["step"]))
    captured = [size for size in sizes if requests <= size <= server["largest"]]
    if not captured or not (server["pads"] or min(captured) == requests):
        return None
    return min(captured)


def parts_of(times, server, batches):
    """Return what parts of an iteration take [s]; batches: what `compose` returned, of every rank."""
    rows = in_it = 0
    tokens, slowest = [], (0.0, 0.0)
    for decoding, prompts in batches:
        n = len(decoding) * server["queries"]
        rows = max(rows, n + len(prompts))
        tokens.append(n + sum(more for _, more in prompts))
        in_it = max(in_it, len(decoding) + len(prompts))
        decode = prefill = 0.0
        if decoding:
            mean = sum(request.context for request in decoding) / len(decoding)
            decode = plane(times["requests"], times["context"], times["decode"], len(decoding), mean)
        for i, (request, more) in enumerate(prompts):
            table = times["prefill_more" if i else "prefill"]
            prefill += plane(times["chunk"], times["before"], table, more, request.found + request.computed)
        if decode + prefill > sum(slowest):
            slowest = decode, prefill
    least = server["eager_s"]
    mean = sum(tokens) / len(tokens)
    if not any(more for _, more in batches):
        size = graph_size(server, max(len(decoding) for decoding, _ in batches))
        least = server["launch_s"] if size is None else 0.0
        if size is not None:  # the fullest rank's; other ranks choose no further experts
            rows, mean = size * server["queries"], mean if len(tokens) > 1 else size * server["queries"]
            tokens = [rows]
    shared, head = shared_s(times, tokens, mean), line(times["tokens"], times["head"], rows)
    layers = shared + sum(slowest)
    return {
        "shared": shared + pass_s(server, layers, head) - layers - head,
        "head": head,
        "decode": slowest[0],
        "prefill": slowest[1],
        "host": server["iteration_s"] + server["row_s"] * in_it,
        "launches": max(0.0, least - layers - head),
        "draft": server["draft_s"] if any(decoding for decoding, _ in batches) else 0.0,
    }


def swap_s_of(ranks):
    """Return the time of swaps that the next iteration waits for, of the rank with most; they are done."""
    longest = max(rank.swap_s for rank in ranks)
    for rank in ranks:
        rank.swap_s = 0.0
    return longest


def simulate(times, server, lengths, arrivals, concurrency, prefix, trip_share, policy=compose):
    """Return (requests as they ended, iterations) of one server without pipeline stages.

    lengths: (isl, osl) of each request; arrivals: when they are sent, or None: a closed loop. trip_share: of
    a request's number, its round trip over the mean one. policy: as `compose`.
    """
    ranks = [Rank() for _ in range(server["ranks"])]
    every, now, intake, is_first_use = [], 0.0, Intake(), True
    encoders, clients_s = Encoders(server), []
    log = []  # (when it starts, totals) of each iteration

    def send(when, round_trip_s):
        number = len(every)
        if number < len(lengths):
            when += trip_share(number) * round_trip_s
            clients_s.append(when)
            request = Request(number, encoders.arrival(when), *lengths[number], server, prefix)
            every.append(request)
            waiting = ranks[number % len(ranks)].waiting
            waiting.insert(sum(other.sent <= request.sent for other in waiting), request)

    for when in arrivals if arrivals is not None else [0.0] * concurrency:
        send(when, 0.0)
    while any(rank.waiting or rank.running for rank in ranks):
        one = {"preemptions": sum(preempt(rank, server) for rank in ranks)}
        intake.look(server, now)
        is_held = intake.holds(server, ranks)
        if is_held:
            batches = [(rank.decoding(), []) for rank in ranks]
        else:
            batches = [policy(rank, server, intake.seen) for rank in ranks]
        has_prompts = any(prompts for _, prompts in batches)
        if not server["mixes"] and not has_prompts:
            batches = [(rank.decoding(), []) for rank in ranks]
        if not any(decoding or prompts for decoding, prompts in batches):
            now = max(now, min(rank.waiting[0].sent for rank in ranks if rank.waiting))
            intake.last = None
            continue
        intake.note(server, now, has_prompts, is_held)
        for _, prompts in batches:
            for request, _ in prompts:
                request.admitted = now if request.admitted is None else request.admitted
        parts = parts_of(times, server, batches) | {"swaps": swap_s_of(ranks)}
        took = sum(parts.values())
        one |= parts | {"cache": took * sum(rank.held() for rank in ranks)}
        log.append((now, one | {"iterations": 1, "with_prefill": has_prompts}))
        now += took
        if is_first_use and any(
            sum(more for _, more in prompts) >= server["budget"] for _, prompts in batches
        ):
            now, is_first_use = now + server["first_use_s"], False
        for rank, (decoding, prompts) in zip(ranks, batches, strict=True):
            for request in decoding:
                request.made += server["per_pass"]
            for request, tokens in prompts:
                request.computed += tokens
                if request.rest == 0:
                    request.made, request.decodes = request.made + 1.0, True
                    request.first = now if request.first is None else request.first
            for request in list(rank.running):
                if request.decodes and request.made >= request.osl - 1e-9:
                    rank.running.remove(request)
                    rank.note_end(request)
                    request.end = now
        if arrivals is None:
            for request in sorted(every, key=lambda request: request.number):
                if request.end == now and not hasattr(request, "followed"):
                    request.followed = True
                    send(now, server["round_trip_s"])
    for request in every:
        request.service = request.end - request.admitted
        request.arrived, request.sent = request.sent, clients_s[request.number]
    return every, log
