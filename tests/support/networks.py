"""Networks that test files write down: products of three layers, one of each kind, and a small MLP."""

MLP = """
rows: 4096
layers:
- name: mlp
  kernels:
  - {name: up, type: gemm, inner: 512, cols: 2048}
  - {name: act, type: elementwise, cols: 2048}
  - {name: down, type: gemm, inner: 2048, cols: 512}
- name: head
  kernels:
  - {name: logits, type: gemm, inner: 512, cols: 1024}
"""
MLP_WEIGHTS = 512 * 2048 * 2 + 512 * 1024
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
