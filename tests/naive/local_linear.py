"""Local linear attention of one head: by solving each query's system, and by conjugate gradients."""

import numpy as np


def solved(q, k, v, ridge):
    """Each query fits b + W (k - q) to the values before it, weighted by softmax's weights; it returns b."""
    out = []
    for t in range(len(q)):
        keys, w = k[: t + 1] - q[t], np.exp(k[: t + 1] @ q[t])
        design = np.concatenate([np.ones((t + 1, 1)), keys], axis=1)
        penalty = np.diag([0.0, *np.full(q.shape[1], ridge * w.sum())])
        out.append(
            np.linalg.solve(design.T @ (w[:, None] * design) + penalty, design.T @ (w[:, None] * v[: t + 1]))[
                0
            ]
        )
    return np.array(out)


class Products:
    """Counts products with columns of a key and of a value, for each query and key."""

    def __init__(self):
        self.keys = self.values = self.passes = 0

    def with_keys(self, left, right):
        self.keys += 1
        return left @ right

    def with_values(self, left, right):
        self.values += 1
        return left @ right


def by_gradients(q, k, v, ridge, steps, times):
    """All queries at once: three loops over the keys, of which the second is repeated."""
    visible = np.tril(np.ones((len(q), len(k))))

    def weights():
        return np.exp(times.with_keys(q, k.T)) * visible

    w, times.passes = weights(), times.passes + 1
    total, mean = w.sum(axis=1, keepdims=True), times.with_keys(w, k)
    right = mean - total * q
    x, rest, direction = np.zeros_like(q), right, right
    for _ in range(steps):
        along, times.passes = times.with_keys(direction, k.T), times.passes + 1
        moved = times.with_keys(weights() * along, k)
        at_query = (direction * q).sum(axis=1, keepdims=True)
        moved = moved - at_query * mean - (direction * mean).sum(axis=1, keepdims=True) * q
        moved = moved + total * at_query * q + ridge * total * direction
        norm = (rest * rest).sum(axis=1, keepdims=True)
        step = norm / ((direction * moved).sum(axis=1, keepdims=True) + 1e-300)
        x, rest = x + step * direction, rest - step * moved
        direction = rest + (rest * rest).sum(axis=1, keepdims=True) / (norm + 1e-300) * direction
    below, times.passes = total - (right * x).sum(axis=1, keepdims=True), times.passes + 1
    factor = 1.0 - times.with_keys(x, k.T) + (x * q).sum(axis=1, keepdims=True)
    return times.with_values(weights() * factor / below, v)
