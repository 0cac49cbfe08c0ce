"""Size of LoRA adapters that are served: those of all linear layers of a model, as they are fine-tuned."""

from __future__ import annotations

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.tables import Floats, Inputs, Ints, take
from fastflow.physics.workload.models.transformer.lora import DEFAULTS, RANK
from fastflow.physics.workload.models.transformer.network import network


def adapter_size(inputs: Inputs, rows: Ints, rank_key: str) -> tuple[Floats, Floats]:
    """Return the weights of an adapter of some points, and the number of adapted products, each (rows,).

    rank_key: the input with the rank of adapters. Query, key and value are one product here, as are gate and
    up (`lora`).

    Example:
        See `tests/physics/workload/models/transformer/test_adapter_size.py`: 41.9 million weights for
        Llama 3 8B at rank 16, as PEFT prints.
    """
    columns = {key: column[rows] for key, column in inputs.items() if key.startswith("model.")}
    columns |= {key: np.full(rows.size, value) for key, value in DEFAULTS.items()}
    columns[RANK] = inputs[rank_key][rows]
    first, number = unique_rows(list(columns.values()), rows.size)
    sizes = np.array([_size_of(take(columns, first[i : i + 1])) for i in range(first.size)])
    weights, products = sizes[number].T
    return weights, products


def _size_of(point: Inputs) -> tuple[float, float]:
    """Return the weights of the adapters of one model, and their number."""
    weights = products = 0.0
    for layer in network(point).layers:
        for node in layer.nodes:
            of_node = layer.times * np.asarray(node.inner * node.cols * node.groups, dtype=np.float64)
            if node.name.endswith((" lora A", " lora B")):
                weights += float(np.max(of_node))
                products += float(np.max(layer.times)) if node.name.endswith(" lora A") else 0.0
    return weights, products
