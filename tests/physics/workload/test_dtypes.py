"""Data types of products (docs/model_workloads.md): bytes with scales, quantising, what refuses to train."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.config.library import library_root
from fastflow.config.messages import suggestion
from fastflow.config.model_inputs import convert
from fastflow.core.errors import InputError
from fastflow.physics.workload import build_graph, count_kernels
from fastflow.physics.workload.data_types import BOTH_OPERANDS, OF_WEIGHTS_ALONE
from fastflow.physics.workload.precision import FORMATS, precision, stored_bytes
from fastflow.schema import INPUTS
from tests.support.checks import cases, mixed, near

SIZES = {"m": 768, "k": 4096, "n": 1024, "batch": 3}
HOPPER = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp8_block", "int8")
# how many numbers share a scale, their bits, and the bits of the scale
BLOCKS = {
    "fp32": (1, 32, 0), "tf32": (1, 32, 0), "bf16": (1, 16, 0), "fp16": (1, 16, 0), "fp8": (1, 8, 0),
    "int8": (1, 8, 0), "fp8_block": (128 * 128, 8, 32), "nvfp4": (16, 4, 8), "mxfp4": (32, 4, 8),
}  # fmt: skip
ACTIVATIONS = BLOCKS | {"fp8_block": (128, 8, 32)}
QUANTIZED = tuple(BLOCKS)[4:]


def size(blocks, dtype):
    """Return the bytes of a number with its share of the scale."""
    numbers, bits, scale = blocks[dtype]
    return (bits + scale / numbers) / 8


def built(dtypes, quantized=False, **roles):
    """Return the inputs and the graph of one product in each of some data types."""
    points = len(dtypes)
    model = SIZES | {"name": "gemm", "training": False, "optimizer": "sgd", "transposed": False, "copies": 0}
    inputs = {f"model.{key}": np.full(points, value) for key, value in model.items()}
    inputs |= {"model.dtype": np.array(dtypes), "model.quantized": np.full(points, quantized)}
    return inputs, build_graph(inputs, precision(inputs | mixed(points, **roles)))


@pytest.mark.parametrize("dtype", BOTH_OPERANDS)
def test_an_element_has_its_share_of_a_scale(dtype):
    assert near(FORMATS[dtype].operand, size(BLOCKS, dtype))
    assert FORMATS[dtype].output == (4 if dtype in ("fp32", "tf32") else 2)
    assert near(FORMATS[dtype].quantized, size(ACTIVATIONS, dtype) if dtype in QUANTIZED else 0)


# bits of a weight, and of an activation, as a type's name says them
NAMED = re.compile(r"(?:(fp8|nvfp4|mxfp4)_)?w([2348])a(fp8|8|16)")


@pytest.mark.parametrize("dtype", OF_WEIGHTS_ALONE)
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("group", [0, 32, 128])
def test_types_of_weights_alone_have_the_bits_of_their_names(dtype, group, zeros):
    """The bits of all weights of a row of 4096, of the scales of its groups, and of their zero points."""
    kind, bits, activation = NAMED.fullmatch(dtype).groups()
    inputs = {"precision.group": np.array([group]), "precision.zero_points": np.array([zeros])}
    weights = total = 0
    for start in range(0, 4096, 16 if kind == "nvfp4" else 32 if kind else group or 4096):
        length = min(4096, start + (16 if kind == "nvfp4" else 32 if kind else group or 4096)) - start
        weights += length
        total += length * int(bits)
        if kind in ("nvfp4", "mxfp4"):
            total += 8  # a scale
        elif not kind and group:
            total += 16 + zeros * int(bits)
    assert near(stored_bytes(inputs, np.array([dtype]))[0], total / 8 / weights)
    assert FORMATS[dtype].operand == pytest.approx(2 if activation == "16" else 1, rel=0.04)
    assert (FORMATS[dtype].quantized > 0) == (activation != "16")


def test_what_quantising_moves():
    """Points of all types together: fp8's scale is the tensor's, so that it reads A twice."""
    inputs, graph = built(list(BLOCKS))
    assert (count_kernels(inputs) == np.diff(graph.offset)).all()
    for p, dtype in enumerate(BLOCKS):
        rows = range(graph.offset[p], graph.offset[p + 1])
        assert graph.launches.batch[rows[-1]] == SIZES["batch"]
        passes = [
            (
                str(graph.names[graph.label[row]]),
                graph.rows[row],
                graph.cols[row],
                graph.per_element.bytes[row],
            )
            for row in rows[:-1]
        ]
        shape = (SIZES["m"] * SIZES["batch"], SIZES["k"])
        narrow = 2 + size(ACTIVATIONS, dtype)
        if dtype == "fp8":
            own_scale = [("clear", 1, 1, 4), ("maximum", *shape, 2), ("scale", 1, 1, 8)]
            assert passes == [*own_scale, ("quantise", *shape, narrow)]
        elif dtype == "fp8_block":  # and its scales, one for 128 columns, are aligned where need be
            assert passes[0] == ("quantise", *shape, narrow)
            assert passes[1][:3] == ("scales", shape[0], -(-shape[1] // 128))
        elif dtype in QUANTIZED:
            assert passes == [("quantise", *shape, narrow)]
        else:
            assert passes == []


def test_activations_in_fp32_are_read_as_such():
    _, graph = built(["fp8"], activation="fp32")
    assert graph.per_element.bytes.tolist() == [4, 4, 8, 5, 0]


def test_nothing_is_quantised_twice():
    _, graph = built(list(BLOCKS), quantized=True)
    assert (np.diff(graph.offset) == 1).all()


@pytest.fixture(scope="module")
def frame():
    """One product on an H100 in every data type that it has, quantised before and here."""
    sides = [f"model.{key}={value}" for key, value in SIZES.items()]
    frame = fastflow.evaluate(
        "model=gemm", "chip=h100_sxm", "model.dtype=" + ",".join(HOPPER), "model.quantized=true,false", *sides
    )
    return frame.set_index(["model.dtype", "model.quantized"])


def test_quantising_takes_its_launches_and_its_bytes(frame):
    point = frame.loc["fp8", False]
    launch = fastflow.evaluate("model=operator", "chip=h100_sxm", "model.rows=1", "model.cols=1").time_s[0]
    elements = SIZES["m"] * SIZES["k"] * SIZES["batch"]
    for dtype, bytes_, launches in (("fp8", 5, 4), ("fp8_block", 3 + 4 / 128, 1), ("int8", 3, 1)):
        took = frame.loc[dtype, False].time_s - frame.loc[dtype, True].time_s
        moving = elements * bytes_ / (point.dram_Bps * 0.822)
        computing = elements * FORMATS[dtype].quantising / (0.87 * 66.9e12)  # on vector lanes
        assert took == pytest.approx(launches * launch + max(moving, computing), rel=0.01)
    for dtype in HOPPER[:4]:
        assert frame.loc[dtype, False].time_s == frame.loc[dtype, True].time_s


def test_the_footprint_has_a_in_both_types(frame):
    a, c = (SIZES[side] * SIZES["m"] * SIZES["batch"] for side in "kn")
    for dtype in HOPPER:
        operand_bytes, output = FORMATS[dtype].quantized or FORMATS[dtype].operand, FORMATS[dtype].output
        assert frame.loc[dtype, True].activation_B == pytest.approx(operand_bytes * a + output * c)
        before = output * a if dtype in QUANTIZED else 0
        assert frame.loc[dtype, False].activation_B == pytest.approx(before + operand_bytes * a + output * c)


def test_four_bits_of_weights_are_a_quarter(tmp_path):
    chip = tmp_path / "chip"
    chip.mkdir()
    (chip / "ours.yaml").write_text(
        "defaults: [h100_sxm, _self_]\nname: ours\nrate: {nvfp4: 0.5}\nmatrix: {nvfp4: true}\n",
        encoding="utf-8",
    )
    frame = fastflow.evaluate(
        "model=gemm",
        "chip=ours",
        "model.dtype=bf16,nvfp4",
        "tiling=divisors,random,blocks",
        config_dir=tmp_path,
    )
    assert frame.time_s.notna().all()
    weights = frame.set_index(["model.dtype", "tiling"]).weight_B
    assert (weights["nvfp4"] == weights["bf16"] / 2 * (0.5 + 1 / 16)).all()


@pytest.mark.parametrize("dtype", QUANTIZED)
def test_no_training_in_fewer_than_16_bits(dtype):
    row = fastflow.evaluate(
        "model=gemm", "chip=h100_sxm", f"model.dtype={dtype}", "model.training=true"
    ).iloc[0]
    if dtype not in HOPPER:
        assert "expected a data type of chip H100" in row.reason
        return
    says = "is invalid: expected one of fp32, tf32, bf16, fp16 where model.training=true"
    assert row.reason == f"model.dtype={dtype} {says}"
    assert np.isnan(row.time_s)


def test_measurements_in_a_data_type_include_quantising(tmp_path):
    file = tmp_path / "gemms.csv"
    file.write_text("m,n,k,dtype,time_s\n1,64,512,bf16,3e-6\n1,64,512,fp8,1.2e-5\n1,64,512,FP8_block,6e-6\n")
    result = fastflow.validate(
        f"measurements={file}", "chip=h100_sxm", "model.copies=0", output=tmp_path / "out"
    )
    alone = [
        fastflow.predict_gemm([1], [512], [64], "h100_sxm", dtype)[0]
        for dtype in ("bf16", "fp8", "fp8_block")
    ]
    assert result.rows.predicted_s.tolist() == alone
    assert alone[1] - alone[2] > 2.9 * 2.39e-6  # three launches more


TYPED = [column for column in INPUTS if "bf16" in column.choices]
FOLDERS = [path for path in (library_root() / "conf").iterdir() if path.is_dir()]
CHOICES = [column.choices for column in INPUTS if column.choices]
CHOICES += [[file.stem for file in folder.glob("*.yaml")] for folder in FOLDERS]
OTHERS = ("mxfp8", "MXFP6", "nvfp8", "fp4", "int4", "e2m1", "float64", "fp6", "fp8_rowwise", "torch.float64")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("bfloat16", "bf16"), ("torch.bfloat16", "bf16"), ("half", "fp16"), ("float16", "fp16"),
        ("float32", "fp32"), ("e4m3", "fp8"), ("fp8_e4m3", "fp8"), ("fp8_e5m2", "fp8"), ("FP8", "fp8"),
        ("fp8-block", "fp8_block"), ("float8_e4m3fn", "fp8"), ("jnp.float32", "fp32"), ("MXFP4", "mxfp4"),
    ],
)  # fmt: skip
def test_a_data_type_has_the_names_of_other_libraries(name, dtype):
    assert convert("model.dtype", name) == dtype
    assert {convert(column.name, name) for column in TYPED if dtype in column.choices} == {dtype}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("column", TYPED, ids=lambda column: column.name)
def test_what_is_nearest_to_a_type_that_is_not_modelled(column, name):
    """Never a type of another width by likeness of names; what is named is taken where it is set."""
    if name in column.choices or (name, column.name) == ("fp4", "precision.cache"):
        return  # a cache is of int4, and nvfp4 is its only fp4
    with pytest.raises(InputError) as refused:
        convert(column.name, name)
    message = str(refused.value)
    assert "did you mean" not in message
    near = message.rpartition("nearest here ")[2].rstrip(")").partition(" ")[2].split(" and ")
    assert "nearest here" in message
    assert [convert(column.name, text) for text in near] == near


@given(st.sampled_from(CHOICES), st.data())
@cases(200)
def test_a_suggestion_never_has_other_numbers(choices, data):
    """Of every key with choices: one number changed is another thing, not a slip."""
    numbered = [name for name in choices if re.search(r"\d", name)]
    if not numbered:
        return
    name = data.draw(st.sampled_from(numbered))
    at = data.draw(st.sampled_from([i for i, letter in enumerate(name) if letter.isdigit()]))
    other = name[:at] + data.draw(st.sampled_from("0123456789")) + name[at + 1 :]
    meant = re.search(r"did you mean (\S+)\?", suggestion(other, choices))
    if other not in choices and meant and not meant[1].startswith(f"{other}_"):
        assert re.findall(r"\d+", meant[1]) == re.findall(r"\d+", other)


def test_slips_are_still_put_right():
    for slip, meant in (("h100_smx", "h100_sxm"), ("H100-SXM", "h100_sxm"), ("llama3_70", "llama3_70b")):
        assert suggestion(slip, ["h100_sxm", "llama3_70b", "h200_sxm"]) == f"; did you mean {meant}?"


def test_attention_in_a_type_that_a_chip_lacks_is_a_row_with_its_reason():
    result = fastflow.evaluate(
        "model=llama3_8b", "system=dgx_a100", "parallel.strategy=TP-2-d4", "precision.attention=fp8,bf16"
    )
    assert result["time_s"].isna().tolist() == [True, False]
    assert result["reason"][0].endswith("has no fp8")
