"""Points whose servers either prefill or decode: devices, layouts and passes of both, and what requests see.

Devices that `serve.prefill.devices` counts compute prompts; the rest decodes (Zhong et al., DistServe, OSDI
2024; Patel et al., Splitwise, ISCA 2024). A prefill server makes the first token. The cache's way to a server
of decode and the wait for a place there delay the second one, and count into the time per output token.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.errors import InputError
from fastflow.core.tables import Bools, Columns, Floats, Inputs, Ints, Reasons, Texts, first_of, take
from fastflow.performance.serving.disaggregated.simulate import Pools, simulate_apart
from fastflow.performance.serving.disaggregated.steady_state import steady_apart
from fastflow.performance.serving.kv_cache import lacking
from fastflow.performance.serving.layout import STRATEGY, ServerLayouts, server_layouts
from fastflow.performance.serving.method import predict_requests
from fastflow.performance.serving.overload import overload_text
from fastflow.performance.serving.requests.lengths import longest_of
from fastflow.performance.serving.requests.load import TAKEN, TOO_LONG, TOO_MANY
from fastflow.performance.serving.scenario import DISAGGREGATED, ServingScenario, ask
from fastflow.performance.serving.simulator.latencies import columns_of
from fastflow.physics.parallelism.mesh import AXES
from fastflow.physics.parallelism.strategy import Strategy, parse
from fastflow.physics.workload.request_lengths import KEY as LENGTHS
from fastflow.schema import OF_PREFILL, SECTIONS_OF_CHIP

DEVICES, PREFILL_DEVICES = "system.devices", "serve.prefill.devices"
PREFILL_STRATEGY, BANDWIDTH = "serve.prefill.strategy", "serve.bandwidth"
SAME = "same"
_OF_PREFILL_CHIP = tuple(OF_PREFILL + section for section in SECTIONS_OF_CHIP)


class PhaseLayouts(NamedTuple):
    """Servers of both phases; (points,)."""

    decode: ServerLayouts
    prefill: ServerLayouts  # the same where servers do both
    reason: Texts  # why there are none of either phase


class _Way(NamedTuple):
    """What sending a prompt's cache takes [s]; (points,)."""

    fixed: Floats  # of itself
    sends: Floats  # its bytes


class Apart(NamedTuple):
    """Servers of prefill and of decode, and what requests see; (points,)."""

    prefill: ServingScenario
    seen: Columns
    reason: Texts


def is_apart(inputs: Inputs) -> Bools:
    """Say which points have servers for each phase."""
    return np.asarray(inputs["serve.mode"] == DISAGGREGATED, dtype=np.bool_)


def of_decode(inputs: Inputs) -> Inputs:
    """Return inputs with the devices that decode, for points of any mode: all but those of prefill."""
    rows = is_apart(inputs)
    if not rows.any():
        return inputs
    own = dict(inputs)
    own[DEVICES] = np.where(rows, np.maximum(inputs[DEVICES] - inputs[PREFILL_DEVICES], 1), inputs[DEVICES])
    return own


def of_prefill(inputs: Inputs) -> Inputs:
    """Return inputs of the devices that prefill, for points that have them."""
    own, points = with_prefill_chip(inputs), inputs[DEVICES].size
    written = [
        same_server(text) if asked == SAME else asked
        for text, asked in zip(inputs[STRATEGY].tolist(), inputs[PREFILL_STRATEGY].tolist(), strict=True)
    ]
    own[DEVICES] = np.maximum(inputs[PREFILL_DEVICES], 1)
    own[STRATEGY] = np.array(written)
    own["serve.concurrency"] = np.ones(points, dtype=np.int64)  # their passes decode nothing
    own["serve.draft"] = np.zeros(points, dtype=np.int64)
    return own


def has_prefill_chip(inputs: Inputs) -> bool:
    """Say whether devices that prefill may have a chip of their own."""
    return any(key.startswith(_OF_PREFILL_CHIP) for key in inputs)


def with_prefill_chip(inputs: Inputs) -> Columns:
    """Return inputs with the chip that prefills in place of the one that decodes, where there is one."""
    other = {
        key.removeprefix(OF_PREFILL): column
        for key, column in inputs.items()
        if key.startswith(_OF_PREFILL_CHIP)
    }
    if not other:
        return dict(inputs)
    return {key: column for key, column in inputs.items() if not key.startswith(SECTIONS_OF_CHIP)} | other


def same_server(text: str) -> str:
    """Return the strategy of one server of a strategy."""
    strategy = parse(text)
    ranks = strategy.on_mesh(whole_experts=True)[0][AXES.index("ep")]
    return str(Strategy(**(strategy._asdict() | {"dp": ranks})))


def apart_layouts(inputs: Inputs) -> PhaseLayouts:
    """Return the servers of both phases; inputs: of points of any mode, with all devices."""
    decode, rows = server_layouts(of_decode(inputs)), np.flatnonzero(is_apart(inputs))
    if not rows.size:
        return PhaseLayouts(decode, decode, decode.reason)
    reason = decode.reason.astype(object)
    own = take(dict(inputs), rows)
    prefill = server_layouts(of_prefill(own))
    wrong = Reasons(rows.size)
    devices, prefills = own[DEVICES], own[PREFILL_DEVICES]
    for i in wrong.without(devices < 2):
        wrong.add(i, str(InputError(DEVICES, int(devices[i]), "at least 2 for prefill and decode apart")))
    for i in wrong.without((prefills < 1) | (prefills >= devices)):
        allowed = (
            f"1 to {devices[i] - 1} of the {devices[i]} devices of system.devices, or 0 with {STRATEGY}=auto"
        )
        wrong.add(i, str(InputError(PREFILL_DEVICES, int(prefills[i]), allowed)))
    decode_says = [text.replace(f"{DEVICES}=", f"{DEVICES} - {PREFILL_DEVICES}=") for text in reason[rows]]
    prefill_says = [
        text.replace(f"{DEVICES}=", f"{PREFILL_DEVICES}=").replace(f"{STRATEGY}=", f"{PREFILL_STRATEGY}=")
        for text in prefill.reason.tolist()
    ]
    reason[rows] = first_of(wrong.texts(), np.array(decode_says), np.array(prefill_says))
    return PhaseLayouts(decode, _with_rows(decode, rows, prefill), reason.astype(np.str_))


def _with_rows(layouts: ServerLayouts, rows: Ints, others: ServerLayouts) -> ServerLayouts:
    """Return layouts with others in some rows."""
    columns = []
    for column, other in zip(layouts, others, strict=True):
        whole = column.astype(np.result_type(column, other))
        whole[rows] = other
        columns.append(whole)
    return ServerLayouts(*columns)


def run_apart(asked: ServingScenario) -> Apart:
    """Return what requests see; asked: of servers that decode."""
    own = of_prefill(asked.inputs)
    prefill = ask(own, asked.prefill_layouts, prefills=True)
    way = _way(asked, prefill)
    sends = way.sends
    pools = Pools(
        prefill=prefill.servers,
        decode=asked.servers._replace(reserves=np.ones(sends.size, dtype=np.bool_)),
        prefills=prefill.layouts.replicas,
        decodes=asked.layouts.replicas,
        way_s=way.fixed,
        way_token_s=sends / asked.isl,
    )
    at_once = asked.inputs["serve.concurrency"]
    loads = asked.loads._replace(
        concurrency=at_once, rate=asked.inputs["serve.rate"], requests=asked.requests
    )
    reason = first_of(prefill.passes.reason[prefill.server], _unsent(asked.inputs, sends)).astype(object)
    both = prefill.passes.times, asked.passes.times
    columns = predict_requests(
        asked.inputs, loads, np.ones(sends.size, dtype=np.int64), np.asarray(reason == "", dtype=np.bool_),
        lambda rows: steady_apart(*both, take(pools, rows), take(loads, rows)),
        lambda rows, sent: columns_of(simulate_apart(*both, take(pools, rows), sent)),
    )  # fmt: skip
    refused = columns.pop("refused", np.full(sends.size, np.nan))
    for i in np.flatnonzero(refused == TOO_MANY).tolist():
        reason[i] = overload_text(float(columns["requests_per_s"][i]), float(loads.rate[i]))
    for i in np.flatnonzero(refused == TOO_LONG).tolist():
        reason[i] = _refusal(asked, prefill, i)
    columns = {name: np.where(refused == TAKEN, column, np.nan) for name, column in columns.items()}
    return Apart(prefill, columns, reason.astype(np.str_))


def _way(asked: ServingScenario, prefill: ServingScenario) -> _Way:
    """Return what sending a prompt's cache takes.

    Every device of a server sends its part, or receives one, whichever is more.
    """
    inputs, chips = asked.inputs, (asked.passes.chip, prefill.passes.chip)
    links = np.minimum(*(
        chip.inter.bandwidth[one.server] * one.inputs["net.inter.utilization"]
        for chip, one in zip(chips, (asked, prefill), strict=True)
    ))  # fmt: skip
    bandwidth = np.where(inputs[BANDWIDTH] > 0.0, inputs[BANDWIDTH], links)
    held = np.maximum(asked.cache.of(asked.isl), prefill.cache.of(asked.isl))
    with np.errstate(over="ignore", divide="ignore"):  # which `_unsent` names
        return _Way(inputs["net.inter.latency"], held / bandwidth)


def _unsent(inputs: Inputs, sends: Floats) -> Texts:
    """Say for every point why its caches do not come to the devices that decode; or ""; sends: [s]."""
    reason = Reasons(sends.size)
    for i in reason.without(~np.isfinite(sends)):
        value = float(inputs[BANDWIDTH][i])
        allowed = "a bandwidth with which a cache comes to a device that decodes in a time that is a number"
        if value == 0.0:
            allowed = "a bandwidth, since these devices have no links between packages"
        reason.add(i, str(InputError(BANDWIDTH, value, allowed)))
    return reason.texts()


def _refusal(asked: ServingScenario, prefill: ServingScenario, i: int) -> str:
    """Say which servers do not hold the longest request."""
    longest = longest_of(asked.inputs)
    isl, both = longest.isl, longest.both
    if LENGTHS not in asked.inputs:
        isl, both = (one / (1.0 - 0.5 * asked.loads.spread) for one in (isl, both))
    for name, one, tokens in (
        ("prefill", prefill, isl), ("decode", asked, both),
    ):  # fmt: skip
        held, room = float(one.cache.of(tokens)[i]), max(float(one.room.caches[i]), 0.0)
        slots, budget = int(one.servers.slots[i]), int(one.servers.budget[i])
        if held > room / slots or name == "decode":
            return lacking(one.room, i, held, budget, slots, f"device of {name}")
    raise AssertionError
