"""Exchanges of experts by DeepEP, written out by hand (slow, obvious); times in seconds."""

from itertools import combinations
from math import ceil


def copies(experts, topk, ranks):
    """Return on how many ranks the experts of a token are, on average over every choice."""
    of_rank = experts // ranks
    counts = [len({expert // of_rank for expert in chosen}) for chosen in combinations(range(experts), topk)]
    return sum(counts) / len(counts)


def normal_dispatch(tokens, hidden, ranks, on_ranks, sms, launch, step, speed):
    start = launch + launch + 23.4 * step
    filling = 9.2 * step * tokens / (tokens + 100)
    an_sm = 0.31 * step + on_ranks * (74e-9 + 0.040e-9 * hidden)
    sent = on_ranks * (hidden + hidden / 128 * 4) * (ranks - 1) / ranks
    return start + filling + tokens * max(an_sm / sms, sent / (0.75 * speed))


def normal_combine(tokens, hidden, ranks, on_ranks, sms, launch, step, speed):
    start = launch + launch + 18.9 * step + 3.64e-9 * hidden
    filling = 9.2 * step * tokens / (tokens + 100)
    an_sm = 0.214e-9 * hidden + on_ranks * (94e-9 + 0.047e-9 * hidden)
    sent = on_ranks * 2 * hidden * (ranks - 1) / ranks
    return start + filling + tokens * max(an_sm / sms, sent / (0.78 * speed))


def _blocks(experts, all_sms):
    groups_of_a_block = ceil(experts / all_sms)
    return ceil(experts / groups_of_a_block)


def low_latency_dispatch(tokens, hidden, topk, experts, ranks, all_sms, launch, step, speed):
    waiting = launch + step * (8.1 + 0.021 * experts)
    a_block = tokens / _blocks(experts, all_sms) * (1.23e-6 + 0.212e-9 * hidden)
    sent = tokens * topk * (hidden + hidden / 128 * 4 + 16) * (ranks - 1) / ranks
    return waiting + a_block + sent / (0.86 * speed)


def low_latency_combine(tokens, hidden, topk, experts, ranks, all_sms, launch, step, speed):
    waiting = launch + step * (9.0 + 0.0095 * experts + 0.21 * hidden / 1000)
    a_block = tokens / _blocks(experts, all_sms) * 0.044e-9 * hidden
    sent = tokens * topk * 2 * hidden * (ranks - 1) / ranks
    return waiting + a_block + sent / (0.67 * speed)
