"""Result columns of models whose layers stand for several: what people who train transformers read."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Columns, Floats, take
from fastflow.performance.prediction import Prediction
from fastflow.physics.parallelism.defaults import zero_stage
from fastflow.physics.parallelism.options import AUTO, SCHEDULES
from fastflow.physics.parallelism.virtual_stages import EVEN, NONE, RECOMPUTE
from fastflow.physics.schedule.layer_times import GRADIENTS, WAITS, WEIGHTS
from fastflow.physics.workload import parameters_of, tokens_of
from fastflow.physics.workload.graph import PARTS, UPDATE, model_flop, sum_by_kind, sum_by_point
from fastflow.physics.workload.precision import types_of


def stacked_columns(prediction: Prediction, kernel_s: Floats) -> Columns:
    """Return what is known of points whose layers stand for several; of the timed points.

    kernel_s: of all launches of every kernel on the stage that sets the pace [s], (kernels,).
    """
    stacks, pipe, again = prediction.stacks, prediction.pipeline, prediction.bottleneck.recompute_launches
    assert stacks is not None
    assert again is not None
    graph, timing, total = prediction.graph, prediction.timing, prediction.timeline.total
    own = take(dict(prediction.inputs), prediction.timed)
    devices = prediction.parallelism.strategies.devices[prediction.timed]
    rows = prediction.parallelism.layouts.row_shards[prediction.timed].max(axis=1)
    done = sum_by_point(graph, prediction.launches * timing.flop) / pipe.stages
    tokens = 1.0 * tokens_of(own)
    total_weights, active = parameters_of(own)
    columns: Columns = {
        "parameters": total_weights,
        "active_parameters": active,
        "layers": own["model.layers"],
        "hidden": own["model.hidden"],
        "dtype": types_of(own),
        "chunks": stacks.plan.chunks,
        "split": np.where(own["parallel.split"] == AUTO, EVEN, own["parallel.split"]),
        "microbatch": own["model.batch"] // (rows * pipe.microbatches),
        "schedule": np.array(SCHEDULES)[pipe.order],
        "recompute": np.where(own[RECOMPUTE] == AUTO, NONE, own[RECOMPUTE]),
        "zero": zero_stage(own),
        "tokens_per_s": tokens / total,
        "tokens_per_s_per_device": tokens / total / devices,
        "model_flops_per_device": model_flop(graph) / total / devices,
        "hardware_flops_per_device": done / total,
    }
    part = np.where(graph.phase == UPDATE, len(PARTS), graph.part)
    by_part = sum_by_kind(graph.offset, part, kernel_s, len(PARTS) + 1)
    columns |= {f"{name}_s": by_part[:, i] for i, name in enumerate((*PARTS, "optimizer"))}
    columns["again_s"] = sum_by_point(graph, again * timing.time)
    exchanged = zip(WAITS[:WEIGHTS], stacks.waits[:WEIGHTS], strict=True)
    columns |= {f"{name}_wait_s": wait for name, wait in exchanged}
    columns |= {
        "weight_wait_s": stacks.waits[WEIGHTS] + stacks.times.gathers,
        "gradient_wait_s": stacks.waits[GRADIENTS] + stacks.times.reduces,
        "send_wait_s": stacks.times.sends,
        "offload_wait_s": stacks.offload,
        "host_B": prediction.footprint.host,
    }
    each = own["model.train_tokens_per_parameter"]
    iterations = np.where(each > 0.0, each * active, own["model.train_tokens"]) / tokens
    columns |= {"train_s": iterations * total, "train_energy_J": iterations * prediction.energy * devices}
    return columns
