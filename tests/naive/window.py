"""What is measured of an open loop at random times: without its ramp and its drain. From the definitions."""

from math import sqrt


def parts_of(requests):
    """Return parts of the arrivals: lists of requests in the order of sending, 32 where there are so many."""
    size = -(-len(requests) // 32)
    return [requests[i : i + size] for i in range(0, len(requests), size)]


def mean(values):
    return sum(values) / len(values)


def per_token(parts):
    """Return the whole time of requests for each token of their answers [s]."""
    requests = [request for part in parts for request in part]
    return sum(r.end - r.sent for r in requests) / sum(r.osl for r in requests)


def truncation(values):
    """Return how many values are left out so that the standard error of the mean of the rest is least."""
    errors = []
    for first in range(max(1, len(values) - 4)):
        rest = values[first:]
        squares = sum((value - mean(rest)) ** 2 for value in rest) + 1e-12 * mean(rest) ** 2
        errors.append(squares / len(rest) ** 2)
    return errors.index(min(errors))


def window(requests, rate):
    """Return what is measured; requests: in the order of sending, each with the time for which it was served.

    A dict: from when to when [s], whether this is the whole run, the state, and the mean time served of those
    of the second half of the arrivals [s].
    """
    parts = parts_of(requests)
    starts = [part[0].sent for part in parts] + [requests[-1].sent]
    stop, half = starts[-1], len(parts) // 2
    late = [r for part in parts[half:] for r in part]
    service, sends = mean([r.service for r in late]), len(late) - 1
    many, lasts = max(0.05 * sends, 4 * sqrt(sends)), stop - starts[half]
    chance = max(0.0, sends - rate * lasts)
    ends = sum(starts[half] <= r.end < stop for r in requests)

    waiting, before = (sum(r.sent <= when < r.admitted for r in requests) for when in (stop, starts[half]))
    before -= late[0].admitted > late[0].sent
    ever_more = waiting - before - chance > many and lasts >= 2 * service
    found = {"is_whole": False, "stationary": False, "overload": False, "service": service}
    if ever_more or (sends - ends - chance > many and lasts >= 8 * service):
        return found | {"start": starts[half], "end": stop, "overload": True}
    complete = 0
    while complete < len(parts) and max(r.end for r in parts[complete]) <= stop:
        complete += 1
    filled = 1
    while filled < complete and starts[filled] < max(r.end for r in parts[0]):
        filled += 1
    if complete - filled < 8:
        return found | {"start": 0.0, "end": max(r.end for r in requests), "is_whole": True}
    ramp = truncation([per_token([part]) for part in parts[filled:complete]])
    first = filled + min(ramp, (complete - filled) // 2)
    middle = (first + complete) // 2
    one, two = per_token(parts[first:middle]), per_token(parts[middle:complete])
    whole = mean([r.end - r.sent for part in parts[first:complete] for r in part])
    lasts = starts[complete] - starts[first]
    ends = sum(starts[first] <= r.end < starts[complete] for r in requests)
    means = [per_token([part]) for part in parts[first:complete]]
    error = sqrt(sum((value - mean(means)) ** 2 for value in means)) / len(means)
    stationary = lasts >= 5 * whole and abs(one - two) <= 0.05 * (one + two) / 2
    stationary = (
        stationary and abs(ends - rate * lasts) <= 0.05 * rate * lasts and error <= 0.05 * mean(means)
    )
    return found | {"start": starts[first], "end": starts[complete], "stationary": stationary}


def sent_next(found, count, rate, most):
    """Return how many requests are sent next in a run that goes on; 0 where it has ended."""
    served = found["service"] * rate
    longest = int(min(4 * most, max(most, 20 * served)))
    if found["stationary"] or found["overload"] or count >= longest:
        return 0
    return int(min(longest, max(2 * count, 16 * served)))


def whole(requests):
    return {"start": 0.0, "end": max(r.end for r in requests), "is_whole": True}


def inside(found, start, end):
    """Return how much of a time lies in the window [s]."""
    return max(0.0, min(end, found["end"]) - max(start, found["start"]))


def has(found, when):
    return found["is_whole"] or found["start"] <= when < found["end"]
