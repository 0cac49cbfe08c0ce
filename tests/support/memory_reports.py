"""Public reports of memory: what was run, as overrides, and what was measured [GiB or tokens]."""

from typing import NamedTuple


class Report(NamedTuple):
    title: str
    source: str
    overrides: tuple
    column: str
    measured: float
    unit: float = 2.0**30
    per: str = ""  # a column that the predicted one is divided by


_SIMUMAX = "MooreThreads/SimuMax, docs/b200/b200_release_v1.2_summary.json"
_MODELS = {
    "Llama 3 70B, 12 layers": ("model=llama3_70b", "model.layers=12"),
    "Llama 3 405B, 4 layers": ("model=llama3_405b", "model.layers=4"),
    "DeepSeek-V3, 4 layers": (
        "model=deepseek_v3", "model.layers=4", "model.pattern='dense, 3*experts'", "model.mtp=0",
        "model.dtype=bf16", "parallel.token_dispatcher=alltoall",
    ),
}  # fmt: skip
_RUNS = (  # of Megatron on eight B200: model, strategy, tokens, sequences, allocated, reserved
    ("Llama 3 70B, 12 layers", "TP-1-d4-p2", 4096, 16, 66.55, 70.88),
    ("Llama 3 70B, 12 layers", "TP-2-d4", 4096, 16, 60.68, 62.53),
    ("Llama 3 70B, 12 layers", "TP-4-d2", 4096, 8, 39.07, 40.18),
    ("Llama 3 70B, 12 layers", "TP-8", 4096, 4, 28.29, 29.12),
    ("Llama 3 70B, 12 layers", "TP-2-c4", 32768, 4, 68.43, 70.33),
    ("Llama 3 70B, 12 layers", "TP-1-c8", 32768, 4, 104.51, 111.94),
    ("Llama 3 70B, 12 layers", "TP-2-c4", 131072, 4, 112.67, 121.40),
    ("Llama 3 70B, 12 layers", "TP-1-c8", 131072, 4, 147.99, 159.65),
    ("Llama 3 405B, 4 layers", "TP-1-d4-p2", 4096, 16, 87.08, 92.26),
    ("Llama 3 405B, 4 layers", "TP-2-d4", 4096, 16, 81.59, 84.70),
    ("Llama 3 405B, 4 layers", "TP-4-d2", 4096, 8, 52.89, 54.65),
    ("Llama 3 405B, 4 layers", "TP-8", 4096, 4, 38.57, 39.83),
    ("Llama 3 405B, 4 layers", "TP-2-c4", 32768, 4, 87.03, 91.15),
    ("Llama 3 405B, 4 layers", "TP-1-c8", 32768, 4, 139.22, 152.14),
    ("Llama 3 405B, 4 layers", "TP-2-c4", 131072, 4, 118.13, 127.50),
    ("DeepSeek-V3, 4 layers", "TP-1-e8-d8", 4096, 32, 104.30, 110.18),
    ("DeepSeek-V3, 4 layers", "TP-1-e4-d4-p2", 4096, 16, 114.00, 118.61),
)


def _of_simumax():
    for title, strategy, tokens, sequences, allocated, reserved in _RUNS:
        overrides = (
            *_MODELS[title], f"model.sequence={tokens}", f"model.batch={sequences}", "system=dgx_b200",
            "framework=megatron_core", f"parallel.strategy={strategy}", "parallel.microbatch=1",
            *(("parallel.cp_comm_type=a2a",) if "-c" in strategy else ()),
        )  # fmt: skip
        name = f"{title}, {strategy}, {tokens:,} tokens"
        yield Report(name, _SIMUMAX, overrides, "allocated_B", allocated)
        yield Report(name, _SIMUMAX, overrides, "reserved_B", reserved)


TRAINING = tuple(_of_simumax())

_ALL_OFFLOADED = (  # sequences of 2,048 tokens, attention that is not fused
    "model=llama2_7b", "model.sequence=2048", "model.fused_attention=false", "model.batch=40",
    "system=dgx_a100", "system.devices=4", "framework=deepspeed", "parallel.strategy=d4",
    "parallel.offload=weights", "parallel.microbatch=1", "parallel.zero_init=false",
)  # fmt: skip
_DEEPSPEED = "deepspeedai/DeepSpeed issue 4527"
OFFLOADED = (
    Report(
        "7B with everything offloaded, ZeRO 3, four GPUs: sharded", _DEEPSPEED,
        (*_ALL_OFFLOADED, "parallel.recompute=full"), "footprint_B", 14678 / 1024,
    ),
    Report(
        "7B with everything offloaded, ZeRO 3, four GPUs: trained", _DEEPSPEED,
        (*_ALL_OFFLOADED, "parallel.recompute=none"), "footprint_B", 21272 / 1024,
    ),
)  # fmt: skip
"""What the device shows when the model is sharded, and after an iteration."""

_LOGS = "llm-d-incubation/llm-d-planner@d3121e0, accuracy/results/v0.19.0"
_SERVED = (
    "serve=continuous", "server=vllm", "serve.concurrency=1", "serve.isl=1000", "serve.osl=100",
    "system=dgx_h100",
)  # fmt: skip
_QWEN3_4B = ("model=qwen3_8b", "model.hidden=2560", "model.ffn=9728", "model.tied=true")
_CAPACITY = "kv_cache_capacity_B"


def _vllm(title, model, devices, share, measured, *more, source=_LOGS):
    overrides = (
        *model, *_SERVED, f"system.devices={devices}", f"parallel.strategy=TP-{devices}",
        f"server.gpu_memory_utilization={share}", *more,
    )  # fmt: skip
    return Report(title, source, overrides, _CAPACITY, measured)


DENSE_SERVERS = (
    _vllm("Llama 3.1 8B, vLLM 0.19, one H100", ("model=llama3_8b",), 1, 0.95, 58.11),
    _vllm("Llama 3.1 8B, vLLM 0.19, two H100", ("model=llama3_8b",), 2, 0.95, 63.76),
    _vllm("Llama 3.1 8B, vLLM 0.19, four H100", ("model=llama3_8b",), 4, 0.95, 67.44),
    _vllm("CodeLlama 7B, vLLM 0.19, one H100", ("model=codellama_7b",), 1, 0.95, 61.66),
    _vllm("Gemma 2 27B, vLLM 0.19, one H100", ("model=gemma2_27b",), 1, 0.95, 20.59),
    _vllm("Qwen3 14B, vLLM 0.18, one H100", ("model=qwen3_14b",), 1, 0.95, 45.23),
    _vllm("Qwen3 4B, vLLM, one H100", _QWEN3_4B, 1, 0.85, 417440, source="a log of vLLM")._replace(
        unit=1.0, per="kv_token_B"
    ),
    _vllm(
        "Llama 3.1 8B, vLLM 0.19, RTX 4090", ("model=llama3_8b",), 1, 0.9, 41408, "chip=rtx_4090",
        "system=pcie", source="a log of vLLM",
    )._replace(unit=1.0, per="kv_token_B"),
)  # fmt: skip
MIXTURE_SERVERS = (
    _vllm("gpt-oss-20b, vLLM 0.19, two H100", ("model=gpt_oss_20b",), 2, 0.9, 59.32),
    _vllm(
        "Qwen3-235B-A22B in fp8, vLLM 0.9, four H100", ("model=qwen3_235b_2507_fp8",), 4, 0.9, 8.11,
        "server.sampler_copies=9.55", "server.parallel_memory='1.13 GiB'", "server.library_memory='0.13 GiB'",
        source="vllm-project/vllm issue 21348",
    ),
    Report(
        "Qwen3-30B-A3B in fp8, SGLang, one H100", "log of SGLang",
        ("model=qwen3_30b", "model.dtype=fp8_block", *_SERVED[:1], "server=sglang", *_SERVED[2:],
         "system.devices=1", "parallel.strategy=TP-1"), _CAPACITY, 35.98,
    ),
    Report(
        "Qwen3-235B-A22B in fp8, SGLang, four H100", "vllm-project/vllm issue 21348",
        ("model=qwen3_235b_2507_fp8", *_SERVED[:1], "server=sglang", *_SERVED[2:], "system.devices=4",
         "parallel.strategy=TP-4", "server.gpu_memory_utilization=0.93"), _CAPACITY, 16.46,
    ),
)  # fmt: skip
WEIGHTS = (
    _vllm(
        "Llama 3.1 405B in fp8, eight H100: weights", ("model=llama3_405b_fp8",), 8, 0.9, 57.75,
        source="a log of vLLM",
    )._replace(column="weight_B"),
)  # fmt: skip
