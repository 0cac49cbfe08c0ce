"""Scheduling policies, a module each, and what they are made from (docs/extending.md)."""

from fastflow.performance.serving.simulator.policies import mixed, prefill_first
from fastflow.performance.serving.simulator.policies.prompts import fill_prompts, sort_waiting
from fastflow.schema.scheduling import Policy

__all__ = ["Policy", "fill_prompts", "mixed", "prefill_first", "sort_waiting"]
