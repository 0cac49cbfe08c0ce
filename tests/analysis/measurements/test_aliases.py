"""Names of devices in files of measurements: each has its chip and system, and none shadows another."""

import pytest
import yaml

import fastflow
from fastflow.analysis.measurements.aliases import match_name
from tests.support.documents import ROOT

TABLES = yaml.safe_load((ROOT / "conf" / "measurement_files.yaml").read_text())
DEVICES = {
    name: table for section in ("training", "serving") for name, table in TABLES[section]["devices"].items()
}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("H200-SXM-141GB", "H200"), ("NVIDIA H100-96GB-HBM2e", "H100 96GB HBM2e"), ("GB200", "GB200"),
        ("H20-3e", "H20 3e"), ("H20", "H20"), ("A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A800-SXM4-80GB", "A800"),
        ("p4d.24xlarge", "p4d 24xlarge"), ("MI300X", "MI300X"), ("V100-SXM2-32GB", "V100 32GB"), ("L4", ""),
    ],
)  # fmt: skip
def test_a_text_has_the_longest_name(text, name):
    assert match_name(text, TABLES["training"]["devices"]) == name


def test_a_name_matches_itself():
    for section in ("training", "serving"):
        table = TABLES[section]["devices"]
        assert {name: match_name(name, table) for name in table} == {name: name for name in table}


@pytest.mark.parametrize("value", sorted(set(DEVICES.values())))
def test_a_device_is_there(value):
    chip, system = value.split("/")
    row = fastflow.evaluate(
        f"chip={chip}", f"system={system}", "model=llama2_7b", "model.layers=2", "model.batch=4",
        "parallel.strategy=TP-1", "system.devices=1",
    ).iloc[0]  # fmt: skip
    assert row["reason"] == "" or "memory" in row["reason"]
