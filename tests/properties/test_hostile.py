"""Whatever a hostile user gives: one line, exit code 2, nothing left; and rows that are as sound as any."""

import re
import shutil
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastflow
from fastflow.cli.commands.report import main as report
from fastflow.cli.commands.search import main as search
from fastflow.cli.commands.sweep import main as sweep
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.config.messages import COMMAND_LINE
from fastflow.core.errors import InputError
from fastflow.engine.dataset.reader import find
from fastflow.engine.grid.plan import plan
from fastflow.schema import SERVED as SERVED_COLUMNS
from tests.support import hostile

MAX_POINTS = 400  # of a grid that is run
SERVED = [column.name for column in SERVED_COLUMNS if column.kind == "float"]


def check_rows(frame):
    """Hold rows to what every dataset promises."""
    timed = frame["time_s"].notna()
    assert (frame.loc[~timed, "reason"] != "").all()
    assert ((frame["reason"] == "") == (frame["reason_code"] == "")).all()
    assert not frame["feasible"][~timed].any()
    assert np.isfinite(frame.loc[timed, "time_s"]).all()
    assert (frame.loc[timed, "time_s"] > 0.0).all()
    if "mfu" in frame:
        assert (frame.loc[timed, "mfu"].dropna() <= 1.0 + 1e-9).all()
    if "tokens_per_s_per_user" in frame:
        check_served(frame[timed & frame["devices"].notna()])


def check_served(frame):
    """Hold points that serve and have results to what they promise."""
    for name in SERVED:
        found = frame[name].dropna()
        assert np.isfinite(found).all(), name
        assert (found >= 0.0).all(), name
    both = frame[frame["ttft_p99_s"].notna()]
    for name in ("ttft", "tpot", "e2e"):
        tails = both[[f"{name}_p{share}_s" for share in (50, 90, 99)]].dropna()
        assert (tails.diff(axis=1).iloc[:, 1:] >= 0.0).all(axis=None), name
    assert not (frame["feasible"] & (frame["footprint_B"] > frame["dram_capacity_B"])).any()


def check_run(cli, main, words, folder):
    """Run a command line, and hold what it says and leaves to the contract; returns its exit code."""
    before = sorted(folder.rglob("*"))
    code, out, err = cli(main, *words)
    assert code in (0, 1, 2), (words, code)
    assert not any("Traceback" in line or "Warning" in line for line in (*out, *err)), (words, err)
    if code == 2:
        assert len(err) == 1, (words, err)
        assert sorted(folder.rglob("*")) == before, words
    for part in folder.rglob("part-00000.parquet") if main is sweep else ():
        check_rows(pd.read_parquet(part))
    return code


def is_small(words):
    """Say whether a command line is quick enough for a test, or is refused."""
    try:
        with hydra_rules():
            given = [word for word in words if not word.startswith("-")]
            run = plan(Composer.of_library(), given, None)
        return run.grid.points <= MAX_POINTS and not run.settings.address
    except InputError:
        return True


def fuzz_command_lines(cli, folder, seed, count):
    draw = hostile.seeded(seed)
    codes = []
    for _ in range(count):
        words = hostile.command_line(draw)
        if is_small(words):
            codes.append(check_run(cli, sweep, words, folder))
            for left in folder.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
    return codes


def test_command_lines_at_random(cli, tmp_path):
    assert 2 in fuzz_command_lines(cli, tmp_path, 1, 6)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 5))
def test_many_command_lines_at_random(cli, tmp_path, seed):
    codes = fuzz_command_lines(cli, tmp_path, seed, 60)
    assert {0, 2} <= set(codes)


def outcome_of(words):
    """Return what a call gives: rows, or the line of a mistake."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return fastflow.evaluate(*words), ""
    except InputError as error:
        return None, str(error)


def fuzz_calls(seed, count, drawn=hostile.overrides):
    draw = hostile.seeded(seed)
    good = 0
    for _ in range(count):
        words = drawn(draw)
        if is_small(words):
            rows, line = outcome_of(words)
            good += rows is not None
            assert len(line.splitlines()) == (rows is None), words
            if rows is not None:
                check_rows(rows)
    return good


def test_calls_at_random():
    assert fuzz_calls(1, 25) > 1


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_calls_at_random(seed):
    assert fuzz_calls(seed, 200) > 3


def fuzz_transformers(folder, monkeypatch, seed, count):
    hostile.configs(folder)
    monkeypatch.chdir(folder)
    return fuzz_calls(seed, count, hostile.of_a_transformer)


def test_transformers_at_random(tmp_path, monkeypatch):
    assert 3 < fuzz_transformers(tmp_path, monkeypatch, 1, 20) < 17


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_transformers_at_random(tmp_path, monkeypatch, seed):
    assert fuzz_transformers(tmp_path, monkeypatch, seed, 300) > 50


def fuzz_servers(folder, monkeypatch, seed, count):
    hostile.files_of_lengths(folder)
    monkeypatch.chdir(folder)
    return fuzz_calls(seed, count, hostile.of_servers)


def test_servers_at_random(tmp_path, monkeypatch):
    assert 3 < fuzz_servers(tmp_path, monkeypatch, 1, 15) < 12


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_servers_at_random(tmp_path, monkeypatch, seed):
    assert fuzz_servers(tmp_path, monkeypatch, seed, 200) > 30


def fuzz_studies(cli, folder, seed, count):
    draw = hostile.seeded(seed)
    sweeps = folder / "mine" / "sweeps"
    sweeps.mkdir(parents=True)
    for _ in range(count):
        (sweeps / "odd.yaml").write_text(hostile.study(draw))
        words = [
            *draw.choice([[], ["-m"]]),
            "-cd",
            "mine",
            "+sweeps=odd",
            "model=gemm",
            *draw.choice([[], ["tech=n7"]]),
        ]
        check_run(cli, sweep, words, folder)
        for left in folder.iterdir():
            if left.name != "mine":
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def test_studies_at_random(cli, tmp_path):
    fuzz_studies(cli, tmp_path, 1, 3)


@pytest.mark.long
def test_many_studies_at_random(cli, tmp_path):
    fuzz_studies(cli, tmp_path, 2, 60)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Datasets to be damaged: a grid of several parts, a study, a search."""
    home = tmp_path_factory.mktemp("whole")
    fastflow.sweep("model=gemm", "model.m=range(1,601)", output=home / "grid")
    fastflow.search("model=gemm", "steps=2", "starts=1", output=home / "search")
    return home


def fuzz_reports(cli, folder, datasets, seed, count):
    draw = hostile.seeded(seed)
    codes = []
    for _ in range(count):
        name = draw.choice(sorted(path.name for path in datasets.iterdir() if path.is_dir()))
        for left in folder.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        for whole in datasets.iterdir():  # a search's answers lie beside its history
            (shutil.copytree if whole.is_dir() else shutil.copy)(whole, folder / whole.name)
        hostile.damage(draw, folder / name)
        codes.append(check_run(cli, report, [name], folder))
    return codes


@pytest.mark.long
def test_reports_at_random(cli, tmp_path, datasets):
    assert 2 in fuzz_reports(cli, tmp_path, datasets, 1, 12)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 4))
def test_many_reports_at_random(cli, tmp_path, datasets, seed):
    assert {0, 2} <= set(fuzz_reports(cli, tmp_path, datasets, seed, 150))


def altered(table, name, change):
    """Return a table with a column changed: no number, or empty."""
    place, field = table.schema.get_field_index(name), table.schema.field(name)
    column = pa.nulls(len(table), field.type) if change is None else pa.array([change] * len(table))
    return table.set_column(place, pa.field(name, column.type, metadata=field.metadata), column)


@pytest.fixture(scope="module")
def validated(tmp_path_factory):
    home = tmp_path_factory.mktemp("validated")
    rows = "256,256,256,1e-5,x\n512,256,256,1e-5,y\n"
    (home / "some.csv").write_text(f"m,n,k,time_s,note\n{rows}")
    fastflow.validate(f"measurements={home / 'some.csv'}", "chip=a100", output=home / "val")
    return home


@pytest.mark.parametrize(
    ("folder", "name", "change"),
    [
        ("val", "predicted_s", np.inf),
        ("val", "measured_s", np.nan),
        ("val", "measured_s", None),
        ("val", "predicted_s", None),
        ("val", "bound_by", None),
        ("val", "note", [1]),
        ("val-errors", "by", None),
        ("val-errors", "by", "x"),
        ("val-errors", "value", None),
        ("val-errors", "mean_error", -np.inf),
        ("val-errors", "mean_error", None),
        ("val", "fastflow.said", b'["timed'),
        ("val", "fastflow.said", b"3"),
    ],
)
def test_a_validation_with_what_is_no_result_is_refused(cli, tmp_path, validated, folder, name, change):
    shutil.copytree(validated, tmp_path / "d")
    part = tmp_path / "d" / folder / "part-00000.parquet"
    table = pq.read_table(part)
    if name.startswith("fastflow."):
        others = {key: text for key, text in table.schema.metadata.items() if key != name.encode()}
        table = table.replace_schema_metadata(others | ({name.encode(): change} if change else {}))
    else:
        table = altered(table, name, change)
    pq.write_table(table, part)
    assert check_run(cli, report, ["d/val"], tmp_path) == 2


def test_a_flipped_bit_changes_no_value(tmp_path):
    whole = fastflow.sweep("model=gemm", "model.m=range(1,101)", output=tmp_path / "d")
    part, draw = whole / "part-00000.parquet", hostile.seeded(1)
    content, values = (
        part.read_bytes(),
        find(str(whole)).read(["point", "time_s", "strategy", "gemm_busy_frac"]),
    )
    refused = 0
    for _ in range(300):
        broken = bytearray(content)
        broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
        part.write_bytes(broken)
        try:
            pd.testing.assert_frame_equal(find(str(whole)).read(list(values)), values)
        except InputError:
            refused += 1
    assert refused > 10


@pytest.mark.parametrize(("name", "change"), [("l1_bound_frac", np.inf), ("time_s", -1.0)])
def test_a_grid_of_what_cannot_be_predicted_is_refused(cli, tmp_path, name, change):
    fastflow.sweep("model=gemm", "model.m=8,16", output=tmp_path / "d")
    part = tmp_path / "d" / "part-00000.parquet"
    pq.write_table(altered(pq.read_table(part), name, change), part)
    assert check_run(cli, report, ["d"], tmp_path) == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("defaults: [true]", r"tech/odd\.yaml: cannot be read \(Unsupported type in defaults"),
        ("name: !!set {a}", r"tech/odd\.yaml: cannot be read \(Value 'set'"),
        ("name: \0", r"tech/odd\.yaml: cannot be read \(unacceptable character"),
        pytest.param(
            "name: " + 500 * "[" + 500 * "]", r"tech/odd\.yaml: cannot be read \(nested too", id="deep"
        ),
        ("defaults: [n12, _self_]\ncore: []", r"tech/odd\.yaml: cannot be merged into what it changes"),
        (
            "defaults: [n12, _self_]\nmemory: {cache: 3}",
            r"tech\.memory\.cache=3 \(from .*odd\.yaml\) is invalid: expected a section with keys such as t",
        ),
        (
            "defaults: [n12, _self_]\nscaling: null",
            r"tech\.scaling=null .*: expected a section with .* area, p",
        ),
        (
            "defaults: [n12, override /mem@_global_.mm: hbm2]",
            r"defaults=override mem@mm \(from .*tech/odd\.yaml\) is invalid: .*; did you mean mem\?",
        ),
    ],
)
def test_what_is_wrong_in_a_file_names_it(tmp_path, content, says):
    (tmp_path / "tech").mkdir()
    (tmp_path / "tech" / "odd.yaml").write_text(content)
    with pytest.raises(InputError, match=says):
        fastflow.evaluate("model=gemm", "tech=odd", config_dir=tmp_path)


MISTAKES = [
    ("~parallel", "parallel.strategy=nothing is invalid: expected"),
    ("~output", "output=null (from the command line) is invalid: expected a folder"),
    ("output=''", "output=null (from the command line)"),
    ("output=${nosuch}", "output=${nosuch} (from the command line)"),
    ("output=[a]", "output=['a'] is invalid: expected a path or a URL"),
    ("output=file://", "expected a path, or a URL with one"),
    ("output=" + "a" * 300, "File name too long"),
    ("hydra.run.dir=a output=b", "expected only one of it and output=b"),
    ("hydra.sweep.dir=a", "this run does not follow hydra.sweep.dir"),
    ("-m hydra.run.dir=a tech=n7,n5", "this run does not follow hydra.run.dir"),
    ("hydra.searchpath=[nosuch]", "path=nosuch is not available"),
    ("hydra/job_logging=default", "one of none, disabled, stdout"),
    ("-m hydra/sweeper=basic tech=n7,n5", "hydra/sweeper=basic"),
    ("-m hydra.mode=RUN tech=n7,n5", "hydra.mode=MULTIRUN"),
    ("--multirun --run", "Only one of --run, --multirun"),
    ("--resolve", "--cfg"),
    ("--package=mem", "--package=mem (from the command line) is invalid: expected given with --cfg"),
    ("-cn tech/n7", "--config-name=tech/n7"),
    ("-cd= tech=n7", "--config-dir= (from the command line)"),
    ("tech=n7 -m mem=hbm2,hbm3", "-m comes first: python -m fastflow.sweep -m tech=n7 mem=hbm2,hbm3"),
    (
        "tech=n7 tech=n5",
        "tech=n5 (from the command line) is invalid: expected one value, or a list; it is set to n7",
    ),
    ("tech=[n7,n5]", "tech=[n7,n5] (from the command line) is invalid: expected one of n1,"),
    ("-m mem=[1]", "mem=[1] (from the command line) is invalid: expected one of"),
    ("-m tech=[[n7]]", "tech=[[n7]] (from the command line) is invalid: expected one of"),
    ("-m tech=n7,n7", "tech=n7 (from the command line) is invalid: expected each value once"),
    ("-m +sweeps=fig09,fig01", "sweeps=fig09,fig01 (from the command line) is invalid: expected one study"),
    (
        "-m model.batch=range(1,2,0)",
        "model.batch=range(1,2,0) (from the command line) is invalid: expected a range",
    ),
    ("-m output=${tech.name} tech=n7,n5", "a folder that does not depend on tech, which is swept"),
    ("-m +sweeps=fig09 mem=hbm2 report=fig10", "report=fig10 (from the command line) is invalid: expected"),
    ("model.batch=" + "[" * 500 + "]" * 500, "cannot be composed"),
    ("x" * 5000 + "=1", " ... "),
]
MISTAKES += [
    ("a", "a: cannot be read (it ends too early); expected key=value"),
    ("mem=hbm2,", "mem=hbm2,: cannot be read (it ends too early); expected key=value"),
    ("tech=n7=n5", "tech=n7=n5: cannot be read (= is out of place); expected key=value"),
    ("chip.name=64x²", "cannot be read (a character in it is out of place, or needs quotes)"),
    ("-m model.m=range(a,b)", "while evaluating 'range(a,b)'"),
    ("~nosuch", "~nosuch=nothing (from the command line) is invalid: expected a group or section ("),
    ("~tech.memory.sram.latency", "expected a key of tech.memory (cache, registers, scratchpad) that has a"),
    ("~tech=n5", "~tech=n5 (from the command line) is invalid: expected ~tech, which removes it whatever"),
    ("~chip.tdp=3", "~chip.tdp=3 (from the command line) is invalid: expected ~chip.tdp, which removes"),
]
QUICK = 6  # of them are no long tests


@pytest.mark.parametrize(
    ("words", "says"),
    [pytest.param(*case, marks=pytest.mark.long) if i >= QUICK else case for i, case in enumerate(MISTAKES)],
)
def test_a_mistake_is_one_line_and_leaves_nothing(cli, tmp_path, words, says):
    code, out, err = cli(sweep, *words.split())
    assert (code, out, len(err)) == (2, [], 1)
    assert says in err[0]
    assert list(tmp_path.iterdir()) == []


NO_FILES = ["3", "true", "null", "[]", "[3]", "[a.csv,3]", "[null]", "{a:1}", ""]


@pytest.mark.parametrize("written", NO_FILES)
@pytest.mark.parametrize("command", [fastflow.calibrate, fastflow.validate])
def test_what_is_no_file_of_measurements_is_refused(command, written):
    with pytest.raises(InputError, match=r"measurements=.* is invalid: expected .*CSV file"):
        command(f"measurements={written}")


@pytest.mark.long
@pytest.mark.parametrize("words", ["~chip", "~method", "~objective", "~seed", "~parallel", "report=fig10"])
def test_a_search_refuses_in_one_line(cli, tmp_path, words):
    assert check_run(cli, search, [words], tmp_path) == 2


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["model.batch=range(1,1000000000)"], "at most 20,000,000 values; these are 999,999,999"),
        (["model.batch=shuffle(range(1,10000000))"], "at most 1,000,000 values"),
        (["chip.area.core=range(0.1,0.5,1e-12)"], "at most 1,000,000 values; these are 400,000,000,000"),
        (["model.devices=range(1,10000000)"], "at most 100,000 combinations to compose; these are 9,999,999"),
        (
            ["model.batch=range(1,10000001)", "model.hidden=range(1,10000001)"],
            "at most 10,000,000,000 points",
        ),
        (["model.batch=range(1,15000001)"], "at most 10,000,000 points in memory"),
        (["model.batch=range(1,inf)"], "model.batch=range(1,inf)"),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_expanded(overrides, says, monkeypatch):
    monkeypatch.setattr("fastflow.engine.run.execute.collect", None)
    with pytest.raises(InputError, match=re.escape(says)):
        fastflow.evaluate(*overrides)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["tech=n7,n7"], "tech=n7 (from the command line) is invalid: expected each value once; tech=n7,n7"),
        (["model.batch=1,2,1.0"], "model.batch=1.0"),
        (["chip.tdp='200 W','0.2 kW'"], "expected each value once"),
        (["tech=n7,null"], "tech=null"),
        (["tech=n7,[n5]"], "tech=[n5]"),
        (["+="], "no key"),
        ([""], "'': cannot be read"),
    ],
)
def test_a_list_says_what_it_means(overrides, says):
    with hydra_rules(), pytest.raises(InputError, match=re.escape(says)):
        plan(Composer.of_library(origin=COMMAND_LINE), overrides)


def test_a_program_may_want_equal_rows():
    assert fastflow.evaluate("model=gemm", "model.m=64,64")["model.m"].tolist() == [64, 64]


def test_an_output_that_was_removed_is_missed_only_where_it_is_needed(tmp_path):
    assert len(fastflow.evaluate("model=gemm", "~output")) == 1
    with pytest.raises(InputError, match=r"^output= .*expected a folder"):
        fastflow.sweep("model=gemm", "~output")
    assert fastflow.sweep("model=gemm", "~output", output=tmp_path / "here") == tmp_path / "here"


def test_walked_together_only_whole_rows_count():
    composer = Composer.of_library(origin=COMMAND_LINE)

    def points(values):
        with hydra_rules():
            return plan(composer, [], {"zip": [{"tech": "n7,n7,n5", "mem": values}]}).grid.points

    assert points("hbm2,hbm3,hbm2") == 3
    with pytest.raises(InputError, match="each value once"):
        points("hbm2,hbm2,hbm3")


def test_a_shuffled_axis_is_the_same_every_time():
    orders = [
        fastflow.evaluate("model=gemm", f"model.m={text}")["model.m"].tolist()
        for text in 2 * ["shuffle(range(1,9))", "shuffle(1,2,3,4,5,6,7,8)"]
    ]
    assert orders[:2] == orders[2:]
    assert all(sorted(order) == list(range(1, 9)) != order for order in orders)


NO_TEXTS = [{"tech": "n7"}, ["tech=n7"], None, 3, b"x", ("tech=n7",), 1.5, object()]


@pytest.mark.parametrize(
    "name",
    [
        "evaluate",
        "sweep",
        "search",
        "validate",
        "calibrate",
        "rank_strategies",
        "explain_sharding",
        "explain_memory",
    ],
)
def test_functions_take_texts(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for wrong in NO_TEXTS:
        with pytest.raises(InputError, match=r'^override=.* is invalid: expected a text, as "tech=n7"$'):
            getattr(fastflow, name)(wrong)
    with pytest.raises(InputError, match=r"^config_dir=b'x' is invalid"):
        getattr(fastflow, name)("model=gemm", config_dir=b"x")
    is_written = name not in ("evaluate", "rank_strategies", "explain_sharding", "explain_memory")
    for wrong in ("", 3, b"x", "\0") if is_written else ():
        with pytest.raises(InputError, match=r"^output="):
            getattr(fastflow, name)("model=gemm", output=wrong)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong", ["1", None, -1, 0.5, np.nan, np.inf, 1e30, [1, [2]], {}, 1j, True, b"1", 10**30]
)
def test_predictions_take_numbers(wrong):
    with pytest.raises(InputError, match=r"^model\.m="):
        fastflow.predict_gemm(wrong, 64, 64)
    with pytest.raises(InputError, match=r"^ranks="):
        fastflow.predict_collective("all-reduce", 1e6, wrong, "system=dgx_a100")
    if wrong != 0.5:
        with pytest.raises(InputError, match=r"^size="):
            fastflow.predict_collective("all-reduce", wrong, 8, "system=dgx_a100")


def test_predictions_are_of_one_chip_and_one_system():
    for wrong in (None, 3, b"a100", ["a100"], "a100,v100"):
        with pytest.raises(InputError, match=r"^chip="):
            fastflow.predict_gemm(64, 64, 64, chip=wrong)
    with pytest.raises(InputError, match=r"^system=several values"):
        fastflow.predict_collective("all-reduce", 1e6, 8, "system=dgx_a100,torus")
    for wrong in (None, 3, "x", ["all-reduce"]):
        with pytest.raises(InputError, match=r"^collective="):
            fastflow.predict_collective(wrong, 1e6, 8)


def rewritten(part, change, metadata=None):
    """Write a part anew with its table changed."""
    table = change(pq.read_table(part))
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, **(metadata or {})}), part)


def as_text(table):
    place = table.schema.get_field_index("time_s")
    return table.set_column(place, "time_s", pa.array(["x"] * table.num_rows))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda part: shutil.copy(part, part.with_name("part-00009.parquet")), "a point is there twice"),
        (lambda part: rewritten(part, lambda table: table.slice(0, 0)), ""),
        (lambda part: rewritten(part, as_text), "column time_s holds string instead of double"),
        (lambda part: rewritten(part, lambda table: table, {b"fastflow.points": b"\xff\xfe"}), "metadata"),
        (lambda part: rewritten(part, lambda table: table, {b"fastflow.report": b"\xff"}), "metadata"),
        (lambda part: rewritten(part, lambda table: table, {b"fastflow.report": b"json"}), "study=json"),
        (
            lambda part: rewritten(part, lambda table: table, {b"fastflow.fingerprint": b"x"}),
            "of another one",
        ),
        (lambda part: part.write_bytes(part.read_bytes()[:-9]), "is damaged"),
    ],
)
def test_a_report_is_of_a_whole_dataset(cli, tmp_path, datasets, spoil, says):
    shutil.copytree(datasets / "grid", tmp_path / "grid")
    spoil(tmp_path / "grid" / "part-00000.parquet")
    code, out, err = cli(report, "grid")
    if says:
        assert (code, out, len(err)) == (2, [], 1)
        assert says in err[0]
        assert [path.name for path in tmp_path.iterdir()] == ["grid"]
    else:
        assert (code, err) == (0, [])
        assert "of 600; the run was cut short" in out[0]


def test_a_dataset_of_no_rows_is_none(cli, tmp_path, datasets):
    shutil.copytree(datasets / "grid", tmp_path / "grid")
    for part in (tmp_path / "grid").iterdir():
        rewritten(part, lambda table: table.slice(0, 0))
    code, out, err = cli(report, "grid")
    assert (code, out, len(err)) == (2, [], 1)
    assert "it holds no rows" in err[0]


def test_a_run_cut_short_says_so(cli, tmp_path, datasets):
    shutil.copytree(datasets / "grid", tmp_path / "grid")
    (tmp_path / "grid" / "part-00001.parquet").unlink()
    code, out, err = cli(report, "grid")
    assert (code, err) == (0, [])
    assert "grid: 344 points of 600; the run was cut short" in out[0]


def test_the_winning_strategy_is_shown(cli):
    code, out, err = cli(sweep, "-m", "model=gemm", "parallel.strategy=auto,d1", "output=here")
    assert (code, err) == (0, ["2 points: 2 parallel.strategy"])
    assert [line.split()[1:3] for line in out if line.strip().startswith(("0 ", "1 "))] == [
        ["auto", "d1"],
        ["d1", "d1"],
    ]


def test_one_of_a_thing_is_no_plural(cli):
    code, out, err = cli(sweep, "-m", "model=gemm", "tech=n7", "output=here")
    assert (code, err) == (0, ["1 point"])
    lines = [re.sub(r"\S+ points/s", "", line) for line in out]
    assert not any("1 points" in line for line in lines)
    code, out, _ = cli(report, "here")
    assert code == 0
    assert out[0].startswith("here: 1 point; ")
