"""A server, iteration by iteration: what each request sees. Plain lists, from the definitions."""

from math import floor

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


class Request:
    def __init__(self, number, sent, isl, osl, server, prefix):
        self.number, self.sent, self.isl, self.osl = number, sent, isl, osl
        self.found = min(floor(prefix * isl), isl - 1)
        self.made = 0.0  # tokens of the answer
        self.prompt, self.computed = isl, 0  # to compute, `found` included, and computed of it
        self.decodes = False
        self.admitted = self.first = self.end = None

    @property
    def context(self):
        """Tokens in the cache in its next pass, the last one made among them; a prompt is held as a whole."""
        return self.isl + self.made if self.decodes else self.prompt

    @property
    def rest(self):
        return self.prompt - self.found - self.computed


class Rank:
    def __init__(self):
        self.waiting, self.running = [], []

    def decoding(self):
        return [request for request in self.running if request.decodes]

    def held(self):
        return sum(request.context for request in self.running)


def fits(rank, request, server):
    if server["reserves"]:
        reserved = sum(other.isl + other.osl for other in rank.running)
        return reserved + request.isl + request.osl <= server["capacity"]
    return rank.held() + request.prompt <= server["capacity"]


def compose(rank, server, now):
    """Return (requests that decode, [(request, tokens of its prompt)]) of the next iteration; admits."""
    most = server["most"]
    if server["mixes"]:
        most = min(most, max(1, server["budget"] // server["queries"]))
    decoding = rank.decoding() if server["mixes"] else []
    left = server["budget"] - len(decoding) * server["queries"]
    prompts, prefilling = [], [request for request in rank.running if not request.decodes]
    while left > 0:
        if prefilling:
            request = prefilling[0]
        elif (
            rank.waiting
            and rank.waiting[0].sent <= now
            and len(rank.running) < most
            and fits(rank, rank.waiting[0], server)
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
            rank.running.append(rank.waiting.pop(0))
            if request.admitted is None:
                request.admitted = now
        prompts.append((request, tokens))
        left -= tokens
    return decoding, prompts


def longest_first(rank, server, now):
    """A policy: longest answers first, and none beside requests that decode before two wait."""
    arrived = sum(request.sent <= now for request in rank.waiting)
    rank.waiting[:arrived] = sorted(rank.waiting[:arrived], key=lambda request: -request.osl)
    if rank.decoding() and arrived < 2:
        return rank.decoding() if server["mixes"] else [], []
    return compose(rank, server, now)


def preempt(rank, server):
    count = 0
    while not server["reserves"] and rank.held() > server["capacity"] and len(rank.running) > 1:
        request = rank.running.pop()
        if request.decodes:
            request.made = float(floor(request.made + 1e-9))
            request.prompt = request.isl + int(request.made)
        request.computed, request.decodes = 0, False
        rank.waiting.insert(0, request)
        count += 1
    return count


def parts_of(times, server, batches):
    """Return what parts of an iteration take [s]; batches: what `compose` returned, of every rank."""
    tokens = rows = in_it = 0
    slowest = (0.0, 0.0)
    for decoding, prompts in batches:
        n = len(decoding) * server["queries"]
        rows = max(rows, n + len(prompts))
        tokens = max(tokens, n + sum(more for _, more in prompts))
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
    shared, head = line(times["tokens"], times["shared"], tokens), line(times["tokens"], times["head"], rows)
    layers = shared + sum(slowest)
    return {
        "shared": shared + pass_s(server, layers, head) - layers - head,
        "head": head,
        "decode": slowest[0],
        "prefill": slowest[1],
        "host": server["iteration_s"] + server["row_s"] * in_it,
        "draft": server["draft_s"] if any(decoding for decoding, _ in batches) else 0.0,
    }


def simulate(times, server, lengths, arrivals, concurrency, prefix, policy=compose):
    """Return (requests as they ended, iterations) of one server without pipeline stages.

    lengths: (isl, osl) of each request; arrivals: when they are sent, or None: a closed loop. policy: as
    `compose`.
    """
    ranks = [Rank() for _ in range(server["ranks"])]
    every, now = [], 0.0
    log = []  # (when it starts, totals) of each iteration

    def send(when):
        number = len(every)
        if number < len(lengths):
            request = Request(number, when, *lengths[number], server, prefix)
            every.append(request)
            ranks[number % len(ranks)].waiting.append(request)

    for i in range(len(lengths) if arrivals is not None else concurrency):
        send(arrivals[i] if arrivals is not None and i < len(arrivals) else 0.0)
    while any(rank.waiting or rank.running for rank in ranks):
        one = {"preemptions": sum(preempt(rank, server) for rank in ranks)}
        batches = [policy(rank, server, now) for rank in ranks]
        has_prompts = any(prompts for _, prompts in batches)
        if not server["mixes"] and not has_prompts:
            batches = [(rank.decoding(), []) for rank in ranks]
        if not any(decoding or prompts for decoding, prompts in batches):
            now = min(rank.waiting[0].sent for rank in ranks if rank.waiting)
            continue
        parts = parts_of(times, server, batches)
        took = sum(parts.values())
        one |= parts | {"cache": took * sum(rank.held() for rank in ranks)}
        log.append((now, one | {"iterations": 1, "with_prefill": has_prompts}))
        now += took
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
                    request.end = now
        if arrivals is None:
            for request in sorted(every, key=lambda request: request.number):
                if request.end == now and not hasattr(request, "followed"):
                    request.followed = True
                    send(now)
    for request in every:
        request.service = request.end - request.admitted
    return every, log
