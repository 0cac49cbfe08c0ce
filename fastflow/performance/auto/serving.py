"""The best servers for a load: `parallel.strategy=auto` where a model serves.

Every layout that serving knows is predicted, by the fast form where it is near: tensor parallelism within a
package where several devices share one, experts dealt over ranks or not, stages, replicas. The best one makes
most tokens a second of those that carry the load and keep what `serve.slo` allows; where none does, of those
that carry it; else of all. Where prefill has
devices of its own, the best split of the devices is found too (`serve.prefill.devices=0`), and the layout of
those that prefill (`serve.prefill.strategy=auto`).
"""

from __future__ import annotations

from functools import cache

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.tables import Columns, Inputs, take
from fastflow.performance.auto.no_fit import LEAST, least_text
from fastflow.performance.serving.disaggregated.predict import (
    DEVICES,
    PREFILL_DEVICES,
    PREFILL_STRATEGY,
    SAME,
    is_disaggregated,
    single_server_strategy,
)
from fastflow.performance.serving.layout import STRATEGY
from fastflow.performance.serving.predict import Served, serve
from fastflow.physics.hardware.packages import PACKAGE
from fastflow.physics.parallelism.strategy import AUTO, TENSOR, Strategy, divisors, parse

MOST_STAGES = 16


def settle_servers(inputs: Inputs, rehearsed: bool = False) -> Inputs:
    """Return the inputs with the best layout wherever a strategy is `auto`; (points,).

    That is `parallel.strategy`, or `serve.prefill.strategy` of devices that prefill. And `LEAST`: why none of
    these fits, or "". rehearsed: any layout does. Raises InputError as the model does.
    """
    asked = inputs[STRATEGY] == AUTO
    if is_disaggregated(inputs).any():
        asked = asked | (is_disaggregated(inputs) & (inputs[PREFILL_STRATEGY] == AUTO))
    if not asked.any():
        return inputs
    rows = np.flatnonzero(asked)
    own = take(dict(inputs), rows)
    first, place = unique_rows(own.values(), rows.size)
    best = [_best(take(own, np.array([one])), rehearsed) for one in first.tolist()]
    found = dict(inputs)
    for key in {key: None for one in best for key in one}:
        given = inputs.get(key, np.full(asked.size, ""))
        each = zip(best, given[rows[first]].tolist(), strict=True)
        column = np.array([one.get(key, value) for one, value in each])
        found[key] = given.astype(np.result_type(given, column))
        found[key][rows] = column[place]
    return found


def _best(inputs: Inputs, rehearsed: bool) -> dict[str, str | int]:
    """Return what the best layout of one point says of it: a strategy, and what else is left open."""
    if rehearsed:
        return _every(inputs)[-1]
    layouts, least = ranked(inputs)
    return {key: column[0].item() for key, column in layouts.items()} | {LEAST: least}


def _every(inputs: Inputs) -> list[dict[str, str | int]]:
    """Return the layouts of one point, (1,): what each makes of the inputs."""
    return (
        every_split(inputs)
        if is_disaggregated(inputs)[0]
        else [{STRATEGY: one} for one in every_server(inputs)]
    )


def in_order(inputs: Inputs) -> Columns:
    """Return the layouts of one point, (1,), the best first: inputs of each, (layouts,)."""
    return ranked(inputs)[0]


def ranked(inputs: Inputs) -> tuple[Columns, str]:
    """Return what `in_order` does, and where none fits, which needs least memory, and how much; or "".

    That one comes first then.
    """
    layouts, found = _served(inputs)
    total = np.where(np.isnan(found.need.total), np.inf, found.need.total)
    least = int(np.argmin(total))
    text = ""
    if (found.reason != "").all() and found.need.available[least] < total[least] < np.inf:
        parts = {name: float(getattr(found.need, name)[least]) for name in ("weights", "work", "cache")}
        layout = f"{found.layouts.printed[least]} with server.memory={inputs['server.memory'][0]:g}"
        text = least_text(layout, float(total[least]), float(found.need.available[least]), parts)
    by = total if text else -scores(found.columns, found.reason, found.short, found.overload)
    return take(layouts, np.argsort(by, kind="stable")), text


def fits(inputs: Inputs) -> bool:
    """Say whether a point has servers that take its load; inputs: of one point, (1,)."""
    return bool((_served(inputs)[1].reason == "").any())


def _served(inputs: Inputs) -> tuple[Columns, Served]:
    """Return the layouts of one point, and what they serve."""
    every = _every(inputs)
    layouts: Columns = {key: np.array([one[key] for one in every]) for key in every[0]}
    many = take(dict(inputs), np.zeros(len(every), dtype=np.int64)) | layouts
    many["serve.simulate"] = np.zeros(len(every), dtype=np.bool_)
    return layouts, serve(many)


def every_split(inputs: Inputs) -> list[dict[str, str | int]]:
    """Return the splits of one point's devices into those that prefill and those that decode.

    Each says what it makes of the inputs: strategies of both, and how many devices prefill.
    """
    devices, asked = int(inputs[DEVICES][0]), int(inputs[PREFILL_DEVICES][0])
    decodes, strategy = str(inputs[STRATEGY][0]), str(inputs[PREFILL_STRATEGY][0])

    @cache  # as many devices prefill in one split and decode in another
    def servers_on(count: int) -> list[str]:
        return every_server(dict(inputs) | {DEVICES: np.array([count])})

    found: list[dict[str, str | int]] = []
    for prefills in [asked] if asked else range(1, devices):
        decode = servers_on(max(devices - prefills, 1)) if decodes == AUTO else [decodes]
        prefill = servers_on(prefills) if strategy == AUTO else [strategy]
        for server in decode:
            for other in prefill:
                if other != SAME or prefills % parse(single_server_strategy(server)).devices == 0:
                    found.append({STRATEGY: server, PREFILL_DEVICES: prefills, PREFILL_STRATEGY: other})
    decodes = "TP-1" if decodes == AUTO else decodes
    return found or [{STRATEGY: decodes, PREFILL_DEVICES: asked, PREFILL_STRATEGY: SAME}]


def scores(columns: Columns, reason: np.ndarray, short: np.ndarray, overload: np.ndarray) -> np.ndarray:
    """Return how good layouts are: tokens a second, less those that are late, that do not carry the load, and
    those without results."""
    empty = np.full(reason.size, np.nan)
    rate = columns.get("tokens_per_s", columns.get("prefill_tokens_per_s", empty))
    rate = np.where(np.isfinite(rate), rate, columns.get("prefill_tokens_per_s", empty))
    known = np.where((reason == "") & np.isfinite(rate), rate, 0.0)
    best = max(float(known.max(initial=0.0)), 1.0)
    return np.where(known > 0.0, known / best + 1.0 * (short == "") + 1.0 * (overload == ""), 0.0)


def every_server(inputs: Inputs) -> list[str]:
    """Return the layouts of one point's devices that serving knows, (1,)."""
    devices, package = int(inputs["system.devices"][0]), int(inputs[PACKAGE][0])
    most = package if package > 1 else devices
    heads, layers, experts = (int(inputs[f"model.{name}"][0]) for name in ("heads", "layers", "experts"))
    found = []
    for tensor in (one for one in divisors(devices) if one <= most and heads % one == 0):
        for stages in (one for one in divisors(devices // tensor) if one <= min(MOST_STAGES, layers)):
            left = devices // (tensor * stages)
            found.append(Strategy(TENSOR, tp=tensor, dp=left, lp=stages))
            if experts < 2 or stages > 1:
                continue
            for ranks in divisors(left):
                shared = tensor * ranks
                if shared > 1 and experts % shared == 0:
                    found.append(Strategy(TENSOR, tp=tensor, ep=shared, dp=left))
    return [str(one) for one in found]
