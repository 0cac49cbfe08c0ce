"""The best servers for a load: `parallel.strategy=auto` where a model serves.

Every layout that serving knows is predicted by the fast form: tensor parallelism within a package, experts
dealt over ranks or not, stages, replicas. The best one makes most tokens a second of those that keep what
`serve.slo` allows; where none does, of all.
"""

from __future__ import annotations

import numpy as np

from fastflow.distinct import kinds
from fastflow.parallelism.strategy import AUTO, TENSOR, Strategy, divisors
from fastflow.serving.layout import PACKAGE, STRATEGY
from fastflow.serving.serve import serve
from fastflow.tables import Columns, Inputs, Texts, take

MOST_STAGES = 16


def settle_servers(inputs: Inputs, rehearsed: bool = False) -> Inputs:
    """Return the inputs with the best layout wherever `parallel.strategy` is `auto`; (points,).

    rehearsed: any layout does. Raises InputError as the model does.
    """
    asked = inputs[STRATEGY] == AUTO
    if not asked.any():
        return inputs
    rows = np.flatnonzero(asked)
    own = take(dict(inputs), rows)
    first, place = kinds(own.values(), rows.size)
    best = np.array([_best(take(own, np.array([one])), rehearsed) for one in first.tolist()])
    found = dict(inputs)
    found[STRATEGY] = inputs[STRATEGY].astype(np.result_type(inputs[STRATEGY], best))
    found[STRATEGY][rows] = best[place]
    return found


def _best(inputs: Inputs, rehearsed: bool) -> str:
    """Return the best layout of one point."""
    return every_server(inputs)[-1] if rehearsed else str(in_order(inputs)[0])


def in_order(inputs: Inputs) -> Texts:
    """Return the layouts of one point, (1,), the best first by the fast form; (layouts,)."""
    layouts = np.array(every_server(inputs))
    many = take(dict(inputs), np.zeros(layouts.size, dtype=np.int64))
    many[STRATEGY] = layouts
    many["serve.simulate"] = np.zeros(layouts.size, dtype=np.bool_)
    found = serve(many)
    ordered: Texts = layouts[np.argsort(-scores(found.columns, found.reason, found.short), kind="stable")]
    return ordered


def scores(columns: Columns, reason: np.ndarray, short: np.ndarray) -> np.ndarray:
    """Return how good layouts are: tokens a second, less those that are late, and those without results."""
    empty = np.full(reason.size, np.nan)
    rate = columns.get("tokens_per_s", columns.get("prefill_tokens_per_s", empty))
    rate = np.where(np.isfinite(rate), rate, columns.get("prefill_tokens_per_s", empty))
    known = np.where((reason == "") & np.isfinite(rate), rate, 0.0)
    best = max(float(known.max(initial=0.0)), 1.0)
    return np.where(known > 0.0, known / best + 1.0 * (short == ""), 0.0)


def every_server(inputs: Inputs) -> list[str]:
    """Return the layouts of one point's devices that serving knows, (1,)."""
    devices, package = int(inputs["system.devices"][0]), int(inputs[PACKAGE][0])
    heads, layers, experts = (int(inputs[f"model.{name}"][0]) for name in ("heads", "layers", "experts"))
    found = []
    for tensor in (one for one in divisors(devices) if one <= package and heads % one == 0):
        for stages in (
            one for one in divisors(devices // tensor) if one <= MOST_STAGES and layers % one == 0
        ):
            left = devices // (tensor * stages)
            found.append(Strategy(TENSOR, tp=tensor, dp=left, lp=stages))
            if experts < 2 or stages > 1:
                continue
            for ranks in divisors(left):
                shared = tensor * ranks
                if shared > 1 and experts % shared == 0:
                    found.append(Strategy(TENSOR, tp=tensor, ep=shared, dp=left))
    return [str(one) for one in found]
