"""Linear-time layers of one head, as recurrences and in chunks, with the products of the latter counted."""

import numpy as np


class Counter:
    """Multiplies matrices and notes their sides."""

    def __init__(self):
        self.done = []

    def __call__(self, name, left, right):
        self.done.append((name, left.shape[0], left.shape[1], right.shape[1]))
        return left @ right


def state_space(a, x, b, c):
    """Mamba-2 token by token: h = a h + x b^T, y = h c. a (T,), x (T, P), b, c (T, N)."""
    h, y = np.zeros((x.shape[1], b.shape[1])), []
    for t in range(len(a)):
        h = a[t] * h + np.outer(x[t], b[t])
        y.append(h @ c[t])
    return np.array(y)


def state_space_in_chunks(a, x, b, c, chunk, times):
    h, y = np.zeros((x.shape[1], b.shape[1])), []
    for start in range(0, len(a), chunk):
        rows = slice(start, start + chunk)
        decay = np.cumprod(a[rows])
        pairs = times("pairs", c[rows], b[rows].T) * np.tril(decay[:, None] / decay)
        # what stands before the chunk, and what lies in it, as one product
        left = np.concatenate([pairs, c[rows] * decay[:, None]], axis=1)
        y.append(times("scan", left, np.concatenate([x[rows], h.T])))
        h = decay[-1] * h + times("states", (x[rows] * (decay[-1] / decay)[:, None]).T, b[rows])
    return np.concatenate(y)


def gated_delta(a, beta, q, k, v):
    """S = a S (1 - beta k k^T) + beta v k^T, o = S q, token by token; S (dv, dk)."""
    s, o = np.zeros((v.shape[1], k.shape[1])), []
    for t in range(len(a)):
        s = a[t] * (s - beta[t] * np.outer(s @ k[t], k[t])) + beta[t] * np.outer(v[t], k[t])
        o.append(s @ q[t])
    return np.array(o)


def gated_delta_in_chunks(a, beta, q, k, v, chunk, times):
    s, o, steps = np.zeros((k.shape[1], v.shape[1])), [], 0
    for start in range(0, len(a), chunk):
        rows = slice(start, start + chunk)
        decay = np.cumprod(a[rows])
        ratio = np.tril(decay[:, None] / decay)
        below = np.tril(times("key pairs", k[rows], k[rows].T) * ratio * beta[rows][:, None], -1)
        inverse = np.linalg.inv(np.eye(len(below)) + below) * beta[rows]
        both = np.concatenate([k[rows] * decay[:, None], v[rows]], axis=1)
        w, u = np.split(times("keys and values", inverse, both), [k.shape[1]], axis=1)
        new = u - w @ s
        pairs = times("pairs", q[rows], k[rows].T) * ratio
        left = np.concatenate([pairs, q[rows] * decay[:, None]], axis=1)
        o.append(times("output", left, np.concatenate([new, s])))
        s = decay[-1] * s + (k[rows] * (decay[-1] / decay)[:, None]).T @ new
        steps += 2 * len(below)  # two products with the state for each token
    times.done.append(("states", k.shape[1], steps, v.shape[1]))
    return np.concatenate(o)
