"""A family of models is one entry, from which all that depends on the model is served."""

import numpy as np
import pytest

from fastflow.core.field import count
from fastflow.performance import precompile, results
from fastflow.physics import workload
from fastflow.physics.workload import FAMILIES
from fastflow.physics.workload.family import Family, independent_rows, single_operation
from fastflow.physics.workload.graph import HIDDEN
from fastflow.physics.workload.network import Layer, Node, connect
from fastflow.physics.workload.ops import gemm
from fastflow.schema import find_input
from tests.support.sources import parsed, sources

EVERY_MODEL = ("name", "dtype", "training", "optimizer", "devices", "strategy")

TOWER = """
rows: 4096
layers:
  - name: floor
    repeat: 3
    kernels: [{name: product, type: gemm, inner: 512, cols: 512}]
"""


def floors(points):
    h = points["model.hidden"]
    node = Node(name="product", type=gemm.TYPE, rows=points["model.batch"], cols=h, inner=h)
    return connect([Layer("floor", HIDDEN, (node,), repeat=int(points["model.layers"][0]))])


def tower(**other):
    return Family(
        name="tower",
        network=floors,
        rows=independent_rows("model.batch"),
        structure=(find_input("model.layers"),),
        sizes=(count("model.hidden", ""), count("model.batch", "")),
        layers=lambda inputs: inputs["model.layers"],
        **other,
    )


@pytest.fixture
def predicted(compose, predict, monkeypatch):
    """A function from a family, and what differs from a tower of 3 floors, to the results of a point."""
    common = {key: value for key, value in compose().items() if not key.startswith("model.")}
    sizes = {
        "model.name": "tower", "model.hidden": 512, "model.batch": 4096, "model.layers": 3,
        "model.dtype": "fp16", "model.training": True, "model.optimizer": "adam", "system.devices": 8,
    }  # fmt: skip

    def run(family=None, **changed):
        if family:
            monkeypatch.setitem(FAMILIES._things, family.name, family)
        prediction = predict([common | sizes | changed])
        return {key: column.tolist() for key, column in results.summary(prediction).items()}

    return run


@pytest.mark.parametrize("strategy", ["d8", "RC-2-2-d2", "CR-2-d2-p2", "d2-p4", "d4-p3"])
@pytest.mark.parametrize("training", [True, False])
def test_a_family_is_predicted_as_its_network_is_from_a_file(predicted, tmp_path, strategy, training):
    """Four stages or a part of the 3 floors are refused alike."""
    path = tmp_path / "tower.yaml"
    path.write_text(TOWER)
    changed = {"parallel.strategy": strategy, "model.training": training}
    entry = predicted(tower(), **changed)
    file = predicted(**changed, **{"model.name": "graph", "model.file": str(path)})
    assert entry["reason"] == file["reason"]
    assert str(entry) == str(file)  # as text: NaN differs from NaN


def test_what_an_entry_says_is_asked_for(predicted, monkeypatch):
    monkeypatch.setitem(
        FAMILIES._things, "tower", tower(kernels=single_operation, multiplied=("model.hidden", "model.batch"))
    )
    points = {
        "model.name": np.full(2, "tower"), "model.dtype": np.full(2, "fp16"),
        "model.hidden": np.array([8, 10**12]), "model.batch": np.array([4, 10**7]),
        "model.optimizer": np.full(2, "sgd"), "model.training": np.full(2, True),
        "model.layers": np.array([2, 5]), "model.stored": np.array([False, True]),
    }  # fmt: skip
    assert workload.count_kernels(points).tolist() == [5, 14]  # no update; nobody wants the input's gradient
    assert workload.count_layers(points).tolist() == [2, 5]
    assert [column.tolist() for column in workload.row_shard_limit(points)] == [[4, 10**7], [False, False]]
    assert [text[:13] for text in workload.invalid_model_dims(points).texts()] == ["", "model.hidden="]
    assert workload.transposed(points).tolist() == [False, False]
    monkeypatch.setitem(
        FAMILIES._things, "tower", tower(transposed="model.stored", quick_count=lambda points: 77)
    )
    assert workload.transposed(points).tolist() == [False, True]
    assert workload.count_kernels(points).tolist() == [77, 77]
    assert not workload.invalid_model_dims(points).exists.any()


def test_a_new_family_is_a_file_and_a_name(copied):
    """The registry has its name and its inputs; what it shares with others means what each of them says."""
    package, run = copied
    models = package / "physics" / "workload" / "models"
    text = (models / "gemm.py").read_text()
    for before, after in (
        ('name="gemm"', 'name="new"'), ("model.k", "model.depth"), ("independent GEMMs", "piles"),
        ('for side in "mkn"', "for side in SIDES"), ("FAMILY =", 'SIDES = ("m", "depth", "n")\nFAMILY ='),
    ):  # fmt: skip
        assert before in text
        text = text.replace(before, after)
    (models / "new.py").write_text(text)
    package = models.parent / "__init__.py"
    package.write_text(
        package.read_text()
        .replace("    operator,\n    rnn,\n", "    new,\n    operator,\n    rnn,\n")
        .replace("        graph_file,\n", "        graph_file,\n        new,\n")
    )
    message = run(
        "import numpy as np\n"
        "from fastflow.schema import find_input\n"
        "from fastflow.physics.workload import count_kernels\n"
        "print(find_input('model.name').allowed())\n"
        "print(find_input('model.depth').meaning)\n"
        "print(find_input('model.batch').meaning)\n"
        "sizes = dict.fromkeys(('m', 'depth', 'n', 'batch'), 8)\n"
        "point = {'name': 'new', 'training': True, 'dtype': 'fp16', 'optimizer': 'sgd'} | sizes\n"
        "print(count_kernels({f'model.{key}': np.array([value]) for key, value in point.items()}))\n"
    )
    assert message.splitlines() == [
        f"one of {', '.join(FAMILIES)}, new",
        "columns of A, rows of B",
        "independent GEMMs, or sequences of the global batch, or piles",
        "[3]",
    ]


def test_families_agree_on_the_inputs_that_they_share():
    for family in FAMILIES.values():
        for column in family.structure + family.sizes:
            known = find_input(column.name)
            assert known.low <= column.low  # a family that allows less says so itself
            assert {*known.choices} >= {*column.choices}
            shared = {"meaning": "", "low": 0.0, "choices": ()}
            assert known._replace(**shared) == column._replace(**shared)
            assert column.meaning in known.meaning


@pytest.mark.parametrize("name", FAMILIES)
def test_an_entry_reads_what_the_library_gives(compose, name):
    family = FAMILIES[name]
    keys = {column.name for column in family.structure + family.sizes}
    given = compose(f"model={name}", *(["model.file=null"] if name == "graph" else []))
    model = {key for key in given if key.startswith("model.")} - {f"model.{key}" for key in EVERY_MODEL}
    assert keys - {"model.file"} == model
    assert keys >= {*(family.multiplied or ()), family.transposed} - {""}


def test_kernels_of_networks_are_compiled_for_what_has_layers():
    tiles = {"tiling.tiles": np.array(["blocks"])}
    lists = {name: precompile._kernel_list(tiles | {"model.name": np.array([name])}) for name in FAMILIES}
    networks = dict.fromkeys(("lstm_lm", "graph"), "network, blocks")
    networks |= dict.fromkeys(
        ("transformer", "served_pass", "encoder", "encoder_decoder"), "transformer, blocks"
    )
    assert (
        lists
        == dict.fromkeys(
            (
                "gemm",
                "operator",
                "attention",
                "latent_attention",
                "linear_attention",
                "sparse_attention",
                "experts",
                "rnn",
            ),
            "layer, blocks",
        )
        | networks
    )


def test_no_room_compares_the_name_of_a_model():
    """Of "gemm" there are a column of results and a type of kernel too."""
    others = {*FAMILIES} - {"gemm"} | {"model.name"}
    for path in sources():
        for line, constants in parsed(path).compared:
            assert not constants & others, f"{path}:{line}"
