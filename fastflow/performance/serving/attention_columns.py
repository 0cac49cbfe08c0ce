"""Result columns of servers whose attention has devices of its own."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Columns, Floats
from fastflow.performance.serving.attention_pool.devices import PART_APART, has_pool
from fastflow.performance.serving.passes.captured_graphs import captured_sizes
from fastflow.performance.serving.passes.interpolate import interpolate_at
from fastflow.performance.serving.scenario import ServingScenario
from fastflow.physics.workload.models.transformer.serving_pass import DECODE, HEAD_PART, TOKENS_PART
from fastflow.schema.serving import OPERATOR


def attention_columns(scenario: ServingScenario, requests: Floats, context: Floats) -> Columns:
    """Return the columns of both sets of devices in a pass that decodes; none where no point has them.

    requests: of a rank, with a mean context, (points,).
    """
    inputs, passes, server = scenario.inputs, scenario.passes, scenario.server
    rows = has_pool(inputs)
    if not rows.any():
        return {}
    padded = captured_sizes(scenario.servers.graph, requests)
    tokens = 1.0 * np.where(padded > 0.0, padded, requests) * scenario.servers.queries
    attention, others = interpolate_at(passes.busy, passes.axes.of(TOKENS_PART), server, [tokens]).T
    core, head = (
        interpolate_at(passes.parts[part].time, passes.axes.of(part), server, sizes)
        for part, sizes in ((DECODE, [requests, context]), (HEAD_PART, [tokens]))
    )
    is_operator = inputs[PART_APART] == OPERATOR
    columns = {
        "attention_devices_s": attention + core + np.where(is_operator, 0.0, head),
        "other_devices_s": others + np.where(is_operator, head, 0.0),
        "other_devices_weight_B": scenario.others.weights,
        "other_devices_footprint_B": scenario.others.footprint,
    }
    return {name: np.where(rows, column, 0.0) for name, column in columns.items()}
