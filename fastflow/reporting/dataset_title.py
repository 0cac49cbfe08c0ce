"""What a dataset is called in titles: its models and its folder."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastflow.engine.dataset.reader import Dataset

_MAX_MODELS = 3  # in a title
_DAY, _TIME = re.compile(r"\d{4}-\d\d-\d\d"), re.compile(r"(\d\d)-(\d\d)-\d\d")
"""Of a default output folder: outputs/2026-11-25/02-41-07-144933."""


def points_title(dataset: Dataset, points: str) -> str:
    """Return the title of a figure: "4 points of llama3_8b (g)"; points: "4 points"."""
    models = models_of(dataset)
    return f"{points}{f' of {models}' if models else ''} ({folder_name(dataset.folder.shown)})"


def models_of(dataset: Dataset) -> str:
    """Return the models of a dataset's points, "" where neither a column nor the command says."""
    if "model" in dataset.schema.names:
        models = dict.fromkeys(str(model) for model in dataset.read(["model"])["model"].unique())
    else:
        chosen = [text.partition("=")[2] for text in dataset.user_overrides if text.startswith("model=")]
        models = dict.fromkeys(name for text in chosen for name in text.split(","))
    return ", ".join(models) if len(models) <= _MAX_MODELS else f"{len(models):,} models"


def folder_name(folder: str) -> str:
    """Return the name of a dataset's folder, or day and time of one that the command named."""
    day, _, name = folder.rstrip("/").rpartition("/")
    time = _TIME.match(name)
    day = day.rpartition("/")[2]
    return f"{day} {time[1]}:{time[2]}" if time and _DAY.fullmatch(day) else name
