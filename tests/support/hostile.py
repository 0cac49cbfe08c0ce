"""What a hostile user types: overrides, switches, Python calls and broken datasets, drawn from a seed."""

import json
import random
import shutil

KEYS = [
    "tech", "mem", "net", "chip", "system", "model", "precision", "parallel", "tiling", "engine", "placement",
    "output", "trace",
    "picture", "report", "model.batch", "model.hidden", "model.dtype", "model.devices", "model.name",
    "model.strategy",
    "parallel.strategy", "parallel.microbatches", "chip.tdp", "chip.die_area", "chip.area.core",
    "chip.perimeter.dram",
    "chip.power.l2", "chip.memory.l1", "chip.name", "chip.source", "system.devices", "system.package",
    "tech.core",
    "tech.name", "mem.links_per_device", "net.intra.latency", "engine.jobs", "engine.chunk",
    "engine.chunk_bytes",
    "sweeps", "hydra", "hydra.run.dir", "hydra.sweep.dir", "hydra.mode", "hydra.job.name", "hydra/sweeper",
    "hydra.sweeper.params", "tecch", "model.bach", "model.batch.x", "chip.pinned", "chip.pinned.mcus", "x",
    "a.b.c", "router", "router.policy", "router.cache_threshold", "serve.trace", "serve.trace_speed",
    "serve.shared_prefix", "serve.tiers.write", "serve.autoscale.by", "serve.autoscale.target",
    "server.block_size", "server.policy",
    "tech@mem", "method", "measurements", "requests", "arrivals", "tiling.samples", "parallel.hidden",
    "parallel.layers", "client", "server.moe_backend", "server.eager_launch_time", "serve.first_token",
    "server.redundant_experts", "server.cuda_graphs", "server.cuda_graph_interval",
    "server.cuda_graph_max_bs", "server.two_batch_overlap",
    "server.nano_batches", "server.nano_batch_attention_share", "server.comm_sms",
    "server.all_reduce_norm_fusion", "server.cpu_offload", "server.offload_backend",
    "server.resident_experts", "server.expert_cache", "server.expert_prefetch_accuracy",
    "serve.tiers", "serve.tiers.host.capacity", "serve.tiers.flash.bandwidth", "serve.tiers.remote.scope",
]  # fmt: skip
VALUES = [
    "n7", "n12", "hbm3", "gemm", "lstm_lm", "a100", "pathfinding", "torus", "d512", "auto", "d7",
    "CR-8-d64", "1",
    "0", "-1", "8", "16", "512", "1.5", "1e9", "1e400", "nan", "inf", "-inf", "true", "false", "null", "",
    "''",
    '""', "'8'", "'200 W'", "'850 mm2'", "'1 parsec'", "'-3 W'", "???", "[]", "[1]", "[n7]", "[[n7]]", "{}",
    "{a:1}",
    "{core:0.3}", "${model.batch}", "${nosuch}", "${oc.env:NOSUCH}", "${oc.env:HOME}", "${", "${}",
    "${nosuch:1}",
    "${.batch}", "${model}", "9999999999999999999999", "1" * 400, "a" * 400, "é", "\x00", "\x1b[0m", "\n",
    "a b",
    "n7,n5", "n7,n7", "1,2", "1,1", "1,1.0", "1,", ",1", "8,'16'", "d512,auto", "null,1", "[1],[2]",
    "{a:1},{b:2}",
    "range(1,4)", "range(4,1)", "range(1,4,0)", "range(1,1000000000)", "range(0,1,1e-12)",
    "range(0.1,0.4,0.1)",
    "range(1)", "range(a,b)", "range(1,inf)", "range(-1,-5,-1)", "choice(1,2)", "choice()",
    "choice(choice(1))",
    "glob(*)", "glob(zz)", "glob([n*],exclude=n1*)", "shuffle(range(1,5))", "shuffle(n7,n5)", "sort(3,1,2)",
    "sort(range(1,4),reverse=true)", "tag(a,choice(1,2))", "interval(1,2)", "int(3.7)", "str(1)",
    "json_str(1)",
    "bool(x)", "float(range(1,3))", "extend_list(1)", "../x", "/", ".", "..", "/dev/null", "n7.yaml",
    "mine.yaml",
    "s3://x", "nosuch://x", "memory://", "file://", "://", "=", "==", "a=b", "fig09", "MULTIRUN", "RUN",
]  # fmt: skip
GOOD = [
    "tech=n7", "tech=n12,n7", "mem=hbm3", "mem=hbm2,hbm4", "net=gdr_x8", "chip=a100",
    "chip.tdp='200 W','300 W'",
    "model.batch=8,16", "model.batch=range(8,33,8)", "model.dtype=bf16", "parallel.strategy=d1,d7",
    "tiling=random_5",
    "chip.area.core=range(0.1,0.4,0.1)", "chip.area.l2=0.0", "chip.power.core=0.001",
    "chip.die_area='1 mm2'",
    "system=torus,mcm", "parallel.strategy=auto", "+chip.pinned={mcus:640}", "~chip.memory.l2",
    "chip.tdp='1 W'",
    "model.m=1", "model.m=1000000000", "placement=auto", "tiling=blocks", "mem.links_per_device=1",
    "engine.chunk=1",
]  # fmt: skip
TRANSFORMER = ["model=transformer", "model.layers=2", "model.hidden=256", "model.heads=8", "model.batch=16",
    "model.sequence=128", "system.devices=8", "parallel.strategy=TP-2-d4"]  # fmt: skip
_SIZES = ["0", "1", "3", "7", "8", "16", "64", "100", "4096", "999999999999", "-1", "2,4", "1,3,7"]
_SWITCH = ["true", "false", "true,false", "maybe", "1"]
_FILES = ["config.json", "cut.json", "deep.json", "twice.json", "bert.json", "folder",
          "/dev/zero", "config.json,cut.json", "[config.json]", "null", "no.json"]  # fmt: skip
_TYPES = ["operand", "bf16", "fp32", "fp8", "int8", "auto", "none", "fp16,fp32"]
OF_TRANSFORMERS = {
    "model.config": _FILES,
    "model.pattern": ["dense", "experts", "2*dense", "dense*2", "0*dense", "99999999*dense", "dense window",
                      "'dense, experts'", "'dense,, dense'", "x"],
    **dict.fromkeys(["model.layers", "model.heads", "model.kv_heads", "model.head_dim", "model.value_dim",
                     "model.latent", "model.query_latent", "model.rotary", "model.window", "model.ffn",
                     "model.experts", "model.topk", "model.expert_ffn", "model.shared_experts",
                     "model.vocabulary", "model.mtp", "model.positions", "model.sequence", "model.hidden",
                     "parallel.zero_stage", "parallel.hybrid_shard_size", "parallel.microbatch",
                     "parallel.microbatches"], _SIZES),
    **dict.fromkeys(["model.qk_norm", "model.qk_norm_across_heads", "model.shared_gate",
                     "model.fused_attention", "model.gated", "model.tied", "model.dropout",
                     "model.training", "parallel.expert_tensor_parallel", "parallel.reshard_after_forward",
                     "parallel.per_layer",
                     "parallel.overlap.tensor", "parallel.overlap.data"], _SWITCH),
    "model.activation": ["silu", "relu2", "mish"], "model.norm": ["rms", "layer", "rms,layer", "batch"],
    "model.block": ["pre", "post", "parallel", "sandwich,post", "x"],
    "model.biases": ["all", "qkv", "none", "x"], "model.position": ["learned", "alibi", "rotary,none", "x"],
    "model.power_law": ["0", "1.2", "8", "9", "-1", "0,1.2"],
    "model.train_tokens": ["1e12", "0", "-1", "1e300"],
    "model.dtype": ["bf16", "fp8", "int8", "fp16,fp8", "x"], "model.optimizer": ["adam", "sgd", "x"],
    "parallel.strategy": ["TP-2-d4", "TP-2-c2-e2-d2", "TP-2-d2-p2x2", "TP-3", "TP-2-e3-d4", "TP-0", "TP-",
                          "TP-2-x", "TP-1-p8x9", "TP-1-e8-d8", "TP-2-d4,TP-4-d2,d8", "auto", "RC-1-8"],
    "parallel.sequence_parallel": ["auto", "true", "false", "x"],
    "parallel.cp_comm_type": ["p2p", "a2a", "x"],
    "parallel.schedule": ["gpipe", "1f1b", "interleaved", "zero-bubble", "zb-2p,zb-v",
                          "dualpipe-v,dualpipe", "1f1b,gpipe", "x"],
    "parallel.pipeline_partition": ["even", "balanced", "x"],
    "parallel.layout": ["config.json", "no.yaml", "null"],
    "parallel.recompute": ["none,full,99", "selective", "1", "-1", "moe_act+mlp", "mlp+x", "x"],
    "parallel.offload": ["none", "all", "optimizer,activations", "x"],
    "model.teacher.layers": ["0,4", "-1", "x"], "model.teacher.hidden": ["0", "4096", "7"],
    "model.teacher.heads": ["0", "32", "3"], "model.teacher.experts": ["0", "8"],
    "model.capacity_factor": ["0", "1.25", "-1", "x"], "model.pad_to_capacity": ["true", "x"],
    "parallel.token_dispatcher": ["alltoall", "flex,allgather", "x"],
    "parallel.host_launch_time": ["'0 s'", "'10 us'", "1e-5", "'-1 s'", "x"],
    "parallel.host_bandwidth": ["'25 GB/s'", "'0 GB/s'", "'1 TB'", "5"], "parallel.overlap": ["true", "{}"],
    "parallel.embedding": ["TP-2-d4", "same", "d8", "CR-8", "x"], "parallel.hidden": ["TP-2-e3-d4", "RC-1-8"],
    "precision": ["mixed", "fp32_gradients", "mixed,fp32_gradients", "x"],
    **dict.fromkeys(["precision.weight", "precision.gradient", "precision.state", "precision.master",
                     "precision.attention", "precision.cache"], _TYPES),
    "model.layer": _SIZES, "parallel.overlap.tenser": _SWITCH, "precision.weights": _TYPES,
}  # fmt: skip
"""Keys, two of them with a slip, and values that suit the key or nearly do."""
SERVER = ["model=transformer", "model.layers=2", "model.hidden=256", "model.heads=8", "model.positions=4096",
    "chip=h100_sxm", "system=dgx_h100", "parallel.strategy=TP-2-d4", "serve.isl=64", "serve.osl=8",
]  # fmt: skip
_LENGTHS = ["0", "1", "1.5", "7", "64", "2000", "5000", "1e9", "1e10", "-1", "1,100", "nan", "'3 s'"]
_COUNTS = ["0", "1", "2", "3", "64", "1000", "1000000", "-1", "1.5", "1,8", "x"]
_TIMES = ["'0 s'", "'1 ms'", "'100 ms','1 us'", "'1 s'", "'-1 s'", "'1 B'", "5", "'1e30 s'", "null", "inf"]
_SHARES = ["0", "0.5", "1", "0.9,0.1", "-0.1", "2", "null"]
OF_SERVERS = {
    "serve": ["none", "prefill", "decode", "continuous", "disaggregated", "none,decode", "prefill,continuous",
              "x"],
    "server": ["vllm", "trtllm", "sglang", "ideal", "vllm,sglang", "x"],
    **dict.fromkeys(["serve.isl", "serve.osl"], _LENGTHS),
    **dict.fromkeys(["serve.concurrency", "serve.num_requests", "serve.batch", "serve.context",
                     "serve.num_speculative_tokens", "serve.num_unique_prompts", "serve.prefill.devices",
                     "server.max_num_batched_tokens", "server.max_num_seqs"], _COUNTS),
    **dict.fromkeys(["serve.length_range_ratio", "serve.prefix_cache_hit_rate", "serve.draft_cost_ratio",
                     "server.gpu_memory_utilization"], _SHARES),
    **dict.fromkeys(["serve.slo.ttft", "serve.slo.tpot", "server.step_overhead",
                     "server.step_overhead_per_request", "server.request_overhead"], _TIMES),
    **dict.fromkeys(["serve.simulate", "server.mixed_batches", "server.chunked_prefill",
                     "server.guaranteed_no_evict"], _SWITCH),
    "serve.slo.percentile": ["0", "50", "99.9", "100", "101", "-1", "mean", "null", "50,95"],
    "serve.request_rate": ["'0 1/s'", "'2 1/s'", "'1e9 1/s'", "3", "'-1 1/s'", "'1e-9 1/s'"],
    "serve.mean_acceptance_length": ["1", "1.5", "3", "0.5", "66"],
    "serve.speculative_method": ["mtp", "model", "mtp,model", "x"],
    "serve.lengths": ["lengths.csv", "bad.csv", "no.csv", "folder", "null", "lengths.csv,null", "/dev/zero"],
    "serve.prefill.strategy": ["same", "auto", "TP-2", "TP-4", "TP-3", "x"],
    "serve.prefill.chip": ["null", "h200_sxm", "v100", "x"],
    "serve.prefill.power_limit": ["null", "'300 W'", "'9 kW'", "'-1 W'", "7"],
    "serve.bandwidth": ["'1 GB/s'", "'0 B/s'", "7"],
    "server.policy": ["auto", "mixed", "prefill_first", "mixed,prefill_first", "x"],
    "server.memory_fraction_of": ["total", "static", "free", "x"],
    "server.cpu_offload": ["'0 B'", "auto", "'1 GB'", "'1 TB'", "'-1 B'", "'3 s'", "0.5"],
    "server.resident_experts": ["1", "auto", "0.5", "0", "-1", "2", "1e-9"],
    "server.expert_cache": ["lru", "lfu", "x"], "server.expert_prefetch_accuracy": ["0", "0.9", "1", "2"],
    "server.offload_backend": ["prefetch", "uva", "prefetch,uva", "x"],
    "serve.tiers.host.capacity": ["'0 B'", "'1 TB'", "'1 MB','1 GB'", "'-1 B'", "auto"],
    "serve.tiers.flash.bandwidth": ["'1 GB/s'", "'0 B/s'", "7"],
    "serve.tiers.remote.scope": ["rank", "fleet", "x"],
    "server.shared_pages": ["true", "false", "x"], "server.all_reduce_backend": ["custom", "nccl", "x"],
    "serve.sampling": ["greedy", "top_p", "x"], "server.sampler": ["sort", "search", "x"],
    "parallel.strategy": ["TP-8", "TP-4-d2", "TP-2-p2-d2", "auto", "TP-1-e8-d8", "TP-3", "d8", "RC-1-8",
                          "TP-2-c2-d2", "TP-2,auto"],
    "system.devices": ["1", "2", "8", "16", "8,16"], "model.dtype": ["bf16", "fp8", "int8", "x"],
    "model.layers": ["1", "3", "99999999"], "model.vocabulary": ["1", "999999999999"],
    "precision.cache": ["fp8", "operand", "x"], "serve.mode": ["decode", "none", "x"],
    "serve.ils": _LENGTHS, "trace": ["a.json"],
}  # fmt: skip
"""The same of servers; what belongs to one mode is given to all."""
CONFIG = {
    "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 1000, "max_position_embeddings": 2048,
}  # fmt: skip
SWITCHES = [
    ["-m"], ["--multirun"], ["--run"], ["-c", "job"], ["--cfg", "all"], ["--resolve"], ["-p", "mem"],
    ["--info"],
    ["-i", "nosuch"], ["-cd", "."], ["-cd", "/nosuch"], ["-cd", ""], ["-cn", "nosuch"], ["-cn",
    "recurrent"],
    ["-cn", "tech/n7"], ["-cp", "/tmp"], ["--nosuch"], ["--"], ["-x"], ["--help"], ["--experimental-rerun",
    "x"],
]  # fmt: skip
SIGNS = ["", "", "", "", "", "", "+", "++", "~", "~", " ", "@"]


def override(draw):
    """Draw an override, good or not."""
    sign, key = draw.choice(SIGNS), draw.choice(KEYS)
    if sign == "~" and draw.random() < 0.7:
        return f"~{key}"
    kind = draw.random()
    if kind < 0.02:
        return draw.choice(
            ["", "=", "+", "~", "+=", "~=", "=1", key, f"{key}==1", f"{key} = 1", f".{key}=1", f"{key}.=1"]
        )
    if kind < 0.07:  # a key with a slip
        place = draw.randrange(len(key))
        key = key[:place] + draw.choice(["", "x", ".", "/", "@", ":", "$", "é"]) + key[place + 1 :]
    return f"{sign}{key}={draw.choice(VALUES)}"


def configs(folder):
    """Write the files that transformers may be read from, of which all but the first are no such file."""
    good = json.dumps(CONFIG)
    texts = {
        "config.json": good, "cut.json": good[:-9], "deep.json": 9999 * "[",
        "bert.json": '{"model_type": "bert"}', "twice.json": good[:-1] + ', "hidden_size": 64}',
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "folder").mkdir()


def of_a_transformer(draw):
    """Draw some overrides of a small transformer."""
    some = []
    for key in draw.sample(list(OF_TRANSFORMERS), draw.choice([1, 2, 2, 3])):
        of = draw.choices(
            [OF_TRANSFORMERS[key], draw.choice(list(OF_TRANSFORMERS.values())), VALUES], [20, 1, 1]
        )
        some.append(f"{draw.choices(['', '++', '+', '~'], [20, 2, 1, 1])[0]}{key}={draw.choice(of[0])}")
    some += draw.sample(["model.batch=16,32", "chip=h100_sxm,v100", "mem=hbm2,hbm3"], draw.choice([0, 0, 1]))
    taken = {word.lstrip("+~").partition("=")[0] for word in some}
    return [word for word in TRANSFORMER if word.partition("=")[0] not in taken] + some


def of_servers(draw):
    """Draw some overrides of a small transformer that serves."""
    mode = draw.choice(["prefill", "decode", "continuous", "continuous", "disaggregated"])
    own = {"serve": mode} | ({"serve.prefill.devices": "4"} if mode == "disaggregated" else {})
    for key in draw.sample(list(OF_SERVERS), draw.choice([1, 1, 2, 3])):
        values = draw.choices([OF_SERVERS[key], draw.choice(list(OF_SERVERS.values())), VALUES], [20, 1, 1])[
            0
        ]
        own[key] = draw.choice(values)
    if own.get("serve.request_rate", "0")[1:2] not in ("0", "", "x"):
        own.setdefault("serve.concurrency", "0")
    return [word for word in SERVER if word.partition("=")[0] not in own] + [
        f"{key}={value}" for key, value in own.items()
    ]


def files_of_lengths(folder):
    """Write files of requests: one that is sound, and one that is not."""
    (folder / "lengths.csv").write_text("isl,osl\n64,8\n1000,1\n3,90\n", encoding="utf-8")
    (folder / "bad.csv").write_text("isl,osl\n64,-8\n", encoding="utf-8")
    (folder / "folder").mkdir()


def overrides(draw):
    """Draw some overrides, most often of a small model so that the good ones are quick."""
    some = draw.sample(GOOD, draw.randint(0, 3)) + [override(draw) for _ in range(draw.choice([0, 1, 1, 2]))]
    draw.shuffle(some)
    return [*(["model=gemm"] if draw.random() < 0.6 else []), *some]


def command_line(draw):
    """Draw a command line."""
    words = overrides(draw)
    if draw.random() < 0.5:
        words = ["-m", *words]
    if draw.random() < 0.25:
        place = draw.randint(0, len(words))
        words[place:place] = draw.choice(SWITCHES)
    return words


SWEPT = [
    "tech: 'n7,n5'", "mem: 'hbm2,hbm3'", "model.m: '1,2'", "model.k: 'range(1,3)'", "model.batch: [1, 2]",
    "chip.tdp: '200 W'", "parallel.strategy: d1",
]  # fmt: skip
GIVEN = ["n7,n5", "1,2", "1,1", "d512", "[1, 2]", "null", "{a: 1}", "range(1,4,0)", "${x}"]


def study(draw):
    """Draw a study's file."""

    def pair():
        return draw.choice(SWEPT) if draw.random() < 0.6 else f"{draw.choice(KEYS)}: {draw.choice(GIVEN)}"

    lines = [
        f"params: {{{pair()}}}", f"params: {{{pair()}}}", f"zip: [{{{pair()}, {pair()}}}]",
        f"union: [{{params: {{{pair()}}}}}, {{params: {{{pair()}}}}}]", "params: 3", "zip: {a: 1}",
        "union: [3]", "nosuch: 1", "params: [", "zip: [[]]", "union: null", f"params: {{{pair()}, {pair()}}}",
    ]  # fmt: skip
    begin = draw.choice(["# @package _global_\n", "# @package _global_\n", "# @package foo\n", ""])
    held = "".join(f"    {line}\n" for line in draw.sample(lines, draw.randint(1, 2)))
    mode = draw.choice(["MULTIRUN", "MULTIRUN", "RUN", "x"])
    return f"{begin}hydra:\n  mode: {mode}\n  sweeper:\n{held}"


def damage(draw, folder):
    """Do something to a copy of a dataset that nobody should do; says what."""
    parts = sorted(folder.glob("part-*.parquet"))
    part = draw.choice(parts)
    content = bytearray(part.read_bytes())
    kind = draw.choice(
        ["flip", "flip", "flip", "cut", "copy", "remove", "empty", "zero", "append", "swap", "text", "dir"]
    )
    if kind == "flip":
        for _ in range(draw.choice([1, 1, 3, 30])):
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        part.write_bytes(content)
    elif kind == "cut":
        part.write_bytes(content[: draw.randrange(len(content))])
    elif kind == "copy":
        shutil.copy(part, folder / f"part-{draw.choice([7, 99]):05d}.parquet")
    elif kind == "remove":
        part.unlink()
    elif kind == "empty":
        part.write_bytes(b"")
    elif kind == "zero":
        place = draw.randrange(len(content))
        content[place : place + 64] = bytes(len(content[place : place + 64]))
        part.write_bytes(content)
    elif kind == "append":
        part.write_bytes(content + b"PAR1")
    elif kind == "swap":
        half = len(content) // 2
        part.write_bytes(content[half:] + content[:half])
    elif kind == "text":
        part.write_text("point,time_s\n0,1\n")
    else:
        part.unlink()
        part.mkdir()
    return kind


def seeded(seed):
    """Return a source of draws."""
    return random.Random(seed)
