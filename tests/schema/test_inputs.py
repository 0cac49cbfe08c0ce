"""Bounds of inputs by what a number is: a share, a count, a quantity of physics; and the word auto."""

import math
import re

from fastflow.config.model_inputs import convert
from fastflow.core.errors import InputError
from fastflow.schema import ALL, INPUTS, SOME, result_order

NUMBERS = [column for column in INPUTS if column.kind in ("float", "int")]
SHARE = re.compile(r"(?:NCCL: )?(?:highest )?share of (?!.*\badded\b)")
"""How the meaning of a share begins; an overhead that is added may be more than the whole."""
ABOVE_ZERO = (
    "utilization",
    "yield",
    "net.library.load",
    "chip.sustained_power_fraction",
    "server.gpu_memory_utilization",
    "server.nano_batch_attention_share",
    "server.resident_experts",
    "chip.dram_offered",
)
"""How names of shares end that nothing works without."""
SAYS_ZERO = re.compile(r"\b0: |\(0\)")
"""A meaning that says what 0 stands for."""
FROM_ZERO = {
    "tech.generation", "chip.chiplets.*.generation", "tiling.seed", "parallel.overlap.bundles",
    "serve.num_speculative_tokens", "serve.prefill.devices", "server.moe_alignment",
    "model.rotary", "model.shared_experts", "model.topk", "model.experts", "model.mtp", "model.topk_groups",
    "model.before", "model.expert_rows",
}  # fmt: skip
"""Whole numbers that are counted from 0, or of what there may be none."""
DIVISORS = ("V", "Hz", "bit/s", "1/m", "B", "m^2/bit", "flop")
"""Units of what is divided by."""
NONE_OF_IT = (
    "carbon.host.dram", "carbon.host.nand", "memory.context", "memory.workspace", "memory.communicator",
    "server.library_memory", "server.parallel_memory", "server.dispatch_memory", "server.graph_memory",
    "serve.tiers.host.capacity", "serve.tiers.flash.capacity", "serve.tiers.remote.capacity",
    "server.cpu_offload", "server.swap_space",
)  # fmt: skip
"""Sizes of what a machine, or a process, may lack."""
HIGHEST = {
    "tech.memory.*.overhead": 0.99,  # a bank without cells holds nothing
    "chip.temperature": 150,  # no chip works beyond
    "memory.reserve": 0.95,  # something has to be left
    "power.fan_fraction": 0.9,  # a machine does more than to cool itself
    "parallel.zero_stage": 3,  # the stages of ZeRO: states, gradients, weights
    "serve.mean_acceptance_length": 65,  # tokens of a draft, and one more
}
"""Upper bounds that are no round numbers."""


def is_taken(column, value):
    """Say whether a key that a registered name stands for takes a value."""
    key = column.name.replace("l*", "l1").replace("*", "x")
    try:
        convert(key, f"{value!r} {column.unit}" if column.unit else value)
    except InputError:
        return False
    return True


def test_a_share_is_of_a_whole():
    shares = [column for column in NUMBERS if SHARE.match(column.meaning)]
    assert len(shares) > 30
    for column in shares:
        whole = HIGHEST.get(column.name, 1.0)
        assert is_taken(column, whole), column.name
        assert is_taken(column, 1e-9), column.name
        assert not is_taken(column, math.nextafter(whole, 2.0)), column.name
        assert is_taken(column, 0.0) != column.name.endswith(ABOVE_ZERO), column.name


def test_a_count_starts_at_one_unless_there_may_be_none():
    counts = [column for column in NUMBERS if column.kind == "int"]
    assert {column.name for column in counts} >= FROM_ZERO
    for column in counts:
        has_zero = column.name in FROM_ZERO or SAYS_ZERO.search(column.meaning) is not None
        assert is_taken(column, 1), column.name
        assert is_taken(column, 0) == has_zero, column.name
        assert not is_taken(column, -1), column.name


def test_no_number_is_negative_and_no_divisor_is_zero():
    for column in NUMBERS:
        assert is_taken(column, min(1, HIGHEST.get(column.name, 1))), column.name
        assert not is_taken(column, -1e-9 if column.kind == "float" else -1), column.name
        if column.unit in DIVISORS and column.name not in NONE_OF_IT:
            assert not is_taken(column, 0.0), column.name


def test_upper_bounds_are_round_and_are_taken():
    bounded = [column for column in NUMBERS if column.high < math.inf]
    assert len(bounded) > 100
    for column in bounded:
        is_round = math.log10(column.high).is_integer() or math.log2(column.high).is_integer()
        assert is_round if column.name not in HIGHEST else column.high == HIGHEST[column.name], column.name
        highest = int(column.high) if column.kind == "int" else column.high
        beyond = highest + 1 if column.kind == "int" else math.nextafter(highest, math.inf)
        assert is_taken(column, highest), column.name
        assert not is_taken(column, beyond), column.name


def test_what_is_no_number_has_no_bounds():
    for column in INPUTS:
        if column.kind in ("bool", "str"):
            assert (column.low, column.high, column.auto) == (-math.inf, math.inf, None), column.name


def test_auto_is_the_number_that_its_meaning_says():
    """Or 0, where it says none; keys whose meaning has no such word refuse it."""
    stands_for = {}
    for column in NUMBERS:
        said = re.search(r"\bauto(?: \((-?\d+)\))?:", column.meaning)
        if said is None:
            assert not is_taken(column._replace(unit=""), "auto"), column.name
        else:
            stands_for[column.name] = value = convert(column.name, "auto")
            assert value == int(said[1] or 0), column.name
            # no other value means the same, unless 0 does
            assert is_taken(column, value) == (said[1] == "0"), column.name
    assert stands_for == {
        "system.devices": 0, "parallel.zero_stage": -1, "parallel.microbatch": 0, "cost.rent": 0,
        "server.max_num_seqs": 0, "server.gpu_memory_utilization": 0, "server.cpu_offload": -1,
        "server.resident_experts": 0,
    }  # fmt: skip


def test_no_two_columns_of_a_dataset_have_one_name():
    """Iterations of training and servers may be rows of one grid."""
    for served in ("", SOME, ALL):
        names = result_order(3, has_layer_runs=True, served=served, banded=True)
        assert len(names) == len(set(names)), {name for name in names if names.count(name) > 1}
