"""What a device of a server holds, stage by stage and tensor by tensor: weights, work space, caches.

Servers size their caches by one of three rules. vLLM takes a share of all that the device offers, less
weights and what a run at the token budget needs. SGLang takes a share of what a started process has, less
weights.
TensorRT-LLM takes a share of what such a run leaves. A pass keeps alive at a time what a layer reads, what it
adds that to, its queries and what it makes; of its dense part the gate, its partner and their product; two
buffers of each token's experts; and where a server samples, the logits of all requests several times over.
Which stage is full first decides how many requests a server holds.
"""

from math import ceil
from typing import NamedTuple


class Model(NamedTuple):
    hidden: int
    kv_heads: int
    head_dim: int
    value_dim: int
    ffn: int
    experts: int
    topk: int
    expert_ffn: int
    latent: int
    rotary: int
    window: int
    tied: bool
    words: int
    positions: int  # of a learned table


class Server(NamedTuple):
    tensor: int
    stages: list  # of each its layers: whether each has a window
    budget: int  # tokens of a pass
    share: float
    rule: str
    capacity: float  # offered to programs
    ranks: int  # of attention, which share experts
    requests: int  # at most, of which the profile samples a token
    copies: float  # of their logits
    libraries: float
    parallel: float  # libraries' further memory with tensor parallelism
    dispatch: float  # buffers of shared experts
    graphs: float
    context: float
    communicator: float


class Room(NamedTuple):
    weights: float
    work: float
    caches: float
    token: float  # of a request's cache [B], of layers that keep every token
    windowed: float


def work_space(model, server, size, last):
    """Return the activations of a pass on a stage [B]; last: whether it samples."""
    hidden = model.hidden * size
    shared = 1 if server.ranks > 1 else server.tensor
    read, summed, queries, made = (hidden for _ in range(4))
    gate = partner = product = model.ffn / server.tensor * size
    layer = server.budget * (read + summed + queries + made + gate + partner + product)
    if last and server.copies > 0.0:
        rows = min(server.requests, server.budget)
        copy = 4 * rows * model.words
        layer = max(layer, copy * server.copies + 1.42 * server.budget * hidden)
    if model.experts > 1:
        columns = model.expert_ffn / shared
        first, second = max(columns, model.hidden), max(2 * columns, model.hidden)
        layer += server.budget * model.topk * (first + second) * size
    return layer


def beside(server):
    """Return what libraries hold, and what no profile knows of: context and communicators [B]."""
    libraries, outside = server.libraries, server.context
    if server.tensor > 1:
        libraries += server.parallel
        outside += 2 * server.communicator
    if server.ranks > 1:
        libraries += server.dispatch
        outside += server.communicator
    if len(server.stages) > 1:
        outside += server.communicator
    return libraries, outside


def cache_of_layer(model, server, size):
    """Return what a token takes in a layer [B]."""
    if model.latent:  # all devices have all of it
        return (model.latent + model.rotary) * size
    return ceil(model.kv_heads / server.tensor) * (model.head_dim + model.value_dim) * size


def stage_weights(model, server, parts, number):
    """Return the weights of a stage [B]; parts: of all layers without window and with, embedding, head."""
    plain, windowed, embedding, head = parts
    every = [is_windowed for layers in server.stages for is_windowed in layers]
    total = 0.0
    for is_windowed in server.stages[number]:
        total += windowed / every.count(True) if is_windowed else plain / every.count(False)
    if number == 0:
        total += embedding
    if number == len(server.stages) - 1:
        total += head
        if model.tied and number > 0:  # a copy of the words' table, without positions
            rows = ceil(model.words / server.tensor)
            total += embedding * rows / (rows + model.positions)
    return total


def rooms(model, server, parts, tokens, size):
    """Return the room of the stage that holds the fewest requests of so many tokens."""
    of_layer, found = cache_of_layer(model, server, size), []
    libraries, outside = beside(server)
    for number, layers in enumerate(server.stages):
        weights = stage_weights(model, server, parts, number)
        work = work_space(model, server, size, number == len(server.stages) - 1)
        needed = weights + work + libraries
        free = server.capacity - outside - needed - server.graphs
        if server.rule == "total":
            caches = server.share * server.capacity - needed
        elif server.rule == "static":
            caches = server.share * (server.capacity - outside) - weights
        else:
            caches = server.share * free
        caches = min(caches, free)  # no server has more than there is
        request = sum(of_layer * (min(tokens, model.window) if own else tokens) for own in layers)
        room = Room(weights, work, caches, of_layer * layers.count(False), of_layer * layers.count(True))
        found.append((caches / request, number, room))
    return min(found)[2]
