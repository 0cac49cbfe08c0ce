"""Modules of sparse attention: sizes that a model's name gives, and the host of what is not captured."""

import numpy as np
import pytest

import fastflow

HEAD = "model,phase,batch,q_len,kv_len,heads,gemm_dtype,kv_dtype,time_s"


def validated(tmp_path, *lines, head=HEAD, chip="h100_sxm"):
    path = tmp_path / "some.csv"
    path.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    return fastflow.validate(f"measurements={path}", f"chip={chip}")


def test_the_name_of_a_model_gives_its_sizes(tmp_path):
    lines = [
        f"{model},decode,1,1,4097,16,bf16,bf16,2e-4"
        for model in ("deepseek-ai/DeepSeek-V3.2", "zai-org/GLM-5")
    ]
    found = validated(tmp_path, *lines).rows["predicted_s"]
    sizes = {
        "hidden": 6144, "query_latent": 2048, "head_dim": 192, "value_dim": 256, "index_heads": 32,
    }  # fmt: skip
    decode = ("model=sparse_attention", "chip=h100_sxm", "model.phase=decode", "model.q_len=1",
              "model.kv_len=4097", "model.heads=16")  # fmt: skip
    ours = fastflow.evaluate(*decode).time_s[0]
    of_glm = fastflow.evaluate(*decode, *(f"model.{key}={value}" for key, value in sizes.items())).time_s[0]
    assert found.tolist() == pytest.approx([ours, of_glm])
    columns = ",".join(map(str, sizes.values()))
    own = validated(
        tmp_path, f"decode,1,1,4097,16,bf16,{columns},2e-4",
        head=f"phase,batch,q_len,kv_len,heads,gemm_dtype,{','.join(sizes)},time_s",
    )  # fmt: skip
    assert own.rows["predicted_s"].tolist() == pytest.approx([of_glm])


def test_an_unknown_model_is_refused(tmp_path):
    with pytest.raises(fastflow.InputError, match=r"one of deepseek-ai/DeepSeek-V3\.2, zai-org/GLM-5"):
        validated(tmp_path, "someone/else,decode,1,1,4097,16,bf16,bf16,2e-4")


def test_the_host_decides_where_prefill_is_short(tmp_path):
    name = "deepseek-ai/DeepSeek-V3.2"
    lines = [f"{name},prefill,1,{q_len},{q_len},16,{dtype},bf16,1e-3"
             for q_len in (16, 64, 16384) for dtype in ("bf16", "fp8_block")]  # fmt: skip
    rows = validated(tmp_path, *lines, f"{name},decode,1,1,64,16,bf16,bf16,1e-3").rows
    by_host = (rows["bound_by"] == "host").tolist()
    assert by_host == [True] * 4 + [False] * 3
    time = rows["predicted_s"].to_numpy()
    assert time[0] == time[2] < time[1] == time[3]
    assert np.all(time[4:6] > 5e-3)
    assert rows["host_s"].iloc[-1] == 0.0
