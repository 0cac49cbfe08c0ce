"""What a device of a server holds, stage by stage and tensor by tensor: weights, a pass's work space, caches.

A server takes a share of the memory for everything, or after weights and work space a share of the rest for
caches. A pass keeps alive at a time what a layer reads, what it adds that to and what it makes, and of its
widest part what goes into the activation and what comes out. Which stage is full first decides how many
requests a server holds.
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
    of_free: bool  # whether the share is of what weights and work space leave
    capacity: float


class Room(NamedTuple):
    weights: float
    work: float
    caches: float
    token: float  # of a request's cache [B], of layers that keep every token
    windowed: float


def work_space(model, server, size):
    """Return the activations of a pass [B]."""
    ffn = model.topk * model.expert_ffn if model.experts > 1 else 0
    widest = max(model.ffn, ffn) / server.tensor
    read, summed, made = (model.hidden for _ in range(3))
    gate_and_up, activated = 2 * widest, widest
    return server.budget * (read + summed + made + gate_and_up + activated) * size


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
    work, of_layer, found = work_space(model, server, size), cache_of_layer(model, server, size), []
    for number, layers in enumerate(server.stages):
        weights = stage_weights(model, server, parts, number)
        if server.of_free:
            caches = server.share * (server.capacity - weights - work)
        else:
            caches = server.share * server.capacity - weights - work
        request = sum(of_layer * (min(tokens, model.window) if own else tokens) for own in layers)
        room = Room(weights, work, caches, of_layer * layers.count(False), of_layer * layers.count(True))
        found.append((caches / request, number, room))
    return min(found)[2]
