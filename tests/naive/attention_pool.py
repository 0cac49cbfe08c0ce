"""Micro-batches that go back and forth between two sets of devices, event by event, in exact fractions.

From the definition: four servers of a queue (devices of attention, the way to the other devices, these, the
way back), each of which takes one micro-batch at a time, in the order in which they come. Nothing is shared
with the model's code.
"""

from collections import deque
from fractions import Fraction

STAGES = ("attention", "send", "others", "back")


def makespan(seconds, microbatches, layers):
    """Return when the last micro-batch has come back from its last layer; seconds: by stage."""
    queues = {stage: deque() for stage in STAGES}
    queues["attention"].extend((number, 0) for number in range(microbatches))
    works_on, now, left = {}, Fraction(0), microbatches
    while left:
        for stage in STAGES:
            if stage not in works_on and queues[stage]:
                works_on[stage] = queues[stage].popleft(), now + Fraction(seconds[stage])
        now = min(end for _, end in works_on.values())
        for place, stage in enumerate(STAGES):
            job, end = works_on.get(stage, (None, None))
            if end != now:
                continue
            del works_on[stage]
            number, layer = job
            if stage != STAGES[-1]:
                queues[STAGES[place + 1]].append(job)
            elif layer + 1 < layers:
                queues[STAGES[0]].append((number, layer + 1))
            else:
                left -= 1
    return now


def pass_s(of, tokens, requests, context):
    """Return the time of an iteration that decodes, from functions of each set of devices.

    of: numbers of a server, and `attention(tokens)`, `core(requests, context)`, `others(tokens)`, times of a
    micro-batch in all layers, of tokens of a rank of either set; `outside(tokens)`, what is in no layer.
    """
    number = max(1, min(of["microbatches"], requests))
    size = tokens / number
    rest = max(1, size * of["ranks"] / of["groups"])
    tokens_s = size * of["ranks"] / of["bandwidth"]
    send, back = (of["latency"] + of[way] * tokens_s for way in ("sent", "returned"))
    seconds = {
        "attention": (of["attention"](size) + of["core"](requests / number, context)) / of["layers"],
        "send": send,
        "others": of["others"](rest) / of["layers"],
        "back": back,
    }
    return float(makespan(seconds, number, of["layers"])) + number * of["outside"](size)
