"""The values that keys of `parallel` may have."""

from __future__ import annotations

AUTO, TRUE, FALSE = "auto", "true", "false"
SWITCH = (AUTO, TRUE, FALSE)
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble")
OFFLOADS = ("none", "optimizer", "activations", "weights", "all")
OFFLOAD_DEVICES = ("cpu", "nvme")
OFFLOAD_UPDATES = ("device", "host")
SPLITS = (AUTO, "even", "balanced")
MICROBATCH, BUFFER = "microbatch", "buffer"
REDUCES = (AUTO, MICROBATCH, "step", BUFFER)
P2P, A2A = "p2p", "a2a"
CP_COMM_TYPES = (P2P, A2A)
DISPATCHER, FLEX = "parallel.token_dispatcher", "flex"
DISPATCHERS = (AUTO, "alltoall", FLEX)
