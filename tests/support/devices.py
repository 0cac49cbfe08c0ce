"""Chips of the oracles as devices that kernels run on, and devices of the library's chips."""

import numpy as np
from hypothesis import strategies as st

from fastflow.api.functions import _single_point
from fastflow.performance.admission import generate_chip
from fastflow.physics.timing.device import Boost, Device, Library, Memories, device
from fastflow.physics.timing.tiling.dataflow import DATAFLOW_CODES, Units
from tests.naive import attention
from tests.naive.voltage import power
from tests.support.tilings import SPARE, SUPPLIES

FLAGS = ("shared", "persistent", "splits")
NUMBERS = (
    "latency", "step", "shared", "cluster", "pair", "persistent", "overlap", "splits", "promotion", "launch",
    "late_launch", "drive", "strided", "reach", "miss", "cache", "beyond",
)  # fmt: skip
"""Properties of a library that chips have under the same name."""
rates = st.floats(1e9, 1e13)


def column(values, dtype=np.float64):
    return np.array(values, dtype=dtype)


def _supply(design):
    """Return the supply with all at work, threshold and highest one; a known clock where it is not said."""
    return getattr(design, "supply", (1.0, 0.3, 1.0))


def _driven(design, level):
    """Return `Memories.driven` of a level."""
    spare = getattr(design, "spare", ())
    return (1.0 / spare[level] if spare else 1.0) if level <= design.private else 0.0


def devices(designs, blocks=None, batched_blocks=None, grouped_blocks=None):
    """Return chips, which have an equal number of levels, as a device of so many points.

    What the oracle's chip lacks is 0. blocks, batched_blocks, grouped_blocks: texts of every chip's tiles,
    none by default.
    """
    levels, none = len(designs[0].capacities), [""] * len(designs)

    def each(name, dtype=np.float64, default=0):
        return column([getattr(design, name, default) for design in designs], dtype)

    return Device(
        matrix_flops=each("flops"),
        vector_flops=each("vector"),
        vector_peak=each("vector_peak"),
        special_functions=each("exponentials"),
        issue=each("issue"),
        memories=Memories(
            capacity=column([d.capacities for d in designs]),
            bandwidth=column([d.bandwidths for d in designs]),
            driven=column([[*(_driven(d, level) for level in range(levels)), 0.0] for d in designs]),
            private=each("private", np.int64),
        ),
        launch=each("launch"),
        units=Units(
            m=column([d.unit[0] for d in designs], np.int64),
            k=column([d.unit[1] for d in designs], np.int64),
            n=column([d.unit[2] for d in designs], np.int64),
            dataflow=column([DATAFLOW_CODES[d.dataflow] for d in designs], np.int64),
        ),
        instances=each("bundles"),
        boost=Boost(
            threshold=column([_supply(d)[1] / _supply(d)[0] for d in designs]),
            headroom=column([power(_supply(d)[2], *_supply(d)[:2]) for d in designs]),
            enabled=each("boosts", np.bool_),
        ),
        library=Library(
            peak_flops=each("peak"),
            registers=each("registers"),
            warp_m=column([d.warp[0] for d in designs]),
            warp_n=column([d.warp[1] for d in designs]),
            single_step=each("step"),
            single_splits=each("splits", np.bool_),
            stages=each("stages", default=4),
            fill=each("fill", default=np.inf),
            **{name: each(name, np.bool_ if name in FLAGS else np.float64) for name in NUMBERS},
        ),
        blocks=column(blocks or none, np.str_),
        batched_blocks=column(batched_blocks or none, np.str_),
        grouped_blocks=column(grouped_blocks or none, np.str_),
    )


@st.composite
def _chips(draw, levels):
    boosts = draw(st.booleans())
    own = {}
    if boosts:
        own["spare"] = tuple(draw(st.sampled_from(SPARE)) for _ in range(levels))
        own["supply"] = draw(st.sampled_from(SUPPLIES))
    return attention.Chip(
        unit=draw(st.sampled_from([(1, 1, 8), (4, 4, 4), (8, 4, 16)])),
        dataflow=draw(st.sampled_from(sorted(DATAFLOW_CODES))),
        peak=draw(st.floats(1e12, 1e14)),
        flops=draw(st.floats(1e11, 1e15)),
        vector=draw(st.floats(1e10, 1e14)),
        vector_peak=draw(st.floats(1e11, 1e13)),
        exponentials=draw(st.floats(1e10, 1e13)),
        bandwidths=[draw(rates) for _ in range(levels + 1)],
        capacities=[draw(st.sampled_from([1e3, 2e4, 1e5, 4e5, 5e6])) for _ in range(levels)],
        private=draw(st.integers(0, levels - 1)),
        bundles=draw(st.sampled_from([1, 5, 20, 108])),
        registers=draw(st.sampled_from([1e3, 1e4, 2.6e5, 262144.0, 2e6])),
        warp=draw(st.sampled_from([(64, 64), (128, 256)])),
        latency=draw(st.sampled_from([0.0, 5e-7])),
        step=draw(st.sampled_from([0.0, 1e-7, 1e-5])),
        shared=draw(st.booleans()),
        persistent=draw(st.booleans()),
        launch=draw(st.sampled_from([0.0, 4e-6])),
        drive=draw(st.sampled_from([0.0, 0.8, 30.0])),
        issue=draw(st.floats(1e11, 1e14)),
        pair=draw(st.sampled_from([1, 2])),
        boosts=boosts,
        **own,
    )


attention_designs = st.integers(1, 4).flatmap(lambda n: st.lists(_chips(n), min_size=1, max_size=2))
"""Chips of the oracles of attention, with an equal number of levels."""
A100ISH = attention.Chip(
    unit=(8, 4, 8), dataflow="best", peak=3e14, flops=3e14, vector=2e13, vector_peak=2e13,
    exponentials=2.4e12, bandwidths=[1e18, 1e18, 1e18, 1e15], capacities=[6e4, 2e5, 4e7], private=1,
    bundles=108, registers=2.6e5, warp=(64, 64), latency=0.0, step=0.0, shared=False, persistent=False,
    launch=0.0, drive=0.0,
)  # fmt: skip
"""What computes is an A100's; memories, launches and power limit nothing."""


def device_of(chip, dtype="bf16"):
    """Return the device of a chip of the library, of one point."""
    _, run = _single_point(("model=gemm", f"chip={chip}", f"model.dtype={dtype}"))
    inputs = run.grid.first_inputs()
    made, _ = generate_chip(inputs)
    return device(inputs, made, lasts=False)
