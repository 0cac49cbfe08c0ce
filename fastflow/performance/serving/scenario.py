"""What points that serve ask of their servers: passes, room for caches, loads, how they batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.tables import Floats, Inputs, Ints, take
from fastflow.performance.serving.kv_cache import Cache, Room, fullest
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.performance.serving.passes.interpolate import between
from fastflow.performance.serving.passes.step_time import Hosts, Pipelines, Servers
from fastflow.performance.serving.passes.tabulate import Axes, Passes, axes_of, passes_of
from fastflow.performance.serving.pipeline_stages import PARTS_OF_MODEL, Stages, stages_of
from fastflow.performance.serving.requests.lengths import REQUESTS, arrivals_of_files, known_of, longest_of
from fastflow.performance.serving.requests.load import Loads
from fastflow.performance.serving.slo import PERCENTILE
from fastflow.physics.workload.models.transformer.serving_pass import DECODE, HEAD_PART, PREFILL, TOKENS_PART
from fastflow.physics.workload.request_lengths import KEY as LENGTHS

ONE_PREFILL, ONE_DECODE, CONTINUOUS, DISAGGREGATED = "prefill", "decode", "continuous", "disaggregated"
OF_LOADS = ("serve.", "server.")
"""Inputs that passes do not depend on, but for these."""
OF_PASSES = ("server.exchange", "server.expert_rows")
REQUESTS_OF_RATE = 1000
"""Simulated of an open loop at first."""
FEWEST_OF_RATE, MOST_OF_RATE = 250, 65_536
"""Of each server of an open loop, at first and at most: until it is stationary."""
MTP = "mtp"
_MOST_REQUESTS = 4096  # at which tables end; beyond that times go on as they are there


class ServingScenario(NamedTuple):
    """What is asked; (points,)."""

    inputs: Inputs
    layouts: ServerLayouts
    prefill_layouts: ServerLayouts  # of the devices that prefill, where these are others
    passes: Passes
    server: Ints  # row of the passes
    cache: Cache
    room: Room
    isl: Floats  # mean tokens of a prompt
    osl: Floats
    active: Ints  # servers that have requests
    loads: Loads  # of each of them
    requests: Ints  # in all
    servers: Servers

    @property
    def held(self) -> Floats:
        """Bytes of a device that the cache of a whole request takes."""
        return self.cache.of(self.isl + self.osl)

    @property
    def held_by_longest(self) -> Floats:
        """The same of the longest request."""
        both = longest_of(self.inputs).both
        return self.cache.of(both if LENGTHS in self.inputs else both / (1.0 - 0.5 * self.loads.spread))


def ask(inputs: Inputs, layouts: ServerLayouts, prefills: bool = False) -> ServingScenario:
    """Tabulate the passes of points and read their loads; inputs: of the model, `serve` and `server`.

    prefills: whether servers compute prompts alone.
    """
    isl, osl = inputs["serve.isl"], inputs["serve.osl"]
    queries = inputs["serve.draft"] + 1
    shared = {key: own for key, own in inputs.items() if key in OF_PASSES or not key.startswith(OF_LOADS)}
    first, server = unique_rows([*shared.values(), queries], queries.size)
    passes = passes_of(take(shared, first), take(layouts, first), _axes(inputs, layouts), queries[first])
    load = _loads(inputs, layouts, isl, osl)
    points = _Points(inputs, layouts, passes, server, load.each, prefills)
    stages = stages_of(inputs, layouts, _balanced_s(points))
    capacity = passes.chip.dram.capacity[server]
    room, cache = fullest(inputs, layouts, stages, passes.weights[server], capacity, isl + osl)
    each = cache.of(isl + osl) / (isl + osl)
    tokens = np.floor(np.maximum(room.caches, 0.0) / each).astype(np.int64)
    servers = _servers(points, tokens, stages)
    return ServingScenario(
        inputs=inputs, layouts=layouts, prefill_layouts=layouts, passes=passes, server=server, cache=cache,
        room=room, isl=isl, osl=osl, active=load.active, loads=load.each, requests=load.requests,
        servers=servers,
    )  # fmt: skip


def some_of(asked: ServingScenario, rows: Ints) -> ServingScenario:
    """Return the question of some of its points, in order."""
    if rows.size == asked.server.size:
        return asked
    taken = {
        name: take(column, rows)
        for name, column in asked._asdict().items()
        if name not in ("passes", "inputs")
    }
    return asked._replace(inputs=take(dict(asked.inputs), rows), **taken)


def _axes(inputs: Inputs, layouts: ServerLayouts) -> Axes:
    """Return the sizes that the points of a call reach."""
    mode, longest = inputs["serve.mode"], longest_of(inputs)
    isl = longest.isl
    at_once = np.where(inputs["serve.concurrency"] > 0, inputs["serve.concurrency"], inputs["server.most"])
    batch = np.where(np.isin(mode, (ONE_PREFILL, ONE_DECODE)), inputs["serve.batch"], at_once)
    requests = np.maximum(np.minimum(-(-batch // layouts.ranks), _MOST_REQUESTS), 2)
    whole = np.where(mode == ONE_PREFILL, -(-batch // layouts.ranks) * isl, 0)
    tokens = np.maximum(inputs["server.budget"], whole).max()
    context = np.maximum(inputs["serve.context"].max(), longest.both.max())
    chunk = np.where(mode == ONE_PREFILL, isl, np.minimum(isl, inputs["server.budget"])).max()
    draft = int(inputs["serve.draft"].max()) + 1
    return axes_of(
        tokens=int(max(tokens, requests.max() * draft)), requests=int(requests.max()),
        context=int(context), chunk=int(max(chunk, 2)), before=int(isl.max()),
    )  # fmt: skip


class _Load(NamedTuple):
    """What requests come; (points,)."""

    active: Ints  # servers that have requests
    each: Loads  # of each of them
    requests: Ints  # in all


def _loads(inputs: Inputs, layouts: ServerLayouts, isl: Floats, osl: Floats) -> _Load:
    """Return what requests come to points."""
    at_once, rate, replicas = inputs["serve.concurrency"], inputs["serve.rate"], layouts.replicas
    active = np.where(at_once > 0, np.minimum(replicas, np.maximum(at_once, 1)), replicas)
    each = -(-at_once // active)
    usual = np.where(at_once > 0, REQUESTS * at_once, REQUESTS_OF_RATE)
    arrivals = arrivals_of_files(inputs)
    usual = np.where(arrivals > 0, arrivals, usual)
    asked = np.where(inputs["serve.requests"] > 0, inputs["serve.requests"], usual)
    requests = np.maximum(-(-asked // active), 1)
    goes_on = (at_once == 0) & (rate > 0.0) & (inputs["serve.requests"] == 0)
    requests = np.where(goes_on, np.maximum(requests, FEWEST_OF_RATE), requests)
    repeated = np.maximum(1.0 - inputs["serve.prompts"] / asked, 0.0)
    prefix = np.maximum(inputs["serve.prefix"], np.where(inputs["serve.prompts"] > 0, repeated, 0.0))
    points = isl.size
    loads = Loads(
        isl=isl, osl=osl, spread=inputs["serve.spread"], prefix=prefix, concurrency=each, rate=rate / active,
        requests=requests, most=np.where(goes_on, MOST_OF_RATE, 0), known=known_of(inputs),
        lengths=np.zeros((points, 2, 0), dtype=np.int64), arrivals=np.zeros((points, 0)),
        percentile=inputs[PERCENTILE],
    )  # fmt: skip
    return _Load(active, loads, np.maximum(asked, 1))


class _Points(NamedTuple):
    """What is known before memory is; (points,)."""

    inputs: Inputs
    layouts: ServerLayouts
    passes: Passes
    server: Ints
    loads: Loads
    prefills: bool  # whether servers compute prompts alone

    def read(self, part: str, *sizes: Floats) -> Floats:
        """Return what a part of a pass takes, by parts of the model [s], (points, PARTS_OF_MODEL)."""
        axes = self.passes.axes.of(part)
        return between(self.passes.parts[part].of_model, axes, self.server, sizes)


def _balanced_s(points: _Points) -> Floats:
    """Return what the pass takes that stages are balanced for, by parts of the model [s].

    A pass over a prompt where servers compute prompts alone, else one that decodes as many requests as there
    are at a time; (points, PARTS_OF_MODEL).
    """
    inputs, layouts = points.inputs, points.layouts
    if not (layouts.slots > 1).any():
        return np.zeros((layouts.slots.size, PARTS_OF_MODEL))
    loads = points.loads
    prompt = np.minimum(loads.isl, inputs["server.budget"])
    prompts = _sum(points, prompt, np.ones(prompt.size), PREFILL, prompt, np.zeros(prompt.size))
    rank = np.minimum(
        np.maximum(_at_once(points) / (layouts.ranks * layouts.slots), 1.0), inputs["server.most"]
    )
    rows, context = rank * (inputs["serve.draft"] + 1), loads.isl + loads.osl / 2.0
    decode = _sum(points, rows, rows, DECODE, rank, context)
    taken = np.where(((inputs["serve.mode"] == ONE_PREFILL) | points.prefills)[:, None], prompts, decode)
    return np.where(np.isfinite(taken), taken, 0.0)


def _sum(points: _Points, tokens: Floats, rows: Floats, core: str, *sizes: Floats) -> Floats:
    """Return what passes take, by parts of the model [s]; core: of attention, at some sizes."""
    return points.read(TOKENS_PART, tokens) + points.read(HEAD_PART, rows) + points.read(core, *sizes)


def _at_once(points: _Points) -> Floats:
    """Return how many requests a server has at a time, (points,).

    Of an open loop as many as come while it has a single request (Little's law).
    """
    loads, inputs, passes, layouts = points.loads, points.inputs, points.passes, points.layouts
    single = np.ones(loads.isl.size)
    alone = sum(
        between(table, axes, points.server, sizes) for table, axes, sizes in (
            (passes.times.shared, (passes.times.tokens,), (single,)),
            (passes.times.head, (passes.times.tokens,), (single,)),
            (passes.times.decode, (passes.times.requests, passes.times.context), (single, loads.isl)),
        )
    )  # fmt: skip
    per_pass = np.where(inputs["serve.draft"] > 0, inputs["serve.accepted"], 1.0)
    with np.errstate(over="ignore", invalid="ignore"):  # of rates that no server takes
        open_loop = loads.rate * (alone + inputs["server.iteration"]) * loads.osl / per_pass
    requests = np.where(loads.concurrency > 0, 1.0 * loads.concurrency, open_loop)
    requests = np.clip(np.where(np.isnan(requests), 1.0, requests), 1.0, np.maximum(loads.requests, 1))
    is_pass = inputs["serve.mode"] == ONE_DECODE
    return np.where(is_pass, np.maximum(inputs["serve.batch"] / layouts.replicas, 1.0), requests)


def _servers(points: _Points, capacity: Ints, stages: Stages) -> Servers:
    """Return how servers make iterations."""
    inputs, layouts, server = points.inputs, points.layouts, points.server
    at_once = _at_once(points) if (layouts.slots > 1).any() else np.ones(server.size)
    at_once = np.where(points.prefills, layouts.slots, at_once)  # a prompt follows the other
    limit = np.where(inputs["serve.batch"] > 0, -(-inputs["serve.batch"] // layouts.ranks), capacity)
    return Servers(
        times=server,
        ranks=layouts.ranks,
        slots=layouts.slots,
        host=Hosts(inputs["server.iteration"], inputs["server.row"]),
        budget=inputs["server.budget"],
        most=np.maximum(np.minimum(inputs["server.most"], limit), 1),
        capacity=capacity,
        mixes=inputs["server.mixes"],
        chunks=inputs["server.chunks"],
        reserves=inputs["server.reserves"],
        per_pass=np.where(inputs["serve.draft"] > 0, inputs["serve.accepted"], 1.0),
        queries=inputs["serve.draft"] + 1,
        draft_s=_draft_s(inputs, points.passes, server),
        pipeline=Pipelines(np.minimum(layouts.slots, at_once), stages.widest, stages.last),
    )


def _draft_s(inputs: Inputs, passes: Passes, server: Ints) -> Floats:
    """Return what proposing tokens adds to an iteration [s]: one after the other.

    Modules of multi-token prediction take a layer and the head (DeepSeek-V3, arXiv:2412.19437, section 2.2),
    another model its share of a pass of this one.
    """
    layers, whole = passes.times.shared[server, 0], passes.times.shared[server, 0]
    head = passes.times.head[server, 0]
    module = layers / inputs["model.layers"] + head
    each = np.where(inputs["serve.drafter"] == MTP, module, inputs["serve.drafter_share"] * (whole + head))
    drafts = np.zeros(each.size)  # of a chip without links each takes forever
    np.multiply(inputs["serve.draft"], each, out=drafts, where=inputs["serve.draft"] > 0)
    return drafts
