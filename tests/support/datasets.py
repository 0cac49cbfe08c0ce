"""Every kind of dataset that a command leaves: command lines, and the folders that each of them makes.

`test_datasets.py` holds the list against the commands, the studies, the kinds of measurement, the families of
models, the modes of serving and the methods of searches that there are, against the modules that write
tables, and against the folders that are there after each has run. Large studies are cut down to a few values.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from fastflow.engine.dataset.folder import ERRORS, FILES, FRONT, GAINS, PLAN, RANKING
from tests.support.measured import SAMPLE


class Case(NamedTuple):
    """A command that leaves datasets."""

    command: str
    asked: str
    leaves: tuple[str, ...] = ("",)
    """What follows `output` in the names of its folders."""


TORUS = "system=torus system.devices=8"
SERVER = f"model=llama3_8b tech=n5 mem=hbm3 {TORUS} parallel.strategy=TP-4-d2"
LOAD = "server=vllm serve.concurrency=16 serve.isl=512 serve.osl=64"
MODES = {
    "prefill": "serve=prefill serve.batch=2",
    "decode": "serve=decode serve.batch=16",
    "continuous": f"serve=continuous {LOAD}",
    "disaggregated": f"serve=disaggregated {LOAD} serve.prefill.devices=4 parallel.strategy=TP-4-d1",
}
SMALL = "tech=n7 mem=hbm3 model.hidden=4096 model.vocabulary=100000 model.batch=2048 system.devices=16"
FAMILIES = {
    "gemm": "model=gemm tech=n7,n5",
    "operator": "model=operator model.rows=1024,4096",
    "attention": "model=attention model.batch=1,8",
    "latent_attention": "model=latent_attention model.batch=1,8",
    "linear_attention": "model=linear_attention model.kernel=gated_delta_chunks,gated_delta_step",
    "sparse_attention": "model=sparse_attention model.phase=prefill,decode model.q_len=1",
    "experts": "model=experts model.tokens=64,4096",
    "rnn": "model=rnn model.batch=16,64",
    "lstm_lm": "model=lstm_lm tech=n7,n5 mem=hbm2,hbm3 parallel.strategy=d512,RC-8-8-d8",
    "transformer": f"model=llama3_8b {TORUS} parallel.strategy=TP-8-d1,TP-4-d2,TP-2-c2-d2,TP-2-d2-p2",
    "encoder_decoder": (
        f"model=t5_base {TORUS} parallel.strategy=TP-4-d2,TP-2-c2-d2,TP-2-d2-p2 model.batch=16"
    ),
    "encoder": "model=vit_l_16 system.devices=64 model.image_size=224,256",
    "graph": "model=graph model.file=FOLDER/net.yaml system.devices=4 parallel.strategy=d4,RC-1-2-d2",
}
"""Grids of every family of models."""
MEASURED = {
    "GEMMs": f"{SAMPLE}/gemm_a100_llm.csv chip=a100",
    "attention": f"{SAMPLE}/attention_a100.csv chip=a100",
    "latent attention": f"{SAMPLE}/mla_a100.csv chip=a100",
    "linear attention": f"{SAMPLE}/linear_attention.csv chip=h100_sxm device='NVIDIA H100 80GB HBM3'",
    "sparse attention": f"{SAMPLE}/sparse_attention.csv chip=h100_sxm device='NVIDIA H100 80GB HBM3'",
    "expert layers": f"{SAMPLE}/moe_a100.csv chip=a100",
    "recurrent layers": f"{SAMPLE}/rnn_v100_fp32.csv chip=v100_pcie",
    "pointwise and normalisation operators": (
        f"{SAMPLE}/ops_v100_a100_fp32.csv chip=v100_pcie device=V100-PCIe-32GB"
    ),
    "collectives": f"{SAMPLE}/collectives_a100.csv system=dgx_a100",
    "exchanges of experts": f"{SAMPLE}/deepep.csv",
    "training runs": f"{SAMPLE}/training.csv",
    "served points": "FOLDER/served.csv",
    "served points, prefill and decode apart": "FOLDER/split.csv",
    "energy of served points": "FOLDER/energy.csv",
    "energy of training runs": "FOLDER/runs.csv",
    "whole iterations": "FOLDER/iterations.csv",
}
"""A file of every kind of measurement, the last five made up."""
STUDIES = {
    "backtest": Case("sweep", "-m +sweeps=backtest"),
    "fig01": Case("sweep", "-m +sweeps=fig01 parallel.strategy=CR-2,RC-1-2,RC-2-1,CR-4,RC-1-4,RC-2-2,RC-4-1"),
    "fig09": Case("sweep", "-m +sweeps=fig09"),
    "fig10": Case("search", "-m +sweeps=fig10 steps=1 starts=1 tech=n12", ("", RANKING)),
    "fig11": Case("search", "-m +sweeps=fig11 steps=1 starts=1 tech=n12 net=ndr_x8", ("", RANKING)),
    "llm_strategies": Case("sweep", "-m +sweeps=llm_strategies model=llama3_70b system.devices=64,128"),
    "llm_technology": Case("sweep", "-m +sweeps=llm_technology tech=n7,n1 mem=hbm2,hbm4 net=ndr_x8"),
    "million": Case(
        "sweep", "-m +sweeps=million tech=n7 mem=hbm2,hbm3 model.batch=1024 model.hidden=1024,2048"
    ),
    "power_cap": Case("sweep", "-m +sweeps=power_cap"),
    "serving_front": Case("sweep", "-m +sweeps=serving_front"),
    "serving_technology": Case(
        "sweep", "-m +sweeps=serving_technology tech=n7,n1 mem=hbm4 net=ndr_x8 serve.concurrency=16,64"
    ),
    "strategies": Case("sweep", "-m +sweeps=strategies"),
    "tilings": Case("sweep", "-m +sweeps=tilings tiling=random_5,random"),
}
CASES = {
    "point": Case("sweep", "tech=n7"),
    "point-auto": Case("sweep", f"{SMALL} parallel.strategy=auto", ("", RANKING)),
    "layouts": Case("sweep", "model=llama3_8b system=dgx_h100 parallel.strategy=auto", ("", RANKING)),
    "mixture": Case("sweep", "model=mixtral_8x7b system=dgx_h100 parallel.strategy=auto", ("", RANKING)),
    "per-layer": Case("sweep", f"{SMALL} parallel.strategy=auto parallel.per_layer=true"),
    "point-bands": Case("sweep", "tech=n7 uncertainty=on"),
    "bands": Case("sweep", "-m tech=n5,n3 uncertainty=on"),
    "infeasible": Case("sweep", "-m tech=n7 model.batch=16777216,33554432"),
    "untimed": Case("sweep", "-m tech=n7 parallel.strategy=d7,d9"),
    **{f"family-{name}": Case("sweep", f"-m {asked}") for name, asked in FAMILIES.items()},
    **{f"point-{name}": Case("sweep", f"{SERVER} {asked}") for name, asked in MODES.items()},
    "simulated": Case("sweep", f"{SERVER} {MODES['continuous']} serve.simulate=true"),
    "chip-of-prefill": Case(
        "sweep", f"system=dgx_h100 model=llama3_8b {MODES['disaggregated']} serve.prefill.chip=a100"
    ),
    "servers": Case(
        "sweep",
        f"system=dgx_h100 model=llama3_8b {MODES['continuous']} parallel.strategy=auto",
        ("", RANKING),
    ),
    "servers-apart": Case(
        "sweep",
        f"system=dgx_h100 model=llama3_8b serve=disaggregated {LOAD} parallel.strategy=auto",
        ("", RANKING),
    ),
    "loads": Case("sweep", f"-m {SERVER} {MODES['continuous']} serve.concurrency=4,64,1024"),
    "modes": Case("sweep", f"-m {SERVER} serve=prefill,decode serve.batch=8"),
    "served-and-not": Case("sweep", f"-m {SERVER} serve=none,decode"),
    "served-bands": Case("sweep", f"-m {SERVER} {MODES['decode']} serve.batch=8,16 uncertainty=on"),
    "late": Case("sweep", f"-m {SERVER} {MODES['continuous']} serve.slo.tpot='1 us' serve.concurrency=4,8"),
    **{
        f"search-{method}": Case(
            "search", f"{SMALL} parallel.strategy=RC-1-4-d4 method={method} steps=3", ("", RANKING)
        )
        for method in ("mirror", "cma", "gradient", "random")
    },
    "search-auto": Case("search", f"{SMALL} parallel.strategy=auto steps=4", ("", RANKING)),
    "search-layouts": Case(
        "search", f"model=llama3_8b {TORUS} parallel.strategy=auto steps=1 starts=1", ("", RANKING)
    ),
    "search-grid": Case(
        "search", f"-m {SMALL} tech=n7,n5 parallel.strategy=RC-1-4-d4,d16 steps=3", ("", RANKING)
    ),
    "search-front": Case(
        "search",
        f"{SMALL} parallel.strategy=RC-1-4-d4 pareto=energy steps=3 uncertainty=on",
        ("", RANKING, FRONT),
    ),
    "search-no-time": Case("search", "chip.tdp='1 W' pareto=energy steps=2 starts=2", ("", RANKING, FRONT)),
    **{
        f"search-{name}": Case(
            "search", f"{SERVER} {asked} steps=1 starts=1 objective=device_time_per_token", ("", RANKING)
        )
        for name, asked in MODES.items()
    },
    "search-servers": Case(
        "search",
        f"-m {SERVER} {MODES['decode']} parallel.strategy=TP-8,TP-4-d2 steps=2 starts=2"
        " pareto=joules_per_token objective=device_time_per_token",
        ("", RANKING, FRONT),
    ),
    "search-fleets": Case(
        "search",
        f"-m {SERVER} serve=continuous parallel.strategy=TP-1 chip=h100_sxm system=dgx_h100"
        " system.devices=1,2,4 serve.trace=FOLDER/requests.csv pareto=ttft_p99_s plan='10 s'",
        ("", PLAN),
    ),
    "search-mixed": Case("search", f"-m {SERVER} serve=none,decode steps=1 starts=1", ("", RANKING)),
    "sensitivity": Case("sensitivity", "tech=n7"),
    "sensitivity-served": Case(
        "sensitivity", f"{SERVER} {MODES['decode']} objective=tokens_per_s_per_device"
    ),
    "sensitivity-sampled": Case("sensitivity", "tech=n7 sensitivity.samples=8192"),
    "backtest": Case("backtest", "backtest.measurements=FOLDER/measured", ("", GAINS, FILES)),
    **{
        f"validate-{'-'.join(name.replace(',', '').split())}": Case(
            "validate", f"measurements={asked}", ("", ERRORS)
        )
        for name, asked in MEASURED.items()
    },
    "calibrate": Case("calibrate", f"measurements={SAMPLE}/gemm_a100_llm.csv chip=a100", ()),
    **{f"study-{name}": case for name, case in STUDIES.items()},
}


def words(case: Case, folder: Path, output: str) -> list[str]:
    """Return the words of a case's command line after its name; of a key that is there twice the last."""
    asked = shlex.split(case.asked.replace("FOLDER", str(folder)))
    last = {word.partition("=")[0]: word for word in asked}
    where = f"{output}.yaml" if case.command == "calibrate" else output
    return [*last.values(), f"output={folder / where}"]


def write_files(folder: Path) -> None:
    """Write the files that some cases read: a network, requests, and measurements that nobody has made."""
    rows = [f"{number},500,50" for number in range(20)]
    (folder / "requests.csv").write_text("\n".join(["arrival_time,isl,osl", *rows]), encoding="utf-8")
    (folder / "net.yaml").write_text(
        "name: net\nrows: 8192\nlayers:\n- name: block\n  repeat: 2\n  kernels:\n"
        "  - {name: up, type: gemm, inner: 512, cols: 2048}\n"
        "  - {name: down, type: gemm, inner: 2048, cols: 512}\n",
        encoding="utf-8",
    )
    served = ["system,model,isl,osl,concurrency,tp,backend,silicon_ttft_ms,silicon_tpot_ms"]
    served += [f"h100_sxm,Qwen/Qwen3-32B,1024,128,{n},4,vllm,{100 + 8 * n},{9 + n / 8}" for n in (4, 16, 64)]
    (folder / "served.csv").write_text("\n".join(served) + "\n", encoding="utf-8")
    split = ["system,model,isl,osl,concurrency,backend,mode,prefill_num_workers,prefill_tp_size"]
    split[0] += ",decode_num_workers,decode_tp_size,silicon_ttft_ms,silicon_tpot_ms"
    split += [
        f"h100_sxm,Qwen/Qwen3-32B,1024,128,{n},vllm,disagg,1,4,1,4,{100 + 8 * n},{9 + n / 8}" for n in (4, 16)
    ]
    (folder / "split.csv").write_text("\n".join(split) + "\n", encoding="utf-8")
    states = ["device,model,framework,task,tp,avg_batch,osl_mean,dtype,tpot_median_s,power_per_device_W"]
    states += [
        f"H100,Qwen/Qwen3-32B,vLLM,gpqa,4,{n},128,bfloat16,{0.009 + n / 8e3},{400 + n}" for n in (4, 16)
    ]
    (folder / "energy.csv").write_text("\n".join(states) + "\n", encoding="utf-8")
    runs = ["device,devices,benchmark,seq,global_batch,samples,run_s,power_kind,energy_MJ"]
    runs += [f"H100,8,bert,512,{n},{9 * n},{n / 600},DC,{n / 1e5}" for n in (64, 128, 256)]
    (folder / "runs.csv").write_text("\n".join(runs) + "\n", encoding="utf-8")
    iterations = ["model,system.devices,parallel.strategy,time_s"]
    iterations += [f"lstm_lm,{n},d{n},{700 / n}" for n in (64, 128, 256)]
    (folder / "iterations.csv").write_text("\n".join(iterations) + "\n", encoding="utf-8")
    (folder / "measured").mkdir()
    name = "gemm_a100_llm.csv"
    (folder / "measured" / name).write_bytes((SAMPLE / name).read_bytes())
