"""The names of studies; each has a file in `reporting/studies/`, and most have a file in `sweeps/`."""

from __future__ import annotations

STUDIES = (
    "backtest", "fig01", "fig09", "fig10", "fig11", "llm_strategies", "llm_technology", "power_cap",
    "serving_technology",
)  # fmt: skip
"""Values of `report`."""
SEARCHED = ("fig10", "fig11")
"""Studies that judge the ranking of a search."""
