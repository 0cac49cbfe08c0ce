"""Images of requests: their tokens in prompts, and the pass of the vision tower that makes these.

A server runs the tower in the iteration that computes an image's tokens, before the layers of the language
model (vLLM's GPUModelRunner._execute_mm_encoder). So the time of a request's images is spread over the
tokens of its prompt, as chunks of a prompt are computed in several iterations; tokens that are in the cache
already need no pass. Tensor parallelism shards the tower's weights as those of the language model, or its
images: each device has all weights, and some of the images (`--mm-encoder-tp-mode` of vLLM). The tower
computes in 16 bits, as published checkpoints leave it out of quantisation. A server without images has no
tower (`--language-model-only`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import map_values, unique_rows
from fastflow.core.reasons.codes import Code, Reason, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons, no_reasons
from fastflow.core.tables import Columns, Floats, Inputs, Ints, take
from fastflow.performance.crossflow import predict
from fastflow.performance.prediction import Prediction
from fastflow.performance.serving.layout import STRATEGY, ServerLayouts, stage_inputs
from fastflow.performance.serving.passes.kernel_sums import TabulatedPart, read_prediction
from fastflow.performance.serving.passes.parts import Part, Passes
from fastflow.performance.serving.pipeline_stages import EMBEDDING_TIME
from fastflow.performance.serving.requests.lengths import file_key
from fastflow.physics.parallelism.strategy import TENSOR, Strategy
from fastflow.physics.workload import invalid_model_dims
from fastflow.physics.workload.models.transformer.encoder.dimensions import image_sides
from fastflow.physics.workload.models.transformer.encoder.vision import (
    NO_TOWER,
    PREFIX,
    as_tower_key,
    has_tower,
    tower_inputs,
    written_grid,
)
from fastflow.physics.workload.models.transformer.serving_pass import PREFILL

IMAGES, IMAGE_SIZE, TP_MODE = "serve.images", "serve.image_size", "server.mm_encoder_tp_mode"
DATA = "data"
WIDE = ("bf16", "fp16", "fp32", "tf32")
"""Types of a model in which its tower computes too; towers of others compute in the first."""


def has_images(inputs: Inputs) -> bool:
    """Say whether requests of any point have images."""
    return has_tower(inputs) and bool((inputs[IMAGES] > 0).any())


def image_tokens(inputs: Inputs) -> Ints:
    """Return the tokens of all images of a prompt, (points,)."""
    if not has_images(inputs):
        return np.zeros(inputs[IMAGES].size, dtype=np.int64)
    tokens: Ints = inputs[IMAGES] * written_grid(inputs, inputs[IMAGE_SIZE]).tokens
    return tokens


def with_images(inputs: Inputs) -> Inputs:
    """Return inputs with the tokens of images in `serve.isl`; lengths of a file have them already."""
    if not has_images(inputs) or file_key(inputs):
        return inputs
    return {**inputs, "serve.isl": inputs["serve.isl"] + image_tokens(inputs)}


def invalid_images(inputs: Inputs, layouts: ServerLayouts) -> ReasonColumn:
    """Say for every point why its requests cannot have images, (points,)."""
    if not (inputs[IMAGES] > 0).any():
        return no_reasons(inputs[IMAGES].size)
    reason, some = Reasons(inputs[IMAGES].size), inputs[IMAGES] > 0
    if not has_tower(inputs):
        for i in reason.without(some):
            reason.add(i, rejected(Code.LOAD, IMAGES, int(inputs[IMAGES][i]), f"0, since {NO_TOWER}"))
        return reason.column()
    wrong = some & ~map_values({size: bool(image_sides(size)) for size in {*inputs[IMAGE_SIZE].tolist()}},
                               inputs[IMAGE_SIZE]).astype(np.bool_)  # fmt: skip
    for i in reason.without(wrong):
        allowed = "pixels of a side, such as 1024, or height x width, such as 1080x1920"
        reason.add(i, rejected(Code.LOAD, IMAGE_SIZE, str(inputs[IMAGE_SIZE][i]), allowed))
    for i, of_tower in _invalid_towers(inputs, np.array(reason.without(some), dtype=np.int64)):
        reason.add(i, of_tower)
    heads = inputs[f"{PREFIX}heads"]
    for i in reason.without(some & (inputs[TP_MODE] != DATA) & (heads % layouts.tensor > 0)):
        tensor = int(layouts.tensor[i])
        allowed = f"{DATA}, since the {heads[i]} heads of {PREFIX}heads cannot be split over {tensor} devices"
        reason.add(i, rejected(Code.LOAD, TP_MODE, str(inputs[TP_MODE][i]), allowed))
    return reason.column()


def _invalid_towers(inputs: Inputs, rows: Ints) -> Iterator[tuple[int, Reason]]:
    """Yield points whose towers have invalid dimensions, and why; rows: with images."""
    if rows.size:
        columns = take(dict(inputs), rows)
        grid = written_grid(columns, columns[IMAGE_SIZE])
        invalid = invalid_model_dims(tower_inputs(columns, columns[IMAGES] * grid.pieces, grid.patches))
        for i in np.flatnonzero(invalid.exists).tolist():
            reason = invalid.at(i)
            assert reason is not None
            texts = {name: as_tower_key(str(reason.fields[name])) for name in ("key", "allowed")}
            yield int(rows[i]), reason.with_fields(**texts)


class Tower(NamedTuple):
    """The passes of vision towers over the images of one request, on its server; (points,)."""

    part: Part  # of one request's images; its tables of parts of the model are of no use
    more: Floats  # time of the images of each further request in the same iteration [s]
    weights: Floats  # of a device of the first stage [B]
    reason: ReasonColumn  # why there is no time


def tower_passes(inputs: Inputs, layouts: ServerLayouts) -> Tower:
    """Predict the towers of points; inputs: of points with images, valid and of one call.

    A further request is the difference of two requests to one, as of two prompts.
    """
    grid = written_grid(inputs, inputs[IMAGE_SIZE])
    pieces = inputs[IMAGES] * grid.pieces
    by_data = inputs[TP_MODE] == DATA
    shards = np.where(by_data, layouts.tensor, 1)
    points = pieces.size
    stage = stage_inputs(inputs, layouts)
    strategies = [
        str(Strategy(TENSOR, tp=tensor // shard, dp=ranks * shard))
        for tensor, shard, ranks in zip(
            layouts.tensor.tolist(), shards.tolist(), layouts.ranks.tolist(), strict=True
        )
    ]
    wide = np.where(np.isin(inputs["model.dtype"], WIDE), inputs["model.dtype"], WIDE[0])
    parts = []
    for requests in (1, 2):
        sequences = -(-requests * pieces // shards) * shards * layouts.ranks
        columns = tower_inputs(stage, sequences, grid.patches) | {
            STRATEGY: np.array(strategies, dtype=np.str_), "model.dtype": wide,
            "precision.weight": np.full(points, "operand"), "precision.cache": np.full(points, "operand"),
            "precision.attention_weights": np.full(points, "operand"),
        }  # fmt: skip
        parts.append(_tabulate(predict(columns), columns))
    first, pair = parts
    more = np.maximum(pair.part.time - first.part.time, 0.0)
    return Tower(first.part, more, first.weights[:, 0], first.reason)


def _tabulate(prediction: Prediction, inputs: Columns) -> TabulatedPart:
    """Return the table of a prediction whose kernels are all of one part; inputs: of every point."""
    one_part = np.zeros(prediction.graph.point.size, dtype=np.int64)
    return read_prediction(prediction, take(inputs, prediction.timed), one_part, 1)


def passes_with_towers(
    passes: Passes, server: Ints, tower: Tower, with_images: Ints, isl: Floats
) -> tuple[Passes, Ints]:
    """Return the passes of every point with its tower, and the row of each point in them.

    with_images: the points that the towers are of; isl: mean tokens of a prompt with its images, over which
    the tower's time is spread; (points,).
    """
    index = np.full(server.size, -1)
    index[with_images] = np.arange(with_images.size)
    keys = [np.where(index >= 0, column[index], 0.0) for column in (
        tower.part.time, tower.more, tower.part.energy, isl[with_images]
    )]  # fmt: skip
    first, inverse = unique_rows([server, index >= 0, *keys], server.size)
    rows, used, tokens = server[first], index[first], isl[first]
    part = Part(*(_of_rows(column, used) for column in tower.part))
    more = _of_rows(tower.more, used)
    passes = passes.of_servers(rows)
    prefill, chunk, times = passes.parts[PREFILL], passes.axes.chunk, passes.times

    def by_chunk(amount: Floats) -> Floats:
        """Return an amount of a whole prompt by chunk, (servers, chunks, 1, ...)."""
        share = amount / tokens.reshape(-1, *(1,) * (amount.ndim - 1))
        along: Floats = share[:, None, None] * chunk.reshape(1, -1, 1, *(1,) * (amount.ndim - 1))
        return along

    of_model = prefill.of_model.copy()
    of_model[..., EMBEDDING_TIME] += by_chunk(part.time)
    with_tower = Part(
        time=prefill.time + by_chunk(part.time),
        exchange=prefill.exchange + by_chunk(part.exchange),
        energy=prefill.energy + by_chunk(part.energy),
        by=prefill.by + by_chunk(part.by),
        of_model=of_model,
        throttled=prefill.throttled + by_chunk(part.throttled),
        experts=prefill.experts,
        launches=prefill.launches + by_chunk(part.launches),
        attention=prefill.attention,
        sums=prefill.sums,
    )
    lacking = np.flatnonzero((used >= 0) & tower.reason.exists[used])
    return passes._replace(
        times=times._replace(prefill=with_tower.time, prefill_more=times.prefill_more + by_chunk(more)),
        parts={**passes.parts, PREFILL: with_tower},
        reason=passes.reason.replaced(lacking, take(tower.reason, used[lacking])),
    ), inverse


def _of_rows(column: Floats, rows: Ints) -> Floats:
    """Return rows of a column, 0 for a row of -1."""
    selected: Floats = column[np.maximum(rows, 0)]
    selected[rows < 0] = 0.0
    return selected
