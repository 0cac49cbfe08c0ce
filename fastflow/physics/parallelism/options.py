"""The values that keys of `parallel` may have."""

from __future__ import annotations

AUTO, TRUE, FALSE = "auto", "true", "false"
SWITCH = (AUTO, TRUE, FALSE)
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble", "zb-2p", "zb-v", "dualpipe-v", "dualpipe")
*_, ZB_V, DUALPIPE_V, DUALPIPE = SCHEDULES
FOLDS = {name: name in (ZB_V, DUALPIPE_V, DUALPIPE) for name in SCHEDULES}
"""Whether second chunks run from the last stage to the first."""
OFFLOADS = ("none", "optimizer", "activations", "weights", "all")
OFFLOAD_DEVICES = ("cpu", "nvme")
OFFLOAD_UPDATES = ("device", "host")
SPLITS = (AUTO, "even", "balanced")
MICROBATCH, BUFFER = "microbatch", "buffer"
REDUCES = (AUTO, MICROBATCH, "step", BUFFER)
P2P, A2A = "p2p", "a2a"
CP_COMM_TYPES = (P2P, A2A)
DISPATCHER, FLEX, ALL_GATHER = "parallel.token_dispatcher", "flex", "allgather"
DISPATCHERS = (AUTO, "alltoall", FLEX, ALL_GATHER)
