"""The best servers for a load: `parallel.strategy=auto` where a model serves.

Every layout that serving supports is predicted, by the analytic estimate where it is accurate: tensor
parallelism within a package of several devices, expert parallelism or not, pipeline stages, replicas. The
best layout makes most tokens a second among the layouts that carry the load within `serve.slo`, and within
limits of the power of racks and of the site; where there is none, among those that carry the load; else among
all. Where prefill has separate devices, the best split of the devices is chosen too
(`serve.prefill.devices=0`), and the layout of prefill (`serve.prefill.strategy=auto`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.reasons.codes import Reason
from fastflow.core.reasons.forms import no_layout_fits
from fastflow.core.tables import Columns, Floats, Inputs, Ints, take
from fastflow.performance.auto.no_fit import LEAST
from fastflow.performance.serving import check_served
from fastflow.performance.serving.attention_pool.devices import ATTENTION_DEVICES, other_devices
from fastflow.performance.serving.disaggregated.predict import (
    DEVICES,
    PREFILL_DEVICES,
    PREFILL_STRATEGY,
    SAME,
    is_disaggregated,
    single_server_strategy,
)
from fastflow.performance.serving.encoder_pool.devices import without_encoders
from fastflow.performance.serving.layout import STRATEGY
from fastflow.performance.serving.predict import ServingResult, serve
from fastflow.physics.hardware.packages import PACKAGE
from fastflow.physics.parallelism.candidates import common_experts
from fastflow.physics.parallelism.strategy import AUTO, TENSOR, Strategy, divisors, parse

MAX_STAGES = 16
RESIDENT = "max_concurrent_requests"
"""The result column with the number of requests whose caches servers hold at once."""


def resolve_servers(inputs: Inputs, rehearsed: bool = False) -> Inputs:
    """Return the inputs with the best layout wherever a strategy is `auto`; (points,).

    That is `parallel.strategy`, or `serve.prefill.strategy` of prefill devices. And `LEAST`: why no layout
    fits, or None. rehearsed: any layout will do. Raises InputError as the model does.
    """
    is_auto = inputs[STRATEGY] == AUTO
    if is_disaggregated(inputs).any():
        is_auto = is_auto | (is_disaggregated(inputs) & (inputs[PREFILL_STRATEGY] == AUTO))
    if not is_auto.any():
        return inputs
    rows = np.flatnonzero(is_auto)
    auto = take(dict(inputs), rows)
    first, inverse = unique_rows(auto.values(), rows.size)
    best = [_best(take(auto, np.array([row])), rehearsed) for row in first.tolist()]
    resolved = dict(inputs)
    for key in {key: None for chosen in best for key in chosen}:
        old_column = inputs.get(key, np.full(is_auto.size, None if key == LEAST else ""))
        each = zip(best, old_column[rows[first]].tolist(), strict=True)
        values = [chosen.get(key, value) for chosen, value in each]
        column = np.array(values, dtype=object if key == LEAST else None)
        resolved[key] = old_column.astype(np.result_type(old_column, column))
        resolved[key][rows] = column[inverse]
    return resolved


def _best(inputs: Inputs, rehearsed: bool) -> Mapping[str, str | int | Reason | None]:
    """Return the inputs of the best layout of a point: a strategy, and all others that are `auto`."""
    if rehearsed:
        return _all_layouts(inputs)[-1]
    layouts, least = ranked(inputs)
    return {key: column[0].item() for key, column in layouts.items()} | {LEAST: least}


def _all_layouts(inputs: Inputs) -> list[dict[str, str | int]]:
    """Return the layouts of a point, (1,): the inputs of each; raises InputError as `serve` does."""
    check_served(inputs)
    if is_disaggregated(inputs)[0]:
        return all_splits(inputs)
    return [{STRATEGY: server} for server in all_servers(other_devices(without_encoders(inputs)))]


def best_servers(inputs: Inputs) -> Columns:
    """Return the layouts of one point, (1,), the best first: inputs of each, (layouts,)."""
    return ranked(inputs).layouts


class RankedLayouts(NamedTuple):
    """The layouts of a point."""

    layouts: Columns  # inputs of each, the best first, (layouts,)
    least: Reason | None  # where none fits, which needs least memory: it comes first


def ranked(inputs: Inputs) -> RankedLayouts:
    """Return the ranked layouts of one point, (1,)."""
    layouts, served = _predict_layouts(inputs)
    total = np.where(np.isnan(served.need.total), np.inf, served.need.total)
    least = int(np.argmin(total))
    reason = None
    if served.reason.exists.all() and served.need.available[least] < total[least] < np.inf:
        parts = {name: float(getattr(served.need, name)[least]) for name in ("weights", "work", "cache")}
        share = f"server.gpu_memory_utilization={inputs['server.gpu_memory_utilization'][0]:g}"
        layout = f"{served.layouts.printed[least]} with {share}"
        needed, available = float(total[least]), float(served.need.available[least])
        reason = no_layout_fits(needed=needed, capacity=available, layout=layout, parts=parts)
    by = -scores(served) if reason is None else total
    return RankedLayouts(take(layouts, np.argsort(by, kind="stable")), reason)


def fits(inputs: Inputs) -> bool:
    """Say whether a point has servers that take its load; inputs: of one point, (1,)."""
    return share_of_memory(inputs) <= 1.0


def share_of_memory(inputs: Inputs) -> float:
    """Return the least memory that any servers of a point need, over what a device is offered.

    inputs: of one point, (1,). At most 1 where servers take the load and hold `serve.resident_requests` at
    once. Where they take it but hold fewer, it is their number over what fits. Infinite where no layout has
    a known memory.
    """
    _, served = _predict_layouts(inputs)
    takes_load = ~served.reason.exists
    if takes_load.any():
        wanted, least = resident_requests(inputs), served.columns.get(RESIDENT)
        if least is None or wanted[0] < 1:
            return 1.0
        most = float(np.nanmax(np.where(takes_load, least, np.nan)))
        return 1.0 if not most < wanted[0] else float(wanted[0] / max(most, 1.0))
    share = served.need.total / served.need.available
    return float(np.nextafter(max(1.0, np.min(np.where(np.isnan(share), np.inf, share))), np.inf))


def resident_requests(inputs: Inputs) -> Ints:
    """Return the requests whose caches servers should hold at once, 0: any number, (points,)."""
    return np.asarray(inputs.get("serve.resident_requests", np.zeros(1, dtype=np.int64)))


def _predict_layouts(inputs: Inputs) -> tuple[Columns, ServingResult]:
    """Return the layouts of a point, and their serving results."""
    all_layouts = _all_layouts(inputs)
    layouts: Columns = {key: np.array([layout[key] for layout in all_layouts]) for key in all_layouts[0]}
    candidates = take(dict(inputs), np.zeros(len(all_layouts), dtype=np.int64)) | layouts
    candidates["serve.simulate"] = np.zeros(len(all_layouts), dtype=np.bool_)
    return layouts, serve(candidates)


def all_splits(inputs: Inputs) -> list[dict[str, str | int]]:
    """Return the splits of a point's devices into prefill and decode devices.

    Each as inputs: strategies of both, and the number of prefill devices.
    """
    inputs = without_encoders(inputs)
    devices, prefill_devices = int(inputs[DEVICES][0]), int(inputs[PREFILL_DEVICES][0])
    decode_strategy, prefill_strategy = str(inputs[STRATEGY][0]), str(inputs[PREFILL_STRATEGY][0])

    @cache  # a number of devices may prefill in one split and decode in another
    def servers_on(count: int) -> list[str]:
        return all_servers(dict(inputs) | {DEVICES: np.array([count])})

    attention = int(inputs[ATTENTION_DEVICES][0])  # of those that decode

    def split_of(server: str, prefill_devices: int, prefill_server: str) -> dict[str, str | int]:
        return {STRATEGY: server, PREFILL_DEVICES: prefill_devices, PREFILL_STRATEGY: prefill_server}

    splits: list[dict[str, str | int]] = []
    for num_prefill in [prefill_devices] if prefill_devices else range(1, devices):
        num_decode = max(devices - num_prefill - attention, 1)
        decode_servers = servers_on(num_decode) if decode_strategy == AUTO else [decode_strategy]
        prefill_servers = servers_on(num_prefill) if prefill_strategy == AUTO else [prefill_strategy]
        for server in decode_servers:
            for prefill_server in prefill_servers:
                if prefill_server != SAME or num_prefill % parse(single_server_strategy(server)).devices == 0:
                    splits.append(split_of(server, num_prefill, prefill_server))
    decode_strategy = "TP-1" if decode_strategy == AUTO else decode_strategy
    return splits or [split_of(decode_strategy, prefill_devices, SAME)]


def scores(served: ServingResult) -> Floats:
    """Return the scores of layouts: tokens a second, less penalties for missed limits and overload.

    Limits are those of latencies, and of the power of racks and of the site. The largest penalty is for
    servers that hold fewer requests than `serve.resident_requests`.
    """
    columns, has_results = served.columns, ~served.reason.exists
    is_within, is_carried = ~(served.short.exists | served.above_limits.exists), ~served.overload.exists
    empty = np.full(has_results.size, np.nan)
    rate = columns.get("tokens_per_s", columns.get("prefill_tokens_per_s", empty))
    rate = np.where(np.isfinite(rate), rate, columns.get("prefill_tokens_per_s", empty))
    valid_rate = np.where(has_results & np.isfinite(rate), rate, 0.0)
    best = max(float(valid_rate.max(initial=0.0)), 1.0)
    score = valid_rate / best + 1.0 * is_within + 1.0 * is_carried
    if RESIDENT in columns:
        score = score + 3.0 * ~(columns[RESIDENT] < resident_requests(served.inputs))
    result: Floats = np.where(valid_rate > 0.0, score, 0.0)
    return result


def all_servers(inputs: Inputs) -> list[str]:
    """Return the layouts of a point's devices that serving supports, (1,)."""
    devices, package = int(inputs["system.devices"][0]), int(inputs[PACKAGE][0])
    max_tensor = package if package > 1 else devices
    heads, layers = (int(inputs[f"model.{name}"][0]) for name in ("heads", "layers"))
    experts = common_experts(inputs)
    servers = []
    for tensor in (n for n in divisors(devices) if n <= max_tensor and heads % n == 0):
        for stages in (n for n in divisors(devices // tensor) if n <= min(MAX_STAGES, layers)):
            left = devices // (tensor * stages)
            servers.append(Strategy(TENSOR, tp=tensor, dp=left, pp=stages))
            if experts < 2 or stages > 1:
                continue
            for ranks in divisors(left):
                shared = tensor * ranks
                if shared > 1 and experts % shared == 0:
                    servers.append(Strategy(TENSOR, tp=tensor, ep=shared, dp=left))
    return [str(server) for server in servers]
