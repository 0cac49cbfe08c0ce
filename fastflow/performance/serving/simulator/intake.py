"""How requests get from clients into iterations: when a server sees them, and what holds their prompts back.

- *Ahead.* An iteration is composed while the one before runs, so that host and device work at the same time
  (SGLang's overlap scheduler, vLLM's asynchronous scheduling, TensorRT-LLM's overlap scheduler). A request
  that arrives during an iteration is not in the next one, but in the one after it.
- *Interval.* A server looks for new requests once in some iterations that decode, and after each with prompts
  (`--scheduler-recv-interval` of SGLang, scheduler_recv_skipper.py).
- *Balance.* Attention ranks start prompts together: when all have one, when one has nothing to decode, or
  after some iterations (`attention_dp_config` of TensorRT-LLM, enable_balance and timeout_iters;
  `_balance_adp_requests` of tensorrt_llm/_torch/pyexecutor/py_executor.py).
- *Batch wait.* Prompts wait for others that fill a share of an iteration, for some iterations
  (batch_wait_timeout_iters and batch_wait_max_tokens_ratio of TensorRT-LLM, `_waiting_requests` there).

A server without requests takes what has come at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Floats
from fastflow.performance.serving.simulator.scheduler import Batch, Ranks, Requests, has_prompts, next_sent

VISIBLE, STARTED, COUNTED, HELD = range(4)
"""Of a state: until when requests were sent that the server has seen [s]; the start of the last iteration
[s]; iterations since it looked for requests; iterations for which prompts have been held back since some
ran."""
NO_LIMIT = 1 << 62


class Window(NamedTuple):
    """What the next iterations may have."""

    visible: float  # requests sent until then [s]
    most: int  # iterations until the server looks again, or prompts are held back no longer


@kernel
def new_state() -> Floats:
    """Return the state of an idle server."""
    return np.zeros(4)


@lean_kernel
def look(batch: Batch, state: Floats, now: float, is_idle: bool) -> None:
    """Let a server look for requests at the start of an iteration, where it is time; is_idle: none ran."""
    if is_idle:
        state[VISIBLE], state[COUNTED] = now, 0.0
        return
    if state[COUNTED] >= batch.intake.interval:
        state[COUNTED] %= batch.intake.interval
    if state[COUNTED] == 0.0:
        state[VISIBLE] = state[STARTED] if batch.intake.ahead else now


@lean_kernel
def holds(batch: Batch, requests: Requests, ranks: Ranks, state: Floats) -> bool:
    """Say whether prompts are held back in the next iteration."""
    if batch.intake.balances and batch.ranks > 1:
        return _waits_for_ranks(batch, requests, ranks, state)
    if batch.intake.wait_iterations > 0 and batch.ranks == 1:
        return _waits_for_prompts(batch, requests, ranks, state)
    return False


@lean_kernel
def _waits_for_ranks(batch: Batch, requests: Requests, ranks: Ranks, state: Floats) -> bool:
    ready = 0
    for rank in range(batch.ranks):
        ready += has_prompts(batch, requests, ranks, rank, state[VISIBLE])
        if ranks.decoding[rank] == 0:
            return False
    return bool(0 < ready < batch.ranks and state[HELD] < batch.intake.timeout)


@lean_kernel
def _waits_for_prompts(batch: Batch, requests: Requests, ranks: Ranks, state: Floats) -> bool:
    if ranks.decoding[0] == 0 or state[HELD] >= batch.intake.wait_iterations:
        return False
    tokens, places = 0, batch.most - ranks.started[0]
    for index in range(ranks.decoding[0], ranks.started[0]):
        i = ranks.running[0, index]
        tokens += requests.prompt[i] - requests.cached[i] - requests.computed[i]
    for index in range(ranks.head[0], min(ranks.tail[0], ranks.head[0] + places)):
        i = ranks.queue[0, index]
        if requests.sent[i] > state[VISIBLE]:
            break
        tokens += requests.prompt[i] - requests.cached[i] - requests.computed[i]
    return bool(0 < tokens < batch.intake.wait_tokens)


@lean_kernel
def window_of_intake(
    batch: Batch, requests: Requests, ranks: Ranks, state: Floats, now: float, is_held: bool
) -> Window:
    """Return what the next iterations may have."""
    most = NO_LIMIT
    if next_sent(batch, requests, ranks, state[VISIBLE]) <= now:
        most = max(1, int(batch.intake.interval - state[COUNTED]))
    if is_held:
        limit = batch.intake.timeout if batch.ranks > 1 else batch.intake.wait_iterations
        most = min(most, max(1, int(limit - state[HELD])))
    return Window(state[VISIBLE], most)


@lean_kernel
def note(batch: Batch, state: Floats, start: float, passes: int, with_prompts: bool, is_held: bool) -> None:
    """Note iterations that have run; start: of the last one [s]."""
    state[STARTED] = start
    state[COUNTED] = batch.intake.interval if with_prompts else state[COUNTED] + passes
    if with_prompts:
        state[HELD] = 0.0
    elif is_held:
        state[HELD] += passes
