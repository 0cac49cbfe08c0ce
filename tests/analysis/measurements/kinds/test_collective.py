"""Files of collectives: servers' own kernels, permutations, groups, and what is refused."""

import pytest

import fastflow
from fastflow.performance.partial_predictions import time_collectives
from fastflow.physics.workload.graph import ALL_REDUCE
from tests.conftest import columns_of

HEADER = "device,library,collective,ranks,bytes,time_s\n"


def validate(file, text, *overrides):
    return fastflow.validate(file(text), *overrides).rows


def test_a_server_runs_its_own_kernels(file, compose):
    text = HEADER + "".join(
        f"H100,{library},all-reduce,{ranks},{size},1e-5\n"
        for library in ("vllm/0.19.0", "TRTLLM/1.3.0rc10", "sglang", "nccl/2.27", "")
        for ranks, size in ((2, 4096), (8, 524288))
    )
    rows = validate(file, text)
    columns = columns_of([compose("system=dgx_h100")])
    names = ("vllm", "trtllm", "sglang", "", "")
    for row, name in zip(rows.itertuples(), [name for name in names for _ in range(2)], strict=True):
        size, ranks = rows["bytes"].to_numpy(float)[[row.Index]], rows["ranks"].to_numpy(int)[[row.Index]]
        assert row.predicted_s == time_collectives(columns, ALL_REDUCE, size, ranks, name)[0]
    assert rows["predicted_s"][0] < rows["predicted_s"][8]


def test_permutations_and_groups(file):
    text = (
        "device,collective,ranks,groups,pairs,bytes,time_s\n"
        "GB200,all-gather,4,18,,1e6,1e-5\nGB200,all-gather,4,,,1e6,1e-5\nGB200,collective-permute,,,71,1e6,1e-5\n"
    )
    rows = validate(file, text)
    assert rows.attrs["fastflow.where"].startswith("gb200_nvl72")
    gather = fastflow.predict_collective("all-gather", 1e6, 4, "system=gb200_nvl72")
    send = fastflow.predict_collective("point-to-point", 1e6, 72, "system=gb200_nvl72")
    assert rows["predicted_s"].tolist() == [gather, gather, send]


@pytest.mark.parametrize(
    ("device", "overrides", "where"),
    [
        ("NVIDIA A100-PCIE-40GB", (), "pcie of a100_pcie_80"),
        ("NVIDIA RTX PRO 6000", (), "pcie of rtx_pro_6000"),
        ("NVIDIA RTX PRO 6000", ("chip=l4",), "pcie of l4"),
        ("NVIDIA L40S", (), "pcie of l40s"),
        ("NVIDIA B300", (), "superpod_b300 of b300_sxm"),
        ("Other", ("+collectives.devices.Other=h20/dgx_h100",), "dgx_h100 of h20"),
    ],
)
def test_a_device_has_its_chip_and_machine(file, device, overrides, where):
    rows = validate(file, f"device,ranks,bytes,time_s\n{device},2,1e6,1e-4\n", *overrides)
    assert rows.attrs["fastflow.where"] == where


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            HEADER + "H100,mpi,all-reduce,2,8,1e-5\n",
            "library=mpi .*line 2.*expected one of nccl, sglang, trtllm, vllm",
        ),
        (HEADER + "H100,vllm,all-gather,2,8,1e-5\n", "collective=all-gather .*expected all-reduce"),
        (HEADER + "H100,vllm,all-reduce,,8,1e-5\n", "ranks=nothing .*expected a whole number at least 1"),
        (HEADER + "H100,vllm,all-reduce,2.5,8,1e-5\n", "ranks=2.5 .*expected a whole number"),
        (
            "device,collective,ranks,bytes,time_s\nH100,collective-permute,,8,1e-5\n",
            "column=pairs .*expected a column of this file",
        ),
        (
            "device,collective,ranks,groups,bytes,time_s\nH100,all-reduce,2,0,8,1e-5\n",
            "groups=0 .*expected a whole number at least 1",
        ),
    ],
)
def test_what_is_refused(file, text, says):
    with pytest.raises(fastflow.InputError, match=says) as caught:
        validate(file, text)
    assert "\n" not in str(caught.value)
