"""Linear-time mixers of one head, token by token and in chunks, with their work counted as it is done.

A state is a matrix of the columns of a key x those of a value. A step reads it from memory, and writes it.
"""

import numpy as np


class Tally:
    """Counts operations, and numbers of the state that are read and written."""

    def __init__(self):
        self.flop = self.moved = 0

    def step(self, state):
        """Read a state from memory, as a step begins."""
        self.moved += state.size
        return state.copy()

    def keep(self, state):
        """Write a state to memory, as a step ends."""
        self.moved += state.size
        return state

    def scaled(self, state, by):
        """Decay a state: one product for each element."""
        self.flop += state.size
        return state * by

    def found(self, state, key):
        """Return what a state holds for a key (or a query): a product and a sum for each element."""
        self.flop += 2 * state.size
        return key @ state

    def added(self, state, key, value):
        """Add an outer product: a product and a sum for each element."""
        self.flop += 2 * state.size
        return state + np.outer(key, value)


class Counter(Tally):
    """Multiplies matrices and counts the operations."""

    def __call__(self, left, right):
        self.flop += 2 * left.shape[0] * left.shape[1] * right.shape[1]
        return left @ right

    def inverse(self, triangle):
        """Invert 1 + a strictly lower triangle, by substitution: a third of the cube of its rows."""
        self.flop += len(triangle) ** 3 / 3
        return np.linalg.inv(np.eye(len(triangle)) + triangle)


def inputs(rule, rng, tokens, key, value):
    """Return random inputs of a rule, a row a token: queries, keys, values, decays, and what else it has."""
    q, k = rng.standard_normal((2, tokens, key)) / np.sqrt(key)
    v = rng.standard_normal((tokens, value))
    of_a_head, of_a_column = rng.uniform(0.6, 1.0, (tokens, 1)), rng.uniform(0.6, 1.0, (tokens, key))
    constant = np.full((tokens, 1), rng.uniform(0.6, 1.0))
    strength = rng.uniform(0.1, 1.0, tokens)
    removed, added = rng.standard_normal((2, tokens, key)) / key
    return {
        "gated_delta": (q, k, v, of_a_head, strength),
        "kimi_delta": (q, k, v, of_a_column, strength),
        "state_space": (q, k, v, of_a_head),
        "gated_linear": (q, k, v, of_a_column),
        "retention": (q, k, v, constant),
        "lightning": (q, k, v, constant),
        "rwkv7": (q, k, v, of_a_column, removed, added),
        "selective_scan": (q, k, v, rng.uniform(0.01, 1.0, (tokens, value)), -rng.uniform(0.1, 1.0, key)),
    }[rule]


def by_steps(rule, given, tally):
    """Return the outputs of a rule, token by token."""
    run = {"gated_delta": _delta, "kimi_delta": _delta, "rwkv7": _rwkv, "selective_scan": _selective}
    return run.get(rule, _linear)(given, tally)


def _linear(given, tally):
    """S = a S + k v^T, o = q S; a: of a head, or of each column of its keys."""
    q, k, v, a = given
    state, out = np.zeros((k.shape[1], v.shape[1])), []
    for t in range(len(q)):
        state = tally.scaled(tally.step(state), a[t][:, None])
        state = tally.added(state, k[t], v[t])
        out.append(tally.found(state, q[t]))
        tally.keep(state)
    return np.array(out)


def _delta(given, tally):
    """S = (1 - b k k^T) a S + b k v^T, o = q S."""
    q, k, v, a, b = given
    state, out = np.zeros((k.shape[1], v.shape[1])), []
    for t in range(len(q)):
        state = tally.scaled(tally.step(state), a[t][:, None])
        rest = b[t] * (v[t] - tally.found(state, k[t]))
        state = tally.added(state, k[t], rest)
        out.append(tally.found(state, q[t]))
        tally.keep(state)
    return np.array(out)


def _rwkv(given, tally):
    """S = a S + d (c S) + k v^T, o = q S; c, d: the vectors that a token removes and adds."""
    q, k, v, a, c, d = given
    state, out = np.zeros((k.shape[1], v.shape[1])), []
    for t in range(len(q)):
        before = tally.step(state)
        held = tally.found(before, c[t])
        state = tally.added(tally.scaled(before, a[t][:, None]), d[t], held)
        state = tally.added(state, k[t], v[t])
        out.append(tally.found(state, q[t]))
        tally.keep(state)
    return np.array(out)


def _selective(given, tally):
    """S = exp(dt A) S + k (dt x), o = q S; dt: of a channel (a value's column); A: of a key's column."""
    q, k, x, dt, a = given
    state, out = np.zeros((k.shape[1], x.shape[1])), []
    for t in range(len(q)):
        before = tally.step(state)
        decay = np.exp(np.outer(a, dt[t]))
        tally.flop += 2 * state.size  # a product and an exponential
        state = tally.added(tally.scaled(before, decay), k[t], dt[t] * x[t])
        out.append(tally.found(state, q[t]))
        tally.keep(state)
    return np.array(out)


def by_chunks(rule, given, chunk, times, sub_block=0):
    """Return the outputs of a rule in chunks; times: does the products; sub_block: of lightning attention."""
    run = {"gated_delta": _delta_chunk, "kimi_delta": _delta_chunk, "rwkv7": _rwkv_chunk}
    of_chunk = run.get(rule, _linear_chunk)
    options = {"sub_block": sub_block} if sub_block else {}
    state, out = np.zeros((given[1].shape[1], given[2].shape[1])), []
    for start in range(0, len(given[0]), chunk):
        part = tuple(column[start : start + chunk] for column in given)
        output, state = of_chunk(part, state, times, **options)
        out.append(output)
    return np.concatenate(out)


def _linear_chunk(given, state, times, sub_block=0):
    q, k, v, a = given
    decay = np.cumprod(np.broadcast_to(a, q.shape), axis=0)
    queries, keys = q * decay, k / decay
    if sub_block:  # leaves out blocks after the queries'
        within = np.zeros_like(v)
        for i in range(0, len(q), sub_block):
            for j in range(0, i + sub_block, sub_block):
                pairs = times(queries[i : i + sub_block], keys[j : j + sub_block].T)
                pairs = pairs if i > j else np.tril(pairs)
                within[i : i + sub_block] += times(pairs, v[j : j + sub_block])
        output = within + times(queries, state)
    else:
        pairs = np.tril(times(queries, keys.T))
        output = times(np.concatenate([pairs, queries], axis=1), np.concatenate([v, state]))
    return output, decay[-1][:, None] * state + times((keys * decay[-1]).T, v)


def _delta_chunk(given, state, times):
    q, k, v, a, b = given
    decay = np.cumprod(np.broadcast_to(a, q.shape), axis=0)
    queries, ahead, keys = q * decay, k * decay, k / decay
    inverse = times.inverse(np.tril(times(ahead, keys.T) * b[:, None], -1)) * b
    w, u = np.split(times(inverse, np.concatenate([ahead, v], axis=1)), [k.shape[1]], axis=1)
    new = u - times(w, state)
    pairs = np.tril(times(queries, keys.T))
    output = times(np.concatenate([pairs, queries], axis=1), np.concatenate([new, state]))
    return output, decay[-1][:, None] * state + times((keys * decay[-1]).T, new)


def _rwkv_chunk(given, state, times):
    q, k, v, a, c, d = given
    decay = np.cumprod(a, axis=0)
    before = decay / a
    queries, removed, keys, added = q * decay, c * before, k / decay, d / decay
    inverse = times.inverse(-np.tril(times(removed, added.T), -1))
    of_keys = times(inverse, np.tril(times(removed, keys.T), -1))
    held = times(of_keys, v) + times(times(inverse, removed), state)
    of_values, of_held = np.tril(times(queries, keys.T)), np.tril(times(queries, added.T))
    left = np.concatenate([of_values, of_held, queries], axis=1)
    output = times(left, np.concatenate([v, held, state]))
    state = decay[-1][:, None] * state + times((keys * decay[-1]).T, v)
    return output, state + times((added * decay[-1]).T, held)


def scan_of_pairs(given):
    """Return the outputs of the selective scan by an associative scan of pairs (decay, what is added)."""
    q, k, x, dt, a = given
    pairs = [(np.exp(np.outer(a, dt[t])), np.outer(k[t], dt[t] * x[t])) for t in range(len(q))]
    return np.array([q[t] @ added for t, (_, added) in enumerate(_scanned(pairs))])


def _scanned(pairs):
    if len(pairs) == 1:
        return pairs
    left, right = _scanned(pairs[: len(pairs) // 2]), _scanned(pairs[len(pairs) // 2 :])
    decay, added = left[-1]
    return left + [(first * decay, first * added + second) for first, second in right]
