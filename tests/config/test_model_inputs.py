"""Leaves of a configuration become inputs: units, bounds, choices."""

import pickle

import pytest

from fastflow.config.engine_settings import Settings, settings
from fastflow.config.model_inputs import convert, model_inputs, to_column
from fastflow.core.errors import CompositionError, InputError


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("chip.tdp", "300 W", 300.0),
        ("chip.tdp", "0.3 kW", 300.0),
        ("mem.dynamic_energy", "4.2 pJ/bit", 4.2e-12),
        ("mem.device_capacity", "16 GB", 16e9),
        ("mem.device_capacity", "16 GiB", 16 * 2.0**30),
        ("chip.die_area", "850 mm2", 850e-6),
        ("tech.memory.cache.overhead", 0.2, 0.2),
        ("tech.memory.cache.overhead", 0, 0.0),
        ("model.batch", 16384, 16384),
        ("model.batch", 1e3, 1000),
        ("model.training", True, True),
        ("model.dtype", "fp16", "fp16"),
    ],
)
def test_a_value_in_its_unit(key, written, value):
    got = convert(key, written)
    assert got == pytest.approx(value)
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("key", "written", "says"),
    [
        ("chip.tdp", 300, "no unit given"),
        ("chip.tdp", "300", "no unit given"),
        ("chip.tdp", "300 m", "is no unit for this"),
        ("chip.tdp", "300 foo", "not a quantity"),
        ("chip.tdp", "-1 W", "above 0 W"),
        ("chip.tdp", "0 W", "above 0 W"),
        ("chip.tdp", None, "null"),
        ("chip.tdp", True, "a number in W"),
        ("mem.dynamic_energy", "4.2 pJ", "is no unit for this"),
        ("chip.area.core", 1.5, "at most 1"),
        ("chip.area.core", "0.3", "a number"),
        ("chip.area.core", float("nan"), "a number"),
        ("chip.area.core", True, "a number"),
        ("model.batch", 1.5, "a whole number"),
        ("model.batch", 0, "at least 1"),
        ("model.batch", 2**70, "a whole number"),
        ("model.batch", float("inf"), "a whole number"),
        ("model.training", 1, "true or false"),
        ("model.dtype", "fp61", "one of fp32, tf32, bf16, fp16, fp8,"),
        ("model.dtype", 16, "one of fp32"),
        ("model.dtype", "bff16", "did you mean bf16?"),
        ("model.dtype", "mxfp8", "nearest here is fp8_block"),
        ("serve.mode", "dekode", "did you mean decode?"),
        ("model.bach", 3, "did you mean model.batch?"),
        ("nothing.like.it", 3, "begin with one of tech, mem"),
    ],
)
def test_a_value_refused(key, written, says):
    with pytest.raises(InputError, match=key) as refused:
        convert(key, written)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_documentation_settings_and_unset_pins_are_no_inputs():
    leaves = {
        "model.batch": 2,
        "tech.source": "a paper",
        "tech.core.source.default": "another",
        "chip.pinned.mcus": None,
        "chip.area": {},
        "engine.jobs": 3,
        "output": "here",
    }
    assert model_inputs(leaves) == {"model.batch": 2}
    assert model_inputs({"chip.pinned": None}) == {}


def test_columns_have_the_type_of_the_input():
    assert to_column("model.batch", [1, 2]).dtype == "int64"
    assert to_column("chip.tdp", [1.0]).dtype == "float64"
    assert to_column("model.training", [True]).dtype == "bool"
    assert to_column("model.dtype", ["fp16", "fp32"]).dtype.kind == "U"


def test_settings():
    local = {"jobs": -1, "chunk": 10, "chunk_bytes": "2 MB"}
    assert settings(local | {"source": "note"}) == Settings(chunk=10, chunk_bytes=2e6, jobs=-1, address="")
    far = {"address": "tcp://10.0.0.5:8786", "chunk": 10, "chunk_bytes": "1 GiB"}
    assert settings(far) == Settings(chunk=10, chunk_bytes=2.0**30, jobs=-1, address="tcp://10.0.0.5:8786")
    for bad in (
        {"jobs": 0},
        {"jobs": True},
        {"chunk": 0},
        {"chunk": None},
        {"chunk_bytes": 1000},
        {"chunk_bytes": "0 B"},
        {"chunk_bytes": "2 W"},
        {"jobs": 100_000},
        {"chunk_bytes": True},
        {"address": "here"},
        {"address": "tcp://127.0.0.1"},
        {"address": "tcp://"},
        {"address": "http://10.0.0.5:8786"},
        {"address": "tcp://10.0.0.5:99999"},
        {"address": None},
    ):
        with pytest.raises(InputError, match=rf"^engine\.{next(iter(bad))}="):
            settings(local | bad)
    with pytest.raises(InputError, match=r"engine\.chunk=null"):
        settings(None)
    with pytest.raises(InputError, match=r"engine\.thread=3"):
        settings(local | {"thread": 3})


def test_errors_survive_a_trip_between_processes():
    for error in (InputError("a", 1, "b", "c"), CompositionError("no such thing")):
        unpickled = pickle.loads(pickle.dumps(error))
        assert type(unpickled) is type(error)
        assert str(unpickled) == str(error)


@pytest.mark.parametrize("key", ["model.batch", "chip.area.core", "tech.scaling.area", "tech.generation"])
def test_a_whole_number_that_no_float_holds_is_a_mistake(key):
    with pytest.raises(InputError, match=rf"^{key}=10{{400}} is invalid: expected a"):
        convert(key, 10**400)
