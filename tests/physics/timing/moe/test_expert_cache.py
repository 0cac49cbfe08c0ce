"""Experts that a device keeps: Che's approximation against passes that are drawn."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastflow.physics.timing.moe.expert_cache import ExpertUse, choices_of
from tests.naive.expert_cache import chances, passes


def choices(tokens, topk, experts, exponent, resident, by_count=False):
    """Return the different experts that a pass chooses, and those it has to get."""
    whole = [np.array([number], dtype=np.int64) for number in (tokens, topk, experts)]
    uses = ExpertUse(
        *whole, np.array([float(exponent)]), np.array([resident], dtype=np.int64), np.array([by_count])
    )
    distinct, missed = choices_of(uses)
    return distinct[0], missed[0]


CASES = [
    (1, 2, 8, 0.0, 4), (1, 2, 8, 1.2, 4), (1, 8, 64, 0.0, 16), (1, 8, 64, 1.2, 16), (1, 8, 64, 1.2, 48),
    (4, 8, 64, 0.0, 48), (4, 8, 64, 1.2, 32), (8, 8, 128, 1.0, 64), (16, 2, 8, 1.2, 4), (2, 1, 32, 2.0, 8),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_the_approximation_is_near_to_draws(case, policy):
    drawn = passes(*case, policy, 600, random.Random(7))
    distinct, missed = choices(*case, policy == "lfu")
    assert distinct == pytest.approx(drawn[0], rel=0.02)
    assert missed == pytest.approx(drawn[1], rel=0.08, abs=0.05)


USES = {
    "tokens": st.integers(1, 4096), "topk": st.integers(1, 16), "experts": st.integers(16, 256),
    "exponent": st.floats(0.0, 4.0), "resident": st.integers(1, 256),
}  # fmt: skip


@settings(deadline=None)
@given(**USES, by_count=st.booleans())
def test_bounds(tokens, topk, experts, exponent, resident, by_count):
    distinct, missed = choices(tokens, topk, experts, exponent, resident, by_count)
    assert min(topk, experts) - 1e-9 <= distinct <= min(experts, tokens * topk) + 1e-9
    assert 0.0 <= missed <= distinct + 1e-9
    assert missed >= distinct - resident - 1e-6
    if resident >= experts:
        assert missed == 0.0
    more = choices(tokens, topk, experts, exponent, resident + 1, by_count)[1]
    assert more <= missed + 1e-6
    best = choices(tokens, topk, experts, exponent, resident, True)[1]
    assert best <= missed + 1e-6  # what is chosen most often is the best to keep where draws are independent


@settings(deadline=None)
@given(**USES)
def test_chances_are_those_of_the_law(tokens, topk, experts, exponent, resident):
    chance = chances(tokens, topk, experts, exponent)
    assert sum(chance) == pytest.approx(topk, rel=1e-9)
    expected = sum(1.0 - (1.0 - p) ** tokens for p in chance)
    assert choices(tokens, topk, experts, exponent, resident)[0] == pytest.approx(expected, rel=1e-6)


def test_alike_experts_miss_by_their_share():
    for tokens in (1, 3, 500):
        distinct, missed = choices(tokens, 4, 32, 0.0, 8)
        assert missed == pytest.approx(distinct * 0.75, rel=1e-9)
