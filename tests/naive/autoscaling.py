"""Pools of servers of which some are on: how many, and which. Plain lists, from the definitions."""

from math import ceil

OFF, STARTING, OPEN, DRAINING = range(4)
"""States of a server: a draining one ends the requests it has, and then is off."""
NEVER_SCALES, BY_QUEUE, BY_RATE, BY_LATENCY = range(4)
"""Kinds of scalers: by requests in flight, by arrivals a second, by the wait for the first token."""


class Member:
    """A server of a pool: whether it is on."""

    def __init__(self, start_s):
        self.start_s = start_s
        self.opens_at = None  # where it is starting [s]
        self.starts = 0
        self.states = [(0.0, OFF)]  # (since when, state), the present one last

    @property
    def state(self):
        """Return the present state."""
        return self.states[-1][1]

    def start_up(self, now):
        """Let a server that is off start."""
        self.states.append((now, STARTING))
        self.opens_at = now + self.start_s
        self.starts += 1

    def open(self, now):
        """Let a server take requests."""
        self.states.append((now, OPEN))
        self.opens_at = None

    def drain(self, now):
        """Let a server take no further requests."""
        self.states.append((now, DRAINING))

    def turn_off(self, now):
        """Turn a server off that has no requests."""
        self.states.append((now, OFF))
        self.opens_at = None

    def on_s(self, last):
        """Return for how long the server was on until the last request ended [s]."""
        ends = [min(since, last) for since, _ in self.states[1:]] + [last]
        periods = zip(self.states, ends, strict=True)
        return sum(end - min(since, last) for (since, state), end in periods if state != OFF)


class ServerPool:
    """Servers of a pool, and the requests that wait until one of them opens."""

    def __init__(self, options, servers):
        """Open the servers that are on at first.

        servers: of this pool, by number; each is a `Member` that knows its number of requests in flight.
        """
        self.options, self.servers = options, servers
        self.waiting = []  # requests at the router, in order of arrival
        self.ticks = 0
        self.steady_since = 0.0  # when as many servers as are active, or more, were needed last [s]
        self.arrivals = 0  # since the last tick
        self.waits_s = []  # for first tokens since the last tick
        never = options["kind"] == NEVER_SCALES
        for server in servers if never else servers[: options["least"]]:
            server.open(0.0)

    def next_tick(self):
        """Return when the scaler is called next [s], or None."""
        if self.options["kind"] == NEVER_SCALES:
            return None
        return (self.ticks + 1) * self.options["interval_s"]

    def of(self, *states):
        """Return the servers in some states, by number."""
        return [server for server in self.servers if server.state in states]

    def needed(self):
        """Return how many servers the scaler wants."""
        kind, active = self.options["kind"], len(self.of(OPEN, STARTING))
        if kind == BY_QUEUE:
            value = sum(server.in_flight() for server in self.servers) + len(self.waiting)
        elif kind == BY_RATE:
            value = self.arrivals / self.options["interval_s"]
        elif not self.waits_s:
            return active
        else:
            value = active * sum(self.waits_s) / len(self.waits_s)
        return ceil(value / self.options["target"] - 1e-9)

    def desired(self):
        """Return how many servers are to be active, at least one where requests wait for it."""
        least = max(self.options["least"], 1 if self.waiting else 0)
        return min(max(self.needed(), least), self.options["most"])

    def tick(self, now):
        """Scale the pool."""
        desired, active = self.desired(), len(self.of(OPEN, STARTING))
        self.ticks, self.arrivals, self.waits_s = self.ticks + 1, 0, []
        if desired >= active:
            self.steady_since = now
        elif now - self.steady_since < self.options["stabilization_s"]:
            return
        for _ in range(desired - active):
            self.add_one(now)
        for _ in range(active - desired):
            self.drop_one(now)

    def add_one(self, now):
        """Make one more server active, if there is one."""
        draining, off = self.of(DRAINING), self.of(OFF)
        if draining:
            draining[0].open(now)
        elif off:
            off[0].start_up(now)

    def drop_one(self, now):
        """Make one server less active."""
        starting = self.of(STARTING)
        if starting:
            starting[-1].turn_off(now)
            return
        last = self.of(OPEN)[-1]
        last.drain(now)
        self.turn_off_drained(now)

    def turn_off_drained(self, now):
        """Turn servers off that are draining and have no requests."""
        for server in self.of(DRAINING):
            if server.in_flight() == 0:
                server.turn_off(now)
