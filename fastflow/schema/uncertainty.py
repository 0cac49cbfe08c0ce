"""The registry of uncertain results: inputs of sampling, bands of result columns."""

from __future__ import annotations

from fastflow.core.field import Column

BANDED: dict[str, int] = {
    "time_s": 1, "energy_J": 0, "tokens_per_s": -1, "tokens_per_s_per_device": -1, "train_s": 1,
    "ttft_s": 1, "tpot_s": 1, "requests_per_s": -1, "joules_per_token": 0, "tokens_per_s_per_MW": 0,
    "compute_flops": 0, "dram_capacity_B": 0, "dram_Bps": 0,
    "die_usd": 0, "device_usd": 0, "system_usd": 0, "iteration_usd": 1, "token_usd": 1,
    "train_usd": 1, "device_carbon_kg": 0, "carbon_g": 1, "carbon_g_per_token": 1, "train_carbon_kg": 1,
}  # fmt: skip
"""Result columns that have bands, and the power of the model error of times that changes them."""
_PERCENTILES = {10: "10th percentile", 50: "median", 90: "90th percentile"}


def band_of(name: str) -> tuple[str, ...]:
    """Return the names of a result's 10th, 50th and 90th percentile."""
    return tuple(f"{name}_p{percentile}" for percentile in _PERCENTILES)


def bands(results: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the band columns of the results in `BANDED`."""
    return tuple(
        Column(
            f"{column.name}_p{percentile}",
            "float",
            column.unit,
            f"{label} of {column.name} over samples (uncertainty=on)",
        )
        for column in results
        if column.name in BANDED
        for percentile, label in _PERCENTILES.items()
    )


SAMPLED: tuple[Column, ...] = (
    Column(
        "model_error_share",
        "float",
        "",
        "share of the variance of log time_s that comes from the model's own error",
    ),
    Column(
        "samples_failed",
        "int",
        "",
        "number of samples that are not feasible; samples without a time are in no band",
    ),
)
CHANCE = Column(
    "prob_first_better",
    "float",
    "",
    "probability that the first row is better than this row; for the first 64 rows",
)
ON_FRONT = Column(
    "prob_on_front", "float", "", "probability that no other row beats this row; for the first 64 rows"
)
