"""Reasons: every code has a point that gets it, and nothing but their forms knows their texts."""

import ast

import numpy as np
import pytest

import fastflow
from fastflow.analysis.search.screening import screen
from fastflow.analysis.sensitivity.elasticity import elasticities
from fastflow.analysis.sensitivity.parameters import Parameter
from fastflow.core.reasons.codes import Code
from tests.analysis.measurements.kinds.test_training import NAMES, RUN
from tests.analysis.search.test_screening import Scorer
from tests.performance.test_validity import schedulable_reason
from tests.support.paths import ROOT

LM = (
    "model=lstm_lm", "model.hidden=256", "model.batch=1024", "model.vocabulary=5000", "model.sequence=5",
    "system.devices=4",
)  # fmt: skip
LLM = ("model=llama3_8b", "system=dgx_h100", "parallel.strategy=TP-8")
SERVED = (*LLM, "serve=continuous", "server=vllm", "serve.isl=64", "serve.osl=8")
POINTS = {
    Code.MEMORY: (*LLM, "chip.pinned.dram_capacity_B=1 GB"),
    Code.POWER_BUDGET: ("model=gemm", "chip.power.dram=0"),
    Code.COMPONENT_BUDGET: ("model=gemm", "chip.power.core=0"),
    Code.BUDGET_SHARES: ("model=gemm", "chip.area.l2=0.9"),
    Code.DIE_AREA: ("model=gemm", "chip=chiplets", "mem=hbm3", "+chip.chiplets.base.die_area=400 mm2"),
    Code.SUPPLY_VOLTAGE: ("model=gemm", "tech.core.threshold_voltage='2 V'"),
    Code.TECHNOLOGY: ("model=gemm", "chip.memory.l2.component=edram"),
    Code.PINNED_CHIP: ("model=gemm", "chip=v100", "tech=n3"),
    Code.POWER_LIMIT: ("model=gemm", "chip=v100", "chip.power_limit='400 W'"),
    Code.SITE_POWER: ("model=gemm", "chip=v100", "power.rack_limit='1 kW'"),
    Code.DATA_TYPE: ("model=gemm", "chip=v100", "model.dtype=fp8"),
    Code.MODEL: (*LLM, "model.heads=7"),
    Code.STRATEGY: (*LM, "parallel.strategy=d7"),
    Code.LAYOUT: (*LLM[:2], "parallel.strategy=d8", "parallel.hybrid_shard_size=3"),
    Code.BATCH: (*LM, "parallel.strategy=d4", "parallel.microbatches=999999"),
    Code.SCHEDULE: (*LM, "parallel.strategy=d4", "parallel.recompute=full"),
    Code.NETWORK: ("model=gemm", "system=dgx_a100", "system.collective=ring"),
    Code.PLACEMENT: (*LLM, "placement=lp-dp-kp2-kp1"),
    Code.LOAD: (*SERVED, "serve.concurrency=2", "serve.request_rate='1 1/s'"),
    Code.CONTEXT_LENGTH: (*SERVED, "serve.isl=999999"),
    Code.OVERLOAD: (*SERVED, "serve.concurrency=0", "serve.request_rate='9000 1/s'"),
    Code.SLO: (*SERVED, "serve.concurrency=2", "serve.slo.tpot='1 us'"),
    Code.RENT: ("model=gemm", "cost=rent"),
    Code.OUT_OF_RANGE: ("model=gemm", "mem.latency=1e300 s"),
}


@pytest.mark.parametrize("code", POINTS, ids=lambda code: code.label)
def test_a_point_of_each_code(code):
    row = fastflow.evaluate(*POINTS[code]).iloc[0]
    assert row["reason_code"] == code.label, row["reason"]
    assert row["reason"]
    assert not row["feasible"]


def of_a_schedule():
    return schedulable_reason([1, 2**62], 1, 2).code.label


def of_rows(text, *overrides):
    def validated(tmp_path):
        path = tmp_path / "rows.csv"
        path.write_text(text)
        rows = fastflow.validate(f"measurements={path}", *overrides).rows
        assert rows["reason_code"].iloc[1] == ""
        return rows["reason_code"].iloc[0]

    return validated


def of_a_search():
    _, left_out = screen(Scorer(0, ["a", "like a"], [0, 0], [0.0, 0.0]))
    return left_out["reason_code"][1]


def of_a_figure():
    (of_zero,) = elasticities({"f": np.ones(3)}, [Parameter("x", 0.0, "", 1.0)], "f", 0.05)
    return of_zero.reason_code


def of_a_stopped_fleet(folder):
    path = folder / "requests.csv"
    path.write_text("arrival_time,isl,osl\n" + "\n".join(f"{second},500,20" for second in range(2500)))
    fleet = ("serve=continuous", "server=vllm", "model=llama3_8b", "chip=h100_sxm", f"serve.trace={path}")
    found = fastflow.search(*fleet, "parallel.strategy=TP-1", "constraints=ttft_p99_s<1 us")
    return found.ranking["reason_code"][0]


HEADER = {name: name for name in NAMES}
OTHERS = {
    Code.TOO_LARGE: lambda _: of_a_schedule(),
    Code.NO_TIME: of_rows("ranks,bytes,time_s\n1,8,1e-5\n2,8,1e-5\n", "system=dgx_a100"),
    Code.DUPLICATE: lambda _: of_a_search(),
    Code.MEASUREMENT: of_rows(
        "\n".join(
            ",".join(str(run.get(name, "")) for name in NAMES) for run in (HEADER, RUN | {"gpus": 63}, RUN)
        )
    ),
    Code.ZERO: lambda _: of_a_figure(),
    Code.STOPPED: of_a_stopped_fleet,
}


@pytest.mark.parametrize("code", OTHERS, ids=lambda code: code.label)
def test_what_is_no_point_has_a_code_too(code, tmp_path):
    assert OTHERS[code](tmp_path) == code.label


def test_every_code_has_a_case():
    assert {*POINTS, *OTHERS, Code.NONE} == set(Code)


# --- texts

READS = {
    "split", "rsplit", "partition", "rpartition", "replace", "startswith", "endswith", "removeprefix",
    "removesuffix", "match", "fullmatch", "search", "sub", "findall", "finditer", "contains", "index", "find",
}  # fmt: skip
OF_ERRORS = {"config", "cli"}  # there a reason is of a line of a user that cannot be read
SHORT = "core/reasons/codes.py"


def reads_of_reasons(text):
    """Yield calls that look into a text named after a reason, and tests whether something is in one."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call | ast.Compare):
            continue
        if "reason" not in "".join(lines[node.lineno - 1 : node.end_lineno]):
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READS:
            if "reason" in "".join(map(ast.unparse, (node.func.value, *node.args))):
                yield ast.unparse(node)
        elif isinstance(node, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            (text,) = node.comparators
            if isinstance(node.left, ast.Constant) and "reason" in ast.unparse(text):
                yield ast.unparse(node)


def test_reads_of_reasons_are_found():
    for text in (
        "re.match('a', row['reason'])", "str(reason[0]).startswith('a')", "'above' in reason",
        "frame['reason'].str.contains('memory')", "prediction.reason[0].replace('a', 'b')",
    ):  # fmt: skip
        assert [*reads_of_reasons(text)], text
    assert not [*reads_of_reasons("row['reason'] == '' and name in reasons")]


def test_nothing_reads_the_text_of_a_reason():
    found = {}
    for path in (ROOT / "fastflow").rglob("*.py"):
        name = path.relative_to(ROOT / "fastflow").as_posix()
        if name.partition("/")[0] not in OF_ERRORS and name != SHORT:
            text = path.read_text(encoding="utf-8")
            reads = [*reads_of_reasons(text)] if "reason" in text else []
            found |= {name: reads} if reads else {}
    assert found == {}
