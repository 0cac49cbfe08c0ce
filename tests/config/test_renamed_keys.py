"""Old names of keys, groups and values: each one works as its new name does, and is named once."""

import pandas as pd
import pytest

import fastflow
from fastflow.analysis.measurements.read import read_measurements
from fastflow.cli.commands import COMMANDS
from fastflow.config.composer import Composer
from fastflow.config.keyword_overrides import as_overrides
from fastflow.config.library import hydra_rules
from fastflow.config.messages import written
from fastflow.config.renamed_keys import renamed_override, renamed_overrides
from fastflow.core import advice
from fastflow.core.errors import InputError
from fastflow.schema.renamed import KEYS, VALUES

PRIMARY = {"compete": "search", "sensitivity.range": "sensitivity"}
"""Configurations that have a key that a sweep has not."""
BASE = ("serve=continuous", "tiling=blocks")
GROUPS = {
    "server": "vllm",
    "net": "ndr_x8",
    "parallel": "default",
    "system": "cluster",
    "tiling": "blocks",
    "chip": "a100",
}


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    """A process begins: no old name has been named."""
    monkeypatch.setattr(advice, "_given", set())


def leaves_of(overrides, primary="config", config_dir=None):
    with hydra_rules():
        return Composer.of_library(config_dir, config_name=primary).compose(overrides).leaves


def other(value):
    """Return another value of the same type; a text stays, but a choice of the group is the other one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return "none" if value == "measured" else value


@pytest.mark.parametrize("old", KEYS)
def test_every_old_key_composes_as_its_new_one_and_is_named_once(old, capsys):
    new, primary = KEYS[old], PRIMARY.get(old, "config")
    base = leaves_of(BASE, primary)
    value = written(other(base.get(new, "measured")))
    typed = as_overrides((f"{old}={value}",), {old.replace(".", "__"): value})
    assert capsys.readouterr() == ("", f"{old} is called {new} now\n")
    assert typed == (f"{new}={value}",) * 2
    composed = leaves_of((*BASE, typed[0]), primary)
    assert composed == leaves_of((*BASE, f"{new}={value}"), primary)
    assert composed != base or isinstance(base.get(new), str)
    assert not composed.keys() & KEYS.keys()


@pytest.mark.parametrize("group", GROUPS)
def test_every_old_key_of_a_file_of_ones_own(group, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    base = leaves_of((f"{group}={GROUPS[group]}",))
    keys = {old: new for old, new in KEYS.items() if old.startswith(f"{group}.")}
    text = "".join(f"{old.partition('.')[2]}: {written(base[new])}\n" for old, new in keys.items())
    (tmp_path / "mine.yaml").write_text(f"# @package {group}\ndefaults: [{GROUPS[group]}, _self_]\n{text}")
    assert leaves_of((f"{group}=mine.yaml",)) == base
    assert set(capsys.readouterr().err.splitlines()) == {
        f"{old} is called {new} now" for old, new in keys.items()
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+server.most=64", "+server.max_num_seqs=64"),
        ("++server.most=64", "++server.max_num_seqs=64"),
        ("~server.most", "~server.max_num_seqs"),
        ("server.most=64,128", "server.max_num_seqs=64,128"),
        ("server.most=range(64,256,64)", "server.max_num_seqs=range(64,256,64)"),
        ("pins@chip=kept,none", "calibration@chip=measured,none"),
        ("pins=kept.yaml", "calibration=kept.yaml"),
        ("parallel.context=choice(ring,all_to_all)", "parallel.cp_comm_type=choice(p2p,a2a)"),
        ("parallel.cp_comm_type=ring", "parallel.cp_comm_type=p2p"),
        ("server.budget=${server.most}", "server.max_num_batched_tokens=${server.max_num_seqs}"),
        ("server.budget=${.most}", "server.max_num_batched_tokens=${.max_num_seqs}"),
        ("tiling.samples=${..server.most}", "tiling.samples=${..server.max_num_seqs}"),
        ("parallel={zero: 3,overlap:{context:false}}", "parallel={zero_stage: 3,overlap:{context:false}}"),
        ("serve.prefill.chip.sustained=1", "serve.prefill.chip.sustained_power_fraction=1"),
        ("columns=parallel.zero,time_s", "columns=parallel.zero_stage,time_s"),
    ],
)
def test_forms_of_overrides(old, new):
    assert renamed_override(old) == new


@pytest.mark.parametrize(
    "text",
    ["tech=n7", "model.expert_rows=0", "parallel.overlap.context=true", "model.sequence=20", "--config-dir",
     "pins", "output=compete", "system.library=none", "server.most", "system.collective=ring"],
)  # fmt: skip
def test_other_arguments_stay_as_they_are_and_nothing_is_said(text, capsys):
    assert renamed_overrides([text]) == [text]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("key", "old"), [(key, old) for key, values in VALUES.items() for old in values])
def test_every_old_value(key, old, capsys):
    new = f"{key}={VALUES[key][old]}"
    assert renamed_overrides([f"{key}={old}"] * 2) == [new, new]
    assert capsys.readouterr().err == f"{key}={old} is called {new} now\n"
    leaves_of((new,))


def test_a_point_of_old_names_is_that_of_new_ones(capsys):
    old = fastflow.evaluate("model=gemm", "chip=a100", "pins=none,kept", tiling={"parts": 8})
    assert len(capsys.readouterr().err.splitlines()) == 3
    new = fastflow.evaluate("model=gemm", "chip=a100", "calibration=none,measured", tiling={"max_split_k": 8})
    pd.testing.assert_frame_equal(old, new)
    assert capsys.readouterr().err == ""


def test_a_command_says_an_old_name(cli):
    typed = ("tech=n7", "tiling=blocks", "tiling.parts=8", "output=here")
    code, _, err = cli(COMMANDS["sweep"].main, *typed)
    assert (code, err) == (0, ["tiling.parts is called tiling.max_split_k now"])


def test_a_study_and_a_defaults_list_of_ones_own(tmp_path, capsys):
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "mine.yaml").write_text(
        "# @package _global_\ndefaults: [override /model: gemm, override /pins: none]\n"
        "hydra: {sweeper: {params: {tiling.parts: '4,8'}}}\n"
    )
    frame = fastflow.evaluate("+sweeps=mine", "chip=a100", "tiling=blocks", config_dir=tmp_path)
    assert frame["tiling.max_split_k"].tolist() == [4, 8]
    assert set(capsys.readouterr().err.splitlines()) == {
        "pins is called calibration now", "tiling.parts is called tiling.max_split_k now",
    }  # fmt: skip
    new = fastflow.evaluate(
        "chip=a100", "tiling=blocks", "model=gemm", "calibration=none", tiling__max_split_k=[4, 8]
    )
    assert frame["time_s"].tolist() == new["time_s"].tolist()


def test_defaults_lists_that_hydra_reads_itself(cli, tmp_path):
    """Of a primary configuration and of a study, both in a folder for `--config-dir`."""
    (tmp_path / "mine" / "sweeps").mkdir(parents=True)
    (tmp_path / "mine" / "own.yaml").write_text(
        "defaults: [config, override pins: none, override model: gemm, _self_]\n"
        "server: {budget: '${.most}'}\n"
    )
    (tmp_path / "mine" / "sweeps" / "two.yaml").write_text(
        "# @package _global_\ndefaults: [override /pins: kept]\ntiling: {parts: 4}\n"
    )
    typed = ("--config-dir=mine", "--config-name=own", "+sweeps=two", "chip=a100", "--cfg=job")
    code, out, err = cli(COMMANDS["sweep"].main, *typed)
    assert (code, sorted(err)) == (0, [
        "calibration=kept is called calibration=measured now", "pins is called calibration now",
        "server.budget is called server.max_num_batched_tokens now",
        "server.most is called server.max_num_seqs now", "tiling.parts is called tiling.max_split_k now",
    ])  # fmt: skip
    assert {"  max_num_batched_tokens: ${.max_num_seqs}", "  max_split_k: 4"} <= set(out)


def test_a_key_by_both_of_its_names_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("defaults: [vllm, _self_]\nmost: 3\nmax_num_seqs: 4\n")
    with pytest.raises(
        InputError, match=r"^server.max_num_seqs=4 \(from mine.yaml\) .* server.most, its old name"
    ):
        leaves_of(("server=mine.yaml",))
    (tmp_path / "rows.csv").write_text("pins,calibration,time_s\nkept,none,1\n")
    with pytest.raises(InputError, match=r"^column=pins .* calibration, its new name, once"):
        read_measurements("rows.csv", {"calibration"}.__contains__, {})


def test_old_columns_of_a_measurement_file(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    path.write_text("model,pins,parallel.context,time_s\ngemm,kept,ring,1\ngemm,none,all_to_all,2\n")
    read = read_measurements(str(path), {"model", "pins", "calibration"}.__contains__, {})
    assert read.file.frame["calibration"].tolist() == ["measured", "none"]
    assert read.file.frame["parallel.cp_comm_type"].tolist() == ["p2p", "a2a"]
    assert len(capsys.readouterr().err.splitlines()) == 5


def test_old_files_of_names_are_not_read_in_silence(tmp_path, capsys):
    """A primary file of a user may have the same name."""
    (tmp_path / "training.yaml").write_text("# @package _global_\ntraining:\n  devices: {X: h100_sxm}\n")
    (tmp_path / "serving.yaml").write_text("defaults: [config, _self_]\n")
    leaves_of((), config_dir=tmp_path)
    line = "is not read: its section training is now one of measurement_files.yaml (docs/renames.md)"
    assert capsys.readouterr().err == f"{tmp_path / 'training.yaml'} {line}\n"
