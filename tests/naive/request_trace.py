"""Requests of a trace in order, and their texts, by lists of plain numbers: slow, and obvious."""


def ordered(lines):
    """Return requests by arrival, each turn that waits after the turn before it; a list of dicts.

    lines: dicts with line, isl, osl, arrival or wait, and session, turn, hashes, class; None for nothing.
    Turns of a session have to be numbered, and to arrive in their order.
    """
    requests = [dict(line) for line in lines]
    first = min(request["arrival"] for request in requests if request["arrival"] is not None)
    chains = {}
    for request in requests:
        alone = ("alone", request["line"])
        chains.setdefault(alone if request["session"] is None else request["session"], []).append(request)
    groups = []  # requests that stand together: turns of a session that arrive at once, or wait for one
    for chain in chains.values():
        chain.sort(key=lambda request: request["turn"] or 0)
        for k, request in enumerate(chain):
            request["rank"] = k
            request["before"] = chain[k - 1] if k else None
            if request["arrival"] is not None and not (groups and k and groups[-1][0] == request["arrival"]):
                groups.append((request["arrival"], [request]))
            else:
                groups[-1][1].append(request)
    groups.sort(key=lambda group: (group[0], min(request["line"] for request in group[1])))
    result = [request for _, group in groups for request in group]
    for i, request in enumerate(result):
        request["follower"] = -1
        request["waits"] = request["arrival"] is None
        request["sent"] = request["wait"] if request["waits"] else request["arrival"] - first
        if request["waits"]:
            index = next(j for j, other in enumerate(result[:i]) if other is request["before"])
            result[index]["follower"] = i
    return result


def numbered(values):
    """Return values as numbers by first use, -1 for None, and the values."""
    names = list(dict.fromkeys(value for value in values if value is not None))
    return [-1 if value is None else names.index(value) for value in values], names


def prompts_and_answers(requests, block_tokens, shared_prefix=0, by_adapter=False):
    """Return the tokens of each prompt and of each answer, as labels: equal labels are the same token.

    requests: of `ordered`, with `before` for the turn before; by_adapter: another adapter's are others.
    """
    prompts, answers = [], []
    for i, request in enumerate(requests):
        hashes, isl = request["hashes"] or [], request["isl"]
        prompt = []
        before = next((j for j in range(i) if requests[j] is request["before"]), None)
        adapter = request["adapter"] if by_adapter else None
        if before is not None and by_adapter and requests[before]["adapter"] != adapter:
            before = None
        if hashes:
            for k in range(len(hashes)):
                piece = min(block_tokens, isl - len(prompt))
                prompt += [(adapter, tuple(hashes[: k + 1]), piece, token) for token in range(piece)]
        elif before is not None and isl > len(prompts[before]) + len(answers[before]):
            prompt = prompts[before] + answers[before]
        elif isl > shared_prefix:
            prompt = [("shared", adapter, token) for token in range(shared_prefix)]
        prompt = prompt + [("new", i, token) for token in range(isl - len(prompt))]
        prompts.append(prompt)
        answers.append([("answer", i, token) for token in range(request["osl"])])
    return prompts, answers


def common(one, other):
    """Return how many tokens two texts have in common, from the first on."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count
