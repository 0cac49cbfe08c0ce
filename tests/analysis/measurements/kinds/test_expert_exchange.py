"""Files of exchanges of experts: what their rows are, and what is refused."""

import numpy as np
import pytest

import fastflow
from fastflow.performance.partial_predictions import time_expert_exchanges
from fastflow.physics.network.deepep import COMBINE, DISPATCH, LOW_LATENCY, NORMAL
from tests.conftest import columns_of

HEADER = "device,mode,tokens,hidden,topk,experts,sms,dispatch_s,combine_s\n"


def test_a_row_is_a_dispatch_and_a_combine(file, compose):
    text = (
        HEADER
        + "H100,low_latency,128,7168,8,256,0,3.67e-5,6.7e-5\nB200,normal,4096,7168,8,256,20,5.15e-4,8.82e-4\n"
    )
    rows = fastflow.validate(file(text)).rows
    assert rows["part"].tolist() == ["dispatch", "combine"] * 2
    assert rows.attrs["fastflow.where"] == "dgx_b200, dgx_h100 of b200_sxm, h100_sxm"
    both = np.array([DISPATCH, COMBINE])
    for first, system, mode, sms, tokens in (
        (0, "dgx_h100", LOW_LATENCY, 0, 128),
        (2, "dgx_b200", NORMAL, 20, 4096),
    ):
        sizes = {"tokens": tokens, "hidden": 7168, "topk": 8, "experts": 256, "ranks": 8}
        sizes = {name: np.full(2, size) for name, size in sizes.items()}
        columns = columns_of([compose(f"system={system}")])
        got = time_expert_exchanges(columns, np.full(2, mode), both, np.full(2, sms), sizes)
        assert rows["predicted_s"][first : first + 2].tolist() == got.tolist()
        assert (rows["error"][first : first + 2].abs() < 0.2).all()


def test_one_of_the_two_times_is_enough(file):
    text = "mode,tokens,hidden,topk,experts,ranks,combine_s\nlow_latency,8,4096,2,8,4,2e-5\n"
    rows = fastflow.validate(file(text), "system=dgx_h100").rows
    assert rows["part"].tolist() == ["combine"]


@pytest.mark.parametrize(
    ("row", "overrides", "says"),
    [
        ("H100,fast,1,4096,2,8,4,1e-5,1e-5", (), "mode=fast .*expected one of normal, low_latency"),
        ("H100,normal,1,4096,2,8,,1e-5,1e-5", (), "sms=nothing .*expected a whole number"),
        ("H100,normal,1,4096,2,8,1,1e-5,1e-5", (), "sms=1 .*expected at least 2"),
        ("H100,low_latency,0,4096,2,8,0,1e-5,1e-5", (), "tokens=0 .*expected a whole number at least 1"),
        ("H100,low_latency,1,4096,9,8,0,1e-5,1e-5", (), "topk=9 .*expected at most the experts"),
        ("H100,low_latency,1,4096,2,12,0,1e-5,1e-5", (), "experts=12 .*expected a multiple of the ranks"),
        (
            "H100,low_latency,1,4096,2,8,0,1e-5,1e-5",
            ("system=pcie",),
            "experts=8 .*expected as many ranks as a machine has devices, 1",
        ),
    ],
)
def test_what_is_refused(file, row, overrides, says):
    with pytest.raises(fastflow.InputError, match=says) as caught:
        fastflow.validate(file(HEADER + row + "\n"), *overrides)
    assert "\n" not in str(caught.value)


def test_exchanges_between_machines_are_refused(file):
    text = HEADER.replace("sms", "nodes") + "H100,low_latency,1,4096,2,8,2,1e-5,1e-5\n"
    with pytest.raises(fastflow.InputError, match=r"nodes=2 .*expected 1: exchanges between machines"):
        fastflow.validate(file(text))
