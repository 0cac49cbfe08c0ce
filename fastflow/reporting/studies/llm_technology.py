"""Scaling logic, memory and network technology under the best layout of a transformer (Figure 9).

The claims are those of the paper's section 9.1 on a recurrent language model under naive data parallelism,
judged for a transformer.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from fastflow.reporting.studies import fig09
from fastflow.reporting.studies.claims import Claim

COLUMNS = (*fig09.COLUMNS, "model", "devices")


def claims(frame: pd.DataFrame) -> list[Claim]:
    """Judge the claims of section 9.1; rows in point order."""
    return fig09.claims(frame)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the iteration's time over nodes, and the limiters of kernels, as Figure 9 does."""
    models, devices = (", ".join(map(str, frame[name].unique())) for name in ("model", "devices"))
    return fig09.draw(frame, f"Technology under the best layout of {models} on {devices} devices")
