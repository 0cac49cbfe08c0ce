"""Memory of a server's device, part by part, against counts by hand; and the memory that a server needs."""

import numpy as np
import pytest

import fastflow
from fastflow.performance.serving.kv_cache import memory_need, room_of_fullest_stage
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.performance.serving.pipeline_stages import EMBEDDING_TIME, FIRST_KIND, HEAD_TIME, Stages
from tests.naive import served_memory as naive
from tests.support.checks import mixed, near
from tests.support.transformers import points

SERVERS, SIZE = 300, 2  # bytes of bf16
PATTERN, DENSE, WINDOWED = "dense, window experts", 0, 1
OF_MODEL = {"words": "vocabulary"}
OF_SERVER = {
    "server.sampler_copies": "copies", "server.library_memory": "libraries",
    "server.parallel_memory": "parallel", "server.dispatch_memory": "dispatch",
    "server.graph_memory": "graphs", "memory.context": "context", "memory.communicator": "communicator",
}  # fmt: skip


def drawn(random):
    """A model, a server of it, the bytes of its parts, and the tokens of a request."""
    latent, is_moe = int(random.choice([0, 48])), bool(random.integers(2))
    model = naive.Model(
        hidden=int(random.integers(1, 40)) * 16, kv_heads=int(random.choice([1, 2, 4, 8])), head_dim=20,
        value_dim=12, ffn=int(random.integers(1, 3000)), experts=8 if is_moe else 0, topk=3 if is_moe else 0,
        expert_ffn=int(random.integers(1, 2000)) if is_moe else 0, latent=latent, rotary=6 if latent else 0,
        window=int(random.integers(1, 300)), tied=bool(random.integers(2)),
        words=int(random.integers(100, 4000)), positions=int(random.choice([0, 500])),
    )  # fmt: skip
    stages = [
        [bool(random.integers(2)) for _ in range(random.integers(1, 5))] for _ in range(random.integers(1, 5))
    ]
    parts = random.uniform(1e6, 5e8, 4)
    windowed = [layer for layers in stages for layer in layers]
    parts[0] *= False in windowed
    parts[1] *= True in windowed
    server = naive.Server(
        tensor=int(random.choice([1, 2, 4])), stages=stages, budget=int(random.integers(1, 9000)),
        share=float(random.uniform(0.3, 1.0)), rule=str(random.choice(["total", "static", "free"])),
        capacity=float(random.uniform(1e8, 4e9)), ranks=int(random.choice([1, 4])),
        requests=int(random.integers(1, 400)), copies=float(random.choice([0.0, 3.66])),
        libraries=1e7, parallel=2e7, dispatch=3e7, graphs=4e7, context=5e6, communicator=6e6,
    )  # fmt: skip
    return model, server, parts, float(random.integers(1, 600))


@pytest.fixture(scope="module")
def servers():
    random = np.random.default_rng(11)
    return [drawn(random) for _ in range(SERVERS)]


@pytest.fixture(scope="module")
def inputs(servers):
    """The columns of all servers' models and settings."""
    model_columns = {
        OF_MODEL.get(name, name): [getattr(model, name) for model, *_ in servers]
        for name in naive.Model._fields
    }
    model_columns["position"] = ["learned" if model.positions else "rotary" for model, *_ in servers]
    model_columns["pattern"] = [PATTERN] * SERVERS
    model_columns["training"] = [False] * SERVERS
    server_columns = {
        "server.max_num_batched_tokens": [server.budget for _, server, *_ in servers],
        "server.gpu_memory_utilization": [server.share for _, server, *_ in servers],
        "server.shared_pages": [False] * SERVERS,
        "server.cuda_graphs": [True] * SERVERS,
        "server.memory_fraction_of": [server.rule for _, server, *_ in servers],
        "server.max_num_seqs": [server.requests for _, server, *_ in servers],
        "memory.reserve": [0.0] * SERVERS,
        "system.library": ["nccl"] * SERVERS,
    } | {
        key: [getattr(server, name) for _, server, *_ in servers] for key, name in OF_SERVER.items()
    }  # fmt: skip
    table = points(**model_columns) | mixed(SERVERS)
    return table | {key: np.array(column) for key, column in server_columns.items()}


@pytest.fixture(scope="module")
def fullest_stage(servers, inputs):
    """Memory of the stage that is full first, and a request's cache."""
    ones, slots = np.ones(SERVERS, int), np.array([len(server.stages) for _, server, *_ in servers])
    tensor = np.array([server.tensor for _, server, *_ in servers])
    texts = np.full(SERVERS, "")
    ranks = np.array([server.ranks for _, server, *_ in servers])
    layouts = ServerLayouts(texts, tensor, ranks, slots, ones, ranks, 0 * ones, texts)
    layers = np.zeros((SERVERS, slots.max(), 2), dtype=np.int64)
    weights = np.zeros((SERVERS, FIRST_KIND + 2))
    for i, (_, server, parts, _) in enumerate(servers):
        for stage, windowed in enumerate(server.stages):
            layers[i, stage, [DENSE, WINDOWED]] = windowed.count(False), windowed.count(True)
        weights[i, [FIRST_KIND + DENSE, FIRST_KIND + WINDOWED, EMBEDDING_TIME, HEAD_TIME]] = parts
    stages = Stages(layers, np.ones(SERVERS), np.ones(SERVERS))
    capacity = np.array([server.capacity for _, server, *_ in servers])
    tokens = np.array([tokens for *_, tokens in servers])
    return (*room_of_fullest_stage(inputs, layouts, stages, weights, capacity, tokens), layouts)


def test_each_part_of_a_servers_memory_is_counted_by_hand(servers, fullest_stage):
    room, cache, _ = fullest_stage
    for i, (model, server, parts, tokens) in enumerate(servers):
        expected = naive.rooms(model, server, parts, tokens, SIZE)
        for name in ("weights", "work", "caches"):
            assert near(getattr(room, name)[i], getattr(expected, name), rel=1e-9), (name, i)
        assert cache.token[i] == expected.token
        assert cache.windowed[i] == expected.windowed
        assert cache.window[i] == model.window
    assert (room.caches < 0.0).any()  # some have no room for their weights
    assert (room.caches > 0.0).any()


def test_a_server_with_the_memory_it_needs_has_just_enough(servers, inputs, fullest_stage):
    """With as much memory as it would need, the caches are the wanted ones."""
    (room, _, layouts), wanted = fullest_stage, np.full(SERVERS, 1e7)
    available = np.array([server.capacity for _, server, *_ in servers])
    need = memory_need(inputs, layouts, room, available, wanted)
    for i, (_, server, *_) in enumerate(servers):
        total, (libraries, outside) = need.total[i], naive.beside(server)
        needed = room.weights[i] + room.work[i] + libraries
        free = total - outside - needed - server.graphs
        by_rule = {
            "total": server.share * total - needed,
            "static": server.share * (total - outside) - room.weights[i],
            "free": server.share * free,
        }
        assert near(min(by_rule[server.rule], free), wanted[i], rel=1e-6), (i, server.rule)
    assert (need.available == available).all()
    for name, column in (("weights", room.weights), ("work", room.work), ("cache", wanted)):
        assert (getattr(need, name) == column).all()


def test_columns_of_a_served_point_are_the_parts_of_its_memory():
    """The footprint is weights, workspace and caches; the room is a share of memory without the first two."""
    row = fastflow.evaluate(
        "model=transformer", "model.hidden=512", "model.heads=8", "model.kv_heads=2", "model.ffn=1024",
        "model.layers=2", "model.vocabulary=1000", "chip=h100_sxm", "system=dgx_h100", "serve=decode",
        "server=vllm", "serve.isl=100", "serve.osl=20", "serve.batch=3", "system.devices=2",
        "parallel.strategy=TP-1", "server.max_num_batched_tokens=1000", "server.gpu_memory_utilization=0.5",
    ).iloc[0]  # fmt: skip
    work = max(1000 * (4 * 512 + 3 * 1024) * SIZE, 3.66 * 1000 * 1000 * 4 + 1.42 * 1000 * 512 * SIZE)
    libraries, graphs = 0.25 * 2**30, 0.91 * 2**30
    weights = SIZE * (2 * (512 * 64 * 12 + 512 * 512 + 3 * 512 * 1024) + 2 * 1000 * 512)
    assert row["weight_B"] == pytest.approx(weights, rel=1e-3)  # and gains of norms
    assert row["kv_token_B"] == 2 * 2 * 2 * 64 * SIZE  # layers, keys and values, heads, columns
    assert row["workspace_B"] == pytest.approx(work)
    assert row["library_B"] == libraries
    assert row["graph_B"] == graphs
    assert row["context_B"] > 0.0 == row["communicator_B"]
    parts = ("weight", "workspace", "library", "graph", "context", "kv")
    assert row["footprint_B"] == pytest.approx(sum(row[f"{part}_B"] for part in parts))
    room = 0.5 * row["dram_offered_B"] - row["weight_B"] - work - libraries
    assert row["kv_cache_capacity_B"] == pytest.approx(room)


SERVED = ("model=transformer", "model.hidden=512", "model.heads=8", "model.ffn=1024", "model.layers=8",
          "chip=h100_sxm", "system=dgx_h100", "serve=prefill", "serve.isl=100")  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "columns"),
    [
        ("dense", 3 * 1024),
        ("dense, dense(ffn=4096)", 3 * 4096),
        ("dense(ffn=256), dense(ffn=512)", 3 * 512),
        ("dense, experts(experts=8 topk=3 expert_ffn=1400)", 3 * 1024 + 3 * (1400 + 2800)),
    ],
)
@pytest.mark.parametrize("tensor", [1, 2])
def test_the_work_of_a_pass_is_that_of_its_widest_kind_of_layer(pattern, columns, tensor):
    asked = (*SERVED, f"parallel.strategy=TP-{tensor}", f"system.devices={tensor}")
    row = fastflow.evaluate(*asked, f"model.pattern='{pattern}'", "server.max_num_batched_tokens=2048").iloc[
        0
    ]
    work = 2048 * (4.0 * 512 + columns / tensor) * SIZE
    assert row["workspace_B"] == pytest.approx(work)


def test_models_of_a_grid_have_the_work_of_their_own_kinds():
    rows = fastflow.evaluate(*SERVED, "model.pattern='dense(ffn=512)','dense, dense(ffn=4096)'")
    work = rows["workspace_B"]
    assert work[1] / work[0] == pytest.approx((4 * 512 + 3 * 4096) / (4 * 512 + 3 * 512))


HYBRID = (
    "model=transformer", "model.hidden=512", "model.heads=8", "model.kv_heads=2", "model.ffn=1024",
    "model.layers=8", "model.pattern='3*gated_delta dense, dense'", "model.linear_heads=6",
    "model.linear_key_heads=2", "model.linear_key_dim=32", "model.linear_value_dim=64", "model.conv_width=4",
    "model.vocabulary=1000", "chip=h100_sxm", "system=dgx_h100", "serve=decode", "serve.batch=3",
    "serve.osl=20", "system.devices=2", "parallel.strategy=TP-2",
)  # fmt: skip


@pytest.mark.parametrize("tokens", [1, 100, 1000])
def test_a_request_has_its_states_whatever_its_tokens(tokens):
    """Six layers with a state of fp32 and the last tokens of a convolution, two with keys and values."""
    row = fastflow.evaluate(*HYBRID, f"serve.isl={tokens}").iloc[0]
    heads, keys, values = 6 // 2, 32, 64
    channels = -(-(2 * 2 * keys + 6 * values) // 2)  # of queries, keys and values, on one of two devices
    assert row["kv_state_B"] == 6 * (heads * keys * values * 4 + 3 * channels * SIZE)
    assert row["kv_token_B"] == 2 * 1 * (64 + 64) * SIZE
    assert row["kv_B"] == pytest.approx(3 * (row["kv_state_B"] + row["kv_token_B"] * (tokens + 10)), rel=0.02)
    assert row["kv_states_B"] == pytest.approx(3 * row["kv_state_B"], rel=1e-12)
    assert row["kv_window_B"] == row["kv_window_token_B"] == 0.0


@pytest.mark.parametrize(
    "more", [(), ("serve=continuous", "serve.osl=20"), ("serve=prefill", "serve.batch=2")]
)
def test_caches_in_use_are_told_by_kind(more):
    """Layers in turn: a window of 64 tokens, all tokens, a state."""
    pattern = "model.pattern='window dense, dense, gated_delta dense'"
    row = fastflow.evaluate(
        *HYBRID, "model.layers=6", pattern, "model.window=64", "serve.isl=1000", *more
    ).iloc[0]  # fmt: skip
    rest = row["kv_B"] - row["kv_window_B"] - row["kv_states_B"]
    requests = row["kv_states_B"] / row["kv_state_B"]
    assert row["kv_window_B"] == pytest.approx(requests * 64 * row["kv_window_token_B"], rel=1e-9)
    of_token = row["kv_token_B"] - row["kv_window_token_B"]
    assert 999 <= rest / (requests * of_token) <= 1021


@pytest.mark.parametrize("tokens", [100, 1000])
def test_states_and_keys_share_pages_of_one_size(tokens):
    """A page of keys holds as many tokens as a state takes, a multiple of 16; requests take whole pages."""
    plain, paged = (
        fastflow.evaluate(*HYBRID, f"serve.isl={tokens}", f"server.shared_pages={shared}").iloc[0]
        for shared in ("false", "true")
    )
    state, token = plain["kv_state_B"] / 6, plain["kv_token_B"] / 2
    page = 16
    while page * token < state:
        page += 16
    assert paged["kv_state_B"] == 6 * page * token
    context = tokens + 10
    pages = -(-context // page)
    assert paged["kv_B"] == pytest.approx(3 * (6 * page * token + 2 * pages * page * token), rel=1e-9)
