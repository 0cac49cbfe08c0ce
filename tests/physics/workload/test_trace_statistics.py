"""Statistics of a trace, against plain loops."""

import pytest

from fastflow.physics.workload.request_order import previous_turns
from fastflow.physics.workload.trace_distributions import Arrivals, Independent, Uniform, sigma_of
from fastflow.physics.workload.trace_generators import Sessions, generate_trace
from fastflow.physics.workload.trace_statistics import reuse


def plain_reuse(trace, shared_prefix):
    """Return the share of prompts, without hashes, that earlier texts have: request by request."""
    previous, shared, has_prefix = previous_turns(trace), 0, False
    for i in range(trace.isl.size):
        if previous[i] >= 0 and trace.isl[i] > trace.isl[previous[i]] + trace.osl[previous[i]]:
            shared += int(trace.isl[previous[i]] + trace.osl[previous[i]])
        elif trace.isl[i] > shared_prefix:
            shared += shared_prefix * has_prefix
            has_prefix = True
    return shared / int(trace.isl.sum())


@pytest.mark.parametrize("turns", [1.0, 3.0])
@pytest.mark.parametrize("prefix", [0, 40, 3000])
def test_reuse_is_what_earlier_texts_have(turns, prefix):
    lengths = Independent(Uniform(1, 900), Uniform(1, 200))
    trace = generate_trace(80, Arrivals(2.0), lengths, Sessions(turns=turns), shared_prefix=prefix, seed=5)
    assert reuse(trace, prefix) == pytest.approx(plain_reuse(trace, prefix))
    assert (reuse(trace, prefix) > 0) == (turns > 1 or prefix > 0)


def test_sigma_follows_from_mean_and_median():
    assert sigma_of(100.0, 100.0) == 0.0
    assert sigma_of(1.6487212707, 1.0) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="a median above 0 and up to the mean, not 3"):
        sigma_of(2.0, 3.0)
