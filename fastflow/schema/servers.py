"""Inputs of servers: their hosts, memory, kernels and schedulers (docs/serving.md)."""

from __future__ import annotations

from fastflow.core.field import Column, bounded, count, fraction, nonnegative, share, text
from fastflow.schema.scheduling import CHOICES
from fastflow.schema.serving import TIERS

ALL_REDUCE_BACKENDS = ("nccl", "custom", "trtllm")
AUTO, MOE_BACKEND, MOE_LIBRARY = "auto", "server.moe_backend", "server.moe_library"
BESIDE_TOKENS, REDUNDANT = "server.shared_experts_stream_tokens", "server.redundant_experts"
CUDA_GRAPHS = "server.cuda_graphs"
TWO_BATCHES = "server.two_batch_overlap"
NANO_BATCHES, ATTENTION_SHARE = "server.nano_batches", "server.nano_batch_attention_share"
ALL_REDUCE_NORM, COMM_SMS = "server.all_reduce_norm_fusion", "server.comm_sms"
STATE_INTERVAL = "server.mamba_block_size"
CPU_OFFLOAD, OFFLOAD_BACKEND = "server.cpu_offload", "server.offload_backend"
AS_NEEDED = -1.0
"""Of CPU_OFFLOAD: auto."""
RESIDENT, EXPERT_CACHE = "server.resident_experts", "server.expert_cache"
PREFETCHED = "server.expert_prefetch_accuracy"
LRU, LFU = EXPERT_CACHES = ("lru", "lfu")
PREFETCH, UVA = OFFLOAD_BACKENDS = ("prefetch", "uva")


ADAPTERS, LORA_RANK, ADAPTERS_FROM = "server.adapters", "server.lora_rank", "server.adapters_from"
NO_ADAPTERS, OF_LORA, OF_MODELS = SERVED_ADAPTERS = ("none", "lora", "models")


def _overhead(name: str, meaning: str) -> Column:
    return Column(name, "float", "s", meaning, low=0.0, high=1e9)


SERVERS: tuple[Column, ...] = (
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
    bounded(
        nonnegative(
            CPU_OFFLOAD,
            "B",
            "weights of each device's layers that lie in lower tiers (serve.tiers), the first tier first, and"
            " are read in each pass (--cpu-offload-gb of vLLM and SGLang); auto (-1): as few as leave room"
            " for the cache of the longest request, or of one pass",
        )
    )._replace(auto=AS_NEEDED),
    text(
        OFFLOAD_BACKEND,
        "how a pass reads them: prefetch reads a layer while the one before is computed, into one of two"
        " buffers; uva reads each weight when its kernel needs it, so that reads add to the pass"
        " (--offload-backend of vLLM)",
        OFFLOAD_BACKENDS,
    ),
    share(
        RESIDENT,
        "share of a mixture's routed experts that each device keeps in memory, of each layer; others are read"
        " from lower tiers (serve.tiers) when a pass chooses them; auto: as many as leave room for the"
        " cache of the longest request, or of one pass",
    )._replace(auto=0.0),
    text(
        EXPERT_CACHE,
        "which experts it keeps: lru, those that were chosen last; lfu, those that are chosen most often, as"
        " model.power_law says",
        EXPERT_CACHES,
    ),
    fraction(
        PREFETCHED,
        "share of a pass's experts that are predicted a layer ahead, and read while the layer before is"
        " computed; those that are predicted wrongly are read too; 0: nothing is predicted",
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
        NANO_BATCHES,
        "parts of an iteration whose products, attention and exchanges run at the same time on a device,"
        " where this is faster (NanoFlow, TokenWeave); 1: kernels run one after the other",
        high=64,
    ),
    share(
        ATTENTION_SHARE,
        "share of a device that attention of decoding requests takes from products of other nano-batches",
    ),
    count(
        COMM_SMS,
        "SMs that exchanges take while products or attention of other nano-batches run",
        high=1e6,
    ),
    Column(
        ALL_REDUCE_NORM,
        "bool",
        "",
        "true: all-reduces, residual sums and norms are one kernel with multimem instructions, in which each"
        " device norms its part of the tokens (TokenWeave); false: each device norms all of them",
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
    Column(
        "server.enable_prefix_caching",
        "bool",
        "",
        "true: prompts of serve.trace reuse what the KV cache has of their start",
    ),
    count("server.block_size", "tokens of a block of the KV cache: whole blocks are reused", high=1e6),
    text(
        "server.policy",
        "scheduling policy: which requests, and how many of their tokens, an iteration has; auto: mixed or"
        " prefill_first, by server.mixed_batches; decode_first: no prompts where requests decode;"
        " shortest_prompt, priority, deadline, fair_share (the classes and deadlines of serve.trace): as"
        " mixed, in another order of the queue",
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
    text(
        ADAPTERS,
        "what the column adapter of serve.trace names: lora, adapters of all linear layers, which are in the"
        " memory of caches and are loaded as requests need them; models, weights of the same size as the"
        " model's, of which a pass computes with one (composition of experts); none: it is not read",
        SERVED_ADAPTERS,
    ),
    count(LORA_RANK, "columns between the two products of a served adapter (LoRA's r)", high=1e6),
    text(
        ADAPTERS_FROM,
        "tier of serve.tiers where all adapters or models lie, whatever its capacity for texts",
        tuple(TIERS),
    ),
    count(
        STATE_INTERVAL,
        "tokens between checkpoints of the states of linear-time mixers in cached texts: prompts go on from a"
        " checkpoint; 0: at ends of prompts and answers alone (MambaRadixCache of SGLang)",
        low=0,
        high=1e9,
    ),
    bounded(
        nonnegative(
            "server.swap_space",
            "B",
            "memory of the host for each device, to which the caches of preempted requests are swapped at the"
            " bandwidth of serve.tiers.host, as far as they fit; 0: these requests are computed anew"
            " (--swap-space of vLLM until 0.10)",
        )
    ),
    Column(
        "server.guaranteed_no_evict",
        "bool",
        "",
        "true: a request starts once its whole answer fits the KV cache; false: once its prompt fits",
    ),
)
