"""Nemotron."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import GPT
from fastflow.physics.workload.models.transformer.dimensions import NO_BIAS

TYPES = {"nemotron": GPT._replace(biases=NO_BIAS, tied=False, activation="relu2")}
