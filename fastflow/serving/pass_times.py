from __future__ import annotations

from typing import NamedTuple

from fastflow.tables import Floats, Ints


class PassTimes(NamedTuple):
    tokens: Ints
    shared: Floats
    head: Floats
    requests: Ints
    context: Ints
    decode: Floats
    chunk: Ints
    before: Ints
    prefill: Floats
    prefill_more: Floats
