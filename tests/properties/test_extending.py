"""A user's own package: what docs/extending.md shows is installed here, and does what the page says."""

import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

import fastflow
from fastflow.__main__ import main
from fastflow.analysis.benchmarks import formats
from fastflow.analysis.benchmarks.result_format import FORMATS
from fastflow.analysis.measurements import kinds
from fastflow.analysis.measurements.kind import KINDS
from fastflow.analysis.search.optimizers.methods import METHODS, defaults
from fastflow.cli.commands import COMMANDS
from fastflow.cli.request_arguments import main as generate
from fastflow.performance.results import explain
from fastflow.physics.network.collectives.algorithms import REGISTRY as COLLECTIVES
from fastflow.physics.workload import FAMILIES
from fastflow.physics.workload.models.transformer.mixer import MIXERS
from fastflow.physics.workload.ops import TYPES
from fastflow.physics.workload.optimizers import OPTIMIZERS
from fastflow.reporting.charts import CHARTS
from fastflow.schema import find_input
from fastflow.schema.routing import ROUTERS
from fastflow.schema.scheduling import POLICIES
from tests.support.documents import DOCS, blocks

assert kinds, formats  # their modules register themselves, before a test takes down what is registered
PAGE = DOCS / "extending.md"
REGISTRIES = (
    METHODS, KINDS, FORMATS, COMMANDS, CHARTS, TYPES, FAMILIES, MIXERS, OPTIMIZERS, COLLECTIVES, POLICIES,
    ROUTERS,
)  # fmt: skip
BLOCKS = tuple(blocks(PAGE))
MODULES = [block for block in BLOCKS if block.language == "py"]
PROJECT = next(block.text for block in BLOCKS if block.language == "toml")
MAX_LINES = 10  # of an example


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A function that installs a package: entry points by group, and files; its folder goes on `sys.path`."""
    for registry in REGISTRIES:
        monkeypatch.setattr(registry, "_things", {**registry._things})  # so that what is loaded goes again
    find_input.cache_clear()
    before = set(sys.modules)

    def install(groups, files):
        info = tmp_path / "mine-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
        for group, names in groups.items():
            with (info / "entry_points.txt").open("a") as file:
                print(
                    f"[{group}]", *(f"{key} = {value}" for key, value in names.items()), sep="\n", file=file
                )
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.chdir(tmp_path)

    yield install
    find_input.cache_clear()
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "mine":
            del sys.modules[name]


@pytest.fixture
def mine(package):
    """The package of the page, installed."""
    files = {block.file: block.text for block in BLOCKS if block.file}
    package(tomllib.loads(PROJECT)["project"]["entry-points"], files)


def command_of(word):
    """Return the words of the page's command that has a word."""
    (block,) = (block for block in BLOCKS if block.language == "sh")
    (line,) = (line for line in block.text.splitlines() if word in line)
    return shlex.split(line)[1:]


def test_the_page_shows_an_example_of_every_registry_in_ten_lines():
    groups = tomllib.loads(PROJECT)["project"]["entry-points"]
    assert {*groups} == {registry.group for registry in REGISTRIES}
    assert len(MODULES) == len(REGISTRIES)
    for block in MODULES:
        assert len([line for line in block.text.splitlines() if line]) <= MAX_LINES, block.file
    table = PAGE.read_text(encoding="utf-8")
    assert {*re.findall(r"\| `(fastflow\.\w+)` \|", table)} == {*groups}


def test_a_search_method(mine):
    found = fastflow.search(*command_of("halton")[1:], "tolerance=0")
    designs = found.history.filter(like="chip.area.").iloc[1:]  # after the unchanged chip
    assert len(designs.drop_duplicates()) == 2 * 8
    assert designs.sum(axis=1).to_numpy() == pytest.approx(1.0)


def test_a_kind_of_measurement(mine):
    _, *arguments = command_of("copies.csv")
    found = fastflow.validate(*arguments).rows
    expected = fastflow.evaluate(
        "model=operator", "chip=a100", model__rows=[4096, 8192], model__cols=[4096, 8192]
    )
    assert found.attrs["fastflow.measured"] == "copies"
    assert found["predicted_s"].tolist() == expected["time_s"].iloc[[0, 3]].tolist()


def test_a_format_of_a_benchmark(mine):
    _, *arguments = command_of("clock.json")
    found = fastflow.calibrate(*arguments)
    assert found.runs[["tool", "arrivals", "requests"]].values.tolist() == [
        ["my clock", "closed loop, 1 in flight", 2]
    ]
    assert found.figures["state"].tolist() == ["fitted"]


def test_a_command(mine, cli):
    code, out, err = cli(main, *command_of("fastest"))
    best = fastflow.evaluate("tech=n7,n5", "mem=hbm2,hbm3").sort_values("time_s").iloc[0]
    assert (code, err) == (0, [])
    assert [line.split()[1] for line in out[:2]] == [best["tech"], best["mem"]]
    assert "  fastest      the fastest point of a grid" in cli(main, "--help")[1]


def test_a_chart(mine, cli):
    fastflow.sweep("tech=n7,n5", "mem=hbm3", output="results/mine")
    code, out, err = cli(main, *command_of("chart=energy"))
    assert (code, out, err) == (0, ["Figure: results/mine-energy.svg"], [])
    assert "energy [J]" in Path("results/mine-energy.svg").read_text()
    code, _, err = cli(main, "report", "results/mine", "chart=energie")
    assert (code, err) == (2, ["chart=energie is invalid: expected one of overview, search, serving, energy"])


def test_charts_of_fastflow_have_names_too(cli):
    fastflow.sweep("tech=n7,n5", "mem=hbm3", output="grid")
    assert cli(main, "report", "grid")[1][-1] == "Figure: grid-report.svg"
    assert cli(main, "report", "grid", "chart=overview")[1] == ["Figure: grid-overview.svg"]
    assert Path("grid-overview.svg").read_bytes() == Path("grid-report.svg").read_bytes()
    for arguments, says in (
        ("chart=serving", "dataset=grid is invalid: expected a dataset with ttft_s, "),
        ("chart=search", "dataset=grid is invalid: expected the history, or the front, of a search"),
        ("chart=overview --study fig09", "chart=overview is invalid: expected no html=, no columns= and no"),
        ("chart=overview html=page.html", "chart=overview is invalid: expected no html=, no columns= and no"),
    ):
        code, out, err = cli(main, "report", "grid", *arguments.split())
        assert (code, out, len(err)) == (2, [], 1)
        assert err[0].startswith(says), err


def test_a_type_of_kernel(mine):
    command = [word for word in command_of("router.yaml") if word != "sweep"]
    text = Path("router.yaml").read_text()
    times = {}
    for name in ("top_k", "rowwise", "elementwise"):
        Path("router.yaml").write_text(text.replace("top_k", name))
        times[name] = fastflow.evaluate(*command, "parallel.strategy=RC-1-8-d1")["time_s"][0]
    assert times["top_k"] == times["rowwise"] > times["elementwise"]


def test_an_optimizer(mine):
    """Adam's memory, and fewer operations; fastflow's own stay as they are beside it."""
    _, *arguments = command_of("sophia")
    adam, sophia = fastflow.evaluate(*(word for word in arguments if word != "-m")).to_dict("records")
    assert sophia["optimizer_B"] == adam["optimizer_B"] > 0
    assert sophia["flop"] < adam["flop"]
    with pytest.raises(fastflow.InputError, match=r"muon, sophia"):
        fastflow.evaluate("model=llama3_8b", "model.optimizer=sofia")


def test_a_family_of_models(mine):
    times = fastflow.evaluate("model=layers.yaml", "model.depth=1,2,4", "parallel.strategy=d8")["time_s"]
    assert times[0] < times[1] < times[2]
    product = ("model.training=false", "parallel.strategy=d1", "system.devices=1", "model.dtype=fp16")
    sides = {f"model__{side}": 8192 for side in "kn"}
    one = fastflow.evaluate("model=layers.yaml", "model.depth=1", *product)["time_s"][0]
    assert one == fastflow.evaluate("model=gemm", *product, model__m=65536, **sides)["time_s"][0]


def test_points_of_a_family_differ_by_its_structure(mine):
    """A pipeline of four stages suits eight layers, and not two: whether it does is found for each depth."""
    Path("mine/model.py").write_text(
        f"{Path('mine/model.py').read_text()}\n"
        "FAMILY = FAMILY._replace(layers=lambda inputs: inputs['model.depth'])\n"
    )
    points = fastflow.evaluate("model=layers.yaml", "model.depth=8,2", "parallel.strategy=d2-p4")
    assert points["reason"][0] == ""
    assert points["time_s"].notna().tolist() == [True, False]


def test_an_input_of_a_family_is_checked_as_any_other(mine):
    with pytest.raises(
        fastflow.InputError, match=r"^model\.width=0 .*expected a whole number at least 1 and"
    ):
        fastflow.evaluate("model=layers.yaml", "model.width=0")
    with pytest.raises(fastflow.InputError, match=r"^model\.name=mlb .*one of gemm, .*, graph, mlp"):
        fastflow.evaluate("model=layers.yaml", "model.name=mlb")


def test_a_mixer(mine):
    """It has a third of the first product's weights, and is trained and served as fastflow's are."""
    plain, gated = (row for _, row in fastflow.evaluate(*command_of("plain_conv")[2:]).iterrows())
    assert gated["parameters"] - plain["parameters"] == 32 * 2 * 4096**2
    assert plain["time_s"] < gated["time_s"]
    served = ("serve=decode", "model=transformer", "model.conv_width=3", "parallel.strategy=TP-2")
    tpot = fastflow.evaluate(*served, "model.pattern=plain_conv dense,short_conv dense")["tpot_s"]
    assert tpot[0] < tpot[1]
    with pytest.raises(
        fastflow.InputError, match=r"^model\.pattern=plane_conv .*words of a kind: .*, plain_conv"
    ):
        fastflow.evaluate("model=transformer", "model.pattern=plane_conv")


def test_a_collective_algorithm(mine, compose, predict):
    arguments = command_of("in_network")[2:4]
    times = fastflow.evaluate(*arguments, "system.collective=ring,in_network,auto")["exposed_comm_s"]
    assert times[1] < times[0] / 1.4  # a ring sends nearly twice as much
    alone = fastflow.evaluate(*arguments, "system.collective=auto")["exposed_comm_s"]
    assert times[2] == alone[0] > times[1]
    prediction = predict(
        [compose(*arguments, f"system.collective={name}") for name in ("auto", "in_network")]
    )
    kernels = explain(prediction, 1)
    assert {*kernels["algorithm"][kernels["comm"] == "all-reduce"]} == {"in_network"}
    assert "in_network" not in explain(prediction, 0)["algorithm"]


def test_a_scheduling_policy(mine):
    """Shortest prompts first: most requests wait less for their first token, and the longest wait more."""
    load = ("serve.request_rate='20 1/s'", "serve.concurrency=0", "serve.num_requests=300", "serve.osl=100")
    served = (*command_of("careful.yaml")[1:], "parallel.strategy=TP-2", "system.devices=2", *load)
    served += ("serve.isl=4000", "serve.length_range_ratio=1", "serve.simulate=true")
    columns = fastflow.evaluate(*served, "server.policy=mixed,shortest_first")
    first_come, shortest = (row for _, row in columns.iterrows())
    assert shortest["ttft_p50_s"] < 0.9 * first_come["ttft_p50_s"]
    assert shortest["ttft_p99_s"] > 1.1 * first_come["ttft_p99_s"]
    (named,) = fastflow.evaluate(*served, "serve.simulate=false")["ttft_p50_s"]
    assert named == shortest["ttft_p50_s"]
    apart = ["serve=disaggregated" if word == "serve=continuous" else word for word in served]
    (reason,) = fastflow.evaluate(*apart, "serve.prefill.devices=1")["reason"]
    assert reason.startswith("server.policy=shortest_first is invalid: expected one of auto, mixed, ")


@pytest.mark.long
def test_a_router(mine, tmp_path):
    """Long prompts are on the last rank alone: first tokens come at other times."""
    code = "sessions=300", "rate='6 1/s'", "isl=1500", "sigma=1.2"
    generate(COMMANDS["requests"], [f"output={tmp_path / 'mixed.csv'}", *code])
    served = ("serve=continuous", "server=vllm", "model=llama3_8b", "system=dgx_h100", "system.devices=2")
    served += ("parallel.strategy=TP-1", f"serve.trace={tmp_path / 'mixed.csv'}")
    usual, other = (
        row for _, row in fastflow.evaluate(*served, "router.policy=least_loaded,long_last").iterrows()
    )
    assert other["ttft_p50_s"] != usual["ttft_p50_s"]
    assert other["requests_per_s"] == pytest.approx(usual["requests_per_s"], rel=0.1)


# --- packages that are broken, and none at all


BROKEN = {
    "no_module": ("gone:THING", "cannot be loaded: ModuleNotFoundError: No module named 'gone'"),
    "no_name": ("mine.broken:GONE", "cannot be loaded: AttributeError: "),
    "raises": ("mine.raises:THING", "cannot be loaded: ZeroDivisionError: division by zero"),
    "another": ("mine.broken:TEXT", "is 'text'; expected "),
    "renamed": ("mine.broken:NAMED", "names itself other; both names have to be the same"),
}
FILES = {
    "mine/broken.py": "TEXT = 'text'\nclass NAMED:\n    name = 'other'\n",
    "mine/raises.py": "1 / 0\n",
}


@pytest.fixture
def broken(package):
    package(
        {registry.group: {name: value for name, (value, _) in BROKEN.items()} for registry in REGISTRIES},
        FILES,
    )


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.group)
def test_one_line_names_an_entry_point_that_cannot_be_loaded(broken, registry, name, monkeypatch):
    monkeypatch.setattr(registry, "_accepts", lambda thing: thing != "text")
    value, says = BROKEN[name]
    with pytest.raises(fastflow.InputError) as error:
        registry[name]
    line = str(error.value)
    where = f"{registry.key}={name}: the entry point {value} of mine 1.0 (group {registry.group}) "
    assert line.startswith(where)
    assert says in line
    assert "\n" not in line


@pytest.mark.parametrize(
    "command",
    ["search method=raises", "raises", "report here chart=raises", "sweep model.name=raises"],
)
def test_a_command_ends_with_this_line(broken, cli, command):
    code, _, err = cli(main, *command.split())
    assert (code, len(err)) == (2, 1)
    assert "=raises: the entry point mine.raises:THING of mine 1.0 (group fastflow." in err[0]


def test_what_is_not_asked_for_may_be_broken(broken, cli, tmp_path):
    assert fastflow.evaluate("tech=n7")["time_s"].notna().all()
    with pytest.raises(fastflow.InputError, match=r"^model\.hiden=8 .*did you mean model\.hidden"):
        fastflow.evaluate("tech=n7", "model.hiden=8")
    (tmp_path / "some.csv").write_text("m,k,n,dtype,time_s\n1024,1024,1024,fp16,1e-5\n")
    assert fastflow.validate("measurements=some.csv", "chip=a100").rows.attrs["fastflow.measured"] == "GEMMs"
    code, out, _ = cli(main, "--help")
    assert code == 0
    assert any(line.startswith("  raises       command=raises: the entry point ") for line in out)


def test_names_of_fastflow_cannot_be_taken(package):
    own = FAMILIES["gemm"]
    package({FAMILIES.group: {"gemm": "gone:FAMILY", "mlp": "gone:FAMILY"}}, {})
    assert FAMILIES["gemm"] is own
    assert [*FAMILIES][-2:] == ["graph", "mlp"]


def test_no_entry_point_is_read_for_what_is_fastflows_own(cli, monkeypatch, tmp_path):
    monkeypatch.setattr("fastflow.core.registry._entry_points", lambda group, path: pytest.fail(group))
    find_input.cache_clear()
    (tmp_path / "some.csv").write_text("m,k,n,dtype,time_s\n1024,1024,1024,fp16,1e-5\n")
    for model in ("model=gemm", "model=llama3_8b", "model=lstm_lm"):
        fastflow.evaluate(model, "tech=n7")
    fastflow.validate("measurements=some.csv", "chip=a100")
    assert defaults("mirror") == (1, 150)
    assert cli(main, "list", "chips")[0] == 0
    assert cli(main, "sweep", "tech=n7")[0] == 0
