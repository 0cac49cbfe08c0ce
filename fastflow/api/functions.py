"""Single kernels, collectives and layouts: the code behind functions of `import fastflow`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fastflow.config.composer import Composer
from fastflow.config.keyword_overrides import as_overrides, numbers_of, text_of
from fastflow.config.library import hydra_rules
from fastflow.config.messages import one_of
from fastflow.core import units
from fastflow.core.errors import CompositionError, InputError
from fastflow.engine.grid.grid import Share
from fastflow.engine.grid.plan import plan
from fastflow.engine.grid.run import Run, naming_errors, refuse_auto_devices, refuse_others
from fastflow.physics.workload.models.attention import DECODE, PREFILL
from fastflow.physics.workload.ops.attention import MAX_DECODE_QUERIES
from fastflow.schema import find_input

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

    from fastflow.performance.prediction import Prediction
    from fastflow.performance.serving.predict import ServingResult
    from fastflow.performance.sharding_report import KernelSharding

_MAX_BYTES = 1e18  # of a tensor


def _single_point(
    overrides: tuple[str, ...], subject: str = "system", config_dir: str | os.PathLike[str] | None = None
) -> tuple[Composer, Run]:
    """Plan the single point that overrides describe; raises InputError if they span several."""
    with hydra_rules():
        composer = Composer.of_library(config_dir)
        run = plan(composer, overrides)
    if run.grid.points != 1:
        allowed = f"one: this is of one {subject}"
        raise InputError(run.grid.first_key, "several values", allowed, composer.origin_of_overrides)
    return composer, run


def explain_sharding(
    *overrides: str, config_dir: str | os.PathLike[str] | None = None, **choices: Any
) -> pd.DataFrame:
    """Return how the kernels of a point are laid out; see `fastflow.explain_sharding`."""
    from fastflow.engine.run.predict import predict_range
    from fastflow.performance.results import explain_sharding
    from fastflow.performance.sharding_report import EXCHANGES

    composer, run = _single_point(as_overrides(overrides, choices, None, config_dir), "point", config_dir)
    refuse_others(run)
    if run.grid.served:
        mode = str(run.grid.first_inputs()["serve.mode"][0])
        raise InputError(
            "serve", mode, "none: layouts are of one iteration of training", composer.origin_of_overrides
        )
    with naming_errors(composer, run):
        prediction = cast("Prediction", predict_range(run.grid, 0, 1)[0].prediction)
        kernels = explain_sharding(prediction, 0)
        if not kernels:
            raise prediction.reason.first().error()
    import pandas as pd

    roles = dict.fromkeys(
        (*EXCHANGES, *(exchange.role for kernel in kernels for exchange in kernel.exchanges))
    )
    rows = [_row(kernel, roles) for kernel in kernels]
    frame = pd.DataFrame(rows)
    frame.attrs["units"] = {name: "B" if name.endswith("_B") else "" for name in rows[0]}
    return frame


def explain_memory(
    *overrides: str, config_dir: str | os.PathLike[str] | None = None, **choices: Any
) -> pd.DataFrame:
    """Return the memory of a device step by step; see `fastflow.explain_memory`."""
    from fastflow.engine.run.predict import predict_range
    from fastflow.performance.memory_timeline import memory_timeline, step_columns
    from fastflow.performance.serving.memory_steps import served_steps

    composer, run = _single_point(as_overrides(overrides, choices, None, config_dir), "point", config_dir)
    refuse_others(run)
    about: dict[Any, Any] = {}
    with naming_errors(composer, run):
        prediction = predict_range(run.grid, 0, 1)[0].prediction
        if run.grid.served:
            columns = served_steps(cast("ServingResult", prediction), 0)
        else:
            timeline = memory_timeline(cast("Prediction", prediction), 0)
            columns = None if timeline is None else step_columns(timeline)
            about = {} if timeline is None else {"stage": timeline.stage, "peak": timeline.peak_name}
        if columns is None:
            raise prediction.reason.first().error()
    import pandas as pd

    frame = pd.DataFrame(columns)
    units_of_ends = {"_B": "B", "_s": "s"}
    frame.attrs |= about
    frame.attrs["units"] = {name: units_of_ends.get(name[-2:], "") for name in columns}
    return frame


def _row(kernel: KernelSharding, roles: Iterable[str]) -> dict[str, Any]:
    """Return the layout of a kernel as texts and numbers, by column; roles: of exchanges."""
    from fastflow.performance.sharding_report import ExchangeReport

    row = kernel._asdict()
    along, exchanges = row.pop("along"), row.pop("exchanges")
    for name in ("reads", "weights", "makes"):
        row[name] = ", ".join(
            f"{axis.axis}: {placement}" for axis in along if (placement := getattr(axis, name))
        )
    row["exchange"] = "; ".join(
        f"{exchange.what} along {' x '.join(exchange.axes)}, {units.show(exchange.bytes, 'B')}"
        for exchange in exchanges
    )
    by_role = {exchange.role: exchange for exchange in exchanges}
    empty = ExchangeReport("", "", (), 0, 0.0)
    for role in roles:
        exchange = by_role.get(role, empty)
        group = " x ".join(exchange.axes)
        row |= {f"{role}_B": exchange.bytes, f"{role}_ranks": exchange.ranks, f"{role}_group": group}
    return row


def predict_collective(
    collective: str, size: ArrayLike, ranks: ArrayLike, overrides: tuple[str, ...]
) -> NDArray[np.float64]:
    """Predict collectives on one system; see `fastflow.predict_collective`."""
    from fastflow.performance import partial_predictions
    from fastflow.physics.workload.graph import COLLECTIVES

    if text_of("collective", collective) not in COLLECTIVES[1:]:
        raise InputError("collective", collective, one_of(COLLECTIVES[1:]))
    overrides = as_overrides(overrides, {})
    sizes, group_sizes = numbers_of({"size": size, "ranks": ranks}).values()
    sizes = sizes.astype(np.float64)
    composer, run = _single_point(overrides)
    inputs = run.grid.first_inputs()
    refuse_auto_devices(run, "a collective")
    with naming_errors(composer, run):
        max_ranks = int(inputs["system.devices"][0])
    for key, column, invalid, allowed in (
        ("size", sizes, ~((sizes >= 0.0) & (sizes <= _MAX_BYTES)), "a number of bytes, 0 to 1e18"),
        (
            "ranks",
            group_sizes,
            ~((group_sizes >= 1) & (group_sizes <= max_ranks) & (group_sizes == np.floor(group_sizes))),
            f"a number of devices from 1 to {max_ranks}",
        ),
    ):
        if invalid.any():
            raise InputError(key, column[invalid][0], allowed)
    with naming_errors(composer, run):
        time = partial_predictions.time_collectives(
            inputs, COLLECTIVES.index(collective), sizes.ravel(), group_sizes.astype(np.int64).ravel()
        )
    return time.reshape(sizes.shape)


def predict_gemm(
    m: ArrayLike, k: ArrayLike, n: ArrayLike, chip: str, dtype: str, batch: ArrayLike
) -> NDArray[np.float64]:
    """Predict matrix products on one chip; see `fastflow.predict_gemm`."""
    sizes = {"model.m": m, "model.k": k, "model.n": n, "model.batch": batch}
    return _predict_operation("gemm", sizes, chip, dtype)


def predict_attention(
    batch: ArrayLike, q_len: ArrayLike, kv_len: ArrayLike, heads: ArrayLike, kv_heads: ArrayLike,
    head_dim: ArrayLike, window: ArrayLike, chip: str, dtype: str, kv_dtype: str, phase: str | None,
    causal: bool,
) -> NDArray[np.float64]:  # fmt: skip
    """Predict fused attention on one chip; see `fastflow.predict_attention`."""
    sizes = {
        "model.batch": batch, "model.q_len": q_len, "model.kv_len": kv_len, "model.heads": heads,
        "model.kv_heads": kv_heads, "model.head_dim": head_dim, "model.window": window,
    }  # fmt: skip
    if phase not in (None, PREFILL, DECODE):
        raise InputError("phase", phase, f"{PREFILL}, {DECODE}, or None")
    overrides = (
        f"precision.cache={text_of('kv_dtype', kv_dtype)}",
        f"model.causal={'true' if causal else 'false'}",
        *(() if phase is None else (f"model.phase={phase}",)),
    )
    return _predict_operation("attention", sizes, chip, dtype, overrides, None if phase else _phases)


def _phases(sizes: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the phase of attention by size: decode for few queries over a cache."""
    few = (sizes["model.q_len"] <= MAX_DECODE_QUERIES) & (sizes["model.kv_len"] > sizes["model.q_len"])
    return {"model.phase": np.where(few, DECODE, PREFILL)}


def predict_experts(
    tokens: ArrayLike, hidden: ArrayLike, ffn: ArrayLike, experts: ArrayLike, topk: ArrayLike, tp: ArrayLike,
    ep: ArrayLike, power_law: ArrayLike, chip: str, dtype: str,
) -> NDArray[np.float64]:  # fmt: skip
    """Predict expert layers on one chip; see `fastflow.predict_experts`."""
    sizes = {
        "model.tokens": tokens, "model.hidden": hidden, "model.ffn": ffn, "model.experts": experts,
        "model.topk": topk, "model.tp": tp, "model.ep": ep, "model.power_law": power_law,
    }  # fmt: skip
    return _predict_operation("experts", sizes, chip, dtype)


def _predict_operation(
    model: str,
    arguments: dict[str, Any],
    chip: str,
    dtype: str,
    overrides: tuple[str, ...] = (),
    derived: Callable[[dict[str, NDArray[Any]]], dict[str, NDArray[Any]]] | None = None,
) -> NDArray[np.float64]:
    """Predict single operations of one model on one chip [s].

    arguments: inputs by key, numbers or arrays of one shape. derived: returns inputs that depend on them.
    """
    from fastflow.performance import partial_predictions
    from fastflow.performance.precompile import compile_ahead

    sizes = numbers_of(arguments)
    columns = {key: _input_column(key, column) for key, column in sizes.items()}
    shape = next(iter(sizes.values())).shape
    chosen = (f"chip={text_of('chip', chip)}", f"model.dtype={text_of('dtype', dtype)}")
    composer, run = _single_point((f"model={model}", *chosen, *overrides))
    if 0 in shape:
        return np.zeros(0)
    rows = columns[next(iter(columns))].size
    inputs = run.grid.inputs(Share(run.grid.blocks[0], 0, np.zeros(rows, dtype=np.int64))) | columns
    if derived is not None:
        inputs |= derived(columns)
    with naming_errors(composer, run):
        compile_ahead(inputs)
        time, reason = partial_predictions.time_alone(inputs)
    if reason.exists.any():
        raise CompositionError(f"no time can be predicted: {reason.first()}")
    return time.reshape(shape)


def _input_column(key: str, column: NDArray[Any]) -> NDArray[Any]:
    """Return sizes as a column of an input; raises InputError for a value that it does not allow."""
    if column.ndim > 1:
        allowed = "a number or a one-dimensional array"
        raise InputError(key, f"an array of {column.ndim} dimensions", allowed)
    definition = find_input(key)
    assert definition is not None, key
    invalid = ~((column >= definition.low) & (column <= definition.high))
    if definition.kind == "int":
        invalid |= column != np.floor(column)
    if invalid.any():
        raise InputError(key, column[invalid].flat[0], definition.allowed())
    return np.array(column, dtype=np.int64 if definition.kind == "int" else np.float64).ravel()
