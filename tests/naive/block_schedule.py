"""A pipeline's schedule in blocks, written from the papers: programs of stages, and starts that only grow.

The start of every block, and the end of every message, begins at nothing and is put off until nothing that
it waits for is later: the least solution of all "not before".
"""

FORWARD, BACKWARD, WEIGHT = 0, 1, 3


def program(order, stages, stage, chunks, microbatches):
    """Return a stage's blocks in their order: (kind, chunk, micro-batch)."""
    if order == "gpipe":
        forwards = [(FORWARD, c, m) for c in range(chunks) for m in range(microbatches)]
        return forwards + [(BACKWARD, c, m) for _, c, m in reversed(forwards)]
    if order == "interleaved" and chunks > 1:
        return interleaved(stages, stage, chunks, microbatches)
    assert chunks == 1
    warm = min(stages - stage - 1, microbatches)
    done, waiting = [(FORWARD, 0, m) for m in range(warm)], []
    for back in range(microbatches):
        if warm + back < microbatches:
            done.append((FORWARD, 0, warm + back))
        done.append((BACKWARD, 0, back))
        if order == "zero_bubble":
            waiting.append((WEIGHT, 0, back))
            if back >= stage:  # "delay W by rank"
                done.append(waiting.pop(0))
    return done + waiting


def interleaved(stages, stage, chunks, microbatches):
    """Megatron-LM's forward_backward_pipelining_with_interleaving."""
    total = microbatches * chunks

    def block(kind, k):
        chunk = k % (stages * chunks) // stages
        if kind == BACKWARD:
            chunk = chunks - chunk - 1
        return kind, chunk, k // (stages * chunks) * stages + k % stages

    warm = min((stages - stage - 1) * 2 + (chunks - 1) * stages, total)
    done = [block(FORWARD, k) for k in range(warm)]
    for k in range(total - warm):
        done += [block(FORWARD, k + warm), block(BACKWARD, k)]
    return done + [block(BACKWARD, k) for k in range(total - warm, total)]


def most_in_flight(order, stages, stage, chunks, microbatches):
    """Return the most blocks that are forward and not back, and how many weight gradients wait then."""
    count, waits, most = 0, 0, (0, 0)
    for kind, _, _ in program(order, stages, stage, chunks, microbatches):
        count += {FORWARD: 1, BACKWARD: -1, WEIGHT: 0}[kind]
        waits += {FORWARD: 0, BACKWARD: 1, WEIGHT: -1}[kind] if order == "zero_bubble" else 0
        most = max(most, (count, waits))
    return most


def works(point):
    """Return what blocks of each kind take, for every virtual stage."""
    if point["order"] == "zero_bubble":
        return {FORWARD: point["forward"], BACKWARD: point["input"], WEIGHT: point["weight"]}
    both = [a + b for a, b in zip(point["input"], point["weight"], strict=True)]
    return {FORWARD: point["forward"], BACKWARD: both}


def starts(point):
    """Return when each block starts, by (kind, virtual stage, micro-batch), and when each stage is done."""
    stages, chunks = point["stages"], point["chunks"]
    send, work, last = point["send"], works(point), stages * chunks - 1
    programs = [
        [
            (kind, c * stages + stage, m)
            for kind, c, m in program(point["order"], stages, stage, chunks, point["microbatches"])
            if kind != WEIGHT or work[kind][stage] > 0.0  # else there is no such block
        ]
        for stage in range(stages)
    ]
    start = {block: 0.0 for blocks in programs for block in blocks}
    sent = dict.fromkeys(start, 0.0)  # when a block's message is there

    def comes_from(kind, virtual, m):
        if kind == FORWARD and virtual > 0:
            return (FORWARD, virtual - 1, m), send[virtual - 1]
        if kind == BACKWARD and virtual < last:
            return (BACKWARD, virtual + 1, m), send[virtual]
        return None, 0.0

    def goes_on(kind, virtual):
        if kind == FORWARD and virtual < last:
            return send[virtual]
        return send[virtual - 1] if kind == BACKWARD and virtual > 0 else 0.0

    def end(block):
        return end_of(point, block, start[block])

    def not_before(stage, place):
        block, blocks = programs[stage][place], programs[stage]
        source, received = comes_from(*block)
        times = [gathered(point, stage, block, place)]
        if not point["overlaps_sends"]:
            times = [time + received for time in times]
        if place > 0:
            before = blocks[place - 1]
            times.append(end(before))
            if not point["overlaps_sends"]:
                times += [end(before) + goes_on(*before[:2]), end(before) + received]
        if source:
            times.append(sent[source] if point["overlaps_sends"] else end(source) + received)
        return max(times)

    changed = True
    while changed:
        changed = False
        for stage, blocks in enumerate(programs):
            wire = {FORWARD: 0.0, BACKWARD: 0.0, WEIGHT: 0.0}
            for place, block in enumerate(blocks):
                new = not_before(stage, place)
                wire[block[0]] = max(wire[block[0]], end(block)) + goes_on(*block[:2])
                changed |= new > start[block] or wire[block[0]] > sent[block]
                start[block], sent[block] = max(new, start[block]), wire[block[0]]
    done = []
    for blocks in programs:
        lasts = 0.0 if point["overlaps_sends"] else goes_on(*blocks[-1][:2])
        done.append(end(blocks[-1]) + lasts)
    return start, done


def end_of(point, block, start):
    """Return when a block is done: slowly while its stage's weights are gathered, at full pace after that."""
    kind, virtual, _ = block
    work, stages = works(point)[kind][virtual], point["stages"]
    until = sum(point["gather"][virtual % stages :: stages])
    if kind != FORWARD or not point["overlaps_gathers"] or start >= until:
        return start + work
    done = (until - start) * (1.0 - point["taken"])
    return start + work / (1.0 - point["taken"]) if done >= work else until + work - done


def gathered(point, stage, block, place):
    """Return when the weights of a block are there, where they are new to it."""
    stages, gather = point["stages"], point["gather"]
    if not point["overlaps_gathers"]:
        return sum(gather[stage::stages]) if place == 0 else 0.0
    kind, virtual, _ = block
    return sum(gather[stage : virtual + 1 : stages]) if kind == FORWARD else 0.0


def reduced(point, start, done):
    """Return when each stage has its gradients summed, bucket by bucket."""
    stages, work, until = point["stages"], works(point), []
    for stage in range(stages):
        own = range(stage, stages * point["chunks"], stages)
        if not point["overlaps_gradients"]:
            until.append(
                done[stage] + sum(point["reduce"][virtual] + point["tail"][virtual] for virtual in own)
            )
            continue
        buckets = []
        for virtual in own:
            kind = WEIGHT if (WEIGHT, virtual, 0) in start else BACKWARD
            last = max(time for (k, v, _), time in start.items() if (k, v) == (kind, virtual))
            count = point["layers"][virtual]
            share = work[kind][virtual] / count
            buckets += [
                (last + share * (i + 1), place, point["reduce"][virtual] / count)
                for place, i in enumerate(range(count))
            ]
            buckets += [(last + work[kind][virtual], count, point["tail"][virtual])]
        now = progress = 0.0  # what the stage has done by now is what it does by `progress` without sums
        for ready, _, lasts in sorted(buckets):
            waits = max(0.0, ready - progress)  # nothing moves
            now, progress = now + waits + lasts, progress + waits + lasts * (1.0 - point["taken"])
        until.append(now + max(0.0, done[stage] - progress))
    return until


def without(point, *names):
    """Return a point where some times are nothing."""
    return point | {name: [0.0] * len(point[name]) for name in names}


def total(point):
    """Return when the last stage has its gradients summed."""
    start, done = starts(point)
    return max(reduced(point, start, done))


def times(point):
    """Return the fields of BlockTimes."""
    start, _ = starts(point)
    stages, whole = point["stages"], total(point)
    busiest = point["microbatches"] * max(
        sum(sum(point[name][stage::stages]) for name in ("forward", "input", "weight"))
        for stage in range(stages)
    )
    return [
        whole,
        min(time for (kind, _, _), time in start.items() if kind == BACKWARD),
        busiest,
        total(without(point, "send", "reduce", "tail", "gather")) - busiest,
        *(whole - total(without(point, *names)) for names in (("send",), ("reduce", "tail"), ("gather",))),
    ]
