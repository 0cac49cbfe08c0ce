"""End-to-end time (6.5): a walk in ticks, task graphs, and pipelines.

A device runs at most so many kernels at once, a link one transfer; ties break by a fixed rule, so that
results are the same to the bit.
"""

import heapq
from math import inf


def walk(kernels):
    """Return (forward, backward, update, exposed) in ticks of one device that runs a kernel at a time.

    kernels: (phase, kernel ticks, waited-for ticks, gradient ticks), whole numbers. A collective that
    the next kernel waits for has the network to itself. Gradient collectives wait in a queue that
    drains only while kernels run. Before the weight update, and at the end, the rest of the queue is
    waited for and counts as backward time.
    """
    spent = {"forward": 0, "backward": 0, "update": 0}
    queue, exposed = 0, 0

    def drain():
        nonlocal queue, exposed
        while queue:
            queue -= 1
            exposed += 1
            spent["backward"] += 1

    for phase, kernel, waited, gradient in kernels:
        if phase == "update":
            drain()
        for _ in range(kernel):  # the network works beside the kernel
            spent[phase] += 1
            if queue:
                queue -= 1
        for _ in range(waited):
            spent[phase] += 1
            exposed += 1
        queue += gradient
    drain()
    return spent["forward"], spent["backward"], spent["update"], exposed


def simulate(tasks, capacity):
    """Return start, end and segments [(start, end), ...] of every task.

    tasks: (resource, background, duration, successors); capacity of every resource. Of the tasks that
    are ready for a resource the lowest number starts first; background tasks, the lowest first, have
    the slots that are left and no other task wants, and are paused else.
    """
    count = len(tasks)
    needs = [0] * count
    for _, _, _, successors in tasks:
        for task in successors:
            needs[task] += 1
    ready = {task for task in range(count) if needs[task] == 0}
    foreground, beside = set(), set()
    left = [duration for _, _, duration, _ in tasks]
    since, first, end = [inf] * count, [inf] * count, [inf] * count
    segments = [[] for _ in tasks]
    now, agenda = 0.0, []  # (end, task); a task that was paused has another end by then

    def stop(task):
        if now > since[task]:
            segments[task].append((since[task], now))

    def go(task):
        ready.discard(task)
        since[task], end[task] = now, now + left[task]
        first[task] = min(first[task], now)
        heapq.heappush(agenda, (end[task], task))

    while True:
        for resource, slots in enumerate(capacity):
            mine = sorted(task for task in ready if tasks[task][0] == resource)
            free = slots - sum(tasks[task][0] == resource for task in foreground)
            for task in [task for task in mine if not tasks[task][1]][:free]:
                go(task)
                foreground.add(task)
                free -= 1
            running = {task for task in beside if tasks[task][0] == resource}
            waiting = {task for task in mine if tasks[task][1]}
            chosen = set(sorted(running | waiting)[:free])
            for task in running - chosen:
                stop(task)
                left[task] = max(left[task] - (now - since[task]), 0.0)
                end[task] = inf
                beside.remove(task)
                ready.add(task)
            for task in chosen - running:
                go(task)
                beside.add(task)
        if not agenda:
            return first, end, segments
        now = agenda[0][0]
        while agenda and agenda[0][0] == now:
            _, task = heapq.heappop(agenda)
            if end[task] != now or task not in foreground | beside:
                continue
            stop(task)
            foreground.discard(task)
            beside.discard(task)
            for released in tasks[task][3]:
                needs[released] -= 1
                if needs[released] == 0:
                    ready.add(released)


def program(order, stages, stage, microbatches):
    """Return the (phase, micro-batch) of a stage, as it works through them."""
    forwards = [("forward", j) for j in range(microbatches)]
    backwards = [("backward", j) for j in range(microbatches)]
    if order == "gpipe":
        return forwards + backwards[::-1]
    warm = min(microbatches, stages - stage) - 1
    blocks = forwards[:warm]
    for forward, backward in zip(forwards[warm:], backwards, strict=False):
        blocks += [forward, backward]
    return blocks + backwards[microbatches - warm :]


class Blocks:
    """What the blocks of a pipeline do for each other; rows: dictionaries in an undivided device's order."""

    def __init__(self, rows):
        self.rows = rows

    def block(self, phase, stage):
        return [i for i, row in enumerate(self.rows) if (row["phase"], row["stage"]) == (phase, stage)]

    def stages_of(self, phase):
        return list(dict.fromkeys(row["stage"] for row in self.rows if row["phase"] == phase))

    def read_last(self, phase, stage):
        members = self.block(phase, stage)
        return ([i for i in members if not self.rows[i]["side"]] or members[:1])[-1]

    def sender(self, phase, stage):
        giving = [i for i in self.block(phase, stage) if self.rows[i]["send"] > 0]
        return giving[-1] if giving and self.stages_of(phase)[-1] != stage else None

    def made(self, i, j):
        return ("sync" if self.rows[i]["sync"] > 0 else "kernel", i, j)

    def received(self, phase, stage, j):
        through = self.stages_of(phase)
        if through[0] != stage:
            before = through[through.index(stage) - 1]
            i = self.sender(phase, before)
            return {("send", i, j)} if i is not None else {self.made(self.read_last(phase, before), j)}
        if phase == "backward" and self.stages_of("forward"):
            return {("kernel", self.read_last("forward", self.stages_of("forward")[-1]), j)}
        return set()

    def reads(self, i, j, members, slots, previous):
        """What a row of a block waits for besides collectives; previous: the block before, if any."""
        before = members[: members.index(i)]
        if slots > 1:
            before = [k for k in before if not self.rows[k]["side"]]
        if before:
            return {("kernel", before[-1], j)}
        return self.received(self.rows[i]["phase"], self.rows[i]["stage"], j) | (
            {previous} if previous else set()
        )


def pipeline(rows, stages, microbatches, order, slots):
    """Return the task graph of one iteration: {task: (resource, background, duration)}, {task: needs}.

    rows: as in `Blocks`. Tasks are ("kernel", row, micro-batch), and so on, in the order of their ranks;
    resources are (stage, "kernels") and (stage, level).
    """
    tasks, needs, blocks = {}, {}, Blocks(rows)

    def add(task, resource, duration, *needed, background=False):
        tasks[task] = ((rows[task[1]]["stage"], resource), background, duration)
        needs.setdefault(task, set()).update(needed)

    for stage in range(stages):
        previous = None
        for phase, j in program(order, stages, stage, microbatches):
            members = blocks.block(phase, stage)
            for i in members:
                row = rows[i]
                add(("kernel", i, j), "kernels", row["kernel"], *blocks.reads(i, j, members, slots, previous))
                if row["sync"] > 0:
                    add(("sync", i, j), row["sync_level"], row["sync"], ("kernel", i, j))
                    reader = i + row["wait"]
                    if reader < len(rows) and rows[reader]["phase"] != "update":
                        needs.setdefault(("kernel", reader, j), set()).add(("sync", i, j))
                if blocks.sender(phase, stage) == i:
                    add(("send", i, j), row["send_level"], row["send"], blocks.made(i, j))
            if members:
                previous = ("kernel", members[-1 if slots == 1 else 0], j)
    for i, row in enumerate(rows):
        if row["phase"] != "update" and row["gradient"] > 0:
            through = program(order, stages, row["stage"], microbatches)
            last = [j for phase, j in through if phase == row["phase"]][-1]
            add(("gradient", i), row["gradient_level"], row["gradient"], ("kernel", i, last), background=True)
    tasks["barrier"], needs["barrier"] = ((0, "kernels"), False, 0.0), set(tasks)
    update = [i for i, row in enumerate(rows) if row["phase"] == "update"]
    for i in update:
        row = rows[i]
        mine = [k for k in update if rows[k]["stage"] == row["stage"] and k < i]
        add(("kernel", i, 0), "kernels", row["kernel"], ("kernel", mine[-1], 0) if mine else "barrier")
        if row["sync"] > 0:
            add(("sync", i, 0), row["sync_level"], row["sync"], ("kernel", i, 0))
            due = [k for k in update if k >= i + row["wait"]]
            for reader in due[:1] + [k for k in due if rows[k]["stage"] == row["stage"]][:1]:
                needs.setdefault(("kernel", reader, 0), set()).add(("sync", i, 0))
    return tasks, needs


def timeline(rows, stages, microbatches, order, slots):
    """Return (forward, backward, update, exposed, bubble), and when each task starts and ends."""
    tasks, needs = pipeline(rows, stages, microbatches, order, slots)
    names = list(tasks)
    number = {name: i for i, name in enumerate(names)}
    resources = [(stage, what) for stage in range(stages) for what in ("kernels", 0, 1)]
    capacity = [slots if what == "kernels" else 1 for _, what in resources]
    successors = {name: [number[other] for other in names if name in needs[other]] for name in names}

    def run(communicates):
        graph = []
        for name, (resource, background, duration) in tasks.items():
            counts = communicates or resource[1] == "kernels"
            graph.append(
                (resources.index(resource), background, duration if counts else 0.0, successors[name])
            )
        start, end, _ = simulate(graph, capacity)
        return start, end

    start, end = run(True)
    total, bare = max(end), max(run(False)[1])
    until = start[number["barrier"]]
    backward = [start[number[t]] for t in names if t[0] == "kernel" and rows[t[1]]["phase"] == "backward"]
    turn = min([*backward, until])
    busy = [0.0] * stages
    for row in rows:
        busy[row["stage"]] += row["kernel"] * (1 if row["phase"] == "update" else microbatches)
    when = {name: (start[i], end[i]) for name, i in number.items()}
    return (turn, until - turn, total - until, max(total - bare, 0.0), max(bare - max(busy), 0.0)), when
