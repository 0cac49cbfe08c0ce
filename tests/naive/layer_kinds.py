"""Every tensor of a transformer whose layers differ, written down layer by layer."""


def layers_of(pattern, count):
    """Return words and sizes of every layer."""
    period = []
    for entry in pattern.split(","):
        times, _, rest = entry.rpartition("*")
        words, _, sizes = rest.partition("(")
        own = dict(part.split("=") for part in sizes.rstrip(")").split())
        period += [(words.split(), {name: int(size) for name, size in own.items()})] * int(times or 1)
    return [period[i % len(period)] for i in range(count)]


def tensors(model):
    """Return the shape of every tensor, by its name; the head is not the embedding."""
    h, words, n = model["hidden"], model["vocabulary"], model.get("streams", 1)
    found = {"embedding": (words, h), "head": (h, words), "head norm": (h,)}
    own_columns = model.get("layer_embedding", 0)
    if own_columns:
        found["tables"] = (words, model["layers"] * own_columns)
        found["of the first embedding"] = (h, model["layers"] * own_columns)
        found["norm of tables"] = (own_columns,)
    for number, (kind, sizes) in enumerate(layers_of(model.get("pattern", "dense"), model["layers"])):
        layer = {}
        size = model | sizes
        if "no_mixer" not in kind:
            layer |= attention(size, kind)
            if n > 1:
                layer["streams"] = (n * h, n * n + 2 * n)
        if "no_ffn" not in kind:
            layer |= feed_forward(size, kind)
            if n > 1:
                layer["streams of ffn"] = (n * h, n * n + 2 * n)
        if own_columns:
            layer |= {"gate": (h, own_columns), "back": (own_columns, h), "norm of own": (h,)}
        found |= {f"{number} {name}": shape for name, shape in layer.items()}
    return found


def attention(size, kind):
    """Return the tensors of attention, with the norm before it."""
    h, heads, kv_heads, columns = (size[name] for name in ("hidden", "heads", "kv_heads", "head_dim"))
    found = {"attention norm": (h,), "q": (h, heads * columns), "o": (heads * columns, h)}
    if factor := size.get("query_latent"):
        found |= {"factor": (h, factor), "norm of factor": (factor,), "q": (factor, heads * columns)}
    if "shared_kv" not in kind:
        found["k"] = (h, kv_heads * columns)
        if "equal_kv" not in kind:
            found["v"] = (h, kv_heads * columns)
    gate = {"full": heads * columns, "head": heads}.get(size.get("output_gate"))
    return found | ({"gate of output": (h, gate)} if gate else {})


def feed_forward(size, kind):
    """Return the tensors of a gated feed-forward part, with the norm before it."""
    h, found = size["hidden"], {"norm": (size["hidden"],)}
    if "experts" not in kind:
        return found | {"up": (h, size["ffn"]), "gated": (h, size["ffn"]), "down": (size["ffn"], h)}
    inner = size.get("expert_latent") or h
    if inner != h:
        found |= {"to latent": (h, inner), "from latent": (inner, h)}
    found["router"] = (h, size["experts"])
    columns = size["expert_ffn"]
    for expert in range(size["experts"]):
        found |= {
            f"{expert} up": (inner, columns), f"{expert} gated": (inner, columns),
            f"{expert} down": (columns, inner),
        }  # fmt: skip
    if shared := size.get("shared_ffn"):
        found |= {"shared up": (h, shared), "shared gated": (h, shared), "shared down": (shared, h)}
        if size.get("shared_gate"):
            found["gate of shared"] = (h, 1)
    return found
