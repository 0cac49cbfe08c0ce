"""Inputs of serving: the load of servers, and how they batch (docs/serving.md)."""

from __future__ import annotations

from fastflow.core.field import Column, bounded, count, nonnegative, positive, share, text
from fastflow.schema.scheduling import CHOICES

NO_SERVING = "none"
MODES = (NO_SERVING, "prefill", "decode", "continuous", "disaggregated")
GREEDY, TOP_P = SAMPLINGS = ("greedy", "top_p")
ALL_REDUCE_BACKENDS = ("nccl", "custom", "trtllm")
AUTO, MOE_BACKEND, MOE_LIBRARY = "auto", "server.moe_backend", "server.moe_library"
BESIDE_TOKENS, REDUNDANT = "server.shared_experts_stream_tokens", "server.redundant_experts"
CUDA_GRAPHS = "server.cuda_graphs"
TWO_BATCHES = "server.two_batch_overlap"


def _length(name: str, meaning: str) -> Column:
    return Column(name, "float", "", meaning, low=1.0, high=1e9)


def _overhead(name: str, meaning: str) -> Column:
    return Column(name, "float", "s", meaning, low=0.0, high=1e9)


SERVING: tuple[Column, ...] = (
    text(
        "serve.mode",
        "what is predicted: an iteration of training (none), one pass (prefill, decode), or servers",
        MODES,
    ),
    _length("serve.isl", "tokens of a prompt (input sequence length), on average"),
    _length("serve.osl", "tokens of an answer (output sequence length), on average"),
    count(
        "serve.images", "images of a request, whose tokens come on top of serve.isl; 0: none", low=0, high=1e6
    ),
    text("serve.image_size", "pixels of an image: of a side, such as 1024, or height x width: 1080x1920"),
    text(
        "serve.lengths",
        "file of requests, CSV or JSON Lines: token counts, which override isl, osl and"
        " length_range_ratio, and times of arrival; null: none",
    ),
    Column(
        "serve.length_range_ratio",
        "float",
        "",
        "range of lengths, which are uniform: the shortest is 1 - this value of the longest; 0:"
        " all are equal",
        0.0,
        1.0,
    ),
    text(
        "serve.sampling",
        "how the next token is drawn: greedy takes the most probable one, as benchmarks of servers do; top_p"
        " draws one of the most probable tokens, as chats do",
        SAMPLINGS,
    ),
    Column(
        "serve.prefix_cache_hit_rate",
        "float",
        "",
        "share of a prompt that is in the KV cache already",
        0.0,
        1.0,
    ),
    count(
        "serve.num_unique_prompts",
        "prompts of a benchmark that differ; repeated prompts are in the KV cache; 0: all differ",
        low=0,
    ),
    count(
        "serve.concurrency",
        "requests in flight of a closed loop, on all servers; 0: an open loop (serve.request_rate)",
        low=0,
        high=1e6,
    ),
    count(
        "serve.resident_requests",
        "requests whose caches the servers that strategy=auto selects hold at once, if any servers do;"
        " 0: any number, or serve.concurrency where you set it with system.devices=auto",
        low=0,
        high=1e6,
    ),
    nonnegative(
        "serve.request_rate",
        "1/s",
        "requests per second of an open loop, at random times (Poisson); 0: a closed loop, or the"
        " arrival times of serve.lengths",
    ),
    count(
        "serve.num_requests",
        "total number of requests; 0: in a closed loop ten for each request in flight, in an"
        " open loop until the load is stationary",
        low=0,
        high=1e7,
    ),
    Column(
        "serve.simulate",
        "bool",
        "",
        "true: simulate every iteration, which gives medians and 99th percentiles; false: an"
        " analytic estimate where it is accurate enough",
    ),
    count(
        "serve.batch",
        "largest number of requests in flight on a server, 0: as many as fit; of one pass, its sequences",
        low=0,
        high=1e6,
    ),
    count(
        "serve.context",
        "tokens in the KV cache of each request in one pass of decoding; 0: isl + osl / 2",
        low=0,
        high=1e9,
    ),
    count(
        "serve.num_speculative_tokens",
        "tokens that are proposed in each pass and verified in it (speculative decoding)",
        low=0,
        high=64,
    ),
    Column(
        "serve.mean_acceptance_length",
        "float",
        "",
        "tokens that a pass yields with speculative decoding, on average",
        1.0,
        65.0,
    ),
    text(
        "serve.speculative_method",
        "what proposes tokens: multi-token prediction heads (mtp), or a draft model (model)",
        ("mtp", "model"),
    ),
    Column(
        "serve.draft_cost_ratio",
        "float",
        "",
        "time of a token of the draft model, as a share of a pass",
        0.0,
        1.0,
    ),
    count(
        "serve.prefill.devices",
        "devices of system.devices that only prefill; the rest decodes; 0: the best split, with"
        " parallel.strategy=auto",
        low=0,
    ),
    text(
        "serve.prefill.strategy",
        "strategy of the devices that only prefill; same: servers like those that decode; auto: the best",
    ),
    text(
        "serve.prefill.chip",
        "chip of the devices that only prefill, a choice of the group chip such as h100_sxm;"
        " null: the same chip as for decoding",
    ),
    positive(
        "serve.prefill.power_limit",
        "W",
        "chip.power_limit of the devices that only prefill, up to chip.tdp of their chip",
    )._replace(absent="chip.power_limit; with serve.prefill.chip, that of its file"),
    text(
        "serve.first_token",
        "which of two servers sends the first token: prefill, that computes it; or decode, once it has the"
        " request's cache, as Dynamo with TensorRT-LLM and SGLang does",
        ("prefill", "decode"),
    ),
    nonnegative(
        "serve.bandwidth",
        "B/s",
        "bandwidth of a KV cache's transfer from a device that prefills to a device that decodes;"
        " 0: that of their links",
    ),
    nonnegative("serve.slo.ttft", "s", "longest allowed time to the first token; 0: no limit"),
    nonnegative("serve.slo.tpot", "s", "longest allowed time per output token after the first; 0: no limit"),
    Column(
        "serve.slo.percentile",
        "float",
        "",
        "percentile of requests at which both limits must hold; 0: their mean must",
        0.0,
        100.0,
    ),
    _overhead(
        "server.step_overhead",
        "time that the host adds to each iteration: scheduling, sampling, detokenization",
    ),
    _overhead(
        "server.step_overhead_per_request", "time that the host adds to each iteration for each request in it"
    ),
    _overhead(
        "server.step_overhead_per_worker",
        "time that the host adds to each iteration for each further device of a rank: its inputs are sent",
    ),
    _overhead(
        "server.request_overhead",
        "time that the host adds to the first token: from the client to the queue and back",
    ),
    _overhead(
        "server.request_overhead_per_token",
        "time that the host adds to the first token for each token of the prompt: text to tokens, their way"
        " to the scheduler, blocks of the cache",
    ),
    _overhead(
        "server.eager_launch_time",
        "time in which the host launches a kernel of an iteration with prompts, which no captured graph has:"
        " such an iteration takes at least the time of all its kernels",
    ),
    Column(
        CUDA_GRAPHS,
        "bool",
        "",
        "true: iterations that only decode are captured graphs; false: the host launches the kernels of each"
        " iteration, server.eager_launch_time each (--enforce-eager of vLLM, --disable-cuda-graph of SGLang)",
    ),
    count(
        "server.cuda_graph_interval",
        "captured graphs are of 1, 2 and 4 requests of a rank, and of multiples of this number; 1: of every"
        " number",
        high=1e6,
    ),
    count(
        "server.cuda_graph_max_bs",
        "most requests of a captured graph; iterations that need a larger one have their kernels launched one"
        " by one; 0: any number",
        low=0,
        high=1e6,
    ),
    Column(
        "server.cuda_graph_padding",
        "bool",
        "",
        "true: requests between the numbers of captured graphs are padded to the next one; false: the host"
        " launches the kernels of their iterations (enable_padding of TensorRT-LLM's cuda_graph_config)",
    ),
    _overhead(
        "server.first_use_time",
        "time that a server without a warm-up takes once, in the first iteration that prompts fill: its"
        " kernels are compiled or loaded",
    ),
    count("server.max_num_batched_tokens", "largest number of tokens of an iteration on a rank", high=1e8),
    count(
        "server.max_num_seqs",
        "largest number of requests in flight on a rank; auto (0): 1,024 on large devices such as H100, 256"
        " on smaller ones and on A100 (vLLM)",
        low=0,
        high=1e6,
    )._replace(auto=0.0),
    share(
        "server.gpu_memory_utilization",
        "share of a device's memory that the server takes; auto: by SGLang's rule, with"
        " memory_fraction_of=static",
    )._replace(auto=0.0),
    text(
        "server.memory_fraction_of",
        "total: gpu_memory_utilization is a share of all memory, for weights, work space and KV"
        " cache (vLLM); static: a share of what a started server has, for weights and KV cache (SGLang);"
        " free: a share of what weights and work space leave free, for the KV cache alone (TensorRT-LLM)",
        ("total", "static", "free"),
    ),
    *map(
        bounded,
        (
            nonnegative(
                "server.sampler_copies",
                "",
                "copies of the logits of all requests, in fp32, that exist at a time in a server's profile;"
                " 0: it does not sample there",
            ),
            nonnegative(
                "server.library_memory", "B", "memory of libraries outside the allocator, on each device"
            ),
            nonnegative(
                "server.parallel_memory",
                "B",
                "the same in addition where tensor parallelism splits layers: workspaces of all-reduces",
            ),
            nonnegative(
                "server.dispatch_memory",
                "B",
                "buffers of the exchange of experts, where attention ranks share them",
            ),
            nonnegative(
                "server.graph_memory", "B", "memory of captured graphs (CUDA graphs), on each device"
            ),
        ),
    ),
    Column(
        "server.shared_pages",
        "bool",
        "",
        "true: states of linear-time mixers and keys share pages of one size, so that a page of keys has"
        " as many tokens as a state takes, and requests take whole pages",
    ),
    count(
        "server.moe_alignment",
        "fp8_block: minimum rows of each expert's GEMM (padding), even if no token chooses the"
        " expert; 0: no padding",
        low=0,
        high=1e6,
    ),
    text(
        MOE_LIBRARY,
        "the server whose choice of kernels for experts server.moe_backend=auto takes, by their type and the"
        " chip",
        ("trtllm", "vllm", "sglang"),
    ),
    text(
        MOE_BACKEND,
        "kernels of experts: auto; cutlass; triton (fused_moe of vLLM and SGLang); triton_kernels, that"
        " module; deepgemm; trtllm, TensorRT-LLM's batched kernels for Blackwell, with which FlashInfer runs"
        " experts too; tuned, those of cutlass that TensorRT-LLM's tuner chose for it; trtllm and tuned"
        " are cutlass on chips without tensor memory",
        (AUTO, "cutlass", "tuned", "triton", "triton_kernels", "deepgemm", "trtllm"),
    ),
    count(
        REDUNDANT,
        "copies of experts beside the first of each, on devices of expert parallelism, which then share"
        " model.experts + this number of experts (ep_num_redundant_experts of SGLang); 0: none",
        low=0,
        high=1e6,
    ),
    Column(
        TWO_BATCHES,
        "bool",
        "",
        "true: where attention ranks share experts, half of an iteration is computed while the tokens of the"
        " other half are dispatched or combined (--enable-two-batch-overlap of SGLang, --enable-dbo of vLLM)",
    ),
    count(
        BESIDE_TOKENS,
        "most tokens of an iteration on a rank at which shared experts run beside the routed ones, in another"
        " stream or as one more of them; 0: they always follow",
        low=0,
        high=1e8,
    ),
    text(
        "server.sampler",
        "how top-p sampling finds the tokens that stay: sort sorts all logits (PyTorch, vLLM before 0.16),"
        " search looks for the least probability that stays (FlashInfer)",
        ("sort", "search"),
    ),
    text(
        "server.extra_layers",
        "pipeline stages that get one layer more where stages do not divide the layers;"
        " before_last: the stages next to the last",
        ("first", "before_last", "last"),
    ),
    text(
        "server.all_reduce_backend",
        "nccl: NCCL alone runs all-reduces; custom: kernels of vLLM and SGLang over peers' memory"
        " too, where they are faster; trtllm: those of TensorRT-LLM",
        ALL_REDUCE_BACKENDS,
    ),
    text(
        "server.mm_encoder_tp_mode",
        "what tensor parallelism splits in a vision tower: its weights, or the images of an iteration (data)",
        ("weights", "data"),
    ),
    text(
        "server.policy",
        "scheduling policy: which requests, and how many of their tokens, an iteration has; auto: mixed or"
        " prefill_first, by server.mixed_batches",
        CHOICES,
    ),
    Column(
        "server.mixed_batches",
        "bool",
        "",
        "true: chunks of prompts share iterations with requests that decode (chunked prefill with"
        " decode); false: prompts go first, alone",
    ),
    Column(
        "server.schedule_ahead",
        "bool",
        "",
        "true: the server composes an iteration while the one before runs (overlap or asynchronous"
        " scheduling), so that a request waits an iteration more",
    ),
    count(
        "server.scheduler_recv_interval",
        "iterations that decode between looks for new requests; it looks after each with prompts, too",
        high=1e6,
    ),
    Column(
        "server.attention_dp_balance",
        "bool",
        "",
        "true: attention ranks start prompts together: when all have one, or one has nothing to decode",
    ),
    count(
        "server.attention_dp_timeout_iters",
        "most iterations for which attention ranks with a prompt wait for the others; 0: none",
        low=0,
        high=1e6,
    ),
    count(
        "server.batch_wait_timeout_iters",
        "most iterations for which prompts wait for others, while requests decode; 0: they do not wait",
        low=0,
        high=1e6,
    ),
    Column(
        "server.batch_wait_max_tokens_ratio",
        "float",
        "",
        "share of max_num_batched_tokens from which on prompts do not wait for others",
        0.0,
        1.0,
    ),
    Column("server.chunked_prefill", "bool", "", "true: a prompt is cut where an iteration is full"),
    Column(
        "server.guaranteed_no_evict",
        "bool",
        "",
        "true: a request starts once its whole answer fits the KV cache; false: once its prompt fits",
    ),
)
