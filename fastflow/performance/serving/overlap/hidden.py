"""Time that an iteration hides by overlap inside a device, interpolated in its table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.performance.serving.passes.interpolate import interpolate_1d, interval_of, share_of
from fastflow.performance.serving.passes.table import PassTimes


class HiddenLine(NamedTuple):
    """Time that iterations hide, which decode the same requests: a line along the time of attention."""

    seconds: float  # of the first iteration
    slope: float  # for each second that attention takes longer
    end: float  # time of attention up to which the slope is valid [s]


NONE_HIDDEN = HiddenLine(0.0, 0.0, np.inf)


@lean_kernel
def hidden_line(times: PassTimes, server: int, tokens: float, decode: float, prefill: float) -> HiddenLine:
    """Return the time that an iteration hides, as a line along the time of attention of decoding requests.

    tokens: of the rank with most; decode: time of attention of these requests; prefill: that of prompts [s].
    """
    overlap = times.overlap
    if overlap.overlaps.size == 0 or tokens <= 0.0:
        return NONE_HIDDEN
    if not overlap.overlaps[server]:
        return NONE_HIDDEN
    interval = interval_of(times.tokens, tokens)
    share = share_of(times.tokens, interval, tokens)
    low = _line_of_size(times, server, interval, decode, prefill)
    if times.tokens.size == 1:
        return low
    high = _line_of_size(times, server, interval + 1, decode, prefill)
    return HiddenLine(
        max(0.0, low.seconds + share * (high.seconds - low.seconds)),
        low.slope + share * (high.slope - low.slope),
        min(low.end, high.end),
    )


@lean_kernel
def hidden_time(times: PassTimes, server: int, tokens: float, decode: float, prefill: float) -> float:
    """Return the time that an iteration hides [s]; sizes as those of `hidden_line`."""
    return hidden_line(times, server, tokens, decode, prefill).seconds


@lean_kernel
def _line_of_size(times: PassTimes, server: int, size: int, decode: float, prefill: float) -> HiddenLine:
    """Return the line of an entry of the axis of tokens."""
    overlap, alone = times.overlap, times.shared[server, size]
    if not (0.0 < alone < np.inf):
        return NONE_HIDDEN
    decodes, prefills, table = overlap.decode, overlap.prefill, overlap.hidden[server, size]
    column = interval_of(prefills, prefill / alone)
    part = min(share_of(prefills, column, prefill / alone), 1.0)
    row = interval_of(decodes, decode / alone)
    start, end = interpolate_1d(table[row], column, part), interpolate_1d(table[row + 1], column, part)
    share = share_of(decodes, row, decode / alone)
    if share >= 1.0 and row + 2 == decodes.size:
        return HiddenLine(end, 0.0, np.inf)
    slope = (end - start) / ((decodes[row + 1] - decodes[row]) * alone)
    return HiddenLine(start + share * (end - start), slope, decodes[row + 1] * alone)


@kernel
def _hidden_times(times: PassTimes, server: Ints, tokens: Floats, decode: Floats, prefill: Floats) -> Floats:
    hidden = np.zeros(server.size)
    for i in range(server.size):
        hidden[i] = hidden_time(times, server[i], tokens[i], decode[i], prefill[i])
    return hidden


def hidden_of(times: PassTimes, server: Ints, tokens: Floats, decode: Floats, prefill: Floats) -> Floats:
    """Return `hidden_time` of each point [s], (points,); server: row in the tables."""
    if not times.overlap.overlaps.size:
        return np.zeros(server.size)
    sizes = (np.ascontiguousarray(column, dtype=np.float64) for column in (tokens, decode, prefill))
    return _hidden_times(times, server, *sizes)


def without_hidden(
    hidden_s: Floats, time: Floats, exchange: Floats, by: Floats, throttled: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the last four without a hidden time [s]: of exchanges first, then an equal share of all kernels.

    time, exchange: of passes, (points,) [s]; by: time by limiter, the network last; throttled: of `time`.
    """
    of_exchange, kernels, by = np.minimum(hidden_s, exchange), time - exchange, by.copy()
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.where(kernels > 0.0, 1.0 - (hidden_s - of_exchange) / kernels, 1.0)
    by[:, :-1] *= rest[:, None]
    by[:, -1] -= of_exchange
    return time - hidden_s, exchange - of_exchange, by, throttled * rest
