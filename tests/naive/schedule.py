"""End-to-end time in ticks (6.5; DESIGN.md, "Schedule").

A device runs one kernel at a time, in order. A collective that the next kernel waits for has the
network to itself. Gradient collectives wait in a queue that drains only while kernels run. Before the
weight update, and at the end, the rest of the queue is waited for and counts as backward time.
"""


def simulate(kernels):
    """Return (forward, backward, update, exposed) in ticks.

    kernels: (phase, kernel ticks, waited-for ticks, gradient ticks), whole numbers.
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
