"""Points that serve: from a chip, a layout and a load to latencies, rates, memory and energy.

Points that differ in their load alone share the tables of their passes, which are computed once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import compute_unique
from fastflow.core.reasons.codes import Code, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons, first_reasons
from fastflow.core.tables import Columns, Inputs, take
from fastflow.performance.kernel_times import HARDWARE
from fastflow.performance.serving import check_served
from fastflow.performance.serving.attention_pool.devices import ATTENTION_DEVICES
from fastflow.performance.serving.costs import invalid_device_rent, served_costs
from fastflow.performance.serving.defaults import with_defaults
from fastflow.performance.serving.disaggregated.predict import (
    PREFILL_DEVICES,
    decode_inputs,
    is_disaggregated,
    phase_layouts,
    run_split,
)
from fastflow.performance.serving.drafting import MTP
from fastflow.performance.serving.encoder_pool.devices import ENCODER_DEVICES, invalid_encoders
from fastflow.performance.serving.encoder_pool.encoders import unconnected
from fastflow.performance.serving.fleet.predict import run_fleet
from fastflow.performance.serving.fleet.run import FleetRun
from fastflow.performance.serving.images import invalid_images, with_images
from fastflow.performance.serving.kv_cache import Need, memory_need
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.performance.serving.overload import OVERLOAD, overloads
from fastflow.performance.serving.policy import simulated_policies
from fastflow.performance.serving.requests.lengths import (
    arrivals_of_files,
    file_key,
    longest_of,
    read_requests,
    with_lengths,
)
from fastflow.performance.serving.results import phases_of
from fastflow.performance.serving.scenario import ServingScenario, build_scenario, select_points
from fastflow.performance.serving.slo import Limit, slo_violations, with_compared
from fastflow.performance.serving.weight_tiers import invalid_offload
from fastflow.physics.hardware.chip import Chip, generate
from fastflow.physics.workload import invalid_model_dims
from fastflow.physics.workload.models.transformer.dimensions import LEARNED
from fastflow.physics.workload.models.transformer.encoder.vision import IMAGES as TRAINED_IMAGES
from fastflow.physics.workload.models.transformer.encoder.vision import has_tower
from fastflow.physics.workload.request_lengths import KEY as LENGTHS
from fastflow.schema.scheduling import ANALYTIC
from fastflow.schema.scheduling import KEY as POLICY
from fastflow.schema.serving import CONTINUOUS, DISAGGREGATED, ONE_DECODE, ONE_PREFILL


class ServingResult(NamedTuple):
    """Results of points that serve; (points,)."""

    inputs: Inputs
    layouts: ServerLayouts
    columns: Columns  # NaN, or an empty text, where a point has no results
    reason: ReasonColumn  # why a point has no results
    short: ReasonColumn  # which target it misses: that it is overloaded, or which latency is above its limit
    overload: ReasonColumn  # that it is overloaded
    above_limits: ReasonColumn  # which limit of the power of a rack or of the site it exceeds
    need: Need  # memory of the devices that decode
    chip: Chip  # of the devices that decode


def serve(inputs: Inputs, stop_at: tuple[Limit, ...] | None = None) -> ServingResult:
    """Predict points that serve; inputs: columns as `crossflow.predict` takes them, of one family.

    stop_at: limits; a fleet that cannot meet them, or `serve.slo`, any more is stopped early; None: none is.
    Raises InputError where servers of the model are not modelled.
    """
    check_served(inputs)
    point_inputs, inputs = inputs, with_defaults(with_images(with_lengths(inputs)))
    phases, disaggregated = phase_layouts(inputs), is_disaggregated(inputs)
    layouts, points = phases.decode, disaggregated.size
    serving_inputs = _serving_inputs(inputs)
    reason = first_reasons(
        invalid_load(inputs),
        phases.reason,
        invalid_images(inputs, phases.prefill),
        invalid_encoders(inputs, phases.prefill),
        invalid_model_dims(serving_inputs),
        invalid_device_rent(inputs),
        invalid_offload(inputs),
    )
    columns: Columns = {
        "strategy": layouts.printed, "replicas": layouts.replicas,
        "prefill_strategy": np.where(disaggregated, phases.prefill.printed, ""),
        "prefill_devices": np.where(disaggregated, inputs.get(PREFILL_DEVICES, 0), 0),
        "attention_devices": inputs[ATTENTION_DEVICES], "encoder_devices": inputs[ENCODER_DEVICES],
    }  # fmt: skip
    rows, need = np.flatnonzero(~reason.exists), np.full((len(Need._fields), points), np.nan)
    if rows.size:
        arguments = serving_inputs, layouts
        scenario = build_scenario(*(arguments if rows.size == points else take(arguments, rows)))
        of_passes = first_reasons(
            take(scenario.passes.reason, scenario.server),
            scenario.encoders.reason,
            unconnected(scenario.inputs, scenario.servers.intake.send_s),
        )
        reason = reason.replaced(rows, of_passes)
        valid = np.flatnonzero(~of_passes.exists)
        rows = rows[valid]
        if rows.size:
            scenario = select_points(scenario, valid)._replace(
                prefill_layouts=take(phases.prefill, rows), stop_at=stop_at
            )
            results = phases_of(scenario)
            reason = reason.replaced(rows, results.reason)
            need[:, rows] = _need(scenario, results.columns)
            for name, column in results.columns.items():
                empty = "" if column.dtype.kind == "U" else np.nan
                columns[name] = np.full(points, empty, dtype=column.dtype if empty == "" else np.float64)
                columns[name][rows] = column
    chip = compute_unique(generate, inputs, *HARDWARE, cached=True)
    costs = served_costs(inputs, columns, chip)
    columns = with_compared(inputs, columns | costs.columns)
    overload = overloads(columns, inputs["serve.request_rate"])
    columns.pop(OVERLOAD, None)
    short = first_reasons(overload, slo_violations(inputs, columns))
    above = costs.above_limits
    return ServingResult(point_inputs, layouts, columns, reason, short, overload, above, Need(*need), chip)


def run_fleet_of(inputs: Inputs) -> FleetRun:
    """Simulate the fleet of one point that has results; inputs: of the point, as for `serve`.

    Raises InputError.
    """
    inputs = with_defaults(with_images(with_lengths(inputs)))
    phases = phase_layouts(inputs)
    scenario = build_scenario(_serving_inputs(inputs), phases.decode)
    if is_disaggregated(inputs)[0]:
        return run_split(scenario._replace(prefill_layouts=phases.prefill))
    return run_fleet(scenario, 0)


def _serving_inputs(inputs: Inputs) -> Inputs:
    """Return the inputs of the devices that decode, and of their model without training."""
    points = inputs["serve.mode"].size
    ones = np.ones(points, dtype=np.int64)
    serving_inputs = dict(decode_inputs(inputs)) | {
        "model.training": np.zeros(points, np.bool_), "model.sequence": ones, "model.batch": ones,
        # a table of positions has as many as the model's sequence has tokens, as in training
        "model.positions": np.where(
            (inputs["model.positions"] == 0) & (inputs["model.position"] == LEARNED),
            inputs["model.sequence"], inputs["model.positions"],
        ),
    }  # fmt: skip
    if has_tower(inputs):
        serving_inputs[TRAINED_IMAGES] = np.zeros(points, dtype=np.int64)  # of training sequences
    return serving_inputs


def _need(scenario: ServingScenario, columns: Columns) -> Need:
    """Return the memory that devices of points need; columns: results, with the cache of a single pass."""
    cache = scenario.longest_request_cache
    if "kv_B" in columns:
        one_pass = np.isin(scenario.inputs["serve.mode"], (ONE_PREFILL, ONE_DECODE))
        cache = np.where(one_pass, columns["kv_B"], cache)
    capacity = scenario.passes.chip.dram.capacity[scenario.server]
    return memory_need(scenario.inputs, scenario.layouts, scenario.room, capacity, cache)


def invalid_load(inputs: Inputs) -> ReasonColumn:
    """Say for every point which inputs of its load contradict each other, (points,)."""
    mode, at_once, rate = inputs["serve.mode"], inputs["serve.concurrency"], inputs["serve.request_rate"]
    reason = Reasons(mode.size)
    has_requests, arrivals = np.isin(mode, (CONTINUOUS, DISAGGREGATED)), arrivals_of_files(inputs)
    for i in reason.without(has_requests & (at_once == 0) & (rate == 0.0) & (arrivals == 0)):
        allowed = f"requests at a time, or serve.request_rate above 0, or {LENGTHS} with times of arrival"
        reason.add(i, rejected(Code.LOAD, "serve.concurrency", 0, allowed))
    for i in np.flatnonzero(arrivals > 0).tolist():
        key = file_key(inputs)
        rows = read_requests(key, str(inputs[key][i])).isl.size
        if arrivals[i] > rows:
            allowed = f"at most the {rows} requests of {key}, which are sent once each, or 0 for all"
            reason.add(i, rejected(Code.LOAD, "serve.num_requests", int(arrivals[i]), allowed))
    for i in reason.without(has_requests & (at_once > 0) & (rate > 0.0)):
        allowed = f"serve.concurrency=0 beside it, not {at_once[i]}; or serve.request_rate='0 1/s'"
        reason.add(i, rejected(Code.LOAD, "serve.request_rate", f"{rate[i]:g} 1/s", allowed))
    for i in reason.without(np.isin(mode, (ONE_PREFILL, ONE_DECODE)) & (inputs["serve.batch"] < 1)):
        reason.add(i, rejected(Code.LOAD, "serve.batch", 0, "at least 1 sequence of the pass"))
    named = simulated_policies(inputs)
    for i in reason.without((mode == DISAGGREGATED) & (named != "")):
        allowed = f"one of {', '.join(ANALYTIC)} where prefill and decode are disaggregated"
        reason.add(i, rejected(Code.LOAD, POLICY, named[i], allowed))
    draft, accepted = inputs["serve.num_speculative_tokens"], inputs["serve.mean_acceptance_length"]
    for i in reason.without((draft > 0) & (accepted > draft + 1)):
        allowed = f"at most serve.num_speculative_tokens + 1 = {draft[i] + 1} tokens of a pass"
        reason.add(i, rejected(Code.LOAD, "serve.mean_acceptance_length", float(accepted[i]), allowed))
    for i in reason.without(
        (draft > 0) & (inputs["serve.speculative_method"] == MTP) & (inputs["model.mtp"] < 1)
    ):
        allowed = (
            "0 where serve.speculative_method is mtp, since model.mtp is 0: the model has no modules that"
            " predict further tokens; or serve.speculative_method=model, whose tokens another model proposes"
        )
        reason.add(i, rejected(Code.LOAD, "serve.num_speculative_tokens", int(draft[i]), allowed))
    return first_reasons(reason.column(), _exceeds_positions(inputs))


def _exceeds_positions(inputs: Inputs) -> ReasonColumn:
    """Say for every point which length exceeds the model's positions, (points,)."""
    most, mode, reason = inputs["model.positions"], inputs["serve.mode"], Reasons(inputs["serve.mode"].size)
    longest = longest_of(inputs)
    prompts, answers = longest.isl, longest.osl
    context = np.where(mode == ONE_DECODE, inputs["serve.context"], 0)
    positions = np.where(mode == ONE_PREFILL, prompts, np.where(context > 0, context, longest.both))
    for i in reason.without((most > 0) & (positions > most)):
        conflicts: list[tuple[str, object]] = []
        limit = f"the {most[i]} tokens of model.positions"
        key, value = "serve.isl", float(inputs["serve.isl"][i])
        if context[i] > 0:
            key, value, allowed = "serve.context", int(context[i]), f"at most {limit}"
        elif file_key(inputs):
            key = file_key(inputs)
            value = inputs[key][i]
            allowed = f"requests of at most {limit}, not {positions[i]:.0f}"
        elif mode[i] == ONE_PREFILL:
            allowed = f"at most {limit}"
        elif most[i] < 2:
            key, value = "model.positions", int(most[i])
            allowed = "at least 2: a prompt and an answer; or 0: any"
        elif prompts[i] <= most[i] - 1:
            key, value, left = "serve.osl", float(answers[i]), int(most[i] - prompts[i])
            allowed = f"at most {left}: prompt and answer have {limit}, serve.isl={prompts[i]:g}"
            conflicts = [("serve.isl", f"{prompts[i]:g}")]
        else:
            allowed = f"less than {limit}, which prompt and answer share"
        reason.add(i, rejected(Code.CONTEXT_LENGTH, key, value, allowed, conflicts=conflicts))
    return reason.column()
