"""Exchanges of experts by DeepEP's kernels within a machine: dispatch and combine (6.4).

DeepEP (deepseek-ai/DeepEP, csrc/kernels/intranode.cu and internode_ll.cu) sends tokens in fp8, with a scale
for 128 values, and their sums back in bf16. Latencies are counted in steps by LL, a store to a peer that
polls it (`custom_all_reduce`), so that they follow the links' generation.

- Normal: SMs that are given to it, of which one half sends and one half receives. A token goes once to every
  rank that has one of its experts, expected_parts of them. A kernel that tells the ranks the counts comes
  first. An SM takes a while for a token and for each of its copies, by their bytes; or links are the limit.
  Pipelines of chunks take FILL until they are full.
- Low latency: a copy for every chosen expert, straight into the receiver's buffers. A block for each group of
  experts, on so many SMs that no more than one block is on an SM: experts of a machine, at most the SMs. So
  few experts leave most SMs idle, and a block takes its tokens one after the other. Flags are for each
  expert.

All constants are calibrated on deepep.csv (ai-dynamo/aiconfigurator@095f58a, SGLang 0.5.12), one value for
H100 and B200; times of the normal mode are those of calls back to back, of the low-latency mode those of the
kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.network.collectives.custom_all_reduce import BACKEND, CUSTOM, check_backend
from fastflow.physics.network.collectives.nccl import LL0
from fastflow.physics.network.cost_table import wires_of
from fastflow.physics.network.moe_dispatch import Routing, expected_parts

MODES = ("normal", "low_latency")
NORMAL, LOW_LATENCY = range(len(MODES))
DISPATCH, COMBINE = range(2)

# Of a token in fp8; header: of the low-latency mode
SCALED_VALUES, SCALE_BYTES, HEADER_BYTES = 128.0, 4.0, 16.0
SENT_BYTES = 2.0  # of a value that is combined

LAUNCHES = 2.0  # of the normal mode: counts, then tokens
FILL, FILL_TOKENS = 9.2, 100.0  # steps of LL, at so many tokens half of them
"""Of the normal mode, as the next; by DISPATCH and COMBINE."""
START_STEPS = (23.4, 18.9)  # steps of LL
START_ROW = (0.0, 3.64e-9)  # of a value: one warp passes a token on [s]
TOKEN_STEPS = (0.31, 0.0)  # of an SM, a token, in steps of LL
TOKEN_ROW = (0.0, 0.214e-9)  # of an SM, a value of a token [s]
COPY = (74e-9, 94e-9)  # of an SM, a copy [s]
COPY_ROW = (0.040e-9, 0.047e-9)  # of an SM, a value of a copy [s]: 25 GB/s of fp8, 42 GB/s of bf16
LINK_SHARE = (0.75, 0.78)  # of the links' payload

"""Of the low-latency mode, by DISPATCH and COMBINE."""
LATENCY_STEPS = (8.1, 9.0)  # steps of LL
EXPERT_STEPS = (0.021, 0.0095)  # steps of LL an expert
ROW_STEPS = (0.0, 0.21e-3)  # steps of LL a value of a token
BLOCK_TOKEN = (1.23e-6, 0.0)  # of a block, a token [s]
BLOCK_ROW = (0.212e-9, 0.044e-9)  # of a block, a value of a token [s]
LATENCY_SHARE = (0.86, 0.67)  # of the links' payload


class Links(NamedTuple):
    """What kernels of one device take and reach."""

    launch: float  # of a kernel that waits for the one before [s]
    step: float  # by LL [s]
    bandwidth: float  # of links, one direction, as payload [B/s]
    sms: float  # of the device


class Exchange(NamedTuple):
    """Tokens of one rank, and where they go."""

    tokens: float
    hidden: float  # values of a token
    topk: float
    experts: float
    ranks: float
    copies: float  # ranks that hold a token's experts, on average


def token_bytes(part: int, hidden: float) -> float:
    """Return the bytes of a copy of a token: scaled fp8 to dispatch, bf16 to combine."""
    return hidden * (1.0 + SCALE_BYTES / SCALED_VALUES) if part == DISPATCH else SENT_BYTES * hidden


def exchange_time(mode: int, part: int, given_sms: float, exchange: Exchange, links: Links) -> float:
    """Return the time of one dispatch or combine [s]; given_sms: SMs of the normal mode."""
    return float(_time(mode, part, given_sms, token_bytes(part, exchange.hidden), exchange, links))


@kernel
def _time(mode: int, part: int, given_sms: float, size: float, exchange: Exchange, links: Links) -> float:
    tokens, hidden = exchange.tokens, exchange.hidden
    remote = 1.0 - 1.0 / exchange.ranks
    if mode == NORMAL:
        token = TOKEN_STEPS[part] * links.step + TOKEN_ROW[part] * hidden
        on_sm = (token + exchange.copies * (COPY[part] + COPY_ROW[part] * hidden)) / given_sms
        on_links = exchange.copies * size * remote / (LINK_SHARE[part] * links.bandwidth)
        start = LAUNCHES * links.launch + START_STEPS[part] * links.step + START_ROW[part] * hidden
        filling = FILL * links.step * tokens / (tokens + FILL_TOKENS)
        return start + filling + tokens * max(on_sm, on_links)
    steps = LATENCY_STEPS[part] + EXPERT_STEPS[part] * exchange.experts + ROW_STEPS[part] * hidden
    blocks: float = np.ceil(exchange.experts / np.ceil(exchange.experts / links.sms))
    on_blocks = tokens / blocks * (BLOCK_TOKEN[part] + BLOCK_ROW[part] * hidden)
    header = HEADER_BYTES if part == DISPATCH else 0.0
    moved = tokens * exchange.topk * (size + header) * remote
    return links.launch + steps * links.step + on_blocks + moved / (LATENCY_SHARE[part] * links.bandwidth)


def expert_exchange_times(
    inputs: Inputs, chip: Chip, modes: Ints, parts: Ints, sms: Ints, sizes: Mapping[str, Ints]
) -> Floats:
    """Return the time of exchanges in one machine of a point's system [s], shape (exchanges,).

    As performance.partial_predictions.time_expert_exchanges. Raises InputError for a system without NCCL,
    whose scalars latencies are counted in.
    """
    check_backend(str(inputs["system.library"][0]), CUSTOM)
    wires, libraries = wires_of({**inputs, BACKEND: np.array([CUSTOM])}, chip)
    launch = inputs["chip.launch_overhead"][0] + inputs["chip.blocks.late_launch"][0]
    links = Links(float(launch), float(libraries[0, LL0]), float(wires.intra[0]), float(chip.bundles[0]))
    columns = [sizes[name].tolist() for name in ("tokens", "hidden", "topk", "experts", "ranks")]
    time = np.empty(modes.size)
    for i, (*given, experts, ranks) in enumerate(zip(*columns, strict=True)):
        copies = expected_parts(Routing(experts, given[2], 1, 1), ranks)
        tokens, hidden, topk = map(float, given)
        exchange = Exchange(tokens, hidden, topk, float(experts), float(ranks), copies)
        time[i] = exchange_time(int(modes[i]), int(parts[i]), float(sms[i]), exchange, links)
    return time
