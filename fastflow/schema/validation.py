"""Columns of a validation: of its rows, beyond those of its file and of RESULTS, and of its errors."""

from __future__ import annotations

from fastflow.core.field import Column
from fastflow.schema.quantities import FURTHER

ROOFLINE = "roofline_"
"""Prefix of the times that each resource alone takes."""

VALIDATION: tuple[Column, ...] = (
    Column("line", "int", "", "line in the file of measurements; the header is line 1"),
    Column("part", "str", "", "part of the workload that was measured"),
    Column(
        "timed",
        "str",
        "",
        "kernel: kernels alone or calls back to back; call: single calls of a framework",
    ),
    Column("measured_s", "float", "s", "measured time"),
    Column("predicted_s", "float", "s", "predicted time; null where `reason` says why there is none"),
    Column("host_s", "float", "s", "part of predicted_s: overhead of the measuring host"),
    Column("ratio", "float", "", "predicted_s over measured_s"),
    Column("error", "float", "", "relative error: |predicted_s - measured_s| / measured_s"),
    *(column for quantity in FURTHER for column in quantity.columns),
    Column("roofline_compute_s", "float", "s", "compute time alone, all launches of all kernels"),
    Column("roofline_l*_s", "float", "s", "time of this memory level alone, all launches of all kernels"),
    Column("roofline_dram_s", "float", "s", "time of main memory alone, all launches of all kernels"),
    Column("roofline_launch_s", "float", "s", "launch overhead alone, all launches of all kernels"),
    Column("latency_s", "float", "s", "time of the collective with an empty message"),
    Column("complete", "bool", "", "whether the row of a training run gives its whole layout"),
    Column("library", "str", "", "choice of the group framework that was assumed for a training run"),
    Column("family", "str", "", "family of models that was assumed for a training run"),
    Column(
        "parameters_billions", "float", "", "lower bound of the parameters of a training run, in billions"
    ),
    Column("origin", "str", "", "source of a training run, without its revision"),
    Column("quantity", "str", "", "quantity whose errors they are; missing: time"),
    Column("by", "str", "", "column by which measurements are grouped"),
    Column("value", "str", "", "value of this column in the group"),
    Column("rows", "int", "", "number of measurements in the group"),
    Column("mean_error", "float", "", "mean relative error"),
    Column("median_error", "float", "", "median relative error"),
    Column("p90_error", "float", "", "90th percentile of the error"),
    Column("bias", "float", "", "median of predicted over measured; below 1: predictions are too fast"),
    Column("log_correlation", "float", "", "Pearson correlation of the logarithms of predicted and measured"),
)
