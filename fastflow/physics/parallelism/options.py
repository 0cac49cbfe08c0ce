"""The values that keys of `parallel` may have."""

from __future__ import annotations

AUTO, TRUE, FALSE = "auto", "true", "false"
SWITCH = (AUTO, TRUE, FALSE)
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble")
OFFLOADS = ("none", "optimizer", "activations", "all")
SPLITS = (AUTO, "even", "balanced")
MICROBATCH, BUFFER = "microbatch", "buffer"
REDUCES = (AUTO, MICROBATCH, "iteration", BUFFER)
ALL_TO_ALL = "all_to_all"
CONTEXTS = ("ring", ALL_TO_ALL)
DISPATCHER, FLEX = "parallel.token_dispatcher", "flex"
DISPATCHERS = (AUTO, "alltoall", FLEX)
