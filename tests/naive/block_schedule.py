"""A pipeline's schedule in blocks, written from the papers: programs of stages, and starts that only grow.

The start of every block, and the end of every message, begins at nothing and is put off until nothing that
it waits for is later: the least solution of all "not before".
"""

FORWARD, BACKWARD, WEIGHT = 0, 1, 3


SPLIT = ("zero_bubble", "zb_2p", "zb_v", "dualpipe_v")  # orders with blocks of weight gradients
FOLDED = ("zb_v", "dualpipe_v")  # whose second chunks run from the last stage to the first


def virtual_of(order, stages, stage, chunk):
    """Return the virtual stage that is a stage's chunk."""
    return 2 * stages - 1 - stage if order in FOLDED and chunk == 1 else chunk * stages + stage


def stage_of(point, virtual):
    """Return the stage that has a virtual stage."""
    stages, chunks = range(point["stages"]), range(point["chunks"])
    (stage,) = (s for s in stages for c in chunks if virtual_of(point["order"], len(stages), s, c) == virtual)
    return stage


def own(point, stage):
    """Return the virtual stages of a stage, in the order of its chunks."""
    return [virtual_of(point["order"], point["stages"], stage, c) for c in range(point["chunks"])]


def program(order, stages, stage, chunks, microbatches):
    """Return a stage's blocks in their order: (kind, chunk, micro-batch)."""
    if order == "gpipe":
        forwards = [(FORWARD, c, m) for c in range(chunks) for m in range(microbatches)]
        return forwards + [(BACKWARD, c, m) for _, c, m in reversed(forwards)]
    if order == "interleaved" and chunks > 1:
        return interleaved(stages, stage, chunks, microbatches)
    if order == "zb_v":
        return zb_v(stages, stage, microbatches)
    if order == "dualpipe_v":
        return dualpipe_v(stages, stage, microbatches)
    assert chunks == 1
    # ZB-H2 fills the wait for the first gradient with forwards, and the end with weight gradients
    often = 2 if order == "zb_2p" else 1
    warm = min(often * (stages - stage - 1), microbatches)
    done, waiting = [(FORWARD, 0, m) for m in range(warm)], []
    for back in range(microbatches):
        if warm + back < microbatches:
            done.append((FORWARD, 0, warm + back))
        done.append((BACKWARD, 0, back))
        if order in SPLIT:
            waiting.append((WEIGHT, 0, back))
            if back >= often * stage:  # "delay W by rank"
                done.append(waiting.pop(0))
    return done + waiting


def group_size(stages, microbatches):
    """Return Megatron-LM's smallest microbatch_group_size_per_vp_stage that a batch allows."""
    return next(
        size
        for size in range(stages, microbatches + 1)
        if microbatches % size == 0 or microbatches % size >= stages
    )


def interleaved(stages, stage, chunks, microbatches):
    """Megatron-LM's forward_backward_pipelining_with_interleaving, with its table of get_schedule_table."""
    total, group = microbatches * chunks, group_size(stages, microbatches)
    table = [
        (c, m)
        for first in range(0, microbatches, group)
        for c in range(chunks)
        for m in range(first, min(first + group, microbatches))
    ]

    def block(kind, k):
        chunk, microbatch = table[k]
        return kind, chunks - chunk - 1 if kind == BACKWARD else chunk, microbatch

    warm = min((stages - stage - 1) * 2 + (chunks - 1) * group, total)
    done = [block(FORWARD, k) for k in range(warm)]
    for k in range(total - warm):
        done += [block(FORWARD, k + warm), block(BACKWARD, k)]
    return done + [block(BACKWARD, k) for k in range(total - warm, total)]


class _Counted:
    """Blocks of a stage with two chunks: the next micro-batch of each kind and chunk, in turn."""

    def __init__(self):
        self.blocks, self.next, self.delayed = [], {}, []

    def add(self, kind, chunk):
        microbatch = self.next.get((kind, chunk), 0)
        self.next[kind, chunk] = microbatch + 1
        self.blocks.append((kind, chunk, microbatch))

    def back(self, chunk, delays=True):
        """Add a gradient of the input, whose weight gradient comes later, or is in it."""
        if delays:
            self.delayed.append((WEIGHT, chunk, self.next.get((BACKWARD, chunk), 0)))
        self.add(BACKWARD, chunk)

    def weight(self):
        self.blocks.append(self.delayed.pop(0))


def zb_v(stages, stage, microbatches):
    """ZB-V as ScheduleZBVZeroBubble of PyTorch has it: for many micro-batches, less those that are not."""
    many, counted = max(2 * stages - 1, microbatches), _Counted()
    for _ in range(2 * (stages - stage) - 1):
        counted.add(FORWARD, 0)
    for _ in range(stage):
        counted.add(FORWARD, 1)
        counted.add(FORWARD, 0)
    for _ in range(stages - stage):
        counted.add(FORWARD, 1)
        counted.back(1)
        counted.weight()
    done = counted.next
    while done[FORWARD, 1] < many:
        if done[FORWARD, 0] < many:
            counted.add(FORWARD, 0)
        counted.back(0)
        counted.weight()
        counted.add(FORWARD, 1)
        counted.back(1)
        counted.weight()
    for _ in range(stage):
        counted.back(0)
        counted.back(1)
    for _ in range(stages - stage):
        counted.back(0)
        counted.blocks.append(next(block for block in counted.delayed if block[1] == 0))
        counted.delayed.remove(counted.blocks[-1])
    counted.blocks += sorted(counted.delayed, key=lambda block: (-block[1], block[2]))
    return [block for block in counted.blocks if block[2] < microbatches]


def dualpipe_v(stages, stage, microbatches, joint=None):
    """DualPipeV, the eight steps of deepseek-ai/DualPipe: of half of DualPipe's devices.

    joint: gets the places of the forward blocks that run together with the backward block after them.
    """
    assert microbatches >= 2 * stages
    counted, joint = _Counted(), [] if joint is None else joint

    def both(forward, back, together=True):
        if together:
            joint.append(len(counted.blocks))
        counted.add(FORWARD, forward)
        counted.back(back, delays=False)

    for _ in range(2 * (stages - stage - 1)):
        counted.add(FORWARD, 0)
    for _ in range(stage + 1):
        counted.add(FORWARD, 0)
        counted.add(FORWARD, 1)
    for _ in range(stages - stage - 1):
        counted.back(1)
        counted.weight()
        counted.add(FORWARD, 1)
    for i in range(microbatches - 2 * stages + stage + 1):
        both(0, 1, i > 0 or stage + 1 < stages)
        both(1, 0)
    for _ in range(stages - stage - 1):
        counted.back(1, delays=False)
        both(1, 0)
    for i in range(2 * (stage + 1)):
        counted.back(1 - i % 2, delays=i > stage)
    for _ in range(stages - stage - 1):
        counted.weight()
        counted.back(0)
    while counted.delayed:
        counted.weight()
    return counted.blocks


def most_in_flight(order, stages, stage, chunks, microbatches):
    """Return the most blocks that are forward and not back, and how many weight gradients wait then."""
    count, waits, most = 0, 0, (0, 0)
    blocks = program(order, stages, stage, chunks, microbatches)
    for kind, chunk, m in blocks:
        count += {FORWARD: 1, BACKWARD: -1, WEIGHT: 0}[kind]
        waits += {FORWARD: 0, BACKWARD: (WEIGHT, chunk, m) in blocks, WEIGHT: -1}[kind]
        most = max(most, (count, waits))
    return most


def most_kept(order, stages, stage, chunks, microbatches):
    """Return the most blocks that are forward, and whose weight gradients are not done."""
    kept, most = 0, 0
    blocks = program(order, stages, stage, chunks, microbatches)
    for kind, chunk, m in blocks:
        most = max(most, kept := kept + (kind == FORWARD))
        kept -= kind == WEIGHT or (kind == BACKWARD and (WEIGHT, chunk, m) not in blocks)
    return most


def programs_of(point):
    """Return the blocks of every stage: (kind, virtual stage, micro-batch)."""
    order, stages = point["order"], point["stages"]
    return [
        [
            (kind, virtual_of(order, stages, stage, c), m)
            for kind, c, m in program(order, stages, stage, point["chunks"], point["microbatches"])
            if kind != WEIGHT or point["weight"][virtual_of(order, stages, stage, c)] > 0.0
        ]
        for stage in range(stages)
    ]


def joint_places(point, stage):
    """Return the places of a stage's forward blocks that run together with the backward block after them."""
    joint = []
    if point["order"] == "dualpipe_v":
        dualpipe_v(point["stages"], stage, point["microbatches"], joint)
    return joint


def works(point):
    """Return what every block takes."""
    blocks = {block for blocks in programs_of(point) for block in blocks}
    name = {FORWARD: "forward", BACKWARD: "input", WEIGHT: "weight"}

    def work(block):
        kind, virtual, m = block
        both = kind == BACKWARD and (WEIGHT, virtual, m) not in blocks
        return point[name[kind]][virtual] + both * point["weight"][virtual]

    return {block: work(block) for block in blocks}


def starts(point):
    """Return when each block starts, by (kind, virtual stage, micro-batch), and when each stage is done."""
    stages, work = point["stages"], works(point)
    last, programs = stages * point["chunks"] - 1, programs_of(point)
    at = {virtual: stage_of(point, virtual) for virtual in range(last + 1)}
    send = [  # nothing moves within a stage
        time if virtual == last or at[virtual] != at[virtual + 1] or point["order"] not in FOLDED else 0.0
        for virtual, time in enumerate(point["send"])
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
        return end_of(point, block, start[block], work[block])

    together = [joint_places(point, stage) for stage in range(stages)]
    pair = {}  # of blocks that run together, the one that begins and the one that ends
    for stage, places in enumerate(together):
        for place in places:
            blocks = programs[stage][place : place + 2]
            pair |= dict.fromkeys(blocks, blocks)

    def leaves(block):
        return end(pair.get(block, [block])[-1])

    def moves(block, of):
        """Return what a block sends or receives, or two that run together at the same time."""
        return max(of(one) for one in pair.get(block, [block]))

    def not_before(stage, place):
        block, blocks = programs[stage][place], programs[stage]
        before, is_second = blocks[place - 1], place - 1 in together[stage]
        times = [end(before)] if place > 0 else []
        if is_second:
            return end(before)
        times.append(gathered(point, stage, block, place))
        received = moves(block, lambda one: comes_from(*one)[1])
        if not point["overlaps_sends"]:
            times = [time + received for time in times]
            times += [end(before) + moves(before, lambda one: goes_on(*one[:2]))] if place > 0 else []
        for one in pair.get(block, [block]):
            source, _ = comes_from(*one)
            if source:
                times.append(sent[source] if point["overlaps_sends"] else leaves(source) + received)
        return max(times)

    changed = True
    while changed:
        changed = False
        for stage, blocks in enumerate(programs):
            wire = {FORWARD: 0.0, BACKWARD: 0.0, WEIGHT: 0.0}
            for place, block in enumerate(blocks):
                new = not_before(stage, place)
                wire[block[0]] = max(wire[block[0]], leaves(block)) + goes_on(*block[:2])
                changed |= new > start[block] or wire[block[0]] > sent[block]
                start[block], sent[block] = max(new, start[block]), wire[block[0]]
    done = []
    for blocks in programs:
        lasts = 0.0 if point["overlaps_sends"] else moves(blocks[-1], lambda one: goes_on(*one[:2]))
        done.append(end(blocks[-1]) + lasts)
    return start, done


def end_of(point, block, start, work):
    """Return when a block is done: slowly while its stage's weights are gathered, at full pace after that."""
    kind, virtual, _ = block
    until = sum(point["gather"][v] for v in own(point, stage_of(point, virtual)))
    if kind != FORWARD or not point["overlaps_gathers"] or start >= until:
        return start + work
    done = (until - start) * (1.0 - point["taken"])
    return start + work / (1.0 - point["taken"]) if done >= work else until + work - done


def gathered(point, stage, block, place):
    """Return when the weights of a block are there, where they are new to it."""
    gather, mine = point["gather"], own(point, stage)
    if not point["overlaps_gathers"]:
        return sum(gather[virtual] for virtual in mine) if place == 0 else 0.0
    kind, virtual, _ = block
    return sum(gather[v] for v in mine[: mine.index(virtual) + 1]) if kind == FORWARD else 0.0


def reduced(point, start, done):
    """Return when each stage has its gradients summed, bucket by bucket."""
    work, until = works(point), []
    for stage in range(point["stages"]):
        mine = own(point, stage)
        if not point["overlaps_gradients"]:
            until.append(
                done[stage] + sum(point["reduce"][virtual] + point["tail"][virtual] for virtual in mine)
            )
            continue
        buckets = []
        for virtual in mine:
            last, block = max(
                (start[block], block) for block in work if makes_gradients(work, block, virtual)
            )
            count = point["layers"][virtual]
            share = work[block] / count
            buckets += [
                (last + share * (i + 1), place, point["reduce"][virtual] / count)
                for place, i in enumerate(range(count))
            ]
            buckets += [(last + work[block], count, point["tail"][virtual])]
        now = progress = 0.0  # what the stage has done by now is what it does by `progress` without sums
        for ready, _, lasts in sorted(buckets):
            waits = max(0.0, ready - progress)  # nothing moves
            now, progress = now + waits + lasts, progress + waits + lasts * (1.0 - point["taken"])
        until.append(now + max(0.0, done[stage] - progress))
    return until


def makes_gradients(work, block, virtual):
    """Say whether a block makes weight gradients of a virtual stage."""
    kind, v, m = block
    return v == virtual and (kind == WEIGHT or (kind == BACKWARD and (WEIGHT, v, m) not in work))


def without(point, *names):
    """Return a point where some times are nothing."""
    return point | {name: [0.0] * len(point[name]) for name in names}


def begins(point, start, stage):
    """Return when a stage begins with its first block, or with the gather before it."""
    first = programs_of(point)[stage][0]
    return max(0.0, start[first] - gathered(point, stage, first, 0))


def total(point):
    """Return when the last stage has its gradients summed."""
    start, done = starts(point)
    until = reduced(point, start, done)
    if point["order"] in ("zb_2p", "zb_v"):  # no stage's update waits for others: each has its own time
        return max(end - begins(point, start, stage) for stage, end in enumerate(until))
    return max(until)


def times(point):
    """Return the fields of BlockTimes."""
    start, _ = starts(point)
    whole = total(point)
    busiest = point["microbatches"] * max(
        sum(point[name][virtual] for name in ("forward", "input", "weight") for virtual in own(point, stage))
        for stage in range(point["stages"])
    )
    return [
        whole,
        min(time for (kind, _, _), time in start.items() if kind == BACKWARD),
        busiest,
        total(without(point, "send", "reduce", "tail", "gather")) - busiest,
        *(whole - total(without(point, *names)) for names in (("send",), ("reduce", "tail"), ("gather",))),
    ]
