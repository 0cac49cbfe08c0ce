"""What is advised for names that do not exist: in every group, for every key; and whose key is to blame."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.cli.commands.sweep import main as sweep
from fastflow.config import catalog
from fastflow.config.composer import Composer
from fastflow.config.messages import key_of, sets
from fastflow.config.suggestions import advice_on_choice, advice_on_key
from fastflow.core.errors import InputError
from fastflow.physics.parallelism.strategy import parse
from fastflow.schema import INPUTS
from tests.support.checks import cases
from tests.support.paths import ROOT

GROUPS = [*catalog.default_choices()]
CHOICES = {group: catalog.choices(group) for group in GROUPS}
LAST = {}
for column in INPUTS:
    if "*" not in column.name:
        LAST.setdefault(column.name.rpartition(".")[2], []).append(column.name)


@pytest.fixture(scope="module")
def composer():
    return Composer.of_library()


def refusal(composer, *overrides):
    with pytest.raises(InputError) as refused:
        composer.compose(overrides)
    return str(refused.value)


def advised(text):
    """The names of an advice, without conditions."""
    found = re.search(r"did you mean (.*)\?$", text)
    names = re.sub(r" \(with [^)]*\)", "", found[1]) if found else ""
    return [name for name in re.split(r", | or ", names) if name and not name.endswith(" more")]


@given(st.sampled_from(sorted(CHOICES)), st.data())
@cases(150)
def test_a_name_cut_short_leads_to_the_names_that_begin_so(group, data):
    name = data.draw(st.sampled_from(CHOICES[group]))
    cut = name[: data.draw(st.integers(min(2, len(name)), len(name)))]
    begin = [one for one in CHOICES[group] if one.startswith(cut.rstrip("_"))]
    found = advised(advice_on_choice(cut, CHOICES[group]))
    assert found
    assert {*found} <= {*begin}
    assert len(found) == (1 if cut.rstrip("_") in begin else min(len(begin), 4))


@given(st.sampled_from(sorted(CHOICES)), st.data())
@cases(150)
def test_capitals_and_other_separators_are_the_same_name(group, data):
    name = data.draw(st.sampled_from(CHOICES[group]))
    for slip in (name.upper(), name.replace("_", "-"), name.replace("_", ".")):
        if slip != name and "." not in slip:
            assert advised(advice_on_choice(slip, CHOICES[group])) == [name]


@pytest.mark.parametrize("group", GROUPS)
def test_the_command_line_gives_the_advice_for_every_group(composer, group):
    """Its longest name without the last letters; of one that nothing is like, no advice."""
    name = max(CHOICES[group], key=len)
    cut = name[: -len(name) // 3].rstrip("_")
    if cut and cut not in CHOICES[group]:
        found = advised(refusal(composer, f"{group}={cut}"))
        assert found
        assert all(one.startswith(cut) for one in found)
    assert not advised(refusal(composer, f"{group}=zzzzzzzz"))


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("chip=b200", ["b200_sxm"]),
        ("chip=h100", ["h100_hbm2e", "h100_nvl", "h100_pcie", "h100_sxm"]),
        ("chip=mi300", ["mi300x"]),
        ("system=superpod_h200", ["dgx_h200"]),
        ("system=superpd_h100", ["superpod_h100"]),
        ("chip=a100_80", ["a100_pcie_80", "a100_sxm_80"]),
        ("chip=hbm3", ["mem=hbm3"]),
        ("mem=hbm33", ["hbm3"]),
        ("mem=hbm5", ["hbm4", "hbm4e", "hbm4_jedec"]),
        ("model=llama3", ["llama3_8b", "llama3_70b", "llama3_405b", "llama3_405b_fp8"]),
        ("model=lama3_70b", ["llama3_70b"]),
        ("system=h100", ["dgx_h100", "superpod_h100"]),
        ("serve=decod", ["decode"]),
        ("server=sglan", ["sglang"]),
        ("batch=64", ["model.batch", "serve.batch"]),
        ("concurency=64", ["serve.concurrency"]),
        (
            "devices=64",
            ["system.devices", "system.package.devices", "serve.attention.devices", "serve.encoder.devices"],
        ),
        ("model.zero=1", ["parallel.zero_stage"]),
        ("chp.tdp=300", ["chip.tdp"]),
        ("mdoel=gemm", ["model"]),
        ("parallel.strategi=d8", ["parallel.strategy"]),
        ("clock=3", []),
    ],
)
def test_names_that_people_type(composer, typed, names):
    assert advised(refusal(composer, typed)) == names


@pytest.mark.parametrize("section", ["chip", "chip.area", "model", "tech.memory.cache"])
def test_an_unknown_key_is_refused_with_the_keys_of_its_section(composer, section):
    names = [
        name.removeprefix(f"{section}.")
        for name in composer.compose([]).leaves
        if name.startswith(f"{section}.")
    ]
    listed = re.search(rf"a key of {section} \((.*?)\)", refusal(composer, f"{section}.zzz=1"))
    noted = {name for name in names if "source" in name or "uncertainty" in name or "alternative" in name}
    assert {*listed[1].split(", ")} == {name.partition(".")[0] for name in {*names} - noted}


@pytest.mark.parametrize("key", ["aa.tdp", "model.tdp", "zone.tdp", "tdp"])
def test_the_keys_of_sections_before_and_after_it_in_the_alphabet(key):
    known = ["chip.tdp", "rack.tdp"]
    assert advised(advice_on_key(key, known, {})) == known


def test_the_last_part_of_a_key_leads_to_the_keys_that_end_so():
    """Of all inputs; a group of this name is no key."""
    known = {name for names in LAST.values() for name in names}
    for last in LAST.keys() - {name.partition(".")[0] for name in known}:
        found = advised(advice_on_key(last, known, {}))
        assert found, last
        assert {*found} <= {*LAST[last]}, last


def test_an_advice_on_a_key_says_what_has_it_and_works_when_followed(composer):
    line = refusal(composer, "osl=3")
    assert "serve.osl (with serve=continuous, decode, disaggregated, prefill)" in line
    assert composer.compose(["serve=decode", "serve.osl=3"]).leaves["serve.osl"] == 3
    assert advised(refusal(composer, "serve=decode", "osl=3")) == ["serve.osl"]
    assert "(with" not in refusal(composer, "serve=decode", "osl=3")


# a key of the user that does not suit what a file says, and what is said to suit
UNSUITED = [
    (("system.devices=100",), "system.devices=100", ("parallel.strategy=TP-2-d50",)),
    (
        ("system=fat_tree", "system.devices=100", "parallel.strategy=auto"),
        "system.devices=100",
        ("system.leaf_radix=25",),
    ),
    (
        ("chip=gb200", "system.devices=101", "parallel.strategy=TP-1"),
        "system.devices=101",
        ("system.devices=102",),
    ),
    (
        ("system=waferscale", "system.devices=16", "system.package.shape=3x4", "parallel.strategy=TP-8-d2"),
        "system.package.shape=3x4",
        ("system.package.shape=4x4",),
    ),
    (
        ("system=dgx_v100", "system.package.devices=4", "model.dtype=fp16", "parallel.strategy=TP-8"),
        "system.package.devices=4",
        ("system.package.topology=torus",),
    ),
]


DEFAULTS = [
    ("system.devices=100", "of 100 devices", "parallel.strategy=d100"),
    ("model=lstm_lm system.devices=300", "of 300 devices", "parallel.strategy=d300"),
    (
        "model=llama3_70b system=superpod_h100 system.devices=100",
        "of 100 devices",
        "parallel.strategy=TP-4-p25 parallel.pipeline_partition=balanced",
    ),
    ("model=llama3_70b model.batch=100", "divides 100", "parallel.strategy=TP-8-d4-p16"),
    ("model.batch=8 model=llama3_70b", "divides 8", "parallel.strategy=TP-8-d8-p8"),
]


@pytest.mark.parametrize(("typed", "says", "other"), DEFAULTS)
def test_a_key_that_the_default_strategy_does_not_suit_is_to_blame(
    typed, says, other, tmp_path, monkeypatch, capsys
):
    """And every part of the advice works: the best strategy, and one of the kind."""
    monkeypatch.chdir(tmp_path)

    def run(*more):
        monkeypatch.setattr("sys.argv", ["fastflow", *typed.split(), *more])
        return sweep(), capsys.readouterr().err.strip()

    code, error = run()
    blamed = next(word for word in typed.split() if word.startswith(("system.devices", "model.batch")))
    assert code == 2
    assert error.startswith(
        f"{blamed} (from the command line) is invalid: expected one that suits the default parallel.strategy="
    )
    assert "give parallel.strategy=auto, or a strategy" in error
    assert error.endswith(says)
    assert run("parallel.strategy=auto", "output=there") == (0, "")
    assert run(*other.split(), "output=other") == (0, "")


UNSUITED_SYSTEMS = [
    ("model=llama3_8b model.layers=2 system=dgx_h100", 64, 8, "parallel.strategy=TP-2-d4"),
    pytest.param("model=lstm_lm system=mi300x_node", 512, 8, "parallel.strategy=d8", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("typed", "needs", "has", "other"), UNSUITED_SYSTEMS)
def test_a_system_that_the_default_strategy_does_not_suit_is_to_blame(
    typed, needs, has, other, tmp_path, monkeypatch, capsys
):
    """Not the file that says what the default is; and every part of the advice works."""
    monkeypatch.chdir(tmp_path)

    def run(*more):
        monkeypatch.setattr("sys.argv", ["fastflow", *typed.split(), *more])
        return sweep(), capsys.readouterr().err.strip()

    code, error = run()
    model, *_, system = typed.split()
    assert code == 2
    assert error.startswith(
        f"{system} (from the command line) is invalid: expected one that suits the default parallel.strategy="
    )
    file = f"{model.replace('=', '/')}.yaml)"
    assert f"{file}, which needs {needs} devices (it has system.devices={has}); give" in error
    assert error.endswith(f"give parallel.strategy=auto, or a strategy of {has} devices")
    assert run("parallel.strategy=auto", "output=there") == (0, "")
    assert run(other, "output=other") == (0, "")


@pytest.mark.long
@pytest.mark.parametrize("system", ["dgx_h100", "dgx_v100", "superpod_a100", "gb200_nvl72", "torus"])
def test_a_default_strategy_blames_no_file_for_any_model(system, tmp_path, monkeypatch, capsys):
    """Each model runs on a system, or the line names what the user typed."""
    monkeypatch.chdir(tmp_path)
    for path in sorted((ROOT / "conf" / "model").glob("*.yaml")):
        if path.stem in ("graph", "served_pass"):
            continue
        words = ["fastflow", f"model={path.stem}", f"system={system}", f"output={path.stem}"]
        monkeypatch.setattr("sys.argv", words)
        code, error = sweep(), capsys.readouterr().err.strip()
        blamed = (f"system={system} (from the command line)", "model.dtype=")
        assert code == 0 or error.startswith(blamed), error


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("model=llama3_70b model.layers=2", "stages divide the 2 layers"),
        ("model=mixtral_8x7b model.layers=4 model.experts=4", "divisor of model.experts=4"),
    ],
)
def test_a_default_strategy_that_does_not_suit_a_size_of_the_model_is_called_so(
    typed, says, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["fastflow", *typed.split()])
    assert sweep() == 2
    error = capsys.readouterr().err.strip()
    assert says in error
    model = typed.split()[0]
    advice = f"; the strategy is the default of {model}: give parallel.strategy=auto, or another"
    assert error.endswith(advice)
    monkeypatch.setattr("sys.argv", ["fastflow", *typed.split(), "parallel.strategy=d64"])
    sweep()
    assert "the default of" not in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "blamed", "instead"), UNSUITED, ids=str)
def test_the_users_key_is_to_blame_and_the_advice_works(
    typed, blamed, instead, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    run = ("fastflow", "model=llama3_8b", "model.batch=2400", "output=there")
    monkeypatch.setattr("sys.argv", [*run, *typed])
    assert sweep() == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith(f"{blamed} (from the command line) is invalid: expected ")
    assert any(text.partition("=")[0] in error for text in instead)
    changed = {text.partition("=")[0] for text in instead}
    kept = [text for text in typed if text.partition("=")[0] not in changed]
    monkeypatch.setattr("sys.argv", [*run, *kept, *instead])
    assert sweep() == 0, capsys.readouterr().err


SINGLE = [(f"chip={chip}", "system.devices=1") for chip in ("a100", "l4", "mi210", "mi300x", "p4", "v100")]
SEVERAL = [
    (f"system={system}",)
    for system in ("dgx_a100", "dgx_v100", "gb200_nvl72", "mi300x_node", "pcie_nvlink_pairs", "superpod_b300")
]


@pytest.mark.parametrize("machine", [*SINGLE, *SEVERAL], ids=str)
@pytest.mark.parametrize("other", ["tech=n3", "mem=hbm4_jedec"])
def test_a_chip_in_another_technology_is_made_as_advised(machine, other):
    words = ("model=gemm", "model.dtype=fp16", "parallel.strategy=auto", *machine, other)
    reason = fastflow.evaluate(*words)["reason"][0]
    assert "pins its figures" in reason
    advice = re.search(r"figures; (\S+) ", reason)[1]
    assert fastflow.evaluate(*words, advice)["time_s"].notna().all(), (reason, advice)


def test_a_search_of_a_known_chip_goes_on_as_advised():
    words = ("model=gemm", "system=dgx_h100", "parallel.strategy=d8")
    with pytest.raises(InputError, match="; calibration=none generates this one"):
        fastflow.search(*words)
    answer = fastflow.search(*words, "calibration=none", "steps=1", "starts=1", "tolerance=0")
    assert answer.best["time_s"] > 0.0


@pytest.mark.parametrize("load", [("serve=decode",), ()], ids=str)
def test_a_network_that_nccl_is_not_known_on_says_how_to_do_without(load):
    words = ("model=llama3_8b", "system=dgx_h100", "net=gdr_x8", "parallel.strategy=TP-8", *load)
    with pytest.raises(
        InputError, match=r"net\.library\.launch=nothing.*; system\.library=none runs"
    ) as refused:
        fastflow.evaluate(*words)
    advice = re.search(r"; (system\.library=\w+) ", str(refused.value))[1]
    assert fastflow.evaluate(*words, advice)["time_s"].notna().all()


STRATEGIES = [
    ("tp8", ["TP-8"]),
    ("TP8-d1", ["TP-8-d1"]),
    ("tp-8_dp4_pp2x2", ["TP-8-d4-p2x2"]),
    ("pp4-dp2-tp8", ["TP-8-d2-p4"]),
    ("RC4-2", ["RC-4-2"]),
    ("D512", ["d512"]),
    ("rc8", []),
    ("tp0", []),
    ("d8-d8", []),
    ("", []),
    ("tp8" * 40, []),
]


@pytest.mark.parametrize(("text", "names"), STRATEGIES)
def test_strategies_that_people_type(text, names):
    with pytest.raises(InputError) as refused:
        parse(text)
    assert advised(str(refused.value)) == names


_DEGREE = st.integers(2, 99)


@given(
    st.sampled_from([("TP", 1), ("RC", 2), ("CR", 1), ("2D", 2), ("", 0)]),
    st.tuples(_DEGREE, _DEGREE),
    st.tuples(_DEGREE, _DEGREE, st.sampled_from(["", "x2"])),
)
@cases(100)
def test_a_strategy_in_small_letters_or_with_other_separators_is_advised(cut, sizes, rest):
    name, many = cut
    words = [name, *map(str, sizes[:many])] if name else []
    meant = "-".join([*words, f"d{rest[0]}", f"p{rest[1]}{rest[2]}"])
    assert str(parse(meant)) == meant
    for slip in {meant.lower(), meant.replace("-", "_"), meant.upper()} - {meant}:
        with pytest.raises(InputError) as refused:
            parse(slip)
        assert advised(str(refused.value)) == [meant]


def test_a_rate_beside_a_concurrency_says_what_to_set():
    words = (
        "model=gpt_1_7b",
        "system.devices=1",
        "parallel.strategy=TP-1",
        "serve=continuous",
        "serve.request_rate='0.01 1/s'",
    )
    reason = fastflow.evaluate(*words)["reason"][0]
    assert reason.startswith(
        "serve.request_rate=0.01 1/s is invalid: expected serve.concurrency=0 beside it, not 64"
    )
    assert fastflow.evaluate(*words, "serve.concurrency=0")["reason"][0] == ""
    assert fastflow.evaluate(*words, "serve.request_rate='0 1/s'")["reason"][0] == ""


@pytest.mark.parametrize(
    ("text", "key", "is_set"),
    [("output=a", "output", True), ("++output=a=b", "output", True), ("~output=a", "output", False),
     ("tech@chip.tech=n7", "tech@chip.tech", True), ("outputs=a", "outputs", True)],
)  # fmt: skip
def test_the_key_of_an_override(text, key, is_set):
    assert key_of(text) == key
    assert sets(["mem=hbm3", text], key) == is_set
    assert not sets([text], "out")


def test_a_value_that_is_another_keys_comes_from_where_that_is_written(composer):
    def origin(key, *overrides):
        return composer.origin(key, composer.compose(overrides))

    assert origin("parallel.strategy", "model=llama3_8b").endswith("conf/model/llama3_8b.yaml")
    assert origin("parallel.strategy", "model.strategy=d8") == composer.origin_of_overrides
    assert origin("parallel.schedule").endswith("conf/parallel/default.yaml")
    # a key that does not exist, and a circle, are the fault of the file or the command that writes them
    assert origin("parallel.strategy", "+model.a=${model.b}", "+model.b=${model.a}").endswith(".yaml")


def test_a_file_that_leads_back_to_itself_is_refused_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text("defaults: [own.yaml, _self_]\n")
    monkeypatch.setattr("sys.argv", ["fastflow", "model=gemm", "chip=own.yaml"])
    assert sweep() == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith(
        "chip=own.yaml (from the command line) is invalid: expected a file whose defaults"
    )
    assert "\n" not in error
