"""How far N random tiles a level fall behind all power-of-two tiles: the table of `docs/tilings.md`.

`python bench/tiling_gaps.py` runs `sweeps/tilings` and prints it.
"""

from __future__ import annotations

import pandas as pd

import fastflow

GRIDS = ("4K to 32K, the paper's", "transformers'")  # of the study's union, equally large
SHAPE = ["model.m", "model.k", "model.n"]


def kernel_time(frame: pd.DataFrame) -> pd.Series:
    """Return the time of each product without its launch [s]."""
    parts = ["gemm_compute_s", "gemm_l0_s", "gemm_l1_s", "gemm_l2_s", "gemm_dram_s"]
    return frame[parts].max(axis=1)


def gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """Return each tile set's gap to the best known tiling of the same product, and the tiles looked at."""
    frame = frame.copy()
    frame["time"] = kernel_time(frame)
    frame["gap"] = frame["time"] / frame.groupby(SHAPE)["time"].transform("min") - 1.0
    rows = {}
    for name, group in frame.groupby("tiling", sort=False):
        rows[name] = {
            "products": len(group), "mean": group["gap"].mean(), "median": group["gap"].median(),
            "90th percentile": group["gap"].quantile(0.9), "worst": group["gap"].max(),
            "candidates": group["candidates"].median(),
        }  # fmt: skip
    return pd.DataFrame(rows).T


def main() -> None:
    """Print the table in Markdown."""
    gaps_shown = "mean gap | median gap | 90th percentile | largest gap"
    print(f"| products | tiles | {gaps_shown} | tiles tried per product (median) |")
    print("|---|---|---|---|---|---|---|")
    frame = fastflow.evaluate("+sweeps=tilings")
    size = len(frame) // len(GRIDS)
    for place, title in enumerate(GRIDS):
        for name, row in gaps(frame.iloc[place * size : (place + 1) * size]).iterrows():
            parts = " | ".join(f"{row[part]:.1%}" for part in ("mean", "median", "90th percentile", "worst"))
            print(f"| {title} | `{name}` | {parts} | {row['candidates']:,.0f} |")


if __name__ == "__main__":
    main()
