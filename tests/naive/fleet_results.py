"""Results of groups of requests and of sessions, from definitions. Requests are dictionaries."""

from tests.naive.percentile import percentile


def shares(values):
    """Return the percentiles of values by their number."""
    return {share: percentile(values, share) for share in (50, 90, 95, 99)}


def of_requests(requests, duration):
    """Return the results of some requests; duration: of the run [s]."""
    results = {"requests": len(requests)}
    times = {
        "ttft": [request["first"] - request["sent"] + request["host"] for request in requests],
        "tpot": [
            (request["end"] - request["first"]) / (request["osl"] - 1)
            for request in requests
            if request["osl"] > 1
        ],
        "e2e": [request["end"] - request["sent"] + request["host"] for request in requests],
    }
    for name, values in times.items():
        if values:
            results |= {f"{name}_p{share}_s": value for share, value in shares(values).items()}
    prompts = sum(request["isl"] for request in requests)
    results["goodput_per_s"] = sum(request["within"] for request in requests) / duration
    results["prefix_hit_rate"] = sum(request["cached"] for request in requests) / prompts
    results["tier_hit_rate"] = sum(request["read"] for request in requests) / prompts
    return results


def by_class(requests, duration):
    """Return the results of each class of service that requests have."""
    names = {request["class"] for request in requests} - {None}
    return {name: of_requests([r for r in requests if r["class"] == name], duration) for name in names}


def name_of_turn(request):
    """Return the name of the group of a request's turn, None without a session."""
    if request["session"] is None:
        return None
    turn = request["turn"] + 1
    return str(turn) if turn < 3 else "3-5" if turn <= 5 else "6+"


def by_turn(requests, duration):
    """Return the results of each group of turns."""
    names = {name_of_turn(request) for request in requests} - {None}
    return {name: of_requests([r for r in requests if name_of_turn(r) == name], duration) for name in names}


def sessions(requests):
    """Return how long each session lasts, and how long it waits for answers, by session [s]."""
    names = {request["session"] for request in requests} - {None}
    times = {}
    for name in names:
        own = [request for request in requests if request["session"] == name]
        ends = [request["end"] + request["host"] for request in own]
        lasts = max(ends) - min(request["sent"] for request in own)
        times[name] = lasts, sum(end - request["sent"] for end, request in zip(ends, own, strict=True))
    return times


def later_hit_rate(requests):
    """Return the share of later turns' prompts that the cache has, None without later turns."""
    later = [request for request in requests if request["session"] is not None and request["turn"] > 0]
    prompts = sum(request["isl"] for request in later)
    return sum(request["cached"] for request in later) / prompts if later else None
