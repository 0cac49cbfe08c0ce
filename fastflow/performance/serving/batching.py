"""The batching of servers: from passes, loads and memory to what a simulated server needs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.performance.serving.drafting import drafting_s
from fastflow.performance.serving.host_launches import eager_s, graphs_of
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.performance.serving.passes.interpolate import interpolate_at
from fastflow.performance.serving.passes.parts import Passes
from fastflow.performance.serving.passes.step_time import Adapters, Hosts, Intakes, Pipelines, Servers, Swaps
from fastflow.performance.serving.pipeline_stages import Stages
from fastflow.performance.serving.policy import mixes_of
from fastflow.performance.serving.requests.lengths import longest_lengths
from fastflow.performance.serving.requests.load import Loads
from fastflow.performance.serving.weight_tiers import Demand
from fastflow.physics.workload.models.transformer.serving_pass import DECODE, HEAD_PART, PREFILL, TOKENS_PART
from fastflow.schema.serving import ONE_DECODE, ONE_PREFILL

MAX_SWAPPED = 1e12
"""Most tokens of the memory for swapped caches."""


class ServerPoints(NamedTuple):
    """Points before their memory is known; (points,)."""

    inputs: Inputs
    layouts: ServerLayouts
    passes: Passes
    server: Ints
    loads: Loads
    prefills: bool  # whether servers only prefill

    def read(self, part: str, *sizes: Floats) -> Floats:
        """Return the time of a part of a pass, by parts of the model [s], (points, parts)."""
        axes = self.passes.axes.of(part)
        return interpolate_at(self.passes.parts[part].of_model, axes, self.server, sizes)


def balancing_pass_s(points: ServerPoints) -> Floats:
    """Return the time of the pass that stages are balanced for, by parts of the model [s].

    A pass over a prompt where servers only prefill, else a decode pass at the concurrency of the load;
    (points, parts).
    """
    inputs, layouts = points.inputs, points.layouts
    if not (layouts.slots > 1).any():
        return np.zeros((layouts.slots.size, points.passes.weights.shape[1]))
    loads = points.loads
    prompt = np.minimum(loads.isl, inputs["server.max_num_batched_tokens"])
    prompts = _pass_s(points, prompt, np.ones(prompt.size), PREFILL, prompt, np.zeros(prompt.size))
    rank_requests = np.minimum(
        np.maximum(_concurrency(points) / (layouts.ranks * layouts.slots), 1.0), inputs["server.max_num_seqs"]
    )
    rows, context = rank_requests * (inputs["serve.num_speculative_tokens"] + 1), loads.isl + loads.osl / 2.0
    decode = _pass_s(points, rows, rows, DECODE, rank_requests, context)
    part_s = np.where(((inputs["serve.mode"] == ONE_PREFILL) | points.prefills)[:, None], prompts, decode)
    return np.where(np.isfinite(part_s), part_s, 0.0)


def _pass_s(points: ServerPoints, tokens: Floats, rows: Floats, core: str, *sizes: Floats) -> Floats:
    """Return the time of passes, by parts of the model [s]; core: part of attention, at some sizes."""
    return points.read(TOKENS_PART, tokens) + points.read(HEAD_PART, rows) + points.read(core, *sizes)


def _concurrency(points: ServerPoints) -> Floats:
    """Return the requests that a server has at a time, (points,).

    In an open loop, as many as arrive while a single request is served (Little's law).
    """
    loads, inputs, passes, layouts = points.loads, points.inputs, points.passes, points.layouts
    single = np.ones(loads.isl.size)
    single_pass_s = sum(
        interpolate_at(table, axes, points.server, sizes) for table, axes, sizes in (
            (passes.times.shared, (passes.times.tokens,), (single,)),
            (passes.times.head, (passes.times.tokens,), (single,)),
            (passes.times.decode, (passes.times.requests, passes.times.context), (single, loads.isl)),
        )
    )  # fmt: skip
    per_pass = np.where(
        inputs["serve.num_speculative_tokens"] > 0, inputs["serve.mean_acceptance_length"], 1.0
    )
    with np.errstate(over="ignore", invalid="ignore"):  # of rates that no server carries
        open_loop = loads.rate * (single_pass_s + inputs["server.step_overhead"]) * loads.osl / per_pass
    requests = np.where(loads.concurrency > 0, 1.0 * loads.concurrency, open_loop)
    requests = np.clip(np.where(np.isnan(requests), 1.0, requests), 1.0, np.maximum(loads.requests, 1))
    is_pass = inputs["serve.mode"] == ONE_DECODE
    return np.where(is_pass, np.maximum(inputs["serve.batch"] / layouts.replicas, 1.0), requests)


def demand_of(points: ServerPoints) -> Demand:
    """Return the caches without which servers serve nothing: of a pass, or of the longest request."""
    inputs, layouts, loads = points.inputs, points.layouts, points.loads
    mode, mean = inputs["serve.mode"], loads.isl + loads.osl
    of_pass = -(-inputs["serve.batch"] // (layouts.ranks * layouts.replicas))
    context = np.where(inputs["serve.context"] > 0, inputs["serve.context"], loads.isl + loads.osl / 2.0)
    # a server counts whole tokens of the mean request, and batches in flight share the cache
    longest = np.ceil(longest_lengths(inputs, loads.relative_range).both) + 1.0
    decoded = -(-of_pass // layouts.slots) * layouts.slots
    return Demand(
        requests=np.select(
            [mode == ONE_PREFILL, mode == ONE_DECODE],
            [1.0 * of_pass, 1.0 * decoded],
            longest * layouts.slots / mean,
        ),
        tokens=np.select([mode == ONE_PREFILL, mode == ONE_DECODE], [loads.isl, context], mean),
    )


def _intakes(inputs: Inputs) -> Intakes:
    """Return how requests get into iterations; servers encode images themselves."""
    budget = inputs["server.max_num_batched_tokens"]
    none = np.zeros(budget.size)
    return Intakes(
        ahead=inputs["server.schedule_ahead"],
        interval=inputs["server.scheduler_recv_interval"],
        balances=inputs["server.attention_dp_balance"],
        timeout=inputs["server.attention_dp_timeout_iters"],
        wait_iterations=inputs["server.batch_wait_timeout_iters"],
        wait_tokens=inputs["server.batch_wait_max_tokens_ratio"] * budget,
        round_trip_s=inputs["server.request_overhead"],
        encoders=none.astype(np.int64),
        encode_s=none,
        send_s=none,
    )


def swaps_of(inputs: Inputs, token_bytes: Floats) -> Swaps:
    """Return the memory of hosts for caches of preempted requests; token_bytes: of a device [B]."""
    space, bandwidth = inputs["server.swap_space"], inputs["serve.tiers.host.bandwidth"]
    tokens = np.floor(np.minimum(space / token_bytes, MAX_SWAPPED)).astype(np.int64)
    return Swaps(tokens, token_bytes / bandwidth)


def servers_of(points: ServerPoints, capacity: Ints, stages: Stages) -> Servers:
    """Return the batching of servers."""
    inputs, layouts, server = points.inputs, points.layouts, points.server
    at_once = _concurrency(points) if (layouts.slots > 1).any() else np.ones(server.size)
    at_once = np.where(points.prefills, layouts.slots, at_once)  # one prompt follows another
    limit = np.where(inputs["serve.batch"] > 0, -(-inputs["serve.batch"] // layouts.ranks), capacity)
    return Servers(
        times=server,
        ranks=layouts.ranks,
        slots=layouts.slots,
        host=Hosts(
            inputs["server.step_overhead"],
            inputs["server.step_overhead_per_request"],
            eager_s(inputs, points.passes, server),
            inputs["server.first_use_time"],
        ),
        intake=_intakes(inputs),
        graph=graphs_of(inputs, points.passes, server),
        budget=inputs["server.max_num_batched_tokens"],
        most=np.maximum(np.minimum(inputs["server.max_num_seqs"], limit), 1),
        capacity=capacity,
        mixes=mixes_of(inputs),
        chunks=inputs["server.chunked_prefill"],
        reserves=inputs["server.guaranteed_no_evict"],
        per_pass=np.where(
            inputs["serve.num_speculative_tokens"] > 0, inputs["serve.mean_acceptance_length"], 1.0
        ),
        queries=inputs["serve.num_speculative_tokens"] + 1,
        draft_s=drafting_s(inputs, points.passes, server),
        swap=Swaps(np.zeros(server.size, dtype=np.int64), np.zeros(server.size)),
        adapter=Adapters(*np.zeros((2, server.size))),
        pipeline=Pipelines(np.minimum(layouts.slots, at_once), stages.widest, stages.last),
    )
