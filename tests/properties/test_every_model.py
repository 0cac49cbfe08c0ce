"""Every model of the library, and every config.json that is read: trained, prefilled, decoded and served.

Each point has finite numbers, or a reason that is true: its weights, and a cache, are more than a device has.
"""

import json
import re

import numpy as np
import pytest
import yaml

import fastflow
from fastflow.core.errors import InputError
from tests.support.paths import ROOT

MODELS = ROOT / "conf" / "model"
OWN, SHARED = ROOT / "tests" / "data" / "configs.json", ROOT.parent / "shared" / "configs"
CHIP = ("chip=h200_sxm", "system=dgx_h200", "engine.jobs=1")
LOAD = ("server=vllm", "serve.isl=100", "serve.osl=50")
MODES = {
    "prefill": ("serve=prefill", "serve.batch=2"),
    "decode": ("serve=decode", "serve.batch=4"),
    "continuous": ("serve=continuous", "serve.concurrency=4", "serve.num_requests=8",
                   "serve.simulate=false,true"),
    "disaggregated": ("serve=disaggregated", "serve.concurrency=4", "serve.num_requests=8",
                      "serve.simulate=false,true", "serve.prefill.strategy=auto"),
}  # fmt: skip
SEEN = {
    "train": ("time_s", "footprint_B"),
    "prefill": ("ttft_s", "prefill_tokens_per_s", "power_W"),
    "decode": ("tpot_s", "tokens_per_s", "power_W"),
    "continuous": ("ttft_s", "tpot_s", "tokens_per_s", "power_W"),
    "disaggregated": ("ttft_s", "tpot_s", "tokens_per_s", "power_W"),
}
FEW = ("gpt_1_7b", "deepseek_v3", "gpt_oss_120b", "llama4_maverick", "llama2_7b", "mpt_7b")
SHORT_OF_CACHE = re.compile(
    r"caches need (\S+) GB of a device( of \w+)?; weights of (\S+) GB leave them (\S+)"
)
NONE_FITS = re.compile(r"needs at least ([\d,.]+) GB of memory a device, has ([\d,.]+) GB: no layout fits")
INDIVISIBLE = re.compile(r"of tp=(\d+) is invalid: expected a divisor( or a multiple)? of model\.\w+=(\d+)")


def family(name):
    own = yaml.safe_load((MODELS / f"{name}.yaml").read_text(encoding="utf-8"))
    others = [one for one in own.get("defaults", []) if isinstance(one, str) and one != "_self_"]
    return own.get("name") or next(map(family, others), "")


LIBRARY = sorted(path.stem for path in MODELS.glob("*.yaml") if family(path.stem) == "transformer")


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    """Files of all models that are read."""
    folder = tmp_path_factory.mktemp("configs")
    known = {name: one["config"] for name, one in json.loads(OWN.read_text(encoding="utf-8")).items()}
    for path in sorted(SHARED.glob("*.json")):
        read = ("model=transformer", f"model.config='{path}'", "system.devices=1", "parallel.strategy=TP-1")
        try:
            fastflow.evaluate(*read, "model.sequence=64", "model.batch=8")
            fastflow.evaluate(*read, "serve=prefill", "serve.isl=64", "serve.batch=1")
        except InputError:  # of a kind, or with weights of a type, that is not read
            continue
        known[path.stem] = json.loads(path.read_text(encoding="utf-8"))
    for name, one in known.items():
        (folder / f"{name}.json").write_text(json.dumps(one), encoding="utf-8")
    return ["model=transformer", "model.config=" + ",".join(f"'{folder / name}.json'" for name in known)]


def wrong(row, mode, devices):
    """Say what is wrong with a row; "" for numbers, or for a true reason."""
    numbers = [row[name] for name in SEEN[mode]]
    sound = all(np.isfinite(number) and number > 0 for number in numbers)
    if not row.reason:
        return "" if sound else f"{dict(zip(SEEN[mode], numbers, strict=True))} without a reason"
    if indivisible := INDIVISIBLE.search(row.reason):
        degree, heads = int(indivisible[1]), int(indivisible[3])
        is_multiple = indivisible[2] is not None and degree % heads == 0
        return row.reason if heads % degree == 0 or is_multiple else ""
    if mode == "train":
        most = row.dram_capacity_B
        return "" if "memory" in row.reason and row.footprint_B > most and sound else row.reason
    if none := NONE_FITS.match(row.reason):
        needs, there = (1e9 * float(text.replace(",", "")) for text in none.groups())
        return "" if needs > there == pytest.approx(row.dram_offered_B, rel=1e-3) else row.reason
    short = SHORT_OF_CACHE.match(row.reason)
    if not short:
        return row.reason
    needs, weights, left = (1e9 * float(short[group]) for group in (1, 3, 4))
    is_true = needs > left and weights + needs > 0.6 * row.dram_capacity_B
    return "" if is_true else row.reason


def check(models, mode, devices, layout, *more):
    if mode == "train":
        asked = (f"system.package.devices={devices}", "model.batch=8", "model.sequence=1024",
                 "parallel.recompute=full")  # fmt: skip
        layout = f"d{devices}"
    else:
        asked = (*LOAD, *MODES[mode])
    found = fastflow.evaluate(
        *models, *CHIP, *asked, f"system.devices={devices}", f"parallel.strategy={layout}", *more
    )
    bad = {
        f"{row.get('model')} {row.get('model.config', '')}": text
        for _, row in found.iterrows() if (text := wrong(row, mode, devices))
    }  # fmt: skip
    assert not bad, bad
    return found


def named(names):
    return ["model=" + ",".join(names)]


def test_all_models_are_found():
    assert {"gpt3_175b", "gpt_1t", "llama2_70b", "deepseek_v3", "transformer"} <= set(LIBRARY)
    assert len(LIBRARY) >= 30


@pytest.mark.parametrize(
    "mode",
    ["train", "continuous", *(pytest.param(mode, marks=pytest.mark.long) for mode in ("prefill", "decode"))],
)
def test_every_model_of_the_library_on_one_device(mode):
    check(named(LIBRARY), mode, 1, "TP-1")


@pytest.mark.long
def test_every_config_is_served_on_one_device(configs):
    found = check(configs, "continuous", 1, "TP-1")
    assert (found.reason == "").sum() > 40


def test_some_models_on_eight_devices():
    for mode in ("train", "continuous"):
        check(named(FEW), mode, 8, "TP-8,TP-2-d4,TP-1-p8")
    check(named(FEW[-2:]), "disaggregated", 8, "TP-2", "serve.prefill.devices=4")


@pytest.mark.long
@pytest.mark.parametrize("mode", ["train", "prefill", "decode", "continuous"])
@pytest.mark.parametrize("devices", [1, 8])
def test_every_model_and_config(configs, mode, devices):
    layout = "TP-1" if devices == 1 else "auto"
    for models in (named(LIBRARY), configs):
        check(models, mode, devices, layout)


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["fp8", "nvfp4", "int8"])
def test_every_model_in_few_bits(dtype):
    check(
        named(LIBRARY),
        "continuous",
        8,
        "TP-8,TP-4-p2",
        f"model.dtype={dtype}",
        "chip=b200_sxm",
        "system=dgx_b200",
    )


@pytest.mark.long
def test_every_model_disaggregated():
    check(named(LIBRARY), "disaggregated", 8, "TP-4", "serve.prefill.devices=4")


SMALL = (
    "model=transformer", "chip=h100_sxm", "system=dgx_h100", "system.devices=2", "parallel.strategy=TP-2",
    "model.layers=4", "model.hidden=512", "model.heads=8", "model.vocabulary=1000", "serve=continuous",
    "serve.isl=64", "serve.osl=8", "serve.concurrency=2", "engine.jobs=1",
)  # fmt: skip
STRUCTURES = {
    "model.block": ("pre", "post", "sandwich", "parallel", "parallel_norms"),
    "model.position": ("rotary", "learned", "alibi", "none"),
    "model.tied": ("true", "false"),
    "model.biases": ("none", "qkv", "attention", "all"),
}


def test_every_structure_is_served():
    """And a model alone as among others, whose sizes are columns then."""
    found = fastflow.evaluate(
        *SMALL, "model.dropout=true", "model.fused_attention=false",
        *(f"{key}={','.join(values)}" for key, values in STRUCTURES.items()),
    )  # fmt: skip
    assert len(found) == 160
    assert (found.reason == "").all()
    assert np.isfinite(found[["ttft_s", "tpot_s", "weight_B"]]).all(axis=None)
    for row in (7, 60, 121):
        one = found.iloc[row]
        own = (f"{key}={str(one[key]).lower()}" for key in STRUCTURES)
        alone = fastflow.evaluate(*SMALL, *own).iloc[0]
        assert (alone.ttft_s, alone.tpot_s, alone.weight_B) == (one.ttft_s, one.tpot_s, one.weight_B)


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("model.window=32", "model.pattern='window, dense'"),
        ("model.qk_norm=true", "model.norm=layer", "model.gated=false"),
        ("model.experts=8", "model.topk=2", "model.pattern=experts"),
        ("model.latent=64", "model.rotary=16", "model.query_latent=96"),
    ],
)
def test_positions_limit_requests_and_not_passes(more):
    """The tokens of a pass are more, and so are the sizes at which passes are tabulated."""
    asked = ("serve.isl=2900,2950", "serve.osl=100", "serve.concurrency=16", *more)
    found = fastflow.evaluate(*SMALL, *asked, "model.positions=3000")
    free = fastflow.evaluate(*SMALL, *asked, "model.positions=0").iloc[0]
    assert found.reason[0] == ""
    assert (found.ttft_s[0], found.tpot_s[0]) == (free.ttft_s, free.tpot_s)
    assert "at most 50: prompt and answer have the 3000 tokens of model.positions" in found.reason[1]


@pytest.mark.long
def test_what_is_too_large_for_a_table_refuses_no_other_point():
    found = fastflow.evaluate(*SMALL, "serve=prefill", "serve.isl=64,1e9", "serve.batch=1,1000000")
    alone = fastflow.evaluate(*SMALL, "serve=prefill", "serve.batch=1")
    assert found.reason[0] == ""
    assert found.ttft_s[0] == alone.ttft_s[0]
    assert all(reason.startswith("caches need") for reason in found.reason[2:])


@pytest.mark.parametrize(
    ("model", "drafter", "fits"),
    [
        ("llama3_8b", "mtp", False), ("kimi_k2", "mtp", False), ("deepseek_v3", "mtp", True),
        ("llama3_8b", "model", True),
    ],
)  # fmt: skip
def test_drafts_need_what_proposes_them(model, drafter, fits):
    asked = (
        "serve=decode",
        "serve.batch=4",
        "serve.num_speculative_tokens=2",
        "serve.mean_acceptance_length=1.7",
        f"serve.speculative_method={drafter}",
    )
    row = fastflow.evaluate(f"model={model}", *CHIP, *LOAD, *asked, "parallel.strategy=TP-8").iloc[0]
    refused = "serve.num_speculative_tokens=2 is invalid" in row.reason
    assert refused != fits
    assert fits or ("serve.speculative_method=model" in row.reason and "model.mtp is 0" in row.reason)
