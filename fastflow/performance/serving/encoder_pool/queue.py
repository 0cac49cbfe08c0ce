"""The queue of encoders: each encodes the images of one request at a time.

Requests go to the encoder that is free first, in the order in which they are sent. Then their embeddings are
sent to the server that computes their prompts, where they arrive as requests without encoders do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Floats
from fastflow.performance.serving.passes.step_time import Intake


class Encoding(NamedTuple):
    """The encoders of one point, and when its clients sent requests."""

    free_at: Floats  # (encoders,) when each has encoded all that it has [s]; none: servers encode images
    encode_s: float  # of the images of a request
    send_s: float  # to send a request's embeddings
    sent: Floats  # (requests,) [s]


@kernel
def idle_encoders(intake: Intake, requests: int) -> Encoding:
    """Return encoders before the first request is sent; requests: how many there will be."""
    return Encoding(np.zeros(intake.encoders), intake.encode_s, intake.send_s, np.zeros(requests))


@lean_kernel
def encoded_at(free_at: Floats, encode_s: float, now: float) -> float:
    """Give the images of a request that is sent now to an encoder; returns when they are encoded [s]."""
    first = 0
    for encoder in range(1, free_at.size):
        if free_at[encoder] < free_at[first]:
            first = encoder
    free_at[first] = max(now, free_at[first]) + encode_s
    return float(free_at[first])


@lean_kernel
def arrival_of(encoding: Encoding, request: int, sent: float) -> float:
    """Note that a client sends a request; returns when it arrives at its server, with its embeddings [s]."""
    encoding.sent[request] = sent
    if encoding.free_at.size == 0:
        return sent
    return encoded_at(encoding.free_at, encoding.encode_s, sent) + encoding.send_s
