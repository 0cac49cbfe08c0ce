"""Result columns of models with layer runs: the figures of transformer training."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Columns, Floats, take
from fastflow.performance.prediction import Prediction
from fastflow.physics.parallelism.defaults import has_experts, zero_stage
from fastflow.physics.parallelism.options import AUTO, DUALPIPE, SCHEDULES
from fastflow.physics.parallelism.virtual_stages import EVEN, NONE, RECOMPUTE
from fastflow.physics.schedule.layer_times import GRADIENTS, WAITS, WEIGHTS
from fastflow.physics.schedule.timeline import ROUNDING, Timeline
from fastflow.physics.workload import parameters_of, tokens_of
from fastflow.physics.workload.graph import PARTS, UPDATE, model_flop, sum_by_kind, sum_by_point
from fastflow.physics.workload.precision import types_of
from fastflow.schema.results import EXPOSED

_READ = ("model.", "parallel.", "precision.")  # sections of inputs


def transformer_columns(prediction: Prediction, kernel_s: Floats) -> Columns:
    """Return the columns of points with layer runs; of the timed points.

    kernel_s: all launches of every kernel on the bottleneck stage [s], (kernels,).
    """
    blocks, pipe = prediction.pipeline_blocks, prediction.pipeline
    recomputed = prediction.bottleneck.recompute_launches
    assert blocks is not None
    assert recomputed is not None
    graph, timing, total = prediction.graph, prediction.timing, prediction.timeline.total
    read = {key: column for key, column in prediction.inputs.items() if key.startswith(_READ)}
    inputs = take(read, prediction.timed)
    devices = prediction.parallelism.strategies.devices[prediction.timed]
    rows = prediction.parallelism.layouts.row_shards[prediction.timed].max(axis=1)
    device_flop = sum_by_point(graph, pipe.launches * timing.flop) / pipe.stages
    tokens = 1.0 * tokens_of(inputs)
    total_weights, active = parameters_of(inputs)
    columns: Columns = {
        "parameters": total_weights,
        "active_parameters": active,
        "layers": inputs["model.layers"],
        "hidden": inputs["model.hidden"],
        "dtype": types_of(inputs, has_experts(inputs)),
        "chunks": blocks.plan.chunks,
        "split": np.where(
            inputs["parallel.pipeline_partition"] == AUTO, EVEN, inputs["parallel.pipeline_partition"]
        ),
        "microbatch": inputs["model.batch"] // (rows * pipe.microbatches),
        "schedule": np.where(
            (inputs["parallel.schedule"] == DUALPIPE) & (blocks.plan.chunks == 2),
            DUALPIPE,
            np.array(SCHEDULES)[pipe.order],
        ),
        "recompute": np.where(inputs[RECOMPUTE] == AUTO, NONE, inputs[RECOMPUTE]),
        "zero": zero_stage(inputs),
        "tokens_per_s": tokens / total,
        "tokens_per_s_per_device": tokens / total / devices,
        "model_flops_per_device": model_flop(graph) / total / devices,
        "hardware_flops_per_device": device_flop / total,
    }
    part = np.where(graph.phase == UPDATE, len(PARTS), graph.layer.part)
    by_part = sum_by_kind(graph.offset, part, kernel_s, len(PARTS) + 1)
    columns |= {f"{name}_s": by_part[:, i] for i, name in enumerate((*PARTS, "optimizer"))}
    columns["recompute_s"] = sum_by_point(graph, recomputed * timing.time)
    exposed = zip(WAITS[:WEIGHTS], blocks.waits[:WEIGHTS], strict=True)
    columns |= {EXPOSED[name]: wait for name, wait in exposed}
    columns |= {
        "param_gather_exposed_s": blocks.waits[WEIGHTS] + blocks.times.gathers,
        "grad_reduce_exposed_s": blocks.waits[GRADIENTS] + blocks.times.reduces,
        "pp_comm_exposed_s": blocks.times.sends,
        "offload_exposed_s": blocks.offload,
        "host_exposed_s": blocks.host,
    }
    columns["joint_exposed_s"] = _joint_wait(prediction.timeline, columns)
    columns["host_B"] = prediction.footprint.host
    ratio = inputs["model.train_tokens_per_parameter"]
    iterations = np.where(ratio > 0.0, ratio * active, inputs["model.train_tokens"]) / tokens
    columns |= {"train_s": iterations * total, "train_energy_J": iterations * prediction.energy * devices}
    return columns


def _joint_wait(timeline: Timeline, columns: Columns) -> Floats:
    """Return exposed communication that is no single kind's, 0 within rounding [s]; (points,).

    The time of a message, a gather or a sum is what the iteration is shorter without it alone. While two of
    them move at the same time, the iteration is shorter only without both: that is positive here. It is
    negative where without either of them kernels wait for the same third.
    """
    by_kind = np.sum([columns[name] for name in EXPOSED.values() if name in columns], axis=0)
    joint = timeline.exposed - by_kind
    return np.where(np.abs(joint) < ROUNDING * timeline.total, 0.0, joint)
