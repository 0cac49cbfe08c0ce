"""Expert parallelism: which devices share experts, and what they exchange for it."""

import re
from itertools import combinations
from math import prod

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.physics.parallelism.mesh import AXES, axes
from fastflow.physics.parallelism.strategy import parse, parse_column
from tests.naive import strategy as naive
from tests.support.checks import cases
from tests.support.paths import ROOT

degrees = st.sampled_from([1, 1, 2, 3, 4, 6])
shares = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24, 36])


def groups(strategy, whole):
    """Return which ranks of a stage share experts, those of tp counted first, then of cp, ep and dp."""
    found, dealing = strategy.on_mesh(whole)
    names = ("tp", "cp", "ep", "dp")
    sizes = [found[AXES.index(name)] for name in names]
    along = [name == "ep" or bool(dealing & axes(name)) for name in names]
    groups = {}
    for rank, at in enumerate(np.ndindex(*sizes[::-1])):
        key = tuple(place for place, shared in zip(at[::-1], along, strict=True) if not shared)
        groups.setdefault(key, set()).add(rank)
    return sorted(map(sorted, groups.values()))


@given(degrees, degrees, degrees, shares, st.booleans())
@cases(400)
def test_devices_share_experts_as_megatron_core_has_it(tp, cp, dp, ep, whole):
    """Where they are all of some axes, and then some of the data parallel ones; else as far as that goes."""
    strategy = parse(f"TP-{tp}-c{cp}-e{ep}-d{dp}")
    found, dealing = strategy.on_mesh(whole)
    assert prod(found) == tp * cp * dp
    before = [degree for degree in ((tp, cp) if whole else (cp,)) if degree > 1]
    ways = [prod(some) for many in range(3) for some in combinations(before, many)]
    possible = any(ep % way == 0 and dp % (ep // way) == 0 for way in ways)
    own = [degree for axis, degree in (("tp", tp), ("cp", cp)) if dealing & axes(axis)]
    sharing = found[AXES.index("ep")] * prod(own)
    assert sharing == (ep if possible else 1)
    inner = (tp if whole else 1) * cp
    if possible and (ep % inner == 0 or (whole and cp == 1 and ep % tp == 0)):
        expert_tp = 1 if whole else tp
        assert groups(strategy, whole) == naive.expert_groups(tp, cp, dp, ep, expert_tp)


def test_a_column_knows_where_experts_are_dealt():
    texts = np.array(["TP-2-c2-e4-d4", "TP-2-c2-e4-d4", "d8", "TP-4-c2-e3-d2"])
    found, printed = parse_column(texts, np.array([False, True, True, False]))
    assert printed.tolist() == texts.tolist()
    assert found.expert_axes.tolist() == [axes("cp"), axes("tp", "cp"), 0, 0]
    assert found.degrees[:, AXES.index("ep")].tolist() == [2, 1, 1, 1]
    assert found.devices.tolist() == [16, 16, 8, 16]
    assert found.experts.tolist() == [4, 4, 1, 3]


TOKENS, HIDDEN, FF, TOP, EXPERTS = 64 * 1024, 2048, 768, 8, 128  # of docs/graphs.md
PRODUCTS = {"gate and up": HIDDEN * 2 * FF, "down": FF * HIDDEN}  # weights of an expert


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The mixture in fused kernels of docs/graphs.md."""
    text = (ROOT / "docs" / "graphs.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (one,) = (block for block in blocks if yaml.safe_load(block)["name"] == "fused_experts")
    path = tmp_path_factory.mktemp("experts") / "experts.yaml"
    path.write_text(one.replace("repeat: 48", "repeat: 1"), encoding="utf-8")
    return path


def exchanged(file, strategy, *overrides):
    """Return what is exchanged for the experts: of a kernel, (collective, along, bytes) in order."""
    frame = fastflow.explain_sharding(
        "model=graph", f"model.file={file}", "chip=h100_sxm", "model.dtype=bf16", "precision=mixed",
        "system.devices=16", f"parallel.strategy={strategy}", *overrides,
    )  # fmt: skip
    kernels = ("dispatch", "gate and up", "gate", "down", "combine")
    found = {}
    for row in frame.to_dict("records"):
        name = row["kernel"]
        if name.startswith(kernels) and not name.endswith(("norm", "update")):
            found[name] = [
                tuple(re.fullmatch(r"(\S+) along (.+), (\S+ \S+)", one).groups())
                for one in row["exchange"].split("; ")
                if one not in ("", "none")
            ]
    return {name: of for name, of in found.items() if of}


def written(size):
    """Return bytes as they are printed."""
    unit = next(unit for unit in (1e12, 1e9, 1e6, 1e3, 1) if size >= unit)
    return f"{size / unit:.3g} {({1e12: 'TB', 1e9: 'GB', 1e6: 'MB', 1e3: 'kB', 1: 'B'})[unit]}"


@pytest.mark.parametrize(
    ("strategy", "along", "sharing", "owners"),
    [
        ("TP-1-e4-d16", "ep", 16, "dp"),
        ("TP-1-e16-d16", "ep", 16, ""),
        ("TP-1-c4-e4-d4", "cp", 16, "dp"),
        ("TP-1-c2-e8-d8", "cp x ep", 16, "dp"),
        ("TP-1-c4-e2-d4", "ep", 16, "cp x dp"),  # half of cp: taken from dp
    ],
)
def test_tokens_go_to_their_experts_and_back(file, strategy, along, sharing, owners):
    """A device deals out a row for each choice of its tokens, and gets the products back; backward too."""
    size = written(2 * TOKENS / sharing * TOP * HIDDEN)
    found = exchanged(file, strategy)
    there_and_back = ("dispatch", "down", "combine gradient", "gate and up input gradient")
    assert {name: found.pop(name) for name in there_and_back} == {
        name: [("all-to-all", along, size)] for name in there_and_back
    }
    ways = parse(strategy).ep
    sums = {
        f"{name} weight gradient": [("all-reduce", owners, written(2 * weights * EXPERTS / ways))]
        for name, weights in PRODUCTS.items()
    }
    assert found == (sums if owners else {})


WHOLE = "parallel.expert_tensor_parallel=false"


@pytest.mark.parametrize("strategy", ["TP-4-e4-d4", "TP-4-e16-d4", "TP-2-c2-e16-d4"])
def test_with_sequence_parallelism_whole_experts_get_parts_of_the_tokens(file, strategy):
    """As without tensor parallelism: tp is one more axis along which tokens are cut and experts are dealt."""
    found = exchanged(file, strategy, WHOLE, "parallel.sequence_parallel=true")
    size = written(2 * TOKENS / 16 * TOP * HIDDEN)
    along = {"TP-4-e4-d4": "tp", "TP-4-e16-d4": "tp x ep", "TP-2-c2-e16-d4": "tp x cp x ep"}[strategy]
    for name in ("dispatch", "down", "combine gradient", "gate and up input gradient"):
        assert found.pop(name) == [("all-to-all", along, size)]
    assert len(found) == (2 if strategy == "TP-4-e4-d4" else 0)  # sums of weights' gradients along dp


def test_tokens_that_all_have_are_summed(file):
    """Without sequence parallelism a device has its experts' tokens, and sums of tokens are summed up.

    Backward the gradient of what all read is such a sum. So a token moves once, not a row for each choice.
    """
    found = exchanged(file, "TP-4-e4-d4", WHOLE)
    size = written(2 * TOKENS / 4 * HIDDEN)
    assert found.pop("combine") == [("all-reduce", "tp", size)]
    assert found.pop("dispatch gradient") == [("all-reduce", "tp", size)]
    assert sorted(found) == ["down weight gradient", "gate and up weight gradient"]
    assert {along for of in found.values() for _, along, _ in of} == {"dp"}


def test_experts_that_tensor_parallelism_cuts_need_all_tokens_of_their_group(file):
    """Megatron-core's default, with sequence parallelism: all-to-all, then a gather; back a scatter first."""
    found = exchanged(file, "TP-4-e4-d4", "parallel.sequence_parallel=true")
    dealt, whole = (written(2 * TOKENS / ways * TOP * HIDDEN) for ways in (16, 4))
    to, back = [("all-to-all", "ep", dealt), ("all-gather", "tp", whole)], []
    back = [("reduce-scatter", "tp", whole), ("all-to-all", "ep", dealt)]
    assert found == {
        "dispatch": to, "down": back, "combine gradient": to, "gate and up input gradient": back,
    }  # fmt: skip


def test_whole_experts_that_tp_does_not_share_are_copied_along_it(file):
    """Devices along tp have the same experts then, and sum up their gradients."""
    found = exchanged(file, "TP-4-e2-d4", WHOLE, "parallel.sequence_parallel=true")
    size = written(2 * TOKENS / 16 * TOP * HIDDEN)
    for name in ("dispatch", "down", "combine gradient", "gate and up input gradient"):
        assert found.pop(name) == [("all-to-all", "ep", size)]
    assert {along for of in found.values() for _, along, _ in of} == {"tp x dp"}


def test_devices_along_tp_share_the_work_of_whole_experts(file):
    """Each has a quarter of them, and a quarter of the rows."""
    own = ("model=graph", f"model.file={file}", "chip=h100_sxm", "model.dtype=bf16", "system.devices=4")
    cut, dealt = (
        fastflow.evaluate(*own, f"parallel.strategy={strategy}", WHOLE).iloc[0]
        for strategy in ("TP-4", "TP-4-e4")
    )
    assert dealt["weight_B"] < 0.5 * cut["weight_B"]
    assert dealt["compute_s"] < 0.8 * cut["compute_s"]


BAD = [
    ("TP-4-e3-d4", (),
     "expected an e that divides 4, or with parallel.expert_tensor_parallel=false 4 times that"),
    ("TP-2-c2-e3-d4", (), "an e that divides 4, or 2 times such a one"),
    ("TP-16", ("model.heads=24", "model.head_dim=128", "model.kv_heads=8"), "tp=16.*of model.heads=24"),
    ("TP-1-e16-d16", ("model.experts=24",), "degree of ep=16.*a divisor of model.experts=24"),
    ("TP-1-e16-d16", ("model=llama3_8b",), "degree of ep=16.*1, since model.experts=0"),
    ("TP-4-d2-p2x7", (), "strategy=TP-4-d2-p2x7 .*divide the 32 layers"),
    ("TP-4-d2-p2x40", (), "at most 34 chunks"),
    ("TP-4-d1-p4", ("model.layers=31", "parallel.pipeline_partition=even"),
     "strategy=TP-4-d1-p4 .*divide the 31 layers"),
    ("RC-2-1-d2-p2x2", ("model=lstm_lm",), "strategy=RC-2-1-d2-p2x2 .*stages without chunks"),
    ("TP-4-d4", ("parallel.microbatch=3", "model.batch=64"), "microbatch=3.*a divisor of the 16 sequences"),
]  # fmt: skip


@pytest.mark.parametrize(("strategy", "more", "said"), BAD)
def test_what_does_not_divide_is_a_reason(strategy, more, said):
    row = fastflow.evaluate(
        "model=mixtral_8x7b", "chip=h100_sxm", "system.devices=16", f"parallel.strategy={strategy}", *more
    ).iloc[0]
    assert np.isnan(row["time_s"])
    assert re.search(said, row["reason"]), row["reason"]
    assert "\n" not in row["reason"]


def test_fewer_heads_of_keys_than_devices_are_allowed():
    """They count as cut evenly, in products; attention reads one head at least."""
    row = fastflow.evaluate(
        "model=llama3_8b", "chip=h100_sxm", "system.devices=16", "parallel.strategy=TP-16"
    ).iloc[0]
    assert row["reason"] == "" or "memory" in row["reason"]
    assert row["time_s"] > 0


def test_by_itself_a_transformer_has_sequence_parallelism_and_a_file_has_not(file):
    models = {
        "true": ("model=llama3_8b", "model.batch=16", "model.layers=2"),
        "false": ("model=graph", f"model.file={file}"),
    }
    for asked, model in models.items():
        auto, same, other = (
            fastflow.evaluate(
                *model, "chip=h100_sxm", "system.devices=16", "parallel.strategy=TP-4-d4",
                f"parallel.sequence_parallel={one}",
            ).iloc[0]
            for one in ("auto", asked, "false" if asked == "true" else "true")
        )  # fmt: skip
        assert auto["time_s"] == same["time_s"] != other["time_s"]
        assert auto["activation_B"] == same["activation_B"] != other["activation_B"]


OWN = (
    "model=transformer", "model.layers=4", "model.batch=64", "system=dgx_h100", "system.devices=8",
    "model.pattern='dense, experts(experts=16 topk=2 expert_ffn=1024)'",
)  # fmt: skip
"""Experts that a kind of layers alone has."""
AS_MODEL = ("model.pattern='dense, experts'", "model.experts=16", "model.topk=2", "model.expert_ffn=1024")


@pytest.mark.parametrize("strategy", ["TP-1-e8-d8", "TP-2-e4-d4", "auto"])
@pytest.mark.parametrize("more", [(), ("serve=decode",)], ids=str)
def test_experts_of_a_kind_are_divided_as_the_models(strategy, more):
    own, model = (
        fastflow.evaluate(*OWN, *changed, *more, f"parallel.strategy={strategy}").iloc[0]
        for changed in ((), AS_MODEL)
    )
    assert own["strategy"] == model["strategy"]
    assert own["reason"] == "" == model["reason"]
    for name in ("weight_B", "time_s", "tokens_per_s", "footprint_B", "typical_error", "dtype"):
        assert str(own.get(name)) == str(model.get(name))


def test_experts_of_a_kind_are_sent_once_to_each_machine():
    """In groups, too; the model's own number of experts is not that of the layers."""
    two = ("system=superpod_h100", "system.devices=16", "parallel.token_dispatcher=flex")
    two += ("model.expert_groups=4", "model.topk_groups=2", "parallel.strategy=TP-1-e16-d16")
    own, model = (fastflow.evaluate(*OWN, *changed, *two).iloc[0] for changed in ((), AS_MODEL))
    assert own["reason"] == ""
    assert own["ep_comm_exposed_s"] == model["ep_comm_exposed_s"]
    alltoall = fastflow.evaluate(*OWN, *two, "parallel.token_dispatcher=alltoall").iloc[0]
    assert own["ep_comm_exposed_s"] < 0.9 * alltoall["ep_comm_exposed_s"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("parallel.strategy=TP-1-e8-d8", "model.pattern='experts(experts=12 topk=2), experts'",
          "model.experts=16", "model.topk=2"), "ep=8.*a divisor of experts of model.pattern, experts=12"),
        (("parallel.strategy=TP-1-e8-d8", "model.pattern=dense"), "ep=8.*1, since model.experts=0"),
        (("parallel.strategy=d8", "model.expert_groups=3", "model.topk_groups=1"),
         "expert_groups=3.*a divisor of model.experts, 16 in a kind"),
        (("parallel.strategy=d8", "model.expert_groups=16", "model.topk_groups=1"),
         "topk_groups=1.*at least model.topk, 2 in a kind"),
    ],
)  # fmt: skip
def test_degrees_that_the_experts_of_a_kind_do_not_allow_are_refused(changed, said):
    row = fastflow.evaluate(*OWN, *changed).iloc[0]
    assert re.search(said, row["reason"]), row["reason"]


def test_a_size_of_the_model_that_no_layer_uses_restricts_no_degree():
    heads = "model.pattern='experts(heads=32 experts=16 topk=2)'"
    changed = (heads, "model.heads=20", "model.head_dim=128", "model.experts=6", "model.topk=2")
    row = fastflow.evaluate(*OWN, *changed, "parallel.strategy=TP-8-e8-d8", "system.devices=64").iloc[0]
    assert row["reason"] == ""
