"""A device's nano-batches, event by event, in plain Python and exact fractions.

From the definitions: operations of a nano-batch follow each other, a kind runs one operation at a time, and
what runs together is slowed by its share. Nothing is shared with the model's code.
"""

from fractions import Fraction

CHAIN = ("compute", "memory", "compute", "network", "compute", "network")
ORDER = ("compute", "memory", "network")


def speeds(attention, network, of_attention, of_attention_with_network, of_network):
    """Return speeds by the set of kinds that run: of shares of attention and network, and their speeds."""
    one = Fraction(1)
    return {
        frozenset(["compute"]): {"compute": one},
        frozenset(["memory"]): {"memory": one},
        frozenset(["network"]): {"network": one},
        frozenset(["compute", "memory"]): {"compute": one - attention, "memory": of_attention},
        frozenset(["compute", "network"]): {"compute": one - network, "network": of_network},
        frozenset(["memory", "network"]): {"memory": of_attention_with_network, "network": of_network},
        frozenset(ORDER): {
            "compute": one - attention - network,
            "memory": of_attention,
            "network": of_network,
        },
    }


class NanoBatch:
    def __init__(self, number, seconds, layers):
        self.number = number
        self.todo = [
            (kind, Fraction(s))
            for _ in range(layers)
            for kind, s in zip(CHAIN, seconds, strict=True)
            if s > 0
        ]
        self.waits_since = Fraction(0)

    @property
    def kind(self):
        return self.todo[0][0] if self.todo else None


def makespan(seconds, batches, speed_of, layers):
    """Return when the last of some layers of all nano-batches ends [s]."""
    jobs = [NanoBatch(number, seconds, layers) for number in range(batches)]
    now, on, before = Fraction(0), {}, {}
    while any(job.todo for job in jobs):
        for kind in ORDER:
            if kind not in on:
                waiting = [job for job in jobs if job.kind == kind and job not in on.values()]
                if before.get(kind) in waiting:
                    on[kind] = before[kind]
                elif waiting:
                    on[kind] = min(waiting, key=lambda job: (job.waits_since, job.number))
                if kind in on:
                    before[kind] = on[kind]
        speed = speed_of[frozenset(on)]
        time = min(job.todo[0][1] / speed[kind] for kind, job in on.items() if speed[kind] > 0)
        now += time
        for kind, job in list(on.items()):
            rest = job.todo[0][1] - time * speed[kind]
            if rest <= 0:
                job.todo.pop(0)
                job.waits_since = now
                del on[kind]
            else:
                job.todo[0] = kind, rest
    return now


def layer_time(seconds, batches, speed_of):
    """Return the time of a layer: what the fifth to the eighth take, within what all kinds allow."""
    whole = batches * sum(Fraction(s) for s in seconds)
    if batches == 1:
        return whole
    of_kind = [
        batches * sum(Fraction(s) for kind, s in zip(CHAIN, seconds, strict=True) if kind == name)
        for name in ORDER
    ]
    steady = (makespan(seconds, batches, speed_of, 8) - makespan(seconds, batches, speed_of, 4)) / 4
    return min(max(steady, *of_kind), whole)
