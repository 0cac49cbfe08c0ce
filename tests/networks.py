"""Networks that test files write down: three layers, one of each kind, each a product of its own size."""

LAYERS = (("low", "embedding"), ("middle", "hidden"), ("high", "softmax"))


def three_products(rows, sizes, loss=True):
    """Return a feed-forward network as YAML; sizes: columns that enter it, and that each layer makes."""
    lines = ["name: three products", f"rows: {rows}", "layers:"]
    for (name, kind), inner, cols in zip(LAYERS, sizes, sizes[1:], strict=False):
        lines += [f"- name: {name}", f"  kind: {kind}", "  kernels:"]
        lines.append(f"  - {{name: {name}, type: gemm, inner: {inner}, cols: {cols}}}")
    if loss:
        lines.append(f"  - {{name: loss, type: rowwise, cols: {sizes[-1]}, flop: 4, moves: 1}}")
    return "\n".join(lines) + "\n"
