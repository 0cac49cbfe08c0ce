"""When a simulation has shown that it misses a limit, from definitions. Requests are dictionaries."""

from tests.naive.percentile import percentile

EVENTS = ("sent", "first", "end")


def soonest(request, now):
    """Return a request whose open events happen now."""
    return request | {name: min(request[name], now) for name in EVENTS}


def latency(request, of):
    """Return a latency of a request; None for a time per token of one token."""
    if of == "ttft":
        return request["first"] - request["sent"] + request["host"]
    if of == "e2e":
        return request["end"] - request["sent"] + request["host"]
    return (request["end"] - request["first"]) / (request["osl"] - 1) if request["osl"] > 1 else None


def statistic(requests, of, share):
    """Return the mean of a latency (share 0), or a percentile; None where no request has it."""
    values = [value for request in requests if (value := latency(request, of)) is not None]
    if not values:
        return None
    return percentile(values, share) if share else sum(values) / len(values)


def misses(requests, of, share, limit):
    """Say whether a latency of requests is above its limit."""
    value = statistic(requests, of, share)
    return value is not None and value > limit
